//! A keyed hash of few instructions.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// Key of this process's hashes, so that nobody outside can choose values that collide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed(u64, u64);

impl Seed {
    /// The seed of this process: random, and the same for all tables.
    pub(crate) fn of_process() -> Self {
        static SEED: OnceLock<Seed> = OnceLock::new();
        // The standard library keys its own hashers from the system's random source.
        let number = || RandomState::new().build_hasher().finish();
        *SEED.get_or_init(|| Self(number(), number()))
    }

    /// The hash of two words, in one step. Good for choosing a place by its lower bits.
    #[inline]
    pub(crate) const fn short(self, a: u64, b: u64) -> u64 {
        fold(a ^ self.0, b ^ self.1)
    }

    /// The hash of two words.
    #[inline]
    pub(crate) const fn of(self, a: u64, b: u64) -> u64 {
        fold(self.short(a, b), GOLDEN)
    }
}

/// 2⁶⁴ divided by the golden ratio, odd: its bits follow no pattern.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Both halves of a product in one: every bit depends on all bits of both factors.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_spread_over_every_part_of_the_hash() {
        let seed = Seed::of_process();
        for shift in [0, 16, 32, 56] {
            let mut seen = [0u32; 256];
            for n in 0..25_600u64 {
                seen[(seed.of(n, 0) >> shift) as usize & 255] += 1;
            }
            // 100 expected in each; ten standard deviations are 100.
            assert!(seen.iter().all(|&n| n < 200), "{shift}: {seen:?}");
        }
    }
}
