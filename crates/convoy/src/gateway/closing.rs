//! A policy's networks are closed before anybody knows the policy, and open again if it is refused.

use convoy_control::xfrm::{Cover, Covered};
use convoy_host::{Cause, HostError};
use convoy_xfrm::{Errno, Refusal};

use super::daemons::FENCE;
use super::fence::Guard;
use crate::exit::describe;

/// The error where a kernel's number is not known.
const EIO: Errno = Errno(5);

/// What was closed for a policy that nobody knows yet.
#[derive(Debug)]
#[must_use = "what was closed stays so"]
pub(super) struct Closing(Option<Covered>);

impl Closing {
    /// Closes what a policy is to protect.
    pub(super) fn begin(guard: &mut Guard, draft: Option<Covered>) -> Result<Self, Refusal> {
        let closing = Self(draft);
        // Nothing else hangs on the fence.
        if closing.0.is_none() {
            return Ok(closing);
        }
        let Err(error) = guard.follow(closing.0.as_slice(), &[]) else { return Ok(closing) };
        // Somebody may have taken the packet filter's table away: then all is made anew.
        if guard.mend().is_ok() {
            return Ok(closing);
        }
        let refusal = unprotected(&error);
        tracing::error!("{FENCE}: {}", refusal.text);
        let _ = closing.undo(guard);
        Err(refusal)
    }

    /// The policy was refused: opens again; whether that went well.
    pub(super) fn undo(self, guard: &mut Guard) -> bool {
        if self.0.is_none() {
            return true;
        }
        let outcome = guard.follow(&[], self.0.as_slice());
        outcome.inspect_err(|error| tracing::error!("{FENCE}: {}", describe(error))).is_ok()
    }

    /// The policy is there; what is to be opened of what it covers, and what of it was not closed yet.
    pub(super) fn done(self, covered: Vec<Covered>) -> (Vec<Covered>, Vec<Covered>) {
        let rest = covered.into_iter().filter(|covered| Some(*covered) != self.0);
        rest.partition(|covered| covered.cover == Cover::Bypass)
    }
}

/// Why a policy is refused whose packets cannot be kept from leaving in clear.
fn unprotected(error: &anyhow::Error) -> Refusal {
    let errno = match error.downcast_ref() {
        Some(HostError::Fence { cause: Cause::Other { errno, .. }, .. }) => Errno(*errno),
        Some(HostError::Fence { cause: Cause::NotPermitted, .. }) => Errno::EPERM,
        _ => EIO,
    };
    Refusal::new(
        errno,
        format!("its packets cannot be kept from leaving in clear: {}", describe(error)),
    )
}
