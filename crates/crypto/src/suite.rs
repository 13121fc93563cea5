//! Suites: what a key is for.

use std::{fmt, hint::black_box, str::FromStr};

use crate::{GcmParams, IcvLen, KeyBits, KeyError, isa::made_public};

/// A hash function under an HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashAlg {
    /// MD5 (RFC 1321), only for HMAC-MD5-96 (RFC 2403), which RFC 8221 advises against.
    Md5,
    /// SHA-1 (FIPS 180-4).
    Sha1,
    /// SHA-224 (FIPS 180-4).
    Sha224,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-384 (FIPS 180-4).
    Sha384,
    /// SHA-512 (FIPS 180-4).
    Sha512,
}

impl HashAlg {
    /// Every hash.
    pub const ALL: [Self; 6] =
        [Self::Md5, Self::Sha1, Self::Sha224, Self::Sha256, Self::Sha384, Self::Sha512];

    /// Bytes of a digest: 16, 20, 28, 32, 48 or 64.
    #[must_use]
    pub const fn digest_bytes(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Bytes of a block: 64, or 128 for SHA-384 and SHA-512.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::Md5 | Self::Sha1 | Self::Sha224 | Self::Sha256 => 64,
            Self::Sha384 | Self::Sha512 => 128,
        }
    }

    /// Its name in those of suites.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha224 => "sha224",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }
}

/// A message authentication code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MacAlg {
    /// None: nothing is authenticated and the ICV is empty. For measuring, and for callers that
    /// authenticate by other means; never for ESP (RFC 8221 section 4).
    Null,
    /// HMAC (RFC 2104).
    Hmac(HashAlg),
    /// AES-XCBC-MAC with a key of 128 bits (RFC 3566).
    AesXcbc,
    /// AES-CMAC (NIST SP 800-38B, RFC 4494).
    AesCmac(KeyBits),
}

impl MacAlg {
    /// Every MAC; no MAC is none.
    pub const ALL: [Self; 10] = [
        Self::Hmac(HashAlg::Md5),
        Self::Hmac(HashAlg::Sha1),
        Self::Hmac(HashAlg::Sha224),
        Self::Hmac(HashAlg::Sha256),
        Self::Hmac(HashAlg::Sha384),
        Self::Hmac(HashAlg::Sha512),
        Self::AesXcbc,
        Self::AesCmac(KeyBits::Aes128),
        Self::AesCmac(KeyBits::Aes192),
        Self::AesCmac(KeyBits::Aes256),
    ];

    /// Bytes of a key as IPsec has it (RFC 2403, 2404, 4868, 3566, 4494). An HMAC takes keys of any
    /// length, the others only this one.
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Hmac(hash) => hash.digest_bytes(),
            Self::AesXcbc => 16,
            Self::AesCmac(bits) => bits.bytes(),
        }
    }

    /// Bytes of the whole MAC: the longest ICV.
    #[must_use]
    pub const fn mac_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Hmac(hash) => hash.digest_bytes(),
            Self::AesXcbc | Self::AesCmac(_) => 16,
        }
    }
}

impl fmt::Display for MacAlg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names().name)
    }
}

/// A MAC and the length its ICVs are cut to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Integrity {
    alg: MacAlg,
    icv_bytes: u8,
}

impl Integrity {
    /// No integrity: see [`MacAlg::Null`].
    pub const NULL: Self = Self { alg: MacAlg::Null, icv_bytes: 0 };
    /// HMAC-MD5-96 (RFC 2403).
    pub const HMAC_MD5_96: Self = Self { alg: MacAlg::Hmac(HashAlg::Md5), icv_bytes: 12 };
    /// HMAC-SHA-1-96 (RFC 2404).
    pub const HMAC_SHA1_96: Self = Self { alg: MacAlg::Hmac(HashAlg::Sha1), icv_bytes: 12 };
    /// HMAC-SHA-256-128 (RFC 4868).
    pub const HMAC_SHA256_128: Self = Self { alg: MacAlg::Hmac(HashAlg::Sha256), icv_bytes: 16 };
    /// HMAC-SHA-256 cut to 96 bits (draft-ietf-ipsec-ciph-sha-256-00), which old peers use.
    pub const HMAC_SHA256_96: Self = Self { alg: MacAlg::Hmac(HashAlg::Sha256), icv_bytes: 12 };
    /// HMAC-SHA-384-192 (RFC 4868).
    pub const HMAC_SHA384_192: Self = Self { alg: MacAlg::Hmac(HashAlg::Sha384), icv_bytes: 24 };
    /// HMAC-SHA-512-256 (RFC 4868).
    pub const HMAC_SHA512_256: Self = Self { alg: MacAlg::Hmac(HashAlg::Sha512), icv_bytes: 32 };
    /// AES-XCBC-MAC-96 (RFC 3566).
    pub const AES_XCBC_96: Self = Self { alg: MacAlg::AesXcbc, icv_bytes: 12 };
    /// AES-CMAC-96 (RFC 4494).
    pub const AES_CMAC_96: Self = Self { alg: MacAlg::AesCmac(KeyBits::Aes128), icv_bytes: 12 };

