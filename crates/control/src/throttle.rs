//! Messages that somebody can cause as often as they like.

use std::time::{Duration, Instant};

/// Keeps a message that anybody may cause from filling the log.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    last: Option<Instant>,
    silenced: u64,
}

impl Throttle {
    /// Time between two messages.
    const INTERVAL: Duration = Duration::from_secs(5);

    /// Warns, unless it did so just now; returns whether it did.
    pub(crate) fn warn(&mut self, what: impl FnOnce() -> String) -> bool {
        let silenced = self.says(Instant::now());
        match silenced {
            None => {}
            Some(0) => tracing::warn!("{}", what()),
            Some(before) => tracing::warn!("{} (after {before} more warnings)", what()),
        }
        silenced.is_some()
    }

    /// Number of messages that were not said before, if one may be said at `now`.
    fn says(&mut self, now: Instant) -> Option<u64> {
        let early =
            self.last.is_some_and(|last| now.saturating_duration_since(last) < Self::INTERVAL);
        if early {
            self.silenced = self.silenced.saturating_add(1);
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.silenced))
    }
}

/// Lines of the log that come one by one as long as they are few, and are counted when they are many.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    began: Option<Instant>,
    said: u32,
    folded: u64,
}

impl Fold {
    /// Time over which lines are counted.
    const INTERVAL: Duration = Duration::from_secs(5);
    /// Lines in that time that are said one by one.
    const SAID_MAX: u32 = 32;

    /// Returns true if the next line is to be said; else it is counted.
    pub(crate) fn says(&mut self, now: Instant) -> bool {
        if self.is_over(now) {
            self.began = Some(now);
            self.said = 0;
        }
        let may = self.said < Self::SAID_MAX;
        match may {
            true => self.said = self.said.saturating_add(1),
            false => self.folded = self.folded.saturating_add(1),
        }
        may
    }

    /// Number of lines that were counted instead of said, once their time is over.
    pub(crate) fn folded(&mut self, now: Instant) -> Option<u64> {
        (self.folded > 0 && self.is_over(now)).then(|| std::mem::take(&mut self.folded))
    }

    fn is_over(&self, now: Instant) -> bool {
        self.began.is_none_or(|began| now.saturating_duration_since(began) >= Self::INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lines_are_counted_and_few_are_said() {
        let (mut fold, start) = (Fold::default(), Instant::now());
        let said = (0..1000).filter(|_| fold.says(start)).count();
        assert_eq!(said, 32);
        assert_eq!(fold.folded(start), None, "their time is not over");
        let later = start + Fold::INTERVAL;
        assert_eq!((fold.folded(later), fold.folded(later)), (Some(968), None));
        assert!(fold.says(later));
    }

    #[test]
    fn a_message_is_said_once_in_a_while_and_counts_the_others() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        assert_eq!(throttle.says(start), Some(0));
        assert_eq!(throttle.says(start), None);
        assert_eq!(throttle.says(start + Throttle::INTERVAL / 2), None);
        assert_eq!(throttle.says(start + Throttle::INTERVAL), Some(2));
        assert_eq!(throttle.says(start + Throttle::INTERVAL * 2), Some(0));
    }
}
