//! An SA comes.

use std::collections::{BTreeSet, HashMap};

use convoy_ipsec::sa::SaSlot;
use convoy_ipsec::selector::Direction;
use convoy_ipsec::snapshot::{Draft, Writer};
use convoy_xfrm::{Refusal, Sa};

use crate::xfrm::keep::{Keep, Past};
use crate::xfrm::kernel::Kernel;
use crate::xfrm::plane::{Checked, Placed, Plane, Reserved, unkept};
use crate::xfrm::{Added, Association, Associations, Moment};

/// An SA that comes, before anything is done for it.
#[derive(Debug)]
pub(in crate::xfrm::kernel) struct NewSa<'k> {
    undo: Undo<'k>,
    draft: Draft<'k>,
    keep: Option<&'k mut Keep>,
    by_slot: &'k mut HashMap<(Direction, SaSlot), u64>,
    guesses: &'k mut BTreeSet<u64>,
}

/// It has its place in the draft.
#[derive(Debug)]
#[must_use = "it is taken back"]
pub(in crate::xfrm::kernel) struct PlacedSa<'k>(NewSa<'k>);

/// The database has it.
#[derive(Debug)]
#[must_use = "it is taken back"]
pub(in crate::xfrm::kernel) struct RecordedSa<'k> {
    sa: NewSa<'k>,
    number: u64,
}

/// Places and records made for the SA, to be taken back on drop.
#[derive(Debug)]
struct Undo<'k> {
    plane: &'k mut Plane,
    associations: &'k mut Associations,
    placed: Option<Placed>,
    recorded: Option<Recorded>,
}

/// The number of an SA in the database, which has its place too, and the larval one in whose place it came.
#[derive(Debug)]
struct Recorded {
    number: u64,
    larval: Option<Association>,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        let recorded = self.recorded.take();
        let came = recorded
            .and_then(|Recorded { number, larval }| self.associations.take_back(number, larval));
        let placed = came.and_then(|came| came.placed).or_else(|| self.placed.take());
        if let Some(placed) = placed {
            self.plane.give_back(&placed);
        }
    }
}

impl<'k> NewSa<'k> {
    pub(in crate::xfrm::kernel) fn new(kernel: &'k mut Kernel, writer: &'k mut Writer) -> Self {
        let Kernel { associations, plane, keep, by_slot, guesses, .. } = kernel;
        let undo = Undo { plane, associations, placed: None, recorded: None };
        Self { undo, draft: writer.draft(), keep: keep.as_mut(), by_slot, guesses }
    }

    /// Gives the SA its place in the draft; with `past` it is one of the previous run.
    ///
    /// # Errors
    /// `EEXIST` when another SA has its packets or its key; `ENOMEM` when there is no room for it, or its numbers
    /// cannot be written down; `EINVAL` when its key or its numbers cannot be used any more.
    pub(in crate::xfrm::kernel) fn place(
        mut self,
        sa: &Sa,
        checked: &Checked,
        past: Option<&Past>,
        at: Moment,
    ) -> Result<PlacedSa<'k>, Refusal> {
        let Self { undo: Undo { plane, placed, .. }, draft, .. } = &mut self;
        let reserved = plane.reserve(sa, checked, past, draft, at)?;
        let Reserved { numbers, sent, .. } = reserved;
        let placed = placed.insert(reserved.placed);
        placed.kept = plane.admit(sa, placed, sent, past)?;
        plane.enter(sa, checked, placed, numbers, draft)?;
        Ok(PlacedSa(self))
    }
}

impl<'k> PlacedSa<'k> {
    /// Brings the SA into the database, as `add` does.
    ///
    /// # Errors
    /// That of `add`.
    pub(in crate::xfrm::kernel) fn record(
        self,
        add: impl FnOnce(&mut Associations) -> Result<Added<'_>, Refusal>,
    ) -> Result<RecordedSa<'k>, Refusal> {
        let Self(mut sa) = self;
        let Undo { associations, placed, recorded, .. } = &mut sa.undo;
        let Added { now, larval } = add(associations)?;
        now.placed = placed.take();
        let number = now.number;
        *recorded = Some(Recorded { number, larval });
        Ok(RecordedSa { sa, number })
    }
}

impl RecordedSa<'_> {
    /// Writes the SA into the journal, where there is one, and publishes it. Its sequence numbers are kept already.
    /// Returns its number.
    ///
    /// # Errors
    /// `ENOMEM` when it cannot be written.
    pub(in crate::xfrm::kernel) fn commit(mut self) -> Result<u64, Refusal> {
        let now = self.sa.undo.associations.of_number(self.number);
        if let Some((keep, now)) = self.sa.keep.as_mut().zip(now) {
            keep.put_sa(now).map_err(|error| unkept(&error))?;
        }
        Ok(self.publish())
    }

    /// Has workers see the SA, which the journal has. Returns its number.
    pub(in crate::xfrm::kernel) fn publish(self) -> u64 {
        let Self { sa, number } = self;
        let NewSa { mut undo, draft, by_slot, guesses, .. } = sa;
        undo.recorded = None;
        let now = undo.associations.of_number(number);
        if let Some(placed) = now.and_then(|now| now.placed.as_ref()) {
            by_slot.insert((placed.direction, placed.slot), number);
            if placed.is_guess {
                guesses.insert(number);
            }
        }
        undo.plane.commit(draft);
        number
    }
}
