//! Place of a server's UNIX socket: nobody else serves there meanwhile, or when it is gone, and nobody but its
//! user and root can connect from the first moment.

use std::fs::{OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use convoy_host::Lockable;

use crate::folder::{self, Open};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A socket cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Another gateway serves it.
    #[error("socket {} belongs to a running gateway: stop that one, or name another socket in the site file", .0.display())]
    InUse(PathBuf),
    /// Something that is no socket is in its place.
    #[error("{} exists and is no socket: remove it, or name another socket in the site file", .0.display())]
    NotASocket(PathBuf),
    /// A link is where the lock is to be.
    #[error("{} is a link, which is not followed: remove it, or name another socket in the site file", .0.display())]
    IsLink(PathBuf),
    /// Other users can put a socket of theirs there.
    #[error("socket {}: {open}: {}", .path.display(), .open.help())]
    Open {
        /// The socket.
        path: PathBuf,
        /// Part of the path that they can change.
        open: Open,
    },
    /// The operating system refused.
    #[error("{what} {}: {}", .path.display(), convoy_host::describe_io(.source))]
    Io {
        /// Action that failed.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// A path that this process alone serves. Dropping it removes the socket.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    /// Given up last.
    _lock: Lock,
}

impl Place {
    /// Claims a path. Missing folders are made; a socket left behind by a server that died is removed. A folder
    /// that other users can change is refused.
    pub(crate) fn claim(path: &Path) -> Result<Self, SocketError> {
        let folder = folder_of(path);
        folder::make(folder).map_err(failed("cannot make folder", folder))?;
        if let Some(open) = folder::look(folder).into_iter().find(|open| !open.is_doubtful_only()) {
            return Err(SocketError::Open { path: path.to_owned(), open });
        }
        let lock = Lock::take(path)?;
        // The lock is ours, so whatever is there was left behind.
        match std::fs::symlink_metadata(path) {
            Ok(meta) if meta.file_type().is_socket() => {
                std::fs::remove_file(path).map_err(failed("cannot remove", path))?;
            }
            Ok(_) => return Err(SocketError::NotASocket(path.to_owned())),
            Err(_) => {}
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Listens there. The mode is 0600 from the first moment, since the socket gets its name last.
    pub(crate) fn listen(
        &self,
        kind: SocketType,
        flags: SocketFlags,
    ) -> Result<OwnedFd, SocketError> {
        let fresh = with_ending(&self.path, ".new");
        let _ = std::fs::remove_file(&fresh);
        let bound = self.bind(&fresh, kind, flags);
        if bound.is_err() {
            let _ = std::fs::remove_file(&fresh);
        }
        bound.map_err(|error| self.failed("cannot listen on", error))
    }

    fn bind(&self, fresh: &Path, kind: SocketType, flags: SocketFlags) -> io::Result<OwnedFd> {
        let flags = flags | SocketFlags::CLOEXEC;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        // The mode that its file will have.
        rustix::fs::fchmod(&listener, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new(fresh)?)?;
        rustix::net::listen(&listener, BACKLOG)?;
        std::fs::rename(fresh, &self.path)?;
        Ok(listener)
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The error that says what could not be done here.
    pub(crate) fn failed(&self, what: &'static str, source: io::Error) -> SocketError {
        failed(what, &self.path)(source)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The folder that a path is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or_else(|| Path::new("."))
}

fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> SocketError {
    move |source| SocketError::Io { what, path: path.to_owned(), source }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// A locked file beside the socket. Dropping it removes the file.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    /// Held for its lock.
    _file: Lockable,
}

impl Lock {
    fn take(socket: &Path) -> Result<Self, SocketError> {
        let path = with_ending(socket, ".lock");
        let failed = failed("cannot lock", &path);
        loop {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = file.custom_flags(OFlag::O_NOFOLLOW.bits()).open(&path).map(Lockable::new);
            let file = match file {
                Err(error) if error.raw_os_error() == Some(nix::libc::ELOOP) => {
                    return Err(SocketError::IsLink(path.clone()));
                }
                file => file.map_err(&failed)?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(SocketError::InUse(socket.to_owned())),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            let ours = file.metadata().map_err(&failed)?;
            // Its last owner may have removed it between our opening and locking.
            if std::fs::metadata(&path)
                .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
            {
                drop(failed);
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before the lock is given up; `take` notices a file that was removed under it.
        let _ = std::fs::remove_file(&self.path);
    }
}
