//! Third stage outbound: ESP is laid out around each packet and a job made for the engine.

use std::collections::VecDeque;

use convoy_engine::{Job, JobBurst, KeyId, Op, Span};
use convoy_packet::Frame;
use convoy_wire::ah::AhHeader;
use convoy_wire::{IpVersion, Ipv4Mut, Ipv6Mut, PacketInfo, SeqNum, Tos, ipv6};

use super::ah::{self, AhLayout};
use super::bin::Bin;
use super::form::{Any, Cbc, Counter, Form, Known};
use super::icmp::IcmpSender;
use super::iv::IvSource;
use super::layout::Iv;
use super::packet::Packet;
use super::sa::OutboundSa;
use super::slab::Slab;
use super::watch::Watch;
use super::{PipelineConfig, fragment, transport, tunnel};
use crate::clock::Now;
use crate::drop_reason::DropReason;
use crate::sa::{Mode, SaSlot};

/// Time for which a router's word on the path MTU is believed, in nanoseconds (RFC 1191 section 6.3).
const MTU_AGE_NS: u64 = 600_000_000_000;

/// Data that the stage works with.
pub(super) struct Stage<'a, 'b> {
    pub(super) now: Now,
    pub(super) config: &'a PipelineConfig,
    pub(super) sas: &'a mut Slab<OutboundSa>,
    pub(super) icmp: &'a mut IcmpSender,
    pub(super) ivs: &'a mut IvSource,
    pub(super) watch: &'a mut Watch,
    pub(super) jobs: &'a mut JobBurst,
    pub(super) bin: &'a mut Bin<'b>,
}

/// Result of the test if a packet can be protected as it is.
enum Fit {
    Yes,
    /// Larger than the tunnel takes: the largest inner packet that passes, in bytes.
    TooBig(usize),
    /// Its time to live is used up.
    Expired,
    /// The SA has reached the end of its lifetime.
    Ended,
}

/// Protects `packets` as far as jobs fit; the rest waits in `pending`, whose packets go first.
///
/// A packet that must be fragmented is replaced by its fragments, and those too large for the jobs
/// that are left wait with all that comes after them, in order.
pub(super) fn run(
    stage: &mut Stage<'_, '_>,
    (packets, usual): (&mut Vec<Packet>, Option<Form>),
    pending: &mut VecDeque<Packet>,
) {
    protect_pending(stage, pending);
    let fit = pending.is_empty() && packets.len() <= stage.jobs.room();
    match usual.filter(|_| fit) {
        Some(Form::Counter) => return protect_usual::<Counter>(stage, packets),
        Some(Form::Cbc) => return protect_usual::<Cbc>(stage, packets),
        Some(Form::Any) => return protect_usual::<Any>(stage, packets),
        None => {}
    }
    for packet in packets.drain(..) {
        if fit && pending.is_empty() {
            pass(stage, packet, pending);
        } else {
            pending.push_back(packet);
        }
    }
    protect_pending(stage, pending);
}

/// Protects packets that all go the usual way and are of one form, and for which there is room. No
/// packet is needed as a whole here, so none is copied.
fn protect_usual<K: Known>(stage: &mut Stage<'_, '_>, packets: &mut Vec<Packet>) {
    for Packet { frame, slot, info, .. } in packets.drain(..) {
        let Some(sa) = stage.sas.get_mut(slot.0) else {
            stage.bin.drop(frame, DropReason::NoSa);
            continue;
        };
        let job = match stage.jobs.add(frame) {
            Ok(job) => job,
            // Unreachable: room was checked.
            Err(frame) => {
                stage.bin.drop(frame, DropReason::EngineRejected);
                continue;
            }
        };
        (job.key, job.context.slot) = (KeyId(slot.0), slot.0);
        let done = if !sa.tunnel.takes(job.frame.len()) || !sa.tunnel.is::<K>() {
            // Unreachable: that was asked when the SA was found.
            Err(DropReason::EngineRejected)
        } else if sa.meter.is_expired(stage.now) {
            Err(DropReason::LifetimeExpired)
        } else if stage.config.decrement_ttl && info.ttl <= 1 {
            Err(DropReason::TtlExpired)
        } else {
            tunnel::protect::<K>(sa, (stage.config, stage.now), stage.ivs, job, &info)
        };
        match done {
            Ok(()) if sa.meter.count(&sa.counters.usage, job.text.len.into()) => {
                stage.watch.look(slot.0, sa, stage.now);
            }
            Ok(()) => {}
            Err(reason) => give_up(stage, slot, reason),
        }
    }
}

