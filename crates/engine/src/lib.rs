//! The crypto engine contract: submit a burst of jobs, poll a burst of results.
//!
//! A pipeline hands [`Job`]s to an [`Engine`] and later takes them back finished. It never asks
//! whether the engine works at once ([`Inline`]) or somewhere else: a synchronous engine finishes
//! in `submit` and gives the jobs back at the next `poll`. A job owns its packet and carries what
//! is needed to go on with it, so nothing is looked up when it returns.
//!
//! Keys reach an engine under a [`KeyId`] before the first job that names them. What engines
//! there are, by name and priority, is in [`registry`].
//!
//! An engine may finish jobs in any order; [`Ordered`] is the one place that restores it.
#![forbid(unsafe_code)]

pub mod front;
mod inline;
mod job;
pub mod lookaside;
pub mod model;
mod ordered;
pub mod registry;

use std::fmt;
use std::sync::Arc;

use convoy_crypto::{OpenKey, SealKey};

pub use front::Front;
pub use inline::Inline;
pub use job::{AAD_MAX, Context, Job, JobBurst, Op, Span, Status};
pub use lookaside::Lookaside;
pub use ordered::Ordered;

/// Number under which a key is installed in an engine.
///
/// Engines index tables by it, so numbers are small and used again after [`Engine::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId(pub u32);

/// A key for one direction.
#[derive(Clone)]
pub enum EngineKey {
    /// Protects packets.
    Seal(Arc<SealKey>),
    /// Verifies and opens packets.
    Open(Arc<OpenKey>),
}

impl fmt::Debug for EngineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seal(_) => "Seal(..)",
            Self::Open(_) => "Open(..)",
        })
    }
}

/// What an engine is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Jobs it holds at most between `submit` and `poll`.
    pub max_in_flight: usize,
    /// Whether jobs come back in the order they were submitted.
    pub in_order: bool,
}

/// Whether an engine can still be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works.
    Up,
    /// It is gone; what it held is given back by [`Engine::quiesce`] with [`Status::Rejected`].
    Lost,
}

/// Something that seals and opens packets.
///
/// One instance belongs to one worker and one direction; there are no locks.
pub trait Engine: Send + fmt::Debug {
    /// What the engine is like.
    fn caps(&self) -> Caps;

    /// Makes a key known under `id`, replacing one that was there. Jobs already submitted keep
    /// the key they were submitted with.
    fn install(&mut self, id: KeyId, key: EngineKey);

    /// Forgets the key under `id`, once no job in flight needs it.
    fn remove(&mut self, id: KeyId);

    /// Takes a prefix of `jobs` and returns its length; 0 means full. Never blocks.
    ///
    /// A job that can never run (its key is unknown, its spans do not fit its frame) is taken and
    /// comes back [`Status::Rejected`], so that "full" and "impossible" cannot be confused.
    fn submit(&mut self, jobs: &mut JobBurst) -> usize;

    /// Appends finished jobs to `done`, as many as there are and fit, and returns how many.
    /// Never blocks.
    fn poll(&mut self, done: &mut JobBurst) -> usize;

    /// Says that no more jobs come for now: start what waits for company.
    fn flush(&mut self) {}

    /// Whether the engine can still be used.
    fn health(&self) -> Health {
        Health::Up
    }

    /// After loss: makes sure that nothing writes to packets any more and that every job held is
    /// returned by the polls that follow.
    fn quiesce(&mut self) {}
}
