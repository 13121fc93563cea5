//! Sharing a UDP port with an IKE daemon.
//!
//! IKE and ESP in UDP come to one port (RFC 3948 section 2). The daemon has a socket for it and each
//! worker one more, all with `SO_REUSEPORT`, and a program in the kernel gives each datagram to the
//! one it is for:
//!
//! | payload                                     | goes to                              |
//! |---------------------------------------------|--------------------------------------|
//! | four zero bytes, or fewer than four bytes    | the daemon                           |
//! | one byte 0xff, a NAT keepalive               | the first worker, which drops it: as with the kernel's `UDP_ENCAP`, daemons do not see them |
//! | anything else: an SPI                        | worker SPI modulo their number       |
//!
//! Whose socket is not there loses its datagrams (the kernel answers "port unreachable"); none ever
//! goes to another. The program stays with the group of sockets: while Convoy is away, ESP does not
//! reach the daemon.
//!
//! Sockets share a port, and are a group, if they are of one family, bound to one address, port and
//! device, and owned by one user; those of IPv6 must be for IPv6 only. A socket that is bound to one address takes
//! all that is sent there from those bound to any: beside a daemon that has such sockets there must be
//! a group at each of their addresses ([`Config::beside`](super::Config::beside)).
//!
//! Without the right to load programs (`CAP_BPF` and `CAP_NET_ADMIN`), or before Linux 4.19, there is a
//! classic program in its place ([`Form::Classic`]), which knows sockets by their order of binding. It
//! cannot drop: IKE without a daemon comes to a worker, and ESP without Convoy to the daemon, which
//! makes nothing of it. When a socket goes and until the next is given, some datagrams of other
//! workers, or of the daemon if Convoy came first, go to the wrong one. If the daemon had several
//! sockets at the address before Convoy came, which is which is a guess.

mod order;
mod program;

use core::net::SocketAddr;
use core::time::Duration;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, fchown};
use std::time::Instant;
use std::{io, thread};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use self::order::{Order, sockets_at};
use crate::IoError;
use crate::sys::{
    attach_program, load_selector, put_shared, remove_shared, set_int, shared_cookie,
    shared_sockets,
};

/// The key of the daemon's socket; workers' follow.
const DAEMON: u32 = 0;
/// Longest time that a socket may be held by the program of a Convoy that went.
const LET_GO: Duration = Duration::from_secs(10);

/// Kind of program that steers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Extended BPF: knows each socket, whenever it came.
    Extended,
    /// Classic BPF: knows sockets by their order, and cannot drop.
    Classic,
}

/// Effect of [`Steering::give`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// IKE goes to this socket from now on.
    Now,
    /// It did so before.
    Before,
}

/// A socket cannot have the IKE datagrams of a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// Not a socket of UDP.
    #[error("the descriptor handed over is no UDP socket")]
    NotUdp,
    /// Bound to another address or port, or to none.
    #[error("the socket handed over is bound to {theirs}, and the port is shared at {ours}")]
    Elsewhere {
        /// Address that it is bound to; port 0 when it is not.
        theirs: SocketAddr,
        /// Address at which this port is shared.
        ours: SocketAddr,
    },
    /// Bound to another device, or to one where the others are not.
    #[error("the socket handed over is bound to another device than the gateway's sockets")]
    Device,
    /// It is bound to any IPv6 address without `IPV6_V6ONLY`.
    #[error("the socket handed over is for IPv4 as well as IPv6 and cannot share its port")]
    OnlyV6,
    /// Another open socket has them.
    #[error("another open socket at {0} already receives the port's IKE datagrams")]
    Taken(SocketAddr),
    /// The kernel does not count the socket among those that share the port.
    #[error("the socket at {0} does not share its port")]
    Alone(SocketAddr),
}

impl SteerError {
    /// The nearest error number.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotUdp => libc::ENOPROTOOPT,
            Self::Elsewhere { .. } => libc::EADDRNOTAVAIL,
            Self::Taken(_) => libc::EBUSY,
            Self::Device | Self::OnlyV6 | Self::Alone(_) => libc::EINVAL,
        }
    }
}

