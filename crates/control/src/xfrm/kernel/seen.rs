//! What daemons call the SAs and policies that workers see.

use convoy_ipsec::sa::SaSlot;
use convoy_ipsec::selector::Direction;
use convoy_ipsec::spd::PolicyId;

use super::Kernel;

impl Kernel {
    /// The reqid that its daemon gave to the SA in a slot; `None` for an SA that is no daemon's.
    #[must_use]
    pub fn reqid(&self, direction: Direction, slot: SaSlot) -> Option<u32> {
        let number = self.by_slot.get(&(direction, slot))?;
        self.associations.of_number(*number).map(|found| found.sa.info.reqid)
    }

    /// The index of a daemon's policy, as `ip xfrm policy` shows it; `None` for a policy that is no
    /// daemon's. Of policies `in` and `fwd` that are one to workers, that of the stricter one.
    #[must_use]
    pub fn policy_index(&self, id: PolicyId) -> Option<u32> {
        self.plane.number(id)
    }

    /// The reqid that a daemon's policy asks of its SAs, if it protects.
    #[must_use]
    pub fn policy_reqid(&self, index: u32) -> Option<u32> {
        self.policies.by_index(index)?.templates.first().map(|template| template.reqid)
    }
}
