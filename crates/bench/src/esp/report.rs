//! Results as rows of text.

use super::beside::Beside;
use super::goal::{self, Figure};
use super::measure::{DirectionCost, Point};
use super::soak::Soak;
use super::workers::Rate;
use crate::cores::Cores;
use crate::report::{cycles, size_name};
use crate::results::head::Head;
use crate::stats::Summary;

/// Everything a run found out.
#[derive(Clone, Debug)]
pub struct Report {
    /// Version, command and machine.
    pub head: Head,
    /// The figures to reach, where they were measured.
    pub figures: Vec<Figure>,
    /// All points.
    pub points: Vec<Point>,
    /// Engines and tiers that took turns.
    pub beside: Vec<Beside>,
    /// All soaks.
    pub soaks: Vec<Soak>,
    /// State of the workers' cores before the run.
    pub cores: Option<Cores>,
    /// Rates of workers.
    pub rates: Vec<Rate>,
    /// Errors: points that could not be measured, packets that are not accounted for.
    pub errors: Vec<String>,
}

type Rows = Vec<Vec<String>>;

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// The figures to reach: goal, measured, reached or not.
#[must_use]
pub fn figure_rows(figures: &[Figure]) -> Rows {
    let mut rows =
        vec![row(["FIGURE", "SUITE", "SIZE", "SAS", "TIER", "GOAL", "MEASURED", "REACHED"])];
    rows.extend(figures.iter().map(|figure| {
        vec![
            figure.what.to_owned(),
            figure.suite.clone(),
            size_name(&figure.size),
            figure.sas.to_string(),
            figure.tier.to_owned(),
            match figure.what {
                goal::WORKERS => format!("≥ {:.2}", figure.goal),
                _ => format!("≤ {}", cycles(figure.goal)),
            },
            match figure.what {
                goal::WORKERS => format!("{:.2}", figure.measured),
                _ => cycles(figure.measured),
            },
            if figure.reached { "yes" } else { "no" }.to_owned(),
        ]
    }));
    rows
}

/// Name of the tier of Convoy's own kernels, or of another driver, that did the cryptography.
fn by(engine: &str, tier: &str) -> String {
    if engine == "inline" { tier } else { engine }.to_owned()
}

/// All points: per direction what the pipeline needs, what the library alone needs, and the
/// difference with its quartiles.
#[must_use]
pub fn point_rows(points: &[Point]) -> Rows {
    let mut rows = vec![row([
        "SUITE", "SIZE", "SAS", "POLICIES", "FLOWS", "BY", "OUT", "CRYPTO", "OVER", "IN", "CRYPTO",
        "OVER", "LOOK-UP", "NEW",
    ])];
    for point in points {
        let mut cells = vec![
            point.suite.clone(),
            size_name(&point.size),
            point.sas.to_string(),
            point.policies.to_string(),
            point.flows.to_string(),
            by(&point.engine, point.tier),
        ];
        cells.extend(way(&point.outbound));
        cells.extend(way(&point.inbound));
        cells.extend([cycles(point.lookup.mean), cycles(point.lookup_new.mean)]);
        rows.push(cells);
    }
    rows
}

