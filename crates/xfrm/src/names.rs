//! Algorithms by the names Linux knows them under (`net/xfrm/xfrm_algo.c`), with their older aliases.
//!
//! This says what a name means, not what anybody supports: a server looks up the name and then finds
//! among its own suites the one of that canonical name.

/// Lengths that a key may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyBits {
    /// Any; HMAC takes keys of any length.
    Any,
    /// One of these, salt included.
    OneOf(&'static [u32]),
    /// Any number of whole bytes between these.
    Between(u32, u32),
}

impl KeyBits {
    /// True if a key may have so many bits.
    #[must_use]
    pub fn allow(self, bits: u32) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(lengths) => lengths.contains(&bits),
            Self::Between(min, max) => (min..=max).contains(&bits) && bits.is_multiple_of(8),
        }
    }
}

/// An algorithm with a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Known {
    /// The name that a kernel answers with, whichever it was asked with.
    pub name: &'static str,
    /// The older name of the same algorithm.
    pub alias: Option<&'static str>,
    /// Lengths of the key in bits, salt included.
    pub key_bits: KeyBits,
    /// Bits of salt at the end of the key.
    pub salt_bits: u32,
    icv: Icv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Icv {
    None,
    /// Cut to the first unless asked otherwise; the second is all of it.
    Cut(u32, u32),
    OneOf(&'static [u32]),
}

impl Known {
    const fn new(name: &'static str, alias: Option<&'static str>, key_bits: KeyBits) -> Self {
        Self { name, alias, key_bits, salt_bits: 0, icv: Icv::None }
    }

    const fn salt(self, salt_bits: u32) -> Self {
        Self { salt_bits, ..self }
    }

    const fn icv(self, icv: Icv) -> Self {
        Self { icv, ..self }
    }

    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.alias == Some(name)
    }

    /// Bits of ICV that an SA sends, when the message asks for `asked`: `None` for a message that
    /// leaves it to the algorithm, as [`Integrity::icv_bits`](crate::Integrity::icv_bits) has it. `None` when
    /// the algorithm has no ICV of that length.
    ///
    /// Mind the default of HMAC-SHA-256, which is 96 bits and not the 128 of RFC 4868.
    #[must_use]
    pub fn icv_bits(&self, asked: Option<u32>) -> Option<u32> {
        match (self.icv, asked.unwrap_or_default()) {
            (Icv::Cut(usual, _), 0) => Some(usual),
            (Icv::Cut(_, whole), bits) if bits <= whole => Some(bits),
            (Icv::OneOf(lengths), bits) if lengths.contains(&bits) => Some(bits),
            (Icv::None | Icv::Cut(..) | Icv::OneOf(_), _) => None,
        }
    }
}

const AES: KeyBits = KeyBits::OneOf(&[128, 192, 256]);

const AEADS: &[Known] = &[
    Known::new("rfc4106(gcm(aes))", None, KeyBits::OneOf(&[160, 224, 288]))
        .salt(32)
        .icv(Icv::OneOf(&[64, 96, 128])),
    Known::new("rfc4309(ccm(aes))", None, KeyBits::OneOf(&[152, 216, 280]))
        .salt(24)
        .icv(Icv::OneOf(&[64, 96, 128])),
    Known::new("rfc4543(gcm(aes))", None, KeyBits::OneOf(&[160, 224, 288]))
        .salt(32)
        .icv(Icv::OneOf(&[128])),
    Known::new("rfc7539esp(chacha20,poly1305)", None, KeyBits::OneOf(&[288]))
        .salt(32)
        .icv(Icv::OneOf(&[128])),
];

const INTEGRITY: &[Known] = &[
    Known::new("digest_null", None, KeyBits::OneOf(&[0])).icv(Icv::Cut(0, 0)),
    Known::new("hmac(md5)", Some("md5"), KeyBits::Any).icv(Icv::Cut(96, 128)),
    Known::new("hmac(sha1)", Some("sha1"), KeyBits::Any).icv(Icv::Cut(96, 160)),
    Known::new("hmac(sha256)", Some("sha256"), KeyBits::Any).icv(Icv::Cut(96, 256)),
    Known::new("hmac(sha384)", None, KeyBits::Any).icv(Icv::Cut(192, 384)),
    Known::new("hmac(sha512)", None, KeyBits::Any).icv(Icv::Cut(256, 512)),
    Known::new("hmac(rmd160)", Some("rmd160"), KeyBits::Any).icv(Icv::Cut(96, 160)),
    Known::new("xcbc(aes)", None, KeyBits::OneOf(&[128])).icv(Icv::Cut(96, 128)),
    Known::new("cmac(aes)", None, AES).icv(Icv::Cut(96, 128)),
    Known::new("hmac(sm3)", Some("sm3"), KeyBits::Any).icv(Icv::Cut(256, 256)),
];

