//! What people are told of who uses the socket.

use std::time::{Duration, Instant};

use convoy_xfrm::Group;

use crate::xfrm::Client;

/// Groups that IKE daemons need, and what they are called.
const DAEMONS: [(Group, &str); 2] = [(Group::Acquire, "acquire"), (Group::Expire, "expire")];

/// The groups that say that somebody is an IKE daemon, as a mask.
pub(super) const DAEMON_GROUPS: u32 = Group::Acquire.bit() | Group::Expire.bit();

/// Tells that a process joined groups of daemons, and of another one that is in such groups.
pub(super) fn listens(client: &Client, groups: u32, other: Option<&Client>) {
    let names: Vec<&str> = DAEMONS
        .iter()
        .filter(|(group, _)| group.bit() & groups != 0)
        .map(|(_, name)| *name)
        .collect();
    let (who, names) = (named(client), names.join(", "));
    match other {
        None => tracing::info!("{who} listens for {names}"),
        Some(other) => tracing::warn!(
            "{who} listens for {names}, and so does {}: two daemons would answer the same events",
            named(other)
        ),
    }
}

/// The process, for people.
pub(super) fn named(client: &Client) -> String {
    format!("{} (pid {})", client.command, client.pid)
}

/// Keeps a message that anybody may cause from filling the log.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    last: Option<Instant>,
    silenced: u64,
}

impl Throttle {
    /// Time between two messages.
    const INTERVAL: Duration = Duration::from_secs(5);

    /// Whether to say it at `now`; then, how often it was not said before.
    pub(super) fn says(&mut self, now: Instant) -> Option<u64> {
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
