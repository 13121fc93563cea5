//! Which SAs a policy's template means: those of its protocol, mode, reqid, interface and addresses. Workers know
//! such a group by a number.
//!
//! In tunnel mode a template says the addresses. In transport mode packets do: those of a policy for two
//! hosts have these, and of any other policy each pair of hosts has its own SA. Inbound a kernel asks no
//! address of SAs in transport mode.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::sa::{ReqId, SaSlot};
use convoy_ipsec::selector::Direction;
use convoy_ipsec::snapshot::Snapshot;
use convoy_wire::Spi;
use convoy_xfrm::{Addresses, Mode, Network, Policy, PolicyInfo, Sa, SaInfo, SaProtocol, Template};

/// Numbers below are those of a site's SAs.
const FIRST: u32 = 1 << 31;

/// Whether a group is one of daemons' SAs.
pub(super) const fn is_daemons(reqid: ReqId) -> bool {
    reqid.0 >= FIRST
}

/// Source and destination.
type Ends = (IpAddr, IpAddr);

/// What the SAs of a group have alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    protocol: SaProtocol,
    mode: Mode,
    reqid: u32,
    /// Of which interface.
    if_id: u32,
    /// Where its packets go; `None` for SAs in transport mode between any hosts.
    ends: Option<Ends>,
}

impl Group {
    pub(super) fn of_sa(sa: &Sa, direction: Direction) -> Self {
        let info = &sa.info;
        let has_ends = info.mode == Mode::Tunnel || direction == Direction::Outbound;
        let ends = has_ends.then_some((info.source, info.destination));
        let SaInfo { protocol, mode, reqid, .. } = *info;
        Self { protocol, mode, reqid, if_id: sa.if_id, ends }
    }

    pub(super) fn of_policy(policy: &Policy, template: &Template, direction: Direction) -> Self {
        let ends = match (template.mode, direction) {
            (Mode::Tunnel, _) => Some((template.source, template.destination)),
            (_, Direction::Outbound) => hosts(&policy.info),
            (_, Direction::Inbound) => None,
        };
        let Template { protocol, mode, reqid, .. } = *template;
        Self { protocol, mode, reqid, if_id: policy.if_id, ends }
    }

    /// Whether packets of each two hosts have SAs of their own.
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
    Some((host(source)?, host(destination)?))
}

/// The groups that SAs or policies are in.
#[derive(Debug)]
pub(super) struct Groups {
    known: HashMap<Group, Members>,
    next: u32,
    /// How many policies came.
    policies: u64,
}

/// Who is in a group.
#[derive(Debug)]
struct Members {
    number: ReqId,
    /// SAs and policies together.
    count: usize,
    sas: Vec<Member>,
    /// The SPIs that policies `out` name: no other SA is used. How many name one, and which policy
    /// did last.
    named: HashMap<Spi, (usize, u64)>,
    /// When the last packet of SAs passed that went, outbound and inbound.
    last_ns: (u64, u64),
}

/// An SA of a group.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) direction: Direction,
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

    fn outbound(&self) -> impl Iterator<Item = &Member> {
        self.sas.iter().filter(|sa| sa.direction == Direction::Outbound)
    }

    /// Of some of its outbound SAs the one that is to be used: that which a policy named last, if any names
    /// one, and else the newest. Of policies in one group that name different SAs, or none, all use one.
    fn preferred<'a>(&self, sas: impl Iterator<Item = &'a Member>) -> Option<SaSlot> {
        let used = if self.named.is_empty() {
            sas.last()
        } else {
            let named = |sa: &Member| Some(self.named.get(&sa.spi?)?.1);
            sas.filter_map(|sa| Some((named(sa)?, sa))).max_by_key(|(at, _)| *at).map(|(_, sa)| sa)
        };
        used.map(|sa| sa.slot)
    }

    fn between(&self, ends: Ends) -> Option<SaSlot> {
        self.preferred(self.outbound().filter(|sa| sa.ends == ends))
    }
}

impl Default for Groups {
    fn default() -> Self {
        Self { known: HashMap::new(), next: FIRST, policies: 0 }
    }
}

impl Groups {
    fn join(&mut self, group: Group) -> &mut Members {
        let next = &mut self.next;
        let members = self.known.entry(group).or_insert_with(|| {
            let number = ReqId(*next);
            *next = next.checked_add(1).unwrap_or(FIRST);
            Members { number, count: 0, sas: Vec::new(), named: HashMap::new(), last_ns: (0, 0) }
        });
        members.count += 1;
        members
    }

    fn leave(&mut self, group: Group) {
        if let Some(members) = self.known.get_mut(&group) {
            members.count -= 1;
            if members.count == 0 {
                self.known.remove(&group);
            }
        }
    }

    /// The number of a group, which it keeps until as many have left as joined. `spi` is that of the only
    /// SA that a policy `out` wants.
    pub(super) fn join_policy(&mut self, group: Group, spi: Option<Spi>) -> ReqId {
        self.policies += 1;
        let at = self.policies;
        let members = self.join(group);
        if let Some(spi) = spi {
            let (count, last) = members.named.entry(spi).or_default();
            (*count, *last) = (*count + 1, at);
        }
        members.number
    }

