//! Printed report of engines.

use core::fmt;

use super::measure::{Latency, Point};
use super::trials::{Rekeys, Stall};
use crate::results::LeftOut;
use crate::results::head::Head;
use crate::stats::{Line, Summary};

/// Cycles for a cache line there and back above which processors are too far apart for costs of handing
/// over to mean anything.
pub const FAR: f64 = 300.0;

/// All that was measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// Version, command and machine.
    pub head: Head,
    /// CPU tier of the keys.
    pub tier: String,
    /// The processor that submits, and that of the pool's thread.
    pub cpus: Vec<usize>,
    /// Cycles for a cache line from one to the other and back.
    pub line_cycles: Option<f64>,
    /// Sums that both compute at once, divided by those that they compute one at a time: at best 1.
    pub together: Option<f64>,
    /// Points.
    pub points: Vec<Point>,
    /// Costs of an engine against size.
    pub fits: Vec<Fit>,
    /// Sizes at which two engines cost the same.
    pub crossings: Vec<Crossing>,
    /// Costs of a stalled device, if they were measured.
    pub stall: Option<Stall>,
    /// Costs of new keys, by engine.
    pub rekeys: Vec<Rekeys>,
    /// Measurements that were left out, with the reason.
    pub skipped: Vec<LeftOut>,
}

/// Growth of the submitting core's cycles with the packet.
#[derive(Clone, Debug)]
pub struct Fit {
    /// Name of the engine.
    pub engine: String,
    /// Name of the suite.
    pub suite: String,
    /// The line.
    pub line: Line,
}

/// The line of each engine and suite that has points of several sizes.
#[must_use]
pub fn fits(points: &[Point]) -> Vec<Fit> {
    let of = |point: &Point| (point.engine.clone(), point.suite.clone());
    let mut fits: Vec<Fit> = Vec::new();
    for point in points {
        let (engine, suite) = of(point);
        if fits.iter().any(|fit| fit.engine == engine && fit.suite == suite) {
            continue;
        }
        let alike = points.iter().filter(|other| of(other) == of(point));
        let at: Vec<_> = alike.map(|other| (other.bytes, other.cycles.mean)).collect();
        if let Some(line) = Line::through(&at) {
            fits.push(Fit { engine, suite, line });
        }
    }
    fits
}

/// A size of packets up to which one engine costs the submitting core less, and beyond which another does.
#[derive(Clone, Debug)]
pub struct Crossing {
    /// Name of the suite.
    pub suite: String,
    /// The engine that costs less for shorter packets.
    pub below: String,
    /// The one that costs less for longer packets.
    pub above: String,
    /// Bytes of inner packets.
    pub bytes: f64,
}

fn latencies(point: &Point) -> String {
    let one = |latency: &Latency| format!("{:.1}/{:.1}", latency.median_us, latency.p99_us);
    point.latencies.iter().map(one).collect::<Vec<_>>().join("  ")
}

/// Crossings of the lines of two engines, within the sizes that packets have.
#[must_use]
pub fn crossings(fits: &[Fit]) -> Vec<Crossing> {
    const SIZES: std::ops::RangeInclusive<f64> = 40.0..=8900.0;
    let mut crossings = Vec::new();
    for (at, one) in fits.iter().enumerate() {
        for other in fits.iter().skip(at + 1).filter(|other| other.suite == one.suite) {
            let (steeper, flatter) = match one.line.slope > other.line.slope {
                true => (one, other),
                false => (other, one),
            };
            let bytes = (flatter.line.intercept - steeper.line.intercept)
                / (steeper.line.slope - flatter.line.slope);
            if SIZES.contains(&bytes) {
                let (below, above) = (steeper.engine.clone(), flatter.engine.clone());
                crossings.push(Crossing { suite: one.suite.clone(), below, above, bytes });
            }
        }
    }
    crossings
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { head, tier, cpus, .. } = self;
        writeln!(
            f,
            "{}, {:.0} MHz of the time-stamp counter, tier {tier}",
            head.machine.cpu, head.machine.tsc_mhz
        )?;
        if let (Some(line), Some(together)) = (self.line_cycles, self.together) {
            writeln!(
                f,
                "processors {cpus:?}: a cache line takes {line:.0} cycles there and back; computing at once \
                 they reach {together:.2} of what they reach one at a time"
            )?;
        }
        let width =
            self.points.iter().map(|point| point.engine.len()).max().unwrap_or(0).max(6) + 2;
        writeln!(
            f,
            "\n{:<width$}{:<28}{:>11}{:>10}{:>16}{:>10}{:>9}   µs AT 10, 50, 90 %: MEDIAN/P99",
            "ENGINE", "SUITE", "BYTES", "CYCLES", "(quartiles)", "Mpps", "Gb/s"
        )?;
        for point in &self.points {
            let rate = point.packets_per_second;
            writeln!(
                f,
                "{:<width$}{:<28}{:>11}{:>10.1}{:>16}{:>10.2}{:>9.2}   {}",
                point.engine,
                point.suite,
                point.size,
                point.cycles.mean,
                format!("{:.1}–{:.1}", point.cycles.low, point.cycles.high),
                rate / 1e6,
                rate * point.bytes * 8.0 / 1e9,
                latencies(point)
            )?;
        }
        writeln!(f)?;
        for Fit { engine, suite, line } in &self.fits {
            let Line { slope, intercept } = line;
            writeln!(f, "{engine}, {suite}: {intercept:.1} cycles and {slope:.3} for each byte")?;
        }
        for Crossing { suite, below, above, bytes } in &self.crossings {
            writeln!(
                f,
                "{suite}: up to {bytes:.0} bytes {below} costs the submitting core less, beyond {above} does"
            )?;
        }
        if let Some(Stall { jobs, all_out_ms, deadline_ms }) = &self.stall {
            writeln!(
                f,
                "a device that stalls with {jobs} packets: all of them are out after {all_out_ms:.1} ms, in \
                 order; it counts as lost after {deadline_ms} ms"
            )?;
        }
        for Rekeys { engine, throughput, .. } in &self.rekeys {
            let Summary { mean, low, high, .. } = throughput;
            writeln!(
                f,
                "{engine}: 1,000 new keys a second leave {mean:.3} of the throughput ({low:.3}–{high:.3})"
            )?;
        }
        let mut skipped = self.skipped.iter();
        skipped.try_for_each(|LeftOut { what, why }| writeln!(f, "not measured: {what}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cross_where_costs_are_alike() {
        let fit = |engine: &str, suite: &str, intercept, slope| Fit {
            engine: engine.to_owned(),
            suite: suite.to_owned(),
            line: Line { slope, intercept },
        };
        let fits = [
            fit("inline", "gcm", 50.0, 0.25),
            fit("inline", "cbc", 150.0, 0.5),
            fit("pool", "gcm", 100.0, 0.0),
            fit("pool", "cbc", 100.0, 0.0),
        ];
        let found = crossings(&fits);
        let [Crossing { suite, below, above, bytes }] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&**suite, &**below, &**above, *bytes), ("gcm", "inline", "pool", 200.0));
    }
}
