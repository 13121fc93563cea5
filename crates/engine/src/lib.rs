//! The crypto engine contract: submit a burst of jobs, poll a burst of results.
//!
//! A pipeline hands [`Job`]s to a [`Front`] and later takes them back finished. It never asks whether the
//! engine behind it works at once or somewhere else: a synchronous engine finishes in `submit` and gives
//! the jobs back at the next `poll`. A job owns its packet and carries what is needed to go on with it, so
//! nothing is looked up when it returns.
//!
//! Engines follow one of two contracts: [`Synchronous`] works on the core that asks, [`Lookaside`] on
//! another one or in a device, and may finish jobs in any order. The front end alone restores order.
//!
//! Keys reach an engine under a [`KeyId`] before the first job that names them. What engines there are, by
//! name and priority, is in [`registry`].
#![forbid(unsafe_code)]

// The example's driver, which its test takes in, calls the crate by its name.
#[cfg(test)]
extern crate self as convoy_engine;

#[cfg(test)]
mod aws_lc;
pub mod front;
mod inline;
mod job;
mod key_table;
pub mod lookaside;
pub mod model;
mod output;
pub mod registry;
mod shared_keys;
mod synchronous;

use std::fmt;
use std::sync::Arc;

use convoy_crypto::{OpenKey, SealKey};

pub use front::Front;
pub use job::{AAD_MAX, Context, Job, JobBurst, Op, Span, Status};
pub use key_table::KeyTable;
pub use lookaside::Lookaside;
pub use shared_keys::SharedKeys;
pub use synchronous::Synchronous;

/// Number under which a key is installed in an engine.
///
/// Engines index tables by it, so numbers are small and used again after [`Front::remove`].
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
