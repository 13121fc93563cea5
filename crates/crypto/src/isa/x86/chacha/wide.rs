//! Vectors of 32-bit words: the instructions that ChaCha20 wants of a tier, behind safe methods of
//! the proof tokens. A register is a row of chunks of 128 bits, four lanes each.

use std::arch::{asm, x86_64::*};

use super::super::{
    lanes::{B, Lanes, instructions},
    token::{AesNi, Avx, Avx2, Avx512, Vaes256, Vaes512},
};

/// Most lanes that a register has.
pub(super) const MAX_LANES: usize = 16;

/// Bytes of a block of ChaCha20.
pub(super) const BLOCK: usize = 64;

/// Sixteen words, as many as a block or the widest register has, for aligned loads.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Words(pub(super) [u32; 16]);

impl zeroize::DefaultIsZeroes for Words {}

/// Eight words of 64 bits, as many as the widest register has, for aligned stores.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Longs(pub(super) [u64; 8]);

/// Instructions on vectors of words.
pub(super) trait Wide: Lanes {
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
    /// As many words as there are lanes.
    fn load_words(self, words: &Words) -> Self::V;
    /// Four words of a block.
    #[inline(always)]
    fn load_words4(self, words: &[u32; 4]) -> B {
        // SAFETY: the reference is valid for 16 bytes, and the load needs no alignment.
        unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
    }
    /// A register from its chunks.
    fn chunks(self, chunk: impl Fn(usize) -> B) -> Self::V;
    /// Stores chunk `c` of the rows as the four parts of `blocks[4 * c]`.
    fn store_columns(self, rows: [Self::V; 4], blocks: &mut [Words]);
    /// Adds a block of keystream to data.
    fn add_block(self, data: &mut [u8; BLOCK], keystream: &Words);

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
            fn load_words(self, words: &Words) -> B {
                // SAFETY: the reference is valid for more than 16 bytes, and aligned to 64.
                unsafe { _mm_load_si128(words.0.as_ptr().cast()) }
            }

            #[inline(always)]
            fn chunks(self, chunk: impl Fn(usize) -> B) -> B {
                chunk(0)
            }

            #[inline(always)]
            fn store_columns(self, rows: [B; 4], blocks: &mut [Words]) {
                for (row, part) in rows.into_iter().zip(blocks[0].0.as_chunks_mut::<4>().0) {
                    // SAFETY: the part is 16 bytes of a block, which is aligned to 64.
                    unsafe { _mm_store_si128(part.as_mut_ptr().cast(), row) };
                }
            }

            #[inline(always)]
            fn add_block(self, data: &mut [u8; BLOCK], keystream: &Words) {
                let parts = data.as_chunks_mut::<16>().0.iter_mut();
                for (part, words) in parts.zip(keystream.0.as_chunks::<4>().0) {
                    // SAFETY: the part is 16 bytes of a block, which is aligned to 64.
                    let words = unsafe { _mm_load_si128(words.as_ptr().cast()) };
                    let sum = self.xor(self.load(part), words);
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
            fn load_words(self, words: &Words) -> __m256i {
                // SAFETY: the reference is valid for more than 32 bytes, and aligned to 64.
                unsafe { _mm256_load_si256(words.0.as_ptr().cast()) }
            }

            #[inline(always)]
            fn chunks(self, chunk: impl Fn(usize) -> B) -> __m256i {
                // SAFETY: the token proves AVX2.
                unsafe { _mm256_set_m128i(chunk(1), chunk(0)) }
            }

            #[inline(always)]
            fn store_columns(self, [a, b, c, d]: [__m256i; 4], blocks: &mut [Words]) {
                let first = [self.low_chunks(a, b), self.low_chunks(c, d)];
                let second = [self.high_chunks(a, b), self.high_chunks(c, d)];
                for (chunk, halves) in [first, second].into_iter().enumerate() {
                    let parts = blocks[4 * chunk].0.as_chunks_mut::<8>().0;
                    for (half, part) in halves.into_iter().zip(parts) {
                        // SAFETY: the part is half of a block, which is aligned to 64.
                        unsafe { _mm256_store_si256(part.as_mut_ptr().cast(), half) };
                    }
                }
            }

            #[inline(always)]
            fn add_block(self, data: &mut [u8; BLOCK], keystream: &Words) {
                let parts = data.as_chunks_mut::<32>().0.iter_mut();
                for (part, words) in parts.zip(keystream.0.as_chunks::<8>().0) {
                    // SAFETY: the part is half of a block, which is aligned to 64.
                    let words = unsafe { _mm256_load_si256(words.as_ptr().cast()) };
                    // SAFETY: the reference is valid for 32 bytes, and the load needs no alignment.
                    let input = unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
                    let sum = self.xor_v(input, words);
                    // SAFETY: as for the load.
                    unsafe { _mm256_storeu_si256(part.as_mut_ptr().cast(), sum) };
                }
            }
        }
    )*};
}

middle!(Avx2 Vaes256);

macro_rules! broad {
    ($($token:ident)*) => {$(
        impl $token {
            instructions! {
                low_chunks(a: __m512i, b: __m512i) -> __m512i = _mm512_shuffle_i32x4::<0x44>;
                high_chunks(a: __m512i, b: __m512i) -> __m512i = _mm512_shuffle_i32x4::<0xee>;
                even_chunks(a: __m512i, b: __m512i) -> __m512i = _mm512_shuffle_i32x4::<0x88>;
                odd_chunks(a: __m512i, b: __m512i) -> __m512i = _mm512_shuffle_i32x4::<0xdd>;
            }
        }

        impl Wide for $token {
            type V = __m512i;
            const LANES: usize = 16;

            instructions! {
                splat(word: i32) -> __m512i = _mm512_set1_epi32;
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
            fn load_words(self, words: &Words) -> __m512i {
                // SAFETY: the reference is valid for 64 bytes, and aligned to 64.
                unsafe { _mm512_load_si512(words.0.as_ptr().cast()) }
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
            fn store_columns(self, [a, b, c, d]: [__m512i; 4], blocks: &mut [Words]) {
                let (ab, cd) = (self.low_chunks(a, b), self.low_chunks(c, d));
                let (ef, gh) = (self.high_chunks(a, b), self.high_chunks(c, d));
                let columns = [
                    self.even_chunks(ab, cd),
                    self.odd_chunks(ab, cd),
                    self.even_chunks(ef, gh),
                    self.odd_chunks(ef, gh),
                ];
                for (chunk, column) in columns.into_iter().enumerate() {
                    // SAFETY: a block is 64 bytes, and aligned to 64.
                    unsafe { _mm512_store_si512(blocks[4 * chunk].0.as_mut_ptr().cast(), column) };
                }
            }

            #[inline(always)]
            fn add_block(self, data: &mut [u8; BLOCK], keystream: &Words) {
                // SAFETY: the reference is valid for 64 bytes, and the load needs no alignment.
                let input = unsafe { _mm512_loadu_si512(data.as_ptr().cast()) };
                let sum = self.xor_v(input, self.load_words(keystream));
                // SAFETY: as for the load.
                unsafe { _mm512_storeu_si512(data.as_mut_ptr().cast(), sum) };
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
