//! TCP streams as fast as they go, counted by the receivers.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{self, Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};

use super::{
    Direction, Progress, SetOnDrop, Watch, bits_per_second, counters, join, pattern::Pattern,
};
use crate::{LabError, Namespace, error::Doing as _};

/// Bytes handed to the kernel, or taken from it, in one call.
const CHUNK: usize = 256 * 1024;
/// Longest time that a call may block before the flags are looked at.
const PATIENCE: Duration = Duration::from_millis(100);
/// Longest time that one try to connect may take before the flag is looked at.
const CONNECT_TRY: Duration = Duration::from_secs(1);
/// Longest time for what is under way to arrive after the last byte was sent: a guard against
/// hanging only, longer than TCP waits before it sends again what a busy machine has lost.
const DRAIN: Duration = Duration::from_secs(20);
/// The same where the caller wants the end.
const DRAIN_CANCELLED: Duration = Duration::from_secs(3);
/// Pause between two looks whether it has arrived.
const LOOK: Duration = Duration::from_millis(10);

/// A bulk transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpBulk {
    /// Address of the second namespace's end.
    pub to: IpAddr,
    /// Time for which to send.
    pub duration: Duration,
    /// Longest time that a connection may take.
    pub connect: Duration,
    /// Streams in each direction; at least one.
    pub streams: u16,
    /// Namespaces that send.
    pub direction: Direction,
    /// Compare every byte received with what was sent; costs the receiver some time.
    pub verify: bool,
}

/// Results of a bulk transfer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TcpReport {
    /// From the first to the second namespace.
    pub forward: TcpFlow,
    /// From the second to the first.
    pub backward: TcpFlow,
}

/// One direction of a bulk transfer, all streams together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TcpFlow {
    /// Bytes the senders' kernel took.
    pub sent: u64,
    /// Bytes the receivers got.
    pub received: u64,
    /// From the first byte that could be sent to the last that was received.
    pub elapsed: Duration,
    /// Received bytes that were not what was sent; 0 when not verified.
    pub damaged: u64,
    /// Segments the sender's namespace sent again meanwhile. Not each was lost: where a stream moves
    /// between processors, packets overtake one another and are sent again needlessly.
    pub retransmits: u64,
    /// Streams that did not come to their proper end: reset, or stuck until patience ended.
    pub broken: u16,
}

impl TcpFlow {
    /// Throughput of the payload in bits per second.
    #[must_use]
    pub fn bits_per_second(&self) -> f64 {
        bits_per_second(self.received, self.elapsed)
    }
}

/// A connection, by the roles of its ends.
#[derive(Debug)]
struct Stream {
    sender: TcpStream,
    receiver: TcpStream,
}

/// The flags and counts that a transfer's threads share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    abandon: AtomicBool,
    received: AtomicU64,
}

/// Counts of one thread.
#[derive(Debug, Default)]
struct Seen {
    bytes: u64,
    damaged: u64,
    broken: bool,
    last: Option<Instant>,
}

impl TcpBulk {
    /// One verified stream to `to` for a time.
    #[must_use]
    pub fn new(to: IpAddr, duration: Duration) -> Self {
        Self {
            to,
            duration,
            connect: Duration::from_secs(5),
            streams: 1,
            direction: Direction::Forward,
            verify: true,
        }
    }

    /// Transfers between two namespaces and waits for the end.
    ///
    /// # Errors
    /// [`LabError::Connect`] when the second cannot be reached from the first;
    /// [`LabError::System`].
    pub fn run(
        &self,
        first: &Namespace,
        second: &Namespace,
        watch: &mut Watch<'_>,
    ) -> Result<TcpReport, LabError> {
        let listener = second
            .run(|| TcpListener::bind((self.to, 0)))?
            .doing(|| format!("listen on {}", self.to))?;
        let address = listener.local_addr().doing(|| "read a socket's address".into())?;
        let streams = usize::from(self.streams.max(1));
        let connect = |wanted: bool, near_sends: bool| -> Result<Vec<_>, LabError> {
            let count = if wanted { streams } else { 0 };
            let one = |_| {
                let (near, far) = self.connect(first, address, &listener, watch)?;
                let (sender, receiver) = if near_sends { (near, far) } else { (far, near) };
                Ok(Stream { sender, receiver })
            };
            (0..count).map(one).collect()
        };
        let forward = connect(self.direction.forward(), true)?;
        let backward = connect(self.direction.backward(), false)?;

        let before = (retransmits(first)?, retransmits(second)?);
        let (mut forward, mut backward) = self.transfer(&forward, &backward, watch);
        forward.retransmits = retransmits(first)?.saturating_sub(before.0);
        backward.retransmits = retransmits(second)?.saturating_sub(before.1);
        Ok(TcpReport { forward, backward })
    }

    fn connect(
        &self,
        first: &Namespace,
        address: SocketAddr,
        listener: &TcpListener,
        watch: &Watch<'_>,
    ) -> Result<(TcpStream, TcpStream), LabError> {
        let connect_error = |error| LabError::Connect { to: self.to, error };
        let begun = Instant::now();
        let a_try = self.connect.min(CONNECT_TRY);
        let near = loop {
            // Short tries, so that a caller who gives up is heard.
            match first.run(|| TcpStream::connect_timeout(&address, a_try))? {
                Err(e)
                    if e.kind() == io::ErrorKind::TimedOut
                        && begun.elapsed() < self.connect
                        && !watch.cancelled() => {}
                other => break other.map_err(connect_error)?,
            }
        };
        let own = near.local_addr().map_err(connect_error)?;
        // A try given up may have left a connection of its own in the queue.
        let far = loop {
            let (far, from) = listener.accept().map_err(connect_error)?;
            if from == own {
                break far;
            }
        };
        for end in [&near, &far] {
            end.set_read_timeout(Some(PATIENCE)).map_err(connect_error)?;
            end.set_write_timeout(Some(PATIENCE)).map_err(connect_error)?;
        }
        Ok((near, far))
    }

