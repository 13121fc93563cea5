//! The load of a worker, to which all its front ends report, and what it calls for.

use std::sync::{Arc, Mutex, PoisonError};

use super::trials::Trials;

/// Between two judgements of the load, in cycles: about a millisecond.
pub(super) const INTERVAL: u64 = 1 << 21;
/// An interval that is twice as long was interrupted, unless so many in a row were: then turns take as long.
const IN_A_ROW: u32 = 4;
/// A worker that is busy for this part of the time does not keep up.
const OVERLOADED: f64 = 0.85;
/// One that would be busy for less, if it did all itself, keeps up again.
const KEEPS_UP: f64 = 0.7;
/// Weight of what the last interval has shown handing over to cost.
const NEWER: f64 = 0.25;
/// Part of the cost of handing over that is left after an interval without it: so that it is tried again.
const FADING: f64 = 0.99;

/// The load of a worker that [shares its work](super::Sharing): its front ends have the same one, as what one of
/// them hands over gives the worker time for the others.
#[derive(Clone, Debug, Default)]
pub struct WorkerLoad(Arc<Mutex<Worker>>);

/// Conclusions from the load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Judgement {
    /// True if the worker does not keep up.
    pub(super) is_overloaded: bool,
    /// True if work may be handed over, as far as trials show that more gets done so.
    pub(super) goes_away: bool,
    /// Cycles of the worker for a packet handed over and taken back, once that is known.
    pub(super) handing: Option<f64>,
}

/// Activity of a front end since it reported last.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// It took packets, gave some out, or had some that had to wait.
    pub(super) is_active: bool,
    /// Work taken, in bytes with some for each packet, as long as the worker does not keep up.
    pub(super) work: f64,
    /// Cycles that what went away would have cost here.
    pub(super) spared: f64,
    /// Cycles for handing over, and packets for which they were needed.
    pub(super) handing: u64,
    pub(super) handed: u64,
}

impl WorkerLoad {
    /// A front end begins a turn of that time, at that stamp, and reports what happened since it did so last.
    pub(super) fn turn(&self, now: u64, at: u64, report: Report) -> Judgement {
        self.with(|worker| worker.turn(now, at, report))
    }

    /// The worker is about to sleep.
    pub(super) fn rests(&self, at: u64, report: Report) {
        self.with(|worker| worker.rests(at, report));
    }

    /// Does something with it. The front ends of a worker share a thread, so none waits here.
    pub(super) fn with<T>(&self, what: impl FnOnce(&mut Worker) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
pub(super) struct Worker {
    /// The time of the turn.
    turn: u64,
    /// The stamp of its begin, or of the end if the worker rests.
    begun: u64,
    is_resting: bool,
    /// Cycles of the turn or rest before, as long as no front end was active in it.
    unclaimed: u64,
    interval: Interval,
    /// Intervals in a row that were long.
    long: u32,
    pub(super) is_overloaded: bool,
    pub(super) handing: Option<f64>,
    /// Comparison of handing work over with doing all here.
    trials: Trials,
}

/// Activity since the load was judged.
#[derive(Debug, Default)]
struct Interval {
    begun: u64,
    /// Cycles of turns in which a front end was active.
    busy: u64,
    /// Sum of the front ends' reports.
    total: Report,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            turn: 0,
            begun: 0,
            is_resting: false,
            unclaimed: 0,
            interval: Interval::default(),
            long: 0,
            is_overloaded: false,
            handing: None,
            trials: Trials::new(),
        }
    }
}

impl Worker {
    fn turn(&mut self, now: u64, at: u64, report: Report) -> Judgement {
        if now != self.turn {
            // All have reported what they did until the turn that ends now began, and nobody more than that.
            if self.begun.saturating_sub(self.interval.begun) >= INTERVAL {
                self.judge(self.begun);
            }
            self.turn = now;
            self.end_turn(at);
            self.is_resting = false;
        }
        self.add(report);
        self.judgement()
    }

    fn rests(&mut self, at: u64, report: Report) {
        if !self.is_resting {
            self.end_turn(at);
            self.is_resting = true;
        }
        self.add(report);
    }

    const fn end_turn(&mut self, at: u64) {
        self.unclaimed = at.saturating_sub(self.begun);
        self.begun = at;
    }

    /// Counts a report on the turn before.
    fn add(&mut self, report: Report) {
        let Interval { busy, total, .. } = &mut self.interval;
        if report.is_active {
            *busy += std::mem::take(&mut self.unclaimed);
        }
        total.work += report.work;
        total.spared += report.spared;
        total.handing += report.handing;
        total.handed += report.handed;
    }

    const fn judgement(&self) -> Judgement {
        Judgement {
            is_overloaded: self.is_overloaded,
            goes_away: self.trials.goes_away(),
            handing: self.handing,
        }
    }

    /// Judges load and costs by the interval that ends.
    fn judge(&mut self, at: u64) {
        let Interval { begun, busy, total } = &self.interval;
        let length = at.saturating_sub(*begun).max(1);
        let load = (*busy as f64 + total.spared) / length as f64;
        self.long = if length < 2 * INTERVAL { 0 } else { (self.long + 1).min(IN_A_ROW) };
        if matches!(self.long, 0 | IN_A_ROW) {
            if self.is_overloaded {
                self.trials.interval(total.work, *busy, total.handed > 0, at >> 8);
            }
            let each = || total.handing as f64 / total.handed as f64;
            self.handing = match (self.handing, total.handed) {
                (before, 0) => before.map(|cycles| cycles * FADING),
                (None, _) => Some(each()),
                (Some(before), _) => Some(before + (each() - before) * NEWER),
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
mod tests {
    use super::*;

    #[test]
    fn what_two_front_ends_report_is_counted_in_the_interval_in_which_it_was() {
        let mut worker = Worker::default();
        let mut at = 0;
        for now in 0..2000_u64 {
            // Lengths of up to four intervals, and turns in which one of them, both or none is active.
            at += now.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 41;
            for front in 0..2 {
                let is_active = now >> front & 1 == 1;
                worker.turn(now + 1, at, Report { is_active, ..Report::default() });
            }
            if now % 7 == 0 {
                at += 1000;
                (0..2).for_each(|_| worker.rests(at, Report::default()));
                at += INTERVAL;
            }
            let interval = &worker.interval;
            assert!(interval.busy <= worker.begun - interval.begun, "{now}: {interval:?}");
        }
    }
}
