//! SAs that a policy's template means: those of its protocol, mode, reqid, interface and addresses, and of its
//! SPI if it names one. Workers know such a group by a number, and an SA by two: that of its group, and that of
//! the part which has its SPI.
//!
//! In tunnel mode a template says the addresses. In transport mode packets do: those of a policy for two
//! hosts have these, and of any other policy each pair of hosts has its own SA. Inbound a kernel asks no
//! address of SAs in transport mode.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::sa::{ReqId, SaSlot};
use convoy_ipsec::selector::Direction;
use convoy_ipsec::snapshot::Snapshot;
use convoy_wire::Spi;
use convoy_xfrm::{Addresses, Mode, Network, Policy, PolicyInfo, Sa, SaInfo, SaProtocol, Template};

use super::ends::Ends;

/// Numbers below are those of a site's SAs.
const FIRST: u32 = 1 << 31;

/// True if a group is one of daemons' SAs.
pub(super) const fn is_daemons(reqid: ReqId) -> bool {
    reqid.0 >= FIRST
}

/// Properties that the SAs of a group share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    protocol: SaProtocol,
    mode: Mode,
    reqid: u32,
    /// Of which interface.
    if_id: u32,
    /// The only SA that is meant.
    spi: Option<Spi>,
    /// Ends of its packets; `None` for SAs in transport mode between any hosts.
    ends: Option<Ends>,
}

impl Group {
    pub(super) fn of_sa(sa: &Sa, direction: Direction) -> Self {
        let info = &sa.info;
        let has_ends = info.mode == Mode::Tunnel || direction == Direction::Outbound;
        let ends = has_ends.then_some(Ends::of_sa(sa));
        let SaInfo { protocol, mode, reqid, .. } = *info;
        Self { protocol, mode, reqid, if_id: sa.if_id, spi: None, ends }
    }

    pub(super) fn of_policy(policy: &Policy, template: &Template, direction: Direction) -> Self {
        let ends = match (template.mode, direction) {
            (Mode::Tunnel, _) => {
                let Template { source, destination, .. } = *template;
                Some(Ends { source, destination })
            }
            (_, Direction::Outbound) => hosts(&policy.info),
            (_, Direction::Inbound) => None,
        };
        let Template { protocol, mode, reqid, spi, .. } = *template;
        Self { protocol, mode, reqid, if_id: policy.if_id, spi, ends }
    }

    /// The same of SAs of any SPI.
    const fn of_any_spi(self) -> Self {
        Self { spi: None, ..self }
    }

    /// The same the other way round.
    fn turned(self) -> Self {
        Self { ends: self.ends.map(Ends::turned), ..self }
    }

    /// The groups of policies for more than the two hosts of an SA in transport mode, as far as they mean
    /// this one.
    fn of_pair(self, spi: Option<Spi>) -> impl Iterator<Item = Self> {
        self.of_any_hosts().into_iter().flat_map(move |any| any.with(spi))
    }

    /// The same, and the part of it that has this SPI.
    fn with(self, spi: Option<Spi>) -> impl Iterator<Item = Self> {
        [self].into_iter().chain(spi.map(|spi| Self { spi: Some(spi), ..self }))
    }

    /// True if packets of each two hosts have SAs of their own.
    pub(super) fn is_of_any_hosts(self) -> bool {
        self.mode != Mode::Tunnel && self.ends.is_none()
    }

    /// The group of policies for more than the two hosts of an SA in transport mode.
    fn of_any_hosts(self) -> Option<Self> {
        let is_of_two = self.mode != Mode::Tunnel && self.ends.is_some();
        is_of_two.then_some(Self { ends: None, ..self })
    }
}

/// The two hosts that a policy is for, if it is for no more.
fn hosts(info: &PolicyInfo) -> Option<Ends> {
    let Addresses::Networks { source, destination } = info.selector.addresses else { return None };
    let host = |network: Network| {
        let bits = if network.address.is_ipv4() { 32 } else { 128 };
        (network.prefix_len == bits).then_some(network.address)
    };
    Some(Ends { source: host(source)?, destination: host(destination)? })
}

