//! Looks that are due when something may have changed, and rest in between.

use std::time::Instant;

/// Rest after a look, in durations of that look: somebody may change things all the time.
const RESTS: u32 = 30;

/// A look at the host that is taken once something may have changed, but for a rest after the last one.
#[derive(Debug, Default)]
pub(super) struct Recheck {
    is_due: bool,
    rests_until: Option<Instant>,
}

impl Recheck {
    /// One that is due at once.
    pub(super) fn due() -> Self {
        Self { is_due: true, rests_until: None }
    }

    /// Something may have changed if `changed`.
    pub(super) fn note(&mut self, changed: bool) {
        self.is_due |= changed;
    }

    /// Ends the rest: it is due now.
    pub(super) fn hurry(&mut self) {
        *self = Self::due();
    }

    /// Begins a look if one is due, and is due no more: the time at which it began, for [`Self::rest`].
    pub(super) fn begin(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let has_rested = self.rests_until.is_none_or(|until| now >= until);
        (has_rested && core::mem::take(&mut self.is_due)).then_some(now)
    }

    /// Rests after a look that began then.
    pub(super) fn rest(&mut self, began: Instant) {
        self.rests_until = Some(began + began.elapsed() * RESTS);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_look_is_taken_when_it_is_due_and_the_last_one_has_rested() {
        let mut recheck = Recheck::default();
        recheck.note(false);
        assert_eq!(recheck.begin(), None);
        recheck.note(true);
        let began = recheck.begin().unwrap();
        assert_eq!(recheck.begin(), None, "it is due once");
        // A look of two seconds rests for a minute.
        recheck.rest(began.checked_sub(Duration::from_secs(2)).unwrap());
        recheck.note(true);
        assert_eq!(recheck.begin(), None);
        recheck.hurry();
        assert!(recheck.begin().is_some());
    }
}