    /// MACs of IPsec, with the lengths of their RFCs first.
    pub const IPSEC: [Self; 8] = [
        Self::HMAC_MD5_96,
        Self::HMAC_SHA1_96,
        Self::HMAC_SHA256_128,
        Self::HMAC_SHA256_96,
        Self::HMAC_SHA384_192,
        Self::HMAC_SHA512_256,
        Self::AES_XCBC_96,
        Self::AES_CMAC_96,
    ];

    /// A MAC cut to `icv_bytes`: 4 up to the whole MAC, which is what none asks for; 0 for
    /// [`MacAlg::Null`] alone.
    #[must_use]
    pub const fn new(alg: MacAlg, icv_bytes: usize) -> Option<Self> {
        let fits = match alg {
            MacAlg::Null => icv_bytes == 0,
            _ => icv_bytes >= 4 && icv_bytes <= alg.mac_bytes(),
        };
        // At most 64.
        if fits { Some(Self { alg, icv_bytes: icv_bytes as u8 }) } else { None }
    }

    /// The whole MAC as ICV.
    #[must_use]
    pub const fn full(alg: MacAlg) -> Self {
        Self { alg, icv_bytes: alg.mac_bytes() as u8 }
    }

    /// The MAC.
    #[must_use]
    pub const fn alg(self) -> MacAlg {
        self.alg
    }

    /// Bytes of an ICV.
    #[inline(always)]
    #[must_use]
    pub const fn icv_bytes(self) -> usize {
        self.icv_bytes as usize
    }

    /// Bytes of a key; see [`MacAlg::key_bytes`].
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        self.alg.key_bytes()
    }
}

impl fmt::Display for Integrity {
    /// The MAC's name and, as RFCs do it, the length in bits: `hmac-sha1-96`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.alg {
            MacAlg::Null => f.write_str("null"),
            alg => write!(f, "{alg}-{}", self.icv_bytes() * 8),
        }
    }
}

/// A cipher that leaves authentication to a MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cipher {
    /// No encryption (RFC 2410).
    Null,
    /// AES in CBC mode (RFC 3602): the IV has 16 bytes and must be unpredictable, the text whole
    /// blocks of 16.
    AesCbc(KeyBits),
    /// AES in counter mode (RFC 3686): the nonce has 12 bytes, 4 of the key and 8 of the packet,
    /// and must be used only once; counting begins at 1.
    AesCtr(KeyBits),
    /// Triple DES with three keys in CBC mode (RFC 2451): the IV has 8 bytes and must be unpredictable,
    /// the text whole blocks of 8. [Legacy](Self::is_legacy): the feature `legacy` has it.
    TripleDesCbc,
    /// Camellia in CBC mode (RFC 3713, RFC 4312): the IV has 16 bytes and must be unpredictable, the
    /// text whole blocks of 16. [Legacy](Self::is_legacy): the feature `legacy` has it.
    CamelliaCbc(KeyBits),
}

impl Cipher {
    /// Every cipher.
    pub const ALL: [Self; 11] = [
        Self::Null,
        Self::AesCbc(KeyBits::Aes128),
        Self::AesCbc(KeyBits::Aes192),
        Self::AesCbc(KeyBits::Aes256),
        Self::AesCtr(KeyBits::Aes128),
        Self::AesCtr(KeyBits::Aes192),
        Self::AesCtr(KeyBits::Aes256),
        Self::TripleDesCbc,
        Self::CamelliaCbc(KeyBits::Aes128),
        Self::CamelliaCbc(KeyBits::Aes192),
        Self::CamelliaCbc(KeyBits::Aes256),
    ];

