//! Registers of words, one word per message, and the instructions that hashes are made of.

mod implementations;

use crate::isa::x86::token::{AesNi, Avx2, Avx512};

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
/// Words are taken from memory eight at a time, which is half a block, and put there four at a time.
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
    /// The same words. Sums are not reordered across this: it keeps what comes late last.
    fn settle(self, a: Self::V) -> Self::V;
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
    /// One word of a row in each lane.
    fn repeat(self, row: &[u8; 64], word: usize) -> Self::V;
    /// As many words of a row as there are lanes.
    fn load_row(self, row: &[u8; 64]) -> Self::V;
    /// Stores the words to a row.
    fn store_row(self, a: Self::V, row: &mut [u8; 64]);
    /// Copies `from`, which is shorter than a block. Behind it come a set bit, if it is to be padded,
    /// and zeros. The last eight bytes are replaced by `bits`.
    fn copy_some<const B: usize>(self, from: &[u8], pad: bool, bits: Option<u64>, to: &mut [u8; B]);
    /// Eight words of each lane from half a block of its row; with `SWAP`, their bytes reversed.
    fn load<const N: usize, const SWAP: bool>(
        self,
        rows: &Rows<'_, N>,
        half: usize,
    ) -> [Self::V; 8];
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
