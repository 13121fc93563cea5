//! Keys of AEADs over memory of the caller's: tables that are expanded where the caller wants them, and keys that
//! borrow those.

use std::{fmt, marker::PhantomData, ops::Deref};

use zeroize::Zeroize;

use crate::{
    AeadKey, Cpu, GcmParams, IcvLen, KeyBits, KeyError, Suite, Tier, WideUnits,
    block::ChaChaKey,
    isa::{Kernel, Tables, wipe_general_registers},
    key::Schedule,
    memory::Held,
    secret::{depth, scrubbed_to},
};

/// Expanded key of AES-GCM, in memory of the caller's choice.
///
/// It is made of integers alone, in C's layout, of 1,008 bytes with an alignment of 16, so memory of its size and alignment may be
/// looked at as one of these whatever it holds, and copied like any other bytes. It is fastest where it begins a cache line. At its front are the round keys, which begin with the key itself.
/// Which key size it is for, the caller remembers: a key made for another size computes nonsense. What is secret is
/// wiped on drop.
#[repr(transparent)]
pub struct GcmTables(Tables);

impl GcmTables {
    /// Room for tables.
    pub const EMPTY: Self = Self(Tables::EMPTY);
}

impl fmt::Debug for GcmTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GcmTables(..)")
    }
}

/// The secret of ChaCha20-Poly1305 where keys can borrow it. Wiped on drop.
#[repr(transparent)]
pub struct ChaChaSecret(ChaChaKey);

impl ChaChaSecret {
    /// Room for a secret.
    pub const EMPTY: Self = Self(ChaChaKey([0; 32]));

    /// Takes a secret.
    #[inline]
    pub fn set(&mut self, secret: &[u8; 32]) {
        self.0.0 = *secret;
    }

    /// Wipes it.
    #[inline]
    pub fn wipe(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for ChaChaSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChaChaSecret(..)")
    }
}

/// Makes keys over memory of the caller's, for one tier that is not the portable one: without allocating, and in few cycles.
///
/// ```
/// use convoy_crypto::{Cpu, GcmTables, KeyBits, KeyLender, manager::GcmStream};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let Some(lender) = KeyLender::best(&Cpu::detect()?) else { return Ok(()) };
/// let mut tables = GcmTables::EMPTY;
/// lender.expand(b"an example key!!", &mut tables)?;
///
/// let key = lender.gcm(KeyBits::Aes128, &tables);
/// let mut text = *b"attack at dawn";
/// let mut stream = GcmStream::seal(&*key, b"never twice!")?;
/// stream.update(&mut text)?;
/// let tag = stream.tag()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct KeyLender {
    kernel: Kernel,
    wide_units: Option<&'static WideUnits>,
}

impl KeyLender {
    /// For the best tier of `cpu`; none if that is the portable one.
    #[must_use]
    pub fn best(cpu: &Cpu) -> Option<Self> {
        Self::with_tier(cpu, cpu.best()).ok()
    }

    /// For a tier of the caller's choice.
    ///
    /// # Errors
    ///
    /// [`KeyError::TierUnavailable`] if `cpu` lacks the tier, and for the portable one.
    pub fn with_tier(cpu: &Cpu, tier: Tier) -> Result<Self, KeyError> {
        let kernel = cpu.proofs().kernel(tier).ok_or(KeyError::TierUnavailable(tier))?;
        Ok(Self { kernel, wide_units: cpu.wide_units() })
    }

