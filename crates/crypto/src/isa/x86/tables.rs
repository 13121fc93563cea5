//! Key tables: AES round keys and powers of the GHASH key, the same for every tier.

use zeroize::Zeroize;

use super::{
    aes::keys,
    lanes::{B, Lanes},
    lanes512::Z,
    sum4::Sum4,
    token::{Task, Vaes512},
};
use crate::{
    KeyBits,
    block::{Block, RoundKeys},
    isa::prefetch_read,
    memory::{Lined, OutOfMemory, try_box},
    secret::wipe,
};

/// Powers of the GHASH key that are kept.
pub(super) const POWERS: usize = 20;

/// Powers, from the first on, of which the sum of both halves is kept.
pub(super) const FOLDS: usize = 14;

/// Start of the powers divided by x^64, and of the sums of halves.
const DIVIDED: usize = POWERS;
const HALVES: usize = 2 * POWERS;

/// Everything a kernel needs of a key, in as little room as `struct gcm_key_data` of intel-ipsec-mb 1.3 has. Wiped on drop,
/// and always where it will stay, so that it never moves.
#[repr(C, align(16))]
pub(crate) struct Tables {
    /// Round keys 0 to 13, as far as the key size has them, without the last.
    pub(super) round_keys: [Block; 14],
    /// The last round key.
    pub(super) last: Block,
    /// 10, 12 or 14.
    pub(super) rounds: u8,
    /// No padding, which would be copied from wherever the tables were built and not wiped.
    unused: [u8; 15],
    /// H^20 down to H^1; each of them divided by x^64, for products of 192 bits (see `sum192`); and the sum of both halves of
    /// H^14 down to H^1, two to a block, for Karatsuba's middle product.
    ///
    /// A window of blocks may reach past H^1, into what is next: only blocks of zeros are multiplied by that.
    factors: [Block; HALVES + FOLDS / 2],
}

impl Tables {
    /// Starts loading what packets use: the round keys and powers, the lowest ones alone for short packets. `folds`
    /// says whether the kernel multiplies as Karatsuba did.
    #[inline(always)]
    pub(crate) fn prefetch(&self, short: bool, folds: bool) {
        prefetch_read(&self.round_keys);
        prefetch_read(&self.last);
        let (powers, others) = self.factors.split_at(POWERS);
        let (higher, lower) = powers.split_at(12);
        prefetch_read(lower);
        if !short {
            prefetch_read(higher);
        }
        if folds {
            let (_, folds) = others.split_at(HALVES - DIVIDED);
            prefetch_read(folds);
        }
    }

    /// Tables yet to be filled in, already where they will stay.
    pub(super) fn zeroed() -> Result<Box<Lined<Self>>, OutOfMemory> {
        try_box(Lined(Self::EMPTY))
    }

    /// Tables yet to be filled in.
    pub(crate) const EMPTY: Self = Self {
        round_keys: [Block::ZERO; 14],
        last: Block::ZERO,
        rounds: 0,
        unused: [0; 15],
        factors: [Block::ZERO; HALVES + FOLDS / 2],
    };

    /// H to the power of `n`, for 1 to 20; the caller's `n` is nearly always a constant.
    #[inline(always)]
    pub(super) fn power(&self, n: usize) -> &Block {
        &self.factors[POWERS - n]
    }

    /// Sets H to the power of `n`, for 1 to 20.
    #[inline(always)]
    fn set_power<L: Lanes>(&mut self, l: L, n: usize, power: B) {
        l.store(&mut self.factors[POWERS - n].0, power);
        let divided = l.xor(l.swap_halves(power), l.mul_lo(power, l.pair(FOLD, FOLD)));
        l.store(&mut self.factors[DIVIDED + POWERS - n].0, divided);
        if n <= FOLDS {
            let fold = l.to_bytes(l.xor(power, l.swap_halves(power)));
            let (block, half) = place_of_fold(n);
            let place = self.factors[block].0.as_chunks_mut().0.get_mut(half);
            if let (Some(place), Some(fold)) = (place, fold.first_chunk::<8>()) {
                *place = *fold;
            }
        }
    }

