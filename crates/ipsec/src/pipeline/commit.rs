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
    verdicts.extend(done.iter().map(|job| {
        let slot = job.context.slot;
        // The SA may have gone, or another come to its slot, while the job was away.
        let sa = sas.get_mut(slot).filter(|sa| sa.epoch == job.context.note);
        let Some(sa) = sa else { return Some(DropReason::UnknownSpi) };
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
    }));
}

#[inline]
fn judge(now: Now, sa: &mut InboundSa, job: &Job) -> Result<(), DropReason> {
    let counters = &sa.counters;
    match job.status {
        Status::Done => {}
        Status::BadIcv => {
            counters.icv_failures.add(1);
            return Err(DropReason::BadIcv);
        }
        Status::Pending | Status::Rejected => return Err(DropReason::EngineRejected),
    }
    if sa.meter.is_expired(now) {
        return Err(DropReason::LifetimeExpired);
    }
    // Check and set in one: of two copies in one burst, both passed the first look.
    if let Err(refused) = sa.window.accept(SeqNum::new(job.context.value)) {
        counters.replayed.add(1);
        return Err(refused.into());
    }
    let edge = sa.window.right_edge();
    sa.floor.raise(edge);
    counters.sequence.set(edge.get());
    counters.last_packet_ns.set(now.0);
    Ok(())
}
