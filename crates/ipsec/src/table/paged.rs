//! A table of numbered slots.

use std::sync::Arc;

/// Slots of a page, pages of a twig, and twigs of a branch.
const FANOUT: usize = 16;
const BITS: u32 = FANOUT.ilog2();

/// Slots of a direction in a snapshot of SAs; policies of a database.
pub const MAX_SLOTS: u32 = 1 << 20;

type Page<T> = [Option<T>; FANOUT];
type Twig<T> = [Option<Arc<Page<T>>>; FANOUT];
type Branch<T> = [Option<Arc<Twig<T>>>; FANOUT];

/// Slots with values, in pages of 16 that clones share until one of them changes a page.
///
/// A look-up follows four pointers. A change copies one page, one twig, one branch, the list of branches, of 4,096 slots
/// each, and a bit for each slot. A copy counts in everything that it points to, which lies apart: so pages are small.
#[derive(Debug)]
pub(crate) struct PagedTable<T> {
    root: Arc<Vec<Option<Arc<Branch<T>>>>>,
    len: usize,
    /// A bit for each slot, set where it has a value, as far as one ever had.
    taken: Arc<Vec<u64>>,
}

impl<T> Default for PagedTable<T> {
    fn default() -> Self {
        Self { root: Arc::default(), len: 0, taken: Arc::default() }
    }
}

impl<T> Clone for PagedTable<T> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len, taken: self.taken.clone() }
    }
}

/// Position of a slot: branch, twig, page, place.
#[inline]
fn split(slot: u32) -> (usize, usize, usize, usize) {
    let low = FANOUT as u32 - 1;
    let at = |level: u32| slot >> (level * BITS);
    (at(3) as usize, (at(2) & low) as usize, (at(1) & low) as usize, (slot & low) as usize)
}

impl<T> PagedTable<T> {
    /// Number of slots that have a value.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The value in a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        let (branch, twig, page, place) = split(slot);
        self.root.get(branch)?.as_ref()?[twig].as_ref()?[page].as_ref()?[place].as_ref()
    }

    /// Slots without a value, lowest first.
    pub(crate) fn free(&self) -> impl Iterator<Item = u32> {
        let words = self.taken.iter().copied().chain(std::iter::repeat(0)).zip(0_u32..);
        let words = words.take((MAX_SLOTS / u64::BITS) as usize);
        words.filter(|(word, _)| *word != u64::MAX).flat_map(|(word, at)| {
            let free = (0..u64::BITS).filter(move |bit| word >> bit & 1 == 0);
            free.map(move |bit| at * u64::BITS + bit)
        })
    }

    /// Notes that a slot has got a value, or has lost it.
    fn flip(&mut self, slot: u32) {
        let (word, bit) = ((slot / u64::BITS) as usize, 1 << (slot % u64::BITS));
        let taken = Arc::make_mut(&mut self.taken);
        if taken.len() <= word {
            taken.resize(word + 1, 0);
        }
        taken[word] ^= bit;
    }

    /// All values with their slots, lowest slot first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let twigs = numbered(0, self.root.iter().map(Option::as_ref));
        let pages = twigs.flat_map(|(b, twigs)| numbered(b, twigs.iter().map(Option::as_ref)));
        let values = pages.flat_map(|(t, pages)| numbered(t, pages.iter().map(Option::as_ref)));
        values.flat_map(|(p, values)| numbered(p, values.iter().map(Option::as_ref)))
    }

    /// Shows every slot that may differ from `old`, with its value then and now. Pages that both
    /// share are not looked at.
    pub(crate) fn changes<'a>(
        &'a self,
        old: &'a Self,
        mut visit: impl FnMut(u32, Option<&'a T>, Option<&'a T>),
    ) {
        for b in 0..self.root.len().max(old.root.len()) {
            let branch = |table: &'a Self| table.root.get(b).and_then(Option::as_ref);
            let (then, now) = (branch(old), branch(self));
            each_other(b as u32, then, now, |t, then, now| {
                each_other(t, then, now, |p, then, now| {
                    if same(then, now) {
                        return;
                    }
                    for v in 0..FANOUT {
                        let value = |page: Option<&'a Arc<Page<T>>>| page?[v].as_ref();
                        let (then, now) = (value(then), value(now));
                        if then.is_some() || now.is_some() {
                            visit(number(p, v), then, now);
                        }
                    }
                });
            });
        }
    }
}

type Level<T> = [Option<Arc<T>>; FANOUT];

/// Shows the parts of two levels, unless they are one.
fn each_other<'a, T>(
    above: u32,
    then: Option<&'a Arc<Level<T>>>,
    now: Option<&'a Arc<Level<T>>>,
    mut visit: impl FnMut(u32, Option<&'a Arc<T>>, Option<&'a Arc<T>>),
) {
    if same(then, now) {
        return;
    }
    for at in 0..FANOUT {
        let part = |level: Option<&'a Arc<Level<T>>>| level?[at].as_ref();
        visit(number(above, at), part(then), part(now));
    }
}

