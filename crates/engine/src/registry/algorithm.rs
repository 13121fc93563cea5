//! Algorithms by the names that Linux has for them.
//!
//! A name covers suites that differ in the lengths of their keys and ICVs alone. Where a pair of cipher and
//! MAC has only one of them, its name is that one's.

use std::borrow::Cow;

use convoy_crypto::{Cipher, Integrity, MacAlg, Suite};

/// Sort of algorithm. Pairs of cipher and MAC are AEADs, as in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Encrypts and authenticates.
    Aead,
    /// Encrypts alone.
    Cipher,
    /// Authenticates alone.
    Mac,
}

impl Kind {
    /// The kind of a suite.
    #[must_use]
    pub const fn of(suite: Suite) -> Self {
        match suite {
            Suite::Pair { integrity, .. } if matches!(integrity.alg(), MacAlg::Null) => {
                Self::Cipher
            }
            Suite::Pair { cipher: Cipher::Null, .. } => Self::Mac,
            _ => Self::Aead,
        }
    }

    /// Its name in listings: `aead`, `cipher` or `mac`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aead => "aead",
            Self::Cipher => "cipher",
            Self::Mac => "mac",
        }
    }
}

/// The name of a suite's algorithm: `rfc4106(gcm(aes))`, `authenc(hmac(sha1),cbc(aes))`, `hmac(sha1)`.
#[must_use]
pub fn name_of(suite: Suite) -> Cow<'static, str> {
    let Suite::Pair { cipher, integrity } = suite else {
        return suite.names().map_or("", |names| names.linux).into();
    };
    let (mac, cipher_name) = (integrity.alg().names().linux, cipher.names().linux);
    match (cipher, integrity.alg()) {
        (_, MacAlg::Null) => cipher_name.into(),
        (Cipher::Null, _) => mac.into(),
        _ => format!("authenc({mac},{cipher_name})").into(),
    }
}

/// The one name of an algorithm that has several: `authencesn` is `authenc` here, as jobs bring what is
/// authenticated and not sent, and a pair with a part that does nothing is its other part.
#[must_use]
pub fn canonical(name: &str) -> Cow<'_, str> {
    let pair = name.strip_prefix("authenc(").or_else(|| name.strip_prefix("authencesn("));
    let pair = pair.and_then(|pair| pair.strip_suffix(')')?.split_once(','));
    match pair {
        Some(("digest_null", cipher)) => cipher.into(),
        Some((mac, "ecb(cipher_null)")) => mac.into(),
        Some((mac, cipher)) => format!("authenc({mac},{cipher})").into(),
        None => name.into(),
    }
}

/// The suites of an algorithm: those that IPsec has, and ciphers without a MAC.
pub fn suites(algorithm: &str) -> impl Iterator<Item = Suite> + use<> {
    let name = canonical(algorithm).into_owned();
    every_suite().filter(move |suite| name_of(*suite) == name)
}

/// The names of all algorithms, AEADs first.
#[must_use]
pub fn names() -> Vec<Cow<'static, str>> {
    let mut names = Vec::new();
    for kind in [Kind::Aead, Kind::Cipher, Kind::Mac] {
        for suite in every_suite().filter(|suite| Kind::of(*suite) == kind) {
            let name = name_of(suite);
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

fn every_suite() -> impl Iterator<Item = Suite> {
    let ciphers = Cipher::ALL.into_iter().filter(|cipher| *cipher != Cipher::Null);
    let alone = ciphers.map(|cipher| Suite::Pair { cipher, integrity: Integrity::NULL });
    Suite::all().chain(alone)
}

/// An algorithm's name as it stands in the names of drivers: `rfc4106-gcm-aes`.
#[must_use]
pub fn as_word(algorithm: &str) -> String {
    let words = algorithm.split(['(', ')', ',']).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_is_among_those_of_its_algorithm_and_of_no_other() {
        let names = names();
        assert_eq!(names.len(), 4 + 4 * 7 + 4 + 7);
        let listed: Vec<_> = names.iter().flat_map(|name| suites(name)).collect();
        assert_eq!(listed.len(), every_suite().count());
        for suite in every_suite() {
            assert!(suites(&name_of(suite)).any(|other| other == suite), "{suite}");
        }
    }

    #[test]
    fn kernel_names_of_the_same_algorithm_lead_to_the_same_suites() {
        for (name, canonical_name, kind) in [
            ("authencesn(hmac(sha1),cbc(aes))", "authenc(hmac(sha1),cbc(aes))", Kind::Aead),
            ("authenc(digest_null,cbc(aes))", "cbc(aes)", Kind::Cipher),
            ("cbc(des3_ede)", "cbc(des3_ede)", Kind::Cipher),
            ("authenc(hmac(sha256),ecb(cipher_null))", "hmac(sha256)", Kind::Mac),
            ("rfc7539esp(chacha20,poly1305)", "rfc7539esp(chacha20,poly1305)", Kind::Aead),
        ] {
            assert_eq!(canonical(name), canonical_name);
            let suites: Vec<_> = suites(name).collect();
            assert!(!suites.is_empty() && suites.iter().all(|suite| Kind::of(*suite) == kind));
        }
        assert_eq!(suites("gcm(des)").count(), 0);
    }

    #[test]
    fn words_of_driver_names_are_those_of_a_kernel() {
        assert_eq!(as_word("rfc4106(gcm(aes))"), "rfc4106-gcm-aes");
        assert_eq!(as_word("authenc(hmac(sha1),cbc(aes))"), "authenc-hmac-sha1-cbc-aes");
    }
}
