//! Algorithms and keys as daemons send them, as suites and keys of Convoy.

use convoy_crypto::{Cipher, Integrity, KeyBits, MacAlg, SecretBytes, Suite};
use convoy_ipsec::key::{KeyMisfit, SaKeyMaterial};
use convoy_ipsec::sa::IpsecProtocol;
use convoy_ipsec::suite::AhSuite;
use convoy_xfrm::names::{self, Known};
use convoy_xfrm::{Aead, Algorithm, AlgorithmName, Errno, Key, Refusal, SaProtocol, Transform};

/// Protocol and keys of an SA with these algorithms.
///
/// # Errors
/// As a kernel: `ENOSYS` for an algorithm that Convoy does not have, `EPROTONOSUPPORT` for a protocol,
/// `EINVAL` for lengths that do not fit. Other than a kernel, it refuses a cipher without integrity
/// (RFC 8221 section 4): `EINVAL`.
pub fn key_material(
    protocol: SaProtocol,
    transform: &Transform,
) -> Result<(IpsecProtocol, SaKeyMaterial), Refusal> {
    let protocol = match protocol {
        SaProtocol::Esp => IpsecProtocol::Esp,
        SaProtocol::Ah => IpsecProtocol::Ah,
        _ => return Err(Refusal::new(Errno::EPROTONOSUPPORT, "Requested type not found")),
    };
    let (suite, cipher, integrity) = match transform {
        Transform::Aead(aead) => (combined(aead)?, Some(&aead.key), None),
        Transform::Separate { cipher, integrity } => {
            let integrity = integrity.as_ref().ok_or_else(no_integrity)?;
            let (cipher, key) = match cipher {
                Some(cipher) => (self::cipher(cipher)?, Some(&cipher.key)),
                None => (Cipher::Null, None),
            };
            let suite = Suite::Pair { cipher, integrity: mac(integrity)? };
            (suite, key, Some(&integrity.key))
        }
        _ => return Err(Refusal::new(Errno::EPROTONOSUPPORT, "Requested type not found")),
    };
    if protocol == IpsecProtocol::Ah {
        AhSuite::new(suite).map_err(|error| invalid(error.to_string()))?;
    }
    let secret = |key: Option<&Key>| SecretBytes::copy_from(key.map_or(&[][..], Key::expose));
    let keys = SaKeyMaterial::with_integrity(suite, secret(cipher), secret(integrity));
    keys.map(|keys| (protocol, keys)).map_err(|misfit| match misfit {
        // It names the suite.
        KeyMisfit::Suite(unfit) => invalid(unfit.to_string()),
        misfit => invalid(format!("{suite}: {misfit}")),
    })
}

fn invalid(text: String) -> Refusal {
    Refusal::new(Errno::EINVAL, text)
}

fn no_integrity() -> Refusal {
    Refusal::new(Errno::EINVAL, "A cipher without integrity protection is refused (RFC 8221)")
}

/// The algorithm of a name that a table of names has.
fn known(
    name: &AlgorithmName,
    find: fn(&str) -> Option<&'static Known>,
    text: &'static str,
) -> Result<&'static Known, Refusal> {
    name.as_str().and_then(find).ok_or_else(|| Refusal::new(Errno::ENOSYS, text))
}

/// The size of the AES or Camellia key in one that ends with so many bits of salt.
fn aes_bits(known: &Known, key: &Key) -> Result<KeyBits, Refusal> {
    let bits = key.bits().checked_sub(known.salt_bits);
    let bits = bits.and_then(|bits| KeyBits::from_bits(bits as usize));
    bits.ok_or_else(|| match known.salt_bits {
        0 => invalid(format!("{}: the key must have 128, 192 or 256 bits", known.name)),
        salt => invalid(format!(
            "{}: the key must have 128, 192 or 256 bits and {salt} of salt",
            known.name
        )),
    })
}

fn combined(aead: &Aead) -> Result<Suite, Refusal> {
    const UNKNOWN: &str = "Requested AEAD algorithm not found";
    let unknown = || Refusal::new(Errno::ENOSYS, UNKNOWN);
    let known = known(&aead.name, names::aead, UNKNOWN)?;
    // A kernel finds no algorithm of this name with another length.
    let icv_bits = known.icv_bits(Some(aead.icv_bits)).ok_or_else(unknown)?;
    let named = Suite::AEADS.into_iter().filter(|suite| linux_name(*suite) == Some(known.name));
    let suite = of_size(known, &aead.key, named, Suite::key_bytes)?.ok_or_else(unknown)?;
    suite.with_icv(icv_bits as usize / 8).ok_or_else(unknown)
}

fn linux_name(aead: Suite) -> Option<&'static str> {
    aead.names().map(|names| names.linux)
}

