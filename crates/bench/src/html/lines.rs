//! Values against a quantity: lines, with bands between quartiles.

use super::canvas::{self, Anchor, Canvas, Size, text_width};
use super::look::Look;
use super::scale::{Marks, drawable, is_drawable};
use crate::chart::{Axis, Line, Lines, Value, number};

/// From the upper edge of the drawing to the greatest mark.
const ABOVE: f64 = 10.0;
/// Between marks and their texts.
const GAP: f64 = 8.0;

/// Layout of the drawing.
struct Plot {
    x: Marks,
    y: Marks,
    left: f64,
    width: f64,
    height: f64,
}

/// Line with its look and its values to draw.
struct Drawn<'a> {
    line: &'a Line,
    look: Look,
    dots: Vec<(f64, Value)>,
}

/// The drawing and its height; none where there is nothing to draw.
pub(super) fn draw(lines: &Lines, looks: &[Look], size: Size) -> Option<(Canvas, f64)> {
    let drawn: Vec<Drawn<'_>> = lines
        .series
        .iter()
        .zip(looks)
        .map(|(line, look)| {
            let dots = line.dots.iter().filter(|dot| is_drawable(lines.x.scale, dot.x));
            let dots = dots.filter_map(|dot| Some((dot.x, drawable(lines.y.scale, dot.y)?)));
            Drawn { line, look: *look, dots: dots.collect() }
        })
        .collect();
    let plot = Plot::new(lines, &drawn, size)?;
    let mut canvas = Canvas::new(size);
    plot.frame(&mut canvas, size);
    // What matters most comes last, and so lies on top.
    for one in drawn.iter().rev() {
        plot.band(&mut canvas, one);
    }
    for one in drawn.iter().rev() {
        plot.line(&mut canvas, one, lines);
    }
    Some((canvas, ABOVE + plot.height + GAP + size.line()))
}

impl Plot {
    fn new(lines: &Lines, drawn: &[Drawn<'_>], size: Size) -> Option<Self> {
        let dots = || drawn.iter().flat_map(|one| &one.dots);
        let across: Vec<f64> = dots().map(|(x, _)| *x).collect();
        let up: Vec<f64> = dots().flat_map(|(_, y)| [y.low, y.middle, y.high]).collect();
        let y = Marks::new(lines.y.scale, &up, 5)?;
        let left = y.widest(size.font()) + GAP;
        // The last mark's text stands out by half of it.
        let most = size.width() - left;
        let rough = Marks::across(lines.x.scale, &across, most * 0.9, size.font())?;
        let width = most - rough.widest(size.font()) / 2.0 - 2.0;
        let x = Marks::across(lines.x.scale, &across, width, size.font())?;
        let height = match size {
            Size::Wide => 300.0,
            Size::Narrow => 220.0,
        };
        Some(Self { x, y, left, width, height })
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.left + self.x.at(x, self.width), ABOVE + self.height - self.y.at(y, self.height))
    }

    /// Marks, their texts and the lines across.
    fn frame(&self, canvas: &mut Canvas, size: Size) {
        let (right, bottom) = (self.left + self.width, ABOVE + self.height);
        for (value, text) in &self.y.ticks {
            let (_, y) = self.at(self.x.low, *value);
            let class = if *value == 0.0 { "edge" } else { "grid" };
            canvas.line(class, (self.left, y), (right, y));
            let baseline = y + size.font() * 0.35;
            canvas.text("mark", (self.left - GAP, baseline), Anchor::End, text);
        }
        canvas.line("edge", (self.left, bottom), (right, bottom));
        for (value, text) in &self.x.ticks {
            let x = self.left + self.x.at(*value, self.width);
            canvas.line("edge", (x, bottom), (x, bottom + 4.0));
            // The first one's text stays within the drawing.
            let x = x.max(text_width(text, size.font()) / 2.0);
            canvas.text("mark", (x, bottom + GAP + size.font()), Anchor::Middle, text);
        }
    }

    /// From the lower to the upper quartile.
    fn band(&self, canvas: &mut Canvas, one: &Drawn<'_>) {
        let class = one.look.class();
        if let [(x, y)] = one.dots[..] {
            let mut group = canvas::group(&format!("series {class}"));
            group = group.add(canvas::polyline("spread", &[self.at(x, y.low), self.at(x, y.high)]));
            canvas.add(group);
            return;
        }
        let upper = one.dots.iter().map(|(x, y)| self.at(*x, y.high));
        let lower = one.dots.iter().rev().map(|(x, y)| self.at(*x, y.low));
        let edge: Vec<_> = upper.chain(lower).collect();
        if one.dots.iter().any(|(_, y)| y.low != y.high) {
            canvas.polygon(&format!("band {class}"), &edge);
        }
    }

    /// The line, and a mark for each value, which tells it where a pointer rests.
    fn line(&self, canvas: &mut Canvas, one: &Drawn<'_>, lines: &Lines) {
        let mut group = canvas::group(&format!("series {}", one.look.class()));
        let points: Vec<_> = one.dots.iter().map(|(x, y)| self.at(*x, y.middle)).collect();
        if points.len() > 1 {
            group = group.add(canvas::polyline("line", &points));
        }
        for ((x, y), at) in one.dots.iter().zip(&points) {
            if let Some(marker) = one.look.marker(*at) {
                let text = format!(
                    "{}, {}: {}",
                    one.line.name,
                    with_unit(&number(*x), &lines.x),
                    with_unit(&number(y.middle), &lines.y)
                );
                group = group.add(canvas::told(&text, "value").add(marker));
            }
        }
        canvas.add(group);
    }
}

fn with_unit(text: &str, axis: &Axis) -> String {
    if axis.unit.is_empty() { text.to_owned() } else { format!("{text} {}", axis.unit) }
}
