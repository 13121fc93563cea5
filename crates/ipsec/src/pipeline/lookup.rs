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
}

impl Lookup {
    pub(super) fn new(direction: Direction) -> Self {
        Self {
            direction,
            first: Base { spd: SpdId::default(), cache: FlowCache::default() },
            others: Vec::new(),
            decisions: Vec::with_capacity(BURST_MAX),
        }
    }

    /// Which databases the interfaces ask, the first one's first.
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

    /// What was decided about each packet of the last burst, in order: nothing without a database.
    pub(super) fn decisions(&self) -> &[Option<Decision>] {
        &self.decisions
    }

    /// Looks a burst up.
    pub(super) fn burst(&mut self, snapshot: &Snapshot, packets: &[Packet]) {
        self.decisions.clear();
        self.decisions.resize(packets.len(), None);
        if self.others.is_empty() {
            let Self { direction, first, decisions, .. } = self;
            first.burst(snapshot, *direction, packets, decisions);
        } else {
            self.by_interface(snapshot, packets);
        }
    }

    /// [`Lookup::burst`] where packets may be of several interfaces, which mostly come in runs.
    #[inline(never)]
    fn by_interface(&mut self, snapshot: &Snapshot, packets: &[Packet]) {
        let Self { direction, first, others, decisions } = self;
        let mut decisions = &mut decisions[..];
        for run in packets.chunk_by(|a, b| a.frame.interface() == b.frame.interface()) {
            let Some((mine, rest)) =
                core::mem::take(&mut decisions).split_at_mut_checked(run.len())
            else {
                return;
            };
            decisions = rest;
            let interface = run.first().map_or(0, |packet| packet.frame.interface().0);
            let base = match usize::from(interface).checked_sub(1) {
                None => Some(&mut *first),
                Some(n) => others.get_mut(n),
            };
            if let Some(base) = base {
                base.burst(snapshot, *direction, run, mine);
            }
        }
    }
}
