//! Jobs: one packet's worth of work each, in full detail.

use std::{fmt, hint::black_box};

use super::{
    keys::{AesDecryptKey, AesEncryptKey, CmacKey, HmacKeys, XcbcKey},
    plan::Plan,
};
use crate::{AeadKey, isa::made_public, nonce::NonceBlock};

/// A packet to be ciphered, authenticated, or both.
///
/// Every field may be set at will; what makes no sense together shows when the job is processed, as
/// [`Status::InvalidArgs`]. A fresh job is invalid until its cipher is set.
#[derive(Default)]
pub struct Job<'a> {
    /// Memory of the packet and of the result.
    pub buffer: Buffer<'a>,
    /// The cipher, or the AEAD.
    pub cipher: JobCipher<'a>,
    /// Bytes that the cipher works on; for AEADs the payload, for GMAC the bytes authenticated behind the
    /// additional data. Whole blocks of 16 bytes for CBC.
    pub cipher_span: Span,
    /// The MAC; must be [`JobHash::Null`] beside an AEAD.
    pub hash: JobHash<'a>,
    /// Bytes that the MAC authenticates. Ignored without a MAC.
    pub hash_span: Span,
    /// Order of the two.
    pub order: ChainOrder,
    /// The IV or nonce. CBC: 16 bytes. CTR: 12 bytes, counted from 1 (RFC 3686), or the whole first
    /// counter block. GCM, GMAC and ChaCha20-Poly1305: 12. CCM: 7 to 13.
    pub iv: Iv,
    /// Additional data of an AEAD; empty for others.
    pub aad: &'a [u8],
    /// Bytes that a MAC authenticates behind its span, such as the high half of an extended sequence
    /// number (RFC 4303 section 2.2.1): at most 16 bytes, empty without a MAC.
    pub trailer: &'a [u8],
    /// Room for the MAC or tag, cut to this length: at least 4 bytes, at most what the algorithm
    /// has; for CCM an even number of them. Empty where nothing is authenticated.
    ///
    /// It is written in both directions. Whoever decrypts compares it with what came along, best
    /// with [`tags_match`].
    pub tag: &'a mut [u8],
    /// The caller's own.
    pub user_data: usize,
    /// The caller's own.
    pub user_data2: usize,
    pub(super) status: Status,
    pub(super) error: Option<JobError>,
    pub(super) plan: Plan,
}

impl Job<'_> {
    /// State of the job.
    #[inline(always)]
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Reason for which the job is [`Status::InvalidArgs`]; none if it is not.
    #[inline]
    #[must_use]
    pub fn error(&self) -> Option<JobError> {
        self.error
    }
}

impl fmt::Debug for Job<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("status", &self.status)
            .field("cipher", &self.cipher)
            .field("cipher_span", &self.cipher_span)
            .field("hash", &self.hash)
            .field("hash_span", &self.hash_span)
            .field("user_data", &self.user_data)
            .finish_non_exhaustive()
    }
}

/// State of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Not processed yet.
    #[default]
    Queued,
    /// Processed.
    Completed,
    /// Its parts do not fit together; nothing was done.
    InvalidArgs,
}

/// Error of a job whose parts do not fit together: the first that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// No cipher was set.
    #[error("no cipher is set; a job without one has the cipher NULL")]
    Cipher,
    /// The cipher's key was not set up, or is one of a suite that jobs do not have.
    #[error("the cipher's key is not set up, or of another suite")]
    CipherKey,
    /// The MAC's key was not set up.
    #[error("the MAC's key is not set up")]
    HashKey,
    /// A MAC beside an AEAD.
    #[error("an AEAD has no MAC beside it")]
    Hash,
    /// A span reaches beyond the buffer.
    #[error("a span reaches beyond the buffer")]
    Span,
    /// A cipher is to work on what may only be read.
    #[error("a cipher writes, and the buffer may only be read")]
    ReadOnly,
    /// An IV of a length that the cipher does not take.
    #[error("the IV has a length that the cipher does not take")]
    IvLength,
    /// Text of a length that the cipher does not take: no whole blocks, or too many.
    #[error("the text is not whole blocks, or longer than the cipher takes")]
    CipherLength,
    /// More text than a MAC takes.
    #[error("the text is longer than the MAC takes")]
    HashLength,
    /// Additional data without an AEAD, or too much of it.
    #[error("additional data without an AEAD, or too much of it")]
    Aad,
    /// A trailer without a MAC, or of more than 16 bytes.
    #[error("a trailer without a MAC, or longer than 16 bytes")]
    Trailer,
    /// A tag of a length that the algorithm does not have, or without one.
    #[error("the tag has a length that the algorithm does not have")]
    TagLength,
}

