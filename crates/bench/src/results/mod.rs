//! One form for what every bench measured: written as JSON, and read back (`docs/json.md`).
//!
//! A [`Results`] has points, a point has series, and a series has rounds in the order in which they were taken.
//! Whatever is computed from rounds is stored beside them and must agree with them when it is read.

pub mod build;
pub mod check;
pub mod compare;
pub mod fields;
pub mod gateways;
pub mod head;
mod layout;
pub mod read;
pub mod tables;

use serde::{Deserialize, Serialize};

use crate::class::Class;
use crate::machine::Machine;
use crate::stats::{Median, Summary};
use fields::Fields;

/// Schema name in files of this form.
pub const SCHEMA: &str = "convoy-bench";
/// The version that is written, and the newest that is read.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything that one run of a bench found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`SCHEMA_VERSION`] of the program that wrote it.
    pub schema_version: u32,
    /// The verb behind `convoy bench`.
    pub bench: String,
    /// Convoy's version.
    pub version: String,
    /// The command line that reproduces it.
    pub command: String,
    /// Time of its start (RFC 3339, UTC).
    pub started: String,
    /// True if it came to its end; not where it was interrupted.
    pub complete: bool,
    /// The machine.
    pub machine: Machine,
    /// Further data that hold for all points.
    #[serde(default)]
    pub facts: Fields,
    /// Measured quantities, place by place.
    pub points: Vec<Point>,
    /// Measurements that were left out, with the reason.
    pub left_out: Vec<LeftOut>,
    /// Errors in measured points.
    pub errors: Vec<String>,
}

/// One quantity in one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Name of what was measured.
    pub quantity: String,
    /// In what unit.
    pub unit: String,
    /// Direction of improvement.
    pub better: Better,
    /// Parameters: suite, size, number of keys and the like. Two points of a quantity differ in them.
    pub place: Fields,
    /// Further data about it.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub facts: Fields,
    /// Whose rounds; the first series is what the point is about, the others stand beside it.
    pub series: Vec<Series>,
    /// Series in others, round by round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<Pair>,
    /// Series less others, round by round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Pair>,
    /// Bounds to reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Goal>,
}

/// Direction in which a number is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better.
    Less,
    /// More is better.
    More,
}

/// Rounds of one contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Whose, and by what.
    #[serde(flatten)]
    pub name: Name,
    /// Values in the order in which they were taken, to [`DIGITS`](build::DIGITS) digits.
    #[serde(deserialize_with = "read::numbers")]
    pub rounds: Vec<f64>,
    /// Summary of them without the outer eighths of time and the outer quarters of size.
    pub summary: Summary,
    /// The median of all of them, with its interval of 95 %.
    pub median: Median,
    /// Further data about it.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub facts: Fields,
}

/// Names a series within its point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// Whose: `convoy`, `convoy-c`, or a peer.
    pub who: String,
    /// By which interface, driver or tier.
    pub by: String,
}

/// One series beside another, round by round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The numerator of a ratio, the minuend of a difference.
    pub of: Name,
    /// The denominator, or the subtrahend.
    pub to: Name,
    /// Direction of improvement.
    pub better: Better,
    /// As in a [`Series`].
    pub summary: Summary,
    /// As in a [`Series`].
    pub median: Median,
}

/// A figure to reach, and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// In words.
    pub name: String,
    /// Series, ratio or difference that is judged.
    pub about: About,
    /// Number of it that counts.
    pub statistic: Statistic,
    /// Limit that was asked for.
    pub bound: Bound,
    /// That number.
    pub measured: f64,
    /// True if it was reached.
    pub reached: bool,
    /// The class of processors whose goal it is, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
}

/// Subject of a goal, within its point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum About {
    /// A series.
    Series(Name),
    /// A ratio.
    Ratio {
        /// Its numerator.
        of: Name,
        /// Its denominator.
        to: Name,
    },
    /// A difference.
    Difference {
        /// Its minuend.
        of: Name,
        /// Its subtrahend.
        to: Name,
    },
}

/// A number that rounds come to; of [`Summary`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// The mean of the middle quarters.
    Mean,
    /// The median.
    Median,
}

/// Limit of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// So much at least.
    AtLeast(f64),
    /// So much at most.
    AtMost(f64),
}

/// Something that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Measurement that was left out.
    pub what: String,
    /// Reason.
    pub why: String,
}

impl LeftOut {
    /// `what` was left out, because of `why`.
    pub fn new(what: impl Into<String>, why: impl ToString) -> Self {
        Self { what: what.into(), why: why.to_string() }
    }
}

impl Name {
    /// The series of `who`, by `by`.
    pub fn new(who: impl Into<String>, by: impl Into<String>) -> Self {
        Self { who: who.into(), by: by.into() }
    }

    /// True if it is Convoy's, by one of its interfaces.
    #[must_use]
    pub fn is_convoy(&self) -> bool {
        self.who == CONVOY || self.who.starts_with("convoy-")
    }
}

/// Name of Convoy among contenders.
pub const CONVOY: &str = "convoy";
/// The fact of a series that names the library behind it, where a peer's name does not say it.
pub const LIBRARY: &str = "library";
/// The least that the processor's ports allow, beside contenders.
pub const FLOOR: &str = "floor";

impl Bound {
    /// True if `measured` keeps it.
    #[must_use]
    pub fn is_kept(self, measured: f64) -> bool {
        match self {
            Self::AtLeast(least) => measured >= least,
            Self::AtMost(most) => measured <= most,
        }
    }
}

impl Statistic {
    /// That number.
    #[must_use]
    pub const fn of(self, summary: &Summary) -> f64 {
        match self {
            Self::Mean => summary.mean,
            Self::Median => summary.median,
        }
    }
}

impl Point {
    /// The series of this name.
    #[must_use]
    pub fn series(&self, name: &Name) -> Option<&Series> {
        self.series.iter().find(|series| series.name == *name)
    }

    /// `of` in `to`, round by round; none if they are not both there with as many rounds.
    #[must_use]
    pub fn ratio(&self, of: &Name, to: &Name) -> Option<Vec<f64>> {
        self.pair(of, to, |of, to| of / to)
    }

    /// `of` less `to`, round by round; none if they are not both there with as many rounds.
    #[must_use]
    pub fn difference(&self, of: &Name, to: &Name) -> Option<Vec<f64>> {
        self.pair(of, to, |of, to| of - to)
    }

    fn pair(&self, of: &Name, to: &Name, with: fn(f64, f64) -> f64) -> Option<Vec<f64>> {
        let (of, to) = (self.series(of)?, self.series(to)?);
        let together = of.rounds.iter().zip(&to.rounds);
        (of.rounds.len() == to.rounds.len()).then(|| together.map(|(a, b)| with(*a, *b)).collect())
    }
}
