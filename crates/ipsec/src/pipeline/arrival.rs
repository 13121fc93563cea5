//! Whose a packet from the wire is: where ESP or AH lies in it, and by which SA it came.

use convoy_packet::Frame;
use convoy_wire::ah::AhHeader;
use convoy_wire::esp::{self, EspHeader, UdpPayload};
use convoy_wire::{
    FragmentState, PacketInfo, ParseError, Ports, Protocol, Spi, UdpView, parse_packet,
};

use super::demux::Stage;
use super::layout;
use super::packet::add;
use crate::drop_reason::DropReason;
use crate::snapshot::SpiKey;

/// The packets of a burst, and the runs that they come in.
#[derive(Debug)]
pub(super) struct Arrivals {
    pub(super) packets: Vec<Arrival>,
    pub(super) runs: Vec<Run>,
}

/// A packet with ESP or AH in it.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) frame: Frame,
    pub(super) seq_low: u32,
    /// First byte of its header.
    pub(super) at: u16,
    /// Length of an AH header; 0 for ESP.
    pub(super) ah_len: u16,
}

/// Packets of one SA in a row: what they have in common is found and checked once.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) of: Address,
    /// Index of the first packet behind it.
    pub(super) end: u32,
    /// Place of the SA, once that is known; before, a place where it may be.
    pub(super) slot: u32,
}

/// Values that a packet's SA is found by, and its encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) key: SpiKey,
    /// Our UDP port, if encapsulated.
    pub(super) port: Option<u16>,
}

/// Position of ESP or AH in a packet.
#[derive(Clone, Copy, Debug)]
struct Found {
    of: Address,
    seq_low: u32,
    at: u16,
    ah_len: u16,
}

impl Run {
    /// Of no packets.
    pub(super) const NONE: &Self =
        &Self { of: Address { key: SpiKey::NONE, port: None }, end: 0, slot: u32::MAX };
}

impl Arrivals {
    /// For bursts of up to `n` packets, with all memory there.
    pub(super) fn with_capacity(n: usize) -> Self {
        Self { packets: Vec::with_capacity(n), runs: Vec::with_capacity(n) }
    }
}

/// Takes packets in.
pub(super) fn take_in(stage: &mut Stage<'_, '_>, frames: impl Iterator<Item = Frame>) {
    // What the last packet's SA was found by, if it was plain.
    let mut last = None;
    for mut frame in frames {
        let Some(Plain { of, seq_low }) = find_plain(&mut frame) else {
            last = None;
            find_any(stage, frame);
            continue;
        };
        if push(stage, Arrival { frame, seq_low, at: PLAIN_AT, ah_len: 0 }) && last != Some(of) {
            last = Some(of);
            begin(stage, of.address());
        }
    }
    close_run(stage.arrivals, 0);
}

/// Adds a packet to the burst, of which there is room for all; says whether it did.
#[inline(always)]
fn push(stage: &mut Stage<'_, '_>, arrival: Arrival) -> bool {
    match add(&mut stage.arrivals.packets, arrival) {
        Ok(_) => true,
        Err(Arrival { frame, .. }) => {
            lose(stage, frame);
            false
        }
    }
}

/// Unreachable: a burst fits.
#[cold]
fn lose(stage: &mut Stage<'_, '_>, frame: Frame) {
    stage.bin.drop(frame, DropReason::NoFrame);
}

/// Lets the newest packet begin a run, unless its SA is that of the last one. Starts loading what tells
/// where that is, so that the ways of a burst's packets through the memory overlap.
#[inline(never)]
fn begin(stage: &mut Stage<'_, '_>, of: Address) {
    if stage.arrivals.runs.last().is_some_and(|last| last.of == of) {
        return;
    }
    if stage.hints.is_far() {
        stage.hints.prefetch(of.key.spi());
    }
    close_run(stage.arrivals, 1);
    // There is room for a run of every packet.
    let _ = add(&mut stage.arrivals.runs, Run { of, end: 0, slot: 0 });
}

/// Ends the last run before the newest `but` packets.
fn close_run(arrivals: &mut Arrivals, but: usize) {
    if let Some(run) = arrivals.runs.last_mut() {
        run.end = arrivals.packets.len().saturating_sub(but) as u32;
    }
}

/// Offset of ESP in a plain packet, in bytes.
const PLAIN_AT: u16 = 20;

/// ESP directly behind an IPv4 header without options.
struct Plain {
    of: PlainAddress,
    seq_low: u32,
}

/// Values that its SA is found by.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PlainAddress {
    local: u32,
    spi: Spi,
}

impl PlainAddress {
    fn address(self) -> Address {
        Address { key: SpiKey::new_v4(self.spi, self.local, Protocol::ESP), port: None }
    }
}

