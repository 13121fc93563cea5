//! A burst's look-up in the SPD.

use convoy_packet::BURST_MAX;

use super::packet::Packet;
use crate::snapshot::Snapshot;
use crate::spd::{Decision, Direction, FlowCache, SpdId};

/// Looks up bursts of one direction, in memory that is allocated once.
#[derive(Debug)]
pub(super) struct Lookup {
    /// The database it asks.
    pub(super) spd: SpdId,
    direction: Direction,
    cache: FlowCache,
    decisions: Vec<Option<Decision>>,
}

impl Lookup {
    pub(super) fn new(direction: Direction) -> Self {
        Self {
            spd: SpdId::default(),
            direction,
            cache: FlowCache::default(),
            decisions: Vec::with_capacity(BURST_MAX),
        }
    }

    /// What is decided about each packet, in order: nothing without a database.
    pub(super) fn burst(&mut self, snapshot: &Snapshot, packets: &[Packet]) -> &[Option<Decision>] {
        self.decisions.clear();
        self.decisions.resize(packets.len(), None);
        if let Some(spd) = snapshot.spd_of(self.spd) {
            spd.lookup_burst(self.direction, packets, &mut self.cache, &mut self.decisions);
        }
        &self.decisions
    }
}
