//! Expanding keys.

use zeroize::Zeroize;

use super::super::{
    lanes::{B, Lanes},
    token::Task,
};
use crate::{
    KeyBits, MacAlg,
    block::{CbcMacKey, RoundKeys, doubled},
    pairs::PairedWith,
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
        for (i, (to, from)) in self.keys.0.iter_mut().paired_with(forward).enumerate() {
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
                // No closure: those are not always inlined, and then instructions are not either.
                let mut derived = [[1; 16], [2; 16], [3; 16]];
                for block in &mut derived {
                    *block = l.to_bytes(encrypt(l, bits, &out.round_keys, l.load(block)));
                }
                let [mut first, whole, padded] = derived;
                (out.whole.0, out.padded.0) = (whole, padded);
                derived.zeroize();
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
    match (bits, key.as_chunks::<16>()) {
        (KeyBits::Aes128, ([key], [])) => expand128(l, key, keys),
        (KeyBits::Aes256, ([low, high], [])) => expand256(l, low, high, keys),
        // Its six words do not go into registers of four.
        _ => expand_words(l, bits, key, keys),
    }
}

#[inline(always)]
fn expand128<L: Lanes>(l: L, key: &[u8; 16], keys: &mut RoundKeys) {
    let mut key = l.load(key);
    let mut rcon = 1;
    for (i, to) in keys.0.iter_mut().take(11).enumerate() {
        if i > 0 {
            key = l.xor(sums(l, key), sub_last(l, key, true, rcon));
            rcon = next_rcon(rcon);
        }
        l.store(&mut to.0, key);
    }
}

#[inline(always)]
fn expand256<L: Lanes>(l: L, low: &[u8; 16], high: &[u8; 16], keys: &mut RoundKeys) {
    let (mut low, mut high) = (l.load(low), l.load(high));
    let mut rcon = 1;
    for (i, to) in keys.0.iter_mut().enumerate() {
        if i >= 2 && i % 2 == 0 {
            low = l.xor(sums(l, low), sub_last(l, high, true, rcon));
            rcon = next_rcon(rcon);
        } else if i >= 2 {
            high = l.xor(sums(l, high), sub_last(l, low, false, 0));
        }
        l.store(&mut to.0, if i % 2 == 0 { low } else { high });
    }
}

/// Each word with those in front of it added.
#[inline(always)]
fn sums<L: Lanes>(l: L, key: B) -> B {
    let pairs = l.xor(key, l.words_up(key));
    l.xor(pairs, l.low_to_high(pairs))
}

/// AES's S-box on each byte of the last word, which may be rotated before by a byte, and the round
/// constant; in every place.
#[inline(always)]
fn sub_last<L: Lanes>(l: L, key: B, rotated: bool, rcon: i32) -> B {
    let order = if rotated { 0x0c0f_0e0d } else { 0x0f0e_0d0c };
    let word = l.shuffle(key, l.quad(order, order, order, order));
    // With four equal columns the last round is the S-box and the key.
    l.aes_last(word, l.quad(rcon, rcon, rcon, rcon))
}

/// Doubles a round constant in the field of AES (FIPS 197 section 5.2).
#[inline(always)]
const fn next_rcon(rcon: i32) -> i32 {
    (rcon << 1) ^ ((rcon >> 7) * 0x11b)
}

#[inline(always)]
fn expand_words<L: Lanes>(l: L, bits: KeyBits, key: &[u8], keys: &mut RoundKeys) {
    let (nk, rounds) = (bits.bytes() / 4, bits.rounds());
    let mut words = [0u32; 60];
    for (word, bytes) in words.iter_mut().paired_with(key.as_chunks::<4>().0) {
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
    for (block, four) in keys.0.iter_mut().paired_with(words.as_chunks::<4>().0) {
        for (bytes, word) in block.0.as_chunks_mut::<4>().0.iter_mut().paired_with(four) {
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
