//! Suites that ESP and AH take, and what each makes of packets and keying material.

use convoy_crypto::{Cipher, Integrity, MacAlg, Suite};
use convoy_wire::{EspLayout, IpVersion, ah};

use crate::sa::AhAlignment;

/// A suite that ESP may use, with the lengths that its RFCs give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspSuite {
    suite: Suite,
    layout: EspLayout,
    iv: IvKind,
    salt_bytes: u8,
}

/// Source of an IV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IvKind {
    /// There is none.
    None,
    /// The 64-bit sequence number: such an IV must be unique and may be known beforehand (RFC 3686
    /// section 3.1, RFC 4106 section 3.1, RFC 4309 section 3.1, RFC 4543 section 3.1, RFC 7634
    /// section 2).
    Sequence,
    /// Unpredictable blocks of 16 bytes (RFC 3602 section 3, RFC 4312 section 3).
    Random,
    /// Unpredictable blocks of 8 bytes: those of 3DES (RFC 2451 section 3).
    RandomShort,
}

/// ESP or AH does not take a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnfitSuite {
    /// Nothing would be authenticated.
    #[error("{0} has no integrity, which ESP must not go without (RFC 8221 section 4)")]
    NoIntegrity(Suite),
    /// No RFC gives IPsec this MAC, or an ICV of this length.
    #[error("{0} is no combination that IPsec knows")]
    NotIpsec(Suite),
    /// AH encrypts nothing.
    #[error("{0} is no suite of AH, which takes AES-GMAC, or NULL with integrity")]
    NotAh(Suite),
}

impl EspSuite {
    /// Finds the lengths of a suite.
    ///
    /// # Errors
    /// [`UnfitSuite`] for a pair without integrity, or with integrity that is not one of
    /// [`Integrity::IPSEC`].
    pub fn new(suite: Suite) -> Result<Self, UnfitSuite> {
        let icv = suite.icv_bytes() as u8;
        // IV, block size and salt, in bytes.
        let (iv, block, salt_bytes) = match suite {
            Suite::Pair { integrity, .. } if integrity.alg() == MacAlg::Null => {
                return Err(UnfitSuite::NoIntegrity(suite));
            }
            Suite::Pair { integrity, .. } if !Integrity::IPSEC.contains(&integrity) => {
                return Err(UnfitSuite::NotIpsec(suite));
            }
            Suite::Pair { cipher, .. } => match cipher {
                Cipher::Null => (IvKind::None, 1, 0),
                Cipher::AesCbc(_) | Cipher::CamelliaCbc(_) => (IvKind::Random, 16, 0),
                Cipher::TripleDesCbc => (IvKind::RandomShort, 8, 0),
                Cipher::AesCtr(_) => (IvKind::Sequence, 1, 4),
            },
            // Of an AEAD's nonce the packet has eight bytes, and the key the others (RFC 4106, 4309, 4543 and 7634).
            aead => (IvKind::Sequence, 1, aead.nonce_bytes() as u8 - 8),
        };
        let layout =
            EspLayout::new(iv.bytes() as u8, icv, block).ok_or(UnfitSuite::NotIpsec(suite))?;
        Ok(Self { suite, layout, iv, salt_bytes })
    }

    /// Every suite of ESP.
    pub fn all() -> impl Iterator<Item = Self> {
        Suite::all().filter_map(|suite| Self::new(suite).ok())
    }

    /// The suite.
    #[must_use]
    pub const fn suite(self) -> Suite {
        self.suite
    }

    /// The lengths of its packets.
    #[must_use]
    pub const fn layout(self) -> EspLayout {
        self.layout
    }

    /// Bytes of salt (RFC 3686: nonce) that keying material has behind the cipher's key: 0, 3 or 4.
    #[must_use]
    pub const fn salt_bytes(self) -> usize {
        self.salt_bytes as usize
    }

    pub(crate) const fn iv(self) -> IvKind {
        self.iv
    }
}

/// A suite that AH may use: NULL with one of [`Integrity::IPSEC`], or AES-GMAC, whose IV stands in
/// front of its ICV (RFC 4543 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AhSuite(EspSuite);

impl AhSuite {
    /// Takes the suites that encrypt nothing.
    ///
    /// # Errors
    /// [`UnfitSuite`] for all others.
    pub fn new(suite: Suite) -> Result<Self, UnfitSuite> {
        let esp = EspSuite::new(suite)?;
        match suite {
            Suite::Gmac(_) | Suite::Pair { cipher: Cipher::Null, .. } => Ok(Self(esp)),
            _ => Err(UnfitSuite::NotAh(suite)),
        }
    }

    /// Every suite of AH.
    pub fn all() -> impl Iterator<Item = Self> {
        Suite::all().filter_map(|suite| Self::new(suite).ok())
    }

