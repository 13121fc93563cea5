//! Traffic of tunnels, whichever SAs they had.
//!
//! An SA's counters end with it. Here they are added up by what stays when it is replaced: who made it, its
//! reqid and interface identifier, and the outer addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use convoy_ipsec::clock::Now;
use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::lifetime::Lifetime;
use convoy_ipsec::sa::{Endpoints, SaSlot, SaSpec};
use convoy_ipsec::selector::Direction;
use convoy_ipsec::snapshot::Snapshot;

use crate::status::Origin;
use crate::xfrm::Kernel;

/// Most tunnels that are remembered without any SA.
const GONE_MAX: usize = 4096;

/// Properties of a tunnel that stay when its SAs are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Tunnel {
    /// True if an IKE daemon made it.
    pub(super) is_daemons: bool,
    pub(super) reqid: u32,
    /// Its interface identifier; 0 for none.
    pub(super) if_id: u32,
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
}

impl Tunnel {
    pub(super) fn origin(&self) -> Origin {
        if self.is_daemons { Origin::Daemon } else { Origin::Site }
    }
}

/// Traffic of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Dropped packets of its SAs.
    pub(super) dropped: u64,
    /// Time of the last packet, in nanoseconds of the workers' clock; 0: never.
    pub(super) last_ns: u64,
}

impl Passed {
    fn of(counters: &SaCounters) -> Self {
        Self {
            packets: counters.packets.get(),
            bytes: counters.bytes.get(),
            dropped: counters.dropped.get(),
            last_ns: counters.last_packet_ns.get(),
        }
    }

    fn add(&mut self, other: Self) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.dropped = self.dropped.wrapping_add(other.dropped);
        self.last_ns = self.last_ns.max(other.last_ns);
    }
}

/// A tunnel's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) outbound: Passed,
    pub(super) inbound: Passed,
    /// Number of outbound SAs that came after the first.
    pub(super) rekeys: u64,
    /// True if it has an outbound SA that has not ended.
    pub(super) is_up: bool,
    /// Outbound SAs that it ever had.
    sas: u64,
    /// Number of the last look that found SAs.
    seen: u64,
}

impl Total {
    fn side(&mut self, direction: Direction) -> &mut Passed {
        match direction {
            Direction::Outbound => &mut self.outbound,
            Direction::Inbound => &mut self.inbound,
        }
    }
}

/// An SA whose counters still count.
#[derive(Debug)]
struct Member {
    tunnel: Tunnel,
    direction: Direction,
    counters: Arc<SaCounters>,
    seen: u64,
}

/// Totals of all tunnels. To be fed about once a second: an SA that comes and goes between two looks is
/// missed.
#[derive(Debug, Default)]
pub struct Tunnels {
    /// By where their counters lie, which nobody else gets while they are held here.
    members: HashMap<usize, Member>,
    /// Counts of SAs that are gone.
    totals: HashMap<Tunnel, Total>,
    looks: u64,
}

impl Tunnels {
    /// Takes over the SAs of a snapshot.
    pub fn look(&mut self, snapshot: &Snapshot, daemons: Option<&Kernel>, now: Now) {
        self.looks += 1;
        self.totals.values_mut().for_each(|total| total.is_up = false);
        for (slot, sa) in snapshot.outbound_sas() {
            let tunnel = tunnel(daemons, Direction::Outbound, slot, &sa.sa);
            let is_up = !has_ended(&sa.lifetime, &sa.counters, now);
            self.take(tunnel, Direction::Outbound, sa.counters.as_arc(), is_up);
        }
        for (slot, sa) in snapshot.inbound_sas() {
            let tunnel = tunnel(daemons, Direction::Inbound, slot, &sa.sa);
            self.take(tunnel, Direction::Inbound, sa.counters.as_arc(), false);
        }
        self.let_go();
    }

    fn take(
        &mut self,
        tunnel: Tunnel,
        direction: Direction,
        counters: &Arc<SaCounters>,
        is_up: bool,
    ) {
        let total = self.totals.entry(tunnel).or_default();
        total.seen = self.looks;
        total.is_up |= is_up;
        let at = Arc::as_ptr(counters).addr();
        let member = self.members.entry(at).or_insert_with(|| {
            if direction == Direction::Outbound {
                total.rekeys += u64::from(total.sas > 0);
                total.sas += 1;
            }
            Member { tunnel, direction, counters: counters.clone(), seen: 0 }
        });
        member.seen = self.looks;
    }

    /// Adds up what SAs did that are gone. Their workers may count a little longer: they stay for one more
    /// look.
    fn let_go(&mut self) {
        let Self { members, totals, looks } = self;
        members.retain(|_, member| {
            let stays = member.seen + 1 >= *looks;
            if !stays {
                let total = totals.entry(member.tunnel).or_default();
                total.side(member.direction).add(Passed::of(&member.counters));
            }
            stays
        });
        let mut gone: Vec<_> =
            totals.iter().filter(|(_, t)| t.seen + 1 < *looks).map(|(k, t)| (t.seen, *k)).collect();
        if gone.len() > GONE_MAX {
            gone.sort_unstable();
            let surplus = gone.len() - GONE_MAX;
            for (_, tunnel) in gone.iter().take(surplus) {
                totals.remove(tunnel);
            }
        }
    }

    /// All tunnels with what went through them so far, in order.
    pub(super) fn totals(&self) -> Vec<(Tunnel, Total)> {
        let mut totals = self.totals.clone();
        for member in self.members.values() {
            let total = totals.entry(member.tunnel).or_default();
            total.side(member.direction).add(Passed::of(&member.counters));
        }
        let mut all: Vec<_> = totals.into_iter().collect();
        all.sort_unstable_by_key(|(tunnel, _)| *tunnel);
        all
    }
}

fn tunnel(daemons: Option<&Kernel>, direction: Direction, slot: SaSlot, sa: &SaSpec) -> Tunnel {
    let named = daemons.and_then(|kernel| kernel.numbers(direction, slot));
    let (reqid, if_id) = named.unwrap_or((sa.reqid.0, 0));
    let Endpoints { local, remote } = sa.endpoints;
    Tunnel { is_daemons: named.is_some(), reqid, if_id, local, remote }
}

fn has_ended(lifetime: &Lifetime, counters: &SaCounters, now: Now) -> bool {
    lifetime.hard.reached(&counters.usage, now).is_some()
}
