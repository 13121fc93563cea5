//! Events from anywhere in the gateway to the sockets of a group.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use convoy_xfrm::{Datagram, Group};
use rustix::event::{EventfdFlags, eventfd};

/// Events that wait for the server's thread.
const EVENTS_MAX: usize = 4096;

/// The way to the sockets that listen. It is made before its server, and clones lead to the same one.
#[derive(Clone, Debug)]
pub struct Multicast(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pending: Mutex<Pending>,
    /// Readable when the server's thread is to look.
    wake: OwnedFd,
}

/// Events that the server's thread has not sent yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// In their order.
    pub(super) events: VecDeque<(Group, Datagram)>,
    /// Groups ([`Group::bit`]) of which later events found no place.
    pub(super) lost: u32,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.lost == 0
    }
}

impl Multicast {
    /// A way that leads nowhere until a server is started with it.
    ///
    /// # Errors
    /// Fails if the system has no descriptor left.
    pub fn new() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared { pending: Mutex::default(), wake })))
    }

    /// Sends an event to all sockets in a group, without waiting for any. When 4096 events wait
    /// already, it is lost, and those sockets are told so.
    pub fn send(&self, group: Group, event: Datagram) {
        let mut pending = self.pending();
        let was_empty = pending.is_empty();
        // After a loss, so that what comes later does not seem to follow what came before.
        if pending.lost != 0 || pending.events.len() >= EVENTS_MAX {
            pending.lost |= group.bit();
        } else {
            pending.events.push_back((group, event));
        }
        drop(pending);
        if was_empty {
            self.wake();
        }
    }

    /// Makes the server's thread look.
    pub(super) fn wake(&self) {
        // It can only fail when the thread is to look anyway.
        let _ = rustix::io::write(&self.0.wake, &1_u64.to_ne_bytes());
    }

    /// All that waits.
    pub(super) fn take(&self) -> Pending {
        std::mem::take(&mut *self.pending())
    }

    /// Notes that the thread looks.
    pub(super) fn woken(&self) {
        let _ = rustix::io::read(&self.0.wake, &mut [0; 8]);
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Multicast {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use convoy_xfrm::{Address, Defaults, Reply};

    use super::*;

    #[test]
    fn what_finds_no_place_is_counted_as_lost_and_nothing_after_it_is_kept() {
        let multicast = Multicast::new().unwrap();
        let event = || Reply::GetDefault(Defaults::default()).build(Address::default()).unwrap();
        for _ in 0..EVENTS_MAX {
            multicast.clone().send(Group::Policy, event());
        }
        multicast.send(Group::Expire, event());
        multicast.send(Group::Acquire, event());
        let taken = multicast.take();
        assert_eq!(taken.events.len(), EVENTS_MAX);
        assert_eq!(taken.lost, Group::Expire.bit() | Group::Acquire.bit());
        multicast.send(Group::Expire, event());
        let taken = multicast.take();
        assert_eq!((taken.events.len(), taken.lost), (1, 0));
    }
}
