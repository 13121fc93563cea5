//! The asking end of the control socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::peer::{Stranger, server_of};
use crate::protocol::{Answer, MAX_ANSWER, Request};
use crate::site::{Site, SiteErrors};

/// Folder of gateways' sockets unless told otherwise.
pub const RUN_FOLDER: &str = "/run/convoy";

/// Time in which a gateway must begin to answer. A reload sets up keys and waits for the disk.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same for what monitoring asks, which gives up after ten seconds itself.
const WATCHED: Duration = Duration::from_secs(8);

/// Gateway that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one that runs with this site file.
    Site(PathBuf),
    /// The one of this name.
    Name(String),
    /// The one that listens here.
    Socket(PathBuf),
    /// The only one on this host.
    Only,
}

/// Error of a request to a gateway.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No gateway runs where one was looked for.
    #[error("no gateway answers at {}: start one with `convoy run SITE.toml`", .0.display())]
    NoGateway(PathBuf),
    /// No gateway runs at all.
    #[error("no gateway runs here ({} has no socket that answers): start one with `convoy run SITE.toml`, or name its socket", .0.display())]
    None(PathBuf),
    /// Several run, and none was named.
    #[error("several gateways run here ({}): name one of them", .0.join(", "))]
    Several(Vec<String>),
    /// The socket is another user's.
    #[error("not allowed to ask the gateway at {}: ask as the user that it runs as", .0.display())]
    Denied(PathBuf),
    /// Another user serves there.
    #[error(transparent)]
    Stranger(#[from] Stranger),
    /// The site file does not tell the socket.
    #[error(transparent)]
    Site(#[from] SiteErrors),
    /// The gateway could not do what it was asked.
    #[error("{0}")]
    Refused(String),
    /// The gateway did not answer in time.
    #[error("the gateway at {}{server} does not answer within {} s: it hangs, or is stopped", .path.display(), .patience.as_secs_f32())]
    Silent {
        /// Its socket.
        path: PathBuf,
        /// Its process and the state of that, in words, if it is to be seen from here.
        server: String,
        /// Time that was waited.
        patience: Duration,
    },
    /// The gateway answered something else.
    #[error("the gateway at {} gives no useful answer: {why}", .path.display())]
    Broken {
        /// Its socket.
        path: PathBuf,
        /// Fault of the answer.
        why: String,
    },
}

impl ClientError {
    /// True if the error says that no gateway runs.
    #[must_use]
    pub fn is_no_gateway(&self) -> bool {
        matches!(self, Self::NoGateway(_) | Self::None(_))
    }
}

/// A gateway that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    path: PathBuf,
    /// Time that an answer may take; `None`: as long as the request may.
    patience: Option<Duration>,
}

impl Client {
    /// Finds the gateway that is meant.
    ///
    /// # Errors
    /// [`ClientError`] when it cannot be told which one. Whether it runs is seen by asking it.
    pub fn find(target: &Target) -> Result<Self, ClientError> {
        Self::find_in(target, Path::new(RUN_FOLDER))
    }

    /// As [`Client::find`], with another folder than [`RUN_FOLDER`].
    ///
    /// # Errors
    /// As [`Client::find`].
    pub fn find_in(target: &Target, folder: &Path) -> Result<Self, ClientError> {
        let path = match target {
            Target::Socket(path) => path.clone(),
            Target::Name(name) => folder.join(format!("{name}.sock")),
            Target::Site(site) => Site::control_socket_of(site)?,
            Target::Only => only(folder)?,
        };
        Ok(Self { path, patience: None })
    }

    /// The same, waiting this long for an answer.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks and waits for the answer; never [`Answer::Error`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask(&self, request: Request) -> Result<Answer, ClientError> {
        let broken = |why: String| ClientError::Broken { path: self.path.clone(), why };
        let mut stream = UnixStream::connect(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NoGateway(self.path.clone())
            }
            io::ErrorKind::PermissionDenied => ClientError::Denied(self.path.clone()),
            _ => broken(convoy_host::describe_io(&error)),
        })?;
        let server = server_of(&stream, &self.path)?;
        let patience = self.patience.unwrap_or(match request {
            Request::Status | Request::Metrics => WATCHED,
            _ => PATIENCE,
        });
        let line =
            exchange(&mut stream, request, patience).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Silent {
                    path: self.path.clone(),
                    server: server.map(in_words).unwrap_or_default(),
                    patience,
                },
                _ => broken(convoy_host::describe_io(&error)),
            })?;
        match serde_json::from_slice(&line) {
            Ok(Answer::Error(why)) => Err(ClientError::Refused(why)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(broken(error.to_string())),
        }
    }
}

fn exchange(
    stream: &mut UnixStream,
    request: Request,
    patience: Duration,
) -> io::Result<zeroize::Zeroizing<Vec<u8>>> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut line = serde_json::to_vec(&request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = zeroize::Zeroizing::new(Vec::new());
    stream.take(MAX_ANSWER as u64).read_to_end(&mut answer)?;
    Ok(answer)
}

/// A process and its state, as in `/proc/PID/status`.
fn in_words(process: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    match state {
        Some(state) => format!(" (process {process}, state {})", state.trim()),
        None => format!(" (process {process})"),
    }
}

/// The only socket in the folder that somebody listens on.
fn only(folder: &Path) -> Result<PathBuf, ClientError> {
    let entries =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let sockets = entries.filter(|path| path.extension().is_some_and(|ext| ext == "sock"));
    let mut live: Vec<PathBuf> = sockets
        .filter(|path| match UnixStream::connect(path) {
            Ok(_) => true,
            // There is one, though not for us to ask.
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        })
        .collect();
    live.sort();
    match live.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(ClientError::None(folder.to_owned())),
        _ => {
            Err(ClientError::Several(live.iter().map(|path| path.display().to_string()).collect()))
        }
    }
}
