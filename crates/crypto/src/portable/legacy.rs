//! The ciphers of old peers over RustCrypto's `des`, `camellia` and `cbc`, one packet after another.
//!
//! `des` and `camellia` look tables up at places that depend on the key and the text, so who shares a
//! cache with them may learn of both. No tier has anything better.

use camellia::{Camellia128, Camellia192, Camellia256};
use cbc::{
    Decryptor, Encryptor,
    cipher::{
        Block, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt,
        InnerIvInit, Key, KeyInit,
    },
};
use des::TdesEde3;

use crate::{KeyBits, KeyError, memory::try_box};

/// A key, expanded for both directions. It is boxed, so that moving it leaves no copy behind, and wiped
/// on drop by the features `zeroize` of its crates.
pub(crate) enum LegacyKey {
    TripleDes(Box<TdesEde3>),
    Camellia128(Box<Camellia128>),
    Camellia192(Box<Camellia192>),
    Camellia256(Box<Camellia256>),
}

impl LegacyKey {
    /// A key of 24 bytes; their parity bits are ignored.
    ///
    /// # Errors
    /// [`KeyError::Length`]
    pub(crate) fn triple_des(secret: &[u8]) -> Result<Self, KeyError> {
        Ok(Self::TripleDes(expand(secret)?))
    }

    /// A key of as many bytes as `bits` says.
    ///
    /// # Errors
    /// [`KeyError::Length`]
    pub(crate) fn camellia(bits: KeyBits, secret: &[u8]) -> Result<Self, KeyError> {
        Ok(match bits {
            KeyBits::Aes128 => Self::Camellia128(expand(secret)?),
            KeyBits::Aes192 => Self::Camellia192(expand(secret)?),
            KeyBits::Aes256 => Self::Camellia256(expand(secret)?),
        })
    }

    /// Encrypts whole blocks. The IV is as much of `iv`'s front as a block has.
    pub(crate) fn cbc_encrypt(&self, iv: &[u8; 16], data: &mut [u8]) {
        match self {
            Self::TripleDes(key) => encrypt(&**key, iv, data),
            Self::Camellia128(key) => encrypt(&**key, iv, data),
            Self::Camellia192(key) => encrypt(&**key, iv, data),
            Self::Camellia256(key) => encrypt(&**key, iv, data),
        }
    }

    /// Decrypts whole blocks.
    pub(crate) fn cbc_decrypt(&self, iv: &[u8; 16], data: &mut [u8]) {
        match self {
            Self::TripleDes(key) => decrypt(&**key, iv, data),
            Self::Camellia128(key) => decrypt(&**key, iv, data),
            Self::Camellia192(key) => decrypt(&**key, iv, data),
            Self::Camellia256(key) => decrypt(&**key, iv, data),
        }
    }
}

fn expand<C: KeyInit>(secret: &[u8]) -> Result<Box<C>, KeyError> {
    let wrong = || KeyError::Length { expected: Key::<C>::default().len(), given: secret.len() };
    let key = <&Key<C>>::try_from(secret).map_err(|_| wrong())?;
    Ok(try_box(C::new(key))?)
}

fn encrypt<C: BlockCipherEncrypt>(key: &C, iv: &[u8; 16], data: &mut [u8]) {
    if let [iv, ..] = Block::<C>::slice_as_chunks(iv).0 {
        let blocks = Block::<C>::slice_as_chunks_mut(data).0;
        Encryptor::inner_iv_init(key, iv).encrypt_blocks(blocks);
    }
}

fn decrypt<C: BlockCipherDecrypt>(key: &C, iv: &[u8; 16], data: &mut [u8]) {
    if let [iv, ..] = Block::<C>::slice_as_chunks(iv).0 {
        let blocks = Block::<C>::slice_as_chunks_mut(data).0;
        Decryptor::inner_iv_init(key, iv).decrypt_blocks(blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Suite;

    fn hex<const N: usize>(digits: &str) -> [u8; N] {
        let byte = |i: usize| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap();
        std::array::from_fn(byte)
    }

    /// CBC of one block without an IV is the cipher alone.
    fn assert_block(key: &LegacyKey, plain: &[u8], sealed: &[u8]) {
        let mut data = plain.to_vec();
        key.cbc_encrypt(&[0; 16], &mut data);
        assert_eq!(data, sealed);
        key.cbc_decrypt(&[0; 16], &mut data);
        assert_eq!(data, plain);
    }

    /// `The quick brown fox jumped` in NIST SP 800-67 revision 1, appendix B.1.
    #[test]
    fn triple_des_gives_the_example_of_sp_800_67() {
        let key: [u8; 24] = hex("0123456789abcdef23456789abcdef01456789abcdef0123");
        let key = LegacyKey::triple_des(&key).unwrap();
        for (plain, sealed) in [
            ("5468652071756663", "a826fd8ce53b855f"),
            ("6b2062726f776e20", "cce21c8112256fe6"),
            ("666f78206a756d70", "68d5c05dd9b6b900"),
        ] {
            assert_block(&key, &hex::<8>(plain), &hex::<8>(sealed));
        }
    }

    #[test]
    fn camellia_gives_the_examples_of_rfc_3713() {
        let key: [u8; 32] = hex("0123456789abcdeffedcba987654321000112233445566778899aabbccddeeff");
        let plain: [u8; 16] = hex("0123456789abcdeffedcba9876543210");
        for (bits, sealed) in [
            (KeyBits::Aes128, "67673138549669730857065648eabe43"),
            (KeyBits::Aes192, "b4993401b3e996f84ee5cee7d79b09b9"),
            (KeyBits::Aes256, "9acc237dff16d76c20ef7c919e3a7509"),
        ] {
            let key = LegacyKey::camellia(bits, &key[..bits.bytes()]).unwrap();
            assert_block(&key, &plain, &hex::<16>(sealed));
        }
    }

    #[test]
    fn keys_of_single_des_are_refused_whatever_their_parity() {
        let suite: Suite = "3des-cbc+hmac-sha1-96".parse().unwrap();
        let parts = [[0x11; 8], [0x22; 8], [0x33; 8]];
        let made = |order: [usize; 3], parity: usize| {
            let mut key = order.map(|i| parts[i]).concat();
            key[parity] ^= 1;
            suite.check_key(&key)
        };
        for parity in 0..24 {
            for order in [[0, 0, 1], [0, 1, 1], [2, 2, 2]] {
                assert_eq!(made(order, parity), Err(KeyError::SingleDes), "{order:?}");
            }
            for order in [[0, 1, 2], [0, 1, 0]] {
                assert_eq!(made(order, parity), Ok(()), "{order:?}");
            }
        }
        let error = KeyError::Length { expected: 24, given: 16 };
        assert_eq!(suite.check_key(&[1; 16]), Err(error));
        assert_eq!(LegacyKey::triple_des(&[1; 16]).map(drop), Err(error));
    }

    #[test]
    fn parity_bits_change_nothing() {
        let key: [u8; 24] = hex("0123456789abcdef23456789abcdef01456789abcdef0123");
        let sealed = |key: &[u8]| {
            let mut data = [7; 32];
            LegacyKey::triple_des(key).unwrap().cbc_encrypt(&[9; 16], &mut data);
            data
        };
        let flipped = key.map(|byte| byte ^ 1);
        assert_eq!(sealed(&flipped), sealed(&key));
        assert_ne!(sealed(&key.map(|byte| byte ^ 2)), sealed(&key));
    }
}
