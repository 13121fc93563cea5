//! Which networks a fence is to close, open and guard for a set of policies.
//!
//! A fence knows destinations, a policy also sources and a rank. Where the two differ, what is closed
//! wins: a policy that passes packets in clear opens its network only if that lets out nothing another one
//! protects, and a network behind the gateway is not reached out of tunnels where it lies in what others
//! protect.

use std::collections::{HashMap, HashSet};

use convoy_control::xfrm::{Cover, Covered};
use convoy_host::{Claim, IpNet, Treatment};
use convoy_wire::Prefix;

/// What is claimed for the policies that are there.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// How many policies say the same, and what is claimed for them.
    all: HashMap<Covered, (usize, Vec<Claim>)>,
    /// Those that pass packets.
    bypasses: HashSet<Covered>,
    /// Those that do not, by the network on the far side.
    by_remote: HashMap<Prefix, HashSet<Covered>>,
    /// The same by the network on this side.
    by_local: HashMap<Prefix, HashSet<Covered>>,
}

/// What is to change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) add: Vec<Claim>,
    pub(super) remove: Vec<Claim>,
}

impl Claims {
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
            let (count, _) = self.all.entry(*covered).or_default();
            *count += 1;
            if *count == 1 {
                self.list(covered, true);
                changed.insert(*covered);
            }
        }
        for covered in went {
            let there = self.all.get_mut(covered).filter(|(count, _)| *count > 0);
            let Some((count, _)) = there else { continue };
            *count -= 1;
            if *count == 0 {
                self.list(covered, false);
                changed.insert(*covered);
            }
        }
        let mut concerned = changed.clone();
        for covered in changed.iter().filter(|covered| covered.cover != Cover::Bypass) {
            concerned.extend(self.bypasses.iter().filter(|b| b.remote.overlaps(&covered.remote)));
            let inner = self.by_local.iter().filter(|(local, _)| covered.remote.covers(local));
            concerned.extend(inner.flat_map(|(_, policies)| policies));
        }
        let mut change = Change::default();
        for covered in concerned {
            let Some((count, before)) = self.all.get(&covered) else { continue };
            // What was claimed for it alone stays as it was: the host's addresses may have changed.
            let after: Vec<Claim> = match (count, before.is_empty()) {
                (0, _) => Vec::new(),
                _ if self.is_to_be_made(&covered) => claim(&covered)
                    .into_iter()
                    .map(|new| kept(before, new))
                    .filter(|claim| self.holds(&covered, claim))
                    .collect(),
                _ => Vec::new(),
            };
            change.add.extend(after.iter().filter(|claim| !before.contains(claim)));
            change.remove.extend(before.iter().filter(|claim| !after.contains(claim)));
            if *count == 0 {
                self.all.remove(&covered);
            } else if let Some((_, claims)) = self.all.get_mut(&covered) {
                *claims = after;
            }
        }
        change
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

    /// Whether a policy that passes packets opens its network.
    fn is_to_be_made(&self, covered: &Covered) -> bool {
        if covered.cover != Cover::Bypass {
            return true;
        }
        let harmless = |other: &Covered| {
            covered.local.covers(&other.local) && covered.priority < other.priority
        };
        covered.is_whole
            && self
                .by_remote
                .iter()
                .filter(|(remote, _)| remote.overlaps(&covered.remote))
                .all(|(_, policies)| policies.iter().all(harmless))
    }

    /// Whether a claim of a policy opens nothing that another one protects.
    fn holds(&self, covered: &Covered, claim: &Claim) -> bool {
        if claim.treatment != Treatment::Local {
            return true;
        }
        // Those around the network on this side: as many look-ups as an address has bits.
        let around = (0..covered.local.len()).filter_map(|len| {
            let around = Prefix::containing(covered.local.addr(), len).ok()?;
            self.by_remote.get(&around)
        });
        // Of two tunnels for everything from two networks here, neither is behind the other.
        !around.flatten().any(|other| other.local.covers(&covered.remote))
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
    }
}
