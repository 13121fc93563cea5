//! A burst's look-up in the SPD.

use convoy_wire::FlowKey;

use crate::snapshot::Snapshot;
use crate::spd::{Decision, Direction, FlowCache, SpdId};

/// Looks up bursts of one direction, in memory that is allocated once.
#[derive(Debug)]
pub(super) struct Lookup {
    /// The database it asks.
    pub(super) spd: SpdId,
    direction: Direction,
    cache: FlowCache,
    keys: Vec<FlowKey>,
    decisions: Vec<Option<Decision>>,
}

impl Lookup {
    /// For bursts of up to `n` packets.
    pub(super) fn new(direction: Direction, n: usize) -> Self {
        Self {
            spd: SpdId::default(),
            direction,
            cache: FlowCache::default(),
            keys: Vec::with_capacity(n),
            decisions: Vec::with_capacity(n),
        }
    }

    /// What is decided about each flow, in order: nothing without a database.
    pub(super) fn burst(
        &mut self,
        snapshot: &Snapshot,
        flows: impl Iterator<Item = FlowKey>,
    ) -> &[Option<Decision>] {
        self.keys.clear();
        self.keys.extend(flows);
        self.decisions.clear();
        self.decisions.resize(self.keys.len(), None);
        if let Some(spd) = snapshot.spd_of(self.spd) {
            spd.lookup_burst(self.direction, &self.keys, &mut self.cache, &mut self.decisions);
        }
        &self.decisions
    }
}
