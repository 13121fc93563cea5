//! Which SAs a policy's template means: those of its protocol, mode, reqid and, in tunnel mode,
//! addresses. Workers know such a group by a number.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::sa::{ReqId, SaSlot};
use convoy_ipsec::selector::Direction;
use convoy_wire::Spi;
use convoy_xfrm::{Mode, Sa, SaProtocol, Template};

/// Numbers below are those of a site's SAs.
const FIRST: u32 = 1 << 31;

/// Whether a group is one of daemons' SAs.
pub(super) const fn is_daemons(reqid: ReqId) -> bool {
    reqid.0 >= FIRST
}

/// What the SAs of a group have alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    protocol: SaProtocol,
    mode: Mode,
    reqid: u32,
    /// Of which interface.
    if_id: u32,
    /// Source and destination of a tunnel. In transport mode packets have the SA's addresses.
    tunnel: Option<(IpAddr, IpAddr)>,
}

impl Group {
    fn new(
        protocol: SaProtocol,
        mode: Mode,
        (reqid, if_id): (u32, u32),
        ends: (IpAddr, IpAddr),
    ) -> Self {
        let tunnel = (mode == Mode::Tunnel).then_some(ends);
        Self { protocol, mode, reqid, if_id, tunnel }
    }

    pub(super) fn of_sa(sa: &Sa) -> Self {
        let info = &sa.info;
        let ends = (info.source, info.destination);
        Self::new(info.protocol, info.mode, (info.reqid, sa.if_id), ends)
    }

    /// The SAs that a template of a policy with this interface identifier means.
    pub(super) fn of_template(template: &Template, if_id: u32) -> Self {
        let ends = (template.source, template.destination);
        Self::new(template.protocol, template.mode, (template.reqid, if_id), ends)
    }
}

/// The groups that SAs or policies are in.
#[derive(Debug)]
pub(super) struct Groups {
    known: HashMap<Group, Members>,
    next: u32,
}

/// Who is in a group.
#[derive(Debug)]
struct Members {
    number: ReqId,
    /// SAs and policies together.
    count: usize,
    sas: Vec<Member>,
    /// The SPI that a policy `out` names: its SA is used while it is there, and else the newest.
    pinned: Option<Spi>,
    /// When the last packet of SAs passed that went, outbound and inbound.
    last_ns: (u64, u64),
}

/// An SA of a group.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) direction: Direction,
    pub(super) spi: Option<Spi>,
    pub(super) slot: SaSlot,
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
}

impl Default for Groups {
    fn default() -> Self {
        Self { known: HashMap::new(), next: FIRST }
    }
}

impl Groups {
    /// The number of a group, which it keeps until it is [left](Self::leave) as often as joined.
    pub(super) fn join(&mut self, group: Group) -> ReqId {
        let members = self.known.entry(group).or_insert_with(|| {
            let number = ReqId(self.next);
            self.next = self.next.checked_add(1).unwrap_or(FIRST);
            Members { number, count: 0, sas: Vec::new(), pinned: None, last_ns: (0, 0) }
        });
        members.count += 1;
        members.number
    }

    pub(super) fn leave(&mut self, group: Group) {
        if let Some(members) = self.known.get_mut(&group) {
            members.count -= 1;
            if members.count == 0 {
                self.known.remove(&group);
            }
        }
    }

    /// As [`Groups::join`], for an SA.
    pub(super) fn join_sa(&mut self, group: Group, member: Member) -> ReqId {
        let number = self.join(group);
        if let Some(members) = self.known.get_mut(&group) {
            members.sas.push(member);
        }
        number
    }

    pub(super) fn leave_sa(&mut self, group: Group, direction: Direction, slot: SaSlot) {
        if let Some(members) = self.known.get_mut(&group)
            && let Some(at) =
                members.sas.iter().position(|sa| (sa.direction, sa.slot) == (direction, slot))
        {
            let gone = members.sas.remove(at);
            members.note(direction, gone.counters.last_packet_ns.get());
        }
        self.leave(group);
    }

    /// Has the outbound SA of this SPI used, as soon and as long as it is there.
    pub(super) fn pin(&mut self, group: Group, spi: Option<Spi>) {
        if let Some(members) = self.known.get_mut(&group) {
            members.pinned = spi;
        }
    }

    /// The outbound SAs of interfaces, with the identifiers of these.
    pub(super) fn of_interfaces(&self) -> impl Iterator<Item = (u32, SaSlot)> {
        let groups = self.known.iter().filter(|(group, _)| group.if_id != 0);
        groups.flat_map(|(group, members)| {
            let outbound = |sa: &&Member| sa.direction == Direction::Outbound;
            members.sas.iter().filter(outbound).map(|sa| (group.if_id, sa.slot))
        })
    }

    /// The interface identifier of the group with this number.
    pub(super) fn if_id(&self, number: ReqId) -> Option<u32> {
        let found = self.known.iter().find(|(_, members)| members.number == number);
        found.map(|(group, _)| group.if_id)
    }

    /// The outbound SA of a group that is to be used.
    pub(super) fn preferred(&self, group: Group) -> Option<SaSlot> {
        let members = self.known.get(&group)?;
        let mut outbound = members.sas.iter().filter(|sa| sa.direction == Direction::Outbound);
        let newest = outbound.clone().next_back();
        let pinned = outbound.find(|sa| members.pinned.is_some() && sa.spi == members.pinned);
        pinned.or(newest).map(|sa| sa.slot)
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

    #[test]
    fn a_group_keeps_its_number_while_somebody_is_in_it() {
        let ends = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let group = |reqid| Group::new(SaProtocol::Esp, Mode::Tunnel, (reqid, 0), ends);
        let mut groups = Groups::default();
        let first = groups.join(group(1));
        assert_eq!(groups.join(group(1)), first);
        assert_ne!(groups.join(group(2)), first);
        groups.leave(group(1));
        assert!(groups.known.contains_key(&group(1)));
        groups.leave(group(1));
        assert!(!groups.known.contains_key(&group(1)));
        // A number does not come again at once, for packets may still wait for the old group.
        assert_ne!(groups.join(group(1)), first);
        assert!(first.0 >= FIRST);
    }

    #[test]
    fn a_group_remembers_its_last_packet_when_its_sas_went() {
        let ends = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let group = Group::new(SaProtocol::Esp, Mode::Tunnel, (1, 0), ends);
        let mut groups = Groups::default();
        groups.join(group);
        let member = |n| Member {
            direction: Direction::Outbound,
            spi: Spi::new(n),
            slot: SaSlot(n),
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

    #[test]
    fn transport_mode_is_told_apart_by_no_address() {
        let none = ([0, 0, 0, 0].into(), [0, 0, 0, 0].into());
        let ends = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let group = |mode, ends| Group::new(SaProtocol::Esp, mode, (7, 0), ends);
        assert_eq!(group(Mode::Transport, none), group(Mode::Transport, ends));
        assert_ne!(group(Mode::Tunnel, none), group(Mode::Tunnel, ends));
    }
}
