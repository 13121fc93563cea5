//! Charts of F7 that have DPDK's crypto devices beside Convoy's bursts.

use super::Experiment;
use super::chart::{Axis, Chart, Dot, Kind, Line, Lines, Role, number};
use super::page::command;
use super::points::{count, distinct, fact, names, per, ratio, spread, text, times};
use crate::results::dpdk::QUANTITY;
use crate::results::fields::Value as Field;
use crate::results::{LIBRARY, Name, Point, Results};

/// The step that measures them.
pub(super) const STEP: &str = "in turn with DPDK";

fn points(results: &Results) -> Vec<&Point> {
    results.of(Experiment::MultiBuffer, QUANTITY).collect()
}

fn of_suite<'a>(points: &[&'a Point], suite: &str) -> Vec<&'a Point> {
    points.iter().filter(|point| text(point, "suite") == Some(suite)).copied().collect()
}

/// A chart for each suite.
pub(super) fn charts(results: &Results) -> Vec<Chart> {
    let all = points(results);
    let chart = |suite: String| {
        let points = of_suite(&all, &suite);
        let line = |wanted: &Name| {
            let dot = |point: &&Point| {
                let series = point.series(wanted)?;
                let scale = 8.0 * fact(&point.facts, "text_bytes")? * results.machine.tsc_mhz / 1e3;
                Some(Dot { x: count(point, "size")?, y: per(scale, &series.summary) })
            };
            Line {
                name: told(wanted, &points),
                role: if wanted.is_convoy() { Role::Convoy } else { Role::Peer },
                dots: points.iter().filter_map(dot).collect(),
            }
        };
        let lines = Lines {
            x: Axis::linear("text", "bytes"),
            y: Axis::linear("throughput", "Gb/s"),
            series: names(&points).into_iter().map(line).collect(),
        };
        let heading = format!("{suite}, in turn with DPDK's devices");
        Chart { heading, kind: Kind::Lines(lines) }
    };
    distinct(&all, "suite").into_iter().map(chart).collect()
}

/// Name of a series: a device with the library that it is made of.
fn told(name: &Name, points: &[&Point]) -> String {
    if name.is_convoy() {
        let burst = points.iter().find_map(|point| count(point, "burst"));
        return burst.map_or_else(
            || "Convoy, bursts".to_owned(),
            |burst| format!("Convoy, bursts of {}", number(burst)),
        );
    }
    let library = points.iter().find_map(|point| {
        point.series(name).and_then(|series| series.facts.get(LIBRARY)).and_then(Field::text)
    });
    let device = format!("DPDK {}", name.by);
    library.map_or_else(|| device.clone(), |library| format!("{device} ({library})"))
}

/// A guide to the charts, with the ratios at the smallest and the largest size. Nothing without them.
pub(super) fn notes(results: &Results) -> Vec<String> {
    let all = points(results);
    if all.is_empty() {
        return Vec::new();
    }
    let mut notes = vec![
        "DPDK's devices are measured by DPDK's dpdk-test-crypto-perf, a program of its own. So only short windows are compared, which it and Convoy take in turn \
         on the same processor; their cycles do not compare with those of the other charts. A device's figure has DPDK's work for an operation in it: it is \
         taken from a pool with its buffer, filled in, enqueued, dequeued and put back. With AES-CBC the program authenticates the text alone, 24 bytes less \
         than Convoy."
            .to_owned(),
        format!("That was measured by: {}", command(results, Experiment::MultiBuffer, STEP)),
    ];
    for suite in distinct(&all, "suite") {
        let points = of_suite(&all, &suite);
        let Some(convoy) = names(&points).into_iter().find(|name| name.is_convoy()) else {
            continue;
        };
        for device in names(&points).into_iter().filter(|name| !name.is_convoy()) {
            let at = |point: &&Point| {
                let pair = ratio(point, device, convoy)?;
                let size = number(count(point, "size")?);
                Some(format!("{} at {size} bytes", spread(&times(1.0, &pair.summary))))
            };
            let ends = [points.first(), points.last()].into_iter().flatten();
            let mut told_ends: Vec<String> = ends.filter_map(at).collect();
            told_ends.dedup();
            notes.push(format!(
                "{suite}: time of {} in Convoy's: {}.",
                told(device, &points),
                told_ends.join(", ")
            ));
        }
    }
    notes
}
