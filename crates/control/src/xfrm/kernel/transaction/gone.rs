//! SAs and policies go.

use convoy_ipsec::snapshot::Writer;
use convoy_xfrm::Policy;

use crate::xfrm::Association;
use crate::xfrm::kernel::Kernel;
use crate::xfrm::plane::Placed;

impl Kernel {
    /// Ends SAs that the database has no more: workers stop at once, however many there are, and only then is written
    /// what is kept of their keys, and they are wiped where they are kept.
    pub(in crate::xfrm::kernel) fn let_go_of_sas(
        &mut self,
        gone: &[Association],
        writer: &mut Writer,
    ) {
        let placed = || gone.iter().filter_map(|association| association.placed.as_ref());
        if placed().next().is_none() {
            return;
        }
        self.plane.hide_sas(placed(), writer.draft());
        for placed in placed() {
            self.plane.bury(placed);
            self.forget(placed);
        }
    }

    /// Wipes an SA where it is kept.
    fn forget(&mut self, placed: &Placed) {
        let number = self.by_slot.remove(&(placed.direction, placed.slot));
        if let Some(number) = number {
            self.guesses.remove(&number);
        }
        if let (Some(keep), Some(kept)) = (&mut self.keep, placed.kept) {
            keep.remove_sa(kept);
        }
    }

    /// Ends policies that the database has no more, in the journal first: one that came back in the next run of the
    /// gateway would close networks that nobody asks to be closed.
    pub(in crate::xfrm::kernel) fn let_go_of_policies(
        &mut self,
        gone: &[Policy],
        writer: &mut Writer,
    ) {
        if let Some(keep) = &mut self.keep {
            gone.iter().for_each(|policy| keep.remove_policy(policy.info.index));
        }
        self.plane.remove_policies(gone, writer.draft());
    }
}
