//! Traffic that counts itself: echo requests, TCP streams, paced datagrams.
//!
//! Sockets are opened inside the namespaces and used from threads of the caller, so one process
//! sees both ends and every count is exact. All of it is bounded in time and ends early when the
//! caller's flag is set.

pub(crate) mod counters;
mod pattern;
mod ping;
mod tcp;
mod udp;

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

pub use ping::{Ping, PingReport, PingTrouble};
pub use tcp::{TcpBulk, TcpFlow, TcpReport};
pub use udp::{Rate, UdpFlow, UdpPaced, UdpReport};

/// Time between two reports of progress.
const TICK: Duration = Duration::from_millis(100);

/// Namespaces that send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The first namespace.
    Forward,
    /// The second namespace.
    Backward,
    /// Both at once.
    Both,
}

impl Direction {
    fn forward(self) -> bool {
        self != Self::Backward
    }

    fn backward(self) -> bool {
        self != Self::Forward
    }
}

/// State of a run so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// Payload bytes received so far, both directions together.
    pub bytes: u64,
    /// Datagrams or echo replies received so far; 0 for TCP.
    pub packets: u64,
}

/// The caller's eye on a run: a flag that ends it early, and a function told of progress about
/// every 100 ms.
pub struct Watch<'a> {
    cancel: &'a AtomicBool,
    on_progress: Option<&'a mut dyn FnMut(Progress)>,
}

impl<'a> Watch<'a> {
    /// Watches the flag only. Setting it ends the run within a few tenths of a second.
    #[must_use]
    pub fn new(cancel: &'a AtomicBool) -> Self {
        Self { cancel, on_progress: None }
    }

    /// Wants to be told of progress.
    #[must_use]
    pub fn on_progress(self, tell: &'a mut dyn FnMut(Progress)) -> Self {
        Self { on_progress: Some(tell), ..self }
    }

    fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    fn tell(&mut self, progress: Progress) {
        if let Some(tell) = &mut self.on_progress {
            tell(progress);
        }
    }

    /// Waits and tells progress until the time is up, the flag is set, or `done` says so.
    fn wait(
        &mut self,
        start: Instant,
        duration: Duration,
        count: impl Fn() -> (u64, u64),
        done: impl Fn() -> bool,
    ) {
        loop {
            let elapsed = start.elapsed();
            let (bytes, packets) = count();
            self.tell(Progress { elapsed, bytes, packets });
            if elapsed >= duration || self.cancelled() || done() {
                return;
            }
            thread::sleep(TICK.min(duration.saturating_sub(elapsed)));
        }
    }
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("cancel", self.cancel).finish_non_exhaustive()
    }
}

/// Sets a flag when it goes, also when a panic passes: threads that wait for the flag end, and the
/// scope around them can.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The result of a thread; its panic goes on here.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Bits per second of `bytes` in `time`; 0 for no time at all.
fn bits_per_second(bytes: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}
