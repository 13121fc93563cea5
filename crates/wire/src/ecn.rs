//! The TOS / traffic class byte: DSCP and ECN, and how tunnels combine them (RFC 6040).

use core::fmt;

/// The IPv4 TOS or IPv6 traffic class byte: six bits DSCP, two bits ECN (RFC 2474, RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tos(pub u8);

impl Tos {
    /// The byte with this DSCP and ECN.
    #[inline]
    pub const fn new(dscp: Dscp, ecn: Ecn) -> Self {
        Self(dscp.0 << 2 | ecn as u8)
    }

    /// The upper six bits.
    #[inline]
    pub const fn dscp(self) -> Dscp {
        Dscp(self.0 >> 2)
    }

    /// The lower two bits.
    #[inline]
    pub const fn ecn(self) -> Ecn {
        Ecn::from_bits(self.0)
    }

    /// The same byte with other ECN bits.
    #[inline]
    pub const fn with_ecn(self, ecn: Ecn) -> Self {
        Self(self.0 & !0b11 | ecn as u8)
    }
}

/// A differentiated services code point, 0 to 63 (RFC 2474).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// Best effort.
    pub const DEFAULT: Self = Self(0);
    /// Class selector 6, internetwork control (RFC 2474 4.2.2).
    pub const CS6: Self = Self(48);

    /// A code point; `None` above 63.
    #[inline]
    pub const fn new(value: u8) -> Option<Self> {
        if value < 64 { Some(Self(value)) } else { None }
    }

    /// The code point's number, 0 to 63.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The four ECN code points (RFC 3168 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not understand ECN.
    #[default]
    NotEct = 0b00,
    /// ECN-capable, ECT(1).
    Ect1 = 0b01,
    /// ECN-capable, ECT(0).
    Ect0 = 0b10,
    /// Congestion experienced.
    Ce = 0b11,
}

/// Rule for the outer ECN field that an ingress writes (RFC 6040 4.1, figure 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EcnMode {
    /// The outer field is the inner one.
    #[default]
    Normal,
    /// The outer field is Not-ECT: for an egress that does not follow RFC 6040, 4301 or 3168.
    Compatibility,
}

/// Severity of a combination of inner and outer ECN (RFC 6040 4.2, figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EcnAlarm {
    /// Usual.
    None,
    /// Marked `(!)` in the figure: unused today and perhaps a sign of trouble.
    Unexpected,
    /// Marked `(!!!)` in the figure: potentially dangerous; worth a counter and a rate-limited log.
    Dangerous,
}

/// Action of an egress on a packet after combining inner and outer ECN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EcnDecap {
    /// Forward with this inner ECN.
    Forward {
        /// The field to write into the packet that is forwarded.
        ecn: Ecn,
        /// Severity of the combination.
        alarm: EcnAlarm,
    },
    /// Drop: congestion was experienced and the inner transport cannot be told.
    Drop,
}

impl Ecn {
    /// The code point in the lower two bits of `bits`; the others are ignored.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The outer field for a packet with this inner field (RFC 6040 4.1).
    #[inline]
    pub const fn encapsulate(self, mode: EcnMode) -> Self {
        match mode {
            EcnMode::Normal => self,
            EcnMode::Compatibility => Self::NotEct,
        }
    }

    /// The field of the forwarded packet, for this inner field and the arriving `outer` one
    /// (RFC 6040 4.2, figure 4).
    #[inline]
    pub const fn decapsulate(self, outer: Self) -> EcnDecap {
        use EcnAlarm::{Dangerous, None, Unexpected};
        let (ecn, alarm) = match (self, outer) {
            (Self::NotEct, Self::Ce) => return EcnDecap::Drop,
            (Self::NotEct, Self::NotEct) => (Self::NotEct, None),
            (Self::NotEct, Self::Ect0 | Self::Ect1) => (Self::NotEct, Dangerous),
            (Self::Ect0 | Self::Ect1, Self::Ce) => (Self::Ce, None),
            (Self::Ect0, Self::Ect1) => (Self::Ect1, None),
            (Self::Ect0, Self::NotEct | Self::Ect0) => (Self::Ect0, None),
            (Self::Ect1, Self::Ect0) => (Self::Ect1, Unexpected),
            (Self::Ect1, Self::NotEct | Self::Ect1) => (Self::Ect1, None),
            (Self::Ce, Self::Ect1) => (Self::Ce, Dangerous),
            (Self::Ce, Self::NotEct | Self::Ect0 | Self::Ce) => (Self::Ce, None),
        };
        EcnDecap::Forward { ecn, alarm }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6040 figure 4, row by row; outer columns are Not-ECT, ECT(0), ECT(1), CE.
    #[test]
    fn decapsulation_follows_figure_4_of_rfc_6040() {
        use Ecn::{Ce, Ect0, Ect1, NotEct};
        use EcnAlarm::{Dangerous, None, Unexpected};
        let ok = |ecn, alarm| EcnDecap::Forward { ecn, alarm };
        let rows = [
            (
                NotEct,
                [ok(NotEct, None), ok(NotEct, Dangerous), ok(NotEct, Dangerous), EcnDecap::Drop],
            ),
            (Ect0, [ok(Ect0, None), ok(Ect0, None), ok(Ect1, None), ok(Ce, None)]),
            (Ect1, [ok(Ect1, None), ok(Ect1, Unexpected), ok(Ect1, None), ok(Ce, None)]),
            (Ce, [ok(Ce, None), ok(Ce, None), ok(Ce, Dangerous), ok(Ce, None)]),
        ];
        for (inner, row) in rows {
            for (outer, expected) in [NotEct, Ect0, Ect1, Ce].into_iter().zip(row) {
                assert_eq!(inner.decapsulate(outer), expected, "{inner:?} in {outer:?}");
            }
        }
    }

    #[test]
    fn encapsulation_copies_in_normal_mode_and_clears_in_compatibility_mode() {
        for bits in 0..4 {
            let inner = Ecn::from_bits(bits);
            assert_eq!(inner.encapsulate(EcnMode::Normal), inner);
            assert_eq!(inner.encapsulate(EcnMode::Compatibility), Ecn::NotEct);
        }
    }

    #[test]
    fn tos_byte_is_taken_apart_and_put_together_without_loss() {
        for byte in 0..=u8::MAX {
            let tos = Tos(byte);
            assert_eq!(Tos::new(tos.dscp(), tos.ecn()), tos);
            assert_eq!(tos.with_ecn(Ecn::Ce), Tos(byte | 0b11));
        }
        assert_eq!(Dscp::new(64), None);
    }
}
