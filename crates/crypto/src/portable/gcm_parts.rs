//! AES-GCM over parts of a message; what the hash is kept as, `crate::stream::gcm_steps` says.

use aes::{
    Block,
    cipher::{BlockCipherEncrypt, BlockSizeUser, KeyInit, consts::U16},
};
use ghash::universal_hash::UniversalHash;
use zeroize::Zeroize;

use super::{
    SoftKey,
    gcm::{BATCH, Soft, length_block},
};
use crate::isa::part::{GcmState, Lengths, PartOperation};

/// Calls a method of whatever size the key has.
macro_rules! of_size {
    ($key:expr, $soft:ident => $call:expr) => {
        match $key {
            SoftKey::Aes128($soft) => $call,
            SoftKey::Aes192($soft) => $call,
            SoftKey::Aes256($soft) => $call,
        }
    };
}

impl SoftKey {
    /// A block, encrypted.
    pub(crate) fn block(&self, block: &[u8; 16]) -> [u8; 16] {
        let mut out = [0; 16];
        of_size!(self, soft => soft.ctr(block, &mut out));
        out
    }

    /// The hash of a block that has the hash so far added, and of more blocks behind it.
    pub(crate) fn ghash_on(&self, hash: &mut [u8; 16], blocks: &[[u8; 16]]) {
        of_size!(self, soft => soft.ghash_on(hash, blocks.as_flattened()));
    }

    /// From a hash that is once more times H to the tag, or from the tag to that.
    pub(crate) fn with_lengths(&self, lengths: Lengths, mask: &[u8; 16], hash: &mut [u8; 16]) {
        let mut product = length_block(lengths.aad as usize, lengths.text as usize).0;
        self.ghash_on(&mut product, &[]);
        add(hash, &product);
        add(hash, mask);
    }

    /// Seals or opens whole blocks, and what there may be of a last one.
    pub(crate) fn part(
        &self,
        counter: &[u8; 16],
        operation: PartOperation,
        data: &mut [u8],
        state: &mut GcmState,
    ) {
        of_size!(self, soft => soft.part(counter, operation, data, state));
    }
}

impl<A: BlockCipherEncrypt + KeyInit + BlockSizeUser<BlockSize = U16>> Soft<A> {
    /// As [`SoftKey::ghash_on`]; the last block may be short.
    fn ghash_on(&self, hash: &mut [u8; 16], bytes: &[u8]) {
        let mut on = self.ghash.clone();
        on.update(&[(*hash).into()]);
        on.update_padded(bytes);
        *hash = on.finalize().into();
    }

    fn part(
        &self,
        counter: &[u8; 16],
        operation: PartOperation,
        data: &mut [u8],
        state: &mut GcmState,
    ) {
        if operation != PartOperation::Seal {
            self.hash_part(data, &mut state.hash);
        }
        if operation == PartOperation::Ahead {
            data.fill(0);
        }
        self.ctr(counter, data);
        if operation == PartOperation::Seal {
            self.hash_part(data, &mut state.hash);
        }
        if !data.len().is_multiple_of(16) {
            let last = add_to_counter(counter, (data.len() / 16) as u32);
            state.keystream = [0; 16];
            self.ctr(&last, &mut state.keystream);
        }
    }

    /// Goes on with a hash that is once more times H: with the first block it is that no more, so the
    /// second takes it up, and a block of zeros makes it that again.
    fn hash_part(&self, data: &[u8], hash: &mut [u8; 16]) {
        let (first, rest) = data.split_at(data.len().min(16));
        let mut block = padded(first);
        self.ghash_on(&mut block, &[]);
        add(hash, &block);
        if rest.is_empty() {
            return self.ghash_on(hash, &[]);
        }
        let (second, rest) = rest.split_at(rest.len().min(16));
        add(hash, &padded(second));
        self.ghash_on(hash, rest);
        self.ghash_on(hash, &[]);
    }

    /// Adds the key stream that begins with the block `counter`, whose last 32 bits count.
    fn ctr(&self, counter: &[u8; 16], data: &mut [u8]) {
        let mut blocks = [Block::default(); BATCH];
        let mut number = 0;
        for chunk in data.chunks_mut(16 * BATCH) {
            let Some(used) = blocks.get_mut(..chunk.len().div_ceil(16)) else { break };
            for block in &mut *used {
                block.0 = add_to_counter(counter, number);
                number = number.wrapping_add(1);
            }
            self.aes.encrypt_blocks(used);
            let keystream = used.iter().flat_map(|block| &block.0);
            chunk.iter_mut().zip(keystream).for_each(|(byte, key)| *byte ^= key);
        }
        blocks.iter_mut().for_each(|block| block.0.zeroize());
    }
}

fn add(to: &mut [u8; 16], bytes: &[u8; 16]) {
    to.iter_mut().zip(bytes).for_each(|(to, byte)| *to ^= byte);
}

/// At most a block, with zeros behind.
fn padded(bytes: &[u8]) -> [u8; 16] {
    let mut block = [0; 16];
    block.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
    block
}

/// A counter block so many further on; its last 32 bits count (NIST SP 800-38D section 6.2).
pub(crate) fn add_to_counter(counter: &[u8; 16], blocks: u32) -> [u8; 16] {
    let mut block = *counter;
    let [.., a, b, c, d] = &mut block;
    let number = u32::from_be_bytes([*a, *b, *c, *d]).wrapping_add(blocks);
    [*a, *b, *c, *d] = number.to_be_bytes();
    block
}
