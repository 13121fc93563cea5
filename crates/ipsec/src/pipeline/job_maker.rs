//! Jobs of the engine made of outbound packets.

use convoy_engine::{Job, JobBurst, KeyId};
use convoy_packet::Frame;

use super::ah;
use super::iv::IvSource;
use super::sa::OutboundSa;
use super::watch::Watch;
use crate::clock::Now;
use crate::drop_reason::DropReason;
use crate::sa::SaSlot;

/// Data that jobs are made with.
pub(super) struct JobMaker<'a> {
    pub(super) now: Now,
    pub(super) ivs: &'a mut IvSource,
    pub(super) watch: &'a mut Watch,
    pub(super) jobs: &'a mut JobBurst,
}

/// A packet that its SA did not protect.
#[derive(Debug)]
pub(super) struct Unprotected {
    pub(super) frame: Frame,
    pub(super) reason: DropReason,
}

impl JobMaker<'_> {
    /// Makes a job of a packet, which `protect` lays out, and counts it against the lifetime of its SA.
    ///
    /// The packet is put into its job first and laid out there: a value that a call takes by address is in
    /// memory in the whole loop.
    #[inline(always)]
    pub(super) fn make(
        &mut self,
        slot: SaSlot,
        sa: &mut OutboundSa,
        frame: Frame,
        protect: impl FnOnce(&mut OutboundSa, &mut IvSource, &mut Job) -> Result<(), DropReason>,
    ) -> Result<(), Unprotected> {
        let job = match self.jobs.add(frame) {
            Ok(job) => job,
            // Unreachable: callers ask for room first.
            Err(frame) => return Err(Unprotected { frame, reason: DropReason::EngineRejected }),
        };
        (job.key, job.context.slot) = (KeyId(slot.0), slot.0);
        match protect(sa, self.ivs, job) {
            Ok(()) => {
                let bytes = ah::metered(sa.ah.is_some(), job);
                self.watch.count(slot.0, sa, bytes, self.now);
                Ok(())
            }
            Err(reason) => self.take_back(slot, sa, reason),
        }
    }

    /// Takes the packet of the last job back.
    #[cold]
    fn take_back(
        &mut self,
        slot: SaSlot,
        sa: &mut OutboundSa,
        reason: DropReason,
    ) -> Result<(), Unprotected> {
        if reason == DropReason::SequenceExhausted {
            self.watch.look(slot.0, sa, self.now);
        }
        self.jobs.pop().map_or(Ok(()), |job| Err(Unprotected { frame: job.frame, reason }))
    }
}
