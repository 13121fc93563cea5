//! Records of TLS 1.0 to 1.2 under AES-CBC and HMAC: the MAC first, then padding, then the cipher
//! (RFC 5246 section 6.2.3.2).
//!
//! A [`CbcHmacKey`] seals a record in place, or many at once in the lanes that bursts go through, and
//! opens one in a time that tells neither how long its padding is nor which of padding and MAC was
//! wrong (Lucky Thirteen, AlFardan and Paterson, 2013).
//!
//! ```
//! use convoy_crypto::{
//!     Cpu, SecretBytes,
//!     manager::Direction,
//!     tls::{CbcHmacKey, RecordError, RecordHeader, RecordMac},
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (cpu, mac) = (Cpu::detect()?, RecordMac::HmacSha1);
//! let secrets = [SecretBytes::copy_from(&[1; 16]), SecretBytes::copy_from(&[2; 20])];
//! let seals = CbcHmacKey::new(&cpu, mac, Direction::Encrypt, &secrets[0], &secrets[1])?;
//! let opens = CbcHmacKey::new(&cpu, mac, Direction::Decrypt, &secrets[0], &secrets[1])?;
//! let header = RecordHeader { number: 0, content_type: 23, version: 0x0303 };
//!
//! // No text in front of the record's own, as in TLS 1.0: the IV is known to both sides.
//! let mut record = b"attack at dawn".to_vec();
//! record.resize(seals.sealed_bytes(14), 0);
//! seals.seal(header, &mut [3; 16], 0, 14, &mut record)?;
//! assert_eq!(record.len(), 48);
//!
//! let mut forged = record.clone();
//! forged[0] ^= 1;
//! assert_eq!(opens.open(header, &[3; 16], &mut forged), Err(RecordError::Forged));
//! assert_eq!(forged, [0; 48]);
//! let text = opens.open(header, &[3; 16], &mut record)?;
//! assert_eq!(&record[..text], b"attack at dawn");
//! # Ok(())
//! # }
//! ```

mod key;
mod mac;
mod open;
mod plain;
mod seal;

use thiserror::Error;

pub use key::CbcHmacKey;
pub use seal::BurstRecord;

use crate::{HashAlg, isa::record_job};

/// The MAC of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordMac {
    /// HMAC-SHA-1, 20 bytes.
    HmacSha1,
    /// HMAC-SHA-256, 32 bytes.
    HmacSha256,
}

impl RecordMac {
    /// Both.
    pub const ALL: [Self; 2] = [Self::HmacSha1, Self::HmacSha256];

    /// Bytes of a MAC: TLS does not cut it.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.hash().digest_bytes()
    }

    /// The hash below it.
    #[must_use]
    pub const fn hash(self) -> HashAlg {
        match self {
            Self::HmacSha1 => HashAlg::Sha1,
            Self::HmacSha256 => HashAlg::Sha256,
        }
    }
}

/// Bytes of what is authenticated in front of a record's text.
pub const HEADER: usize = record_job::HEADER;

/// Bytes of an AES block, and of an IV.
const BLOCK: usize = 16;

/// Bytes that are authenticated in front of a record's text, but for the length of the text, which is the last
/// two bytes (RFC 5246 section 6.2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The sequence number.
    pub number: u64,
    /// The content type: 23 for application data.
    pub content_type: u8,
    /// The protocol version: 0x0301 for TLS 1.0, 0x0303 for TLS 1.2.
    pub version: u16,
}

impl RecordHeader {
    /// Takes apart what libraries call the additional data of a record; its length is left aside.
    #[must_use]
    pub const fn parse(bytes: &[u8; HEADER]) -> Self {
        let [a, b, c, d, e, f, g, h, content_type, major, minor, ..] = *bytes;
        Self {
            number: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            content_type,
            version: u16::from_be_bytes([major, minor]),
        }
    }

    /// The header of a text of this length.
    #[inline(always)]
    fn of(self, text: u16) -> [u8; HEADER] {
        let [a, b, c, d, e, f, g, h] = self.number.to_be_bytes();
        let ([major, minor], [high, low]) = (self.version.to_be_bytes(), text.to_be_bytes());
        [a, b, c, d, e, f, g, h, self.content_type, major, minor, high, low]
    }
}

/// A record cannot be sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// No cipher key of this direction is set, or no MAC key.
    #[error("the key has no cipher key of this direction, or no MAC key")]
    NoKey,
    /// The bytes of a record to be sealed are not as many as its parts take.
    #[error("a record has {given} bytes, its parts take {needed}")]
    Length {
        /// Bytes of what stands in front, text, MAC and padding.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// The text is longer than its length field says: 65,535 bytes.
    #[error("text of {given} bytes is longer than 65,535")]
    TextTooLong {
        /// Bytes given.
        given: usize,
    },
    /// The record is not authentic: its length, padding or MAC is wrong. It was wiped.
    #[error("the record is not authentic")]
    Forged,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_rfc_5246() {
        let header =
            RecordHeader { number: 0x0102_0304_0506_0708, content_type: 23, version: 0x0302 };
        assert_eq!(header.of(0x4001), [1, 2, 3, 4, 5, 6, 7, 8, 23, 3, 2, 0x40, 1]);
        assert_eq!(RecordHeader::parse(&header.of(7)), header);
    }

    #[test]
    fn texts_of_errors_say_what_would_be_right() {
        let length = RecordError::Length { needed: 48, given: 47 };
        assert_eq!(length.to_string(), "a record has 47 bytes, its parts take 48");
        assert_eq!(RecordError::Forged.to_string(), "the record is not authentic");
    }
}
