//! Prefix sets that follow policies as they come and go, one by one.

use std::collections::{BTreeMap, BTreeSet};

use convoy_host::Family;
use convoy_netlink::nft::{Cover, Difference, Range};
use ipnet::IpNet;

use crate::{
    marks::Verdict,
    policy_direction::PolicyDirection,
    ranges::{prefixes, range, version_of},
    sets::{ByDirection, Covers, Differences, Held, Prefixes, Shown, Which},
};

/// Treatment of packets between two networks, as one policy has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Policy {
    /// The network on this side; bits beyond the prefix are ignored.
    pub local: IpNet,
    /// The one on the remote side.
    pub remote: IpNet,
    /// True if all packets between the two are meant, and not some protocol or ports only.
    pub is_whole: bool,
    /// Action for these packets.
    pub verdict: Verdict,
    /// Direction of these packets; none for all.
    pub way: Option<PolicyDirection>,
}

impl Policy {
    /// True if it does not let packets pass in clear.
    #[must_use]
    pub const fn holds(&self) -> bool {
        !matches!(self.verdict, Verdict::Bypass)
    }

    fn version(&self) -> Family {
        version_of(self.local.addr())
    }

    fn goes(&self, way: PolicyDirection) -> bool {
        self.way.is_none_or(|only| only == way)
    }

    fn trunc(&self) -> Self {
        Self { local: self.local.trunc(), remote: self.remote.trunc(), ..*self }
    }
}

/// Local, remote and partly bypassed prefixes of policies, for each way that packets go. Packets that no policy means are not held:
/// between local and remote prefixes that is so where prefixes are partly bypassed.
///
/// A remote prefix is partly bypassed unless policies hold all that goes between it and every local one, and none that bypasses
/// touches it.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyPrefixes {
    families: ByDirection<OfFamily>,
}

/// Prefixes and how often each is named.
#[derive(Debug, Clone, Default)]
struct Counted {
    nets: BTreeMap<IpNet, usize>,
    cover: Cover,
    size: Size,
}

/// Extent of a cover: of two covers one of which lies within the other, those of one size are equal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Size {
    /// Sum of the distances between both ends of ranges.
    spans: u128,
    ranges: usize,
}

/// State of one remote prefix.
#[derive(Debug, Clone, Default)]
struct Remote {
    /// Policies that hold some of what is sent there.
    held: usize,
    /// Local networks with which policies let something pass, and how often.
    bypassing: BTreeMap<IpNet, usize>,
    /// Local networks from which policies hold all of it.
    whole: Counted,
    /// The previous run left it closed.
    is_left: bool,
    /// Extent of the local side that policies hold all for, those for wider remote prefixes included.
    reach: Size,
}

#[derive(Debug, Clone, Default)]
struct OfFamily {
    local: Counted,
    remote: BTreeMap<IpNet, Remote>,
    /// Lengths of these prefixes, and how many have each: those around another one are looked for among them alone.
    lengths: BTreeMap<u8, usize>,
    /// Local networks of policies that let something pass, each with its remote networks.
    bypassing: BTreeMap<IpNet, BTreeSet<IpNet>>,
    /// Remote prefixes by [`Remote::reach`].
    by_reach: BTreeMap<Size, BTreeSet<IpNet>>,
    /// Local and remote networks that the previous run left closed.
    left: BTreeSet<IpNet>,
    remote_left: BTreeSet<IpNet>,
    /// Prefixes of these that the last change ended.
    ended: Ended,
    remote_cover: Cover,
    partly_bypassed_cover: Cover,
}

/// Prefixes that the previous run left closed, and that are not any more.
#[derive(Debug, Clone, Default)]
struct Ended {
    local: BTreeSet<IpNet>,
    remote: Vec<IpNet>,
}

/// Something comes, or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Come,
    Go,
}

/// Changes of the local, remote and partly bypassed prefixes of one family.
type Notes<'a> = &'a mut Prefixes<Difference>;

impl PolicyPrefixes {
    /// Policies come and go; what that changes, and whether the kernel may have been told something else about packets
    /// that it asks about, or has asked about. Of those that go, each is to have come before.
    pub(crate) fn change(&mut self, add: &[Policy], remove: &[Policy]) -> (Differences, bool) {
        let policies = || add.iter().chain(remove);
        // Of packets that nobody held before, nothing was asked.
        let are_new = remove.is_empty() && !add.iter().any(|policy| self.holds_some_of(policy));
        let did_ask = policies().any(|policy| self.asks_about(policy));
        let differences = self.follow(add, remove);
        if are_new {
            return (differences, false);
        }
        let is_other = differences.iter().any(|(_, changes)| !changes.partly_bypassed.is_empty());
        (differences, did_ask || is_other || policies().any(|policy| self.asks_about(policy)))
    }

