//! Which addresses are this host's.

use std::sync::Arc;

use convoy_wire::{FlowKey, Prefix};

use super::networks::{Networks, number};

/// Addresses that this host takes packets for. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Hosts(Arc<Networks<()>>);

impl Hosts {
    pub(super) fn new(addresses: &[Prefix]) -> Self {
        let mut all = Networks::default();
        addresses.iter().for_each(|address| all.change((*address).into(), |_| Some(())));
        Self(Arc::new(all))
    }

    /// Whether a packet is for this host, or for a group or everybody, as a kernel delivers it.
    pub(super) fn have(&self, flow: &FlowKey) -> bool {
        let to = flow.dst_addr();
        let is_for_all = to == std::net::Ipv4Addr::BROADCAST;
        to.is_multicast() || is_for_all || self.0.any(flow.version, number(flow.dst), |_, ()| true)
    }
}