    /// Expands a key of AES-GCM of 16, 24 or 32 bytes.
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`] for any other length; then nothing is changed.
    pub fn expand(&self, key: &[u8], tables: &mut GcmTables) -> Result<(), KeyError> {
        let bits = KeyBits::from_bits(key.len().saturating_mul(8));
        let bits = bits.ok_or(KeyError::Length { expected: 16, given: key.len() })?;
        scrubbed_to::<{ depth::GCM_KEY }, _>(|| {
            // Of a key of another size none of the round keys are left.
            tables.0 = Tables::EMPTY;
            self.kernel.expand_into(bits, key, &mut tables.0);
        });
        wipe_general_registers();
        Ok(())
    }

    /// Wipes the registers that a function need not keep, of the widest that kernels use here: copies of secrets go through them.
    #[inline]
    pub fn wipe_registers(&self) {
        self.kernel.wipe_registers();
    }

    /// Expands a key of GHASH that no key of AES made. Of such tables [`ghash`](Self::ghash) alone computes sense.
    pub fn expand_hash_key(&self, h: &[u8; 16], tables: &mut GcmTables) {
        scrubbed_to::<{ depth::GCM_KEY }, _>(|| {
            tables.0 = Tables::EMPTY;
            self.kernel.expand_hash_key(h, &mut tables.0);
        });
        wipe_general_registers();
    }

    /// Goes on with GHASH (NIST SP 800-38D section 6.4): `hash` is what came out so far, at first zeros, and becomes the
    /// hash of that and of `data`, whose last block is padded with zeros. Lengths are the caller's to hash.
    pub fn ghash(&self, tables: &GcmTables, hash: &mut [u8; 16], data: &[u8]) {
        let mut add = |block: &[u8], others: &[[u8; 16]]| {
            hash.iter_mut().zip(block).for_each(|(to, byte)| *to ^= byte);
            self.kernel.ghash_on(&tables.0, hash, others);
        };
        let (blocks, rest) = data.as_chunks();
        if let Some((first, others)) = blocks.split_first() {
            add(first, others);
        }
        if !rest.is_empty() {
            add(rest, &[]);
        }
        self.kernel.wipe_registers();
    }

    /// A key of AES-GCM with tags of 16 bytes.
    #[inline]
    #[must_use]
    pub fn gcm<'t>(&self, bits: KeyBits, tables: &'t GcmTables) -> LentKey<'t> {
        // SAFETY: the key that this goes into cannot be had apart from the lifetime of what is borrowed.
        let tables = unsafe { Held::lent(&tables.0) };
        let suite = Suite::Gcm(GcmParams::new(bits, IcvLen::Icv16));
        self.lend(suite, Schedule::Gcm { kernel: self.kernel, tables })
    }

    /// A key of ChaCha20-Poly1305.
    #[inline]
    #[must_use]
    pub fn chacha20_poly1305<'t>(&self, secret: &'t ChaChaSecret) -> LentKey<'t> {
        // SAFETY: as above.
        let key = unsafe { Held::lent(&secret.0) };
        let (kernel, wide_units) = (Some(self.kernel), self.wide_units);
        self.lend(Suite::ChaCha20Poly1305, Schedule::ChaCha { kernel, wide_units, key })
    }

    #[inline]
    fn lend<'t>(&self, suite: Suite, schedule: Schedule) -> LentKey<'t> {
        let key = AeadKey::expanded(suite, self.kernel.tier(), schedule);
        LentKey { key, lender: PhantomData }
    }
}

/// A key over memory that is borrowed as long as the key is used. It can be looked at, not taken or changed.
#[derive(Debug)]
pub struct LentKey<'t> {
    key: AeadKey,
    lender: PhantomData<&'t ()>,
}

impl Deref for LentKey<'_> {
    type Target = AeadKey;

    #[inline(always)]
    fn deref(&self) -> &AeadKey {
        &self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Nonce, OpenOp, SealOp, SecretBytes, Verdict, open_burst, seal_burst};

    fn sealed(key: &AeadKey) -> ([u8; 99], [u8; 16]) {
        let (mut text, mut tag) = ([7; 99], [0; 16]);
        let nonce = Nonce::new([9; 12]);
        seal_burst(&mut [SealOp::with_aead_key(key, nonce, b"aad", &mut text, &mut tag).unwrap()]);
        (text, tag)
    }

    fn sealed_of(key: &AeadKey, text: &[u8]) -> (Vec<u8>, [u8; 16]) {
        let (mut text, mut tag) = (text.to_vec(), [0; 16]);
        let nonce = Nonce::new([9; 12]);
        seal_burst(&mut [SealOp::with_aead_key(key, nonce, b"aad", &mut text, &mut tag).unwrap()]);
        (text, tag)
    }

    fn opened(key: &AeadKey, (text, tag): &(Vec<u8>, [u8; 16])) -> Vec<u8> {
        let mut text = text.clone();
        let mut ops = [OpenOp::with_aead_key(key, [9; 12], b"aad", &mut text, tag).unwrap()];
        open_burst(&mut ops);
        assert_eq!(ops[0].verdict(), Verdict::Authentic);
        text
    }

    #[test]
    fn lent_keys_compute_what_owned_ones_do() {
        let cpu = Cpu::without("").unwrap();
        let secret: Vec<u8> = (3..35).collect();
        for tier in cpu.tiers().filter(|tier| *tier != Tier::Portable) {
            let lender = KeyLender::with_tier(&cpu, tier).unwrap();
            let mut tables = GcmTables::EMPTY;
            for bits in KeyBits::ALL.into_iter().rev() {
                let owned = SecretBytes::copy_from(&secret[..bits.bytes()]);
                let params = GcmParams::new(bits, IcvLen::Icv16);
                let owned = AeadKey::with_tier(&cpu, tier, params, owned).unwrap();
                lender.expand(&secret[..bits.bytes()], &mut tables).unwrap();
                assert_eq!(sealed(&lender.gcm(bits, &tables)), sealed(&owned), "{tier} {bits:?}");
            }
            let mut place = ChaChaSecret::EMPTY;
            place.set(secret.first_chunk().unwrap());
            let suite = Suite::ChaCha20Poly1305;
            let owned = AeadKey::from_slice(&cpu, tier, suite, &secret).unwrap();
            let lent = lender.chacha20_poly1305(&place);
            assert_eq!(sealed(&lent), sealed(&owned), "{tier}");
        }
        let soft = Cpu::without("aesni").unwrap();
        assert!(KeyLender::best(&soft).is_none());
    }

    /// Test case 4 of "The Galois/Counter Mode of Operation" by McGrew and Viega: what GCM hashes, and its lengths.
    #[test]
    fn ghash_goes_on_from_what_came_out() {
        let cpu = Cpu::without("").unwrap();
        let h = 0xb83b_5337_08bf_535d_0aa6_e529_80d5_3b78_u128.to_be_bytes();
        let blocks = [
            0xfeed_face_dead_beef_feed_face_dead_beef_u128,
            0xabad_dad2 << 96,
            0x4283_1ec2_2177_7424_4b72_21b7_84d0_d49c,
            0xe3aa_212f_2c02_a4e0_35c1_7e23_29ac_a12e,
            0x21d5_14b2_5466_931c_7d8f_6a5a_ac84_aa05,
            0x1ba3_0b39_6a0a_ac97_3d58_e091 << 32,
            160 << 64 | 480,
        ];
        let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.to_be_bytes()).collect();
        let expected = 0x698e_57f7_0e6e_cc7f_d946_3b72_60a9_ae5f_u128.to_be_bytes();
        for tier in cpu.tiers().filter(|tier| *tier != Tier::Portable) {
            let lender = KeyLender::with_tier(&cpu, tier).unwrap();
            let (mut apart, mut of_aes) = (GcmTables::EMPTY, GcmTables::EMPTY);
            lender.expand_hash_key(&h, &mut apart);
            let key = 0xfeff_e992_8665_731c_6d6a_8f94_6730_8308_u128.to_be_bytes();
            lender.expand(&key, &mut of_aes).unwrap();
            for tables in [&apart, &of_aes] {
                let mut whole = [0; 16];
                lender.ghash(tables, &mut whole, &bytes);
                assert_eq!(whole, expected, "{tier}");
                // In steps, of which zeros that pad a block may be left out.
                let mut steps = [0; 16];
                for part in [&bytes[..20], &bytes[32..92], &bytes[96..], &[]] {
                    lender.ghash(tables, &mut steps, part);
                }
                assert_eq!(steps, expected, "{tier}");
            }
        }
    }

    /// Against keys of the portable tier: tables anywhere in a cache line, where owned ones are not.
    #[test]
    fn tables_are_used_wherever_they_lie() {
        let cpu = Cpu::without("").unwrap();
        let tiers: Vec<Tier> = cpu.tiers().filter(|tier| *tier != Tier::Portable).collect();
        let bytes: Vec<u8> = (0..1500_u32).map(|i| ((i * i) >> 3) as u8).collect();
        for bits in KeyBits::ALL {
            let secret = &bytes[100..][..bits.bytes()];
            let suite = Suite::Gcm(GcmParams::new(bits, IcvLen::Icv16));
            let portable = AeadKey::from_slice(&cpu, Tier::Portable, suite, secret).unwrap();
            let lenders = tiers.iter().map(|tier| KeyLender::with_tier(&cpu, *tier).unwrap());
            let mut lent = Vec::new();
            for lender in lenders {
                let mut places = [const { GcmTables::EMPTY }; 4];
                places.iter_mut().for_each(|place| lender.expand(secret, place).unwrap());
                lent.push((lender, places));
            }
            for len in 0..=bytes.len() {
                let expected = sealed_of(&portable, &bytes[..len]);
                for (lender, places) in &lent {
                    let key = lender.gcm(bits, &places[len % places.len()]);
                    let tier = lender.kernel.tier();
                    assert!(sealed_of(&key, &bytes[..len]) == expected, "{tier} {bits:?} {len}");
                    assert!(opened(&key, &expected) == bytes[..len], "{tier} {bits:?} {len}");
                }
            }
        }
        assert_eq!((size_of::<GcmTables>(), align_of::<GcmTables>()), (1008, 16));
    }

    #[test]
    fn keys_of_no_size_are_refused() {
        let Some(lender) = KeyLender::best(&Cpu::without("").unwrap()) else { return };
        let error = lender.expand(&[1; 17], &mut GcmTables(Tables::EMPTY)).unwrap_err();
        assert_eq!(error, KeyError::Length { expected: 16, given: 17 });
    }
}