    /// True if some of the packets that a policy means are held, whichever way they go.
    fn holds_some_of(&self, policy: &Policy) -> bool {
        let (local, remote) = (range(&policy.local.trunc()), range(&policy.remote.trunc()));
        let is_held = |way: PolicyDirection, source, destination| {
            let family = self.families.of(way).of(policy.version());
            let (local, remote) = match way {
                PolicyDirection::Out => (source, destination),
                PolicyDirection::In | PolicyDirection::Forward => (destination, source),
            };
            family.local.cover.overlaps(local) && family.remote_cover.overlaps(remote)
        };
        let mut meant = PolicyDirection::ALL.into_iter().filter(|way| policy.goes(*way));
        meant.any(|way| match way {
            PolicyDirection::Out => {
                PolicyDirection::ALL.into_iter().any(|way| is_held(way, local, remote))
            }
            // What is for this host is not for others.
            PolicyDirection::In => [PolicyDirection::Out, PolicyDirection::In]
                .into_iter()
                .any(|way| is_held(way, remote, local)),
            PolicyDirection::Forward => [PolicyDirection::Out, PolicyDirection::Forward]
                .into_iter()
                .any(|way| is_held(way, remote, local)),
        })
    }

    fn follow(&mut self, add: &[Policy], remove: &[Policy]) -> Differences {
        self.noting(|family, of, notes| {
            family.ended = Ended::default();
            let mut concerned = Concerned::default();
            for (policies, turn) in [(add, Turn::Come), (remove, Turn::Go)] {
                for policy in policies.iter().filter(|policy| of.has(policy)) {
                    family.count(&policy.trunc(), turn, &mut concerned, notes);
                }
            }
            family.refresh(concerned, notes);
        })
    }

    /// Takes back the last change, in which these policies came and none went: also what the previous run left is as
    /// before. What that changes, and whether something was held less meanwhile.
    pub(crate) fn take_back(&mut self, came: &[Policy]) -> (Differences, bool) {
        let ended = self.families().any(|family| !family.ended.remote.is_empty());
        let differences = self.noting(|family, of, notes| {
            let mut concerned = Concerned::default();
            family.leave_again(&mut concerned, notes);
            for policy in came.iter().filter(|policy| of.has(policy)) {
                family.count(&policy.trunc(), Turn::Go, &mut concerned, notes);
            }
            family.refresh(concerned, notes);
        });
        (differences, ended)
    }

    /// Keeps what the previous run protected held as a whole, until policies name it again. Where policies hold all of it
    /// anyway, they alone count.
    pub(crate) fn leave(&mut self, covers: &Covers) -> Differences {
        self.noting(|family, Which { way, version }, notes| {
            let Prefixes { local, remote, .. } = covers.of(way).of(version);
            let nets = |cover: &Cover| -> Vec<IpNet> {
                cover.ranges().flat_map(|range| prefixes(range, version)).collect()
            };
            let mut concerned = Concerned::default();
            let remote = family.not_held_anyway(local, remote);
            if remote.ranges().next().is_none() {
                return;
            }
            for local in nets(local) {
                family.left.insert(local);
                family.local.count(local, Turn::Come, &mut notes.local);
            }
            for net in nets(&remote) {
                family.leave_remote(net);
                concerned.insert(net);
            }
            family.refresh(concerned, notes);
        })
    }

    /// Ends the hold on what the previous run left.
    pub(crate) fn settle(&mut self) -> Differences {
        self.noting(|family, _, notes| {
            let left = family.left_remote().collect::<Vec<_>>();
            let mut concerned = Concerned::default();
            left.into_iter().for_each(|net| family.end_left(net, &mut concerned, notes));
            family.refresh(concerned, notes);
        })
    }

    /// Remote prefixes that the previous run left closed and no policy has named since.
    pub(crate) fn left(&self) -> BTreeSet<IpNet> {
        self.families().flat_map(OfFamily::left_remote).collect()
    }

    /// Prefixes that the previous run left held, whatever policies say.
    pub(crate) fn held(&self) -> Held {
        Held::of(self.families.map(|_, family| Prefixes {
            local: family.left.iter().map(range).collect(),
            remote: family.left_remote().map(|net| range(&net)).collect(),
            partly_bypassed: Cover::default(),
        }))
    }

