//! Four blocks per register: the instructions of the tier `vaes512`, behind safe methods of its
//! token.

use std::arch::x86_64::*;

use super::{
    lanes::{B, instructions},
    token::Vaes512,
};
use crate::block::Block;

/// Sixty-four bytes in a register: four blocks.
pub(super) type Z = __m512i;

/// Sixty-four bytes that can be loaded with an aligned load.
#[repr(C, align(64))]
pub(super) struct Quad(pub(super) [[u8; 16]; 4]);

/// Reverses the bytes of each block when used as a shuffle.
static REVERSE: Quad = Quad([[15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]; 4]);

impl Vaes512 {
    instructions! {
        /// All zero.
        pub(super) zero4() -> Z = _mm512_setzero_si512;
        /// Bitwise exclusive or.
        pub(super) xor4(a: Z, b: Z) -> Z = _mm512_xor_si512;
        /// Bitwise and.
        pub(super) and4(a: Z, b: Z) -> Z = _mm512_and_si512;
        /// `a ^ b ^ c`.
        pub(super) xor4_3(a: Z, b: Z, c: Z) -> Z = _mm512_ternarylogic_epi64::<0x96>;
        /// One middle round of AES on each block.
        pub(super) aes_round4(state: Z, key: Z) -> Z = _mm512_aesenc_epi128;
        /// The last round of AES on each block.
        pub(super) aes_last4(state: Z, key: Z) -> Z = _mm512_aesenclast_epi128;
        /// Carry-less products of the low halves.
        pub(super) mul_lo4(a: Z, b: Z) -> Z = _mm512_clmulepi64_epi128::<0x00>;
        /// Carry-less products of the low halves of `a` and the high halves of `b`.
        pub(super) mul_lo_hi4(a: Z, b: Z) -> Z = _mm512_clmulepi64_epi128::<0x10>;
        /// Carry-less products of the high halves of `a` and the low halves of `b`.
        pub(super) mul_hi_lo4(a: Z, b: Z) -> Z = _mm512_clmulepi64_epi128::<0x01>;
        /// Carry-less products of the high halves.
        pub(super) mul_hi4(a: Z, b: Z) -> Z = _mm512_clmulepi64_epi128::<0x11>;
        /// Low halves moved up, zeros below.
        pub(super) low_to_high4(a: Z) -> Z = _mm512_bslli_epi128::<8>;
        /// High halves moved down, zeros above.
        pub(super) high_to_low4(a: Z) -> Z = _mm512_bsrli_epi128::<8>;
        /// The halves of each block exchanged.
        pub(super) swap_halves4(a: Z) -> Z = _mm512_shuffle_epi32::<0x4e>;
        /// Bytes of each block of `a` chosen by `order`.
        pub(super) shuffle4(a: Z, order: Z) -> Z = _mm512_shuffle_epi8;
        /// The same 64-bit word eight times.
        pub(super) fill4(word: i64) -> Z = _mm512_set1_epi64;
        /// The same block four times.
        pub(super) repeat4(a: B) -> Z = _mm512_broadcast_i32x4;
        /// `word` as the last word of each block, zeros elsewhere.
        pub(super) last_word4(word: i32) -> Z = last_word;
        /// Bytes of `a` under the mask, zeros elsewhere.
        pub(super) keep4(mask: u64, a: Z) -> Z = _mm512_maskz_mov_epi8;
        /// Block `a` in the lane chosen by a mask of 32-bit words, zeros elsewhere.
        pub(super) place4(words: u16, a: B) -> Z = _mm512_maskz_broadcast_i32x4;
        /// `first` as the first block and `second` as the second.
        join2(first: B, second: B) -> __m256i = join;
        /// Half a register, zeros above.
        pub(super) widen2(a: __m256i) -> Z = _mm512_zextsi256_si512;
        /// A block, zeros above.
        widen1(a: B) -> __m256i = _mm256_zextsi128_si256;
        /// A block, zeros above.
        widen(a: B) -> Z = _mm512_zextsi128_si512;
        /// Half a register as the upper half, zeros below.
        place_upper(a: __m256i) -> Z = place_upper;
        /// Words of 64 bits times eight.
        pub(super) bits4(a: Z) -> Z = _mm512_slli_epi64::<3>;
        /// Blocks 0 and 1 of `a`, then of `b`.
        fronts4(a: Z, b: Z) -> Z = _mm512_shuffle_i64x2::<0x44>;
        /// Blocks 2 and 3 of `a`, then of `b`.
        backs4(a: Z, b: Z) -> Z = _mm512_shuffle_i64x2::<0xee>;
        /// Blocks 0 and 2 of `a`, then of `b`.
        evens4(a: Z, b: Z) -> Z = _mm512_shuffle_i64x2::<0x88>;
        /// Blocks 1 and 3 of `a`, then of `b`.
        odds4(a: Z, b: Z) -> Z = _mm512_shuffle_i64x2::<0xdd>;
        /// The third block.
        pub(super) third(a: Z) -> B = _mm512_extracti32x4_epi32::<2>;
        /// The fourth block.
        pub(super) fourth(a: Z) -> B = _mm512_extracti32x4_epi32::<3>;
        /// A bit for each 64-bit word, set where the two differ.
        pub(super) differs4(a: Z, b: Z) -> u8 = _mm512_cmpneq_epi64_mask;
        spread_first(a: Z) -> Z = spread::<0x00>;
        spread_second(a: Z) -> Z = spread::<0x55>;
        spread_third(a: Z) -> Z = spread::<0xaa>;
        spread_fourth(a: Z) -> Z = spread::<0xff>;
        /// The first block, zeros behind it.
        keep_first(a: Z) -> Z = keep_first;
        /// As many low bits of a word.
        low_bits(word: u64, count: u32) -> u64 = _bzhi_u64;
        /// Half a register behind the other.
        join_halves(lower: __m256i, upper: __m256i) -> Z = join_halves;
        /// The upper half, zeros below.
        pub(super) only_upper4(a: Z) -> Z = only_upper;
        /// The second block.
        pub(super) second(a: Z) -> B = _mm512_extracti32x4_epi32::<1>;
        /// The first two blocks.
        pub(super) lower(a: Z) -> __m256i = _mm512_castsi512_si256;
        /// The last two blocks.
        pub(super) upper(a: Z) -> __m256i = _mm512_extracti64x4_epi64::<1>;
        /// Bitwise exclusive or of two pairs of blocks.
        pub(super) xor2(a: __m256i, b: __m256i) -> __m256i = _mm256_xor_si256;
        /// The first block of two.
        pub(super) first_of2(a: __m256i) -> B = _mm256_castsi256_si128;
        /// The second block of two.
        pub(super) second_of2(a: __m256i) -> B = _mm256_extracti128_si256::<1>;
    }

