//! Worker threads: started together, stopped together.

use core::time::Duration;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use convoy_io::IoError;
use convoy_ipsec::sa::WorkerId;
use convoy_ipsec::snapshot::Published;

use crate::gather::Gather;
use crate::sleep::Bed;
use crate::{
    Events, PinError, Surroundings, Waker, Wiring, Worker, WorkerPorts, WorkerStats, now,
    pin_current_thread,
};

/// Turns without work after which a worker sleeps.
const IDLE_TURNS: u32 = 3;
/// Time for which a worker lets packets gather that come fast and in small bursts.
const PAUSE: Duration = Duration::from_micros(40);
/// Time between two looks whether a worker has brought its counters up to date.
const ANSWER_LOOK: Duration = Duration::from_micros(50);
/// Longest time that a stopping worker goes on receiving what had come before, if it never stops coming.
const LAST_CALL_NS: u64 = 100_000_000;

/// Behaviour of the threads.
#[derive(Clone, Debug, Default)]
pub struct ThreadConfig {
    /// The processor of each worker; workers beyond the list are not bound.
    pub pin: Vec<usize>,
    /// Never sleep.
    pub busy_poll: bool,
}

/// A gateway's workers could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There must be 1 to 65,535 workers.
    #[error("{0} workers asked for, 1 to 65535 are possible")]
    Workers(usize),
    /// The kernel gave no descriptor to wait on.
    #[error("cannot make a descriptor to wait on: {0}")]
    Descriptor(std::io::Error),
    /// The kernel gave no thread.
    #[error("cannot start a worker thread: {0}")]
    Thread(std::io::Error),
    /// A worker could not be bound to its processor.
    #[error("worker {worker}: {source}")]
    Pin {
        /// The worker.
        worker: u16,
        /// Cause.
        source: PinError,
    },
    /// A worker ended before it had begun.
    #[error("worker {0} ended at its start")]
    Gone(u16),
}

/// A worker failed; the gateway cannot go on without it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A port is of no more use.
    #[error("worker {worker}: {source}")]
    Port {
        /// The worker.
        worker: u16,
        /// Error of the port.
        source: IoError,
    },
    /// The worker panicked: a defect.
    #[error("worker {worker} panicked: {message}")]
    Panicked {
        /// The worker.
        worker: u16,
        /// Text of the panic.
        message: String,
    },
}

/// Outcome of the workers' end.
#[derive(Debug, Default)]
#[must_use]
pub struct StopReport {
    /// Packets that had been received and were not given on in time.
    pub lost: usize,
    /// Workers that had failed.
    pub failures: Vec<Failure>,
}

/// State that the workers of one gateway share while they end.
#[derive(Debug, Default)]
struct Ending {
    /// Time by which workers must have ended, in nanoseconds of their clock; 0: not at all.
    until: AtomicU64,
    /// Workers that have nothing more to give to others.
    drained: AtomicUsize,
}

/// Running workers.
#[derive(Debug)]
pub struct Runtime {
    threads: Vec<JoinHandle<Result<usize, Failure>>>,
    wakers: Vec<Waker>,
    stats: Vec<Arc<WorkerStats>>,
    events: Option<Events>,
    wiring: Option<Wiring>,
    ending: Arc<Ending>,
}

