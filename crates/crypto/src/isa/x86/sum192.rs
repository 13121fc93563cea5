//! Sums of GHASH whose products have 192 bits.
//!
//! For a power `W` of H there are two factors: `W`, and `W` divided by x^64. A block with the halves `lo` and
//! `hi`, times `W`, is `(lo * W / x^64 + hi * W / x^128 * x^64) * x^64`: four products, as without this, but two
//! sums and not three, and a reduction of three instructions.

use super::{
    lanes::{B, Lanes},
    lanes512::Z,
    tables::{FOLD, Window},
    token::Vaes512,
};
use crate::block::Block;

/// A power of H, and the same divided by x^64.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    whole: Z,
    divided: Z,
}

impl Factor {
    /// The highest power of a window in all lanes.
    #[inline(always)]
    pub(super) fn alike(v: Vaes512, window: Window<'_>) -> Self {
        let ([whole, ..], [divided, ..]) = (window.whole, window.divided);
        Self { whole: v.table4(whole), divided: v.table4(divided) }
    }

    /// A power for each lane.
    #[inline(always)]
    pub(super) fn window(v: Vaes512, window: Window<'_>) -> Self {
        Self::lanes(v, window.whole, window.divided)
    }

    /// The same of powers and of powers divided by x^64.
    #[inline(always)]
    pub(super) fn lanes(v: Vaes512, whole: &[Block; 4], divided: &[Block; 4]) -> Self {
        Self { whole: v.window4(whole), divided: v.window4(divided) }
    }
}

/// Products of blocks by powers of H, summed lane by lane.
#[derive(Clone, Copy)]
pub(super) struct Sum192 {
    lo: Z,
    hi: Z,
}

impl Sum192 {
    #[inline(always)]
    pub(super) fn zero(v: Vaes512) -> Self {
        Self { lo: v.zero4(), hi: v.zero4() }
    }

    /// Adds `x` times a power.
    #[inline(always)]
    pub(super) fn add(&mut self, v: Vaes512, x: Z, by: Factor) {
        let Factor { whole, divided } = by;
        self.lo = v.xor4_3(self.lo, v.mul_lo4(x, divided), v.mul_hi_lo4(x, whole));
        self.hi = v.xor4_3(self.hi, v.mul_lo_hi4(x, divided), v.mul_hi4(x, whole));
    }

    /// Each lane's sum modulo the GHASH polynomial.
    #[inline(always)]
    pub(super) fn reduce(self, v: Vaes512) -> Z {
        v.xor4_3(self.hi, v.swap_halves4(self.lo), v.mul_lo4(self.lo, v.fill4(FOLD)))
    }

    /// The sum over the lanes, modulo the GHASH polynomial.
    #[inline(always)]
    pub(super) fn fold(self, v: Vaes512) -> B {
        let (lo, hi) = (v.fold4(self.lo), v.fold4(self.hi));
        v.xor3(hi, v.swap_halves(lo), v.mul_lo(lo, v.pair(FOLD, FOLD)))
    }

    /// The sum over the lanes of each of four, in the lane of its number.
    #[inline(always)]
    pub(super) fn fold_each(v: Vaes512, [a, b, c, d]: [Self; 4]) -> Self {
        Self {
            lo: v.fold_each4([a.lo, b.lo, c.lo, d.lo]),
            hi: v.fold_each4([a.hi, b.hi, c.hi, d.hi]),
        }
    }
}
