//! The two numbers of the ESP header.

use core::fmt;
use core::num::NonZeroU32;

/// A Security Parameters Index (RFC 4303 2.1), 1 to 2³²−1.
///
/// Zero is reserved for local use and never sent, so it cannot be made. 1 to 255 are reserved by
/// IANA: they parse, but [`Spi::is_reserved`] lets configuration refuse them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spi(NonZeroU32);

impl Spi {
    /// The lowest value that configuration should accept.
    pub const MIN_ASSIGNABLE: u32 = 256;

    /// An SPI from its host-order number; `None` for 0.
    #[inline]
    pub const fn new(value: u32) -> Option<Self> {
        match NonZeroU32::new(value) {
            Some(v) => Some(Self(v)),
            None => None,
        }
    }

    /// The host-order number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// True if IANA reserves this value (1 to 255, RFC 4303 2.1).
    #[inline]
    pub const fn is_reserved(self) -> bool {
        self.get() < Self::MIN_ASSIGNABLE
    }

    /// The four bytes on the wire.
    #[inline]
    pub const fn to_be_bytes(self) -> [u8; 4] {
        self.get().to_be_bytes()
    }
}

impl fmt::Debug for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spi({:#010x})", self.get())
    }
}

/// Prints as in the field's tools: `0x0000c0de`.
impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.get())
    }
}

/// A full 64-bit sequence number (RFC 4303 2.2.1).
///
/// Without extended sequence numbers the high half is 0; on the wire only the low half is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqNum(u64);

impl SeqNum {
    /// A sequence number from its 64-bit value.
    #[inline]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// A sequence number from its two halves.
    #[inline]
    pub const fn from_parts(high: u32, low: u32) -> Self {
        Self((high as u64) << 32 | low as u64)
    }

    /// The 64-bit value.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The half that is sent in the ESP header.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // the truncation is the point
    pub const fn low(self) -> u32 {
        self.0 as u32
    }

    /// The half that is only authenticated (RFC 4303 2.2.1).
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // a u64 shifted by 32 fits
    pub const fn high(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Display for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn spi_refuses_zero_and_names_the_reserved_range() {
        assert_eq!(Spi::new(0), None);
        assert!(Spi::new(1).unwrap().is_reserved());
        assert!(Spi::new(255).unwrap().is_reserved());
        assert!(!Spi::new(256).unwrap().is_reserved());
        assert_eq!(size_of::<Option<Spi>>(), 4);
    }

    #[test]
    fn spi_prints_as_eight_hex_digits() {
        assert_eq!(Spi::new(0xc0de).unwrap().to_string(), "0x0000c0de");
    }

    #[test]
    fn seq_num_splits_into_the_halves_it_was_made_of() {
        let seq = SeqNum::from_parts(0x0102_0304, 0xfffe_fdfc);
        assert_eq!((seq.high(), seq.low()), (0x0102_0304, 0xfffe_fdfc));
        assert_eq!(SeqNum::new(u64::from(u32::MAX) + 1).high(), 1);
    }
}
