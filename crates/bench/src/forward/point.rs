//! Results, point by point.

use super::latency::Latency;
use super::search::Found;
use crate::results::LeftOut;
use crate::stats::{Median, Summary};

/// One engine with one suite and packets of one size.
#[derive(Clone, Debug)]
pub struct Point {
    /// Name of the engine.
    pub engine: String,
    /// Name of the suite.
    pub suite: String,
    /// Bytes of inner packets.
    pub size: usize,
    /// Rates that searches found, in their order.
    pub searches: Vec<Found>,
    /// Cause of the last search without a rate.
    pub busy: Option<String>,
    /// Times that packets took at a part of the rate.
    pub latencies: Vec<Latency>,
    /// Loads at which they were not measured, and why.
    pub untimed: Vec<(f64, String)>,
    /// Traffic over the link of the look-aside model for a packet; none for other engines.
    pub link: Option<PerPacket>,
    /// Cycles of the submitting core for the cryptography of a packet, if they were measured.
    pub costs: Option<Costs>,
}

/// Traffic over a device's link for one packet, in the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerPacket {
    /// Bytes of packets that the device reads.
    pub to_device: f64,
    /// Bytes of packets that it writes.
    pub from_device: f64,
    /// Descriptors that it reads.
    pub descriptors: f64,
    /// Completions that it writes.
    pub completions: f64,
}

/// Cycles of the submitting core for a packet, burst by burst: handing it over and taking it back.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Summary of all bursts.
    pub cycles: Summary,
    /// Burst by burst.
    pub samples: Vec<f64>,
}

impl Costs {
    /// The distance of the quartiles as a share of the median.
    #[must_use]
    pub fn quartile_range(&self) -> f64 {
        (self.cycles.high - self.cycles.low) / self.cycles.median
    }

    /// The standard deviation of all bursts as a share of their mean. One burst that somebody came into counts here.
    #[must_use]
    pub fn coefficient(&self) -> f64 {
        let count = self.samples.len() as f64;
        let mean = self.samples.iter().sum::<f64>() / count;
        let squares = self.samples.iter().map(|cycles| (cycles - mean).powi(2)).sum::<f64>();
        (squares / count).sqrt() / mean
    }
}

impl Point {
    /// Rates of the searches, packets a second.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        self.searches.iter().map(|found| found.rate).collect()
    }

    /// Their median; none if none found one.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        Median::of(&self.rates()).map(|rates| rates.median)
    }

    /// Engine, suite and size in words.
    #[must_use]
    pub fn named(&self) -> String {
        format!("{}, {}, {} bytes", self.engine, self.suite, self.size)
    }
}

/// All that was found out.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The tier of the keys.
    pub tier: String,
    /// The processors of worker, generator and what else there is.
    pub cpus: Vec<usize>,
    /// Ticks of the time-stamp counter in a microsecond.
    pub mhz: f64,
    /// Packets of a trial.
    pub packets: u64,
    /// Share of a trial that others may take.
    pub allowed: f64,
    /// By suite, engine and size.
    pub points: Vec<Point>,
    /// Measurements that were left out, with the reason.
    pub left_out: Vec<LeftOut>,
    /// Errors of measured points: packets that were not accounted for.
    pub errors: Vec<String>,
    /// True if it came to its end.
    pub complete: bool,
}

impl Findings {
    /// Measurements that were left out: as a whole, and points on which others had the processors.
    #[must_use]
    pub fn all_left_out(&self) -> Vec<LeftOut> {
        let without = self.points.iter().filter(|point| point.searches.is_empty());
        let busy = without.map(|point| {
            let why = point.busy.as_deref().unwrap_or("the run ended before");
            LeftOut::new(point.named(), why)
        });
        let untimed = self.points.iter().filter_map(|point| {
            let (_, why) = point.untimed.last()?;
            let load = |(load, _): &(f64, String)| format!("{:.0}", 100.0 * load);
            let loads: Vec<String> = point.untimed.iter().map(load).collect();
            let what = format!("{}, latency at {} %", point.named(), loads.join(", "));
            Some(LeftOut::new(what, why))
        });
        self.left_out.iter().cloned().chain(busy).chain(untimed).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::forward::latency::LOADS;

    /// Two engines with one suite and packets of 512 bytes.
    pub(crate) fn findings() -> Findings {
        let point = |engine: &str, rates: &[f64], factor: f64, link| Point {
            engine: engine.to_owned(),
            suite: "aes-128-gcm-16".to_owned(),
            size: 512,
            searches: rates.iter().map(|rate| Found { rate: *rate, trials: 5, voids: 1 }).collect(),
            busy: None,
            latencies: LOADS
                .map(|load| Latency {
                    load,
                    rate: load * 1e6,
                    percentiles: [1.0, 2.0, 3.0, 4.0].map(|us| factor * us),
                    max: 5.0 * factor,
                    packets: 100_000,
                })
                .to_vec(),
            untimed: Vec::new(),
            link,
            costs: Some(Costs {
                cycles: Summary {
                    mean: 100.0 * factor * factor,
                    median: 100.0,
                    low: 99.0,
                    high: 100.0 + factor,
                },
                samples: vec![99.0, 100.0, 101.0],
            }),
        };
        let link =
            PerPacket { to_device: 600.0, from_device: 600.0, descriptors: 1.0, completions: 1.0 };
        Findings {
            tier: "avx2".to_owned(),
            cpus: vec![0, 1],
            mhz: 2000.0,
            packets: 1 << 18,
            allowed: 0.005,
            points: vec![
                point("inline", &[1.9e6, 2e6, 2.1e6], 1.0, None),
                point("model", &[1e6], 2.0, Some(link)),
            ],
            left_out: vec![LeftOut::new("pool", "it needs 3 processors")],
            errors: Vec::new(),
            complete: true,
        }
    }

    #[test]
    fn what_has_no_rate_or_latency_is_left_out_with_its_reason() {
        let mut findings = findings();
        assert_eq!(findings.all_left_out().len(), 1);
        findings.points[0].searches.clear();
        findings.points[0].busy = Some("busy: 10 trials were void".to_owned());
        findings.points[1].untimed = [0.5, 0.9].map(|load| (load, "busy".to_owned())).to_vec();
        let left_out = findings.all_left_out();
        assert_eq!(left_out.len(), 3);
        assert_eq!(left_out[1].what, "inline, aes-128-gcm-16, 512 bytes");
        assert_eq!(left_out[2].what, "model, aes-128-gcm-16, 512 bytes, latency at 50, 90 %");
    }

    #[test]
    fn costs_vary_by_quartiles_and_by_deviation() {
        let samples = vec![90.0, 100.0, 110.0, 100.0];
        let cycles = Summary { mean: 100.0, median: 100.0, low: 95.0, high: 105.0 };
        let costs = Costs { cycles, samples };
        assert!((costs.quartile_range() - 0.1).abs() < 1e-9);
        assert!((costs.coefficient() - 0.5_f64.sqrt() / 10.0).abs() < 1e-9);
    }
}
