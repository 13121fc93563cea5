//! Third stage inbound: ESP or AH is taken off and the inner packet brought to light.

use convoy_packet::Frame;
use convoy_wire::ecn::{EcnAlarm, EcnDecap};
use convoy_wire::esp::EspTrailer;
use convoy_wire::{Ecn, IpVersion, Ipv4Mut, Ipv6Mut, PacketInfo, Protocol, esp, parse_packet};

use super::bin::Bin;
use super::commit::Opened;
use super::fragments::Part;
use super::sa::InboundSa;
use super::slab::Slab;
use super::{PipelineConfig, protect, transport};
use crate::drop_reason::DropReason;
use crate::sa::{Mode, ReqId};

/// An inner packet and what it must be allowed by.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) frame: Frame,
    pub(super) info: PacketInfo,
    pub(super) reqid: ReqId,
    pub(super) slot: u32,
}

impl Part for Inner {
    fn packet(&self) -> &[u8] {
        self.frame.data()
    }
    fn info(&self) -> &PacketInfo {
        &self.info
    }
    fn info_mut(&mut self) -> &mut PacketInfo {
        &mut self.info
    }
    fn scope(&self) -> u32 {
        self.reqid.0
    }
    fn into_frame(self) -> Frame {
        self.frame
    }
}

/// Takes ESP or AH off each packet of `input`.
pub(super) fn run(
    config: &PipelineConfig,
    sas: &Slab<InboundSa>,
    input: &mut Vec<Opened>,
    output: &mut Vec<Inner>,
    bin: &mut Bin<'_>,
) {
    for Opened { mut frame, slot, start, len, next } in input.drain(..) {
        let Some(sa) = sas.get(slot) else {
            bin.drop(frame, DropReason::UnknownSpi);
            continue;
        };
        match decap(config, sa, &mut frame, (start, len, next), bin) {
            Ok(info) => output.push(Inner { frame, info, reqid: sa.spec.reqid, slot }),
            Err(reason) => {
                sa.spec.counters.dropped.add(1);
                bin.drop(frame, reason);
            }
        }
    }
}

fn decap(
    config: &PipelineConfig,
    sa: &InboundSa,
    frame: &mut Frame,
    (start, len, next): (usize, usize, Option<Protocol>),
    bin: &Bin<'_>,
) -> Result<PacketInfo, DropReason> {
    let text = frame.data().get(start..start + len).ok_or(DropReason::EspLength)?;
    let trailer = match next {
        Some(next_header) => EspTrailer { payload_len: len, pad_len: 0, next_header },
        None => esp::parse_trailer(text).map_err(|_| DropReason::BadPadding)?,
    };
    if trailer.next_header == Protocol::NONE {
        // RFC 4303 section 2.6: dummy packets are dropped without a word.
        return Err(DropReason::DummyPacket);
    }
    match sa.spec.mode {
        Mode::Tunnel => {
            let outer = outer_ecn(frame.data());
            frame.truncate(start + trailer.payload_len);
            frame.shrink_front(start);
            let info = inner_packet(frame, trailer.next_header)?;
            if sa.spec.ecn {
                carry_ecn(frame.data_mut(), &info, outer, bin)?;
            }
            pass_ttl(config, frame.data_mut(), &info)?;
            Ok(info)
        }
        Mode::Transport => {
            let outer = parse_packet(frame.data()).map_err(|_| DropReason::InnerMalformed)?;
            let payload = trailer.payload_len;
            transport::take_out(frame, &outer, start, payload, trailer.next_header)
                .ok_or(DropReason::InnerMalformed)?;
            parse_packet(frame.data()).map_err(|_| DropReason::InnerMalformed)
        }
    }
}

/// The inner packet of a tunnel: what the trailer says it is, and no longer than it says itself.
/// Bytes behind it are traffic-flow-confidentiality padding (RFC 4303 section 2.7).
fn inner_packet(frame: &mut Frame, next: Protocol) -> Result<PacketInfo, DropReason> {
    let version = match next {
        Protocol::IPV4 => IpVersion::V4,
        Protocol::IPV6 => IpVersion::V6,
        _ => return Err(DropReason::BadNextHeader),
    };
    let info = parse_packet(frame.data()).map_err(|_| DropReason::InnerMalformed)?;
    if info.flow.version != version {
        return Err(DropReason::InnerMalformed);
    }
    frame.truncate(info.total_len as usize);
    Ok(info)
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
        protect::decrement_ttl(packet);
    }
    Ok(())
}
