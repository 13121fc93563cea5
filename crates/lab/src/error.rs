//! Errors of the laboratory.

use std::{io, net::IpAddr, path::PathBuf};

use convoy_host::netlink::Refusal;

/// The laboratory could not be set up or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The system refused something.
    #[error("cannot {doing}: {}", system_words(.error))]
    System {
        /// Action that failed.
        doing: String,
        /// The system's answer.
        #[source]
        error: io::Error,
    },
    /// There is such a namespace already.
    #[error("network namespace {name} exists already")]
    NamespaceExists {
        /// Its name.
        name: String,
    },
    /// The text cannot name a namespace.
    #[error("{name:?} cannot name a network namespace: letters, digits, '-', '_' and '.' can")]
    BadName {
        /// The text.
        name: String,
    },
    /// The peer did not take the connection.
    #[error("no TCP connection to {to}: {error}")]
    Connect {
        /// The peer.
        to: IpAddr,
        /// Cause.
        #[source]
        error: io::Error,
    },
    /// The payload is too short for the numbers it carries, or too long for a datagram.
    #[error("a payload of {bytes} bytes is outside {min} to {max}")]
    Payload {
        /// Bytes asked for.
        bytes: usize,
        /// Smallest possible.
        min: usize,
        /// Largest possible.
        max: usize,
    },
    /// A program is not installed.
    #[error("{program} is not installed")]
    Missing {
        /// Its name.
        program: String,
    },
    /// A program did not do what it was asked to.
    #[error("{program}: {said}")]
    Program {
        /// The program, and what it was given.
        program: String,
        /// Its end, and what it printed.
        said: String,
    },
    /// Something did not come in time.
    #[error("no {what} in time; {said}")]
    TimedOut {
        /// Event that was waited for.
        what: String,
        /// Words of a log about it.
        said: String,
    },
    /// A UNIX socket's path would be too long.
    #[error("{} is too long for a UNIX socket", .path.display())]
    LongPath {
        /// The path.
        path: PathBuf,
    },
    /// A file is no capture.
    #[error("cannot read the capture {}: {why}", .path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// Defect of the file.
        why: String,
    },
    /// A thread of the laboratory could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// Says what was being done when the system refused.
pub(crate) trait Doing<T> {
    /// Turns a refusal into an error that names `doing` ("create …").
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, LabError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, LabError> {
        self.map_err(|error| LabError::System { doing: doing(), error })
    }
}

impl<T> Doing<T> for nix::Result<T> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, LabError> {
        self.map_err(io::Error::from).doing(doing)
    }
}

impl<T> Doing<T> for Result<T, Refusal> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T, LabError> {
        self.map_err(|refusal| LabError::System {
            doing: match refusal.said {
                Some(said) => format!("{} ({said})", doing()),
                None => doing(),
            },
            error: io::Error::from_raw_os_error(refusal.errno),
        })
    }
}

fn system_words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(nix::libc::EPERM | nix::libc::EACCES) => {
            format!("{error}; it takes root, or a user namespace of one's own")
        }
        Some(nix::libc::EROFS) => format!("{error}; /proc/sys is read-only, as in most containers"),
        _ => error.to_string(),
    }
}
