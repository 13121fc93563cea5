//! Errors of messages in parts.

use crate::{Suite, memory::OutOfMemory};

/// A part of a message was refused. Nothing has been done then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The key is of another suite.
    #[error("the key is for {0}, messages in parts call for one of aes-gcm or aes-gmac")]
    NotGcm(Suite),
    /// The IV is empty, or 2^61 bytes or longer.
    #[error("iv has {given} bytes, 1 to 2^61 - 1 are needed, best 12")]
    IvLength {
        /// Bytes given.
        given: usize,
    },
    /// Text of a message of AES-GMAC.
    #[error("a message of aes-gmac has no text, all of it is additional data")]
    TextOfGmac,
    /// More additional data than lengths in bits can be told of.
    #[error("additional data becomes longer than 2^61 - 1 bytes")]
    AadTooLong,
    /// The key is of another suite.
    #[error("the key is for {0}, messages in parts call for chacha20-poly1305")]
    NotChaCha20Poly1305(Suite),
    /// More text than the cipher allows under one IV.
    #[error("text becomes longer than {limit} bytes, the most under one iv")]
    DataTooLong {
        /// Most bytes.
        limit: u64,
    },
    /// Input and output do not have the same length.
    #[error("output has {output} bytes, the input {input}")]
    OutputLength {
        /// Bytes of the input.
        input: usize,
        /// Bytes of the output.
        output: usize,
    },
    /// Additional data that comes behind text.
    #[error("additional data comes in front of all text")]
    AadBehindText,
    /// The message was ended.
    #[error("the message was ended by its tag; restart begins another")]
    Ended,
    /// The tag of a message that is opened.
    #[error("a message that is opened has its tag verified, not made")]
    TagOfOpened,
    /// There is no memory.
    #[error("out of memory")]
    OutOfMemory,
}

impl From<OutOfMemory> for StreamError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}
