//! The security policy database (RFC 4301 section 4.4.1): ordered policies, and the look-up.
//!
//! A packet asks the [`FlowCache`] first. What that does not know goes to an index whose cost does
//! not depend on how many policies there are, but on how many *shapes* they have: lengths of
//! prefixes, whether there is a protocol, what is asked of ports (`spd/shape.rs`). Each shape has a
//! hash table (`spd/tuples.rs`). [`linear::LinearSpd`] is what tests compare with.
//!
//! An [`Spd`] is cheap to clone, and a clone shares with it what neither has changed.

mod cache;
mod hosts;
pub mod linear;
mod networks;
mod policy;
mod shape;
mod transit;
mod tuples;
mod uses;

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use convoy_wire::{FlowKey, IpVersion, Prefix};

pub use crate::selector::Direction;
use crate::selector::Selector;
use crate::table::{MAX_SLOTS, PagedTable};
use cache::CHUNK;
pub use cache::FlowCache;
use hosts::Hosts;
pub use policy::{Decision, MeantFor, Policy, PolicyAction, PolicyId, SpdError, SpdId};
use shape::{Address, Place};
pub use transit::KnownNetworks;
use transit::Transit;
use tuples::{Entry, Probe, Rank, TupleSpace};
pub use uses::PolicyUse;
pub(crate) use uses::Tally;

/// Numbers between policies that were added one after another, for others to come between.
const GAP: u32 = 1 << 10;

/// A policy and where it stands among those of its priority.
#[derive(Clone, Debug)]
struct Stored {
    policy: Arc<Policy>,
    meant_for: MeantFor,
    order: u32,
    /// Counts of what it decided.
    uses: Arc<PolicyUse>,
}

impl Stored {
    fn rank(&self) -> Rank {
        Rank::from(self.policy.priority) << 32 | Rank::from(self.order)
    }
}

/// The index of one direction.
#[derive(Clone, Debug, Default)]
struct Side {
    v4: TupleSpace<u32>,
    v6: TupleSpace<u128>,
}

/// The policies of all directions. Without policies, no packet has one.
#[derive(Clone, Debug, Default)]
pub struct Spd {
    policies: PagedTable<Stored>,
    /// Numbers of policies that went, to be used again.
    free: Arc<Vec<u32>>,
    /// One past the highest number ever used.
    end: u32,
    /// No policy's order is above.
    last: u32,
    /// Tells these policies from all others of this process; 0 for none at all.
    stamp: u64,
    outbound: Side,
    /// Policies for what comes in for this host.
    inbound: Side,
    /// Policies for what comes in for others.
    forwarded: Side,
    /// Number of policies that are in one of these two alone.
    one_sided: usize,
    /// This host's addresses, once they are known.
    hosts: Option<Hosts>,
    transit: Transit,
}

impl Spd {
    /// A database of these policies.
    ///
    /// # Errors
    /// [`SpdError`]; see [`Spd::insert`].
    pub fn new(policies: impl IntoIterator<Item = Policy>) -> Result<Self, SpdError> {
        let mut spd = Self::default();
        for policy in policies {
            spd.insert(policy)?;
        }
        Ok(spd)
    }

    /// Adds a policy behind all others.
    ///
    /// # Errors
    /// [`SpdError`] when one with the same direction, selector and priority is there, when it means
    /// no packet, or when it does not fit. Then nothing has changed.
    pub fn insert(&mut self, policy: Policy) -> Result<PolicyId, SpdError> {
        if self.last > u32::MAX - 2 * GAP {
            self.renumber();
        }
        self.insert_at(policy, MeantFor::Anybody, self.last + GAP)
    }

    /// The same of an inbound policy that may mean some packets only.
    ///
    /// # Errors
    /// As for [`Spd::insert`].
    pub fn insert_for(
        &mut self,
        meant_for: MeantFor,
        policy: Policy,
    ) -> Result<PolicyId, SpdError> {
        if self.last > u32::MAX - 2 * GAP {
            self.renumber();
        }
        self.insert_at(policy, meant_for, self.last + GAP)
    }

