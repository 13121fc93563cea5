//! Which networks a fence is to close, open and guard for a set of policies.
//!
//! A fence knows destinations, a policy also sources and a rank. Where the two differ, what is closed
//! wins: a policy that passes packets in clear opens its network only if that lets out nothing another one
//! protects, and a network behind the gateway is not reached out of tunnels where it lies in what others
//! protect. Where that would close too much, the fence takes a few exceptions by source and destination:
//! a policy that passes packets and outranks all that protect some of them opens what is its own, one
//! that passes those which arrive admits them; and of what tunnels bring, what others protect on the way
//! is withheld ([`reach`]).

mod networks;
mod reach;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use convoy_control::xfrm::{Cover, Covered};
use convoy_host::fence::{Exceptions, Pair};
use convoy_host::{Claim, IpNet, Treatment};
use convoy_wire::Prefix;

use self::networks::ByNetwork;
pub(super) use self::reach::MOST_WITHHELD;
use self::reach::{Protecting, Reach};

/// Most pairs that are open: they cost every packet a rule each.
const MOST_OPEN: usize = 32;
/// Most pairs that are admitted, which cost no rules.
const MOST_ADMITTED: usize = 256;

/// What is claimed for the policies that are there.
#[derive(Debug, Default)]
pub(super) struct Claims {
    all: HashMap<Covered, Entry>,
    /// Whether the fence takes exceptions.
    takes_exceptions: bool,
    open: Pairs<MOST_OPEN>,
    admitted: Pairs<MOST_ADMITTED>,
    /// Policies that pass packets, by either network.
    bypasses: [ByNetwork; 2],
    /// Those that do not.
    protecting: Protecting,
    reach: Reach,
}

/// What is said for policies that say the same.
#[derive(Debug, Default)]
struct Entry {
    /// How many there are.
    count: usize,
    claims: Vec<Claim>,
    open: Vec<Pair>,
    admitted: Option<Pair>,
}

/// What is to change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) add: Vec<Claim>,
    pub(super) remove: Vec<Claim>,
}

impl Change {
    /// This, and another one after it.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.add.extend(other.add);
        self.remove.extend(other.remove);
        self
    }
}

impl Claims {
    /// Claims for a fence that takes exceptions, or does not.
    pub(super) fn new(takes_exceptions: bool) -> Self {
        Self { takes_exceptions, ..Self::default() }
    }

    /// The exceptions that the policies want now, as far as there is room.
    pub(super) fn exceptions(&self) -> Exceptions {
        Exceptions {
            open: self.open.granted.clone(),
            admitted: self.admitted.granted.clone(),
            withheld: self.reach.withheld().clone(),
        }
    }

    /// Networks on the far side with some of this side within, which what tunnels bring does not reach.
    pub(super) fn unreached(&self) -> impl Iterator<Item = Prefix> {
        self.reach.unheld()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) const fn takes_exceptions(&self) -> bool {
        self.takes_exceptions
    }

    /// Policies come and go. `claim` says what is claimed for one by itself.
    pub(super) fn follow(
        &mut self,
        came: &[Covered],
        went: &[Covered],
        claim: impl FnMut(&Covered) -> Vec<Claim>,
    ) -> Change {
        let mut changed = HashSet::new();
        for covered in came {
            let entry = self.all.entry(*covered).or_default();
            entry.count += 1;
            if entry.count == 1 {
                self.list(covered, true);
                changed.insert(*covered);
            }
        }
        for covered in went {
            let there = self.all.get_mut(covered).filter(|entry| entry.count > 0);
            let Some(entry) = there else { continue };
            entry.count -= 1;
            if entry.count == 0 {
                self.list(covered, false);
                changed.insert(*covered);
            }
        }
        let concerned = self.concerned(changed);
        self.say_anew(concerned, claim)
    }

