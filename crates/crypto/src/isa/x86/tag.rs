//! The end of operations of AES-GCM.

use super::lanes::{B, Lanes};
use crate::isa::{made_public, packet::GcmPacket};

/// Ends an operation whose payload has been transformed: writes its ICV, or compares it.
#[inline(always)]
pub(super) fn finish<'a, L: Lanes, O: GcmPacket<'a>>(l: L, op: &mut O, tag: B) {
    // A whole tag need not leave the register, nor be left on the stack.
    if let Some(expected) = op.expected().map(|expected| l.load(expected)) {
        op.settle(made_public(l.all_zero(l.xor(tag, expected))));
    } else if let Some(to) = op.place() {
        l.store(to, tag);
        op.settle(true);
    } else {
        op.finish(l.to_bytes(tag));
    }
}
