//! AES modes over RustCrypto's `aes`.
//!
//! Keys arrive as round keys, in the layout that every tier shares; the schedule that `aes` wants is
//! made again from the first of them for each packet. That is a small part of what software AES
//! costs.

use aes::{
    Aes128, Aes192, Aes256, Block as AesBlock,
    cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit},
    hazmat,
};
use zeroize::Zeroize;

use crate::{
    KeyBits, MacAlg,
    block::{Block, CbcMacKey, RoundKeys, doubled},
    isa::job::{CbcMacJob, CcmJob, CipherJob},
};

/// Blocks in one call; RustCrypto's bit-sliced AES takes four at once.
const BATCH: usize = 8;

/// See [`pass::aes::expand_encrypt`](crate::pass::aes::expand_encrypt).
pub(crate) fn expand_encrypt(bits: KeyBits, key: &[u8], keys: &mut RoundKeys) {
    let nk = bits.bytes() / 4;
    let words = keys.0.as_mut_slice();
    let mut last = [0; 4];
    let mut rcon = 1u8;
    for i in 0..4 * (bits.rounds() + 1) {
        let mut word = match key.as_chunks::<4>().0.get(i) {
            Some(word) => *word,
            None => [0; 4],
        };
        if i >= nk {
            if i % nk == 0 {
                last.rotate_left(1);
                last = sub_word(last);
                last[0] ^= rcon;
                rcon = (rcon << 1) ^ ((rcon >> 7) * 0x1b);
            } else if nk > 6 && i % nk == 4 {
                last = sub_word(last);
            }
            word = word_of(words, i - nk);
            word.iter_mut().zip(last).for_each(|(word, last)| *word ^= last);
        }
        words[i / 4].0.as_chunks_mut().0[i % 4] = word;
        last = word;
    }
    last.zeroize();
}

fn word_of(keys: &[Block], i: usize) -> [u8; 4] {
    keys[i / 4].0.as_chunks().0[i % 4]
}

/// AES's S-box on each byte of a word: where all columns are equal, a round without its MixColumns
/// does nothing else.
fn sub_word(word: [u8; 4]) -> [u8; 4] {
    let mut block = AesBlock::default();
    block.0.as_chunks_mut().0.fill(word);
    hazmat::cipher_round(&mut block, &AesBlock::default());
    hazmat::inv_mix_columns(&mut block);
    let [word, ..] = *block.0.as_chunks().0 else { return [0; 4] };
    block.0.zeroize();
    word
}

/// See [`pass::aes::expand_decrypt`](crate::pass::aes::expand_decrypt).
pub(crate) fn expand_decrypt(bits: KeyBits, forward: &RoundKeys, keys: &mut RoundKeys) {
    let rounds = bits.rounds();
    for (i, (to, from)) in keys.0.iter_mut().zip(forward.of(bits).iter().rev()).enumerate() {
        let mut block = AesBlock::from(from.0);
        if i != 0 && i != rounds {
            hazmat::inv_mix_columns(&mut block);
        }
        to.0 = block.0;
        block.0.zeroize();
    }
}

/// See [`pass::aes::expand_cbc_mac`](crate::pass::aes::expand_cbc_mac).
pub(crate) fn expand_cbc_mac(alg: MacAlg, key: &[u8], out: &mut CbcMacKey) {
    match alg {
        MacAlg::AesXcbc => {
            expand_encrypt(KeyBits::Aes128, key, &mut out.round_keys);
            let cipher = Cipher::new(KeyBits::Aes128, &out.round_keys);
            let mut derived = [1, 2, 3].map(|byte| AesBlock::from([byte; 16]));
            cipher.encrypt(&mut derived);
            let [k1, k2, k3] = &mut derived;
            expand_encrypt(KeyBits::Aes128, &k1.0, &mut out.round_keys);
            (out.whole.0, out.padded.0) = (k2.0, k3.0);
            derived.iter_mut().for_each(|block| block.0.zeroize());
        }
        MacAlg::AesCmac(bits) => {
            expand_encrypt(bits, key, &mut out.round_keys);
            let mut l = [AesBlock::default()];
            Cipher::new(bits, &out.round_keys).encrypt(&mut l);
            out.whole.0 = doubled(&l[0].0);
            out.padded.0 = doubled(&out.whole.0);
            l[0].0.zeroize();
        }
        MacAlg::Null | MacAlg::Hmac(_) => {}
    }
}

/// A key schedule as RustCrypto wants it; wiped on drop by the crate's feature `zeroize`.
enum Cipher {
    Aes128(Aes128),
    Aes192(Aes192),
    Aes256(Aes256),
}

