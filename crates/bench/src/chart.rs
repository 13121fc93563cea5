//! Content of a figure, without a word about how it is drawn.

use crate::results::LeftOut;

/// A figure of the report. Everything that is drawn also stands in its table ([`Chart::table`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// `F1` and so on; unique, and the name of the figure's place in the page.
    pub id: String,
    /// In a few words.
    pub title: String,
    /// Description of the drawing, in a sentence or two.
    pub caption: String,
    /// The command that measures it alone.
    pub command: String,
    /// Drawings, one below the other: one for each suite, for example.
    pub charts: Vec<Chart>,
    /// Values of the study that it redoes, beside ours.
    pub studied: Vec<Studied>,
    /// Verdicts on its goals.
    pub goals: Vec<Verdict>,
    /// Notes that a reader needs to read it right.
    pub notes: Vec<String>,
    /// Values that are missing from it, with the reason.
    pub left_out: Vec<LeftOut>,
}

/// A value of a study beside the one measured here.
#[derive(Clone, Debug, PartialEq)]
pub struct Studied {
    /// Name of the quantity.
    pub what: String,
    /// Their value with its unit, such as `4.6 cycles a byte`.
    pub theirs: String,
    /// Ours; none if it was not measured.
    pub ours: Option<String>,
}

/// A goal, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Subject of the goal.
    pub what: String,
    /// Bound that is asked for, such as `at least 4.0`.
    pub asked: String,
    /// Measured value with its spread, such as `4.31 (4.12 to 4.40)`.
    pub measured: String,
    /// True if it was reached.
    pub is_reached: bool,
}

/// A drawing with its heading.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Difference from the figure's other charts, such as a suite; may be empty.
    pub heading: String,
    /// Drawing.
    pub kind: Kind,
}

/// Kind of drawing with its values.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Values against a quantity.
    Lines(Lines),
    /// Values for each of some things.
    Bars(Bars),
    /// Several qualities of each of some things.
    Radar(Radar),
}

/// Values against a quantity, such as throughput against packet size.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// Lines, the most important first.
    pub series: Vec<Line>,
}

/// A quantity along an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Name of the quantity, such as `frame size`.
    pub label: String,
    /// In what unit, such as `bytes`; may be empty.
    pub unit: String,
    /// Spacing.
    pub scale: Scale,
}

/// Spacing of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By powers, with all values above zero.
    Logarithmic,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Whose.
    pub name: String,
    /// Kind of its values, which decides how it is drawn.
    pub role: Role,
    /// Its points, by rising `x`.
    pub dots: Vec<Dot>,
}

/// Kind of a series, which decides how it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Convoy as it is used.
    Convoy,
    /// Convoy in a way that serves as a base, such as a slower tier or a driver that does no work.
    Base,
    /// Somebody else.
    Peer,
    /// Computed, not measured, such as a fitted line.
    Computed,
}

/// A value that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// Position across.
    pub x: f64,
    /// The value.
    pub y: Value,
}

/// A value with its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// The median, or the mean of the middle quarters.
    pub middle: f64,
    /// The lower quartile, at most `middle`.
    pub low: f64,
    /// The upper quartile, at least `middle`.
    pub high: f64,
}

/// Values for each of some things, such as gateways.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Quantity that they measure.
    pub y: Axis,
    /// Groups of bars, such as a mix of packet sizes.
    pub groups: Vec<String>,
    /// One bar in each group.
    pub series: Vec<Bar>,
}

/// The bars of one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Whose.
    pub name: String,
    /// Kind of its values, which decides how it is drawn.
    pub role: Role,
    /// A value for each group, where it was measured.
    pub values: Vec<Option<Value>>,
}

/// Several qualities of each of some things, each from 0 to 1, the best on the rim.
#[derive(Clone, Debug, PartialEq)]
pub struct Radar {
    /// Qualities, clockwise from above.
    pub axes: Vec<Quality>,
    /// A polygon for each thing.
    pub series: Vec<Polygon>,
}

/// One axis of a radar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quality {
    /// Name.
    pub label: String,
    /// Reason of a judgement; none where it was measured.
    pub judged: Option<String>,
}

/// One thing on a radar.
#[derive(Clone, Debug, PartialEq)]
pub struct Polygon {
    /// Whose.
    pub name: String,
    /// Kind of its values, which decides how it is drawn.
    pub role: Role,
    /// A share of the best for each quality, 0 to 1, where it was measured.
    pub shares: Vec<Option<f64>>,
    /// The values behind them, with units, such as `1.2 Gb/s`.
    pub values: Vec<String>,
}

/// A chart's numbers as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns; the first is of the rows.
    pub head: Vec<String>,
    /// Rows, as long as the head.
    pub rows: Vec<Vec<String>>,
}

