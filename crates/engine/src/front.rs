//! Interface of engines to pipelines: jobs in, finished jobs out, in order within an SA.

mod checks;
mod keys;
mod lane;
mod share;
#[cfg(test)]
mod tests;
mod window;

use convoy_packet::Pool;

use crate::inline::Inline;
use crate::{EngineKey, JobBurst, KeyId, Lookaside, Synchronous};
use lane::Lane;
pub use share::{Sharing, WorkerLoad, cycles_in};

/// Takes jobs and gives them back finished: on the worker's own core, or by an engine that works elsewhere.
///
/// Jobs come back once each, and in order within a key. A job that the engine refuses, or that is still
/// with it when it is lost, is done in software from its untouched source, with the same nonce and hence
/// the same result. A lost engine is asked to let go of what it holds, and is tried again later, each time
/// after twice the pause. Times are nanoseconds of a clock that never goes back.
#[derive(Debug)]
pub struct Front(Engine);

/// The engine behind a front end.
#[derive(Debug)]
enum Engine {
    Synchronous {
        engine: Box<dyn Synchronous>,
        /// Finished jobs, which were not polled yet.
        done: JobBurst,
    },
    Lookaside(Box<Lane>),
}

/// Numbers of events since the front end was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that the engine took.
    pub requests: u64,
    /// Jobs in them.
    pub jobs: u64,
    /// Jobs that software did because their key was refused, no frame was free or the engine was down.
    pub in_software: u64,
    /// Jobs that a worker which shares the work did itself.
    pub here: u64,
    /// Jobs that went to the engine because they were beyond the worker's budget.
    pub deferred: u64,
    /// Jobs that a worker with nothing else to do took back from the engine and did itself.
    pub recalled: u64,
    /// Jobs that such a worker did again because others waited for them and the engine had not finished.
    pub overtaken: u64,
    /// Jobs that the engine gave back undone, and software did.
    pub refused: u64,
    /// Jobs that software did because the engine was lost.
    pub redone: u64,
    /// Times that the engine was lost.
    pub losses: u64,
    /// Times that it began anew.
    pub restarts: u64,
    /// Keys that the engine refused.
    pub keys_refused: u64,
    /// Results of the engine that software computed again, to see whether they are right.
    pub checked: u64,
    /// Of these, those that were wrong; each cost the engine its place.
    pub wrong: u64,
    /// Requests that came back after their jobs were done in software.
    pub late: u64,
}

/// State of an engine that works elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It works.
    Up,
    /// It is lost, and has not let go of what it holds.
    Stopping,
    /// It has let go of everything and is to be tried again.
    Down,
}

impl Front {
    /// A front end with Convoy's own kernels, on the worker's core.
    #[must_use]
    pub fn inline() -> Self {
        Self::synchronous(Box::new(Inline::new()))
    }

    /// A front end with an engine that works at once. What it rejects is given back so.
    #[must_use]
    pub fn synchronous(engine: Box<dyn Synchronous>) -> Self {
        Self(Engine::Synchronous { engine, done: JobBurst::new() })
    }

    /// A front end with an engine, which must be new, and software for what the engine leaves undone.
    #[must_use]
    pub fn with(engine: Box<dyn Lookaside>) -> Self {
        Self(Engine::Lookaside(Box::new(Lane::new(engine))))
    }

    /// The same with results checked: one of about `one_in` is computed again in software, 0 for none, and so
    /// are the first ones after the engine was lost. An engine with a wrong result is lost, and the jobs
    /// that came back with it, and later, are done in software.
    #[must_use]
    pub fn checking(mut self, one_in: u32) -> Self {
        if let Some(lane) = self.lane_mut() {
            lane.check(one_in);
        }
        self
    }

    /// The same with the worker sharing the work, instead of giving the engine all that it takes. All front ends
    /// of a worker get the same `load`. To be said before the first key is installed.
    #[must_use]
    pub fn sharing(mut self, sharing: Sharing, load: &WorkerLoad) -> Self {
        if let Some(lane) = self.lane_mut() {
            lane.share(sharing, load);
        }
        self
    }

    /// Says that the worker is about to sleep, or to wait for more to come: that time is no work.
    #[inline]
    pub fn rests(&mut self) {
        if let Some(lane) = self.lane_mut() {
            lane.rests();
        }
    }

    /// Makes a key known under `id`, replacing one that was there. Jobs already taken keep the key they
    /// were taken with.
    pub fn install(&mut self, id: KeyId, key: EngineKey) {
        match &mut self.0 {
            Engine::Synchronous { engine, .. } => engine.install(id, key),
            Engine::Lookaside(lane) => lane.install(id, key),
        }
    }

