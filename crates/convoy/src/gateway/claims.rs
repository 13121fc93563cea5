//! Which networks a fence is to close, open and guard for a set of policies.
//!
//! A fence knows destinations, a policy also sources and a rank. Where the two differ, what is closed
//! wins: a policy that passes packets in clear opens its network only if that lets out nothing another one
//! protects, and a network behind the gateway is not reached out of tunnels where it lies in what others
//! protect. Where that would close too much, the fence takes a few exceptions by source and destination:
//! a policy that passes packets and outranks all that protect some of them opens what is its own; and of
//! those behind a tunnel only some may be kept from a network.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use convoy_control::xfrm::{Cover, Covered};
use convoy_host::fence::{Exceptions, Pair};
use convoy_host::{Claim, IpNet, Treatment};
use convoy_wire::Prefix;

/// Most exceptions of a kind: open ones cost every packet a rule each.
const MOST_EXCEPTIONS: usize = 32;

/// What is claimed for the policies that are there.
#[derive(Debug, Default)]
pub(super) struct Claims {
    all: HashMap<Covered, Entry>,
    /// Whether the fence takes exceptions.
    takes_exceptions: bool,
    /// Exceptions with how many policies want them: what is open, and what is withheld from tunnels.
    open: BTreeMap<Pair, usize>,
    withheld: BTreeMap<Pair, usize>,
    /// Those that pass packets.
    bypasses: HashSet<Covered>,
    /// Those that do not, by the network on the far side.
    by_remote: HashMap<Prefix, HashSet<Covered>>,
    /// The same by the network on this side.
    by_local: HashMap<Prefix, HashSet<Covered>>,
}

/// What is said for policies that say the same.
#[derive(Debug, Default)]
struct Entry {
    /// How many there are.
    count: usize,
    claims: Vec<Claim>,
    open: Vec<Pair>,
    withheld: Vec<Pair>,
}

/// What is to change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) add: Vec<Claim>,
    pub(super) remove: Vec<Claim>,
}

impl Claims {
    /// Claims for a fence that takes exceptions, or does not.
    pub(super) fn new(takes_exceptions: bool) -> Self {
        Self { takes_exceptions, ..Self::default() }
    }

