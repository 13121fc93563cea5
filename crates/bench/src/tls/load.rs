//! A load process: many connections on one thread, each of which fetches the file and begins again.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};

use super::connection::{Connection, Moment, Setting};
use super::job::{Job, Tally};
use crate::peer::libssl::{Client, ClientError, LibSsl};

/// Bytes that are read at once.
const BUFFER: usize = 256 << 10;
/// Most extra time of a run in which nothing has come yet, good or bad.
const LATE: Duration = Duration::from_secs(5);
/// Interval between looks at connections that say nothing.
const LOOK: Duration = Duration::from_millis(250);
/// Events that are taken at once.
const EVENTS: usize = 256;

/// No run took place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(#[from] ClientError),
    /// The server's name means nothing.
    #[error("the server {server:?} cannot be found: {error}")]
    Server {
        /// As it was given.
        server: String,
        /// The resolver's error.
        error: io::Error,
    },
    /// Another program does not do what it is there for.
    #[error("{program} has not given {what}: {error}", program = super::apache_bench::PROGRAM)]
    Program {
        /// Output that is missing.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The kernel refused something.
    #[error("{what}: {error}")]
    Kernel {
        /// Facility of the kernel.
        what: &'static str,
        /// The kernel's error.
        error: nix::Error,
    },
}

/// A run that is set up; it begins with [`Load::run`].
#[derive(Debug)]
pub struct Load {
    job: Job,
    server: SocketAddr,
    client: Client,
    epoll: Epoll,
}

impl Load {
    /// Sets everything up, so that the run can begin at once.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn new(library: &Rc<LibSsl>, job: Job) -> Result<Self, LoadError> {
        let not_found = |error| LoadError::Server { server: job.server.clone(), error };
        let mut found = job.server.to_socket_addrs().map_err(not_found)?;
        let none = || not_found(io::Error::from(ErrorKind::AddrNotAvailable));
        let server = found.next().ok_or_else(none)?;
        let cipher = &job.cipher;
        let client = Client::new(library, cipher.version, &cipher.name, cipher.encrypt_then_mac)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|error| LoadError::Kernel { what: "epoll", error })?;
        Ok(Self { job, server, client, epoll })
    }

    /// Fetches until the time is over. Connections that have failed begin again, too, so that the number at
    /// once stays what it is.
    ///
    /// # Errors
    /// [`LoadError`] when the kernel refuses to wait.
    pub fn run(self) -> Result<Tally, LoadError> {
        let begun = Instant::now();
        let cpu = cpu_seconds(UsageWho::RUSAGE_SELF);
        let mut run = Run {
            setting: Setting::of(&self.job),
            load: &self,
            slots: Vec::new(),
            tally: Tally::default(),
            started: 0,
            buffer: vec![0; BUFFER],
        };
        for at in 0..self.job.connections {
            let slot = run.begin(at);
            run.slots.push(slot);
        }
        let end = begun + Duration::from_secs_f64(self.job.seconds);
        let last = end + Duration::from_secs_f64(self.job.patience).min(LATE);
        let mut look = begun + LOOK;
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let now = Instant::now();
            // A host that others use may not have run the server yet.
            let has_nothing = run.tally.bytes == 0 && run.tally.failures.is_empty();
            if now >= end && !(has_nothing && now < last) {
                break;
            }
            let until = if now < end { end.min(look) } else { look }.saturating_duration_since(now);
            let wait = EpollTimeout::try_from(until + Duration::from_millis(1));
            let n = match self.epoll.wait(&mut events, wait.unwrap_or(EpollTimeout::ZERO)) {
                Err(nix::Error::EINTR) => 0,
                outcome => outcome.map_err(|error| LoadError::Kernel { what: "epoll", error })?,
            };
            for event in &events[..n] {
                run.go_on(event.data() as usize);
            }
            if Instant::now() >= look {
                run.give_up();
                look = Instant::now() + LOOK;
            }
        }
        let mut tally = run.finish();
        tally.seconds = begun.elapsed().as_secs_f64();
        tally.cpu_seconds = cpu_seconds(UsageWho::RUSAGE_SELF) - cpu;
        Ok(tally)
    }

    /// A socket on its way to the server.
    fn connect(&self) -> nix::Result<TcpStream> {
        let address = SockaddrStorage::from(self.server);
        let family = if self.server.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(family, SockType::Stream, flags, None)?;
        match connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &address) {
            Ok(()) | Err(nix::Error::EINPROGRESS) => Ok(TcpStream::from(socket)),
            Err(error) => Err(error),
        }
    }
}

/// A run under way.
struct Run<'a> {
    load: &'a Load,
    setting: Setting,
    slots: Vec<Slot>,
    tally: Tally,
    /// Connections that were begun.
    started: usize,
    buffer: Vec<u8>,
}

