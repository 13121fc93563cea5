//! Division of the time.

use std::time::Duration;

/// Time of each phase; together no longer than what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    pub(super) baseline: Duration,
    /// Each way by the other wire.
    pub(super) other: Duration,
    pub(super) ping: Duration,
    /// Each way.
    pub(super) bulk: Duration,
    pub(super) paced: Duration,
}

impl Budget {
    /// Splits a number of seconds; a rest is for set-up and for what is under way at phase ends.
    pub(super) fn of(seconds: u32) -> Self {
        let share = |percent: u64| Duration::from_millis(u64::from(seconds) * percent * 10);
        Self {
            baseline: share(16),
            other: share(8),
            ping: share(8),
            bulk: share(19),
            paced: share(16),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_stay_within_the_time_asked_for() {
        for seconds in [2, 3, 10, 3600] {
            let budget = Budget::of(seconds);
            let twice = 2 * (budget.bulk + budget.other);
            let sum = budget.baseline + budget.ping + twice + budget.paced;
            assert!(sum <= Duration::from_secs(seconds.into()), "{budget:?}");
            assert!(sum >= Duration::from_secs(seconds.into()) * 9 / 10, "{budget:?}");
        }
    }
}
