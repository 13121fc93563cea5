//! The instructions of each kind of register.

use std::arch::{asm, x86_64::*};

use super::{Constant, Rows, States, Words, X2, X4, Y4, Y4Plus, Y8, Y8Plus, Z8, Z16};
use crate::isa::x86::{lanes::Lanes, token::AesNi};

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

/// Thirty-two bytes each of two rows.
macro_rules! pair {
    ($rows:ident, $low:expr, $high:expr, $index:expr) => {{
        let low = half!($rows, $low, $index);
        one!(
            _mm512_inserti64x4::<1>,
            one!(_mm512_castsi256_si512, low),
            half!($rows, $high, $index)
        )
    }};
}

/// Thirty-two bytes of a row.
macro_rules! half {
    ($rows:ident, $lane:expr, $index:expr) => {{
        let half: &[u8; 32] = $rows[$lane].as_chunks().0.get($index).unwrap_or(&[0; 32]);
        // SAFETY: the reference is valid for 32 bytes, and the load needs no alignment.
        unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
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

/// Makes a register of pieces of lanes `$lane`, `$lane + $step` and so on, and the other way round.
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

/// A register, its words' bytes reversed where that is wanted.
macro_rules! swapped {
    ($self:ident, $swap:ident, $a:expr) => {{
        let a = $a;
        if $swap { $self.swap_bytes(a) } else { a }
    }};
}

macro_rules! memory {
    (32, $width:tt, [$($unpack:ident),*]) => {
        #[inline(always)]
        fn load<const N: usize, const SWAP: bool>(
            self,
            rows: &Rows<'_, N>,
            half: usize,
        ) -> [Self::V; 8] {
            memory!(@half $width, self, SWAP, rows, half, [$($unpack),*])
        }

        #[inline(always)]
        fn store(self, states: &mut States, quarter: usize, words: [Self::V; 4]) {
            let [a, b, c, d] = words;
            let [a, b, c, d] = transpose!([a, b, c, d], $($unpack),*);
            pieces!(store $width, states, 0, 4, quarter, a);
            pieces!(store $width, states, 1, 4, quarter, b);
            pieces!(store $width, states, 2, 4, quarter, c);
            pieces!(store $width, states, 3, 4, quarter, d);
        }
    };
    (64, $width:tt, [$low32:ident, $high32:ident, $low64:ident, $high64:ident]) => {
        #[inline(always)]
        fn load<const N: usize, const SWAP: bool>(
            self,
            rows: &Rows<'_, N>,
            half: usize,
        ) -> [Self::V; 8] {
            memory!(@half64 $width, self, SWAP, rows, half, $low64, $high64)
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
    (@half64 z, $self:ident, $swap:ident, $rows:ident, $half:ident, $low:ident, $high:ident) => {{
        let mut words = [$self.number(0); 8];
        for (i, four) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let a = swapped!($self, $swap, pair!($rows, 0, 2, 2 * $half + i));
            let b = swapped!($self, $swap, pair!($rows, 1, 3, 2 * $half + i));
            let c = swapped!($self, $swap, pair!($rows, 4, 6, 2 * $half + i));
            let d = swapped!($self, $swap, pair!($rows, 5, 7, 2 * $half + i));
            let (ab_low, ab_high) = (one!($low, a, b), one!($high, a, b));
            let (cd_low, cd_high) = (one!($low, c, d), one!($high, c, d));
            *four = [
                one!(_mm512_shuffle_i64x2::<0x88>, ab_low, cd_low),
                one!(_mm512_shuffle_i64x2::<0x88>, ab_high, cd_high),
                one!(_mm512_shuffle_i64x2::<0xdd>, ab_low, cd_low),
                one!(_mm512_shuffle_i64x2::<0xdd>, ab_high, cd_high),
            ];
        }
        words
    }};
    (@half64 $width:tt, $self:ident, $swap:ident, $rows:ident, $half:ident, $low:ident, $high:ident) => {{
        let mut words = [$self.number(0); 8];
        for (i, two) in words.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let a = swapped!($self, $swap, pieces!(load $width, $rows, 0, 2, 4 * $half + i));
            let b = swapped!($self, $swap, pieces!(load $width, $rows, 1, 2, 4 * $half + i));
            *two = [one!($low, a, b), one!($high, a, b)];
        }
        words
    }};
    // Halves of two rows at once: fewer shuffles in all than with quarters.
    (@half z, $self:ident, $swap:ident, $rows:ident, $half:ident, [$($unpack:ident),*]) => {{
        let [a, b, c, d] = transpose!(
            [
                swapped!($self, $swap, pair!($rows, 0, 4, $half)),
                swapped!($self, $swap, pair!($rows, 1, 5, $half)),
                swapped!($self, $swap, pair!($rows, 2, 6, $half)),
                swapped!($self, $swap, pair!($rows, 3, 7, $half))
            ],
            $($unpack),*
        );
        let [e, f, g, h] = transpose!(
            [
                swapped!($self, $swap, pair!($rows, 8, 12, $half)),
                swapped!($self, $swap, pair!($rows, 9, 13, $half)),
                swapped!($self, $swap, pair!($rows, 10, 14, $half)),
                swapped!($self, $swap, pair!($rows, 11, 15, $half))
            ],
            $($unpack),*
        );
        [
            one!(_mm512_shuffle_i32x4::<0x88>, a, e),
            one!(_mm512_shuffle_i32x4::<0x88>, b, f),
            one!(_mm512_shuffle_i32x4::<0x88>, c, g),
            one!(_mm512_shuffle_i32x4::<0x88>, d, h),
            one!(_mm512_shuffle_i32x4::<0xdd>, a, e),
            one!(_mm512_shuffle_i32x4::<0xdd>, b, f),
            one!(_mm512_shuffle_i32x4::<0xdd>, c, g),
            one!(_mm512_shuffle_i32x4::<0xdd>, d, h),
        ]
    }};
    (@half $width:tt, $self:ident, $swap:ident, $rows:ident, $half:ident, $unpack:tt) => {{
        let mut words = [[$self.number(0); 4]; 2];
        for (i, quarter) in words.iter_mut().enumerate() {
            *quarter = memory!(@quarter $width, $self, $swap, $rows, 2 * $half + i, $unpack);
        }
        let [[a, b, c, d], [e, f, g, h]] = words;
        [a, b, c, d, e, f, g, h]
    }};
    (@quarter $width:tt, $self:ident, $swap:ident, $rows:ident, $quarter:expr, [$($unpack:ident),*]) => {
        transpose!(
            [
                swapped!($self, $swap, pieces!(load $width, $rows, 0, 4, $quarter)),
                swapped!($self, $swap, pieces!(load $width, $rows, 1, 4, $quarter)),
                swapped!($self, $swap, pieces!(load $width, $rows, 2, 4, $quarter)),
                swapped!($self, $swap, pieces!(load $width, $rows, 3, 4, $quarter))
            ],
            $($unpack),*
        )
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

/// Makes a function of a register after which the compiler knows nothing about it.
macro_rules! opaque {
    ($name:ident, $v:ident, $class:ident, $feature:literal) => {
        #[inline]
        #[target_feature(enable = $feature)]
        fn $name(mut a: $v) -> $v {
            // SAFETY: no instruction, so nothing happens.
            unsafe {
                asm!("/* {0} */", inout($class) a, options(pure, nomem, nostack, preserves_flags));
            }
            a
        }
    };
}

opaque!(opaque_x, __m128i, xmm_reg, "sse4.1");
opaque!(opaque_y, __m256i, ymm_reg, "avx2");
opaque!(opaque_z, __m512i, zmm_reg, "avx512f");

/// Order of bytes that swaps words of 32 bits, and of 64.
const SWAP: [(i64, i64); 2] = [
    (0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203),
    (0x0809_0a0b_0c0d_0e0f, 0x0001_0203_0405_0607),
];

/// Orders of bytes that move the end of sixteen bytes to their front, zeros behind it: a window that
/// begins at `n` moves bytes `n` and later.
static TO_FRONT: [u8; 32] = {
    let mut order = [0x80; 32];
    let mut i = 0;
    while i < 16 {
        order[i] = i as u8;
        i += 1;
    }
    order
};

/// A set bit: a window that begins at `16 - n` has it at byte `n`.
static BIT: [u8; 32] = {
    let mut bit = [0; 32];
    bit[16] = 0x80;
    bit
};

/// Implements [`Words::copy_some`], sixteen bytes at a time. All that is soon loaded is stored as it
/// will be loaded: processors hand stores on to loads only if one store has all that is wanted.
#[inline(always)]
fn copy_some<const B: usize>(
    token: AesNi,
    from: &[u8],
    pad: bool,
    bits: Option<u64>,
    to: &mut [u8; B],
) {
    let (whole, rest) = from.as_chunks::<16>();
    let end = if let Some(last) = from.last_chunk() {
        let order = TO_FRONT.get(16 - rest.len()..).and_then(<[u8]>::first_chunk);
        token.shuffle(token.load(last), token.load(order.unwrap_or(&[0x80; 16])))
    } else {
        token.load_some(rest)
    };
    let bit = BIT.get(16 - rest.len()..).filter(|_| pad).and_then(<[u8]>::first_chunk);
    let end = token.xor(end, token.load(bit.unwrap_or(&[0; 16])));
    let bits = token.pair(bits.unwrap_or(0) as i64, 0);
    let pieces = to.as_chunks_mut::<16>().0;
    let last = pieces.len() - 1;
    for (i, to) in pieces.iter_mut().enumerate() {
        let rest = if i == last { bits } else { token.zero() };
        token.store(to, whole.get(i).map_or(rest, |piece| token.load(piece)));
    }
    if let Some(to) = pieces.get_mut(whole.len()) {
        let rest = if whole.len() == last { bits } else { token.zero() };
        token.store(to, token.xor(end, rest));
    }
}

macro_rules! words {
    ($name:ident, $v:ident, $word:ident as $signed:ident, lanes $lanes:literal,
     $bits:tt bits in $width:tt, $load:ident, $store:ident, $add:ident, $xor:ident, $shift:ident::<$shift_by:ident>,
     $shuffle:ident, $fill:ident, $repeat:expr, $unpack:tt, logic($($logic:tt)*)) => {
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
            fn repeat(self, row: &[u8; 64], word: usize) -> $v {
                let word = row.as_chunks().0.get(word).unwrap_or(&[0; size_of::<$word>()]);
                one!($fill, $signed::from_ne_bytes(*word))
            }
            #[inline(always)]
            fn load_row(self, row: &[u8; 64]) -> $v {
                // SAFETY: the reference is valid for at least a register, and the load needs no
                // alignment.
                unsafe { $load(row.as_ptr().cast()) }
            }
            #[inline(always)]
            fn store_row(self, a: $v, row: &mut [u8; 64]) {
                // SAFETY: the reference is valid for at least a register, and the store needs no
                // alignment.
                unsafe { $store(row.as_mut_ptr().cast(), a) }
            }
            #[inline(always)]
            fn copy_some<const B: usize>(
                self,
                from: &[u8],
                pad: bool,
                bits: Option<u64>,
                to: &mut [u8; B],
            ) {
                words!(@copy self, from, pad, bits, to, $($logic)*)
            }
            #[inline(always)]
            fn settle(self, a: $v) -> $v {
                words!(@settle $width, a)
            }
            memory!($bits, $width, $unpack);
            logic!($($logic)*);
        }
    };
    (@constant x, $fill:ident, $signed:ident, $word:ident) => {{
        // SAFETY: the reference is valid for at least 16 bytes, and the load needs no alignment.
        unsafe { _mm_loadu_si128($word.as_ptr().cast()) }
    }};
    (@settle x, $a:ident) => {
        one!(opaque_x, $a)
    };
    (@settle y, $a:ident) => {
        one!(opaque_y, $a)
    };
    (@settle z, $a:ident) => {
        one!(opaque_z, $a)
    };
    (@repeat x, $repeat:expr, $order:ident) => {
        $order
    };
    (@repeat $width:ident, $repeat:expr, $order:ident) => {
        one!($repeat, $order)
    };
    (@copy $self:ident, $from:ident, $pad:ident, $bits:ident, $to:ident, plus, $($rest:tt)*) => {{
        let last = B / 64 - 1;
        for (i, to) in $to.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            let now = $from.get(64 * i..).unwrap_or_default();
            let mask = if now.len() < 64 { (1u64 << now.len()) - 1 } else { !0 };
            // An empty slice may lie where no memory is. Nothing is read from there, but the
            // processor takes more than 100 cycles to see that.
            let from = if now.is_empty() { &*to } else { now };
            // SAFETY: only bytes under the mask are read, and those lie within the slice; the token
            // proves AVX-512 BW.
            let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, from.as_ptr().cast()) };
            // The byte behind them: none, if it is in another register.
            let end = if $pad && 64 * i <= $from.len() { mask.wrapping_add(1) } else { 0 };
            let set = one!(_mm512_set1_epi8, i8::MIN);
            let mut bytes = one!(_mm512_mask_mov_epi8, bytes, end, set);
            if let (Some(bits), true) = ($bits, i == last) {
                bytes = one!(_mm512_mask_set1_epi64, bytes, 0x80, bits as i64);
            }
            // SAFETY: the reference is valid for 64 bytes, and the store needs no alignment.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), bytes) };
        }
    }};
    (@copy $self:ident, $from:ident, $pad:ident, $bits:ident, $to:ident, $($rest:tt)*) => {{
        copy_some($self.aesni(), $from, $pad, $bits, $to);
    }};
    (@constant $width:ident, $fill:ident, $signed:ident, $word:ident) => {
        one!($fill, $word[0] as $signed)
    };
}

words!(X4, __m128i, u32 as i32, lanes 4, 32 bits in x, _mm_loadu_si128, _mm_storeu_si128, _mm_add_epi32, _mm_xor_si128,
    _mm_srli_epi32::<RIGHT_SIGNED>, _mm_shuffle_epi8, _mm_set1_epi32, (),
    [_mm_unpacklo_epi32, _mm_unpackhi_epi32, _mm_unpacklo_epi64, _mm_unpackhi_epi64],
    logic(basic, _mm_and_si128, _mm_or_si128, _mm_xor_si128, _mm_slli_epi32, _mm_srli_epi32,
        _mm_set1_epi32));
words!(X2, __m128i, u64 as i64, lanes 2, 64 bits in x, _mm_loadu_si128, _mm_storeu_si128, _mm_add_epi64, _mm_xor_si128,
    _mm_srli_epi64::<RIGHT_SIGNED>, _mm_shuffle_epi8, _mm_set1_epi64x, (),
    [_mm_unpacklo_epi32, _mm_unpackhi_epi32, _mm_unpacklo_epi64, _mm_unpackhi_epi64],
    logic(basic, _mm_and_si128, _mm_or_si128, _mm_xor_si128, _mm_slli_epi64, _mm_srli_epi64,
        _mm_set1_epi32));
words!(Y8, __m256i, u32 as i32, lanes 8, 32 bits in y, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_add_epi32, _mm256_xor_si256,
    _mm256_srli_epi32::<RIGHT_SIGNED>, _mm256_shuffle_epi8, _mm256_set1_epi32,
    _mm256_broadcastsi128_si256,
    [_mm256_unpacklo_epi32, _mm256_unpackhi_epi32, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64],
    logic(basic, _mm256_and_si256, _mm256_or_si256, _mm256_xor_si256, _mm256_slli_epi32,
        _mm256_srli_epi32, _mm256_set1_epi32));
words!(Y4, __m256i, u64 as i64, lanes 4, 64 bits in y, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_add_epi64, _mm256_xor_si256,
    _mm256_srli_epi64::<RIGHT_SIGNED>, _mm256_shuffle_epi8, _mm256_set1_epi64x,
    _mm256_broadcastsi128_si256,
    [_mm256_unpacklo_epi32, _mm256_unpackhi_epi32, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64],
    logic(basic, _mm256_and_si256, _mm256_or_si256, _mm256_xor_si256, _mm256_slli_epi64,
        _mm256_srli_epi64, _mm256_set1_epi32));
words!(Y8Plus, __m256i, u32 as i32, lanes 8, 32 bits in y, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_add_epi32, _mm256_xor_si256,
    _mm256_srli_epi32::<RIGHT_SIGNED>, _mm256_shuffle_epi8, _mm256_set1_epi32,
    _mm256_broadcastsi128_si256,
    [_mm256_unpacklo_epi32, _mm256_unpackhi_epi32, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64],
    logic(plus, _mm256_ternarylogic_epi32, _mm256_rol_epi32));
words!(Y4Plus, __m256i, u64 as i64, lanes 4, 64 bits in y, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_add_epi64, _mm256_xor_si256,
    _mm256_srli_epi64::<RIGHT_SIGNED>, _mm256_shuffle_epi8, _mm256_set1_epi64x,
    _mm256_broadcastsi128_si256,
    [_mm256_unpacklo_epi32, _mm256_unpackhi_epi32, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64],
    logic(plus, _mm256_ternarylogic_epi64, _mm256_rol_epi64));
words!(Z16, __m512i, u32 as i32, lanes 16, 32 bits in z, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_add_epi32, _mm512_xor_si512,
    _mm512_srli_epi32::<RIGHT>, _mm512_shuffle_epi8, _mm512_set1_epi32, _mm512_broadcast_i32x4,
    [_mm512_unpacklo_epi32, _mm512_unpackhi_epi32, _mm512_unpacklo_epi64, _mm512_unpackhi_epi64],
    logic(plus, _mm512_ternarylogic_epi32, _mm512_rol_epi32));
words!(Z8, __m512i, u64 as i64, lanes 8, 64 bits in z, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_add_epi64, _mm512_xor_si512,
    _mm512_srli_epi64::<RIGHT>, _mm512_shuffle_epi8, _mm512_set1_epi64, _mm512_broadcast_i32x4,
    [_mm512_unpacklo_epi32, _mm512_unpackhi_epi32, _mm512_unpacklo_epi64, _mm512_unpackhi_epi64],
    logic(plus, _mm512_ternarylogic_epi64, _mm512_rol_epi64));