/// Identity of an SA for policies: the number of its group, and that of the group that has its SPI.
pub(super) type Numbers = (ReqId, Option<ReqId>);

/// The groups that SAs or policies are in.
#[derive(Debug)]
pub(super) struct Groups {
    known: HashMap<Group, Members>,
    numbers: HashSet<ReqId>,
    next: u32,
}

/// SAs of a group, and the counts of its policies.
#[derive(Debug)]
struct Members {
    number: ReqId,
    /// SAs and policies together.
    count: usize,
    /// Policies alone, outbound and inbound.
    policies: (usize, usize),
    sas: Vec<Member>,
    /// Time of the last packet of SAs that went, outbound and inbound.
    last_ns: (u64, u64),
}

/// An SA of a group.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) direction: Direction,
    /// True if nothing says which direction it has.
    pub(super) is_guess: bool,
    pub(super) spi: Option<Spi>,
    pub(super) slot: SaSlot,
    pub(super) ends: Ends,
    pub(super) counters: Arc<SaCounters>,
}

impl Members {
    fn note(&mut self, direction: Direction, last_ns: u64) {
        let place = match direction {
            Direction::Outbound => &mut self.last_ns.0,
            Direction::Inbound => &mut self.last_ns.1,
        };
        *place = last_ns.max(*place);
    }

    fn policies_of(&mut self, direction: Direction) -> &mut usize {
        match direction {
            Direction::Outbound => &mut self.policies.0,
            Direction::Inbound => &mut self.policies.1,
        }
    }

    /// Two flags: something here says that SAs of the group send, and something says that they receive.
    fn says(&self) -> (bool, bool) {
        let known = |direction| {
            let mut sas = self.sas.iter().filter(|sa| !sa.is_guess);
            sas.any(|sa| sa.direction == direction)
        };
        let (out, into) = self.policies;
        (out > 0 || known(Direction::Outbound), into > 0 || known(Direction::Inbound))
    }

    fn outbound(&self) -> impl Iterator<Item = &Member> {
        self.sas.iter().filter(|sa| sa.direction == Direction::Outbound)
    }

    /// The newest outbound SA between two hosts.
    fn between(&self, ends: Ends) -> Option<SaSlot> {
        self.outbound().filter(|sa| sa.ends == ends).last().map(|sa| sa.slot)
    }
}

impl Default for Groups {
    fn default() -> Self {
        Self { known: HashMap::new(), numbers: HashSet::new(), next: FIRST }
    }
}

impl Groups {
    fn join(&mut self, group: Group) -> &mut Members {
        let Self { known, numbers, next } = self;
        let members = known.entry(group).or_insert_with(|| {
            // An SA has one of each kind. They differ in the lowest bit, so that workers' hints never
            // take one for the other. SAs use numbers up: after years they begin anew.
            let mut fresh = || {
                let number = ReqId(*next | u32::from(group.spi.is_some()));
                *next = next.checked_add(2).unwrap_or(FIRST);
                number
            };
            let mut number = fresh();
            while !numbers.insert(number) {
                number = fresh();
            }
            Members { number, count: 0, policies: (0, 0), sas: Vec::new(), last_ns: (0, 0) }
        });
        members.count += 1;
        members
    }

    fn leave(&mut self, group: Group) {
        if let Some(members) = self.known.get_mut(&group) {
            members.count -= 1;
            if members.count == 0 {
                self.numbers.remove(&members.number);
                self.known.remove(&group);
            }
        }
    }

    /// The number of a group, which it keeps until as many have left as joined.
    pub(super) fn join_policy(&mut self, group: Group, direction: Direction) -> ReqId {
        if group.spi.is_some() {
            // It remembers what SAs of other SPIs did before.
            *self.join(group.of_any_spi()).policies_of(direction) += 1;
        }
        let members = self.join(group);
        *members.policies_of(direction) += 1;
        members.number
    }

    pub(super) fn leave_policy(&mut self, group: Group, direction: Direction) {
        let also = group.spi.map(|_| group.of_any_spi());
        for group in also.into_iter().chain([group]) {
            if let Some(members) = self.known.get_mut(&group) {
                *members.policies_of(direction) -= 1;
            }
            self.leave(group);
        }
    }

