//! Keys whose expansion the caller holds: as the standards write it down, one piece after another.

use zeroize::Zeroize;

use super::{AesDecryptKey, AesEncryptKey, CmacKey, Label, XcbcKey};
use crate::{
    KeyBits, KeyError,
    block::{CbcMacKey, RoundKeys},
};

/// Bytes of the round keys of a key size: 176, 208 or 240.
#[must_use]
pub const fn round_key_bytes(bits: KeyBits) -> usize {
    16 * (bits.rounds() + 1)
}

/// Takes round keys, and leaves zeros behind them.
fn take(to: &mut RoundKeys, bits: KeyBits, from: &[u8]) -> Result<(), KeyError> {
    let (expected, given) = (round_key_bytes(bits), from.len());
    if expected != given {
        return Err(KeyError::Length { expected, given });
    }
    let mut places = to.0.iter_mut();
    for (block, key) in places.by_ref().zip(from.as_chunks().0) {
        block.0 = *key;
    }
    places.for_each(Zeroize::zeroize);
    Ok(())
}

/// Gives the round keys of a key size into `out`.
fn give(from: &RoundKeys, bits: KeyBits, out: &mut [u8]) -> Result<(), KeyError> {
    let (expected, given) = (round_key_bytes(bits), out.len());
    if expected != given {
        return Err(KeyError::Length { expected, given });
    }
    for (place, block) in out.as_chunks_mut().0.iter_mut().zip(from.of(bits)) {
        *place = block.0;
    }
    Ok(())
}

macro_rules! round_keys {
    ($name:ident, $mark:expr, $order:literal) => {
        impl $name {
            #[doc = concat!("Takes round keys that were expanded before, ", $order, ".")]
            ///
            /// # Errors
            ///
            /// [`KeyError::Length`] if they do not have [`round_key_bytes`]; then nothing is changed.
            #[inline]
            pub fn set_round_keys(&mut self, bits: KeyBits, keys: &[u8]) -> Result<(), KeyError> {
                take(&mut self.body, bits, keys)?;
                self.label = Label::new($mark, bits.bits() as u32);
                Ok(())
            }

            #[doc = concat!("Writes the round keys into `out`, ", $order, ". Every caller of this is a place to review.")]
            ///
            /// # Errors
            ///
            /// [`KeyError::Length`] if `out` does not have [`round_key_bytes`] of the key that is held, or none is.
            pub fn expose_round_keys(&self, out: &mut [u8]) -> Result<(), KeyError> {
                let given = out.len();
                let bits = self.bits().ok_or(KeyError::Length { expected: 0, given })?;
                give(&self.body, bits, out)
            }
        }
    };
}

round_keys!(AesEncryptKey, Label::ENCRYPT, "in the order of FIPS 197 section 5.2");
round_keys!(
    AesDecryptKey,
    Label::DECRYPT,
    "in the order in which the equivalent inverse cipher uses them (FIPS 197 section 5.3.5)"
);

/// Takes the parts of a key of the CBC-MAC family.
fn take_mac(
    to: &mut CbcMacKey,
    bits: KeyBits,
    keys: &[u8],
    whole: &[u8; 16],
    padded: &[u8; 16],
) -> Result<(), KeyError> {
    take(&mut to.round_keys, bits, keys)?;
    (to.whole.0, to.padded.0) = (*whole, *padded);
    Ok(())
}

impl XcbcKey {
    /// Takes the round keys of K1, and K2 and K3 (RFC 3566 section 4).
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`] if the round keys do not have 176 bytes; then nothing is changed.
    #[inline]
    pub fn set_parts(&mut self, k1: &[u8], k2: &[u8; 16], k3: &[u8; 16]) -> Result<(), KeyError> {
        take_mac(&mut self.body, KeyBits::Aes128, k1, k2, k3)?;
        self.label = Label::new(Label::XCBC, KeyBits::Aes128.bits() as u32);
        Ok(())
    }

    /// Writes the round keys of K1 into `k1`, and gives K2 and K3. Every caller of this is a place to review.
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`] if `k1` does not have 176 bytes.
    pub fn expose_parts(&self, k1: &mut [u8]) -> Result<[&[u8; 16]; 2], KeyError> {
        give(&self.body.round_keys, KeyBits::Aes128, k1)?;
        Ok([&self.body.whole.0, &self.body.padded.0])
    }
}

impl CmacKey {
    /// Takes round keys and the subkeys K1 and K2 (NIST SP 800-38B section 6.1).
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`] if the round keys do not have [`round_key_bytes`]; then nothing is changed.
    #[inline]
    pub fn set_parts(
        &mut self,
        bits: KeyBits,
        keys: &[u8],
        k1: &[u8; 16],
        k2: &[u8; 16],
    ) -> Result<(), KeyError> {
        take_mac(&mut self.body, bits, keys, k1, k2)?;
        self.label = Label::new(Label::CMAC, bits.bits() as u32);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cpu;

    #[test]
    fn keys_in_parts_are_those_that_were_expanded() {
        let cpu = Cpu::without("").unwrap();
        for bits in KeyBits::ALL {
            let (mut enc, mut dec) = (AesEncryptKey::empty(), AesDecryptKey::empty());
            enc.set(&cpu, &[7; 32][..bits.bytes()]).unwrap();
            dec.set(&cpu, &enc);
            let mut keys = vec![0; round_key_bytes(bits)];
            enc.expose_round_keys(&mut keys).unwrap();
            assert_eq!(keys[..16], [7; 16]);
            let mut copy = AesEncryptKey::empty();
            copy.set_round_keys(bits, &keys).unwrap();
            assert_eq!(copy.bits(), Some(bits));
            assert!(copy.body.0.iter().zip(&enc.body.0).all(|(a, b)| a.0 == b.0));
            dec.expose_round_keys(&mut keys).unwrap();
            let mut copy = AesDecryptKey::empty();
            copy.set_round_keys(bits, &keys).unwrap();
            assert!(copy.body.0.iter().zip(&dec.body.0).all(|(a, b)| a.0 == b.0));
            let error = copy.set_round_keys(bits, &keys[1..]).unwrap_err();
            assert_eq!(error, KeyError::Length { expected: keys.len(), given: keys.len() - 1 });
            assert!(AesEncryptKey::empty().expose_round_keys(&mut keys).is_err());
        }
    }

    #[test]
    fn macs_in_parts_are_those_that_were_derived() {
        let cpu = Cpu::without("").unwrap();
        let mut xcbc = XcbcKey::empty();
        xcbc.set(&cpu, &[5; 16]).unwrap();
        let mut k1 = [0; 176];
        let [k2, k3] = xcbc.expose_parts(&mut k1).unwrap();
        let mut copy = XcbcKey::empty();
        copy.set_parts(&k1, k2, k3).unwrap();
        assert!(copy.is_set() && copy.body.padded.0 == *k3 && copy.body.whole.0 == *k2);
        let mut cmac = CmacKey::empty();
        assert!(cmac.set_parts(KeyBits::Aes256, &k1, k2, k3).is_err());
        assert_eq!(cmac.bits(), None);
        cmac.set_parts(KeyBits::Aes128, &k1, k2, k3).unwrap();
        assert_eq!(cmac.bits(), Some(KeyBits::Aes128));
    }
}