    /// As many low bits as there are bytes, at most 64. There is no branch, behind which compilers would put what
    /// stands in front of it.
    #[inline(always)]
    pub(super) fn front_mask(self, len: usize) -> u64 {
        self.low_bits(!0, len.min(64) as u32)
    }

    /// Block `LANE` of `a`, four times.
    #[inline(always)]
    pub(super) fn spread4<const LANE: usize>(self, a: Z) -> Z {
        match LANE {
            0 => self.spread_first(a),
            1 => self.spread_second(a),
            2 => self.spread_third(a),
            _ => self.spread_fourth(a),
        }
    }

    /// Block `LANE` of `a` as the first one, zeros behind it.
    #[inline(always)]
    pub(super) fn to_front4<const LANE: usize>(self, a: Z) -> Z {
        match LANE {
            0 => self.keep_first(a),
            1 => self.widen(self.second(a)),
            2 => self.widen(self.third(a)),
            _ => self.widen(self.fourth(a)),
        }
    }

    /// A block in the first lane, zeros behind it.
    #[inline(always)]
    pub(super) fn to_first4(self, a: B) -> Z {
        self.widen(a)
    }

    /// The sum of the four blocks of each register, in the lane of its number.
    #[inline(always)]
    pub(super) fn fold_each4(self, [a, b, c, d]: [Z; 4]) -> Z {
        let ab = self.xor4(self.fronts4(a, b), self.backs4(a, b));
        let cd = self.xor4(self.fronts4(c, d), self.backs4(c, d));
        self.xor4(self.evens4(ab, cd), self.odds4(ab, cd))
    }

