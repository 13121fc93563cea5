//! Threads that do the cryptography of workers, which go on meanwhile, or workers that help each other.
//!
//! A worker lays requests on its [desk](desk), and a thread that has time takes the oldest off it. A thread sleeps
//! when there is nothing on any desk; a worker rings it once it has laid down all it has.

mod desk;
mod engine;

use core::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, Builder, JoinHandle, Thread};

use convoy_engine::lookaside::Lookaside;

use crate::wake::flag::SleepFlag;
use crate::{PinError, Waker, pin_current_thread};
pub(crate) use desk::Helper;
use desk::Office;

/// Requests that may be away for each thread.
const DEPTH: usize = 8;
/// Requests with which one who helps has enough: one that is worked on, and the next.
const ENOUGH: usize = 2;
/// Requests of a worker that other workers have at most: more helpers than it could keep busy have them then.
const AMONG_WORKERS: usize = 8;
/// Looks at empty desks before a thread sleeps.
const LOOKS: u32 = 2000;

/// A pool of threads could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A pool needs at least one thread.
    #[error("a pool needs at least one thread")]
    NoThreads,
    /// The kernel gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A thread could not be bound to its processor.
    #[error(transparent)]
    Pin(#[from] PinError),
}

/// Threads that do cryptography, or workers that help each other with it. Threads end when the pool is not held
/// or an engine of it any more.
pub struct CryptoPool {
    office: Arc<Office>,
    members: Vec<Member>,
    /// Workers that help each other; 0: threads help them.
    workers: usize,
    /// Handles to wake workers that help.
    wakers: Mutex<Vec<Waker>>,
}

impl fmt::Debug for CryptoPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CryptoPool")
            .field("threads", &self.members.len())
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Member {
    bell: Bell,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Handle to wake one who helps.
#[derive(Clone, Debug)]
enum Bell {
    Thread(Arc<SleepFlag>, Thread),
    Worker(Waker),
}

impl Bell {
    /// Wakes who sleeps, and says whether that was so.
    fn ring(&self) -> bool {
        match self {
            Self::Thread(flag, thread) => {
                let sleeps = flag.must_ring();
                if sleeps {
                    thread.unpark();
                }
                sleeps
            }
            Self::Worker(waker) => waker.wake_sleeper(),
        }
    }
}

/// Number of the processor that a thread is bound to; none if it is not bound.
pub type Processor = Option<usize>;

impl CryptoPool {
    /// Starts a thread, named `convoy-c0` and so on, for each entry: bound to that processor, or to none.
    ///
    /// # Errors
    /// [`PoolError`]; no thread is left running.
    pub fn start(processors: &[Processor]) -> Result<Arc<Self>, PoolError> {
        if processors.is_empty() {
            return Err(PoolError::NoThreads);
        }
        let mut pool = Self::without_threads(0);
        let (report, started) = mpsc::channel();
        for (n, processor) in processors.iter().copied().enumerate() {
            let (flag, ending) = (Arc::<SleepFlag>::default(), Arc::<AtomicBool>::default());
            let (mine, over) = (Arc::clone(&flag), Arc::clone(&ending));
            let (helper, report) = (Helper::new(Arc::clone(&pool.office), None), report.clone());
            let body = move || {
                let pinned = processor.map_or(Ok(()), pin_current_thread);
                let runs = pinned.is_ok();
                // The caller has stopped listening only when the start has already failed.
                let _ = report.send(pinned);
                drop(report);
                if runs {
                    serve(helper, &mine, &over);
                }
            };
            let thread = Builder::new().name(format!("convoy-c{n}")).spawn(body);
            let thread = thread.map_err(PoolError::Thread)?;
            let bell = Bell::Thread(flag, thread.thread().clone());
            pool.members.push(Member { bell, ending, thread: Some(thread) });
        }
        drop(report);
        for outcome in started {
            outcome?;
        }
        Ok(Arc::new(pool))
    }

    /// A pool of so many workers, in which each does what lies on the desks of the others when it has nothing else
    /// to do.
    pub(crate) fn of_workers(workers: usize) -> Arc<Self> {
        Arc::new(Self::without_threads(workers))
    }

    fn without_threads(workers: usize) -> Self {
        let office = Arc::new(Office::default());
        Self { office, members: Vec::new(), workers, wakers: Mutex::default() }
    }

    /// Number of its threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.members.len()
    }

    /// Requests that an engine holds at most, in a pool of so many workers.
    pub(crate) fn requests_of(workers: usize) -> usize {
        (workers.saturating_sub(1) * ENOUGH).min(AMONG_WORKERS)
    }

    /// Requests that an engine of this pool holds at most.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.members.len() * DEPTH + Self::requests_of(self.workers)
    }

    /// Requests with which all have enough.
    fn enough(&self) -> usize {
        self.members.len() * ENOUGH + Self::requests_of(self.workers)
    }

    /// An engine for one worker and direction, whose worker is woken when something is finished. All workers
    /// of a pool of workers [join](Self::helper) it before the first one gets an engine.
    #[must_use]
    pub fn engine(self: &Arc<Self>, waker: &Waker) -> Box<dyn Lookaside> {
        Box::new(engine::Pooled::new(self, waker))
    }

    /// Makes the means by which a worker helps others, in a pool of workers.
    pub(crate) fn helper(&self, waker: &Waker) -> Option<Helper> {
        (self.workers > 0).then(|| {
            self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker.clone());
            Helper::new(Arc::clone(&self.office), Some(waker.clone()))
        })
    }

    /// Handles to wake those who may help a worker.
    fn bells(&self, of: &Waker) -> Vec<Bell> {
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        let others = wakers.iter().filter(|waker| !waker.is(of)).cloned();
        self.members
            .iter()
            .map(|member| member.bell.clone())
            .chain(others.map(Bell::Worker))
            .collect()
    }
}

impl Drop for CryptoPool {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.ending.store(true, Ordering::Release);
            if let Some(thread) = member.thread.take() {
                thread.thread().unpark();
                // What it did last has no owner any more.
                let _ = thread.join();
            }
        }
    }
}

/// The body of a thread.
fn serve(mut helper: Helper, flag: &SleepFlag, ending: &AtomicBool) {
    let mut idle = 0;
    while !ending.load(Ordering::Acquire) {
        if helper.help() > 0 {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle < LOOKS {
            core::hint::spin_loop();
            continue;
        }
        idle = 0;
        flag.announce();
        if !helper.has_work() && !ending.load(Ordering::Acquire) {
            // The end comes with a token that is kept, whenever it comes.
            thread::park();
        }
        flag.retract();
    }
}
