//! The place of an SA.

use std::sync::Arc;

use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::sa::{SaSlot, WorkerId};
use convoy_ipsec::selector::Direction;
use convoy_ipsec::sequence::Lease;
use convoy_wire::Spi;

use super::ends::Ends;
use super::groups::Group;
use super::owners::Owned;
use crate::lease::RecordId;
use crate::xfrm::keep::Kept;

/// Position of an SA in the snapshot, with its counters and lease.
#[derive(Debug)]
pub struct Placed {
    pub(in crate::xfrm) direction: Direction,
    pub(in crate::xfrm) slot: SaSlot,
    /// No other SA here ever has it.
    pub(in crate::xfrm) serial: u64,
    pub(super) spi: Option<Spi>,
    pub(super) group: Group,
    pub(super) worker: WorkerId,
    pub(super) ends: Ends,
    pub(super) key: RecordId,
    pub(in crate::xfrm) counters: Arc<SaCounters>,
    /// Outbound only.
    pub(in crate::xfrm) lease: Option<Arc<Lease>>,
    /// If numbers are kept beyond this process's life.
    pub(in crate::xfrm) kept: Option<Kept>,
    /// True if its direction is not known: see [`Course::is_guess`](super::Course::is_guess).
    pub(in crate::xfrm) is_guess: bool,
}

impl Placed {
    pub(super) fn owned(&self) -> Owned {
        let Self { direction, ends, serial, worker, .. } = *self;
        Owned { direction, ends, serial, worker }
    }
}