/// The number of a part of something that has this number.
const fn number(above: u32, at: usize) -> u32 {
    above << BITS | at as u32
}

/// The parts that are there, with their numbers.
fn numbered<'a, T: 'a>(
    above: u32,
    parts: impl Iterator<Item = Option<&'a T>>,
) -> impl Iterator<Item = (u32, &'a T)> {
    let parts = parts.enumerate();
    // The first level has no end of its own.
    parts.filter_map(move |(at, part)| Some(((above << BITS) + at as u32, part?)))
}

fn same<T>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

impl<T: Clone> PagedTable<T> {
    /// Puts a value into a slot, which must be below [`MAX_SLOTS`], and returns the one it
    /// replaces.
    pub(crate) fn insert(&mut self, slot: u32, value: T) -> Option<T> {
        debug_assert!(slot < MAX_SLOTS);
        let (branch, twig, page, place) = split(slot);
        let root = Arc::make_mut(&mut self.root);
        if root.len() <= branch {
            root.resize_with(branch + 1, || None);
        }
        let branch = root[branch].get_or_insert_with(|| Arc::new([const { None }; FANOUT]));
        let twig =
            Arc::make_mut(branch)[twig].get_or_insert_with(|| Arc::new([const { None }; FANOUT]));
        let page =
            Arc::make_mut(twig)[page].get_or_insert_with(|| Arc::new([const { None }; FANOUT]));
        let old = Arc::make_mut(page)[place].replace(value);
        if old.is_none() {
            self.len += 1;
            self.flip(slot);
        }
        old
    }

    /// Empties a slot.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        self.get(slot)?;
        let (branch, twig, page, place) = split(slot);
        let entry = Arc::make_mut(&mut self.root).get_mut(branch)?;
        let twigs = Arc::make_mut(entry.as_mut()?);
        let pages = Arc::make_mut(twigs[twig].as_mut()?);
        let values = Arc::make_mut(pages[page].as_mut()?);
        let old = values[place].take();
        // Empty pages go, so that a table does not grow with the slots it once had.
        if values.iter().all(Option::is_none) {
            pages[page] = None;
            if pages.iter().all(Option::is_none) {
                twigs[twig] = None;
                if twigs.iter().all(Option::is_none) {
                    *entry = None;
                }
            }
        }
        // It has one: looked at above.
        self.len -= 1;
        self.flip(slot);
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn slot() -> impl Strategy<Value = u32> {
        prop_oneof![0..200u32, 4000..4300u32, MAX_SLOTS - 3..MAX_SLOTS]
    }

    proptest! {
        #[test]
        fn a_table_is_a_map_and_its_clones_stay_as_they_were(
            steps in prop::collection::vec((slot(), prop::option::weighted(0.7, any::<u8>()), prop::bool::weighted(0.1)), 0..300),
        ) {
            let (mut table, mut model) = (PagedTable::default(), BTreeMap::new());
            let mut kept = Vec::new();
            for (slot, value, keep) in steps {
                if keep {
                    kept.push((table.clone(), model.clone()));
                }
                match value {
                    Some(value) => prop_assert_eq!(table.insert(slot, value), model.insert(slot, value)),
                    None => prop_assert_eq!(table.remove(slot), model.remove(&slot)),
                }
            }
            let now = (table.clone(), model.clone());
            for (table, model) in kept.iter().chain([&now]) {
                let pairs: Vec<_> = table.iter().map(|(slot, value)| (slot, *value)).collect();
                prop_assert_eq!(&pairs, &model.iter().map(|(s, v)| (*s, *v)).collect::<Vec<_>>());
                prop_assert_eq!(table.len(), model.len());
                let free: Vec<_> = table.free().take(300).collect();
                let wanted = (0..MAX_SLOTS).filter(|slot| !model.contains_key(slot)).take(300);
                prop_assert_eq!(free, wanted.collect::<Vec<_>>());
                for slot in 0..200 {
                    prop_assert_eq!(table.get(slot), model.get(&slot));
                }
            }
            for (then, was) in &kept {
                let mut shown = was.clone();
                now.0.changes(then, |slot, old, new| {
                    assert_eq!((old, new), (was.get(&slot), now.1.get(&slot)));
                    match new {
                        Some(value) => shown.insert(slot, *value),
                        None => shown.remove(&slot),
                    };
                });
                prop_assert_eq!(&shown, &now.1);
            }
        }
    }

    #[test]
    fn one_change_shows_one_page() {
        let mut table = PagedTable::default();
        (0..100_000).for_each(|slot| assert_eq!(table.insert(slot, slot), None));
        let old = table.clone();
        table.insert(77_777, 0);
        let mut seen = Vec::new();
        table.changes(&old, |slot, _, _| seen.push(slot));
        assert!(seen.len() <= FANOUT && seen.contains(&77_777), "{seen:?}");
    }
}
