//! Vectors of 32-bit words: the instructions that ChaCha20 wants of a tier, behind safe methods of
//! the proof tokens. A register is a row of chunks of 128 bits, four lanes each.

use crate::{block::Block, pairs::PairedWith};
use std::{
    arch::{asm, x86_64::*},
    borrow::BorrowMut,
    ptr,
};

use super::super::{
    lanes::{B, Lanes, instructions},
    token::{AesNi, Avx, Avx2, Avx512, Vaes512},
};

/// Most lanes that a register has.
pub(super) const MAX_LANES: usize = 16;

/// Bytes of a block of ChaCha20.
pub(super) const BLOCK: usize = 64;

/// A block of keystream.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Pad(pub(super) [u8; BLOCK]);

impl Default for Pad {
    fn default() -> Self {
        Self([0; BLOCK])
    }
}

/// Eight words of 64 bits, as many as the widest register has, for aligned loads and stores.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(in super::super) struct Longs(pub(super) [u64; 8]);

/// Instructions on vectors of words.
pub(in super::super) trait Wide: Lanes {
    /// A register.
    type V: Copy;

    /// Words in a register, and so blocks of keystream under way together.
    const LANES: usize;

    /// The same word in every lane.
    fn splat(self, word: i32) -> Self::V;
    /// Sums, word by word.
    fn add32(self, a: Self::V, b: Self::V) -> Self::V;
    /// Bitwise exclusive or.
    fn xor_v(self, a: Self::V, b: Self::V) -> Self::V;
    /// Each word rotated left by 16 bits.
    fn rotate16(self, a: Self::V) -> Self::V;
    /// Each word rotated left by 12 bits.
    fn rotate12(self, a: Self::V) -> Self::V;
    /// Each word rotated left by 8 bits.
    fn rotate8(self, a: Self::V) -> Self::V;
    /// Each word rotated left by 7 bits.
    fn rotate7(self, a: Self::V) -> Self::V;
    /// In each chunk every word in the place of the one before, in a circle.
    fn turn1(self, a: Self::V) -> Self::V;
    /// The same by two places.
    fn turn2(self, a: Self::V) -> Self::V;
    /// The same by three places.
    fn turn3(self, a: Self::V) -> Self::V;
    /// In each chunk the low two words of `a` and `b`, in turn.
    fn unpack_lo32(self, a: Self::V, b: Self::V) -> Self::V;
    /// In each chunk the high two words of `a` and `b`, in turn.
    fn unpack_hi32(self, a: Self::V, b: Self::V) -> Self::V;
    /// In each chunk the low half of `a`, then that of `b`.
    fn unpack_lo64(self, a: Self::V, b: Self::V) -> Self::V;
    /// In each chunk the high half of `a`, then that of `b`.
    fn unpack_hi64(self, a: Self::V, b: Self::V) -> Self::V;
    /// The same word of 64 bits in every lane.
    fn splat64(self, word: i64) -> Self::V;
    /// Sums of 64 bits.
    fn add64(self, a: Self::V, b: Self::V) -> Self::V;
    /// Products of the low 32 bits of each 64.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// Bitwise and.
    fn and_v(self, a: Self::V, b: Self::V) -> Self::V;
    /// Bitwise or.
    fn or_v(self, a: Self::V, b: Self::V) -> Self::V;
    /// Each 64 bits shifted left by 2.
    fn shl2(self, a: Self::V) -> Self::V;
    /// Each 64 bits shifted left by 12.
    fn shl12(self, a: Self::V) -> Self::V;
    /// Each 64 bits shifted right by 14.
    fn shr14(self, a: Self::V) -> Self::V;
    /// Each 64 bits shifted right by 26.
    fn shr26(self, a: Self::V) -> Self::V;
    /// Each 64 bits shifted right by 40.
    fn shr40(self, a: Self::V) -> Self::V;
    /// Each 64 bits shifted right by 52.
    fn shr52(self, a: Self::V) -> Self::V;
    /// Stores words of 64 bits, as many as a register has.
    fn store_longs(self, a: Self::V, longs: &mut Longs);
    /// Loads words of 64 bits, as many as a register has.
    fn load_longs(self, longs: &Longs) -> Self::V;
    /// A row that was stored just now. The compiler would make one load of several, and that load
    /// would have to wait until every store has left the processor's queue.
    #[inline(always)]
    fn load_row(self, row: &Block) -> B {
        // SAFETY: the reference is valid for 16 bytes, and `Block` is aligned to 16.
        unsafe { ptr::from_ref(row).cast::<B>().read_volatile() }
    }
    /// A register from its chunks.
    fn chunks(self, chunk: impl Fn(usize) -> B) -> Self::V;
    /// The blocks that these begin with, one in every chunk; zeros if they are too few.
    fn load_chunks(self, blocks: &[[u8; 16]]) -> Self::V;
    /// The low halves of each chunk of two registers, in turn, and the high halves.
    #[inline(always)]
    fn unpack64(self, a: Self::V, b: Self::V) -> (Self::V, Self::V) {
        (self.unpack_lo64(a, b), self.unpack_hi64(a, b))
    }
    /// A block of every message, as its low and its high halves. The halves of the messages that
    /// come first and of those that come last alternate.
    #[inline(always)]
    fn halves(self, blocks: &[B; MAX_LANES / 2]) -> (Self::V, Self::V) {
        let first = self.chunks(|chunk| blocks[chunk]);
        let last = self.chunks(|chunk| blocks[chunk + Self::LANES / 4]);
        self.unpack64(first, last)
    }
    /// Four blocks of every message, likewise.
    #[inline(always)]
    fn four_halves(self, blocks: &[&[[u8; 16]; 4]; MAX_LANES / 2]) -> [(Self::V, Self::V); 4] {
        let zero = self.splat(0);
        let mut all = [(zero, zero); 4];
        for (i, halves) in all.iter_mut().enumerate() {
            let mut at = [self.zero(); MAX_LANES / 2];
            for message in 0..Self::LANES / 2 {
                at[message] = self.load(&blocks[message][i]);
            }
            *halves = self.halves(&at);
        }
        all
    }
    /// Adds chunk `c` of the rows to the four parts of `blocks[4 * c]`.
    fn add_columns(self, rows: [Self::V; 4], blocks: &mut [impl BorrowMut<[u8; BLOCK]>]);

