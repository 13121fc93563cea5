//! Properties that the keys of a suite share: limits of their operations, and the route of these.

use crate::{Cipher, GcmParams, MacAlg, Suite, Tier};

/// Most bytes of text that CBC, CTR or a MAC takes of an operation of a pair; of a job, CTR takes more.
pub(crate) const LANE_MAX: u64 = u32::MAX as u64;

/// Limits that building an operation checks, worked out once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of an ICV.
    pub(crate) icv: u8,
    /// Fewest and most bytes of a nonce.
    pub(crate) nonce: (u8, u8),
    /// True if operations come with additional data, false if with a header in front of the text.
    pub(crate) aead: bool,
    /// One less than the bytes of a block that text must be a multiple of.
    pub(crate) partial: u8,
    /// Most bytes of text. For CCM, with a nonce of 7 bytes.
    pub(crate) data: u64,
    /// Initial value of the last 32 bits of the nonce's block.
    pub(crate) counter: u8,
}

impl Limits {
    pub(super) const fn new(suite: Suite) -> Self {
        let nonce = suite.nonce_bytes() as u8;
        let fixed = Self {
            icv: suite.icv_bytes() as u8,
            nonce: (nonce, nonce),
            aead: suite.is_aead(),
            partial: 0,
            data: u64::MAX,
            counter: 0,
        };
        match suite {
            Suite::Gcm(_) => Self { data: GcmParams::MAX_DATA, ..fixed },
            Suite::Gmac(_) => Self { data: 1 << 60, ..fixed },
            Suite::Ccm { .. } => Self { nonce: (7, 13), ..fixed },
            // Blocks 1 to 2^32 - 2 of 64 bytes: one less than RFC 8439 section 2.8 allows, for that is
            // what the portable tier's crate takes.
            Suite::ChaCha20Poly1305 => Self { data: ((1 << 32) - 2) * 64, ..fixed },
            // CTR counts blocks in 32 bits (RFC 3686 section 4). No packet is longer.
            Suite::Pair { cipher, .. } => Self {
                data: LANE_MAX,
                partial: cipher.block_bytes() as u8 - 1,
                counter: matches!(cipher, Cipher::AesCtr(_)) as u8,
                ..fixed
            },
        }
    }
}

/// Passes that a key's operations go through, as a number, so that comparing two is one
/// instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route(u32);

impl Route {
    pub(super) const fn new(suite: Suite, tier: Tier, sha_ni: bool) -> Self {
        let (family, cipher, mac) = match suite {
            Suite::Gcm(GcmParams { key_bits, .. }) => (0, key_bits as u32, 0),
            Suite::Gmac(key_bits) => (1, key_bits as u32, 0),
            Suite::Ccm { key_bits, .. } => (2, key_bits as u32, 0),
            Suite::ChaCha20Poly1305 => (3, 0, 0),
            Suite::Pair { cipher, integrity } => {
                let cipher = match cipher {
                    Cipher::Null => 0,
                    Cipher::AesCbc(key_bits) => 1 + key_bits as u32,
                    Cipher::AesCtr(key_bits) => 4 + key_bits as u32,
                    Cipher::TripleDesCbc => 7,
                    Cipher::CamelliaCbc(key_bits) => 8 + key_bits as u32,
                };
                let mac = match integrity.alg() {
                    MacAlg::Null => 0,
                    MacAlg::AesXcbc => 1,
                    MacAlg::AesCmac(key_bits) => 2 + key_bits as u32,
                    MacAlg::Hmac(hash) => 5 + hash as u32,
                };
                (4, cipher, mac)
            }
        };
        Self(family | cipher << 4 | mac << 8 | (tier as u32) << 16 | (sha_ni as u32) << 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_tell_apart_all_that_passes_do() {
        // Of the ICV's length passes know nothing.
        let same = |a: Suite, b: Suite| match (a, b) {
            (Suite::Gcm(a), Suite::Gcm(b)) => a.key_bits == b.key_bits,
            (Suite::Ccm { key_bits: a, .. }, Suite::Ccm { key_bits: b, .. }) => a == b,
            (Suite::Pair { cipher: a, integrity: x }, Suite::Pair { cipher: b, integrity: y }) => {
                a == b && x.alg() == y.alg()
            }
            _ => a == b,
        };
        let route = Route::new;
        for a in Suite::all() {
            assert_ne!(route(a, Tier::Avx2, false), route(a, Tier::Avx512, false));
            assert_ne!(route(a, Tier::Avx2, false), route(a, Tier::Avx2, true));
            for b in Suite::all() {
                let equal = route(a, Tier::Avx2, true) == route(b, Tier::Avx2, true);
                assert_eq!(equal, same(a, b), "{a} and {b}");
            }
        }
    }
}
