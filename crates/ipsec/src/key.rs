//! Keys and salt of an SA, held in wiped memory.

use std::fmt;
use std::hash::{Hash, Hasher};

use convoy_crypto::{KeyError, SecretBytes, Suite};

use crate::salt::Salt;
use crate::suite::{EspSuite, UnfitSuite};

/// Most bytes of salt behind a cipher's key (RFC 4106 section 8.1).
pub const SALT_BYTES: usize = 4;

/// Keys and salt of one SA, and what they are for.
///
/// They cannot be printed, compared by `==` or cloned; their memory is wiped on drop.
pub struct SaKeyMaterial {
    suite: EspSuite,
    /// Key ‖ salt, the form RFC 4106 section 8.1, strongSwan and `ip xfrm` use.
    cipher: SecretBytes,
    /// The MAC's key; empty for an AEAD.
    integrity: SecretBytes,
}

/// Keys do not fit their suite. The error says nothing of their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyMisfit {
    /// ESP does not take the suite.
    #[error(transparent)]
    Suite(#[from] UnfitSuite),
    /// Key and salt are of another length.
    #[error("key and salt must have {needed} bytes")]
    Cipher {
        /// Bytes of both together.
        needed: usize,
    },
    /// The MAC's key is of another length.
    #[error("the integrity key must have {needed} bytes")]
    Integrity {
        /// Bytes.
        needed: usize,
    },
    /// A cipher takes no such key.
    #[error(transparent)]
    Unfit(#[from] KeyError),
}

impl SaKeyMaterial {
    /// Takes key ‖ salt of an AEAD.
    ///
    /// # Errors
    /// [`KeyMisfit`].
    pub fn new(suite: impl Into<Suite>, cipher: SecretBytes) -> Result<Self, KeyMisfit> {
        Self::with_integrity(suite, cipher, SecretBytes::copy_from(&[]))
    }

    /// Takes a cipher's key ‖ salt and a MAC's key; either may be empty, as the suite says.
    ///
    /// # Errors
    /// [`KeyMisfit`].
    pub fn with_integrity(
        suite: impl Into<Suite>,
        cipher: SecretBytes,
        integrity: SecretBytes,
    ) -> Result<Self, KeyMisfit> {
        let suite = EspSuite::new(suite.into())?;
        let needed = suite.suite().key_bytes() + suite.salt_bytes();
        if cipher.len() != needed {
            return Err(KeyMisfit::Cipher { needed });
        }
        let proper = cipher.expose().get(..suite.suite().key_bytes()).unwrap_or_default();
        suite.suite().check_key(proper)?;
        let needed = suite.suite().integrity_key_bytes();
        if integrity.len() != needed {
            return Err(KeyMisfit::Integrity { needed });
        }
        Ok(Self { suite, cipher, integrity })
    }

    /// Algorithms that the keys are for.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite.suite()
    }

    /// The same with the lengths that ESP gives it.
    #[must_use]
    pub fn esp(&self) -> EspSuite {
        self.suite
    }

    /// The salt: what every nonce begins with. Zeros behind a shorter one.
    #[must_use]
    pub fn salt(&self) -> Salt {
        Salt::front(self.cipher.expose().get(self.suite().key_bytes()..).unwrap_or_default())
    }

    /// Copies of the keys proper, for key set-up.
    #[must_use]
    pub fn keys(&self) -> convoy_crypto::KeyMaterial {
        let cipher = self.cipher.expose().get(..self.suite().key_bytes()).unwrap_or_default();
        convoy_crypto::KeyMaterial {
            cipher: SecretBytes::copy_from(cipher),
            integrity: SecretBytes::copy_from(self.integrity.expose()),
        }
    }

    /// Key ‖ salt of the cipher. Every caller of this is a place to review.
    #[must_use]
    pub fn expose_with_salt(&self) -> &[u8] {
        self.cipher.expose()
    }

    /// The MAC's key. Every caller of this is a place to review.
    #[must_use]
    pub fn expose_integrity(&self) -> &[u8] {
        self.integrity.expose()
    }

    /// Key material that sequence numbers belong to, in two parts. Where nonces are made of them
    /// this is key and salt alone: two suites or MACs over one key and salt would repeat nonces all
    /// the same. Else it is both keys. Every caller of this is a place to review.
    #[must_use]
    pub fn expose_identity(&self) -> [&[u8]; 2] {
        match self.suite.salt_bytes() {
            0 => [self.cipher.expose(), self.integrity.expose()],
            _ => [self.cipher.expose(), &[]],
        }
    }

    /// True if both are one key, so that both would make the same nonces, or, of a suite without
    /// (AES-CBC, NULL), use one sequence of numbers for two. The length of the ICV does not count.
    #[must_use]
    pub fn same_nonces(&self, other: &Self) -> bool {
        self.expose_identity() == other.expose_identity()
    }

    /// True if both are the same suite with the same keys and salt, so that what was set up with one
    /// does for the other.
    #[must_use]
    pub fn same_in_all(&self, other: &Self) -> bool {
        self.suite == other.suite
            && self.cipher.expose() == other.cipher.expose()
            && self.integrity.expose() == other.integrity.expose()
    }
}