/// The one of these algorithms, which share a name, whose key is of this size; none if there are none. A key of another size than
/// that of the only one is left to who makes keys of it.
fn of_size<T: Copy>(
    known: &Known,
    key: &Key,
    algorithms: impl Iterator<Item = T>,
    key_bytes: impl Fn(T) -> usize,
) -> Result<Option<T>, Refusal> {
    match algorithms.collect::<Vec<_>>()[..] {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        ref sizes => {
            let bytes = aes_bits(known, key)?.bytes();
            Ok(sizes.iter().copied().find(|algorithm| key_bytes(*algorithm) == bytes))
        }
    }
}

fn cipher(cipher: &Algorithm) -> Result<Cipher, Refusal> {
    const UNKNOWN: &str = "Requested CRYPT algorithm not found";
    let known = known(&cipher.name, names::cipher, UNKNOWN)?;
    let named = Cipher::ALL.into_iter().filter(|cipher| cipher.names().linux == known.name);
    let found = of_size(known, &cipher.key, named, Cipher::key_bytes)?;
    found.ok_or_else(|| Refusal::new(Errno::ENOSYS, UNKNOWN))
}

fn mac(integrity: &convoy_xfrm::Integrity) -> Result<Integrity, Refusal> {
    let unknown = match integrity.icv_bits {
        None => "Requested AUTH algorithm not found",
        Some(_) => "Requested AUTH_TRUNC algorithm not found",
    };
    let known = known(&integrity.name, names::integrity, unknown)?;
    if known.name == MacAlg::Null.names().linux {
        return Err(no_integrity());
    }
    let named = MacAlg::ALL.into_iter().filter(|mac| mac.names().linux == known.name);
    let alg = of_size(known, &integrity.key, named, MacAlg::key_bytes)?;
    let alg = alg.ok_or_else(|| Refusal::new(Errno::ENOSYS, unknown))?;
    let icv_bits = known
        .icv_bits(integrity.icv_bits)
        .ok_or_else(|| Refusal::new(Errno::EINVAL, "Invalid length requested for truncated ICV"))?;
    let cut = Integrity::new(alg, icv_bits as usize / 8).filter(|_| icv_bits.is_multiple_of(8));
    cut.ok_or_else(|| invalid(format!("{}: an ICV of {icv_bits} bits is refused", known.name)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use convoy_ipsec::suite::EspSuite;

    use super::*;

    fn name(text: &str) -> AlgorithmName {
        AlgorithmName::new(text).unwrap()
    }

    fn key(bytes: usize) -> Key {
        Key::new(&(0..bytes).map(|i| i as u8).collect::<Vec<_>>()).unwrap()
    }

    fn aead(called: &str, bytes: usize, icv_bits: u32) -> Transform {
        Transform::Aead(Aead { name: name(called), key: key(bytes), icv_bits })
    }

    fn pair(cipher: Option<(&str, usize)>, mac: Option<(&str, usize, Option<u32>)>) -> Transform {
        let cipher =
            cipher.map(|(called, bytes)| Algorithm { name: name(called), key: key(bytes) });
        let integrity = mac.map(|(called, bytes, icv_bits)| convoy_xfrm::Integrity {
            name: name(called),
            key: key(bytes),
            icv_bits,
        });
        Transform::Separate { cipher, integrity }
    }

    fn suite(protocol: SaProtocol, transform: &Transform) -> Result<String, (Errno, String)> {
        match key_material(protocol, transform) {
            Ok((_, keys)) => Ok(keys.suite().to_string()),
            Err(refusal) => Err((refusal.errno, refusal.text.into_owned())),
        }
    }

    /// Algorithms as strongSwan 5.9 and Libreswan 4.10 send them, for each one that both have.
    #[test]
    fn what_daemons_send_is_the_suite_they_mean() {
        let (esp, ah) = (SaProtocol::Esp, SaProtocol::Ah);
        let sha256 = Some(("hmac(sha256)", 32, Some(128)));
        for (protocol, transform, expected) in [
            (esp, aead("rfc4106(gcm(aes))", 20, 128), "aes-128-gcm-16"),
            (esp, aead("rfc4106(gcm(aes))", 36, 64), "aes-256-gcm-8"),
            (esp, aead("rfc4309(ccm(aes))", 19, 96), "aes-128-ccm-12"),
            (esp, aead("rfc4543(gcm(aes))", 28, 128), "aes-192-gmac-16"),
            (esp, aead("rfc7539esp(chacha20,poly1305)", 36, 128), "chacha20-poly1305"),
            (esp, pair(Some(("aes", 16)), sha256), "aes-128-cbc+hmac-sha256-128"),
            // Manual keys without a length, and old peers: a kernel cuts both to 96 bits.
            (
                esp,
                pair(Some(("aes", 16)), Some(("hmac(sha256)", 32, None))),
                "aes-128-cbc+hmac-sha256-96",
            ),
            (ah, pair(None, Some(("sha256", 32, Some(96)))), "null+hmac-sha256-96"),
            (
                esp,
                pair(Some(("cbc(aes)", 32)), Some(("sha1", 20, None))),
                "aes-256-cbc+hmac-sha1-96",
            ),
            (
                esp,
                pair(Some(("rfc3686(ctr(aes))", 20)), Some(("hmac(sha512)", 64, Some(256)))),
                "aes-128-ctr+hmac-sha512-256",
            ),
            (esp, pair(Some(("des3_ede", 24)), Some(("md5", 16, None))), "3des-cbc+hmac-md5-96"),
            (esp, pair(Some(("cbc(camellia)", 32)), sha256), "camellia-256-cbc+hmac-sha256-128"),
            (esp, pair(Some(("cipher_null", 0)), Some(("md5", 16, None))), "null+hmac-md5-96"),
            (
                esp,
                pair(Some(("aes", 24)), Some(("xcbc(aes)", 16, None))),
                "aes-192-cbc+aes-xcbc-96",
            ),
            (ah, pair(None, Some(("hmac(sha384)", 48, None))), "null+hmac-sha384-192"),
            (ah, pair(None, Some(("cmac(aes)", 16, Some(96)))), "null+aes-cmac-96"),
        ] {
            assert_eq!(suite(protocol, &transform).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn every_suite_of_esp_has_a_name_that_daemons_know() {
        let mut reached = BTreeSet::new();
        for bytes in 16..37 {
            for icv_bits in [64, 96, 128] {
                for called in ["rfc4106(gcm(aes))", "rfc4309(ccm(aes))", "rfc4543(gcm(aes))"] {
                    reached.extend(suite(SaProtocol::Esp, &aead(called, bytes, icv_bits)));
                }
            }
        }
        let chacha = aead("rfc7539esp(chacha20,poly1305)", 36, 128);
        reached.extend(suite(SaProtocol::Esp, &chacha));
        let macs = [
            ("hmac(md5)", 16, None),
            ("hmac(sha1)", 20, None),
            ("hmac(sha256)", 32, Some(128)),
            ("hmac(sha256)", 32, Some(96)),
            ("hmac(sha384)", 48, None),
            ("hmac(sha512)", 64, None),
            ("xcbc(aes)", 16, None),
            ("cmac(aes)", 16, None),
        ];
        let ciphers =
            ["ecb(cipher_null)", "cbc(aes)", "rfc3686(ctr(aes))", "cbc(des3_ede)", "cbc(camellia)"];
        for mac in macs {
            for called in ciphers {
                for bytes in [0, 16, 20, 24, 28, 32, 36] {
                    reached.extend(suite(SaProtocol::Esp, &pair(Some((called, bytes)), Some(mac))));
                }
            }
        }
        let all: BTreeSet<_> = EspSuite::all().map(|suite| suite.suite().to_string()).collect();
        assert_eq!(reached, all);
    }

    #[test]
    fn refusals_have_a_kernels_numbers() {
        let sha1 = Some(("sha1", 20, None));
        let (esp, ah) = (SaProtocol::Esp, SaProtocol::Ah);
        for (protocol, transform, errno, words) in [
            (esp, aead("rfc4106(gcm(sm4))", 20, 128), Errno::ENOSYS, "AEAD algorithm not found"),
            (esp, aead("rfc4106(gcm(aes))", 20, 32), Errno::ENOSYS, "AEAD algorithm not found"),
            (esp, aead("rfc4106(gcm(aes))", 16, 128), Errno::EINVAL, "and 32 of salt"),
            (esp, pair(Some(("serpent", 16)), sha1), Errno::ENOSYS, "CRYPT algorithm not found"),
            (esp, pair(Some(("des3_ede", 16)), sha1), Errno::EINVAL, "24 bytes"),
            (esp, pair(Some(("camellia", 20)), sha1), Errno::EINVAL, "128, 192 or 256 bits"),
            (esp, pair(Some(("aes", 17)), sha1), Errno::EINVAL, "128, 192 or 256 bits"),
            (esp, pair(Some(("aes", 16)), None), Errno::EINVAL, "without integrity"),
            (esp, pair(Some(("aes", 16)), Some(("digest_null", 0, None))), Errno::EINVAL, "8221"),
            (
                esp,
                pair(Some(("aes", 16)), Some(("rmd160", 20, None))),
                Errno::ENOSYS,
                "Requested AUTH algorithm not found",
            ),
            (
                esp,
                pair(Some(("aes", 16)), Some(("hmac(sha1)", 20, Some(999)))),
                Errno::EINVAL,
                "truncated ICV",
            ),
            (esp, pair(Some(("aes", 16)), Some(("sha256", 32, Some(64)))), Errno::EINVAL, "64"),
            (esp, pair(Some(("aes", 16)), Some(("sha1", 19, None))), Errno::EINVAL, "20 bytes"),
            (ah, pair(Some(("aes", 16)), sha1), Errno::EINVAL, "AH"),
            (SaProtocol::Comp, pair(None, sha1), Errno::EPROTONOSUPPORT, "type not found"),
        ] {
            let (number, text) = suite(protocol, &transform).unwrap_err();
            assert!(number == errno && text.contains(words), "{number}: {text}");
        }
    }
}