/// A packet's memory.
pub enum Buffer<'a> {
    /// The result replaces the packet.
    InPlace(&'a mut [u8]),
    /// The bytes that the spans cover, from the first byte of either to the last, are copied from `src` to the
    /// same place of `dst` and worked on there.
    Copy {
        /// The packet; it is only read.
        src: &'a [u8],
        /// Room for the result.
        dst: &'a mut [u8],
    },
    /// The packet is authenticated and stays as it is: for jobs without a cipher. Any number of jobs
    /// may read it.
    ReadOnly(&'a [u8]),
}

impl Buffer<'_> {
    /// Bytes that spans may cover.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::InPlace(data) => data.len(),
            Self::Copy { src, dst } => src.len().min(dst.len()),
            Self::ReadOnly(data) => data.len(),
        }
    }

    /// Bytes that are worked on.
    #[inline(always)]
    pub(super) fn work(&self) -> &[u8] {
        match self {
            Self::ReadOnly(data) => data,
            Self::InPlace(data) | Self::Copy { dst: data, .. } => data,
        }
    }

    /// Bytes that are worked on; none if they may only be read.
    #[inline(always)]
    pub(super) fn work_mut(&mut self) -> &mut [u8] {
        match self {
            Self::ReadOnly(_) => &mut [],
            Self::InPlace(data) | Self::Copy { dst: data, .. } => data,
        }
    }
}

impl Default for Buffer<'_> {
    #[inline(always)]
    fn default() -> Self {
        Self::InPlace(&mut [])
    }
}

impl fmt::Debug for Buffer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::InPlace(_) => "InPlace",
            Self::Copy { .. } => "Copy",
            Self::ReadOnly(_) => "ReadOnly",
        };
        write!(f, "{kind}({} bytes)", self.len())
    }
}

/// A part of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Bytes in front of it.
    pub offset: usize,
    /// Bytes in it.
    pub len: usize,
}

impl Span {
    /// Puts the two together.
    #[inline(always)]
    #[must_use]
    pub const fn new(offset: usize, len: usize) -> Self {
        Self { offset, len }
    }

    /// End of the span, if it does not overflow.
    #[inline(always)]
    pub(super) const fn end(self) -> Option<usize> {
        self.offset.checked_add(self.len)
    }
}

/// Direction of a cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Plaintext becomes ciphertext.
    Encrypt,
    /// Ciphertext becomes plaintext. Nothing is verified: see [`Job::tag`].
    Decrypt,
}

