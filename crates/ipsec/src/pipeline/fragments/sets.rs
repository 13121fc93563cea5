//! A table of bounded size whose full places give way to newcomers.

use std::cmp::Reverse;
use std::hash::{BuildHasher, RandomState};

use super::piece::PacketName;
use crate::clock::Now;

/// Names that share a place.
const WAYS: usize = 4;

#[derive(Debug)]
struct Entry<T> {
    name: PacketName,
    since: Now,
    value: T,
}

/// Values by packet name, in sets of four; a fifth name in a set takes the place of the oldest of who has most there,
/// so that nobody who fills all sets takes the last place of somebody else.
#[derive(Debug)]
pub(super) struct Sets<T> {
    seed: RandomState,
    entries: Box<[Option<Entry<T>>]>,
}

impl<T> Sets<T> {
    /// Room for `sets` (a power of two) times four names.
    pub(super) fn new(sets: usize) -> Self {
        let places = sets.next_power_of_two() * WAYS;
        let entries = std::iter::repeat_with(|| None).take(places).collect();
        Self { seed: RandomState::new(), entries }
    }

    fn set(&mut self, name: &PacketName) -> &mut [Option<Entry<T>>] {
        let sets = self.entries.len() / WAYS;
        // The low bits; the mask makes it fit.
        let at = (self.seed.hash_one(name) as usize & (sets - 1)) * WAYS;
        self.entries.get_mut(at..at + WAYS).unwrap_or_default()
    }

    /// The value of this name.
    pub(super) fn find(&mut self, name: &PacketName) -> Option<&mut T> {
        let mut known = self.set(name).iter_mut().flatten();
        known.find(|entry| entry.name == *name).map(|entry| &mut entry.value)
    }

    /// Gives the name a value; returns the value it had, or else the one that had to give way.
    pub(super) fn insert(&mut self, name: PacketName, since: Now, value: T) -> Option<T> {
        let set = self.set(&name);
        let same = set.iter().position(|e| e.as_ref().is_some_and(|e| e.name == name));
        let free = || set.iter().position(Option::is_none);
        let at = same.or_else(free).or_else(|| greediest(set, &name))?;
        let place = set.get_mut(at)?;
        place.replace(Entry { name, since, value }).map(|old| old.value)
    }

    /// Takes the value of this name out.
    pub(super) fn remove(&mut self, name: &PacketName) -> Option<T> {
        let is_it = |e: &&mut Option<Entry<T>>| e.as_ref().is_some_and(|e| e.name == *name);
        self.set(name).iter_mut().find(is_it)?.take().map(|entry| entry.value)
    }

    /// Takes every value out that was put in before `than`.
    pub(super) fn older(&mut self, than: Now) -> impl Iterator<Item = T> + '_ {
        let old = move |e: &&mut Option<Entry<T>>| e.as_ref().is_some_and(|e| e.since < than);
        self.entries.iter_mut().filter(old).filter_map(|e| e.take().map(|entry| entry.value))
    }

    /// Takes every value out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.entries.iter_mut().filter_map(|e| e.take().map(|entry| entry.value))
    }
}

/// The place in a full set that gives way to this name.
fn greediest<T>(set: &[Option<Entry<T>>], newcomer: &PacketName) -> Option<usize> {
    let names = || set.iter().flatten().map(|entry| &entry.name);
    let count = |name: &PacketName| {
        names().chain([newcomer]).filter(|other| other.owner() == name.owner()).count()
    };
    let entries = set.iter().enumerate().filter_map(|(at, entry)| Some((at, entry.as_ref()?)));
    let most = entries.max_by_key(|(_, entry)| (count(&entry.name), Reverse(entry.since)));
    most.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoy_wire::{IpVersion, Protocol};

    fn name(ident: u32) -> PacketName {
        PacketName {
            src: [1; 16],
            dst: [2; 16],
            version: IpVersion::V4,
            protocol: Protocol::UDP,
            ident,
            scope: 0,
        }
    }

    #[test]
    fn who_fills_every_set_takes_the_place_of_nobody_else() {
        for peers in [[1, 2], [0, 0]] {
            let of = |who: u8, ident| {
                let scope = peers[usize::from(who)];
                // Peers are told apart by their SAs, others by their addresses.
                PacketName {
                    src: [if scope == 0 { who } else { ident as u8 }; 16],
                    scope,
                    ..name(ident)
                }
            };
            let mut sets = Sets::new(16);
            for ident in 0..1000 {
                sets.insert(of(0, ident), Now(1), ident);
            }
            sets.insert(of(1, 5000), Now(2), 5000);
            for ident in 1000..3000 {
                sets.insert(of(0, ident), Now(3), ident);
            }
            assert_eq!(sets.find(&of(1, 5000)), Some(&mut 5000));
        }
    }

    #[test]
    fn a_full_set_gives_up_its_oldest() {
        let mut sets = Sets::new(1);
        for i in 0..4 {
            assert_eq!(sets.insert(name(i), Now(u64::from(10 - i)), i), None);
        }
        assert_eq!(sets.insert(name(9), Now(20), 9), Some(3));
        assert_eq!(sets.find(&name(3)), None);
        assert_eq!(sets.find(&name(0)), Some(&mut 0));
        assert_eq!(sets.insert(name(0), Now(1), 7), Some(0), "the same name, not the oldest");
        assert_eq!(sets.older(Now(9)).collect::<Vec<_>>(), [7, 2]);
        assert_eq!(sets.remove(&name(1)), Some(1));
        assert_eq!(sets.remove(&name(1)), None);
        assert_eq!(sets.drain().collect::<Vec<_>>(), [9]);
    }
}
