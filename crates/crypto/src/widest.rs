//! Registers and stack that a burst leaves to be wiped.

use crate::{
    isa::Kernel,
    secret::{depth, wipe_below},
};

/// Record of what has to be wiped behind a burst.
#[derive(Default)]
pub(crate) struct Widest {
    /// The kernel with the widest registers that took part, if any did.
    kernel: Option<Kernel>,
    /// True if the portable tier took part, which does not keep the stack clean.
    portable: bool,
}

impl Widest {
    /// Notes that `kernel` took part, or the portable tier.
    #[inline(always)]
    pub(crate) fn note(&mut self, kernel: Option<Kernel>) {
        let Some(kernel) = kernel else {
            self.portable = true;
            return;
        };
        if self.kernel.is_none_or(|widest| widest.tier() < kernel.tier()) {
            self.kernel = Some(kernel);
        }
    }

    /// Wipes the vector registers. `forged` says whether a packet was or may be, whose right tag may then lie
    /// on the stack, where the compiler put it; `others`, whether there were other suites than AES-GCM.
    pub(crate) fn wipe(self, others: bool, forged: bool) {
        if let Some(kernel) = self.kernel {
            kernel.wipe_registers();
        }
        if !(self.portable | forged) {
            return;
        }
        if others {
            wipe_below::<{ depth::BURST }>();
        } else {
            wipe_below::<{ depth::GCM_BURST }>();
        }
    }
}
