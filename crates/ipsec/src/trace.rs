//! Treatment that a packet would get, worked out from a snapshot and touching nothing.
//!
//! The pipelines decide the same for packets that are there; `tests/it/trace.rs` holds the two together.

use convoy_wire::{FlowKey, IpVersion, ipv6};

use crate::clock::Now;
use crate::drop_reason::DropReason;
use crate::pipeline::why_uncovered;
use crate::sa::{DfPolicy, InboundSpec, InterfaceId, IpsecProtocol, Mode, OutboundSpec, SaSlot};
use crate::selector::Direction;
use crate::sequence::SequenceLimits;
use crate::snapshot::Snapshot;
use crate::spd::{Decision, PolicyAction, SpdId};
use crate::suite::{AhSuite, EspSuite};

/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;

/// A packet that might come: whole, with time to live, and with no IP options or extension headers.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Its flow.
    pub flow: FlowKey,
    /// Its length with its IP header, in bytes.
    pub len: usize,
    /// Its don't-fragment bit; IPv6 packets are as if it were set.
    pub dont_fragment: bool,
    /// The plain interface that it is routed into. Into another one than the first, routes may lead what
    /// an SA has sent.
    pub interface: InterfaceId,
}

/// Treatment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is sent through its SA.
    Protected {
        /// Length of the packet that is sent, in bytes.
        bytes: usize,
    },
    /// It is cut into fragments of IPv4 that are sent through its SA, one by one.
    Fragmented {
        /// The longest fragment that passes, in bytes.
        room: usize,
        /// Number of fragments.
        pieces: usize,
    },
    /// It came through the right SA and goes on to the plain side.
    Accepted,
    /// It came through the right SA, and an outbound policy decides about it: see [`outbound`].
    Transit,
    /// A policy lets it pass unprotected.
    Bypassed,
    /// It waits for an SA that is asked for.
    Waits,
    /// It is dropped, and its sender told that packets may have so many bytes.
    TooBig {
        /// The bytes.
        mtu: usize,
    },
    /// It is dropped.
    Dropped(DropReason),
}

impl Outcome {
    /// Cause of the drop, if the packet is dropped.
    #[must_use]
    pub const fn reason(self) -> Option<DropReason> {
        match self {
            Self::Dropped(reason) => Some(reason),
            Self::TooBig { .. } => Some(DropReason::TooBig),
            _ => None,
        }
    }
}

/// The way of a packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketTrace {
    /// The policy that decides about it.
    pub decision: Option<Decision>,
    /// Its SA.
    pub slot: Option<SaSlot>,
    /// Treatment of the packet.
    pub outcome: Outcome,
}

/// The way of a packet that leaves: RFC 4301 section 5.1.
#[must_use]
pub fn outbound(snapshot: &Snapshot, spd: SpdId, packet: &Packet, now: Now) -> PacketTrace {
    let spd = snapshot.spd_of(spd);
    let decision = spd.and_then(|spd| spd.lookup(Direction::Outbound, &packet.flow));
    let way = |slot, outcome| PacketTrace { decision, slot, outcome };
    let reqid = match decision.map(|decision| decision.action) {
        Some(PolicyAction::Protect { reqid }) => reqid,
        Some(PolicyAction::Bypass) => return way(None, Outcome::Bypassed),
        Some(PolicyAction::Discard) => {
            return way(None, Outcome::Dropped(DropReason::PolicyDiscard));
        }
        None => return way(None, Outcome::Dropped(why_uncovered(&packet.flow))),
    };
    let owner = snapshot.outbound_to(reqid, &packet.flow);
    match owner.and_then(|owner| Some((owner.slot, snapshot.outbound(owner.slot)?))) {
        Some((slot, sa)) if packet.interface != InterfaceId(0) && sa.has_sent(&packet.flow) => {
            way(Some(slot), Outcome::Dropped(DropReason::RoutingLoop))
        }
        Some((slot, sa)) => way(Some(slot), protect(sa, packet, now)),
        None if snapshot.is_on_demand(reqid) => way(None, Outcome::Waits),
        None => way(None, Outcome::Dropped(DropReason::NoSa)),
    }
}

/// The way of a packet that was in an authentic packet of the SA in `slot`: RFC 4301 section 5.2.
#[must_use]
pub fn inbound(
    snapshot: &Snapshot,
    spd: SpdId,
    slot: SaSlot,
    flow: &FlowKey,
    now: Now,
) -> PacketTrace {
    let spd = snapshot.spd_of(spd);
    let decision = spd.and_then(|spd| spd.lookup(Direction::Inbound, flow));
    let dropped =
        |reason| PacketTrace { decision, slot: Some(slot), outcome: Outcome::Dropped(reason) };
    let Some(sa) = snapshot.inbound(slot) else { return dropped(DropReason::UnknownSpi) };
    if sa.lifetime.hard.reached(&sa.counters.usage, now).is_some() {
        return dropped(DropReason::LifetimeExpired);
    }
    if is_between_others(sa, flow) {
        return dropped(DropReason::TransportAddress);
    }
    match decision.map(|decision| decision.action) {
        Some(PolicyAction::Protect { reqid }) if sa.serves(reqid) => {
            let is_from_tunnel = sa.mode == Mode::Tunnel && sa.interface == InterfaceId(0);
            let is_transit = is_from_tunnel && spd.is_some_and(|spd| spd.is_transit(flow));
            let outcome = if is_transit { Outcome::Transit } else { Outcome::Accepted };
            PacketTrace { decision, slot: Some(slot), outcome }
        }
        _ => dropped(DropReason::InnerPolicyMismatch),
    }
}

