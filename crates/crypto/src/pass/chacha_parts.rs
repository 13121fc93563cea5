//! Steps of ChaCha20-Poly1305 over a message that comes in parts.

use std::slice;

use crate::{
    block::ChaChaKey,
    isa::Kernel,
    key::{Key, Schedule},
    pass::ChaChaJob,
    poly::Poly,
    portable,
    secret::{scrubbed, wipe},
};

/// Bytes of a block of keystream.
pub(crate) const BLOCK: usize = 64;

/// Keystream that is computed at once: as many blocks as the widest lanes have.
pub(crate) type Pads = [[u8; BLOCK]; 16];

/// Fewest bytes of a part that is worth its own pass.
pub(crate) const MIN_PART: usize = 128;

/// Secrets of a message under way.
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

/// Implementation of such steps for a key of ChaCha20-Poly1305. Each wipes what it leaves in registers, and on the
/// portable tier on the stack.
#[derive(Clone, Copy)]
pub(crate) enum ChaCha<'k> {
    Soft(&'k ChaChaKey),
    Fast(Kernel, &'k ChaChaKey),
}

impl<'k> ChaCha<'k> {
    /// None for a key of another suite.
    #[inline]
    pub(crate) fn of(key: &'k Key) -> Option<Self> {
        match key.schedule() {
            Schedule::ChaCha { kernel: Some(kernel), key, .. } => Some(Self::Fast(*kernel, key)),
            Schedule::ChaCha { kernel: None, key, .. } => Some(Self::Soft(key)),
            _ => None,
        }
    }

    /// Seals or opens the first part of a message, whose additional data, 16 bytes at most, no MAC has yet.
    #[inline]
    pub(crate) fn first(
        self,
        seal: bool,
        nonce: &[u8; 16],
        aad: &[u8],
        data: &mut [u8],
        state: &mut ChaChaState,
    ) {
        match self {
            Self::Soft(key) => scrubbed(|| {
                (state.mac, state.tail) = (portable::chacha::mac(key, nonce), [0; 16]);
                state.take(0, aad);
                state.pad(aad.len() % 16);
                portable::chacha::part(seal, key, nonce, 1, data, state);
            }),
            Self::Fast(kernel, key) => {
                let job = ChaChaJob { key, nonce, aad, data, tag: [0; 16] };
                kernel.chacha_first(seal, job, state);
                kernel.wipe_registers();
            }
        }
    }

    /// Seals or opens another part, from the beginning of a block of keystream on, which is the
    /// `block`th. It has [`MIN_PART`] bytes or more.
    pub(crate) fn next(
        self,
        seal: bool,
        nonce: &[u8; 16],
        block: u32,
        data: &mut [u8],
        state: &mut ChaChaState,
    ) {
        match self {
            Self::Soft(key) => {
                scrubbed(|| portable::chacha::part(seal, key, nonce, block, data, state));
            }
            Self::Fast(kernel, key) => {
                kernel.chacha_next(seal, (key, nonce, block), data, state);
                kernel.wipe_registers();
            }
        }
    }

    /// Computes keystream from a block on.
    pub(crate) fn keystream(self, nonce: &[u8; 16], block: u32, pads: &mut Pads) {
        match self {
            Self::Soft(key) => scrubbed(|| portable::chacha::keystream(key, nonce, block, pads)),
            Self::Fast(kernel, key) => {
                kernel.chacha_keystream((key, nonce, block), pads);
                kernel.wipe_registers();
            }
        }
    }
}