    /// Adds a policy behind one and before another, whatever their priorities: among policies of one
    /// priority it decides after what is before it and before what is behind. `None` stands for the
    /// beginning or the end of all. `more` says how many others will come to the same place, behind
    /// this one, so that there is room.
    ///
    /// # Errors
    /// As for [`Spd::insert`]; [`SpdError::NoPlace`] when the two policies are not there, are not in
    /// this order, or too many have come between them.
    pub fn insert_between(
        &mut self,
        policy: Policy,
        after: Option<PolicyId>,
        before: Option<PolicyId>,
        more: u32,
    ) -> Result<PolicyId, SpdError> {
        let order = |id: PolicyId| Some(self.policies.get(id.0)?.order);
        let low = after.map_or(Some(0), order).ok_or(SpdError::NoPlace)?;
        let Some(before) = before else {
            let low = low.max(self.last);
            let order = low.checked_add(GAP).filter(|order| *order < u32::MAX);
            return self.insert_at(policy, MeantFor::Anybody, order.ok_or(SpdError::NoPlace)?);
        };
        let high = order(before).ok_or(SpdError::NoPlace)?;
        let room = high.checked_sub(low).ok_or(SpdError::NoPlace)?;
        let step = room / more.saturating_add(2);
        if step == 0 {
            return Err(SpdError::NoPlace);
        }
        self.insert_at(policy, MeantFor::Anybody, low + step)
    }

    fn insert_at(
        &mut self,
        policy: Policy,
        meant_for: MeantFor,
        order: u32,
    ) -> Result<PolicyId, SpdError> {
        let selector = oriented(&policy);
        let (v4, v6) = (Place::of(&selector), Place::of(&selector));
        for side in self.sides(policy.direction, meant_for) {
            self.is_new(side, &policy, v4.as_ref(), v6.as_ref())?;
        }
        let id = PolicyId(self.free.last().copied().unwrap_or(self.end));
        if id.0 >= MAX_SLOTS {
            return Err(SpdError::Full);
        }
        let stored = Stored { policy: Arc::new(policy), meant_for, order, uses: Arc::default() };
        for side in self.sides_mut(stored.policy.direction, meant_for) {
            side.insert(id, &stored, v4.as_ref(), v6.as_ref());
        }
        self.one_sided += usize::from(meant_for != MeantFor::Anybody);
        self.transit.add(&stored.policy);
        self.policies.insert(id.0, stored);
        if Arc::make_mut(&mut self.free).pop().is_none() {
            self.end += 1;
        }
        self.last = self.last.max(order);
        self.stamp = new_stamp();
        Ok(id)
    }

    /// Refuses a policy that means nothing, is there already, or does not fit.
    fn is_new(
        &self,
        side: &Side,
        policy: &Policy,
        v4: Option<&Place<u32>>,
        v6: Option<&Place<u128>>,
    ) -> Result<(), SpdError> {
        let in_v4 = v4.into_iter().flat_map(|place| side.v4.at(place));
        let in_v6 = v6.into_iter().flat_map(|place| side.v6.at(place));
        for entry in in_v4.chain(in_v6) {
            let other = self.policies.get(entry.decision.id.0).map(|stored| &stored.policy);
            if let Some(other) = other
                && (other.priority, other.selector) == (policy.priority, policy.selector)
            {
                let (first, second) = (other.name.clone(), policy.name.clone());
                return Err(SpdError::Duplicate { first, second });
            }
        }
        if v4.is_none() && v6.is_none() {
            return Err(SpdError::Nothing(policy.name.clone()));
        }
        v4.map_or(Ok(()), |place| side.v4.has_room(place))?;
        v6.map_or(Ok(()), |place| side.v6.has_room(place))
    }

    /// Removes a policy.
    pub fn remove(&mut self, id: PolicyId) -> Option<Arc<Policy>> {
        let stored = self.policies.remove(id.0)?;
        for side in self.sides_mut(stored.policy.direction, stored.meant_for) {
            side.remove(&stored);
        }
        self.one_sided -= usize::from(stored.meant_for != MeantFor::Anybody);
        self.transit.remove(&stored.policy);
        Arc::make_mut(&mut self.free).push(id.0);
        self.stamp = new_stamp();
        Some(stored.policy)
    }

    /// Gives all policies new orders, with gaps between.
    fn renumber(&mut self) {
        let mut all: Vec<_> = self.policies.iter().map(|(id, s)| (s.order, id)).collect();
        all.sort_unstable();
        (self.outbound, self.inbound, self.forwarded) = <_>::default();
        self.last = 0;
        for (_, id) in all {
            let Some(mut stored) = self.policies.get(id).cloned() else { continue };
            self.last += GAP;
            stored.order = self.last;
            let selector = oriented(&stored.policy);
            let (v4, v6) = (Place::of(&selector), Place::of(&selector));
            for side in self.sides_mut(stored.policy.direction, stored.meant_for) {
                side.insert(PolicyId(id), &stored, v4.as_ref(), v6.as_ref());
            }
            self.policies.insert(id, stored);
        }
        self.stamp = new_stamp();
    }

