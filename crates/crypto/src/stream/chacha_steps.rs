//! Steps of ChaCha20-Poly1305 over a message that comes in parts.

use crate::{
    block::ChaChaKey,
    isa::{
        Kernel,
        job::ChaChaJob,
        part::{ChaChaState, KeystreamFrom, Pads},
    },
    key::{Key, Schedule},
    portable,
    secret::scrubbed,
};

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
    /// `block`th. It has [`MIN_PART`](crate::isa::part::MIN_PART) bytes or more.
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
                kernel.chacha_next(seal, KeystreamFrom { key, nonce, block }, data, state);
                kernel.wipe_registers();
            }
        }
    }

    /// Computes keystream from a block on.
    pub(crate) fn keystream(self, nonce: &[u8; 16], block: u32, pads: &mut Pads) {
        match self {
            Self::Soft(key) => scrubbed(|| portable::chacha::keystream(key, nonce, block, pads)),
            Self::Fast(kernel, key) => {
                kernel.chacha_keystream(KeystreamFrom { key, nonce, block }, pads);
                kernel.wipe_registers();
            }
        }
    }
}
