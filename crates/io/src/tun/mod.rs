//! The plain side: packets of this host's own network stack, through a TUN device.
//!
//! The kernel hands over TCP super-segments of up to 64 KiB with unfinished checksums and takes
//! the same back; that is worth a factor of ten. [`Port::rx`] splits them into packets as they
//! would have appeared on a wire, [`Port::tx`] coalesces what belongs together and was received
//! intact.

mod config;
mod device;
mod drops;
mod inlet;
mod make;
mod own;
mod parked;
mod rx;
mod tx;

pub use config::{Config, open, remove, stay};
pub use device::Device;
pub use drops::QueueDrops;
pub use inlet::Inlet;
pub use make::JOINED;
pub use parked::Parked;

use core::time::Duration;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use convoy_packet::{Burst, Pool};

use crate::{IoError, Offloads, Port, PortCounters, sys};

/// Time that a turn waits whose device is gone.
const WAIT: Duration = Duration::from_millis(1);

/// One queue of a TUN device.
#[derive(Debug)]
pub struct TunPort {
    queue: File,
    name: sys::DeviceName,
    offloads: Offloads,
    rx: rx::Receiver,
    tx: tx::Sender,
    /// For errors that the host itself sends, if it may.
    own: Option<Arc<own::OwnErrors>>,
    /// The device may be made again when it is gone.
    returns: bool,
    counters: PortCounters,
}

impl TunPort {
    fn new(
        queue: File,
        name: sys::DeviceName,
        offloads: Offloads,
        own: Option<Arc<own::OwnErrors>>,
        returns: bool,
    ) -> Self {
        Self {
            queue,
            name,
            offloads,
            rx: rx::Receiver::new(),
            tx: tx::Sender::new(&offloads),
            own,
            returns,
            counters: PortCounters::default(),
        }
    }

    /// Has the host send what is its own word, and leaves the rest in the order in which it is.
    fn tell(&mut self, pool: &mut Pool, from: &mut Burst) {
        let Some(own) = &self.own else { return };
        if !from.as_slice().iter().any(own::is_one) {
            return;
        }
        for _ in 0..from.len() {
            let Some(frame) = from.drain_front(1).next() else { return };
            if own::is_one(&frame) && own.send(frame.data()) {
                self.counters.tx_calls += 1;
                self.counters.tx_packets += 1;
                self.counters.tx_bytes += frame.len() as u64;
                pool.free(frame);
            } else if let Err(frame) = from.push(frame) {
                pool.free(frame);
            }
        }
    }

    /// True if an error means that the device is gone, and may be made again.
    fn waits_after(&self, error: &io::Error) -> bool {
        self.returns && error.raw_os_error() == Some(libc::EBADFD)
    }

    /// The device's name, also if it was chosen by the kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }
}

impl Port for TunPort {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        let before = into.len();
        let outcome = self.rx.run(&self.queue, pool, into, &mut self.counters);
        let fresh = into.as_slice().get(before..).unwrap_or_default();
        self.counters.add_received(fresh);
        match outcome {
            Err(error) if self.waits_after(&error) => {
                // It signals all the time, and is asked at each turn.
                std::thread::sleep(WAIT);
            }
            outcome => outcome.map_err(IoError::Dead)?,
        }
        Ok(fresh.len())
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        self.tell(pool, from);
        let outcome = self.tx.run(&self.queue, from, &mut self.counters);
        let packets = from.len() as u64;
        from.release(pool);
        match outcome {
            Err(error) if self.waits_after(&error) => {
                self.counters.tx_error += packets;
                Ok(())
            }
            outcome => outcome.map_err(IoError::Dead),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn offloads(&self) -> Offloads {
        self.offloads
    }
}

/// True if an error means that the queue was taken from us or the device removed.
fn is_fatal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADFD | libc::EBADF | libc::ENODEV | libc::EFAULT))
}
