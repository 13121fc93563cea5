//! Packets of an interface through `AF_PACKET` sockets (`packet(7)`).
//!
//! Works on every interface with Ethernet headers, with rights to raw sockets alone. The kernel sees
//! each packet as well and does with it what it would do anyway: what a gateway takes must be kept
//! from being forwarded by other means (see the site file's reference).
//!
//! Interfaces of this host may hand over super-segments with unfinished checksums, as a TUN device
//! does, and take them; they are split and coalesced here.

mod config;
mod rx;
mod sending;
mod tx;

pub use config::{Config, Steering, open};
pub use sending::{SendingConfig, SendingPort, open_sending};
pub(crate) use tx::address;

use std::os::fd::{AsFd, BorrowedFd};

use convoy_packet::{Burst, Pool};
use socket2::Socket;

use crate::link::ethernet;
use crate::link::{IcmpListeners, NextHops, Outlet};
use crate::offload::VNET_LEN;
use crate::{IoError, Offloads, Port, PortCounters, PortEvent};

/// Bytes in front of each packet: the kernel's header and Ethernet's.
const PREFIX: usize = VNET_LEN + ethernet::HEADER;

/// One worker's socket on an interface.
#[derive(Debug)]
pub struct PacketPort {
    socket: Socket,
    offloads: Offloads,
    rx: rx::Receiver,
    tx: tx::Sender,
    outlet: Outlet,
    listeners: IcmpListeners,
    counters: PortCounters,
}

impl PacketPort {
    fn new(
        socket: Socket,
        index: u32,
        hops: NextHops,
        listeners: IcmpListeners,
        offloads: Offloads,
    ) -> Self {
        Self {
            socket,
            offloads,
            rx: rx::Receiver::new(),
            tx: tx::Sender::new(index, &offloads),
            outlet: Outlet::new(hops),
            listeners,
            counters: PortCounters::default(),
        }
    }

    /// Sends what had to wait for its neighbour.
    fn send_waiting(&mut self, pool: &mut Pool) -> Result<(), IoError> {
        if self.outlet.revive(pool, &mut self.counters) { self.send(pool) } else { Ok(()) }
    }

    fn send(&mut self, pool: &mut Pool) -> Result<(), IoError> {
        let fd = self.socket.as_fd();
        let outcome = self.tx.run(fd, &mut self.outlet, &mut self.counters);
        self.outlet.ready.release(pool);
        outcome.map_err(IoError::Dead)
    }
}

impl Port for PacketPort {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        self.send_waiting(pool)?;
        self.listeners.tick();
        let before = into.len();
        let outcome = self.rx.run(self.socket.as_fd(), pool, into, &mut self.counters);
        let fresh = into.as_slice().get(before..).unwrap_or_default();
        self.counters.add_received(fresh);
        outcome.map_err(IoError::Dead)?;
        Ok(fresh.len())
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        let waited = self.send_waiting(pool);
        self.outlet.arrange(pool, from, &mut self.counters);
        let sent = self.send(pool);
        waited.and(sent)
    }

    fn event(&mut self) -> Option<PortEvent> {
        self.outlet.event().or_else(|| self.listeners.next())
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
