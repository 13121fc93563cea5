//! F7 and F8: the crypto library by itself.

use super::goals::Goals;
use super::headline::Headlines;
use super::merge::{command, left_out};
use super::points::{count, distinct, fact, names, per, text, times};
use super::{Experiment, dpdk, merge};
use crate::chart::{Axis, Chart, Dot, Figure, Kind, Line, Lines, Role, Studied, Value, number};
use crate::results::fields::Value as Field;
use crate::results::{CONVOY, FLOOR, LIBRARY, Name, Point, Results, Series};
use crate::stats::Summary;

/// The step that measures all of it.
pub(super) const STEP: &str = "sizes and tiers";
/// The step that measures another version of intel-ipsec-mb.
pub(super) const OTHER: &str = "sizes and tiers, another intel-ipsec-mb";
/// The suites of the study, and AES-GCM.
pub(super) const SUITES: [&str; 3] =
    ["aes-128-cbc+hmac-sha1-96", "aes-128-cbc+aes-xcbc-96", "aes-128-gcm-16"];
/// The suite of the study's figure in cycles a byte.
const XCBC: &str = SUITES[1];
/// Cycles a byte of the study, AES-CBC with AES-XCBC.
const STUDIED: f64 = 1.94;
/// Least bytes per cycle in those of the study, from [`LONG`] on.
const FASTER: f64 = 1.6;
/// Bytes from which that is asked for.
const LONG: f64 = 1024.0;
/// The tier that others are set beside.
pub(super) const BASE: &str = "aesni";
const QUANTITY: &str = "cycles per packet";
/// The end of a manager's name where the library does not tell it, because flags chose it.
const BY_FLAGS: &str = ", by flags";

/// Name of a series where several ways into a library are drawn.
fn told(name: &Name) -> String {
    let Name { who, by } = name;
    match (who.as_str(), by.as_str()) {
        (CONVOY, _) => "Convoy, bursts in Rust".to_owned(),
        ("convoy-c", "c-job") => "Convoy, job manager in C".to_owned(),
        ("convoy-c", "c-burst") => "Convoy, bursts in C".to_owned(),
        ("convoy-c", by) => format!("Convoy, {by}"),
        ("ipsec-mb", by) => format!("intel-ipsec-mb, {by}"),
        ("openssl", by) => format!("OpenSSL, {by}"),
        (who, by) => format!("{who}, {by}"),
    }
}

/// Points of a suite on a tier.
fn points<'a>(results: &'a Results, suite: &str, tier: &str) -> Vec<&'a Point> {
    of_step(results, STEP, suite, tier)
}

/// The same of a step.
fn of_step<'a>(results: &'a Results, step: &str, suite: &str, tier: &str) -> Vec<&'a Point> {
    let place = [(merge::STEP, step), ("suite", suite), ("tier", tier)];
    let is_there =
        |point: &&Point| place.iter().all(|(name, word)| text(point, name) == Some(*word));
    results.of(Experiment::MultiBuffer, QUANTITY).filter(is_there).collect()
}

/// The best tier that was measured: tiers stand in rising order in the machine.
fn best(results: &Results) -> Option<String> {
    let all: Vec<&Point> = results.of(Experiment::MultiBuffer, QUANTITY).collect();
    let tiers = distinct(&all, "tier");
    results.machine.tiers.iter().rev().find(|tier| tiers.contains(tier)).cloned()
}

/// Bytes of text of a point: blocks round up.
fn bytes(point: &Point) -> f64 {
    fact(&point.facts, "text_bytes").or_else(|| count(point, "size")).unwrap_or_default()
}

/// The figures.
pub(super) fn figures(results: &Results) -> Vec<Figure> {
    let Some(best) = best(results) else { return Vec::new() };
    vec![rates(results, &best), tiers(results, &best)]
}

/// Names of the series to draw: all of Convoy's on this tier, and of each peer the interface that is fastest most often.
fn drawn<'a>(points: &[&'a Point], tier: &str) -> Vec<&'a Name> {
    let mut names = names(points);
    names.retain(|name| name.who != CONVOY || name.by == tier);
    let wins = |name: &Name| {
        let is_fastest = |point: &&&Point| {
            let of_peer = point.series.iter().filter(|series| series.name.who == name.who);
            let best = of_peer.min_by(|a, b| a.summary.median.total_cmp(&b.summary.median));
            best.is_some_and(|best| best.name == *name)
        };
        points.iter().filter(is_fastest).count()
    };
    // Of interfaces that win as often, the first.
    let best_of = |who: &str| {
        let rivals = names.iter().rev().copied().filter(|name| name.who == who);
        rivals.max_by_key(|name| wins(name))
    };
    let is_kept =
        |name: &&Name| name.is_convoy() || name.who != FLOOR && best_of(&name.who) == Some(*name);
    names.iter().copied().filter(is_kept).collect()
}

