//! What can be refused, and why.

use thiserror::Error;

use crate::Tier;

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
    /// This machine lacks the tier, or it is denied.
    #[error("tier {0} is not available")]
    TierUnavailable(Tier),
}

/// An operation cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpError {
    /// The ICV slice does not have the length the key's parameters say.
    #[error("icv has {given} bytes, the key calls for {expected}")]
    IcvLength {
        /// Bytes the key calls for.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
    /// The payload is longer than GCM allows under one nonce (2^36 - 32 bytes).
    #[error("payload of {given} bytes is longer than gcm allows")]
    DataTooLong {
        /// Bytes given.
        given: usize,
    },
    /// The additional data is longer than GCM allows (2^61 - 1 bytes).
    #[error("additional data of {given} bytes is longer than gcm allows")]
    AadTooLong {
        /// Bytes given.
        given: usize,
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
            OpError::DataTooLong { given: 1 << 37 }.to_string(),
            OpError::AadTooLong { given: 1 << 62 }.to_string(),
            CpuError::NotText.to_string(),
        ];
        assert_eq!(
            texts,
            [
                "key has 15 bytes, 16 are needed",
                "tier avx512 is not available",
                "icv has 16 bytes, the key calls for 12",
                "payload of 137438953472 bytes is longer than gcm allows",
                "additional data of 4611686018427387904 bytes is longer than gcm allows",
                "CONVOY_DENY_CPU is not valid text",
            ]
        );
    }
}
