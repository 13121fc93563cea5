//! The thread that keeps ceilings ahead of use.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::numbers::{Admission, Kept, Numbers, Past};

/// Time between two looks at all SAs.
const TICK: Duration = Duration::from_millis(5);
/// The longest, when there are many.
const LONGEST_TICK: Duration = Duration::from_millis(100);
/// At most one part in so many of the thread's time is work.
const SHARE: u32 = 20;
/// Time between two looks at what only people ask for.
const ALL: Duration = Duration::from_secs(1);

/// The numbers of all SAs, kept by a thread. Dropping the last one ends it, and leaves what is kept as
/// after a crash; [`Keeper::finish`] is the orderly end.
#[derive(Clone, Debug)]
pub(in crate::xfrm) struct Keeper(Arc<Owner>);

#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    stop: Condvar,
}

#[derive(Debug)]
struct State {
    numbers: Numbers,
    is_stopping: bool,
    /// Error of the last look, if it could not be written.
    failure: Option<String>,
}

impl Keeper {
    pub(super) fn start(numbers: Numbers) -> io::Result<Self> {
        let state = Mutex::new(State { numbers, is_stopping: false, failure: None });
        let shared = Arc::new(Shared { state, stop: Condvar::new() });
        let theirs = shared.clone();
        let run = move || theirs.run();
        let thread = std::thread::Builder::new().name("keep".into()).spawn(run)?;
        Ok(Self(Arc::new(Owner { shared, thread: Mutex::new(Some(thread)) })))
    }

    /// Keeps the numbers of an SA from now on; see [`Numbers::admit`].
    ///
    /// # Errors
    /// Fails if they cannot be written; then none was granted.
    pub(in crate::xfrm) fn admit(
        &self,
        admission: Admission,
        place: Option<&Past>,
    ) -> io::Result<Kept> {
        self.0.shared.lock().numbers.admit(admission, place)
    }

    /// An SA went.
    pub(in crate::xfrm) fn retire(&self, kept: Kept) {
        if let Err(error) = self.0.shared.lock().numbers.retire(kept) {
            // What was written last bounds its numbers as well.
            tracing::error!(
                "cannot write the last sequence numbers of a removed SA to the state folder of [xfrm]: {error}"
            );
        }
    }

    pub(in crate::xfrm) fn bury_others(&self) {
        self.0.shared.lock().numbers.bury_others();
    }

    /// Reason that numbers cannot be written at present, if there is one.
    pub(in crate::xfrm) fn failure(&self) -> Option<String> {
        self.0.shared.lock().failure.clone()
    }

    /// The orderly end, when no worker runs any more.
    pub(super) fn finish(&self) -> io::Result<()> {
        self.0.join();
        self.0.shared.lock().numbers.finish()
    }

    pub(super) fn destroy(&self) -> io::Result<()> {
        self.0.shared.lock().numbers.destroy()
    }
}

impl Owner {
    fn join(&self) {
        self.shared.lock().is_stopping = true;
        self.shared.stop.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread was reported by itself; nothing is granted without it.
            let _ = thread.join();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.join();
    }
}

impl Shared {
    /// A poisoned lock is taken over: nothing is granted before it is written.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let (mut pause, mut last_all) = (TICK, Instant::now());
        let mut state = self.lock();
        loop {
            state = self.stop.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
            if state.is_stopping {
                return;
            }
            let began = Instant::now();
            let all = began.duration_since(last_all) >= ALL;
            if all {
                last_all = began;
            }
            let outcome = state.numbers.tick(all);
            pause = began.elapsed().saturating_mul(SHARE).clamp(TICK, LONGEST_TICK);
            let failure = outcome.err().map(|error| convoy_host::describe_io(&error));
            match (&state.failure, &failure) {
                (None, Some(error)) => tracing::error!(
                    "cannot write the sequence numbers of SAs to the state folder of [xfrm], and packets are \
                     dropped once the leased numbers are used up: {error}"
                ),
                (Some(_), None) => tracing::info!(
                    "sequence numbers of SAs are written to the state folder of [xfrm] again"
                ),
                _ => {}
            }
            state.failure = failure;
        }
    }
}