    /// The fence begins to take exceptions, or ends.
    pub(super) fn take_exceptions(
        &mut self,
        takes: bool,
        claim: impl FnMut(&Covered) -> Vec<Claim>,
    ) -> Change {
        self.takes_exceptions = takes;
        self.reach.hold(&self.protecting, takes);
        self.say_anew(self.all.keys().copied().collect(), claim)
    }

    /// Those for which something else may be said when these come or go.
    fn concerned(&mut self, changed: HashSet<Covered>) -> HashSet<Covered> {
        let mut concerned = changed.clone();
        let is_protecting = |covered: &&Covered| covered.cover != Cover::Bypass;
        for covered in &changed {
            let near = self.bypasses.iter().flat_map(|by| by.overlapping(covered.remote));
            concerned.extend(near);
        }
        let Self { reach, protecting, takes_exceptions, .. } = self;
        let changed = changed.iter().filter(is_protecting);
        for local in reach.follow(changed, protecting, *takes_exceptions) {
            concerned.extend(protecting.by_local.of(&local));
        }
        concerned
    }

    /// Says again what is claimed for policies; what that changes.
    fn say_anew(
        &mut self,
        policies: HashSet<Covered>,
        mut claim: impl FnMut(&Covered) -> Vec<Claim>,
    ) -> Change {
        let mut change = Change::default();
        for covered in policies {
            let Some(before) = self.all.remove(&covered) else { continue };
            let mut after = Entry { count: before.count, ..Entry::default() };
            if before.count > 0 {
                self.say(&covered, &before, &mut after, &mut claim);
            }
            let new = after.claims.iter().filter(|claim| !before.claims.contains(claim));
            change.add.extend(new);
            let gone = before.claims.iter().filter(|claim| !after.claims.contains(claim));
            change.remove.extend(gone);
            self.open.count(&after.open, &before.open);
            self.admitted.count(after.admitted.as_slice(), before.admitted.as_slice());
            if after.count > 0 {
                self.all.insert(covered, after);
            }
        }
        self.open.grant();
        self.admitted.grant();
        change
    }

    /// What is said for a policy among the others.
    fn say(
        &self,
        covered: &Covered,
        before: &Entry,
        after: &mut Entry,
        claim: &mut impl FnMut(&Covered) -> Vec<Claim>,
    ) {
        let opens = self.opens(covered);
        if covered.is_inward {
            let is_admitted = self.takes_exceptions && !matches!(opens, Opens::Nothing);
            let is_contested = || self.contested(covered.remote).next().is_some();
            after.admitted =
                pair(covered.remote, covered.local).filter(|_| is_admitted && is_contested());
            return;
        }
        if !matches!(opens, Opens::Nothing) {
            after.open.extend(self.way_back(covered));
        }
        match opens {
            Opens::Nothing => return,
            Opens::Pair(pair) => return after.open.push(pair),
            Opens::All => {}
        }
        // What was claimed for it alone stays as it was: the host's addresses may have changed.
        after.claims = claim(covered).into_iter().map(|new| kept(&before.claims, new)).collect();
        if !self.reach.is_reached(covered.local, &self.protecting) {
            after.claims.retain(|claim| claim.treatment != Treatment::Local);
        }
    }

    fn list(&mut self, covered: &Covered, is_there: bool) {
        let [local, remote] = match covered.cover {
            Cover::Bypass => &mut self.bypasses,
            _ => {
                let Protecting { by_local, by_remote } = &mut self.protecting;
                by_local.list(covered.local, covered, is_there);
                return by_remote.list(covered.remote, covered, is_there);
            }
        };
        local.list(covered.local, covered, is_there);
        remote.list(covered.remote, covered, is_there);
    }

    /// Policies that protect some of what is sent to a network.
    fn contested(&self, remote: Prefix) -> impl Iterator<Item = &Covered> {
        self.protecting.by_remote.overlapping(remote)
    }

