//! First stage inbound: which SA a packet from the wire belongs to, and whether it may be new.

use convoy_engine::{Context, Job, JobBurst, KeyId, Op, Span};
use convoy_packet::{Burst, Frame};
use convoy_wire::ah::{AhHeader, FIXED_LEN};
use convoy_wire::flow::addr_bytes;
use convoy_wire::{IpVersion, SeqNum, esp, parse_packet};

use super::ah::{self, AhLayout};
use super::arrival::{self, Arrival, Arrivals, Run};
use super::bin::Bin;
use super::form::Any;
use super::fragments::Reassembly;
use super::handoff::HandOff;
use super::hints::Hints;
use super::layout::Iv;
use super::sa::InboundSa;
use super::slab::Slab;
use crate::clock::Now;
use crate::drop_reason::DropReason;
use crate::sa::{Mode, WorkerId};
use crate::snapshot::{SaOwner, Snapshot, SpiKey};

/// Data that demultiplexing works with.
pub(super) struct Stage<'a, 'b> {
    pub(super) now: Now,
    pub(super) snapshot: &'a Snapshot,
    pub(super) me: WorkerId,
    pub(super) sas: &'a Slab<InboundSa>,
    pub(super) hints: &'a mut Hints,
    pub(super) jobs: &'a mut JobBurst,
    pub(super) handoff: &'a mut HandOff,
    pub(super) reassembly: &'a mut Reassembly,
    /// Empty; memory for one burst.
    pub(super) arrivals: &'a mut Arrivals,
    pub(super) bin: &'a mut Bin<'b>,
}

/// Distance, in runs, at which SAs are loaded ahead. Those of a whole burst would push each other out
/// of the nearest cache before they are looked at.
const AHEAD: usize = 12;

/// Makes jobs of the first `n` packets of `input`; there must be room for so many.
pub(super) fn run(stage: &mut Stage<'_, '_>, input: &mut Burst, n: usize) {
    arrival::take_in(stage, input.drain_front(n));
    let Arrivals { packets, runs } = &mut *stage.arrivals;
    let (sas, hints) = (stage.sas, &mut *stage.hints);
    let mut gate = Gate {
        now: stage.now,
        me: stage.me,
        snapshot: stage.snapshot,
        handoff: stage.handoff,
        jobs: stage.jobs,
        bin: stage.bin,
    };
    for run in runs.iter_mut().take(AHEAD) {
        guess(sas, hints, run);
    }
    // One loop: in two, what the inner one needs of an SA would be put aside for a run of one packet.
    let (mut begun, mut run, mut usual) = (0, Run::NONE, None);
    for (at, arrival) in (0..).zip(packets.drain(..)) {
        if at == run.end {
            if let Some(run) = runs.get_mut(begun + AHEAD) {
                guess(sas, hints, run);
            }
            if let Some(run) = runs.get_mut(begun) {
                gate.find_sa(sas, hints, run);
            }
            run = runs.get(begun).unwrap_or(Run::NONE);
            begun += 1;
            usual = gate.usual(sas, run);
        }
        match usual {
            Some(sa) => gate.accept(sa, run.slot, arrival),
            None => gate.accept_any(sas.get(run.slot), run, arrival),
        }
    }
    runs.clear();
}

/// The slot of packets that no SA of this worker opens; no snapshot has so many.
const FOREIGN: u32 = u32::MAX;

/// Starts loading the SA that a run's packets were of the last time.
#[inline(always)]
fn guess(sas: &Slab<InboundSa>, hints: &Hints, run: &mut Run) {
    run.slot = hints.get(run.of.key.spi());
    sas.prefetch(run.slot);
}

#[inline(never)]
fn look_up(snapshot: &Snapshot, me: WorkerId, hints: &mut Hints, key: &SpiKey) -> u32 {
    match snapshot.inbound_of(key) {
        Some(SaOwner { slot, worker }) if worker == me => {
            hints.set(key.spi(), slot.0);
            slot.0
        }
        _ => FOREIGN,
    }
}

