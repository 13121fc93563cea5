//! Queues that take no packets. A device has its carrier as long as there is one, also when nobody else has it open, and
//! drops what is sent into it then.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::config::open_queue;
use crate::{IoError, sys};

/// Such a queue.
#[derive(Debug)]
pub struct Parked {
    queue: OwnedFd,
    name: sys::DeviceName,
}

impl Parked {
    /// Adds one to a device of the calling thread's network namespace.
    ///
    /// # Errors
    /// As of [`open`](super::open).
    pub fn open(name: &str) -> Result<Self, IoError> {
        let named = open_queue(&sys::DeviceName::new(name)?)?;
        sys::tun_detach(named.queue.as_fd())
            .map_err(IoError::setup("park a queue of the tun device"))?;
        Ok(Self { queue: named.queue.into(), name: named.name })
    }

    /// One that an earlier process added; none if the descriptor is anything else, or its device is gone.
    #[must_use]
    pub fn of(queue: OwnedFd) -> Option<Self> {
        let name = sys::tun_parked(queue.as_fd())?;
        Some(Self { queue, name })
    }

    /// Name of the device.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }
}

impl AsFd for Parked {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
