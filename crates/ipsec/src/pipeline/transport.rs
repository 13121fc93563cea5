//! Transport mode: ESP goes between a packet's own IP header and what that header carries
//! (RFC 4303 section 3.1.1).

use convoy_engine::Span;
use convoy_packet::Frame;
use convoy_wire::ipv6::{ExtensionLimits, transport_point};
use convoy_wire::{
    FragmentState, IpVersion, Ipv4Mut, Ipv4View, Ipv6Mut, Ipv6View, PacketInfo, Protocol, SeqNum,
    ipv4,
};

use super::ah;
use super::form::Any;
use super::iv::IvSource;
use super::layout::{Enclosure, Iv};
use super::sa::OutboundSa;
use crate::drop_reason::DropReason;

/// Position of ESP in a packet.
struct Place {
    /// Bytes of IP header (and extension headers) that stay in front.
    header: usize,
    /// Next header that ESP's trailer names.
    protocol: Protocol,
    /// Position of the byte that must name ESP or UDP instead.
    next_header_at: usize,
}

fn place(packet: &[u8], info: &PacketInfo) -> Option<Place> {
    match info.flow.version {
        IpVersion::V4 => Some(Place {
            header: usize::from(info.header_len),
            protocol: info.flow.protocol,
            next_header_at: 9,
        }),
        IpVersion::V6 => {
            let view = Ipv6View::parse(packet).ok()?;
            let limits = ExtensionLimits::default();
            let point = transport_point(view.next_header(), view.payload(), limits).ok()?;
            Some(Place {
                header: point.offset + IpVersion::V6.header_len(),
                protocol: point.protocol,
                next_header_at: point.next_header_at,
            })
        }
    }
}

/// Bytes of the packet that stay in front of ESP.
pub(super) fn header_len(packet: &[u8], info: &PacketInfo) -> usize {
    place(packet, info).map_or_else(|| usize::from(info.header_len), |place| place.header)
}

/// Lets a packet through a transport-mode SA if it is whole and between the SA's two hosts (RFC
/// 4303 section 3.3.4, RFC 4301 section 4.1).
pub(super) fn check(sa: &OutboundSa, packet: &[u8], info: &PacketInfo) -> Result<(), DropReason> {
    let spec = &sa.spec;
    // An atomic fragment counts as whole (RFC 6946) and has a fragment header all the same.
    let has_extensions = usize::from(info.upper_offset) != usize::from(info.header_len);
    if info.fragment != FragmentState::Whole || has_extensions && place(packet, info).is_none() {
        return Err(DropReason::TransportFragment);
    }
    let ours = info.flow.src_addr() == spec.endpoints.local;
    if !ours || info.flow.dst_addr() != spec.endpoints.remote {
        return Err(DropReason::TransportAddress);
    }
    if sa.ah.is_some() && usize::from(info.upper_offset) != info.flow.version.header_len() {
        return Err(DropReason::AhOptions);
    }
    Ok(())
}

/// Makes room for `len` bytes of AH behind an IP header without options, which then announces it.
/// Returns where they are and what they are to announce.
pub(super) fn open_up(
    frame: &mut Frame,
    info: &PacketInfo,
    len: usize,
    seq: SeqNum,
) -> Option<(usize, Protocol)> {
    let header = info.flow.version.header_len();
    frame.grow_front(len).ok()?;
    let total = frame.len();
    let packet = frame.data_mut();
    packet.get(len..len + header)?;
    packet.copy_within(len..len + header, 0);
    let next_header_at = match info.flow.version {
        IpVersion::V4 => 9,
        IpVersion::V6 => 6,
    };
    patch_header(packet, next_header_at, Protocol::AH, total)?;
    if let Ok(view) = Ipv4View::parse(packet)
        && view.ident() == 0
    {
        // Only whole packets come here, so that the old one is not missed (RFC 6864 section 4).
        Ipv4Mut::new(packet).ok()?.set_ident(ah::ident(seq));
    }
    Some((header, info.flow.protocol))
}