/// The program that steers the datagrams of one group of sockets, and what it knows of them. The
/// program outlives this value.
#[derive(Debug)]
pub struct Steering {
    local: SocketAddr,
    device: Option<Vec<u8>>,
    by: By,
}

#[derive(Debug)]
enum By {
    Map(OwnedFd),
    Places {
        order: Order,
        /// Inodes.
        workers: Vec<u64>,
        daemon: Option<u64>,
    },
}

/// Identity of a socket, and its owner.
pub(super) struct Fact {
    pub(super) inode: u64,
    owner: u32,
}

pub(super) fn fact_of(fd: &impl AsFd) -> io::Result<Fact> {
    let about = File::from(fd.as_fd().try_clone_to_owned()?).metadata()?;
    Ok(Fact { inode: about.ino(), owner: about.uid() })
}

/// The address a UDP socket is bound to; port 0 when it is not.
///
/// # Errors
/// [`SteerError::NotUdp`].
pub fn bound_to(fd: BorrowedFd<'_>) -> Result<SocketAddr, IoError> {
    let socket = SockRef::from(&fd);
    let is_udp = socket.r#type().is_ok_and(|t| t == Type::DGRAM)
        && socket.protocol().is_ok_and(|p| p == Some(Protocol::UDP))
        && socket.domain().is_ok_and(|d| [Domain::IPV4, Domain::IPV6].contains(&d));
    let local = if is_udp { socket.local_addr().ok().and_then(|a| a.as_socket()) } else { None };
    local.ok_or(IoError::Steer(SteerError::NotUdp))
}

