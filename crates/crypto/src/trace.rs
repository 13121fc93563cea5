//! Counts of packets per thread, kernels' tier and direction, kept only with the feature
//! `kernel-trace`.

#[cfg(feature = "kernel-trace")]
mod counters {
    use std::cell::Cell;

    use crate::{Tier, width::Width};

    thread_local! {
        static WIDTHS: Cell<[u64; 3]> = const { Cell::new([0; 3]) };
        static HITS: Cell<[[u64; 2]; Tier::COUNT]> = const { Cell::new([[0; 2]; Tier::COUNT]) };
    }

    pub(crate) fn hit(tier: Tier, seal: bool, packets: usize) {
        let mut hits = HITS.get();
        hits[tier as usize][usize::from(seal)] += packets as u64;
        HITS.set(hits);
    }

    pub(crate) fn width(width: Width, packets: usize) {
        let mut widths = WIDTHS.get();
        widths[width as usize] += packets as u64;
        WIDTHS.set(widths);
    }

    /// Packets whose hash or ChaCha20-Poly1305 this thread has computed in registers of 128, 256 or 512 bits
    /// since it began.
    #[must_use]
    pub fn computed_in(bits: usize) -> u64 {
        [(128, Width::W128), (256, Width::W256), (512, Width::W512)]
            .into_iter()
            .find(|(of, _)| *of == bits)
            .map_or(0, |(_, width)| WIDTHS.get()[width as usize])
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
pub use counters::{computed_in, opened_by, sealed_by};
#[cfg(feature = "kernel-trace")]
pub(crate) use counters::{hit, width};

/// Without the feature nothing is kept.
#[cfg(not(feature = "kernel-trace"))]
#[inline(always)]
pub(crate) fn hit(_: crate::Tier, _: bool, _: usize) {}

/// The same.
#[cfg(not(feature = "kernel-trace"))]
#[inline(always)]
pub(crate) fn width(_: crate::width::Width, _: usize) {}