/// Engines and tiers that took turns: what each needs out and in, and in the time of the first with Convoy's own kernels.
#[must_use]
pub fn beside_rows(all: &[Beside]) -> Rows {
    let mut rows = vec![row(["SUITE", "SIZE", "SAS", "BY", "OUT", "RATIO", "IN", "RATIO"])];
    for beside in all {
        let own = beside.library.as_ref().and_then(|(at, _)| beside.members.get(*at));
        for member in &beside.members {
            let ratio = |rounds: &[f64], own: Option<&[f64]>| {
                let own = own.filter(|own| own.len() == rounds.len());
                let ratios = own.map(|own| rounds.iter().zip(own).map(|(a, b)| a / b).collect());
                let sum = ratios.and_then(|ratios: Vec<_>| Summary::of(&ratios));
                sum.map_or_else(
                    || "–".to_owned(),
                    |sum| format!("{:.2} ({:.2}–{:.2})", sum.median, sum.low, sum.high),
                )
            };
            let mean = |rounds: &[f64]| {
                Summary::of(rounds).map_or_else(|| "–".to_owned(), |sum| cycles(sum.mean))
            };
            let ways = &member.ways;
            rows.push(vec![
                beside.suite.clone(),
                size_name(&beside.size),
                beside.sas.to_string(),
                member.name.clone(),
                mean(&ways.outbound),
                ratio(&ways.outbound, own.map(|own| &own.ways.outbound[..])),
                mean(&ways.inbound),
                ratio(&ways.inbound, own.map(|own| &own.ways.inbound[..])),
            ]);
        }
    }
    rows
}

/// The stages of all points that were watched, in cycles per packet.
#[must_use]
pub fn stage_rows(points: &[Point]) -> Rows {
    let mut rows = vec![row(["SUITE", "SIZE", "SAS", "BY", "", "STAGES"])];
    for point in points {
        for (name, way) in [("out", &point.outbound), ("in", &point.inbound)] {
            if way.stages.is_empty() {
                continue;
            }
            let stages = way.stages.iter();
            let stages = stages.map(|cost| format!("{} {}", cost.stage, cycles(cost.packet.mean)));
            rows.push(vec![
                point.suite.clone(),
                size_name(&point.size),
                point.sas.to_string(),
                by(&point.engine, point.tier),
                name.to_owned(),
                stages.collect::<Vec<_>>().join(", "),
            ]);
        }
    }
    rows
}

fn way(way: &DirectionCost) -> [String; 3] {
    let over = &way.over;
    [
        cycles(way.pipeline.mean),
        cycles(way.crypto.mean),
        format!("{} ({}–{})", cycles(over.mean), cycles(over.low), cycles(over.high)),
    ]
}

/// Rate of each number of workers.
#[must_use]
pub fn rate_rows(rates: &[Rate]) -> Rows {
    let mut rows =
        vec![row(["SUITE", "SIZE", "SAS", "BY", "WORKERS", "PACKETS/S", "IN ONE WORKER'S"])];
    rows.extend(rates.iter().map(|rate| {
        let ratio = &rate.ratio;
        vec![
            rate.suite.clone(),
            size_name(&rate.size),
            rate.sas.to_string(),
            by(&rate.engine, rate.tier),
            rate.workers.to_string(),
            format!("{:.0}", rate.packets.median),
            format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.low, ratio.high),
        ]
    }));
    rows
}

/// All soaks.
#[must_use]
pub fn soak_rows(soaks: &[Soak]) -> Rows {
    let mut rows = vec![row([
        "SUITE",
        "SIZE",
        "SAS",
        "BY",
        "SENT",
        "RECEIVED",
        "TAKEN",
        "DROPPED",
        "MB BEFORE",
        "MB AFTER",
        "PACKETS/S",
        "WELL",
    ])];
    for soak in soaks {
        let books = &soak.books;
        let dropped: Vec<_> = books.dropped.iter().map(|(why, n)| format!("{why} {n}")).collect();
        let mega = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        rows.push(vec![
            soak.suite.clone(),
            size_name(&soak.size),
            soak.sas.to_string(),
            by(&soak.engine, soak.tier),
            books.sent.to_string(),
            books.received.to_string(),
            books.faults.map_or(0, |faults| faults.lost).to_string(),
            if dropped.is_empty() { "–".to_owned() } else { dropped.join(", ") },
            mega(soak.memory_before),
            mega(soak.memory_after),
            format!("{:.0}", books.sent as f64 / soak.seconds),
            if soak.errors().is_empty() { "yes" } else { "no" }.to_owned(),
        ]);
    }
    rows
}
