//! Two blocks per register: the instructions of the tier `vaes256`, behind safe methods of its
//! token.

use std::arch::x86_64::*;

use super::{
    lanes::{B, Lanes, instructions},
    token::Vaes256,
};
use crate::block::Block;

/// Thirty-two bytes in a register: two blocks.
pub(super) type Y = __m256i;

impl Vaes256 {
    instructions! {
        /// All zero.
        pub(super) zero_pair() -> Y = _mm256_setzero_si256;
        /// Bitwise exclusive or.
        pub(super) xor_pair(a: Y, b: Y) -> Y = _mm256_xor_si256;
        /// One middle round of AES on each block.
        pub(super) aes_round_pair(state: Y, key: Y) -> Y = _mm256_aesenc_epi128;
        /// The last round of AES on each block.
        pub(super) aes_last_pair(state: Y, key: Y) -> Y = _mm256_aesenclast_epi128;
        /// Carry-less products of the low halves.
        pub(super) mul_lo_pair(a: Y, b: Y) -> Y = _mm256_clmulepi64_epi128::<0x00>;
        /// Carry-less products of the low halves of `a` and the high halves of `b`.
        pub(super) mul_lo_hi_pair(a: Y, b: Y) -> Y = _mm256_clmulepi64_epi128::<0x10>;
        /// Carry-less products of the high halves of `a` and the low halves of `b`.
        pub(super) mul_hi_lo_pair(a: Y, b: Y) -> Y = _mm256_clmulepi64_epi128::<0x01>;
        /// Carry-less products of the high halves.
        pub(super) mul_hi_pair(a: Y, b: Y) -> Y = _mm256_clmulepi64_epi128::<0x11>;
        /// The same block twice.
        pub(super) repeat_pair(a: B) -> Y = _mm256_broadcastsi128_si256;
        /// Two blocks, the first one last.
        pub(super) join_pair(second: B, first: B) -> Y = _mm256_set_m128i;
        /// A block, and zeros behind it.
        pub(super) widen(a: B) -> Y = _mm256_zextsi128_si256;
        /// The first block.
        pub(super) first(a: Y) -> B = _mm256_castsi256_si128;
        /// The second block.
        pub(super) second(a: Y) -> B = _mm256_extracti128_si256::<1>;
        /// The halves of each block exchanged.
        pub(super) swap_halves_pair(a: Y) -> Y = _mm256_shuffle_epi32::<0x4e>;
        /// The same word in all four places.
        pub(super) fill_pair(word: i64) -> Y = _mm256_set1_epi64x;
        shuffle_pair(a: Y, order: Y) -> Y = _mm256_shuffle_epi8;
        four(d: i64, c: i64, b: i64, a: i64) -> Y = _mm256_set_epi64x;
    }

    /// Thirty-two bytes from anywhere.
    #[inline(always)]
    pub(super) fn load_pair(self, bytes: &[u8; 32]) -> Y {
        // SAFETY: the reference is valid for 32 bytes, and the load needs no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    /// Stores thirty-two bytes anywhere.
    #[inline(always)]
    pub(super) fn store_pair(self, bytes: &mut [u8; 32], a: Y) {
        // SAFETY: the reference is valid for 32 bytes, and the store needs no alignment.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), a) }
    }

    /// Two consecutive blocks of a table.
    #[inline(always)]
    pub(super) fn window_pair(self, blocks: &[Block; 2]) -> Y {
        // SAFETY: two blocks are 32 bytes without gaps, and the load needs no alignment.
        unsafe { _mm256_loadu_si256(blocks.as_ptr().cast()) }
    }

    /// A block of a table, twice.
    #[inline(always)]
    pub(super) fn table_pair(self, block: &Block) -> Y {
        self.repeat_pair(self.table(block))
    }

    /// Up to 32 bytes, zeros behind them.
    #[inline(always)]
    pub(super) fn load_some_pair(self, bytes: &[u8]) -> Y {
        match bytes.split_at_checked(16) {
            Some((first, second)) => self.join_pair(self.load_some(second), self.load_some(first)),
            None => self.widen(self.load_some(bytes)),
        }
    }

    /// Stores the front of a register: as many bytes as there are in `bytes`, at most 32. Returns
    /// what was stored, with zeros behind it.
    #[inline(always)]
    pub(super) fn store_some_pair(self, bytes: &mut [u8], a: Y) -> Y {
        match bytes.split_at_mut_checked(16) {
            Some((first, second)) => {
                self.store_some(first, self.first(a));
                self.store_some(second, self.second(a));
                self.join_pair(self.keep(self.second(a), second.len()), self.first(a))
            }
            None => {
                self.store_some(bytes, self.first(a));
                self.widen(self.keep(self.first(a), bytes.len()))
            }
        }
    }

    /// The bytes of each block in reverse order.
    #[inline(always)]
    pub(super) fn reverse_pair(self, a: Y) -> Y {
        let (high, low) = (0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
        self.shuffle_pair(a, self.four(high, low, high, low))
    }

    /// The sum of both blocks.
    #[inline(always)]
    pub(super) fn fold_pair(self, a: Y) -> B {
        self.xor(self.first(a), self.second(a))
    }
}
