//! Numbers modulo 2^130 - 5 in 64-bit lanes: limbs of 26 bits for the multiplier that every tier
//! has, of 44 for the one of AVX-512 IFMA.

// Indices name limbs here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use super::wide::{Fused, Longs, Wide};
use crate::isa::x86::token::{AesNi, Avx, Avx2, Avx512, Vaes512};

/// Arithmetic modulo 2^130 - 5, in every lane.
pub(in super::super) trait Field: Wide {
    /// A number in each lane, least limb first: what [`product`](Self::product) yields, or at most
    /// a block more.
    type Number: Copy;
    /// A number to multiply by, and its high limbs times what they count for where they wrap around.
    type Multiplier;
    /// Bits of a limb.
    const LIMB_BITS: u32;

    /// A number from its first and second 64 bits, and one bit more.
    fn number(self, low: Self::V, high: Self::V, top: i64) -> Self::Number;
    /// Sums, without carries.
    fn sum(self, a: Self::Number, b: Self::Number) -> Self::Number;
    /// To multiply by a product, or by what has no bit behind its 128.
    fn multiplier(self, number: Self::Number) -> Self::Multiplier;
    /// `a * b`.
    fn product(self, a: Self::Number, b: &Self::Multiplier) -> Self::Number;
    /// `a * b + c * d`.
    fn products(
        self,
        a: Self::Number,
        b: &Self::Multiplier,
        c: Self::Number,
        d: &Self::Multiplier,
    ) -> Self::Number;
    /// `a * a`.
    fn square(self, a: &Self::Multiplier) -> Self::Number;
    /// Stores limbs.
    fn store_number(self, a: Self::Number, limbs: &mut [Longs; 5]);
    /// Loads limbs.
    fn load_number(self, limbs: &[Longs; 5]) -> Self::Number;
}

/// A multiplier in limbs of 26 bits; `fives` are five times as much.
pub(in super::super) struct By26<V> {
    limbs: [V; 5],
    fives: [V; 5],
}

/// The low bits of a limb.
const LOW_26: i64 = (1 << 26) - 1;

macro_rules! by_26 {
    ($($token:ident)*) => {$(
        impl Field for $token {
            type Number = [Self::V; 5];
            type Multiplier = By26<Self::V>;
            const LIMB_BITS: u32 = 26;

            #[inline(always)]
            fn number(self, low: Self::V, high: Self::V, top: i64) -> [Self::V; 5] {
                let mask = self.splat64(LOW_26);
                let middle = self.or_v(self.shr52(low), self.shl12(high));
                [
                    self.and_v(low, mask),
                    self.and_v(self.shr26(low), mask),
                    self.and_v(middle, mask),
                    self.and_v(self.shr14(high), mask),
                    self.or_v(self.shr40(high), self.splat64(top << 24)),
                ]
            }

            #[inline(always)]
            fn sum(self, mut a: [Self::V; 5], b: [Self::V; 5]) -> [Self::V; 5] {
                for i in 0..5 {
                    a[i] = self.add64(a[i], b[i]);
                }
                a
            }

            #[inline(always)]
            fn multiplier(self, limbs: [Self::V; 5]) -> By26<Self::V> {
                let mut fives = limbs;
                for five in &mut fives {
                    *five = self.add64(*five, self.shl2(*five));
                }
                By26 { limbs, fives }
            }

            #[inline(always)]
            fn product(self, a: [Self::V; 5], b: &By26<Self::V>) -> [Self::V; 5] {
                let mut sums = [self.splat64(0); 5];
                add_product_26(self, &mut sums, &a, b);
                carry_26(self, sums)
            }

            #[inline(always)]
            fn products(
                self,
                a: [Self::V; 5],
                b: &By26<Self::V>,
                c: [Self::V; 5],
                d: &By26<Self::V>,
            ) -> [Self::V; 5] {
                let mut sums = [self.splat64(0); 5];
                add_product_26(self, &mut sums, &a, b);
                add_product_26(self, &mut sums, &c, d);
                carry_26(self, sums)
            }

            #[inline(always)]
            fn square(self, a: &By26<Self::V>) -> [Self::V; 5] {
                self.product(a.limbs, a)
            }

            #[inline(always)]
            fn store_number(self, a: [Self::V; 5], limbs: &mut [Longs; 5]) {
                for i in 0..5 {
                    self.store_longs(a[i], &mut limbs[i]);
                }
            }

            #[inline(always)]
            fn load_number(self, [a, b, c, d, e]: &[Longs; 5]) -> [Self::V; 5] {
                let load = |limb| self.load_longs(limb);
                [load(a), load(b), load(c), load(d), load(e)]
            }
        }
    )*};
}

by_26!(AesNi Avx Avx2 Avx512);

/// Adds the products to `sums`, without carries.
#[inline(always)]
fn add_product_26<W: Wide>(w: W, sums: &mut [W::V; 5], a: &[W::V; 5], b: &By26<W::V>) {
    for i in 0..5 {
        for j in 0..5 {
            let limb = if i >= j { b.limbs[i - j] } else { b.fives[5 + i - j] };
            sums[i] = w.add64(sums[i], w.mul(a[j], limb));
        }
    }
}

