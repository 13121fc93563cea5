//! Registers of words, one word per message, and the instructions that hashes are made of.

use std::arch::x86_64::*;

use crate::isa::x86::{
    lanes::Lanes,
    token::{AesNi, Avx2, Avx512},
};

/// Most lanes that a register has.
pub(super) const MAX: usize = 16;

/// A piece of each lane's memory: of those behind the last lane nothing is read.
pub(super) type Rows<'r, const N: usize> = [&'r [u8; N]; MAX];

/// States of all lanes, one after another, in the layout of [`HmacKey`](crate::block::HmacKey).
#[repr(C, align(64))]
pub(super) struct States(pub(super) [[u8; 64]; MAX]);

/// A constant word, repeated to fill 128 bits.
pub(super) type Constant<T> = [T; 4];

/// Registers that hold one word of each lane.
///
/// Words are taken from memory and put there four at a time, a quarter of a block: 16 bytes of 32-bit
/// words, 32 bytes of 64-bit words.
pub(super) trait Words: Copy {
    /// A register.
    type V: Copy;
    /// A word.
    type Word: Copy + 'static;
    /// Words in a register, at most [`MAX`].
    const LANES: usize;

    /// The constant in each lane.
    fn constant(self, word: &Constant<Self::Word>) -> Self::V;
    /// The number in each lane.
    fn number(self, number: u64) -> Self::V;
    /// Sums.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a ^ b`.
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a ^ b ^ c`.
    fn xor3(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Bits of `b` where `a` is set, of `c` where it is not.
    fn choose(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Bits that most of the three have.
    fn majority(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a ^ (b | !c)`.
    fn xor_or_not(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Words rotated by `LEFT` bits to the left; `RIGHT` is as many as are left of a word.
    fn rotate<const LEFT: i32, const RIGHT: i32>(self, a: Self::V) -> Self::V;
    /// Words shifted to the right.
    fn shift<const RIGHT: u32, const RIGHT_SIGNED: i32>(self, a: Self::V) -> Self::V;
    /// The bytes of each word in reverse order.
    fn swap_bytes(self, a: Self::V) -> Self::V;
    /// Copies `from`, which is shorter than a block, and puts zeros behind it.
    fn copy_some<const B: usize>(self, from: &[u8], to: &mut [u8; B]);
    /// Four words of each lane from a quarter of its row.
    fn load<const N: usize>(self, rows: &Rows<'_, N>, quarter: usize) -> [Self::V; 4];
    /// Stores four words of each lane as a quarter (of 64 or 128 bytes) of its state.
    fn store(self, states: &mut States, quarter: usize, words: [Self::V; 4]);
}

/// Words of 32 bits in 128-bit registers.
#[derive(Clone, Copy)]
pub(super) struct X4(pub(super) AesNi);
/// Words of 32 bits in 256-bit registers.
#[derive(Clone, Copy)]
pub(super) struct Y8(pub(super) Avx2);
/// Words of 32 bits in 256-bit registers, with rotations and three-input logic.
#[derive(Clone, Copy)]
pub(super) struct Y8Plus(pub(super) Avx512);
/// Words of 32 bits in 512-bit registers.
#[derive(Clone, Copy)]
pub(super) struct Z16(pub(super) Avx512);
/// Words of 64 bits in 128-bit registers.
#[derive(Clone, Copy)]
pub(super) struct X2(pub(super) AesNi);
/// Words of 64 bits in 256-bit registers.
#[derive(Clone, Copy)]
pub(super) struct Y4(pub(super) Avx2);
/// Words of 64 bits in 256-bit registers, with rotations and three-input logic.
#[derive(Clone, Copy)]
pub(super) struct Y4Plus(pub(super) Avx512);
/// Words of 64 bits in 512-bit registers.
#[derive(Clone, Copy)]
pub(super) struct Z8(pub(super) Avx512);

impl X4 {
    #[inline(always)]
    fn aesni(self) -> AesNi {
        self.0
    }
}

impl X2 {
    #[inline(always)]
    fn aesni(self) -> AesNi {
        self.0
    }
}

impl Y8 {
    #[inline(always)]
    fn aesni(self) -> AesNi {
        self.0.avx().aesni()
    }
}

impl Y4 {
    #[inline(always)]
    fn aesni(self) -> AesNi {
        self.0.avx().aesni()
    }
}

/// One instruction, allowed by the proof that `self` holds.
macro_rules! one {
    ($intrinsic:expr, $a:expr $(,)?) => {{
        let a = $a;
        // SAFETY: a value of the implementing type holds the proof of a tier that has it.
        unsafe { $intrinsic(a) }
    }};
    ($intrinsic:expr, $a:expr, $b:expr $(,)?) => {{
        let (a, b) = ($a, $b);
        // SAFETY: a value of the implementing type holds the proof of a tier that has it.
        unsafe { $intrinsic(a, b) }
    }};
    ($intrinsic:expr, $a:expr, $b:expr, $c:expr $(,)?) => {{
        let (a, b, c) = ($a, $b, $c);
        // SAFETY: a value of the implementing type holds the proof of a tier that has it.
        unsafe { $intrinsic(a, b, c) }
    }};
}

/// Sixteen bytes of a row.
macro_rules! piece {
    ($rows:ident, $lane:expr, $index:expr) => {{
        let piece: &[u8; 16] = $rows[$lane].as_chunks().0.get($index).unwrap_or(&[0; 16]);
        // SAFETY: the reference is valid for 16 bytes, and the load needs no alignment.
        unsafe { _mm_loadu_si128(piece.as_ptr().cast()) }
    }};
}

/// Stores sixteen bytes of a state.
macro_rules! put {
    ($states:ident, $lane:expr, $index:expr, $piece:expr) => {{
        let piece = $piece;
        if let Some(place) = $states.0[$lane].as_chunks_mut::<16>().0.get_mut($index) {
            // SAFETY: the reference is valid for 16 bytes, and the store needs no alignment.
            unsafe { _mm_storeu_si128(place.as_mut_ptr().cast(), piece) }
        }
    }};
}

/// How pieces of lanes `$lane`, `$lane + $step` and so on make a register, and the other way round.
macro_rules! pieces {
    (load x, $rows:ident, $lane:expr, $step:expr, $index:expr) => {
        piece!($rows, $lane, $index)
    };
    (load y, $rows:ident, $lane:expr, $step:expr, $index:expr) => {{
        let low = one!(_mm256_castsi128_si256, piece!($rows, $lane, $index));
        one!(_mm256_inserti128_si256::<1>, low, piece!($rows, $lane + $step, $index))
    }};
    (load z, $rows:ident, $lane:expr, $step:expr, $index:expr) => {{
        let a = one!(_mm512_castsi128_si512, piece!($rows, $lane, $index));
        let a = one!(_mm512_inserti32x4::<1>, a, piece!($rows, $lane + $step, $index));
        let a = one!(_mm512_inserti32x4::<2>, a, piece!($rows, $lane + 2 * $step, $index));
        one!(_mm512_inserti32x4::<3>, a, piece!($rows, $lane + 3 * $step, $index))
    }};
    (store x, $states:ident, $lane:expr, $step:expr, $index:expr, $a:expr) => {
        put!($states, $lane, $index, $a)
    };
    (store y, $states:ident, $lane:expr, $step:expr, $index:expr, $a:expr) => {{
        let a = $a;
        put!($states, $lane, $index, one!(_mm256_castsi256_si128, a));
        put!($states, $lane + $step, $index, one!(_mm256_extracti128_si256::<1>, a));
    }};
    (store z, $states:ident, $lane:expr, $step:expr, $index:expr, $a:expr) => {{
        let a = $a;
        put!($states, $lane, $index, one!(_mm512_castsi512_si128, a));
        put!($states, $lane + $step, $index, one!(_mm512_extracti32x4_epi32::<1>, a));
        put!($states, $lane + 2 * $step, $index, one!(_mm512_extracti32x4_epi32::<2>, a));
        put!($states, $lane + 3 * $step, $index, one!(_mm512_extracti32x4_epi32::<3>, a));
    }};
}

/// Four registers as the rows of a 4 by 4 matrix in each 128 bits, transposed.
macro_rules! transpose {
    ([$a:expr, $b:expr, $c:expr, $d:expr], $low32:ident, $high32:ident, $low64:ident, $high64:ident) => {{
        let (a, b, c, d) = ($a, $b, $c, $d);
        let (ab_low, ab_high) = (one!($low32, a, b), one!($high32, a, b));
        let (cd_low, cd_high) = (one!($low32, c, d), one!($high32, c, d));
        [
            one!($low64, ab_low, cd_low),
            one!($high64, ab_low, cd_low),
            one!($low64, ab_high, cd_high),
            one!($high64, ab_high, cd_high),
        ]
    }};
}

macro_rules! memory {
    (32, $width:ident, $low32:ident, $high32:ident, $low64:ident, $high64:ident) => {
        #[inline(always)]
        fn load<const N: usize>(self, rows: &Rows<'_, N>, quarter: usize) -> [Self::V; 4] {
            transpose!(
                [
                    pieces!(load $width, rows, 0, 4, quarter),
                    pieces!(load $width, rows, 1, 4, quarter),
                    pieces!(load $width, rows, 2, 4, quarter),
                    pieces!(load $width, rows, 3, 4, quarter)
                ],
                $low32, $high32, $low64, $high64
            )
        }

        #[inline(always)]
        fn store(self, states: &mut States, quarter: usize, words: [Self::V; 4]) {
            let [a, b, c, d] = words;
            let [a, b, c, d] = transpose!([a, b, c, d], $low32, $high32, $low64, $high64);
            pieces!(store $width, states, 0, 4, quarter, a);
            pieces!(store $width, states, 1, 4, quarter, b);
            pieces!(store $width, states, 2, 4, quarter, c);
            pieces!(store $width, states, 3, 4, quarter, d);
        }
    };
    (64, $width:ident, $low32:ident, $high32:ident, $low64:ident, $high64:ident) => {
        #[inline(always)]
        fn load<const N: usize>(self, rows: &Rows<'_, N>, quarter: usize) -> [Self::V; 4] {
            let a = pieces!(load $width, rows, 0, 2, 2 * quarter);
            let b = pieces!(load $width, rows, 1, 2, 2 * quarter);
            let c = pieces!(load $width, rows, 0, 2, 2 * quarter + 1);
            let d = pieces!(load $width, rows, 1, 2, 2 * quarter + 1);
            [one!($low64, a, b), one!($high64, a, b), one!($low64, c, d), one!($high64, c, d)]
        }

        #[inline(always)]
        fn store(self, states: &mut States, quarter: usize, words: [Self::V; 4]) {
            let [a, b, c, d] = words;
            pieces!(store $width, states, 0, 2, 2 * quarter, one!($low64, a, b));
            pieces!(store $width, states, 1, 2, 2 * quarter, one!($high64, a, b));
            pieces!(store $width, states, 0, 2, 2 * quarter + 1, one!($low64, c, d));
            pieces!(store $width, states, 1, 2, 2 * quarter + 1, one!($high64, c, d));
        }
    };
}

/// Bit logic of three inputs and rotations: one instruction each, or made of several.
macro_rules! logic {
    (plus, $ternary:ident, $rotate:ident) => {
        #[inline(always)]
        fn xor3(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            one!($ternary::<0x96>, a, b, c)
        }
        #[inline(always)]
        fn choose(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            one!($ternary::<0xca>, a, b, c)
        }
        #[inline(always)]
        fn majority(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            one!($ternary::<0xe8>, a, b, c)
        }
        #[inline(always)]
        fn xor_or_not(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            one!($ternary::<0x2d>, a, b, c)
        }
        #[inline(always)]
        fn rotate<const LEFT: i32, const RIGHT: i32>(self, a: Self::V) -> Self::V {
            one!($rotate::<LEFT>, a)
        }
    };
    (basic, $and:ident, $or:ident, $xor:ident, $left:ident, $right:ident, $ones:ident) => {
        #[inline(always)]
        fn xor3(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            self.xor(self.xor(a, b), c)
        }
        #[inline(always)]
        fn choose(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            self.xor(c, one!($and, a, self.xor(b, c)))
        }
        #[inline(always)]
        fn majority(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            one!($or, one!($and, a, b), one!($and, c, one!($or, a, b)))
        }
        #[inline(always)]
        fn xor_or_not(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            self.xor(a, one!($or, b, self.xor(c, one!($ones, -1))))
        }
        #[inline(always)]
        fn rotate<const LEFT: i32, const RIGHT: i32>(self, a: Self::V) -> Self::V {
            one!($or, one!($left::<LEFT>, a), one!($right::<RIGHT>, a))
        }
    };
}

/// Order of bytes that swaps words of 32 bits, and of 64.
const SWAP: [(i64, i64); 2] = [
    (0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203),
    (0x0809_0a0b_0c0d_0e0f, 0x0001_0203_0405_0607),
];

macro_rules! words {
    ($name:ident, $v:ident, $word:ident as $signed:ident, lanes $lanes:literal,
     $bits:tt bits in $width:ident, $add:ident, $xor:ident, $shift:ident::<$shift_by:ident>,
     $shuffle:ident, $fill:ident, $repeat:expr, [$($unpack:ident),*], logic($($logic:tt)*)) => {
        impl Words for $name {
            type V = $v;
            type Word = $word;
            const LANES: usize = $lanes;

            #[inline(always)]
            fn constant(self, word: &Constant<$word>) -> $v {
                words!(@constant $width, $fill, $signed, word)
            }
            #[inline(always)]
            fn number(self, number: u64) -> $v {
                one!($fill, number as $signed)
            }
            #[inline(always)]
            fn add(self, a: $v, b: $v) -> $v {
                one!($add, a, b)
            }
            #[inline(always)]
            fn xor(self, a: $v, b: $v) -> $v {
                one!($xor, a, b)
            }
            #[inline(always)]
            fn shift<const RIGHT: u32, const RIGHT_SIGNED: i32>(self, a: $v) -> $v {
                one!($shift::<$shift_by>, a)
            }
            #[inline(always)]
            fn swap_bytes(self, a: $v) -> $v {
                let (high, low) = SWAP[$bits / 32 - 1];
                let order = one!(_mm_set_epi64x, high, low);
                one!($shuffle, a, words!(@repeat $width, $repeat, order))
            }
            #[inline(always)]
            fn copy_some<const B: usize>(self, from: &[u8], to: &mut [u8; B]) {
                words!(@copy self, from, to, $($logic)*)
            }
            memory!($bits, $width, $($unpack),*);
            logic!($($logic)*);
        }
    };
    (@constant x, $fill:ident, $signed:ident, $word:ident) => {{
        // SAFETY: the reference is valid for at least 16 bytes, and the load needs no alignment.
        unsafe { _mm_loadu_si128($word.as_ptr().cast()) }
    }};
    (@repeat x, $repeat:expr, $order:ident) => {
        $order
    };
    (@repeat $width:ident, $repeat:expr, $order:ident) => {
        one!($repeat, $order)
    };
    (@copy $self:ident, $from:ident, $to:ident, plus, $($rest:tt)*) => {{
        let mut from = $from;
        for to in $to.as_chunks_mut::<64>().0 {
            let (now, later) = from.split_at(from.len().min(64));
            let mask = if now.len() < 64 { (1u64 << now.len()) - 1 } else { !0 };
            // SAFETY: only bytes under the mask are read, and those lie within the slice; the token
            // proves AVX-512 BW.
            let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, now.as_ptr().cast()) };
            // SAFETY: the reference is valid for 64 bytes, and the store needs no alignment.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), bytes) };
            from = later;
        }
    }};
    (@copy $self:ident, $from:ident, $to:ident, $($rest:tt)*) => {{
        let token = $self.aesni();
        let (whole, rest) = $from.as_chunks::<16>();
        for (i, to) in $to.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            if let Some(piece) = whole.get(i) {
                *to = *piece;
            } else {
                let rest = if i == whole.len() { rest } else { &[] };
                token.store(to, token.load_some(rest));
            }
        }
    }};
    (@constant $width:ident, $fill:ident, $signed:ident, $word:ident) => {
        one!($fill, $word[0] as $signed)
    };
}