    /// Sixty-four bytes from anywhere.
    #[inline(always)]
    pub(super) fn load4(self, bytes: &[u8; 64]) -> Z {
        // SAFETY: the reference is valid for 64 bytes, and the load needs no alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    /// Stores sixty-four bytes anywhere.
    #[inline(always)]
    pub(super) fn store4(self, bytes: &mut [u8; 64], a: Z) {
        // SAFETY: the reference is valid for 64 bytes, and the store needs no alignment.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), a) }
    }

    /// Four consecutive blocks of a table.
    #[inline(always)]
    pub(super) fn window4(self, blocks: &[Block; 4]) -> Z {
        // SAFETY: four blocks are 64 bytes without gaps, and the load needs no alignment.
        unsafe { _mm512_loadu_si512(blocks.as_ptr().cast()) }
    }

    /// A constant.
    #[inline(always)]
    pub(super) fn constant4(self, quad: &Quad) -> Z {
        // SAFETY: the reference is valid for 64 bytes, and `Quad` is aligned to 64.
        unsafe { _mm512_load_si512(quad.0.as_ptr().cast()) }
    }

    /// A block of a table, four times.
    #[inline(always)]
    pub(super) fn table4(self, block: &Block) -> Z {
        use super::lanes::Lanes;
        self.repeat4(self.table(block))
    }

    /// Half a register of bytes as the upper half, zeros below.
    #[inline(always)]
    pub(super) fn load_upper4(self, bytes: &[u8; HEAD]) -> Z {
        self.place_upper(self.load2(bytes))
    }

    /// Stores the upper half of a register.
    #[inline(always)]
    pub(super) fn store_upper4(self, bytes: &mut [u8; HEAD], a: Z) {
        self.store2(bytes, self.upper(a));
    }

    #[inline(always)]
    fn load2(self, bytes: &[u8; 32]) -> __m256i {
        // SAFETY: the reference is valid for 32 bytes, and the load needs no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store2(self, bytes: &mut [u8; 32], a: __m256i) {
        // SAFETY: the reference is valid for 32 bytes, and the store needs no alignment.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), a) }
    }

    /// Bytes that are in `count` blocks (1 to 4), zeros behind them.
    ///
    /// The access is as narrow as it can be: whatever it could reach and masks out, the processor
    /// takes for touched, and makes it wait for a store to a neighbour that is still under way.
    #[inline(always)]
    pub(super) fn load_blocks4(self, count: usize, bytes: &[u8]) -> Z {
        use super::lanes::Lanes;
        match count {
            1 => self.widen(self.load_some(bytes)),
            2 => self.widen2(self.load_some2(bytes)),
            3 => match bytes.split_first_chunk() {
                Some((lower, rest)) => {
                    self.join_halves(self.load2(lower), self.widen1(self.load_some(rest)))
                }
                None => self.load_some4(bytes),
            },
            _ => self.load_some4(bytes),
        }
    }

    /// Stores to bytes that are in `count` blocks; see [`load_blocks4`](Self::load_blocks4).
    #[inline(always)]
    pub(super) fn store_blocks4(self, count: usize, bytes: &mut [u8], a: Z) {
        use super::lanes::Lanes;
        match count {
            1 => self.store_some(bytes, self.first_of2(self.lower(a))),
            2 => self.store_some2(bytes, self.lower(a)),
            3 => match bytes.split_first_chunk_mut() {
                Some((lower, rest)) => {
                    self.store2(lower, self.lower(a));
                    self.store_some(rest, self.first_of2(self.upper(a)));
                }
                None => self.store_some4(bytes, a),
            },
            _ => self.store_some4(bytes, a),
        }
    }

    #[inline(always)]
    fn load_some2(self, bytes: &[u8]) -> __m256i {
        // SAFETY: only bytes under the mask are read, and those lie within the slice; the token
        // proves AVX-512 BW and VL.
        unsafe {
            _mm256_maskz_loadu_epi8(self.front_mask(bytes.len()) as u32, bytes.as_ptr().cast())
        }
    }

    #[inline(always)]
    fn store_some2(self, bytes: &mut [u8], a: __m256i) {
        let mask = self.front_mask(bytes.len()) as u32;
        // SAFETY: only bytes under the mask are written, and those lie within the slice; the token
        // proves AVX-512 BW and VL.
        unsafe { _mm256_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask, a) }
    }

    /// Up to 64 bytes, zeros behind them.
    #[inline(always)]
    pub(super) fn load_some4(self, bytes: &[u8]) -> Z {
        // SAFETY: only bytes under the mask are read, and those lie within the slice; the token
        // proves AVX-512 BW.
        unsafe { _mm512_maskz_loadu_epi8(self.front_mask(bytes.len()), bytes.as_ptr().cast()) }
    }

