//! The next snapshot from the last one, at the cost of what differs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use convoy_ipsec::sa::SaSlot;
use convoy_ipsec::snapshot::{Snapshot, SnapshotError};
use convoy_ipsec::spd::{Policy, PolicyId, Spd, SpdError, SpdId};

use super::build::Lists;
use super::{StateError, Tables};

/// Policies in the order in which they decide, and where they are in the database.
type Placed = Vec<(PolicyId, Arc<Policy>)>;

/// Databases by name; the common one has none.
pub(super) type Databases = BTreeMap<Option<Arc<str>>, Database>;

/// A database and what is in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Database {
    pub(super) id: SpdId,
    placed: Placed,
}

/// Makes the databases of a snapshot, which hold what `before` says, hold these policies. One that
/// has no policies any more keeps its number, empty, until its name comes again.
pub(super) fn databases(
    snapshot: &mut Snapshot,
    before: &Databases,
    mut after: Lists,
) -> Result<Databases, StateError> {
    for name in before.keys() {
        after.entry(name.clone()).or_default();
    }
    let mut databases = Databases::new();
    for (name, list) in after {
        let old = match before.get(&name) {
            Some(old) => old.clone(),
            None if name.is_none() => Database::default(),
            None => Database { id: snapshot.add_spd(Spd::default())?, placed: Placed::new() },
        };
        let spd = snapshot.spd_of_mut(old.id).ok_or(SnapshotError::Spds)?;
        let placed = policies(spd, &old.placed, list)?;
        databases.insert(name, Database { id: old.id, placed });
    }
    Ok(databases)
}

/// Makes `spd`, which holds the policies `before`, hold the policies `after` in their order, and
/// says where they are. What stays is not touched.
fn policies(spd: &mut Spd, before: &Placed, after: Vec<Policy>) -> Result<Placed, SpdError> {
    let untouched = spd.clone();
    match change(spd, before, &after) {
        // So many came to one place that no number is left there: all get new ones. Policies of others
        // in this database stay.
        Err(SpdError::NoPlace) => {
            *spd = untouched;
            before.iter().for_each(|(id, _)| drop(spd.remove(*id)));
            let add = |policy: Policy| Ok((spd.insert(policy.clone())?, Arc::new(policy)));
            after.into_iter().map(add).collect()
        }
        done => done,
    }
}

fn change(spd: &mut Spd, before: &Placed, after: &[Policy]) -> Result<Placed, SpdError> {
    let known: HashMap<&Policy, usize> =
        before.iter().enumerate().map(|(at, (_, policy))| (&**policy, at)).collect();
    let found: Vec<Option<usize>> = after.iter().map(|new| known.get(new).copied()).collect();
    let stays = longest_rise(&found);
    let mut kept: Vec<Option<&(PolicyId, Arc<Policy>)>> = vec![None; after.len()];
    let mut goes = vec![true; before.len()];
    for at in stays {
        let Some(old) = found.get(at).copied().flatten() else { continue };
        if let (Some(kept), Some(goes)) = (kept.get_mut(at), goes.get_mut(old)) {
            (*kept, *goes) = (before.get(old), false);
        }
    }
    for ((id, _), _) in before.iter().zip(&goes).filter(|(_, goes)| **goes) {
        spd.remove(*id);
    }
    // From behind: what comes next of those that stay, and how many come new before that.
    let mut next = None;
    let mut ahead: Vec<_> = kept
        .iter()
        .rev()
        .map(|kept| {
            let (id, run) = next.unwrap_or((None, 0));
            next = Some(kept.map_or((id, run + 1), |(id, _)| (Some(*id), 0)));
            (id, run)
        })
        .collect();
    ahead.reverse();
    let mut placed = Placed::with_capacity(after.len());
    for ((policy, kept), (next, run)) in after.iter().zip(kept).zip(ahead) {
        let entry = match kept {
            Some(kept) => kept.clone(),
            None => {
                let last = placed.last().map(|(id, _)| *id);
                let id = spd.insert_between(policy.clone(), last, next, run)?;
                (id, Arc::new(policy.clone()))
            }
        };
        placed.push(entry);
    }
    Ok(placed)
}