    /// Bytes of a key: 0, 16, 24 or 32. The 4 bytes of nonce that RFC 3686 takes from the keying
    /// material are not part of it.
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::AesCbc(bits) | Self::AesCtr(bits) | Self::CamelliaCbc(bits) => bits.bytes(),
            Self::TripleDesCbc => 24,
        }
    }

    /// True if it is for old peers alone: its blocks are short, or few use it any more (RFC 8221
    /// section 5), and the code for it is neither fast nor constant in time, for it looks tables up at
    /// places that depend on the key and the text.
    #[must_use]
    pub const fn is_legacy(self) -> bool {
        matches!(self, Self::TripleDesCbc | Self::CamelliaCbc(_))
    }

    /// Bytes of a block that text must be a multiple of: 16 or 8 in CBC mode, 1 for all others.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::Null | Self::AesCtr(_) => 1,
            Self::AesCbc(_) | Self::CamelliaCbc(_) => 16,
            Self::TripleDesCbc => 8,
        }
    }

    /// Bytes of a nonce or IV: 0, 8, 12 or 16.
    #[inline(always)]
    #[must_use]
    pub const fn nonce_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::AesCbc(_) | Self::CamelliaCbc(_) => 16,
            Self::AesCtr(_) => 12,
            Self::TripleDesCbc => 8,
        }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names().name)
    }
}

/// Algorithms of a key: an AEAD, or a cipher paired with a MAC in the order encrypt-then-MAC.
///
/// A suite has a name, which [`Display`](fmt::Display) writes and [`FromStr`] reads:
/// `aes-128-gcm-16`, `aes-256-ccm-8`, `aes-128-gmac-16`, `chacha20-poly1305`,
/// `aes-128-cbc+hmac-sha1-96`, `null+aes-cmac-96`, `3des-cbc+hmac-sha1-96`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suite {
    /// AES-GCM (RFC 4106): a nonce of 12 bytes.
    Gcm(GcmParams),
    /// AES-GMAC (RFC 4543): a nonce of 12 bytes; the data is authenticated and stays as it is. The
    /// ICV has 16 bytes.
    Gmac(KeyBits),
    /// AES-CCM (RFC 4309, NIST SP 800-38C): a nonce of 11 bytes; 7 to 13 are taken, and the more
    /// the nonce has, the shorter the data must be.
    Ccm {
        /// Size of the AES key.
        key_bits: KeyBits,
        /// Length of the ICV.
        icv_len: IcvLen,
    },
    /// ChaCha20-Poly1305 (RFC 7634, RFC 8439): a nonce of 12 bytes, an ICV of 16.
    ChaCha20Poly1305,
    /// Encrypt, then authenticate (RFC 4303 section 3.3.2).
    Pair {
        /// The cipher.
        cipher: Cipher,
        /// The MAC and its length.
        integrity: Integrity,
    },
}

impl Suite {
    /// Every suite of IPsec: AEADs with all their ICV lengths, and each cipher with each MAC; those with a
    /// [legacy](Cipher::is_legacy) cipher only with the feature `legacy`.
    pub fn all() -> impl Iterator<Item = Self> {
        let aeads = Self::AEADS.into_iter().flat_map(|aead| {
            IcvLen::ALL.into_iter().filter_map(move |icv| aead.with_icv(icv.bytes()))
        });
        let here = |cipher: &Cipher| cfg!(feature = "legacy") || !cipher.is_legacy();
        let pairs = Cipher::ALL.into_iter().filter(here).flat_map(|cipher| {
            Integrity::IPSEC.into_iter().map(move |integrity| Self::Pair { cipher, integrity })
        });
        aeads.chain(pairs)
    }

    /// AES-GCM with the whole ICV.
    #[must_use]
    pub const fn gcm(key_bits: KeyBits) -> Self {
        Self::Gcm(GcmParams::new(key_bits, IcvLen::Icv16))
    }

    /// AES-CCM with the whole ICV.
    #[must_use]
    pub const fn ccm(key_bits: KeyBits) -> Self {
        Self::Ccm { key_bits, icv_len: IcvLen::Icv16 }
    }

