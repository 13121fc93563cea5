//! Second stage inbound: what was authentic moves the anti-replay window, and only that.

use convoy_engine::{Job, Status};
use convoy_wire::SeqNum;

use super::Now;
use super::ah;
use super::sa::InboundSa;
use super::slab::Slab;
use super::watch::Watch;
use crate::drop_reason::DropReason;

/// What became of a packet: nothing, or why it is to be dropped.
pub(super) type Verdict = Option<DropReason>;

/// Judges finished jobs where they lie, one verdict for each. Packets that are forged or came before
/// are refused.
pub(super) fn run(
    now: Now,
    sas: &mut Slab<InboundSa>,
    watch: &mut Watch,
    done: &[Job],
    verdicts: &mut Vec<Verdict>,
) {
    let of = |job: &Job| (job.context.slot, job.context.note);
    // Packets of one SA come in runs.
    for run in done.chunk_by(|one, next| of(one) == of(next)) {
        let Some((slot, epoch)) = run.first().map(of) else { continue };
        match sas.get_mut(slot) {
            Some(sa) if sa.epoch == epoch => judge_run(now, sa, slot, watch, run, verdicts),
            // The SA has gone, or another come to its slot, while the jobs were away.
            _ => verdicts.extend(run.iter().map(|_| Some(DropReason::UnknownSpi))),
        }
    }
}

/// What the SA publishes is up to date after the run, as is its floor: nothing has left by then.
#[inline]
fn judge_run(
    now: Now,
    sa: &mut InboundSa,
    slot: u32,
    watch: &mut Watch,
    run: &[Job],
    verdicts: &mut Vec<Verdict>,
) {
    let before = sa.window.accepted();
    verdicts.extend(run.iter().map(|job| match judge(now, sa, job) {
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
    }));
    if sa.window.accepted() != before {
        let edge = sa.window.right_edge();
        sa.floor.raise(edge);
        sa.counters.sequence.set(edge.get());
        sa.counters.last_packet_ns.set(now.0);
    }
}

#[inline]
fn judge(now: Now, sa: &mut InboundSa, job: &Job) -> Result<(), DropReason> {
    match job.status {
        Status::Done => {}
        Status::BadIcv => {
            sa.counters.icv_failures.add(1);
            return Err(DropReason::BadIcv);
        }
        Status::Pending | Status::Rejected => return Err(DropReason::EngineRejected),
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