const CIPHERS: &[Known] = &[
    Known::new("ecb(cipher_null)", Some("cipher_null"), KeyBits::OneOf(&[0])),
    Known::new("cbc(des)", Some("des"), KeyBits::OneOf(&[64])),
    Known::new("cbc(des3_ede)", Some("des3_ede"), KeyBits::OneOf(&[192])),
    Known::new("cbc(cast5)", Some("cast5"), KeyBits::Between(40, 128)),
    Known::new("cbc(blowfish)", Some("blowfish"), KeyBits::Between(40, 448)),
    Known::new("cbc(aes)", Some("aes"), AES),
    Known::new("cbc(serpent)", Some("serpent"), KeyBits::Between(128, 256)),
    Known::new("cbc(camellia)", Some("camellia"), AES),
    Known::new("cbc(twofish)", Some("twofish"), AES),
    Known::new("rfc3686(ctr(aes))", None, KeyBits::OneOf(&[160, 224, 288])).salt(32),
    Known::new("cbc(sm4)", Some("sm4"), KeyBits::OneOf(&[128])),
];

const COMPRESSIONS: &[Known] = &[
    Known::new("deflate", None, KeyBits::Any),
    Known::new("lzs", None, KeyBits::Any),
    Known::new("lzjh", None, KeyBits::Any),
];

fn find(table: &'static [Known], name: &str) -> Option<&'static Known> {
    table.iter().find(|known| known.is_called(name))
}

/// The combined algorithm of this name; its ICV is checked by [`Known::icv_bits`].
#[must_use]
pub fn aead(name: &str) -> Option<&'static Known> {
    find(AEADS, name)
}

/// The integrity algorithm of this name.
#[must_use]
pub fn integrity(name: &str) -> Option<&'static Known> {
    find(INTEGRITY, name)
}

/// The cipher of this name.
#[must_use]
pub fn cipher(name: &str) -> Option<&'static Known> {
    find(CIPHERS, name)
}

/// The compression of this name.
#[must_use]
pub fn compression(name: &str) -> Option<&'static Known> {
    find(COMPRESSIONS, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_lead_to_the_names_kernels_answer_with() {
        assert_eq!(cipher("aes").unwrap().name, "cbc(aes)");
        assert_eq!(cipher("cbc(aes)").unwrap().name, "cbc(aes)");
        assert_eq!(integrity("sha1").unwrap().name, "hmac(sha1)");
        assert_eq!(cipher("cipher_null").unwrap().name, "ecb(cipher_null)");
        assert!(aead("aes").is_none() && integrity("aes").is_none());
    }

    #[test]
    fn an_icv_nobody_asked_for_has_the_kernels_length() {
        for (name, bits) in [("sha1", 96), ("sha256", 96), ("hmac(sha384)", 192), ("md5", 96)] {
            let known = integrity(name).unwrap();
            assert_eq!(known.icv_bits(None), Some(bits), "{name}");
            assert_eq!(known.icv_bits(Some(0)), Some(bits), "{name}");
        }
        let sha256 = integrity("hmac(sha256)").unwrap();
        assert_eq!((sha256.icv_bits(Some(128)), sha256.icv_bits(Some(257))), (Some(128), None));
    }

    #[test]
    fn combined_algorithms_have_icvs_of_fixed_lengths_and_their_salt_in_the_key() {
        let gcm = aead("rfc4106(gcm(aes))").unwrap();
        assert_eq!(
            (gcm.icv_bits(Some(96)), gcm.icv_bits(Some(80)), gcm.salt_bits),
            (Some(96), None, 32)
        );
        assert_eq!(gcm.icv_bits(None), None);
        assert!(gcm.key_bits.allow(160) && !gcm.key_bits.allow(128));
        assert!(aead("rfc4309(ccm(aes))").unwrap().key_bits.allow(152));
        assert!(KeyBits::Between(40, 448).allow(48) && !KeyBits::Between(40, 448).allow(41));
    }
}
