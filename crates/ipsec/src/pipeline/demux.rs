//! First stage inbound: which SA a packet from the wire belongs to, and whether it may be new.

use convoy_engine::{Job, JobBurst, KeyId, Op, Span};
use convoy_packet::{Burst, Frame};
use convoy_wire::ah::{AhHeader, FIXED_LEN};
use convoy_wire::esp::{self, EspHeader, UdpPayload};
use convoy_wire::flow::addr_bytes;
use convoy_wire::{
    FragmentState, IpVersion, PacketInfo, ParseError, Ports, Protocol, Spi, UdpView, parse_packet,
};

use super::Now;
use super::ah;
use super::bin::Bin;
use super::fragments::Reassembly;
use super::handoff::HandOff;
use super::hints::Hints;
use super::layout::{self, Iv};
use super::packet::add;
use super::sa::InboundSa;
use super::slab::Slab;
use crate::drop_reason::DropReason;
use crate::sa::{Mode, WorkerId};
use crate::snapshot::{SaOwner, Snapshot, SpiKey};

/// What the stage works with.
pub(super) struct Stage<'a, 'b> {
    pub(super) now: Now,
    pub(super) snapshot: &'a Snapshot,
    pub(super) me: WorkerId,
    pub(super) sas: &'a mut Slab<InboundSa>,
    pub(super) hints: &'a mut Hints,
    pub(super) jobs: &'a mut JobBurst,
    pub(super) handoff: &'a mut HandOff,
    pub(super) reassembly: &'a mut Reassembly,
    /// Empty; memory for one burst.
    pub(super) arrivals: &'a mut Vec<Arrival>,
    pub(super) bin: &'a mut Bin<'b>,
}

/// A packet with ESP or AH in it, and whose it is.
#[derive(Debug)]
pub(super) struct Arrival {
    frame: Frame,
    found: Found,
    /// Where its SA is, once that is known; none when it belongs to another worker.
    slot: u32,
}

/// Where ESP or AH lies in a packet.
#[derive(Clone, Copy, Debug)]
struct Found {
    key: SpiKey,
    seq_low: u32,
    /// First byte of its header.
    at: u16,
    /// Length of an AH header; 0 for ESP.
    ah_len: u16,
    /// Our UDP port, if encapsulated.
    port: Option<u16>,
}

/// Makes jobs of the first `n` packets of `input`; there must be room for so many.
pub(super) fn run(stage: &mut Stage<'_, '_>, input: &mut Burst, n: usize) {
    for mut frame in input.drain_front(n) {
        match find_plain(&mut frame) {
            Some(found) => arrive(stage, frame, found),
            None => find_any(stage, frame),
        }
    }
    let mut arrivals = core::mem::take(stage.arrivals);
    if stage.hints.is_far() {
        for Arrival { found, .. } in &arrivals {
            stage.sas.prefetch(stage.hints.get(found.key.spi()));
        }
    }
    let mut last = None;
    for arrival in &mut arrivals {
        arrival.slot = find_sa(stage, &arrival.found);
        // Packets of one SA come in runs.
        if last.replace(arrival.slot) != Some(arrival.slot)
            && let Some(sa) = stage.sas.get(arrival.slot)
        {
            sa.prefetch(arrival.found.seq_low);
        }
    }
    for Arrival { frame, found, slot } in arrivals.drain(..) {
        match slot {
            FOREIGN => give_away(stage, frame, &found),
            slot => accept(stage, frame, &found, slot),
        }
    }
    *stage.arrivals = arrivals;
}

/// Takes a packet in, and starts loading its SA (or first what tells where that is), so that the ways
/// of a burst's packets through the memory overlap.
#[inline]
fn arrive(stage: &mut Stage<'_, '_>, frame: Frame, found: Found) {
    let same = stage.arrivals.last().is_some_and(|last| last.found.key == found.key);
    if stage.hints.is_far() {
        stage.hints.prefetch(found.key.spi());
    } else if !same {
        stage.sas.prefetch(stage.hints.get(found.key.spi()));
    }
    if let Err(Arrival { frame, .. }) = add(stage.arrivals, Arrival { frame, found, slot: 0 }) {
        // Unreachable: a burst fits.
        stage.bin.drop(frame, DropReason::NoFrame);
    }
}

/// Finds ESP directly behind an IPv4 header without options. All others, wrong ones included, are
/// left to [`find_any`].
#[inline]
fn find_plain(frame: &mut Frame) -> Option<Found> {
    const AT: usize = 20;
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
    let mut local = [0; 16];
    local[..4].copy_from_slice(&head[16..AT]);
    let key = SpiKey::new(spi, local, IpVersion::V4, Protocol::ESP);
    frame.truncate(total);
    Some(Found { key, seq_low, at: AT as u16, ah_len: 0, port: None })
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
        Ok(found) => arrive(stage, frame, found),
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
    Ok(Found { key: key(spi, info, Protocol::ESP), seq_low, at, ah_len: 0, port })
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
    let (key, at) = (key(spi, info, Protocol::AH), info.upper_offset);
    let ah_len = u16::try_from(len).map_err(|_| DropReason::AhLength)?;
    Ok(Found { key, seq_low, at, ah_len, port: None })
}

fn key(spi: Spi, info: &PacketInfo, protocol: Protocol) -> SpiKey {
    SpiKey::new(spi, info.flow.dst, info.flow.version, protocol)
}

/// The slot of packets that no SA of this worker opens; no snapshot has so many.
const FOREIGN: u32 = u32::MAX;

