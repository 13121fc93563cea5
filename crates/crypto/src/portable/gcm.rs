//! AES-GCM from RustCrypto's `aes` and `ghash`.

use aes::{
    Aes128, Aes192, Aes256, Block,
    cipher::{BlockCipherEncrypt, BlockSizeUser, KeyInit, KeySizeUser, consts::U16},
};
use ghash::{GHash, universal_hash::UniversalHash};
use zeroize::Zeroize;

use crate::{KeyBits, KeyError, Tier, isa::packet::GcmPacket, memory::try_box, trace};

/// Counter blocks encrypted in one call; RustCrypto's bit-sliced AES takes four at once.
pub(super) const BATCH: usize = 8;

/// Key schedule and GHASH key, by key size.
pub(crate) enum SoftKey {
    Aes128(Box<Soft<Aes128>>),
    Aes192(Box<Soft<Aes192>>),
    Aes256(Box<Soft<Aes256>>),
}

/// One size's key schedule with its GHASH key. Both wipe themselves on drop (RustCrypto's `zeroize`
/// features).
pub(crate) struct Soft<A> {
    pub(super) aes: A,
    pub(super) ghash: GHash,
}

impl SoftKey {
    /// Expands `key`, which must have the length that `bits` says.
    pub(crate) fn new(bits: KeyBits, key: &[u8]) -> Result<Self, KeyError> {
        Ok(match bits {
            KeyBits::Aes128 => Self::Aes128(Soft::new(key)?),
            KeyBits::Aes192 => Self::Aes192(Soft::new(key)?),
            KeyBits::Aes256 => Self::Aes256(Soft::new(key)?),
        })
    }

    /// Runs one operation from start to end. What it leaves on the stack is below the caller's frame.
    #[inline(never)]
    pub(crate) fn run<'a, O: GcmPacket<'a>>(&self, op: &mut O) {
        trace::hit(Tier::Portable, O::SEAL, 1);
        match self {
            Self::Aes128(soft) => soft.run(op),
            Self::Aes192(soft) => soft.run(op),
            Self::Aes256(soft) => soft.run(op),
        }
    }

    /// The tag of AES-GMAC (RFC 4543) over both strings as one. `nonce` is 12 bytes with zeros
    /// behind them.
    pub(crate) fn gmac(&self, nonce: &[u8; 16], aad: &[u8], data: &[u8]) -> [u8; 16] {
        match self {
            Self::Aes128(soft) => soft.gmac(nonce, aad, data),
            Self::Aes192(soft) => soft.gmac(nonce, aad, data),
            Self::Aes256(soft) => soft.gmac(nonce, aad, data),
        }
    }

    /// GHASH of both strings, each padded, and of their lengths.
    #[inline(never)]
    pub(crate) fn ghash(&self, aad: &[u8], data: &[u8]) -> [u8; 16] {
        let mut hash = match self {
            Self::Aes128(soft) => soft.ghash.clone(),
            Self::Aes192(soft) => soft.ghash.clone(),
            Self::Aes256(soft) => soft.ghash.clone(),
        };
        hash.update_padded(aad);
        hash.update_padded(data);
        hash.update(&[length_block(aad.len(), data.len())]);
        hash.finalize().into()
    }
}

impl<A: BlockCipherEncrypt + KeyInit + KeySizeUser + BlockSizeUser<BlockSize = U16>> Soft<A> {
    fn new(key: &[u8]) -> Result<Box<Self>, KeyError> {
        let wrong = KeyError::Length { expected: A::key_size(), given: key.len() };
        let aes = A::new_from_slice(key).map_err(|_| wrong)?;
        let mut h = Block::default();
        aes.encrypt_block(&mut h);
        let ghash = GHash::new(&h);
        h.0.zeroize();
        Ok(try_box(Self { aes, ghash })?)
    }

    fn run<'a, O: GcmPacket<'a>>(&self, op: &mut O) {
        let parts = op.parts();
        let mut hash = self.ghash.clone();
        hash.update_padded(parts.aad);
        if !O::SEAL {
            hash.update_padded(parts.data);
        }
        let tag_mask = self.apply_keystream(parts.counter, parts.data);
        if O::SEAL {
            hash.update_padded(parts.data);
        }
        hash.update(&[length_block(parts.aad_len, parts.data.len())]);
        let mut tag: [u8; 16] = hash.finalize().into();
        tag.iter_mut().zip(tag_mask).for_each(|(tag, mask)| *tag ^= mask);
        op.finish(tag);
    }

    fn gmac(&self, nonce: &[u8; 16], aad: &[u8], data: &[u8]) -> [u8; 16] {
        let mut hash = self.ghash.clone();
        let (whole, front) = aad.split_at(aad.len() / 16 * 16);
        hash.update_padded(whole);
        let mut rest = data;
        if !front.is_empty() {
            let (back, behind) = data.split_at(data.len().min(16 - front.len()));
            let mut joint = Block::default();
            let bytes = front.iter().chain(back);
            joint.0.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
            hash.update(&[joint]);
            rest = behind;
        }
        hash.update_padded(rest);
        hash.update(&[length_block(aad.len() + data.len(), 0)]);
        let mut tag: [u8; 16] = hash.finalize().into();
        let mask = self.apply_keystream(nonce, &mut []);
        tag.iter_mut().zip(mask).for_each(|(tag, mask)| *tag ^= mask);
        tag
    }

    /// Encrypts or decrypts `data` and returns the block that masks the tag (counter 1; the data
    /// starts at 2).
    fn apply_keystream(&self, start: &[u8; 16], data: &mut [u8]) -> [u8; 16] {
        let mut blocks = [Block::default(); BATCH];
        let mut counter = 1u32;
        let mut fill = |blocks: &mut [Block]| {
            for block in &mut *blocks {
                block.0 = *start;
                let [.., a, b, c, d] = &mut block.0;
                [*a, *b, *c, *d] = counter.to_be_bytes();
                counter = counter.wrapping_add(1);
            }
            self.aes.encrypt_blocks(blocks);
        };
        fill(&mut blocks[..1]);
        let tag_mask = blocks[0].0;
        for chunk in data.chunks_mut(16 * BATCH) {
            let used = chunk.len().div_ceil(16);
            let Some(used) = blocks.get_mut(..used) else { break };
            fill(used);
            let keystream = used.iter().flat_map(|block| &block.0);
            chunk.iter_mut().zip(keystream).for_each(|(byte, key)| *byte ^= key);
        }
        blocks.iter_mut().for_each(|block| block.0.zeroize());
        tag_mask
    }
}

/// The last block of GHASH: both lengths in bits (NIST SP 800-38D section 7.1).
pub(super) fn length_block(aad: usize, data: usize) -> Block {
    let bits = (aad as u128 * 8) << 64 | (data as u128 * 8);
    Block::from(bits.to_be_bytes())
}
