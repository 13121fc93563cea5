//! A hash table in shards.

use core::fmt;
use std::sync::Arc;

use convoy_crypto::prefetch_read;

use super::hash::Seed;

/// Racks of a table that outgrew its first shard, and shards of each. A change copies both lists, and one shard.
const RACKS: usize = 1 << RACK_BITS;
const RACK_BITS: u32 = 5;
const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 4;
/// Places of the smallest shard that has entries.
const LEAST_PLACES: usize = 4;
/// Entries with which a table leaves its first shard.
const SPLIT_AT: usize = 512;
/// The tag of a place without an entry.
const EMPTY: u16 = 0;

/// Value that a [`PagedMap`] is looked up by.
pub(crate) trait Key: Copy + Eq {
    /// The hash of the key.
    fn hash(&self, seed: Seed) -> u64;
}

/// A hash table whose clones share what none of them has changed.
///
/// Open addressing in shards, of about two hundred entries where the table has 100,000. Each place has a 16-bit tag apart from the
/// entry, so that a look-up that fails almost never touches an entry, and one that succeeds touches
/// one. Keys come from control; packets only look up.
pub(crate) struct PagedMap<K, V> {
    /// One rack with one shard, or all of them.
    racks: Arc<[Rack<K, V>]>,
    seed: Seed,
    len: usize,
}

type Rack<K, V> = Arc<[Shard<K, V>]>;

struct Shard<K, V> {
    tags: Arc<[u16]>,
    slots: Arc<[Option<(K, V)>]>,
    used: usize,
}

impl<K, V> Clone for PagedMap<K, V> {
    fn clone(&self) -> Self {
        Self { racks: self.racks.clone(), ..*self }
    }
}

impl<K, V> Clone for Shard<K, V> {
    fn clone(&self) -> Self {
        Self { tags: self.tags.clone(), slots: self.slots.clone(), used: self.used }
    }
}

impl<K, V> Default for Shard<K, V> {
    fn default() -> Self {
        Self { tags: Arc::default(), slots: Arc::default(), used: 0 }
    }
}

impl<K, V> Default for PagedMap<K, V> {
    fn default() -> Self {
        let rack: Rack<K, V> = Arc::new([Shard::default()]);
        Self { racks: Arc::new([rack]), seed: Seed::of_process(), len: 0 }
    }
}

impl<K, V> fmt::Debug for PagedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PagedMap({} entries)", self.len)
    }
}

// Which bits of a hash say what: the highest five the rack, the four below the shard, the lowest sixteen of the high half
// the tag, the low half the place in the shard.
const fn tag_of(hash: u64) -> u16 {
    let tag = (hash >> 32) as u16;
    if tag == EMPTY { 1 } else { tag }
}

impl<K, V> Shard<K, V> {
    /// Place at which the search for a hash begins. The number of places is no power of two, so
    /// that a shard can grow in smaller steps.
    #[inline]
    const fn home(hash: u64, places: usize) -> usize {
        (((hash as u32 as u64) * places as u64) >> 32) as usize
    }
}

#[inline]
const fn after(at: usize, places: usize) -> usize {
    if at + 1 == places { 0 } else { at + 1 }
}

/// The next larger size: 4, 6, 8, 12, 16, 24, 32 …
const fn grown(places: usize) -> usize {
    match places {
        0 => LEAST_PLACES,
        _ if places.is_power_of_two() => places / 2 * 3,
        _ => places / 3 * 4,
    }
}

impl<K: Key, V> PagedMap<K, V> {
    /// Number of entries.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The hash of a key, for the functions that take one.
    #[inline]
    pub(crate) fn hash(&self, key: &K) -> u64 {
        key.hash(self.seed)
    }