    /// As [`Groups::join_policy`], for an SA.
    pub(super) fn join_sa(&mut self, group: Group, member: &Member) -> Numbers {
        let mut join = |group| {
            let members = self.join(group);
            members.sas.push(member.clone());
            members.number
        };
        for group in group.of_pair(member.spi) {
            join(group);
        }
        let mut numbers = group.with(member.spi).map(join);
        (numbers.next().unwrap_or(ReqId(FIRST)), numbers.next())
    }

    pub(super) fn leave_sa(
        &mut self,
        group: Group,
        spi: Option<Spi>,
        direction: Direction,
        slot: SaSlot,
    ) {
        for group in group.of_pair(spi).chain(group.with(spi)) {
            if let Some(members) = self.known.get_mut(&group)
                && let Some(at) =
                    members.sas.iter().position(|sa| (sa.direction, sa.slot) == (direction, slot))
            {
                let gone = members.sas.remove(at);
                members.note(direction, gone.counters.last_packet_ns.get());
            }
            self.leave(group);
        }
    }

    /// The direction of the SAs of a group with ends, as policies and other SAs say, also those the other way
    /// round; `None` where none says so, or some contradict others.
    pub(super) fn direction(&self, group: Group) -> Option<Direction> {
        let says = |group| self.known.get(&group).map_or((false, false), Members::says);
        let (along, back) = (says(group.of_any_spi()), says(group.of_any_spi().turned()));
        match (along.0 || back.1, along.1 || back.0) {
            (true, false) => Some(Direction::Outbound),
            (false, true) => Some(Direction::Inbound),
            _ => None,
        }
    }

    /// SAs of a group, and of that the other way round, whose direction is a guess.
    pub(super) fn guesses(&self, group: Group) -> Vec<SaSlot> {
        let group = group.of_any_spi();
        let sas = |group| self.known.get(&group).into_iter().flat_map(|members| &members.sas);
        let tunnels = sas(group).chain(sas(group.turned()));
        // Inbound SAs in transport mode are in the group for any hosts.
        let is_between = move |sa: &&Member| {
            group.ends.is_some_and(|ends| sa.ends == ends || sa.ends == ends.turned())
        };
        let others = group.of_any_hosts().into_iter().flat_map(sas).filter(is_between);
        tunnels.chain(others).filter(|sa| sa.is_guess).map(|sa| sa.slot).collect()
    }

    /// The newest inbound SA that has an outbound one of this group for its counterpart.
    pub(super) fn partner(&self, group: Group) -> Option<SaSlot> {
        let back = group.of_any_spi().turned();
        // In transport mode inbound SAs are in the group for any hosts.
        let kept_in = back.of_any_hosts().unwrap_or(back);
        let mut newest_first = self.known.get(&kept_in)?.sas.iter().rev();
        let is_back = |sa: &&Member| {
            sa.direction == Direction::Inbound && back.ends.is_none_or(|ends| sa.ends == ends)
        };
        newest_first.find(is_back).map(|sa| sa.slot)
    }

    /// The inbound SA in a slot is no guess any more.
    pub(super) fn confirm(&mut self, group: Group, spi: Option<Spi>, slot: SaSlot) {
        for group in group.of_pair(spi).chain(group.with(spi)) {
            let sas = self.known.get_mut(&group).into_iter().flat_map(|members| &mut members.sas);
            sas.filter(|sa| sa.direction == Direction::Inbound && sa.slot == slot)
                .for_each(|sa| sa.is_guess = false);
        }
    }

    /// The groups for [any hosts](Group::of_any_hosts) that an SA is in, and their numbers as long as they have
    /// them.
    pub(super) fn of_pair(&self, group: Group, spi: Option<Spi>) -> Vec<(ReqId, Group)> {
        let all = group.of_pair(spi);
        all.filter_map(|any| Some((self.known.get(&any)?.number, any))).collect()
    }