words!(X4, __m128i, u32 as i32, lanes 4, 32 bits in x, _mm_add_epi32, _mm_xor_si128,
    _mm_srli_epi32::<RIGHT_SIGNED>, _mm_shuffle_epi8, _mm_set1_epi32, (),
    [_mm_unpacklo_epi32, _mm_unpackhi_epi32, _mm_unpacklo_epi64, _mm_unpackhi_epi64],
    logic(basic, _mm_and_si128, _mm_or_si128, _mm_xor_si128, _mm_slli_epi32, _mm_srli_epi32,
        _mm_set1_epi32));
words!(X2, __m128i, u64 as i64, lanes 2, 64 bits in x, _mm_add_epi64, _mm_xor_si128,
    _mm_srli_epi64::<RIGHT_SIGNED>, _mm_shuffle_epi8, _mm_set1_epi64x, (),
    [_mm_unpacklo_epi32, _mm_unpackhi_epi32, _mm_unpacklo_epi64, _mm_unpackhi_epi64],
    logic(basic, _mm_and_si128, _mm_or_si128, _mm_xor_si128, _mm_slli_epi64, _mm_srli_epi64,
        _mm_set1_epi32));
words!(Y8, __m256i, u32 as i32, lanes 8, 32 bits in y, _mm256_add_epi32, _mm256_xor_si256,
    _mm256_srli_epi32::<RIGHT_SIGNED>, _mm256_shuffle_epi8, _mm256_set1_epi32,
    _mm256_broadcastsi128_si256,
    [_mm256_unpacklo_epi32, _mm256_unpackhi_epi32, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64],
    logic(basic, _mm256_and_si256, _mm256_or_si256, _mm256_xor_si256, _mm256_slli_epi32,
        _mm256_srli_epi32, _mm256_set1_epi32));
