//! F9 to F12: software beside a look-aside device.

use super::merge::{command, left_out};
use super::points::{convoy, count, distinct, fact, sorted, text, times};
use super::{Experiment, dpdk};
use crate::chart::{
    Axis, Chart, Dot, Figure, Kind, Line, Lines, Polygon, Quality, Radar, Role, Scale, Studied,
    Value, number,
};
use crate::results::fields::Value as Field;
use crate::results::{LeftOut, Point, Results};

/// The step that measures all of it.
pub(super) const STEP: &str = "engines under load";
const RATE: &str = "packets per second at 0.01 % loss";
const LATENCY: &str = "latency";
const CYCLES: &str = "cycles of the submitting core per packet";
const SCORE: &str = "score beside the best";
/// The size of which latencies are drawn, bytes, if it was measured.
const DRAWN: f64 = 512.0;
/// Percentiles that are drawn.
const PERCENTILES: [&str; 2] = ["50", "99"];
/// The load of the arithmetic, in bits a second.
const LINK: f64 = 100e9;

/// Results of a real device on a bus, once, elsewhere.
const DEVICE: &str = "A real device was measured once, on 27 November 2026, and not by this command: a GPU (NVIDIA H200 on PCIe 5) as a look-aside \
device beside an Intel Emerald Rapids (2.1 GHz, class B-Intel). With batches of 4,096 packets the submitting core needed 22 to 23 cycles a packet \
of AES-128-GCM at 64 and at 1,420 bytes, where it needs 40 and 263 for the cryptography itself; 78 and 15.5 million packets a second went through, \
and a batch took 0.2 and 1.1 ms in the middle.";

/// The figures.
pub(super) fn figures(results: &Results) -> Vec<Figure> {
    [rates(results), latencies(results), cycles(results), radar(results)]
        .into_iter()
        .flatten()
        .collect()
}

fn points<'a>(results: &'a Results, quantity: &'a str) -> Vec<&'a Point> {
    results.of(Experiment::LookAside, quantity).collect()
}

fn name(engine: &str) -> String {
    match engine {
        "inline" => "inline, the worker itself".to_owned(),
        "pool" => "pool, a thread beside it".to_owned(),
        "model" => "model of a look-aside device".to_owned(),
        other => other.to_owned(),
    }
}

fn role(engine: &str) -> Role {
    if engine == "inline" { Role::Convoy } else { Role::Base }
}

/// A chart for each suite: a line for each engine, against size.
fn by_size(points: &[&Point], y: &Axis, dot: impl Fn(&Point) -> Option<Value>) -> Vec<Chart> {
    let chart = |suite: String| {
        let line = |engine: String| {
            let of = |point: &&&Point| {
                text(point, "suite") == Some(&suite) && text(point, "engine") == Some(&engine)
            };
            let dot = |point: &&Point| Some(Dot { x: count(point, "size")?, y: dot(point)? });
            let dots = sorted(points.iter().filter(of).filter_map(dot).collect());
            Line { name: name(&engine), role: role(&engine), dots }
        };
        let series = distinct(points, "engine").into_iter().map(line);
        let series = series.filter(|line| !line.dots.is_empty()).collect();
        let x = Axis::linear("inner packet", "bytes");
        Chart { heading: suite.clone(), kind: Kind::Lines(Lines { x, y: y.clone(), series }) }
    };
    distinct(points, "suite").into_iter().map(chart).collect()
}

/// F9.
fn rates(results: &Results) -> Option<Figure> {
    let points = points(results, RATE);
    let first = points.first()?;
    let y = Axis::linear("rate", "million packets a second");
    let mut charts = by_size(&points, &y, |point| {
        point.series.first().map(|series| times(1e-6, &series.summary))
    });
    charts.extend(dpdk::GATEWAY.charts(results));
    let trials: f64 = points.iter().filter_map(|point| fact(&point.facts, "trials")).sum();
    let voids: f64 = points.iter().filter_map(|point| fact(&point.facts, "void_trials")).sum();
    let studied = processors(&points).map(|(size, processors)| Studied {
        what: format!(
            "processors for 100 Gb/s in software, packets of {} bytes, computed from the rate",
            number(size)
        ),
        theirs: "12; 3 with 3 devices for 85 Gb/s".to_owned(),
        ours: Some(number(processors.ceil())),
    });
    let searches = first.series.first().map_or(0, |series| series.rounds.len());
    Some(Figure {
        id: "F9".to_owned(),
        title: "Forwarding rate of one core at 0.01 % loss".to_owned(),
        caption: "Packets a second that one worker passes while at most one of 10,000 is lost in front of it: a paced generator on another \
                  processor, and a ring of 4,096 packets that overflows as a network card's does."
            .to_owned(),
        command: command(results, Experiment::LookAside, STEP),
        charts,
        studied: studied.into_iter().collect(),
        goals: Vec::new(),
        notes: [
            format!(
                "Each point is the median of {searches} binary searches to 1 %. {} trials counted; {} were void, because others took a processor.",
                number(trials),
                number(voids)
            ),
            "The model of a device does its cryptography on the submitting core, so its rate and its cycles are a device's with the cryptography on top: it \
             shows what latency, queues and descriptors cost, not what a device takes off the core."
                .to_owned(),
            DEVICE.to_owned(),
        ]
        .into_iter()
        .chain(dpdk::GATEWAY.notes(results))
        .collect(),
        left_out: left_out(results, Experiment::LookAside),
    })
}