    /// The outbound SAs, with the identifiers of their interfaces.
    pub(super) fn outbound(&self) -> impl Iterator<Item = (u32, SaSlot)> {
        let groups = self.known.iter().filter(|(group, _)| group.spi.is_none());
        groups.flat_map(|(group, members)| members.outbound().map(|sa| (group.if_id, sa.slot)))
    }

    /// The interface identifier of the group with this number.
    pub(super) fn if_id(&self, number: ReqId) -> Option<u32> {
        let found = self.known.iter().find(|(_, members)| members.number == number);
        found.map(|(group, _)| group.if_id)
    }

    /// Makes policies for more than two hosts use the newest SA between the two of a group; `any` is theirs and
    /// its number, also when that has just ended.
    pub(super) fn choose_between(
        &self,
        number: ReqId,
        any: Group,
        group: Group,
        draft: &mut Snapshot,
    ) {
        let Some(ends) = group.ends else { return };
        let members = self.known.get(&any).filter(|members| members.number == number);
        draft.use_between(
            number,
            ends.source,
            ends.destination,
            members.and_then(|members| members.between(ends)),
        );
    }

    /// Time of the last packet of a group, whatever its SPI, in nanoseconds of the workers' clock; 0 for
    /// never.
    pub(super) fn last_ns(&self, group: Group, direction: Direction) -> u64 {
        let Some(members) = self.known.get(&group.of_any_spi()) else { return 0 };
        let gone = match direction {
            Direction::Outbound => members.last_ns.0,
            Direction::Inbound => members.last_ns.1,
        };
        let same = members.sas.iter().filter(|sa| sa.direction == direction);
        same.map(|sa| sa.counters.last_packet_ns.get()).fold(gone, u64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: Direction = Direction::Outbound;

    const fn group(mode: Mode, reqid: u32, ends: Option<Ends>) -> Group {
        Group { protocol: SaProtocol::Esp, mode, reqid, if_id: 0, spi: None, ends }
    }

    fn ends() -> Ends {
        Ends { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() }
    }

    #[test]
    fn a_group_keeps_its_number_while_somebody_is_in_it() {
        let ends = ends();
        let group = |reqid| group(Mode::Tunnel, reqid, Some(ends));
        let mut groups = Groups::default();
        let first = groups.join_policy(group(1), OUT);
        assert_eq!(groups.join_policy(group(1), OUT), first);
        assert_ne!(groups.join_policy(group(2), OUT), first);
        groups.leave_policy(group(1), OUT);
        assert!(groups.known.contains_key(&group(1)));
        groups.leave_policy(group(1), OUT);
        assert!(!groups.known.contains_key(&group(1)));
        // A number does not come again at once, for packets may still wait for the old group.
        assert_ne!(groups.join_policy(group(1), OUT), first);
        assert!(first.0 >= FIRST);
        // When all have been used, those that somebody has are passed by.
        let second = groups.join_policy(group(2), OUT);
        groups.next = FIRST;
        let others: Vec<_> = (3..9).map(|reqid| groups.join_policy(group(reqid), OUT)).collect();
        assert!(!others.contains(&second) && !others.contains(&groups.join_policy(group(1), OUT)));
    }

    #[test]
    fn a_group_remembers_its_last_packet_when_its_sas_went() {
        let ends = ends();
        let group = group(Mode::Tunnel, 1, Some(ends));
        let mut groups = Groups::default();
        groups.join_policy(group, OUT);
        let member = |n| Member {
            direction: Direction::Outbound,
            is_guess: false,
            spi: Spi::new(n),
            slot: SaSlot(n),
            ends,
            counters: Arc::default(),
        };
        let (old, new) = (member(1), member(2));
        groups.join_sa(group, &old);
        groups.join_sa(group, &new);
        old.counters.last_packet_ns.set(9);
        new.counters.last_packet_ns.set(5);
        groups.leave_sa(group, old.spi, Direction::Outbound, old.slot);
        assert_eq!(groups.last_ns(group, Direction::Outbound), 9);
        new.counters.last_packet_ns.set(11);
        assert_eq!(groups.last_ns(group, Direction::Outbound), 11);
        assert_eq!(groups.last_ns(group, Direction::Inbound), 0);
    }
}
