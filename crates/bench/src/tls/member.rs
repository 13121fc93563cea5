//! A load process: it joins a synchronisation server, and does what that tells it.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::apache_bench::ApacheBench;
use super::hub::{Link, PROTOCOL, Said, Told};
use super::job::{Generator, Job, Tally};
use super::load::{Load, LoadError};
use crate::peer::libssl::LibSsl;

/// Most bytes of what the server says.
const TOLD_MAX: u64 = 64 << 10;
/// Time for which a server may leave a process without work.
const IDLE: Duration = Duration::from_secs(24 * 3600);

/// A process does not take part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The server is not there, or has gone in the middle of something.
    #[error("the synchronisation server {server}: {error}")]
    Server {
        /// Address.
        server: String,
        /// Error of the connection.
        error: io::Error,
    },
    /// It does not want this process.
    #[error("the synchronisation server {server} refused this process: {why}")]
    Refused {
        /// Address.
        server: String,
        /// Reason.
        why: String,
    },
}

/// Joins the server at `server` and works for it until it ends. Waits for `patience` until it is there.
///
/// # Errors
/// [`JoinError`].
pub fn work(
    library: &Rc<LibSsl>,
    server: &str,
    token: &str,
    patience: Duration,
) -> Result<(), JoinError> {
    let lost = |error| JoinError::Server { server: server.to_owned(), error };
    let stream = reach(server, patience).map_err(lost)?;
    let mut link = Link::new(stream).map_err(lost)?;
    let host = nix::unistd::gethostname()
        .map_or_else(|_| "an unnamed host".to_owned(), |name| name.to_string_lossy().into_owned());
    let (protocol, token) = (PROTOCOL.to_owned(), token.to_owned());
    link.say(&Said::Hello { protocol, token, host }).map_err(lost)?;
    let mut load = None;
    loop {
        match link.hear(IDLE, TOLD_MAX) {
            Ok(Told::Welcome) => {}
            Ok(Told::Refused(why)) => {
                return Err(JoinError::Refused { server: server.to_owned(), why });
            }
            Ok(Told::Prepare(job)) => match Ready::new(library, *job) {
                Ok(ready) => {
                    load = Some(ready);
                    link.say(&Said::Ready).map_err(lost)?;
                }
                Err(error) => link.say(&Said::Unable(error.to_string())).map_err(lost)?,
            },
            Ok(Told::Go) => {
                let said = match load.take().map(Ready::run) {
                    Some(Ok(tally)) => Said::Done(Box::new(tally)),
                    Some(Err(error)) => Said::Unable(error.to_string()),
                    None => Said::Unable("nothing was set up".to_owned()),
                };
                link.say(&said).map_err(lost)?;
            }
            // The server has ended: so does this.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(lost(error)),
        }
    }
}

/// A run that is set up.
enum Ready {
    Own(Load),
    ApacheBench(ApacheBench),
}

impl Ready {
    fn new(library: &Rc<LibSsl>, job: Job) -> Result<Self, LoadError> {
        match job.generator {
            Generator::Convoy => Load::new(library, job).map(Self::Own),
            Generator::ApacheBench => ApacheBench::new(job).map(Self::ApacheBench),
        }
    }

    fn run(self) -> Result<Tally, LoadError> {
        match self {
            Self::Own(load) => load.run(),
            Self::ApacheBench(load) => load.run(),
        }
    }
}

fn reach(server: &str, patience: Duration) -> io::Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(server) {
            Ok(stream) => return Ok(stream),
            Err(error) if begun.elapsed() >= patience => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