impl Value {
    /// Without a spread.
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self { middle: value, low: value, high: value }
    }
}

impl From<crate::stats::Summary> for Value {
    fn from(summary: crate::stats::Summary) -> Self {
        Self { middle: summary.median, low: summary.low, high: summary.high }
    }
}

impl Axis {
    /// An axis from zero on.
    #[must_use]
    pub fn linear(label: &str, unit: &str) -> Self {
        Self { label: label.to_owned(), unit: unit.to_owned(), scale: Scale::Linear }
    }
}

impl Chart {
    /// All values that are drawn, with quartiles.
    #[must_use]
    pub fn table(&self) -> Table {
        match &self.kind {
            Kind::Lines(lines) => lines.table(),
            Kind::Bars(bars) => bars.table(),
            Kind::Radar(radar) => radar.table(),
        }
    }
}

impl Lines {
    fn table(&self) -> Table {
        let mut places: Vec<f64> =
            self.series.iter().flat_map(|line| line.dots.iter().map(|dot| dot.x)).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let head = [&self.x.label].into_iter().chain(self.series.iter().map(|line| &line.name));
        let row = |x: &f64| {
            let cell = |line: &Line| {
                let dot = line.dots.iter().find(|dot| dot.x == *x);
                dot.map_or_else(String::new, |dot| told(&dot.y))
            };
            [number(*x)].into_iter().chain(self.series.iter().map(cell)).collect()
        };
        Table { head: head.cloned().collect(), rows: places.iter().map(row).collect() }
    }
}

impl Bars {
    fn table(&self) -> Table {
        let head = [String::new()].into_iter().chain(self.groups.iter().cloned());
        let row = |bar: &Bar| {
            let cells = (0..self.groups.len()).map(|at| {
                let value = bar.values.get(at).copied().flatten();
                value.map_or_else(String::new, |value| told(&value))
            });
            [bar.name.clone()].into_iter().chain(cells).collect()
        };
        Table { head: head.collect(), rows: self.series.iter().map(row).collect() }
    }
}

impl Radar {
    fn table(&self) -> Table {
        let head = self.axes.iter().map(|quality| quality.label.clone());
        let row = |polygon: &Polygon| {
            let cells =
                (0..self.axes.len()).map(|at| polygon.values.get(at).cloned().unwrap_or_default());
            [polygon.name.clone()].into_iter().chain(cells).collect()
        };
        Table {
            head: [String::new()].into_iter().chain(head).collect(),
            rows: self.series.iter().map(row).collect(),
        }
    }
}

/// A number with its quartiles, where they differ from it.
fn told(value: &Value) -> String {
    let Value { middle, low, high } = *value;
    let (middle, low, high) = (number(middle), number(low), number(high));
    match low == middle && high == middle {
        true => middle,
        false => format!("{middle} ({low} to {high})"),
    }
}

/// A number to three digits, thousands apart, and whole if it has more.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        _ if size == 0.0 || size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => (2 - size.log10().floor() as i32).clamp(2, 9) as usize,
    };
    let text = format!("{size:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let rest = rest.trim_end_matches('0').trim_end_matches('.');
    format!("{}{grouped}{rest}", if value < 0.0 { "-" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_thousands_apart() {
        for (value, text) in [
            (0.0, "0"),
            (0.001_234_5, "0.00123"),
            (0.5, "0.5"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1420.0, "1,420"),
            (12_345_678.0, "12,345,678"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_table_has_every_value_that_is_drawn() {
        let dot = |x, middle| Dot { x, y: Value { middle, low: middle - 1.0, high: middle } };
        let line = |name: &str, dots| Line { name: name.to_owned(), role: Role::Convoy, dots };
        let lines = Lines {
            x: Axis::linear("size", "bytes"),
            y: Axis::linear("throughput", "Gb/s"),
            series: vec![line("a", vec![dot(64.0, 5.0), dot(128.0, 9.0)]), line("b", vec![])],
        };
        let table = Chart { heading: String::new(), kind: Kind::Lines(lines) }.table();
        assert_eq!(table.head, ["size", "a", "b"]);
        assert_eq!(table.rows, [["64", "5 (4 to 5)", ""], ["128", "9 (8 to 9)", ""]]);
        let bars = Bars {
            y: Axis::linear("throughput", "Gb/s"),
            groups: vec!["imix".to_owned(), "64 B".to_owned()],
            series: vec![Bar {
                name: "a".to_owned(),
                role: Role::Peer,
                values: vec![None, Some(Value::exact(2.5))],
            }],
        };
        let table = Chart { heading: String::new(), kind: Kind::Bars(bars) }.table();
        assert_eq!(table.rows, [["a", "", "2.5"]]);
    }
}
