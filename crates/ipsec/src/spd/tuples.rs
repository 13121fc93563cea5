//! The index: a hash table for each shape that some policy has (tuple space search).

use std::sync::Arc;

use convoy_wire::FlowKey;

use super::policy::{Decision, SpdError};
use super::shape::{Address, Class, Place, Shape, TupleKey};
use crate::selector::Selector;
use crate::table::PagedMap;

/// Shapes that the policies of one direction and IP version may have. A packet that no cache knows
/// asks for each of them, so this bounds what such a packet costs.
pub(super) const MAX_SHAPES: usize = 1024;
/// Policies that may stand under one key. A packet may have to be compared with all of them.
pub(super) const MAX_ALIKE: usize = 1024;

/// Position of a policy among all of its direction: the lowest decides. The priority is in the
/// upper half, the order in the lower.
pub(super) type Rank = u64;

/// A policy as the index holds it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) rank: Rank,
    pub(super) decision: Decision,
    /// Selector that must be compared because the place does not say it all; its local side is the source.
    pub(super) check: Option<Arc<Selector>>,
}

impl Entry {
    #[inline]
    fn means(&self, key: &FlowKey) -> bool {
        self.check.as_ref().is_none_or(|selector| selector.matches_from_local(key))
    }
}

/// The policies of one key, lowest rank first.
#[derive(Clone, Debug)]
struct Bucket {
    first: Entry,
    more: Option<Arc<Vec<Entry>>>,
}

impl Bucket {
    #[inline]
    fn iter(&self) -> impl Iterator<Item = &Entry> {
        core::iter::once(&self.first).chain(self.more.iter().flat_map(|more| more.iter()))
    }

    fn insert(&mut self, mut entry: Entry) {
        if entry.rank < self.first.rank {
            core::mem::swap(&mut self.first, &mut entry);
        }
        let more = Arc::make_mut(self.more.get_or_insert_default());
        let at = more.partition_point(|other| other.rank < entry.rank);
        more.insert(at, entry);
    }

    /// Removes the entry of this rank; says whether none is left.
    fn remove(&mut self, rank: Rank) -> bool {
        let Some(more) = self.more.as_mut().map(Arc::make_mut) else {
            return self.first.rank == rank;
        };
        if self.first.rank == rank && !more.is_empty() {
            self.first = more.remove(0);
        } else {
            more.retain(|entry| entry.rank != rank);
        }
        if more.is_empty() {
            self.more = None;
        }
        false
    }

    fn len(&self) -> usize {
        1 + self.more.as_ref().map_or(0, |more| more.len())
    }
}

/// The policies of one shape.
#[derive(Clone, Debug)]
struct Tuple<A> {
    shape: Shape,
    mask: TupleKey<A>,
    /// No policy here has a lower rank.
    bound: Rank,
    table: PagedMap<TupleKey<A>, Bucket>,
    priorities: Priorities,
}

impl<A: Address> Tuple<A> {
    fn new(shape: Shape) -> Self {
        Self {
            shape,
            mask: TupleKey::mask(shape),
            bound: Rank::MAX,
            table: PagedMap::default(),
            priorities: Priorities::default(),
        }
    }

    #[inline]
    const fn concerns(&self, class: Class) -> bool {
        matches!(
            (self.shape.class, class),
            (Class::Any, _)
                | (Class::Known, Class::Known)
                | (Class::Icmp, Class::Icmp)
                | (Class::Opaque, Class::Opaque)
        )
    }

    /// The first policy under a key that means a packet and stands before `limit`.
    #[inline]
    fn find(
        &self,
        hash: u64,
        masked: &TupleKey<A>,
        key: &FlowKey,
        limit: Rank,
    ) -> Option<(Rank, Decision)> {
        let bucket = self.table.get_hashed(hash, masked)?;
        let mut before = bucket.iter().take_while(|entry| entry.rank < limit);
        before.find(|entry| entry.means(key)).map(|entry| (entry.rank, entry.decision))
    }
}

/// The policies of one direction and IP version.
#[derive(Clone, Debug)]
pub(super) struct TupleSpace<A> {
    /// Lowest bound first.
    tuples: Arc<Vec<Arc<Tuple<A>>>>,
}

