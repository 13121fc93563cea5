//! Outbound SAs by the address that they send to: for what the network says of a path, which names no slot.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::sa::OutboundSa;

/// Slots by remote address and SPI. SAs of the two protocols may share both, and so may SAs to
/// peers behind one NAT.
#[derive(Debug, Default)]
pub(super) struct Peers(BTreeSet<(IpAddr, u32, u32)>);

impl Peers {
    pub(super) fn add(&mut self, slot: u32, sa: &OutboundSa) {
        self.0.insert((sa.spec.endpoints.remote, sa.spec.spi.get(), slot));
    }

    pub(super) fn remove(&mut self, slot: u32, sa: &OutboundSa) {
        self.0.remove(&(sa.spec.endpoints.remote, sa.spec.spi.get(), slot));
    }

    /// Slots of the SAs with this SPI to this address.
    pub(super) fn with_spi(&self, remote: IpAddr, spi: u32) -> impl Iterator<Item = u32> {
        self.between((remote, spi), (remote, spi))
    }

    /// Slots of all SAs to this address.
    pub(super) fn with_address(&self, remote: IpAddr) -> impl Iterator<Item = u32> {
        self.between((remote, 0), (remote, u32::MAX))
    }

    fn between(&self, first: (IpAddr, u32), last: (IpAddr, u32)) -> impl Iterator<Item = u32> {
        let range = (first.0, first.1, 0)..=(last.0, last.1, u32::MAX);
        self.0.range(range).map(|(_, _, slot)| *slot)
    }
}
