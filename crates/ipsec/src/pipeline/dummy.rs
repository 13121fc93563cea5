//! Dummy packets (RFC 4303 section 2.6): what is sent on an SA that has nothing to send.

use convoy_engine::{Job, JobBurst, KeyId};
use convoy_packet::Pool;
use convoy_wire::{Protocol, Tos};

use super::form::Any;
use super::iv::IvSource;
use super::sa::OutboundSa;
use super::silence::Outcome;
use super::watch::Watch;
use crate::clock::Now;
use crate::drop_reason::DropReason;

/// Bytes of payload where packets are not filled up to one length: an acknowledgement's order.
const LEN: usize = 64;

/// Data that a dummy is made with.
pub(super) struct Maker<'a> {
    pub(super) now: Now,
    pub(super) ivs: &'a mut IvSource,
    pub(super) watch: &'a mut Watch,
    pub(super) jobs: &'a mut JobBurst,
    pub(super) pool: &'a mut Pool,
}

impl Maker<'_> {
    /// Lays out a dummy on an SA of ESP in tunnel mode, unless its lifetime, its sequence numbers or
    /// its lease have come to an end.
    pub(super) fn make(&mut self, slot: u32, sa: &mut OutboundSa) -> Outcome {
        if sa.meter.is_expired(self.now) {
            return Outcome::Refused;
        }
        if self.jobs.room() == 0 {
            return Outcome::NoRoom;
        }
        let Some(frame) = self.pool.alloc() else { return Outcome::NoRoom };
        let job = match self.jobs.add(frame) {
            Ok(job) => job,
            // Unreachable: room was checked.
            Err(frame) => {
                self.pool.free(frame);
                return Outcome::NoRoom;
            }
        };
        (job.key, job.context.slot) = (KeyId(slot), slot);
        match lay_out(sa, self.now, self.ivs, job) {
            Ok(()) => {
                if sa.meter.count(&sa.counters.usage, job.text.len.into()) {
                    self.watch.look(slot, sa, self.now);
                }
                Outcome::Sent
            }
            Err(reason) => {
                if reason == DropReason::SequenceExhausted {
                    self.watch.look(slot, sa, self.now);
                }
                if let Some(job) = self.jobs.pop() {
                    self.pool.free(job.frame);
                }
                Outcome::Refused
            }
        }
    }
}

/// Bytes of payload: as many as real packets have at least, and never more than the path takes.
fn payload_len(sa: &OutboundSa) -> usize {
    let wanted = if sa.pad_to > 0 { sa.pad_to.into() } else { LEN };
    let room = (sa.path_mtu as usize).saturating_sub(sa.outer.len());
    wanted.min(sa.max_payload_len(room))
}

fn lay_out(
    sa: &mut OutboundSa,
    now: Now,
    ivs: &mut IvSource,
    job: &mut Job,
) -> Result<(), DropReason> {
    let (len, front, lengths) = (payload_len(sa), sa.outer.len(), sa.layout.lengths());
    let (before, total) = (front + lengths.prefix_len(), front + lengths.sealed_len(len));
    let packet = job.frame.enclose(before, total - before).map_err(|_| DropReason::NoFrame)?;
    let reserved = sa.sequence.next()?;
    let seq = reserved.number();
    let iv = sa.layout.new_iv(seq, || ivs.next()).ok_or(DropReason::EngineRejected)?;
    let numbers = (sa.spi, seq, iv);
    // There is room for all of it.
    let text = sa.layout.write_esp(packet, front, (0, len), Protocol::NONE, numbers);
    let text = text.ok_or(DropReason::NoFrame)?;
    let (tos, df) = sa.rules.apply(Tos::default(), true, true);
    sa.outer.write(packet, total, tos, df, seq.low() as u16);

    // Nothing inside is anybody's.
    sa.count(0, seq, now);
    sa.fill_in::<Any>(job, text, (reserved, iv), 0);
    Ok(())
}
