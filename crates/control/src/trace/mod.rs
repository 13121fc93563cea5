//! Outcome for a packet that might come, with the reasons: the answer to `convoy trace`. Nothing is
//! sent.

mod advice;
mod host;
mod text;

use std::net::IpAddr;

use convoy_ipsec::clock::Now;
use convoy_ipsec::sa::{InboundSpec, InterfaceId, OutboundSpec, SaSlot};
use convoy_ipsec::selector::Direction;
use convoy_ipsec::sequence::SequenceLimits;
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::{PolicyAction, SpdId};
use convoy_ipsec::trace::{self, Outcome, Packet, PacketTrace};
use convoy_wire::{FlowKey, IpVersion, Ports, Protocol, Spi};
use serde::{Deserialize, Serialize};

pub use host::{Decision, Fate, HostWay, Prefixes, RouteTaken};

use crate::state::State;
use crate::status::{Origin, SCHEMA};
use crate::xfrm::Kernel;

/// A packet that might come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Its source. Of a packet that arrives: of the one inside.
    pub from: IpAddr,
    /// Its destination.
    pub to: IpAddr,
    /// Number of the upper protocol.
    pub protocol: u8,
    /// Source and destination port, or ICMP type and code; absent when a packet does not show them.
    pub ports: Option<(u16, u16)>,
    /// Its length with its IP header, in bytes.
    pub bytes: u16,
    /// Its don't-fragment bit.
    pub dont_fragment: bool,
    /// The SPI that it arrives with; absent for a packet that leaves.
    pub spi: Option<u32>,
    /// Of a packet that leaves: the identifier of the interface that it is routed into; 0 for the one
    /// that every gateway has.
    #[serde(default)]
    pub if_id: u32,
}

/// Outcome for a packet that might come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The packet.
    pub packet: Question,
    /// Treatment of the packet.
    pub verdict: Verdict,
    /// Cause of the drop, if it is dropped.
    pub reason: Option<Reason>,
    /// Remedy, if something is wrong.
    pub advice: Option<String>,
    /// The policy that decides about it; absent when none does.
    pub policy: Option<PolicyUsed>,
    /// Its SA; absent when it has none.
    pub sa: Option<SaUsed>,
    /// Of a packet that goes on into another tunnel: what becomes of it there.
    #[serde(default)]
    pub onward: Option<Box<Self>>,
    /// Way through the host; absent for a packet that arrives through an SA, and where the gateway forwards past the
    /// host.
    #[serde(default)]
    pub host: Option<HostWay>,
}

/// Treatment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Verdict {
    /// It is sent through its SA.
    Protected {
        /// Length of the packet that is sent, in bytes.
        bytes: usize,
    },
    /// It is cut into fragments of IPv4 that are sent through its SA.
    Fragmented {
        /// The longest fragment that passes, in bytes.
        room_bytes: usize,
        /// Number of fragments.
        pieces: usize,
    },
    /// It goes on to the plain side.
    Accepted,
    /// It came out of a tunnel, and an outbound policy decides about it.
    SentOn,
    /// It passes in clear.
    InClear,
    /// It waits for an SA that is asked for.
    Waits,
    /// It is dropped, and its sender told how long packets may be.
    TooBig {
        /// So long, in bytes.
        mtu_bytes: usize,
    },
    /// It is dropped.
    Dropped,
}

/// Cause of a drop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Name of the reason, as `convoy status` counts it.
    pub name: String,
    /// Meaning of the cause.
    pub help: String,
}

/// A policy that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyUsed {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub origin: Origin,
    /// The number by which its IKE daemon knows it.
    pub index: Option<u32>,
    /// Of overlapping policies the lowest decides.
    pub priority: u32,
    /// `protect`, `bypass` or `discard`.
    pub action: String,
}

/// An SA that a packet goes or came through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaUsed {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub origin: Origin,
    /// Its SPI.
    pub spi: String,
    /// The reqid, as its daemon knows it.
    pub reqid: u32,
    /// `esp` or `ah`.
    pub protocol: String,
    /// `tunnel` or `transport`.
    pub mode: String,
    /// Algorithm.
    pub algorithm: String,
    /// Our outer address.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
    /// Our and the peer's UDP port, if encapsulated.
    pub udp_ports: Option<(u16, u16)>,
    /// The worker that owns it.
    pub worker: u16,
    /// Sequence numbers left; outbound only.
    pub sequence_left: Option<u64>,
    /// Largest outer packet that the path takes, in bytes; outbound only.
    pub path_mtu: Option<usize>,
}

