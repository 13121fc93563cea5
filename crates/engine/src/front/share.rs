//! How much of the work the worker does itself, beside an engine that works elsewhere.
//!
//! Two rules, each of which can be on. *Balance*: a worker that keeps up does all itself, because that needs
//! least cycles and least time. One that does not gives bursts away that cost it more than handing them
//! over does, while the engine has not enough to do, and works on the others meanwhile; it stops while trials
//! show that less gets done so. *Budget*: what
//! a burst costs beyond so many cycles a turn goes to the engine or waits for the next turn, so that a worker is
//! not kept from its other tasks.
//!
//! Stamps are those of [`convoy_crypto::time_stamp`].

mod costs;
mod trials;

use std::time::{Duration, Instant};

use convoy_crypto::time_stamp;
pub(super) use costs::Class;
use costs::Costs;
use trials::Trials;

use super::keys::Keys;
use crate::{EngineKey, Job};

/// How a worker shares its work with an engine that works elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Whether the worker works, too, and gives the engine only what it does not keep up with and what is
    /// worth handing over.
    pub balance: bool,
    /// Cycles of the time-stamp counter that the worker's own cryptography may take in a turn; at least one
    /// packet is done. 0: as many as there is work for.
    pub budget: u64,
}

/// How long the rate of the time-stamp counter is measured.
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

/// Between two judgements of the load, in cycles: about a millisecond.
const INTERVAL: u64 = 1 << 21;
/// An interval that is twice as long was interrupted, unless so many in a row were: then turns take as long.
const IN_A_ROW: u32 = 4;
/// A worker that is busy for this part of the time does not keep up.
const OVERLOADED: f64 = 0.85;
/// One that would be busy for less, if it did all itself, keeps up again.
const KEEPS_UP: f64 = 0.7;
/// Handing over must cost less than this part of the work to begin with it.
const BEGINS: f64 = 0.8;
/// It must cost more than this part to end it.
const ENDS: f64 = 0.95;
/// Smaller bursts are not handed over: they say that the worker keeps up.
const LEAST: usize = 8;
/// Weight of what the last interval has shown handing over to cost.
const NEWER: f64 = 0.25;
/// What is left, after an interval without, of what handing over was found to cost: so that it is tried again.
const FADING: f64 = 0.99;
/// One of so many bursts tells what work costs.
const SAMPLE: u32 = 8;

/// What a worker knows of its load, and of what packets cost it here and away.
#[derive(Debug)]
pub(super) struct Share {
    sharing: Sharing,
    costs: Costs,
    /// Bursts until the next whose cost is learnt.
    unsampled: u32,
    /// Cycles of this worker for a packet handed over and taken back, once that is known.
    handing: Option<f64>,
    /// Whether the worker does not keep up.
    is_overloaded: bool,
    /// Whether it gets more done by handing over.
    trials: Trials,
    /// Whether the last burst that could go away did.
    goes_away: bool,
    interval: Interval,
    /// Intervals in a row that were long.
    long: u32,
    load: Load,
    /// Cycles that work has taken in this turn.
    spent: f64,
}

/// What happened since the load was judged.
#[derive(Debug, Default)]
struct Interval {
    begun: u64,
    busy: u64,
    /// Cycles that what was taken would have cost here, as long as the worker does not keep up.
    work: f64,
    /// Cycles that what went away would have cost here.
    spared: f64,
    /// Cycles for handing over, and packets for which they were needed.
    handing: u64,
    handed: u64,
}

/// When a worker is busy: in turns in which it takes packets or gives some out, from begin to end.
#[derive(Debug, Default)]
struct Load {
    /// The time of the turn, and its stamp.
    turn: u64,
    begun: u64,
    took: bool,
    gave: bool,
    /// Whether packets were taken in the turn before.
    took_before: bool,
}

impl Share {
    pub(super) fn new(sharing: Sharing) -> Self {
        Self {
            sharing,
            costs: Costs::default(),
            unsampled: 0,
            handing: None,
            is_overloaded: false,
            trials: Trials::new(),
            goes_away: false,
            interval: Interval::default(),
            long: 0,
            load: Load::default(),
            spent: 0.0,
        }
    }

    pub(super) const fn is_balanced(&self) -> bool {
        self.sharing.balance
    }

