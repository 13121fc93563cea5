//! The gateway's end of the control socket.
//!
//! The socket has mode 0600 and answers only to its own user and root. A request is bounded in size
//! and time, connections in number, so that a client that misbehaves costs nothing but its own
//! connection.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::{PeerCredentials, ReceiveTimeout};
use nix::sys::socket::{getsockopt, setsockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use zeroize::{Zeroize, Zeroizing};

use crate::protocol::{Answer, MAX_REQUEST, Request};
use crate::state::ReloadReport;
use crate::status::{CryptoReport, PolicyReport, SaReport, Status};

/// Connections served at once.
const MAX_CONNECTIONS: usize = 16;

/// Time in which a request must be there, and in which an answer must be taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between looks at whether the server shall end.
const LOOK: Duration = Duration::from_millis(200);

/// What a gateway can be asked; the binary implements it.
pub trait Gateway: Send + Sync {
    /// How it is doing.
    fn status(&self) -> Status;
    /// Its SAs.
    fn sas(&self) -> SaReport;
    /// Its policies.
    fn policies(&self) -> PolicyReport;
    /// Tiers and algorithms.
    fn crypto(&self) -> CryptoReport;
    /// Reads the site file again.
    ///
    /// # Errors
    /// What is wrong, for people; then nothing changed.
    fn reload(&self) -> Result<ReloadReport, String>;
    /// The keys of the SAs as an `esp_sa` file ([`crate::wireshark`]).
    fn keys(&self) -> Zeroizing<String>;
    /// Begins to drain and end; returns at once.
    fn stop(&self);
}

/// Why the control socket cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Another gateway serves it.
    #[error("control socket {} belongs to a running gateway: stop that one, or set `control_socket` in the site file", .0.display())]
    InUse(PathBuf),
    /// Something that is no socket is in its place.
    #[error("{} exists and is no socket: remove it, or set `control_socket` in the site file", .0.display())]
    NotASocket(PathBuf),
    /// The operating system refused.
    #[error("{what} {}: {}", .path.display(), crate::site::describe_io(.source))]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// A control socket that is being served. Dropping it ends that and removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    lock_path: PathBuf,
    /// Held for its lock.
    _lock: File,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `gateway` on a UNIX socket at `path`. A socket left behind by a gateway that died is
    /// replaced; missing folders are made.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(path: &Path, gateway: Arc<dyn Gateway>) -> Result<Self, ServerError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| ServerError::Io { what, path, source }
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(failed("cannot make folder", folder))?;
        }
        let (lock, lock_path) = lock(path)?;
        // The lock is ours, so whatever is there was left behind.
        match std::fs::symlink_metadata(path) {
            Ok(meta) if std::os::unix::fs::FileTypeExt::is_socket(&meta.file_type()) => {
                std::fs::remove_file(path).map_err(failed("cannot remove", path))?;
            }
            Ok(_) => return Err(ServerError::NotASocket(path.to_owned())),
            Err(_) => {}
        }
        let listener = bind(path).map_err(failed("cannot listen on", path))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let theirs = stopping.clone();
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&listener, &gateway, &theirs))
            .map_err(failed("cannot serve", path))?;
        Ok(Self { path: path.to_owned(), lock_path, _lock: lock, stopping, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
        // Before the lock is given up; `lock` notices a file that was removed under it.
        let _ = std::fs::remove_file(&self.lock_path);
    }
}

