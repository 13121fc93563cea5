//! Which networks behind the gateway are reached out of tunnels, and by whom not.
//!
//! The fence opens a network behind the gateway to all that comes out of tunnels. Where that network
//! lies in what policies protect, some of what comes there is to go into a tunnel again: it must not
//! reach the network in clear, whichever policy had the network opened. So for each far network with
//! near ones within, the packet filter withholds what its policies protect, from their sources to all
//! of it; and where it cannot, no network within is opened.

use std::collections::{BTreeMap, BTreeSet};

use convoy_control::xfrm::Covered;
use convoy_host::fence::Pair;
use convoy_wire::Prefix;

use super::networks::ByNetwork;
use super::pair;

/// Most pairs that are withheld: they cost no rule, but have to be told apart where they overlap.
pub(in crate::gateway) const MOST_WITHHELD: usize = 512;

/// What is withheld, and what therefore is open.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// Networks on the far side with some within that are on this side, and whether what is protected
    /// on the way there is withheld.
    held: BTreeMap<Prefix, bool>,
    withheld: BTreeSet<Pair>,
}

/// Policies that protect, by their networks on the far side and on this side.
#[derive(Debug, Default)]
pub(super) struct Protecting {
    pub(super) by_remote: ByNetwork,
    pub(super) by_local: ByNetwork,
}

impl Reach {
    /// Whether a network on this side is reached out of tunnels.
    pub(super) fn is_reached(&self, local: Prefix, policies: &Protecting) -> bool {
        policies.by_remote.around(local).all(|remote| self.held.get(&remote) == Some(&true))
    }

    /// What comes out of tunnels and goes nowhere but into tunnels.
    pub(super) fn withheld(&self) -> &BTreeSet<Pair> {
        &self.withheld
    }

    /// Networks on the far side within which none is reached.
    pub(super) fn unheld(&self) -> impl Iterator<Item = Prefix> {
        self.held.iter().filter(|(_, is_held)| !**is_held).map(|(remote, _)| *remote)
    }

    /// Follows policies that protect and have come or gone. Networks on this side that may be reached
    /// now and were not, or the other way round.
    pub(super) fn follow<'a>(
        &mut self,
        changed: impl Iterator<Item = &'a Covered>,
        policies: &Protecting,
        takes_exceptions: bool,
    ) -> BTreeSet<Prefix> {
        let before = self.unheld().collect::<BTreeSet<_>>();
        let mut is_due = false;
        for covered in changed {
            is_due |= self.held.contains_key(&covered.remote) || !takes_exceptions;
            let around = policies.by_remote.around(covered.local);
            for remote in around.chain([covered.remote]) {
                let is_around = policies.by_remote.has(&remote)
                    && policies.by_local.inside(remote).next().is_some();
                if !is_around {
                    is_due |= self.held.remove(&remote).is_some();
                } else {
                    self.held.entry(remote).or_insert_with(|| {
                        is_due = true;
                        false
                    });
                }
            }
        }
        if is_due {
            self.hold(policies, takes_exceptions);
        }
        let after = self.unheld().collect::<BTreeSet<_>>();
        let other = before.symmetric_difference(&after);
        other.flat_map(|remote| policies.by_local.inside(*remote)).collect()
    }

    /// Decides anew what is withheld: first what was, as long as there is room.
    pub(super) fn hold(&mut self, policies: &Protecting, takes_exceptions: bool) {
        self.withheld.clear();
        let (held, others): (Vec<_>, Vec<_>) = self.held.iter().partition(|(_, is_held)| **is_held);
        let in_turn: Vec<_> = held.into_iter().chain(others).map(|(remote, _)| *remote).collect();
        for remote in in_turn {
            let is_held = if takes_exceptions {
                self.withhold(remote, policies)
            } else {
                comes_from_nowhere(remote, policies)
            };
            self.held.insert(remote, is_held);
        }
    }

    /// Withholds what policies for a network on the far side protect; whether there is room for all.
    fn withhold(&mut self, remote: Prefix, policies: &Protecting) -> bool {
        let room = MOST_WITHHELD.saturating_sub(self.withheld.len());
        let mut pairs = BTreeSet::new();
        for covered in policies.by_remote.of(&remote) {
            let Some(pair) = pair(covered.local, remote) else { return false };
            pairs.insert(pair);
            if pairs.len() > room {
                return false;
            }
        }
        self.withheld.append(&mut pairs);
        true
    }
}

/// Where nothing can be withheld: whether all that policies for everything protect begins on this side,
/// as nobody says that it is behind another tunnel. Of other networks it is never so: they name those
/// within.
fn comes_from_nowhere(remote: Prefix, policies: &Protecting) -> bool {
    let named = |local: Prefix| policies.by_remote.overlaps_other_than(remote, local);
    remote.len() == 0 && !policies.by_remote.of(&remote).any(|covered| named(covered.local))
}
