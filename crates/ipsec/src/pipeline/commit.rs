//! Second stage inbound: what was authentic moves the anti-replay window, and only that.

use convoy_engine::{Job, JobBurst, Status};
use convoy_packet::Frame;
use convoy_wire::{Protocol, SeqNum};

use super::Now;
use super::ah;
use super::bin::Bin;
use super::sa::InboundSa;
use super::slab::Slab;
use super::watch::Watch;
use crate::drop_reason::DropReason;

/// A packet that was authentic and new.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) frame: Frame,
    pub(super) slot: u32,
    /// Where the decrypted text begins and how long it is.
    pub(super) start: usize,
    pub(super) len: usize,
    /// What AH says it is; ESP says so in its trailer.
    pub(super) next: Option<Protocol>,
}

/// Takes the first `n` jobs; packets that are forged or came before are dropped.
pub(super) fn run(
    now: Now,
    sas: &mut Slab<InboundSa>,
    watch: &mut Watch,
    done: &mut JobBurst,
    n: usize,
    output: &mut Vec<Opened>,
    bin: &mut Bin<'_>,
) {
    for job in done.drain_front(n) {
        let slot = job.context.slot;
        // The SA may have gone, or another come to its slot, while the job was away.
        let sa = sas.get_mut(slot).filter(|sa| sa.epoch == job.context.note);
        let Some(sa) = sa else {
            bin.drop(job.frame, DropReason::UnknownSpi);
            continue;
        };
        let judged = judge(now, sa, &job);
        if judged.is_ok() && sa.meter.count(&sa.spec.counters.usage, job.text.len.into()) {
            watch.look(slot, sa, now);
        }
        match judged {
            Ok(()) if sa.ah.is_none() => output.push(Opened {
                slot,
                start: job.text.start as usize,
                len: job.text.len as usize,
                next: None,
                frame: job.frame,
            }),
            Ok(()) => {
                let mut frame = job.frame;
                match ah::take_back(&mut frame) {
                    Some(ah::Taken { start, len, next }) => {
                        output.push(Opened { frame, slot, start, len, next: Some(next) });
                    }
                    None => bin.drop(frame, DropReason::AhLength),
                }
            }
            Err(reason) => {
                sa.spec.counters.dropped.add(1);
                bin.drop(job.frame, reason);
            }
        }
    }
}

fn judge(now: Now, sa: &mut InboundSa, job: &Job) -> Result<(), DropReason> {
    let counters = &sa.spec.counters;
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
    sa.spec.floor.raise(edge);
    counters.sequence.set(edge.get());
    counters.last_packet_ns.set(now.0);
    Ok(())
}
