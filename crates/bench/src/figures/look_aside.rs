//! F9 to F12: software beside a look-aside device.

use super::chart::Figure;
use crate::results::Results;

/// The step that measures all of it.
pub(super) const STEP: &str = "engines under load";

/// The figures.
pub(super) fn figures(_: &Results) -> Vec<Figure> {
    Vec::new()
}