    /// The exceptions that the policies want now.
    pub(super) fn exceptions(&self) -> Exceptions {
        let pairs = |counted: &BTreeMap<Pair, usize>| -> BTreeSet<Pair> {
            counted.keys().copied().collect()
        };
        let open = pairs(&self.open);
        let admitted = open.iter().map(|pair| Pair { from: pair.to, to: pair.from }).collect();
        Exceptions { open, admitted, withheld: pairs(&self.withheld) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Policies come and go. `claim` says what is claimed for one by itself.
    pub(super) fn follow(
        &mut self,
        came: &[Covered],
        went: &[Covered],
        mut claim: impl FnMut(&Covered) -> Vec<Claim>,
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
        let mut concerned = changed.clone();
        for covered in changed.iter().filter(|covered| covered.cover != Cover::Bypass) {
            let is_near = |bypass: &&Covered| {
                let ends = [bypass.local, bypass.remote];
                ends.iter().any(|end| end.overlaps(&covered.remote))
            };
            concerned.extend(self.bypasses.iter().filter(is_near));
            let inner = self.by_local.iter().filter(|(local, _)| covered.remote.covers(local));
            concerned.extend(inner.flat_map(|(_, policies)| policies));
        }
        let mut change = Change::default();
        for covered in concerned {
            let Some(before) = self.all.remove(&covered) else { continue };
            let mut after = Entry { count: before.count, ..Entry::default() };
            if before.count > 0 {
                self.say(&covered, &before, &mut after, &mut claim);
            }
            let new = after.claims.iter().filter(|claim| !before.claims.contains(claim));
            change.add.extend(new);
            let gone = before.claims.iter().filter(|claim| !after.claims.contains(claim));
            change.remove.extend(gone);
            count(&mut self.open, &after.open, &before.open);
            count(&mut self.withheld, &after.withheld, &before.withheld);
            if after.count > 0 {
                self.all.insert(covered, after);
            }
        }
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
        match self.kept_from(covered) {
            Some(pairs) => after.withheld = pairs,
            None => after.claims.retain(|claim| claim.treatment != Treatment::Local),
        }
    }

    fn list(&mut self, covered: &Covered, is_there: bool) {
        if covered.cover == Cover::Bypass {
            if is_there {
                self.bypasses.insert(*covered);
            } else {
                self.bypasses.remove(covered);
            }
            return;
        }
        for (map, network) in
            [(&mut self.by_remote, covered.remote), (&mut self.by_local, covered.local)]
        {
            if is_there {
                map.entry(network).or_default().insert(*covered);
            } else if let Some(policies) = map.get_mut(&network) {
                policies.remove(covered);
                if policies.is_empty() {
                    map.remove(&network);
                }
            }
        }
    }

    /// What a policy opens that passes packets; for others everything is said.
    fn opens(&self, covered: &Covered) -> Opens {
        if covered.cover != Cover::Bypass {
            return Opens::All;
        }
        if !covered.is_whole {
            return Opens::Nothing;
        }
        let concerned =
            self.by_remote.iter().filter(|(remote, _)| remote.overlaps(&covered.remote));
        let concerned = || concerned.clone().flat_map(|(_, policies)| policies);
        if concerned().all(|q| covered.local.covers(&q.local) && covered.priority < q.priority) {
            return Opens::All;
        }
        let is_its_own =
            concerned().all(|q| !covered.local.overlaps(&q.local) || covered.priority < q.priority);
        match self.openable(covered.local, covered.remote) {
            Some(pair) if is_its_own => Opens::Pair(pair),
            _ => Opens::Nothing,
        }
    }

    /// The way of answers to what a policy passes, where the network on this side lies in what others
    /// protect (as in everything) and nobody protects the answers.
    fn way_back(&self, covered: &Covered) -> Option<Pair> {
        if covered.cover != Cover::Bypass || covered.local == covered.remote {
            return None;
        }
        let mut around =
            self.by_remote.iter().filter(|(remote, _)| remote.overlaps(&covered.local)).peekable();
        around.peek()?;
        let is_free = around
            .flat_map(|(_, policies)| policies)
            .all(|other| !other.local.overlaps(&covered.remote));
        self.openable(covered.remote, covered.local).filter(|_| is_free)
    }

    fn openable(&self, from: Prefix, to: Prefix) -> Option<Pair> {
        let is_room =
            |pair: &Pair| self.open.contains_key(pair) || self.open.len() < MOST_EXCEPTIONS;
        pair(from, to).filter(|pair| self.takes_exceptions && is_room(pair))
    }

    /// Who of those behind tunnels is to be kept from the network on this side of a policy, because other
    /// policies protect what they send there; none if that is nobody or more than can be told apart.
    fn kept_from(&self, covered: &Covered) -> Option<Vec<Pair>> {
        // Those around the network on this side: as many look-ups as an address has bits.
        let around = (0..covered.local.len()).filter_map(|len| {
            let around = Prefix::containing(covered.local.addr(), len).ok()?;
            self.by_remote.get(&around)
        });
        let is_for_everything = covered.remote.covers(&covered.local);
        let mut pairs = BTreeSet::new();
        for other in around.flatten() {
            if !covered.remote.overlaps(&other.local) {
                continue;
            }
            let is_covered = other.local.covers(&covered.remote);
            // Of two tunnels for everything from two networks here, neither is behind the other.
            if !is_covered && is_for_everything && other.remote.covers(&other.local) {
                continue;
            }
            if is_covered || !self.takes_exceptions {
                return None;
            }
            pairs.insert(pair(other.local, covered.local)?);
        }
        let new = pairs.iter().filter(|pair| !self.withheld.contains_key(pair)).count();
        (self.withheld.len() + new <= MOST_EXCEPTIONS).then(|| pairs.into_iter().collect())
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

fn pair(from: Prefix, to: Prefix) -> Option<Pair> {
    Some(Pair { from: net(from)?, to: net(to)? })
}

fn count(counted: &mut BTreeMap<Pair, usize>, more: &[Pair], less: &[Pair]) {
    for pair in more {
        *counted.entry(*pair).or_default() += 1;
    }
    for pair in less {
        let Some(count) = counted.get_mut(pair) else { continue };
        *count -= 1;
        if *count == 0 {
            counted.remove(pair);
        }
    }
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
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn policy(local: &str, remote: &str, priority: u32, cover: Cover) -> Covered {
        Covered { local: prefix(local), remote: prefix(remote), priority, is_whole: true, cover }
    }

    fn claim(covered: &Covered) -> Vec<Claim> {
        let claim = |network, treatment| Claim { network: net(network).unwrap(), treatment };
        match covered.cover {
            Cover::Bypass => vec![claim(covered.remote, Treatment::Bypassed)],
            _ => vec![
                claim(covered.local, Treatment::Local),
                claim(covered.remote, Treatment::Protected { source: None }),
            ],
        }
    }

    /// What is open and reachable out of tunnels, and what is closed, after these came and those went.
    fn state(came: &[Covered], went: &[Covered]) -> (Vec<String>, Vec<String>) {
        let mut claims = Claims::default();
        let mut all: Vec<Claim> = Vec::new();
        for (came, went) in [(came, &[][..]), (&[][..], went)] {
            let Change { add, remove } = claims.follow(came, went, claim);
            all.extend(add);
            for gone in remove {
                let at = all.iter().position(|claim| *claim == gone).unwrap();
                all.swap_remove(at);
            }
        }
        let named = |wanted: fn(&Treatment) -> bool| {
            let found = all.iter().filter(|claim| wanted(&claim.treatment));
            let mut names: Vec<_> = found.map(|claim| claim.network.to_string()).collect();
            names.sort();
            names.dedup();
            names
        };
        let open = named(|treatment| *treatment == Treatment::Bypassed);
        let local = named(|treatment| *treatment == Treatment::Local);
        (open, local)
    }

    #[test]
    fn a_bypass_opens_only_what_nobody_else_protects() {
        let protects = |local, priority| policy(local, "10.0.0.0/8", priority, Cover::Protect);
        let bypass = |local, priority| policy(local, "10.1.0.0/16", priority, Cover::Bypass);
        let open =
            |others: &[Covered], bypass| !state(&[others, &[bypass]].concat(), &[]).0.is_empty();
        assert!(open(&[], bypass("192.168.7.0/24", 1)));
        assert!(open(&[protects("192.168.7.0/24", 9)], bypass("192.168.7.0/24", 1)));
        assert!(open(&[protects("192.168.7.0/24", 9)], bypass("0.0.0.0/0", 1)));
        // Of sources that the bypass does not name.
        assert!(!open(&[protects("192.168.0.0/16", 9)], bypass("192.168.7.0/24", 1)));
        assert!(!open(&[protects("172.16.0.0/24", 9)], bypass("192.168.7.0/24", 1)));
        // Of a higher rank.
        assert!(!open(&[protects("192.168.7.0/24", 1)], bypass("192.168.7.0/24", 9)));
        assert!(!open(&[protects("192.168.7.0/24", 1)], bypass("192.168.7.0/24", 1)));
        let partial = Covered { is_whole: false, ..bypass("192.168.7.0/24", 1) };
        assert!(!open(&[], partial));
    }

    #[test]
    fn what_is_open_follows_policies_that_come_and_go() {
        let protects = policy("192.168.0.0/16", "10.0.0.0/8", 9, Cover::Protect);
        let bypass = policy("192.168.7.0/24", "10.1.0.0/16", 1, Cover::Bypass);
        assert_eq!(state(&[bypass, protects], &[protects]).0, ["10.1.0.0/16"]);
        assert!(state(&[bypass, protects, protects], &[protects]).0.is_empty());
        assert_eq!(state(&[bypass, protects], &[protects, bypass]), (vec![], vec![]));
        assert!(state(&[bypass], &[bypass, bypass]).0.is_empty());
    }

    /// A hub: what comes out of one tunnel for a host behind another goes into that.
    #[test]
    fn a_network_that_others_protect_is_not_reached_out_of_tunnels() {
        let to_a = policy("10.0.0.0/8", "10.2.0.0/16", 9, Cover::Protect);
        let to_b = policy("10.2.5.0/24", "10.3.0.0/16", 9, Cover::Protect);
        assert_eq!(state(&[to_a, to_b], &[]).1, ["10.0.0.0/8"]);
        assert_eq!(state(&[to_b, to_a], &[]).1, ["10.0.0.0/8"]);
        assert_eq!(state(&[to_b, to_a], &[to_a]).1, ["10.2.5.0/24"]);
        // A road warrior's gateway: everything is protected, and the network behind it is reached.
        let all = policy("10.2.5.0/24", "0.0.0.0/0", 9, Cover::Protect);
        assert_eq!(state(&[all], &[]).1, ["10.2.5.0/24"]);
        let two = policy("10.9.0.0/16", "0.0.0.0/0", 9, Cover::Protect);
        assert_eq!(state(&[all, two], &[]).1, ["10.2.5.0/24", "10.9.0.0/16"]);
    }

    /// The exceptions of these policies: what is open, and what is withheld.
    fn exceptions(came: &[Covered], went: &[Covered]) -> [Vec<String>; 2] {
        let mut claims = Claims::new(true);
        claims.follow(came, &[], claim);
        claims.follow(&[], went, claim);
        let Exceptions { open, withheld, .. } = claims.exceptions();
        [open, withheld]
            .map(|pairs| pairs.iter().map(|pair| format!("{} to {}", pair.from, pair.to)).collect())
    }

    /// For some of those behind one tunnel a network is behind another.
    #[test]
    fn who_is_protected_on_the_way_to_a_network_is_kept_from_it_and_others_are_not() {
        let to_b = policy("10.2.5.0/24", "10.3.0.0/16", 9, Cover::Protect);
        let some = policy("10.3.7.0/24", "10.2.0.0/16", 9, Cover::Protect);
        let both = ["10.2.5.0/24 to 10.3.7.0/24", "10.3.7.0/24 to 10.2.5.0/24"];
        for policies in [[to_b, some], [some, to_b]] {
            assert_eq!(exceptions(&policies, &[]), [vec![], both.map(str::to_owned).to_vec()]);
            let nothing = [vec![], Vec::<String>::new()];
            assert_eq!(exceptions(&policies, &[some]), nothing);
        }
        let others = policy("172.16.0.0/24", "10.2.0.0/16", 9, Cover::Protect);
        assert_eq!(exceptions(&[to_b, others], &[])[1], [""; 0]);
        let everything = |local| policy(local, "0.0.0.0/0", 9, Cover::Protect);
        let two = [everything("10.1.0.0/16"), everything("10.9.0.0/16")];
        assert_eq!(exceptions(&two, &[])[1], [""; 0]);
        // Where the fence takes no exceptions, or not so many, nobody reaches it.
        let local = |claims: &mut Claims, policies: &[Covered]| {
            let add = claims.follow(policies, &[], claim).add;
            add.iter().filter(|claim| claim.treatment == Treatment::Local).count()
        };
        assert_eq!(local(&mut Claims::default(), &[to_b, some]), 0);
        let many =
            (0..40).map(|n| policy(&format!("10.3.{n}.0/24"), "10.2.0.0/16", 9, Cover::Protect));
        let many: Vec<_> = many.chain([to_b]).collect();
        let mut claims = Claims::new(true);
        local(&mut claims, &many);
        assert!(claims.exceptions().withheld.len() <= MOST_EXCEPTIONS);
        let reached = &claims.all[&to_b].claims;
        assert!(reached.iter().all(|claim| claim.treatment != Treatment::Local), "{reached:?}");
    }

    /// A road warrior whose tunnel is for one address, and its own network.
    #[test]
    fn a_bypass_beside_others_opens_what_is_its_own() {
        let all = policy("10.9.0.5/32", "0.0.0.0/0", 9, Cover::Protect);
        let lan = |priority| policy("10.1.0.0/24", "10.1.0.0/24", priority, Cover::Bypass);
        let opens = |policies: &[Covered], went: &[Covered]| -> Vec<String> {
            let opens = exceptions(policies, went);
            assert_eq!(state(policies, went).0, [""; 0]);
            opens[0].clone()
        };
        let own = ["10.1.0.0/24 to 10.1.0.0/24"];
        assert_eq!(opens(&[all, lan(1)], &[]), own);
        assert_eq!(opens(&[lan(1), all], &[]), own);
        // Of no higher rank, but nobody else's.
        assert_eq!(opens(&[all, lan(9)], &[]), own);
        // Some of its own is protected, by one of a lower rank, and a higher one.
        let wide = |priority| policy("10.0.0.0/8", "0.0.0.0/0", priority, Cover::Protect);
        assert_eq!(opens(&[wide(9), lan(1)], &[]), own);
        assert_eq!(opens(&[wide(1), lan(1)], &[]), [""; 0]);
        assert_eq!(opens(&[wide(9), lan(1), wide(1)], &[]), [""; 0]);
        assert_eq!(opens(&[wide(9), lan(1), wide(1)], &[wide(1)]), own);
        assert_eq!(opens(&[wide(9), lan(1)], &[lan(1)]), [""; 0]);
        let partial = Covered { is_whole: false, ..lan(1) };
        assert_eq!(opens(&[all, partial], &[]), [""; 0]);
        // Answers come back into the network, unless they are protected.
        let beyond = policy("10.1.0.0/24", "192.0.2.0/24", 1, Cover::Bypass);
        let both = ["10.1.0.0/24 to 192.0.2.0/24", "192.0.2.0/24 to 10.1.0.0/24"];
        assert_eq!(opens(&[all, beyond], &[]), both);
        assert_eq!(exceptions(&[beyond, all], &[all])[0], [""; 0]);
        let back = policy("192.0.2.9/32", "10.1.0.0/16", 9, Cover::Protect);
        assert_eq!(opens(&[all, beyond, back], &[]), both[..1]);
        assert_eq!(opens(&[all, back, beyond], &[back]), both);
        let from_lan = policy("10.1.0.0/24", "0.0.0.0/0", 9, Cover::Protect);
        assert_eq!(exceptions(&[from_lan, beyond], &[])[0], both[1..]);
        assert_eq!(exceptions(&[beyond], &[])[0], [""; 0]);
        let bypasses =
            (0..40).map(|n| policy("10.1.0.0/24", &format!("10.7.{n}.0/24"), 1, Cover::Bypass));
        let many: Vec<_> = bypasses.chain([all]).collect();
        assert_eq!(opens(&many, &[]).len(), MOST_EXCEPTIONS);
    }
}
