//! Results of `convoy bench forward`.

use super::latency::{Latency, PERCENTILES};
use super::point::{Costs, Findings, PerPacket, Point};
use super::radar::{Axis, Radar, radars};
use super::report::Report;
use crate::results::build::Draft;
use crate::results::fields::Fields;
use crate::results::head::Head;
use crate::results::{Better, CONVOY, Name, Results};

/// Name of the rate of figure F9 in the results.
pub const RATE: &str = "packets per second at 0.01 % loss";

impl Report {
    /// In the form of all benches.
    #[must_use]
    pub fn results(&self) -> Results {
        self.findings.results(&self.head)
    }
}

impl Findings {
    /// In the form of all benches.
    #[must_use]
    pub fn results(&self, head: &Head) -> Results {
        let mut results = Results::new("forward", head);
        results.complete = self.complete;
        let processors = ["worker_processor", "generator_processor", "other_processor"];
        for (name, cpu) in processors.iter().zip(&self.cpus) {
            results.facts.set(*name, *cpu);
        }
        results.facts.set("packets_of_a_trial", self.packets);
        results.facts.set("loss_allowed", crate::forward::search::LOSS);
        results.facts.set("ring_packets", crate::forward::search::RING);
        results.facts.set("share_others_may_take", self.allowed);
        for point in &self.points {
            let place = place(point, &self.tier);
            results.add(self.rate(point, place.clone()));
            for latency in &point.latencies {
                let drafts = latencies(point, &place, latency);
                drafts.into_iter().for_each(|draft| results.add(draft));
            }
            if let Some(costs) = &point.costs {
                results.add(cycles(point, place.clone(), costs));
            }
            if let Some(link) = &point.link {
                links(point, &place, link).into_iter().for_each(|draft| results.add(draft));
            }
        }
        for radar in radars(self) {
            for axis in &radar.axes {
                scores(&radar, axis, &self.tier).into_iter().for_each(|draft| results.add(draft));
            }
        }
        results.left_out.extend(self.all_left_out());
        results.errors.clone_from(&self.errors);
        results
    }

    fn rate(&self, point: &Point, place: Fields) -> Draft {
        let trials: usize = point.searches.iter().map(|found| found.trials).sum();
        let voids: usize = point.searches.iter().map(|found| found.voids).sum();
        let draft = Draft::new(RATE, "packets/s", Better::More, place)
            .fact("trials", trials)
            .fact("void_trials", voids);
        match point.rate() {
            // The core does nothing else at that rate, so this is what a packet costs it.
            Some(rate) => draft
                .fact("cycles_of_the_core", self.mhz * 1e6 / rate)
                .series(&by(point), &point.rates()),
            // Why there are none is told by what is left out.
            None => draft,
        }
    }
}

fn by(point: &Point) -> Name {
    Name::new(CONVOY, &point.engine)
}

fn place(point: &Point, tier: &str) -> Fields {
    Fields::default()
        .with("engine", point.engine.as_str())
        .with("suite", point.suite.as_str())
        .with("size", point.size)
        .with("tier", tier)
}

/// Each percentile of one load, and the longest.
fn latencies(point: &Point, place: &Fields, latency: &Latency) -> Vec<Draft> {
    let percentiles = PERCENTILES.iter().map(|(_, name)| *name).zip(latency.percentiles);
    let all = percentiles.chain([("max", latency.max)]);
    let draft = |(percentile, value): (&str, f64)| {
        let place = place
            .clone()
            .with("load_percent", (100.0 * latency.load).round() as u64)
            .with("percentile", percentile);
        Draft::new("latency", "µs", Better::Less, place)
            .fact("packets", latency.packets)
            .fact("packets_per_second", latency.rate)
            .series(&by(point), &[value])
    };
    all.map(draft).collect()
}

fn cycles(point: &Point, place: Fields, costs: &Costs) -> Draft {
    let quantity = "cycles of the submitting core per packet";
    Draft::new(quantity, "cycles", Better::Less, place)
        .fact("quartile_range", costs.quartile_range())
        .fact("coefficient_of_variation", costs.coefficient())
        .series(&by(point), &costs.samples)
}

/// Bytes and descriptors, each way.
fn links(point: &Point, place: &Fields, link: &PerPacket) -> [Draft; 4] {
    let PerPacket { to_device, from_device, descriptors, completions } = *link;
    [
        ("bytes over the bus per packet", "bytes", "to device", to_device),
        ("bytes over the bus per packet", "bytes", "from device", from_device),
        ("descriptors over the bus per packet", "descriptors", "to device", descriptors),
        ("descriptors over the bus per packet", "descriptors", "from device", completions),
    ]
    .map(|(quantity, unit, direction, value)| {
        let place = place.clone().with("direction", direction);
        Draft::new(quantity, unit, Better::Less, place).series(&by(point), &[value])
    })
}

/// Positions of engines on one axis of the radar.
fn scores(radar: &Radar, axis: &Axis, tier: &str) -> Vec<Draft> {
    let draft = |score: &crate::forward::radar::Score| {
        let place = Fields::default()
            .with("axis", axis.name)
            .with("engine", score.engine.as_str())
            .with("suite", radar.suite.as_str())
            .with("size", radar.size)
            .with("tier", tier);
        let draft = Draft::new("score beside the best", "of the best", Better::More, place)
            .fact("judged", axis.unit.is_none());
        let draft = score.value.into_iter().fold(draft, |draft, value| draft.fact("value", value));
        let draft = axis.unit.into_iter().fold(draft, |draft, unit| draft.fact("unit", unit));
        let reason = score.reason.into_iter();
        let draft = reason.fold(draft, |draft, reason| draft.fact("reason", reason));
        draft.series(&Name::new(CONVOY, &score.engine), &[score.score])
    };
    axis.scores.iter().map(draft).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::point::tests::findings;

    #[test]
    fn what_was_found_out_is_written_and_read_back() {
        let mut findings = findings();
        let results = findings.results(&Head::now());
        let of = |results: &Results, quantity: &str| -> usize {
            results.points.iter().filter(|point| point.quantity == quantity).count()
        };
        assert_eq!((of(&results, RATE), of(&results, "latency")), (2, 2 * 3 * 5));
        assert_eq!(of(&results, "cycles of the submitting core per packet"), 2);
        assert_eq!(of(&results, "bytes over the bus per packet"), 2);
        assert_eq!(of(&results, "score beside the best"), 14);
        assert_eq!(results.points[0].series[0].rounds, [1.9e6, 2e6, 2.1e6]);
        let cycles = results.points[0].facts.get("cycles_of_the_core");
        assert_eq!(cycles.and_then(crate::results::fields::Value::number), Some(1000.0));
        let text = results.to_json().unwrap();
        assert_eq!(Results::parse(text.as_bytes()).unwrap(), results);
        // A point without a rate is no point, and is left out.
        findings.points[1].searches.clear();
        let results = findings.results(&Head::now());
        assert_eq!((of(&results, RATE), results.left_out.len()), (1, 2));
    }
}