impl<A> Default for TupleSpace<A> {
    fn default() -> Self {
        Self { tuples: Arc::default() }
    }
}

impl<A: Address> TupleSpace<A> {
    /// Number of different shapes.
    pub(super) fn shapes(&self) -> usize {
        self.tuples.len()
    }

    /// Fails if a place cannot take one more policy.
    pub(super) fn has_room(&self, place: &Place<A>) -> Result<(), SpdError> {
        match self.tuple(place.shape) {
            None if self.tuples.len() >= MAX_SHAPES => Err(SpdError::Shapes),
            Some(tuple) if tuple.table.get(&place.key).map_or(0, Bucket::len) >= MAX_ALIKE => {
                Err(SpdError::Alike)
            }
            _ => Ok(()),
        }
    }

    /// All policies at a place.
    pub(super) fn at(&self, place: &Place<A>) -> impl Iterator<Item = &Entry> {
        let bucket = self.tuple(place.shape).and_then(|tuple| tuple.table.get(&place.key));
        bucket.into_iter().flat_map(Bucket::iter)
    }

    pub(super) fn insert(&mut self, place: &Place<A>, entry: Entry) {
        let tuples = Arc::make_mut(&mut self.tuples);
        let at = tuples.iter().position(|tuple| tuple.shape == place.shape);
        let at = at.unwrap_or_else(|| {
            tuples.push(Arc::new(Tuple::new(place.shape)));
            tuples.len() - 1
        });
        let Some(tuple) = tuples.get_mut(at).map(Arc::make_mut) else { return };
        tuple.priorities.add(entry.rank);
        match tuple.table.get_mut(&place.key) {
            Some(bucket) => bucket.insert(entry),
            None => drop(tuple.table.insert(place.key, Bucket { first: entry, more: None })),
        }
        Self::settle(tuples, at);
    }

    pub(super) fn remove(&mut self, place: &Place<A>, rank: Rank) {
        let tuples = Arc::make_mut(&mut self.tuples);
        let Some(at) = tuples.iter().position(|tuple| tuple.shape == place.shape) else { return };
        let Some(tuple) = tuples.get_mut(at).map(Arc::make_mut) else { return };
        let Some(bucket) = tuple.table.get_mut(&place.key) else { return };
        tuple.priorities.remove(rank);
        if bucket.remove(rank) {
            tuple.table.remove(&place.key);
        }
        Self::settle(tuples, at);
    }

    /// Brings the tuple at `at` to where its bound belongs; an empty one goes.
    fn settle(tuples: &mut Vec<Arc<Tuple<A>>>, at: usize) {
        let Some(tuple) = tuples.get_mut(at).map(Arc::make_mut) else { return };
        match tuple.priorities.bound() {
            None => drop(tuples.remove(at)),
            Some(bound) if bound != tuple.bound => {
                tuple.bound = bound;
                let tuple = tuples.remove(at);
                let to = tuples.partition_point(|other| other.bound <= bound);
                tuples.insert(to, tuple);
            }
            Some(_) => {}
        }
    }

    /// The policy that decides about a packet.
    pub(super) fn lookup(&self, key: &FlowKey) -> Option<Decision> {
        let (fields, class) = TupleKey::of(key);
        let mut best = (Rank::MAX, None);
        for tuple in self.tuples.iter() {
            if best.0 < tuple.bound {
                break;
            }
            if tuple.concerns(class) {
                let masked = fields.masked(&tuple.mask);
                let hash = tuple.table.hash(&masked);
                if let Some((rank, decision)) = tuple.find(hash, &masked, key, best.0) {
                    best = (rank, Some(decision));
                }
            }
        }
        best.1
    }

