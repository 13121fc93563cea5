//! Primitives that ciphers and MACs are made of, by themselves.

use std::slice;

use arrayvec::ArrayVec;

use super::{
    job::JobError,
    keys::{AesDecryptKey, AesEncryptKey},
    run::{CHUNK, Runner},
};
use crate::{
    HashAlg, KeyBits,
    block::{ChaChaKey, RoundKeys},
    isa::{
        job::CipherJob,
        part::{BLOCK, Pads},
    },
    pass,
    poly::Poly,
    secret::{depth, scrubbed, wipe, wipe_below},
    stream::chacha_steps::ChaCha,
};

/// An IV of CBC that changes nothing.
const NO_IV: [u8; 16] = [0; 16];

impl Runner {
    /// Encrypts each block by itself: AES-ECB (NIST SP 800-38A section 6.1), which hides no pattern of a text. It is what
    /// other modes are made of.
    ///
    /// # Errors
    ///
    /// [`JobError::CipherKey`] if no key is held.
    pub fn encrypt_blocks(
        &self,
        key: &AesEncryptKey,
        blocks: &mut [[u8; 16]],
    ) -> Result<(), JobError> {
        let bits = key.bits().ok_or(JobError::CipherKey)?;
        for chunk in blocks.chunks_mut(CHUNK) {
            // Messages of a block each, side by side.
            self.cbc(bits, key.body(), chunk.iter_mut().map(|block| &mut block[..]), true);
        }
        self.wipe_behind();
        Ok(())
    }

    /// Decrypts each block by itself, as [`encrypt_blocks`](Self::encrypt_blocks) encrypts.
    ///
    /// # Errors
    ///
    /// [`JobError::CipherKey`] if no key is held.
    pub fn decrypt_blocks(
        &self,
        key: &AesDecryptKey,
        blocks: &mut [[u8; 16]],
    ) -> Result<(), JobError> {
        let bits = key.bits().ok_or(JobError::CipherKey)?;
        for chunk in blocks.chunks_mut(CHUNK) {
            let mut before = [NO_IV; CHUNK];
            before.iter_mut().skip(1).zip(&*chunk).for_each(|(to, block)| *to = *block);
            // One message, whose blocks are decrypted side by side; then what chains them is taken out.
            self.cbc(bits, key.body(), std::iter::once(chunk.as_flattened_mut()), false);
            let chained = before.as_flattened();
            let bytes = chunk.as_flattened_mut();
            bytes.iter_mut().zip(chained).for_each(|(byte, before)| *byte ^= before);
        }
        self.wipe_behind();
        Ok(())
    }

    fn cbc<'d>(
        &self,
        bits: KeyBits,
        keys: &RoundKeys,
        messages: impl Iterator<Item = &'d mut [u8]>,
        encrypt: bool,
    ) {
        let jobs = messages.map(|data| CipherJob { keys, iv: &NO_IV, data });
        let mut jobs: ArrayVec<CipherJob<'_>, CHUNK> = jobs.collect();
        if encrypt {
            pass::aes::cbc_encrypt(self.kernel(), bits, &mut jobs);
        } else {
            pass::aes::cbc_decrypt(self.kernel(), bits, &mut jobs);
        }
    }

    /// Encrypts or decrypts with ChaCha20 (RFC 8439 section 2.4): adds keystream from block number `block` on.
    ///
    /// Nothing tells a changed text from the right one. Whoever encrypts vouches that no block of keystream is used twice.
    ///
    /// # Errors
    ///
    /// [`JobError::CipherLength`] if there is more data than 32 bits can number blocks for.
    pub fn chacha20(
        &self,
        key: &[u8; 32],
        nonce: &[u8; 12],
        block: u32,
        data: &mut [u8],
    ) -> Result<(), JobError> {
        if u64::from(block) + data.len().div_ceil(BLOCK) as u64 > 1 << 32 {
            return Err(JobError::CipherLength);
        }
        let key = ChaChaKey(*key);
        let cipher = match self.kernel() {
            Some(kernel) => ChaCha::Fast(kernel, &key),
            None => ChaCha::Soft(&key),
        };
        let (mut block, mut start) = (block, [0; 16]);
        start[..12].copy_from_slice(nonce);
        let mut pads: Pads = [[0; BLOCK]; 16];
        for part in data.chunks_mut(size_of::<Pads>()) {
            cipher.keystream(&start, block, &mut pads);
            part.iter_mut().zip(pads.as_flattened()).for_each(|(byte, key)| *byte ^= key);
            block = block.wrapping_add(pads.len() as u32);
        }
        wipe(pads.as_flattened_mut(), 0);
        // Behind the text, too, which passed through them.
        self.wipe_registers();
        Ok(())
    }

    /// The digest of a message, without a key: at the front, zeros behind its
    /// [`digest_bytes`](HashAlg::digest_bytes).
    #[must_use]
    pub fn digest(&self, alg: HashAlg, message: &[u8]) -> [u8; 64] {
        let mut digest = scrubbed(|| pass::digest(self.hasher(alg), alg, message));
        digest.iter_mut().skip(alg.digest_bytes()).for_each(|byte| *byte = 0);
        self.wipe_registers();
        digest
    }

    /// Poly1305 (RFC 8439 section 2.5) of a message. A key is for one message: with two that it authenticates, others can
    /// be forged.
    #[must_use]
    pub fn poly1305(&self, key: &[u8; 32], message: &[u8]) -> [u8; 16] {
        let tag = scrubbed(|| {
            let mut block = [0; BLOCK];
            block[..32].copy_from_slice(key);
            let mut mac = Poly::new(&block);
            wipe(&mut block, 0);
            let rest = mac.blocks(message);
            mac.rest(rest);
            let tag = mac.finish().to_le_bytes();
            wipe(slice::from_mut(&mut mac), Poly::NONE);
            tag
        });
        self.wipe_registers();
        tag
    }

    /// Wipes the registers that functions need not keep, as every method here does when it ends: for callers that themselves
    /// copy or combine what is secret. The portable tier wipes none.
    pub fn wipe_registers(&self) {
        if let Some(kernel) = self.kernel() {
            kernel.wipe_registers();
        }
    }

    /// Wipes what blocks leave, as behind jobs.
    fn wipe_behind(&self) {
        match self.kernel() {
            Some(kernel) => kernel.wipe_registers(),
            None => wipe_below::<{ depth::PORTABLE_JOBS }>(),
        }
    }
}

#[cfg(test)]
mod tests;
