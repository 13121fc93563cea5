//! Addresses of this host.

use std::sync::Arc;

use convoy_wire::{FlowKey, Prefix};

use super::networks::{Networks, number};
use super::tuples::Probe;

/// Addresses that this host takes packets for. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Hosts(Arc<Networks<()>>);

impl Hosts {
    pub(super) fn new(addresses: &[Prefix]) -> Self {
        let mut all = Networks::default();
        addresses.iter().for_each(|address| all.change((*address).into(), |_| Some(())));
        Self(Arc::new(all))
    }

    /// True if a packet is for this host, or for a group or everybody, as a kernel delivers it.
    pub(super) fn have(&self, flow: &FlowKey) -> bool {
        let to = flow.dst_addr();
        let is_for_all = to == std::net::Ipv4Addr::BROADCAST;
        to.is_multicast() || is_for_all || self.0.any(flow.version, number(flow.dst), |_, ()| true)
    }

    /// Puts the probes of packets for this host first; both parts.
    pub(super) fn first<'a, A, K: AsRef<FlowKey>>(
        &self,
        probes: &'a mut [Probe<A>],
        keys: &[K],
    ) -> (&'a mut [Probe<A>], &'a mut [Probe<A>]) {
        let mut ours = 0;
        for at in 0..probes.len() {
            let key = probes.get(at).and_then(|probe| keys.get(usize::from(probe.at)));
            if key.is_some_and(|key| self.have(key.as_ref())) {
                probes.swap(ours, at);
                ours += 1;
            }
        }
        probes.split_at_mut(ours)
    }
}
