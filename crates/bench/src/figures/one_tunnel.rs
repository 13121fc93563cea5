//! F1 to F3: AES-GCM through one tunnel on one core.

use super::Experiment;
use super::goals::Goals;
use super::headline::Headlines;
use super::merge::{command, left_out};
use super::points::{convoy, count, fact, ratio, sorted, text, times};
use crate::chart::{Axis, Chart, Dot, Figure, Kind, Line, Lines, Role, Studied, Value, number};
use crate::results::{CONVOY, Name, Point, Results};
use crate::stats;

/// The step that has all engines and tiers take turns.
pub(super) const IN_TURN: &str = "engines in turn";
/// The step in which OpenSSL may use none of the processor's features.
pub(super) const PLAIN: &str = "OpenSSL in plain software";
/// An Ethernet frame has so many bytes more than its IP packet: header and CRC.
pub(super) const FRAME: usize = 18;
/// Frames of the study, bytes.
pub(super) const FRAMES: [usize; 8] = [64, 128, 256, 512, 768, 1024, 1280, 1458];
/// Engines that are no tier, as they are asked for.
pub(super) const DRIVERS: [&str; 3] = ["null", "two-pass-clmul", "two-pass"];
/// The driver that does no work.
pub(super) const NULL: &str = "null";
/// The tier without special instructions.
pub(super) const PORTABLE: &str = "portable";
/// Name of the quantity.
const QUANTITY: &str = "cycles per packet, engines in turn";
/// The crypto library alone, in that.
const LIBRARY: &str = "crypto library alone";

/// Data that the points of this experiment have in common.
pub(super) struct Tunnel<'a> {
    results: &'a Results,
    /// Outbound points, by frame size.
    points: Vec<(f64, &'a Point)>,
    /// The tier of Convoy's own kernels.
    pub(super) best: String,
}

