//! Checks that results agree with themselves: what is computed from rounds is what is stored beside them.

use super::{About, Goal, Name, Pair, Point, Results, Series};
use crate::stats::{Median, Summary};

/// Error in results.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Disagreement {
    /// Point or part of the results.
    pub place: String,
    /// Description of the error.
    pub what: String,
}

/// Greatest distance of a number from the same one computed elsewhere, in its own size.
const TOLERANCE: f64 = 1e-9;

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= TOLERANCE * one.abs().max(other.abs()).max(f64::MIN_POSITIVE)
}

/// Checks that stored numbers are those that rounds come to; the error tells one that is not.
fn check_sums(values: &[f64], summary: &Summary, median: &Median) -> Result<(), String> {
    if let Some(value) = values.iter().find(|value| !value.is_finite()) {
        return Err(format!("{value} is not finite"));
    }
    let (Some(right), Some(middle)) = (Summary::of(values), Median::of(values)) else {
        return Err("there are no rounds".to_owned());
    };
    for (name, stored, computed) in [
        ("summary.mean", summary.mean, right.mean),
        ("summary.median", summary.median, right.median),
        ("summary.low", summary.low, right.low),
        ("summary.high", summary.high, right.high),
        ("median.median", median.median, middle.median),
        ("median.low", median.low, middle.low),
        ("median.high", median.high, middle.high),
    ] {
        if !is_near(stored, computed) {
            return Err(format!("{name} is {stored}, but its rounds come to {computed}"));
        }
    }
    Ok(())
}

impl Results {
    /// Checks every number that can be computed from others.
    ///
    /// # Errors
    /// The first [`Disagreement`].
    pub fn check(&self) -> Result<(), Disagreement> {
        self.points.iter().try_for_each(|point| {
            point.check().map_err(|what| Disagreement {
                place: format!("{} ({})", point.quantity, point.place),
                what,
            })
        })
    }
}

impl Point {
    fn check(&self) -> Result<(), String> {
        if self.series.is_empty() {
            return Err("there are no series".to_owned());
        }
        for (at, series) in self.series.iter().enumerate() {
            self.check_series(at, series)?;
        }
        for pair in &self.ratios {
            check_pair("ratio", pair, self.ratio(&pair.of, &pair.to))?;
        }
        for pair in &self.differences {
            check_pair("difference", pair, self.difference(&pair.of, &pair.to))?;
        }
        self.goals.iter().try_for_each(|goal| self.check_goal(goal))
    }

    fn check_series(&self, at: usize, series: &Series) -> Result<(), String> {
        let Series { name, rounds, summary, median, .. } = series;
        let place = |what| format!("{}: {what}", told(name));
        if self.series.iter().take(at).any(|earlier| earlier.name == *name) {
            return Err(place("two series have this name".to_owned()));
        }
        check_sums(rounds, summary, median).map_err(place)
    }

    fn check_goal(&self, goal: &Goal) -> Result<(), String> {
        let Goal { name, about, statistic, bound, measured, reached, .. } = goal;
        let Some(summary) = self.summary(about) else {
            return Err(format!("goal {name:?} is about what is not there, {}", about.told()));
        };
        let right = statistic.of(summary);
        if !is_near(*measured, right) {
            return Err(format!(
                "goal {name:?} measured {measured}, but what it is about is {right}"
            ));
        }
        if bound.is_kept(*measured) != *reached {
            return Err(format!("goal {name:?} says reached: {reached}, which its numbers do not"));
        }
        Ok(())
    }
}

fn check_pair(kind: &str, pair: &Pair, values: Option<Vec<f64>>) -> Result<(), String> {
    let Pair { of, to, summary, median, .. } = pair;
    let place = |what: &str| format!("{kind} of {} to {}: {what}", told(of), told(to));
    let values = values.ok_or_else(|| place("not two series of the point with as many rounds"))?;
    check_sums(&values, summary, median).map_err(|what| place(&what))
}

fn told(name: &Name) -> String {
    format!("{} ({})", name.who, name.by)
}

impl About {
    fn told(&self) -> String {
        match self {
            Self::Series(name) => told(name),
            Self::Ratio { of, to } => format!("the ratio of {} to {}", told(of), told(to)),
            Self::Difference { of, to } => {
                format!("the difference of {} to {}", told(of), told(to))
            }
        }
    }
}