/// Through which packets come that may be of their SA and new.
struct Gate<'a, 'b> {
    now: Now,
    me: WorkerId,
    snapshot: &'a Snapshot,
    handoff: &'a mut HandOff,
    jobs: &'a mut JobBurst,
    bin: &'a mut Bin<'b>,
}

impl Gate<'_, '_> {
    /// Finds the SA of a run.
    #[inline(always)]
    fn find_sa(&self, sas: &Slab<InboundSa>, hints: &mut Hints, run: &mut Run) {
        // Two SAs never have one key: where it agrees, the snapshot would say the same.
        if sas.get(run.slot).is_none_or(|sa| sa.key != run.of.key) {
            run.slot = look_up(self.snapshot, self.me, hints, &run.of.key);
        }
    }

    /// The SA of a run whose packets need no other looks than [`Self::accept`] gives them.
    #[inline]
    fn usual<'s>(&self, sas: &'s Slab<InboundSa>, run: &Run) -> Option<&'s InboundSa> {
        let sa = sas.get(run.slot)?;
        (sa.is_usual() && check_run(sa, run, self.now).is_ok()).then_some(sa)
    }

    /// Checks and makes a job of a packet of a usual SA.
    #[inline(always)]
    fn accept(&mut self, sa: &InboundSa, slot: u32, arrival: Arrival) {
        let Arrival { frame, seq_low, at, .. } = arrival;
        match check_esp(sa, &frame, at, seq_low) {
            Ok(checked) => match self.jobs.add(frame) {
                Ok(job) => fill_in_esp(sa, job, slot, checked),
                Err(frame) => self.lose(frame),
            },
            Err(reason) => self.refuse(sa, frame, reason),
        }
    }

    /// The same for a packet of any SA, or of none that this worker has.
    #[inline(never)]
    fn accept_any(&mut self, sa: Option<&InboundSa>, run: &Run, arrival: Arrival) {
        let Arrival { frame, seq_low, at, ah_len } = arrival;
        let Some(sa) = sa else { return self.give_away(run, frame) };
        let job = match self.jobs.add(frame) {
            Ok(job) => job,
            Err(frame) => return self.lose(frame),
        };
        if let Err(reason) = fill_in(sa, job, run, (seq_low, at, ah_len), self.now)
            && let Some(Job { frame, .. }) = self.jobs.pop()
        {
            self.refuse(sa, frame, reason);
        }
    }

    /// Gives a packet to the worker whose SA it belongs to.
    fn give_away(&mut self, run: &Run, frame: Frame) {
        let owner = self.snapshot.inbound_of(&run.of.key).filter(|_| run.slot == FOREIGN);
        let Some(SaOwner { worker, .. }) = owner else {
            return self.bin.drop(frame, DropReason::UnknownSpi);
        };
        if let Err(frame) = self.handoff.push(worker, frame) {
            self.bin.drop(frame, DropReason::RingFull);
        }
    }

    #[cold]
    fn refuse(&mut self, sa: &InboundSa, frame: Frame, reason: DropReason) {
        sa.counters.dropped.add(1);
        if matches!(reason, DropReason::Replayed | DropReason::TooOld) {
            sa.counters.replayed.add(1);
        }
        self.bin.drop(frame, reason);
    }

    /// Unreachable: there is room for all.
    #[cold]
    fn lose(&mut self, frame: Frame) {
        self.bin.drop(frame, DropReason::EngineRejected);
    }
}

/// Checks what the packets of a run have in common: UDP port and lifetime.
#[inline]
fn check_run(sa: &InboundSa, run: &Run, now: Now) -> Result<(), DropReason> {
    if sa.port != run.of.port {
        return Err(DropReason::EncapMismatch);
    }
    if sa.meter.is_expired(now) {
        return Err(DropReason::LifetimeExpired);
    }
    Ok(())
}

