//! Names of algorithms, here and in other programs: one line for each.

use crate::{Cipher, HashAlg, Integrity, KeyBits, MacAlg, Suite};

/// Names of an AEAD, a cipher or a MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Name in that of a suite, without the length of an ICV.
    pub name: &'static str,
    /// Name in Linux's crypto API, which daemons use in XFRM. It leaves the size of the key open.
    pub linux: &'static str,
    /// Document that defines it for IPsec.
    pub source: &'static str,
    /// Name in Wireshark's table of ESP SAs, as of version 4.0; none if it does not know the algorithm. `{}` stands for
    /// the bytes of the ICV.
    pub wireshark: Option<&'static str>,
    /// Name in `dpdk-test-crypto-perf`; none if it cannot measure the algorithm as IPsec uses it.
    pub dpdk: Option<&'static str>,
}

impl Names {
    const fn new(name: &'static str, linux: &'static str, source: &'static str) -> Self {
        Self { name, linux, source, wireshark: None, dpdk: None }
    }

    const fn wireshark(self, name: &'static str) -> Self {
        Self { wireshark: Some(name), ..self }
    }

    const fn dpdk(self, name: &'static str) -> Self {
        Self { dpdk: Some(name), ..self }
    }
}

const fn by_size(bits: KeyBits, names: [&'static str; 3]) -> &'static str {
    names[bits as usize]
}

impl Suite {
    /// AEADs of IPsec with their whole ICVs.
    pub const AEADS: [Self; 10] = {
        use KeyBits::{Aes128, Aes192, Aes256};
        [
            Self::gcm(Aes128),
            Self::gcm(Aes192),
            Self::gcm(Aes256),
            Self::ccm(Aes128),
            Self::ccm(Aes192),
            Self::ccm(Aes256),
            Self::ChaCha20Poly1305,
            Self::Gmac(Aes128),
            Self::Gmac(Aes192),
            Self::Gmac(Aes256),
        ]
    };

    /// Names of an AEAD; none for a pair, whose cipher and MAC have their own.
    #[must_use]
    pub const fn names(self) -> Option<Names> {
        Some(match self {
            Self::Gcm(params) => Names::new(
                by_size(params.key_bits, ["aes-128-gcm", "aes-192-gcm", "aes-256-gcm"]),
                "rfc4106(gcm(aes))",
                "RFC 4106",
            )
            .wireshark("AES-GCM with {} octet ICV [RFC4106]")
            .dpdk("aes-gcm"),
            Self::Ccm { key_bits, .. } => Names::new(
                by_size(key_bits, ["aes-128-ccm", "aes-192-ccm", "aes-256-ccm"]),
                "rfc4309(ccm(aes))",
                "RFC 4309",
            ),
            Self::ChaCha20Poly1305 => {
                Names::new("chacha20-poly1305", "rfc7539esp(chacha20,poly1305)", "RFC 7634")
                    .dpdk("chacha20-poly1305")
            }
            Self::Gmac(bits) => Names::new(
                by_size(bits, ["aes-128-gmac", "aes-192-gmac", "aes-256-gmac"]),
                "rfc4543(gcm(aes))",
                "RFC 4543",
            ),
            Self::Pair { .. } => return None,
        })
    }
}

impl Cipher {
    /// Names of the cipher.
    #[must_use]
    pub const fn names(self) -> Names {
        match self {
            Self::Null => Names::new("null", "ecb(cipher_null)", "RFC 2410").wireshark("NULL"),
            Self::AesCbc(bits) => Names::new(
                by_size(bits, ["aes-128-cbc", "aes-192-cbc", "aes-256-cbc"]),
                "cbc(aes)",
                "RFC 3602",
            )
            .wireshark("AES-CBC [RFC3602]")
            .dpdk("aes-cbc"),
            Self::AesCtr(bits) => Names::new(
                by_size(bits, ["aes-128-ctr", "aes-192-ctr", "aes-256-ctr"]),
                "rfc3686(ctr(aes))",
                "RFC 3686",
            )
            .wireshark("AES-CTR [RFC3686]"),
            Self::TripleDesCbc => Names::new("3des-cbc", "cbc(des3_ede)", "RFC 2451")
                .wireshark("TripleDES-CBC [RFC2451]"),
            Self::CamelliaCbc(bits) => Names::new(
                by_size(bits, ["camellia-128-cbc", "camellia-192-cbc", "camellia-256-cbc"]),
                "cbc(camellia)",
                "RFC 4312",
            ),
        }
    }
}

impl MacAlg {
    /// Names of the MAC; for Wireshark see [`Integrity::wireshark`].
    #[must_use]
    pub const fn names(self) -> Names {
        match self {
            Self::Null => Names::new("null", "digest_null", "RFC 8221"),
            Self::Hmac(HashAlg::Md5) => Names::new("hmac-md5", "hmac(md5)", "RFC 2403"),
            Self::Hmac(HashAlg::Sha1) => {
                Names::new("hmac-sha1", "hmac(sha1)", "RFC 2404").dpdk("sha1-hmac")
            }
            Self::Hmac(HashAlg::Sha224) => Names::new("hmac-sha224", "hmac(sha224)", "RFC 4231"),
            Self::Hmac(HashAlg::Sha256) => {
                Names::new("hmac-sha256", "hmac(sha256)", "RFC 4868").dpdk("sha2-256-hmac")
            }
            Self::Hmac(HashAlg::Sha384) => {
                Names::new("hmac-sha384", "hmac(sha384)", "RFC 4868").dpdk("sha2-384-hmac")
            }
            Self::Hmac(HashAlg::Sha512) => {
                Names::new("hmac-sha512", "hmac(sha512)", "RFC 4868").dpdk("sha2-512-hmac")
            }
            Self::AesXcbc => Names::new("aes-xcbc", "xcbc(aes)", "RFC 3566").dpdk("aes-xcbc-mac"),
            Self::AesCmac(bits) => Names::new(
                by_size(bits, ["aes-cmac", "aes-192-cmac", "aes-256-cmac"]),
                "cmac(aes)",
                match bits {
                    KeyBits::Aes128 => "RFC 4494",
                    KeyBits::Aes192 | KeyBits::Aes256 => "SP 800-38B",
                },
            )
            .dpdk("aes-cmac"),
        }
    }
}

impl Integrity {
    /// MACs of IPsec with the lengths that they are cut to, the ones to be preferred first.
    pub const NAMED: [(&'static str, Self); 8] = [
        ("hmac-sha256-128", Self::HMAC_SHA256_128),
        ("hmac-sha384-192", Self::HMAC_SHA384_192),
        ("hmac-sha512-256", Self::HMAC_SHA512_256),
        ("hmac-sha1-96", Self::HMAC_SHA1_96),
        ("hmac-md5-96", Self::HMAC_MD5_96),
        ("aes-xcbc-96", Self::AES_XCBC_96),
        ("aes-cmac-96", Self::AES_CMAC_96),
        ("hmac-sha256-96", Self::HMAC_SHA256_96),
    ];

    /// Name in Wireshark's table of ESP SAs, as of version 4.0; none if it has no line of that length.
    #[must_use]
    pub fn wireshark(self) -> Option<&'static str> {
        Some(match self {
            Self::HMAC_MD5_96 => "HMAC-MD5-96 [RFC2403]",
            Self::HMAC_SHA1_96 => "HMAC-SHA-1-96 [RFC2404]",
            Self::HMAC_SHA256_128 => "HMAC-SHA-256-128 [RFC4868]",
            Self::HMAC_SHA256_96 => "HMAC-SHA-256-96 [draft-ietf-ipsec-ciph-sha-256-00]",
            Self::HMAC_SHA384_192 => "HMAC-SHA-384-192 [RFC4868]",
            Self::HMAC_SHA512_256 => "HMAC-SHA-512-256 [RFC4868]",
            // It knows neither XCBC nor CMAC, but how long their ICVs are.
            other if matches!(other.alg(), MacAlg::AesXcbc | MacAlg::AesCmac(_)) => {
                "ANY 96 bit authentication [no checking]"
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_algorithms_apart_and_begin_those_of_suites() {
        let mut names = std::collections::HashSet::new();
        for suite in Suite::all().filter(|suite| suite.is_aead()) {
            let whole = suite.with_icv(16).unwrap();
            assert!(Suite::AEADS.contains(&whole), "{suite}");
            let name = suite.names().unwrap().name;
            assert!(suite.to_string().starts_with(name), "{suite}");
            names.insert(name);
        }
        assert_eq!(names.len(), Suite::AEADS.len());
        let macs = MacAlg::ALL.map(|mac| mac.names().name);
        names.extend(macs.iter().chain(&Cipher::ALL.map(|cipher| cipher.names().name)));
        assert_eq!(names.len(), Suite::AEADS.len() + macs.len() + Cipher::ALL.len());
        for (name, integrity) in Integrity::NAMED {
            assert_eq!(integrity.to_string(), name);
            assert!(Integrity::IPSEC.contains(&integrity));
        }
    }
}
