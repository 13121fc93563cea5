//! The report as one page of HTML that needs nothing beside itself: no script, no font, no request.
//!
//! It draws whatever figures it is given. Each chart is drawn in two sizes, for screens and for phones, of which the style
//! sheet shows one; all that is drawn also stands in a table. The same report gives the same bytes.

mod bars;
mod canvas;
mod figure;
mod lines;
mod look;
mod machine;
mod page;
mod radar;
mod scale;
mod table;

use crate::chart::Figure;
use crate::machine::Machine;
use crate::results::LeftOut;

/// All that a page tells.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Of the page.
    pub title: String,
    /// Numbers on top, the most important first.
    pub headline: Vec<Headline>,
    /// The figures, in their order.
    pub figures: Vec<Figure>,
    /// Machine on which it was measured.
    pub machine: Machine,
    /// Convoy's version.
    pub version: String,
    /// The command line that measures it again.
    pub command: String,
    /// Time of its start (RFC 3339, UTC).
    pub started: String,
    /// True if it came to its end.
    pub complete: bool,
    /// Measurements that were left out, beside those that figures tell of themselves.
    pub left_out: Vec<LeftOut>,
    /// Errors.
    pub errors: Vec<String>,
}

/// A number that the whole report comes down to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// Subject of the measurement, such as `AES-128-GCM, 64 B, seal`.
    pub what: String,
    /// The number, such as `1.43`.
    pub value: String,
    /// Its quartiles, such as `1.40 to 1.47`; may be empty.
    pub spread: String,
    /// Meaning of the number, such as `intel-ipsec-mb's time in Convoy's`.
    pub about: String,
    /// Bound, such as `at least 1.30`, where there is a goal.
    pub asked: Option<String>,
    /// True if that was reached, where there is a goal.
    pub is_reached: Option<bool>,
    /// The [`id`](Figure::id) of the figure that shows more.
    pub figure: Option<String>,
}

/// The page of `report`.
#[must_use]
pub fn render(report: &Report) -> String {
    page::page(report).into_string()
}
