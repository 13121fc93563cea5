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

use crate::figures::chart::Figure;
use crate::machine::Machine;
use crate::results::LeftOut;

/// All that a page tells.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Of the page.
    pub title: String,
    /// What stands on top, the most important first.
    pub headline: Vec<Headline>,
    /// The figures, in their order.
    pub figures: Vec<Figure>,
    /// Where it was measured.
    pub machine: Machine,
    /// Convoy's version.
    pub version: String,
    /// The command line that measures it again.
    pub command: String,
    /// When it began (RFC 3339, UTC).
    pub started: String,
    /// Whether it came to its end.
    pub complete: bool,
    /// What was not measured, beside what figures tell of themselves.
    pub left_out: Vec<LeftOut>,
    /// What went wrong.
    pub errors: Vec<String>,
}

/// A number that the whole report comes down to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// What was measured, such as `AES-128-GCM, 64 B, seal`.
    pub what: String,
    /// The number, such as `1.43`.
    pub value: String,
    /// Its quartiles, such as `1.40 to 1.47`; may be empty.
    pub spread: String,
    /// What the number is, such as `intel-ipsec-mb's time in Convoy's`.
    pub about: String,
    /// What is asked for, such as `at least 1.30`, where there is a goal.
    pub asked: Option<String>,
    /// Whether that was reached, where there is a goal.
    pub is_reached: Option<bool>,
    /// The [`id`](Figure::id) of the figure that shows more.
    pub figure: Option<String>,
}

/// The page of `report`.
#[must_use]
pub fn render(report: &Report) -> String {
    page::page(report).into_string()
}
