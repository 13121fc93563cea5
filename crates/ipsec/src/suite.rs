//! Which suites ESP takes, and what each makes of packets and keying material.

use convoy_crypto::{Cipher, Integrity, MacAlg, Suite};
use convoy_wire::EspLayout;

/// A suite that ESP may use, with the lengths that its RFCs give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspSuite {
    suite: Suite,
    layout: EspLayout,
    iv: IvKind,
    salt_bytes: u8,
}

/// Where an IV comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IvKind {
    /// There is none.
    None,
    /// The 64-bit sequence number: such an IV must be unique and may be known beforehand (RFC 3686
    /// section 3.1, RFC 4106 section 3.1, RFC 4309 section 3.1, RFC 4543 section 3.1, RFC 7634
    /// section 2).
    Sequence,
    /// Whole blocks nobody can predict (RFC 3602 section 3).
    Random,
}

/// Why ESP does not take a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnfitSuite {
    /// Nothing would be authenticated.
    #[error("{0} has no integrity, which ESP must not go without (RFC 8221 section 4)")]
    NoIntegrity(Suite),
    /// No RFC gives IPsec this MAC, or an ICV of this length.
    #[error("{0} is no combination that IPsec knows")]
    NotIpsec(Suite),
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
            Suite::Gcm(_) | Suite::Gmac(_) | Suite::ChaCha20Poly1305 => (IvKind::Sequence, 1, 4),
            Suite::Ccm { .. } => (IvKind::Sequence, 1, 3),
            Suite::Pair { integrity, .. } if integrity.alg() == MacAlg::Null => {
                return Err(UnfitSuite::NoIntegrity(suite));
            }
            Suite::Pair { integrity, .. } if !Integrity::IPSEC.contains(&integrity) => {
                return Err(UnfitSuite::NotIpsec(suite));
            }
            Suite::Pair { cipher, .. } => match cipher {
                Cipher::Null => (IvKind::None, 1, 0),
                Cipher::AesCbc(_) => (IvKind::Random, 16, 0),
                Cipher::AesCtr(_) => (IvKind::Sequence, 1, 4),
            },
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

impl IvKind {
    /// Bytes on the wire.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Sequence => 8,
            Self::Random => 16,
        }
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