/// Makes room behind the IP header and lays out ESP there. Returns what is to be encrypted, and its IV.
pub(super) fn lay_out(
    sa: &OutboundSa,
    frame: &mut Frame,
    info: &PacketInfo,
    seq: SeqNum,
    ivs: &mut IvSource,
) -> Option<(Span, Iv)> {
    let Place { header, protocol, next_header_at } = place(frame.data(), info)?;
    let lengths = sa.layout.lengths();
    let len = frame.len().checked_sub(header)?;
    let front = header + sa.outer.udp_len();
    let before = front + lengths.prefix_len();
    let (grown, total) = (before - header, front + lengths.sealed_len(len));
    frame.grow_front(grown).ok()?;
    frame.set_len(total).ok()?;
    let packet = frame.data_mut();
    packet.get(grown..grown + header)?;
    packet.copy_within(grown..grown + header, 0);
    let outer = if sa.spec.encap.is_some() { Protocol::UDP } else { Protocol::ESP };
    patch_header(packet, next_header_at, outer, total)?;
    sa.outer.write_udp(packet, header, total);
    let pad = lengths.pad_len(len);
    let enclosure = Enclosure { front, before, len, fill: 0, pad, next_header: protocol };
    let iv = sa.layout.write_esp::<Any>(packet, &enclosure, sa.spi, seq, || ivs.next())?;
    Some((enclosure.text(), iv))
}

/// Takes ESP out: moves the IP header to directly before the payload, which lies at
/// `start..start + len`, and gives the header back the payload's protocol and length.
///
/// `header` is the length of the IP header with its extension headers, as it arrived.
pub(super) fn take_out(
    frame: &mut Frame,
    info: &PacketInfo,
    start: usize,
    len: usize,
    protocol: Protocol,
) -> Option<()> {
    let header = usize::from(info.upper_offset);
    let next_header_at = match info.flow.version {
        IpVersion::V4 => 9,
        IpVersion::V6 => {
            let view = Ipv6View::parse(frame.data()).ok()?;
            last_next_header(view.next_header(), view.payload(), header)?
        }
    };
    frame.truncate(start + len);
    let moved = start.checked_sub(header)?;
    let packet = frame.data_mut();
    packet.get(moved..start)?;
    packet.copy_within(..header, moved);
    frame.shrink_front(moved);
    let total = frame.len();
    let packet = frame.data_mut();
    patch_header(packet, next_header_at, protocol, total)?;
    if info.flow.version == IpVersion::V4 && header > IpVersion::V4.header_len() {
        // A kernel that records itself in the options of what it delivers leaves the checksum as it was.
        ipv4::fill_checksum(packet).ok()?;
    }
    Some(())
}

/// Position of the byte that names the upper layer at `upper` bytes into the packet.
fn last_next_header(first: Protocol, payload: &[u8], upper: usize) -> Option<usize> {
    let fixed = IpVersion::V6.header_len();
    let (mut at, mut offset, mut next) = (6, fixed, first);
    while offset < upper {
        let here = payload.get(offset - fixed..)?.first_chunk::<2>()?;
        // A fragment header is 8 bytes and keeps 0 where others keep their length.
        let units = if next == Protocol::FRAGMENT { 0 } else { usize::from(here[1]) };
        (at, next) = (offset, Protocol(here[0]));
        offset += (units + 1) * 8;
    }
    (offset == upper).then_some(at)
}

fn patch_header(
    packet: &mut [u8],
    next_header_at: usize,
    next: Protocol,
    total: usize,
) -> Option<()> {
    match IpVersion::of(*packet.first()?)? {
        IpVersion::V4 => {
            let mut header = Ipv4Mut::new(packet).ok()?;
            header.set_total_len(u16::try_from(total).ok()?);
            header.set_protocol(next);
        }
        IpVersion::V6 => {
            let payload = total.checked_sub(IpVersion::V6.header_len())?;
            Ipv6Mut::new(packet).ok()?.set_payload_len(u16::try_from(payload).ok()?);
            *packet.get_mut(next_header_at)? = next.0;
        }
    }
    Some(())
}
