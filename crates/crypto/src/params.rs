//! Sizes of keys and ICVs.

use std::fmt;

/// Size of an AES key, or of one of Camellia, which has the same sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyBits {
    /// 128 bits, 10 rounds.
    Aes128,
    /// 192 bits, 12 rounds.
    Aes192,
    /// 256 bits, 14 rounds.
    Aes256,
}

impl KeyBits {
    /// Every size, smallest first.
    pub const ALL: [Self; 3] = [Self::Aes128, Self::Aes192, Self::Aes256];

    /// Size in bits: 128, 192 or 256.
    #[must_use]
    pub const fn bits(self) -> usize {
        self.bytes() * 8
    }

    /// Size in bytes: 16, 24 or 32.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes192 => 24,
            Self::Aes256 => 32,
        }
    }

    /// Number of AES rounds: 10, 12 or 14.
    #[must_use]
    pub const fn rounds(self) -> usize {
        self.bytes() / 4 + 6
    }

    /// The size with this many bits, if AES has it.
    #[must_use]
    pub const fn from_bits(bits: usize) -> Option<Self> {
        match bits {
            128 => Some(Self::Aes128),
            192 => Some(Self::Aes192),
            256 => Some(Self::Aes256),
            _ => None,
        }
    }
}

/// Length of an integrity check value (RFC 4106 section 6; GCM calls it the tag).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IcvLen {
    /// 8 bytes.
    Icv8,
    /// 12 bytes.
    Icv12,
    /// 16 bytes.
    Icv16,
}

impl IcvLen {
    /// Every length, shortest first.
    pub const ALL: [Self; 3] = [Self::Icv8, Self::Icv12, Self::Icv16];

    /// Length in bytes: 8, 12 or 16.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Icv8 => 8,
            Self::Icv12 => 12,
            Self::Icv16 => 16,
        }
    }

    /// The length of this many bytes, if RFC 4106 has it.
    #[must_use]
    pub const fn from_bytes(bytes: usize) -> Option<Self> {
        match bytes {
            8 => Some(Self::Icv8),
            12 => Some(Self::Icv12),
            16 => Some(Self::Icv16),
            _ => None,
        }
    }
}

/// AES-GCM with a 96-bit nonce: the size of its key and of its ICV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GcmParams {
    /// Size of the AES key.
    pub key_bits: KeyBits,
    /// Length of the ICV.
    pub icv_len: IcvLen,
}

impl GcmParams {
    /// Longest payload of one operation in bytes: 2^36 - 32 (NIST SP 800-38D section 5.2.1.1).
    pub const MAX_DATA: u64 = (1 << 36) - 32;

    /// Puts the two together.
    #[must_use]
    pub const fn new(key_bits: KeyBits, icv_len: IcvLen) -> Self {
        Self { key_bits, icv_len }
    }
}

impl fmt::Display for GcmParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aes-{}-gcm-{}", self.key_bits.bits(), self.icv_len.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_names_agree_with_fips_197() {
        let rounds: Vec<_> =
            KeyBits::ALL.iter().map(|k| (k.bits(), k.bytes(), k.rounds())).collect();
        assert_eq!(rounds, [(128, 16, 10), (192, 24, 12), (256, 32, 14)]);
        for k in KeyBits::ALL {
            assert_eq!(KeyBits::from_bits(k.bits()), Some(k));
        }
        for l in IcvLen::ALL {
            assert_eq!(IcvLen::from_bytes(l.bytes()), Some(l));
        }
        assert_eq!((KeyBits::from_bits(64), IcvLen::from_bytes(4)), (None, None));
        assert_eq!(GcmParams::new(KeyBits::Aes192, IcvLen::Icv12).to_string(), "aes-192-gcm-12");
    }
}
