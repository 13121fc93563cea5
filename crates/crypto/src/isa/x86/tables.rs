//! Key tables: AES round keys and powers of the GHASH key, the same for every tier.

use zeroize::Zeroize;

use super::{
    lanes::{B, Lanes},
    token::Task,
};
use crate::KeyBits;
pub(super) use crate::block::Block;

/// Powers of the GHASH key that are kept.
pub(super) const POWERS: usize = 20;

/// Everything a kernel needs of a key. Wiped on drop, and always boxed so that it never moves.
#[repr(C, align(64))]
pub(crate) struct Tables {
    /// Round keys 0 to 13, as far as the key size has them, without the last.
    pub(super) round_keys: [Block; 14],
    /// The last round key.
    pub(super) last: Block,
    /// 10, 12 or 14.
    pub(super) rounds: u8,
    /// No padding, which would be copied from wherever the tables were built and not wiped.
    unused: [u8; 15],
    /// H^20 down to H^1, then zeros: a window of blocks may reach past the end of the message.
    pub(super) powers: [Block; POWERS + 4],
}

impl Tables {
    /// Tables yet to be filled in, already where they will stay.
    pub(super) fn zeroed() -> Box<Self> {
        Box::new(Self {
            round_keys: [Block::ZERO; 14],
            last: Block::ZERO,
            rounds: 0,
            unused: [0; 15],
            powers: [Block::ZERO; POWERS + 4],
        })
    }

    /// H to the power of `n`, for 1 to 20; the caller's `n` is nearly always a constant.
    #[inline(always)]
    pub(super) fn power(&self, n: usize) -> &Block {
        &self.powers[POWERS - n]
    }

    /// H to the power of `n` and the next lower one; 20 is the most.
    #[inline(always)]
    pub(super) fn pair(&self, n: usize) -> Option<&[Block; 2]> {
        self.powers.get(POWERS.checked_sub(n)?..)?.first_chunk()
    }

    /// `N` powers of H, from the power of `n` downwards.
    #[inline(always)]
    pub(super) fn window<const N: usize>(&self, n: usize) -> &[Block] {
        &self.powers[POWERS - n..][..N]
    }
}

const _: () = assert!(size_of::<Tables>() == 16 * (14 + 1 + 1 + POWERS + 4));

impl Drop for Tables {
    fn drop(&mut self) {
        for block in self.round_keys.iter_mut().chain(&mut self.powers).chain([&mut self.last]) {
            block.0.zeroize();
        }
        self.rounds.zeroize();
    }
}

/// Sum of products of blocks by powers of H, before its reduction.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    lo: B,
    mid: B,
    hi: B,
}

impl Sum {
    #[inline(always)]
    pub(super) fn zero<L: Lanes>(l: L) -> Self {
        Self { lo: l.zero(), mid: l.zero(), hi: l.zero() }
    }

    /// A single product.
    #[inline(always)]
    pub(super) fn of<L: Lanes>(l: L, x: B, power: B) -> Self {
        let mid = l.xor(l.mul_lo_hi(x, power), l.mul_hi_lo(x, power));
        Self { lo: l.mul_lo(x, power), mid, hi: l.mul_hi(x, power) }
    }

    /// Puts a sum together from its parts: products of low halves, mixed halves, high halves.
    #[inline(always)]
    pub(super) fn from_parts(lo: B, mid: B, hi: B) -> Self {
        Self { lo, mid, hi }
    }

    /// Adds `x` times `power`.
    #[inline(always)]
    pub(super) fn add<L: Lanes>(&mut self, l: L, x: B, power: B) {
        self.lo = l.xor(self.lo, l.mul_lo(x, power));
        self.hi = l.xor(self.hi, l.mul_hi(x, power));
        self.mid = l.xor3(self.mid, l.mul_lo_hi(x, power), l.mul_hi_lo(x, power));
    }

    /// The sum modulo the GHASH polynomial.
    ///
    /// Blocks are bit-reflected and H carries an extra factor x, so the reduction is Montgomery's:
    /// two folds from below by the constant 0xc2 << 56 (Gueron and Kounavis, "Efficient
    /// implementation of the Galois Counter Mode using a carry-less multiplier and a fast reduction
    /// algorithm", 2010).
    #[inline(always)]
    pub(super) fn reduce<L: Lanes>(self, l: L) -> B {
        let fold = l.pair(FOLD, FOLD);
        let lo = l.xor(self.lo, l.low_to_high(self.mid));
        let hi = l.xor(self.hi, l.high_to_low(self.mid));
        let lo = l.xor(l.swap_halves(lo), l.mul_lo(lo, fold));
        l.xor3(l.swap_halves(lo), l.mul_lo(lo, fold), hi)
    }
}

/// The high half of the reflected GHASH polynomial.
pub(super) const FOLD: i64 = 0xc200_0000_0000_0000_u64 as i64;

/// Expands an AES key (FIPS 197 section 5.2) and computes the powers of its GHASH key.
pub(super) struct Expand<'k> {
    pub(super) bits: KeyBits,
    pub(super) key: &'k [u8],
    pub(super) tables: &'k mut Tables,
}

impl<L: Lanes> Task<L> for Expand<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: L) {
        expand(token, self.bits, self.key, self.tables);
    }
}

#[inline(always)]
fn expand<L: Lanes>(l: L, bits: KeyBits, key: &[u8], tables: &mut Tables) {
    let (nk, rounds) = (bits.bytes() / 4, bits.rounds());
    let mut words = [0u32; 60];
    for (word, bytes) in words.iter_mut().zip(key.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    let mut rcon = 1u32;
    for i in nk..4 * (rounds + 1) {
        let mut word = words[i - 1];
        if i % nk == 0 {
            word = sub_word(l, word.rotate_right(8)) ^ rcon;
            rcon = (rcon << 1) ^ ((rcon >> 7) * 0x11b);
        } else if nk > 6 && i % nk == 4 {
            word = sub_word(l, word);
        }
        words[i] = words[i - nk] ^ word;
    }
    for (i, four) in words.as_chunks::<4>().0.iter().take(rounds + 1).enumerate() {
        let to = if i == rounds { &mut tables.last } else { &mut tables.round_keys[i] };
        for (bytes, word) in to.0.as_chunks_mut::<4>().0.iter_mut().zip(four) {
            *bytes = word.to_le_bytes();
        }
    }
    words.zeroize();
    tables.rounds = rounds as u8;
    expand_powers(l, tables);
}

/// AES's S-box on each byte of a word: with four equal columns the last round does nothing else.
#[inline(always)]
fn sub_word<L: Lanes>(l: L, word: u32) -> u32 {
    let word = word as i32;
    l.low_word(l.aes_last(l.quad(word, word, word, word), l.zero())) as u32
}

#[inline(always)]
fn expand_powers<L: Lanes>(l: L, tables: &mut Tables) {
    let mut state = l.table(&tables.round_keys[0]);
    for key in &tables.round_keys[1..usize::from(tables.rounds)] {
        state = l.aes_round(state, l.table(key));
    }
    let mut h = u128::from_be_bytes(l.to_bytes(l.aes_last(state, l.table(&tables.last))));
    // H times x, so that products of reflected blocks need no shift (the same reference).
    let carry = 0u128.wrapping_sub(h >> 127);
    h = (h << 1) ^ (carry & (0xc2 << 120 | 1));
    let h1 = l.pair((h >> 64) as i64, h as i64);
    h.zeroize();
    let mut power = h1;
    for block in tables.powers[..POWERS].iter_mut().rev() {
        block.0 = l.to_bytes(power);
        power = Sum::of(l, power, h1).reduce(l);
    }
}
