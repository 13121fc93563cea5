//! What a policy covers is closed before anybody knows the policy, and open again if it is refused.

use convoy_control::xfrm::Covered;
use convoy_leak_protection::LeakProtectionError;
use convoy_xfrm::{Errno, Refusal};

use super::guard::Guard;

/// The error where a kernel's number is not known.
const EIO: Errno = Errno(5);

/// What was closed for a policy that nobody knows yet.
#[derive(Debug)]
#[must_use = "what was closed stays so"]
pub(super) struct Closing(Option<Covered>);

impl Closing {
    /// Closes what a policy covers. What it lets pass goes on as policies of before say.
    pub(super) fn begin(guard: &mut Guard, draft: Option<Covered>) -> Result<Self, Refusal> {
        let closing = Self(draft);
        let Err(error) = guard.follow(closing.0.as_slice(), &[]) else { return Ok(closing) };
        // Somebody may have taken the packet filter's table away: then all is made anew.
        if guard.mend().is_ok() {
            return Ok(closing);
        }
        let refusal = unprotected(&error);
        tracing::error!("leak protection: {}", refusal.text);
        let _ = closing.undo(guard);
        Err(refusal)
    }

    /// The policy was refused: opens again; whether that went well.
    pub(super) fn undo(self, guard: &mut Guard) -> bool {
        let outcome = guard.follow(&[], self.0.as_slice()).and_then(|()| guard.forget());
        outcome.inspect_err(|error| tracing::error!("leak protection: {error}")).is_ok()
    }

    /// The policy is there.
    pub(super) fn done(self) {}
}

/// Why a policy is refused whose packets cannot be kept from leaving in clear.
fn unprotected(error: &LeakProtectionError) -> Refusal {
    let errno = match error {
        LeakProtectionError::Denied { .. } => Errno::EPERM,
        _ => error.refusal().map_or(EIO, |refusal| Errno(refusal.errno)),
    };
    Refusal::new(errno, format!("its packets cannot be kept from leaving in clear: {error}"))
}
