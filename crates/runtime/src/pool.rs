//! Threads that do the cryptography of workers, which go on meanwhile.
//!
//! Requests travel whole, by a ring to each thread and one back, for each worker and direction. Keys
//! travel by the same rings, so their order with requests is kept. A thread sleeps when it has nothing to
//! do; the worker rings it once it has given all it has.

use core::fmt;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, Builder, JoinHandle, Thread};

use convoy_engine::lookaside::{Caps, Health, KeyRefused, Lookaside, Request};
use convoy_engine::{EngineKey, KeyId, KeyTable};
use rtrb::{Consumer, Producer, PushError, RingBuffer};

use crate::wake::flag::SleepFlag;
use crate::{PinError, Waker, pin_current_thread};

/// Requests that a thread holds for one worker and direction.
const DEPTH: usize = 8;
/// What a ring to a thread takes: requests, and keys beside them.
const DOWN: usize = 64;
/// How long a request may be away before the threads count as lost, in nanoseconds. A busy host stops
/// threads for longer than any device works.
const DEADLINE: u64 = 100_000_000;
/// Looks at empty rings before a thread sleeps.
const LOOKS: u32 = 2000;

/// Why a pool of threads could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A pool needs at least one thread.
    #[error("a pool without threads can do nothing")]
    NoThreads,
    /// The kernel gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A thread could not be bound to its processor.
    #[error(transparent)]
    Pin(#[from] PinError),
}

/// Threads that do cryptography. They end when nobody holds the pool or an engine of it any more.
pub struct CryptoPool {
    members: Vec<Member>,
}

impl fmt::Debug for CryptoPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CryptoPool").field("threads", &self.members.len()).finish()
    }
}

#[derive(Debug)]
struct Member {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What a thread and those who give it work have in common.
#[derive(Debug, Default)]
struct Shared {
    flag: SleepFlag,
    ending: AtomicBool,
    has_new: AtomicBool,
    new: Mutex<Vec<Port>>,
}

/// Whether a thread is bound to a processor.
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
        let mut pool = Self { members: Vec::with_capacity(processors.len()) };
        let (report, started) = mpsc::channel();
        for (n, processor) in processors.iter().copied().enumerate() {
            let shared = Arc::<Shared>::default();
            let (mine, report) = (Arc::clone(&shared), report.clone());
            let body = move || {
                let pinned = processor.map_or(Ok(()), pin_current_thread);
                let runs = pinned.is_ok();
                // Nobody listens any more only when the start has already failed.
                let _ = report.send(pinned);
                drop(report);
                if runs {
                    serve(&mine);
                }
            };
            let thread = Builder::new().name(format!("convoy-c{n}")).spawn(body);
            let thread = Some(thread.map_err(PoolError::Thread)?);
            pool.members.push(Member { shared, thread });
        }
        drop(report);
        for outcome in started {
            outcome?;
        }
        Ok(Arc::new(pool))
    }

    /// How many threads there are.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.members.len()
    }

    /// Requests that an engine of this pool holds at most.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.members.len() * DEPTH
    }

    /// An engine for one worker and direction, whose worker is woken when something is finished.
    #[must_use]
    pub fn engine(self: &Arc<Self>, waker: &Waker) -> Box<dyn Lookaside> {
        let lines = self.members.iter().filter_map(|member| member.line(waker)).collect();
        Box::new(Pooled { pool: Arc::clone(self), lines, turn: 0 })
    }
}

impl Drop for CryptoPool {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.shared.ending.store(true, Ordering::Release);
            if let Some(thread) = member.thread.take() {
                thread.thread().unpark();
                // What it did last is nobody's any more.
                let _ = thread.join();
            }
        }
    }
}

impl Member {
    fn line(&self, waker: &Waker) -> Option<Line> {
        let thread = self.thread.as_ref()?.thread().clone();
        let (down, orders) = RingBuffer::new(DOWN);
        let (results, up) = RingBuffer::new(DEPTH);
        let port = Port { orders, results, keys: KeyTable::new(), waker: waker.clone() };
        self.shared.new.lock().unwrap_or_else(PoisonError::into_inner).push(port);
        self.shared.has_new.store(true, Ordering::Release);
        thread.unpark();
        let shared = Arc::clone(&self.shared);
        Some(Line { down, up, backlog: VecDeque::new(), shared, thread, away: 0, is_rung: true })
    }
}

/// What a worker tells a thread.
enum Order {
    Work(Request),
    Install(KeyId, EngineKey),
    Remove(KeyId),
}

/// A worker's end of the rings to and from one thread.
struct Line {
    down: Producer<Order>,
    up: Consumer<Request>,
    /// Keys for which the ring had no room; they go before the next request.
    backlog: VecDeque<Order>,
    shared: Arc<Shared>,
    thread: Thread,
    away: usize,
    /// Whether the thread knows of everything in its ring.
    is_rung: bool,
}

impl Line {
    fn tell(&mut self, order: Order) {
        self.backlog.push_back(order);
        self.send_backlog();
    }