/// Processors for [`LINK`] with the largest packets of AES-GCM, inline: their size and how many.
fn processors(points: &[&Point]) -> Option<(f64, f64)> {
    let is_own = |point: &&&Point| {
        text(point, "engine") == Some("inline") && text(point, "suite") == Some("aes-128-gcm-16")
    };
    let of = |point: &&Point| Some((count(point, "size")?, point.series.first()?.summary.median));
    let largest = points.iter().filter(is_own).filter_map(of).max_by(|a, b| a.0.total_cmp(&b.0));
    largest.map(|(size, rate)| (size, LINK / (8.0 * size * rate)))
}

/// F10.
fn latencies(results: &Results) -> Option<Figure> {
    let points = points(results, LATENCY);
    let sizes: Vec<f64> = points.iter().filter_map(|point| count(point, "size")).collect();
    let nearest = |a: &&f64, b: &&f64| (*a - DRAWN).abs().total_cmp(&(*b - DRAWN).abs());
    let size = *sizes.iter().min_by(nearest)?;
    let drawn: Vec<&Point> =
        points.iter().filter(|point| count(point, "size") == Some(size)).copied().collect();
    let chart = |suite: String| {
        let line = |(engine, percentile): (String, &str)| {
            let of = |point: &&&Point| {
                text(point, "suite") == Some(&suite)
                    && text(point, "engine") == Some(&engine)
                    && text(point, "percentile") == Some(percentile)
            };
            let dot = |point: &&Point| {
                let y = Value::exact(convoy(point, &engine)?.summary.median);
                Some(Dot { x: count(point, "load_percent")?, y })
            };
            let dots = sorted(drawn.iter().filter(of).filter_map(dot).collect());
            let name = format!("{}, {percentile} % are faster", name(&engine));
            Line { name, role: role(&engine), dots }
        };
        let engines = distinct(&drawn, "engine");
        let each = engines.iter().flat_map(|one| PERCENTILES.map(|of| (one.clone(), of)));
        let series = each.map(line).filter(|line| !line.dots.is_empty()).collect();
        let y =
            Axis { label: "latency".to_owned(), unit: "µs".to_owned(), scale: Scale::Logarithmic };
        let lines = Lines { x: Axis::linear("load, of the rate at 0.01 % loss", "%"), y, series };
        Chart { heading: suite.clone(), kind: Kind::Lines(lines) }
    };
    Some(Figure {
        id: "F10".to_owned(),
        title: "Latency under load".to_owned(),
        caption: format!(
            "How long packets of {} bytes take from when they were due to when the sink saw them, at a tenth, a half and nine tenths of the rate of F9.",
            number(size)
        ),
        command: command(results, Experiment::LookAside, STEP),
        charts: distinct(&drawn, "suite").into_iter().map(chart).collect(),
        studied: Vec::new(),
        goals: Vec::new(),
        notes: vec![
            "Time is counted from when a packet was due, so a worker that is away keeps packets waiting in the figure, too. Other sizes, the 90th and 99.9th \
             percentile and the longest stand in report.json."
                .to_owned(),
        ],
        left_out: Vec::new(),
    })
}