    /// The policy that decides about a packet with this key; `None`: it is to be discarded
    /// (RFC 4301 section 5.1).
    #[must_use]
    pub fn lookup(&self, direction: Direction, key: &FlowKey) -> Option<Decision> {
        match direction {
            Direction::Outbound => self.outbound.lookup(key),
            Direction::Inbound => self.lookup_for(self.recipient(key), key),
        }
    }

    /// The same of a packet that came in, and that is for these: of those for anybody the stricter answer counts.
    #[must_use]
    pub fn lookup_for(&self, meant_for: MeantFor, key: &FlowKey) -> Option<Decision> {
        match meant_for {
            MeantFor::Host => self.inbound.lookup(key),
            MeantFor::Others => self.forwarded.lookup(key),
            MeantFor::Anybody => stricter(self.inbound.lookup(key), self.forwarded.lookup(key)),
        }
    }

    /// Knows which addresses are this host's from now on.
    pub fn know_hosts(&mut self, addresses: &[Prefix]) {
        self.hosts = Some(Hosts::new(addresses));
        self.stamp = new_stamp();
    }

    /// For whom a packet that came in is, as far as policies ask.
    fn recipient(&self, key: &FlowKey) -> MeantFor {
        match &self.hosts {
            // Both sides are the same.
            _ if self.one_sided == 0 => MeantFor::Host,
            None => MeantFor::Anybody,
            Some(hosts) if hosts.have(key) => MeantFor::Host,
            Some(_) => MeantFor::Others,
        }
    }

    /// [`Spd::lookup`] for a burst: one answer into `out` for each key, as far as both go.
    ///
    /// `cache` must be used for one direction only.
    pub fn lookup_burst<K: AsRef<FlowKey>>(
        &self,
        direction: Direction,
        keys: &[K],
        cache: &mut FlowCache,
        out: &mut [Option<Decision>],
    ) {
        cache.follow(self.stamp);
        for (keys, out) in keys.chunks(CHUNK).zip(out.chunks_mut(CHUNK)) {
            cache.split(keys, out, |_| {});
            let (v4, v6) = (&mut cache.scratch.v4, &mut cache.scratch.v6);
            if v4.is_empty() && v6.is_empty() {
                continue;
            }
            match direction {
                Direction::Outbound => self.outbound.search(v4, v6, keys),
                Direction::Inbound => self.search_inbound(v4, v6, keys),
            }
            cache.learn(keys, out, |_| {});
        }
    }

    /// Has outbound policies decide about packets that come out of tunnels and go on into others; `None`: all
    /// go to the plain side.
    pub fn send_on(&mut self, networks: Option<&KnownNetworks>) {
        let networks = networks.filter(|networks| !networks.stays);
        self.transit.know(networks);
        self.stamp = new_stamp();
    }

    /// True if an outbound policy protects or discards a packet that is on its way to the plain side, instead
    /// of it getting there.
    #[must_use]
    pub fn sends_on(&self, flow: &FlowKey) -> bool {
        self.transit.is_on()
            && self.lookup(Direction::Outbound, flow).is_some_and(|found| self.decides(found, flow))
    }

    /// The same of a packet that came out of a tunnel. One whose source no other host may have is for the host
    /// to judge.
    #[must_use]
    pub fn goes_on(&self, flow: &FlowKey) -> bool {
        self.sends_on(flow) && !self.transit.is_martian(flow)
    }

    /// True if a packet is for somebody behind a tunnel, whatever policies say of it.
    #[must_use]
    pub fn is_behind_tunnel(&self, flow: &FlowKey) -> bool {
        self.transit.is_behind_tunnel(flow)
    }

    fn decides(&self, found: Decision, flow: &FlowKey) -> bool {
        self.policy(found.id).is_some_and(|policy| self.transit.decides(policy, flow))
    }

