//! Packets whose SA another worker owns.

use convoy_packet::{Burst, Frame};

use crate::sa::WorkerId;

/// Packets for other workers, a burst for each.
///
/// The pipelines fill it; the runtime empties it into rings after each turn. The receiving worker
/// feeds the packets to its own pipeline of the same direction.
#[derive(Debug)]
pub struct HandOff {
    bursts: Vec<Burst>,
}

impl HandOff {
    /// Places for packets to each of `workers` workers.
    #[must_use]
    pub fn new(workers: u16) -> Self {
        Self { bursts: (0..workers).map(|_| Burst::new()).collect() }
    }

    /// Puts a packet down for `worker`.
    ///
    /// # Errors
    /// The frame itself, when there is no such worker or its burst is full.
    #[inline]
    pub fn push(&mut self, worker: WorkerId, frame: Frame) -> Result<(), Frame> {
        match self.bursts.get_mut(usize::from(worker.0)) {
            Some(burst) => burst.push(frame),
            None => Err(frame),
        }
    }

    /// The packets for one worker.
    #[inline]
    #[must_use]
    pub fn for_worker(&mut self, worker: WorkerId) -> Option<&mut Burst> {
        self.bursts.get_mut(usize::from(worker.0))
    }

    /// True if nothing is to be handed off.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bursts.iter().all(Burst::is_empty)
    }
}