/// Finds plain ESP. All others, wrong ones included, are left to [`find_any`].
#[inline(always)]
fn find_plain(frame: &mut Frame) -> Option<Plain> {
    const AT: usize = PLAIN_AT as usize;
    let packet = frame.data();
    let head = packet.first_chunk::<{ AT + esp::HEADER_LEN }>()?;
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    // Neither more fragments nor an offset.
    let whole = head[6] & 0x3f == 0 && head[7] == 0;
    let plain = head[0] == 0x45 && whole && head[9] == Protocol::ESP.0;
    if !plain || total < head.len() || total > packet.len() {
        return None;
    }
    let EspHeader { spi, seq_low } = EspHeader::parse(&head[AT..]).ok()?;
    let local = u32::from_be_bytes(*head[16..].first_chunk()?);
    frame.truncate(total);
    Some(Plain { of: PlainAddress { local, spi }, seq_low })
}

/// Finds ESP or AH wherever it may be. Sockets hand over whole packets; a fragment can only come
/// from a packet interface, and is put together here.
#[inline(never)]
fn find_any(stage: &mut Stage<'_, '_>, frame: Frame) {
    let parsed = parse_packet(frame.data());
    let whole = match parsed {
        Ok(info) if info.fragment != FragmentState::Whole => join(stage, frame, &info),
        parsed => Some((frame, parsed)),
    };
    let Some((mut frame, parsed)) = whole else { return };
    let found = parsed.map_err(DropReason::from).and_then(|info| find(&mut frame, &info));
    match found {
        Ok(Found { of, seq_low, at, ah_len }) => {
            if push(stage, Arrival { frame, seq_low, at, ah_len }) {
                begin(stage, of);
            }
        }
        Err(reason) => stage.bin.drop(frame, reason),
    }
}

type Parse = Result<PacketInfo, ParseError>;

/// The packet that a fragment completes.
#[cold]
fn join(stage: &mut Stage<'_, '_>, frame: Frame, info: &PacketInfo) -> Option<(Frame, Parse)> {
    // Of nothing else is the whole wanted.
    if !matches!(info.flow.protocol, Protocol::ESP | Protocol::AH | Protocol::UDP) {
        stage.bin.drop(frame, DropReason::FragmentOnWire);
        return None;
    }
    let frame = stage.reassembly.take(stage.now, frame, info, stage.bin)?;
    let parsed = parse_packet(frame.data());
    Some((frame, parsed))
}

/// Finds ESP or AH behind the outer headers; link padding is cut off.
fn find(frame: &mut Frame, info: &PacketInfo) -> Result<Found, DropReason> {
    frame.truncate(info.total_len as usize);
    let upper = usize::from(info.upper_offset);
    let bytes = frame.data().get(upper..).unwrap_or_default();
    let (at, esp, port) = match (info.flow.protocol, info.flow.ports) {
        (Protocol::ESP, _) => (upper, bytes, None),
        (Protocol::AH, _) => return find_ah(bytes, info),
        (Protocol::UDP, Ports::Known { dst, .. }) => {
            let udp = UdpView::parse(bytes).map_err(DropReason::from)?;
            match UdpPayload::parse(udp.payload()) {
                UdpPayload::Esp(esp) => (upper + layout::UDP_HEADER, esp, Some(dst)),
                UdpPayload::Ike(_) => return Err(DropReason::IkeMessage),
                UdpPayload::Keepalive => return Err(DropReason::NatKeepalive),
                UdpPayload::Malformed => return Err(DropReason::EspLength),
            }
        }
        _ => return Err(DropReason::NotEsp),
    };
    let end = at + esp.len();
    let header = EspHeader::parse(esp).map_err(|error| match error {
        ParseError::ZeroSpi => DropReason::UnknownSpi,
        _ => DropReason::EspLength,
    })?;
    frame.truncate(end);
    let EspHeader { spi, seq_low } = header;
    let at = u16::try_from(at).map_err(|_| DropReason::EspLength)?;
    let of = Address { key: key(spi, info, Protocol::ESP), port };
    Ok(Found { of, seq_low, at, ah_len: 0 })
}

/// Finds AH directly behind an IP header without options.
#[cold]
fn find_ah(bytes: &[u8], info: &PacketInfo) -> Result<Found, DropReason> {
    let AhHeader { spi, seq_low, len, .. } =
        AhHeader::parse(bytes).map_err(|error| match error {
            ParseError::ZeroSpi => DropReason::UnknownSpi,
            _ => DropReason::AhLength,
        })?;
    if usize::from(info.upper_offset) != info.flow.version.header_len() {
        return Err(DropReason::AhOptions);
    }
    let of = Address { key: key(spi, info, Protocol::AH), port: None };
    let ah_len = u16::try_from(len).map_err(|_| DropReason::AhLength)?;
    Ok(Found { of, seq_low, at: info.upper_offset, ah_len })
}

fn key(spi: Spi, info: &PacketInfo, protocol: Protocol) -> SpiKey {
    SpiKey::new(spi, info.flow.dst, info.flow.version, protocol)
}
