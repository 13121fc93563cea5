//! Looking points up, and making values of figures from them.

use crate::chart::{Dot, Value, number};
use crate::results::fields::{Fields, Value as Field};
use crate::results::{Name, Pair, Point, Series};
use crate::stats::Summary;

/// A text of a point's place.
pub(super) fn text<'a>(point: &'a Point, name: &str) -> Option<&'a str> {
    point.place.get(name).and_then(Field::text)
}

/// A number of a point's place.
pub(super) fn count(point: &Point, name: &str) -> Option<f64> {
    point.place.get(name).and_then(Field::number)
}

/// A number of fields.
pub(super) fn fact(fields: &Fields, name: &str) -> Option<f64> {
    fields.get(name).and_then(Field::number)
}

/// Convoy's series of a point that was measured by `by`.
pub(super) fn convoy<'a>(point: &'a Point, by: &str) -> Option<&'a Series> {
    point
        .series
        .iter()
        .find(|series| series.name.who == crate::results::CONVOY && series.name.by == by)
}

/// A ratio of a point.
pub(super) fn ratio<'a>(point: &'a Point, of: &Name, to: &Name) -> Option<&'a Pair> {
    point.ratios.iter().find(|pair| pair.of == *of && pair.to == *to)
}

/// `scale` in a summary's values: what costs less passes more.
pub(super) fn per(scale: f64, summary: &Summary) -> Value {
    Value { middle: scale / summary.median, low: scale / summary.high, high: scale / summary.low }
}

/// A summary's values times `scale`.
pub(super) fn times(scale: f64, summary: &Summary) -> Value {
    Value { middle: scale * summary.median, low: scale * summary.low, high: scale * summary.high }
}

/// Dots by rising places.
pub(super) fn sorted(mut dots: Vec<Dot>) -> Vec<Dot> {
    dots.sort_by(|a, b| a.x.total_cmp(&b.x));
    dots
}

/// The distinct texts of some points' places, in their order.
pub(super) fn distinct(points: &[&Point], name: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in points.iter().filter_map(|point| text(point, name)) {
        if !found.iter().any(|known| known == word) {
            found.push(word.to_owned());
        }
    }
    found
}

/// The names of some points' series, each once, in their order.
pub(super) fn names<'a>(points: &[&'a Point]) -> Vec<&'a Name> {
    let mut names: Vec<&Name> = Vec::new();
    for series in points.iter().flat_map(|point| &point.series) {
        if !names.contains(&&series.name) {
            names.push(&series.name);
        }
    }
    names
}

/// A ratio with its quartiles.
pub(super) fn spread(value: &Value) -> String {
    let Value { middle, low, high } = value;
    format!("{} ({} to {})", number(*middle), number(*low), number(*high))
}