/// True if a packet of an SA in transport mode is not its peer's, and no NAT explains it.
fn is_between_others(sa: &InboundSpec, flow: &FlowKey) -> bool {
    let may_change = sa.encap.is_some() && !sa.from_peer_only;
    let is_peers = flow.src_addr() == sa.endpoints.remote || may_change;
    sa.mode == Mode::Transport && !is_peers
}

/// Treatment that the SA gives a packet of its own.
fn protect(sa: &OutboundSpec, packet: &Packet, now: Now) -> Outcome {
    let last = match sa.counters.sequence.get() {
        0 => sa.lease.used().get(),
        sent => sent,
    };
    if sa.lifetime.hard.reached(&sa.counters.usage, now).is_some() {
        return Outcome::Dropped(DropReason::LifetimeExpired);
    }
    if !sa.source_is_here {
        return Outcome::Dropped(DropReason::SourceAbsent);
    }
    let outcome = fit(sa, packet);
    let passes = matches!(outcome, Outcome::Protected { .. } | Outcome::Fragmented { .. });
    let ends = (packet.flow.src_addr(), packet.flow.dst_addr());
    if passes && sa.mode == Mode::Transport && ends != (sa.endpoints.local, sa.endpoints.remote) {
        return Outcome::Dropped(DropReason::TransportAddress);
    }
    if passes && last >= SequenceLimits::new(sa.esn).hard.get() {
        return Outcome::Dropped(DropReason::SequenceExhausted);
    }
    if passes && last.saturating_add(1) >= sa.lease.granted() {
        return Outcome::Dropped(DropReason::LeaseExhausted);
    }
    outcome
}

/// The largest inner packet that fits the path which an SA begins with, in bytes.
#[must_use]
pub fn longest_inner(sa: &OutboundSpec) -> Option<usize> {
    let front = IpVersion::of_addr(sa.endpoints.remote).header_len();
    let udp = if sa.encap.is_some() { UDP_HEADER } else { 0 };
    let room = usize::from(sa.path_mtu).saturating_sub(front + udp);
    let kept = if sa.mode == Mode::Transport { front } else { 0 };
    Some(lengths(sa, 0, room)?.longest + kept)
}

/// The largest outer packet that the SA's path takes now, in bytes.
#[must_use]
pub fn path_mtu(sa: &OutboundSpec) -> usize {
    // 0: its worker has no MTU of the path yet.
    let learnt = usize::try_from(sa.counters.path_mtu.get()).ok().filter(|mtu| *mtu > 0);
    learnt.unwrap_or_else(|| sa.path_mtu.into())
}

/// Bytes of a payload with all that the protocol puts around it, and the longest payload within a room.
struct Lengths {
    sealed: usize,
    longest: usize,
}

fn lengths(sa: &OutboundSpec, payload: usize, room: usize) -> Option<Lengths> {
    Some(match sa.protocol {
        IpsecProtocol::Esp => {
            let layout = EspSuite::new(sa.key.suite()).ok()?.layout();
            let sealed = layout.sealed_len(payload);
            Lengths { sealed, longest: layout.max_payload_len(room).unwrap_or(0) }
        }
        IpsecProtocol::Ah => {
            let outer = IpVersion::of_addr(sa.endpoints.remote);
            let suite = AhSuite::new(sa.key.suite()).ok()?;
            let header = suite.aligned_header_len(outer, sa.ah_alignment);
            Lengths { sealed: header + payload, longest: room.saturating_sub(header) }
        }
    })
}

/// Compares a packet with the path, and says what happens if it does not fit: RFC 4301 section 8.2.
fn fit(sa: &OutboundSpec, packet: &Packet) -> Outcome {
    let version = packet.flow.version;
    let udp = if sa.encap.is_some() { UDP_HEADER } else { 0 };
    let (front, kept) = match sa.mode {
        Mode::Tunnel => (IpVersion::of_addr(sa.endpoints.remote).header_len() + udp, 0),
        Mode::Transport => (version.header_len() + udp, version.header_len()),
    };
    let mtu = path_mtu(sa);
    let room = mtu.saturating_sub(front);
    let payload = packet.len.saturating_sub(kept);
    let Some(Lengths { sealed, longest }) = lengths(sa, payload, room) else {
        return Outcome::Dropped(DropReason::EngineRejected);
    };
    if front + sealed <= mtu || may_exceed_path(sa, packet) {
        let is_filled = sa.mode == Mode::Tunnel && sa.protocol == IpsecProtocol::Esp;
        let filled =
            if is_filled { usize::from(sa.pad_to).min(longest).max(payload) } else { payload };
        let sealed = lengths(sa, filled, room).map_or(sealed, |lengths| lengths.sealed);
        return Outcome::Protected { bytes: front + sealed };
    }
    let room = longest + kept;
    if sa.mode == Mode::Tunnel && version == IpVersion::V4 && !packet.dont_fragment {
        let header = version.header_len();
        let part = room.saturating_sub(header) & !7;
        if part == 0 {
            return Outcome::Dropped(DropReason::TooBig);
        }
        let pieces = packet.len.saturating_sub(header).div_ceil(part);
        return Outcome::Fragmented { room, pieces };
    }
    let mtu = if version == IpVersion::V6 { room.max(ipv6::MIN_MTU) } else { room };
    Outcome::TooBig { mtu }
}

/// RFC 2473 section 7.1: packets of up to 1280 bytes over a path too narrow for them.
fn may_exceed_path(sa: &OutboundSpec, packet: &Packet) -> bool {
    sa.mode == Mode::Tunnel
        && packet.flow.version == IpVersion::V6
        && packet.len <= ipv6::MIN_MTU
        && sa.endpoints.remote.is_ipv4()
        && sa.outer.df != DfPolicy::Set
}
