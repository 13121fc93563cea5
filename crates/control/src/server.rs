//! The gateway's end of the control socket.
//!
//! The socket has mode 0600 and answers only to its own user and root. A request is bounded in size
//! and time, connections in number, so that a client that misbehaves costs nothing but its own
//! connection: when all places are taken, the oldest that keeps us waiting gives way.

use std::io::{self, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::net::{SocketFlags, SocketType};
use zeroize::{Zeroize, Zeroizing};

use crate::acceptor::{Acceptor, Work, write_until};
use crate::place::Place;
pub use crate::place::SocketError as ServerError;
use crate::protocol::{Answer, DriverSetting, MAX_REQUEST, Request};
use crate::state::ReloadReport;
use crate::status::{CryptoReport, DriverChange, PolicyReport, SaReport, Status};
use crate::trace::{Question, Trace};

/// Connections served at once.
const MAX_CONNECTIONS: usize = 16;

/// Time in which a request must be there, and in which the whole of an answer must be taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// Requests that a gateway answers; the binary implements them.
pub trait Gateway: Send + Sync {
    /// Reports its condition.
    fn status(&self) -> Status;
    /// Its SAs.
    fn sas(&self) -> SaReport;
    /// Its policies.
    fn policies(&self) -> PolicyReport;
    /// Tiers, algorithms and drivers.
    fn crypto(&self) -> CryptoReport;
    /// Sets a driver otherwise.
    ///
    /// # Errors
    /// Says what is wrong, for people; then nothing changed.
    fn set_driver(&self, driver: &str, setting: DriverSetting) -> Result<DriverChange, String>;
    /// Tells the fate of a packet that might come.
    ///
    /// # Errors
    /// Says what is wrong with the question, for people.
    fn trace(&self, question: Question) -> Result<Trace, String>;
    /// Reads the site file again.
    ///
    /// # Errors
    /// Says what is wrong, for people; then nothing changed.
    fn reload(&self) -> Result<ReloadReport, String>;
    /// The keys of the SAs as an `esp_sa` file ([`crate::wireshark`]).
    fn keys(&self) -> Zeroizing<String>;
    /// A page of metrics ([`crate::metrics`]).
    fn metrics(&self) -> String;
    /// Begins to drain and end; returns at once.
    fn stop(&self);
}

/// A control socket that is being served. Dropping it ends that and removes the socket.
#[derive(Debug)]
pub struct Server {
    /// Ends before the socket goes.
    _acceptor: Acceptor,
    place: Place,
}

impl Server {
    /// Serves `gateway` on a UNIX socket at `path`. A socket left behind by a gateway that died is
    /// replaced; missing folders are made.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(path: &Path, gateway: Arc<dyn Gateway>) -> Result<Self, ServerError> {
        let place = Place::claim(path)?;
        let listener = place.listen(SocketType::STREAM, SocketFlags::empty())?;
        let listener = UnixListener::from(listener);
        let acceptor =
            Acceptor::start("control", listener, MAX_CONNECTIONS, move |stream, work| {
                serve(stream, work, gateway.as_ref())
            })
            .map_err(|error| place.failed("cannot serve", error))?;
        Ok(Self { _acceptor: acceptor, place })
    }

    /// Path on which it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.path()
    }
}

/// One connection: one request, one answer.
fn serve(stream: &UnixStream, work: &Work<'_>, gateway: &dyn Gateway) -> io::Result<()> {
    let peer = getsockopt(stream, PeerCredentials)?;
    let ours = nix::unistd::geteuid().as_raw();
    if peer.uid() != 0 && peer.uid() != ours {
        tracing::warn!(
            uid = peer.uid(),
            pid = peer.pid(),
            "control request of another user refused: only root and the gateway's user may send one"
        );
        return send(stream, &Answer::Error("only the gateway's user and root may ask".into()));
    }
    let answer = match read_request(stream)? {
        Ok(request) => {
            if is_noted(&request) {
                tracing::info!(uid = peer.uid(), pid = peer.pid(), "control request: {request}");
            }
            work.of(|| answer(request, gateway))
        }
        Err(why) => Answer::Error(why),
    };
    let sent = send(stream, &answer);
    if let Answer::Keys(mut keys) = answer {
        keys.zeroize();
    }
    sent
}

/// True if the log tells who asked.
const fn is_noted(request: &Request) -> bool {
    matches!(request, Request::Keys | Request::Reload | Request::SetDriver { .. } | Request::Stop)
}

/// Reads a line; the inner error is for the client.
fn read_request(mut stream: &UnixStream) -> io::Result<Result<Request, String>> {
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
    Ok(parsed.map_err(|error| format!("this gateway does not know the request: {error}")))
}

fn answer(request: Request, gateway: &dyn Gateway) -> Answer {
    match request {
        Request::Status => Answer::Status(Box::new(gateway.status())),
        Request::Sa => Answer::Sa(gateway.sas()),
        Request::Policy => Answer::Policy(gateway.policies()),
        Request::Crypto => Answer::Crypto(gateway.crypto()),
        Request::SetDriver { driver, setting } => match gateway.set_driver(&driver, setting) {
            Ok(change) => Answer::SetDriver(Box::new(change)),
            Err(why) => Answer::Error(why),
        },
        Request::Trace(question) => match gateway.trace(question) {
            Ok(trace) => Answer::Trace(Box::new(trace)),
            Err(why) => Answer::Error(why),
        },
        Request::Reload => match gateway.reload() {
            Ok(report) => Answer::Reload(Box::new(report)),
            Err(why) => Answer::Error(why),
        },
        Request::Keys => Answer::Keys(std::mem::take(&mut *gateway.keys())),
        Request::Metrics => Answer::Metrics(gateway.metrics()),
        Request::Stop => {
            gateway.stop();
            Answer::Stopping
        }
    }
}

fn send(stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let sent = write_until(stream, &line, Instant::now() + PATIENCE);
    // It may hold keys.
    line.zeroize();
    sent
}
