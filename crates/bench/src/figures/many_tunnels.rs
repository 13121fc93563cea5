//! F4 to F6: AES-GCM through many tunnels on many cores.

use super::Experiment;
use super::goals::Goals;
use super::headline::Headlines;
use super::merge::{command, left_out};
use super::one_tunnel::{FRAME, NULL, PORTABLE, megabits, short};
use super::points::{count, fact, text, times};
use crate::chart::{
    Axis, Bar, Bars, Chart, Dot, Figure, Kind, Line, Lines, Role, Studied, Value, number,
};
use crate::results::{CONVOY, Point, Results};

/// The step with all engines.
pub(super) const ENGINES: &str = "engines";
/// The step with the portable tier.
pub(super) const PLAIN: &str = "portable tier";
/// The step with one tunnel on one worker.
pub(super) const ONE: &str = "one tunnel";
/// The step with mixes of sizes.
pub(super) const MIXES: &str = "mixes";
/// Name of the quantity.
const QUANTITY: &str = "packets per second";
/// Least that workers pass of what the processors compute together.
const OF_TOGETHER: f64 = 0.95;

/// One point with what it is about.
struct Rate<'a> {
    point: &'a Point,
    by: String,
    workers: f64,
    sas: f64,
}

fn rates(results: &Results) -> Vec<Rate<'_>> {
    let points = results.of(Experiment::ManyTunnels, QUANTITY);
    let rate = |point: &'_ Point| -> Option<(String, f64, f64)> {
        let (engine, tier) = (text(point, "engine")?, text(point, "tier")?);
        let by = match engine {
            "inline" => tier.to_owned(),
            driver => short(driver),
        };
        Some((by, count(point, "workers")?, count(point, "sas")?))
    };
    points
        .filter_map(|point| {
            let (by, workers, sas) = rate(point)?;
            Some(Rate { point, by, workers, sas })
        })
        .collect()
}

/// The figures.
pub(super) fn figures(results: &Results) -> Vec<Figure> {
    let rates = rates(results);
    if rates.is_empty() {
        return Vec::new();
    }
    let workers = rates.iter().map(|rate| rate.workers).fold(1.0, f64::max);
    vec![
        throughput(results, &rates, "F4", workers, workers),
        throughput(results, &rates, "F5", workers, 2.0 * workers),
        mixes(results, &rates, workers),
    ]
}

