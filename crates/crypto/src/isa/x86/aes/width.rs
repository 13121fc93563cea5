//! Registers of one, two or four blocks, behind one interface.

use std::arch::x86_64::*;

use super::chain::{Feed, Run};
use crate::{
    block::Block,
    isa::x86::{
        lanes::{B, Lanes, instructions},
        lanes512::Z,
        token::{AesNi, Avx, Avx512, Vaes256, Vaes512},
    },
};

/// Instructions of kernels on registers of [`BLOCKS`](Self::BLOCKS) blocks.
pub(super) trait Width: Copy {
    /// Instructions on single blocks.
    type L: Lanes;
    /// A register.
    type V: Copy;
    /// Blocks in a register.
    const BLOCKS: usize;

    fn lanes(self) -> Self::L;
    fn zero(self) -> Self::V;
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a ^ b ^ c`.
    fn xor3(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// One middle round of AES on each block.
    fn round(self, state: Self::V, key: Self::V) -> Self::V;
    /// The last round.
    fn last(self, state: Self::V, key: Self::V) -> Self::V;
    /// One middle round of the inverse.
    fn undo_round(self, state: Self::V, key: Self::V) -> Self::V;
    /// The last round of the inverse.
    fn undo_last(self, state: Self::V, key: Self::V) -> Self::V;
    /// Sums of 32-bit words.
    fn add_words(self, a: Self::V, b: Self::V) -> Self::V;
    /// The bytes of each block in reverse order.
    fn reverse(self, a: Self::V) -> Self::V;
    /// One block everywhere.
    fn repeat(self, block: B) -> Self::V;
    /// One block of a table everywhere.
    fn splat(self, block: &Block) -> Self::V;
    /// As many blocks of a table as fit; zeros if there are fewer.
    fn row(self, blocks: &[Block]) -> Self::V;
    /// A full register from anywhere; zeros if there are fewer bytes.
    fn load(self, bytes: &[u8]) -> Self::V;
    /// Stores a full register anywhere; not at all if there are fewer bytes.
    fn store(self, bytes: &mut [u8], a: Self::V);
    /// As many bytes as there are, at most a register; zeros behind them.
    fn load_some(self, bytes: &[u8]) -> Self::V;
    /// Stores as many bytes as there are, at most a register.
    fn store_some(self, bytes: &mut [u8], a: Self::V);
    /// The last block of `before`, then all blocks of `now` but the last.
    fn carry(self, before: Self::V, now: Self::V) -> Self::V;
    /// Runs chains with the lanes that suit.
    fn chains<'k, F: Feed<'k>>(self, run: Run<'_, 'k, Self::L, F>);
}

/// Registers whose blocks belong to different packets.
pub(super) trait Gather: Width {
    /// Stores a register to as many blocks of a table; not at all if there are fewer.
    fn set_row(self, blocks: &mut [Block], a: Self::V);
    /// A register of the blocks that `block` gives for 0 to `BLOCKS - 1`.
    fn gather(self, block: impl Fn(usize) -> B) -> Self::V;
    /// Gives each block with its number to `take`.
    fn scatter(self, a: Self::V, take: impl FnMut(usize, B));
}

/// The width at which a tier's kernels run.
pub(super) trait Widest: Lanes {
    type W: Width<L = Self>;

    fn widest(self) -> Self::W;
}

macro_rules! narrow {
    ($($token:ident)*) => {$(
        impl Widest for $token {
            type W = One<Self>;

            #[inline(always)]
            fn widest(self) -> One<Self> {
                One(self)
            }
        }
    )*};
}

narrow!(AesNi Avx Avx512);

impl Widest for Vaes256 {
    type W = Two;

    #[inline(always)]
    fn widest(self) -> Two {
        Two(self)
    }
}

impl Widest for Vaes512 {
    type W = Four;

    #[inline(always)]
    fn widest(self) -> Four {
        Four(self)
    }
}

/// One block per register.
#[derive(Clone, Copy)]
pub(super) struct One<L>(pub(super) L);

/// Two blocks per register.
#[derive(Clone, Copy)]
pub(super) struct Two(pub(super) Vaes256);

/// Four blocks per register.
#[derive(Clone, Copy)]
pub(super) struct Four(pub(super) Vaes512);

macro_rules! same {
    ($($name:ident($($arg:ident),*) = $inner:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: Self::V),*) -> Self::V {
            self.0.$inner($($arg),*)
        }
    )*};
}

impl<L: Lanes> Width for One<L> {
    type L = L;
    type V = B;
    const BLOCKS: usize = 1;

    same! {
        zero() = zero;
        xor(a, b) = xor;
        and(a, b) = and;
        xor3(a, b, c) = xor3;
        round(state, key) = aes_round;
        last(state, key) = aes_last;
        undo_round(state, key) = aes_undo_round;
        undo_last(state, key) = aes_undo_last;
        add_words(a, b) = add_words;
        reverse(a) = reverse;
    }

    #[inline(always)]
    fn lanes(self) -> L {
        self.0
    }

    #[inline(always)]
    fn repeat(self, block: B) -> B {
        block
    }

    #[inline(always)]
    fn splat(self, block: &Block) -> B {
        self.0.table(block)
    }

    #[inline(always)]
    fn row(self, blocks: &[Block]) -> B {
        match blocks.first() {
            Some(block) => self.0.table(block),
            None => self.0.zero(),
        }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> B {
        match bytes.first_chunk() {
            Some(block) => self.0.load(block),
            None => self.0.zero(),
        }
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], a: B) {
        if let Some(block) = bytes.first_chunk_mut() {
            self.0.store(block, a);
        }
    }

    #[inline(always)]
    fn load_some(self, bytes: &[u8]) -> B {
        self.0.load_some(bytes)
    }

    #[inline(always)]
    fn store_some(self, bytes: &mut [u8], a: B) {
        self.0.store_some(bytes, a);
    }

    #[inline(always)]
    fn carry(self, before: B, _: B) -> B {
        before
    }

    #[inline(always)]
    fn chains<'k, F: Feed<'k>>(self, run: Run<'_, 'k, L, F>) {
        run.narrow();
    }
}

impl<L: Lanes> Gather for One<L> {
    #[inline(always)]
    fn set_row(self, blocks: &mut [Block], a: B) {
        if let Some(block) = blocks.first_mut() {
            self.0.store(&mut block.0, a);
        }
    }

    #[inline(always)]
    fn gather(self, block: impl Fn(usize) -> B) -> B {
        block(0)
    }

    #[inline(always)]
    fn scatter(self, a: B, mut take: impl FnMut(usize, B)) {
        take(0, a);
    }
}

/// Two blocks.
type Y = __m256i;

impl Vaes256 {
    instructions! {
        zero2() -> Y = _mm256_setzero_si256;
        xor2(a: Y, b: Y) -> Y = _mm256_xor_si256;
        and2(a: Y, b: Y) -> Y = _mm256_and_si256;
        aes_round2(state: Y, key: Y) -> Y = _mm256_aesenc_epi128;
        aes_last2(state: Y, key: Y) -> Y = _mm256_aesenclast_epi128;
        aes_undo_round2(state: Y, key: Y) -> Y = _mm256_aesdec_epi128;
        aes_undo_last2(state: Y, key: Y) -> Y = _mm256_aesdeclast_epi128;
        add_words2(a: Y, b: Y) -> Y = _mm256_add_epi32;
        shuffle2(a: Y, order: Y) -> Y = _mm256_shuffle_epi8;
        repeat2(a: B) -> Y = _mm256_broadcastsi128_si256;
        join(low: B, high: B) -> Y = join;
        low(a: Y) -> B = _mm256_castsi256_si128;
        high(a: Y) -> B = _mm256_extracti128_si256::<1>;
        /// The second block of `a`, then the first of `b`.
        between(a: Y, b: Y) -> Y = _mm256_permute2x128_si256::<0x21>;
    }
}

#[inline(always)]
unsafe fn join(low: B, high: B) -> Y {
    // SAFETY: the caller holds a token that proves AVX.
    unsafe { _mm256_set_m128i(high, low) }
}

/// Reverses the bytes of each block when used as a shuffle.
const REVERSE: Block = Block([15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);

impl Width for Two {
    type L = Vaes256;
    type V = Y;
    const BLOCKS: usize = 2;

    same! {
        zero() = zero2;
        xor(a, b) = xor2;
        and(a, b) = and2;
        round(state, key) = aes_round2;
        last(state, key) = aes_last2;
        undo_round(state, key) = aes_undo_round2;
        undo_last(state, key) = aes_undo_last2;
        add_words(a, b) = add_words2;
        carry(before, now) = between;
    }

    #[inline(always)]
    fn lanes(self) -> Vaes256 {
        self.0
    }

    #[inline(always)]
    fn xor3(self, a: Y, b: Y, c: Y) -> Y {
        self.xor(self.xor(a, b), c)
    }

    #[inline(always)]
    fn reverse(self, a: Y) -> Y {
        self.0.shuffle2(a, self.splat(&REVERSE))
    }

    #[inline(always)]
    fn repeat(self, block: B) -> Y {
        self.0.repeat2(block)
    }

    #[inline(always)]
    fn splat(self, block: &Block) -> Y {
        self.0.repeat2(self.0.table(block))
    }

    #[inline(always)]
    fn row(self, blocks: &[Block]) -> Y {
        let Some(blocks) = blocks.first_chunk::<2>() else { return self.zero() };
        // SAFETY: two blocks are 32 bytes without gaps, and the load needs no alignment; the token
        // proves AVX.
        unsafe { _mm256_loadu_si256(blocks.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> Y {
        let Some(bytes) = bytes.first_chunk::<32>() else { return self.zero() };
        // SAFETY: the reference is valid for 32 bytes, and the load needs no alignment; the token
        // proves AVX.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], a: Y) {
        let Some(bytes) = bytes.first_chunk_mut::<32>() else { return };
        // SAFETY: the reference is valid for 32 bytes, and the store needs no alignment; the token
        // proves AVX.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), a) }
    }

    #[inline(always)]
    fn load_some(self, bytes: &[u8]) -> Y {
        if bytes.len() >= 32 {
            return self.load(bytes);
        }
        match bytes.split_first_chunk() {
            Some((low, high)) => self.0.join(self.0.load(low), self.0.load_some(high)),
            None => self.0.join(self.0.load_some(bytes), self.0.zero()),
        }
    }

    #[inline(always)]
    fn store_some(self, bytes: &mut [u8], a: Y) {
        if bytes.len() >= 32 {
            return self.store(bytes, a);
        }
        match bytes.split_first_chunk_mut() {
            Some((low, high)) => {
                self.0.store(low, self.0.low(a));
                self.0.store_some(high, self.0.high(a));
            }
            None => self.0.store_some(bytes, self.0.low(a)),
        }
    }

    #[inline(always)]
    fn chains<'k, F: Feed<'k>>(self, run: Run<'_, 'k, Vaes256, F>) {
        run.wide::<_, 8, 16, false>(self);
    }
}

impl Gather for Two {
    #[inline(always)]
    fn set_row(self, blocks: &mut [Block], a: Y) {
        let Some(blocks) = blocks.first_chunk_mut::<2>() else { return };
        // SAFETY: two blocks are 32 bytes without gaps, and the store needs no alignment; the token
        // proves AVX.
        unsafe { _mm256_storeu_si256(blocks.as_mut_ptr().cast(), a) }
    }

    #[inline(always)]
    fn gather(self, block: impl Fn(usize) -> B) -> Y {
        self.0.join(block(0), block(1))
    }

    #[inline(always)]
    fn scatter(self, a: Y, mut take: impl FnMut(usize, B)) {
        take(0, self.0.low(a));
        take(1, self.0.high(a));
    }
}

impl Vaes512 {
    instructions! {
        aes_undo_round4(state: Z, key: Z) -> Z = _mm512_aesdec_epi128;
        aes_undo_last4(state: Z, key: Z) -> Z = _mm512_aesdeclast_epi128;
        pub(in super::super) add_words4(a: Z, b: Z) -> Z = _mm512_add_epi32;
        /// The words of `b` moved up by a block, with the last block of `a` below.
        carry4(b: Z, a: Z) -> Z = _mm512_alignr_epi64::<6>;
    }
}

impl Width for Four {
    type L = Vaes512;
    type V = Z;
    const BLOCKS: usize = 4;

    same! {
        zero() = zero4;
        xor(a, b) = xor4;
        and(a, b) = and4;
        xor3(a, b, c) = xor4_3;
        round(state, key) = aes_round4;
        last(state, key) = aes_last4;
        undo_round(state, key) = aes_undo_round4;
        undo_last(state, key) = aes_undo_last4;
        add_words(a, b) = add_words4;
        reverse(a) = reverse4;
    }

    #[inline(always)]
    fn lanes(self) -> Vaes512 {
        self.0
    }

    #[inline(always)]
    fn repeat(self, block: B) -> Z {
        self.0.repeat4(block)
    }

    #[inline(always)]
    fn splat(self, block: &Block) -> Z {
        self.0.table4(block)
    }

    #[inline(always)]
    fn row(self, blocks: &[Block]) -> Z {
        match blocks.first_chunk() {
            Some(blocks) => self.0.window4(blocks),
            None => self.0.zero4(),
        }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> Z {
        match bytes.first_chunk() {
            Some(bytes) => self.0.load4(bytes),
            None => self.0.zero4(),
        }
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], a: Z) {
        if let Some(bytes) = bytes.first_chunk_mut() {
            self.0.store4(bytes, a);
        }
    }

    #[inline(always)]
    fn load_some(self, bytes: &[u8]) -> Z {
        self.0.load_some4(bytes)
    }

    #[inline(always)]
    fn store_some(self, bytes: &mut [u8], a: Z) {
        self.0.store_some4(bytes, a);
    }

    #[inline(always)]
    fn carry(self, before: Z, now: Z) -> Z {
        self.0.carry4(now, before)
    }

    #[inline(always)]
    fn chains<'k, F: Feed<'k>>(self, run: Run<'_, 'k, Vaes512, F>) {
        // As much AES per cycle as with four, and blocks move between memory and registers faster.
        run.wide::<_, 8, 16, true>(Two(self.0.vaes256()));
    }
}