/// F7.
fn rates(results: &Results, best: &str) -> Figure {
    let tsc = results.machine.tsc_mhz;
    let mut charts = Vec::new();
    for suite in SUITES {
        let points = points(results, suite, best);
        let series = drawn(&points, best).into_iter().map(|wanted| {
            let dot = |point: &&Point| {
                let series = point.series(wanted)?;
                let scale = 8.0 * bytes(point) * tsc / 1e3;
                Some(Dot { x: count(point, "size")?, y: per(scale, &series.summary) })
            };
            Line {
                name: told(wanted),
                role: if wanted.is_convoy() { Role::Convoy } else { Role::Peer },
                dots: points.iter().filter_map(dot).collect(),
            }
        });
        let lines = Lines {
            x: Axis::linear("text", "bytes"),
            y: Axis::linear("throughput", "Gb/s"),
            series: series.collect(),
        };
        if !points.is_empty() {
            charts.push(Chart { heading: suite.to_owned(), kind: Kind::Lines(lines) });
        }
    }
    let beside_dpdk = dpdk::DEVICES.charts(results);
    let mut caption =
        "Text that one thread protects in a second against its length, by Convoy's ways in and by the fastest way into each peer."
            .to_owned();
    if !beside_dpdk.is_empty() {
        caption += " DPDK's devices stand in charts of their own, which compare short windows taken in turn, and those alone.";
    }
    charts.extend(beside_dpdk);
    let xcbc = per_byte(results, best, |size| size == 2048.0);
    let mut goals = Goals::default();
    goals.at_least(
        "AES-CBC with AES-XCBC from 1 KB on, bytes per cycle in those of the study",
        FASTER,
        faster(results, best),
    );
    Figure {
        id: "F7".to_owned(),
        title: "The multi-buffer library".to_owned(),
        caption,
        command: command(results, Experiment::MultiBuffer, STEP),
        charts,
        studied: vec![Studied {
            what: "AES-128-CBC with AES-XCBC, 2,048 bytes (3.4 GHz Sandy Bridge)".to_owned(),
            theirs: "14 Gb/s, 1.94 cycles a byte".to_owned(),
            ours: xcbc.map(|value| format!("{} cycles a byte", number(value.middle))),
        }],
        goals: goals.into(),
        notes: [
            "A sample is a burst of packets of one length, over and over, divided by its bytes. The first and last eighth of samples are dropped, \
             the rest is sorted, and the outer quarters dropped. Setting a key up is not measured."
                .to_owned(),
            "What is hashed is 24 bytes longer than what is encrypted: ESP header and IV.".to_owned(),
            "Cycles are of the time-stamp counter.".to_owned(),
        ]
        .into_iter()
        .chain(dpdk::DEVICES.notes(results))
        .collect(),
        left_out: left_out(results, Experiment::MultiBuffer),
    }
}

/// Cycles a byte of AES-CBC with AES-XCBC where the length is wanted; the slowest of them.
fn per_byte(results: &Results, best: &str, is_wanted: impl Fn(f64) -> bool) -> Option<Value> {
    let points = points(results, XCBC, best);
    let wanted = points.iter().filter(|point| count(point, "size").is_some_and(&is_wanted));
    let values = wanted.filter_map(|point| {
        let own = point.series.iter().find(|series| series.name.who == CONVOY)?;
        Some(times(1.0 / bytes(point), &own.summary))
    });
    values.max_by(|a, b| a.middle.total_cmp(&b.middle))
}

/// The study's cycles a byte in ours, for the slowest length from [`LONG`] on.
fn faster(results: &Results, best: &str) -> Option<Value> {
    let Value { middle, low, high } = per_byte(results, best, |size| size >= LONG)?;
    Some(Value { middle: STUDIED / middle, low: STUDIED / high, high: STUDIED / low })
}

