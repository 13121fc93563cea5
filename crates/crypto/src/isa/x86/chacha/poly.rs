//! Poly1305 of one message in general registers, of strings that do not end with a block.

use super::wide::Wide;
pub(super) use crate::poly::Poly;

impl Poly {
    /// Takes a string and zeros up to the end of its last block.
    #[inline(always)]
    pub(super) fn padded<W: Wide>(&mut self, w: W, bytes: &[u8]) {
        let rest = self.blocks(bytes);
        if !rest.is_empty() {
            self.block(some(w, rest));
        }
    }
}

/// Up to 16 bytes, and zeros.
#[inline(always)]
pub(super) fn some<W: Wide>(w: W, bytes: &[u8]) -> u128 {
    u128::from_le_bytes(w.to_bytes(w.load_some(bytes)))
}