    /// In each chunk, the four by four words of four registers transposed.
    #[inline(always)]
    fn transpose(self, [a, b, c, d]: [Self::V; 4]) -> [Self::V; 4] {
        let (ab, cd) = (self.unpack_lo32(a, b), self.unpack_lo32(c, d));
        let (ef, gh) = (self.unpack_hi32(a, b), self.unpack_hi32(c, d));
        [
            self.unpack_lo64(ab, cd),
            self.unpack_hi64(ab, cd),
            self.unpack_lo64(ef, gh),
            self.unpack_hi64(ef, gh),
        ]
    }
}

/// Multiplication of 52 bits by 52, fused with addition: AVX-512 IFMA.
pub(super) trait Fused: Wide {
    /// `sum`, and the low 52 bits of the products of the low 52 bits of each 64.
    fn add_low52(self, sum: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// `sum`, and the high 52 bits of these products.
    fn add_high52(self, sum: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// Each 64 bits shifted left by 8.
    fn shl8(self, a: Self::V) -> Self::V;
    /// Each 64 bits shifted left by 10.
    fn shl10(self, a: Self::V) -> Self::V;
    /// Each 64 bits shifted left by 20.
    fn shl20(self, a: Self::V) -> Self::V;
    /// Each 64 bits shifted right by 24.
    fn shr24(self, a: Self::V) -> Self::V;
    /// Each 64 bits shifted right by 42.
    fn shr42(self, a: Self::V) -> Self::V;
    /// Each 64 bits shifted right by 44.
    fn shr44(self, a: Self::V) -> Self::V;
}

impl Fused for Vaes512 {
    instructions! {
        add_low52(sum: __m512i, a: __m512i, b: __m512i) -> __m512i = _mm512_madd52lo_epu64;
        add_high52(sum: __m512i, a: __m512i, b: __m512i) -> __m512i = _mm512_madd52hi_epu64;
        shl8(a: __m512i) -> __m512i = _mm512_slli_epi64::<8>;
        shl10(a: __m512i) -> __m512i = _mm512_slli_epi64::<10>;
        shl20(a: __m512i) -> __m512i = _mm512_slli_epi64::<20>;
        shr24(a: __m512i) -> __m512i = _mm512_srli_epi64::<24>;
        shr42(a: __m512i) -> __m512i = _mm512_srli_epi64::<42>;
        shr44(a: __m512i) -> __m512i = _mm512_srli_epi64::<44>;
    }
}

macro_rules! narrow {
    ($($token:ident)*) => {$(
        impl $token {
            instructions! {
                left12(a: __m128i) -> __m128i = _mm_slli_epi32::<12>;
                right20(a: __m128i) -> __m128i = _mm_srli_epi32::<20>;
                left7(a: __m128i) -> __m128i = _mm_slli_epi32::<7>;
                right25(a: __m128i) -> __m128i = _mm_srli_epi32::<25>;
            }
        }

        impl Wide for $token {
            type V = __m128i;
            const LANES: usize = 4;

            instructions! {
                splat(word: i32) -> __m128i = _mm_set1_epi32;
                turn1(a: __m128i) -> __m128i = _mm_shuffle_epi32::<0x39>;
                turn2(a: __m128i) -> __m128i = _mm_shuffle_epi32::<0x4e>;
                turn3(a: __m128i) -> __m128i = _mm_shuffle_epi32::<0x93>;
                add32(a: __m128i, b: __m128i) -> __m128i = _mm_add_epi32;
                xor_v(a: __m128i, b: __m128i) -> __m128i = _mm_xor_si128;
                unpack_lo32(a: __m128i, b: __m128i) -> __m128i = _mm_unpacklo_epi32;
                unpack_hi32(a: __m128i, b: __m128i) -> __m128i = _mm_unpackhi_epi32;
                unpack_lo64(a: __m128i, b: __m128i) -> __m128i = _mm_unpacklo_epi64;
                unpack_hi64(a: __m128i, b: __m128i) -> __m128i = _mm_unpackhi_epi64;
                splat64(word: i64) -> __m128i = _mm_set1_epi64x;
                add64(a: __m128i, b: __m128i) -> __m128i = _mm_add_epi64;
                mul(a: __m128i, b: __m128i) -> __m128i = mul128;
                and_v(a: __m128i, b: __m128i) -> __m128i = _mm_and_si128;
                or_v(a: __m128i, b: __m128i) -> __m128i = _mm_or_si128;
                shl2(a: __m128i) -> __m128i = _mm_slli_epi64::<2>;
                shl12(a: __m128i) -> __m128i = _mm_slli_epi64::<12>;
                shr14(a: __m128i) -> __m128i = _mm_srli_epi64::<14>;
                shr26(a: __m128i) -> __m128i = _mm_srli_epi64::<26>;
                shr40(a: __m128i) -> __m128i = _mm_srli_epi64::<40>;
                shr52(a: __m128i) -> __m128i = _mm_srli_epi64::<52>;
            }

            #[inline(always)]
            fn rotate16(self, a: B) -> B {
                self.shuffle(a, self.pair(ROTATE16.1, ROTATE16.0))
            }

            #[inline(always)]
            fn rotate12(self, a: B) -> B {
                self.xor(self.left12(a), self.right20(a))
            }

            #[inline(always)]
            fn rotate8(self, a: B) -> B {
                self.shuffle(a, self.pair(ROTATE8.1, ROTATE8.0))
            }

            #[inline(always)]
            fn rotate7(self, a: B) -> B {
                self.xor(self.left7(a), self.right25(a))
            }

            #[inline(always)]
            fn store_longs(self, a: B, longs: &mut Longs) {
                // SAFETY: the reference is valid for 64 bytes, and aligned to 64.
                unsafe { _mm_store_si128(longs.0.as_mut_ptr().cast(), a) };
            }

            #[inline(always)]
            fn load_longs(self, longs: &Longs) -> B {
                // SAFETY: the reference is valid for more than 16 bytes, and aligned to 64.
                unsafe { _mm_load_si128(longs.0.as_ptr().cast()) }
            }

            #[inline(always)]
            fn chunks(self, chunk: impl Fn(usize) -> B) -> B {
                chunk(0)
            }

            #[inline(always)]
            fn load_chunks(self, blocks: &[[u8; 16]]) -> B {
                blocks.first().map_or_else(|| self.zero(), |block| self.load(block))
            }

            #[inline(always)]
            fn add_columns(self, rows: [B; 4], blocks: &mut [impl BorrowMut<[u8; BLOCK]>]) {
                for (row, part) in rows.into_iter().paired_with(blocks[0].borrow_mut().as_chunks_mut::<16>().0) {
                    let sum = self.xor(self.load(part), row);
                    self.store(part, sum);
                }
            }
        }
    )*};
}

narrow!(AesNi Avx);

macro_rules! middle {
    ($($token:ident)*) => {$(
        impl $token {
            instructions! {
                left12(a: __m256i) -> __m256i = _mm256_slli_epi32::<12>;
                right20(a: __m256i) -> __m256i = _mm256_srli_epi32::<20>;
                left7(a: __m256i) -> __m256i = _mm256_slli_epi32::<7>;
                right25(a: __m256i) -> __m256i = _mm256_srli_epi32::<25>;
                shuffle_v(a: __m256i, order: __m256i) -> __m256i = _mm256_shuffle_epi8;
                repeat(d: i64, c: i64, b: i64, a: i64) -> __m256i = _mm256_set_epi64x;
                low_chunks(a: __m256i, b: __m256i) -> __m256i = _mm256_permute2x128_si256::<0x20>;
                high_chunks(a: __m256i, b: __m256i) -> __m256i = _mm256_permute2x128_si256::<0x31>;
            }
        }

        impl Wide for $token {
            type V = __m256i;
            const LANES: usize = 8;

            instructions! {
                splat(word: i32) -> __m256i = _mm256_set1_epi32;
                turn1(a: __m256i) -> __m256i = _mm256_shuffle_epi32::<0x39>;
                turn2(a: __m256i) -> __m256i = _mm256_shuffle_epi32::<0x4e>;
                turn3(a: __m256i) -> __m256i = _mm256_shuffle_epi32::<0x93>;
                add32(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32;
                xor_v(a: __m256i, b: __m256i) -> __m256i = _mm256_xor_si256;
                unpack_lo32(a: __m256i, b: __m256i) -> __m256i = _mm256_unpacklo_epi32;
                unpack_hi32(a: __m256i, b: __m256i) -> __m256i = _mm256_unpackhi_epi32;
                unpack_lo64(a: __m256i, b: __m256i) -> __m256i = _mm256_unpacklo_epi64;
                unpack_hi64(a: __m256i, b: __m256i) -> __m256i = _mm256_unpackhi_epi64;
                splat64(word: i64) -> __m256i = _mm256_set1_epi64x;
                add64(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi64;
                mul(a: __m256i, b: __m256i) -> __m256i = mul256;
                and_v(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256;
                or_v(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256;
                shl2(a: __m256i) -> __m256i = _mm256_slli_epi64::<2>;
                shl12(a: __m256i) -> __m256i = _mm256_slli_epi64::<12>;
                shr14(a: __m256i) -> __m256i = _mm256_srli_epi64::<14>;
                shr26(a: __m256i) -> __m256i = _mm256_srli_epi64::<26>;
                shr40(a: __m256i) -> __m256i = _mm256_srli_epi64::<40>;
                shr52(a: __m256i) -> __m256i = _mm256_srli_epi64::<52>;
            }

            #[inline(always)]
            fn rotate16(self, a: __m256i) -> __m256i {
                let (low, high) = ROTATE16;
                self.shuffle_v(a, self.repeat(high, low, high, low))
            }

            #[inline(always)]
            fn rotate12(self, a: __m256i) -> __m256i {
                self.xor_v(self.left12(a), self.right20(a))
            }

            #[inline(always)]
            fn rotate8(self, a: __m256i) -> __m256i {
                let (low, high) = ROTATE8;
                self.shuffle_v(a, self.repeat(high, low, high, low))
            }

            #[inline(always)]
            fn rotate7(self, a: __m256i) -> __m256i {
                self.xor_v(self.left7(a), self.right25(a))
            }

            #[inline(always)]
            fn store_longs(self, a: __m256i, longs: &mut Longs) {
                // SAFETY: the reference is valid for 64 bytes, and aligned to 64.
                unsafe { _mm256_store_si256(longs.0.as_mut_ptr().cast(), a) };
            }

            #[inline(always)]
            fn load_longs(self, longs: &Longs) -> __m256i {
                // SAFETY: the reference is valid for more than 32 bytes, and aligned to 64.
                unsafe { _mm256_load_si256(longs.0.as_ptr().cast()) }
            }

            #[inline(always)]
            fn chunks(self, chunk: impl Fn(usize) -> B) -> __m256i {
                // SAFETY: the token proves AVX2.
                unsafe { _mm256_set_m128i(chunk(1), chunk(0)) }
            }

            #[inline(always)]
            fn load_chunks(self, blocks: &[[u8; 16]]) -> __m256i {
                let Some(blocks) = blocks.first_chunk::<2>() else { return self.splat(0) };
                // SAFETY: the reference is valid for 32 bytes, and the load needs no alignment.
                unsafe { _mm256_loadu_si256(blocks.as_ptr().cast()) }
            }

            #[inline(always)]
            fn add_columns(self, [a, b, c, d]: [__m256i; 4], blocks: &mut [impl BorrowMut<[u8; BLOCK]>]) {
                let first = [self.low_chunks(a, b), self.low_chunks(c, d)];
                let second = [self.high_chunks(a, b), self.high_chunks(c, d)];
                for (chunk, halves) in [first, second].into_iter().enumerate() {
                    let parts = blocks[4 * chunk].borrow_mut().as_chunks_mut::<32>().0;
                    for (half, part) in halves.into_iter().paired_with(parts) {
                        // SAFETY: the reference is valid for 32 bytes, and the load needs no
                        // alignment.
                        let data = unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
                        let sum = self.xor_v(data, half);
                        // SAFETY: as for the load.
                        unsafe { _mm256_storeu_si256(part.as_mut_ptr().cast(), sum) };
                    }
                }
            }
        }
    )*};
}

middle!(Avx2);

macro_rules! broad {
    ($($token:ident)*) => {$(
        impl $token {
            instructions! {
                low_chunks(a: __m512i, b: __m512i) -> __m512i = _mm512_shuffle_i32x4::<0x44>;
                high_chunks(a: __m512i, b: __m512i) -> __m512i = _mm512_shuffle_i32x4::<0xee>;
                even_chunks(a: __m512i, b: __m512i) -> __m512i = _mm512_shuffle_i32x4::<0x88>;
                odd_chunks(a: __m512i, b: __m512i) -> __m512i = _mm512_shuffle_i32x4::<0xdd>;
            }

            /// The four by four chunks of four registers transposed.
            #[inline(always)]
            fn columns(self, [a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
                let (ab, cd) = (self.low_chunks(a, b), self.low_chunks(c, d));
                let (ef, gh) = (self.high_chunks(a, b), self.high_chunks(c, d));
                [
                    self.even_chunks(ab, cd),
                    self.odd_chunks(ab, cd),
                    self.even_chunks(ef, gh),
                    self.odd_chunks(ef, gh),
                ]
            }
        }

        impl Wide for $token {
            type V = __m512i;
            const LANES: usize = 16;

            instructions! {
                splat(word: i32) -> __m512i = _mm512_set1_epi32;
                turn1(a: __m512i) -> __m512i = _mm512_shuffle_epi32::<0x39>;
                turn2(a: __m512i) -> __m512i = _mm512_shuffle_epi32::<0x4e>;
                turn3(a: __m512i) -> __m512i = _mm512_shuffle_epi32::<0x93>;
                add32(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32;
                xor_v(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512;
                rotate16(a: __m512i) -> __m512i = _mm512_rol_epi32::<16>;
                rotate12(a: __m512i) -> __m512i = _mm512_rol_epi32::<12>;
                rotate8(a: __m512i) -> __m512i = _mm512_rol_epi32::<8>;
                rotate7(a: __m512i) -> __m512i = _mm512_rol_epi32::<7>;
                unpack_lo32(a: __m512i, b: __m512i) -> __m512i = _mm512_unpacklo_epi32;
                unpack_hi32(a: __m512i, b: __m512i) -> __m512i = _mm512_unpackhi_epi32;
                unpack_lo64(a: __m512i, b: __m512i) -> __m512i = _mm512_unpacklo_epi64;
                unpack_hi64(a: __m512i, b: __m512i) -> __m512i = _mm512_unpackhi_epi64;
                splat64(word: i64) -> __m512i = _mm512_set1_epi64;
                add64(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi64;
                mul(a: __m512i, b: __m512i) -> __m512i = mul512;
                and_v(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512;
                or_v(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512;
                shl2(a: __m512i) -> __m512i = _mm512_slli_epi64::<2>;
                shl12(a: __m512i) -> __m512i = _mm512_slli_epi64::<12>;
                shr14(a: __m512i) -> __m512i = _mm512_srli_epi64::<14>;
                shr26(a: __m512i) -> __m512i = _mm512_srli_epi64::<26>;
                shr40(a: __m512i) -> __m512i = _mm512_srli_epi64::<40>;
                shr52(a: __m512i) -> __m512i = _mm512_srli_epi64::<52>;
            }

            #[inline(always)]
            fn store_longs(self, a: __m512i, longs: &mut Longs) {
                // SAFETY: the reference is valid for 64 bytes, and aligned to 64.
                unsafe { _mm512_store_si512(longs.0.as_mut_ptr().cast(), a) };
            }

            #[inline(always)]
            fn load_longs(self, longs: &Longs) -> __m512i {
                // SAFETY: the reference is valid for 64 bytes, and aligned to 64.
                unsafe { _mm512_load_si512(longs.0.as_ptr().cast()) }
            }

            #[inline(always)]
            fn chunks(self, chunk: impl Fn(usize) -> B) -> __m512i {
                // SAFETY: the token proves AVX-512 F.
                let mut all = unsafe { _mm512_zextsi128_si512(chunk(0)) };
                // SAFETY: as above.
                all = unsafe { _mm512_inserti32x4::<1>(all, chunk(1)) };
                // SAFETY: as above.
                all = unsafe { _mm512_inserti32x4::<2>(all, chunk(2)) };
                // SAFETY: as above.
                unsafe { _mm512_inserti32x4::<3>(all, chunk(3)) }
            }

            #[inline(always)]
            fn load_chunks(self, blocks: &[[u8; 16]]) -> __m512i {
                let Some(blocks) = blocks.first_chunk::<4>() else { return self.splat(0) };
                // SAFETY: the reference is valid for 64 bytes, and the load needs no alignment.
                unsafe { _mm512_loadu_si512(blocks.as_ptr().cast()) }
            }

            #[inline(always)]
            fn four_halves(
                self,
                blocks: &[&[[u8; 16]; 4]; MAX_LANES / 2],
            ) -> [(__m512i, __m512i); 4] {
                let mut rows = [self.splat(0); 8];
                for (row, blocks) in rows.iter_mut().paired_with(blocks) {
                    // SAFETY: the reference is valid for 64 bytes, and the load needs no alignment.
                    *row = unsafe { _mm512_loadu_si512(blocks.as_ptr().cast()) };
                }
                let [a, b, c, d, e, f, g, h] = rows;
                let [i, j, k, l] = self.columns([
                    self.unpack_lo64(a, e),
                    self.unpack_lo64(b, f),
                    self.unpack_lo64(c, g),
                    self.unpack_lo64(d, h),
                ]);
                let [m, n, o, p] = self.columns([
                    self.unpack_hi64(a, e),
                    self.unpack_hi64(b, f),
                    self.unpack_hi64(c, g),
                    self.unpack_hi64(d, h),
                ]);
                [(i, m), (j, n), (k, o), (l, p)]
            }

            #[inline(always)]
            fn add_columns(self, rows: [__m512i; 4], blocks: &mut [impl BorrowMut<[u8; BLOCK]>]) {
                for (chunk, column) in self.columns(rows).into_iter().enumerate() {
                    let block = blocks[4 * chunk].borrow_mut();
                    // SAFETY: the reference is valid for 64 bytes, and the load needs no alignment.
                    let data = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
                    let sum = self.xor_v(data, column);
                    // SAFETY: as for the load.
                    unsafe { _mm512_storeu_si512(block.as_mut_ptr().cast(), sum) };
                }
            }
        }
    )*};
}

broad!(Avx512 Vaes512);

/// Rotates words by 16 bits when used as a shuffle of a chunk: its low half and its high half.
const ROTATE16: (i64, i64) = (0x0504_0706_0100_0302, 0x0d0c_0f0e_0908_0b0a);

/// The same for 8 bits.
const ROTATE8: (i64, i64) = (0x0605_0407_0201_0003, 0x0e0d_0c0f_0a09_080b);

// Products are written out because the compiler, where it sees that the high halves are zero, takes
// them for products of 64 bits by 64, and later does not see it any more.

#[inline]
#[target_feature(enable = "sse2")]
fn mul128(a: __m128i, b: __m128i) -> __m128i {
    let mut product = a;
    // SAFETY: the instruction is part of SSE2 and touches nothing but its operands.
    unsafe {
        asm!(
            "pmuludq {product}, {b}",
            product = inlateout(xmm_reg) product,
            b = in(xmm_reg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    product
}

#[inline]
#[target_feature(enable = "avx2")]
fn mul256(a: __m256i, b: __m256i) -> __m256i {
    let product;
    // SAFETY: the instruction is part of AVX2 and touches nothing but its operands.
    unsafe {
        asm!(
            "vpmuludq {product}, {a}, {b}",
            product = lateout(ymm_reg) product,
            a = in(ymm_reg) a,
            b = in(ymm_reg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    product
}

#[inline]
#[target_feature(enable = "avx512f")]
fn mul512(a: __m512i, b: __m512i) -> __m512i {
    let product;
    // SAFETY: the instruction is part of AVX-512 F and touches nothing but its operands.
    unsafe {
        asm!(
            "vpmuludq {product}, {a}, {b}",
            product = lateout(zmm_reg) product,
            a = in(zmm_reg) a,
            b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    product
}
