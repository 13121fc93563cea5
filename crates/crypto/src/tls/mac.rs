//! The MAC of a record whose length is secret, block by block.

use super::{CbcHmacKey, HEADER};
use crate::{
    block::digest_bytes,
    isa::record_job::Edges,
    secret::{Scratch, wipe},
};

/// Bytes of a block of either hash.
pub(super) const HASH_BLOCK: usize = 64;

/// Bytes of text in the block that the header begins.
pub(super) const FIRST: usize = Edges::FIRST;

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
        self.key.one.hash(self.key.mac.hash(), &mut self.state.0, blocks);
    }

    /// Takes in a header and the text behind it up to the end of their block.
    #[inline(always)]
    pub(super) fn take_first(&mut self, header: &[u8; HEADER], text: &[u8; FIRST]) {
        let mut edges = Edges::new();
        edges.header_and(header, text);
        self.take(std::slice::from_ref(edges.block(0)));
    }

    /// The MAC of an inner hash that has ended.
    #[inline(always)]
    pub(super) fn outer(&mut self) -> Scratch<u8, MAC_MAX> {
        let hash = self.key.mac.hash();
        let mut edges = Edges::new();
        edges.outer(hash, &self.state.0);
        self.state.0 = self.key.mac_key.outer;
        self.take(std::slice::from_ref(edges.block(0)));
        let (mut outer, len) = digest_bytes(hash, &self.state.0);
        let mut mac = Scratch([0; MAC_MAX]);
        mac.0[..len].copy_from_slice(&outer[..len]);
        wipe(&mut outer, 0);
        mac
    }
}
