//! State of messages that come in parts, as kernels take it.

use std::slice;

use crate::{block::ChaChaKey, poly::Poly, secret::wipe};

/// Secrets of a message of AES-GCM under way.
#[derive(Clone)]
pub(crate) struct GcmState {
    /// In the additional data, its last block with the hash of all before added; then the hash once more
    /// times H; in the end the tag.
    pub(crate) hash: [u8; 16],
    /// The block that masks the tag, once it is known. As long as there is one part, the tag.
    pub(crate) mask: [u8; 16],
    /// Key stream of a block that is not whole.
    pub(crate) keystream: [u8; 16],
}

impl GcmState {
    pub(crate) const fn new() -> Self {
        Self { hash: [0; 16], mask: [0; 16], keystream: [0; 16] }
    }
}

impl Drop for GcmState {
    #[inline]
    fn drop(&mut self) {
        wipe(&mut self.hash, 0);
        wipe(&mut self.mask, 0);
        wipe(&mut self.keystream, 0);
    }
}

/// Bytes of a message so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) aad: u64,
    pub(crate) text: u64,
}

/// The operation on a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartOperation {
    Seal,
    Open,
    /// Hashed as one that is opened, but what comes out is the key stream.
    Ahead,
}

impl PartOperation {
    pub(crate) const fn of(seal: bool) -> Self {
        if seal { Self::Seal } else { Self::Open }
    }
}

/// Bytes of a block of keystream.
pub(crate) const BLOCK: usize = 64;

/// Keystream that is computed at once: as many blocks as the widest lanes have.
pub(crate) type Pads = [[u8; BLOCK]; 16];

/// Fewest bytes of a part that is worth its own pass.
pub(crate) const MIN_PART: usize = 128;

/// Secrets of a message of ChaCha20-Poly1305 under way.
#[derive(Clone)]
pub(crate) struct ChaChaState {
    /// The MAC of all whole blocks; nothing before it has its key.
    pub(crate) mac: Poly,
    /// The bytes behind those, of additional data or of ciphertext, and zeros.
    pub(crate) tail: [u8; 16],
}

impl ChaChaState {
    pub(crate) const fn new() -> Self {
        Self { mac: Poly::NONE, tail: [0; 16] }
    }

    /// Takes bytes behind `used` ones that did not fill their block.
    #[inline]
    pub(crate) fn take(&mut self, used: usize, bytes: &[u8]) {
        let (front, rest) = bytes.split_at(match used {
            0 => 0,
            used => bytes.len().min(16 - used),
        });
        self.tail.iter_mut().skip(used).zip(front).for_each(|(to, byte)| *to = *byte);
        if used + front.len() == 16 {
            self.pad(16);
        }
        let rest = self.mac.blocks(rest);
        self.tail.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
    }

    /// Ends a block of which so many bytes are there.
    #[inline]
    pub(crate) fn pad(&mut self, used: usize) {
        if used > 0 {
            self.mac.block(u128::from_le_bytes(self.tail));
            self.tail = [0; 16];
        }
    }
}

impl Drop for ChaChaState {
    #[inline]
    fn drop(&mut self) {
        wipe(slice::from_mut(&mut self.mac), Poly::NONE);
        wipe(&mut self.tail, 0);
    }
}

/// Keystream of ChaCha20 under a key and a nonce, from a block on.
#[derive(Clone, Copy)]
pub(crate) struct KeystreamFrom<'s> {
    pub(crate) key: &'s ChaChaKey,
    pub(crate) nonce: &'s [u8; 16],
    /// The number of the first block.
    pub(crate) block: u32,
}
