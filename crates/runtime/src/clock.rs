//! The worker's clock.

use convoy_ipsec::clock::Now;
use nix::time::{ClockId, clock_gettime};

/// The time of the host's monotonic clock, which every worker and every reader of its counters
/// shares. Costs no system call (vDSO).
#[must_use]
pub fn now() -> Now {
    // The clock exists on every Linux; standing still would be the least harmful answer.
    let t = clock_gettime(ClockId::CLOCK_MONOTONIC);
    Now(t.map_or(0, |t| t.tv_sec().unsigned_abs() * 1_000_000_000 + t.tv_nsec().unsigned_abs()))
}
