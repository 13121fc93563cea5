//! The ways into Convoy's C library, and the ways into intel-ipsec-mb that each is held against.

use convoy_crypto::Suite;

use crate::mix::Sizes;

/// A way into the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CApi {
    /// `convoy_submit_job`: one job after the other through a manager's queue.
    Job,
    /// `convoy_submit_job_nocheck`: the same where the caller answers for pointers.
    JobNocheck,
    /// `convoy_submit_burst`: an array of jobs.
    Burst,
    /// `convoy_submit_burst_nocheck`: the same where the caller answers for pointers.
    BurstNocheck,
    /// `convoy_aead_encrypt` and its like: a call for each message, for AEADs.
    Direct,
}

impl CApi {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Job, Self::JobNocheck, Self::Burst, Self::BurstNocheck, Self::Direct];

    /// Whose code it is, as [`Contender::who`](crate::contender::Contender::who) tells it.
    pub(crate) const WHO: &'static str = "convoy-c";

    /// Its name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Job => "c-job",
            Self::JobNocheck => "c-job-nocheck",
            Self::Burst => "c-burst",
            Self::BurstNocheck => "c-burst-nocheck",
            Self::Direct => "c-direct",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.name() == name)
    }

    /// True if the library checks pointers.
    const fn is_checked(self) -> bool {
        matches!(self, Self::Job | Self::Burst)
    }

    /// True if intel-ipsec-mb's interface of this name does the same for its caller: jobs and bursts that are
    /// checked, or are not, or direct calls.
    #[must_use]
    pub fn is_like(self, peer_api: &str) -> bool {
        let jobs = peer_api.starts_with("job") || peer_api.starts_with("burst");
        match self {
            Self::Direct => peer_api == "direct",
            _ => jobs && self.is_checked() == peer_api.ends_with(CHECKED),
        }
    }

    /// The least ratio of the peer's time to Convoy's that is asked for, where Rust's interface has `rust`.
    #[must_use]
    pub fn target(self, suite: Suite, sizes: Sizes, rust: f64) -> f64 {
        let long = matches!(sizes, Sizes::Fixed(1420..));
        let short = matches!(sizes, Sizes::Fixed(..=68));
        match (self, suite) {
            (Self::Direct, Suite::Gcm(_)) if long => 1.0,
            (Self::Direct, _) => 0.9,
            _ if long => 0.98 * rust,
            (Self::Job | Self::JobNocheck, Suite::Gcm(_)) if short => 0.9,
            (_, Suite::Gcm(_)) if short => 1.0,
            (_, Suite::Pair { .. }) if short => 1.05_f64.min(0.9 * rust),
            _ if rust >= 1.4 => 1.2,
            _ => 0.9 * rust,
        }
    }
}

/// Suffix of the names of intel-ipsec-mb's interfaces that check their callers.
pub(crate) const CHECKED: &str = "-checked";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_held_against_its_like() {
        assert!(CApi::Job.is_like("burst-32-checked") && CApi::Burst.is_like("job-checked"));
        assert!(CApi::JobNocheck.is_like("job") && !CApi::JobNocheck.is_like("job-checked"));
        assert!(!CApi::Job.is_like("job") && !CApi::Burst.is_like("aead-burst"));
        assert!(CApi::Direct.is_like("direct") && !CApi::Direct.is_like("quic-batch"));
    }

    #[test]
    fn targets_follow_what_rust_reaches() {
        let gcm: Suite = "aes-128-gcm-16".parse().unwrap();
        let cbc: Suite = "aes-128-cbc+hmac-sha1-96".parse().unwrap();
        let at = |api: CApi, suite, size, rust| api.target(suite, Sizes::Fixed(size), rust);
        assert_eq!(at(CApi::Burst, gcm, 64, 2.0), 1.0);
        assert_eq!(at(CApi::Job, gcm, 68, 2.0), 0.9);
        assert_eq!(at(CApi::Burst, cbc, 64, 1.5), 1.05);
        assert_eq!(at(CApi::Burst, gcm, 256, 1.5), 1.2);
        assert_eq!(at(CApi::Burst, gcm, 256, 1.0), 0.9);
        assert_eq!(at(CApi::Job, cbc, 1420, 1.5), 0.98 * 1.5);
        assert_eq!(at(CApi::Direct, gcm, 64, 2.0), 0.9);
        assert_eq!(at(CApi::Direct, gcm, 16384, 2.0), 1.0);
    }
}
