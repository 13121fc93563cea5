//! Hearing of changes to links, addresses, routes and neighbours.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    time::Duration,
};

use netlink_packet_core::NetlinkMessage;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::HostError;

/// `RTNLGRP_LINK`, `_NEIGH`, `_IPV4_IFADDR`, `_IPV4_ROUTE`, `_IPV4_RULE`, `_IPV6_IFADDR`,
/// `_IPV6_ROUTE`, `_IPV6_RULE`.
const GROUPS: [u32; 8] = [1, NEIGHBOURS, 5, 7, 8, 9, 11, 19];
const NEIGHBOURS: u32 = 3;
const HEADER_LEN: usize = 16;

/// Changes since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct News {
    /// An interface or an address.
    pub links: bool,
    /// A route, or a rule that leads to a table of routes.
    pub routes: bool,
    /// A neighbour.
    pub neighbours: bool,
}

impl News {
    /// Everything may have changed.
    pub const ALL: Self = Self { links: true, routes: true, neighbours: true };

    /// True if anything has changed.
    #[must_use]
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// Hears of changes in the network namespace of the thread which opened it.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
}

impl Watch {
    /// Begins to listen. Look around after this, so that nothing is missed.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn open() -> Result<Self, HostError> {
        Self::listen().map_err(HostError::Netlink)
    }

    fn listen() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self { socket })
    }

    /// Waits until something changes, one of `also` can be read or has ended, or `limit` is over.
    ///
    /// # Errors
    /// Fails if the kernel has no memory to wait.
    pub fn wait(&self, also: &[BorrowedFd<'_>], limit: Duration) -> io::Result<()> {
        let all = core::iter::once(self.socket.as_fd()).chain(also.iter().copied());
        let mut fds: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let limit = u16::try_from(limit.as_millis()).unwrap_or(u16::MAX);
        match poll(&mut fds, PollTimeout::from(limit)) {
            Err(nix::errno::Errno::EINTR) | Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes since the last call, without waiting.
    ///
    /// # Errors
    /// [`HostError::Netlink`] when the socket is of no more use.
    pub fn news(&mut self) -> Result<News, HostError> {
        let mut news = News::default();
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, _)) => note(&datagram, &mut news),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(news),
                    io::ErrorKind::Interrupted => {}
                    // More had changed than the socket could hold.
                    _ if error.raw_os_error() == Some(nix::libc::ENOBUFS) => news = News::ALL,
                    _ => return Err(HostError::Netlink(error)),
                },
            }
        }
    }
}

/// Hears that addresses of this host, or what decides which ones it has, may have changed, in the network namespace of the
/// thread which opened it.
#[derive(Debug)]
pub struct AddressWatch {
    socket: Socket,
    datagram: Vec<u8>,
}

impl AddressWatch {
    /// Begins to listen. Look around after this, so that nothing is missed. Routes of this origin (`proto` in `ip route`)
    /// lead to no address of this host.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn open(but_routes_of: u8) -> Result<Self, HostError> {
        let listen = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            // Without the filter there is more to hear.
            let _ = convoy_netlink::leave_out_routes_of(&socket, but_routes_of);
            socket.bind(&SocketAddr::new(0, 0))?;
            for group in GROUPS.into_iter().filter(|group| *group != NEIGHBOURS) {
                socket.add_membership(group)?;
            }
            Ok(Self { socket, datagram: Vec::new() })
        };
        listen().map_err(HostError::Netlink)
    }

    /// True if anything may have changed since the last call. A change that somebody made before this call is known.
    pub fn has_news(&mut self) -> bool {
        let mut has_news = false;
        loop {
            self.datagram.clear();
            // That there is something is enough.
            self.datagram.reserve(HEADER_LEN);
            match self.socket.recv(&mut self.datagram, nix::libc::MSG_DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return has_news,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => has_news = true,
                // It is of no more use.
                Err(_) => return true,
                Ok(_) => has_news = true,
            }
        }
    }
}

/// Notes what kinds of messages are in a datagram.
pub(crate) fn note(datagram: &[u8], news: &mut News) {
    let mut rest = datagram;
    while rest.len() >= HEADER_LEN {
        let Ok(message) = NetlinkMessage::<Message>::deserialize(rest) else {
            // What this library cannot read may be anything.
            *news = News::ALL;
            return;
        };
        let length = (message.header.length as usize).next_multiple_of(4);
        rest = rest.get(length.max(HEADER_LEN)..).unwrap_or_default();
        let netlink_packet_core::NetlinkPayload::InnerMessage(inner) = message.payload else {
            continue;
        };
        match inner {
            Message::NewNeighbour(_) | Message::DelNeighbour(_) => news.neighbours = true,
            Message::NewRoute(_)
            | Message::DelRoute(_)
            | Message::NewRule(_)
            | Message::DelRule(_) => news.routes = true,
            _ => news.links = true,
        }
    }
}
