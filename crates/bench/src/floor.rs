//! The port floor: the least that a packet can cost on a tier, from the instructions its algorithms
//! cannot do without and how fast the processor can issue them.
//!
//! Counted are AES rounds, carry-less multiplications (three a block), and the additions, logic and
//! rotations of hashes and of ChaCha20 as their specifications write them. Loads, stores,
//! transpositions, key whitening and Poly1305 are left out, so nothing can quite reach it. Where a
//! cipher and a MAC need different ports, running them side by side could go below the sum of both,
//! which is what is given here.

use convoy_crypto::{Cipher, GcmParams, HashAlg, MacAlg, Suite, Tier};

use crate::peer::ports::{Loop, Width};
use crate::suite::Layout as _;

/// Vector widths of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Widths {
    aes: Width,
    alu: Width,
}

const fn widths(tier: Tier) -> Option<Widths> {
    let (aes, alu) = match tier {
        Tier::AesNi | Tier::Avx => (Width::W128, Width::W128),
        Tier::Avx2 => (Width::W128, Width::W256),
        Tier::Avx512 => (Width::W128, Width::W512),
        Tier::Vaes256 => (Width::W256, Width::W256),
        Tier::Vaes512 => (Width::W512, Width::W512),
        // The portable tier has no instructions to count.
        _ => return None,
    };
    Some(Widths { aes, alu })
}

/// Computes floors of one suite on one tier.
#[derive(Clone, Debug)]
pub struct Floor {
    suite: Suite,
    widths: Widths,
    /// True if hashes may use the SHA extensions.
    sha_ni: bool,
}

/// Cycles that the loops took, in the order of [`Floor::loops`].
#[derive(Clone, Copy, Debug)]
struct Rates {
    aes: f64,
    clmul: f64,
    both: f64,
    alu: f64,
    sha1: Option<f64>,
    sha256: Option<f64>,
}

impl Floor {
    /// None for the portable tier.
    #[must_use]
    pub fn new(suite: Suite, tier: Tier, sha_ni: bool) -> Option<Self> {
        Some(Self { suite, widths: widths(tier)?, sha_ni })
    }

    /// Times the loops once and returns the least that packets with texts of these lengths can cost
    /// together, in cycles of the time-stamp counter. None if the processor lacks the tier.
    #[must_use]
    pub fn measure(&self, texts: &[usize]) -> Option<f64> {
        let Widths { aes, alu } = self.widths;
        // Loops the suite has no use for are not worth their time.
        let when = |used: bool, kind: Loop| if used { kind.measure() } else { Some(0.0) };
        let with_ghash = matches!(self.suite, Suite::Gcm(_) | Suite::Gmac(_));
        let rates = Rates {
            aes: when(self.suite != Suite::ChaCha20Poly1305, Loop::Aes(aes))?,
            clmul: when(with_ghash, Loop::Clmul(aes))?,
            both: when(with_ghash, Loop::AesAndClmul(aes))?,
            alu: when(!with_ghash, Loop::Alu(alu))?,
            sha1: if self.sha_ni { Loop::Sha1.measure() } else { None },
            sha256: if self.sha_ni { Loop::Sha256.measure() } else { None },
        };
        Some(texts.iter().map(|&text| self.packet(text, &rates)).sum())
    }

    /// Cycles of one packet.
    fn packet(&self, text: usize, rates: &Rates) -> f64 {
        // Instructions work on as many blocks as fit into a register.
        let aes_lanes = self.widths.aes.lanes(16) as f64;
        let aes = |blocks: usize, rounds: usize| (blocks * rounds) as f64 * rates.aes / aes_lanes;
        let blocks = text.div_ceil(16);
        match self.suite {
            Suite::Gcm(GcmParams { key_bits, .. }) => {
                let multiplications = 3.0 * (blocks + 2) as f64 * rates.clmul / aes_lanes;
                // How much of them finds no port free beside AES.
                let beside = rates.both - 10.0 * rates.aes;
                let share = (beside / (3.0 * rates.clmul)).clamp(0.0, 1.0);
                let sum = aes(blocks + 1, key_bits.rounds()) + multiplications * share;
                sum.max(multiplications)
            }
            Suite::Gmac(key_bits) => {
                let multiplications = 3.0 * (blocks + 2) as f64 * rates.clmul / aes_lanes;
                multiplications.max(aes(1, key_bits.rounds()))
            }
            // The text twice; first block, additional data, and what masks the ICV.
            Suite::Ccm { key_bits, .. } => aes(2 * blocks + 3, key_bits.rounds()),
            Suite::ChaCha20Poly1305 => {
                let lanes = self.widths.alu.lanes(4) as f64;
                let per_block = if self.has_ternary() { 976.0 } else { 1296.0 };
                // One more for Poly1305's key.
                (text.div_ceil(64) + 1) as f64 * per_block * rates.alu / lanes
            }
            Suite::Pair { cipher, integrity } => {
                let cipher = match cipher {
                    Cipher::Null => 0.0,
                    Cipher::AesCbc(bits) | Cipher::AesCtr(bits) => aes(blocks, bits.rounds()),
                    // No instruction is made for them, so nothing is known that they cannot do without.
                    Cipher::TripleDesCbc | Cipher::CamelliaCbc(_) => 0.0,
                };
                let hashed = self.suite.header_bytes() + text;
                cipher
                    + match integrity.alg() {
                        MacAlg::Null => 0.0,
                        MacAlg::AesXcbc => aes(hashed.div_ceil(16), 10),
                        MacAlg::AesCmac(bits) => aes(hashed.div_ceil(16), bits.rounds()),
                        MacAlg::Hmac(hash) => self.hmac(hash, hashed, rates),
                    }
            }
        }
    }