    pub(super) fn leave_policy(&mut self, group: Group, spi: Option<Spi>) {
        if let Some(members) = self.known.get_mut(&group)
            && let Some(spi) = spi
            && let Some((count, _)) = members.named.get_mut(&spi)
        {
            *count -= 1;
            if *count == 0 {
                members.named.remove(&spi);
            }
        }
        self.leave(group);
    }

    /// As [`Groups::join_policy`], for an SA.
    pub(super) fn join_sa(&mut self, group: Group, member: Member) -> ReqId {
        if let Some(any) = group.of_any_hosts() {
            self.join(any).sas.push(member.clone());
        }
        let members = self.join(group);
        members.sas.push(member);
        members.number
    }

    pub(super) fn leave_sa(&mut self, group: Group, direction: Direction, slot: SaSlot) {
        for group in group.of_any_hosts().into_iter().chain([group]) {
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

    /// The group of [any hosts](Group::of_any_hosts), and its number as long as it has one.
    pub(super) fn any_hosts(&self, group: Group) -> Option<(ReqId, Group)> {
        let any = group.of_any_hosts()?;
        Some((self.known.get(&any)?.number, any))
    }

    /// The outbound SAs of interfaces, with the identifiers of these.
    pub(super) fn of_interfaces(&self) -> impl Iterator<Item = (u32, SaSlot)> {
        let groups = self.known.iter().filter(|(group, _)| group.if_id != 0);
        groups.flat_map(|(group, members)| members.outbound().map(|sa| (group.if_id, sa.slot)))
    }

    /// The interface identifier of the group with this number.
    pub(super) fn if_id(&self, number: ReqId) -> Option<u32> {
        let found = self.known.iter().find(|(_, members)| members.number == number);
        found.map(|(group, _)| group.if_id)
    }

    /// Makes policies of a group use the outbound SA that they are to.
    pub(super) fn choose(&self, group: Group, draft: &mut Snapshot) {
        let Some(members) = self.known.get(&group) else { return };
        match members.preferred(members.outbound()) {
            Some(slot) if group.ends.is_some() => draft.prefer_outbound(slot),
            // A number that no SA bears: each pair of hosts has its own.
            Some(_) => {}
            None => draft.rest_outbound(members.number),
        }
    }

    /// Makes policies for more than two hosts use the SA between two that they are to; `any` is their group
    /// and its number, also when that has just ended.
    pub(super) fn choose_between(
        &self,
        (number, any): (ReqId, Group),
        group: Group,
        draft: &mut Snapshot,
    ) {
        let Some(ends) = group.ends else { return };
        let members = self.known.get(&any).filter(|members| members.number == number);
        draft.use_between(number, ends, members.and_then(|members| members.between(ends)));
    }

    /// The same for all pairs of hosts of such a group.
    pub(super) fn choose_all(&self, group: Group, draft: &mut Snapshot) {
        let Some(members) = self.known.get(&group).filter(|_| group.ends.is_none()) else { return };
        let pairs: BTreeSet<Ends> = members.outbound().map(|sa| sa.ends).collect();
        for ends in pairs {
            draft.use_between(members.number, ends, members.between(ends));
        }
    }

    /// When the last packet of a group passed, in nanoseconds of the workers' clock; 0 for never.
    pub(super) fn last_ns(&self, group: Group, direction: Direction) -> u64 {
        let Some(members) = self.known.get(&group) else { return 0 };
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

    const fn group(mode: Mode, reqid: u32, ends: Option<Ends>) -> Group {
        Group { protocol: SaProtocol::Esp, mode, reqid, if_id: 0, ends }
    }

    #[test]
    fn a_group_keeps_its_number_while_somebody_is_in_it() {
        let ends = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let group = |reqid| group(Mode::Tunnel, reqid, Some(ends));
        let mut groups = Groups::default();
        let first = groups.join_policy(group(1), None);
        assert_eq!(groups.join_policy(group(1), None), first);
        assert_ne!(groups.join_policy(group(2), None), first);
        groups.leave_policy(group(1), None);
        assert!(groups.known.contains_key(&group(1)));
        groups.leave_policy(group(1), None);
        assert!(!groups.known.contains_key(&group(1)));
        // A number does not come again at once, for packets may still wait for the old group.
        assert_ne!(groups.join_policy(group(1), None), first);
        assert!(first.0 >= FIRST);
    }

    #[test]
    fn a_group_remembers_its_last_packet_when_its_sas_went() {
        let ends = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let group = group(Mode::Tunnel, 1, Some(ends));
        let mut groups = Groups::default();
        groups.join_policy(group, None);
        let member = |n| Member {
            direction: Direction::Outbound,
            spi: Spi::new(n),
            slot: SaSlot(n),
            ends,
            counters: Arc::default(),
        };
        let (old, new) = (member(1), member(2));
        groups.join_sa(group, old.clone());
        groups.join_sa(group, new.clone());
        old.counters.last_packet_ns.set(9);
        new.counters.last_packet_ns.set(5);
        groups.leave_sa(group, Direction::Outbound, old.slot);
        assert_eq!(groups.last_ns(group, Direction::Outbound), 9);
        new.counters.last_packet_ns.set(11);
        assert_eq!(groups.last_ns(group, Direction::Outbound), 11);
        assert_eq!(groups.last_ns(group, Direction::Inbound), 0);
    }
}