    /// The same suite with an ICV of `bytes`, if it has one of that length.
    #[must_use]
    pub const fn with_icv(self, bytes: usize) -> Option<Self> {
        match (self, IcvLen::from_bytes(bytes)) {
            (Self::Gcm(GcmParams { key_bits, .. }), Some(icv_len)) => {
                Some(Self::Gcm(GcmParams { key_bits, icv_len }))
            }
            (Self::Ccm { key_bits, .. }, Some(icv_len)) => Some(Self::Ccm { key_bits, icv_len }),
            (Self::Gmac(_) | Self::ChaCha20Poly1305, Some(IcvLen::Icv16)) => Some(self),
            (Self::Pair { cipher, integrity }, _) => match Integrity::new(integrity.alg, bytes) {
                Some(integrity) => Some(Self::Pair { cipher, integrity }),
                None => None,
            },
            _ => None,
        }
    }

    /// Bytes of an ICV.
    #[inline(always)]
    #[must_use]
    pub const fn icv_bytes(self) -> usize {
        match self {
            Self::Gcm(GcmParams { icv_len, .. }) | Self::Ccm { icv_len, .. } => icv_len.bytes(),
            Self::Gmac(_) | Self::ChaCha20Poly1305 => 16,
            Self::Pair { integrity, .. } => integrity.icv_bytes(),
        }
    }

    /// Bytes of a nonce or IV, as IPsec makes them: 12 for GCM, GMAC, ChaCha20-Poly1305 and CTR, 11
    /// for CCM, 16 for CBC or, with 3DES, 8, and 0 for NULL.
    #[inline(always)]
    #[must_use]
    pub const fn nonce_bytes(self) -> usize {
        match self {
            Self::Gcm(_) | Self::Gmac(_) | Self::ChaCha20Poly1305 => 12,
            Self::Ccm { .. } => 11,
            Self::Pair { cipher, .. } => cipher.nonce_bytes(),
        }
    }

    /// Bytes of the cipher's key, or of the AEAD's.
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Gcm(GcmParams { key_bits, .. })
            | Self::Gmac(key_bits)
            | Self::Ccm { key_bits, .. } => key_bits.bytes(),
            Self::ChaCha20Poly1305 => 32,
            Self::Pair { cipher, .. } => cipher.key_bytes(),
        }
    }

    /// Bytes of the MAC's key as IPsec has it; 0 for an AEAD.
    #[must_use]
    pub const fn integrity_key_bytes(self) -> usize {
        match self {
            Self::Pair { integrity, .. } => integrity.key_bytes(),
            _ => 0,
        }
    }

    /// Bytes of a block that text must be a multiple of; see [`Cipher::block_bytes`]. An AEAD takes
    /// any length.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::Pair { cipher, .. } => cipher.block_bytes(),
            _ => 1,
        }
    }

    /// Checks a key of the cipher or AEAD, as setting up a key does.
    ///
    /// # Errors
    /// [`KeyError::Length`]; [`KeyError::SingleDes`] for a key that makes single DES of 3DES.
    pub fn check_key(self, secret: &[u8]) -> Result<(), KeyError> {
        let (expected, given) = (self.key_bytes(), secret.len());
        if expected != given {
            return Err(KeyError::Length { expected, given });
        }
        match self {
            Self::Pair { cipher: Cipher::TripleDesCbc, .. } if is_single_des(secret) => {
                Err(KeyError::SingleDes)
            }
            _ => Ok(()),
        }
    }

    /// True if its cipher is [legacy](Cipher::is_legacy).
    #[must_use]
    pub const fn is_legacy(self) -> bool {
        matches!(self, Self::Pair { cipher, .. } if cipher.is_legacy())
    }

    /// True if operations come with additional data apart from the payload, rather than with a
    /// header in front of it.
    #[inline(always)]
    #[must_use]
    pub const fn is_aead(self) -> bool {
        !matches!(self, Self::Pair { .. })
    }
}

impl From<GcmParams> for Suite {
    fn from(params: GcmParams) -> Self {
        Self::Gcm(params)
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Pair { cipher, integrity } = self {
            return write!(f, "{cipher}+{integrity}");
        }
        let name = self.names().map_or("", |names| names.name);
        match self {
            Self::ChaCha20Poly1305 => f.write_str(name),
            _ => write!(f, "{name}-{}", self.icv_bytes()),
        }
    }
}

/// The text names no suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such suite")]
pub struct UnknownSuite;

impl FromStr for Suite {
    type Err = UnknownSuite;

    fn from_str(name: &str) -> Result<Self, UnknownSuite> {
        if let Some((cipher, mac)) = name.split_once('+') {
            let cipher = find(Cipher::ALL, cipher)?;
            return Ok(Self::Pair { cipher, integrity: integrity(mac)? });
        }
        find(Self::all(), name)
    }
}

