//! Values for each of some things: bars from the left, each with its name beside or above it, so that names may
//! be long and need no legend.

use super::canvas::{Anchor, Canvas, Size, group, polyline, rectangle, text_width, told, wrapped};
use super::look::Look;
use super::scale::{Marks, drawable, short};
use crate::chart::{Bars, Scale, Value, number};

/// Thickness of a bar.
const THICK: f64 = 14.0;
/// Between rows.
const GAP: f64 = 6.0;
/// Between groups.
const GROUP_GAP: f64 = 14.0;
/// Between a name and its bar, a bar and its value.
const ASIDE: f64 = 8.0;
/// Text in place of a missing value.
const MISSING: &str = "not measured";

/// A bar with its name.
struct Row {
    name: Vec<String>,
    told: String,
    look: Look,
    value: Option<Value>,
}

/// Rows under a heading, which may be empty.
struct Block {
    heading: Vec<String>,
    rows: Vec<Row>,
}

/// Layout of the drawing.
struct Plot {
    size: Size,
    scale: Scale,
    marks: Marks,
    left: f64,
    width: f64,
}

/// The drawing and its height; none where there is nothing to draw.
pub(super) fn draw(bars: &Bars, looks: &[Look], size: Size) -> Option<(Canvas, f64)> {
    let names = name_width(bars, size);
    let blocks = blocks(bars, looks, names, size);
    let plot = Plot::new(bars, &blocks, names, size)?;
    let mut canvas = Canvas::new(size);
    let mut y = 0.0;
    for block in &blocks {
        y = plot.block(&mut canvas, block, y);
    }
    let height = plot.axis(&mut canvas, y - GROUP_GAP);
    Some((canvas, height))
}

/// Width of the column of names; 0 where they stand above their bars.
fn name_width(bars: &Bars, size: Size) -> f64 {
    let names = || bars.series.iter().map(|bar| &bar.name);
    let groups = || bars.groups.iter().filter(|_| bars.series.len() == 1);
    let widest =
        names().chain(groups()).map(|name| text_width(name, size.font())).fold(0.0, f64::max);
    if size == Size::Wide { widest.min(size.width() * 0.3) } else { 0.0 }
}

/// A block for each group, or one for all where there is one series.
fn blocks(bars: &Bars, looks: &[Look], names: f64, size: Size) -> Vec<Block> {
    let width = if names > 0.0 { names } else { size.width() };
    let row = |name: &str, look: Look, told: String, value: Option<Value>| Row {
        name: wrapped(name, width, size.font()),
        told,
        look,
        value: value.and_then(|value| drawable(bars.y.scale, value)),
    };
    let tell = |bar: &str, group: &str| match group {
        "" => bar.to_owned(),
        _ => format!("{bar}, {group}"),
    };
    if let [bar] = &bars.series[..] {
        let rows = bars.groups.iter().enumerate().map(|(at, group)| {
            let name = if group.is_empty() { &bar.name } else { group };
            row(name, looks[0], tell(&bar.name, group), bar.values.get(at).copied().flatten())
        });
        return vec![Block { heading: Vec::new(), rows: rows.collect() }];
    }
    let block = |(at, group): (usize, &String)| {
        let heading = wrapped(group, size.width() * 0.9, size.font() * 1.1);
        let rows = bars.series.iter().zip(looks).map(|(bar, look)| {
            row(&bar.name, *look, tell(&bar.name, group), bar.values.get(at).copied().flatten())
        });
        Block { heading: if group.is_empty() { Vec::new() } else { heading }, rows: rows.collect() }
    };
    bars.groups.iter().enumerate().map(block).collect()
}

impl Plot {
    fn new(bars: &Bars, blocks: &[Block], names: f64, size: Size) -> Option<Self> {
        let values = || blocks.iter().flat_map(|block| &block.rows).filter_map(|row| row.value);
        let all: Vec<f64> =
            values().flat_map(|value| [value.low, value.middle, value.high]).collect();
        let beside = values().map(|value| text_width(&short(value.middle), size.font()));
        let beside = beside.fold(text_width("0", size.font()), f64::max) + ASIDE;
        let left = if names > 0.0 { names + ASIDE } else { 6.0 };
        let width = size.width() - left - beside;
        let marks = Marks::across(bars.y.scale, &all, width, size.font())?;
        // The last mark's text stands out by half of it.
        let width = width.min(size.width() - left - marks.widest(size.font()) / 2.0 - 1.0);
        Some(Self { size, scale: bars.y.scale, marks, left, width })
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.marks.at(value, self.width)
    }