    /// True if nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.families().all(|family| family.local.nets.is_empty())
    }

    /// True if the kernel asks about some of the packets that a policy means.
    pub(crate) fn asks_about(&self, policy: &Policy) -> bool {
        let mut families = self.families.iter().filter(|(of, _)| of.has(policy));
        let (from, to) = range(&policy.remote.trunc());
        families.any(|(_, family)| family.partly_bypassed_cover.overlaps((from, to)))
    }

    pub(crate) fn covers(&self) -> Shown<'_> {
        self.families.map(|_, family| Prefixes {
            local: &family.local.cover,
            remote: &family.remote_cover,
            partly_bypassed: &family.partly_bypassed_cover,
        })
    }

    fn families(&self) -> impl Iterator<Item = &OfFamily> {
        self.families.iter().map(|(_, family)| family)
    }

    fn noting(&mut self, work: impl Fn(&mut OfFamily, Which, Notes<'_>)) -> Differences {
        let mut differences = Differences::default();
        let families = self.families.iter_mut().zip(differences.iter_mut());
        for ((which, family), (_, notes)) in families {
            work(family, which, notes);
        }
        differences
    }
}

impl Which {
    fn has(self, policy: &Policy) -> bool {
        policy.version() == self.version && policy.goes(self.way)
    }
}

/// Remote prefixes of which something may have changed.
type Concerned = BTreeSet<IpNet>;

impl OfFamily {
    fn count(&mut self, policy: &Policy, turn: Turn, concerned: &mut Concerned, notes: Notes<'_>) {
        let Policy { local, remote, is_whole, .. } = *policy;
        concerned.insert(remote);
        let state = enter(&mut self.remote, &mut self.lengths, remote);
        if !policy.holds() {
            let count = state.bypassing.entry(local).or_default();
            count_one(count, turn);
            let remotes = self.bypassing.entry(local).or_default();
            if *count > 0 {
                remotes.insert(remote);
            } else {
                state.bypassing.remove(&local);
                remotes.remove(&remote);
            }
            if remotes.is_empty() {
                self.bypassing.remove(&local);
            }
            return;
        }
        count_one(&mut state.held, turn);
        if is_whole {
            state.whole.count(local, turn, &mut Difference::default());
        }
        self.count_local(local, turn, concerned, notes);
        if turn == Turn::Come {
            let named: Vec<_> = self.left_remote().filter(|left| remote.contains(left)).collect();
            named.into_iter().for_each(|net| self.end_left(net, concerned, notes));
        }
    }

    /// Local networks come and go, and with them what it takes for a remote one to be held as a whole.
    fn count_local(&mut self, net: IpNet, turn: Turn, concerned: &mut Concerned, notes: Notes<'_>) {
        let before = self.local.size;
        self.local.count(net, turn, &mut notes.local);
        if self.local.size == before {
            return;
        }
        for size in [before, self.local.size] {
            concerned.extend(self.by_reach.get(&size).into_iter().flatten());
        }
        // Those that matter, or do so no more.
        let around = core::iter::successors(net.supernet(), IpNet::supernet);
        let around = around.filter_map(|local| self.bypassing.get(&local));
        let within = self.bypassing.range(net..).take_while(|(local, _)| net.contains(*local));
        concerned.extend(around.chain(within.map(|(_, remotes)| remotes)).flatten());
    }

    /// The part of a remote side that policies do not hold as a whole for all of a local side.
    fn not_held_anyway(&self, local: &Cover, remote: &Cover) -> Cover {
        if !local.without(&self.local.cover).is_empty() {
            return remote.clone();
        }
        let mut whole = self.remote_cover.clone();
        let partly_bypassed: Vec<_> = self.partly_bypassed_cover.ranges().collect();
        partly_bypassed
            .into_iter()
            .for_each(|range| whole.set(range, &[], &mut Difference::default()));
        remote.without(&whole).into_iter().collect()
    }

    fn left_remote(&self) -> impl Iterator<Item = IpNet> {
        self.remote_left.iter().copied()
    }

    fn leave_remote(&mut self, net: IpNet) {
        enter(&mut self.remote, &mut self.lengths, net).is_left = true;
        self.remote_left.insert(net);
    }

    fn end_left(&mut self, net: IpNet, concerned: &mut Concerned, notes: Notes<'_>) {
        if let Some(remote) = self.remote.get_mut(&net) {
            remote.is_left = false;
            self.remote_left.remove(&net);
            self.ended.remote.push(net);
        }
        concerned.insert(net);
        if self.left_remote().next().is_none() {
            for local in core::mem::take(&mut self.left) {
                self.count_local(local, Turn::Go, concerned, notes);
                self.ended.local.insert(local);
            }
        }
    }

    /// Holds again the prefixes of the previous run that the last change ended.
    fn leave_again(&mut self, concerned: &mut Concerned, notes: Notes<'_>) {
        let Ended { local, remote } = core::mem::take(&mut self.ended);
        for local in local {
            self.left.insert(local);
            self.count_local(local, Turn::Come, concerned, notes);
        }
        for net in remote {
            self.leave_remote(net);
            concerned.insert(net);
        }
    }

