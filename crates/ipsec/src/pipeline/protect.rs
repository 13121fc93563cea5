//! Third stage outbound: ESP is laid out around each packet and a job made for the engine.

use std::collections::VecDeque;

use convoy_engine::{Job, Op};
use convoy_packet::Frame;
use convoy_wire::ah::AhHeader;
use convoy_wire::{IpVersion, Ipv4Mut, Ipv6Mut, PacketInfo, SeqNum, ipv6};

use super::ah::{self, AhLayout};
use super::bin::Bin;
use super::form::{Any, Cbc, Counter, Form, Known};
use super::icmp::IcmpSender;
use super::iv::IvSource;
use super::job_maker::{JobMaker, Unprotected};
use super::packet::Packet;
use super::sa::OutboundSa;
use super::slab::Slab;
use super::tag::{OutboundTag, Remainder};
use super::tunnel::{self, Payload};
use super::{PipelineConfig, fragment, transport};
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
    pub(super) maker: JobMaker<'a>,
    pub(super) bin: &'a mut Bin<'b>,
}

/// Obstacle to protecting a packet as it is.
enum Obstacle {
    /// Larger than the tunnel takes: the largest inner packet that passes, in bytes.
    TooBig(usize),
    Dropped(DropReason),
}

/// Protects `packets` as far as jobs fit; the rest waits in `pending`, whose packets go first.
///
/// A packet that must be fragmented is replaced by its fragments, and those too large for the jobs
/// that are left wait with all that comes after them, in order.
pub(super) fn run(
    stage: &mut Stage<'_, '_>,
    packets: &mut Vec<Packet>,
    usual: Option<Form>,
    pending: &mut VecDeque<Packet>,
) {
    protect_pending(stage, pending);
    let fit = pending.is_empty() && packets.len() <= stage.maker.jobs.room();
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
        let (config, now) = (stage.config, stage.now);
        let made = stage.maker.make(slot, sa, frame, |sa, ivs, job| {
            if !sa.tunnel.takes(job.frame.len()) || !sa.tunnel.is::<K>() {
                // Unreachable: that was asked when the SA was found.
                return Err(DropReason::EngineRejected);
            }
            if sa.meter.is_expired(now) {
                return Err(DropReason::LifetimeExpired);
            }
            if config.decrement_ttl {
                if info.ttl <= 1 {
                    return Err(DropReason::TtlExpired);
                }
                decrement_ttl(job.frame.data_mut(), info.flow.version);
            }
            tunnel::protect::<K>(sa, now, ivs, job, &Payload::usual(&info))
        });
        if let Err(Unprotected { frame, reason }) = made {
            refuse(stage, slot, frame, reason);
        }
    }
}

fn protect_pending(stage: &mut Stage<'_, '_>, pending: &mut VecDeque<Packet>) {
    while stage.maker.jobs.room() > 0 {
        let Some(packet) = pending.pop_front() else { return };
        pass(stage, packet, pending);
    }
}

/// Protects a packet, for which there must be room.
fn pass(stage: &mut Stage<'_, '_>, packet: Packet, pending: &mut VecDeque<Packet>) {
    let Some(sa) = stage.sas.get_mut(packet.slot.0) else {
        return stage.bin.drop(packet.frame, DropReason::NoSa);
    };
    let (config, now) = (stage.config, stage.now);
    match check(sa, config, &packet, now) {
        Ok(()) => {
            let Packet { frame, slot, info, .. } = packet;
            let made = stage.maker.make(slot, sa, frame, |sa, ivs, job| {
                if config.decrement_ttl {
                    decrement_ttl(job.frame.data_mut(), info.flow.version);
                }
                protect(sa, now, ivs, job, &info)
            });
            if let Err(Unprotected { frame, reason }) = made {
                refuse(stage, slot, frame, reason);
            }
        }
        Err(Obstacle::TooBig(room)) => too_big(stage, pending, packet, room),
        Err(Obstacle::Dropped(reason)) => refuse(stage, packet.slot, packet.frame, reason),
    }
}