impl Cipher {
    /// From round keys for encryption.
    fn new(bits: KeyBits, keys: &RoundKeys) -> Self {
        let [first, second, ..] = &keys.0;
        Self::from_start(bits, &first.0, &second.0)
    }

    /// From round keys for decryption.
    fn inverse(bits: KeyBits, keys: &RoundKeys) -> Self {
        let [first, second] = [0, 1].map(|i| &keys.0[bits.rounds() - i].0);
        let mut second = AesBlock::from(*second);
        hazmat::mix_columns(&mut second);
        let cipher = Self::from_start(bits, first, &second.0);
        second.0.zeroize();
        cipher
    }

    /// From round keys 0 and 1, which begin with the key itself.
    fn from_start(bits: KeyBits, first: &[u8; 16], second: &[u8; 16]) -> Self {
        let mut key = [0; 32];
        key[..16].copy_from_slice(first);
        key[16..].copy_from_slice(second);
        let mut middle = [0; 24];
        middle.copy_from_slice(&key[..24]);
        let cipher = match bits {
            KeyBits::Aes128 => Self::Aes128(Aes128::new(first.into())),
            KeyBits::Aes192 => Self::Aes192(Aes192::new((&middle).into())),
            KeyBits::Aes256 => Self::Aes256(Aes256::new((&key).into())),
        };
        key.zeroize();
        middle.zeroize();
        cipher
    }

    fn encrypt(&self, blocks: &mut [AesBlock]) {
        match self {
            Self::Aes128(aes) => aes.encrypt_blocks(blocks),
            Self::Aes192(aes) => aes.encrypt_blocks(blocks),
            Self::Aes256(aes) => aes.encrypt_blocks(blocks),
        }
    }

    fn decrypt(&self, blocks: &mut [AesBlock]) {
        match self {
            Self::Aes128(aes) => aes.decrypt_blocks(blocks),
            Self::Aes192(aes) => aes.decrypt_blocks(blocks),
            Self::Aes256(aes) => aes.decrypt_blocks(blocks),
        }
    }

    /// Adds the keystream to `data`. `counter` makes the counter block of a number.
    fn apply_keystream(&self, counter: impl Fn(u64) -> [u8; 16], data: &mut [u8]) {
        let mut blocks = [AesBlock::default(); BATCH];
        let mut next = 0;
        for chunk in data.chunks_mut(16 * BATCH) {
            let Some(used) = blocks.get_mut(..chunk.len().div_ceil(16)) else { break };
            for block in &mut *used {
                block.0 = counter(next);
                next += 1;
            }
            self.encrypt(used);
            let keystream = used.iter().flat_map(|block| &block.0);
            chunk.iter_mut().zip(keystream).for_each(|(byte, key)| *byte ^= key);
        }
        blocks.iter_mut().for_each(|block| block.0.zeroize());
    }
}

fn xor(to: &mut [u8], with: &[u8]) {
    to.iter_mut().zip(with).for_each(|(to, with)| *to ^= with);
}

/// See [`pass::aes::cbc_encrypt`](crate::pass::aes::cbc_encrypt).
pub(crate) fn cbc_encrypt(bits: KeyBits, job: &mut CipherJob<'_>) {
    let cipher = Cipher::new(bits, job.keys);
    let mut chain = [AesBlock::from(*job.iv)];
    for block in job.data.as_chunks_mut().0 {
        xor(&mut chain[0].0, block);
        cipher.encrypt(&mut chain);
        *block = chain[0].0;
    }
}

/// See [`pass::aes::cbc_decrypt`](crate::pass::aes::cbc_decrypt).
pub(crate) fn cbc_decrypt(bits: KeyBits, job: &mut CipherJob<'_>) {
    let cipher = Cipher::inverse(bits, job.keys);
    let mut before = *job.iv;
    for chunk in job.data.as_chunks_mut().0.chunks_mut(BATCH) {
        let mut blocks = [AesBlock::default(); BATCH];
        let Some(used) = blocks.get_mut(..chunk.len()) else { break };
        used.iter_mut().zip(&*chunk).for_each(|(block, data)| block.0 = *data);
        cipher.decrypt(used);
        for (block, data) in used.iter_mut().zip(chunk) {
            xor(&mut block.0, &before);
            before = std::mem::replace(data, block.0);
            block.0.zeroize();
        }
    }
}

