//! Common parts of the wire ports: options of sockets and the data that comes with each message.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Instant;

use socket2::Socket;

use crate::IoError;
use crate::ancillary::{int, items, small};
use crate::outer::TTL;
use crate::sys::{self, DeviceName, set_int};

/// Longest time that one `tx` call waits for room in the socket buffer.
const SEND_TIMEOUT: Duration = Duration::from_millis(5);
/// Pause when the queue of the device, not that of the socket, was full: nothing signals its end.
const PAUSE: Duration = Duration::from_micros(100);

/// Longest time that an IPv6 address may take to come into use.
const ADDRESS_APPEARS: Duration = Duration::from_secs(2);

/// Options that apply to every socket of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Only packets from and to this device.
    pub device: Option<String>,
    /// Firewall mark of all packets sent, so that policy routing can keep them out of the tunnel.
    pub mark: Option<u32>,
    /// Size asked for of the send and receive buffers in bytes each; without `CAP_NET_ADMIN` the
    /// kernel grants at most `net.core.rmem_max` and `wmem_max`.
    pub buffer_bytes: usize,
}

impl Default for SocketOptions {
    /// Any device, no mark, 16 MiB.
    fn default() -> Self {
        Self { device: None, mark: None, buffer_bytes: 16 << 20 }
    }
}

/// Sets everything that all wire sockets need. `v6` is the socket's family.
///
/// Anyone can make up an ICMP message that says a path is narrow; an SA asks for a packet of its own in it,
/// the kernel does not. So over IPv4 the kernel neither takes such news from these sockets into its routes
/// nor cuts what they send by it (`IP_PMTUDISC_OMIT`), and tells it in the error queue all the same. Over
/// IPv6, UDP sockets would receive nothing more then, and raw ones would not differ: `IPV6_PMTUDISC_PROBE`
/// sends as if the kernel had not taken it.
pub(crate) fn prepare(socket: &Socket, options: &SocketOptions, v6: bool) -> Result<(), IoError> {
    let fd = socket.as_fd();
    socket.set_nonblocking(true).map_err(IoError::setup("make the socket non-blocking"))?;
    if let Some(device) = &options.device {
        let name = DeviceName::new(device)?;
        socket
            .bind_device(Some(name.as_str().as_bytes()))
            .map_err(IoError::setup("bind the socket to its device"))?;
    }
    if let Some(mark) = options.mark {
        socket.set_mark(mark).map_err(IoError::setup("set the firewall mark of the socket"))?;
    }
    grow_buffers(fd, options.buffer_bytes).map_err(IoError::setup("set the socket's buffers"))?;
    let v4_options = [
        (libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
        (libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
        (libc::IPPROTO_IP, libc::IP_RECVTTL, 1),
        (libc::IPPROTO_IP, libc::IP_RECVERR, 1),
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT),
        (libc::IPPROTO_IP, libc::IP_TTL, i32::from(TTL)),
    ];
    let v6_options = [
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, i32::from(TTL)),
    ];
    let family = if v6 { v6_options } else { v4_options };
    let common = [(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)];
    for (level, name, value) in common.into_iter().chain(family) {
        set_int(fd, level, name, value).map_err(IoError::setup("set the socket's options"))?;
    }
    Ok(())
}

/// Binds, giving an IPv6 address time to appear: the kernel accepts one some milliseconds after it
/// was added, or longer while it looks for duplicates (RFC 4862 section 5.4).
pub(crate) fn bind(socket: &Socket, local: SocketAddr) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match socket.bind(&local.into()) {
            Err(error)
                if error.kind() == ErrorKind::AddrNotAvailable
                    && local.is_ipv6()
                    && begin.elapsed() < ADDRESS_APPEARS =>
            {
                thread::sleep(ADDRESS_APPEARS / 100);
            }
            outcome => return outcome,
        }
    }
}

/// The privileged options go beyond the limits of the system; the others are what is left.
pub(crate) fn grow_buffers(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    // The kernel doubles what it is given, for its own bookkeeping.
    let value = i32::try_from(bytes / 2).unwrap_or(i32::MAX);
    let pairs = [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)];
    for (forced, ordinary) in pairs {
        if set_int(fd, libc::SOL_SOCKET, forced, value).is_err() {
            set_int(fd, libc::SOL_SOCKET, ordinary, value)?;
        }
    }
    Ok(())
}

