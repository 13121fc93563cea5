//! GHASH alone, for drivers that encrypt and hash in two passes.

use std::fmt;

use crate::{
    Cpu, KeyBits, KeyError, SecretBytes, Tier,
    isa::{Kernel, Tables},
    memory::Lined,
    portable::SoftKey,
    secret::scrubbed,
};

/// The hash key that an AES key has in GCM (NIST SP 800-38D section 6.4), for measuring what it costs to
/// hash apart from encrypting. One packet at a time; combined AEADs are faster.
///
/// On the portable tier the stack is not wiped behind a packet.
pub struct GhashKey(Implementation);

/// Software, or a kernel with its tables.
enum Implementation {
    Soft(SoftKey),
    Fast(Kernel, Box<Lined<Tables>>),
}

impl GhashKey {
    /// The hash key of an AES key, for a tier: RustCrypto's software, or carry-less multiplications.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the key is none of AES, or `cpu` lacks the tier.
    pub fn with_tier(cpu: &Cpu, tier: Tier, key: &SecretBytes) -> Result<Self, KeyError> {
        let given = key.len();
        let wrong = KeyError::Length { expected: KeyBits::Aes128.bytes(), given };
        let bits = KeyBits::from_bits(given * 8).ok_or(wrong)?;
        scrubbed(|| match cpu.proofs().kernel(tier) {
            Some(kernel) => Ok(Implementation::Fast(kernel, kernel.expand(bits, key.expose())?)),
            None if tier == Tier::Portable => {
                SoftKey::new(bits, key.expose()).map(Implementation::Soft)
            }
            None => Err(KeyError::TierUnavailable(tier)),
        })
        .map(Self)
    }

    /// The hash of additional data and ciphertext, each padded, and of their lengths: what GCM's tag is
    /// before it is masked.
    #[must_use]
    pub fn hash(&self, aad: &[u8], data: &[u8]) -> [u8; 16] {
        match &self.0 {
            Implementation::Soft(key) => key.ghash(aad, data),
            Implementation::Fast(kernel, tables) => kernel.ghash(&tables.0, aad, data),
        }
    }
}

impl fmt::Debug for GhashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GhashKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test case 4 of "The Galois/Counter Mode of Operation" by McGrew and Viega.
    #[test]
    fn a_hash_is_that_of_gcm_s_specification() {
        let cpu = Cpu::without("").unwrap();
        let key = 0xfeff_e992_8665_731c_6d6a_8f94_6730_8308_u128.to_be_bytes();
        let aad = [[0xfe, 0xed, 0xfa, 0xce], [0xde, 0xad, 0xbe, 0xef]].concat().repeat(2);
        let aad = [aad, vec![0xab, 0xad, 0xda, 0xd2]].concat();
        let text = [
            0x4283_1ec2_2177_7424_4b72_21b7_84d0_d49c_u128,
            0xe3aa_212f_2c02_a4e0_35c1_7e23_29ac_a12e,
            0x21d5_14b2_5466_931c_7d8f_6a5a_ac84_aa05,
            0x1ba3_0b39_6a0a_ac97_3d58_e091_0000_0000,
        ];
        let text: Vec<u8> = text.iter().flat_map(|block| block.to_be_bytes()).take(60).collect();
        let expected = 0x698e_57f7_0e6e_cc7f_d946_3b72_60a9_ae5f_u128.to_be_bytes();
        for tier in cpu.tiers() {
            let key = GhashKey::with_tier(&cpu, tier, &SecretBytes::copy_from(&key)).unwrap();
            assert_eq!(key.hash(&aad, &text), expected, "{tier}");
        }
    }

    #[test]
    fn tiers_agree_on_every_length() {
        let cpu = Cpu::without("").unwrap();
        let bytes: Vec<u8> = (0..900_u32).map(|i| ((i * i) >> 3) as u8).collect();
        for bits in KeyBits::ALL {
            let key = SecretBytes::copy_from(&bytes[..bits.bytes()]);
            let of = |tier| GhashKey::with_tier(&cpu, tier, &key).unwrap();
            let soft = of(Tier::Portable);
            for tier in cpu.tiers() {
                let fast = of(tier);
                for len in (0..400).chain([899]) {
                    let (aad, data) = (&bytes[..len % 37], &bytes[..len]);
                    assert_eq!(fast.hash(aad, data), soft.hash(aad, data), "{tier}, {len} bytes");
                }
            }
        }
        let error = GhashKey::with_tier(&cpu, Tier::Portable, &SecretBytes::copy_from(&[0; 17]));
        assert_eq!(error.unwrap_err(), KeyError::Length { expected: 16, given: 17 });
    }
}
