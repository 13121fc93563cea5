//! Third stage inbound: ESP or AH is taken off and the inner packet brought to light.

use convoy_engine::{Job, JobBurst};
use convoy_packet::Frame;
use convoy_wire::ecn::{EcnAlarm, EcnDecap};
use convoy_wire::esp::EspTrailer;
use convoy_wire::{
    Ecn, IpVersion, Ipv4Mut, Ipv6Mut, PacketInfo, Protocol, esp, parse_packet, parse_packet_into,
    parse_plain, parse_plain_v6,
};

use super::ah;
use super::bin::Bin;
use super::commit::Verdict;
use super::packet::{Packet, add};
use super::protect::decrement_ttl;
use super::sa::InboundSa;
use super::slab::Slab;
use super::{PipelineConfig, transport};
use crate::drop_reason::DropReason;
use crate::sa::{Mode, SaSlot};

/// A slot that no snapshot has.
const NOWHERE: u32 = u32::MAX;

/// Takes ESP or AH off the packet of each of the first jobs, as many as there are verdicts; drops
/// what was refused.
pub(super) fn run(
    config: &PipelineConfig,
    sas: &Slab<InboundSa>,
    done: &mut JobBurst,
    verdicts: &[Verdict],
    output: &mut Vec<Packet>,
    bin: &mut Bin<'_>,
) {
    let mut jobs = done.drain_front(verdicts.len());
    let (mut slot, mut sa) = (NOWHERE, None);
    for verdict in verdicts {
        let Some(Job { mut frame, text, context, .. }) = jobs.next() else { return };
        // Packets of one SA come in runs.
        if slot != context.slot {
            (slot, sa) = (context.slot, sas.get(context.slot));
        }
        let sa = match (verdict, sa) {
            (None, Some(sa)) => sa,
            (verdict, _) => {
                refuse(bin, frame, verdict.unwrap_or(DropReason::UnknownSpi));
                continue;
            }
        };
        let (slot, text) = (SaSlot(slot), (text.start as usize, text.len as usize));
        match usual(config, sa, &mut frame, text, IpVersion::V4) {
            // Asked here, so that the packet is put together where it goes.
            Some(info) if output.len() < output.capacity() => {
                output.push(Packet { frame, slot, reqid: sa.reqid, info });
            }
            // Unreachable: no more jobs are judged than there is room for.
            Some(_) => refuse(bin, frame, DropReason::NoFrame),
            None => any(config, sa, (frame, slot, text), output, bin),
        }
    }
}

#[cold]
fn refuse(bin: &mut Bin<'_>, frame: Frame, reason: DropReason) {
    bin.drop(frame, reason);
}

/// Fast path for nearly all packets, with no more looks at them than they need: takes ESP off a
/// tunnel's packet in which nothing changes but the TTL, and says what there is to know of the inner
/// one. `None`, and the frame unchanged, for a packet that must go the way of [`any`], which also
/// finds out what is wrong with it.
///
/// One version at a time: what comes of two ways would be put together on the stack.
#[inline(always)]
fn usual(
    config: &PipelineConfig,
    sa: &InboundSa,
    frame: &mut Frame,
    (start, len): (usize, usize),
    version: IpVersion,
) -> Option<PacketInfo> {
    if !sa.is_usual() {
        return None;
    }
    let outer = frame.data();
    let text = outer.get(start..start + len)?;
    let trailer = esp::parse_trailer(text).ok()?;
    if trailer.next_header != version.as_next_header() {
        return None;
    }
    let inner = text.get(..trailer.payload_len)?;
    let info = match version {
        IpVersion::V4 => parse_plain(inner)?,
        IpVersion::V6 => parse_plain_v6(inner)?,
    };
    let is_marked = sa.ecn && info.tos.ecn() != outer_ecn(outer);
    let least = if config.decrement_ttl { 2 } else { 0 };
    if is_marked || info.ttl < least {
        return None;
    }
    let packet = frame.narrow(start, info.total_len as usize).ok()?;
    if config.decrement_ttl {
        decrement_ttl(packet, version);
    }
    frame.set_interface(sa.interface);
    Some(info)
}

/// Takes ESP or AH off a packet of any kind, and drops it if it is not as it should be.
#[inline(never)]
fn any(
    config: &PipelineConfig,
    sa: &InboundSa,
    (mut frame, slot, text): (Frame, SaSlot, (usize, usize)),
    output: &mut Vec<Packet>,
    bin: &mut Bin<'_>,
) {
    let usual = usual(config, sa, &mut frame, text, IpVersion::V6);
    let packet = match add(output, Packet { slot, reqid: sa.reqid, ..Packet::new(frame) }) {
        Ok(packet) => packet,
        // Unreachable, as above.
        Err(Packet { frame, .. }) => return bin.drop(frame, DropReason::NoFrame),
    };
    if let Some(info) = usual {
        packet.info = info;
    } else if let Err(reason) = decap(config, sa, packet, text, bin) {
        sa.counters.dropped.add(1);
        if let Some(packet) = output.pop() {
            bin.drop(packet.frame, reason);
        }
    }
}

