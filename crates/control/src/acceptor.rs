//! A thread that accepts connections and gives each a thread of its own, bounded in number, so that who
//! misbehaves costs nothing but its own connection.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::time::{TimeVal, TimeValLike};

use crate::throttle::Throttle;

/// Time between looks at whether it shall end.
const LOOK: Duration = Duration::from_millis(200);

/// What connections come to.
pub(crate) trait Listener: AsFd + Send + 'static {
    /// A connection.
    type Stream: Send + 'static;

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
    /// Has `serve` called for each connection, at most `most` at once; others are closed. `name` is that
    /// of the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start<L: Listener>(
        name: &'static str,
        listener: L,
        most: usize,
        serve: impl Fn(L::Stream) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        // An accept that waits no longer than this lets the thread look around.
        let wait = TimeVal::milliseconds(i64::try_from(LOOK.as_millis()).unwrap_or(200));
        setsockopt(&listener, ReceiveTimeout, &wait)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let theirs = stopping.clone();
        let thread = Builder::new().name(name.into()).spawn(move || {
            let serve = Arc::new(serve);
            let open = Arc::new(AtomicUsize::new(0));
            let mut complaints = Throttle::default();
            while !theirs.load(Ordering::Relaxed) {
                accept_one(name, &listener, most, &serve, &open, &mut complaints);
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
    most: usize,
    serve: &Arc<impl Fn(L::Stream) -> io::Result<()> + Send + Sync + 'static>,
    open: &Arc<AtomicUsize>,
    complaints: &mut Throttle,
) {
    let stream = match listener.next() {
        Ok(stream) => stream,
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
    let count = Countdown(open.clone());
    if open.fetch_add(1, Ordering::Relaxed) >= most {
        return;
    }
    let serve = serve.clone();
    let spawned = Builder::new().name(format!("{name}-client")).spawn(move || {
        let _count = count;
        if let Err(error) = serve(stream) {
            tracing::debug!(%error, "{name}: a connection failed");
        }
    });
    if let Err(error) = spawned {
        complaints.warn(|| format!("{name}: a connection cannot be served: {error}"));
    }
}

/// Takes one from a count when dropped, however its thread ends.
struct Countdown(Arc<AtomicUsize>);

impl Drop for Countdown {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::Mutex;
    use std::time::Instant;

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
        let (serve, open) = (Arc::new(|_| Ok(())), Arc::new(AtomicUsize::new(0)));
        let mut complaints = Throttle::default();
        let start = Instant::now();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..3 {
                accept_one("test", &listener, 1, &serve, &open, &mut complaints);
            }
        });
        assert!(start.elapsed() >= 3 * LOOK, "it spins");
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("test: cannot accept connections: Too many").count(), 1, "{text}");
        assert_eq!(open.load(Ordering::Relaxed), 0);
    }
}