    /// Stores the front of a register: as many bytes as there are in `bytes`, at most 64.
    #[inline(always)]
    pub(super) fn store_some4(self, bytes: &mut [u8], a: Z) {
        let mask = self.front_mask(bytes.len());
        // SAFETY: only bytes under the mask are written, and those lie within the slice; the token
        // proves AVX-512 BW.
        unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask, a) }
    }

    /// Blocks of four tables.
    #[inline(always)]
    pub(super) fn tables4(self, [a, b, c, d]: [&Block; 4]) -> Z {
        use super::lanes::Lanes;
        // No `map`: it might not be inlined, and round keys would go through the stack.
        self.unite4([self.table(a), self.table(b), self.table(c), self.table(d)])
    }

    /// Four blocks, the first one lowest.
    #[inline(always)]
    pub(super) fn unite4(self, [a, b, c, d]: [B; 4]) -> Z {
        self.join_halves(self.join2(a, b), self.join2(c, d))
    }

    /// The four blocks.
    #[inline(always)]
    pub(super) fn blocks_of4(self, a: Z) -> [B; 4] {
        [self.first_of2(self.lower(a)), self.second(a), self.third(a), self.fourth(a)]
    }

    /// Block `j` of register `i` becomes block `i` of register `j`.
    #[inline(always)]
    pub(super) fn transpose4(self, [a, b, c, d]: [Z; 4]) -> [Z; 4] {
        let (ab, cd) = (self.fronts4(a, b), self.fronts4(c, d));
        let (ab_back, cd_back) = (self.backs4(a, b), self.backs4(c, d));
        [
            self.evens4(ab, cd),
            self.odds4(ab, cd),
            self.evens4(ab_back, cd_back),
            self.odds4(ab_back, cd_back),
        ]
    }

    /// `second` in the second lane, `first` in front of it, zeros behind.
    #[inline(always)]
    pub(super) fn join4(self, second: B, first: B) -> Z {
        self.widen2(self.join2(first, second))
    }

    /// `a` with its first block replaced.
    #[inline(always)]
    pub(super) fn set_first4(self, a: Z, block: &Block) -> Z {
        use super::lanes::Lanes;
        let block = self.table(block);
        // SAFETY: the token proves AVX-512 F.
        unsafe { _mm512_inserti32x4::<0>(a, block) }
    }

    /// The bytes of each block in reverse order.
    #[inline(always)]
    pub(super) fn reverse4(self, a: Z) -> Z {
        self.shuffle4(a, self.constant4(&REVERSE))
    }

    /// The sum of the four blocks.
    #[inline(always)]
    pub(super) fn fold4(self, a: Z) -> B {
        use super::lanes::Lanes;
        let two = self.xor2(self.lower(a), self.upper(a));
        self.xor(self.first_of2(two), self.second_of2(two))
    }
}

/// Bytes of a message's first register that are not payload.
pub(super) const HEAD: usize = 32;

#[inline(always)]
unsafe fn join(first: B, second: B) -> __m256i {
    // SAFETY: the caller holds a token that proves AVX2.
    unsafe { _mm256_set_m128i(second, first) }
}

/// Blocks of `a` as `ORDER` has them.
#[inline(always)]
unsafe fn spread<const ORDER: i32>(a: Z) -> Z {
    // SAFETY: the caller holds a token that proves AVX-512 F.
    unsafe { _mm512_shuffle_i32x4::<ORDER>(a, a) }
}

#[inline(always)]
unsafe fn keep_first(a: Z) -> Z {
    // SAFETY: the caller holds a token that proves AVX-512 F.
    unsafe { _mm512_maskz_mov_epi32(0x000f, a) }
}

#[inline(always)]
unsafe fn join_halves(lower: __m256i, upper: __m256i) -> Z {
    // SAFETY: the caller holds a token that proves AVX-512 F.
    let lower = unsafe { _mm512_castsi256_si512(lower) };
    // SAFETY: as above.
    unsafe { _mm512_inserti64x4::<1>(lower, upper) }
}

#[inline(always)]
unsafe fn place_upper(a: __m256i) -> Z {
    // SAFETY: the caller holds a token that proves AVX-512 F.
    unsafe { _mm512_maskz_broadcast_i64x4(0xf0, a) }
}

#[inline(always)]
unsafe fn only_upper(a: Z) -> Z {
    // SAFETY: the caller holds a token that proves AVX-512 F.
    unsafe { _mm512_maskz_mov_epi64(0xf0, a) }
}

#[inline(always)]
unsafe fn last_word(word: i32) -> Z {
    // SAFETY: the caller holds a token that proves AVX-512 F.
    unsafe { _mm512_maskz_set1_epi32(0x8888, word) }
}
