//! Third stage inbound: ESP or AH is taken off and the inner packet brought to light.

use convoy_engine::{Job, JobBurst};
use convoy_packet::Frame;
use convoy_wire::ecn::{EcnAlarm, EcnDecap};
use convoy_wire::esp::EspTrailer;
use convoy_wire::{
    Ecn, IpVersion, Ipv4Mut, Ipv6Mut, PacketInfo, Protocol, esp, parse_packet, parse_packet_into,
};

use super::ah;
use super::bin::Bin;
use super::commit::Verdict;
use super::packet::{Packet, add};
use super::sa::InboundSa;
use super::slab::Slab;
use super::{PipelineConfig, protect, transport};
use crate::drop_reason::DropReason;
use crate::sa::{Mode, SaSlot};

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
    for verdict in verdicts {
        let Some(Job { frame, text, context, .. }) = jobs.next() else { return };
        let sa = match (verdict, sas.get(context.slot)) {
            (None, Some(sa)) => sa,
            (verdict, _) => {
                bin.drop(frame, verdict.unwrap_or(DropReason::UnknownSpi));
                continue;
            }
        };
        let (slot, reqid) = (SaSlot(context.slot), sa.reqid);
        let packet = match add(output, Packet { slot, reqid, ..Packet::new(frame) }) {
            Ok(packet) => packet,
            // Unreachable: no more jobs are judged than there is room for.
            Err(Packet { frame, .. }) => {
                bin.drop(frame, DropReason::NoFrame);
                continue;
            }
        };
        let text = (text.start as usize, text.len as usize);
        if let Err(reason) = decap(config, sa, packet, text, bin) {
            sa.counters.dropped.add(1);
            if let Some(packet) = output.pop() {
                bin.drop(packet.frame, reason);
            }
        }
    }
}

#[inline]
fn decap(
    config: &PipelineConfig,
    sa: &InboundSa,
    packet: &mut Packet,
    (start, len): (usize, usize),
    bin: &Bin<'_>,
) -> Result<(), DropReason> {
    let Packet { frame, info, .. } = packet;
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
            parse_packet_into(frame.data(), info).map_err(|_| DropReason::InnerMalformed)
        }
    }
}

/// The inner packet of a tunnel: what the trailer says it is, and no longer than it says itself.
/// Bytes behind it are traffic-flow-confidentiality padding (RFC 4303 section 2.7).
#[inline]
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

fn outer_ecn(packet: &[u8]) -> Ecn {
    match packet.first_chunk::<2>() {
        Some([first, second]) if first >> 4 == 6 => Ecn::from_bits(second >> 4),
        Some([_, second]) => Ecn::from_bits(*second),
        None => Ecn::NotEct,
    }
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
        protect::decrement_ttl(packet, info.flow.version);
    }
    Ok(())
}
