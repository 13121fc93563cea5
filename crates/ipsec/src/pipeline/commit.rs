//! Second stage inbound: what was authentic moves the anti-replay window, and only that.

use convoy_engine::{Job, Status};
use convoy_wire::SeqNum;

use super::Now;
use super::ah;
use super::packet::add;
use super::sa::InboundSa;
use super::slab::Slab;
use super::watch::Watch;
use crate::drop_reason::DropReason;

/// What became of a packet: nothing, or why it is to be dropped.
pub(super) type Verdict = Option<DropReason>;

/// Slot and epoch of no SA: no snapshot has so many.
const NOBODY: (u32, u32) = (u32::MAX, 0);

/// Judges finished jobs where they lie, one verdict for each. Packets that are forged or came before
/// are refused.
pub(super) fn run(
    now: Now,
    sas: &mut Slab<InboundSa>,
    watch: &mut Watch,
    done: &[Job],
    verdicts: &mut Vec<Verdict>,
) {
    let (mut of, mut sa) = (NOBODY, None);
    for job in done {
        // Packets of one SA come in runs.
        if of != (job.context.slot, job.context.note) {
            publish(now, sa.take());
            of = (job.context.slot, job.context.note);
            let (slot, epoch) = of;
            // The SA may have gone, or another come to its slot, while the job was away.
            sa = sas
                .get_mut(slot)
                .filter(|sa| sa.epoch == epoch)
                .map(|sa| (sa.window.accepted(), sa));
        }
        let verdict = match &mut sa {
            Some((_, sa)) => settle(now, sa, of.0, watch, job),
            None => Some(DropReason::UnknownSpi),
        };
        // There is room for a verdict on each.
        let _ = add(verdicts, verdict);
    }
    publish(now, sa);
}

/// Publishes the state of an SA, of which so many packets had been accepted before its run: none of
/// the run has gone further yet.
#[inline(always)]
fn publish(now: Now, sa: Option<(u64, &mut InboundSa)>) {
    if let Some((before, sa)) = sa
        && sa.window.accepted() != before
    {
        let edge = sa.window.right_edge();
        sa.floor.raise(edge);
        sa.counters.sequence.set(edge.get());
        sa.counters.last_packet_ns.set(now.0);
    }
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