impl Runtime {
    /// Starts one thread per entry of `ports`, named `convoy-w0` and so on, and returns when all
    /// of them run.
    ///
    /// `alarm` is called from a worker's thread when it fails; [`Self::stop`] then tells how.
    ///
    /// # Errors
    /// [`StartError`]; workers already started are stopped again.
    pub fn start(
        surroundings: &Surroundings,
        threads: &ThreadConfig,
        ports: Vec<WorkerPorts>,
        published: &Arc<Published>,
        alarm: impl Fn(WorkerId) + Clone + Send + 'static,
    ) -> Result<Self, StartError> {
        let mut workers = Worker::team(surroundings, ports, published)?;
        let mut runtime = Self {
            threads: Vec::with_capacity(workers.len()),
            wakers: workers.iter().map(|worker| worker.waker().clone()).collect(),
            stats: workers.iter().map(|worker| worker.stats().clone()).collect(),
            events: Some(Events::of(&mut workers)?),
            wiring: Some(Wiring::of(&mut workers)),
            ending: Arc::default(),
        };
        let team = workers.len();
        let (report, started) = mpsc::channel();
        let mut outcome = Ok(());
        for worker in workers {
            let place = Place {
                cpu: threads.pin.get(usize::from(worker.id().0)).copied(),
                busy_poll: threads.busy_poll,
                ending: runtime.ending.clone(),
                team,
            };
            let (report, alarm) = (report.clone(), alarm.clone());
            let thread = Builder::new()
                .name(format!("convoy-w{}", worker.id().0))
                .spawn(move || work(worker, &place, &report, alarm));
            match thread {
                Ok(thread) => runtime.threads.push(thread),
                Err(error) => {
                    outcome = Err(StartError::Thread(error));
                    break;
                }
            }
        }
        drop(report);
        for _ in 0..runtime.threads.len() {
            match started.recv() {
                Ok((_, Ok(()))) => {}
                Ok((id, Err(source))) => outcome = Err(StartError::Pin { worker: id.0, source }),
                Err(_) => outcome = outcome.and(Err(StartError::Gone(0))),
            }
        }
        if let Err(error) = outcome {
            let _ = runtime.stop(Duration::ZERO);
            return Err(error);
        }
        Ok(runtime)
    }

    /// Counters that each worker publishes.
    #[must_use]
    pub fn stats(&self) -> &[Arc<WorkerStats>] {
        &self.stats
    }

    /// Brings what the workers publish up to date: what a worker received, sent or dropped before the call is
    /// counted when it returns. It waits for turns under way, for at most `limit`.
    pub fn update_stats(&self, limit: Duration) {
        self.stats_updater()(limit);
    }

    /// Does what [`Self::update_stats`] does, from wherever it is given to.
    pub fn stats_updater(&self) -> impl Fn(Duration) + Send + Sync + 'static {
        let (stats, wake) = (self.stats.clone(), self.waker());
        move |limit| {
            let until = Instant::now() + limit;
            let asked: Vec<_> = stats.iter().map(|stats| stats.ask()).collect();
            wake();
            for (stats, asked) in stats.iter().zip(asked) {
                while !stats.has_answered(asked) && Instant::now() < until {
                    std::thread::sleep(ANSWER_LOOK);
                }
            }
        }
    }

    /// Receiver of what the workers tell control; `None` the second time.
    #[must_use]
    pub fn take_events(&mut self) -> Option<Events> {
        self.events.take()
    }

    /// Adds wire ports to the workers and removes them; `None` the second time.
    #[must_use]
    pub fn take_wiring(&mut self) -> Option<Wiring> {
        self.wiring.take()
    }

    /// Makes sleeping workers look at what was published.
    pub fn wake(&self) {
        self.wakers.iter().for_each(Waker::wake);
    }

    /// Does what [`Self::wake`] does, from wherever it is given to.
    pub fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let wakers = self.wakers.clone();
        move || wakers.iter().for_each(Waker::wake)
    }

    /// Ends all workers: what had arrived when this was called still goes through, for at most
    /// `limit`.
    pub fn stop(mut self, limit: Duration) -> StopReport {
        self.end(limit)
    }

    fn end(&mut self, limit: Duration) -> StopReport {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.ending.until.store(now().0.saturating_add(limit).max(1), Ordering::Release);
        self.wake();
        let mut report = StopReport::default();
        for (thread, worker) in self.threads.drain(..).zip(0..) {
            match thread.join() {
                Ok(Ok(lost)) => report.lost += lost,
                Ok(Err(failure)) => report.failures.push(failure),
                Err(panic) => {
                    let message = panic_text(&*panic);
                    report.failures.push(Failure::Panicked { worker, message });
                }
            }
        }
        report
    }
}

impl Drop for Runtime {
    /// Workers never outlive what they were made for, also when a start failed half-way.
    fn drop(&mut self) {
        let StopReport { .. } = self.end(Duration::ZERO);
    }
}

/// Settings and shared state of a worker's thread.
struct Place {
    cpu: Option<usize>,
    busy_poll: bool,
    ending: Arc<Ending>,
    team: usize,
}

type Started = (WorkerId, Result<(), PinError>);

