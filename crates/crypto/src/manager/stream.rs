//! AES-GCM over a message that comes in parts.
//!
//! For messages that do not fit into memory at once; packets do, and are several times faster through
//! jobs or bursts: here GHASH is RustCrypto's constant-time software, and only AES uses the tier.

use std::{fmt, sync::Arc};

use ghash::{Block, GHash, universal_hash::UniversalHash};
use zeroize::Zeroize;

use super::job::Direction;
use crate::{
    Cpu, GcmParams, KeyBits, KeyError, SecretBytes, Tier,
    block::RoundKeys,
    isa::Kernel,
    pass::{self, CipherJob},
    secret::scrubbed,
};

/// A key for streams. Its parts wipe themselves on drop.
pub struct GcmStreamKey {
    kernel: Option<Kernel>,
    bits: KeyBits,
    round_keys: Box<RoundKeys>,
    ghash: Box<GHash>,
}

impl GcmStreamKey {
    /// Sets a key of 16, 24 or 32 bytes up for a tier.
    ///
    /// # Errors
    ///
    /// [`KeyError::Length`] for any other length; [`KeyError::TierUnavailable`] if `cpu` lacks the
    /// tier.
    pub fn new(cpu: &Cpu, tier: Tier, key: &SecretBytes) -> Result<Self, KeyError> {
        let given = key.len();
        let bits = KeyBits::from_bits(given.saturating_mul(8));
        let bits = bits.ok_or(KeyError::Length { expected: 16, given })?;
        if !cpu.has(tier) {
            return Err(KeyError::TierUnavailable(tier));
        }
        let kernel = cpu.proofs().kernel(tier);
        let mut round_keys = Box::new(RoundKeys::zeroed());
        let ghash = scrubbed(|| {
            pass::expand_encrypt(kernel, bits, key.expose(), &mut round_keys);
            // The hash key is the block of zeros, encrypted (NIST SP 800-38D section 7.1).
            let mut h = Block::default();
            keystream(kernel, bits, &round_keys, &[0; 16], &mut h.0);
            Box::new(GHash::new(&h))
        });
        wipe_registers(kernel);
        Ok(Self { kernel, bits, round_keys, ghash })
    }
}

impl fmt::Debug for GcmStreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GcmStreamKey(aes-{}-gcm)", self.bits.bits())
    }
}

/// One message on its way through AES-GCM.
///
/// When decrypting, plaintext comes out before the tag can be verified: nothing may be done with it
/// until [`finish`](Self::finish) has yielded the tag that came with the message.
pub struct GcmStream {
    key: Arc<GcmStreamKey>,
    direction: Direction,
    /// The nonce, then the counter of the next block.
    counter: [u8; 16],
    /// Key stream of a block of which a part was used.
    keystream: [u8; 16],
    hash: Box<GHash>,
    /// Ciphertext of a block that is not whole yet.
    partial: [u8; 16],
    /// How much of both was used; 0 if the message stands between two blocks.
    used: usize,
    aad_len: u64,
    data_len: u64,
}

impl GcmStream {
    /// Begins a message. When encrypting, the nonce must never have been used with this key.
    #[must_use]
    pub fn new(key: Arc<GcmStreamKey>, direction: Direction, nonce: [u8; 12], aad: &[u8]) -> Self {
        let mut counter = [0; 16];
        counter[..12].copy_from_slice(&nonce);
        counter[15] = 2;
        let hash = scrubbed(|| {
            let mut hash = Box::new(GHash::clone(&key.ghash));
            hash.update_padded(aad);
            hash
        });
        Self {
            key,
            direction,
            counter,
            keystream: [0; 16],
            hash,
            partial: [0; 16],
            used: 0,
            aad_len: aad.len() as u64,
            data_len: 0,
        }
    }

    /// Whether so many more bytes leave the message within [`GcmParams::MAX_DATA`].
    #[must_use]
    pub fn fits(&self, more: usize) -> bool {
        let length = self.data_len.checked_add(more as u64);
        length.is_some_and(|length| length <= GcmParams::MAX_DATA)
    }

    /// Encrypts or decrypts the next part in place. Returns false, with nothing done, if the message
    /// would become longer than [`GcmParams::MAX_DATA`].
    #[must_use]
    pub fn update(&mut self, data: &mut [u8]) -> bool {
        if !self.fits(data.len()) {
            return false;
        }
        self.data_len += data.len() as u64;
        scrubbed(|| self.pass(data));
        wipe_registers(self.key.kernel);
        true
    }

    fn pass(&mut self, data: &mut [u8]) {
        let (front, rest) = data.split_at_mut(match self.used {
            0 => 0,
            used => data.len().min(16 - used),
        });
        self.bytes(front);
        let (whole, back) = rest.split_at_mut(rest.len() / 16 * 16);
        self.blocks(whole);
        if !back.is_empty() {
            self.next_keystream();
            self.bytes(back);
        }
    }

    /// Ends the message: the tag that belongs to it. To compare it with one that was received, use
    /// [`tags_match`](super::tags_match).
    /// Nothing may follow but the drop, which wipes the stream where it lies.
    #[must_use]
    pub fn finish(&mut self) -> [u8; 16] {
        let mut tag = [0; 16];
        scrubbed(|| self.tag(&mut tag));
        wipe_registers(self.key.kernel);
        tag
    }

    fn tag(&mut self, tag: &mut [u8; 16]) {
        if self.used > 0 {
            self.partial[self.used..].fill(0);
            self.hash.update(&[self.partial.into()]);
        }
        let bits = u128::from(self.aad_len) << 67 | u128::from(self.data_len) << 3;
        self.hash.update(&[bits.to_be_bytes().into()]);
        *tag = GHash::clone(&self.hash).finalize().into();
        let mut first = self.counter;
        first[12..].copy_from_slice(&[0, 0, 0, 1]);
        let key = &*self.key;
        keystream(key.kernel, key.bits, &key.round_keys, &first, tag);
    }

