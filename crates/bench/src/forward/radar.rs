//! Engines beside each other on seven axes: five measured, two judged.

use super::point::{Findings, Point};

/// The load at which latencies are compared.
const LOAD: f64 = 0.5;
/// Place of the percentile that is compared, the 99th.
const PERCENTILE: usize = 2;

/// All engines with one suite and packets of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Radar {
    /// Name of the suite.
    pub suite: String,
    /// Bytes of inner packets.
    pub size: usize,
    /// Its axes.
    pub axes: Vec<Axis>,
}

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Quality that it shows.
    pub name: &'static str,
    /// The unit of what was measured; none where it was judged.
    pub unit: Option<&'static str>,
    /// Of each engine for which it is known.
    pub scores: Vec<Score>,
}

/// Position of one engine on an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Name of the engine.
    pub engine: String,
    /// 1 for the best, and less for others in the same ratio; or a judgement from 0 to 1.
    pub score: f64,
    /// Measured value.
    pub value: Option<f64>,
    /// Reason of a judgement.
    pub reason: Option<&'static str>,
}

/// Scaling of the values of an axis.
#[derive(Clone, Copy)]
enum Scale {
    /// More is better: by the most.
    Most,
    /// Less is better: the least by it.
    Least,
    /// Less is better, and may be 0: what a packet itself has, by that and what is moved in addition.
    Beside,
}

/// Measured axis.
struct Measured {
    name: &'static str,
    unit: &'static str,
    scale: Scale,
    /// Its value at a point.
    value: fn(&Point) -> Option<f64>,
}

const MEASURED: [Measured; 5] = [
    Measured {
        name: "throughput of a core",
        unit: "packets/s",
        scale: Scale::Most,
        value: Point::rate,
    },
    Measured {
        name: "cycles of the submitting core per packet",
        unit: "cycles",
        scale: Scale::Least,
        value: |point| point.costs.as_ref().map(|costs| costs.cycles.mean),
    },
    Measured {
        name: "variability of these cycles",
        unit: "quartile range by median",
        scale: Scale::Least,
        value: |point| point.costs.as_ref().map(super::point::Costs::quartile_range),
    },
    Measured {
        name: "latency, 99th percentile at half the rate",
        unit: "µs",
        scale: Scale::Least,
        value: |point| {
            let mut latencies = point.latencies.iter();
            let at_half = latencies.find(|latency| (latency.load - LOAD).abs() < 1e-9)?;
            at_half.percentiles.get(PERCENTILE).copied()
        },
    },
    Measured {
        name: "bytes over a device's bus per packet",
        unit: "bytes",
        scale: Scale::Beside,
        value: moved,
    },
];

/// Bytes that the model moves; 0 where there is no device, and unknown of a real one.
fn moved(point: &Point) -> Option<f64> {
    match &*point.engine {
        "inline" | "pool" => Some(0.0),
        _ => point.link.map(|link| link.to_device + link.from_device),
    }
}

/// Axis that is judged.
struct Judged {
    name: &'static str,
    judgements: [Judgement; 4],
}

/// Judgement of a kind of engines.
struct Judgement {
    engine: &'static str,
    score: f64,
    reason: &'static str,
}

const fn judgement(engine: &'static str, score: f64, reason: &'static str) -> Judgement {
    Judgement { engine, score, reason }
}

const JUDGED: [Judged; 2] = [
    Judged {
        name: "hardware availability",
        judgements: [
            judgement("inline", 1.0, "any processor that the gateway runs on"),
            judgement("pool", 0.8, "any processor with cores to spare"),
            judgement("model", 0.3, "stands for a card or an accelerator that few machines have"),
            judgement(
                "cryptodev",
                0.5,
                "devices of software anywhere, those of hardware where such a card is",
            ),
        ],
    },
    Judged {
        name: "software support",
        judgements: [
            judgement("inline", 1.0, "every suite of the gateway, no driver"),
            judgement("pool", 1.0, "every suite of the gateway, no driver"),
            judgement(
                "model",
                0.3,
                "a device needs a driver, which is for some kernels and some suites",
            ),
            judgement(
                "cryptodev",
                0.6,
                "needs DPDK and a driver of it, which has some of the suites",
            ),
        ],
    },
];