/// The body of a worker's thread. Returns how many packets were lost at the end.
fn work(
    worker: Worker,
    place: &Place,
    report: &mpsc::Sender<Started>,
    alarm: impl Fn(WorkerId),
) -> Result<usize, Failure> {
    let id = worker.id();
    let pinned = place.cpu.map_or(Ok(()), pin_current_thread);
    let runs = pinned.is_ok();
    // The caller has stopped listening only when the start has already failed.
    let _ = report.send((id, pinned));
    if !runs {
        return Ok(0);
    }
    let stats = Arc::clone(worker.stats());
    let outcome = catch_unwind(AssertUnwindSafe(|| run(worker, place)));
    stats.ends();
    // Whatever happened, the others need not wait for this worker's packets.
    let outcome = match outcome {
        Ok(Ok(lost)) => return Ok(lost),
        Ok(Err(source)) => Failure::Port { worker: id.0, source },
        Err(panic) => Failure::Panicked { worker: id.0, message: panic_text(&*panic) },
    };
    place.ending.drained.fetch_add(1, Ordering::AcqRel);
    alarm(id);
    Err(outcome)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn run(mut worker: Worker, place: &Place) -> Result<usize, IoError> {
    let waker = worker.waker().clone();
    let mut bed = None;
    let mut idle = 0;
    let mut gather = Gather::default();
    // When the last turn began, if it moved packets.
    let mut busy = None;
    while place.ending.until.load(Ordering::Acquire) == 0 {
        let at = now();
        // Of the turn before; no clock is read for it.
        if let Some(begin) = busy.take() {
            worker.stats().busy_ns.add(at.0.saturating_sub(begin));
        }
        let moved = worker.turn(at)?;
        if worker.was_rewired() {
            // Made anew before the next sleep.
            bed = None;
        }
        if !place.busy_poll && gather.pauses(at.0, moved) {
            if moved > 0 {
                worker.stats().busy_ns.add(now().0.saturating_sub(at.0));
            }
            worker.rests();
            std::thread::sleep(PAUSE);
            continue;
        }
        if moved > 0 {
            idle = 0;
            busy = Some(at.0);
            continue;
        }
        idle += 1;
        if place.busy_poll {
            core::hint::spin_loop();
        } else if idle > IDLE_TURNS && worker.may_sleep() {
            idle = 0;
            let bed = match &bed {
                Some(bed) => bed,
                None => bed.insert(
                    Bed::new(&waker, worker.sources()).map_err(|e| IoError::Dead(e.into()))?,
                ),
            };
            worker.rests();
            sleep(&mut worker, &waker, bed, &place.ending);
        }
    }
    drain(worker, place)
}

/// Sleeps unless work came at the last moment; see [`crate::wake`] for why none is missed.
fn sleep(worker: &mut Worker, waker: &Waker, bed: &Bed, ending: &Ending) {
    worker.publish();
    waker.announce();
    if worker.may_sleep() && ending.until.load(Ordering::Acquire) == 0 {
        worker.stats().sleeps.add(1);
        let limit = worker.wake_at().map_or(u64::MAX, |at| at.saturating_sub(now().0));
        // What an engine still works on has met the snapshot of before.
        let rests = worker.pending() == 0;
        if rests {
            worker.stats().rests(worker.waits_for_sas());
        }
        bed.sleep(waker, Duration::from_nanos(limit), |port| worker.signalled(port));
        if rests {
            worker.stats().rest().rise();
            worker.rises();
        }
    }
    waker.awake();
}

/// Brings to an end what is under way: what had already arrived is still received, then nothing
/// more; the worker ends when no worker has anything for it. Returns how many packets were lost.
fn drain(mut worker: Worker, place: &Place) -> Result<usize, IoError> {
    let until = place.ending.until.load(Ordering::Acquire);
    let last_call = until.min(now().0.saturating_add(LAST_CALL_NS));
    while worker.turn(now())? > 0 && now().0 < last_call {}
    worker.stop_receiving();
    let mut told = false;
    loop {
        worker.turn(now())?;
        if worker.is_drained() && !told {
            // Release: what this worker pushed is seen by a thread that sees the count.
            place.ending.drained.fetch_add(1, Ordering::AcqRel);
            told = true;
        }
        let all = place.ending.drained.load(Ordering::Acquire) >= place.team;
        // Looked at after the count: what others pushed before they were counted is seen now.
        if (told && all && worker.is_drained()) || now().0 >= until {
            return Ok(worker.pending());
        }
        std::thread::yield_now();
    }
}
