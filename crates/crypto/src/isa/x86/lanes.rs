//! One block per register: the instructions that every tier has, behind safe methods of the proof
//! tokens.

use std::arch::x86_64::*;

use super::token::{AesNi, AesSha, Avx, Avx2, Avx512, Vaes256, Vaes512, WideSha};
use crate::block::Block;

/// Sixteen bytes in a register.
pub(super) type B = __m128i;

/// Declares methods that are one instruction each.
macro_rules! instructions {
    ($($(#[$doc:meta])* $vis:vis $name:ident($($arg:ident: $type:ty),*) -> $out:ty = $intrinsic:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        $vis fn $name(self $(, $arg: $type)*) -> $out {
            // SAFETY: a value of the implementing type proves that the processor has the
            // instruction.
            unsafe { $intrinsic($($arg),*) }
        }
    )*};
}
pub(super) use instructions;

/// Reverses the bytes of a block when used as a shuffle.
const REVERSE: Block = Block([15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);

/// Sixteen bytes set, then sixteen clear: a window into it keeps the front of a block.
static KEEP: [u8; 32] = {
    let mut keep = [0; 32];
    let mut i = 0;
    while i < 16 {
        keep[i] = 0xff;
        i += 1;
    }
    keep
};

/// Instructions on single blocks. The provided methods need the features of [`AesNi`].
///
/// # Safety
///
/// A value of the type must exist only where the processor has all features of the tier `aesni`.
pub(super) unsafe trait Lanes: Copy {
    /// Vector registers that there are.
    const REGISTERS: usize = 16;

    instructions! {
        /// All zero.
        zero() -> B = _mm_setzero_si128;
        /// Bitwise exclusive or.
        xor(a: B, b: B) -> B = _mm_xor_si128;
        /// Bitwise and.
        and(a: B, b: B) -> B = _mm_and_si128;
        /// One middle round of AES.
        aes_round(state: B, key: B) -> B = _mm_aesenc_si128;
        /// The last round of AES.
        aes_last(state: B, key: B) -> B = _mm_aesenclast_si128;
        /// One middle round of AES's inverse.
        aes_undo_round(state: B, key: B) -> B = _mm_aesdec_si128;
        /// The last round of AES's inverse.
        aes_undo_last(state: B, key: B) -> B = _mm_aesdeclast_si128;
        /// InvMixColumns (FIPS 197 section 5.3.3).
        aes_unmix(key: B) -> B = _mm_aesimc_si128;
        /// Four sums of 32-bit words.
        add_words(a: B, b: B) -> B = _mm_add_epi32;
        /// Two sums of 64-bit words.
        add_longs(a: B, b: B) -> B = _mm_add_epi64;
        /// Carry-less product of the low halves.
        mul_lo(a: B, b: B) -> B = _mm_clmulepi64_si128::<0x00>;
        /// Carry-less product of the high halves.
        mul_hi(a: B, b: B) -> B = _mm_clmulepi64_si128::<0x11>;
        /// The low half moved up; the low half of the result is zero.
        low_to_high(a: B) -> B = _mm_bslli_si128::<8>;
        /// The high half moved down; the high half of the result is zero.
        high_to_low(a: B) -> B = _mm_bsrli_si128::<8>;
        /// Each 32-bit word moved up by one; the lowest becomes zero.
        words_up(a: B) -> B = _mm_bslli_si128::<4>;
        /// The halves exchanged.
        swap_halves(a: B) -> B = _mm_shuffle_epi32::<0x4e>;
        /// Bytes of `a` chosen by `order`.
        shuffle(a: B, order: B) -> B = _mm_shuffle_epi8;
        /// Two words, the low one second.
        pair(high: i64, low: i64) -> B = _mm_set_epi64x;
        /// Four words, the lowest last.
        quad(d: i32, c: i32, b: i32, a: i32) -> B = _mm_set_epi32;
        /// The lowest 32-bit word.
        low_word(a: B) -> i32 = _mm_cvtsi128_si32;
    }

    /// `a ^ b ^ c`.
    #[inline(always)]
    fn xor3(self, a: B, b: B, c: B) -> B {
        self.xor(self.xor(a, b), c)
    }

    /// True if every bit is zero; the time taken does not depend on it.
    #[inline(always)]
    fn all_zero(self, a: B) -> bool {
        // SAFETY: a value of the implementing type proves SSE4.1.
        unsafe { _mm_testz_si128(a, a) != 0 }
    }

    /// Sixteen bytes from anywhere.
    #[inline(always)]
    fn load(self, bytes: &[u8; 16]) -> B {
        // SAFETY: the reference is valid for 16 bytes, and the load needs no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    /// Stores sixteen bytes anywhere.
    #[inline(always)]
    fn store(self, bytes: &mut [u8; 16], a: B) {
        // SAFETY: the reference is valid for 16 bytes, and the store needs no alignment.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), a) }
    }

    /// An aligned block of a table, which instructions can take straight from memory.
    #[inline(always)]
    fn table(self, block: &Block) -> B {
        // SAFETY: the reference is valid for 16 bytes, and `Block` is aligned to 16.
        unsafe { _mm_load_si128(block.0.as_ptr().cast()) }
    }

    /// Eight bytes as the low half, zeros above.
    #[inline(always)]
    fn load_low(self, bytes: &[u8; 8]) -> B {
        // SAFETY: the reference is valid for the eight bytes that are loaded, and the load needs no alignment.
        unsafe { _mm_loadl_epi64(bytes.as_ptr().cast()) }
    }

    /// The block as bytes.
    #[inline(always)]
    fn to_bytes(self, a: B) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.store(&mut bytes, a);
        bytes
    }

    /// The block with its bytes in reverse order.
    #[inline(always)]
    fn reverse(self, a: B) -> B {
        self.shuffle(a, self.table(&REVERSE))
    }

    /// The first `len` bytes of a block; the others become zero. At most 16 are kept.
    #[inline(always)]
    fn keep(self, a: B, len: usize) -> B {
        let start = 16usize.saturating_sub(len);
        match KEEP.get(start..).and_then(<[u8]>::first_chunk) {
            Some(mask) => self.and(a, self.load(mask)),
            None => a,
        }
    }

    /// Up to 16 bytes, with zeros behind them; more than 16 are not looked at.
    #[inline(always)]
    fn load_some(self, bytes: &[u8]) -> B {
        let len = bytes.len();
        let (low, high) = if let Some(block) = bytes.first_chunk::<16>() {
            return self.load(block);
        } else if let (Some(&front), Some(&back)) =
            (bytes.first_chunk::<8>(), bytes.last_chunk::<8>())
        {
            // The last eight bytes overlap the first eight; shift out what was read twice.
            let back = (u64::from_le_bytes(back) >> 8) >> (8 * (15 - len));
            (u64::from_le_bytes(front), back)
        } else {
            (load_word(bytes), 0)
        };
        self.pair(high as i64, low as i64)
    }

    /// Stores the front of a block: as many bytes as there are in `bytes`, at most 16.
    #[inline(always)]
    fn store_some(self, bytes: &mut [u8], a: B) {
        if let Some(block) = bytes.first_chunk_mut::<16>() {
            return self.store(block, a);
        }
        let all = u128::from_le_bytes(self.to_bytes(a));
        let len = bytes.len();
        if let Some(front) = bytes.first_chunk_mut::<8>() {
            *front = (all as u64).to_le_bytes();
            if let Some(back) = bytes.last_chunk_mut::<8>() {
                *back = ((all >> (8 * (len - 8))) as u64).to_le_bytes();
            }
        } else {
            store_word(bytes, all as u64);
        }
    }
}

/// Up to seven bytes as a little-endian number.
#[inline(always)]
fn load_word(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if let (Some(&front), Some(&back)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let back = u64::from(u32::from_le_bytes(back)) << (8 * (len - 4));
        u64::from(u32::from_le_bytes(front)) | back
    } else {
        match *bytes {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_le_bytes([a, b])),
            [a, b, c] => u64::from(u32::from_le_bytes([a, b, c, 0])),
            _ => 0,
        }
    }
}