fn find<T: fmt::Display>(all: impl IntoIterator<Item = T>, name: &str) -> Result<T, UnknownSuite> {
    all.into_iter().find(|item| item.to_string() == name).ok_or(UnknownSuite)
}

fn integrity(name: &str) -> Result<Integrity, UnknownSuite> {
    if name == "null" {
        return Ok(Integrity::NULL);
    }
    let (alg, bits) = name.rsplit_once('-').ok_or(UnknownSuite)?;
    let alg = find(MacAlg::ALL, alg)?;
    let bits: usize = bits.parse().map_err(|_| UnknownSuite)?;
    if !bits.is_multiple_of(8) {
        return Err(UnknownSuite);
    }
    Integrity::new(alg, bits / 8).ok_or(UnknownSuite)
}

/// True if two neighbours of a 3DES key's parts agree, so that one operation undoes the other (RFC 2451
/// section 2.3). The lowest bit of each byte is parity, which DES ignores. The time taken does not depend
/// on where they differ.
fn is_single_des(secret: &[u8]) -> bool {
    const KEY_BITS: u64 = u64::from_ne_bytes([0xfe; 8]);
    let [first, second, third] = secret.as_chunks::<8>().0 else { return false };
    let [first, second, third] = [first, second, third].map(|part| u64::from_ne_bytes(*part));
    let agree = |a: u64, b: u64| made_public(black_box((a ^ b) & KEY_BITS) == 0);
    agree(first, second) | agree(second, third)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_suite_is_found_by_its_own_name_and_no_other() {
        let names: HashSet<_> = Suite::all().map(|suite| suite.to_string()).collect();
        assert_eq!(names.len(), 9 + 3 + 9 + 1 + 11 * 8);
        for suite in Suite::all() {
            assert_eq!(suite.to_string().parse(), Ok(suite));
        }
        for name in ["aes-256-cbc+hmac-sha224-224", "null+null", "aes-128-ctr+aes-256-cmac-128"] {
            assert_eq!(name.parse::<Suite>().map(|suite| suite.to_string()), Ok(name.to_owned()));
        }
        for name in ["", "aes-128-gcm-4", "null", "null+hmac-md5-136", "null+hmac-md5-97", "+"] {
            assert_eq!(name.parse::<Suite>(), Err(UnknownSuite), "{name}");
        }
    }

    #[test]
    fn lengths_of_the_rfcs() {
        let of = |name: &str| name.parse::<Suite>().unwrap();
        for (name, key, mac_key, nonce, icv) in [
            ("aes-256-gcm-12", 32, 0, 12, 12),
            ("aes-192-gmac-16", 24, 0, 12, 16),
            ("aes-128-ccm-8", 16, 0, 11, 8),
            ("chacha20-poly1305", 32, 0, 12, 16),
            ("aes-192-cbc+hmac-sha1-96", 24, 20, 16, 12),
            ("aes-256-ctr+hmac-sha512-256", 32, 64, 12, 32),
            ("3des-cbc+hmac-md5-96", 24, 16, 8, 12),
            ("camellia-192-cbc+hmac-sha256-128", 24, 32, 16, 16),
            ("null+hmac-sha384-192", 0, 48, 0, 24),
            ("null+aes-xcbc-96", 0, 16, 0, 12),
        ] {
            let suite = of(name);
            let lengths = (
                suite.key_bytes(),
                suite.integrity_key_bytes(),
                suite.nonce_bytes(),
                suite.icv_bytes(),
            );
            assert_eq!(lengths, (key, mac_key, nonce, icv), "{name}");
        }
    }

    #[test]
    fn no_icv_is_longer_than_its_mac_or_shorter_than_four_bytes() {
        assert_eq!(Integrity::new(MacAlg::Hmac(HashAlg::Sha1), 21), None);
        assert_eq!(Integrity::new(MacAlg::AesXcbc, 3), None);
        assert_eq!(Integrity::new(MacAlg::Null, 4), None);
        assert_eq!(Integrity::new(MacAlg::Null, 0), Some(Integrity::NULL));
        let whole = Integrity::full(MacAlg::Hmac(HashAlg::Sha384));
        assert_eq!((whole.icv_bytes(), whole.to_string()), (48, "hmac-sha384-384".to_owned()));
    }
}