/// The radar of each suite, with packets of the middle of the sizes that were measured.
#[must_use]
pub fn radars(findings: &Findings) -> Vec<Radar> {
    let mut sizes: Vec<_> = findings.points.iter().map(|point| point.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let Some(&size) = sizes.get(sizes.len() / 2) else { return Vec::new() };
    let mut suites: Vec<&str> = Vec::new();
    for point in &findings.points {
        if !suites.contains(&&*point.suite) {
            suites.push(&point.suite);
        }
    }
    let of = |suite: &str| {
        let points = findings.points.iter();
        let points: Vec<_> =
            points.filter(|point| point.suite == suite && point.size == size).collect();
        let measured = MEASURED.iter().map(|axis| measured(axis, &points, size as f64));
        let judged = JUDGED.iter().map(|axis| judged(axis, &points));
        Radar { suite: suite.to_owned(), size, axes: measured.chain(judged).collect() }
    };
    suites.into_iter().map(of).collect()
}

fn measured(axis: &Measured, points: &[&Point], size: f64) -> Axis {
    let value = |point: &&Point| Some((point.engine.clone(), (axis.value)(point)?));
    let values: Vec<_> = points.iter().filter_map(value).collect();
    let most = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let least = values.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    let score = |value: f64| match axis.scale {
        Scale::Most => value / most,
        Scale::Beside => (size + least) / (size + value),
        // The best of all may be 0.
        Scale::Least if value <= least => 1.0,
        Scale::Least => least / value,
    };
    let scores = values.iter().map(|(engine, value)| Score {
        engine: engine.clone(),
        score: score(*value),
        value: Some(*value),
        reason: None,
    });
    Axis { name: axis.name, unit: Some(axis.unit), scores: scores.collect() }
}

fn judged(axis: &Judged, points: &[&Point]) -> Axis {
    let of = |point: &&Point| {
        let kind = point.engine.split(':').next();
        let found = axis.judgements.iter().find(|one| Some(one.engine) == kind)?;
        let engine = point.engine.clone();
        Some(Score { engine, score: found.score, value: None, reason: Some(found.reason) })
    };
    Axis { name: axis.name, unit: None, scores: points.iter().filter_map(of).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::point::tests::findings;

    #[test]
    fn the_best_has_1_and_others_their_share() {
        let radars = radars(&findings());
        let [radar] = &radars[..] else { panic!("{radars:?}") };
        assert_eq!((&*radar.suite, radar.size, radar.axes.len()), ("aes-128-gcm-16", 512, 7));
        let scores = |axis: usize| -> Vec<f64> {
            radar.axes[axis].scores.iter().map(|score| score.score).collect()
        };
        // Inline passes two million packets a second, the model one.
        assert_eq!((scores(0), scores(1)), (vec![1.0, 0.5], vec![1.0, 0.25]));
        assert_eq!((scores(3), scores(4)), (vec![1.0, 0.5], vec![1.0, 512.0 / 1712.0]));
        for axis in &radar.axes {
            let is_judged = axis.unit.is_none();
            assert!(axis.scores.iter().all(|score| score.reason.is_some() == is_judged));
            assert!(axis.scores.iter().all(|score| (0.0..=1.0).contains(&score.score)));
        }
    }

    #[test]
    fn an_axis_has_only_what_is_known() {
        let mut findings = findings();
        findings.points[1].searches.clear();
        findings.points[1].link = None;
        let radars = radars(&findings);
        assert_eq!((radars[0].axes[0].scores.len(), radars[0].axes[4].scores.len()), (1, 1));
        findings.points.clear();
        assert_eq!(super::radars(&findings), []);
    }
}
