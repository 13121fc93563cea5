//! Charts that have DPDK's programs beside Convoy: of F7 and of F9.

use super::Experiment;
use super::merge::command;
use super::points::{count, distinct, fact, names, per, ratio, spread, text, times};
use crate::chart::{Axis, Chart, Dot, Kind, Line, Lines, Role, number};
use crate::dpdk::results::{GATEWAYS, QUANTITY};
use crate::results::fields::Value as Field;
use crate::results::{LIBRARY, Name, Point, Results};

/// Charts of one peer beside Convoy.
pub(super) struct Beside {
    experiment: Experiment,
    /// The step that measures it.
    pub(super) step: &'static str,
    quantity: &'static str,
    /// End of a chart's heading, behind the suite.
    heading: &'static str,
    /// Name of Convoy's line.
    own: &'static str,
    /// Words in front of the device's name.
    peer: &'static str,
    x: &'static str,
    y: [&'static str; 2],
    /// Value on the Y axis of one cycle per packet at a point, by the ticks of the time-stamp counter in a microsecond.
    scale: fn(&Point, f64) -> Option<f64>,
    /// A guide to the charts.
    note: &'static str,
}

/// DPDK's devices beside bursts of the library.
pub(super) const DEVICES: Beside = Beside {
    experiment: Experiment::MultiBuffer,
    step: "in turn with DPDK",
    quantity: QUANTITY,
    heading: "in turn with DPDK's devices",
    own: "Convoy, bursts",
    peer: "DPDK",
    x: "text",
    y: ["throughput", "Gb/s"],
    scale: |point, tsc| Some(8.0 * fact(&point.facts, "text_bytes")? * tsc / 1e3),
    note: "DPDK's devices are measured by DPDK's dpdk-test-crypto-perf, a program of its own. So only short windows are compared, which it and Convoy take in turn \
           on the same processor; their cycles do not compare with those of the other charts. A device's figure has DPDK's work for an operation in it: it is \
           taken from a pool with its buffer, filled in, enqueued, dequeued and put back. With AES-CBC the program authenticates the text alone, 24 bytes less \
           than Convoy.",
};

/// DPDK's gateway beside a worker.
pub(super) const GATEWAY: Beside = Beside {
    experiment: Experiment::LookAside,
    step: "in turn with DPDK's ipsec-secgw",
    quantity: GATEWAYS,
    heading: "outbound alone, in turn with DPDK's gateway",
    own: "Convoy, a worker",
    peer: "DPDK ipsec-secgw,",
    x: "inner packet",
    y: ["rate", "million packets a second"],
    scale: |_, tsc| Some(tsc),
    note: "DPDK's ipsec-secgw is a program of its own. So only short windows are compared, which it and a worker of Convoy's take in turn on the same processor; they do \
           not compare with those of the other charts. Both protect packets that are always there, copied from memory, and nobody takes what comes out: \
           nothing is lost, and no card or kernel is in it.",
};

fn of_suite<'a>(points: &[&'a Point], suite: &str) -> Vec<&'a Point> {
    points.iter().filter(|point| text(point, "suite") == Some(suite)).copied().collect()
}

impl Beside {
    fn points<'a>(&self, results: &'a Results) -> Vec<&'a Point> {
        results.of(self.experiment, self.quantity).collect()
    }

    /// A chart for each suite.
    pub(super) fn charts(&self, results: &Results) -> Vec<Chart> {
        let all = self.points(results);
        let chart = |suite: String| {
            let points = of_suite(&all, &suite);
            let line = |wanted: &Name| {
                let dot = |point: &&Point| {
                    let series = point.series(wanted)?;
                    let scale = (self.scale)(point, results.machine.tsc_mhz)?;
                    Some(Dot { x: count(point, "size")?, y: per(scale, &series.summary) })
                };
                Line {
                    name: self.told(wanted, &points),
                    role: if wanted.is_convoy() { Role::Convoy } else { Role::Peer },
                    dots: points.iter().filter_map(dot).collect(),
                }
            };
            let lines = Lines {
                x: Axis::linear(self.x, "bytes"),
                y: Axis::linear(self.y[0], self.y[1]),
                series: names(&points).into_iter().map(line).collect(),
            };
            Chart { heading: format!("{suite}, {}", self.heading), kind: Kind::Lines(lines) }
        };
        distinct(&all, "suite").into_iter().map(chart).collect()
    }

    /// Name of a series: a device with the library that it is made of.
    fn told(&self, name: &Name, points: &[&Point]) -> String {
        if name.is_convoy() {
            let burst = points.iter().find_map(|point| count(point, "burst"));
            return burst.map_or_else(
                || self.own.to_owned(),
                |burst| format!("{} of {}", self.own, number(burst)),
            );
        }
        let series = points.iter().find_map(|point| point.series(name));
        let library = series.and_then(|series| series.facts.get(LIBRARY)).and_then(Field::text);
        let device = format!("{} {}", self.peer, name.by);
        library.map_or_else(|| device.clone(), |library| format!("{device} ({library})"))
    }

    /// A guide to the charts, with the ratios at the smallest and the largest size. Nothing without them.
    pub(super) fn notes(&self, results: &Results) -> Vec<String> {
        let all = self.points(results);
        if all.is_empty() {
            return Vec::new();
        }
        let command = command(results, self.experiment, self.step);
        let mut notes = vec![self.note.to_owned(), format!("That was measured by: {command}")];
        for suite in distinct(&all, "suite") {
            let points = of_suite(&all, &suite);
            let names = names(&points);
            let Some(convoy) = names.iter().find(|name| name.is_convoy()) else { continue };
            for device in names.iter().filter(|name| !name.is_convoy()) {
                let at = |point: &&Point| {
                    let pair = ratio(point, device, convoy)?;
                    let size = number(count(point, "size")?);
                    Some(format!("{} at {size} bytes", spread(&times(1.0, &pair.summary))))
                };
                let ends = [points.first(), points.last()].into_iter().flatten();
                let mut ends: Vec<String> = ends.filter_map(at).collect();
                ends.dedup();
                let (device, ends) = (self.told(device, &points), ends.join(", "));
                notes.push(format!("{suite}: time of {device} in Convoy's: {ends}."));
            }
        }
        notes
    }
}
