//! What engines there are, by name and priority.

use crate::Front;

/// An engine that can be made.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name in site files and listings.
    pub name: &'static str,
    /// The highest one is taken when none is named.
    pub priority: u16,
    /// What it is, in one line.
    pub about: &'static str,
    make: fn() -> Front,
}

impl Entry {
    /// Makes an instance for one worker and direction.
    #[must_use]
    pub fn make(&self) -> Front {
        (self.make)()
    }
}

const ENTRIES: &[Entry] = &[Entry {
    name: "inline",
    priority: 100,
    about: "works at once on the worker's own core, a burst at a time",
    make: Front::inline,
}];

/// All engines, highest priority first.
#[must_use]
pub fn entries() -> &'static [Entry] {
    ENTRIES
}

/// The engine with this name, or the one of highest priority.
#[must_use]
pub fn find(name: Option<&str>) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| name.is_none_or(|name| entry.name == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_priority_comes_first_and_is_the_default() {
        assert!(entries().is_sorted_by(|a, b| a.priority >= b.priority));
        assert_eq!(find(None).map(|e| e.name), Some(entries()[0].name));
        assert!(find(Some("no such engine")).is_none());
        assert!(find(Some("inline")).is_some_and(|e| e.make().standing().is_none()));
    }
}
