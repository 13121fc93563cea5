//! First stage inbound: which SA a packet from the wire belongs to, and whether it may be new.

use std::net::IpAddr;

use convoy_engine::{Context, Job, JobBurst, KeyId, Op, Span, Status};
use convoy_packet::{Burst, Frame};
use convoy_wire::ah::{AhHeader, FIXED_LEN};
use convoy_wire::esp::{self, EspHeader, UdpPayload};
use convoy_wire::{
    FragmentState, IpVersion, PacketInfo, ParseError, Ports, Protocol, Spi, UdpView, parse_packet,
};

use super::Now;
use super::ah;
use super::bin::Bin;
use super::fragments::Reassembly;
use super::handoff::HandOff;
use super::layout::{self, Iv};
use super::sa::InboundSa;
use super::slab::Slab;
use crate::drop_reason::DropReason;
use crate::sa::{Mode, SaSlot, WorkerId};
use crate::snapshot::{SaOwner, Snapshot};

/// What the stage works with.
pub(super) struct Stage<'a, 'b> {
    pub(super) now: Now,
    pub(super) snapshot: &'a Snapshot,
    pub(super) me: WorkerId,
    pub(super) sas: &'a mut Slab<InboundSa>,
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
    owner: Option<SaOwner>,
}

/// Where ESP or AH lies in a packet.
#[derive(Debug)]
struct Found {
    /// First byte of its header.
    at: usize,
    spi: Spi,
    seq_low: u32,
    /// The AH header, if it is AH.
    ah: Option<AhHeader>,
    /// Our UDP port, if encapsulated.
    port: Option<u16>,
    local: IpAddr,
    remote: IpAddr,
}

/// Makes jobs of the first `n` packets of `input`; there must be room for so many.
pub(super) fn run(stage: &mut Stage<'_, '_>, input: &mut Burst, n: usize) {
    for frame in input.drain_front(n) {
        let parsed = parse_packet(frame.data());
        let Some((mut frame, parsed)) = whole(stage, frame, parsed) else { continue };
        let found = parsed.map_err(DropReason::from).and_then(|info| find(&mut frame, &info));
        match found {
            Ok(found) => stage.arrivals.push(Arrival { frame, found, owner: None }),
            Err(reason) => stage.bin.drop(frame, reason),
        }
    }
    let mut arrivals = core::mem::take(stage.arrivals);
    find_owners(stage, &mut arrivals);
    for Arrival { frame, found, owner } in arrivals.drain(..) {
        accept(stage, frame, &found, owner);
    }
    *stage.arrivals = arrivals;
}

/// Looks up the SAs of all packets, so that their ways through the memory overlap.
fn find_owners(stage: &Stage<'_, '_>, arrivals: &mut [Arrival]) {
    let key = |Arrival { found, .. }: &Arrival| {
        let protocol = if found.ah.is_some() { Protocol::AH } else { Protocol::ESP };
        (found.spi, found.local, protocol)
    };
    stage.snapshot.prefetch_inbound(arrivals.iter().map(key));
    let mut last = None;
    for arrival in arrivals {
        let key = key(arrival);
        arrival.owner = match last {
            // Packets of one SA come in runs.
            Some((same, owner)) if same == key => owner,
            _ => {
                let owner = stage.snapshot.inbound_for(key.0, key.1, key.2);
                if let Some(owner) = owner.filter(|owner| owner.worker == stage.me) {
                    stage.sas.prefetch(owner.slot.0);
                }
                last = Some((key, owner));
                owner
            }
        };
    }
}

type Parse = Result<PacketInfo, ParseError>;

/// The packet itself, or the one that it completes. Sockets hand over whole packets; a fragment
/// can only come from a packet interface.
#[inline]
fn whole(stage: &mut Stage<'_, '_>, frame: Frame, parsed: Parse) -> Option<(Frame, Parse)> {
    match parsed {
        Ok(info) if info.fragment != FragmentState::Whole => join(stage, frame, &info),
        parsed => Some((frame, parsed)),
    }
}

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
    let (local, remote) = (info.flow.dst_addr(), info.flow.src_addr());
    let EspHeader { spi, seq_low } = header;
    Ok(Found { at, spi, seq_low, ah: None, port, local, remote })
}