    /// Forgets the key under `id`, once no job already taken needs it.
    pub fn remove(&mut self, id: KeyId) {
        match &mut self.0 {
            Engine::Synchronous { engine, .. } => engine.remove(id),
            Engine::Lookaside(lane) => lane.remove(id),
        }
    }

    /// Takes jobs and returns how many; those that stay are in the order they had. Never blocks.
    ///
    /// `pool` gives the frames for results; where it is empty, software works.
    #[inline]
    pub fn submit(&mut self, now: u64, pool: &mut Pool, jobs: &mut JobBurst) -> usize {
        match &mut self.0 {
            Engine::Synchronous { engine, done } => done.take_from(jobs, |run| engine.run(run)),
            Engine::Lookaside(lane) => lane.submit(now, pool, jobs),
        }
    }

    /// Appends finished jobs to `done`, as many as there are and fit, and returns how many. Never blocks.
    #[inline]
    pub fn poll(&mut self, now: u64, pool: &mut Pool, done: &mut JobBurst) -> usize {
        match &mut self.0 {
            Engine::Synchronous { done: finished, .. } => done.take_from(finished, |_| {}),
            Engine::Lookaside(lane) => lane.poll(now, pool, done),
        }
    }

    /// Says that no more jobs come for now.
    #[inline]
    pub fn flush(&mut self, now: u64) {
        if let Some(lane) = self.lane_mut() {
            lane.flush(now);
        }
    }

    /// True if polling is of use at once. Otherwise the worker may sleep until the engine wakes it, or until
    /// [`Self::wake_at`].
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.lane().is_none_or(Lane::is_ready)
    }

    /// Time at which the worker must poll again though nothing woke it, in nanoseconds; `None` for never.
    #[must_use]
    pub fn wake_at(&self) -> Option<u64> {
        self.lane().and_then(Lane::wake_at)
    }

    /// Numbers of events so far; all zero without an engine that works elsewhere.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lane().map_or_else(Counts::default, Lane::counts)
    }

    /// State of the engine; `None` without one that works elsewhere.
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        self.lane().map(Lane::standing)
    }

    /// A mark behind the jobs taken so far, for [`Self::has_passed`].
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.lane().map_or(0, Lane::mark)
    }

    /// True if all jobs that were taken before a mark have been given out.
    #[inline]
    #[must_use]
    pub fn has_passed(&self, mark: u64) -> bool {
        match &self.0 {
            Engine::Synchronous { done, .. } => done.is_empty(),
            Engine::Lookaside(lane) => lane.has_passed(mark),
        }
    }

    /// True if no job under `id` is under way: all that were taken have been given out.
    #[must_use]
    pub fn is_idle(&self, id: KeyId) -> bool {
        match &self.0 {
            Engine::Synchronous { done, .. } => !done.as_slice().iter().any(|job| job.key == id),
            Engine::Lookaside(lane) => lane.is_idle(id),
        }
    }

    /// True if an engine that works elsewhere does the jobs of the key under `id`.
    #[must_use]
    pub fn is_offloaded(&self, id: KeyId) -> bool {
        self.lane().is_some_and(|lane| lane.is_offloaded(id))
    }

    /// True if the engine, which works, refused the key under `id`, so that software works for it.
    #[must_use]
    pub fn is_refused(&self, id: KeyId) -> bool {
        self.lane().is_some_and(|lane| lane.standing() == Standing::Up && !lane.is_offloaded(id))
    }

    /// For the end of a worker: drops all jobs, asks the engine to let go, and gives to `pool` what frames
    /// it can. Returns how many requests the engine still holds: with a value above 0, ask again.
    pub fn release(&mut self, now: u64, pool: &mut Pool) -> usize {
        match &mut self.0 {
            Engine::Synchronous { done, .. } => {
                done.drain().for_each(|job| pool.free(job.frame));
                0
            }
            Engine::Lookaside(lane) => lane.release(now, pool),
        }
    }

    /// The lane to an engine that works elsewhere.
    fn lane(&self) -> Option<&Lane> {
        match &self.0 {
            Engine::Synchronous { .. } => None,
            Engine::Lookaside(lane) => Some(lane),
        }
    }

    fn lane_mut(&mut self) -> Option<&mut Lane> {
        match &mut self.0 {
            Engine::Synchronous { .. } => None,
            Engine::Lookaside(lane) => Some(lane),
        }
    }
}
