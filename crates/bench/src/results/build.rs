//! Putting results together.

use super::fields::{Fields, Value};
use super::head::Head;
use super::{
    About, Better, Bound, Goal, LeftOut, Name, Pair, Point, Results, SCHEMA, SCHEMA_VERSION,
    Series, Statistic,
};
use crate::class::Class;
use crate::stats::{Median, Summary};

/// Digits that rounds are given to. No clock here is as exact.
pub const DIGITS: usize = 6;

/// A point under way. A series without rounds, or with a number that is not finite, is left out, and so is
/// what would be computed from it.
#[derive(Clone, Debug)]
pub struct Draft {
    point: Point,
    left_out: Vec<LeftOut>,
}

impl Draft {
    /// A point without series, of `quantity` in `unit`.
    pub fn new(quantity: &str, unit: &str, better: Better, place: Fields) -> Self {
        let point = Point {
            quantity: quantity.to_owned(),
            unit: unit.to_owned(),
            better,
            place,
            facts: Fields::default(),
            series: Vec::new(),
            ratios: Vec::new(),
            differences: Vec::new(),
            goals: Vec::new(),
        };
        Self { point, left_out: Vec::new() }
    }

    /// Adds something that is known about the point.
    #[must_use]
    pub fn fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.point.facts.set(name, value);
        self
    }

    /// Adds a series.
    #[must_use]
    pub fn series(self, name: &Name, rounds: &[f64]) -> Self {
        self.series_with(name, rounds, Fields::default())
    }

    /// Adds a series about which more is known.
    #[must_use]
    pub fn series_with(mut self, name: &Name, rounds: &[f64], facts: Fields) -> Self {
        let rounds: Vec<f64> = rounds.iter().map(|value| rounded(*value)).collect();
        let sums = Summary::of(&rounds).zip(Median::of(&rounds));
        let why = match sums {
            None => "there are no rounds",
            Some(_) if self.point.series(name).is_some() => "there are two of this name",
            Some(_) if rounds.iter().any(|value| !value.is_finite()) => "a round is not finite",
            Some((summary, median)) => {
                let name = name.clone();
                self.point.series.push(Series { name, rounds, summary, median, facts });
                return self;
            }
        };
        let Name { who, by } = name;
        let what = format!("{who} ({by}), {}, {}", self.point.quantity, self.point.place);
        self.left_out.push(LeftOut::new(what, why));
        self
    }

    /// Adds the ratio of two series.
    #[must_use]
    pub fn ratio(mut self, of: &Name, to: &Name, better: Better) -> Self {
        let pair = self.point.ratio(of, to).and_then(|values| pair(of, to, better, &values));
        self.point.ratios.extend(pair);
        self
    }

    /// Adds the difference of two series.
    #[must_use]
    pub fn difference(mut self, of: &Name, to: &Name, better: Better) -> Self {
        let pair = self.point.difference(of, to).and_then(|values| pair(of, to, better, &values));
        self.point.differences.extend(pair);
        self
    }

    /// Adds a goal about a series, ratio or difference that is there.
    #[must_use]
    pub fn goal(
        mut self,
        name: &str,
        about: About,
        statistic: Statistic,
        bound: Bound,
        class: Option<Class>,
    ) -> Self {
        let Some(summary) = self.point.summary(&about) else { return self };
        let measured = statistic.of(summary);
        let reached = bound.is_kept(measured);
        let name = name.to_owned();
        self.point.goals.push(Goal { name, about, statistic, bound, measured, reached, class });
        self
    }
}

impl Point {
    /// Stored summary of the series, ratio or difference that a goal is about.
    #[must_use]
    pub fn summary(&self, about: &About) -> Option<&Summary> {
        let found = |pairs: &[Pair], of: &Name, to: &Name| {
            pairs.iter().position(|pair| pair.of == *of && pair.to == *to)
        };
        match about {
            About::Series(name) => self.series(name).map(|series| &series.summary),
            About::Ratio { of, to } => {
                found(&self.ratios, of, to).map(|at| &self.ratios[at].summary)
            }
            About::Difference { of, to } => {
                found(&self.differences, of, to).map(|at| &self.differences[at].summary)
            }
        }
    }
}

