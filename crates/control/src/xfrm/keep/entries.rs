//! SAs and policies as they are written down.

use std::io;

use convoy_xfrm::{Address, Policy};

use super::{Keep, Kept, Kind};
use crate::xfrm::Association;

/// Answers to nobody.
const NOBODY: Address = Address { seq: 0, port: 0, multi: false };

impl Keep {
    /// Keeps an SA as it is now. One without keys is not kept.
    pub(in crate::xfrm) fn put_sa(&mut self, association: &Association) -> io::Result<()> {
        let Some(kept) = association.placed.as_ref().and_then(|placed| placed.kept) else {
            return Ok(());
        };
        let message = association.sa.answer(false, NOBODY);
        self.journal.put(Kind::Sa, kept.serial, message.as_bytes())
    }

    pub(in crate::xfrm) fn remove_sa(&mut self, kept: Kept) {
        self.remove(Kind::Sa, kept.serial);
    }

    pub(in crate::xfrm) fn put_policy(&mut self, policy: &Policy) -> io::Result<()> {
        let message = policy.answer(false, NOBODY);
        self.journal.put(Kind::Policy, policy.info.index.into(), message.as_bytes())
    }

    pub(in crate::xfrm) fn remove_policy(&mut self, index: u32) {
        self.remove(Kind::Policy, index.into());
    }

    /// Keeps in mind whether what lives before closed, and this one has no policies for, stays closed.
    pub(in crate::xfrm) fn put_closed(&mut self, is_closed: bool) {
        if !is_closed {
            return self.remove(Kind::Closed, 0);
        }
        if let Err(error) = self.journal.put(Kind::Closed, 0, &[]) {
            tracing::error!(
                "cannot record in the state folder of [xfrm] that networks stay blocked: {error}"
            );
        }
    }

    /// Removes an entry. It leaves room behind, so that this fails only with the file itself.
    pub(in crate::xfrm) fn remove(&mut self, kind: Kind, id: u64) {
        if let Err(error) = self.journal.remove(kind, id) {
            tracing::error!(
                "cannot remove {kind} {id} from the state folder of [xfrm], and the next start restores it: \
                 {error}"
            );
        }
    }
}