    /// A group, and where the next one begins.
    fn block(&self, canvas: &mut Canvas, block: &Block, from: f64) -> f64 {
        let mut y = from;
        for line in &block.heading {
            canvas.text("heading", (0.0, y + self.size.font()), Anchor::Start, line);
            y += self.size.line();
        }
        if !block.heading.is_empty() {
            y += 4.0;
        }
        let height: f64 = block.rows.iter().map(|row| self.row_height(row)).sum();
        for (value, _) in &self.marks.ticks {
            let x = self.x(*value);
            if self.has_names_beside() {
                canvas.line("grid", (x, y), (x, y + height - GAP / 2.0));
            }
        }
        for row in &block.rows {
            self.row(canvas, row, y);
            y += self.row_height(row);
        }
        y + GROUP_GAP
    }

    fn has_names_beside(&self) -> bool {
        self.left > 10.0
    }

    fn row_height(&self, row: &Row) -> f64 {
        let names = row.name.len() as f64 * self.size.line();
        if self.has_names_beside() {
            names.max(THICK + 3.0) + GAP
        } else {
            names + THICK + GAP + 3.0
        }
    }

    /// A name, its bar, its spread and its value.
    fn row(&self, canvas: &mut Canvas, row: &Row, from: f64) {
        let (line, font) = (self.size.line(), self.size.font());
        let names = row.name.len() as f64 * line;
        let (anchor, x) = if self.has_names_beside() {
            (Anchor::End, self.left - ASIDE)
        } else {
            (Anchor::Start, 0.0)
        };
        let middle = if self.has_names_beside() {
            from + names.max(THICK + 3.0) / 2.0
        } else {
            from + names + 1.0 + THICK / 2.0
        };
        let first = if self.has_names_beside() { middle - names / 2.0 } else { from };
        for (n, text) in row.name.iter().enumerate() {
            canvas.text("name", (x, first + n as f64 * line + font), anchor, text);
        }
        let baseline = middle + font * 0.36;
        let Some(value) = row.value else {
            let x = self.x(self.marks.low.max(0.0)) + ASIDE / 2.0;
            canvas.text("missing", (x, baseline), Anchor::Start, MISSING);
            return;
        };
        let text = format!("{}: {}", row.told, number(value.middle));
        let mut shape = told(&text, &format!("bar series {}", row.look.class()));
        let (base, end) = (self.x(self.marks.low.max(0.0)), self.x(value.middle));
        if self.scale == Scale::Linear {
            let from = (base.min(end), middle - THICK / 2.0);
            shape = shape.add(rectangle("fill", from, ((end - base).abs().max(0.5), THICK)));
        } else if let Some(marker) = row.look.marker((end, middle)) {
            // Powers have no zero from which a length could count.
            shape = shape.add(marker);
        }
        canvas.add(shape);
        let (low, high) = (self.x(value.low), self.x(value.high));
        if value.low < value.high {
            let parts = [
                [(low, middle - 4.0), (low, middle + 4.0)],
                [(high, middle - 4.0), (high, middle + 4.0)],
                [(low, middle), (high, middle)],
            ];
            let mut spread = group("whisker");
            // First in the colour of the page, so that it stands out from any bar.
            for class in ["halo", "stroke"] {
                for part in &parts {
                    spread = spread.add(polyline(class, part));
                }
            }
            canvas.add(spread);
        }
        let behind = high.max(end).max(base) + ASIDE * 0.75;
        canvas.text("number", (behind, baseline), Anchor::Start, &short(value.middle));
    }

    /// The marks beneath all groups, and the height of all.
    fn axis(&self, canvas: &mut Canvas, y: f64) -> f64 {
        canvas.line("edge", (self.left, y), (self.left + self.width, y));
        for (value, text) in &self.marks.ticks {
            let x = self.x(*value);
            canvas.line("edge", (x, y), (x, y + 4.0));
            let x = x.max(text_width(text, self.size.font()) / 2.0);
            canvas.text("mark", (x, y + 7.0 + self.size.font()), Anchor::Middle, text);
        }
        y + 9.0 + self.size.line()
    }
}
