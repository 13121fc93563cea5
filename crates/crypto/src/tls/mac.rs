//! The MAC of one record: whole blocks of header and text, the tail, and the outer hash.

use super::{CbcHmacKey, HEADER};
use crate::{
    pass::record::hash_blocks,
    portable::hash::digest,
    secret::{Scratch, wipe},
};

/// Bytes of a block of either hash.
pub(super) const HASH_BLOCK: usize = 64;

/// Bytes of text in the block that the header begins.
pub(super) const FIRST: usize = HASH_BLOCK - HEADER;

/// Most bytes of a MAC.
pub(super) const MAC_MAX: usize = 32;

/// A hash under way, wiped on drop: the chaining value, its words in the machine's byte order.
pub(super) struct Inner<'k> {
    key: &'k CbcHmacKey,
    pub(super) state: Scratch<u8, 64>,
}

impl<'k> Inner<'k> {
    /// The inner hash of a MAC, behind the block of padding.
    #[inline(always)]
    pub(super) fn new(key: &'k CbcHmacKey) -> Self {
        Self { key, state: Scratch(key.mac_key.inner) }
    }

    /// Takes in whole blocks.
    #[inline(always)]
    pub(super) fn take(&mut self, blocks: &[[u8; HASH_BLOCK]]) {
        hash_blocks(self.key.hasher, self.key.mac.hash(), &mut self.state.0, blocks);
    }

    /// Takes in a header and the text behind it up to the end of their block.
    #[inline(always)]
    pub(super) fn take_first(&mut self, header: &[u8; HEADER], text: &[u8; FIRST]) {
        let mut block = Scratch([0; HASH_BLOCK]);
        block.0[..HEADER].copy_from_slice(header);
        block.0[HEADER..].copy_from_slice(text);
        self.take(std::slice::from_ref(&block.0));
    }

    /// Takes in the last bytes of a message, of which `bytes` were authenticated in all, and makes the
    /// MAC.
    #[inline(always)]
    pub(super) fn finish(
        &mut self,
        bytes: usize,
        header: &[u8],
        rest: &[u8],
    ) -> Scratch<u8, MAC_MAX> {
        let mut tail = Scratch([0; 2 * HASH_BLOCK]);
        let used = header.len() + rest.len();
        let (front, behind) = tail.0.split_at_mut(header.len());
        front.copy_from_slice(header);
        behind[..rest.len()].copy_from_slice(rest);
        tail.0[used] = 0x80;
        let end = if used + 9 > HASH_BLOCK { 2 * HASH_BLOCK } else { HASH_BLOCK };
        tail.0[end - 8..end].copy_from_slice(&bits(bytes).to_be_bytes());
        let blocks = tail.0.as_chunks().0;
        self.take(blocks.get(..end / HASH_BLOCK).unwrap_or_default());
        self.outer()
    }

    /// The MAC of an inner hash that has ended.
    #[inline(always)]
    pub(super) fn outer(&mut self) -> Scratch<u8, MAC_MAX> {
        let hash = self.key.mac.hash();
        let (mut inner, len) = digest(hash, &self.state.0);
        let mut block = Scratch([0; HASH_BLOCK]);
        block.0[..len].copy_from_slice(&inner[..len]);
        block.0[len] = 0x80;
        block.0[HASH_BLOCK - 8..].copy_from_slice(&bits(len).to_be_bytes());
        self.state.0 = self.key.mac_key.outer;
        self.take(std::slice::from_ref(&block.0));
        let (mut outer, _) = digest(hash, &self.state.0);
        let mut mac = Scratch([0; MAC_MAX]);
        mac.0[..len].copy_from_slice(&outer[..len]);
        wipe(&mut inner, 0);
        wipe(&mut outer, 0);
        mac
    }
}

/// Bits of a message of so many bytes behind the block of padding.
#[inline(always)]
pub(super) fn bits(bytes: usize) -> u64 {
    8 * (HASH_BLOCK + bytes) as u64
}