/// An ESP packet that can be one of its SA and may be new.
struct Checked {
    text: Span,
    iv: Iv,
    seq: SeqNum,
}

#[inline(always)]
fn check_esp(sa: &InboundSa, frame: &Frame, at: u16, seq_low: u32) -> Result<Checked, DropReason> {
    let (text, iv) = text_and_iv(sa, frame, at.into()).ok_or(DropReason::EspLength)?;
    // RFC 4303 section 3.4.3: a look at the window now saves the work on obvious replays; only
    // authentication makes the packet count.
    let seq = sa.window.check(sa.window.infer(seq_low))?.seq();
    Ok(Checked { text, iv, seq })
}

/// Says what the engine is to do with an ESP packet.
#[inline(always)]
fn fill_in_esp(sa: &InboundSa, job: &mut Job, slot: u32, checked: Checked) {
    let Checked { text, iv, seq } = checked;
    job.key = KeyId(slot);
    (job.text, job.header) = (text, sa.layout.header());
    job.aad_len = sa.layout.write_beside::<Any>(&mut job.aad, sa.spi, seq, iv);
    job.op = Op::Open(sa.layout.open_nonce(iv));
    job.context = Context { slot, note: sa.epoch, value: seq.get() };
}

/// Says what the engine is to do with a packet of any kind, unless it cannot be one of the SA or is
/// not new.
fn fill_in(
    sa: &InboundSa,
    job: &mut Job,
    run: &Run,
    (seq_low, at, ah_len): (u32, u16, u16),
    now: Now,
) -> Result<(), DropReason> {
    if sa.mode == Mode::Transport && sa.port == run.of.port && sa.port.is_none() {
        // The source goes on to the plain side, and ESP does not cover it. Only a NAT may have
        // changed it (RFC 4301 section 4.1, RFC 3948 section 3.1.2).
        if !comes_from_peer(sa, &job.frame) {
            return Err(DropReason::TransportAddress);
        }
    }
    check_run(sa, run, now)?;
    let Some(ah) = &sa.ah else {
        let checked = check_esp(sa, &job.frame, at, seq_low)?;
        fill_in_esp(sa, job, run.slot, checked);
        return Ok(());
    };
    let iv = ah_iv(sa, ah, &job.frame, at, ah_len).ok_or(DropReason::AhLength)?;
    let seq = sa.window.check(sa.window.infer(seq_low))?.seq();
    let at = usize::from(at);
    let header = AhHeader::parse(job.frame.data().get(at..).unwrap_or_default());
    let header = header.map_err(|_| DropReason::AhLength)?;
    let ah::Covered { text, header } = ah.arrange(&mut job.frame, at, header, seq)?;
    job.key = KeyId(run.slot);
    (job.text, job.header) = (text, header);
    job.op = Op::Open(sa.layout.open_nonce(iv));
    job.context = Context { slot: run.slot, note: sa.epoch, value: seq.get() };
    Ok(())
}

/// True if the packet's source is the SA's peer.
#[inline(never)]
fn comes_from_peer(sa: &InboundSa, frame: &Frame) -> bool {
    let peer = addr_bytes(sa.spec.endpoints.remote);
    parse_packet(frame.data()).is_ok_and(|info| info.flow.src == peer)
}

/// Text to be decrypted of an ESP packet at `at`, and its IV; `None` for a length that its cipher
/// cannot have made.
#[inline(always)]
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

/// The IV of an AH packet at `at`; `None` when its header has another length than the SA's.
fn ah_iv(sa: &InboundSa, ah: &AhLayout, frame: &Frame, at: u16, ah_len: u16) -> Option<Iv> {
    let version = IpVersion::of_addr(sa.spec.endpoints.remote);
    let field = frame.data().get(usize::from(at) + FIXED_LEN..).unwrap_or_default();
    sa.layout.sent_iv(field).filter(|_| ah.fits(ah_len.into(), version))
}