fn protect_pending(stage: &mut Stage<'_, '_>, pending: &mut VecDeque<Packet>) {
    while stage.jobs.room() > 0 {
        let Some(packet) = pending.pop_front() else { return };
        pass(stage, packet, pending);
    }
}

/// Protects a packet, for which there must be room.
fn pass(stage: &mut Stage<'_, '_>, packet: Packet, pending: &mut VecDeque<Packet>) {
    let slot = packet.slot;
    let Some(sa) = stage.sas.get_mut(slot.0) else {
        return stage.bin.drop(packet.frame, DropReason::NoSa);
    };
    let usual = sa.tunnel.takes(packet.frame.len());
    match fit(sa, stage.config, &packet, stage.now, usual) {
        Fit::Yes => {
            let Packet { frame, info, .. } = packet;
            let job = match stage.jobs.add(frame) {
                Ok(job) => job,
                // Unreachable: room was checked.
                Err(frame) => return stage.bin.drop(frame, DropReason::EngineRejected),
            };
            (job.key, job.context.slot) = (KeyId(slot.0), slot.0);
            let surroundings = (stage.config, stage.now);
            let done = if usual {
                tunnel::protect::<Any>(sa, surroundings, stage.ivs, job, &info)
            } else {
                protect(sa, surroundings, stage.ivs, job, &info)
            };
            match done {
                Ok(()) => {
                    if sa.meter.count(&sa.counters.usage, ah::metered(sa.ah.is_some(), job)) {
                        stage.watch.look(slot.0, sa, stage.now);
                    }
                }
                Err(reason) => give_up(stage, slot, reason),
            }
        }
        Fit::Ended => {
            sa.counters.dropped.add(1);
            stage.bin.drop(packet.frame, DropReason::LifetimeExpired);
        }
        Fit::TooBig(room) => too_big(stage, pending, packet, room),
        Fit::Expired => {
            sa.counters.dropped.add(1);
            expired(stage, packet.frame);
        }
    }
}

/// Drops the packet of the last job, which its SA did not protect.
#[cold]
fn give_up(stage: &mut Stage<'_, '_>, slot: SaSlot, reason: DropReason) {
    if let Some(sa) = stage.sas.get_mut(slot.0) {
        if reason == DropReason::SequenceExhausted {
            stage.watch.look(slot.0, sa, stage.now);
        }
        sa.counters.dropped.add(1);
    }
    match stage.jobs.pop() {
        Some(job) if reason == DropReason::TtlExpired => expired(stage, job.frame),
        Some(job) => stage.bin.drop(job.frame, reason),
        None => {}
    }
}

/// The inner sender is told that a packet's time to live is used up.
#[cold]
fn expired(stage: &mut Stage<'_, '_>, frame: Frame) {
    let Bin { pool, counters } = stage.bin;
    stage.icmp.time_exceeded(stage.now, stage.config, counters, pool, &frame);
    stage.bin.drop(frame, DropReason::TtlExpired);
}

/// `usual` says that the packet is known to fit the path.
fn fit(
    sa: &mut OutboundSa,
    config: &PipelineConfig,
    packet: &Packet,
    now: Now,
    usual: bool,
) -> Fit {
    if sa.meter.is_expired(now) {
        Fit::Ended
    } else if config.decrement_ttl && packet.info.ttl <= 1 {
        Fit::Expired
    } else if usual {
        Fit::Yes
    } else {
        fit_path(sa, packet, now)
    }
}