fn pair(of: &Name, to: &Name, better: Better, values: &[f64]) -> Option<Pair> {
    let (summary, median) = Summary::of(values).zip(Median::of(values))?;
    let is_finite = values.iter().all(|value| value.is_finite());
    is_finite.then(|| Pair { of: of.clone(), to: to.clone(), better, summary, median })
}

/// The nearest number of [`DIGITS`] digits.
fn rounded(value: f64) -> f64 {
    // Only a number that is not finite is not read back.
    format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value)
}

impl Results {
    /// Results of a bench without points.
    #[must_use]
    pub fn new(bench: &str, head: &Head) -> Self {
        let Head { version, command, started, machine } = head.clone();
        Self {
            schema: SCHEMA.to_owned(),
            schema_version: SCHEMA_VERSION,
            bench: bench.to_owned(),
            version,
            command,
            started,
            complete: true,
            machine,
            facts: Fields::default(),
            points: Vec::new(),
            left_out: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Adds a point, unless none of its series is there.
    pub fn add(&mut self, draft: Draft) {
        let Draft { point, left_out } = draft;
        self.left_out.extend(left_out);
        self.points.extend((!point.series.is_empty()).then_some(point));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> Draft {
        Draft::new("cycles per packet", "cycles", Better::Less, Fields::default())
    }

    #[test]
    fn rounds_are_given_to_six_digits() {
        for (value, text) in [
            (63.123_456_7, "63.1235"),
            (1_234_567_890.0, "1234570000.0"),
            (0.0, "0.0"),
            (-2.5e-9, "-2.5e-9"),
        ] {
            assert_eq!(serde_json::to_string(&rounded(value)).unwrap(), text);
        }
        assert!(rounded(f64::NAN).is_nan() && rounded(f64::INFINITY).is_infinite());
    }

    #[test]
    fn what_cannot_be_summed_up_is_left_out_with_what_hangs_on_it() {
        let (one, other) = (Name::new("convoy", "a"), Name::new("openssl", "b"));
        let about = About::Ratio { of: other.clone(), to: one.clone() };
        let complete = |rounds: &[f64]| {
            draft()
                .series(&one, &[2.0, 4.0])
                .series(&other, rounds)
                .ratio(&other, &one, Better::More)
                .difference(&one, &other, Better::Less)
                .goal("twice", about.clone(), Statistic::Median, Bound::AtLeast(2.0), None)
        };
        let Draft { point, left_out } = complete(&[4.0, 8.0]);
        assert!(left_out.is_empty());
        assert_eq!((point.ratios[0].summary.median, point.goals[0].reached), (2.0, true));
        assert_eq!(point.differences[0].summary.mean, -3.0);
        for (rounds, why) in
            [(&[][..], "no rounds"), (&[1.0, f64::NAN], "not finite"), (&[f64::INFINITY], "finite")]
        {
            let Draft { point, left_out } = complete(rounds);
            assert!(left_out[0].why.contains(why), "{left_out:?}");
            assert!(left_out[0].what.starts_with("openssl (b), cycles per packet"));
            assert_eq!((point.series.len(), point.ratios.len(), point.goals.len()), (1, 0, 0));
        }
        // Fewer rounds are no pairs, and a division by zero is no ratio.
        for rounds in [&[1.0][..], &[0.0, 0.0]] {
            let draft = draft().series(&one, rounds).series(&other, &[1.0, 2.0]);
            assert!(draft.ratio(&other, &one, Better::More).point.ratios.is_empty());
        }
        let twice = draft().series(&one, &[1.0]).series(&one, &[2.0]);
        assert_eq!((twice.point.series.len(), twice.left_out.len()), (1, 1));
    }
}
