//! Workers, as those see them who publish snapshots: waited for, and woken.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use convoy_runtime::WorkerStats;

/// Longest time until workers see a new snapshot; a burst takes microseconds.
const LIMIT: Duration = Duration::from_secs(2);
/// Time of looks without a pause: a worker that sleeps is awake by then.
const SOON: Duration = Duration::from_micros(100);
/// Pause between two looks afterwards.
const LOOK: Duration = Duration::from_micros(20);
/// Longest time for which a worker that rests is not woken after a change that nothing in it waits for. To wake one for
/// each of a thousand changes takes as long as to make them.
const LATER: Duration = Duration::from_millis(2);

/// The workers of a gateway. Clones are of the same ones.
#[derive(Clone)]
pub struct WorkerWait(Arc<Inner>);

struct Inner {
    stats: Vec<Arc<WorkerStats>>,
    wake: Box<dyn Fn() + Send + Sync>,
    /// Time at which they are to be woken at last, if they are.
    due: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for WorkerWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerWait").field("due", &self.0.due).finish_non_exhaustive()
    }
}

impl WorkerWait {
    pub(super) fn new(
        stats: Vec<Arc<WorkerStats>>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner { stats, wake: Box::new(wake), due: Mutex::new(None) }))
    }

    /// Waits until every worker sees the snapshot of this generation or a later one, and nothing that met
    /// an older one is under way. Says whether that came to pass in time.
    pub fn wait(&self, generation: u64) -> bool {
        // Those that rest count before they are woken. They are woken all the same: packets that wait for the change
        // go out at once, and what is not used any more is freed.
        let is_done = self.have_seen(generation);
        self.wake();
        is_done || self.watch(generation)
    }

    /// The same. Where every worker rests and none has packets that wait for a change, they are woken
    /// [later](Self::wake_late).
    pub fn wait_and_wake_late(&self, generation: u64) -> bool {
        if !self.0.stats.iter().all(|stats| stats.can_see_later()) {
            return self.wait(generation);
        }
        self.due().get_or_insert_with(|| Instant::now() + LATER);
        true
    }

    /// Time at which [`Self::wake_late`] is to be called at last, if it is.
    pub fn wake_late_at(&self) -> Option<Instant> {
        *self.due()
    }

    /// Wakes workers that were left to rest.
    pub fn wake_late(&self) {
        if self.due().is_some() {
            self.wake();
        }
    }

    fn wake(&self) {
        *self.due() = None;
        (self.0.wake)();
    }

    fn have_seen(&self, generation: u64) -> bool {
        self.0.stats.iter().all(|stats| stats.has_seen(generation))
    }

    fn watch(&self, generation: u64) -> bool {
        let begin = Instant::now();
        while !self.have_seen(generation) {
            if begin.elapsed() > LIMIT {
                return false;
            }
            if begin.elapsed() < SOON {
                std::thread::yield_now();
            } else {
                std::thread::sleep(LOOK);
            }
        }
        true
    }

    fn due(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
