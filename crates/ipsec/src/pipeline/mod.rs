//! The stages a packet passes, in order.
//!
//! ```text
//! Outbound  parse → classify → protect → (engine) → forward
//! Inbound   demux → (engine) → commit → decap → policy
//! ```
//!
//! Each stage is one file. It takes a burst and leaves every packet in exactly one place: with the
//! next stage, in the bin with a [`DropReason`](crate::drop_reason::DropReason), or in the
//! [`HandOff`] for the worker that owns its SA. No stage calls back into an earlier one.
//!
//! What comes out of one tunnel and falls under a policy of another ([`Spd::goes_on`]) waits at
//! [`Inbound::onward`], from where [`Outbound::forward`] takes it.
//!
//! [`Outbound`] and [`Inbound`] own the hot SAs of one worker. `submit` takes packets as far as
//! the engine, `collect` brings on what the engine has finished; with an engine that works at
//! once, the whole way is one `submit` and one `collect`.

mod acquire;
mod ah;
mod arrival;
mod bin;
mod classify;
mod commit;
mod decap;
mod demux;
mod dummy;
mod form;
mod forward;
mod fragment;
mod fragments;
mod handoff;
mod hints;
mod hop;
mod icmp;
mod inbound;
mod iv;
mod keepalive;
mod layout;
mod lengths;
mod lookup;
mod mapping;
mod observer;
mod outbound;
mod packet;
mod parse;
mod peers;
mod policy;
mod protect;
mod refusals;
mod sa;
mod settled;
mod silence;
mod slab;
mod transport;
mod tunnel;
mod watch;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::counter::Counter;
use crate::drop_reason::DropCounters;
use crate::sa::WorkerId;
#[cfg(doc)]
use crate::spd::Spd;

pub(crate) use classify::why_uncovered;
pub use handoff::HandOff;
pub use inbound::Inbound;
pub use observer::{Observer, Stage};
pub use outbound::Outbound;

/// Surroundings of a pipeline, as far as it needs to know them.
#[derive(Clone, Debug)]
pub struct PipelineConfig {
    /// The worker it runs on; SAs of other workers are handed off.
    pub worker: WorkerId,
    /// True if the gateway itself forwards and so decrements TTL and hop limit (RFC 4301 section
    /// 5.1.2.1, note 2). False where the host's own forwarding does, as with a TUN interface.
    pub decrement_ttl: bool,
    /// True if outer UDP checksums over IPv6 are computed here. False where a UDP socket does it.
    pub udp6_checksum: bool,
    /// Source of ICMPv4 messages to inner senders; without one, the address they wrote to.
    pub icmp_source_v4: Option<Ipv4Addr>,
    /// Source of ICMPv6 messages to inner senders; without one, the address they wrote to.
    pub icmp_source_v6: Option<Ipv6Addr>,
}

/// Counts of one worker's pipelines, published for anyone to read.
#[derive(Debug, Default)]
pub struct WorkerCounters {
    /// Dropped packets by reason.
    pub drops: DropCounters,
    /// Packets protected and given to the wire, dummies included.
    pub outbound_packets: Counter,
    /// Inner bytes of those packets.
    pub outbound_bytes: Counter,
    /// Packets accepted from the wire and given to the plain side, or on to another tunnel.
    pub inbound_packets: Counter,
    /// Inner bytes of those packets.
    pub inbound_bytes: Counter,
    /// Of those, the ones that an outbound policy decided about, instead of the plain side.
    pub transit_packets: Counter,
    /// Inner bytes of these.
    pub transit_bytes: Counter,
    /// Packets passed without protection because a policy says so.
    pub bypassed: Counter,
    /// ICMP messages sent to inner senders.
    pub icmp_sent: Counter,
    /// Fragments made of inner packets that were too big and allowed it: of each packet all but one.
    pub fragments_made: Counter,
    /// Fragments from the wire that became part of another's packet: of each packet put together
    /// all but one, so that what came in is what went on, was dropped or was joined.
    pub fragments_joined: Counter,
    /// Packets that waited for an SA, each time they were made to.
    pub held_for_sa: Counter,
    /// NAT keepalives sent.
    pub keepalives_sent: Counter,
    /// Dummy packets made (RFC 4303 section 2.6).
    pub dummies_sent: Counter,
    /// ECN combinations that RFC 6040 section 4.2 calls for an alarm on.
    pub ecn_alarms: Counter,
}

/// A router's word that packets to `destination` were too big, with what it quoted of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtuNews {
    /// Address that the packet was going to.
    pub destination: IpAddr,
    /// Largest packet the next hop takes, in bytes.
    pub mtu: u32,
    /// SPI and low half of the sequence number of the quoted packet, if that much was quoted.
    pub quote: Option<(u32, u32)>,
}

/// Pieces that both pipelines are built from.
#[derive(Debug)]
pub struct PipelineParts {
    /// Surroundings.
    pub config: PipelineConfig,
    /// Source of snapshots.
    pub reader: crate::snapshot::Reader,
    /// Part that does the cryptography.
    pub engine: convoy_engine::Front,
    /// Counts of the worker, published for anyone to read.
    pub counters: Arc<WorkerCounters>,
}