/// One of the connections at once. TLS goes before the socket that it uses.
struct Slot {
    connection: Option<Connection>,
    socket: Option<TcpStream>,
    begun: Instant,
    heard: Instant,
}

impl Run<'_> {
    /// Begins a connection in a slot.
    fn begin(&mut self, at: usize) -> Slot {
        let verify = self.started.is_multiple_of(self.load.job.verify_every.max(1));
        self.started += 1;
        let now = Instant::now();
        let mut slot = Slot { connection: None, socket: None, begun: now, heard: now };
        let set_up = || -> Result<(TcpStream, Connection), String> {
            let socket =
                self.load.connect().map_err(|error| format!("connect: {}", error.desc()))?;
            let tls = self.load.client.connection(&socket).map_err(|error| error.to_string())?;
            let connection = Connection::new(tls, verify);
            let event = EpollEvent::new(interest(&connection), at as u64);
            let added = self.load.epoll.add(socket.as_fd(), event);
            added.map_err(|error| format!("epoll: {}", error.desc()))?;
            Ok((socket, connection))
        };
        match set_up() {
            Ok((socket, connection)) => {
                (slot.socket, slot.connection) = (Some(socket), Some(connection));
            }
            // The next look begins it again.
            Err(why) => self.fail(why),
        }
        slot
    }

    fn fail(&mut self, why: String) {
        *self.tally.failures.entry(why).or_default() += 1;
    }

    /// Does what the socket of a slot allows.
    fn go_on(&mut self, at: usize) {
        let Some(Slot { connection: Some(connection), socket: Some(socket), begun, heard }) =
            self.slots.get_mut(at)
        else {
            return;
        };
        let (mut over, mut why) = (false, None);
        let since =
            |begun: &Instant| u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
        let wanted_write = connection.wants_write();
        let (tally, buffer) = (&mut self.tally, &mut self.buffer);
        let outcome = connection.go_on(&self.setting, buffer, socket, |moment| match moment {
            Moment::Connected => tally.connect.push(since(begun)),
            Moment::Agreed(cipher) => *tally.ciphers.entry(cipher).or_default() += 1,
            Moment::FirstByte => tally.first_byte.push(since(begun)),
            Moment::Bytes(bytes) => {
                tally.bytes += bytes;
                *heard = Instant::now();
            }
        });
        match outcome {
            Ok(false) => {}
            Ok(true) => over = true,
            Err(error) => why = Some(error),
        }
        if over {
            self.tally.files += 1;
            self.tally.verified += u64::from(connection.is_verified());
            self.tally.whole.push(since(begun));
        }
        if connection.wants_write() != wanted_write {
            let mut event = EpollEvent::new(interest(connection), at as u64);
            let _ = self.load.epoll.modify(socket.as_fd(), &mut event);
        }
        self.tally.records += connection.take_records();
        self.tally.encrypt_then_mac =
            self.tally.encrypt_then_mac.or_else(|| connection.encrypt_then_mac());
        if let Some(why) = why {
            self.fail(why);
            over = true;
        }
        if over {
            self.slots[at] = self.begin(at);
        }
    }

    /// Ends connections that have been silent for too long, and begins those again that could not begin.
    fn give_up(&mut self) {
        let patience = Duration::from_secs_f64(self.load.job.patience);
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if slot.connection.is_none() {
                self.slots[at] = self.begin(at);
            } else if slot.heard.elapsed() > patience {
                self.fail(format!("nothing was heard for {:.1} s", self.load.job.patience));
                self.slots[at] = self.begin(at);
            }
        }
    }

    /// Ends. A connection that still waits took at least as long as it has waited: where one does so for
    /// longer than any took, that is told.
    fn finish(self) -> Tally {
        let mut tally = self.tally;
        let waits = |is: fn(&Connection) -> bool| {
            let waiting = self.slots.iter().filter(|slot| slot.connection.as_ref().is_some_and(is));
            let waited = waiting.map(|slot| slot.begun.elapsed().as_micros()).max();
            waited.map_or(0, |waited| u32::try_from(waited).unwrap_or(u32::MAX))
        };
        for (waited, list) in [
            (waits(|connection| !connection.is_connected()), &mut tally.connect),
            (waits(|connection| !connection.has_first_byte()), &mut tally.first_byte),
            (waits(|_| true), &mut tally.whole),
        ] {
            if waited > list.iter().copied().max().unwrap_or(0) {
                list.push(waited);
            }
        }
        tally
    }
}

/// Event that a connection waits for.
fn interest(connection: &Connection) -> EpollFlags {
    if connection.wants_write() { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN }
}

/// Processor time of this process, or of those that it started and waited for, seconds.
pub(super) fn cpu_seconds(who: UsageWho) -> f64 {
    use nix::sys::time::TimeValLike as _;
    getrusage(who).map_or(0.0, |usage| {
        (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6
    })
}
