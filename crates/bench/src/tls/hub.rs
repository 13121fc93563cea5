//! The synchronisation server: load processes of this host and of others join it, begin together, and
//! report to it.
//!
//! Lines of JSON over TCP. Times are spans, so that clocks of hosts need not agree. Who does not answer in
//! time, or goes, makes a run void.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::job::{Job, Tally};

/// Version of what is said; both ends must have the same.
pub const PROTOCOL: &str = concat!("convoy-bench-tls 2, ", env!("CARGO_PKG_VERSION"));
/// Most bytes of what a process says before it is known, and afterwards.
const GREETING_MAX: u64 = 4096;
const REPORT_MAX: u64 = 256 << 20;
/// Time in which a process must introduce itself, and set a run up.
const GREETING: Duration = Duration::from_secs(5);
const SETTING_UP: Duration = Duration::from_secs(20);
/// Time in which a report must come after the end of a run.
const REPORT: Duration = Duration::from_secs(20);

/// Message from a load process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Said {
    /// Introduction: protocol, token and host.
    Hello { protocol: String, token: String, host: String },
    /// A run is set up.
    Ready,
    /// A run cannot take place.
    Unable(String),
    /// A run is over.
    Done(Box<Tally>),
}

/// Message from the server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Told {
    /// The process takes part.
    Welcome,
    /// It does not.
    Refused(String),
    /// Set this up.
    Prepare(Box<Job>),
    /// Begin now.
    Go,
}

/// A run that did not take place, or not as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The server has no port.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Address to listen on.
        address: String,
        /// The system's error.
        error: io::Error,
    },
    /// A process has gone, or does not answer.
    #[error("the run is void: the load process on {host} {what}")]
    Void {
        /// Whose.
        host: String,
        /// Description of its failure.
        what: String,
    },
    /// Too few joined.
    #[error("{missing} of {wanted} load processes did not join within {seconds} s; {hint}")]
    Missing {
        /// Number of processes that are missing.
        missing: usize,
        /// Number of processes that were to come.
        wanted: usize,
        /// Time that the server waited.
        seconds: u64,
        /// Answer to those that were refused, or advice.
        hint: String,
    },
}

/// A load process that takes part.
#[derive(Debug)]
struct Member {
    host: String,
    link: Link,
}

/// The server.
#[derive(Debug)]
pub struct Hub {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
    members: Vec<Member>,
    /// Time in which a report must come after the end of a run.
    patience: Duration,
}

