//! Results of the engine: taken back, checked, and completed in software.

use std::mem;
use std::sync::Arc;

use convoy_packet::Pool;

use super::super::checks::Checks;
use super::super::window::{Place, Slot, release};
use super::Lane;
use crate::inline::run_jobs;
use crate::lookaside::{Output, Request};
use crate::{EngineKey, KeyId, Op, Status};

impl Lane {
    pub(super) fn take_all_back(&mut self, now: u64, pool: &mut Pool) {
        while let Some(request) = self.engine.poll(now) {
            self.away = self.away.saturating_sub(1);
            self.take_back(request, pool);
        }
    }

    #[inline]
    pub(super) fn take_back(&mut self, request: Request, pool: &mut Pool) {
        let Request { batch, mut outputs } = request;
        let number = batch.number;
        match self.window.get_mut(number) {
            Some(slot) if matches!(slot.place, Place::Away(_)) => {
                drop(batch);
                if !self.checks.pass_over(slot.len()) {
                    let key_of = |id| self.keys.at(id, number);
                    let (checked, wrong) = check(slot, &mut outputs, &mut self.checks, key_of);
                    self.counts.checked += checked;
                    self.counts.wrong += wrong;
                    self.is_wrong |= wrong > 0;
                }
                if self.is_wrong {
                    outputs.iter_mut().for_each(|output| output.finish(Status::Pending));
                }
                let undone = accept(slot, &mut outputs);
                if undone == slot.jobs.len() {
                    run_jobs(|id| self.keys.at(id, number), slot.jobs.as_mut_slice());
                } else if undone > 0 {
                    let jobs = slot.jobs.as_mut_slice().iter_mut();
                    for job in jobs.filter(|job| job.status == Status::Pending) {
                        run_jobs(|id| self.keys.at(id, number), std::slice::from_mut(job));
                    }
                }
                self.counts.refused += undone as u64;
                self.window.came_back();
            }
            Some(slot) if slot.place == Place::Owed => {
                drop(batch);
                self.counts.late += 1;
                // The engine has let go of the sources, so no more copies are needed.
                let copied = slot.jobs.len();
                let sources = slot.batch.as_mut().and_then(Arc::get_mut);
                for (at, job) in sources.into_iter().flat_map(|own| own.jobs.drain()).enumerate() {
                    if at < copied {
                        pool.free(job.frame);
                    } else {
                        drop(slot.jobs.push(job));
                    }
                }
            }
            _ => {
                self.counts.late += 1;
                release(batch, pool);
            }
        }
        self.outputs.push(outputs);
    }
}

/// Does some jobs again in software, and compares the results; jobs that software did are finished. Returns
/// how many were checked, and how many were wrong.
#[cold]
fn check<'k>(
    slot: &mut Slot,
    outputs: &mut [Output],
    checks: &mut Checks,
    key_of: impl Fn(KeyId) -> Option<&'k EngineKey>,
) -> (u64, u64) {
    let Some(own) = slot.batch.as_mut().and_then(Arc::get_mut) else { return (0, 0) };
    let jobs = own.jobs.as_mut_slice();
    let (mut checked, mut wrong) = (0, 0);
    for at in checks.places(jobs.len()) {
        let (Some(job), Some(output)) = (jobs.get_mut(at), outputs.get_mut(at)) else { break };
        let (bytes, status) = output.parts();
        if !matches!(status, Status::Done | Status::BadIcv) {
            continue;
        }
        run_jobs(&key_of, std::slice::from_mut(job));
        checked += 1;
        let is_same = job.status != Status::Done || job.frame.data() == bytes;
        wrong += u64::from(job.status != *status || !is_same);
    }
    (checked, wrong)
}

/// Takes the results of a batch, and returns how many jobs were left undone; these are pending.
#[inline]
fn accept(slot: &mut Slot, outputs: &mut [Output]) -> usize {
    let Some(own) = slot.batch.as_mut().and_then(Arc::get_mut) else { return 0 };
    let mut undone = 0;
    for (job, output) in own.jobs.as_mut_slice().iter_mut().zip(outputs) {
        let status = output.status();
        if matches!(job.op, Op::Spent) {
            // Software did it, to check the engine.
            continue;
        }
        if matches!(status, Status::Done | Status::BadIcv) {
            mem::swap(&mut job.frame, &mut output.frame);
            job.op = Op::Spent;
            job.status = status;
        } else {
            job.status = Status::Pending;
            undone += 1;
        }
    }
    mem::swap(&mut own.jobs, &mut slot.jobs);
    slot.place = Place::Back;
    undone
}