/// The low bytes of a number, as many as there are in `bytes`; at most seven.
#[inline(always)]
fn store_word(bytes: &mut [u8], word: u64) {
    let len = bytes.len();
    if let Some(front) = bytes.first_chunk_mut::<4>() {
        *front = (word as u32).to_le_bytes();
        if let Some(back) = bytes.last_chunk_mut::<4>() {
            *back = ((word >> (8 * (len - 4))) as u32).to_le_bytes();
        }
    } else {
        let [x, y, z, ..] = word.to_le_bytes();
        match bytes {
            [a] => *a = x,
            [a, b] => [*a, *b] = [x, y],
            [a, b, c] => [*a, *b, *c] = [x, y, z],
            _ => {}
        }
    }
}

// SAFETY: detection makes the token only where the processor has the features of `aesni`.
unsafe impl Lanes for AesNi {}
// SAFETY: the tier builds on `aesni`.
unsafe impl Lanes for Avx {}
// SAFETY: the tier builds on `aesni`.
unsafe impl Lanes for Avx2 {}
// SAFETY: the tier builds on `aesni`.
unsafe impl Lanes for Vaes256 {}
// SAFETY: detection makes the token only where the processor has the features of `aesni`.
unsafe impl Lanes for AesSha {}

macro_rules! with_masks {
    ($($token:ident)*) => {$(
        // SAFETY: detection makes the token only where the processor has the features of `aesni`
        // and `avx512`.
        unsafe impl Lanes for $token {
            const REGISTERS: usize = 32;

            #[inline(always)]
            fn xor3(self, a: B, b: B, c: B) -> B {
                // SAFETY: the token proves AVX-512 F and VL.
                unsafe { _mm_ternarylogic_epi32::<0x96>(a, b, c) }
            }

            #[inline(always)]
            fn keep(self, a: B, len: usize) -> B {
                // SAFETY: the token proves AVX-512 BW and VL.
                unsafe { _mm_maskz_mov_epi8(front_mask(len), a) }
            }

            #[inline(always)]
            fn load_some(self, bytes: &[u8]) -> B {
                // An empty slice may lie where no memory is, and a page of constants that nothing else
                // reads may not be mapped yet. Nothing is read from there, but the processor takes
                // hundreds of cycles to see that, again and again: no fault maps such a page.
                if bytes.is_empty() {
                    return self.zero();
                }
                // SAFETY: only bytes under the mask are read, and those lie within the slice; the
                // token proves AVX-512 BW and VL.
                unsafe { _mm_maskz_loadu_epi8(front_mask(bytes.len()), bytes.as_ptr().cast()) }
            }

            #[inline(always)]
            fn store_some(self, bytes: &mut [u8], a: B) {
                // SAFETY: only bytes under the mask are written, and those lie within the slice;
                // the token proves AVX-512 BW and VL.
                unsafe { _mm_mask_storeu_epi8(bytes.as_mut_ptr().cast(), front_mask(bytes.len()), a) }
            }
        }
    )*};
}

with_masks!(Avx512 Vaes512 WideSha);

/// As many low bits as there are bytes to keep, at most 16.
#[inline(always)]
fn front_mask(len: usize) -> __mmask16 {
    if len >= 16 { !0 } else { (1 << len) - 1 }
}