fn fit_path(sa: &mut OutboundSa, packet: &Packet, now: Now) -> Fit {
    // What stays in front of ESP, and what becomes its payload.
    let (front, kept) = match sa.mode {
        Mode::Tunnel => (sa.outer.len(), 0),
        Mode::Transport => {
            let kept = transport::header_len(packet.frame.data(), &packet.info);
            (kept + sa.outer.udp_len(), kept)
        }
    };
    let payload = packet.frame.len().saturating_sub(kept);
    if front + sa.sealed_len(payload) <= sa.path_mtu as usize {
        return Fit::Yes;
    }
    if sa.lowered().is_some_and(|at| now.0.saturating_sub(at.0) > MTU_AGE_NS) {
        // What a router said long ago may no longer be so: try the configured size again.
        sa.set_path_mtu(sa.spec.path_mtu.into());
        return fit_path(sa, packet, now);
    }
    if may_exceed_path(sa, &packet.info) {
        return Fit::Yes;
    }
    let room = (sa.path_mtu as usize).saturating_sub(front);
    Fit::TooBig(sa.max_payload_len(room) + kept)
}

/// No IPv6 sender makes packets smaller than 1280 bytes (RFC 8200 section 5). Over a path too narrow
/// for them the outer packet may be fragmented instead (RFC 2473 section 7.1), which IPv4 routers do.
fn may_exceed_path(sa: &OutboundSa, info: &PacketInfo) -> bool {
    sa.mode == Mode::Tunnel
        && info.flow.version == IpVersion::V6
        && info.total_len as usize <= ipv6::MIN_MTU
        && sa.spec.endpoints.remote.is_ipv4()
        && !sa.rules.forbids_fragments()
}

/// RFC 4301 section 8.2: the inner sender is told, unless it allows fragmenting.
fn too_big(stage: &mut Stage<'_, '_>, pending: &mut VecDeque<Packet>, packet: Packet, room: usize) {
    let Some(sa) = stage.sas.get(packet.slot.0) else {
        return stage.bin.drop(packet.frame, DropReason::NoSa);
    };
    let may_cut = sa.mode == Mode::Tunnel
        && packet.info.flow.version == IpVersion::V4
        && !packet.info.dont_fragment;
    if may_cut {
        if !fragment::run(packet, room, pending, stage.bin) {
            sa.counters.dropped.add(1);
        }
        return;
    }
    sa.counters.dropped.add(1);
    let mtu = match packet.info.flow.version {
        IpVersion::V4 => room,
        // No IPv6 link is narrower (RFC 8200 section 5).
        IpVersion::V6 => room.max(ipv6::MIN_MTU),
    };
    let Bin { pool, counters } = stage.bin;
    stage.icmp.too_big(stage.now, stage.config, counters, pool, &packet.frame, mtu);
    stage.bin.drop(packet.frame, DropReason::TooBig);
}

/// Gives the job's packet a sequence number and its layout, and fills the job in.
#[inline(never)]
fn protect(
    sa: &mut OutboundSa,
    (config, now): (&PipelineConfig, Now),
    ivs: &mut IvSource,
    job: &mut Job,
    info: &PacketInfo,
) -> Result<(), DropReason> {
    if sa.mode == Mode::Transport {
        transport::check(sa, job.frame.data(), info)?;
    }
    let frame = &mut job.frame;
    let (before, inner_len) = (sa.outer.len() + sa.prefix_len(), frame.len());
    let filled = sa.filled(inner_len);
    if frame.headroom() < before || frame.tailroom() < sa.room_behind(filled - inner_len) {
        return Err(DropReason::NoFrame);
    }
    let reserved = sa.sequence.next()?;
    let seq = reserved.number();
    let iv = sa.layout.new_iv(seq, || ivs.next()).ok_or(DropReason::EngineRejected)?;
    if config.decrement_ttl {
        decrement_ttl(frame.data_mut(), info.flow.version);
    }
    match sa.ah {
        None => {
            let text = esp_text(sa, frame, info, filled, (seq, iv))?;
            sa.fill_in::<Any>(job, text, (reserved, iv), inner_len);
        }
        // What else ESP has beside its text, AH has in the packet.
        Some(ah) => {
            let covered = ah_covered(sa, ah, frame, info, seq)?;
            (job.text, job.header) = (covered.text, covered.header);
            job.op = Op::Seal(sa.layout.seal_nonce::<Any>(reserved, iv));
            (job.context.note, job.context.value) = (inner_len as u32 | ah::MARK, seq.get());
        }
    }
    sa.count(inner_len, seq, now);
    Ok(())
}

