//! A burst's look-up in the SPD.

use convoy_wire::FlowKey;

use crate::spd::{Direction, PolicyId, Spd};

/// Looks up bursts, in memory that is allocated once.
#[derive(Debug)]
pub(super) struct Lookup {
    keys: Vec<FlowKey>,
    policies: Vec<Option<PolicyId>>,
}

impl Lookup {
    /// For bursts of up to `n` packets.
    pub(super) fn with_capacity(n: usize) -> Self {
        Self { keys: Vec::with_capacity(n), policies: Vec::with_capacity(n) }
    }

    /// The policy of each flow, in order.
    pub(super) fn burst(
        &mut self,
        spd: &Spd,
        direction: Direction,
        flows: impl Iterator<Item = FlowKey>,
    ) -> &[Option<PolicyId>] {
        self.keys.clear();
        self.keys.extend(flows);
        self.policies.clear();
        self.policies.resize(self.keys.len(), None);
        spd.lookup_burst(direction, &self.keys, &mut self.policies);
        &self.policies
    }
}
