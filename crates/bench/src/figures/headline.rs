//! Ratios for the top of the page.

use crate::chart::Value;

/// A ratio for the top of the page.
#[derive(Clone, Debug, PartialEq)]
pub struct Headline {
    /// The figure that it is from.
    pub figure: &'static str,
    /// Subject of the ratio.
    pub what: String,
    /// The ratio, with its quartiles.
    pub value: Value,
    /// Least that is asked for.
    pub asked: f64,
}

impl Headline {
    /// True if as much as was asked for was reached.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.value.middle >= self.asked
    }
}

/// Ratios for the top of the page.
#[derive(Clone, Debug, Default)]
pub(super) struct Headlines(Vec<Headline>);

impl Headlines {
    /// Adds one that was measured.
    pub(super) fn add(
        &mut self,
        figure: &'static str,
        what: &str,
        asked: f64,
        value: Option<Value>,
    ) {
        let line = |value| Headline { figure, what: what.to_owned(), value, asked };
        self.0.extend(value.map(line));
    }
}

impl From<Headlines> for Vec<Headline> {
    fn from(lines: Headlines) -> Self {
        lines.0
    }
}