impl<'a> Tunnel<'a> {
    /// None if nothing of it was measured.
    pub(super) fn of(results: &'a Results) -> Option<Self> {
        let outbound = results.of(Experiment::OneTunnel, QUANTITY);
        let outbound = outbound.filter(|point| text(point, "direction") == Some("outbound"));
        let mut points: Vec<_> = outbound
            .filter_map(|point| Some((count(point, "size")? + FRAME as f64, point)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ratio = points.first()?.1.ratios.first()?;
        let best = ratio.to.by.clone();
        Some(Self { results, points, best })
    }

    /// Names of the series, Convoy's own first.
    fn names(&self) -> Vec<String> {
        let mut names = vec![self.best.clone()];
        for series in self.points.iter().flat_map(|(_, point)| &point.series) {
            let by = &series.name.by;
            if by != LIBRARY && !names.contains(by) {
                names.push(by.clone());
            }
        }
        names
    }

    /// Cycles per packet of one series against the frame.
    fn cycles(&self, by: &str) -> Vec<Dot> {
        let dot = |(frame, point): &(f64, &Point)| {
            Some(Dot { x: *frame, y: times(1.0, &convoy(point, by)?.summary) })
        };
        self.points.iter().filter_map(dot).collect()
    }

    /// The line through the medians of one series, by the bytes of the frame.
    pub(super) fn fit(&self, by: &str) -> Option<stats::Line> {
        let dots = self.cycles(by);
        stats::Line::through(&dots.iter().map(|dot| (dot.x, dot.y.middle)).collect::<Vec<_>>())
    }

    /// Cycles of OpenSSL for the text of a packet in plain software, by the frame.
    fn plain(&self) -> Vec<(f64, Value)> {
        let points = self.results.of(Experiment::OneTunnel, "cycles per packet");
        let points = points.filter(|point| text(point, super::merge::STEP) == Some(PLAIN));
        let fastest = |point: &Point| {
            let openssl = point.series.iter().filter(|series| series.name.who == "openssl");
            openssl.min_by(|a, b| a.summary.median.total_cmp(&b.summary.median)).map(|s| s.summary)
        };
        let frame = |text: f64| {
            let of = |frame: &&usize| esp_text(**frame - FRAME) as f64 == text;
            FRAMES.iter().find(of).map(|frame| *frame as f64)
        };
        points
            .filter_map(|point| Some((frame(count(point, "size")?)?, times(1.0, &fastest(point)?))))
            .collect()
    }

    /// The null series with OpenSSL's time on top.
    fn with_plain(&self) -> Vec<Dot> {
        let null = self.cycles(NULL);
        let plain = self.plain();
        let sum = |dot: &Dot| {
            let (_, plain) = plain.iter().find(|(frame, _)| *frame == dot.x)?;
            let sum = |of: fn(&Value) -> f64| of(&dot.y) + of(plain);
            let y = Value {
                middle: sum(|value| value.middle),
                low: sum(|value| value.low),
                high: sum(|value| value.high),
            };
            Some(Dot { x: dot.x, y })
        };
        null.iter().filter_map(sum).collect()
    }

    /// The time of a series in that of Convoy's own kernels at the largest or smallest frame.
    pub(super) fn factor(&self, by: &str, is_largest: bool) -> Option<Value> {
        let (_, point) = if is_largest { self.points.last() } else { self.points.first() }?;
        let pair = ratio(point, &Name::new(CONVOY, by), &Name::new(CONVOY, &*self.best))?;
        Some(times(1.0, &pair.summary))
    }

    fn largest(&self, by: &str) -> Option<Value> {
        self.points.last().and_then(|(_, point)| Some(times(1.0, &convoy(point, by)?.summary)))
    }
}

/// The short name of a driver: what follows its algorithm.
pub(super) fn short(driver: &str) -> String {
    let known = DRIVERS.iter().filter(|name| driver.ends_with(**name));
    // `two-pass` does not end with `two-pass-clmul`.
    known.max_by_key(|name| name.len()).map_or_else(|| driver.to_owned(), |name| (*name).to_owned())
}

/// Bytes of the ESP text that an inner packet becomes under AES-GCM (RFC 4303 section 2.4).
pub(super) const fn esp_text(inner: usize) -> usize {
    (inner + 2).next_multiple_of(4)
}

fn name(by: &str, best: &str) -> String {
    match by {
        by if by == best => format!("combined, {by}"),
        PORTABLE => "combined, portable".to_owned(),
        NULL => "null, no cryptography".to_owned(),
        "two-pass" => "two passes, GHASH in software".to_owned(),
        "two-pass-clmul" => "two passes".to_owned(),
        other => other.to_owned(),
    }
}

fn role(by: &str, best: &str) -> Role {
    if by == best { Role::Convoy } else { Role::Base }
}

/// The figures.
pub(super) fn figures(results: &Results) -> Vec<Figure> {
    let Some(tunnel) = Tunnel::of(results) else { return Vec::new() };
    vec![throughput(&tunnel), cycles(&tunnel), shares(&tunnel)]
}

/// F1.
fn throughput(tunnel: &Tunnel<'_>) -> Figure {
    let tsc = tunnel.results.machine.tsc_mhz;
    let megabits = |dots: Vec<Dot>| {
        let dot = |Dot { x, y }| {
            let scale = 8.0 * x * tsc;
            let Value { middle, low, high } = y;
            Dot { x, y: Value { middle: scale / middle, low: scale / high, high: scale / low } }
        };
        dots.into_iter().map(dot).collect::<Vec<_>>()
    };
    let mut series: Vec<Line> = tunnel
        .names()
        .iter()
        .map(|by| Line {
            name: name(by, &tunnel.best),
            role: role(by, &tunnel.best),
            dots: megabits(tunnel.cycles(by)),
        })
        .collect();
    let plain = megabits(tunnel.with_plain());
    if !plain.is_empty() {
        let name = "null with OpenSSL in plain software".to_owned();
        series.push(Line { name, role: Role::Computed, dots: plain });
    }
    let mut goals = Goals::default();
    goals.at_least(
        "two passes with GHASH in software, their time in the combined one's, largest frame",
        4.0,
        tunnel.factor("two-pass", true),
    );
    goals.at_least(
        "two passes, their time in the combined one's, smallest frame",
        1.3,
        tunnel.factor("two-pass-clmul", false),
    );
    goals.at_least(
        "two passes, their time in the combined one's, largest frame",
        1.2,
        tunnel.factor("two-pass-clmul", true),
    );
    let gigabits = |by: &str| {
        let value = tunnel.largest(by)?.middle;
        let (frame, _) = tunnel.points.last()?;
        Some(format!("{} Mb/s", number(8.0 * frame * tsc / value)))
    };
    let studied = |what: &str, theirs: &str, by: &str| Studied {
        what: what.to_owned(),
        theirs: theirs.to_owned(),
        ours: gigabits(by),
    };
    Figure {
        id: "F1".to_owned(),
        title: "Throughput of one tunnel on one core".to_owned(),
        caption: "Ethernet frames that the outbound pipeline protects in a second, in bits of plaintext frames, against their size. \
                  AES-128-GCM, tunnel mode, IPv4, one SA."
            .to_owned(),
        command: command(tunnel.results, Experiment::OneTunnel, IN_TURN),
        charts: vec![lines(series, Axis::linear("throughput", "Mb/s"))],
        studied: vec![
            studied("combined, largest frame (2.4 GHz Westmere)", "2,000 Mb/s", &tunnel.best),
            studied("two passes with GHASH in software, largest frame", "500 Mb/s", "two-pass"),
            studied("plain software, largest frame", "450 Mb/s", PORTABLE),
        ],
        goals: goals.into(),
        notes: vec![
            "All series took turns, burst by burst, in one process. Throughput is computed from cycles of the time-stamp counter.".to_owned(),
            "The study's slow series were table-based C. Convoy's are constant in time, so OpenSSL without the processor's features stands \
             beside them, measured alone in a process of its own: it decides what may be called a factor over plain software."
                .to_owned(),
            format!("That was measured by: {}", command(tunnel.results, Experiment::OneTunnel, PLAIN)),
        ],
        left_out: left_out(tunnel.results, Experiment::OneTunnel),
    }
}

fn lines(series: Vec<Line>, y: Axis) -> Chart {
    let lines = Lines { x: Axis::linear("frame", "bytes"), y, series };
    Chart { heading: String::new(), kind: Kind::Lines(lines) }
}

/// F2.
fn cycles(tunnel: &Tunnel<'_>) -> Figure {
    let mut series = Vec::new();
    let mut notes = vec![
        "The lines are those of least squared relative error through the medians: a frame of 1,458 bytes does not drown one of 64. \
         The slope is cycles a byte of the frame, the intercept cycles a packet."
            .to_owned(),
    ];
    for by in tunnel.names() {
        let own = name(&by, &tunnel.best);
        let dots = tunnel.cycles(&by);
        if let (Some(fit), Some((first, last))) = (tunnel.fit(&by), dots.first().zip(dots.last())) {
            notes.push(format!(
                "{own}: {} cycles a packet and {} a byte.",
                number(fit.intercept),
                number(fit.slope)
            ));
            if by == tunnel.best || by == "two-pass" {
                let at = |x: f64| Dot { x, y: Value::exact(fit.intercept + fit.slope * x) };
                let dots = vec![at(first.x), at(last.x)];
                series.push(Line { name: format!("{own}, fitted"), role: Role::Computed, dots });
            }
        }
        series.push(Line { name: own, role: role(&by, &tunnel.best), dots });
    }
    // What was measured first.
    series.sort_by_key(|line| line.role == Role::Computed);
    let fit = |by: &str| tunnel.fit(by);
    let slopes = fit("two-pass").zip(fit(&tunnel.best)).map(|(a, b)| a.slope / b.slope);
    let mut goals = Goals::default();
    goals.at_least(
        "two passes with GHASH in software, their slope in the combined one's",
        7.0,
        slopes.map(Value::exact),
    );
    goals.at_most(
        "intercept of the null series, cycles",
        200.0,
        fit(NULL).map(|fit| Value::exact(fit.intercept)),
    );
    let slope = |by: &str| fit(by).map(|fit| format!("{} cycles a byte", number(fit.slope)));
    let null = fit(NULL).map(|fit| format!("{} cycles a packet", number(fit.intercept)));
    let studied = |what: &str, theirs: &str, ours| Studied {
        what: what.to_owned(),
        theirs: theirs.to_owned(),
        ours,
    };
    Figure {
        id: "F2".to_owned(),
        title: "Cycles per packet".to_owned(),
        caption: "Cycles of the time-stamp counter that the outbound pipeline needs for a packet, against the size of its frame."
            .to_owned(),
        command: command(tunnel.results, Experiment::OneTunnel, IN_TURN),
        charts: vec![lines(series, Axis::linear("cost", "cycles a packet"))],
        studied: vec![
            studied("everything but cryptography", "6,700 cycles a packet", null),
            studied("combined", "4.6 cycles a byte", slope(&tunnel.best)),
            studied("two passes with GHASH in software", "32 cycles a byte", slope("two-pass")),
        ],
        goals: goals.into(),
        notes,
        left_out: Vec::new(),
    }
}

/// F3.
fn shares(tunnel: &Tunnel<'_>) -> Figure {
    let of = Name::new(CONVOY, LIBRARY);
    let to = Name::new(CONVOY, &*tunnel.best);
    let share = |(frame, point): &(f64, &Point)| {
        Some(Dot { x: *frame, y: times(100.0, &ratio(point, &of, &to)?.summary) })
    };
    let crypto: Vec<Dot> = sorted(tunnel.points.iter().filter_map(share).collect());
    let rest = |Dot { x, y }: &Dot| {
        let Value { middle, low, high } = *y;
        Dot { x: *x, y: Value { middle: 100.0 - middle, low: 100.0 - high, high: 100.0 - low } }
    };
    let others: Vec<Dot> = crypto.iter().map(rest).collect();
    let ours = others.first().map(|dot| format!("{} %", number(dot.y.middle)));
    let line = |name: &str, role, dots| Line { name: name.to_owned(), role, dots };
    let disturbed: f64 =
        tunnel.points.iter().filter_map(|(_, point)| fact(&point.facts, "disturbed_rounds")).sum();
    Figure {
        id: "F3".to_owned(),
        title: "Share of cryptography".to_owned(),
        caption: "Share of the outbound pipeline's cycles that the crypto library needs for packets of the same lengths, and the rest: \
                  look-up of policies, headers, sequence numbers."
            .to_owned(),
        command: command(tunnel.results, Experiment::OneTunnel, IN_TURN),
        charts: vec![lines(
            vec![line("cryptography", Role::Convoy, crypto), line("everything else", Role::Base, others)],
            Axis::linear("share", "%"),
        )],
        studied: vec![Studied { what: "everything but cryptography, frames of 64 bytes".to_owned(), theirs: "88 %".to_owned(), ours }],
        goals: Vec::new(),
        notes: vec![
            "Generator and I/O are not measured, which the study's kernel had in its figure.".to_owned(),
            format!("{} rounds were not counted, because other programs came into them.", number(disturbed)),
        ],
        left_out: Vec::new(),
    }
}

/// Throughput of a summary of packets a second, in Mb/s of frames.
pub(super) fn megabits(frame: f64, summary: &stats::Summary) -> Value {
    times(8.0 * frame / 1e6, summary)
}

/// For the top of the page.
pub(super) fn headlines(results: &Results, goals: &mut Headlines) {
    let Some(tunnel) = Tunnel::of(results) else { return };
    goals.add(
        "F1",
        "AES-128-GCM, frames of 1,458 bytes: combined beside two passes with GHASH in software",
        4.0,
        tunnel.factor("two-pass", true),
    );
    goals.add("F1", "AES-128-GCM, frames of 64 bytes: combined beside two passes with carry-less multiplication", 1.3, tunnel.factor("two-pass-clmul", false));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_have_short_names() {
        for (driver, name) in [("gcm-aes-two-pass-clmul", "two-pass-clmul"), ("x-null", "null")] {
            assert_eq!(short(driver), name);
        }
        assert_eq!(short("gcm-aes-two-pass"), "two-pass");
    }
}