/// Longest rise: entries to keep, of those that have a number, so that numbers rise and most stay.
fn longest_rise(numbers: &[Option<usize>]) -> Vec<usize> {
    // `ends[n]`: of all rises of n + 1 entries, the last entry of the one that ends lowest.
    let mut ends: Vec<(usize, usize)> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; numbers.len()];
    for (at, number) in numbers.iter().enumerate() {
        let Some(number) = *number else { continue };
        let length = ends.partition_point(|(end, _)| *end < number);
        if let Some(before) = before.get_mut(at) {
            *before = length.checked_sub(1).and_then(|last| ends.get(last)).map(|(_, at)| *at);
        }
        match ends.get_mut(length) {
            Some(end) => *end = (number, at),
            None => ends.push((number, at)),
        }
    }
    let mut rise: Vec<_> = core::iter::successors(ends.last().map(|(_, at)| *at), |at| {
        before.get(*at).copied().flatten()
    })
    .collect();
    rise.reverse();
    rise
}

impl Tables {
    /// Makes a snapshot that holds the SAs of `before` hold these.
    pub(super) fn bring(
        &self,
        before: &Self,
        snapshot: &mut Snapshot,
    ) -> Result<(), SnapshotError> {
        let outbound = Moves::between(&before.outbound, &self.outbound);
        outbound.gone.iter().for_each(|slot| drop(snapshot.remove_outbound(*slot)));
        for (slot, sa) in outbound.changed {
            snapshot.replace_outbound(slot, sa.clone())?;
        }
        for (slot, sa) in outbound.new {
            snapshot.add_outbound(slot, sa.clone())?;
        }
        let inbound = Moves::between(&before.inbound, &self.inbound);
        // All that changes goes first: two SAs may have exchanged their SPIs.
        let gone = inbound.gone.iter().chain(inbound.changed.iter().map(|(slot, _)| slot));
        gone.for_each(|slot| drop(snapshot.remove_inbound(*slot)));
        for (slot, sa) in inbound.changed.into_iter().chain(inbound.new) {
            snapshot.add_inbound(slot, sa.clone())?;
        }
        Ok(())
    }
}

