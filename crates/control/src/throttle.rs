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

    /// Warns, unless it did so just now.
    pub(crate) fn warn(&mut self, what: impl FnOnce() -> String) {
        match self.says(Instant::now()) {
            None => {}
            Some(0) => tracing::warn!("{}", what()),
            Some(before) => tracing::warn!("{} (after {before} more warnings)", what()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

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