/// Makes a socket one of this process's user, who needs `CAP_CHOWN` for that ([`take_over`]).
pub type TakeOver<'a> = &'a dyn Fn(BorrowedFd<'_>) -> io::Result<()>;

/// Lets a socket share its port with sockets of this process: `SO_REUSEPORT`, and the same owner, by
/// `take_over` if it is another one. A daemon of another user can bind a port that Convoy holds only if this
/// was done before.
///
/// # Errors
/// [`SteerError::NotUdp`], or [`IoError::Setup`] when the owner cannot be changed.
pub fn make_shareable(fd: BorrowedFd<'_>, take_over: TakeOver<'_>) -> Result<(), IoError> {
    bound_to(fd)?;
    SockRef::from(&fd)
        .set_reuse_port(true)
        .map_err(IoError::setup("share the port of the socket handed over"))?;
    let step = "change the owner of the socket handed over";
    let ours = own_user().map_err(IoError::setup(step))?;
    if fact_of(&fd).map_err(IoError::setup(step))?.owner != ours {
        take_over(fd).map_err(IoError::setup(step))?;
    }
    Ok(())
}

/// Gives a UDP socket this owner, as [`own_user`] says it. Needs `CAP_CHOWN`.
///
/// # Errors
/// Fails if it is no UDP socket, or without that right.
pub fn take_over(fd: BorrowedFd<'_>, user: u32) -> io::Result<()> {
    bound_to(fd).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    fchown(fd, Some(user), None)
}

/// The owner of sockets that this process opens. The kernel compares owners of sockets, so that of a fresh
/// one says who we are.
///
/// # Errors
/// Fails if no socket can be opened.
pub fn own_user() -> io::Result<u32> {
    let open = |domain| Socket::new(domain, Type::DGRAM, Some(Protocol::UDP));
    let own = open(Domain::IPV4).or_else(|_| open(Domain::IPV6))?;
    fact_of(&own).map(|fact| fact.owner)
}

/// User that owns a socket.
///
/// # Errors
/// Fails if the kernel does not tell.
pub fn owner_of(fd: BorrowedFd<'_>) -> io::Result<u32> {
    fact_of(&fd).map(|fact| fact.owner)
}

impl Steering {
    /// Prepares to steer for so many workers, whose sockets are to be opened next.
    pub(super) fn prepare(workers: u16, form: Form) -> Unopened {
        let map = match form {
            Form::Classic => None,
            // Whatever the reason is that there can be no such program: there is another.
            Form::Extended => shared_sockets(u32::from(workers) + 1).ok().and_then(|map| {
                let program = load_selector(&program::extended(map.as_fd(), workers)).ok()?;
                Some((map, program))
            }),
        };
        Unopened { map, order: Order::default(), workers: Vec::new() }
    }

    /// The address that is shared.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Kind of program that steers here.
    #[must_use]
    pub fn form(&self) -> Form {
        match self.by {
            By::Map(_) => Form::Extended,
            By::Places { .. } => Form::Classic,
        }
    }

    /// Has IKE go to this socket of a daemon, which was made shareable ([`make_shareable`]). The
    /// descriptor is not kept: when the daemon closes the socket, its place is free. The same socket may
    /// be given again.
    ///
    /// Waits up to ten seconds if the kernel has not yet put away what steered before. Form
    /// [`Form::Classic`] reads the list of sockets of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`SteerError`], or [`IoError::Setup`] when the kernel refuses.
    pub fn give(&mut self, fd: BorrowedFd<'_>) -> Result<Given, IoError> {
        self.check(fd)?;
        let step = "steer to the socket handed over";
        match &mut self.by {
            By::Map(map) => put_daemon(map.as_fd(), self.local, fd),
            By::Places { order, workers, daemon } => {
                let alive = sockets_at(self.local).map_err(IoError::setup(step))?;
                let inode = fact_of(&fd).map_err(IoError::setup(step))?.inode;
                if daemon.is_some_and(|known| known != inode && alive.contains(&known)) {
                    return Err(SteerError::Taken(self.local).into());
                }
                order.follow(&alive);
                attach_classic(fd, order, Some(inode), workers).map_err(IoError::setup(step))?;
                let given = if *daemon == Some(inode) { Given::Before } else { Given::Now };
                *daemon = Some(inode);
                Ok(given)
            }
        }
    }

    /// Has IKE no longer go to this socket, and says whether it did. ESP goes to the workers as before;
    /// only when their sockets are closed and the program gone does a daemon's socket get everything.
    ///
    /// # Errors
    /// [`SteerError`], or [`IoError::Setup`] when the kernel refuses.
    pub fn take_back(&mut self, fd: BorrowedFd<'_>) -> Result<bool, IoError> {
        self.check(fd)?;
        let step = "remove a socket from the steering program";
        match &mut self.by {
            By::Map(map) => {
                let cookie = SockRef::from(&fd).cookie().map_err(IoError::setup(step))?;
                if shared_cookie(map.as_fd(), DAEMON).ok() != Some(cookie) {
                    return Ok(false);
                }
                remove_shared(map.as_fd(), DAEMON).map_err(IoError::setup(step))?;
            }
            By::Places { order, workers, daemon } => {
                let inode = fact_of(&fd).map_err(IoError::setup(step))?.inode;
                if *daemon != Some(inode) {
                    return Ok(false);
                }
                order.follow(&sockets_at(self.local).map_err(IoError::setup(step))?);
                attach_classic(fd, order, None, workers).map_err(IoError::setup(step))?;
                *daemon = None;
            }
        }
        Ok(true)
    }

    /// True if a socket of a daemon has the IKE datagrams now.
    #[must_use]
    pub fn has_daemon(&self) -> bool {
        match &self.by {
            By::Map(map) => shared_cookie(map.as_fd(), DAEMON).is_ok(),
            By::Places { daemon, .. } => daemon.is_some_and(|inode| {
                sockets_at(self.local).is_ok_and(|alive| alive.contains(&inode))
            }),
        }
    }

    /// Refuses a socket that cannot be one of the group.
    fn check(&self, fd: BorrowedFd<'_>) -> Result<(), SteerError> {
        let theirs = bound_to(fd).map_err(|_| SteerError::NotUdp)?;
        let socket = SockRef::from(&fd);
        if (theirs.ip(), theirs.port()) != (self.local.ip(), self.local.port()) {
            return Err(SteerError::Elsewhere { theirs, ours: self.local });
        }
        if socket.device().ok() != Some(self.device.clone()) {
            return Err(SteerError::Device);
        }
        if theirs.is_ipv6() && !socket.only_v6().unwrap_or(false) {
            return Err(SteerError::OnlyV6);
        }
        Ok(())
    }
}

/// Puts a daemon's socket in its place, unless there is another.
fn put_daemon(
    map: BorrowedFd<'_>,
    local: SocketAddr,
    fd: BorrowedFd<'_>,
) -> Result<Given, IoError> {
    let step = "steer to the socket handed over";
    let cookie = SockRef::from(&fd).cookie().map_err(IoError::setup(step))?;
    let begin = Instant::now();
    loop {
        let error = match put_shared(map, DAEMON, fd) {
            Ok(()) => return Ok(Given::Now),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::EEXIST) => match shared_cookie(map, DAEMON) {
                Ok(known) if known == cookie => return Ok(Given::Before),
                Ok(_) => return Err(SteerError::Taken(local).into()),
                // Closed at this moment.
                Err(_) => {}
            },
            // In the map of a program that is being put away.
            Some(libc::EBUSY) => {}
            Some(libc::EINVAL) => return Err(SteerError::Alone(local).into()),
            _ => return Err(IoError::Setup { step, source: error }),
        }
        if begin.elapsed() >= LET_GO {
            return Err(IoError::Setup { step, source: error });
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn attach_classic(
    fd: BorrowedFd<'_>,
    order: &Order,
    daemon: Option<u64>,
    workers: &[u64],
) -> io::Result<()> {
    let places: Vec<_> = workers.iter().filter_map(|inode| order.place(*inode)).collect();
    let program = program::classic(daemon.and_then(|inode| order.place(inode)), &places);
    attach_program(fd, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// A [`Steering`] whose workers' sockets are being opened.
pub(super) struct Unopened {
    /// With the program.
    map: Option<(OwnedFd, OwnedFd)>,
    order: Order,
    workers: Vec<u64>,
}

impl Unopened {
    /// Before the first socket is bound: notes who is there already.
    pub(super) fn before(&mut self, local: SocketAddr) -> Result<(), IoError> {
        if self.map.is_none() && local.port() != 0 {
            let there = sockets_at(local).map_err(IoError::setup("list the udp sockets"))?;
            self.order.follow(&there);
        }
        Ok(())
    }

    /// The next worker's socket is bound to `local`: from now on what is for it comes.
    pub(super) fn add(&mut self, socket: &Socket, local: SocketAddr) -> Result<(), IoError> {
        self.try_add(socket, local).map_err(IoError::setup("steer the datagrams of a shared port"))
    }

    fn try_add(&mut self, socket: &Socket, local: SocketAddr) -> io::Result<()> {
        let fd = socket.as_fd();
        let fact = fact_of(socket)?;
        self.workers.push(fact.inode);
        match &self.map {
            Some((map, program)) => {
                let name = libc::SO_ATTACH_REUSEPORT_EBPF;
                if self.workers.len() == 1 {
                    set_int(fd, libc::SOL_SOCKET, name, program.as_raw_fd())?;
                }
                put_shared(map.as_fd(), self.workers.len() as u32, fd)
            }
            None => {
                self.order.follow(&sockets_at(local)?);
                attach_classic(fd, &self.order, None, &self.workers)
            }
        }
    }

    /// All sockets are open; `like` is one of them.
    pub(super) fn finish(self, like: &Socket, local: SocketAddr) -> Result<Steering, IoError> {
        let device = like.device().map_err(IoError::setup("look at a udp socket"))?;
        let by = match self.map {
            Some((map, _)) => By::Map(map),
            None => By::Places { order: self.order, workers: self.workers, daemon: None },
        };
        Ok(Steering { local, device, by })
    }
}
