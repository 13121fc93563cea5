//! Sums of GHASH with four blocks per register.

use super::{
    lanes512::Z,
    tables::{FOLD, Sum},
    token::Vaes512,
};

/// Products summed lane by lane, before their reduction.
#[derive(Clone, Copy)]
pub(super) struct Sum4 {
    lo: Z,
    mid: Z,
    hi: Z,
}

impl Sum4 {
    #[inline(always)]
    pub(super) fn zero(v: Vaes512) -> Self {
        Self { lo: v.zero4(), mid: v.zero4(), hi: v.zero4() }
    }

    #[inline(always)]
    pub(super) fn add(&mut self, v: Vaes512, x: Z, power: Z) {
        self.lo = v.xor4(self.lo, v.mul_lo4(x, power));
        self.hi = v.xor4(self.hi, v.mul_hi4(x, power));
        self.mid = v.xor4_3(self.mid, v.mul_lo_hi4(x, power), v.mul_hi_lo4(x, power));
    }

    /// Each lane's sum modulo the GHASH polynomial; see [`Sum::reduce`].
    #[inline(always)]
    pub(super) fn reduce(self, v: Vaes512) -> Z {
        let fold = v.fill4(FOLD);
        let lo = v.xor4(self.lo, v.low_to_high4(self.mid));
        let hi = v.xor4(self.hi, v.high_to_low4(self.mid));
        let lo = v.xor4(v.swap_halves4(lo), v.mul_lo4(lo, fold));
        v.xor4_3(v.swap_halves4(lo), v.mul_lo4(lo, fold), hi)
    }

    /// The sum over the lanes.
    #[inline(always)]
    pub(super) fn fold(self, v: Vaes512) -> Sum {
        Sum::from_parts(v, v.fold4(self.lo), v.fold4(self.mid), v.fold4(self.hi))
    }
}
