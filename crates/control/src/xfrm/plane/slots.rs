//! Slots for SAs of daemons, beside those of a site's SAs in the same table.

use std::collections::BTreeSet;

use convoy_ipsec::sa::SaSlot;
use convoy_ipsec::snapshot::MAX_SLOTS;
use convoy_xfrm::{Errno, Refusal};

/// The free slots of one direction.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Given back, to be used again.
    free: BTreeSet<u32>,
    /// None from here on was ever used here.
    next: u32,
}

impl Slots {
    /// The lowest free slot. `is_taken` says which ones others have; the site may have taken some that
    /// were given back here.
    ///
    /// # Errors
    /// `ENOMEM` when there is none left.
    pub(super) fn take(&mut self, is_taken: impl Fn(SaSlot) -> bool) -> Result<SaSlot, Refusal> {
        let full = || Refusal::new(Errno::ENOMEM, "There are as many SAs as there can be");
        loop {
            let slot = self.free.pop_first().or_else(|| {
                let fresh = (self.next < MAX_SLOTS).then_some(self.next)?;
                self.next += 1;
                Some(fresh)
            });
            let slot = slot.map(SaSlot).ok_or_else(full)?;
            if !is_taken(slot) {
                return Ok(slot);
            }
        }
    }

    pub(super) fn give_back(&mut self, slot: SaSlot) {
        self.free.insert(slot.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_the_lowest_that_nobody_has() {
        let mut slots = Slots::default();
        let sites = |slot: SaSlot| slot.0 < 3 || slot.0 == 4;
        assert_eq!(slots.take(sites), Ok(SaSlot(3)));
        assert_eq!(slots.take(sites), Ok(SaSlot(5)));
        slots.give_back(SaSlot(3));
        // The site took it meanwhile.
        assert_eq!(slots.take(|slot| slot.0 < 4), Ok(SaSlot(6)));
        assert_eq!(slots.take(|_| true).unwrap_err().errno, Errno::ENOMEM);
    }
}