/// Finds AH directly behind an IP header without options.
#[cold]
fn find_ah(bytes: &[u8], info: &PacketInfo) -> Result<Found, DropReason> {
    let header = AhHeader::parse(bytes).map_err(|error| match error {
        ParseError::ZeroSpi => DropReason::UnknownSpi,
        _ => DropReason::AhLength,
    })?;
    let at = usize::from(info.upper_offset);
    if at != info.flow.version.header_len() {
        return Err(DropReason::AhOptions);
    }
    let (local, remote) = (info.flow.dst_addr(), info.flow.src_addr());
    let AhHeader { spi, seq_low, .. } = header;
    Ok(Found { at, spi, seq_low, ah: Some(header), port: None, local, remote })
}

/// Checks the window and makes the job.
fn accept(stage: &mut Stage<'_, '_>, frame: Frame, found: &Found, owner: Option<SaOwner>) {
    let Some(SaOwner { slot, worker }) = owner else {
        return stage.bin.drop(frame, DropReason::UnknownSpi);
    };
    if worker != stage.me {
        if let Err(frame) = stage.handoff.push(worker, frame) {
            stage.bin.drop(frame, DropReason::RingFull);
        }
        return;
    }
    let Some(sa) = stage.sas.get_mut(slot.0) else {
        return stage.bin.drop(frame, DropReason::UnknownSpi);
    };
    match make_job(sa, slot, frame, found, stage.now) {
        Ok(job) => {
            if let Err(job) = stage.jobs.push(job) {
                stage.bin.drop(job.frame, DropReason::EngineRejected);
            }
        }
        Err((frame, reason)) => {
            sa.spec.counters.dropped.add(1);
            if matches!(reason, DropReason::Replayed | DropReason::TooOld) {
                sa.spec.counters.replayed.add(1);
            }
            stage.bin.drop(frame, reason);
        }
    }
}

fn make_job(
    sa: &InboundSa,
    slot: SaSlot,
    mut frame: Frame,
    found: &Found,
    now: Now,
) -> Result<Job, (Frame, DropReason)> {
    if sa.spec.encap.map(|encap| encap.local_port) != found.port {
        return Err((frame, DropReason::EncapMismatch));
    }
    // In transport mode the source goes on to the plain side, and ESP does not cover it. Only a NAT
    // may have changed it (RFC 4301 section 4.1, RFC 3948 section 3.1.2).
    let may_change = sa.spec.mode == Mode::Tunnel || sa.spec.encap.is_some();
    if !may_change && found.remote != sa.spec.endpoints.remote {
        return Err((frame, DropReason::TransportAddress));
    }
    if sa.meter.is_expired(now) {
        return Err((frame, DropReason::LifetimeExpired));
    }
    let (text, iv) = match lengths_and_iv(sa, &frame, found) {
        Ok(found) => found,
        Err(reason) => return Err((frame, reason)),
    };
    // RFC 4303 section 3.4.3: a look at the window now saves the work on obvious replays; only
    // authentication makes the packet count.
    let seq = match sa.window.check(sa.window.infer(found.seq_low)) {
        Ok(fresh) => fresh.seq(),
        Err(refused) => return Err((frame, refused.into())),
    };
    let (aad, aad_len) = sa.layout.beside(sa.spec.spi, seq, iv);
    let (text, header, aad_len) = match (&sa.ah, found.ah) {
        (Some(ah), Some(header)) => match ah.arrange(&mut frame, found.at, header, seq) {
            Ok(ah::Covered { text, header }) => (text, header, 0),
            Err(reason) => return Err((frame, reason)),
        },
        _ => (text, sa.layout.header(), aad_len),
    };
    Ok(Job {
        op: Op::Open(sa.layout.open_nonce(iv)),
        frame,
        text,
        header,
        key: KeyId(slot.0),
        status: Status::Pending,
        aad_len,
        aad,
        context: Context { slot: slot.0, note: sa.epoch, value: seq.get() },
    })
}

/// Whether the packet can be one of the SA, what is to be decrypted of it, and its IV.
#[inline]
fn lengths_and_iv(sa: &InboundSa, frame: &Frame, found: &Found) -> Result<(Span, Iv), DropReason> {
    let (Some(ah), Some(header)) = (&sa.ah, found.ah) else {
        return text_and_iv(sa, frame, found.at).ok_or(DropReason::EspLength);
    };
    let version = IpVersion::of_addr(found.remote);
    let field = frame.data().get(found.at + FIXED_LEN..).unwrap_or_default();
    let iv = sa.layout.sent_iv(field).filter(|_| ah.fits(header.len, version));
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