    /// H to the power of `n` and the next lower ones, for 1 to 20.
    #[inline(always)]
    pub(super) fn window(&self, n: usize) -> Window<'_> {
        // No check of what callers know: it would be a branch.
        let at = POWERS.wrapping_sub(n).min(POWERS);
        match (self.factors[at..].first_chunk(), self.factors[DIVIDED + at..].first_chunk()) {
            (Some(whole), Some(divided)) => Window { whole, divided },
            _ => Window { whole: &[Block::ZERO; 4], divided: &[Block::ZERO; 4] },
        }
    }

    /// Four powers of H from the power of `n` downwards, for 1 to 20.
    #[inline(always)]
    pub(super) fn four_powers(&self, n: usize) -> Option<&[Block; 4]> {
        self.factors[POWERS - n..].first_chunk()
    }

    /// Powers of H from the power of `n` downwards, in `N` registers of `L` lanes, and the same divided by x^64.
    #[inline(always)]
    pub(super) fn registers<const L: usize, const N: usize>(
        &self,
        n: usize,
    ) -> Option<(&Registers<L, N>, &Registers<L, N>)> {
        let at = POWERS.checked_sub(n)?;
        let whole = self.factors.get(at..)?.as_chunks().0.first_chunk()?;
        Some((whole, self.factors.get(DIVIDED + at..)?.as_chunks().0.first_chunk()?))
    }

    /// H to the power of `n` as a factor, for 1 to 14.
    #[inline(always)]
    pub(super) fn weight(&self, n: usize) -> Weight<'_> {
        let (block, half) = place_of_fold(n);
        let fold = self.factors[block].0.as_chunks().0.get(half);
        Weight { power: self.power(n), fold }
    }

    /// The same for 1 to 20, in two instructions more.
    #[inline(always)]
    pub(super) fn far_weight(&self, n: usize) -> Weight<'_> {
        Weight { power: self.power(n), fold: None }
    }

    /// Powers of H as factors, from the power of `n` downwards, a constant.
    #[inline(always)]
    pub(super) fn weights(&self, n: usize) -> Weights<'_> {
        Weights { tables: self, n, far: false }
    }

    /// The same where `n` is no constant.
    #[inline(always)]
    pub(super) fn far_weights(&self, n: usize) -> Weights<'_> {
        Weights { tables: self, n, far: true }
    }
}

/// The block and the half of it that have the sum of both halves of H to the power of `n`, for 1 to 14.
#[inline(always)]
fn place_of_fold(n: usize) -> (usize, usize) {
    let at = FOLDS - n;
    (HALVES + at / 2, at % 2)
}

// No padding, and what there is room for.
const _: () = assert!(size_of::<Tables>() == 16 * (14 + 1 + 1 + 2 * POWERS) + 8 * FOLDS);
const _: () = assert!(size_of::<Tables>() == 1008);

/// Powers of H, each the next lower one, `L` to a register.
pub(super) type Registers<const L: usize, const N: usize> = [[Block; L]; N];

/// Four powers of H, each the next lower one, and the same divided by x^64.
#[derive(Clone, Copy)]
pub(super) struct Window<'t> {
    pub(super) whole: &'t [Block; 4],
    pub(super) divided: &'t [Block; 4],
}

/// A power of H that blocks are multiplied by.
#[derive(Clone, Copy)]
pub(super) struct Weight<'t> {
    power: &'t Block,
    /// The sum of its halves, if it is kept.
    fold: Option<&'t [u8; 8]>,
}

/// Powers of H that blocks are multiplied by.
#[derive(Clone, Copy)]
pub(super) struct Weights<'t> {
    tables: &'t Tables,
    n: usize,
    /// True if sums of halves are made, wherever they are kept.
    far: bool,
}

impl<'t> Weights<'t> {
    /// The `i`-th of them.
    #[inline(always)]
    pub(super) fn at(self, i: usize) -> Weight<'t> {
        let n = self.n - i;
        if self.far || n > FOLDS { self.tables.far_weight(n) } else { self.tables.weight(n) }
    }
}

/// Does something with each round key between the tenth and the last, of which AES-128 has none,
/// without a loop: states stay in registers.
macro_rules! late_round_keys {
    ($tables:expr, $key:ident => $round:expr) => {
        if $tables.rounds > 10 {
            late_round_keys!(@ $tables, $key => $round, 10 11);
            if $tables.rounds > 12 {
                late_round_keys!(@ $tables, $key => $round, 12 13);
            }
        }
    };
    (@ $tables:expr, $key:ident => $round:expr, $($i:literal)*) => {$(
        let $key = &$tables.round_keys[$i];
        $round;
    )*};
}
pub(super) use late_round_keys;

impl Drop for Tables {
    fn drop(&mut self) {
        wipe(&mut self.round_keys, Block::ZERO);
        wipe(&mut self.factors, Block::ZERO);
        wipe(&mut self.last.0, 0);
        self.rounds.zeroize();
    }
}

