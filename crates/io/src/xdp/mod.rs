//! Packets of an interface through AF_XDP sockets
//! (`Documentation/networking/af_xdp.rst`).
//!
//! A program in the driver gives the gateway its frames before the kernel has looked at them, and
//! leaves it all others. The arena is the sockets' memory, so frames are received into and sent from
//! without a system call per packet; with drivers that can, without a copy.
//!
//! Virtual interfaces hand over packets whose transport checksum their sender has left to the
//! device; it is finished here.

mod config;
mod program;
mod queue;

pub use config::{Config, LARGEST_PACKET, Mode, Steering, driver, open};

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use convoy_packet::{Burst, Pool};

use crate::link::{IcmpListeners, NextHops, Outlet};
use crate::{IoError, Offloads, Port, PortCounters, PortEvent};
use queue::Queue;

/// Receive calls between two looks at the kernel's counters.
const EVERY: u32 = 256;

/// One worker's queues of an interface.
#[derive(Debug)]
pub struct XdpPort {
    queues: Vec<Queue>,
    /// The queue that is asked first, and the one that packets are sent through.
    first: usize,
    /// Signals for all queues, if there are several.
    gathered: Option<OwnedFd>,
    mode: Mode,
    outlet: Outlet,
    listeners: IcmpListeners,
    calls: u32,
    counters: PortCounters,
}

impl XdpPort {
    fn new(
        queues: Vec<Queue>,
        gathered: Option<OwnedFd>,
        mode: Mode,
        hops: NextHops,
        listeners: IcmpListeners,
    ) -> Self {
        Self {
            queues,
            first: 0,
            gathered,
            mode,
            outlet: Outlet::new(hops),
            listeners,
            calls: 0,
            counters: PortCounters::default(),
        }
    }

    /// Way in which the kernel hands over packets.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    fn receive(&mut self, pool: &mut Pool, into: &mut Burst) {
        let count = self.queues.len();
        // Each queue is first in turn, so that none starves.
        self.first = if self.first + 1 >= count { 0 } else { self.first + 1 };
        let (late, early) = self.queues.split_at_mut(self.first);
        for queue in early.iter_mut().chain(late) {
            queue.receive(pool, into, &mut self.counters);
        }
    }

    fn send(&mut self, pool: &mut Pool) -> Result<(), IoError> {
        let outcome = match self.queues.first_mut() {
            Some(queue) => queue.send(pool, &mut self.outlet, &mut self.counters),
            None => Ok(()),
        };
        // Empty unless the socket is dead.
        self.outlet.ready.release(pool);
        outcome.map_err(IoError::Dead)
    }

    fn send_waiting(&mut self, pool: &mut Pool) -> Result<(), IoError> {
        if self.outlet.revive(pool, &mut self.counters) { self.send(pool) } else { Ok(()) }
    }
}

impl Port for XdpPort {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        self.send_waiting(pool)?;
        self.listeners.tick();
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(EVERY) {
            self.counters.rx_kernel_drops = self.queues.iter().map(Queue::drops).sum();
        }
        let before = into.len();
        self.receive(pool, into);
        let fresh = into.as_slice().get(before..).unwrap_or_default();
        self.counters.add_received(fresh);
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
        match &self.gathered {
            Some(all) => Some(all.as_fd()),
            None => self.queues.first().map(Queue::fd),
        }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn offloads(&self) -> Offloads {
        Offloads {
            rx_checksum: true,
            batch: true,
            kernel_drops: true,
            error_queue: self.listeners.are_open(),
            native_xdp: self.mode != Mode::Generic,
            zero_copy: self.mode == Mode::ZeroCopy,
            ..Offloads::default()
        }
    }
}
