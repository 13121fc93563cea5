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
use crate::{EngineKey, Job, JobBurst, KeyId, Lookaside, Synchronous};
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
    Inline(Inline),
    Synchronous(AtOnce),
    Lookaside(Box<Lane>),
}

/// A synchronous engine with what it has finished.
#[derive(Debug)]
struct AtOnce {
    engine: Box<dyn Synchronous>,
    done: JobBurst,
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
    /// A front end that works at once, on the worker's own core.
    #[must_use]
    pub fn inline() -> Self {
        Self(Engine::Inline(Inline::new()))
    }

    /// A front end with an engine that works at once. What it rejects is given back so.
    #[must_use]
    pub fn at_once(engine: Box<dyn Synchronous>) -> Self {
        Self(Engine::Synchronous(AtOnce { engine, done: JobBurst::new() }))
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
        if let Engine::Lookaside(lane) = &mut self.0 {
            lane.check(one_in);
        }
        self
    }

    /// The same with the worker sharing the work, instead of giving the engine all that it takes. All front ends
    /// of a worker get the same `load`. To be said before the first key is installed.
    #[must_use]
    pub fn sharing(mut self, sharing: Sharing, load: &WorkerLoad) -> Self {
        if let Engine::Lookaside(lane) = &mut self.0 {
            lane.share(sharing, load);
        }
        self
    }

    /// Says that the worker is about to sleep, or to wait for more to come: that time is no work.
    #[inline]
    pub fn rests(&mut self) {
        if let Engine::Lookaside(lane) = &mut self.0 {
            lane.rests();
        }
    }

    /// Makes a key known under `id`, replacing one that was there. Jobs already taken keep the key they
    /// were taken with.
    pub fn install(&mut self, id: KeyId, key: EngineKey) {
        match &mut self.0 {
            Engine::Inline(inline) => inline.install(id, key),
            Engine::Synchronous(at_once) => at_once.engine.install(id, key),
            Engine::Lookaside(lane) => lane.install(id, key),
        }
    }

    /// Forgets the key under `id`, once no job already taken needs it.
    pub fn remove(&mut self, id: KeyId) {
        match &mut self.0 {
            Engine::Inline(inline) => inline.remove(id),
            Engine::Synchronous(at_once) => at_once.engine.remove(id),
            Engine::Lookaside(lane) => lane.remove(id),
        }
    }

    /// Takes jobs and returns how many; those that stay are in the order they had. Never blocks.
    ///
    /// `pool` gives the frames for results; where it is empty, software works.
    #[inline]
    pub fn submit(&mut self, now: u64, pool: &mut Pool, jobs: &mut JobBurst) -> usize {
        match &mut self.0 {
            Engine::Inline(inline) => inline.submit(jobs),
            Engine::Synchronous(AtOnce { engine, done }) => {
                done.take_from(jobs, |run| engine.run(run))
            }
            Engine::Lookaside(lane) => lane.submit(now, pool, jobs),
        }
    }

    /// Appends finished jobs to `done`, as many as there are and fit, and returns how many. Never blocks.
    #[inline]
    pub fn poll(&mut self, now: u64, pool: &mut Pool, done: &mut JobBurst) -> usize {
        match &mut self.0 {
            Engine::Inline(inline) => inline.poll(done),
            Engine::Synchronous(at_once) => done.take_from(&mut at_once.done, |_| {}),
            Engine::Lookaside(lane) => lane.poll(now, pool, done),
        }
    }

    /// Says that no more jobs come for now.
    #[inline]
    pub fn flush(&mut self, now: u64) {
        if let Engine::Lookaside(lane) = &mut self.0 {
            lane.flush(now);
        }
    }

    /// True if polling is of use at once. Otherwise the worker may sleep until the engine wakes it, or until
    /// [`Self::wake_at`].
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Engine::Inline(_) | Engine::Synchronous(_) => true,
            Engine::Lookaside(lane) => lane.is_ready(),
        }
    }

    /// Time at which the worker must poll again though nothing woke it, in nanoseconds; `None` for never.
    #[must_use]
    pub fn wake_at(&self) -> Option<u64> {
        match &self.0 {
            Engine::Inline(_) | Engine::Synchronous(_) => None,
            Engine::Lookaside(lane) => lane.wake_at(),
        }
    }

    /// Numbers of events so far; all zero without an engine that works elsewhere.
    #[must_use]
    pub fn counts(&self) -> Counts {
        match &self.0 {
            Engine::Inline(_) | Engine::Synchronous(_) => Counts::default(),
            Engine::Lookaside(lane) => lane.counts(),
        }
    }

    /// State of the engine; `None` without one that works elsewhere.
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        match &self.0 {
            Engine::Inline(_) | Engine::Synchronous(_) => None,
            Engine::Lookaside(lane) => Some(lane.standing()),
        }
    }

    /// A mark behind the jobs taken so far, for [`Self::has_passed`].
    #[must_use]
    pub fn mark(&self) -> u64 {
        match &self.0 {
            Engine::Inline(_) | Engine::Synchronous(_) => 0,
            Engine::Lookaside(lane) => lane.mark(),
        }
    }

    /// True if all jobs that were taken before a mark have been given out.
    #[inline]
    #[must_use]
    pub fn has_passed(&self, mark: u64) -> bool {
        match &self.0 {
            Engine::Inline(inline) => inline.finished().is_empty(),
            Engine::Synchronous(at_once) => at_once.done.is_empty(),
            Engine::Lookaside(lane) => lane.has_passed(mark),
        }
    }

    /// True if no job under `id` is under way: all that were taken have been given out.
    #[must_use]
    pub fn is_idle(&self, id: KeyId) -> bool {
        let is_of = |job: &Job| job.key == id;
        match &self.0 {
            Engine::Inline(inline) => !inline.finished().as_slice().iter().any(is_of),
            Engine::Synchronous(at_once) => !at_once.done.as_slice().iter().any(is_of),
            Engine::Lookaside(lane) => lane.is_idle(id),
        }
    }

    /// True if an engine that works elsewhere does the jobs of the key under `id`.
    #[must_use]
    pub fn is_offloaded(&self, id: KeyId) -> bool {
        match &self.0 {
            Engine::Inline(_) | Engine::Synchronous(_) => false,
            Engine::Lookaside(lane) => lane.is_offloaded(id),
        }
    }

    /// True if the engine, which works, refused the key under `id`, so that software works for it.
    #[must_use]
    pub fn is_refused(&self, id: KeyId) -> bool {
        match &self.0 {
            Engine::Inline(_) | Engine::Synchronous(_) => false,
            Engine::Lookaside(lane) => lane.standing() == Standing::Up && !lane.is_offloaded(id),
        }
    }

    /// For the end of a worker: drops all jobs, asks the engine to let go, and gives to `pool` what frames
    /// it can. Returns how many requests the engine still holds: with a value above 0, ask again.
    pub fn release(&mut self, now: u64, pool: &mut Pool) -> usize {
        match &mut self.0 {
            Engine::Inline(inline) => free(inline.finished_mut(), pool),
            Engine::Synchronous(at_once) => free(&mut at_once.done, pool),
            Engine::Lookaside(lane) => lane.release(now, pool),
        }
    }
}

fn free(done: &mut JobBurst, pool: &mut Pool) -> usize {
    done.drain().for_each(|job| pool.free(job.frame));
    0
}
