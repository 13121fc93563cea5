//! Results of `convoy bench engine`.

use super::measure::{Latency, Point};
use super::report::Report;
use super::trials::{Rekeys, Stall};
use crate::results::build::Draft;
use crate::results::fields::Fields;
use crate::results::{Better, CONVOY, Name, Results};

impl Report {
    /// In the form of all benches.
    #[must_use]
    pub fn results(&self) -> Results {
        let mut results = Results::new("engine", &self.head);
        let facts = [("cache_line_cycles", self.line_cycles), ("computing_at_once", self.together)];
        for (name, value) in facts {
            value.into_iter().for_each(|value| results.facts.set(name, value));
        }
        for (name, cpu) in ["submitting_processor", "pool_processor"].iter().zip(&self.cpus) {
            results.facts.set(*name, *cpu);
        }
        for point in &self.points {
            results.add(costs(point, &self.tier));
            results.add(rate(point, &self.tier));
            for latency in &point.latencies {
                latencies(point, &self.tier, latency).into_iter().for_each(|one| results.add(one));
            }
        }
        self.stall.iter().for_each(|stall| results.add(stalled(stall, &self.tier)));
        self.rekeys.iter().for_each(|one| results.add(rekeys(one, &self.tier)));
        results.left_out.extend_from_slice(&self.skipped);
        results
    }
}

fn place(point: &Point, tier: &str) -> Fields {
    Fields::default()
        .with("engine", point.engine.as_str())
        .with("suite", point.suite.as_str())
        .with("size", point.size)
        .with("tier", tier)
}

fn by(engine: &str) -> Name {
    Name::new(CONVOY, engine)
}

fn costs(point: &Point, tier: &str) -> Draft {
    let quantity = "cycles of the submitting core per packet";
    Draft::new(quantity, "cycles", Better::Less, place(point, tier))
        .fact("inner_bytes", point.bytes)
        .series(&by(&point.engine), &point.samples)
}

fn rate(point: &Point, tier: &str) -> Draft {
    Draft::new("packets per second", "packets/s", Better::More, place(point, tier))
        .fact("inner_bytes", point.bytes)
        .series(&by(&point.engine), &[point.packets_per_second])
}

/// Each percentile of one load.
fn latencies(point: &Point, tier: &str, latency: &Latency) -> [Draft; 3] {
    let Latency { load, median_us, p99_us, p999_us } = *latency;
    [("50", median_us), ("99", p99_us), ("99.9", p999_us)].map(|(percentile, value)| {
        let place = place(point, tier)
            .with("load_percent", (100.0 * load).round() as u64)
            .with("percentile", percentile);
        Draft::new("latency", "µs", Better::Less, place).series(&by(&point.engine), &[value])
    })
}

fn stalled(stall: &Stall, tier: &str) -> Draft {
    let quantity = "time until the packets of a stalled device are out";
    let place = Fields::default().with("engine", "model").with("tier", tier);
    Draft::new(quantity, "ms", Better::Less, place)
        .fact("packets", stall.jobs)
        .fact("deadline_ms", stall.deadline_ms)
        .series(&by("model"), &[stall.all_out_ms])
}

fn rekeys(rekeys: &Rekeys, tier: &str) -> Draft {
    let place = Fields::default().with("engine", rekeys.engine.as_str()).with("tier", tier);
    let names = ["with 1,000 new keys a second", "with one key"].map(by);
    let mut draft =
        Draft::new("packets per second under new keys", "packets/s", Better::More, place);
    for (name, rounds) in names.iter().zip(&rekeys.rounds) {
        draft = draft.series(name, rounds);
    }
    draft.ratio(&names[0], &names[1], Better::More)
}
