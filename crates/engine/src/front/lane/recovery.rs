//! Loss of the engine: its jobs are done in software, and it is tried again after a pause.

use std::mem;

use convoy_packet::Pool;

use super::super::window::Place;
use super::{Lane, State};
use crate::inline::run_jobs;
use crate::lookaside::{Caps, Health};

/// The first pause before a lost engine is tried again, in deadlines of it.
const FIRST_PAUSE: u64 = 10;
/// The longest, in nanoseconds.
const LONGEST_PAUSE: u64 = 60_000_000_000;
/// An engine that was up for so many pauses is as good as new.
const CALM: u64 = 10;

impl Lane {
    /// Takes finished requests back, and looks after the engine.
    pub(super) fn gather(&mut self, now: u64, pool: &mut Pool) {
        self.take_all_back(now, pool);
        match self.state {
            State::Up => {
                let deadline = self.caps.deadline;
                let is_late = |since| now.saturating_sub(since) > deadline;
                if mem::take(&mut self.is_wrong)
                    || self.window.away_since().is_some_and(is_late)
                    || self.engine.health() == Health::Lost
                {
                    self.lose(now);
                }
            }
            State::Stopping if self.engine.quiesce(now) => {
                self.take_all_back(now, pool);
                self.away = 0;
                self.state = State::Down(now.saturating_add(self.pause));
            }
            State::Down(again) if now >= again => self.restart(now),
            State::Stopping | State::Down(_) => {}
        }
    }

    /// Gives the engine up: what it has not finished is owed from now on.
    #[cold]
    pub(super) fn lose(&mut self, now: u64) {
        self.counts.losses += 1;
        self.state = State::Stopping;
        let was_up = now.saturating_sub(self.up_since);
        let was_calm = was_up > self.pause.saturating_mul(CALM) || self.counts.restarts == 0;
        self.pause = if was_calm {
            first_pause(self.caps)
        } else {
            self.pause.saturating_mul(2).min(LONGEST_PAUSE)
        };
        for (_, slot) in self.window.iter_mut() {
            if matches!(slot.place, Place::Away(_)) {
                slot.place = Place::Owed;
                self.owes = true;
            }
        }
    }

    /// Does owed jobs in software, as far as there are frames for copies of their sources, which the engine
    /// may still be reading. Returns how many it did.
    #[cold]
    pub(super) fn redo(&mut self, pool: &mut Pool) -> u64 {
        let mut redone = 0;
        for (number, slot) in self.window.iter_mut() {
            if slot.place != Place::Owed {
                continue;
            }
            let sources = slot.batch.as_ref().map_or(&[][..], |batch| batch.jobs.as_slice());
            for job in sources.get(slot.jobs.len()..).unwrap_or_default() {
                let Some(frame) = pool.alloc() else { return redone };
                drop(slot.jobs.push(job.again(frame)));
            }
            run_jobs(|id| self.keys.at(id, number), slot.jobs.as_mut_slice());
            redone += slot.jobs.len() as u64;
            slot.batch = None;
            slot.place = Place::Back;
        }
        self.owes = false;
        self.window.came_back();
        redone
    }

    pub(super) fn restart(&mut self, now: u64) {
        if !self.engine.restart(now) {
            self.pause = self.pause.saturating_mul(2).min(LONGEST_PAUSE);
            self.state = State::Down(now.saturating_add(self.pause));
            return;
        }
        self.state = State::Up;
        self.checks.begin_trial();
        self.up_since = now;
        self.counts.restarts += 1;
        let engine = &mut self.engine;
        let refused = self.keys.offer(|id, key| engine.install(id, key).is_ok());
        self.counts.keys_refused += refused as u64;
    }
}

/// Time for which an engine lost for the first time is left alone, in nanoseconds.
pub(super) fn first_pause(caps: Caps) -> u64 {
    caps.deadline.saturating_mul(FIRST_PAUSE).min(LONGEST_PAUSE)
}
