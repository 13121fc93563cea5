//! Trials that find out if handing work over gets more of it done, by doing both.
//!
//! The cycles in which requests are made and taken back are not all that handing over costs: packets that come
//! back lie in the cache of another processor, and on some that takes longer than the cryptography. So now and
//! then a worker that does not keep up has some intervals the other way, and compares.

/// Intervals the other way: the first is not counted, for work of the way before ends in it.
const TRIAL: u32 = 8;
/// Fewest intervals before a trial: after the worker kept up, and after the first trials, for a first time is not
/// like others.
const FIRST: u32 = 32;
/// Fewest intervals between two later trials of handing over; there are up to twice as many.
const BETWEEN: u32 = 256;
/// Factor on [`BETWEEN`] for trials of doing all here: packets that come faster than that
/// wait meanwhile, or are lost.
const SELDOM: u32 = 16;
/// Such a trial comes at once when so much less gets done than when it was decided, in so many intervals in a row.
const LESS: f64 = 0.9;
const IN_A_ROW: u32 = 4;
/// Ratio of work done by handing over to work done here, above which handing over begins.
const BEGINS: f64 = 1.0;
/// It ends below: a noisy interval or two must not end it.
const ENDS: f64 = 0.95;
/// Weights of an interval beside those before it.
const NEWER: f64 = 0.1;
const TRIED: f64 = 0.3;

/// Comparison of handing work over with doing all here.
#[derive(Debug)]
pub(super) struct Trials {
    /// True if handing over gets more done, as far as that is known.
    is_better: bool,
    /// True if work is handed over in this interval.
    goes_away: bool,
    /// Intervals until that changes.
    left: u32,
    /// Fewest intervals after the next trial, if doing all here is better.
    pause: u32,
    /// True if this interval counts.
    counts: bool,
    here: Rate,
    away: Rate,
    /// The first intervals after handing over was found better, and what got done in them.
    decided: (u32, f64),
    /// Intervals in a row in which less got done, and what in all but the first.
    less: (u32, f64),
}

/// Bytes of work that get done in a busy cycle, once that is known.
#[derive(Clone, Copy, Debug, Default)]
struct Rate(Option<f64>);

impl Rate {
    fn learn(&mut self, rate: f64, weight: f64) {
        let before = self.0.unwrap_or(rate);
        self.0 = Some(before + (rate - before) * weight);
    }
}

impl Trials {
    pub(super) const fn new() -> Self {
        Self {
            is_better: true,
            goes_away: true,
            left: FIRST,
            pause: FIRST,
            counts: false,
            here: Rate(None),
            away: Rate(None),
            decided: (0, 0.0),
            less: (0, 0.0),
        }
    }

    /// True if work may be handed over in this interval.
    #[inline]
    pub(super) const fn goes_away(&self) -> bool {
        self.goes_away
    }