/// See [`pass::aes::ctr`](crate::pass::aes::ctr).
pub(crate) fn ctr(bits: KeyBits, job: &mut CipherJob<'_>) {
    let start = u128::from_be_bytes(*job.iv);
    let counter = |i: u64| {
        let last = (start as u32).wrapping_add(i as u32);
        (start & !u128::from(u32::MAX) | u128::from(last)).to_be_bytes()
    };
    Cipher::new(bits, job.keys).apply_keystream(counter, job.data);
}

/// CBC-MAC over blocks that come in pieces.
struct Chain<'c> {
    cipher: &'c Cipher,
    state: [AesBlock; 1],
    /// Bytes added to the state since it was last encrypted.
    used: usize,
}

impl<'c> Chain<'c> {
    fn new(cipher: &'c Cipher) -> Self {
        Self { cipher, state: Default::default(), used: 0 }
    }

    /// Takes in more bytes. A block is encrypted only when another follows.
    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.used == 16 {
                self.close();
            }
            let (now, rest) = bytes.split_at(bytes.len().min(16 - self.used));
            xor(&mut self.state[0].0[self.used..], now);
            self.used += now.len();
            bytes = rest;
        }
    }

    /// Encrypts what was begun, as if zeros filled it.
    fn close(&mut self) {
        if self.used > 0 {
            self.cipher.encrypt(&mut self.state);
            self.used = 0;
        }
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        self.state[0].0.zeroize();
    }
}

/// See [`pass::aes::cbc_mac`](crate::pass::aes::cbc_mac).
pub(crate) fn cbc_mac(bits: KeyBits, job: &mut CbcMacJob<'_>) {
    let cipher = Cipher::new(bits, &job.key.round_keys);
    let mut chain = Chain::new(&cipher);
    chain.update(job.message);
    chain.update(job.trailer);
    let [state] = &mut chain.state;
    if chain.used == 16 {
        xor(&mut state.0, &job.key.whole.0);
    } else {
        state.0[chain.used] ^= 0x80;
        xor(&mut state.0, &job.key.padded.0);
    }
    chain.used = 16;
    chain.close();
    job.tag = chain.state[0].0;
}

/// See [`pass::aes::ccm`](crate::pass::aes::ccm).
pub(crate) fn ccm(bits: KeyBits, seal: bool, job: &mut CcmJob<'_>) {
    let cipher = Cipher::new(bits, job.keys);
    let start = u128::from_be_bytes(counter_block(job));
    // The counter's field is never longer than eight bytes, nor full.
    let counter = |i: u64| (start + 1 + u128::from(i)).to_be_bytes();
    if !seal {
        cipher.apply_keystream(counter, job.data);
    }
    let mut chain = Chain::new(&cipher);
    let (header, len) = header(job);
    chain.update(&header[..len]);
    chain.update(job.aad);
    chain.close();
    chain.update(job.data);
    chain.close();
    let tag = job.tag.get_mut();
    *tag = chain.state[0].0;
    cipher.apply_keystream(|_| start.to_be_bytes(), tag);
    if seal {
        cipher.apply_keystream(counter, job.data);
    }
}

/// The counter block of number zero (NIST SP 800-38C appendix A.3).
fn counter_block(job: &CcmJob<'_>) -> [u8; 16] {
    let mut block = [0; 16];
    block[0] = 14u8.saturating_sub(job.nonce_len as u8);
    block[1..=13].copy_from_slice(&job.nonce[..13]);
    block
}

/// Header of the additional data: the first block and the length of the additional data (NIST SP 800-38C
/// appendices A.2.1 and A.2.2); and its number of bytes.
fn header(job: &CcmJob<'_>) -> ([u8; 26], usize) {
    let mut header = [0; 26];
    let length = job.data.len() as u64;
    // The field of the data's length overlaps the nonce, whose bytes behind its end are zero.
    header[..16].copy_from_slice(&counter_block(job));
    header[8..16].iter_mut().zip(length.to_be_bytes()).for_each(|(to, byte)| *to |= byte);
    let tag = (job.icv_len as u8).saturating_sub(2) / 2;
    header[0] |= tag << 3 | u8::from(!job.aad.is_empty()) << 6;
    let aad = job.aad.len() as u64;
    let len = match aad {
        0 => 0,
        1..0xff00 => {
            header[16..18].copy_from_slice(&(aad as u16).to_be_bytes());
            2
        }
        0xff00..=0xffff_ffff => {
            header[16..18].copy_from_slice(&[0xff, 0xfe]);
            header[18..22].copy_from_slice(&(aad as u32).to_be_bytes());
            6
        }
        _ => {
            header[16..18].copy_from_slice(&[0xff, 0xff]);
            header[18..26].copy_from_slice(&aad.to_be_bytes());
            10
        }
    };
    (header, 16 + len)
}