    /// [`Spd::lookup_burst`] for packets that came out of tunnels. Says of which [`Spd::goes_on`] is true, by their
    /// places, and only of such as a policy lets in.
    ///
    /// `cache` must be used for this alone.
    pub(crate) fn lookup_inbound<K: AsRef<FlowKey>>(
        &self,
        keys: &[K],
        cache: &mut FlowCache,
        out: &mut [Option<Decision>],
        mut goes_on: impl FnMut(usize),
    ) {
        cache.follow(self.stamp);
        let chunks = keys.chunks(CHUNK).zip(out.chunks_mut(CHUNK));
        for ((keys, out), before) in chunks.zip((0..).step_by(CHUNK)) {
            cache.split(keys, out, |at| goes_on(before + at));
            let (v4, v6) = (&mut cache.scratch.v4, &mut cache.scratch.v6);
            if v4.is_empty() && v6.is_empty() {
                continue;
            }
            self.search_inbound(v4, v6, keys);
            if self.transit.is_on() {
                self.mark(&self.outbound.v4, v4, &mut cache.scratch.onward_v4, keys);
                self.mark(&self.outbound.v6, v6, &mut cache.scratch.onward_v6, keys);
            }
            cache.learn(keys, out, |at| goes_on(before + at));
        }
    }

    /// Looks up packets that came in.
    fn search_inbound<K: AsRef<FlowKey>>(
        &self,
        v4: &mut [Probe<u32>],
        v6: &mut [Probe<u128>],
        keys: &[K],
    ) {
        match &self.hosts {
            _ if self.one_sided == 0 => self.inbound.search(v4, v6, keys),
            Some(hosts) => {
                let (v4, v6) = (hosts.first(v4, keys), hosts.first(v6, keys));
                self.inbound.search(v4.0, v6.0, keys);
                self.forwarded.search(v4.1, v6.1, keys);
            }
            None => {
                let look_up = |at: u16| {
                    let key = keys.get(usize::from(at)).map(AsRef::as_ref);
                    key.and_then(|key| self.lookup_for(MeantFor::Anybody, key))
                };
                v4.iter_mut().for_each(|probe| probe.found = look_up(probe.at));
                v6.iter_mut().for_each(|probe| probe.found = look_up(probe.at));
            }
        }
    }

    /// Marks those of the packets that go on.
    fn mark<A: Address, K: AsRef<FlowKey>>(
        &self,
        outbound: &TupleSpace<A>,
        probes: &mut [Probe<A>],
        onward: &mut Vec<Probe<A>>,
        keys: &[K],
    ) {
        let is_let_in = |probe: &&mut Probe<A>| {
            matches!(probe.found, Some(Decision { action: PolicyAction::Protect { .. }, .. }))
        };
        let flow = |at: u16| keys.get(usize::from(at)).map(AsRef::as_ref);
        onward.clear();
        for probe in probes.iter_mut().filter(is_let_in) {
            onward.extend(flow(probe.at).map(|flow| Probe::new(probe.at, probe.flow, flow)));
        }
        outbound.search(onward, keys);
        for (probe, onward) in probes.iter_mut().filter(is_let_in).zip(onward.iter()) {
            if let (Some(flow), Some(found)) = (flow(probe.at), onward.found) {
                probe.goes_on = self.decides(found, flow) && !self.transit.is_martian(flow);
            }
        }
    }

    /// The policy with this number.
    #[inline]
    #[must_use]
    pub fn policy(&self, id: PolicyId) -> Option<&Arc<Policy>> {
        self.policies.get(id.0).map(|stored| &stored.policy)
    }

    /// Incoming packets that a policy means, of those that its selector does.
    #[must_use]
    pub fn meant_for(&self, id: PolicyId) -> Option<MeantFor> {
        self.policies.get(id.0).map(|stored| stored.meant_for)
    }

    /// Counts of what a policy has decided since it came; `None` for one that protects, whose SAs count.
    #[must_use]
    pub fn uses(&self, id: PolicyId) -> Option<&PolicyUse> {
        let stored = self.policies.get(id.0)?;
        let protects = matches!(stored.policy.action, PolicyAction::Protect { .. });
        (!protects).then_some(&stored.uses)
    }

    /// Counts a question about a packet that a policy decided, before the packet came here or went elsewhere.
    pub fn count_question(&self, id: PolicyId) {
        if let Some(stored) = self.policies.get(id.0) {
            stored.uses.count_question();
        }
    }

