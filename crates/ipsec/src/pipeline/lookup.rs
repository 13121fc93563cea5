//! A burst's look-up in the SPD.

use convoy_wire::FlowKey;

use crate::spd::{Decision, Direction, FlowCache, Spd};

/// Looks up bursts of one direction, in memory that is allocated once.
#[derive(Debug)]
pub(super) struct Lookup {
    direction: Direction,
    cache: FlowCache,
    keys: Vec<FlowKey>,
    decisions: Vec<Option<Decision>>,
}

impl Lookup {
    /// For bursts of up to `n` packets.
    pub(super) fn new(direction: Direction, n: usize) -> Self {
        Self {
            direction,
            cache: FlowCache::default(),
            keys: Vec::with_capacity(n),
            decisions: Vec::with_capacity(n),
        }
    }

    /// What is decided about each flow, in order.
    pub(super) fn burst(
        &mut self,
        spd: &Spd,
        flows: impl Iterator<Item = FlowKey>,
    ) -> &[Option<Decision>] {
        self.keys.clear();
        self.keys.extend(flows);
        self.decisions.clear();
        self.decisions.resize(self.keys.len(), None);
        spd.lookup_burst(self.direction, &self.keys, &mut self.cache, &mut self.decisions);
        &self.decisions
    }
}