/// Works out what would become of a packet at `now`.
///
/// # Errors
/// Says what is wrong with the question, in words.
pub fn trace(
    state: &State,
    daemons: Option<&Kernel>,
    packet: Question,
    now: Now,
) -> Result<Trace, String> {
    trace_in(&state.published().current(), state, daemons, packet, now)
}

fn trace_in(
    snapshot: &Snapshot,
    state: &State,
    daemons: Option<&Kernel>,
    packet: Question,
    now: Now,
) -> Result<Trace, String> {
    let flow = flow(&packet)?;
    let (way, direction, spd) = match packet.spi {
        None => {
            let (interface, spd) = interface(state, packet.if_id)?;
            let (len, dont_fragment) = (packet.bytes.into(), packet.dont_fragment);
            let seen = Packet { flow, len, dont_fragment, interface };
            (trace::outbound(snapshot, spd, &seen, now), Direction::Outbound, spd)
        }
        Some(spi) => match receiver(snapshot, spi) {
            Some(slot) => {
                let spd = spd_behind(state, snapshot, slot);
                (trace::inbound(snapshot, spd, slot, &flow, now), Direction::Inbound, spd)
            }
            None => return Ok(unknown_spi(packet)),
        },
    };
    let mut reason = way.outcome.reason();
    let is_bypass = way.outcome == Outcome::Bypassed;
    if is_bypass && !state.site().wire.backend.is_direct() {
        reason = Some(convoy_ipsec::drop_reason::DropReason::BypassImpossible);
    }
    let verdict = match way.outcome {
        _ if is_bypass && reason.is_some() => Verdict::Dropped,
        Outcome::Protected { bytes } => Verdict::Protected { bytes },
        Outcome::Fragmented { room, pieces } => Verdict::Fragmented { room_bytes: room, pieces },
        Outcome::Accepted => Verdict::Accepted,
        Outcome::Transit => Verdict::SentOn,
        Outcome::Bypassed => Verdict::InClear,
        Outcome::Waits => Verdict::Waits,
        Outcome::TooBig { mtu } => Verdict::TooBig { mtu_bytes: mtu },
        Outcome::Dropped(_) => Verdict::Dropped,
    };
    let policy = policy_used(daemons, snapshot, spd, &way);
    let onward = (way.outcome == Outcome::Transit).then(|| {
        let inside = Question { spi: None, ..packet };
        trace_in(snapshot, state, daemons, inside, now)
    });
    let advice = match (reason, verdict) {
        (Some(reason), _) => advice::on(reason, policy.as_ref()),
        (None, Verdict::Waits) => Some(advice::ON_WAITING),
        _ => None,
    };
    Ok(Trace {
        schema: SCHEMA,
        packet,
        verdict,
        reason: reason.map(|reason| Reason {
            name: reason.name().to_owned(),
            help: reason.help().to_owned(),
        }),
        advice: advice.map(ToOwned::to_owned),
        policy,
        sa: way.slot.and_then(|slot| sa_used(daemons, snapshot, direction, slot)),
        onward: onward.transpose()?.map(Box::new),
        host: None,
    })
}

/// The plain interface of an identifier, and its policies. They are in the order of their numbers.
fn interface(state: &State, if_id: u32) -> Result<(InterfaceId, SpdId), String> {
    let own = (1..=u8::MAX).zip(state.interface_spds()).map(|(n, (id, spd))| (n, id, spd));
    let first = core::iter::once((0, 0, state.plain_spd()));
    let found = first.chain(own).find(|(_, id, _)| *id == if_id);
    found
        .map(|(n, _, spd)| (InterfaceId(n), spd))
        .ok_or_else(|| format!("no [[xfrm.interface]] of the site file has if_id {if_id}"))
}

/// Fields of a packet that selectors match.
///
/// # Errors
/// Says what is wrong with the question, in words.
pub fn flow(packet: &Question) -> Result<FlowKey, String> {
    let protocol = Protocol(packet.protocol);
    let is_icmp = matches!(protocol, Protocol::ICMP | Protocol::ICMPV6);
    let ports = match packet.ports {
        None => Ports::Opaque,
        Some((ty, code)) if is_icmp => {
            let byte = |number: u16| {
                u8::try_from(number).map_err(|_| "ICMP types and codes go up to 255".to_owned())
            };
            Ports::Icmp { ty: byte(ty)?, code: byte(code)? }
        }
        Some((src, dst)) => Ports::Known { src, dst },
    };
    let flow = FlowKey::new(packet.from, packet.to, protocol, ports);
    let flow =
        flow.ok_or_else(|| format!("{} and {} are of two IP versions", packet.from, packet.to))?;
    let least = IpVersion::of_addr(packet.from).header_len();
    if usize::from(packet.bytes) < least {
        return Err(format!("a packet has at least {least} bytes, its IP header"));
    }
    Ok(flow)
}

