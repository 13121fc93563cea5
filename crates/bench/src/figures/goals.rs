//! Goals of figures.

use super::points::spread;
use crate::chart::{Value, Verdict, number};

/// Goals of a figure that were measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Goals(Vec<Verdict>);

impl Goals {
    /// So much at least.
    pub(super) fn at_least(&mut self, what: &str, least: f64, value: Option<Value>) {
        self.add(what, format!("at least {}", number(least)), value, |value| value >= least);
    }

    /// So much at most.
    pub(super) fn at_most(&mut self, what: &str, most: f64, value: Option<Value>) {
        self.add(what, format!("at most {}", number(most)), value, |value| value <= most);
    }

    fn add(
        &mut self,
        what: &str,
        asked: String,
        value: Option<Value>,
        is_kept: impl Fn(f64) -> bool,
    ) {
        self.0.extend(value.map(|value| Verdict {
            what: what.to_owned(),
            asked,
            measured: if value.low == value.high { number(value.middle) } else { spread(&value) },
            is_reached: is_kept(value.middle),
        }));
    }
}

impl From<Goals> for Vec<Verdict> {
    fn from(goals: Goals) -> Self {
        goals.0
    }
}
