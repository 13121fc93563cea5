//! SPIs of one worker: sockets spread what arrives over workers by SPI modulo their number.

use convoy_wire::Spi;

/// SPIs that leave the same remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpiClass {
    remainder: u16,
    /// Not 0.
    divisor: u16,
}

impl SpiClass {
    /// The SPIs that leave a remainder when they are divided by a number, which is 1 where it would be 0.
    #[must_use]
    pub const fn new(remainder: u16, divisor: u16) -> Self {
        let divisor = if divisor == 0 { 1 } else { divisor };
        Self { remainder: remainder % divisor, divisor }
    }

    /// The class of an SPI.
    #[must_use]
    pub const fn of(spi: Spi, divisor: u16) -> Self {
        let Self { divisor, .. } = Self::new(0, divisor);
        // Below the divisor, which has 16 bits.
        Self { remainder: (spi.get() % divisor as u32) as u16, divisor }
    }

    /// SPI modulo the divisor, the same for all of the class.
    #[must_use]
    pub const fn remainder(self) -> u16 {
        self.remainder
    }

    /// The first and the last of them within a range, both included; `None` where it has none.
    #[must_use]
    pub(super) fn within(self, low: u32, high: u32) -> Option<(u32, u32)> {
        let divisor = u32::from(self.divisor);
        let ahead = (u32::from(self.remainder) + divisor - low % divisor) % divisor;
        let first = low.checked_add(ahead).filter(|first| *first <= high)?;
        Some((first, first + (high - first) / divisor * divisor))
    }

    /// The distance from one to the next.
    pub(super) const fn step(self) -> u32 {
        self.divisor as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_found_within_a_range() {
        for divisor in [1, 2, 3, 7, 256] {
            for remainder in 0..divisor {
                let class = SpiClass::new(remainder, divisor);
                for (low, high) in [(256, 256), (256, 300), (1000, 1600), (u32::MAX - 5, u32::MAX)]
                {
                    let mut all =
                        (low..=high).filter(|n| n % u32::from(divisor) == u32::from(remainder));
                    let first = all.next();
                    let ends = first.map(|first| (first, all.next_back().unwrap_or(first)));
                    assert_eq!(class.within(low, high), ends, "{class:?} {low} {high}");
                }
            }
        }
        assert_eq!(SpiClass::of(Spi::new(0xffff_ffff).unwrap(), 256), SpiClass::new(255, 256));
        assert_eq!(SpiClass::of(Spi::new(300).unwrap(), 0), SpiClass::new(0, 1));
    }
}
