//! Sink for dropped packets.

use convoy_packet::{Frame, Pool};

use crate::drop_reason::DropReason;
use crate::pipeline::WorkerCounters;

/// Takes dropped packets: counts the reason and gives the frame back.
pub(super) struct Bin<'a> {
    pub(super) pool: &'a mut Pool,
    pub(super) counters: &'a WorkerCounters,
}

impl Bin<'_> {
    /// Ends a packet's way.
    #[inline]
    pub(super) fn drop(&mut self, frame: Frame, reason: DropReason) {
        self.counters.drops.count(reason);
        self.pool.free(frame);
    }
}
