//! A policy comes, or takes the place of another (`NEWPOLICY`, `UPDPOLICY`).

use convoy_ipsec::snapshot::{Draft, Writer};
use convoy_xfrm::{Policy, Refusal};

use crate::xfrm::keep::Keep;
use crate::xfrm::kernel::Kernel;
use crate::xfrm::plane::{Numbered, Plane, PolicyMove, Read, unkept};
use crate::xfrm::policies::Replaced;
use crate::xfrm::{Changed, Insertion, Policies};

/// A policy that workers can follow.
#[derive(Debug)]
pub(in crate::xfrm::kernel) struct NewPolicy<'k> {
    undo: Undo<'k>,
    keep: Option<&'k mut Keep>,
    read: Read,
}

/// The database has it.
#[derive(Debug)]
#[must_use = "it is taken back"]
pub(in crate::xfrm::kernel) struct RecordedPolicy<'k>(NewPolicy<'k>);

/// A draft has it.
#[derive(Debug)]
#[must_use = "it is taken back"]
pub(in crate::xfrm::kernel) struct PlacedPolicy<'k> {
    policy: NewPolicy<'k>,
    draft: Draft<'k>,
}

/// It is in force.
#[derive(Debug)]
pub(in crate::xfrm::kernel) struct PublishedPolicy {
    /// Its number.
    pub(in crate::xfrm::kernel) index: u32,
    /// The one that was in its place.
    pub(in crate::xfrm::kernel) before: Option<Policy>,
}

/// Places and records made for the policy, to be taken back on drop.
#[derive(Debug)]
struct Undo<'k> {
    plane: &'k mut Plane,
    policies: &'k mut Policies,
    recorded: Option<Recorded>,
    placed: Option<PolicyMove>,
}

/// The number of a policy in the database, and the one in whose place it came.
#[derive(Debug)]
struct Recorded {
    index: u32,
    before: Option<Replaced>,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if let Some(placed) = self.placed.take() {
            self.plane.take_back_policy(&placed);
        }
        if let Some(Recorded { index, before }) = self.recorded.take() {
            self.policies.take_back(index, before);
        }
    }
}

impl Undo<'_> {
    fn policy(&self) -> Option<&Policy> {
        self.policies.by_index(self.recorded.as_ref()?.index)
    }
}

impl<'k> NewPolicy<'k> {
    /// Checks that workers can do what a policy asks for.
    ///
    /// # Errors
    /// As a kernel would refuse it; `EOPNOTSUPP` for what only Convoy cannot do.
    pub(in crate::xfrm::kernel) fn check(
        kernel: &'k mut Kernel,
        policy: &Policy,
    ) -> Result<Self, Refusal> {
        let Kernel { plane, policies, keep, .. } = kernel;
        let read = plane.read(policy)?;
        let undo = Undo { plane, policies, recorded: None, placed: None };
        Ok(Self { undo, keep: keep.as_mut(), read })
    }

    /// Brings the policy into the database at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// `EEXIST` when there is one of its name and it is to be new; `ENOMEM` when there are 2²⁰.
    pub(in crate::xfrm::kernel) fn record(
        mut self,
        policy: Policy,
        insertion: Insertion,
        now: u64,
    ) -> Result<RecordedPolicy<'k>, Refusal> {
        let Changed { policy, before } = self.undo.policies.insert(policy, insertion, now)?;
        self.undo.recorded = Some(Recorded { index: policy.info.index, before });
        Ok(RecordedPolicy(self))
    }
}

impl<'k> RecordedPolicy<'k> {
    /// Gives the policy its place in a draft of the next snapshot.
    ///
    /// # Errors
    /// `EEXIST` when a policy of the site file has it; `ENOMEM` when there is no room.
    pub(in crate::xfrm::kernel) fn place(
        self,
        writer: &'k mut Writer,
    ) -> Result<PlacedPolicy<'k>, Refusal> {
        let Self(mut policy) = self;
        let mut draft = writer.draft();
        let Undo { plane, recorded, placed, .. } = &mut policy.undo;
        if let Some(Recorded { index, before }) = recorded {
            let after = Numbered { number: *index, read: policy.read };
            let before = before.as_ref().map(|before| &before.policy);
            *placed = Some(plane.place_policy(before, after, &mut draft)?);
        }
        Ok(PlacedPolicy { policy, draft })
    }
}

impl PlacedPolicy<'_> {
    /// Writes the policy into the journal, where there is one, and publishes it. Whoever is killed in between has it,
    /// and an answer that is lost leaves it open whether.
    ///
    /// # Errors
    /// `ENOMEM` when it cannot be written.
    pub(in crate::xfrm::kernel) fn commit(mut self) -> Result<Option<PublishedPolicy>, Refusal> {
        let NewPolicy { undo, keep, .. } = &mut self.policy;
        if let Some((keep, policy)) = keep.as_mut().zip(undo.policy()) {
            keep.put_policy(policy).map_err(|error| unkept(&error))?;
        }
        Ok(self.publish())
    }

    /// Has workers see the policy, which the journal has.
    pub(in crate::xfrm::kernel) fn publish(self) -> Option<PublishedPolicy> {
        let Self { policy: NewPolicy { mut undo, .. }, draft } = self;
        let Recorded { index, before } = undo.recorded.take()?;
        if let Some(placed) = undo.placed.take() {
            undo.plane.publish_policy(placed, draft);
        }
        Some(PublishedPolicy { index, before: before.map(|before| before.policy) })
    }
}