words!(Y4, __m256i, u64 as i64, lanes 4, 64 bits in y, _mm256_add_epi64, _mm256_xor_si256,
    _mm256_srli_epi64::<RIGHT_SIGNED>, _mm256_shuffle_epi8, _mm256_set1_epi64x,
    _mm256_broadcastsi128_si256,
    [_mm256_unpacklo_epi32, _mm256_unpackhi_epi32, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64],
    logic(basic, _mm256_and_si256, _mm256_or_si256, _mm256_xor_si256, _mm256_slli_epi64,
        _mm256_srli_epi64, _mm256_set1_epi32));
words!(Y8Plus, __m256i, u32 as i32, lanes 8, 32 bits in y, _mm256_add_epi32, _mm256_xor_si256,
    _mm256_srli_epi32::<RIGHT_SIGNED>, _mm256_shuffle_epi8, _mm256_set1_epi32,
    _mm256_broadcastsi128_si256,
    [_mm256_unpacklo_epi32, _mm256_unpackhi_epi32, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64],
    logic(plus, _mm256_ternarylogic_epi32, _mm256_rol_epi32));
words!(Y4Plus, __m256i, u64 as i64, lanes 4, 64 bits in y, _mm256_add_epi64, _mm256_xor_si256,
    _mm256_srli_epi64::<RIGHT_SIGNED>, _mm256_shuffle_epi8, _mm256_set1_epi64x,
    _mm256_broadcastsi128_si256,
    [_mm256_unpacklo_epi32, _mm256_unpackhi_epi32, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64],
    logic(plus, _mm256_ternarylogic_epi64, _mm256_rol_epi64));
words!(Z16, __m512i, u32 as i32, lanes 16, 32 bits in z, _mm512_add_epi32, _mm512_xor_si512,
    _mm512_srli_epi32::<RIGHT>, _mm512_shuffle_epi8, _mm512_set1_epi32, _mm512_broadcast_i32x4,
    [_mm512_unpacklo_epi32, _mm512_unpackhi_epi32, _mm512_unpacklo_epi64, _mm512_unpackhi_epi64],
    logic(plus, _mm512_ternarylogic_epi32, _mm512_rol_epi32));
words!(Z8, __m512i, u64 as i64, lanes 8, 64 bits in z, _mm512_add_epi64, _mm512_xor_si512,
    _mm512_srli_epi64::<RIGHT>, _mm512_shuffle_epi8, _mm512_set1_epi64, _mm512_broadcast_i32x4,
    [_mm512_unpacklo_epi32, _mm512_unpackhi_epi32, _mm512_unpacklo_epi64, _mm512_unpackhi_epi64],
    logic(plus, _mm512_ternarylogic_epi64, _mm512_rol_epi64));
