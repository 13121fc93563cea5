//! Reasons of failed calls, in OpenSSL's words.

use convoy_crypto::{KeyError, OutOfMemory, manager::StreamError};

/// A reason of OpenSSL's "Provider routines" (`PROV_R_*` of `openssl/proverr.h`), so that texts are the
/// ones that the default provider's users know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum Reason {
    /// The text could not be ciphered: no key or IV, a forged record, or parts out of order.
    CipherOperationFailed = 102,
    /// A parameter given has the wrong type or size.
    FailedToGetParameter = 103,
    /// A parameter asked for has the wrong type or size.
    FailedToSetParameter = 104,
    /// The key does not have the cipher's length.
    InvalidKeyLength = 105,
    /// The output has less room than the result needs.
    OutputBufferTooSmall = 106,
    /// The additional data of a TLS record is not 13 bytes, or names too short a record.
    InvalidAad = 108,
    /// The IV is empty, or longer than 128 bytes.
    InvalidIvLength = 109,
    /// A tag is set when encrypting, asked for when there is none, or not 1 to 16 bytes.
    InvalidTag = 110,
    /// Text is given before a key.
    NoKeySet = 114,
    /// The additional data of a TLS record is not 13 bytes, or names too short a record: ChaCha20-Poly1305's
    /// reason.
    InvalidData = 115,
    /// A tag is not 1 to 16 bytes.
    InvalidTagLength = 118,
    /// A tag is asked for when decrypting.
    TagNotSet = 119,
    /// A tag is set when encrypting.
    TagNotNeeded = 120,
    /// Every number of a record was used under this key.
    TooManyRecords = 126,
    /// There is no memory (`ERR_R_MALLOC_FAILURE`).
    MallocFailure = 256 | 3 << 18,
    /// A defect: a panic ended at the border (`ERR_R_INTERNAL_ERROR`).
    Internal = 259 | 3 << 18,
}

impl From<OutOfMemory> for Reason {
    fn from(_: OutOfMemory) -> Self {
        Self::MallocFailure
    }
}

impl From<KeyError> for Reason {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::OutOfMemory => Self::MallocFailure,
            KeyError::Length { .. } => Self::InvalidKeyLength,
            _ => Self::Internal,
        }
    }
}

impl From<StreamError> for Reason {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::OutOfMemory => Self::MallocFailure,
            _ => Self::CipherOperationFailed,
        }
    }
}

impl Reason {
    /// `ERR_LIB_PROV`.
    const LIBRARY: u32 = 57;

    /// The number as libcrypto's error queue takes it: library and reason.
    #[must_use]
    pub const fn packed(self) -> u32 {
        Self::LIBRARY << 23 | self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl errstr 1C80006D` says "invalid iv length" of "Provider routines".
    #[test]
    fn numbers_are_those_of_libcrypto_s_queue() {
        assert_eq!(Reason::InvalidIvLength.packed(), 0x1c80_006d);
        assert_eq!(Reason::Internal.packed(), 0x1c8c_0103);
        assert_eq!(Reason::MallocFailure.packed(), 0x1c8c_0100);
    }
}
