//! A live SA changes (`UPDSA`).

use std::net::IpAddr;

use convoy_ipsec::snapshot::{Draft, Writer};
use convoy_xfrm::{Encap, Limits, Mark, Refusal, Sa};

use crate::xfrm::keep::Keep;
use crate::xfrm::kernel::Kernel;
use crate::xfrm::plane::{Plane, refresh, unkept};
use crate::xfrm::{Added, Association, Moment};

/// A live SA that changed in the database.
#[derive(Debug)]
#[must_use = "the change is taken back"]
pub(in crate::xfrm::kernel) struct ChangedSa<'k> {
    plane: &'k mut Plane,
    keep: Option<&'k mut Keep>,
    undo: Undo<'k>,
}

/// A draft has the change.
#[derive(Debug)]
#[must_use = "the change is taken back"]
pub(in crate::xfrm::kernel) struct RedrawnSa<'k> {
    sa: ChangedSa<'k>,
    draft: Draft<'k>,
}

/// The SA, and how it was, if that is to be so again on drop.
#[derive(Debug)]
struct Undo<'k> {
    association: &'k mut Association,
    before: Option<Changeable>,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            before.put_back(&mut self.association.sa);
        }
    }
}

/// Properties of a live SA that an update may change.
#[derive(Clone, Copy, Debug)]
struct Changeable {
    limits: Limits,
    encap: Option<Encap>,
    care_of: Option<IpAddr>,
    output_mark: Mark,
    if_id: u32,
}

impl Changeable {
    fn of(sa: &Sa) -> Self {
        let Sa { encap, care_of, output_mark, if_id, .. } = *sa;
        Self { limits: sa.info.limits, encap, care_of, output_mark, if_id }
    }

    fn put_back(self, sa: &mut Sa) {
        let Self { limits, encap, care_of, output_mark, if_id } = self;
        sa.info.limits = limits;
        (sa.encap, sa.care_of, sa.output_mark, sa.if_id) = (encap, care_of, output_mark, if_id);
    }
}

impl<'k> ChangedSa<'k> {
    /// Changes the SA of this identity in the database.
    ///
    /// # Errors
    /// `ESRCH` when there is none; `EINVAL` when its encapsulation would be another kind.
    pub(in crate::xfrm::kernel) fn record(
        kernel: &'k mut Kernel,
        sa: Sa,
        at: Moment,
    ) -> Result<Self, Refusal> {
        let Kernel { associations, plane, keep, .. } = kernel;
        let before = Changeable::of(&associations.twin(&sa)?.sa);
        let Added { now, .. } = associations.update(sa, at.unix())?;
        let undo = Undo { association: now, before: Some(before) };
        Ok(Self { plane, keep: keep.as_mut(), undo })
    }

    /// Makes the change in a draft of the next snapshot.
    ///
    /// # Errors
    /// Refuses what workers cannot do.
    pub(in crate::xfrm::kernel) fn redraw(
        self,
        writer: &'k mut Writer,
        at: Moment,
    ) -> Result<RedrawnSa<'k>, Refusal> {
        let mut draft = writer.draft();
        let Association { sa, placed, .. } = &mut *self.undo.association;
        if let Some(placed) = placed {
            self.plane.change_sa(sa, placed, &mut draft)?;
            refresh(sa, placed, at);
        }
        Ok(RedrawnSa { sa: self, draft })
    }
}

impl RedrawnSa<'_> {
    /// Writes the change into the journal, where there is one, and publishes it. Returns the number of the SA.
    ///
    /// # Errors
    /// `ENOMEM` when it cannot be written.
    pub(in crate::xfrm::kernel) fn commit(self) -> Result<u64, Refusal> {
        let Self { sa: ChangedSa { plane, keep, mut undo }, draft } = self;
        if let Some(keep) = keep {
            keep.put_sa(undo.association).map_err(|error| unkept(&error))?;
        }
        undo.before = None;
        plane.commit(draft);
        Ok(undo.association.number)
    }
}