    /// What packets under a key cost.
    pub(super) fn class_of(&mut self, key: &EngineKey) -> Class {
        self.costs.class_of(match key {
            EngineKey::Seal(key) => key.suite(),
            EngineKey::Open(key) => key.suite(),
        })
    }

    /// How many of these jobs the worker may do in this turn, the first ones.
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

    /// What these jobs cost here, about; 0 while the worker keeps up.
    #[inline]
    pub(super) fn worth(&self, keys: &Keys, jobs: &[Job]) -> f64 {
        if self.sharing.balance && self.is_overloaded { self.costs.about(keys, jobs) } else { 0.0 }
    }

    /// Whether it is better to hand so many jobs over, which would cost so much here, than to do them.
    #[inline]
    pub(super) fn goes_away(&mut self, jobs: usize, here: f64) -> bool {
        if here <= 0.0 || jobs < LEAST || !self.trials.goes_away() {
            return false;
        }
        let part = if self.goes_away { ENDS } else { BEGINS };
        let away = self.handing.unwrap_or(0.0) * jobs as f64;
        self.goes_away = away < here * part;
        self.goes_away
    }

    /// It is that time: another one than before begins a turn.
    #[inline]
    pub(super) fn turn(&mut self, now: u64) {
        if now != self.load.turn {
            self.begin_turn(now, time_stamp());
        }
    }

    fn begin_turn(&mut self, now: u64, at: u64) {
        let Load { begun, took, gave, .. } = self.load;
        if took || gave {
            self.interval.busy += at.saturating_sub(begun);
        }
        self.load = Load { turn: now, begun: at, took_before: took, ..Load::default() };
        self.spent = 0.0;
        if at.saturating_sub(self.interval.begun) >= INTERVAL {
            self.judge(at);
        }
    }

    /// Jobs were taken in this turn that are [worth](Self::worth) so much.
    #[inline]
    pub(super) fn took(&mut self, worth: f64) {
        self.load.took = true;
        self.interval.work += worth;
    }

    /// Jobs were given out.
    #[inline]
    pub(super) const fn gave(&mut self) {
        self.load.gave = true;
    }

    /// Jobs were handed over; doing them would have cost so much.
    #[inline]
    pub(super) fn handed_over(&mut self, jobs: usize, here: f64, cycles: u64) {
        self.interval.spared += here;
        self.interval.handed += jobs as u64;
        self.handled(cycles);
    }

    /// Taking results back, or looking for them, took so long.
    #[inline]
    pub(super) fn handled(&mut self, cycles: u64) {
        self.interval.handing += cycles;
        self.interval.spared -= cycles as f64;
    }

    /// Whether the cost of the next burst is to be learnt.
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
        self.rests_at(time_stamp());
    }

    fn rests_at(&mut self, at: u64) {
        let turn = self.load.turn;
        self.begin_turn(turn, at);
    }

    /// Whether no jobs come: none was taken in this turn and the one before.
    #[inline]
    pub(super) const fn is_idle(&self) -> bool {
        !self.load.took && !self.load.took_before
    }

    /// Judges load and costs by the interval that ends.
    fn judge(&mut self, at: u64) {
        let Interval { begun, busy, work, spared, handing, handed } = self.interval;
        let length = at.saturating_sub(begun).max(1);
        let load = (busy as f64 + spared) / length as f64;
        self.long = if length < 2 * INTERVAL { 0 } else { (self.long + 1).min(IN_A_ROW) };
        if matches!(self.long, 0 | IN_A_ROW) {
            if self.is_overloaded {
                self.trials.interval(work, busy, handed > 0, at >> 8);
            }
            self.handing = match (self.handing, handed) {
                (before, 0) => before.map(|cycles| cycles * FADING),
                (None, _) => Some(handing as f64 / handed as f64),
                (Some(before), _) => {
                    Some(before + (handing as f64 / handed as f64 - before) * NEWER)
                }
            };
        }
        let was_overloaded = self.is_overloaded;
        self.is_overloaded = load >= if was_overloaded { KEEPS_UP } else { OVERLOADED };
        if self.is_overloaded && !was_overloaded {
            self.trials.resume();
        }
        self.interval = Interval { begun: at, ..Interval::default() };
    }
}

#[cfg(test)]
mod tests;
