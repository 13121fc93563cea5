//! Tells that a worker sleeps, so that producers need not ring a bell nobody waits for.
//!
//! The danger is a lost wake-up: the worker looks for work, finds none and goes to sleep, while a
//! producer adds work, looks at the flag and sees nobody asleep. Each side therefore *writes first
//! and reads second*, with a sequentially consistent fence between:
//!
//! ```text
//! worker                               producer
//! 1. flag := true                      1. push work
//! 2. fence                             2. fence
//! 3. look for work; sleep if none      3. look at the flag; ring if true
//! ```
//!
//! The fences are totally ordered. If the worker's comes first, the producer sees the flag and
//! rings; if the producer's comes first, the worker sees the work and stays awake. Weaker
//! orderings allow both to read the old value (store buffering). `tests/it/wake_model.rs` explores
//! every interleaving of this file.

use super::sync::{AtomicBool, Ordering, fence};

/// Set while its owner sleeps, or is about to.
#[derive(Debug)]
pub(crate) struct SleepFlag(AtomicBool);

impl Default for SleepFlag {
    fn default() -> Self {
        Self::new()
    }
}

impl SleepFlag {
    /// A flag whose owner is awake.
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Owner: announces sleep. Look for work once more afterwards, and only then sleep.
    pub(crate) fn announce(&self) {
        // An exchange, not a store, so that it comes after any late exchange of a producer that
        // still answers an earlier sleep.
        self.0.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Owner: is awake again.
    pub(crate) fn retract(&self) {
        // Late sight of this costs one needless ring, so no ordering is asked for.
        self.0.store(false, Ordering::Relaxed);
    }

    /// Producer, after work was made visible: whether to ring. Says so to one producer per sleep.
    pub(crate) fn must_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        // The plain load keeps the line shared while the owner is awake, which is the busy case.
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::AcqRel)
    }
}
