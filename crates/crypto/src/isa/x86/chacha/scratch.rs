//! Memory of a list of packets that passes share.

use super::{
    beside::{Chain, GROUP, Tags},
    wide::{BLOCK, Longs, MAX_LANES, Pad},
};
use crate::secret::wipe;

/// Secrets that do not fit registers.
pub(super) struct Scratch {
    /// The first block of each packet's keystream, whose front is the key of its MAC.
    pub(super) keys: [Pad; GROUP],
    pub(super) tags: Tags,
    /// Keystream of which only the front is wanted, or nothing.
    pub(super) pads: [[u8; BLOCK]; MAX_LANES],
    /// Hashes on their way from lanes to general registers.
    pub(super) limbs: [Longs; 5],
    pub(super) chains: [Chain; 2],
}

impl Drop for Scratch {
    #[inline(always)]
    fn drop(&mut self) {
        // In stores as wide as there are: byte by byte, keystream alone would take a thousand cycles.
        wipe(&mut self.keys, Pad::default());
        wipe(&mut self.tags, 0);
        wipe(&mut self.pads, [0; BLOCK]);
        wipe(&mut self.limbs, Longs([0; 8]));
        wipe(&mut self.chains, Chain::NONE);
    }
}

impl Scratch {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            keys: [Pad([0; 64]); GROUP],
            tags: [0; GROUP],
            pads: [[0; BLOCK]; MAX_LANES],
            limbs: [Longs([0; 8]); 5],
            chains: [Chain::NONE; 2],
        }
    }
}
