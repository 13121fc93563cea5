//! Slots for SAs of daemons, beside those of a site's SAs in the same table.
//!
//! What a worker tells names an SA by slot and SPI, and may be heard when a daemon that moves SAs has put
//! another one of this SPI in its place. So that one gets another slot.

use std::collections::BTreeMap;

use convoy_ipsec::sa::SaSlot;
use convoy_ipsec::snapshot::MAX_SLOTS;
use convoy_wire::Spi;
use convoy_xfrm::{Errno, Refusal};

/// The free slots of one direction.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Given back, to be used again, and the SPI of the SA that each had last.
    free: BTreeMap<u32, Option<Spi>>,
    /// None from here on was ever used here.
    next: u32,
}

impl Slots {
    /// The lowest free slot, for an SA of an SPI that the slot's last one did not have. `is_taken` says which
    /// ones others have; the site may have taken some that were given back here.
    ///
    /// # Errors
    /// `ENOMEM` when there is none left.
    pub(super) fn take(
        &mut self,
        spi: Option<Spi>,
        is_taken: impl Fn(SaSlot) -> bool,
    ) -> Result<SaSlot, Refusal> {
        let full = || Refusal::new(Errno::ENOMEM, "There are as many SAs as there can be");
        loop {
            let other = self.free.iter().find(|(_, last)| **last != spi).map(|(slot, _)| *slot);
            let slot = match other {
                Some(slot) => self.free.remove(&slot).map(|_| slot),
                None if self.next < MAX_SLOTS => {
                    self.next += 1;
                    Some(self.next - 1)
                }
                None => None,
            };
            let slot = slot.map(SaSlot).ok_or_else(full)?;
            if !is_taken(slot) {
                return Ok(slot);
            }
        }
    }

    pub(super) fn give_back(&mut self, slot: SaSlot, spi: Option<Spi>) {
        self.free.insert(slot.0, spi);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_the_lowest_that_nobody_has() {
        let mut slots = Slots::default();
        let sites = |slot: SaSlot| slot.0 < 3 || slot.0 == 4;
        let [one, two] = [1, 2].map(Spi::new);
        assert_eq!(slots.take(one, sites), Ok(SaSlot(3)));
        assert_eq!(slots.take(one, sites), Ok(SaSlot(5)));
        slots.give_back(SaSlot(3), one);
        // The site took it meanwhile.
        assert_eq!(slots.take(two, |slot| slot.0 < 4), Ok(SaSlot(6)));
        assert_eq!(slots.take(two, |_| true).unwrap_err().errno, Errno::ENOMEM);
    }

    #[test]
    fn a_slot_is_not_used_again_by_the_same_spi_at_once() {
        let mut slots = Slots::default();
        let [one, two] = [1, 2].map(Spi::new);
        assert_eq!(slots.take(one, |_| false), Ok(SaSlot(0)));
        slots.give_back(SaSlot(0), one);
        assert_eq!(slots.take(one, |_| false), Ok(SaSlot(1)));
        slots.give_back(SaSlot(1), one);
        assert_eq!(slots.take(two, |_| false), Ok(SaSlot(0)));
        slots.give_back(SaSlot(0), two);
        assert_eq!(slots.take(one, |_| false), Ok(SaSlot(0)));
    }
}