/// Changes of slots; each list from the lowest slot up, so that it is the same every time.
struct Moves<'a, S> {
    gone: Vec<SaSlot>,
    changed: Vec<(SaSlot, &'a Arc<S>)>,
    new: Vec<(SaSlot, &'a Arc<S>)>,
}

impl<'a, S> Moves<'a, S> {
    fn between(before: &super::ByName<S>, after: &'a super::ByName<S>) -> Self {
        let mut old: HashMap<SaSlot, &Arc<S>> =
            before.values().map(|(slot, sa)| (*slot, sa)).collect();
        let (mut changed, mut new) = (Vec::new(), Vec::new());
        for (slot, sa) in after.values() {
            match old.remove(slot) {
                Some(before) if Arc::ptr_eq(before, sa) => {}
                Some(_) => changed.push((*slot, sa)),
                None => new.push((*slot, sa)),
            }
        }
        let mut gone: Vec<_> = old.into_keys().collect();
        gone.sort_unstable();
        changed.sort_unstable_by_key(|(slot, _)| *slot);
        new.sort_unstable_by_key(|(slot, _)| *slot);
        Self { gone, changed, new }
    }
}

#[cfg(test)]
mod tests {
    use convoy_ipsec::selector::{Direction, Selector};
    use convoy_ipsec::spd::PolicyAction;
    use convoy_wire::{FlowKey, Ports, Prefix, Protocol};
    use proptest::prelude::*;

    use super::*;

    /// All of one priority and overlapping, so that their order decides.
    fn policy(n: u8, action: bool) -> Policy {
        let remote = Prefix::containing([10, 0, 0, n].into(), 24 + n % 9).unwrap();
        Policy {
            name: n.to_string().into(),
            priority: 5,
            direction: Direction::Outbound,
            selector: Selector { remote: remote.into(), ..Selector::default() },
            action: if action { PolicyAction::Bypass } else { PolicyAction::Discard },
        }
    }

    /// Policies of which no two have one selector, in any order.
    fn any_list() -> impl Strategy<Value = Vec<Policy>> {
        prop::collection::vec((any::<u8>(), any::<bool>()), 0..40).prop_map(|list| {
            let mut seen = std::collections::HashSet::new();
            let policies = list.into_iter().map(|(n, action)| policy(n, action));
            policies.filter(|policy| seen.insert(policy.selector)).collect()
        })
    }

    proptest! {
        #[test]
        fn a_changed_database_is_as_one_made_anew(lists in prop::collection::vec(any_list(), 1..8)) {
            let (mut spd, mut placed) = (Spd::default(), Placed::new());
            for list in lists {
                let before = placed.clone();
                placed = policies(&mut spd, &before, list.clone()).unwrap();
                let names: Vec<_> = placed.iter().map(|(_, policy)| policy.name.clone()).collect();
                prop_assert_eq!(&names, &list.iter().map(|p| p.name.clone()).collect::<Vec<_>>());
                prop_assert_eq!(spd.len(), list.len());
                let fresh = Spd::new(list).unwrap();
                for host in 0..=255 {
                    let to = [10, 0, 0, host].into();
                    let key = FlowKey::new([1; 4].into(), to, Protocol::UDP, Ports::Opaque).unwrap();
                    let named = |spd: &Spd| {
                        let found = spd.lookup(Direction::Outbound, &key)?;
                        Some((spd.policy(found.id)?.name.clone(), found.action))
                    };
                    prop_assert_eq!(named(&spd), named(&fresh));
                }
                // What is found among those before, in their order, was not touched.
                let same = policies(&mut spd.clone(), &placed, names_of(&placed)).unwrap();
                prop_assert_eq!(ids(&same), ids(&placed));
            }
        }

        #[test]
        fn a_rise_is_one_and_the_longest(numbers in prop::collection::vec(prop::option::of(0usize..8), 0..9)) {
            let rise = longest_rise(&numbers);
            let of = |places: &[usize]| places.iter().map(|at| numbers[*at]).collect::<Vec<_>>();
            let rises = |places: &[usize]| {
                of(places).iter().all(Option::is_some)
                    && of(places).windows(2).all(|pair| pair[0] < pair[1])
            };
            prop_assert!(rises(&rise) && rise.is_sorted());
            let longest = (0..1_u32 << numbers.len())
                .map(|set| (0..numbers.len()).filter(|at| set >> at & 1 == 1).collect::<Vec<_>>())
                .filter(|places| rises(places))
                .map(|places| places.len())
                .max();
            prop_assert_eq!(Some(rise.len()), longest);
        }
    }

    fn names_of(placed: &Placed) -> Vec<Policy> {
        placed.iter().map(|(_, policy)| Policy::clone(policy)).collect()
    }

    fn ids(placed: &Placed) -> Vec<PolicyId> {
        placed.iter().map(|(id, _)| *id).collect()
    }

    #[test]
    fn one_policy_in_front_of_many_touches_none_of_them() {
        let host = |n: u8| Prefix::host([10, 1, 1, n].into()).into();
        let selector = |n| Selector { remote: host(n), ..Selector::default() };
        let many = (0..100).map(|n| Policy { selector: selector(n), ..policy(n, true) });
        let many: Vec<_> = many.collect();
        let mut spd = Spd::default();
        let first = policies(&mut spd, &Placed::new(), many[1..].to_vec()).unwrap();
        let second = policies(&mut spd, &first, many).unwrap();
        assert_eq!(ids(&second)[1..], ids(&first)[..]);
    }
}
