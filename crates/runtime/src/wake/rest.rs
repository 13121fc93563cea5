//! Tells that a worker rests with nothing under way, so that nobody waits for it to see a change.
//!
//! A worker that rests takes the newest picture before its next packet. Who published one may count it as seen, if
//! both sides agree on the order, as for the [sleep flag](super::flag): each *writes first and reads second*, with a
//! sequentially consistent fence between:
//!
//! ```text
//! worker                               control
//! 1. flag := false                     1. publish a picture
//! 2. fence                             2. fence
//! 3. take the picture                  3. look at the flag: true counts as seen
//! ```
//!
//! If the worker's fence comes first, control sees that it rests no more; if control's comes first, the worker takes
//! what was published. `tests/it/wake_model.rs` explores every interleaving of this file.

use super::sync::{AtomicBool, Ordering, fence};

/// Set while its owner rests.
#[derive(Debug)]
pub(crate) struct RestFlag(AtomicBool);

impl Default for RestFlag {
    fn default() -> Self {
        Self::new()
    }
}

impl RestFlag {
    /// A flag whose owner works.
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Owner: rests from here on, with nothing under way.
    pub(crate) fn rest(&self) {
        // Release: what it did before is done for whoever counts on it.
        self.0.store(true, Ordering::Release);
    }

    /// Owner: works again. The newest picture is to be taken next.
    pub(crate) fn rise(&self) {
        self.0.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Control, after it published: true if the owner takes that picture before its next packet.
    pub(crate) fn is_resting(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire)
    }
}
