//! A thread that accepts connections and gives each a thread of its own, bounded in number, so that who
//! misbehaves costs nothing but its own connection. When all places are taken, a connection that has its answer
//! gives way, or else the oldest one that keeps us waiting.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{ReceiveTimeout, SendTimeout};
use nix::sys::time::{TimeVal, TimeValLike};
use rustix::net::Shutdown;

use crate::throttle::Throttle;

/// Time between looks at whether it shall end.
const LOOK: Duration = Duration::from_millis(200);
/// Time that a new connection waits for the place of one that gives way.
const GIVING_WAY: Duration = Duration::from_secs(1);

/// A connection that keeps us waiting for less gives way to nobody.
const GRACE: Duration = Duration::from_millis(50);

/// Source of connections.
pub(crate) trait Listener: AsFd + Send + 'static {
    /// A connection.
    type Stream: AsFd + Send + Sync + 'static;

    /// Waits for the next one.
    ///
    /// # Errors
    /// As of accept(2).
    fn next(&self) -> io::Result<Self::Stream>;
}

impl Listener for std::net::TcpListener {
    type Stream = std::net::TcpStream;

    fn next(&self) -> io::Result<Self::Stream> {
        self.accept().map(|(stream, _)| stream)
    }
}

impl Listener for std::os::unix::net::UnixListener {
    type Stream = std::os::unix::net::UnixStream;

    fn next(&self) -> io::Result<Self::Stream> {
        self.accept().map(|(stream, _)| stream)
    }
}

/// Connections that are accepted. Dropping it ends that; those that are open go on to their end.
#[derive(Debug)]
pub(crate) struct Acceptor {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Has `serve` called for each connection, at most `most` at once. `name` is that of the thread.
    ///
    /// # Errors
    /// Fails if the system gives no thread.
    pub(crate) fn start<L: Listener>(
        name: &'static str,
        listener: L,
        most: usize,
        serve: impl Fn(&L::Stream, &Work<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        // An accept that waits no longer than this lets the thread look around.
        setsockopt(&listener, ReceiveTimeout, &time(LOOK))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let theirs = stopping.clone();
        let thread = Builder::new().name(name.into()).spawn(move || {
            let serve = Arc::new(serve);
            let places = Arc::new(Places::new(most));
            let mut complaints = Throttle::default();
            while !theirs.load(Ordering::Relaxed) {
                accept_one(name, &listener, &serve, &places, &mut complaints);
            }
        })?;
        Ok(Self { stopping, thread: Some(thread) })
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept_one<L: Listener>(
    name: &'static str,
    listener: &L,
    serve: &Arc<impl Fn(&L::Stream, &Work<'_>) -> io::Result<()> + Send + Sync + 'static>,
    places: &Arc<Places<L::Stream>>,
    complaints: &mut Throttle,
) {
    let stream = match listener.next() {
        Ok(stream) => Arc::new(stream),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
        {
            return;
        }
        Err(error) => {
            // Such as too many open files: worth a pause, not an end.
            complaints.warn(|| format!("{name}: cannot accept connections: {error}"));
            return std::thread::sleep(LOOK);
        }
    };
    let Some(number) = places.take(&stream) else { return };
    let held = Held { places: places.clone(), number };
    let serve = serve.clone();
    let spawned = Builder::new().name(format!("{name}-client")).spawn(move || {
        let note = |state| held.places.note(held.number, state);
        if let Err(error) = serve(&stream, &Work { note: &note }) {
            tracing::debug!(%error, "{name}: a connection failed");
        }
        // The connection ends with its place, not after it.
        drop(stream);
        drop(held);
    });
    if let Err(error) = spawned {
        complaints.warn(|| format!("{name}: a connection cannot be served: {error}"));
    }
}

/// By which a connection says when it is we who keep the other side waiting.
pub(crate) struct Work<'a> {
    note: &'a dyn Fn(State),
}

impl Work<'_> {
    /// Does what was asked for. Meanwhile the connection does not give way to others.
    pub(crate) fn of<T>(&self, work: impl FnOnce() -> T) -> T {
        (self.note)(State::Working);
        let done = work();
        (self.note)(State::Waiting(Instant::now()));
        done
    }

    /// The other side has its answer.
    pub(crate) fn answered(&self) {
        (self.note)(State::Answered);
    }
}

/// Party that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// We, for a request or until an answer is taken, since then.
    Waiting(Instant),
    /// The other side: what was asked for is being done.
    Working,
    /// Nobody.
    Answered,
}

/// A connection that has a place.
struct Taken<S> {
    number: u64,
    stream: Arc<S>,
    state: State,
    /// It is closed, and its thread about to end.
    gives_way: bool,
}

/// The places of all connections, in the order in which they came.
struct Places<S> {
    taken: Mutex<(u64, Vec<Taken<S>>)>,
    left: Condvar,
    most: usize,
}

impl<S: AsFd> Places<S> {
    const fn new(most: usize) -> Self {
        Self { taken: Mutex::new((0, Vec::new())), left: Condvar::new(), most }
    }