/// F8.
fn tiers(results: &Results, best: &str) -> Figure {
    let mut charts = Vec::new();
    for suite in SUITES {
        let mut series = Vec::new();
        for tier in results.machine.tiers.iter().filter(|tier| *tier != BASE) {
            let points = points(results, suite, tier);
            let dots = beside(&points, |point| point.series.first());
            let role = if tier == best { Role::Convoy } else { Role::Base };
            if !dots.is_empty() {
                series.push(Line { name: tier.clone(), role, dots });
            }
        }
        series.reverse();
        series.extend(managers(results, suite));
        let lines = Lines {
            x: Axis::linear("text", "bytes"),
            y: Axis::linear(&format!("speed, {BASE} = 1"), ""),
            series,
        };
        if !lines.series.is_empty() {
            charts.push(Chart { heading: suite.to_owned(), kind: Kind::Lines(lines) });
        }
    }
    Figure {
        id: "F8".to_owned(),
        title: "Tiers of the processor".to_owned(),
        caption: "How much faster the library is with each tier of instructions than with AES-NI in registers of 128 bits; and how much faster than that \
                  intel-ipsec-mb is with each manager that this processor starts, by its fastest way in."
            .to_owned(),
        command: command(results, Experiment::MultiBuffer, STEP),
        charts,
        studied: Vec::new(),
        goals: Vec::new(),
        notes: vec![
            format!(
                "Everybody took turns with Convoy on {BASE}, burst by burst. On tiers below VAES, Convoy's hashes do without the SHA extensions. A manager is one \
                 that uses no more of the processor than the tier it took turns with; where one goes with several tiers, the first is drawn."
            ),
        ],
        left_out: Vec::new(),
    }
}

/// Speed of a series of each point in that of Convoy on [`BASE`], which took turns with it.
fn beside<'a>(points: &[&'a Point], series: impl Fn(&'a Point) -> Option<&'a Series>) -> Vec<Dot> {
    let base = Name::new(CONVOY, BASE);
    let dot = |point: &&'a Point| {
        let (base, own) = (point.series(&base)?, series(point)?);
        let rounds = base.rounds.iter().zip(&own.rounds).map(|(base, own)| base / own);
        let ratio = Summary::of(&rounds.collect::<Vec<_>>())?;
        Some(Dot { x: count(point, "size")?, y: times(1.0, &ratio) })
    };
    points.iter().filter_map(dot).collect()
}

/// A line for each manager of each intel-ipsec-mb, beside Convoy in the same step.
fn managers(results: &Results, suite: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for step in [STEP, OTHER] {
        for tier in &results.machine.tiers {
            let points = of_step(results, step, suite, tier);
            let manager = |name: &Name| {
                let series = points.iter().find_map(|point| point.series(name))?;
                let manager = series.facts.get(LIBRARY).and_then(Field::text)?;
                Some(manager.trim_end_matches(BY_FLAGS).to_owned())
            };
            let named =
                drawn(&points, tier).into_iter().find_map(|name| Some((name, manager(name)?)));
            let Some((wanted, name)) = named else { continue };
            let dots = beside(&points, |point| point.series(wanted));
            if !dots.is_empty() && lines.iter().all(|line| line.name != name) {
                lines.push(Line { name, role: Role::Peer, dots });
            }
        }
    }
    lines
}

/// For the top of the page: Convoy beside the fastest peer.
pub(super) fn headlines(results: &Results, lines: &mut Headlines) {
    let Some(best) = best(results) else { return };
    for suite in SUITES.iter().rev() {
        let points = points(results, suite, &best);
        for size in [64.0, 1408.0] {
            let Some(point) = points.iter().find(|point| count(point, "size") == Some(size)) else {
                continue;
            };
            let of_convoy = point.ratios.iter().filter(|pair| pair.to.who == CONVOY);
            let peers = of_convoy.filter(|pair| pair.of.who != FLOOR && !pair.of.is_convoy());
            let fastest = peers.min_by(|a, b| a.summary.median.total_cmp(&b.summary.median));
            if let Some(pair) = fastest {
                let what =
                    format!("{suite}, {} bytes: time of {} in Convoy's", number(size), pair.of.who);
                lines.add("F7", &what, 1.0, Some(times(1.0, &pair.summary)));
            }
        }
    }
    if let Some(faster) = faster(results, &best) {
        let what =
            "AES-128-CBC with AES-XCBC from 1 KB on: bytes per cycle in those of the study of 2012";
        lines.add("F7", what, FASTER, Some(faster));
    }
}
