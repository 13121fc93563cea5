//! Division of the work between the worker and an engine that works elsewhere.
//!
//! Two rules, each of which can be on. *Balance*: a worker that keeps up does all itself, because that needs
//! least cycles and least time. One that does not gives bursts away that cost it more than handing them
//! over does, while the engine has not enough to do, and works on the others meanwhile; it stops while trials
//! show that less gets done so. Load and trials are the worker's: its front ends have them together. *Budget*: what
//! a burst costs beyond so many cycles a turn goes to the engine or waits for the next turn, so that a worker is
//! not kept from its other tasks.
//!
//! Stamps are those of [`convoy_crypto::time_stamp`].

mod costs;
mod load;
mod trials;

use std::mem;
use std::time::{Duration, Instant};

use convoy_crypto::time_stamp;
pub(super) use costs::Class;
use costs::Costs;
pub use load::WorkerLoad;
use load::{Judgement, Report};

use super::keys::Keys;
use crate::{EngineKey, Job};

/// Rules by which a worker shares its work with an engine that works elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// True if the worker works, too, and gives the engine only what it does not keep up with and what is
    /// worth handing over.
    pub balance: bool,
    /// Cycles of the time-stamp counter that the worker's own cryptography may take in a turn; at least one
    /// packet is done. 0: as many as there is work for.
    pub budget: u64,
}

/// Time for which the rate of the time-stamp counter is measured.
const GAUGED: Duration = Duration::from_millis(5);

/// Cycles of the time-stamp counter in so much time, for [`Sharing::budget`]. Measures the counter's rate, for five
/// milliseconds.
#[must_use]
pub fn cycles_in(time: Duration) -> u64 {
    let (begun, stamp) = (Instant::now(), time_stamp());
    std::thread::sleep(GAUGED);
    let cycles = time_stamp().saturating_sub(stamp) as f64;
    (cycles * time.as_secs_f64() / begun.elapsed().as_secs_f64()) as u64
}

/// Handing over must cost less than this part of the work to begin with it.
const BEGINS: f64 = 0.8;
/// It must cost more than this part to end it.
const ENDS: f64 = 0.95;
/// Smaller bursts are not handed over: they say that the worker keeps up.
const LEAST: usize = 8;
/// A packet is as much work as so many bytes of it, about, whatever the suite.
const PACKET: u64 = 300;
/// One of so many bursts tells what work costs.
const SAMPLE: u32 = 8;

/// Costs of packets here and away, as a front end knows them, beside the load of its worker.
#[derive(Debug)]
pub(super) struct Share {
    sharing: Sharing,
    costs: Costs,
    /// Bursts until the next whose cost is learnt.
    unsampled: u32,
    /// True if the last burst that could go away did.
    goes_away: bool,
    load: WorkerLoad,
    /// Conclusions from the load for this turn.
    judgement: Judgement,
    /// Activity that the load has not been told of yet.
    report: Report,
    /// The time of the turn.
    turn: u64,
    took: bool,
    /// True if packets were taken in the turn before.
    took_before: bool,
    /// Cycles that work has taken in this turn.
    spent: f64,
}

impl Share {
    pub(super) fn new(sharing: Sharing, load: &WorkerLoad) -> Self {
        Self {
            sharing,
            costs: Costs::default(),
            unsampled: 0,
            goes_away: false,
            load: load.clone(),
            judgement: Judgement::default(),
            report: Report::default(),
            turn: 0,
            took: false,
            took_before: false,
            spent: 0.0,
        }
    }

    pub(super) const fn is_balanced(&self) -> bool {
        self.sharing.balance
    }

    /// Index of the costs of packets under a key.
    pub(super) fn class_of(&mut self, key: &EngineKey) -> Class {
        self.costs.class_of(match key {
            EngineKey::Seal(key) => key.suite(),
            EngineKey::Open(key) => key.suite(),
        })
    }

    /// Number of these jobs, the first ones, that the worker may do in this turn.
    #[inline]
    pub(super) fn within_budget(&self, keys: &Keys, jobs: &[Job]) -> usize {
        if self.sharing.budget == 0 {
            return jobs.len();
        }
        let mut left = self.sharing.budget as f64 - self.spent;
        // A turn that has done nothing yet does at least one, whatever it costs.
        let least = usize::from(self.spent == 0.0);
        let fit = jobs.iter().take_while(|job| {
            left -= self.costs.of_one(keys, job);
            left >= 0.0
        });
        fit.count().max(least).min(jobs.len())
    }

