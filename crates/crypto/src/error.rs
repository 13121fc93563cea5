//! Errors of requests that are refused.

use thiserror::Error;

use crate::{OutOfMemory, Suite, Tier};

/// `CONVOY_DENY_CPU` cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CpuError {
    /// The list names something that is no tier, or the tier that cannot be denied.
    #[error("CONVOY_DENY_CPU: no deniable tier is called {name:?}; valid names are {valid}")]
    UnknownTier {
        /// The word that was not understood.
        name: String,
        /// Every valid word, separated by commas.
        valid: String,
    },
    /// The variable holds bytes that are not text.
    #[error("CONVOY_DENY_CPU is not valid text")]
    NotText,
}

/// A key cannot be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The secret does not have the length its parameters call for.
    #[error("key has {given} bytes, {expected} are needed")]
    Length {
        /// Bytes needed.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
    /// The MAC's secret does not have the length that the suite calls for.
    #[error("integrity key has {given} bytes, {expected} are needed")]
    IntegrityLength {
        /// Bytes needed.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
    /// Neighbours of a 3DES key's three parts agree, so that it is one of single DES.
    #[error(
        "a 3DES key's first and second 8 bytes must differ, and so must its second and third: the key \
         given is one of single DES (RFC 2451 section 2.3)"
    )]
    SingleDes,
    /// The cipher is one of old peers, and the crate was built without them.
    #[error(
        "3DES and Camellia are not in this build: the feature `legacy` of convoy-crypto has them"
    )]
    LegacyLeftOut,
    /// A key for both ways was asked for, and the suite is no AEAD.
    #[error("only an AEAD has keys for both ways")]
    NotAead,
    /// This machine lacks the tier, or it is denied.
    #[error("tier {0} is not available")]
    TierUnavailable(Tier),
    /// There is no memory for what the secret is expanded to.
    #[error("out of memory")]
    OutOfMemory,
}

impl From<OutOfMemory> for KeyError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// An operation cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpError {
    /// The ICV slice does not have the length the key's suite says.
    #[error("icv has {given} bytes, the key calls for {expected}")]
    IcvLength {
        /// Bytes the key calls for.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
    /// The nonce or IV does not have a length the key's suite takes.
    #[error("nonce has {given} bytes, the key calls for {expected}")]
    NonceLength {
        /// Bytes that IPsec gives it.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
    /// The payload is longer than the suite allows under one nonce.
    #[error("payload of {given} bytes is longer than {limit}, the most under one nonce")]
    DataTooLong {
        /// Most bytes.
        limit: u64,
        /// Bytes given.
        given: usize,
    },
    /// The additional data is longer than any suite allows (2^60 bytes).
    #[error("additional data of {given} bytes is longer than 2^60")]
    AadTooLong {
        /// Bytes given.
        given: usize,
    },
    /// The text to be ciphered in CBC mode is not whole blocks.
    #[error("text of {given} bytes is not whole blocks of {block}")]
    NotWholeBlocks {
        /// Bytes of a block.
        block: usize,
        /// Bytes given.
        given: usize,
    },
    /// The header is longer than the frame it is part of.
    #[error("header of {header} bytes is longer than its frame of {frame}")]
    HeaderBeyondFrame {
        /// Bytes of the header.
        header: usize,
        /// Bytes of the frame.
        frame: usize,
    },
    /// The header is 4 GiB long or longer.
    #[error("header of {given} bytes is longer than 2^32 - 1")]
    HeaderTooLong {
        /// Bytes given.
        given: usize,
    },
    /// The trailer is longer than 16 bytes.
    #[error("trailer of {given} bytes is longer than 16")]
    TrailerTooLong {
        /// Bytes given.
        given: usize,
    },
    /// The packet has no room for its header, text and ICV.
    #[error("packet of {given} bytes is too short for its parts of {needed}")]
    PacketTooShort {
        /// Bytes of header, text and ICV.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// The key is an AEAD's and the operation is framed, or the other way round.
    #[error("the key is for {suite}: {hint}")]
    WrongForm {
        /// The suite of the key.
        suite: Suite,
        /// The constructor that would be right.
        hint: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_what_would_be_right() {
        let texts = [
            KeyError::Length { expected: 16, given: 15 }.to_string(),
            KeyError::TierUnavailable(Tier::Avx512).to_string(),
            OpError::IcvLength { expected: 12, given: 16 }.to_string(),
            OpError::DataTooLong { limit: 64, given: 1 << 37 }.to_string(),
            OpError::AadTooLong { given: 1 << 62 }.to_string(),
            CpuError::NotText.to_string(),
        ];
        assert_eq!(
            texts,
            [
                "key has 15 bytes, 16 are needed",
                "tier avx512 is not available",
                "icv has 16 bytes, the key calls for 12",
                "payload of 137438953472 bytes is longer than 64, the most under one nonce",
                "additional data of 4611686018427387904 bytes is longer than 2^60",
                "CONVOY_DENY_CPU is not valid text",
            ]
        );
    }
}
