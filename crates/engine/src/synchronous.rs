//! The contract of engines that work at once, on the core that asks.

use std::fmt;

use crate::{EngineKey, Job, KeyId};

/// Something that seals and opens packets where they lie. One instance belongs to one worker and one
/// direction.
pub trait Synchronous: Send + fmt::Debug {
    /// Makes a key known under `id`, replacing one that was there.
    fn install(&mut self, id: KeyId, key: EngineKey);

    /// Forgets the key under `id`.
    fn remove(&mut self, id: KeyId);

    /// Works on jobs, at most [`BURST_MAX`](convoy_packet::BURST_MAX), and leaves none
    /// [pending](crate::Status::Pending). One that can never be done, for its key is unknown or its spans do
    /// not fit its packet, is [rejected](crate::Status::Rejected).
    fn run(&mut self, jobs: &mut [Job]);
}