    /// [`TupleSpace::lookup`] for many packets, each shape for all of them at once, so that their
    /// ways through the memory overlap.
    pub(super) fn search<K: AsRef<FlowKey>>(&self, probes: &mut [Probe<A>], keys: &[K]) {
        for tuple in self.tuples.iter() {
            let mut open = false;
            for probe in &mut *probes {
                probe.open = probe.best >= tuple.bound && tuple.concerns(probe.class);
                if probe.open {
                    open = true;
                    probe.masked = probe.fields.masked(&tuple.mask);
                    probe.hash = tuple.table.hash(&probe.masked);
                    tuple.table.prefetch_tags(probe.hash);
                }
            }
            if !open && probes.iter().all(|probe| probe.best < tuple.bound) {
                return;
            }
            for probe in probes.iter_mut().filter(|probe| probe.open) {
                probe.open = tuple.table.prefetch_entry(probe.hash);
            }
            for probe in probes.iter_mut().filter(|probe| probe.open) {
                let Some(key) = keys.get(usize::from(probe.at)) else { continue };
                let key = key.as_ref();
                if let Some((rank, decision)) =
                    tuple.find(probe.hash, &probe.masked, key, probe.best)
                {
                    probe.best = rank;
                    probe.found = Some(decision);
                }
            }
        }
    }

    fn tuple(&self, shape: Shape) -> Option<&Tuple<A>> {
        self.tuples.iter().find(|tuple| tuple.shape == shape).map(Arc::as_ref)
    }
}

/// A packet on its way through the shapes.
#[derive(Clone, Debug)]
pub(super) struct Probe<A> {
    fields: TupleKey<A>,
    masked: TupleKey<A>,
    hash: u64,
    best: Rank,
    pub(super) found: Option<Decision>,
    /// Index of the packet in the burst.
    pub(super) at: u16,
    /// The hash of its flow.
    pub(super) flow: u64,
    class: Class,
    open: bool,
    /// Inbound: it goes on into another tunnel.
    pub(super) goes_on: bool,
}

impl<A: Address> Probe<A> {
    #[inline]
    pub(super) fn new(at: u16, flow: u64, key: &FlowKey) -> Self {
        let (fields, class) = TupleKey::of(key);
        let (masked, hash) = (fields, 0);
        let (best, found, open, goes_on) = (Rank::MAX, None, false, false);
        Self { fields, masked, hash, best, found, at, flow, class, open, goes_on }
    }
}

/// Number of policies of each priority, so that the lowest stays known when policies go.
/// Priorities below 16 are counted apart, higher ones by their four leading bits: the bound is exact
/// or up to an eighth too low, which costs a probe now and then.
#[derive(Clone, Debug)]
struct Priorities([u32; STEPS]);

const STEPS: usize = 16 + 28 * 8;

impl Default for Priorities {
    fn default() -> Self {
        Self([0; STEPS])
    }
}

impl Priorities {
    const fn step(rank: Rank) -> usize {
        let priority = (rank >> 32) as u32;
        if priority < 16 {
            return priority as usize;
        }
        let exponent = priority.ilog2();
        let mantissa = priority >> (exponent - 3) & 7;
        16 + (exponent as usize - 4) * 8 + mantissa as usize
    }

    /// The lowest rank of a step.
    const fn lowest(step: usize) -> Rank {
        if step < 16 {
            return (step as Rank) << 32;
        }
        let (exponent, mantissa) = ((step - 16) / 8 + 4, (step - 16) % 8);
        ((8 + mantissa as Rank) << (exponent - 3)) << 32
    }

    fn add(&mut self, rank: Rank) {
        if let Some(count) = self.0.get_mut(Self::step(rank)) {
            *count += 1;
        }
    }

    fn remove(&mut self, rank: Rank) {
        if let Some(count) = self.0.get_mut(Self::step(rank)) {
            *count -= 1;
        }
    }

    /// No policy has a lower rank; `None` when there is none.
    fn bound(&self) -> Option<Rank> {
        self.0.iter().position(|count| *count > 0).map(Self::lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_never_above_a_priority_and_at_most_an_eighth_below() {
        let near = |n: u32| [n.wrapping_sub(1), n, n.wrapping_add(1)];
        let edges = (0..32).flat_map(|bit| near(1 << bit)).chain(near(u32::MAX)).chain(0..1000);
        for priority in edges {
            let rank = Rank::from(priority) << 32 | 77;
            let mut counts = Priorities::default();
            counts.add(rank);
            let bound = counts.bound().unwrap();
            assert!(bound <= rank && (priority >= 16 || bound >> 32 == Rank::from(priority)));
            assert!(bound >> 32 >= Rank::from(priority - priority / 8), "{priority}: {bound}");
            counts.remove(rank);
            assert_eq!(counts.bound(), None);
        }
    }
}
