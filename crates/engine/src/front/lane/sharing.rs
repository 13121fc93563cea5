//! A worker that shares the work with its engine: what it does itself, and what it takes back.

use std::mem;
use std::sync::Arc;

use convoy_crypto::time_stamp;
use convoy_packet::Pool;

use super::super::share::Share;
use super::super::window::Place;
use super::{Lane, State};
use crate::JobBurst;
use crate::inline::run_jobs;
use crate::lookaside::Request;

/// With nothing else to do a worker waits for this part of the engine's deadline.
const PATIENCE: u64 = 100;

impl Lane {
    /// Does jobs here or has the engine do them, whatever is better.
    pub(super) fn submit_shared(
        &mut self,
        now: u64,
        pool: &mut Pool,
        jobs: &mut JobBurst,
    ) -> usize {
        let Some(mut share) = self.share.take() else { return 0 };
        share.turn(now);
        let n = jobs.len();
        let worth = share.worth(&self.keys, jobs.as_slice());
        let work = share.work(jobs.as_slice());
        let fit = share.within_budget(&self.keys, jobs.as_slice());
        let taken = if fit < n {
            self.defer(now, pool, jobs, fit, &mut share)
        } else {
            match self.hand_over(now, pool, jobs, worth, &mut share) {
                0 => self.work_here(jobs, &mut share),
                taken => taken,
            }
        };
        if taken > 0 {
            share.took(work * taken as f64 / n as f64);
        } else {
            share.waits();
            if share.is_balanced() && !self.has_room() {
                self.overtake(pool);
            }
        }
        self.share = Some(share);
        taken
    }

    /// Sends jobs to the engine if that is better than to do them here, which would cost so much: all or none.
    pub(super) fn hand_over(
        &mut self,
        now: u64,
        pool: &mut Pool,
        jobs: &mut JobBurst,
        here: f64,
        share: &mut Share,
    ) -> usize {
        let can_go = self.state == State::Up
            && self.away < self.caps.enough.min(self.caps.requests)
            && self.keys.all_offloaded();
        if !can_go || !share.goes_away(jobs.len(), here) {
            return 0;
        }
        let at = time_stamp();
        let taken = self.send(now, pool, jobs);
        if taken > 0 {
            share.handed_over(taken, here, time_stamp().saturating_sub(at));
        }
        taken
    }

    /// Does the first jobs here and has the engine do the others, as far as it takes them.
    pub(super) fn defer(
        &mut self,
        now: u64,
        pool: &mut Pool,
        jobs: &mut JobBurst,
        fit: usize,
        share: &mut Share,
    ) -> usize {
        if !self.has_room() {
            return 0;
        }
        let mut taken = 0;
        if fit > 0 {
            let mut first = self.window.spare();
            // As much room as in the burst that is being emptied.
            jobs.drain_front(fit).for_each(|job| drop(first.jobs.push(job)));
            taken = self.work_here(&mut first.jobs, share);
            self.window.keep(first);
        }
        if self.state != State::Up {
            return taken;
        }
        let sent = if self.keys.all_offloaded() {
            self.send(now, pool, jobs)
        } else {
            let (mut ahead, aside) = self.apart(jobs);
            let sent = self.send(now, pool, &mut ahead.jobs);
            self.put_together(ahead, aside, jobs);
            sent
        };
        self.counts.deferred += sent as u64;
        taken + sent
    }

    /// Does jobs here because that is better: all or none.
    pub(super) fn work_here(&mut self, jobs: &mut JobBurst, share: &mut Share) -> usize {
        let n = self.work(jobs, |keys, jobs| {
            let begun = share.is_sample().then(time_stamp);
            run_jobs(|id| keys.get(id), jobs);
            share.did(keys, jobs, begun.map(|begun| time_stamp().saturating_sub(begun)));
        });
        self.counts.here += n as u64;
        n
    }

    /// Takes finished requests back, and looks after the engine. A worker that shares the work and has none
    /// does what the engine has not begun.
    pub(super) fn look_away(&mut self, now: u64, pool: &mut Pool) {
        let Some(mut share) = self.share.take() else { return self.gather(now, pool) };
        let begun = time_stamp();
        let away = self.away;
        self.gather(now, pool);
        if self.away < away {
            share.handled(time_stamp().saturating_sub(begun));
        } else if share.is_balanced()
            && share.is_idle()
            && let Some(since) = self.window.behind_since()
        {
            let is_late = now.saturating_sub(since) > self.caps.deadline / PATIENCE;
            if !self.recall(pool) && is_late {
                self.overtake(pool);
            }
        }
        self.share = Some(share);
    }

    /// Does again what all wait for and a helper has begun with, which may have been stopped: what it makes of
    /// it is not used. That he keeps the request keeps him from getting others.
    #[cold]
    pub(super) fn overtake(&mut self, pool: &mut Pool) {
        if self.recall(pool) || !self.window.owe_first() {
            return;
        }
        self.owes = true;
        self.counts.overtaken += self.redo(pool);
    }

    /// Does what the engine has not begun with, a request at a time; says whether there was one.
    pub(super) fn recall(&mut self, pool: &mut Pool) -> bool {
        let Some(request) = self.engine.recall() else { return false };
        self.away = self.away.saturating_sub(1);
        let number = request.number();
        let slot = self.window.get_mut(number);
        let Some(slot) = slot.filter(|slot| matches!(slot.place, Place::Away(_))) else {
            self.take_back(request, pool);
            return true;
        };
        let Request { batch, outputs } = request;
        drop(batch);
        if let Some(own) = slot.batch.as_mut().and_then(Arc::get_mut) {
            run_jobs(|id| self.keys.at(id, number), own.jobs.as_mut_slice());
            mem::swap(&mut own.jobs, &mut slot.jobs);
        }
        slot.place = Place::Back;
        self.counts.recalled += slot.jobs.len() as u64;
        self.window.came_back();
        self.outputs.push(outputs);
        true
    }
}
