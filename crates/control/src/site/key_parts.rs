//! Parts of the key that an algorithm takes.

use convoy_crypto::{Cipher, Suite};
use convoy_ipsec::suite::EspSuite;

use super::spelling::{self, Meaning, Spelling};

/// Key of an algorithm as a site file has it, or as a key file holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyParts {
    /// Name of the algorithm in a site file.
    pub name: String,
    /// Key of the site file that names the key file: `key_file` or `integrity_key_file`.
    pub field: &'static str,
    /// Bytes of the key proper.
    pub key: usize,
    /// Bytes of the salt behind it; 0 if there is none.
    pub salt: usize,
}

/// No key can be made for what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownAlgorithm {
    /// No algorithm is spelt so.
    #[error(
        "{0:?} is no algorithm: use a name of the site file, such as aes-128-gcm, aes-256-cbc or hmac-sha256-128"
    )]
    Unknown(String),
    /// A cipher and a MAC, which have a key each.
    #[error(
        "{text:?} is two algorithms, which have a key each: make one for {cipher}, and one for {mac}"
    )]
    Pair {
        /// The name that was given.
        text: String,
        /// Name of the cipher.
        cipher: &'static str,
        /// Name of the MAC.
        mac: String,
    },
    /// The size of the key was not said.
    #[error(
        "{text:?} leaves the size of the key open: use {smallest}, or the same with 192 or 256"
    )]
    SizeOpen {
        /// The name that was given.
        text: String,
        /// Name with the smallest size.
        smallest: &'static str,
    },
    /// NULL has no key.
    #[error("null has no key")]
    Null,
}

/// The key that an algorithm takes, by its name here or in strongSwan, Libreswan or OpenSSL.
///
/// # Errors
/// [`UnknownAlgorithm`].
pub fn key_parts(text: &str) -> Result<KeyParts, UnknownAlgorithm> {
    let unknown = || UnknownAlgorithm::Unknown(text.chars().take(64).collect());
    let spelling = spelling::read(text).ok_or_else(unknown)?;
    let of_suite = |name: &'static str, suite: Suite| {
        let esp = EspSuite::new(suite).map_err(|_| unknown())?;
        if spelling.is_size_open {
            return Err(UnknownAlgorithm::SizeOpen { text: text.to_owned(), smallest: name });
        }
        let (key, salt) = (suite.key_bytes(), esp.salt_bytes());
        Ok(KeyParts { name: name.to_owned(), field: "key_file", key, salt })
    };
    let any_mac = convoy_crypto::Integrity::HMAC_SHA256_128;
    let Spelling { meaning, .. } = spelling;
    match meaning {
        Meaning::Aead(suite) => of_suite(suite.names().ok_or_else(unknown)?.name, suite),
        Meaning::Cipher(Cipher::Null) => Err(UnknownAlgorithm::Null),
        Meaning::Cipher(cipher) => {
            of_suite(cipher.names().name, Suite::Pair { cipher, integrity: any_mac })
        }
        Meaning::Mac(integrity) => {
            let suite = Suite::Pair { cipher: Cipher::Null, integrity };
            let key = suite.integrity_key_bytes();
            Ok(KeyParts { name: integrity.to_string(), field: "integrity_key_file", key, salt: 0 })
        }
        Meaning::Pair(cipher, mac) => Err(UnknownAlgorithm::Pair {
            text: text.to_owned(),
            cipher: cipher.names().name,
            mac: mac.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_parts_that_a_site_file_needs() {
        for (text, name, field, key, salt) in [
            ("aes-128-gcm", "aes-128-gcm", "key_file", 16, 4),
            ("aes256gcm16", "aes-256-gcm", "key_file", 32, 4),
            ("aes-192-ccm", "aes-192-ccm", "key_file", 24, 3),
            ("chacha20-poly1305", "chacha20-poly1305", "key_file", 32, 4),
            ("aes-128-ctr", "aes-128-ctr", "key_file", 16, 4),
            ("aes-256-cbc", "aes-256-cbc", "key_file", 32, 0),
            ("3des-cbc", "3des-cbc", "key_file", 24, 0),
            ("hmac-sha512-256", "hmac-sha512-256", "integrity_key_file", 64, 0),
            ("sha1", "hmac-sha1-96", "integrity_key_file", 20, 0),
        ] {
            let parts = KeyParts { name: name.to_owned(), field, key, salt };
            assert_eq!(key_parts(text), Ok(parts), "{text}");
        }
        for (text, said) in [
            ("rot13", "is no algorithm"),
            ("aes128-sha256", "make one for aes-128-cbc, and one for hmac-sha256-128"),
            ("rfc4106(gcm(aes))", "use aes-128-gcm, or the same with 192 or 256"),
            ("null", "has no key"),
        ] {
            let error = key_parts(text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