    /// Cycles that these jobs cost here, about; 0 while the worker keeps up.
    #[inline]
    pub(super) fn worth(&self, keys: &Keys, jobs: &[Job]) -> f64 {
        if self.sharing.balance && self.judgement.is_overloaded {
            self.costs.about(keys, jobs)
        } else {
            0.0
        }
    }

    /// True if it is better to hand so many jobs over, which would cost so much here, than to do them.
    #[inline]
    pub(super) fn goes_away(&mut self, jobs: usize, here: f64) -> bool {
        if here <= 0.0 || jobs < LEAST || !self.judgement.goes_away {
            return false;
        }
        let part = if self.goes_away { ENDS } else { BEGINS };
        let away = self.judgement.handing.unwrap_or(0.0) * jobs as f64;
        self.goes_away = away < here * part;
        self.goes_away
    }

    /// It is that time: another one than before begins a turn.
    #[inline]
    pub(super) fn turn(&mut self, now: u64) {
        if now != self.turn {
            self.turn_at(now, time_stamp());
        }
    }

    fn turn_at(&mut self, now: u64, at: u64) {
        self.turn = now;
        self.judgement = self.load.turn(now, at, mem::take(&mut self.report));
        self.end_turn();
    }

    fn end_turn(&mut self) {
        self.took_before = mem::take(&mut self.took);
        self.spent = 0.0;
    }

    /// Amount of work in these jobs, in bytes and [`PACKET`] for each; 0 while the worker keeps up. Not in cycles: packets
    /// cost more while helpers have them in their caches, so less work would look like more.
    #[inline]
    pub(super) fn work(&self, jobs: &[Job]) -> f64 {
        if !self.sharing.balance || !self.judgement.is_overloaded {
            return 0.0;
        }
        jobs.iter().map(|job| u64::from(job.text.len) + PACKET).sum::<u64>() as f64
    }

    /// Jobs were taken in this turn that are so much [work](Self::work).
    #[inline]
    pub(super) fn took(&mut self, work: f64) {
        (self.took, self.report.is_active) = (true, true);
        self.report.work += work;
    }

    /// Jobs wait for others.
    #[inline]
    pub(super) const fn waits(&mut self) {
        self.report.is_active = true;
    }

    /// Jobs were given out.
    #[inline]
    pub(super) const fn gave(&mut self) {
        self.report.is_active = true;
    }

    /// Jobs were handed over; doing them would have cost so much.
    #[inline]
    pub(super) fn handed_over(&mut self, jobs: usize, here: f64, cycles: u64) {
        self.report.spared += here;
        self.report.handed += jobs as u64;
        self.handled(cycles);
    }

    /// Taking results back, or looking for them, took so long.
    #[inline]
    pub(super) fn handled(&mut self, cycles: u64) {
        self.report.handing += cycles;
        self.report.spared -= cycles as f64;
    }

    /// True if the cost of the next burst is to be learnt.
    #[inline]
    pub(super) fn is_sample(&mut self) -> bool {
        let is_sample = self.unsampled == 0 || self.sharing.budget > 0;
        self.unsampled = self.unsampled.checked_sub(1).unwrap_or(SAMPLE - 1);
        is_sample
    }

    /// These jobs are to be done here, and took so long if that was measured.
    pub(super) fn did(&mut self, keys: &Keys, jobs: &[Job], cycles: Option<u64>) {
        if let Some(cycles) = cycles {
            self.costs.learn(keys, jobs, cycles as f64);
        }
        if self.sharing.budget > 0 {
            let cycles = cycles.map_or_else(|| self.costs.of(keys, jobs), |cycles| cycles as f64);
            self.spent += cycles.max(1.0);
        }
    }

    /// The worker is about to sleep.
    pub(super) fn rests(&mut self) {
        self.load.rests(time_stamp(), mem::take(&mut self.report));
        self.end_turn();
    }

    /// True if no jobs come: none was taken in this turn and the one before.
    #[inline]
    pub(super) const fn is_idle(&self) -> bool {
        !self.took && !self.took_before
    }
}

#[cfg(test)]
mod tests;
