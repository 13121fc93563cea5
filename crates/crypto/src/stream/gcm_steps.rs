//! Steps of AES-GCM over a message that comes in parts.
//!
//! Between two parts the hash is kept once more times H: as if one more block of zeros were to follow.
//! A block that is not whole counts with zeros in place of what is missing, and what comes to it adds
//! its difference. So the tag of a message that was sealed or opened in one piece can be taken apart
//! again, should it go on.

use crate::{
    OpenOp, SealOp,
    isa::{
        Kernel, Tables,
        packet::GcmPacket,
        part::{GcmState, Lengths, PartOperation},
    },
    key::{Key, Schedule},
    portable::SoftKey,
    secret::scrubbed,
};

/// Implementation of such steps for a key of AES-GCM or AES-GMAC. Each wipes what it leaves in registers, and on the
/// portable tier on the stack.
#[derive(Clone, Copy)]
pub(crate) enum Gcm<'k> {
    Soft(&'k SoftKey),
    Fast(Kernel, &'k Tables),
}

impl<'k> Gcm<'k> {
    /// None for a key of another suite.
    #[inline]
    pub(crate) fn of(key: &'k Key) -> Option<Self> {
        match key.schedule() {
            Schedule::SoftGcm(key) | Schedule::SoftGmac(key) => Some(Self::Soft(key)),
            Schedule::Gcm { kernel, tables } | Schedule::Gmac { kernel, tables } => {
                Some(Self::Fast(*kernel, tables))
            }
            _ => None,
        }
    }

    /// The hash of a block that has the hash so far added, and of more blocks behind it.
    pub(crate) fn hash_on(self, hash: &mut [u8; 16], blocks: &[[u8; 16]]) {
        match self {
            Self::Soft(key) => scrubbed(|| key.ghash_on(hash, blocks)),
            Self::Fast(kernel, tables) => {
                kernel.ghash_on(tables, hash, blocks);
                kernel.wipe_registers();
            }
        }
    }

    /// Seals a message of one part, as far as is known.
    pub(crate) fn seal(self, mut op: SealOp<'_>) {
        self.run(&mut op);
    }

    /// Opens a message of one part, as far as is known.
    pub(crate) fn open(self, mut op: OpenOp<'_>) {
        self.run(&mut op);
    }

    // Behind functions that are not generic: those who use this crate would compile the kernels again.
    fn run<'a>(self, op: &mut impl GcmPacket<'a>) {
        match self {
            Self::Soft(key) => scrubbed(|| key.run(op)),
            Self::Fast(kernel, _) => {
                kernel.run_one(op);
                kernel.wipe_registers();
            }
        }
    }

    /// Takes the tag apart of a message of `lengths` bytes of additional data and text. `origin` is the
    /// counter block of the mask, `counter` that of the last block.
    pub(crate) fn resume(
        self,
        origin: &[u8; 16],
        counter: &[u8; 16],
        lengths: Lengths,
        state: &mut GcmState,
    ) {
        match self {
            Self::Soft(key) => scrubbed(|| {
                state.mask = key.block(origin);
                state.keystream = key.block(counter);
                key.with_lengths(lengths, &state.mask, &mut state.hash);
            }),
            Self::Fast(kernel, tables) => {
                kernel.gcm_resume(tables, origin, counter, lengths, state);
                kernel.wipe_registers();
            }
        }
    }

    /// Ends the additional data of a message whose text does not begin with [`whole`](Self::whole).
    pub(crate) fn begin(self, origin: &[u8; 16], state: &mut GcmState) {
        match self {
            Self::Soft(key) => scrubbed(|| {
                state.mask = key.block(origin);
                key.ghash_on(&mut state.hash, &[[0; 16]]);
            }),
            Self::Fast(kernel, tables) => {
                kernel.gcm_begin(tables, origin, state);
                kernel.wipe_registers();
            }
        }
    }

    /// Seals or opens data from the beginning of a block on, whose counter block is `counter`.
    /// There is at least one byte.
    pub(crate) fn part(
        self,
        counter: &[u8; 16],
        operation: PartOperation,
        data: &mut [u8],
        state: &mut GcmState,
    ) {
        match self {
            Self::Soft(key) => scrubbed(|| key.part(counter, operation, data, state)),
            Self::Fast(kernel, tables) => {
                kernel.gcm_part(tables, counter, operation, data, state);
                kernel.wipe_registers();
            }
        }
    }

    /// Encrypts or decrypts within a block of which `used` bytes came before.
    pub(crate) fn bytes(self, used: usize, seal: bool, data: &mut [u8], state: &mut GcmState) {
        let mut added = [0; 16];
        let places = state.keystream.iter().zip(&mut added).skip(used);
        for (byte, (key, added)) in data.iter_mut().zip(places) {
            let output = *byte ^ key;
            *added = if seal { output } else { *byte };
            *byte = output;
        }
        match self {
            Self::Soft(key) => scrubbed(|| {
                key.ghash_on(&mut added, &[[0; 16]]);
                state.hash.iter_mut().zip(added).for_each(|(hash, added)| *hash ^= added);
            }),
            Self::Fast(kernel, tables) => {
                kernel.gcm_add(tables, &added, state);
                kernel.wipe_registers();
            }
        }
    }

    /// Makes the tag of the hash.
    pub(crate) fn finish(self, lengths: Lengths, state: &mut GcmState) {
        match self {
            Self::Soft(key) => {
                scrubbed(|| key.with_lengths(lengths, &state.mask, &mut state.hash));
            }
            Self::Fast(kernel, tables) => {
                kernel.gcm_finish(tables, lengths, state);
                kernel.wipe_registers();
            }
        }
    }
}