fn decap(
    config: &PipelineConfig,
    sa: &InboundSa,
    packet: &mut Packet,
    (start, len): (usize, usize),
    bin: &Bin<'_>,
) -> Result<(), DropReason> {
    let Packet { frame, info, .. } = packet;
    frame.set_interface(sa.interface);
    let (start, trailer) = if sa.ah.is_none() {
        let text = frame.data().get(start..start + len).ok_or(DropReason::EspLength)?;
        (start, esp::parse_trailer(text).map_err(|_| DropReason::BadPadding)?)
    } else {
        // AH says itself what it carries.
        let taken = ah::take_back(frame).ok_or(DropReason::AhLength)?;
        let next_header = taken.next;
        (taken.start, EspTrailer { payload_len: taken.len, pad_len: 0, next_header })
    };
    if trailer.next_header == Protocol::NONE {
        // RFC 4303 section 2.6: dummy packets are dropped without a word.
        return Err(DropReason::DummyPacket);
    }
    match sa.mode {
        Mode::Tunnel => {
            let outer = outer_ecn(frame.data());
            frame.truncate(start + trailer.payload_len);
            frame.shrink_front(start);
            inner_packet(frame, info, trailer.next_header)?;
            if sa.ecn {
                carry_ecn(frame.data_mut(), info, outer, bin)?;
            }
            pass_ttl(config, frame.data_mut(), info)
        }
        Mode::Transport => {
            let outer = parse_packet(frame.data()).map_err(|_| DropReason::InnerMalformed)?;
            let payload = trailer.payload_len;
            transport::take_out(frame, &outer, start, payload, trailer.next_header)
                .ok_or(DropReason::InnerMalformed)?;
            parse_packet_into(frame.data(), info).map_err(|_| DropReason::InnerMalformed)?;
            // Without encapsulation that was asked before decryption; a NAT's news had to be told first.
            let is_strange =
                sa.spec.from_peer_only && info.flow.src_addr() != sa.spec.endpoints.remote;
            if is_strange { Err(DropReason::TransportAddress) } else { Ok(()) }
        }
    }
}

/// The inner packet of a tunnel: what the trailer says it is, and no longer than it says itself.
/// Bytes behind it are traffic-flow-confidentiality padding (RFC 4303 section 2.7).
fn inner_packet(
    frame: &mut Frame,
    info: &mut PacketInfo,
    next: Protocol,
) -> Result<(), DropReason> {
    let version = match next {
        Protocol::IPV4 => IpVersion::V4,
        Protocol::IPV6 => IpVersion::V6,
        _ => return Err(DropReason::BadNextHeader),
    };
    parse_packet_into(frame.data(), info).map_err(|_| DropReason::InnerMalformed)?;
    if info.flow.version != version {
        return Err(DropReason::InnerMalformed);
    }
    frame.truncate(info.total_len as usize);
    Ok(())
}

#[inline(always)]
fn outer_ecn(packet: &[u8]) -> Ecn {
    let Some(&[first, second]) = packet.first_chunk() else { return Ecn::NotEct };
    let behind = if first >> 4 == 6 { 4 } else { 0 };
    Ecn::from_bits(second >> behind)
}

/// RFC 6040 section 4.2.
fn carry_ecn(
    packet: &mut [u8],
    info: &PacketInfo,
    outer: Ecn,
    bin: &Bin<'_>,
) -> Result<(), DropReason> {
    let inner = info.tos.ecn();
    if inner == outer {
        // Nothing happened on the way.
        return Ok(());
    }
    let EcnDecap::Forward { ecn, alarm } = inner.decapsulate(outer) else {
        return Err(DropReason::EcnDrop);
    };
    if alarm != EcnAlarm::None {
        bin.counters.ecn_alarms.add(1);
    }
    if ecn != inner {
        match info.flow.version {
            IpVersion::V4 => {
                Ipv4Mut::new(packet).map_err(|_| DropReason::InnerMalformed)?.set_ecn(ecn);
            }
            IpVersion::V6 => {
                Ipv6Mut::new(packet).map_err(|_| DropReason::InnerMalformed)?.set_ecn(ecn);
            }
        }
    }
    Ok(())
}

fn pass_ttl(
    config: &PipelineConfig,
    packet: &mut [u8],
    info: &PacketInfo,
) -> Result<(), DropReason> {
    if config.decrement_ttl {
        if info.ttl <= 1 {
            return Err(DropReason::TtlExpired);
        }
        decrement_ttl(packet, info.flow.version);
    }
    Ok(())
}
