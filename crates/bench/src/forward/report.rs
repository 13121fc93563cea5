//! Printed report of the forwarding rate.

use core::fmt;

use super::latency::{LOADS, Latency};
use super::point::{Findings, Point};
use super::radar::{Radar, radars};
use crate::results::LeftOut;
use crate::results::head::Head;

/// All that was measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// Version, command and machine.
    pub head: Head,
    /// Results.
    pub findings: Findings,
}

/// Median and 99th percentile at each load; a dash where they are not known.
fn latencies(point: &Point) -> String {
    let at = |load: f64| {
        let found = point.latencies.iter().find(|latency| (latency.load - load).abs() < 1e-9);
        let told = |latency: &Latency| {
            let [median, _, p99, _] = latency.percentiles;
            format!("{median:.1}/{p99:.1}")
        };
        found.map_or_else(|| "–".to_owned(), told)
    };
    LOADS.map(at).join("  ")
}

impl Report {
    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Findings { tier, cpus, mhz, packets, allowed, .. } = &self.findings;
        writeln!(
            f,
            "{}, {mhz:.0} MHz of the time-stamp counter, tier {tier}",
            self.head.machine.cpu
        )?;
        if let &[worker, generator, ..] = &cpus[..] {
            writeln!(
                f,
                "worker on processor {worker}, generator on {generator}; trials of {packets} packets, void when \
                 others took more than {:.1} % of one",
                100.0 * allowed
            )?;
        }
        Ok(())
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = &self.findings.points;
        let width = points.iter().map(|point| point.engine.len()).max().unwrap_or(0).max(6) + 2;
        writeln!(
            f,
            "\n{:<width$}{:<28}{:>5}{:>8}{:>15}{:>8}{:>8}{:>9}{:>9}   µs AT 10, 50, 90 %: MEDIAN/P99",
            "ENGINE", "SUITE", "BYTES", "Mpps", "(all)", "Gb/s", "VOID", "CYCLES", "VARY"
        )?;
        for point in points {
            let (mpps, spread, gbps) = match point.rate() {
                Some(rate) => {
                    let rates = point.rates();
                    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
                    let most = rates.iter().copied().fold(0.0, f64::max);
                    (
                        format!("{:.3}", rate / 1e6),
                        format!("{:.3}–{:.3}", least / 1e6, most / 1e6),
                        format!("{:.2}", rate * point.size as f64 * 8.0 / 1e9),
                    )
                }
                None => ["–"; 3].map(str::to_owned).into(),
            };
            let voids: usize = point.searches.iter().map(|found| found.voids).sum();
            let (cycles, vary) = match &point.costs {
                Some(costs) => (
                    format!("{:.1}", costs.cycles.mean),
                    format!("{:.1} %", 100.0 * costs.quartile_range()),
                ),
                None => ["–"; 2].map(str::to_owned).into(),
            };
            writeln!(
                f,
                "{:<width$}{:<28}{:>5}{mpps:>8}{spread:>15}{gbps:>8}{voids:>8}{cycles:>9}{vary:>9}   {}",
                point.engine,
                point.suite,
                point.size,
                latencies(point)
            )?;
        }
        Ok(())
    }

    fn links(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for point in &self.findings.points {
            let Some(link) = point.link else { continue };
            writeln!(
                f,
                "{}: {:.0} bytes of a packet to the device and {:.0} back, {:.0} descriptor and {:.0} completion",
                point.named(),
                link.to_device,
                link.from_device,
                link.descriptors,
                link.completions
            )?;
        }
        Ok(())
    }
}

fn radar(f: &mut fmt::Formatter<'_>, radar: &Radar) -> fmt::Result {
    writeln!(f, "\nBESIDE THE BEST, {}, {} bytes", radar.suite, radar.size)?;
    for axis in radar.axes.iter().filter(|axis| !axis.scores.is_empty()) {
        writeln!(f, "{}{}", axis.name, if axis.unit.is_none() { ", judged" } else { "" })?;
        for score in &axis.scores {
            write!(f, "  {:<24}{:>5.2}", score.engine, score.score)?;
            match (score.value, axis.unit, score.reason) {
                (Some(value), Some(unit), _) if value >= 1e5 => {
                    writeln!(f, "   {:.3} million {unit}", value / 1e6)?;
                }
                (Some(value), Some(unit), _) if value >= 10.0 || value == 0.0 => {
                    writeln!(f, "   {value:.1} {unit}")?
                }
                (Some(value), Some(unit), _) => writeln!(f, "   {value:.4} {unit}")?,
                (_, _, reason) => writeln!(f, "   {}", reason.unwrap_or_default())?,
            }
        }
    }
    Ok(())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        if !self.findings.points.is_empty() {
            self.table(f)?;
            writeln!(f)?;
            self.links(f)?;
        }
        radars(&self.findings).iter().try_for_each(|one| radar(f, one))?;
        writeln!(f)?;
        for LeftOut { what, why } in self.findings.all_left_out() {
            writeln!(f, "not measured: {what}: {why}")?;
        }
        if !self.findings.complete {
            writeln!(f, "interrupted: this is what was measured until then")?;
        }
        self.findings.errors.iter().try_for_each(|error| writeln!(f, "error: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::point::tests::findings;

    #[test]
    fn the_table_has_what_is_known_and_a_dash_for_what_is_not() {
        let mut findings = findings();
        let told = |findings: &Findings| {
            Report { head: Head::now(), findings: findings.clone() }.to_string()
        };
        let text = told(&findings);
        assert!(
            text.contains("   2.000    1.900–2.100    8.19       3    100.0    2.0 %"),
            "{text}"
        );
        assert!(text.contains("1.0/3.0  1.0/3.0  1.0/3.0\n"), "{text}");
        assert!(text.contains("model, aes-128-gcm-16, 512 bytes: 600 bytes of a packet"), "{text}");
        assert!(text.contains("judged\n  inline                   1.00   any processor"), "{text}");
        assert!(text.contains("not measured: pool: it needs 3 processors"), "{text}");
        findings.points[0].searches.clear();
        findings.points[0].latencies.remove(1);
        findings.complete = false;
        let text = told(&findings);
        assert!(text.contains("1.0/3.0  –  1.0/3.0") && text.contains("interrupted"), "{text}");
        assert!(text.contains("not measured: inline, aes-128-gcm-16, 512 bytes"), "{text}");
    }
}
