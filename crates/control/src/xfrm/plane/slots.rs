//! Slots for SAs of daemons: the upper half of each table, so that a site's SAs have the lower one.

use std::collections::BTreeSet;

use convoy_ipsec::sa::SaSlot;
use convoy_ipsec::snapshot::MAX_SLOTS;
use convoy_xfrm::{Errno, Refusal};

const FIRST: u32 = MAX_SLOTS / 2;

/// The free slots of one direction.
#[derive(Debug)]
pub(super) struct Slots {
    /// Given back, to be used again.
    free: BTreeSet<u32>,
    /// None from here on was ever used.
    next: u32,
}

impl Default for Slots {
    fn default() -> Self {
        Self { free: BTreeSet::new(), next: FIRST }
    }
}

impl Slots {
    /// # Errors
    /// `ENOMEM` when there is none left.
    pub(super) fn take(&mut self) -> Result<SaSlot, Refusal> {
        let slot = self.free.pop_first().or_else(|| {
            let fresh = (self.next < MAX_SLOTS).then_some(self.next)?;
            self.next += 1;
            Some(fresh)
        });
        let full = || Refusal::new(Errno::ENOMEM, "There are as many SAs as there can be");
        slot.map(SaSlot).ok_or_else(full)
    }

    pub(super) fn give_back(&mut self, slot: SaSlot) {
        self.free.insert(slot.0);
    }
}

/// Whether a slot is for SAs of daemons.
pub(super) const fn is_daemons(slot: SaSlot) -> bool {
    slot.0 >= FIRST
}