/// The slot of the SA that a packet belongs to.
#[inline]
fn find_sa(stage: &mut Stage<'_, '_>, found: &Found) -> u32 {
    let hint = stage.hints.get(found.key.spi());
    // Two SAs never have one key: where it agrees, the snapshot would say the same.
    match stage.sas.get(hint) {
        Some(sa) if sa.key == found.key => hint,
        _ => look_up(stage, found),
    }
}

#[inline(never)]
fn look_up(stage: &mut Stage<'_, '_>, found: &Found) -> u32 {
    match stage.snapshot.inbound_of(&found.key) {
        Some(SaOwner { slot, worker }) if worker == stage.me => {
            stage.hints.set(found.key.spi(), slot.0);
            slot.0
        }
        _ => FOREIGN,
    }
}

/// Gives a packet to the worker whose SA it belongs to.
#[inline(never)]
fn give_away(stage: &mut Stage<'_, '_>, frame: Frame, found: &Found) {
    let Some(SaOwner { worker, .. }) = stage.snapshot.inbound_of(&found.key) else {
        return stage.bin.drop(frame, DropReason::UnknownSpi);
    };
    if let Err(frame) = stage.handoff.push(worker, frame) {
        stage.bin.drop(frame, DropReason::RingFull);
    }
}

/// Checks the window and makes the job.
#[inline]
fn accept(stage: &mut Stage<'_, '_>, frame: Frame, found: &Found, slot: u32) {
    let Some(sa) = stage.sas.get(slot) else {
        return stage.bin.drop(frame, DropReason::UnknownSpi);
    };
    let job = match stage.jobs.add(frame) {
        Ok(job) => job,
        // Unreachable: there is room for all.
        Err(frame) => return stage.bin.drop(frame, DropReason::EngineRejected),
    };
    job.key = KeyId(slot);
    job.context.slot = slot;
    if let Err(reason) = fill_in(sa, job, found, stage.now) {
        sa.counters.dropped.add(1);
        if matches!(reason, DropReason::Replayed | DropReason::TooOld) {
            sa.counters.replayed.add(1);
        }
        if let Some(job) = stage.jobs.pop() {
            stage.bin.drop(job.frame, reason);
        }
    }
}

/// Says what the engine is to do with a packet, unless it cannot be one of the SA or is not new.
#[inline]
fn fill_in(sa: &InboundSa, job: &mut Job, found: &Found, now: Now) -> Result<(), DropReason> {
    if sa.port != found.port {
        return Err(DropReason::EncapMismatch);
    }
    // In transport mode the source goes on to the plain side, and ESP does not cover it. Only a NAT
    // may have changed it (RFC 4301 section 4.1, RFC 3948 section 3.1.2).
    let may_change = sa.mode == Mode::Tunnel || sa.port.is_some();
    if !may_change && !comes_from_peer(sa, &job.frame) {
        return Err(DropReason::TransportAddress);
    }
    if sa.meter.is_expired(now) {
        return Err(DropReason::LifetimeExpired);
    }
    let (text, iv) = lengths_and_iv(sa, &job.frame, found)?;
    // RFC 4303 section 3.4.3: a look at the window now saves the work on obvious replays; only
    // authentication makes the packet count.
    let seq = sa.window.check(sa.window.infer(found.seq_low))?.seq();
    match &sa.ah {
        None => {
            (job.text, job.header) = (text, sa.layout.header());
            (job.aad, job.aad_len) = sa.layout.beside(sa.spi, seq, iv);
        }
        Some(ah) => {
            let at = usize::from(found.at);
            let header = AhHeader::parse(job.frame.data().get(at..).unwrap_or_default());
            let header = header.map_err(|_| DropReason::AhLength)?;
            let ah::Covered { text, header } = ah.arrange(&mut job.frame, at, header, seq)?;
            (job.text, job.header) = (text, header);
        }
    }
    job.op = Op::Open(sa.layout.open_nonce(iv));
    (job.context.note, job.context.value) = (sa.epoch, seq.get());
    Ok(())
}

/// Whether the packet's source is the SA's peer.
#[inline(never)]
fn comes_from_peer(sa: &InboundSa, frame: &Frame) -> bool {
    let peer = addr_bytes(sa.spec.endpoints.remote);
    parse_packet(frame.data()).is_ok_and(|info| info.flow.src == peer)
}

/// Whether the packet can be one of the SA, what is to be decrypted of it, and its IV.
#[inline]
fn lengths_and_iv(sa: &InboundSa, frame: &Frame, found: &Found) -> Result<(Span, Iv), DropReason> {
    let at = usize::from(found.at);
    let Some(ah) = &sa.ah else {
        return text_and_iv(sa, frame, at).ok_or(DropReason::EspLength);
    };
    let version = IpVersion::of_addr(sa.spec.endpoints.remote);
    let field = frame.data().get(at + FIXED_LEN..).unwrap_or_default();
    let iv = sa.layout.sent_iv(field).filter(|_| ah.fits(found.ah_len.into(), version));
    iv.map(|iv| (Span::default(), iv)).ok_or(DropReason::AhLength)
}

/// What is to be decrypted of an ESP packet at `at`, and its IV; `None` for a length that its cipher
/// cannot have made.
#[inline]
fn text_and_iv(sa: &InboundSa, frame: &Frame, at: usize) -> Option<(Span, Iv)> {
    let lengths = sa.layout.lengths();
    let start = at + lengths.prefix_len();
    let len = frame.len().checked_sub(start + lengths.icv_len())?;
    // Whole blocks that have room for a trailer (RFC 4303 section 2.4).
    if len == 0 || len & (lengths.align() - 1) != 0 {
        return None;
    }
    let iv = sa.layout.sent_iv(frame.data().get(at + esp::HEADER_LEN..)?)?;
    Some((Span { start: start as u32, len: len as u32 }, iv))
}
