//! Which kernel ran: a count per thread, tier and direction, kept only with the feature
//! `kernel-trace`.

#[cfg(feature = "kernel-trace")]
mod counters {
    use std::cell::Cell;

    use crate::Tier;

    thread_local! {
        static HITS: Cell<[[u64; 2]; Tier::COUNT]> = const { Cell::new([[0; 2]; Tier::COUNT]) };
    }

    pub(crate) fn hit(tier: Tier, seal: bool, packets: usize) {
        let mut hits = HITS.get();
        hits[tier as usize][usize::from(seal)] += packets as u64;
        HITS.set(hits);
    }

    /// Packets that this thread's kernels of `tier` have sealed since the thread began.
    #[must_use]
    pub fn sealed_by(tier: Tier) -> u64 {
        HITS.get()[tier as usize][1]
    }

    /// Packets that this thread's kernels of `tier` have opened, or found forged, since the thread
    /// began.
    #[must_use]
    pub fn opened_by(tier: Tier) -> u64 {
        HITS.get()[tier as usize][0]
    }
}

#[cfg(feature = "kernel-trace")]
pub(crate) use counters::hit;
#[cfg(feature = "kernel-trace")]
pub use counters::{opened_by, sealed_by};

/// Without the feature nothing is kept.
#[cfg(not(feature = "kernel-trace"))]
#[inline(always)]
pub(crate) fn hit(_: crate::Tier, _: bool, _: usize) {}
