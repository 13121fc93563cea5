//! One moment, in the two clocks that matter.

use convoy_ipsec::clock::Now;

const NS: u64 = 1_000_000_000;

/// A moment: daemons count in seconds since 1970, workers in nanoseconds of their own clock.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
    /// The workers' clock.
    pub worker: Now,
}

impl Moment {
    /// In seconds since 1970.
    #[must_use]
    pub const fn unix(self) -> u64 {
        self.unix_ns / NS
    }

    /// A moment of the workers' clock in seconds since 1970; 0, which is never, stays 0.
    #[must_use]
    pub(super) const fn unix_of(self, worker_ns: u64) -> u64 {
        match worker_ns {
            0 => 0,
            then => self.unix_ns.saturating_sub(self.worker.0.saturating_sub(then)) / NS,
        }
    }

    /// The moment of the workers' clock that was so many seconds after 1970; at least 1, since 0 is
    /// never.
    #[must_use]
    pub(super) fn worker_ns_of(self, unix: u64) -> u64 {
        let age = self.unix_ns.saturating_sub(unix.saturating_mul(NS));
        self.worker.0.saturating_sub(age).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_go_back_and_forth() {
        let at = Moment { unix_ns: 1_000 * NS + 5, worker: Now(90 * NS) };
        assert_eq!(at.unix(), 1_000);
        assert_eq!((at.unix_of(0), at.unix_of(80 * NS), at.unix_of(91 * NS)), (0, 990, 1_000));
        assert_eq!(at.unix_of(at.worker_ns_of(950)), 950);
        // Older than the machine's clock, or of the future.
        assert_eq!((at.worker_ns_of(1), at.worker_ns_of(2_000)), (1, 90 * NS));
    }
}