    /// The suite.
    #[must_use]
    pub const fn suite(self) -> Suite {
        self.0.suite()
    }

    /// Bytes of the ICV.
    #[must_use]
    pub const fn icv_bytes(self) -> usize {
        self.0.layout().icv_len()
    }

    /// Bytes of the IV in front of it: 0 or 8.
    #[must_use]
    pub const fn iv_bytes(self) -> usize {
        self.0.layout().iv_len()
    }

    /// Bytes of a header behind an IP header of this version, padded as RFC 4302 says.
    #[must_use]
    pub const fn header_len(self, outer: IpVersion) -> usize {
        self.aligned_header_len(outer, AhAlignment::Rfc4302)
    }

    /// Bytes of a header behind an IP header of this version.
    #[must_use]
    pub const fn aligned_header_len(self, outer: IpVersion, alignment: AhAlignment) -> usize {
        let version = match alignment {
            AhAlignment::Rfc4302 => outer,
            // The header's length does not depend on the version otherwise.
            AhAlignment::Eight => IpVersion::V6,
        };
        ah::header_len(self.iv_bytes() + self.icv_bytes(), version)
    }
}

impl IvKind {
    /// Bytes on the wire.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Sequence | Self::RandomShort => 8,
            Self::Random => 16,
        }
    }

    /// True if it must be unpredictable.
    pub(crate) const fn is_random(self) -> bool {
        matches!(self, Self::Random | Self::RandomShort)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(name: &str) -> Suite {
        name.parse().unwrap()
    }

    #[test]
    fn lengths_are_those_of_the_rfcs() {
        // IV, ICV, alignment of the ciphertext, salt.
        for (name, iv, icv, align, salt) in [
            ("aes-128-gcm-16", 8, 16, 4, 4),
            ("aes-256-gcm-8", 8, 8, 4, 4),
            ("aes-192-gmac-16", 8, 16, 4, 4),
            ("aes-128-ccm-12", 8, 12, 4, 3),
            ("chacha20-poly1305", 8, 16, 4, 4),
            ("aes-256-cbc+hmac-sha512-256", 16, 32, 16, 0),
            ("aes-128-ctr+aes-xcbc-96", 8, 12, 4, 4),
            ("null+hmac-sha384-192", 0, 24, 4, 0),
            ("3des-cbc+hmac-sha1-96", 8, 12, 8, 0),
            ("camellia-256-cbc+hmac-md5-96", 16, 12, 16, 0),
        ] {
            let esp = EspSuite::new(suite(name)).unwrap();
            let layout = esp.layout();
            let lengths = (layout.iv_len(), layout.icv_len(), layout.align(), esp.salt_bytes());
            assert_eq!(lengths, (iv, icv, align, salt), "{name}");
        }
    }

    #[test]
    fn every_suite_of_ipsec_is_one_of_esp() {
        assert_eq!(EspSuite::all().count(), Suite::all().count());
    }

    #[test]
    fn ah_takes_what_encrypts_nothing() {
        assert_eq!(AhSuite::all().count(), 8 + 3);
        for (name, iv, icv, v4, v6) in [
            ("null+hmac-sha1-96", 0, 12, 24, 24),
            ("null+hmac-sha256-128", 0, 16, 28, 32),
            ("null+hmac-sha512-256", 0, 32, 44, 48),
            ("aes-128-gmac-16", 8, 16, 36, 40),
        ] {
            let ah = AhSuite::new(suite(name)).unwrap();
            let lengths = (ah.iv_bytes(), ah.icv_bytes());
            assert_eq!(lengths, (iv, icv), "{name}");
            let lengths = (ah.header_len(IpVersion::V4), ah.header_len(IpVersion::V6));
            assert_eq!(lengths, (v4, v6), "{name}");
        }
        for name in ["aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96"] {
            assert_eq!(AhSuite::new(suite(name)), Err(UnfitSuite::NotAh(suite(name))));
        }
        assert!(matches!(AhSuite::new(suite("null+null")), Err(UnfitSuite::NoIntegrity(_))));
    }

    #[test]
    fn a_cipher_without_integrity_is_refused() {
        for name in ["aes-128-cbc+null", "aes-256-ctr+null", "null+null"] {
            let refused = EspSuite::new(suite(name));
            assert_eq!(refused, Err(UnfitSuite::NoIntegrity(suite(name))));
            assert!(refused.unwrap_err().to_string().contains("RFC 8221"));
        }
        for name in ["aes-128-cbc+hmac-sha224-112", "null+hmac-sha1-32"] {
            assert_eq!(EspSuite::new(suite(name)), Err(UnfitSuite::NotIpsec(suite(name))));
        }
    }
}
