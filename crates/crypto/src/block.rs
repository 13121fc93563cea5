//! Plain key material in the layouts that kernels read: sixteen-byte blocks, AES round keys, and the
//! keys of the MACs. Whoever holds one wipes it on drop.

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{HashAlg, KeyBits, secret::wipe};

/// Sixteen bytes that can be loaded with an aligned load.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Block(pub(crate) [u8; 16]);

impl Block {
    pub(crate) const ZERO: Self = Self([0; 16]);
}

impl Zeroize for Block {
    #[inline]
    fn zeroize(&mut self) {
        wipe(&mut self.0, 0);
    }
}

/// Most round keys a key size has: those of AES-256.
pub(crate) const ROUND_KEYS: usize = 15;

/// AES round keys in the order in which they are used (FIPS 197 section 5.2); behind those of the
/// key size, zeros.
///
/// For decryption they are those of the equivalent inverse cipher (section 5.3.5): the order
/// reversed, and all but the first and the last passed through InvMixColumns.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
pub(crate) struct RoundKeys(pub(crate) [Block; ROUND_KEYS]);

impl RoundKeys {
    /// Round keys yet to be filled in, already where they will stay.
    pub(crate) const fn zeroed() -> Self {
        Self([Block::ZERO; ROUND_KEYS])
    }

    /// The round keys that a size has: 11, 13 or 15.
    #[inline(always)]
    pub(crate) fn of(&self, bits: KeyBits) -> &[Block] {
        &self.0[..=bits.rounds()]
    }
}

/// The key of a MAC in the CBC-MAC family, AES-XCBC (RFC 3566) or AES-CMAC (NIST SP 800-38B): the
/// cipher's round keys, what is added to a last block that is whole, and what is added to one that
/// was padded.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
pub(crate) struct CbcMacKey {
    pub(crate) round_keys: RoundKeys,
    pub(crate) whole: Block,
    pub(crate) padded: Block,
}

impl CbcMacKey {
    /// A key yet to be filled in, already where it will stay.
    pub(crate) const fn zeroed() -> Self {
        Self { round_keys: RoundKeys::zeroed(), whole: Block::ZERO, padded: Block::ZERO }
    }
}

/// The key of an HMAC (RFC 2104): the hash's chaining values after the one block of inner and of
/// outer padding. Words are in the machine's byte order: 4, 5 or 8 of 32 bits for MD5, SHA-1,
/// SHA-224 and SHA-256, 8 of 64 bits for SHA-384 and SHA-512; behind them, zeros.
#[repr(C, align(64))]
pub(crate) struct HmacKey {
    pub(crate) inner: [u8; 64],
    pub(crate) outer: [u8; 64],
}

impl HmacKey {
    /// A key yet to be filled in, already where it will stay.
    pub(crate) const fn zeroed() -> Self {
        Self { inner: [0; 64], outer: [0; 64] }
    }
}

impl Zeroize for HmacKey {
    #[inline]
    fn zeroize(&mut self) {
        wipe(&mut self.inner, 0);
        wipe(&mut self.outer, 0);
    }
}

impl Drop for HmacKey {
    #[inline]
    fn drop(&mut self) {
        self.zeroize();
    }
}

/// A chaining value in the layout of [`HmacKey`] as bytes of a digest, and how many there are.
pub(crate) fn digest_bytes(alg: HashAlg, state: &[u8; 64]) -> ([u8; 64], usize) {
    let mut bytes = *state;
    match alg {
        HashAlg::Md5 if cfg!(target_endian = "little") => {}
        HashAlg::Sha384 | HashAlg::Sha512 if cfg!(target_endian = "little") => {
            bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
        }
        HashAlg::Md5 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse()),
        _ if cfg!(target_endian = "little") => {
            bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
        }
        _ => {}
    }
    (bytes, alg.digest_bytes())
}

/// Twice a block in the field of NIST SP 800-38B section 5.3.
pub(crate) fn doubled(block: &[u8; 16]) -> [u8; 16] {
    let number = u128::from_be_bytes(*block);
    let carry = 0u128.wrapping_sub(number >> 127);
    ((number << 1) ^ (carry & 0x87)).to_be_bytes()
}

/// The key of ChaCha20-Poly1305.
#[derive(Zeroize, ZeroizeOnDrop)]
#[repr(C, align(16))]
pub(crate) struct ChaChaKey(pub(crate) [u8; 32]);
