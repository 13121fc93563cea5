//! Choice of an engine's results that software computes again, to see whether the engine computes right.

/// Behind a start of an engine that was lost, so many results are all checked.
const TRIAL: u32 = 256;

/// Chooses results at random, so that no regular fault stays between them.
#[derive(Debug)]
pub(super) struct Checks {
    /// Of so many results, one is checked on average; 0: none.
    one_in: u32,
    /// Results until the next that is checked.
    gap: u32,
    /// Results that are all checked, for now.
    trial: u32,
    random: u64,
}

impl Checks {
    pub(super) const fn new(one_in: u32) -> Self {
        // The first result of all is checked, so that a device that never works is found out at once.
        Self { one_in, gap: 0, trial: 0, random: 0x9e37_79b9_7f4a_7c15 }
    }

    /// Checks the results that come next more closely.
    pub(super) const fn begin_trial(&mut self) {
        if self.one_in > 0 {
            (self.trial, self.gap) = (TRIAL, 0);
        }
    }

    /// Passes over `results` results if none of them is to be checked.
    #[inline]
    pub(super) const fn pass_over(&mut self, results: usize) -> bool {
        if self.one_in == 0 {
            return true;
        }
        let is_far = self.gap as usize >= results;
        if is_far {
            self.gap -= results as u32;
        }
        is_far
    }

    /// The places of those that are to be checked, of the next `results`.
    pub(super) fn places(&mut self, results: usize) -> impl Iterator<Item = usize> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let place = at + self.gap as usize;
            if place >= results {
                self.gap -= (results - at) as u32;
                return None;
            }
            at = place + 1;
            self.gap = self.next_gap();
            Some(place)
        })
    }

    /// From 0 to twice the average, all equally likely.
    fn next_gap(&mut self) -> u32 {
        self.trial = self.trial.saturating_sub(1);
        if self.trial > 0 || self.one_in <= 1 {
            return 0;
        }
        // Marsaglia, "Xorshift RNGs" (2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let span = u64::from(self.one_in) * 2 - 1;
        u32::try_from((self.random >> 16) % span).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places over bursts of 37 results.
    fn checked(checks: &mut Checks, results: usize) -> Vec<usize> {
        let mut all = Vec::new();
        for begin in (0..results).step_by(37) {
            let n = 37.min(results - begin);
            if !checks.pass_over(n) {
                all.extend(checks.places(n).map(|at| begin + at));
            }
        }
        all
    }

    #[test]
    fn as_many_are_checked_as_asked_for_and_at_no_regular_places() {
        assert!(checked(&mut Checks::new(0), 1000).is_empty());
        assert_eq!(checked(&mut Checks::new(1), 1000), (0..1000).collect::<Vec<_>>());
        let all = checked(&mut Checks::new(100), 1_000_000);
        assert!((9_500..10_500).contains(&all.len()), "{}", all.len());
        assert_eq!(all[0], 0);
        let gaps: std::collections::HashSet<_> =
            all.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(
            gaps.len() > 190 && gaps.iter().all(|gap| (1..200).contains(gap)),
            "{}",
            gaps.len()
        );
    }

    #[test]
    fn a_trial_checks_each_result() {
        let mut checks = Checks::new(1000);
        checked(&mut checks, 5000);
        checks.begin_trial();
        let all = checked(&mut checks, 5000);
        assert!(all.len() >= TRIAL as usize && all.iter().take(256).copied().eq(0..256));
        assert!(all.len() < 300, "{}", all.len());
    }
}
