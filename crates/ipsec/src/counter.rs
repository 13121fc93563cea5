//! A counter that one worker writes and anyone reads.

use core::sync::atomic::{AtomicU64, Ordering};

/// A counter with a single writer: adding is a load and a store, never a locked instruction.
///
/// Readers may see a value that is a burst old, never a torn one.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning worker calls this; a second writer could lose increments.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Replaces the value.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sets() {
        let counter = Counter::default();
        counter.add(3);
        counter.add(4);
        assert_eq!(counter.get(), 7);
        counter.set(1);
        assert_eq!(counter.get(), 1);
    }
}
