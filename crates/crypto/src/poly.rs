//! Poly1305 (RFC 8439 section 2.5) of one message, in 64-bit words: products, sums and shifts, and no
//! branch or address that depends on a secret.

/// A MAC under way.
#[derive(Clone, Copy, Default)]
pub(crate) struct Poly {
    /// The accumulator: 130 bits and a little.
    h: [u64; 3],
    r: [u64; 2],
    /// Five quarters of the high word of `r`, whose low two bits are clear.
    s1: u64,
    /// Addend at the end.
    pad: u128,
}

impl Poly {
    /// A MAC without a key.
    pub(crate) const NONE: Self = Self { h: [0; 3], r: [0; 2], s1: 0, pad: 0 };

    /// A MAC that is keyed by the front of this block.
    #[inline(always)]
    pub(crate) fn new(block: &[u8; 64]) -> Self {
        let [r, pad, ..] = block.as_chunks().0 else { return Self::NONE };
        let (r, pad) = (u128::from_le_bytes(*r), u128::from_le_bytes(*pad));
        let r0 = r as u64 & 0x0fff_fffc_0fff_ffff;
        let r1 = (r >> 64) as u64 & 0x0fff_fffc_0fff_fffc;
        Self { h: [0; 3], r: [r0, r1], s1: r1 + (r1 >> 2), pad }
    }

    /// Accumulator, multiplier and what is added at the end.
    pub(crate) fn parts(&self) -> ([u64; 3], [u64; 2], u128) {
        (self.h, self.r, self.pad)
    }

    /// A MAC of its [parts](Self::parts). Clamped again, as they may come from anywhere.
    pub(crate) fn from_parts(h: [u64; 3], r: [u64; 2], pad: u128) -> Self {
        let [h0, h1, h2] = h;
        let r = [r[0] & 0x0fff_fffc_0fff_ffff, r[1] & 0x0fff_fffc_0fff_fffc];
        Self { h: [h0, h1, h2 & 7], r, s1: r[1] + (r[1] >> 2), pad }
    }

    /// Multiplier, low word first.
    #[inline(always)]
    pub(crate) fn multiplier(&self) -> [u64; 2] {
        self.r
    }

    /// The accumulator in limbs of so many bits, the last of which has all that is left.
    #[inline(always)]
    pub(crate) fn limbs(&self, bits: u32) -> [u64; 5] {
        let [h0, h1, h2] = self.h;
        let low = u128::from(h0) | u128::from(h1) << 64;
        let (mut limbs, last) = ([0; 5], 130 / bits * bits);
        let last = if last > 120 { last - bits } else { last };
        for (limb, shift) in limbs.iter_mut().zip((0..=last).step_by(bits as usize)) {
            let all = (low >> shift) as u64 | h2.checked_shl(128 - shift).unwrap_or(0);
            *limb = if shift == last { all } else { all & ((1 << bits) - 1) };
        }
        limbs
    }

    /// With the same key, an accumulator in limbs of so many bits, which may have a bit more.
    #[inline(always)]
    pub(crate) fn with_limbs(&self, limbs: [u64; 5], bits: u32) -> Self {
        let (mut low, mut top) = (0u128, 0);
        for (limb, shift) in limbs.into_iter().zip((0..128).step_by(bits as usize)) {
            let carry;
            (low, carry) = low.overflowing_add(u128::from(limb) << shift);
            top += limb.checked_shr(128 - shift).unwrap_or(0) + u64::from(carry);
        }
        let (low, carry) = low.overflowing_add(u128::from(5 * (top >> 2)));
        Self { h: [low as u64, (low >> 64) as u64, (top & 3) + u64::from(carry)], ..*self }
    }

    /// With the same key, nothing yet.
    #[inline(always)]
    pub(crate) fn fresh(&self) -> Self {
        Self { h: [0; 3], ..*self }
    }

    /// Takes a whole block.
    #[inline(always)]
    pub(crate) fn block(&mut self, block: u128) {
        self.take([block as u64, (block >> 64) as u64, 1]);
    }

    /// Takes all whole blocks of a string, and gives the rest.
    #[inline(always)]
    pub(crate) fn blocks<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (blocks, rest) = bytes.as_chunks();
        for block in blocks {
            self.block(u128::from_le_bytes(*block));
        }
        rest
    }

    /// Takes what is left behind whole blocks, of which at most 15 bytes count.
    pub(crate) fn rest(&mut self, rest: &[u8]) {
        let rest = rest.iter().take(15);
        let block = rest.clone().rev().fold(1, |sum, byte| sum << 8 | u128::from(*byte));
        if rest.len() > 0 {
            self.take([block as u64, (block >> 64) as u64, 0]);
        }
    }

    /// Takes what another MAC with the same key has come to.
    #[inline(always)]
    pub(crate) fn add(&mut self, other: &Self) {
        self.take(other.h);
    }

    /// Adds a number of a few bits more than 128, and multiplies.
    #[inline(always)]
    fn take(&mut self, number: [u64; 3]) {
        let wide = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let [h0, h1, h2] = self.h;
        let ([r0, r1], s1) = (self.r, self.s1);
        let low = u128::from(h0) + u128::from(number[0]);
        let high = u128::from(h1) + u128::from(number[1]) + (low >> 64);
        let (h0, h1, h2) = (low as u64, high as u64, h2 + (high >> 64) as u64 + number[2]);
        // Modulo 2^130 - 5; h2 is a few bits, so its products fit a word.
        let low = wide(h0, r0) + wide(h1, s1);
        let high = wide(h0, r1) + wide(h1, r0) + u128::from(h2 * s1) + (low >> 64);
        let top = h2 * r0 + (high >> 64) as u64;
        let low = u128::from(low as u64) + u128::from((top & !3) + (top >> 2));
        let high = u128::from(high as u64) + (low >> 64);
        self.h = [low as u64, high as u64, (top & 3) + (high >> 64) as u64];
    }

    /// Takes the last block, which is both lengths.
    #[inline(always)]
    pub(crate) fn lengths(&mut self, aad: u64, data: u64) {
        self.block(u128::from(aad) | u128::from(data) << 64);
    }

    /// The tag.
    #[inline(always)]
    pub(crate) fn finish(&self) -> u128 {
        let [h0, h1, h2] = self.h;
        let low = u128::from(h0) | u128::from(h1) << 64;
        // h - p = h + 5 - 2^130, if that is not negative; chosen without a branch.
        let (less, carry) = low.overflowing_add(5);
        let reduced = (h2 + u64::from(carry)) >> 2;
        let mask = 0u128.wrapping_sub(u128::from(reduced.min(1)));
        let h = (less & mask) | (low & !mask);
        h.wrapping_add(self.pad)
    }
}
