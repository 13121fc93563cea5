//! Desks where a worker lays work down for others, and takes it back done.
//!
//! A worker has a desk for each direction. Whoever helps takes the oldest request off it, does it, and lays
//! it on the other side of the desk; the worker itself can take back what nobody has begun with. Requests
//! carry the keys that they were made for.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use convoy_engine::SharedKeys;
use convoy_engine::lookaside::Request;
use crossbeam_queue::ArrayQueue;

use crate::Waker;

/// A request with the keys that were known when it was made.
pub(super) struct Work {
    pub(super) request: Request,
    pub(super) keys: SharedKeys,
}

/// The desk of one worker and direction.
pub(super) struct Desk {
    todo: ArrayQueue<Work>,
    done: ArrayQueue<Request>,
    /// Wakes the worker.
    waker: Waker,
}

impl Desk {
    /// A desk for at most so many requests, done ones included.
    pub(super) fn new(requests: usize, waker: Waker) -> Self {
        Self { todo: ArrayQueue::new(requests), done: ArrayQueue::new(requests), waker }
    }

    /// Worker: lays a request down. It comes back when there is no room.
    pub(super) fn lay(&self, work: Work) -> Result<(), Request> {
        self.todo.push(work).map_err(|work| work.request)
    }

    /// Worker: takes the oldest request back that nobody has begun with.
    pub(super) fn take_back(&self) -> Option<Request> {
        self.todo.pop().map(|work| work.request)
    }

    /// True if somebody could take a request.
    pub(super) fn has_work(&self) -> bool {
        !self.todo.is_empty()
    }

    /// Worker: a request that was done.
    pub(super) fn take_done(&self) -> Option<Request> {
        self.done.pop()
    }

    /// Number of requests that are done and were not taken.
    pub(super) fn finished(&self) -> usize {
        self.done.len()
    }
}

/// All desks of a pool, and those who help at them.
#[derive(Default)]
pub(super) struct Office {
    desks: Mutex<Vec<Arc<Desk>>>,
    /// Changes whenever desks come or go.
    version: AtomicU64,
    /// The cryptography panicked on somebody's thread: nothing more is laid down.
    is_broken: AtomicBool,
}

impl fmt::Debug for Office {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Office").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Office {
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Desk>>)) {
        change(&mut self.desks.lock().unwrap_or_else(PoisonError::into_inner));
        self.version.fetch_add(1, Ordering::Release);
    }

    pub(super) fn open(&self, desk: &Arc<Desk>) {
        self.change(|desks| desks.push(Arc::clone(desk)));
    }

    pub(super) fn close(&self, desk: &Arc<Desk>) {
        self.change(|desks| desks.retain(|other| !Arc::ptr_eq(other, desk)));
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }
}

/// Somebody who does what lies on the desks of others.
#[derive(Debug)]
pub(crate) struct Helper {
    office: Arc<Office>,
    /// The desks of the office at this version, without its own.
    desks: Vec<Arc<Desk>>,
    version: u64,
    /// Desk to look at first, so that nobody is served before others all the time.
    next: usize,
    /// Its own desks are those of this worker.
    own: Option<Waker>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("todo", &self.todo.len()).finish_non_exhaustive()
    }
}

impl Helper {
    pub(super) fn new(office: Arc<Office>, own: Option<Waker>) -> Self {
        let version = u64::MAX;
        Self { office, desks: Vec::new(), version, next: 0, own }
    }

    /// Does one request, if there is any; returns how many packets that were.
    pub(crate) fn help(&mut self) -> usize {
        self.look_around();
        let n = self.desks.len();
        for _ in 0..n {
            self.next = (self.next + 1) % n;
            let Some(desk) = self.desks.get(self.next) else { continue };
            if let Some(work) = desk.todo.pop() {
                return self.work(desk, work);
            }
        }
        0
    }

    fn work(&self, desk: &Desk, Work { mut request, keys }: Work) -> usize {
        let packets = request.jobs().len();
        let run = AssertUnwindSafe(|| request.run(|id| keys.get(id)));
        if catch_unwind(run).is_err() {
            // What it was doing goes back undone, with its packets.
            request.undo();
            self.office.is_broken.store(true, Ordering::Relaxed);
        }
        // Before the worker can take the request: where it takes keys away, they are gone at once.
        drop(keys);
        // There is room: the worker counts what is away.
        drop(desk.done.push(request));
        desk.waker.wake();
        packets
    }

    /// True if there is something to do.
    pub(crate) fn has_work(&mut self) -> bool {
        self.look_around();
        self.sees_work()
    }

    /// The same at the desks that it knows.
    pub(crate) fn sees_work(&self) -> bool {
        self.desks.iter().any(|desk| desk.has_work())
    }

    fn look_around(&mut self) {
        let version = self.office.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            let desks = self.office.desks.lock().unwrap_or_else(PoisonError::into_inner);
            let is_own = |desk: &Desk| self.own.as_ref().is_some_and(|own| own.is(&desk.waker));
            self.desks.clear();
            self.desks.extend(desks.iter().filter(|desk| !is_own(desk)).cloned());
        }
    }
}
