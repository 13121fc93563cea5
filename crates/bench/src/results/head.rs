//! Data of a run that are known before it begins.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::machine::Machine;

/// Version, command, time and machine of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Convoy's version.
    pub version: String,
    /// The command line.
    pub command: String,
    /// Time of its start (RFC 3339, UTC).
    pub started: String,
    /// The machine.
    pub machine: Machine,
}

impl Head {
    /// Of this process, which begins now. Looks at the machine for some 20 ms.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            started: rfc3339(since.as_secs()),
            machine: Machine::look(),
        }
    }
}

/// Seconds since 1970 as date and time of day in UTC.
fn rfc3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that a leap day is the last of its year; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = 400 * era + year + next;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
