//! Events from workers to control: one ring per worker, and one bell for whoever listens.
//!
//! A worker pushes into its own ring and never waits. When the ring is full, or nobody listens, an
//! event stays with its SA and is offered again at a later turn: it can be late, not lost.

use core::time::Duration;

use convoy_ipsec::event::Event;
use convoy_ipsec::sa::WorkerId;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::{StartError, Waker, Worker};

/// Events a ring holds; SAs rarely have something to tell, and what does not fit waits.
const DEPTH: usize = 256;

/// A worker's end.
#[derive(Debug)]
pub(crate) struct Teller {
    // Dropped before the bell rings a last time, which then shows that the worker has ended.
    ring: Producer<Event>,
    bell: Bell,
}

#[derive(Debug)]
struct Bell(Waker);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl Teller {
    /// Passes an event on; `false` when there is no room.
    pub(crate) fn tell(&mut self, event: Event) -> bool {
        self.ring.push(event).is_ok()
    }

    /// Wakes the listener after events were told.
    pub(crate) fn ring(&self) {
        self.bell.0.wake();
    }
}

/// The listener's end: events of all workers of a gateway.
#[derive(Debug)]
pub struct Events {
    rings: Vec<(WorkerId, Consumer<Event>)>,
    bell: Waker,
    /// Ring that is read first; moves on, so that none starves the others.
    turn: usize,
}

impl Events {
    /// Listens to workers from now on, in the place of whoever did before.
    ///
    /// # Errors
    /// [`StartError`] when the kernel has no descriptors left.
    pub fn of(workers: &mut [Worker]) -> Result<Self, StartError> {
        let bell = Waker::new().map_err(StartError::Descriptor)?;
        let mut rings = Vec::with_capacity(workers.len());
        for worker in workers {
            let (ring, consumer) = RingBuffer::new(DEPTH);
            worker.tell_to(Teller { ring, bell: Bell(bell.clone()) });
            rings.push((worker.id(), consumer));
        }
        Ok(Self { rings, bell, turn: 0 })
    }

    /// The next event, if there is one, and the worker that tells it.
    pub fn pop(&mut self) -> Option<(WorkerId, Event)> {
        let n = self.rings.len();
        for _ in 0..n {
            self.turn = (self.turn + 1) % n;
            if let Some((worker, ring)) = self.rings.get_mut(self.turn)
                && let Ok(event) = ring.pop()
            {
                return Some((*worker, event));
            }
        }
        None
    }

    /// Waits until there is an event or `limit` is over.
    pub fn wait(&self, limit: Duration) {
        self.bell.announce();
        if self.rings.iter().all(|(_, ring)| ring.is_empty()) && !self.is_over() {
            let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.bell.fd(), PollFlags::POLLIN)];
            // An interrupted wait is a short one.
            if poll(&mut fds, limit).is_ok_and(|n| n > 0) {
                self.bell.silence();
            }
        }
        self.bell.awake();
    }

    /// True if all workers have ended and everything they told was read.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.rings.iter().all(|(_, ring)| ring.is_abandoned() && ring.is_empty())
    }
}