/// Carries until every limb has 26 bits, or one more.
#[inline(always)]
fn carry_26<W: Wide>(w: W, [a, b, c, d, e]: [W::V; 5]) -> [W::V; 5] {
    let mask = w.splat64(LOW_26);
    // Two chains at a time, for they wait for one another otherwise.
    let (b, a) = (w.add64(b, w.shr26(a)), w.and_v(a, mask));
    let (e, d) = (w.add64(e, w.shr26(d)), w.and_v(d, mask));
    let (c, b) = (w.add64(c, w.shr26(b)), w.and_v(b, mask));
    let (over, e) = (w.shr26(e), w.and_v(e, mask));
    let a = w.add64(a, w.add64(over, w.shl2(over)));
    let (d, c) = (w.add64(d, w.shr26(c)), w.and_v(c, mask));
    let (b, a) = (w.add64(b, w.shr26(a)), w.and_v(a, mask));
    let (e, d) = (w.add64(e, w.shr26(d)), w.and_v(d, mask));
    [a, b, c, d, e]
}

/// A multiplier in limbs of 44 bits, and its second and third limb times 20: they wrap around at
/// 2^132, which is 20 modulo 2^130 - 5.
pub(in super::super) struct By44<V> {
    limbs: [V; 3],
    twenties: [V; 2],
}

/// The low bits of the first and second limb, and of the third.
const LOW_44: i64 = (1 << 44) - 1;
const LOW_42: i64 = (1 << 42) - 1;

/// Products in two parts, the low 52 bits and those above.
#[derive(Clone, Copy)]
struct Sums44<V> {
    low: [V; 3],
    high: [V; 3],
}

impl Field for Vaes512 {
    type Number = [Self::V; 3];
    type Multiplier = By44<Self::V>;
    const LIMB_BITS: u32 = 44;

    #[inline(always)]
    fn number(self, low: Self::V, high: Self::V, top: i64) -> [Self::V; 3] {
        let mask = self.splat64(LOW_44);
        let middle = self.or_v(self.shr44(low), self.shl20(high));
        [
            self.and_v(low, mask),
            self.and_v(middle, mask),
            self.or_v(self.shr24(high), self.splat64(top << 40)),
        ]
    }

    #[inline(always)]
    fn sum(self, mut a: [Self::V; 3], b: [Self::V; 3]) -> [Self::V; 3] {
        for i in 0..3 {
            a[i] = self.add64(a[i], b[i]);
        }
        a
    }

    #[inline(always)]
    fn multiplier(self, limbs: [Self::V; 3]) -> By44<Self::V> {
        let twenty = |limb| {
            let four = self.shl2(limb);
            self.add64(four, self.shl2(four))
        };
        By44 { limbs, twenties: [twenty(limbs[1]), twenty(limbs[2])] }
    }

    #[inline(always)]
    fn product(self, a: [Self::V; 3], b: &By44<Self::V>) -> [Self::V; 3] {
        let zero = self.splat64(0);
        carry_44(self, add_product_44(self, Sums44 { low: [zero; 3], high: [zero; 3] }, a, b))
    }

    #[inline(always)]
    fn products(
        self,
        a: [Self::V; 3],
        b: &By44<Self::V>,
        c: [Self::V; 3],
        d: &By44<Self::V>,
    ) -> [Self::V; 3] {
        let zero = self.splat64(0);
        let sums = add_product_44(self, Sums44 { low: [zero; 3], high: [zero; 3] }, a, b);
        carry_44(self, add_product_44(self, sums, c, d))
    }

    #[inline(always)]
    fn square(self, a: &By44<Self::V>) -> [Self::V; 3] {
        self.product(a.limbs, a)
    }

    #[inline(always)]
    fn store_number(self, a: [Self::V; 3], limbs: &mut [Longs; 5]) {
        for i in 0..3 {
            self.store_longs(a[i], &mut limbs[i]);
        }
    }

    #[inline(always)]
    fn load_number(self, [a, b, c, ..]: &[Longs; 5]) -> [Self::V; 3] {
        [self.load_longs(a), self.load_longs(b), self.load_longs(c)]
    }
}

/// Adds the products to sums, without carries. No limb has more than 50 bits; those times 20 have
/// the most.
#[inline(always)]
fn add_product_44<W: Fused>(
    w: W,
    sums: Sums44<W::V>,
    a: [W::V; 3],
    b: &By44<W::V>,
) -> Sums44<W::V> {
    let Sums44 { mut low, mut high } = sums;
    for i in 0..3 {
        for j in 0..3 {
            let limb = if i >= j { b.limbs[i - j] } else { b.twenties[2 + i - j] };
            low[i] = w.add_low52(low[i], a[j], limb);
            high[i] = w.add_high52(high[i], a[j], limb);
        }
    }
    Sums44 { low, high }
}

/// Carries until the limbs have 44, 45 and 42 bits. Sums of low parts have up to 55 bits, and those
/// of high parts, once shifted to the place of the next limb, up to 50.
#[inline(always)]
fn carry_44<W: Fused>(w: W, sums: Sums44<W::V>) -> [W::V; 3] {
    let Sums44 { low: [a, b, c], high: [over_a, over_b, over_c] } = sums;
    let (mask, last) = (w.splat64(LOW_44), w.splat64(LOW_42));
    let b = w.add64(w.add64(b, w.shl8(over_a)), w.shr44(a));
    let c = w.add64(w.add64(c, w.shl8(over_b)), w.shr44(b));
    let over = w.add64(w.shl10(over_c), w.shr42(c));
    let a = w.add64(w.and_v(a, mask), w.add64(over, w.shl2(over)));
    let b = w.add64(w.and_v(b, mask), w.shr44(a));
    [w.and_v(a, mask), b, w.and_v(c, last)]
}
