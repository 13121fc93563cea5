//! Closed ranges of addresses as they stand in the packet filter: apart, and as few as possible.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// A range of addresses, both ends included.
pub type Range = (u128, u128);

/// An address as ranges have it.
#[must_use]
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// Ranges that neither overlap nor touch.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Cover {
    ranges: BTreeMap<u128, u128>,
}

/// Changes that make one cover of another.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    counts: BTreeMap<Range, i32>,
}

impl Difference {
    /// Ranges to be taken out.
    pub fn removed(&self) -> impl Iterator<Item = Range> {
        self.counts.iter().filter(|(_, count)| **count < 0).map(|(range, _)| *range)
    }

    /// Ranges to be put in.
    pub fn added(&self) -> impl Iterator<Item = Range> {
        self.counts.iter().filter(|(_, count)| **count > 0).map(|(range, _)| *range)
    }

    /// True if nothing has to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.values().all(|count| *count == 0)
    }

    /// Has another one done afterwards.
    pub fn add(&mut self, other: &Self) {
        other.counts.iter().for_each(|(range, by)| self.count(*range, *by));
    }

    fn count(&mut self, range: Range, by: i32) {
        let count = self.counts.entry(range).or_insert(0);
        *count = count.saturating_add(by);
    }
}

impl Cover {
    /// No range.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new() }
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range> {
        self.ranges.iter().map(|(from, to)| (*from, *to))
    }

    /// True if an address is covered.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let at = number(address);
        self.ranges.range(..=at).next_back().is_some_and(|(_, end)| *end >= at)
    }

    /// True if some address of a range is covered.
    #[must_use]
    pub fn overlaps(&self, (from, to): Range) -> bool {
        self.ranges.range(..=to).next_back().is_some_and(|(_, end)| *end >= from)
    }

    /// Makes `closed` all that is covered between `from` and `to`, both included. `closed` is in
    /// order and lies between them.
    pub fn set(&mut self, (from, to): Range, closed: &[Range], note: &mut Difference) {
        // Neighbours that touch the place are joined with what comes there.
        let reach = (from.saturating_sub(1), to.saturating_add(1));
        let old: Vec<Range> = self
            .ranges
            .range(..=reach.1)
            .rev()
            .take_while(|(_, end)| **end >= reach.0)
            .map(|(start, end)| (*start, *end))
            .collect();
        let mut new = Vec::new();
        for &(start, end) in old.iter().rev() {
            self.ranges.remove(&start);
            note.count((start, end), -1);
            if start < from {
                new.push((start, end.min(from.saturating_sub(1))));
            }
        }
        new.extend_from_slice(closed);
        new.extend(
            old.iter()
                .filter(|(_, end)| *end > to)
                .map(|(start, end)| ((*start).max(to.saturating_add(1)), *end)),
        );
        let mut joined: Vec<Range> = Vec::new();
        for (start, end) in new {
            match joined.last_mut() {
                Some(before) if start <= before.1.saturating_add(1) => before.1 = end,
                _ => joined.push((start, end)),
            }
        }
        for (start, end) in joined {
            self.ranges.insert(start, end);
            note.count((start, end), 1);
        }
    }

    /// Ranges that `self` covers and `other` does not.
    pub fn without(&self, other: &Self) -> Vec<Range> {
        let mut left = self.clone();
        for range in other.ranges() {
            left.set(range, &[], &mut Difference::default());
        }
        left.ranges().collect()
    }
}

impl FromIterator<Range> for Cover {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        let mut cover = Self::default();
        for range in ranges {
            cover.set(range, &[range], &mut Difference::default());
        }
        cover
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every sequence of settings gives what a picture of single addresses gives, in joined ranges,
    /// and the differences add up to it.
    #[test]
    fn covers_agree_with_single_addresses() {
        let mut state = 7_u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for _ in 0..300 {
            let mut cover = Cover::default();
            let mut picture = [false; 64];
            let mut installed = Cover::default();
            for _ in 0..12 {
                let from = random(64);
                let to = from + random(64 - from);
                let mut closed = Vec::new();
                if random(3) > 0 {
                    let start = from + random(to - from + 1);
                    closed.push((u128::from(start), u128::from(start + random(to - start + 1))));
                }
                let mut note = Difference::default();
                cover.set((from.into(), to.into()), &closed, &mut note);
                for gone in note.removed() {
                    assert_eq!(installed.ranges.remove(&gone.0), Some(gone.1));
                }
                for new in note.added() {
                    assert_eq!(installed.ranges.insert(new.0, new.1), None);
                }
                for place in from..=to {
                    picture[place as usize] =
                        closed.iter().any(|(s, e)| (*s..=*e).contains(&u128::from(place)));
                }
                let ranges: Vec<_> = cover.ranges().collect();
                for (place, is_closed) in picture.iter().enumerate() {
                    let covered = ranges.iter().any(|(s, e)| (*s..=*e).contains(&(place as u128)));
                    assert_eq!(covered, *is_closed, "{place} of {ranges:?}");
                }
                assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{ranges:?}");
                assert_eq!(installed, cover);
            }
        }
    }

    #[test]
    fn the_ends_of_the_numbers_are_no_trouble() {
        let mut cover = Cover::default();
        let mut note = Difference::default();
        cover.set((0, u128::MAX), &[(0, u128::MAX)], &mut note);
        assert_eq!(note.added().collect::<Vec<_>>(), [(0, u128::MAX)]);
        cover.set((5, 9), &[], &mut note);
        assert_eq!(cover.ranges().collect::<Vec<_>>(), [(0, 4), (10, u128::MAX)]);
        cover.set((5, 9), &[(5, 9)], &mut note);
        assert_eq!(cover.ranges().collect::<Vec<_>>(), [(0, u128::MAX)]);
        cover.set((0, u128::MAX), &[], &mut note);
        assert_eq!(note.added().chain(note.removed()).count(), 0);
        assert_eq!(cover, Cover::default());
    }

    #[test]
    fn what_is_missing_elsewhere_is_found() {
        let cover = Cover::from_iter([(0, 9), (20, 29)]);
        assert_eq!(
            cover.without(&Cover::from_iter([(3, 4), (25, 40)])),
            [(0, 2), (5, 9), (20, 24)]
        );
    }
}