/// A key as far as nonces depend on it: what [`SaKeyMaterial::same_nonces`] compares. For tables in
/// memory only, whose hashers have a random key.
#[derive(Debug)]
pub struct Nonces<'a>(pub &'a SaKeyMaterial);

impl PartialEq for Nonces<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.same_nonces(other.0)
    }
}

impl Eq for Nonces<'_> {}

impl Hash for Nonces<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.expose_identity().hash(state);
    }
}

impl fmt::Debug for SaKeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SaKeyMaterial({})", self.suite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(name: &str) -> Suite {
        name.parse().unwrap()
    }

    fn bytes(range: std::ops::Range<u8>) -> SecretBytes {
        SecretBytes::from(range.collect::<Vec<u8>>())
    }

    #[test]
    fn key_material_ends_in_the_salt_and_prints_nothing_of_it() {
        let key = SaKeyMaterial::new(suite("aes-128-gcm-16"), bytes(0..20)).unwrap();
        assert_eq!(key.salt().expose(), &[16, 17, 18, 19]);
        assert_eq!(key.keys().cipher.expose(), &(0..16).collect::<Vec<u8>>());
        assert_eq!(format!("{key:?}"), "SaKeyMaterial(aes-128-gcm-16)");
        let ccm = SaKeyMaterial::new(suite("aes-128-ccm-16"), bytes(0..19)).unwrap();
        assert_eq!(ccm.salt().expose(), &[16, 17, 18, 0], "RFC 4309 section 4");
        let pair = suite("aes-256-cbc+hmac-sha1-96");
        let pair = SaKeyMaterial::with_integrity(pair, bytes(0..32), bytes(50..70)).unwrap();
        assert_eq!((pair.salt().expose(), pair.keys().cipher.len()), (&[0; 4], 32));
        assert_eq!(pair.keys().integrity.expose(), &(50..70).collect::<Vec<u8>>());
        assert_eq!(format!("{pair:?}"), "SaKeyMaterial(aes-256-cbc+hmac-sha1-96)");
    }

    #[test]
    fn keys_of_every_suite_must_have_its_lengths() {
        for esp in EspSuite::all() {
            let suite = esp.suite();
            let (cipher, mac) = (suite.key_bytes() + esp.salt_bytes(), suite.integrity_key_bytes());
            let make = |cipher: usize, mac: usize| {
                let secret = |len| SecretBytes::from((0..len as u8).collect::<Vec<_>>());
                SaKeyMaterial::with_integrity(suite, secret(cipher), secret(mac))
            };
            assert!(make(cipher, mac).is_ok(), "{suite}");
            let misfit = KeyMisfit::Cipher { needed: cipher };
            assert_eq!(make(cipher + 1, mac).unwrap_err(), misfit);
            if cipher > 0 {
                assert_eq!(make(cipher - 1, mac).unwrap_err(), misfit);
            }
            let misfit = KeyMisfit::Integrity { needed: mac };
            assert_eq!(make(cipher, mac + 1).unwrap_err(), misfit);
        }
        let refused = SaKeyMaterial::new(suite("aes-128-cbc+null"), bytes(0..16)).unwrap_err();
        assert!(matches!(refused, KeyMisfit::Suite(_)));
        let single = SecretBytes::from([[1; 8], [1; 8], [2; 8]].concat());
        let triple_des = suite("3des-cbc+hmac-md5-96");
        let refused = SaKeyMaterial::with_integrity(triple_des, single, bytes(0..16)).unwrap_err();
        assert_eq!(refused, KeyMisfit::Unfit(KeyError::SingleDes));
    }

    /// AES-GCM and AES-CTR encrypt the same counter blocks under the same key and salt.
    #[test]
    fn one_key_and_salt_is_one_key_whatever_it_is_used_for() {
        let key = |name: &str, mac: u8| {
            let suite = suite(name);
            let mac = SecretBytes::from(vec![mac; suite.integrity_key_bytes()]);
            SaKeyMaterial::with_integrity(suite, bytes(0..20), mac).unwrap()
        };
        let gcm = key("aes-128-gcm-16", 0);
        assert!(gcm.same_nonces(&key("aes-128-gcm-8", 0)));
        assert!(gcm.same_nonces(&key("aes-128-ctr+hmac-sha1-96", 1)));
        let ctr = key("aes-128-ctr+hmac-sha1-96", 1);
        assert!(ctr.same_nonces(&key("aes-128-ctr+aes-xcbc-96", 2)));
        let other = key("aes-128-ctr+hmac-sha1-96", 2);
        assert!(ctr.same_nonces(&other) && !ctr.same_in_all(&other));
        assert!(ctr.same_in_all(&key("aes-128-ctr+hmac-sha1-96", 1)));
        assert!(!gcm.same_in_all(&key("aes-128-gcm-8", 0)));
        let null = |mac: u8| {
            let mac = SecretBytes::from(vec![mac; 20]);
            SaKeyMaterial::with_integrity(suite("null+hmac-sha1-96"), bytes(0..0), mac).unwrap()
        };
        assert!(null(1).same_nonces(&null(1)) && !null(1).same_nonces(&null(2)));
    }
}
