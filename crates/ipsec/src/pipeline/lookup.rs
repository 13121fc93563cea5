//! A burst's look-up in the SPD.

use convoy_packet::{BURST_MAX, InterfaceId};

use super::packet::Packet;
use crate::snapshot::Snapshot;
use crate::spd::{Decision, Direction, FlowCache, SpdId};

/// Flows of each IP version that the cache of an interface beside the first holds: such interfaces have
/// few policies, which are soon found, and there may be many.
const FEW_V4: usize = 1 << 10;
const FEW_V6: usize = 1 << 8;

/// The database of one interface (RFC 4301 section 4.4.1), and what was lately found in it.
#[derive(Debug)]
struct Base {
    spd: SpdId,
    cache: FlowCache,
}

/// Looks up bursts of one direction, in memory that is allocated once.
#[derive(Debug)]
pub(super) struct Lookup {
    direction: Direction,
    first: Base,
    /// Of the interfaces from 1 on.
    others: Vec<Base>,
    decisions: Vec<Option<Decision>>,
    onward: Onward,
}

/// Packets of a burst that go on into another tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Onward([u64; BURST_MAX / 64]);

impl Onward {
    #[inline]
    fn add(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// True if no packet does.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// True if this packet does.
    pub(super) fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

impl Base {
    #[inline]
    fn burst(
        &mut self,
        snapshot: &Snapshot,
        direction: Direction,
        packets: &[Packet],
        decisions: &mut [Option<Decision>],
    ) {
        if let Some(spd) = snapshot.spd_of(self.spd) {
            spd.lookup_burst(direction, packets, &mut self.cache, decisions);
        }
    }

    /// The same of packets that come out of tunnels and for which other tunnels are looked at, of which the
    /// first is number `before` of the burst.
    #[inline]
    fn burst_inbound(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet],
        decisions: &mut [Option<Decision>],
        (onward, before): (&mut Onward, usize),
    ) {
        if let Some(spd) = snapshot.spd_of(self.spd) {
            let goes_on = |at| onward.add(before + at);
            spd.lookup_inbound(packets, &mut self.cache, decisions, goes_on);
        }
    }
}

impl Lookup {
    pub(super) fn new(direction: Direction) -> Self {
        Self {
            direction,
            first: Base { spd: SpdId::default(), cache: FlowCache::default() },
            others: Vec::new(),
            decisions: Vec::with_capacity(BURST_MAX),
            onward: Onward::default(),
        }
    }

    /// Sets the databases that the interfaces ask, the first one's first.
    pub(super) fn set_spds(&mut self, spds: &[SpdId]) {
        let cache = || FlowCache::new(FEW_V4, FEW_V6);
        if let Some((first, others)) = spds.split_first() {
            self.first.spd = *first;
            self.others = others.iter().map(|spd| Base { spd: *spd, cache: cache() }).collect();
        }
    }

    /// The database of an interface; `None` if there is no such interface.
    pub(super) fn spd(&self, interface: InterfaceId) -> Option<SpdId> {
        match usize::from(interface.0).checked_sub(1) {
            None => Some(self.first.spd),
            Some(n) => self.others.get(n).map(|base| base.spd),
        }
    }

    /// Result for each packet of the last burst, in order: `None` without a database.
    pub(super) fn decisions(&self) -> &[Option<Decision>] {
        &self.decisions
    }

    /// Packets of the last burst that came out of tunnels and go on into others. What comes out on another
    /// interface than the first does not: there, routes lead to tunnels.
    pub(super) const fn onward(&self) -> Onward {
        self.onward
    }

    /// Looks a burst up.
    pub(super) fn burst(&mut self, snapshot: &Snapshot, packets: &[Packet]) {
        self.decisions.clear();
        self.decisions.resize(packets.len(), None);
        self.onward = Onward::default();
        if self.others.is_empty() {
            let Self { direction, first, decisions, onward, .. } = self;
            match direction {
                Direction::Outbound => first.burst(snapshot, *direction, packets, decisions),
                Direction::Inbound => {
                    first.burst_inbound(snapshot, packets, decisions, (onward, 0));
                }
            }
        } else {
            self.by_interface(snapshot, packets);
        }
    }

    /// [`Lookup::burst`] where packets may be of several interfaces, which mostly come in runs.
    #[inline(never)]
    fn by_interface(&mut self, snapshot: &Snapshot, packets: &[Packet]) {
        let Self { direction, first, others, decisions, onward } = self;
        let mut decisions = &mut decisions[..];
        let mut before = 0;
        for run in packets.chunk_by(|a, b| a.frame.interface() == b.frame.interface()) {
            let Some((mine, rest)) =
                core::mem::take(&mut decisions).split_at_mut_checked(run.len())
            else {
                return;
            };
            decisions = rest;
            let interface = run.first().map_or(0, |packet| packet.frame.interface().0);
            let other = usize::from(interface).checked_sub(1);
            match other.map(|n| others.get_mut(n)) {
                None if *direction == Direction::Inbound => {
                    first.burst_inbound(snapshot, run, mine, (onward, before));
                }
                None => first.burst(snapshot, *direction, run, mine),
                Some(Some(base)) => base.burst(snapshot, *direction, run, mine),
                Some(None) => {}
            }
            before += run.len();
        }
    }
}
