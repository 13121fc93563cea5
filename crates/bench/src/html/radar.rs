//! Several qualities of each of some things: polygons on spokes.

use std::f64::consts::TAU;

use super::canvas::{self, Anchor, Canvas, Size, text_width, wrapped};
use super::look::Look;
use crate::chart::{Polygon, Radar};

/// Rings, at even shares of the best.
const RINGS: usize = 4;
/// Between the rim and its labels.
const GAP: f64 = 10.0;
/// With more qualities than this, labels would meet.
const LABELLED: usize = 8;
/// Fewer spokes make no area.
const FEWEST: usize = 3;
/// A label has at most so many lines; others are numbers, which the list beneath explains.
const LABEL_LINES: usize = 3;

/// Layout of the drawing.
struct Plot<'a> {
    radar: &'a Radar,
    size: Size,
    labels: Vec<Vec<String>>,
    centre: (f64, f64),
    radius: f64,
}

/// True if labels are numbers in a drawing of that size.
pub(super) fn is_numbered(radar: &Radar, size: Size) -> bool {
    let (radius, font) = (radius(size), size.font());
    size == Size::Narrow
        || radar.axes.len() > LABELLED
        || radar.axes.iter().enumerate().any(|(n, axis)| {
            wrapped(&axis.label, room(n, radar.axes.len(), radius, size), font).len() > LABEL_LINES
        })
}

/// The drawing and its height; none where there is too little to draw.
pub(super) fn draw(radar: &Radar, looks: &[Look], size: Size) -> Option<(Canvas, f64)> {
    if radar.axes.len() < FEWEST {
        return None;
    }
    let has_share = |polygon: &Polygon| (0..radar.axes.len()).any(|n| share(polygon, n).is_some());
    if !radar.series.iter().any(has_share) {
        return None;
    }
    let plot = Plot::new(radar, size);
    let mut canvas = Canvas::new(size);
    plot.frame(&mut canvas);
    for (polygon, look) in radar.series.iter().zip(looks).rev() {
        plot.polygon(&mut canvas, polygon, *look);
    }
    Some((canvas, plot.centre.1 * 2.0))
}

const fn radius(size: Size) -> f64 {
    match size {
        Size::Wide => 150.0,
        Size::Narrow => 125.0,
    }
}

/// Greatest width of a label.
fn room(n: usize, all: usize, radius: f64, size: Size) -> f64 {
    let (right, _) = direction(n, all);
    let beside = size.width() / 2.0 - radius * right.abs() - GAP - 2.0;
    // A label above or below lies on both sides of its spoke, with neighbours on either.
    if is_upright(right) { radius * 0.9 } else { beside.min(200.0) }
}

fn is_upright(right: f64) -> bool {
    right.abs() < 0.05
}

/// Unit vector of a spoke, clockwise from above.
fn direction(n: usize, all: usize) -> (f64, f64) {
    let angle = TAU * n as f64 / all.max(1) as f64;
    (angle.sin(), -angle.cos())
}

/// A polygon's share on a spoke, if it can be drawn.
fn share(polygon: &Polygon, n: usize) -> Option<f64> {
    let share = polygon.shares.get(n).copied().flatten()?;
    share.is_finite().then(|| share.clamp(0.0, 1.0))
}

impl<'a> Plot<'a> {
    fn new(radar: &'a Radar, size: Size) -> Self {
        let (radius, all) = (radius(size), radar.axes.len());
        let is_numbered = is_numbered(radar, size);
        let label = |n: usize| match is_numbered {
            true => vec![(n + 1).to_string()],
            false => wrapped(&radar.axes[n].label, room(n, all, radius, size), size.font()),
        };
        let labels: Vec<_> = (0..all).map(label).collect();
        let most = labels.iter().map(Vec::len).max().unwrap_or(1) as f64;
        let above = radius + GAP + most * size.line();
        Self { radar, size, labels, centre: (size.width() / 2.0, above), radius }
    }

    fn at(&self, n: usize, share: f64) -> (f64, f64) {
        let (right, down) = direction(n, self.radar.axes.len());
        (self.centre.0 + right * self.radius * share, self.centre.1 + down * self.radius * share)
    }

    /// Rings, spokes and their labels.
    fn frame(&self, canvas: &mut Canvas) {
        let all = self.radar.axes.len();
        for ring in 1..=RINGS {
            let share = ring as f64 / RINGS as f64;
            let points: Vec<_> = (0..all).map(|n| self.at(n, share)).collect();
            canvas.polygon(if ring == RINGS { "ring rim" } else { "ring" }, &points);
        }
        for n in 0..all {
            canvas.line("grid", self.centre, self.at(n, 1.0));
            self.label(canvas, n);
        }
    }

    fn label(&self, canvas: &mut Canvas, n: usize) {
        let (right, down) = direction(n, self.radar.axes.len());
        let (line, lines) = (self.size.line(), &self.labels[n]);
        let reach = 1.0 + GAP / self.radius;
        let (x, y) = self.at(n, reach);
        let anchor = match right {
            _ if is_upright(right) => Anchor::Middle,
            _ if right > 0.0 => Anchor::Start,
            _ => Anchor::End,
        };
        // The lines lie around the end of their spoke: above it at the top, below it at the bottom.
        let height = lines.len() as f64 * line;
        let top = y - height * (1.0 - down) / 2.0;
        for (at, text) in lines.iter().enumerate() {
            let baseline = top + at as f64 * line + self.size.font() * 0.95;
            let half = text_width(text, self.size.font()) / 2.0;
            let x = if anchor == Anchor::Middle { x.max(half) } else { x };
            canvas.text("name", (x, baseline), anchor, text);
        }
    }

    /// Draws the known part of a polygon; closed where all of it is known.
    fn polygon(&self, canvas: &mut Canvas, polygon: &Polygon, look: Look) {
        let all = self.radar.axes.len();
        let class = look.class();
        let known: Vec<_> =
            (0..all).map(|n| share(polygon, n).map(|share| self.at(n, share))).collect();
        let points: Vec<_> = known.iter().copied().flatten().collect();
        let mut group = canvas::group(&format!("series {class}"));
        if points.len() == all {
            canvas.polygon(&format!("area {class}"), &points);
            group = group.add(canvas::polygon("line", &points));
        } else {
            for n in 0..all {
                if let (Some(from), Some(to)) = (known[n], known[(n + 1) % all]) {
                    group = group.add(canvas::polyline("line", &[from, to]));
                }
            }
        }
        for (n, at) in known.iter().enumerate().filter_map(|(n, at)| Some((n, (*at)?))) {
            if let Some(marker) = look.marker(at) {
                let value = polygon.values.get(n).map_or("", String::as_str);
                let text = format!("{}, {}: {value}", polygon.name, self.radar.axes[n].label);
                group = group.add(canvas::told(&text, "value").add(marker));
            }
        }
        canvas.add(group);
    }
}