    /// The value of a key.
    #[inline]
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.get_hashed(self.hash(key), key)
    }

    /// The value of a key whose hash is known.
    #[inline]
    pub(crate) fn get_hashed(&self, hash: u64, key: &K) -> Option<&V> {
        let shard = self.shard(hash)?;
        let places = shard.tags.len();
        let (tag, mut at) = (tag_of(hash), Shard::<K, V>::home(hash, places));
        // There is always an empty place, which ends the walk.
        loop {
            let found = *shard.tags.get(at)?;
            if found == tag
                && let Some(Some((other, value))) = shard.slots.get(at)
                && other == key
            {
                return Some(value);
            }
            if found == EMPTY {
                return None;
            }
            at = after(at, places);
        }
    }

    /// Starts loading the tags that a look-up will read.
    #[inline]
    pub(crate) fn prefetch_tags(&self, hash: u64) {
        if let Some(shard) = self.shard(hash)
            && let Some(tag) = shard.tags.get(Shard::<K, V>::home(hash, shard.tags.len()))
        {
            prefetch_read(tag);
        }
    }

    /// Starts loading the entry that a look-up will read, and says whether there is one: `false` is
    /// certain, `true` almost.
    #[inline]
    pub(crate) fn prefetch_entry(&self, hash: u64) -> bool {
        let Some(shard) = self.shard(hash) else { return false };
        let places = shard.tags.len();
        let (tag, mut at) = (tag_of(hash), Shard::<K, V>::home(hash, places));
        loop {
            match shard.tags.get(at) {
                None | Some(&EMPTY) => return false,
                Some(found) if *found == tag => break,
                Some(_) => at = after(at, places),
            }
        }
        shard.slots.get(at).inspect(|slot| prefetch_read(*slot)).is_some()
    }

    /// All entries, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        let shards = self.racks.iter().flat_map(|rack| rack.iter());
        shards.flat_map(|shard| shard.slots.iter().flatten())
    }

    #[inline]
    fn is_narrow(&self) -> bool {
        self.racks.len() == 1
    }

    /// Positions of the rack that a hash is in, and of the shard in it.
    #[inline]
    fn place_of(&self, hash: u64) -> (usize, usize) {
        if self.is_narrow() {
            return (0, 0);
        }
        let rack = hash >> (u64::BITS - RACK_BITS);
        let shard = hash >> (u64::BITS - RACK_BITS - SHARD_BITS) & (SHARDS as u64 - 1);
        (rack as usize, shard as usize)
    }

    #[inline]
    fn shard(&self, hash: u64) -> Option<&Shard<K, V>> {
        let (rack, shard) = self.place_of(hash);
        self.racks.get(rack)?.get(shard)
    }
}

impl<K: Key, V: Clone> PagedMap<K, V> {
    /// Puts a value under a key and returns the one it replaces.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(place) = self.get_mut(&key) {
            return Some(core::mem::replace(place, value));
        }
        if self.is_narrow() && self.len >= SPLIT_AT {
            self.split();
        }
        let (hash, seed) = (self.hash(&key), self.seed);
        let shard = self.shard_mut(hash)?;
        if (shard.used + 1) * 4 > shard.tags.len() * 3 {
            shard.resize(grown(shard.tags.len()), seed);
        }
        shard.put(hash, key, value);
        self.len += 1;
        None
    }

    /// The value of a key, to be changed.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (hash, at) = self.find(key)?;
        let shard = self.shard_mut(hash)?;
        let (_, value) = Arc::make_mut(&mut shard.slots).get_mut(at)?.as_mut()?;
        Some(value)
    }

    /// Takes a key and its value out.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (hash, at) = self.find(key)?;
        let seed = self.seed;
        let shard = self.shard_mut(hash)?;
        let value = shard.take(at, seed)?;
        if shard.used == 0 {
            *shard = Shard::default();
        } else if shard.tags.len() > LEAST_PLACES && shard.used * 4 < shard.tags.len() {
            shard.resize((shard.tags.len() / 2).max(LEAST_PLACES), seed);
        }
        self.len -= 1;
        Some(value)
    }

    /// The shard that a hash is in, to be changed.
    fn shard_mut(&mut self, hash: u64) -> Option<&mut Shard<K, V>> {
        let (rack, shard) = self.place_of(hash);
        let rack = Arc::make_mut(&mut self.racks).get_mut(rack)?;
        Arc::make_mut(rack).get_mut(shard)
    }

    /// The hash of a key, and its place in its shard.
    fn find(&self, key: &K) -> Option<(u64, usize)> {
        let hash = self.hash(key);
        let shard = self.shard(hash)?;
        let places = shard.tags.len();
        let mut at = Shard::<K, V>::home(hash, places);
        loop {
            match shard.slots.get(at)? {
                None => return None,
                Some((other, _)) if other == key => return Some((hash, at)),
                Some(_) => at = after(at, places),
            }
        }
    }

    /// Spreads the only shard over many.
    fn split(&mut self) {
        let rack = || (0..SHARDS).map(|_| Shard::default()).collect();
        let mut wide = Self { racks: (0..RACKS).map(|_| rack()).collect(), ..*self };
        wide.len = 0;
        for (key, value) in self.iter() {
            wide.insert(*key, value.clone());
        }
        *self = wide;
    }
}

