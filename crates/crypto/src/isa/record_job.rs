//! Records of TLS, as kernels take them, and the blocks that do not lie in them.

use crate::{
    HashAlg,
    block::{HmacKey, digest_bytes},
    secret::wipe,
};

/// Bytes of a block of SHA-1 and SHA-256.
pub(crate) const BLOCK: usize = 64;

/// Bytes of what is authenticated in front of a record's text.
pub(crate) const HEADER: usize = 13;

/// Inputs to a record's MAC besides its text.
pub(crate) struct Ends<'r> {
    pub(crate) key: &'r HmacKey,
    pub(crate) header: [u8; HEADER],
}

/// A record to be sealed in place.
pub(crate) struct RecordJob<'r> {
    /// The IV, then the last block.
    pub(crate) chain: [u8; 16],
    pub(crate) record: &'r mut [u8],
    /// Offset of the text in the record, and its length.
    pub(crate) front: usize,
    pub(crate) text: usize,
    /// Without them, the text is hashed and nothing comes of it.
    pub(crate) ends: Option<Ends<'r>>,
}

impl RecordJob<'_> {
    /// End of the text in the record.
    #[inline(always)]
    pub(crate) fn end(&self) -> usize {
        self.front + self.text
    }

    /// As many bytes as a block of the hash has.
    #[inline(always)]
    pub(crate) fn chunk(&mut self, at: usize) -> Option<&mut [u8; BLOCK]> {
        self.record.get_mut(at..)?.first_chunk_mut()
    }
}

/// The blocks of a MAC that do not lie in the record; wiped on drop. What puts them together is no kernel,
/// and is there once for all of them.
pub(crate) struct Edges([[u8; BLOCK]; 2]);

impl Drop for Edges {
    #[inline(never)]
    fn drop(&mut self) {
        wipe(&mut self.0, [0; BLOCK]);
    }
}

impl Edges {
    /// Bytes of text in the block that the header begins.
    pub(crate) const FIRST: usize = BLOCK - HEADER;

    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self([[0; BLOCK]; 2])
    }

    /// One of the blocks that were made last, the first or else the second.
    #[inline(always)]
    pub(crate) fn block(&self, index: usize) -> &[u8; BLOCK] {
        &self.0[usize::from(index > 0)]
    }

    #[inline(always)]
    fn bytes(&mut self) -> &mut [u8] {
        self.0.as_flattened_mut()
    }

    /// Makes the block of header and first text; false if the text does not fill it.
    #[inline(always)]
    pub(crate) fn first(&mut self, job: &RecordJob<'_>) -> bool {
        let text = job.record.get(job.front..job.end()).unwrap_or_default();
        let (Some(ends), Some(text)) = (&job.ends, text.first_chunk::<{ Self::FIRST }>()) else {
            return false;
        };
        self.header_and(&ends.header, text);
        true
    }

    /// Makes the block of header and first text.
    #[inline(always)]
    pub(crate) fn header_and(&mut self, header: &[u8; HEADER], text: &[u8; Self::FIRST]) {
        // As arrays: slices would be copied by calls.
        if let Some((front, behind)) = self.0[0].split_first_chunk_mut()
            && let Some(behind) = behind.first_chunk_mut()
        {
            (*front, *behind) = (*header, *text);
        }
    }

    /// Makes the last blocks, one or two: the text from `at` on, with the header in front if that was not
    /// taken in yet, and the padding of the hash. Gives how many.
    #[inline(never)]
    pub(crate) fn tail(&mut self, job: &RecordJob<'_>, at: usize) -> usize {
        let rest = job.record.get(at..job.end()).unwrap_or_default();
        let bytes = self.bytes();
        bytes.fill(0);
        let front = match &job.ends {
            Some(ends) if job.text < Self::FIRST => &ends.header[..],
            _ => &[],
        };
        let used = front.len() + rest.len();
        bytes[..front.len()].copy_from_slice(front);
        bytes[front.len()..used].copy_from_slice(rest);
        bytes[used] = 0x80;
        let blocks = if used + 9 > BLOCK { 2 } else { 1 };
        let length = bits(HEADER + job.text).to_be_bytes();
        bytes[BLOCK * blocks - 8..BLOCK * blocks].copy_from_slice(&length);
        blocks
    }

    /// Makes the block of the outer hash of the chaining value that the inner one ended with.
    #[inline(never)]
    pub(crate) fn outer(&mut self, alg: HashAlg, state: &[u8; 64]) {
        let (mut inner, len) = digest_bytes(alg, state);
        let bytes = self.bytes();
        bytes[..BLOCK].fill(0);
        bytes[..len].copy_from_slice(&inner[..len]);
        bytes[len] = 0x80;
        bytes[BLOCK - 8..BLOCK].copy_from_slice(&bits(len).to_be_bytes());
        wipe(&mut inner, 0);
    }

    /// Writes the MAC that the outer hash ended with, and the padding, whose bytes all say how many there
    /// are besides the last.
    #[inline(never)]
    pub(crate) fn write(&mut self, alg: HashAlg, state: &[u8; 64], end: &mut [u8]) {
        let (mac, len) = digest_bytes(alg, state);
        write_end(end, &mac[..len]);
    }
}

/// Writes the MAC and the padding.
#[inline(always)]
pub(crate) fn write_end(end: &mut [u8], mac: &[u8]) {
    let Some((place, padding)) = end.split_at_mut_checked(mac.len()) else { return };
    place.copy_from_slice(mac);
    let len = padding.len().saturating_sub(1) as u8;
    padding.fill(len);
}

/// Bits of a message of so many bytes behind the block of an HMAC's padding.
#[inline(always)]
pub(crate) fn bits(bytes: usize) -> u64 {
    8 * (BLOCK + bytes) as u64
}
