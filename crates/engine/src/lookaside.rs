//! The contract of engines that work elsewhere while the worker goes on: on another core, or in a device.
//!
//! Such an engine never owns a job. It gets a [`Request`]: a batch of jobs to read, and for each job an
//! [`Output`] to write. What it leaves undone is done again in software from the same sources, even while
//! the engine may still be reading them. No frame of a request is used again before the engine has given
//! the request back. Engines see no frames, only bytes, and cannot keep a part of a request: both follow
//! from ownership, without a word of unsafe code.

use std::fmt;
use std::sync::Arc;

use crate::inline::run_copies;
pub use crate::inline::run_copy;
pub use crate::output::Output;
use crate::{EngineKey, Job, JobBurst, KeyId, Status};

/// Properties of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Requests that it holds at most between [`Lookaside::submit`] and [`Lookaside::poll`], at least 1.
    pub requests: usize,
    /// Requests with which it has enough to do until the worker comes again; a worker that
    /// [shares the work](crate::front::Sharing) does its own when so many are away.
    pub enough: usize,
    /// Nanoseconds for which a request may be away before the engine counts as lost.
    pub deadline: u64,
}

/// Reason for which an engine does not take a key. The SA's packets are then worked on in software.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyRefused {
    /// All sessions are in use; there may be room when other keys have gone.
    #[error("all sessions of the device are in use")]
    Full,
    /// The engine does not know the algorithm.
    #[error("the device does not know the algorithm")]
    Algorithm,
    /// The device said no, or did not answer.
    #[error("the device failed to set the session up")]
    Failed,
}

/// State of an engine: usable or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works.
    Up,
    /// It is gone; what it held comes back after [`Lookaside::quiesce`].
    Lost,
}

/// Something that seals and opens packets elsewhere.
///
/// One instance belongs to one worker and one direction; there are no locks. Times are nanoseconds of a
/// clock that never goes back.
pub trait Lookaside: Send + fmt::Debug {
    /// Properties of the engine.
    fn caps(&self) -> Caps;

    /// Makes a key known under `id`, replacing one that was there. Requests submitted before keep the keys
    /// they were submitted with.
    ///
    /// # Errors
    /// [`KeyRefused`]; nothing is known under `id` then.
    fn install(&mut self, id: KeyId, key: &EngineKey) -> Result<(), KeyRefused>;

    /// Forgets the key under `id`, once no request submitted before needs it.
    fn remove(&mut self, id: KeyId);

    /// Takes a request. Never blocks.
    ///
    /// # Errors
    /// The request itself when there is no room for it now.
    fn submit(&mut self, now: u64, request: Request) -> Result<(), Request>;

    /// A request that is finished, in any order. Never blocks. Jobs that were not done for whatever reason
    /// are [`Status::Pending`] or [`Status::Rejected`] in their outputs.
    fn poll(&mut self, now: u64) -> Option<Request>;

    /// A request back that the engine has not begun with, and will not; of several the one that came first. What
    /// is in its outputs counts for nothing.
    fn recall(&mut self) -> Option<Request> {
        None
    }

    /// True if [`Self::recall`] would give something.
    fn can_recall(&self) -> bool {
        false
    }

    /// True if [`Self::poll`] would give something. An engine that cannot say so without being polled, or that
    /// does not wake the worker when something is finished, says `true`; the worker does not sleep then
    /// while something is under way.
    fn is_ready(&self) -> bool {
        true
    }

    /// Says that the worker has nothing more for now: start what waits for company.
    fn flush(&mut self, _now: u64) {}

    /// State of the engine: usable or lost.
    fn health(&self) -> Health {
        Health::Up
    }

    /// After loss: asks the engine to let go of everything. Never blocks, and is asked again until it says
    /// `true`. From then on nothing reads sources or writes outputs of requests any more, and all of them
    /// come back by the polls that follow.
    fn quiesce(&mut self, now: u64) -> bool;

    /// After [`Self::quiesce`] has said `true`: begins anew, without keys; `false` while that cannot be.
    fn restart(&mut self, _now: u64) -> bool {
        false
    }
}

/// Jobs that an engine reads. Nobody changes them, or the packets in them, while a request refers to them.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Never used twice by one front end.
    pub(crate) number: u64,
    pub(crate) jobs: JobBurst,
}

/// A batch of jobs on its way to an engine and back.
#[derive(Debug)]
pub struct Request {
    pub(crate) batch: Arc<Batch>,
    /// At least as many as there are jobs.
    pub(crate) outputs: Vec<Output>,
}

impl Request {
    /// The number of this request, which the same front end never uses again.
    #[inline]
    #[must_use]
    pub fn number(&self) -> u64 {
        self.batch.number
    }

    /// The jobs.
    #[inline]
    #[must_use]
    pub fn jobs(&self) -> &[Job] {
        self.batch.jobs.as_slice()
    }

    /// Works on all jobs in software, with the keys that `key_of` finds; what has none is rejected. For engines
    /// that have the work done on other cores.
    pub fn run<'k>(&mut self, key_of: impl Fn(KeyId) -> Option<&'k EngineKey>) {
        let (jobs, outputs) = self.parts();
        run_copies(key_of, jobs, outputs);
    }

    /// Says that no job was done, whatever its output says.
    pub fn undo(&mut self) {
        self.outputs.iter_mut().for_each(|output| output.finish(Status::Pending));
    }

    /// The jobs and as many outputs, in the same order.
    #[inline]
    #[must_use]
    pub fn parts(&mut self) -> (&[Job], &mut [Output]) {
        let jobs = self.batch.jobs.as_slice();
        (jobs, self.outputs.get_mut(..jobs.len()).unwrap_or_default())
    }
}