/// Lays out ESP around a packet. Returns what is to be encrypted.
#[inline]
fn esp_text(
    sa: &OutboundSa,
    frame: &mut Frame,
    info: &PacketInfo,
    filled: usize,
    numbers: (SeqNum, Iv),
) -> Result<Span, DropReason> {
    let laid_out = match sa.mode {
        Mode::Tunnel => lay_out_tunnel(sa, frame, info, filled, numbers),
        Mode::Transport => transport::lay_out(sa, frame, info, numbers),
    };
    laid_out.ok_or(DropReason::NoFrame)
}

/// Puts AH into a packet. Returns what is to be authenticated.
fn ah_covered(
    sa: &OutboundSa,
    ah: AhLayout,
    frame: &mut Frame,
    info: &PacketInfo,
    seq: SeqNum,
) -> Result<ah::Covered, DropReason> {
    let (at, next) = match sa.mode {
        Mode::Tunnel => {
            let front = sa.outer.len();
            frame.grow_front(front + ah.header_len()).map_err(|_| DropReason::NoFrame)?;
            let total = frame.len();
            let (tos, df) = outer_fields(sa, info, total);
            sa.outer.write(frame.data_mut(), total, tos, df, ah::ident(seq));
            (front, info.flow.version.as_next_header())
        }
        Mode::Transport => {
            transport::open_up(frame, info, ah.header_len(), seq).ok_or(DropReason::NoFrame)?
        }
    };
    let header = AhHeader::new(next, ah.header_len(), sa.spi, seq);
    let place = frame.data_mut().get_mut(at..).unwrap_or_default();
    header.emit(place).map_err(|_| DropReason::NoFrame)?;
    ah.arrange(frame, at, header, seq)
}

/// Takes one from the TTL or hop limit. In one piece with what uses it: across a call a frame that is
/// held by value would lie on the stack.
#[inline(always)]
pub(super) fn decrement_ttl(packet: &mut [u8], version: IpVersion) {
    match version {
        IpVersion::V4 => {
            if let Ok(mut header) = Ipv4Mut::new(packet) {
                header.decrement_ttl();
            }
        }
        IpVersion::V6 => {
            if let Ok(mut header) = Ipv6Mut::new(packet) {
                header.decrement_hop_limit();
            }
        }
    }
}

fn lay_out_tunnel(
    sa: &OutboundSa,
    frame: &mut Frame,
    info: &PacketInfo,
    filled: usize,
    (seq, iv): (SeqNum, Iv),
) -> Option<Span> {
    let payload = frame.len();
    let front = sa.outer.len();
    let lengths = sa.layout.lengths();
    let total = front + lengths.sealed_len(filled);
    let before = front + lengths.prefix_len();
    let packet = frame.enclose(before, total - before - payload).ok()?;
    let next = info.flow.version.as_next_header();
    let numbers = (sa.spi, seq, iv);
    let text = sa.layout.write_esp(packet, front, (payload, filled), next, numbers)?;
    let (tos, df) = outer_fields(sa, info, total);
    sa.outer.write(packet, total, tos, df, seq.low() as u16);
    Some(text)
}

#[inline]
fn outer_fields(sa: &OutboundSa, info: &PacketInfo, total: usize) -> (Tos, bool) {
    // Larger than the path only when it may be fragmented, see `may_exceed_path`.
    sa.rules.apply(info.tos, info.dont_fragment, total <= sa.path_mtu as usize)
}
