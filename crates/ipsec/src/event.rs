//! Events that the data plane tells control: few, rare, and never more than there is room for.

use std::net::{IpAddr, SocketAddr};

use convoy_wire::{FlowKey, Spi};

use crate::lifetime::Limit;
use crate::sa::{ReqId, SaSlot};
use crate::selector::Direction;

/// An SA, as those outside know it (RFC 4301 section 4.1), and where it lay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SaId {
    /// Way that its packets go.
    pub direction: Direction,
    /// Its SPI.
    pub spi: Spi,
    /// Address that its packets are sent to: the peer's outbound, ours inbound.
    pub destination: IpAddr,
    /// Its slot in the snapshot of then.
    pub slot: SaSlot,
    /// Number that tells it from others of this slot, if its maker asked for that
    /// ([`OutboundSpec::serial`](crate::sa::OutboundSpec::serial)).
    pub serial: u64,
}

/// Something control should know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// An SA reached a soft limit: it should be replaced. Told once per SA, unless a reload moves
    /// the limits.
    Soft {
        /// The SA.
        sa: SaId,
        /// Quantity whose bound it reached.
        limit: Limit,
    },
    /// An SA reached a hard limit: it passes nothing more. Told once per SA, unless a reload moves
    /// the limits.
    Hard {
        /// The SA.
        sa: SaId,
        /// Quantity whose bound it reached.
        limit: Limit,
    },
    /// A packet waits for an SA that is not there (RFC 4301 section 5.1). Told by each worker that
    /// has such packets, and again every few seconds as long as more come.
    Acquire {
        /// The SAs that its policy names.
        reqid: ReqId,
        /// The flow of the first packet that waits; its policy is found with it.
        flow: FlowKey,
    },
    /// An authentic and new packet of an inbound SA with UDP encapsulation came from another address or
    /// port than the SA's, as when a NAT has given the peer another one. What is sent goes on to the old
    /// one. Told as long as such packets come, at most once per second and SA.
    Mapping {
        /// The SA.
        sa: SaId,
        /// Source of the packet.
        from: SocketAddr,
    },
}