    /// Number of questions that a policy has decided since it came.
    #[must_use]
    pub fn questions(&self, id: PolicyId) -> u64 {
        self.policies.get(id.0).map_or(0, |stored| stored.uses.questions())
    }

    /// All policies, lowest number first.
    pub fn policies(&self) -> impl Iterator<Item = (PolicyId, &Arc<Policy>)> {
        self.policies.iter().map(|(id, stored)| (PolicyId(id), &stored.policy))
    }

    /// Number of policies.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.policies.len()
    }

    /// True if there is no policy.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of shapes of a direction's policies, for IPv4 and IPv6. A packet that no cache
    /// knows asks as many tables, unless a policy that was found has a lower priority number than any
    /// in the rest.
    #[must_use]
    pub fn shapes(&self, direction: Direction) -> (usize, usize) {
        let shapes = |side: &Side| (side.v4.shapes(), side.v6.shapes());
        match direction {
            Direction::Outbound => shapes(&self.outbound),
            Direction::Inbound => {
                let (host, others) = (shapes(&self.inbound), shapes(&self.forwarded));
                (host.0.max(others.0), host.1.max(others.1))
            }
        }
    }

    fn sides(&self, direction: Direction, meant_for: MeantFor) -> impl Iterator<Item = &Side> {
        let Self { outbound, inbound, forwarded, .. } = self;
        let [out, host, others] = which(direction, meant_for);
        [(out, outbound), (host, inbound), (others, forwarded)]
            .into_iter()
            .filter_map(|(is_one, side)| is_one.then_some(side))
    }

    fn sides_mut(
        &mut self,
        direction: Direction,
        meant_for: MeantFor,
    ) -> impl Iterator<Item = &mut Side> {
        let Self { outbound, inbound, forwarded, .. } = self;
        let [out, host, others] = which(direction, meant_for);
        [(out, outbound), (host, inbound), (others, forwarded)]
            .into_iter()
            .filter_map(|(is_one, side)| is_one.then_some(side))
    }
}

/// Sides that have a policy: what leaves, what comes in for this host, and what comes in for others.
const fn which(direction: Direction, meant_for: MeantFor) -> [bool; 3] {
    match direction {
        Direction::Outbound => [true, false, false],
        Direction::Inbound => [false, meant_for.has_host(), meant_for.has_others()],
    }
}

/// Of two answers to one question the one that lets less pass.
fn stricter(one: Option<Decision>, other: Option<Decision>) -> Option<Decision> {
    let leniency = |found: &Option<Decision>| match found.map(|found| found.action) {
        None => 0,
        Some(PolicyAction::Discard) => 1,
        Some(PolicyAction::Protect { .. }) => 2,
        Some(PolicyAction::Bypass) => 3,
    };
    core::cmp::min_by_key(one, other, leniency)
}

impl Side {
    fn lookup(&self, key: &FlowKey) -> Option<Decision> {
        match key.version {
            IpVersion::V4 => self.v4.lookup(key),
            IpVersion::V6 => self.v6.lookup(key),
        }
    }

    fn search<K: AsRef<FlowKey>>(&self, v4: &mut [Probe<u32>], v6: &mut [Probe<u128>], keys: &[K]) {
        self.v4.search(v4, keys);
        self.v6.search(v6, keys);
    }

    fn insert(
        &mut self,
        id: PolicyId,
        stored: &Stored,
        v4: Option<&Place<u32>>,
        v6: Option<&Place<u128>>,
    ) {
        let decision = Decision { id, action: stored.policy.action };
        let entry = |exact: bool| Entry {
            rank: stored.rank(),
            decision,
            check: (!exact).then(|| Arc::new(oriented(&stored.policy))),
        };
        if let Some(place) = v4 {
            self.v4.insert(place, entry(place.exact));
        }
        if let Some(place) = v6 {
            self.v6.insert(place, entry(place.exact));
        }
    }

    fn remove(&mut self, stored: &Stored) {
        let selector = oriented(&stored.policy);
        if let Some(place) = Place::of(&selector) {
            self.v4.remove(&place, stored.rank());
        }
        if let Some(place) = Place::of(&selector) {
            self.v6.remove(&place, stored.rank());
        }
    }
}

/// A policy's selector turned so that its local side is a packet's source.
const fn oriented(policy: &Policy) -> Selector {
    match policy.direction {
        Direction::Outbound => policy.selector,
        Direction::Inbound => policy.selector.mirrored(),
    }
}

fn new_stamp() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
