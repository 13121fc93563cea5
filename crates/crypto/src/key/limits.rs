//! Limits of a suite's operations.

use crate::{Cipher, GcmParams, Suite};

/// Most bytes of text that CBC, CTR or a MAC takes of an operation of a pair; of a job, CTR takes more.
pub(crate) const LANE_MAX: u64 = u32::MAX as u64;

/// Limits that building an operation checks, worked out once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of an ICV.
    pub(crate) icv: u8,
    /// Fewest and most bytes of a nonce.
    pub(crate) nonce: (u8, u8),
    /// True if operations come with additional data, false if with a header in front of the text.
    pub(crate) aead: bool,
    /// One less than the bytes of a block that text must be a multiple of.
    pub(crate) partial: u8,
    /// Most bytes of text. For CCM, with a nonce of 7 bytes.
    pub(crate) data: u64,
    /// Initial value of the last 32 bits of the nonce's block.
    pub(crate) counter: u8,
}

impl Limits {
    pub(super) const fn new(suite: Suite) -> Self {
        let nonce = suite.nonce_bytes() as u8;
        let fixed = Self {
            icv: suite.icv_bytes() as u8,
            nonce: (nonce, nonce),
            aead: suite.is_aead(),
            partial: 0,
            data: u64::MAX,
            counter: 0,
        };
        match suite {
            Suite::Gcm(_) => Self { data: GcmParams::MAX_DATA, ..fixed },
            Suite::Gmac(_) => Self { data: 1 << 60, ..fixed },
            Suite::Ccm { .. } => Self { nonce: (7, 13), ..fixed },
            // Blocks 1 to 2^32 - 2 of 64 bytes: one less than RFC 8439 section 2.8 allows, for that is
            // what the portable tier's crate takes.
            Suite::ChaCha20Poly1305 => Self { data: ((1 << 32) - 2) * 64, ..fixed },
            // CTR counts blocks in 32 bits (RFC 3686 section 4). No packet is longer.
            Suite::Pair { cipher, .. } => Self {
                data: LANE_MAX,
                partial: cipher.block_bytes() as u8 - 1,
                counter: matches!(cipher, Cipher::AesCtr(_)) as u8,
                ..fixed
            },
        }
    }
}
