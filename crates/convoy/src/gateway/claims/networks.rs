//! Policies by one of their networks.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use convoy_control::xfrm::Covered;
use convoy_wire::Prefix;

/// Policies by the network on one of their sides.
#[derive(Debug, Default)]
pub(super) struct ByNetwork {
    /// Those within a network stand behind it, one after the other.
    all: BTreeMap<Prefix, HashSet<Covered>>,
}

impl ByNetwork {
    /// Lists a policy under a network, or takes it off.
    pub(super) fn list(&mut self, network: Prefix, covered: &Covered, is_there: bool) {
        if is_there {
            self.all.entry(network).or_default().insert(*covered);
        } else if let Some(policies) = self.all.get_mut(&network) {
            policies.remove(covered);
            if policies.is_empty() {
                self.all.remove(&network);
            }
        }
    }

    pub(super) fn has(&self, network: &Prefix) -> bool {
        self.all.contains_key(network)
    }

    /// Policies of exactly this network.
    pub(super) fn of(&self, network: &Prefix) -> impl Iterator<Item = &Covered> {
        self.all.get(network).into_iter().flatten()
    }

    /// Listed networks that a network lies in and is not: as many look-ups as an address has bits.
    pub(super) fn around(&self, network: Prefix) -> impl Iterator<Item = Prefix> {
        (0..network.len()).filter_map(move |len| {
            Prefix::containing(network.addr(), len).ok().filter(|wider| self.has(wider))
        })
    }

    /// Listed networks within a network that are not it.
    pub(super) fn inside(&self, network: Prefix) -> impl Iterator<Item = Prefix> {
        let behind = self.all.range((Bound::Excluded(network), Bound::Unbounded));
        behind.map(|(inner, _)| *inner).take_while(move |inner| network.covers(inner))
    }

    /// Whether a listed network but one has an address in common with a network.
    pub(super) fn overlaps_other_than(&self, one: Prefix, network: Prefix) -> bool {
        let own = self.has(&network).then_some(network);
        self.around(network).chain(own).chain(self.inside(network)).any(|other| other != one)
    }

    /// Policies whose networks have an address in common with a network.
    pub(super) fn overlapping(&self, network: Prefix) -> impl Iterator<Item = &Covered> {
        let networks = self.around(network).chain([network]).chain(self.inside(network));
        networks.flat_map(|network| self.of(&network).collect::<Vec<_>>())
    }
}
