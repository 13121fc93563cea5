//! The wire side behind NAT: ESP in UDP (RFC 3948).
//!
//! Frames hold whole IP packets: IP header, UDP header, payload. What the socket takes off is
//! written anew on reception (identification 0, no DF, UDP checksum 0 as RFC 3948 section 2.1 has
//! it: the kernel has checked the real one), and read on sending: destination, TOS or traffic class,
//! hop limit, DF and, where the socket is bound to no address, the source.
//!
//! With several workers the kernel spreads what arrives by SPI. Messages that it joined before
//! (GRO looks at addresses and ports only) stay together, so a worker may still receive packets of
//! another's SPI, and has to hand them over.
//!
//! Everything that arrives at the port is handed up, NAT keepalives and IKE included, unless the port
//! is shared with an IKE daemon ([`share`]).

mod config;
mod ear;
mod header;
mod rx;
mod steer;
mod tx;

pub use config::{Config, NAT_TRAVERSAL_PORT, open, share};
pub use steer::{
    Form, Given, SteerError, Steering, TakeOver, bound_to, make_shareable, own_user, owner_of,
    take_over,
};

use core::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use convoy_packet::{Burst, Pool};
use socket2::Socket;

use self::ear::Ear;
use crate::error_queue::ErrorQueue;
use crate::{IoError, NewsSource, Offloads, Port, PortCounters, PortEvent};

/// One UDP socket.
#[derive(Debug)]
pub struct UdpPort {
    socket: Socket,
    local: SocketAddr,
    offloads: Offloads,
    rx: rx::Receiver,
    tx: tx::Sender,
    errors: ErrorQueue,
    ear: Option<Ear>,
    /// True if the ear of this port, or another's, hears what ICMP says about paths.
    has_ear: bool,
    counters: PortCounters,
}

impl UdpPort {
    fn new(socket: Socket, local: SocketAddr, offloads: Offloads) -> Self {
        Self {
            socket,
            local,
            offloads,
            rx: rx::Receiver::new(local, offloads.rx_udp_segments),
            tx: tx::Sender::new(local, offloads.tx_udp_segments),
            errors: ErrorQueue::default(),
            ear: None,
            has_ear: false,
            counters: PortCounters::default(),
        }
    }

    /// The next piece of news from the socket, but for what ears hear.
    fn socket_event(&mut self) -> Option<PortEvent> {
        loop {
            match self.errors.next(self.socket.as_fd())? {
                PortEvent::PathMtu { source: NewsSource::Icmp(_), .. } if self.has_ear => {}
                event => return Some(event),
            }
        }
    }

    /// The address and port that this port is bound to.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

impl Port for UdpPort {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        if let Some(ear) = &mut self.ear {
            ear.tick();
        }
        let before = into.len();
        let fd = self.socket.as_fd();
        let outcome = self.rx.run(fd, pool, into, &mut self.errors, &mut self.counters);
        let fresh = into.as_slice().get(before..).unwrap_or_default();
        self.counters.add_received(fresh);
        outcome.map_err(IoError::Dead)?;
        Ok(fresh.len())
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        let fd = self.socket.as_fd();
        let outcome = self.tx.run(fd, from, &mut self.errors, &mut self.counters);
        from.release(pool);
        // Segmentation may have turned out not to work on the way.
        self.offloads.tx_udp_segments = self.tx.segments();
        outcome.map_err(IoError::Dead)
    }

    fn event(&mut self) -> Option<PortEvent> {
        self.socket_event().or_else(|| self.ear.as_mut()?.next())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn offloads(&self) -> Offloads {
        self.offloads
    }
}