/// F4 and F5.
fn throughput(results: &Results, rates: &[Rate<'_>], id: &str, workers: f64, sas: f64) -> Figure {
    let of = |by: &str| {
        let mut dots: Vec<Dot> = rates
            .iter()
            .filter(|rate| rate.by == by && rate.workers == workers && rate.sas == sas)
            .filter_map(|rate| {
                let frame = count(rate.point, "size")? + FRAME as f64;
                let summary = &rate.point.series.first()?.summary;
                Some(Dot { x: frame, y: megabits(frame, summary) })
            })
            .collect();
        dots.sort_by(|a, b| a.x.total_cmp(&b.x));
        dots
    };
    let mut names: Vec<&str> = Vec::new();
    for rate in rates {
        if !names.contains(&&*rate.by) {
            names.push(&rate.by);
        }
    }
    let is_base = |by: &str| by == NULL || by == PORTABLE || by.starts_with("two-pass");
    names.sort_by_key(|by| is_base(by));
    let series = names.iter().map(|by| Line {
        name: (*by).to_owned(),
        role: if is_base(by) { Role::Base } else { Role::Convoy },
        dots: of(by),
    });
    let series: Vec<Line> = series.filter(|line| !line.dots.is_empty()).collect();
    let ours = series
        .first()
        .and_then(|line| line.dots.last())
        .map(|dot| format!("{} Mb/s for frames of {} bytes", number(dot.y.middle), number(dot.x)));
    let tunnels = number(sas);
    let study = match id {
        "F4" => ("six tunnels on six cores", "10,000 Mb/s from 1,280 bytes; 3,000 with two passes"),
        _ => ("twelve tunnels on twelve threads", "10,000 Mb/s from 950 bytes"),
    };
    let lines =
        Lines { x: Axis::linear("frame", "bytes"), y: Axis::linear("throughput", "Mb/s"), series };
    Figure {
        id: id.to_owned(),
        title: format!("Throughput of {tunnels} tunnels on {} processors", number(workers)),
        caption: "Frames that the gateway's own worker threads protect, open and check in a second, in bits of plaintext frames. \
                  Each tunnel is pinned to a worker, each worker to a processor."
            .to_owned(),
        command: command(results, Experiment::ManyTunnels, ENGINES),
        charts: vec![Chart { heading: String::new(), kind: Kind::Lines(lines) }],
        studied: vec![Studied { what: study.0.to_owned(), theirs: study.1.to_owned(), ours }],
        goals: Vec::new(),
        notes: notes(results),
        left_out: left_out(results, Experiment::ManyTunnels),
    }
}

/// Notes on packets and processors.
fn notes(results: &Results) -> Vec<String> {
    let mut notes = vec![
        "A packet counts once it was made, protected, sent, opened and checked, all by the worker of its tunnel. The study's machine only protected."
            .to_owned(),
    ];
    if let Some(together) = together(results) {
        notes.push(format!(
            "Computing at once the processors reach {} of what they reach one at a time.",
            number(together)
        ));
    }
    if results.machine.siblings.is_empty() {
        notes.push("Hyper-threading: not measured; the system says that the processors are cores of their own.".to_owned());
    } else {
        notes.push(format!(
            "Threads of one core, as the system says: {:?}.",
            results.machine.siblings
        ));
    }
    notes
}

fn together(results: &Results) -> Option<f64> {
    fact(&results.facts, &format!("{}: computing_at_once", Experiment::ManyTunnels.name()))
}

/// Ratio of all workers' packets to those of one, for each mix with so many tunnels.
fn factors(rates: &[Rate<'_>], workers: f64, sas: f64) -> Vec<(String, Value)> {
    let mixes = rates.iter().filter(|rate| rate.workers == workers && rate.sas == sas);
    mixes
        .filter_map(|rate| {
            let mix = text(rate.point, "size")?;
            let ratio = rate.point.ratios.first().filter(|pair| pair.of.who == CONVOY)?;
            Some((mix.to_owned(), times(1.0, &ratio.summary)))
        })
        .collect()
}

/// F6.
fn mixes(results: &Results, rates: &[Rate<'_>], workers: f64) -> Figure {
    let mixed: Vec<&Rate<'_>> =
        rates.iter().filter(|rate| text(rate.point, "size").is_some()).collect();
    let mut groups: Vec<String> = Vec::new();
    let mut kinds: Vec<(f64, f64)> = Vec::new();
    for rate in &mixed {
        let mix = text(rate.point, "size").unwrap_or_default().to_owned();
        if !groups.contains(&mix) {
            groups.push(mix);
        }
        if !kinds.contains(&(rate.workers, rate.sas)) {
            kinds.push((rate.workers, rate.sas));
        }
    }
    kinds.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let bar = |&(workers, sas): &(f64, f64)| {
        let value = |mix: &String| {
            let of = |rate: &&&Rate<'_>| {
                rate.workers == workers && rate.sas == sas && text(rate.point, "size") == Some(mix)
            };
            let rate = mixed.iter().find(of)?;
            Some(times(1e-6, &rate.point.series.first()?.summary))
        };
        Bar {
            name: format!("tunnels: {}, workers: {}", number(sas), number(workers)),
            role: if workers > 1.0 { Role::Convoy } else { Role::Base },
            values: groups.iter().map(value).collect(),
        }
    };
    let series: Vec<Bar> = kinds.iter().map(bar).collect();
    let mut goals = Goals::default();
    let factors = factors(rates, workers, workers);
    for (mix, factor) in &factors {
        let what = format!("{} workers, in what one passes, {mix}", number(workers));
        if let Some(together) = together(results) {
            goals.at_least(&what, OF_TOGETHER * workers * together, Some(*factor));
        }
    }
    let ours = factors
        .first()
        .map(|(mix, factor)| format!("{} of {}, {mix}", number(factor.middle), number(workers)));
    Figure {
        id: "F6".to_owned(),
        title: "Mixes of packet sizes on many workers".to_owned(),
        caption: "Packets that are protected, opened and checked in a second, for two mixes of sizes; one, some and twice as many tunnels."
            .to_owned(),
        command: command(results, Experiment::ManyTunnels, MIXES),
        charts: vec![Chart {
            heading: String::new(),
            kind: Kind::Bars(Bars { y: Axis::linear("packets", "million a second"), groups, series }),
        }],
        studied: vec![
            Studied { what: "six tunnels on six cores, in one on one".to_owned(), theirs: "5.6 of 6".to_owned(), ours },
            Studied { what: "gain by hyper-threading".to_owned(), theirs: "26 %".to_owned(), ours: None },
        ],
        goals: goals.into(),
        notes: notes(results),
        left_out: Vec::new(),
    }
}

/// For the top of the page.
pub(super) fn headlines(results: &Results, lines: &mut Headlines) {
    let rates = rates(results);
    let workers = rates.iter().map(|rate| rate.workers).fold(1.0, f64::max);
    let Some(together) = together(results).filter(|_| workers > 1.0) else { return };
    for (mix, factor) in factors(&rates, workers, workers) {
        let what = format!("{} workers in what one passes, {mix}", number(workers));
        lines.add("F6", &what, OF_TOGETHER * workers * together, Some(factor));
    }
}
