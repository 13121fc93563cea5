//! Expanding keys.

use zeroize::Zeroize;

use super::super::{
    lanes::{B, Lanes},
    token::Task,
};
use crate::{
    KeyBits, MacAlg,
    block::{CbcMacKey, RoundKeys},
    portable::aes::doubled,
};

/// Expands a key for encryption (FIPS 197 section 5.2).
pub(super) struct ExpandEncrypt<'k> {
    pub(super) bits: KeyBits,
    pub(super) key: &'k [u8],
    pub(super) keys: &'k mut RoundKeys,
}

impl<L: Lanes> Task<L> for ExpandEncrypt<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: L) {
        expand(token, self.bits, self.key, self.keys);
    }
}

/// Turns round keys around for decryption (FIPS 197 section 5.3.5).
pub(super) struct ExpandDecrypt<'k> {
    pub(super) bits: KeyBits,
    pub(super) forward: &'k RoundKeys,
    pub(super) keys: &'k mut RoundKeys,
}

impl<L: Lanes> Task<L> for ExpandDecrypt<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        let rounds = self.bits.rounds();
        let forward = self.forward.of(self.bits).iter().rev();
        for (i, (to, from)) in self.keys.0.iter_mut().zip(forward).enumerate() {
            let key = l.table(from);
            let key = if i == 0 || i == rounds { key } else { l.aes_unmix(key) };
            l.store(&mut to.0, key);
        }
    }
}

/// Expands the key of AES-XCBC or AES-CMAC; leaves `out` alone for any other MAC.
pub(super) struct ExpandCbcMac<'k> {
    pub(super) alg: MacAlg,
    pub(super) key: &'k [u8],
    pub(super) out: &'k mut CbcMacKey,
}

impl<L: Lanes> Task<L> for ExpandCbcMac<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        let Self { alg, key, out } = self;
        match alg {
            // RFC 3566 section 4.
            MacAlg::AesXcbc => {
                let bits = KeyBits::Aes128;
                expand(l, bits, key, &mut out.round_keys);
                let derive = |keys, byte| l.to_bytes(encrypt(l, bits, keys, l.load(&[byte; 16])));
                let mut first = derive(&out.round_keys, 1);
                out.whole.0 = derive(&out.round_keys, 2);
                out.padded.0 = derive(&out.round_keys, 3);
                expand(l, bits, &first, &mut out.round_keys);
                first.zeroize();
            }
            // NIST SP 800-38B section 6.1.
            MacAlg::AesCmac(bits) => {
                expand(l, bits, key, &mut out.round_keys);
                let mut zero = l.to_bytes(encrypt(l, bits, &out.round_keys, l.zero()));
                out.whole.0 = doubled(&zero);
                out.padded.0 = doubled(&out.whole.0);
                zero.zeroize();
            }
            MacAlg::Null | MacAlg::Hmac(_) => {}
        }
    }
}

/// Expands a key (FIPS 197 section 5.2).
#[inline(always)]
pub(in crate::isa::x86) fn expand<L: Lanes>(l: L, bits: KeyBits, key: &[u8], keys: &mut RoundKeys) {
    let (nk, rounds) = (bits.bytes() / 4, bits.rounds());
    let mut words = [0u32; 60];
    for (word, bytes) in words.iter_mut().zip(key.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    let mut rcon = 1u32;
    for i in nk..4 * (rounds + 1) {
        let mut word = words[i - 1];
        if i % nk == 0 {
            word = sub_word(l, word.rotate_right(8)) ^ rcon;
            rcon = (rcon << 1) ^ ((rcon >> 7) * 0x11b);
        } else if nk > 6 && i % nk == 4 {
            word = sub_word(l, word);
        }
        words[i] = words[i - nk] ^ word;
    }
    for (block, four) in keys.0.iter_mut().zip(words.as_chunks::<4>().0) {
        for (bytes, word) in block.0.as_chunks_mut::<4>().0.iter_mut().zip(four) {
            *bytes = word.to_le_bytes();
        }
    }
    words.zeroize();
}

/// AES's S-box on each byte of a word: with four equal columns the last round does nothing else.
#[inline(always)]
fn sub_word<L: Lanes>(l: L, word: u32) -> u32 {
    let word = word as i32;
    l.low_word(l.aes_last(l.quad(word, word, word, word), l.zero())) as u32
}

/// Encrypts a single block.
#[inline(always)]
pub(in crate::isa::x86) fn encrypt<L: Lanes>(l: L, bits: KeyBits, keys: &RoundKeys, block: B) -> B {
    let mut state = l.xor(block, l.table(&keys.0[0]));
    for key in &keys.0[1..10] {
        state = l.aes_round(state, l.table(key));
    }
    for key in &keys.0[10..bits.rounds()] {
        state = l.aes_round(state, l.table(key));
    }
    l.aes_last(state, l.table(&keys.0[bits.rounds()]))
}