    /// Rotations and ternary operations came with AVX-512.
    fn has_ternary(&self) -> bool {
        self.widths.alu == Width::W512
    }

    fn hmac(&self, hash: HashAlg, bytes: usize, rates: &Rates) -> f64 {
        // Padding: a bit and the length, in 8 or 16 bytes. Then the outer hash; both hashes' first
        // blocks were done when the key was set up.
        let block = hash.block_bytes();
        let blocks = ((bytes + 1 + block / 8).div_ceil(block) + 1) as f64;
        let wide = HashAlg::Sha384 == hash || HashAlg::Sha512 == hash;
        let lanes = self.widths.alu.lanes(if wide { 8 } else { 4 }) as f64;
        let (with_ternary, without) = match hash {
            HashAlg::Md5 => (388.0, 628.0),
            HashAlg::Sha1 => (757.0, 1409.0),
            HashAlg::Sha224 | HashAlg::Sha256 => (1624.0, 3256.0),
            HashAlg::Sha384 | HashAlg::Sha512 => (2072.0, 4152.0),
        };
        let operations = if self.has_ternary() { with_ternary } else { without };
        let in_lanes = operations * rates.alu / lanes;
        let extension = match hash {
            HashAlg::Sha1 => rates.sha1.map(|cycles| 20.0 * cycles),
            HashAlg::Sha224 | HashAlg::Sha256 => rates.sha256.map(|cycles| 32.0 * cycles),
            _ => None,
        };
        blocks * extension.map_or(in_lanes, |cycles| cycles.min(in_lanes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ports of a Skylake server core: one AESENC, one multiplication, two 512-bit operations a
    /// cycle of the core, all on ports of their own.
    const SKYLAKE: Rates =
        Rates { aes: 1.0, clmul: 1.0, both: 10.0, alu: 0.5, sha1: None, sha256: None };

    fn floor(name: &str, text: usize) -> f64 {
        Floor::new(name.parse().unwrap(), Tier::Avx512, false).unwrap().packet(text, &SKYLAKE)
    }

    #[test]
    fn floors_are_those_one_counts_by_hand() {
        assert_eq!(floor("aes-128-gcm-16", 64), 50.0);
        assert_eq!(floor("aes-256-gcm-16", 64), 70.0);
        assert_eq!(floor("aes-128-gmac-16", 64), 18.0);
        assert_eq!(floor("aes-128-ccm-16", 64), 110.0);
        assert_eq!(floor("aes-128-cbc+aes-xcbc-96", 64), 100.0);
        // 88 bytes hashed: two blocks and the outer one.
        let sha1 = floor("null+hmac-sha1-96", 80);
        assert!((sha1 - 3.0 * 757.0 / 32.0).abs() < 1e-9);
        let both = floor("aes-128-cbc+hmac-sha1-96", 64);
        assert!((both - 40.0 - 3.0 * 757.0 / 32.0).abs() < 1e-9);
    }

    #[test]
    fn hash_blocks_follow_the_padding() {
        let blocks = |text| floor("null+hmac-sha256-128", text) / (1624.0 / 32.0);
        // 8 bytes of header: 55 bytes fit into one block with their padding, 56 do not.
        assert!((blocks(47) - 2.0).abs() < 1e-9);
        assert!((blocks(48) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn shared_ports_add_up() {
        let floor = Floor::new("aes-128-gcm-16".parse().unwrap(), Tier::Avx512, false).unwrap();
        let shared = Rates { both: 13.0, ..SKYLAKE };
        assert_eq!(floor.packet(64, &shared), 50.0 + 18.0);
    }

    #[test]
    fn portable_tier_has_no_floor() {
        assert!(Floor::new(Suite::ChaCha20Poly1305, Tier::Portable, false).is_none());
    }
}