/// Cipher mode, direction and key.
#[derive(Clone, Copy, Debug, Default)]
pub enum JobCipher<'a> {
    /// Not said yet: the job is invalid.
    #[default]
    Unset,
    /// None; out of place, text is copied.
    Null,
    /// AES-CBC, encrypting.
    CbcEncrypt(&'a AesEncryptKey),
    /// AES-CBC, decrypting.
    CbcDecrypt(&'a AesDecryptKey),
    /// AES-CTR, which is the same in both directions.
    Ctr(&'a AesEncryptKey),
    /// AES-CCM.
    Ccm(&'a AesEncryptKey, Direction),
    /// AES-GCM, AES-GMAC (which changes no text in either direction) or ChaCha20-Poly1305, as the
    /// key says; keys of other suites make the job invalid. The key's tier does the work, whatever
    /// that of the manager.
    Aead(&'a AeadKey, Direction),
}

/// MAC and key.
#[derive(Clone, Copy, Debug, Default)]
pub enum JobHash<'a> {
    /// None.
    #[default]
    Null,
    /// HMAC with the key's hash.
    Hmac(&'a HmacKeys),
    /// AES-XCBC-MAC.
    Xcbc(&'a XcbcKey),
    /// AES-CMAC.
    Cmac(&'a CmacKey),
}

/// Order of cipher and MAC; the second works on what the first leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChainOrder {
    /// Cipher, then MAC: how ESP encrypts.
    #[default]
    CipherThenHash,
    /// MAC, then cipher: how ESP decrypts, and how TLS encrypts.
    HashThenCipher,
}

/// An IV or nonce of up to 16 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Iv {
    pub(super) bytes: [u8; 16],
    pub(super) len: u8,
}

impl Iv {
    /// Copies the bytes. More than 16 make an IV that fits no cipher.
    #[inline(always)]
    #[must_use]
    pub fn new(iv: &[u8]) -> Self {
        // The usual lengths apart, so that each is a few plain loads and stores, which are not waited for.
        match iv.len() {
            16 => {
                iv.first_chunk().map_or_else(Self::unfit, |bytes| Self { bytes: *bytes, len: 16 })
            }
            12 => {
                let front = |iv: &[u8; 12]| Self { bytes: NonceBlock::new(*iv).bytes, len: 12 };
                iv.first_chunk().map_or_else(Self::unfit, front)
            }
            _ => Self::of_any_length(iv),
        }
    }

    /// An IV that fits no cipher.
    fn unfit() -> Self {
        Self { bytes: [0; 16], len: u8::MAX }
    }

    #[inline(never)]
    fn of_any_length(iv: &[u8]) -> Self {
        let mut this = Self::unfit();
        if let Some(front) = this.bytes.get_mut(..iv.len()) {
            front.copy_from_slice(iv);
            this.len = iv.len() as u8;
        }
        this
    }
}

impl Default for Iv {
    #[inline(always)]
    fn default() -> Self {
        Self { bytes: [0; 16], len: 0 }
    }
}

impl From<[u8; 12]> for Iv {
    fn from(iv: [u8; 12]) -> Self {
        Self::new(&iv)
    }
}

impl From<[u8; 16]> for Iv {
    fn from(iv: [u8; 16]) -> Self {
        Self::new(&iv)
    }
}

/// True if two tags are equal; tags of different length or without any bytes are not. The time taken
/// depends on the length alone.
#[must_use]
pub fn tags_match(computed: &[u8], received: &[u8]) -> bool {
    if computed.len() != received.len() || computed.is_empty() {
        return false;
    }
    let difference = computed.iter().zip(received).fold(0, |sum, (a, b)| sum | (a ^ b));
    // The black box keeps the compiler from stopping at the first byte that differs.
    made_public(black_box(difference) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flipped_bit_makes_tags_differ() {
        let tag: [u8; 12] = std::array::from_fn(|i| (i as u8).wrapping_mul(31));
        assert!(tags_match(&tag, &tag));
        for bit in 0..96 {
            let mut other = tag;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!tags_match(&tag, &other), "bit {bit}");
        }
        assert!(!tags_match(&tag, &tag[..11]));
        assert!(!tags_match(&[], &[]), "no tag proves nothing");
    }

    #[test]
    fn ivs_of_more_than_sixteen_bytes_fit_nothing() {
        assert_eq!((Iv::new(&[1; 16]).len, Iv::new(&[1; 17]).len), (16, u8::MAX));
        assert_eq!(Iv::new(&[1; 12]).bytes[11..], [1, 0, 0, 0, 0]);
    }

    #[test]
    fn jobs_show_no_content() {
        let mut secret = *b"secret";
        let job = Job { buffer: Buffer::InPlace(&mut secret), ..Job::default() };
        let text = format!("{job:?}");
        assert!(text.contains("Queued") && !text.contains("secret"), "{text}");
        assert!(!format!("{job:?}").contains("115"));
        assert_eq!(format!("{:?}", job.buffer), "InPlace(6 bytes)");
    }
}