    /// An interval ends in which the worker did not keep up: what got done in so many busy cycles, and whether
    /// some of it was handed over. `any` spreads trials, so that those of two workers do not keep step.
    pub(super) fn interval(&mut self, work: f64, busy: u64, handed: bool, any: u64) {
        if self.counts && work > 0.0 && busy > 0 && handed == self.goes_away {
            self.learn(work / busy as f64);
        }
        self.counts = true;
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.turn(any);
        }
    }

    fn learn(&mut self, rate: f64) {
        let weight = if self.is_trial() { TRIED } else { NEWER };
        if !self.goes_away {
            return self.here.learn(rate, weight);
        }
        self.away.learn(rate, weight);
        if self.is_better {
            self.watch(rate);
        }
    }

    /// Less may get done by handing over than when that was found better.
    fn watch(&mut self, rate: f64) {
        let (intervals, sum) = self.decided;
        if intervals < TRIAL {
            self.decided = (intervals + 1, sum + rate);
            return;
        }
        if rate >= self.decided.1 / f64::from(TRIAL) * LESS {
            self.less = (0, 0.0);
            return;
        }
        // In the first of them it may have begun halfway.
        let (intervals, sum) = self.less;
        self.less = if intervals == 0 { (1, 0.0) } else { (intervals + 1, sum + rate) };
        if self.less.0 == IN_A_ROW {
            self.away.0 = Some(self.less.1 / f64::from(IN_A_ROW - 1));
            (self.left, self.less) = (1, (0, 0.0));
        }
    }

    /// The worker does not keep up any more: what it does may be other work than before.
    pub(super) fn resume(&mut self) {
        (self.goes_away, self.counts) = (self.is_better, false);
        (self.here, self.away) = (Rate(None), Rate(None));
        (self.decided, self.less) = ((0, 0.0), (0, 0.0));
        self.left = self.left.min(FIRST);
    }

    const fn is_trial(&self) -> bool {
        self.goes_away != self.is_better
    }

    /// Ends a trial, or begins one.
    fn turn(&mut self, any: u64) {
        let (was_trial, went_away) = (self.is_trial(), self.goes_away);
        if !was_trial {
            self.goes_away = !self.is_better;
            // What was learnt at another time says little.
            (if self.goes_away { &mut self.away } else { &mut self.here }).0 = None;
            (self.left, self.counts) = (TRIAL, false);
            return;
        }
        if let (Some(here), Some(away)) = (self.here.0, self.away.0) {
            self.is_better = away > here * if self.is_better { ENDS } else { BEGINS };
            (self.decided, self.less) = ((0, 0.0), (0, 0.0));
        }
        self.goes_away = self.is_better;
        self.counts = self.goes_away == went_away;
        let between = if self.is_better { SELDOM * BETWEEN } else { self.pause };
        self.left = between + (any % u64::from(between)) as u32;
        self.pause = if self.is_better { FIRST } else { (2 * self.pause).min(BETWEEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has so many intervals with these rates, and says in how many of them work was handed over.
    fn pass(trials: &mut Trials, intervals: u32, here: f64, away: f64) -> u32 {
        let mut handed = 0;
        for any in 0..intervals {
            let goes_away = trials.goes_away();
            handed += u32::from(goes_away);
            let work = if goes_away { away } else { here };
            trials.interval(work * 1000.0, 1000, goes_away, u64::from(any) * 77);
        }
        handed
    }

    /// As long as it takes to find out.
    const LONG: u32 = 2 * SELDOM * BETWEEN + TRIAL;

    #[test]
    fn what_gets_more_done_is_done_nearly_always() {
        let mut trials = Trials::new();
        pass(&mut trials, FIRST + TRIAL, 0.5, 0.8);
        for _ in 0..3 {
            assert!(pass(&mut trials, 10_000, 0.5, 0.8) > 9970);
            pass(&mut trials, 3 * TRIAL, 0.5, 0.4);
            assert!(pass(&mut trials, 10_000, 0.5, 0.4) < 600, "it is found out at once");
            pass(&mut trials, LONG, 0.5, 0.8);
        }
    }

    #[test]
    fn a_little_more_or_less_changes_nothing() {
        let mut trials = Trials::new();
        pass(&mut trials, FIRST + TRIAL, 0.5, 0.4);
        assert!(pass(&mut trials, 10_000, 0.5, 0.49) < 600);
        pass(&mut trials, LONG, 0.5, 0.51);
        assert!(pass(&mut trials, 10_000, 0.5, 0.49) > 9970);
        pass(&mut trials, LONG, 0.5, 0.47);
        assert!(pass(&mut trials, 10_000, 0.5, 0.49) < 600);
    }

    #[test]
    fn other_work_is_not_compared_with_what_came_before() {
        let mut trials = Trials::new();
        pass(&mut trials, FIRST + TRIAL, 0.3, 0.2);
        // Ends in a trial.
        while !trials.goes_away() {
            pass(&mut trials, 1, 0.3, 0.2);
        }
        for (here, away, goes_away) in [(0.7, 0.5, false), (0.5, 0.8, true), (0.9, 0.8, false)] {
            trials.resume();
            pass(&mut trials, 8 * FIRST, here, away);
            assert_eq!(pass(&mut trials, 10 * FIRST, here, away) > 5 * FIRST, goes_away);
        }
    }

    #[test]
    fn nothing_is_compared_that_was_not_handed_over() {
        let mut trials = Trials::new();
        for any in 0..10_000 {
            trials.interval(500.0, 1000, false, any);
        }
        assert!(trials.away.0.is_none());
    }
}
