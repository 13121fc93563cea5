//! Packets of AES-GCM, as kernels take them.

use super::Tables;

/// Packets sorted together. Larger bursts are cut; the working set stays small and on the stack.
pub(crate) const CHUNK: usize = 256;

/// Packets of up to this many blocks have a class for each number of blocks.
pub(crate) const SHORT_BLOCKS: usize = 16;

/// Packets of up to this many rows of four blocks have a class for each number of rows, where kernels tell
/// them apart; all longer ones share one.
pub(crate) const MOST_ROWS: usize = 24;

/// A place for an operation on its way to a kernel; emptied only when operations are sorted into new
/// places.
pub(crate) type Slot<'o, O> = Option<&'o mut O>;

/// Parts of an operation that a kernel of GCM works on.
pub(crate) struct Parts<'p> {
    /// The nonce, then four zero bytes where counters go.
    pub(crate) counter: &'p [u8; 16],
    /// All additional data, or the one block that is left of it: the last one, with the hash of all
    /// before it added.
    pub(crate) aad: &'p [u8],
    /// Bytes of all additional data.
    pub(crate) aad_len: usize,
    pub(crate) data: &'p mut [u8],
}

/// View of an operation for the kernels: seal and open differ in direction and in what becomes of the tag.
pub(crate) trait GcmPacket<'a> {
    /// True if the data goes from plaintext to ciphertext.
    const SEAL: bool;

    /// Tables of its key; none with a key of another suite than AES-GCM.
    fn tables(&self) -> Option<&'a Tables>;

    /// Address of its key, by which keys are told apart.
    fn key_address(&self) -> usize;

    /// Payload bytes.
    fn data_len(&self) -> usize;

    /// Nonce, additional data and payload.
    fn parts(&mut self) -> Parts<'_>;

    /// Ends the operation: the payload has been transformed and `tag` is the full tag of an AEAD.
    fn finish(&mut self, tag: [u8; 16]);

    /// The ICV that the tag is to be compared with, if that is all of the tag.
    #[inline(always)]
    fn expected(&self) -> Option<&[u8; 16]> {
        None
    }

    /// Room for the tag, if all of it is to be written.
    #[inline(always)]
    fn place(&mut self) -> Option<&mut [u8; 16]> {
        None
    }

    /// Ends the operation like [`finish`](Self::finish), the ICV being written or compared already. What has
    /// nothing to compare is over all the same.
    fn settle(&mut self, matches: bool);
}

/// True if these seem to be a few keys again and again, by the number of times that the first one is among them.
#[inline(always)]
pub(crate) fn are_few(mut keys: impl Iterator<Item = usize>) -> bool {
    let Some(first) = keys.next() else { return false };
    let (mut all, mut like_first) = (1, 1);
    for key in keys {
        all += 1;
        like_first += usize::from(key == first);
    }
    8 * like_first > all
}
