//! Closes what a policy covers before anybody knows the policy, and opens it again if the policy is refused.

use convoy_control::xfrm::{CoverChange, Covered};
use convoy_leak_protection::LeakProtectionError;
use convoy_xfrm::{Errno, Refusal};

use super::LeakProtection;

/// The error where a kernel's number is not known.
const EIO: Errno = Errno(5);

/// Traffic that was closed for a policy that nobody knows yet.
#[derive(Debug)]
#[must_use = "what was closed stays so"]
pub(in crate::gateway) struct PendingChange(Option<Covered>);

impl PendingChange {
    /// Closes what policies are to cover, and has answers forgotten that they, or those that go, may make wrong. Nothing is
    /// answered meanwhile ([`LeakProtection::pause`]), nor until they are in force.
    pub(in crate::gateway) fn begin(
        protection: &mut LeakProtection,
        change: CoverChange,
    ) -> Result<Self, Refusal> {
        let CoverChange { come, gone } = change;
        let pending = Self(come);
        let closed = protection.follow(pending.0.as_slice(), &[]).or_else(|error| {
            // Somebody may have taken the packet filter's table away: then all is made anew.
            protection.repair().map_err(|_| unprotected(&error))
        });
        let closed = closed.and_then(|()| protection.forget_first(&gone).map_err(|e| believed(&e)));
        let Err(refusal) = closed else { return Ok(pending) };
        tracing::error!("leak protection: {}", refusal.text);
        // Whatever failed may have left something behind.
        protection.note_failure();
        pending.undo(protection);
        Err(refusal)
    }

    /// The policy was refused: opens again.
    pub(in crate::gateway) fn undo(self, protection: &mut LeakProtection) {
        protection.attempt(|it| it.take_back(self.0.as_slice()).and_then(|()| it.forget()));
    }

    /// The policy is there.
    pub(in crate::gateway) fn done(self) {}
}

/// Refusal of a policy whose packets cannot be kept from leaving in clear.
fn unprotected(error: &LeakProtectionError) -> Refusal {
    let text = format!("leak protection cannot cover its packets: {error}");
    Refusal::new(errno(error), text)
}

/// Refusal of a change against which answers of before would stand.
fn believed(error: &LeakProtectionError) -> Refusal {
    let text = format!("flows that earlier policies bypassed would still pass in clear: {error}");
    Refusal::new(errno(error), text)
}

fn errno(error: &LeakProtectionError) -> Errno {
    match error {
        LeakProtectionError::Denied { .. } => Errno::EPERM,
        _ => error.refusal().map_or(EIO, |refusal| Errno(refusal.errno)),
    }
}
