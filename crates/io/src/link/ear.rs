//! Sockets that hear what the network says about packets which went out through an interface.
//!
//! ICMP messages are the kernel's, which gives them to whom they concern: the sockets of the
//! protocol or port that they quote. These sockets receive nothing else. Their presence also keeps
//! the kernel from answering "protocol unreachable" and "port unreachable" where it sees the
//! packets as well.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::{Interface, What, leave_all};
use crate::error_queue::ErrorQueue;
use crate::raw::{AH, ESP, spi_offset};
use crate::socket::{SocketOptions, prepare};
use crate::sys::attach_program;
use crate::{IoError, PortEvent};

/// Time between two looks at the error queues while receive calls come: nothing wakes a port for them.
const EVERY: Duration = Duration::from_millis(20);
/// Size of their queues in bytes; the kernel keeps at most so much of ICMP messages.
const BUFFER: usize = 1 << 16;

/// The sockets of one port.
#[derive(Debug, Default)]
pub(crate) struct Ears {
    sockets: Vec<(Socket, ErrorQueue)>,
    /// Time of the last look at the queues.
    looked: Option<Instant>,
}

impl Ears {
    /// Opens what the protected packets of `what` call for; nothing for the plain side.
    pub(crate) fn open(what: &What, interface: &Interface) -> Result<Self, IoError> {
        let What::Protected { local, esp, ah, udp_port } = what else { return Ok(Self::default()) };
        let mut sockets = Vec::new();
        for v4 in [true, false] {
            if !local.iter().any(|address| address.is_ipv4() == v4) {
                continue;
            }
            for (_, protocol) in [(*esp, ESP), (*ah, AH)].into_iter().filter(|(used, _)| *used) {
                let news = ErrorQueue::new(spi_offset(protocol));
                sockets.push((open(v4, interface, Kind::Raw(protocol))?, news));
            }
            if let Some(port) = udp_port {
                match open(v4, interface, Kind::Udp(*port)) {
                    Ok(socket) => sockets.push((socket, ErrorQueue::default())),
                    // Somebody else has the port, so the kernel is silent as well.
                    Err(IoError::Setup { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Self { sockets, looked: None })
    }

    /// True if there is anything to hear with.
    pub(crate) fn are_open(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// To be called once for each receive call.
    #[inline]
    pub(crate) fn tick(&mut self) {
        if self.are_open() && self.looked.is_none_or(|looked| looked.elapsed() >= EVERY) {
            self.looked = Some(Instant::now());
            self.listen();
        }
    }

    /// Lets the next [`Self::next`] look.
    pub(crate) fn listen(&mut self) {
        let news = std::io::Error::from(ErrorKind::Other);
        self.sockets.iter_mut().for_each(|(_, queue)| queue.signal(&news));
    }

    /// The next piece of news.
    pub(crate) fn next(&mut self) -> Option<PortEvent> {
        self.sockets.iter_mut().find_map(|(socket, queue)| queue.next(socket.as_fd()))
    }
}

/// Packets that a socket hears about.
#[derive(Clone, Copy)]
enum Kind {
    /// Packets of this IP protocol.
    Raw(u8),
    /// UDP from this port.
    Udp(u16),
}

fn open(v4: bool, interface: &Interface, kind: Kind) -> Result<Socket, IoError> {
    let domain = if v4 { Domain::IPV4 } else { Domain::IPV6 };
    let (style, protocol) = match kind {
        Kind::Udp(_) => (Type::DGRAM, Protocol::UDP),
        Kind::Raw(protocol) => (Type::RAW, Protocol::from(i32::from(protocol))),
    };
    let socket = Socket::new(domain, style, Some(protocol))
        .map_err(IoError::setup("open a socket for icmp messages"))?;
    attach_program(socket.as_fd(), libc::SO_ATTACH_FILTER, &leave_all())
        .map_err(IoError::setup("keep a socket for icmp messages empty"))?;
    let device = Some(interface.name.clone());
    prepare(&socket, &SocketOptions { device, buffer_bytes: BUFFER, mark: None }, !v4)?;
    if let Kind::Udp(port) = kind {
        let any: IpAddr =
            if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        if !v4 {
            socket
                .set_only_v6(true)
                .map_err(IoError::setup("keep a socket for icmp messages to ipv6"))?;
        }
        socket
            .bind(&SocketAddr::new(any, port).into())
            .map_err(IoError::setup("bind a socket for icmp messages"))?;
    }
    Ok(socket)
}