    /// Works out again what the policies say of remote prefixes, and those within them.
    fn refresh(&mut self, concerned: Concerned, notes: Notes<'_>) {
        let mut done: Option<IpNet> = None;
        for net in concerned {
            // Those within another come behind it.
            if done.is_some_and(|done| done.contains(&net)) {
                continue;
            }
            done = Some(net);
            for within in self.within(net) {
                self.weigh(within);
            }
            let (remote, partly_bypassed) = self.ranges_within(net);
            self.remote_cover.set(range(&net), &remote, &mut notes.remote);
            self.partly_bypassed_cover.set(
                range(&net),
                &partly_bypassed,
                &mut notes.partly_bypassed,
            );
        }
    }

    fn within(&self, net: IpNet) -> Vec<IpNet> {
        let nets = self.remote.range(net..).map(|(within, _)| *within);
        nets.take_while(|within| net.contains(within)).collect()
    }

    fn around(&self, net: IpNet) -> impl Iterator<Item = (IpNet, &Remote)> {
        let lengths = self.lengths.range(..=net.prefix_len()).rev();
        let nets = lengths.filter_map(move |(len, _)| IpNet::new(net.addr(), *len).ok());
        let nets = nets.map(|around| around.trunc());
        nets.filter_map(|net| self.remote.get(&net).map(|remote| (net, remote)))
    }

    /// Notes how much of the local side a remote prefix is held for, or forgets it.
    fn weigh(&mut self, net: IpNet) {
        let Some(remote) = self.remote.get(&net) else { return };
        let before = remote.reach;
        let is_named = remote.is_held() || !remote.bypassing.is_empty();
        let reach = self.reach(net);
        if let Some(nets) = self.by_reach.get_mut(&before) {
            nets.remove(&net);
            if nets.is_empty() {
                self.by_reach.remove(&before);
            }
        }
        if !is_named {
            self.remote.remove(&net);
            let count = self.lengths.entry(net.prefix_len()).or_default();
            count_one(count, Turn::Go);
            if *count == 0 {
                self.lengths.remove(&net.prefix_len());
            }
        } else if let Some(remote) = self.remote.get_mut(&net) {
            remote.reach = reach;
            self.by_reach.entry(reach).or_default().insert(net);
        }
    }

    fn reach(&self, net: IpNet) -> Size {
        let mut parts = self
            .around(net)
            .filter(|(_, remote)| remote.is_left || remote.whole.size != Size::default());
        match (parts.next(), parts.next()) {
            (None, _) => Size::default(),
            (Some((_, only)), None) if !only.is_left => only.whole.size,
            _ => {
                let mut all = Counted::default();
                let covers = self.around(net).flat_map(|(_, remote)| {
                    let left = self.left.iter().filter(|_| remote.is_left);
                    remote.whole.nets.keys().chain(left)
                });
                covers.for_each(|local| all.count(*local, Turn::Come, &mut Difference::default()));
                all.size
            }
        }
    }

    /// True if packets to a remote prefix, and not to one within it that policies name, have to be asked about.
    fn is_partly_bypassed(&self, net: IpNet) -> bool {
        let Some(remote) = self.remote.get(&net) else { return false };
        remote.reach != self.local.size
            || self.around(net).any(|(_, remote)| {
                remote.bypassing.keys().any(|local| self.local.cover.overlaps(range(local)))
            })
    }

    /// Remote and partly bypassed ranges within a prefix: of several prefixes around an address the longest decides.
    fn ranges_within(&self, net: IpNet) -> (Vec<Range>, Vec<Range>) {
        let (mut remote, mut partly_bypassed) = (Cover::default(), Cover::default());
        let note = &mut Difference::default();
        let is_held = self.around(net).any(|(_, remote)| remote.is_held());
        let mut put = |at: IpNet, is_held: bool, is_partly_bypassed: bool| {
            let range = range(&at);
            let ranges = [range];
            if is_held {
                remote.set(range, &ranges, note);
            }
            let partly_bypassed_ranges: &[Range] =
                if is_held && is_partly_bypassed { &ranges } else { &[] };
            partly_bypassed.set(range, partly_bypassed_ranges, note);
        };
        let decides = self.around(net).next().map(|(decides, _)| decides);
        put(net, is_held, decides.is_some_and(|decides| self.is_partly_bypassed(decides)));
        // Wider ones come first.
        let mut held: Vec<IpNet> = if is_held { vec![net] } else { Vec::new() };
        for within in self.within(net).into_iter().filter(|within| *within != net) {
            held.retain(|around| around.contains(&within));
            let remote = self.remote.get(&within);
            if remote.is_some_and(|remote| remote.is_held()) {
                held.push(within);
            }
            put(within, !held.is_empty(), self.is_partly_bypassed(within));
        }
        (remote.ranges().collect(), partly_bypassed.ranges().collect())
    }
}