/// Drops a packet that its SA does not protect. The inner sender is told if its time to live is used up.
#[cold]
fn refuse(stage: &mut Stage<'_, '_>, slot: SaSlot, frame: Frame, reason: DropReason) {
    if let Some(sa) = stage.sas.get(slot.0) {
        sa.counters.dropped.add(1);
    }
    if reason == DropReason::TtlExpired {
        let Bin { pool, counters } = stage.bin;
        stage.icmp.time_exceeded(stage.now, stage.config, counters, pool, &frame);
    }
    stage.bin.drop(frame, reason);
}

/// Asks whether a packet can be protected as it is.
fn check(
    sa: &mut OutboundSa,
    config: &PipelineConfig,
    packet: &Packet,
    now: Now,
) -> Result<(), Obstacle> {
    if sa.meter.is_expired(now) {
        Err(Obstacle::Dropped(DropReason::LifetimeExpired))
    } else if config.decrement_ttl && packet.info.ttl <= 1 {
        Err(Obstacle::Dropped(DropReason::TtlExpired))
    } else if sa.tunnel.takes(packet.frame.len()) {
        Ok(())
    } else {
        fit_path(sa, packet, now)
    }
}

fn fit_path(sa: &mut OutboundSa, packet: &Packet, now: Now) -> Result<(), Obstacle> {
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
        return Ok(());
    }
    if sa.lowered().is_some_and(|at| now.0.saturating_sub(at.0) > MTU_AGE_NS) {
        // What a router said long ago may no longer be so: try the configured size again.
        sa.set_path_mtu(sa.spec.path_mtu.into());
        return fit_path(sa, packet, now);
    }
    if may_exceed_path(sa, &packet.info) {
        return Ok(());
    }
    let room = (sa.path_mtu as usize).saturating_sub(front);
    Err(Obstacle::TooBig(sa.max_payload_len(room) + kept))
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
    now: Now,
    ivs: &mut IvSource,
    job: &mut Job,
    info: &PacketInfo,
) -> Result<(), DropReason> {
    let len = job.frame.len();
    if sa.mode == Mode::Tunnel && sa.ah.is_none() {
        let filled = sa.filled(len);
        let total = sa.outer.len() + sa.sealed_len(filled);
        let fits = is_within_path(sa, total);
        let payload = Payload { fill: filled - len, fits, ..Payload::usual(info) };
        return tunnel::protect::<Any>(sa, now, ivs, job, &payload);
    }
    if sa.mode == Mode::Transport {
        transport::check(sa, job.frame.data(), info)?;
    }
    let frame = &mut job.frame;
    let before = sa.outer.len() + sa.prefix_len();
    if frame.headroom() < before || frame.tailroom() < sa.room_behind() {
        return Err(DropReason::NoFrame);
    }
    let reserved = sa.sequence.next()?;
    let seq = reserved.number();
    match sa.ah {
        None => {
            let laid_out = transport::lay_out(sa, frame, info, seq, ivs);
            let (text, iv) = laid_out.ok_or(DropReason::NoFrame)?;
            sa.fill_in::<Any>(job, text, reserved, iv, len);
        }
        // What else ESP has beside its text, AH has in the packet.
        Some(ah) => {
            let iv = sa.layout.new_iv(seq, || ivs.next()).ok_or(DropReason::EngineRejected)?;
            let covered = ah_covered(sa, ah, frame, info, seq)?;
            (job.text, job.header) = (covered.text, covered.header);
            job.op = Op::Seal(sa.layout.seal_nonce::<Any>(reserved, iv));
            OutboundTag::put(job, len, Remainder::AhFields, seq);
        }
    }
    sa.count(len, seq, now);
    Ok(())
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
            let fits = is_within_path(sa, total);
            let (tos, df) = sa.rules.apply(info.tos, info.dont_fragment, fits);
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

/// True if an outer packet of `total` bytes is no longer than the path takes. It is longer only when it may be
/// fragmented, see [`may_exceed_path`].
#[inline]
const fn is_within_path(sa: &OutboundSa, total: usize) -> bool {
    total <= sa.path_mtu as usize
}