    /// Takes a place, if need be that of the oldest connection that keeps us waiting; its number.
    fn take(&self, stream: &Arc<S>) -> Option<u64> {
        let until = Instant::now() + GIVING_WAY;
        let mut guard = self.lock();
        loop {
            let (numbers, taken) = &mut *guard;
            if taken.len() < self.most {
                *numbers += 1;
                let number = *numbers;
                let stream = stream.clone();
                let state = State::Waiting(Instant::now());
                taken.push(Taken { number, stream, state, gives_way: false });
                return Some(number);
            }
            let now = Instant::now();
            if !taken.iter().any(|one| one.gives_way)
                && let Some(one) = superfluous(taken, now)
            {
                one.gives_way = true;
                // Whoever reads or writes there ends at once.
                let _ = rustix::net::shutdown(one.stream.as_fd(), Shutdown::Both);
            }
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                return None;
            }
            // One may have kept us waiting for long enough by then.
            let left = left.min(GRACE);
            guard = self.left.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn note(&self, number: u64, state: State) {
        let mut guard = self.lock();
        if let Some(one) = guard.1.iter_mut().find(|one| one.number == number) {
            one.state = state;
        }
        drop(guard);
        // It may be the one that gives way now.
        self.left.notify_all();
    }
}

/// The connection that is to give way, if one can.
fn superfluous<S>(taken: &mut [Taken<S>], now: Instant) -> Option<&mut Taken<S>> {
    let has_waited = |one: &Taken<S>| match one.state {
        State::Waiting(since) => now.saturating_duration_since(since) >= GRACE,
        _ => false,
    };
    let answered = taken.iter().position(|one| one.state == State::Answered);
    let at = answered.or_else(|| taken.iter().position(has_waited))?;
    taken.get_mut(at)
}

impl<S> Places<S> {
    fn lock(&self) -> MutexGuard<'_, (u64, Vec<Taken<S>>)> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, left when dropped, however its thread ends.
struct Held<S> {
    places: Arc<Places<S>>,
    number: u64,
}

impl<S> Drop for Held<S> {
    fn drop(&mut self) {
        self.places.lock().1.retain(|one| one.number != self.number);
        self.places.left.notify_all();
    }
}

/// Writes all of it until then, however slowly it is taken.
///
/// # Errors
/// As of write(2), and when the time is over.
pub(crate) fn write_until<S: AsFd>(stream: &S, bytes: &[u8], deadline: Instant) -> io::Result<()>
where
    for<'a> &'a S: Write,
{
    let mut rest = bytes;
    let mut stream = stream;
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        setsockopt(stream, SendTimeout, &time(left))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// As sockets take it: 0 would mean for ever.
fn time(time: Duration) -> TimeVal {
    TimeVal::microseconds(i64::try_from(time.as_micros()).unwrap_or(i64::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    /// As when the process has as many files open as it may.
    struct Exhausted(UnixListener);

    impl AsFd for Exhausted {
        fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Listener for Exhausted {
        type Stream = UnixStream;

        fn next(&self) -> io::Result<UnixStream> {
            Err(io::Error::from_raw_os_error(nix::libc::EMFILE))
        }
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_process_without_free_descriptors_rests_and_says_so_once_in_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let listener = Exhausted(UnixListener::bind(folder.path().join("x")).unwrap());
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let serve = Arc::new(|_: &UnixStream, _: &Work<'_>| Ok(()));
        let places = Arc::new(Places::new(1));
        let mut complaints = Throttle::default();
        let start = Instant::now();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..3 {
                accept_one("test", &listener, &serve, &places, &mut complaints);
            }
        });
        assert!(start.elapsed() >= 3 * LOOK, "it spins");
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("test: cannot accept connections: Too many").count(), 1, "{text}");
        assert_eq!(places.lock().1.len(), 0);
    }
}