/// F11.
fn cycles(results: &Results) -> Option<Figure> {
    let points = points(results, CYCLES);
    points.first()?;
    let summary = |point: &Point| point.series.first().map(|series| series.summary);
    let mut charts = by_size(&points, &Axis::linear("cost", "cycles a packet"), |point| {
        Some(times(1.0, &summary(point)?))
    });
    let spread =
        by_size(&points, &Axis::linear("distance of the quartiles", "% of the median"), |point| {
            let summary = summary(point)?;
            Some(Value::exact(100.0 * (summary.high - summary.low) / summary.median))
        });
    charts.iter_mut().for_each(|chart| chart.heading += ", cost");
    charts.extend(
        spread.into_iter().map(|chart| Chart { heading: chart.heading + ", variability", ..chart }),
    );
    Some(Figure {
        id: "F11".to_owned(),
        title: "Cycles of the submitting core".to_owned(),
        caption: "Cycles of the time-stamp counter that the core needs to hand a packet over and to take it back, and how much they vary from burst to burst. \
                  Inline that is all of the cryptography."
            .to_owned(),
        command: command(results, Experiment::LookAside, STEP),
        charts,
        studied: Vec::new(),
        goals: Vec::new(),
        notes: Vec::new(),
        left_out: Vec::new(),
    })
}

/// F12.
fn radar(results: &Results) -> Option<Figure> {
    let points = points(results, SCORE);
    points.first()?;
    let axes = distinct(&points, "axis");
    let reasons: Vec<String> = judgements(&points);
    let chart = |suite: String| {
        let at = |engine: &str, axis: &str| {
            points.iter().find(|point| {
                text(point, "suite") == Some(&suite)
                    && text(point, "engine") == Some(engine)
                    && text(point, "axis") == Some(axis)
            })
        };
        let quality = |axis: &String| {
            let judged = points.iter().find(|point| {
                text(point, "axis") == Some(axis)
                    && point.facts.get("judged") == Some(&Field::Flag(true))
            });
            let why = "judged, by the reasons below".to_owned();
            Quality { label: axis.clone(), judged: judged.map(|_| why) }
        };
        let polygon = |engine: String| {
            let share = |axis: &String| Some(at(&engine, axis)?.series.first()?.summary.median);
            let value =
                |axis: &String| at(&engine, axis).map_or_else(String::new, |point| told(point));
            Polygon {
                name: name(&engine),
                role: role(&engine),
                shares: axes.iter().map(share).collect(),
                values: axes.iter().map(value).collect(),
            }
        };
        let series = distinct(&points, "engine").into_iter().map(polygon);
        let series = series.filter(|one| one.shares.iter().any(Option::is_some)).collect();
        let radar = Radar { axes: axes.iter().map(quality).collect(), series };
        Chart { heading: suite.clone(), kind: Kind::Radar(radar) }
    };
    Some(Figure {
        id: "F12".to_owned(),
        title: "Software and look-aside on seven axes".to_owned(),
        caption: "Each axis is scaled to the best: the rim is best. Five are measured, hardware availability and software support are judged.".to_owned(),
        command: command(results, Experiment::LookAside, STEP),
        charts: distinct(&points, "suite").into_iter().map(chart).collect(),
        studied: Vec::new(),
        goals: Vec::new(),
        notes: reasons,
        left_out: missing(&points),
    })
}

/// A score's value with its unit, or the judgement.
fn told(point: &Point) -> String {
    let unit = point.facts.get("unit").and_then(Field::text).unwrap_or_default();
    match (fact(&point.facts, "value"), point.series.first()) {
        (Some(value), _) => format!("{} {unit}", number(value)),
        (None, Some(score)) => format!("{} of 1", number(score.summary.median)),
        (None, None) => String::new(),
    }
}

/// Reasons of the judgements of engines.
fn judgements(points: &[&Point]) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for point in points {
        let (axis, engine) = (text(point, "axis"), text(point, "engine"));
        let reason = point.facts.get("reason").and_then(Field::text);
        if let (Some(axis), Some(engine), Some(reason)) = (axis, engine, reason) {
            let line = format!("{axis}, {}: {reason}", name(engine));
            if !told.contains(&line) {
                told.push(line);
            }
        }
    }
    told
}

/// Axes on which an engine has no value.
fn missing(points: &[&Point]) -> Vec<LeftOut> {
    let mut missing = Vec::new();
    for engine in distinct(points, "engine") {
        for axis in distinct(points, "axis") {
            let is_there = points.iter().any(|point| {
                text(point, "engine") == Some(&engine) && text(point, "axis") == Some(&axis)
            });
            if !is_there {
                missing.push(LeftOut::new(format!("{}, {axis}", name(&engine)), "not measured"));
            }
        }
    }
    missing
}
