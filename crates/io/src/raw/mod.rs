//! The wire side without NAT: native ESP, IP protocol 50 (RFC 4303), or AH, 51 (RFC 4302).
//!
//! Frames hold whole IP packets. They are sent as they are (over IPv4 the kernel fills in an
//! identification of 0 and the header checksum); packets above the link's MTU are
//! fragmented by the kernel if their IPv4 header permits it, and get a new identification then. Received IPv4 packets are whole again, their fragments put
//! together by the kernel; received IPv6 packets get a new header, without the extension headers and
//! flow label that the sender may have used.

mod config;
mod rx;
mod tx;

pub use config::{Config, open};

use core::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use convoy_packet::{Burst, Pool};
use socket2::Socket;

use crate::error_queue::ErrorQueue;
use crate::{IoError, Offloads, Port, PortCounters, PortEvent, SpiFilter};

/// IP protocol of native ESP (RFC 4303).
pub const ESP: u8 = 50;
/// IP protocol of AH (RFC 4302).
pub const AH: u8 = 51;

/// Sockets of a port.
#[derive(Debug)]
struct Sockets {
    input: Socket,
    output: Socket,
    /// For IPv4 packets without DF that turn out too big for the link.
    fragmenting: Option<Socket>,
}

/// A pair of raw sockets, one for each direction.
#[derive(Debug)]
pub struct RawPort {
    sockets: Sockets,
    filter: Option<Arc<SpiFilter>>,
    local: IpAddr,
    offloads: Offloads,
    rx: rx::Receiver,
    tx: tx::Sender,
    /// ICMP messages arrive at the input socket, whose protocol they name; the kernel's own word on
    /// packets too big for its link at the one that sent them.
    input_errors: ErrorQueue,
    output_errors: ErrorQueue,
    counters: PortCounters,
}

/// Offset of the SPI in a header: its own length and the next header precede it in AH.
pub(crate) const fn spi_offset(protocol: u8) -> usize {
    if protocol == AH { 4 } else { 0 }
}

impl RawPort {
    fn new(
        sockets: Sockets,
        local: IpAddr,
        protocol: u8,
        offloads: Offloads,
        filter: Option<Arc<SpiFilter>>,
    ) -> Self {
        Self {
            sockets,
            filter,
            local,
            offloads,
            rx: rx::Receiver::new(local, protocol),
            tx: tx::Sender::new(local.is_ipv6(), protocol),
            input_errors: ErrorQueue::new(spi_offset(protocol)),
            output_errors: ErrorQueue::new(spi_offset(protocol)),
            counters: PortCounters::default(),
        }
    }

    /// The address that this port is bound to.
    #[must_use]
    pub fn local(&self) -> IpAddr {
        self.local
    }
}

impl Port for RawPort {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        let before = into.len();
        let fd = self.sockets.input.as_fd();
        let outcome = self.rx.run(fd, pool, into, &mut self.input_errors, &mut self.counters);
        let fresh = into.as_slice().get(before..).unwrap_or_default();
        self.counters.add_received(fresh);
        if let Some(filter) = &self.filter {
            filter.count(&mut self.counters);
        }
        outcome.map_err(IoError::Dead)?;
        Ok(fresh.len())
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        let fragmenting = self.sockets.fragmenting.as_ref().map(AsFd::as_fd);
        let fd = self.sockets.output.as_fd();
        let outcome =
            self.tx.run(fd, fragmenting, from, &mut self.output_errors, &mut self.counters);
        from.release(pool);
        outcome.map_err(IoError::Dead)
    }

    fn event(&mut self) -> Option<PortEvent> {
        let from_network = self.input_errors.next(self.sockets.input.as_fd());
        from_network.or_else(|| self.output_errors.next(self.sockets.output.as_fd()))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.sockets.input.as_fd())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn offloads(&self) -> Offloads {
        self.offloads
    }
}