    /// Whether all that was to be told is in the ring.
    fn send_backlog(&mut self) -> bool {
        while let Some(order) = self.backlog.pop_front() {
            if let Err(PushError::Full(order)) = self.down.push(order) {
                self.backlog.push_front(order);
                return false;
            }
            self.is_rung = false;
        }
        true
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        if self.away >= DEPTH || !self.send_backlog() {
            return Err(request);
        }
        // No other order comes back.
        if let Err(PushError::Full(Order::Work(request))) = self.down.push(Order::Work(request)) {
            return Err(request);
        }
        self.away += 1;
        self.is_rung = false;
        Ok(())
    }

    fn ring(&mut self) {
        self.send_backlog();
        if !self.is_rung {
            self.is_rung = true;
            if self.shared.flag.must_ring() {
                self.thread.unpark();
            }
        }
    }

    /// Whether the thread has ended, with whatever it had.
    fn is_dead(&self) -> bool {
        self.down.is_abandoned()
    }
}

/// The engine of one worker and direction.
struct Pooled {
    /// Its threads run as long as there is an engine.
    pool: Arc<CryptoPool>,
    lines: Vec<Line>,
    turn: usize,
}

impl fmt::Debug for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let away: usize = self.lines.iter().map(|line| line.away).sum();
        f.debug_struct("Pooled").field("pool", &self.pool).field("away", &away).finish()
    }
}

impl Lookaside for Pooled {
    fn caps(&self) -> Caps {
        Caps { requests: self.lines.len() * DEPTH, deadline: DEADLINE }
    }

    fn install(&mut self, id: KeyId, key: &EngineKey) -> Result<(), KeyRefused> {
        self.lines.iter_mut().for_each(|line| line.tell(Order::Install(id, key.clone())));
        Ok(())
    }

    fn remove(&mut self, id: KeyId) {
        self.lines.iter_mut().for_each(|line| line.tell(Order::Remove(id)));
    }

    fn submit(&mut self, _now: u64, mut request: Request) -> Result<(), Request> {
        let n = self.lines.len();
        for _ in 0..n {
            self.turn = (self.turn + 1) % n;
            let Some(line) = self.lines.get_mut(self.turn) else { continue };
            match line.submit(request) {
                Ok(()) => return Ok(()),
                Err(refused) => request = refused,
            }
        }
        Err(request)
    }

    fn poll(&mut self, _now: u64) -> Option<Request> {
        self.lines.iter_mut().find_map(|line| {
            let request = line.up.pop().ok()?;
            line.away -= 1;
            Some(request)
        })
    }

    fn is_ready(&self) -> bool {
        self.lines.iter().any(|line| !line.up.is_empty() || line.is_dead())
    }

    fn flush(&mut self, _now: u64) {
        self.lines.iter_mut().for_each(Line::ring);
    }

    fn health(&self) -> Health {
        if self.lines.iter().any(Line::is_dead) { Health::Lost } else { Health::Up }
    }

    /// A thread never stops half-way: it is waited for, a look at a time, while software goes on.
    fn quiesce(&mut self, _now: u64) -> bool {
        self.lines.iter_mut().for_each(Line::ring);
        self.lines.iter().all(|line| line.is_dead() || line.away == line.up.slots())
    }

    fn restart(&mut self, _now: u64) -> bool {
        self.lines.iter_mut().all(|line| !line.is_dead() && line.away == 0 && line.send_backlog())
    }
}

/// A thread's end of the rings of one worker and direction.
#[derive(Debug)]
struct Port {
    orders: Consumer<Order>,
    results: Producer<Request>,
    keys: KeyTable<EngineKey>,
    waker: Waker,
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Work(_) => "Work(..)",
            Self::Install(..) => "Install(..)",
            Self::Remove(_) => "Remove(..)",
        })
    }
}

impl Port {
    /// Follows one order; `false` if there is none.
    fn turn(&mut self) -> bool {
        let Ok(order) = self.orders.pop() else { return false };
        match order {
            Order::Work(mut request) => {
                let keys = &self.keys;
                request.run(|id| keys.get(id));
                // There is room: the worker counts what is away. Without a worker nobody wants it.
                drop(self.results.push(request));
                self.waker.wake();
            }
            Order::Install(id, key) => self.keys.put(id, Some(key)),
            Order::Remove(id) => drop(self.keys.remove(id)),
        }
        true
    }

    fn is_over(&self) -> bool {
        self.orders.is_abandoned() && self.orders.is_empty()
    }
}

/// The body of a thread.
fn serve(shared: &Shared) {
    let mut ports: Vec<Port> = Vec::new();
    let mut idle = 0;
    while !shared.ending.load(Ordering::Acquire) {
        if shared.has_new.swap(false, Ordering::AcqRel) {
            ports.append(&mut shared.new.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let worked = ports.iter_mut().fold(false, |worked, port| port.turn() | worked);
        if worked {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle < LOOKS {
            core::hint::spin_loop();
            continue;
        }
        idle = 0;
        ports.retain(|port| !port.is_over());
        shared.flag.announce();
        let is_idle = ports.iter().all(|port| port.orders.is_empty())
            && !shared.has_new.load(Ordering::Acquire)
            && !shared.ending.load(Ordering::Acquire);
        if is_idle {
            // New ports and the end come with a token that is kept, whenever they come.
            thread::park();
        }
        shared.flag.retract();
    }
}