/// The SA that receives this SPI. Two may have one at different addresses of ours; the first is meant.
fn receiver(snapshot: &Snapshot, spi: u32) -> Option<SaSlot> {
    let spi = Spi::new(spi)?;
    snapshot.inbound_sas().find(|(_, sa)| sa.spi == spi).map(|(slot, _)| slot)
}

fn unknown_spi(packet: Question) -> Trace {
    let reason = convoy_ipsec::drop_reason::DropReason::UnknownSpi;
    Trace {
        schema: SCHEMA,
        packet,
        verdict: Verdict::Dropped,
        reason: Some(Reason { name: reason.name().to_owned(), help: reason.help().to_owned() }),
        advice: advice::on(reason, None).map(ToOwned::to_owned),
        policy: None,
        sa: None,
        onward: None,
        host: None,
    }
}

/// The database that packets of an inbound SA are asked about in.
fn spd_behind(state: &State, snapshot: &Snapshot, slot: SaSlot) -> SpdId {
    let interface = snapshot.inbound(slot).map_or(0, |sa| sa.interface.0);
    let nth = |n| state.interface_spds().nth(n).map(|(_, spd)| spd);
    usize::from(interface).checked_sub(1).and_then(nth).unwrap_or_else(|| state.plain_spd())
}

fn policy_used(
    daemons: Option<&Kernel>,
    snapshot: &Snapshot,
    spd: SpdId,
    way: &PacketTrace,
) -> Option<PolicyUsed> {
    let decision = way.decision?;
    let policy = snapshot.spd_of(spd)?.policy(decision.id)?;
    let index = daemons.and_then(|kernel| kernel.policy_index(spd, decision.id));
    let action = match decision.action {
        PolicyAction::Protect { .. } => "protect",
        PolicyAction::Bypass => "bypass",
        PolicyAction::Discard => "discard",
    };
    Some(PolicyUsed {
        name: policy.name.to_string(),
        origin: if index.is_some() { Origin::Daemon } else { Origin::Site },
        index,
        priority: policy.priority,
        action: action.to_owned(),
    })
}

fn sa_used(
    daemons: Option<&Kernel>,
    snapshot: &Snapshot,
    direction: Direction,
    slot: SaSlot,
) -> Option<SaUsed> {
    let reqid = daemons.and_then(|kernel| kernel.reqid(direction, slot));
    let used = match direction {
        Direction::Outbound => sending(snapshot.outbound(slot)?),
        Direction::Inbound => receiving(snapshot.inbound(slot)?),
    };
    Some(match reqid {
        Some(reqid) => SaUsed { origin: Origin::Daemon, reqid, ..used },
        None => used,
    })
}

fn sending(sa: &OutboundSpec) -> SaUsed {
    let last = crate::status::last_number(sa);
    SaUsed {
        name: sa.name.to_string(),
        origin: Origin::Site,
        spi: sa.spi.to_string(),
        reqid: sa.reqid.0,
        protocol: sa.protocol.number().to_string(),
        mode: crate::status::mode(sa.mode),
        algorithm: sa.key.suite().to_string(),
        local: sa.endpoints.local,
        remote: sa.endpoints.remote,
        udp_ports: sa.encap.map(|encap| (encap.local_port, encap.remote_port)),
        worker: sa.worker.0,
        sequence_left: Some(SequenceLimits::new(sa.esn).hard.get().saturating_sub(last)),
        path_mtu: Some(trace::path_mtu(sa)),
    }
}

fn receiving(sa: &InboundSpec) -> SaUsed {
    SaUsed {
        name: sa.name.to_string(),
        origin: Origin::Site,
        spi: sa.spi.to_string(),
        reqid: sa.reqid.0,
        protocol: sa.protocol.number().to_string(),
        mode: crate::status::mode(sa.mode),
        algorithm: sa.key.suite().to_string(),
        local: sa.endpoints.local,
        remote: sa.endpoints.remote,
        udp_ports: sa.encap.map(|encap| (encap.local_port, encap.remote_port)),
        worker: sa.worker.0,
        sequence_left: None,
        path_mtu: None,
    }
}