/// Data of the kernel about a received message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// The address of this host that the message was sent to.
    pub(crate) dst: Option<IpAddr>,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    /// Size of the datagrams in the message, if there are several.
    pub(crate) segment: Option<usize>,
    /// Messages dropped so far because the receive buffer was full; wraps around.
    pub(crate) drops: Option<u32>,
}

impl Meta {
    #[inline]
    pub(crate) fn parse(control: &[u8]) -> Self {
        let mut meta = Self::default();
        for (level, kind, data) in items(control) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    // Interface index, local address, destination in the header.
                    let dst = data.get(8..).and_then(<[u8]>::first_chunk::<4>);
                    meta.dst = dst.map(|d| Ipv4Addr::from(*d).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let dst = data.first_chunk::<16>();
                    meta.dst = dst.map(|d| Ipv6Addr::from(*d).into());
                }
                (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    meta.tos = small(data).unwrap_or(0);
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    meta.ttl = small(data).unwrap_or(0);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    meta.segment = int(data).and_then(|n| usize::try_from(n).ok());
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    meta.drops = data.first_chunk().map(|b| u32::from_ne_bytes(*b));
                }
                _ => {}
            }
        }
        meta
    }
}

/// Counts losses of the receive buffer from the kernel's running number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DropMeter(u32);

impl DropMeter {
    /// Number of losses since the last look.
    #[inline]
    pub(crate) fn advance(&mut self, drops: Option<u32>) -> u64 {
        let Some(now) = drops else { return 0 };
        let more = now.wrapping_sub(self.0);
        self.0 = now;
        u64::from(more)
    }
}

/// Treatment of a failed send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Waited; the same message may go now.
    Again,
    /// The way is still full: drop.
    Full,
    /// Too large for the link.
    TooBig,
    /// The device cannot send in segments.
    Segments,
    /// Something about the message is impossible: its segments, or its source address.
    Invalid,
    /// The packet filter drops it.
    Denied,
    /// Refused for another reason; perhaps one that concerned an earlier packet.
    Refused,
    /// The socket is of no more use.
    Dead,
}

impl Failure {
    /// The failure to deal with, or `error` if there is no dealing with it.
    pub(crate) fn or_dead(self, error: io::Error) -> io::Result<Self> {
        if self == Self::Dead { Err(error) } else { Ok(self) }
    }
}

/// Bounded waiting within one `tx` call.
#[derive(Debug, Default)]
pub(crate) struct SendWait {
    since: Option<Instant>,
}

impl SendWait {
    /// Sorts the error of a send call, and waits if that may help.
    pub(crate) fn judge(&mut self, fd: BorrowedFd<'_>, error: &io::Error) -> Failure {
        match (error.kind(), error.raw_os_error()) {
            (ErrorKind::Interrupted, _) => Failure::Again,
            (ErrorKind::WouldBlock, _) => self.wait(|left| sys::wait_writable(fd, left)),
            (_, Some(libc::ENOBUFS | libc::ENOMEM)) => self.wait(|_| thread::sleep(PAUSE)),
            (_, Some(libc::EMSGSIZE)) => Failure::TooBig,
            (_, Some(libc::EIO)) => Failure::Segments,
            (_, Some(libc::EPERM)) => Failure::Denied,
            (_, Some(libc::EINVAL)) => Failure::Invalid,
            (_, Some(libc::EBADF | libc::ENOTSOCK | libc::ENODEV)) => Failure::Dead,
            _ => Failure::Refused,
        }
    }

    fn wait(&mut self, wait: impl FnOnce(Duration)) -> Failure {
        let since = *self.since.get_or_insert_with(Instant::now);
        let left = SEND_TIMEOUT.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Failure::Full;
        }
        wait(left);
        Failure::Again
    }
}

/// True if a receive error is one that a live socket may report, such as a pending ICMP error.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL | libc::ENODEV)
    )
}