/// Locks the socket's path for this process.
fn lock(socket: &Path) -> Result<(File, PathBuf), ServerError> {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    let path = PathBuf::from(name);
    let failed = |source| ServerError::Io { what: "cannot lock", path: path.clone(), source };
    loop {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ServerError::InUse(socket.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let ours = file.metadata().map_err(failed)?;
        // Its last owner may have removed it between our opening and locking.
        if std::fs::metadata(&path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
        {
            return Ok((file, path));
        }
    }
}

/// Listens at `path` with mode 0600 from the first moment: the socket gets its name last.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let fresh = PathBuf::from(name);
    let _ = std::fs::remove_file(&fresh);
    let bound = UnixListener::bind(&fresh).and_then(|listener| {
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
        // An accept that waits no longer than this lets the thread look around.
        let wait = TimeVal::milliseconds(i64::try_from(LOOK.as_millis()).unwrap_or(200));
        setsockopt(&listener, ReceiveTimeout, &wait)?;
        std::fs::rename(&fresh, path)?;
        Ok(listener)
    });
    if bound.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    bound
}

fn accept(listener: &UnixListener, gateway: &Arc<dyn Gateway>, stopping: &AtomicBool) {
    let open = Arc::new(AtomicUsize::new(0));
    while !stopping.load(Ordering::Relaxed) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(error) => {
                // Such as too many open files: worth a pause, not an end.
                tracing::warn!(%error, "control socket cannot accept");
                std::thread::sleep(LOOK);
                continue;
            }
        };
        if open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (gateway, count) = (gateway.clone(), Countdown(open.clone()));
        let spawned = std::thread::Builder::new().name("control-client".into()).spawn(move || {
            let _count = count;
            if let Err(error) = serve(stream, gateway.as_ref()) {
                tracing::debug!(%error, "control connection failed");
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "control socket cannot serve");
        }
    }
}

/// Takes one from a count when dropped, however its thread ends.
struct Countdown(Arc<AtomicUsize>);

impl Drop for Countdown {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection: one request, one answer.
fn serve(mut stream: UnixStream, gateway: &dyn Gateway) -> io::Result<()> {
    let peer = getsockopt(&stream, PeerCredentials)?;
    let ours = nix::unistd::geteuid().as_raw();
    stream.set_write_timeout(Some(PATIENCE))?;
    if peer.uid() != 0 && peer.uid() != ours {
        tracing::warn!(
            uid = peer.uid(),
            pid = peer.pid(),
            "control request of another user refused"
        );
        return send(
            &mut stream,
            &Answer::Error("only the gateway's user and root may ask".into()),
        );
    }
    let answer = match read_request(&mut stream)? {
        Ok(request) => {
            if matches!(request, Request::Keys | Request::Reload | Request::Stop) {
                tracing::info!(?request, uid = peer.uid(), pid = peer.pid(), "control request");
            }
            answer(request, gateway)
        }
        Err(why) => Answer::Error(why),
    };
    let sent = send(&mut stream, &answer);
    if let Answer::Keys(mut keys) = answer {
        keys.zeroize();
    }
    sent
}

/// Reads a line; the inner error is for the client.
fn read_request(stream: &mut UnixStream) -> io::Result<Result<Request, String>> {
    let deadline = Instant::now() + PATIENCE;
    let mut line = Vec::with_capacity(256);
    let mut chunk = [0; 512];
    while !line.contains(&b'\n') {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(chunk.get(..count).unwrap_or_default());
        if line.len() > MAX_REQUEST {
            return Ok(Err(format!("a request has at most {MAX_REQUEST} bytes")));
        }
    }
    let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
    let parsed = serde_json::from_slice(line.get(..end).unwrap_or_default());
    Ok(parsed.map_err(|error| format!("not a request this gateway knows: {error}")))
}

fn answer(request: Request, gateway: &dyn Gateway) -> Answer {
    match request {
        Request::Status => Answer::Status(Box::new(gateway.status())),
        Request::Sa => Answer::Sa(gateway.sas()),
        Request::Policy => Answer::Policy(gateway.policies()),
        Request::Crypto => Answer::Crypto(gateway.crypto()),
        Request::Reload => match gateway.reload() {
            Ok(report) => Answer::Reload(Box::new(report)),
            Err(why) => Answer::Error(why),
        },
        Request::Keys => Answer::Keys(std::mem::take(&mut *gateway.keys())),
        Request::Stop => {
            gateway.stop();
            Answer::Stopping
        }
    }
}

fn send(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let sent = stream.write_all(&line);
    // It may hold keys.
    line.zeroize();
    sent
}
