//! Settings of the gateway that SAs of daemons depend on.

use convoy_engine::registry::Drivers;
use convoy_ipsec::selector::Direction;
use convoy_xfrm::Encap;

use super::interfaces::Interfaces;

/// Properties of the gateway that records are made with, beside the SA.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    pub(super) drivers: Drivers,
    pub(super) udp_port: u16,
    /// Largest outer packet in bytes where no route says so.
    pub(super) wire_mtu: u16,
    pub(super) interfaces: Interfaces,
    /// True if SAs may have ciphers of old peers.
    pub(super) legacy: bool,
}

/// Our port of UDP encapsulation.
pub(super) const fn local_port(direction: Direction, encap: &Encap) -> u16 {
    match direction {
        Direction::Outbound => encap.source_port,
        Direction::Inbound => encap.destination_port,
    }
}