impl Remote {
    fn is_held(&self) -> bool {
        self.held > 0 || self.is_left
    }
}

impl Counted {
    fn count(&mut self, net: IpNet, turn: Turn, note: &mut Difference) {
        let count = self.nets.entry(net).or_default();
        count_one(count, turn);
        let is_gone = *count == 0;
        if is_gone {
            self.nets.remove(&net);
        } else if *count > 1 {
            return;
        }
        let around = core::iter::successors(net.supernet(), IpNet::supernet);
        if around.into_iter().any(|around| self.nets.contains_key(&around)) {
            return;
        }
        let mut covered = Vec::new();
        if is_gone {
            let mut last: Option<IpNet> = None;
            for (within, _) in
                self.nets.range(net..).take_while(|(within, _)| net.contains(*within))
            {
                if last.is_none_or(|last| !last.contains(within)) {
                    covered.push(range(within));
                    last = Some(*within);
                }
            }
        } else {
            covered.push(range(&net));
        }
        let mut change = Difference::default();
        self.cover.set(range(&net), &covered, &mut change);
        for (from, to) in change.removed() {
            self.size.spans = self.size.spans.wrapping_sub(to - from);
            self.size.ranges = self.size.ranges.saturating_sub(1);
        }
        for (from, to) in change.added() {
            self.size.spans = self.size.spans.wrapping_add(to - from);
            self.size.ranges = self.size.ranges.saturating_add(1);
        }
        note.add(&change);
    }
}

/// A remote prefix, which is new unless it is known.
fn enter<'a>(
    remote: &'a mut BTreeMap<IpNet, Remote>,
    lengths: &mut BTreeMap<u8, usize>,
    net: IpNet,
) -> &'a mut Remote {
    remote.entry(net).or_insert_with(|| {
        *lengths.entry(net.prefix_len()).or_default() += 1;
        Remote::default()
    })
}

