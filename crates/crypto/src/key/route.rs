//! Routes: what keys have in common whose operations go through passes together.

use crate::{Cipher, GcmParams, MacAlg, Suite, Tier};

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