/// Sum of products of blocks by powers of H, before its reduction.
///
/// Products are Karatsuba's: three multiplications and not four, which halves' sums make up for.
/// Multiplying is what GHASH waits for on processors that start a multiplication every other cycle.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    lo: B,
    /// Products of the halves' sums: the mixed products, and the low and high ones once more.
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
    pub(super) fn of<L: Lanes>(l: L, x: B, weight: Weight<'_>) -> Self {
        let power = l.table(weight.power);
        let fold = match weight.fold {
            Some(fold) => l.load_low(fold),
            None => l.xor(power, l.swap_halves(power)),
        };
        let mid = l.mul_lo(l.xor(x, l.swap_halves(x)), fold);
        Self { lo: l.mul_lo(x, power), mid, hi: l.mul_hi(x, power) }
    }

    /// Puts a sum together from its parts: products of low halves, mixed halves, high halves.
    #[inline(always)]
    pub(super) fn from_parts<L: Lanes>(l: L, lo: B, mid: B, hi: B) -> Self {
        Self { lo, mid: l.xor3(lo, mid, hi), hi }
    }

    /// Makes a sum of a block that is a hash already.
    #[inline(always)]
    pub(super) fn of_hash<L: Lanes>(l: L, hash: B) -> Self {
        Self { lo: l.zero(), mid: hash, hi: hash }
    }

    /// Adds `x` times a power.
    #[inline(always)]
    pub(super) fn add<L: Lanes>(&mut self, l: L, x: B, weight: Weight<'_>) {
        let Self { lo, mid, hi } = Self::of(l, x, weight);
        self.lo = l.xor(self.lo, lo);
        self.mid = l.xor(self.mid, mid);
        self.hi = l.xor(self.hi, hi);
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
        let mid = l.xor3(self.lo, self.mid, self.hi);
        let lo = l.xor(self.lo, l.low_to_high(mid));
        let hi = l.xor(self.hi, l.high_to_low(mid));
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
    fn run(self, l: L) {
        let Self { bits, key, tables } = self;
        let one = expand_key(l, bits, key, tables);
        set_powers(l, tables, one);
    }
}

/// Sets every power from the first.
#[inline(always)]
fn set_powers<L: Lanes>(l: L, tables: &mut Tables, one: B) {
    tables.set_power(l, 1, one);
    // Each product is of the highest power so far, so few of them wait for one another.
    for most in [1, 2, 4, 8, 16] {
        let power = *tables.power(most);
        for n in 1..=most.min(POWERS - most) {
            let weight = Weight { power: &power, fold: None };
            let product = Sum::of(l, l.table(tables.power(n)), weight).reduce(l);
            tables.set_power(l, most + n, product);
        }
    }
}

/// Computes the powers of a GHASH key that no AES key made. There are no round keys then.
pub(super) struct ExpandHashKey<'k> {
    pub(super) h: &'k [u8; 16],
    pub(super) tables: &'k mut Tables,
}

impl<L: Lanes> Task<L> for ExpandHashKey<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        let Self { h, tables } = self;
        set_powers(l, tables, times_x(l, u128::from_be_bytes(*h)));
    }
}

/// The same with four powers in a register.
pub(super) struct ExpandFour<'k>(pub(super) Expand<'k>);

impl Task<Vaes512> for ExpandFour<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, v: Vaes512) {
        let Expand { bits, key, tables } = self.0;
        let one = expand_key(v, bits, key, tables);
        let two = first(v, product(v, v.repeat4(one), one));
        // The highest power is first, as in memory.
        let high = product(v, v.unite4([two, one, one, one]), two);
        let high = v.blocks_of4(high);
        let four = v.unite4([high[0], high[1], two, one]);
        let eight = product(v, four, first(v, four));
        let (twelve, sixteen) =
            (product(v, four, first(v, eight)), product(v, eight, first(v, eight)));
        let twenty = product(v, four, first(v, sixteen));
        for (n, powers) in [(4, four), (8, eight), (12, twelve), (16, sixteen), (20, twenty)] {
            for (i, power) in v.blocks_of4(powers).into_iter().enumerate() {
                tables.set_power(v, n - i, power);
            }
        }
    }
}

/// The block in each lane times `factor`, reduced.
#[inline(always)]
fn product(v: Vaes512, blocks: Z, factor: B) -> Z {
    let mut sum = Sum4::zero(v);
    sum.add(v, blocks, v.repeat4(factor));
    sum.reduce(v)
}

#[inline(always)]
fn first(v: Vaes512, blocks: Z) -> B {
    v.first_of2(v.lower(blocks))
}

/// Expands the AES key into the tables, and gives H as products of reflected blocks want it.
#[inline(always)]
fn expand_key<L: Lanes>(l: L, bits: KeyBits, key: &[u8], tables: &mut Tables) -> B {
    let mut keys = RoundKeys::zeroed();
    keys::expand(l, bits, key, &mut keys);
    if let [others @ .., last] = keys.of(bits) {
        tables.round_keys[..others.len()].copy_from_slice(others);
        tables.last = *last;
    }
    tables.rounds = bits.rounds() as u8;
    let h = keys::encrypt(l, bits, &keys, l.zero());
    times_x(l, u128::from_be_bytes(l.to_bytes(h)))
}

/// H times x, so that products of reflected blocks need no shift (the reference of [`Sum::reduce`]).
#[inline(always)]
fn times_x<L: Lanes>(l: L, mut h: u128) -> B {
    let carry = 0u128.wrapping_sub(h >> 127);
    h = (h << 1) ^ (carry & (0xc2 << 120 | 1));
    let first = l.pair((h >> 64) as i64, h as i64);
    h.zeroize();
    first
}