fn count_one(count: &mut usize, turn: Turn) {
    *count = match turn {
        Turn::Come => count.saturating_add(1),
        Turn::Go => count.saturating_sub(1),
    };
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::sets::differ;

    fn policy(local: &str, remote: &str, verdict: Verdict) -> Policy {
        let [local, remote] = [local, remote].map(|text| text.parse().unwrap());
        Policy { local, remote, is_whole: true, verdict, way: None }
    }

    fn protect(local: &str, remote: &str) -> Policy {
        policy(local, remote, Verdict::Protect)
    }

    /// Remote prefixes, and the partly bypassed ones among them.
    fn remote_and_partly_bypassed(policies: &[Policy]) -> [Vec<String>; 2] {
        let mut prefixes = PolicyPrefixes::default();
        let _ = prefixes.change(policies, &[]);
        let of = prefixes.covers().out;
        [(of.v4.remote, of.v6.remote), (of.v4.partly_bypassed, of.v6.partly_bypassed)].map(
            |(v4, v6)| {
                let nets = |cover: &Cover, version| {
                    let ranges: Vec<_> = cover.ranges().collect();
                    ranges
                        .into_iter()
                        .flat_map(move |range| crate::ranges::prefixes(range, version))
                };
                nets(v4, Family::V4)
                    .chain(nets(v6, Family::V6))
                    .map(|net| net.to_string())
                    .collect()
            },
        )
    }

    #[test]
    fn nothing_is_asked_where_policies_hold_all_between_near_and_far() {
        let one = remote_and_partly_bypassed(&[protect("10.1.0.0/16", "10.2.0.0/16")]);
        assert_eq!(one, [vec!["10.2.0.0/16"], vec![]]);
        let spokes = [protect("0.0.0.0/0", "10.9.0.1/32"), protect("0.0.0.0/0", "10.9.0.2/32")];
        assert_eq!(remote_and_partly_bypassed(&spokes)[1], [""; 0]);
        let halves = [protect("10.0.0.0/9", "10.2.0.0/16"), protect("10.128.0.0/9", "10.2.0.0/16")];
        assert_eq!(remote_and_partly_bypassed(&halves)[1], [""; 0]);
        let whole = protect("::/0", "2001:db8:2::/48");
        assert_eq!(remote_and_partly_bypassed(&[whole]), [vec!["2001:db8:2::/48"], vec![]]);
        let part = Policy { is_whole: false, ..whole };
        assert_eq!(remote_and_partly_bypassed(&[part])[1], ["2001:db8:2::/48"]);
        assert_eq!(remote_and_partly_bypassed(&[whole, part])[1], [""; 0]);
    }

    #[test]
    fn what_is_held_for_some_of_the_near_side_is_asked_about() {
        let apart = [protect("10.1.0.0/16", "10.2.0.0/16"), protect("10.5.0.0/16", "10.6.0.0/16")];
        assert_eq!(remote_and_partly_bypassed(&apart)[1], ["10.2.0.0/16", "10.6.0.0/16"]);
        // One of them sees all.
        let all = [protect("0.0.0.0/0", "10.2.0.0/16"), protect("10.5.0.0/16", "10.6.0.0/16")];
        assert_eq!(remote_and_partly_bypassed(&all)[1], ["10.6.0.0/16"]);
        // What is wider counts for what is within.
        let wide = [protect("10.1.0.0/16", "10.0.0.0/8"), protect("10.5.0.0/16", "10.6.0.0/16")];
        let partly_bypassed = remote_and_partly_bypassed(&wide)[1].clone();
        assert!(
            !partly_bypassed.contains(&"10.6.0.0/16".to_owned())
                && partly_bypassed.contains(&"10.8.0.0/13".to_owned())
        );
    }

    #[test]
    fn what_is_bypassed_within_is_asked_about() {
        let all = protect("10.1.0.0/24", "0.0.0.0/0");
        let lan = policy("10.1.0.0/16", "192.0.2.0/24", Verdict::Bypass);
        assert_eq!(remote_and_partly_bypassed(&[all, lan])[1], ["192.0.2.0/24"]);
        let others = policy("10.7.0.0/16", "192.0.2.0/24", Verdict::Bypass);
        assert_eq!(remote_and_partly_bypassed(&[all, others])[1], [""; 0]);
        assert_eq!(remote_and_partly_bypassed(&[lan])[1], [""; 0]);
        let everything = policy("0.0.0.0/0", "0.0.0.0/0", Verdict::Bypass);
        let one = protect("10.1.0.0/24", "10.2.0.0/24");
        assert_eq!(
            remote_and_partly_bypassed(&[one, everything]),
            [["10.2.0.0/24"], ["10.2.0.0/24"]]
        );
    }

    /// A policy of one way.
    fn one_way(way: PolicyDirection, local: &str, remote: &str) -> Policy {
        Policy { way: Some(way), ..protect(local, remote) }
    }

    #[test]
    fn answers_are_forgotten_only_about_packets_that_were_held_before() {
        let mut prefixes = PolicyPrefixes::default();
        let mut come = |way, local, remote| prefixes.change(&[one_way(way, local, remote)], &[]).1;
        let [local, remote] = ["10.1.0.0/16", "10.2.0.0/16"];
        // A daemon's tunnels, one after the other.
        for way in PolicyDirection::ALL {
            assert!(
                !come(way, local, remote) && !come(way, "10.5.0.0/16", "10.6.0.0/16"),
                "{way:?}"
            );
        }
        // Between the networks of two policies packets were asked about.
        for way in PolicyDirection::ALL {
            assert!(come(way, local, "10.6.0.0/16"), "{way:?}");
        }
        // Those that came in for others were answered for both ways.
        assert!(come(PolicyDirection::Out, "10.6.7.0/24", "10.5.7.0/24"));
        assert!(come(PolicyDirection::Forward, "10.2.0.0/24", "10.1.0.0/24"));
        // What goes is remembered.
        let one = one_way(PolicyDirection::Out, "10.8.0.0/16", "10.9.0.0/16");
        assert!(!prefixes.change(&[one], &[]).1);
        assert!(prefixes.change(&[], &[one]).1);
    }

    /// The number of policies has no effect on the cost of one that comes.
    #[test]
    fn a_policy_costs_the_same_among_many() {
        let policies = || {
            (0_u32..60_000).map(|number| {
                let net = |first: u32| {
                    let address = Ipv4Addr::from_bits((first << 24) + (number << 8));
                    IpNet::new(address.into(), 24).unwrap()
                };
                let (local, remote, way) = (net(10), net(172), Some(PolicyDirection::Out));
                Policy { local, remote, is_whole: true, verdict: Verdict::Discard, way }
            })
        };
        let took = |prefixes: &mut PolicyPrefixes, policies: &mut dyn Iterator<Item = Policy>| {
            let begun = std::time::Instant::now();
            for policy in policies.take(200) {
                let _ = prefixes.change(&[policy], &[]);
                let _ = prefixes.held();
            }
            begun.elapsed()
        };
        let (mut few, mut many) = (PolicyPrefixes::default(), PolicyPrefixes::default());
        let (mut to_few, mut to_many) = (policies(), policies());
        for _ in 0..35_000 / 200 {
            took(&mut many, &mut to_many);
        }
        // In turn, as others use the processor, too.
        let pairs: Vec<_> =
            (0..20).map(|_| (took(&mut few, &mut to_few), took(&mut many, &mut to_many))).collect();
        let few = pairs.iter().map(|(few, _)| *few).min().unwrap();
        let many = pairs.iter().map(|(_, many)| *many).min().unwrap();
        assert!(many < few * 6, "{few:?} among a few thousand, {many:?} among 36,000");
    }

    #[test]
    fn what_an_earlier_life_left_is_held_until_it_is_named() {
        let mut before = PolicyPrefixes::default();
        let _ = before.change(&[protect("10.1.0.0/16", "10.2.0.0/15")], &[]);
        let mut prefixes = PolicyPrefixes::default();
        let _ = prefixes.leave(&before.covers().cloned());
        assert_eq!(prefixes.covers(), before.covers());
        let ends = ["10.1.0.5", "10.3.0.5"].map(|text| text.parse::<IpAddr>().unwrap());
        let is_held = |prefixes: &PolicyPrefixes| {
            PolicyDirection::ALL.map(|way| prefixes.held().holds(way, ends[0], ends[1]))
        };
        assert_eq!(is_held(&prefixes), [true; 3]);
        let one_way =
            Policy { way: Some(PolicyDirection::In), ..protect("10.1.0.0/24", "10.2.0.0/15") };
        let mut claimed = prefixes.clone();
        let _ = claimed.change(&[one_way], &[]);
        assert_eq!(is_held(&claimed), [true, false, true]);
        let _ = prefixes.change(&[protect("10.1.0.0/24", "10.2.0.0/15")], &[]);
        assert_eq!(is_held(&prefixes), [false; 3]);
        assert_eq!(prefixes.left().len(), 0);
        let mut prefixes = PolicyPrefixes::default();
        let _ = prefixes.leave(&before.covers().cloned());
        let _ = prefixes.settle();
        assert!(prefixes.is_empty());
        assert_eq!(prefixes.covers(), Covers::default().each_ref());
    }

    #[test]
    fn what_policies_hold_anyway_is_not_left_by_an_earlier_life() {
        let one = protect("10.1.0.0/16", "10.2.0.0/16");
        let left_to = |policies: &[Policy], before: &[Policy]| {
            let mut earlier = PolicyPrefixes::default();
            let _ = earlier.change(before, &[]);
            let mut prefixes = PolicyPrefixes::default();
            let _ = prefixes.change(policies, &[]);
            let _ = prefixes.leave(&earlier.covers().cloned());
            // Whatever it was, it stays closed.
            let (now, then) = (prefixes.covers().out.v4, earlier.covers().out.v4);
            assert!(then.local.without(now.local).is_empty());
            assert!(then.remote.without(now.remote).is_empty());
            prefixes.left().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(left_to(&[one], &[one]), [""; 0]);
        let other = protect("10.1.0.0/24", "10.3.0.0/16");
        assert_eq!(left_to(&[one], &[one, other]), ["10.3.0.0/16"]);
        // For others on the local side, and for some protocol only, it is not known who protected it.
        let others = protect("10.5.0.0/16", "10.2.0.0/24");
        assert_eq!(left_to(&[one], &[one, others]), ["10.2.0.0/16"]);
        let part = Policy { is_whole: false, ..one };
        assert_eq!(left_to(&[part], &[one]), ["10.2.0.0/16"]);
    }

    #[test]
    fn a_change_that_is_taken_back_leaves_all_as_it_was() {
        let mut state = 9_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut ended_count = 0;
        for _ in 0..2000 {
            let mut some = |count: u64| -> Vec<Policy> {
                let net = |random: &mut dyn FnMut(u64) -> u64| {
                    let address = Ipv4Addr::from_bits(0x0a00_0000 + random(8) as u32);
                    IpNet::new(address.into(), [29, 30, 31, 32][random(4) as usize]).unwrap()
                };
                let one = |_| {
                    let (local, remote) = (net(&mut random), net(&mut random));
                    let verdict = [Verdict::Protect, Verdict::Discard, Verdict::Bypass];
                    let verdict = verdict[random(3) as usize];
                    let way = [
                        None,
                        Some(PolicyDirection::Out),
                        Some(PolicyDirection::In),
                        Some(PolicyDirection::Forward),
                    ];
                    let way = way[random(4) as usize];
                    Policy { local, remote, is_whole: random(4) > 0, verdict, way }
                };
                (0..count).map(one).collect()
            };
            let (mut earlier, mut prefixes) =
                (PolicyPrefixes::default(), PolicyPrefixes::default());
            let _ = earlier.change(&some(3), &[]);
            let _ = prefixes.leave(&earlier.covers().cloned());
            for come in [some(1), some(2), some(1)] {
                let shown = |prefixes: &PolicyPrefixes| {
                    let left = prefixes.left();
                    (prefixes.covers().cloned(), format!("{:?}", prefixes.held()), left)
                };
                let before = shown(&prefixes);
                let _ = prefixes.change(&come, &[]);
                let meanwhile = prefixes.covers().cloned();
                let (changes, ended) = prefixes.take_back(&come);
                assert_eq!(shown(&prefixes), before, "{come:?}");
                let both = meanwhile.each().zip(before.0.each());
                for ((from, to), change) in both.zip(changes.each()) {
                    let mut note = Difference::default();
                    differ(from, to, &mut note);
                    let both = |of: &Difference| {
                        (of.added().collect::<BTreeSet<_>>(), of.removed().collect::<BTreeSet<_>>())
                    };
                    assert_eq!(both(&note), both(change), "{come:?}");
                }
                ended_count += u32::from(ended);
                let _ = prefixes.change(&come, &[]);
            }
        }
        assert!(ended_count > 500, "{ended_count}");
    }

    /// True if the address is remote, and true if it is partly bypassed, by the definition.
    fn by_definition(
        policies: &[Policy],
        way: PolicyDirection,
        local: &[IpAddr],
        remote: IpAddr,
    ) -> (bool, bool) {
        let policies: Vec<_> = policies.iter().filter(|policy| policy.goes(way)).collect();
        let holding = || policies.iter().filter(|policy| policy.holds());
        let is_remote = holding().any(|policy| policy.remote.contains(&remote));
        let local: Vec<_> = local
            .iter()
            .filter(|local| holding().any(|policy| policy.local.contains(*local)))
            .collect();
        let is_held = |local: &IpAddr| {
            let mut whole = holding().filter(|policy| policy.is_whole);
            whole.any(|policy| policy.local.contains(local) && policy.remote.contains(&remote))
        };
        let passes = |local: &IpAddr| {
            let mut bypassing = policies.iter().filter(|policy| !policy.holds());
            bypassing.any(|policy| policy.local.contains(local) && policy.remote.contains(&remote))
        };
        let is_partly_bypassed = local.iter().any(|local| !is_held(local) || passes(local));
        (is_remote, is_remote && is_partly_bypassed)
    }

    #[test]
    fn prefixes_are_what_policies_say_however_they_come_and_go() {
        let mut state = 5_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let place = |n: u64| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + n as u32));
        let places: Vec<_> = (0..9).map(place).collect();
        let mut mixed_count = [0_u32; 2];
        for _ in 0..3000 {
            let mut prefixes = PolicyPrefixes::default();
            let mut there: Vec<Policy> = Vec::new();
            let mut before = prefixes.covers().cloned();
            for _ in 0..12 {
                let (mut add, mut remove) = (Vec::new(), Vec::new());
                for _ in 0..=random(2) {
                    if there.is_empty() || random(3) > 0 {
                        let mut net = || {
                            let len = [0, 29, 30, 31, 32][random(5) as usize];
                            IpNet::new(place(random(8)), len).unwrap()
                        };
                        let (local, remote) = (net(), net());
                        let verdict =
                            [Verdict::Protect, Verdict::Protect, Verdict::Discard, Verdict::Bypass];
                        let verdict = verdict[random(4) as usize];
                        let is_whole = random(4) > 0;
                        let way = [
                            None,
                            Some(PolicyDirection::Out),
                            Some(PolicyDirection::In),
                            Some(PolicyDirection::Forward),
                        ];
                        let way = way[random(4) as usize];
                        add.push(Policy { local, remote, is_whole, verdict, way });
                    } else {
                        remove.push(there.swap_remove(random(there.len() as u64) as usize));
                    }
                }
                there.extend(&add);
                let (changes, _) = prefixes.change(&add, &remove);
                let covers = prefixes.covers().cloned();
                for ((before, after), change) in
                    before.each().zip(covers.each()).zip(changes.each())
                {
                    let mut note = Difference::default();
                    differ(before, after, &mut note);
                    let both = |of: &Difference| {
                        (of.added().collect::<BTreeSet<_>>(), of.removed().collect::<BTreeSet<_>>())
                    };
                    assert_eq!(both(&note), both(change), "{there:?}");
                }
                for (remote, way) in
                    places.iter().flat_map(|remote| PolicyDirection::ALL.map(|way| (remote, way)))
                {
                    let of = &covers.of(way).v4;
                    let (is_remote, is_partly_bypassed) =
                        by_definition(&there, way, &places, *remote);
                    let shown = (of.remote.contains(*remote), of.partly_bypassed.contains(*remote));
                    assert_eq!(
                        shown,
                        (is_remote, is_partly_bypassed),
                        "{way:?} {remote}: {there:#?}"
                    );
                    mixed_count[usize::from(is_partly_bypassed)] += 1;
                    let mut holding = there.iter().filter(|it| it.holds() && it.goes(way));
                    assert_eq!(
                        of.local.contains(*remote),
                        holding.any(|it| it.local.contains(remote))
                    );
                }
                before = covers;
            }
        }
        assert!(mixed_count.iter().all(|count| *count > 10_000), "{mixed_count:?}");
    }
}