    /// What a policy opens that passes packets; for others everything is said.
    fn opens(&self, covered: &Covered) -> Opens {
        if covered.cover != Cover::Bypass {
            return Opens::All;
        }
        if !covered.is_whole {
            return Opens::Nothing;
        }
        let contested = || self.contested(covered.remote);
        // An open network is open in both ways.
        let is_mutual = || contested().next().is_none() || self.is_mutual(covered);
        let outranks = |q: &Covered| covered.priority < q.priority;
        if contested().all(|q| covered.local.covers(&q.local) && outranks(q)) && is_mutual() {
            return Opens::All;
        }
        let is_its_own = contested().all(|q| !covered.local.overlaps(&q.local) || outranks(q));
        match self.openable(covered.local, covered.remote) {
            Some(pair) if is_its_own => Opens::Pair(pair),
            _ => Opens::Nothing,
        }
    }

    /// Whether what a policy passes outwards another one passes inwards.
    fn is_mutual(&self, covered: &Covered) -> bool {
        let [_, by_remote] = &self.bypasses;
        covered.is_inward
            || by_remote.overlapping(covered.remote).any(|other| {
                other.is_inward
                    && other.is_whole
                    && other.priority <= covered.priority
                    && other.remote.covers(&covered.remote)
                    && other.local.covers(&covered.local)
            })
    }

    /// The way of answers to what a policy passes, where the network on this side lies in what others
    /// protect (as in everything) and nobody protects the answers.
    fn way_back(&self, covered: &Covered) -> Option<Pair> {
        if covered.cover != Cover::Bypass || covered.local == covered.remote {
            return None;
        }
        let mut around = self.contested(covered.local).peekable();
        around.peek()?;
        let is_free = around.all(|other| !other.local.overlaps(&covered.remote));
        self.openable(covered.remote, covered.local).filter(|_| is_free)
    }

    fn openable(&self, from: Prefix, to: Prefix) -> Option<Pair> {
        pair(from, to).filter(|_| self.takes_exceptions)
    }
}

/// What a policy opens.
enum Opens {
    /// Its network, to all.
    All,
    /// Its network, to those whom it names.
    Pair(Pair),
    Nothing,
}

/// Pairs that policies want, of which some are granted.
#[derive(Debug, Default)]
struct Pairs<const MOST: usize> {
    /// With how many policies want them.
    wanted: BTreeMap<Pair, usize>,
    granted: BTreeSet<Pair>,
}

impl<const MOST: usize> Pairs<MOST> {
    fn count(&mut self, more: &[Pair], less: &[Pair]) {
        for pair in more {
            *self.wanted.entry(*pair).or_default() += 1;
        }
        for pair in less {
            let Some(count) = self.wanted.get_mut(pair) else { continue };
            *count -= 1;
            if *count == 0 {
                self.wanted.remove(pair);
            }
        }
    }

    /// Grants what is wanted, first what was before, as long as there is room.
    fn grant(&mut self) {
        let Self { wanted, granted } = self;
        granted.retain(|pair| wanted.contains_key(pair));
        let room = MOST.saturating_sub(granted.len());
        let new: Vec<_> =
            wanted.keys().filter(|pair| !granted.contains(pair)).take(room).copied().collect();
        granted.extend(new);
    }
}

fn pair(from: Prefix, to: Prefix) -> Option<Pair> {
    Some(Pair { from: net(from)?, to: net(to)? })
}

/// The claim as it was made before, if it is on the same network and of the same kind.
fn kept(before: &[Claim], new: Claim) -> Claim {
    let kind = |claim: &Claim| (claim.network, std::mem::discriminant(&claim.treatment));
    before.iter().find(|old| kind(old) == kind(&new)).copied().unwrap_or(new)
}

/// A prefix as the host's side writes it.
pub(super) fn net(prefix: Prefix) -> Option<IpNet> {
    IpNet::new(prefix.addr(), prefix.len()).ok()
}

#[cfg(test)]
mod tests;