impl Hub {
    /// Listens on `address`; port 0 is any that is free. Who joins must know `token`.
    ///
    /// # Errors
    /// [`HubError::Listen`].
    pub fn listen(address: &str, token: &str) -> Result<Self, HubError> {
        let failed = |error| HubError::Listen { address: address.to_owned(), error };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address: local,
            token: token.to_owned(),
            members: Vec::new(),
            patience: REPORT,
        })
    }

    /// The same, with another time than 20 s that reports may take after the end of a run.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until `wanted` processes take part, all together.
    ///
    /// # Errors
    /// [`HubError::Missing`] when they do not come.
    pub fn gather(&mut self, wanted: usize, patience: Duration) -> Result<(), HubError> {
        let begun = Instant::now();
        let mut refused = None;
        while self.members.len() < wanted {
            match self.listener.accept() {
                Ok((stream, from)) => match self.greet(stream, from) {
                    Ok(member) => self.members.push(member),
                    Err(why) => refused = Some(why),
                },
                Err(_) if begun.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(_) => {
                    return Err(HubError::Missing {
                        missing: wanted - self.members.len(),
                        wanted,
                        seconds: patience.as_secs(),
                        hint: refused.unwrap_or_else(|| {
                            format!(
                                "start `convoy bench tls --join {} --token …` on their hosts",
                                self.address
                            )
                        }),
                    });
                }
            }
        }
        Ok(())
    }

    /// Lets a process take part, or tells it why it may not.
    fn greet(&self, stream: TcpStream, from: SocketAddr) -> Result<Member, String> {
        let mut link = Link::new(stream).map_err(|error| error.to_string())?;
        let hello = link.hear(GREETING, GREETING_MAX);
        let why = match hello {
            Ok(Said::Hello { protocol, .. }) if protocol != PROTOCOL => {
                format!("it is {protocol:?}, this is {PROTOCOL:?}: use one version on all hosts")
            }
            Ok(Said::Hello { token, .. }) if !is_same(&token, &self.token) => {
                "its token is wrong: use the one that this command printed".to_owned()
            }
            Ok(Said::Hello { host, .. }) => {
                let host = format!("{host} ({from})");
                link.say(&Told::Welcome).map_err(|error| format!("{host}: {error}"))?;
                return Ok(Member { host, link });
            }
            Ok(_) => "it did not introduce itself".to_owned(),
            Err(error) => error.to_string(),
        };
        // Whether it hears that is its own affair.
        let _ = link.say(&Told::Refused(why.clone()));
        Err(format!("{from} was refused: {why}"))
    }

    /// Has all processes do `job`, its connections divided among them, and adds up what they saw.
    ///
    /// # Errors
    /// [`HubError::Void`].
    pub fn run(&mut self, job: &Job) -> Result<Tally, HubError> {
        let many = self.members.len();
        let share = |at: usize| job.connections / many + usize::from(at < job.connections % many);
        let mut working: Vec<&mut Member> = Vec::new();
        for (at, member) in self.members.iter_mut().enumerate() {
            if share(at) == 0 {
                continue;
            }
            let part = Job { connections: share(at), ..job.clone() };
            member.say(&Told::Prepare(Box::new(part)))?;
            working.push(member);
        }
        for member in &mut working {
            match member.hear(SETTING_UP)? {
                Said::Ready => {}
                Said::Unable(why) => return Err(member.void(format!("cannot: {why}"))),
                _ => return Err(member.void("said something else than that it is ready")),
            }
        }
        for member in &mut working {
            member.say(&Told::Go)?;
        }
        let begun = Instant::now();
        let end = Duration::from_secs_f64(job.seconds) + self.patience;
        let mut sum = Tally::default();
        for member in &mut working {
            match member.hear(end.saturating_sub(begun.elapsed()))? {
                Said::Done(tally) => sum.add(*tally),
                Said::Unable(why) => return Err(member.void(format!("failed: {why}"))),
                _ => return Err(member.void("said something else than its report")),
            }
        }
        Ok(sum)
    }
}

impl Member {
    fn say(&mut self, told: &Told) -> Result<(), HubError> {
        self.link.say(told).map_err(|error| self.void(format!("has gone: {error}")))
    }

    fn hear(&mut self, patience: Duration) -> Result<Said, HubError> {
        self.link.hear(patience, REPORT_MAX).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                self.void(format!("does not answer within {:.0} s", patience.as_secs_f64()))
            }
            _ => self.void(format!("has gone: {error}")),
        })
    }

    fn void(&self, what: impl Into<String>) -> HubError {
        HubError::Void { host: self.host.clone(), what: what.into() }
    }
}

/// One end of a connection with lines of JSON.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, reader })
    }

    pub(super) fn say(&mut self, what: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_string(what)?;
        line.push('\n');
        self.stream.set_write_timeout(Some(REPORT))?;
        self.stream.write_all(line.as_bytes())
    }

    /// The next thing that is said, of at most `most` bytes.
    pub(super) fn hear<T: DeserializeOwned>(
        &mut self,
        patience: Duration,
        most: u64,
    ) -> io::Result<T> {
        let patience = patience.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(patience))?;
        let mut line = String::new();
        let len = (&mut self.reader).take(most).read_line(&mut line)?;
        match line.strip_suffix('\n') {
            Some(line) => Ok(serde_json::from_str(line)?),
            None if len as u64 == most => Err(io::Error::other(format!("more than {most} bytes"))),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// True if two tokens are the same, in a time that does not tell where they differ.
fn is_same(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    one.len() == other.len() && pairs.fold(0, |sum, (one, other)| sum | (one ^ other)) == 0
}
