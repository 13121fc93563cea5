//! Second stage inbound: what was authentic moves the anti-replay window, and only that.

use core::sync::atomic::Ordering;

use convoy_engine::{Job, Status};
use convoy_wire::SeqNum;

use super::ah;
use super::mapping::Mappings;
use super::packet::add;
use super::sa::InboundSa;
use super::slab::Slab;
use super::watch::Watch;
use crate::clock::Now;
use crate::drop_reason::DropReason;

/// Result for a packet: nothing, or the reason to drop it.
pub(super) type Verdict = Option<DropReason>;

/// Distance, in packets, at which an SA's data elsewhere is loaded ahead; the SA itself at twice that.
const AHEAD: usize = 10;

/// Judges finished jobs where they lie, one verdict for each. Packets that are forged or came before
/// are refused. `many` says that the SAs do not stay in a near cache.
pub(super) fn run(
    now: Now,
    many: bool,
    sas: &mut Slab<InboundSa>,
    watch: &mut Watch,
    mappings: &mut Mappings,
    done: &[Job],
    verdicts: &mut Vec<Verdict>,
) {
    if many {
        done.iter().take(2 * AHEAD).for_each(|job| sas.prefetch(job.context.slot));
    }
    let of = |job: &Job| (job.context.slot, job.context.note);
    let mut at = 0;
    // Packets of one SA come in runs.
    for run in done.chunk_by(|one, next| of(one) == of(next)) {
        if many {
            look_ahead(sas, done, at);
            at += run.len();
        }
        let (slot, epoch) = run.first().map_or((u32::MAX, 0), of);
        // The SA may have gone, or another come to its slot, while the job was away.
        let Some(sa) = sas.get_mut(slot).filter(|sa| sa.epoch == epoch) else {
            verdicts.extend(run.iter().map(|_| Some(DropReason::UnknownSpi)));
            continue;
        };
        let before = sa.window.accepted();
        for job in run {
            let verdict = settle(now, sa, slot, watch, job);
            // There is room for a verdict on each.
            let _ = add(verdicts, verdict);
        }
        if publish(now, sa, before) && sa.port.is_some() {
            let judged = verdicts.len().saturating_sub(run.len());
            let judged = verdicts.get(judged..).unwrap_or_default();
            mappings.look(now, sa, slot, run, judged);
        }
    }
}

#[inline(always)]
fn look_ahead(sas: &Slab<InboundSa>, done: &[Job], at: usize) {
    if let Some(job) = done.get(at + 2 * AHEAD) {
        sas.prefetch(job.context.slot);
    }
    if let Some(job) = done.get(at + AHEAD)
        && let Some(sa) = sas.get(job.context.slot)
    {
        sa.prefetch(SeqNum::new(job.context.value).low());
    }
}

/// Publishes the state of an SA, of which `before` packets had been accepted before its run: none of
/// the run has gone further yet. Says whether more have been accepted since.
#[inline(always)]
fn publish(now: Now, sa: &InboundSa, before: u64) -> bool {
    let is_news = sa.window.accepted() != before;
    if is_news {
        let edge = sa.window.right_edge();
        if let Some(word) = sa.outliving {
            word.store(edge.get(), Ordering::Release);
        }
        sa.counters.floor.raise(edge);
        sa.counters.last_packet_ns.set(now.0);
    }
    is_news
}

#[inline(always)]
fn settle(now: Now, sa: &mut InboundSa, slot: u32, watch: &mut Watch, job: &Job) -> Verdict {
    match judge(now, sa, job) {
        Ok(()) => {
            if sa.meter.count(&sa.counters.usage, ah::metered(sa.ah.is_some(), job)) {
                watch.look(slot, sa, now);
            }
            None
        }
        Err(reason) => {
            sa.counters.dropped.add(1);
            Some(reason)
        }
    }
}

#[inline(always)]
fn judge(now: Now, sa: &mut InboundSa, job: &Job) -> Result<(), DropReason> {
    if job.status != Status::Done {
        return Err(undone(sa, job.status));
    }
    if sa.meter.is_expired(now) {
        return Err(DropReason::LifetimeExpired);
    }
    // Check and set in one: of two copies in one burst, both passed the first look.
    if let Err(refused) = sa.window.accept(SeqNum::new(job.context.value)) {
        sa.counters.replayed.add(1);
        return Err(refused.into());
    }
    Ok(())
}

#[cold]
fn undone(sa: &InboundSa, status: Status) -> DropReason {
    if status != Status::BadIcv {
        return DropReason::EngineRejected;
    }
    sa.counters.icv_failures.add(1);
    DropReason::BadIcv
}