impl<K: Key, V: Clone> Shard<K, V> {
    /// Puts an entry into the first empty place; there must be one.
    fn put(&mut self, hash: u64, key: K, value: V) {
        let (tags, slots) = (Arc::make_mut(&mut self.tags), Arc::make_mut(&mut self.slots));
        let places = tags.len();
        let mut at = Self::home(hash, places);
        while tags.get(at).is_some_and(|tag| *tag != EMPTY) {
            at = after(at, places);
        }
        if let (Some(tag), Some(slot)) = (tags.get_mut(at), slots.get_mut(at)) {
            (*tag, *slot) = (tag_of(hash), Some((key, value)));
            self.used += 1;
        }
    }

    /// Empties a place and moves up what a search would no longer find behind it.
    fn take(&mut self, at: usize, seed: Seed) -> Option<V> {
        let (tags, slots) = (Arc::make_mut(&mut self.tags), Arc::make_mut(&mut self.slots));
        let places = tags.len();
        let (_, value) = slots.get_mut(at)?.take()?;
        self.used -= 1;
        let (mut hole, mut next) = (at, after(at, places));
        while let Some(Some((key, _))) = slots.get(next) {
            let home = Self::home(key.hash(seed), places);
            let behind = |from: usize, to: usize| (to + places - from) % places;
            if behind(home, next) >= behind(hole, next) {
                slots.swap(hole, next);
                tags.swap(hole, next);
                hole = next;
            }
            next = after(next, places);
        }
        *tags.get_mut(hole)? = EMPTY;
        Some(value)
    }

    fn resize(&mut self, places: usize, seed: Seed) {
        let mut new = Self {
            tags: (0..places).map(|_| EMPTY).collect(),
            slots: (0..places).map(|_| None).collect(),
            used: 0,
        };
        for (key, value) in self.slots.iter().flatten() {
            new.put(key.hash(seed), *key, value.clone());
        }
        *self = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// A key of which several share a hash.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Clash(u16);

    impl Key for Clash {
        fn hash(&self, seed: Seed) -> u64 {
            seed.of(u64::from(self.0 / 4), 0)
        }
    }

    proptest! {
        #[test]
        fn a_table_is_a_map_and_its_clones_stay_as_they_were(
            range in prop_oneof![Just(8u16), Just(300), Just(4000)],
            steps in prop::collection::vec((any::<u16>(), prop::option::weighted(0.65, any::<u8>()), prop::bool::weighted(0.01)), 0..3000),
        ) {
            let (mut table, mut model) = (PagedMap::default(), HashMap::new());
            let mut kept = Vec::new();
            for (key, value, keep) in steps {
                let key = Clash(key % range);
                if keep {
                    kept.push((table.clone(), model.clone()));
                }
                match value {
                    Some(value) => prop_assert_eq!(table.insert(key, value), model.insert(key, value)),
                    None => prop_assert_eq!(table.remove(&key), model.remove(&key)),
                }
            }
            kept.push((table, model));
            for (table, model) in &kept {
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(&table.iter().copied().collect::<HashMap<_, _>>(), model);
                for key in (0..range).map(Clash) {
                    prop_assert_eq!(table.get(&key), model.get(&key));
                    let hash = table.hash(&key);
                    table.prefetch_tags(hash);
                    prop_assert!(table.prefetch_entry(hash) || !model.contains_key(&key));
                }
            }
        }
    }

    #[test]
    fn what_was_large_becomes_small_again() {
        let mut table = PagedMap::default();
        (0..u16::MAX).for_each(|n| assert_eq!(table.insert(Clash(n), n), None));
        (0..u16::MAX).for_each(|n| assert_eq!(table.remove(&Clash(n)), Some(n)));
        let shards = table.racks.iter().flat_map(|rack| rack.iter());
        let places: usize = shards.map(|shard| shard.tags.len()).sum();
        assert!(table.len() == 0 && places == 0, "{places}");
    }
}
