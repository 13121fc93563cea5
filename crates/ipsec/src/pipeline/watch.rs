//! SAs that must be looked at although no packet comes, and SAs that have something to tell.
//!
//! Deadlines of all slots lie side by side, so that a tick reads eight bytes per SA and touches
//! only those that are due.

use super::sa::{InboundSa, OutboundSa};
use super::slab::Slab;
use crate::clock::Now;
use crate::event::{Event, SaId};
use crate::lifetime::{Meter, Numbers, Reached};
use crate::sa::SaSlot;
use crate::selector::Direction;

/// Access that the watch needs to a hot SA.
pub(super) trait Watched {
    fn id(&self, slot: SaSlot) -> SaId;
    fn meter(&self) -> &Meter;
    /// Notes that what was reached has been told.
    fn told(&mut self, reached: Reached);
    /// Compares the SA with its limits.
    fn look(&mut self, now: Now);
}

impl Watched for OutboundSa {
    fn id(&self, slot: SaSlot) -> SaId {
        let Self { spec, .. } = self;
        let destination = spec.endpoints.remote;
        let (spi, serial) = (spec.spi, spec.serial);
        SaId { direction: Direction::Outbound, spi, destination, slot, serial }
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn told(&mut self, reached: Reached) {
        self.meter.told(&self.counters.usage, reached);
    }

    fn look(&mut self, now: Now) {
        let Self { spec, counters, meter, sequence, .. } = self;
        meter.look(&spec.lifetime, &counters.usage, sequence.numbers(), now);
    }
}

impl Watched for InboundSa {
    fn id(&self, slot: SaSlot) -> SaId {
        let Self { spec, .. } = self;
        let destination = spec.endpoints.local;
        let (spi, serial) = (spec.spi, spec.serial);
        SaId { direction: Direction::Inbound, spi, destination, slot, serial }
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn told(&mut self, reached: Reached) {
        self.meter.told(&self.counters.usage, reached);
    }

    fn look(&mut self, now: Now) {
        let Self { spec, counters, meter, .. } = self;
        meter.look(&spec.lifetime, &counters.usage, Numbers::ENDLESS, now);
    }
}

/// Deadlines and untold events of one pipeline's SAs.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Time at which each slot must be looked at; `u64::MAX` for never.
    looks: Vec<u64>,
    /// Slots with something to tell, each once.
    telling: Vec<u32>,
    is_telling: Vec<bool>,
}

impl Watch {
    /// Takes an SA in; not on the data path.
    pub(super) fn add(&mut self, slot: u32, meter: &Meter) {
        let slots = slot as usize + 1;
        if self.looks.len() < slots {
            self.looks.resize(slots, u64::MAX);
            self.is_telling.resize(slots, false);
            self.telling.reserve(slots - self.telling.len());
        }
        self.note(slot, meter);
    }

    /// Takes over what a meter says of itself after it looked.
    fn note(&mut self, slot: u32, meter: &Meter) {
        if let Some(look) = self.looks.get_mut(slot as usize) {
            *look = meter.next_look();
        }
        if meter.to_tell().is_some()
            && let Some(telling @ false) = self.is_telling.get_mut(slot as usize)
        {
            *telling = true;
            // Room was made for every slot once.
            self.telling.push(slot);
        }
    }

    /// Looks at an SA whose packets reached a threshold.
    #[cold]
    pub(super) fn look(&mut self, slot: u32, sa: &mut impl Watched, now: Now) {
        sa.look(now);
        self.note(slot, sa.meter());
    }

    /// Looks at the SAs whose time has come.
    pub(super) fn tick<S: Watched>(&mut self, sas: &mut Slab<S>, now: Now) {
        for slot in 0..self.looks.len() {
            let Some(look) = self.looks.get_mut(slot).filter(|look| **look <= now.0) else {
                continue;
            };
            *look = u64::MAX;
            let slot = slot as u32;
            if let Some(sa) = sas.get_mut(slot) {
                self.look(slot, sa, now);
            }
        }
    }

    /// True if there is something to tell.
    pub(super) fn has_news(&self) -> bool {
        !self.telling.is_empty()
    }

    /// Tells events until `tell` takes no more; what it did not take stays for the next time.
    pub(super) fn tell<S: Watched>(
        &mut self,
        sas: &mut Slab<S>,
        tell: &mut impl FnMut(Event) -> bool,
    ) {
        while let Some(&slot) = self.telling.last() {
            if let Some(sa) = sas.get_mut(slot) {
                let id = sa.id(SaSlot(slot));
                while let Some(reached) = sa.meter().to_tell() {
                    let event = match reached {
                        Reached::Soft(limit) => Event::Soft { sa: id, limit },
                        Reached::Hard(limit) => Event::Hard { sa: id, limit },
                    };
                    if !tell(event) {
                        return;
                    }
                    sa.told(reached);
                }
            }
            self.telling.pop();
            if let Some(telling) = self.is_telling.get_mut(slot as usize) {
                *telling = false;
            }
        }
    }
}
