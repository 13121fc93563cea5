//! Answers to what the packet filter asks.

use crate::marks::Verdict;

/// Policies that questions are put to (RFC 4301 section 4.4.1).
pub trait Policies {
    /// Verdict on a packet that leaves, from its IP header on. The end of a long one may be missing.
    fn outbound(&mut self, packet: &[u8]) -> Verdict;

    /// Verdict on a packet for this host that came in in clear: [`Verdict::Bypass`] if it was to, else it is dropped.
    fn inbound(&mut self, packet: &[u8]) -> Verdict;

    /// The same of a packet for others.
    fn forwarded(&mut self, packet: &[u8]) -> Verdict;

    /// Takes a whole packet as if it had come by the TUN interface. It is protected, and the kernel drops it.
    fn take(&mut self, packet: &[u8]);
}

/// Numbers of answers, by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answered {
    /// Packets, and with them flows, that pass in clear.
    pub bypassed: u64,
    /// Packets, and with them flows, that go into the TUN interface.
    pub protected: u64,
    /// Packets that were dropped.
    pub discarded: u64,
}

impl Answered {
    /// All questions.
    #[must_use]
    pub const fn questions(&self) -> u64 {
        self.bypassed.saturating_add(self.protected).saturating_add(self.discarded)
    }

    pub(crate) const fn count(&mut self, verdict: Verdict) {
        let count = match verdict {
            Verdict::Bypass => &mut self.bypassed,
            Verdict::Protect => &mut self.protected,
            Verdict::Discard => &mut self.discarded,
        };
        *count = count.saturating_add(1);
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.bypassed = self.bypassed.saturating_add(other.bypassed);
        self.protected = self.protected.saturating_add(other.protected);
        self.discarded = self.discarded.saturating_add(other.discarded);
    }
}

/// Numbers of answers, by direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    /// About packets from local to remote networks.
    pub outbound: Answered,
    /// About packets from remote to local networks, also of those that go from local to remote networks as well.
    pub inbound: Answered,
}

impl Answers {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.outbound.add(&other.outbound);
        self.inbound.add(&other.inbound);
    }

    /// Total of both directions.
    #[must_use]
    pub fn sum(&self) -> Answered {
        let mut sum = self.outbound;
        sum.add(&self.inbound);
        sum
    }
}