    fn transfer(
        &self,
        forward: &[Stream],
        backward: &[Stream],
        watch: &mut Watch<'_>,
    ) -> (TcpFlow, TcpFlow) {
        let shared = Shared::default();
        let pattern = Pattern::new(CHUNK);
        let start = Instant::now();
        thread::scope(|scope| {
            let (shared, pattern, verify) = (&shared, &pattern, self.verify);
            // Whatever happens here, the threads end.
            let (stop, abandon) = (SetOnDrop(&shared.stop), SetOnDrop(&shared.abandon));
            let run = |stream| Running::start(scope, stream, pattern, verify, shared);
            let forward: Vec<_> = forward.iter().map(run).collect();
            let backward: Vec<_> = backward.iter().map(run).collect();
            let count = || (shared.received.load(Ordering::Relaxed), 0);
            let ended = || forward.iter().chain(&backward).all(Running::ended);
            watch.wait(start, self.duration, count, ended);
            drop(stop);
            drain(watch, start, count, ended);
            drop(abandon);
            (Running::sum(forward, start), Running::sum(backward, start))
        })
    }
}

/// Waits for what is under way, also when the caller wants the end.
fn drain(
    watch: &mut Watch<'_>,
    start: Instant,
    count: impl Fn() -> (u64, u64),
    ended: impl Fn() -> bool,
) {
    let begun = Instant::now();
    let tell = |watch: &mut Watch<'_>| {
        let (bytes, packets) = count();
        watch.tell(Progress { elapsed: start.elapsed(), bytes, packets });
    };
    let mut told = begun;
    while !ended() {
        let limit = if watch.cancelled() { DRAIN_CANCELLED } else { DRAIN };
        if begun.elapsed() >= limit {
            break;
        }
        if told.elapsed() >= super::TICK {
            told = Instant::now();
            tell(watch);
        }
        thread::sleep(LOOK);
    }
    tell(watch);
}

/// The two threads of a stream.
struct Running<'scope> {
    sending: ScopedJoinHandle<'scope, Seen>,
    receiving: ScopedJoinHandle<'scope, Seen>,
}

impl<'scope> Running<'scope> {
    fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        stream: &'env Stream,
        pattern: &'env Pattern,
        verify: bool,
        shared: &'env Shared,
    ) -> Self {
        Self {
            sending: scope.spawn(move || send(&stream.sender, pattern, shared)),
            receiving: scope.spawn(move || receive(&stream.receiver, pattern, verify, shared)),
        }
    }

    fn ended(&self) -> bool {
        self.sending.is_finished() && self.receiving.is_finished()
    }

    fn sum(streams: Vec<Self>, start: Instant) -> TcpFlow {
        let mut flow = TcpFlow::default();
        for stream in streams {
            let (sent, got) = (join(stream.sending), join(stream.receiving));
            flow.sent += sent.bytes;
            flow.received += got.bytes;
            flow.damaged += got.damaged;
            flow.broken += u16::from(sent.broken || got.broken);
            let last = got.last.map_or(Duration::ZERO, |last| last - start);
            flow.elapsed = flow.elapsed.max(last);
        }
        flow
    }
}

fn retransmits(namespace: &Namespace) -> Result<u64, LabError> {
    namespace.run(counters::tcp_retransmits)?.doing(|| "read the TCP counters".into())
}

/// Sends until told to stop, then closes its half.
fn send(mut stream: &TcpStream, pattern: &Pattern, shared: &Shared) -> Seen {
    let mut seen = Seen::default();
    // Once at least: this thread may run late.
    let mut is_over = false;
    while !is_over {
        is_over = shared.stop.load(Ordering::Relaxed);
        match stream.write(pattern.at(seen.bytes, CHUNK)) {
            Ok(n) => seen.bytes += n as u64,
            Err(e) if passing(&e) => {}
            Err(_) => {
                seen.broken = true;
                return seen;
            }
        }
    }
    seen.broken = stream.shutdown(Shutdown::Write).is_err();
    seen
}

/// Receives until the sender's end, or until told that it will not come.
fn receive(mut stream: &TcpStream, pattern: &Pattern, verify: bool, shared: &Shared) -> Seen {
    let mut seen = Seen::default();
    let mut buffer = vec![0; CHUNK];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return seen,
            Ok(n) => {
                if verify {
                    seen.damaged += pattern.damage(seen.bytes, &buffer[..n]);
                }
                seen.bytes += n as u64;
                seen.last = Some(Instant::now());
                shared.received.fetch_add(n as u64, Ordering::Relaxed);
            }
            Err(e) if passing(&e) => {}
            Err(_) => {
                seen.broken = true;
                return seen;
            }
        }
        if shared.abandon.load(Ordering::Relaxed) {
            seen.broken = true;
            return seen;
        }
    }
}

fn passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