    /// Bytes within the block that was begun.
    fn bytes(&mut self, data: &mut [u8]) {
        let (from, to) = (self.used, self.used + data.len());
        let seal = self.direction == Direction::Encrypt;
        let kept = self.keystream[from..to].iter().zip(&mut self.partial[from..to]);
        for (byte, (key, kept)) in data.iter_mut().zip(kept) {
            let out = *byte ^ key;
            *kept = if seal { out } else { *byte };
            *byte = out;
        }
        self.used = to % 16;
        if to == 16 {
            self.hash.update(&[self.partial.into()]);
        }
    }

    /// Whole blocks, from the beginning of one.
    fn blocks(&mut self, data: &mut [u8]) {
        if data.is_empty() {
            return;
        }
        if self.direction == Direction::Decrypt {
            self.hash.update_padded(data);
        }
        let count = data.len() / 16;
        let key = &*self.key;
        keystream(key.kernel, key.bits, &key.round_keys, &self.counter, data);
        if self.direction == Direction::Encrypt {
            self.hash.update_padded(data);
        }
        self.advance(count);
    }

    fn next_keystream(&mut self) {
        self.keystream = [0; 16];
        let key = &*self.key;
        keystream(key.kernel, key.bits, &key.round_keys, &self.counter, &mut self.keystream);
        self.advance(1);
    }

    fn advance(&mut self, blocks: usize) {
        if let Some(counter) = self.counter.last_chunk_mut::<4>() {
            // No message is longer than 32 bits count.
            *counter = u32::from_be_bytes(*counter).wrapping_add(blocks as u32).to_be_bytes();
        }
    }
}

impl Drop for GcmStream {
    fn drop(&mut self) {
        self.keystream.zeroize();
        self.partial.zeroize();
    }
}

impl fmt::Debug for GcmStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GcmStream({:?}, {} bytes)", self.direction, self.data_len)
    }
}

/// Adds the key stream that begins with the block `counter`.
fn keystream(
    kernel: Option<Kernel>,
    bits: KeyBits,
    keys: &RoundKeys,
    counter: &[u8; 16],
    data: &mut [u8],
) {
    pass::ctr(kernel, bits, &mut [CipherJob { keys, iv: counter, data }]);
}

fn wipe_registers(kernel: Option<Kernel>) {
    if let Some(kernel) = kernel {
        kernel.wipe_registers();
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

    use super::*;
    use crate::pass::tests::Random;

    #[test]
    fn any_cut_of_a_message_gives_what_the_oracle_gives() {
        let cpu = Cpu::detect().unwrap();
        let mut random = Random(1);
        for (round, tier) in (0..120).flat_map(|round| cpu.tiers().map(move |tier| (round, tier))) {
            let algorithm = if round % 2 == 0 { &AES_128_GCM } else { &AES_256_GCM };
            let secret = random.bytes(algorithm.key_len());
            let key = GcmStreamKey::new(&cpu, tier, &SecretBytes::copy_from(&secret)).unwrap();
            let (key, nonce) = (Arc::new(key), random.array());
            let (aad, len) = (random.below(40), random.below([20, 100, 2000][round % 3]));
            let (aad, plain) = (random.bytes(aad), random.bytes(len));
            let oracle = LessSafeKey::new(UnboundKey::new(algorithm, &secret).unwrap());
            let mut sealed = plain.clone();
            let nonce_of_oracle = Nonce::assume_unique_for_key(nonce);
            let tag = oracle
                .seal_in_place_separate_tag(nonce_of_oracle, Aad::from(&aad), &mut sealed)
                .unwrap();
            for direction in [Direction::Encrypt, Direction::Decrypt] {
                let (from, to) = match direction {
                    Direction::Encrypt => (&plain, &sealed),
                    Direction::Decrypt => (&sealed, &plain),
                };
                let mut stream = GcmStream::new(Arc::clone(&key), direction, nonce, &aad);
                let (mut data, mut at) = (from.clone(), 0);
                while at < data.len() {
                    let most = [2, 16, 40, 500][random.below(4)];
                    let part = random.below(most);
                    let end = data.len().min(at + part);
                    assert!(stream.update(&mut data[at..end]));
                    at = end;
                }
                assert!(data == *to, "{len} bytes, {direction:?} on {tier}");
                assert_eq!(stream.finish(), tag.as_ref(), "{len} bytes, {direction:?} on {tier}");
            }
        }
    }

    #[test]
    fn messages_longer_than_gcm_allows_are_refused() {
        let cpu = Cpu::detect().unwrap();
        let secret = SecretBytes::copy_from(&[1; 16]);
        let key = GcmStreamKey::new(&cpu, Tier::Portable, &secret).unwrap();
        let mut stream = GcmStream::new(Arc::new(key), Direction::Encrypt, [0; 12], b"");
        stream.data_len = GcmParams::MAX_DATA - 3;
        let mut data = [7; 4];
        assert!(!stream.fits(4) && stream.fits(3) && !stream.fits(usize::MAX));
        assert!(!stream.update(&mut data));
        assert_eq!(data, [7; 4]);
        assert!(stream.update(&mut data[..3]));
    }

    #[test]
    fn wrong_lengths_of_keys_are_refused() {
        let secret = SecretBytes::copy_from(&[1; 17]);
        let key = GcmStreamKey::new(&Cpu::detect().unwrap(), Tier::Portable, &secret);
        assert_eq!(key.unwrap_err(), KeyError::Length { expected: 16, given: 17 });
    }
}
