//! Passes for records of TLS alone: the hash and the cipher of one message.

use crate::{
    HashAlg, KeyBits,
    block::{HmacKey, RoundKeys},
    isa::{Kernel, RecordKernel},
    pass::{CipherJob, Hasher},
    portable,
    secret::{Scratch, wipe, wipe_below},
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
        let (mut inner, len) = portable::hash::digest(alg, state);
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
        let (mac, len) = portable::hash::digest(alg, state);
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

/// Implementation of the work on one record.
#[derive(Clone, Copy)]
pub(crate) struct One {
    /// Without a kernel it is the portable tier.
    pub(crate) kernel: Option<Kernel>,
    pub(crate) hasher: Hasher,
    /// Kernel that does cipher and hash side by side, where there is one.
    pub(crate) both: Option<RecordKernel>,
}

impl One {
    /// Takes whole blocks of SHA-1 or SHA-256 into a chaining value, its words in the machine's byte order.
    #[inline(always)]
    pub(crate) fn hash(self, alg: HashAlg, state: &mut [u8; 64], blocks: &[[u8; BLOCK]]) {
        let kernel = self.hasher.kernel();
        if !kernel.is_some_and(|kernel| kernel.blocks(alg, state, blocks)) {
            soft(alg, state, blocks);
        }
    }

    /// Encrypts whole blocks with AES-CBC; `chain` is the IV, then the last block.
    fn encrypt(self, (bits, keys): (KeyBits, &RoundKeys), chain: &mut [u8; 16], data: &mut [u8]) {
        if let Some(kernel) = self.kernel {
            return kernel.cbc_encrypt_one(bits, keys, chain, data);
        }
        let iv = *chain;
        portable::aes::cbc_encrypt(bits, &mut CipherJob { keys, iv: &iv, data: &mut *data });
        if let Some(last) = data.last_chunk() {
            *chain = *last;
        }
    }

    /// Of each record, makes the MAC, writes it and the padding behind the text, and encrypts all of it with
    /// AES-CBC; without ends, encrypts and hashes whole blocks.
    pub(crate) fn seal(
        self,
        alg: HashAlg,
        keys: (KeyBits, &RoundKeys),
        jobs: &mut [RecordJob<'_>],
    ) {
        if let Some(both) = self.both {
            both.seal(alg, keys, jobs);
            return wipe_below::<SPILLED>();
        }
        for job in jobs {
            self.seal_apart(alg, keys, job);
        }
    }

    /// The same for one record, the hash first and then the cipher.
    fn seal_apart(self, alg: HashAlg, keys: (KeyBits, &RoundKeys), job: &mut RecordJob<'_>) {
        let Some(ends) = &job.ends else {
            self.hash_only(alg, job.record);
            return self.encrypt(keys, &mut job.chain, job.record);
        };
        let outer = ends.key.outer;
        let mut state = Scratch(ends.key.inner);
        let mut edges = Edges::new();
        let (end, mut at) = (job.end(), job.front);
        if edges.first(job) {
            self.hash(alg, &mut state.0, std::slice::from_ref(edges.block(0)));
            at += Edges::FIRST;
            let blocks = job.record.get(at..end).unwrap_or_default().as_chunks().0;
            self.hash(alg, &mut state.0, blocks);
            at += BLOCK * blocks.len();
        }
        for i in 0..edges.tail(job, at) {
            self.hash(alg, &mut state.0, std::slice::from_ref(edges.block(i)));
        }
        edges.outer(alg, &state.0);
        state.0 = outer;
        self.hash(alg, &mut state.0, std::slice::from_ref(edges.block(0)));
        edges.write(alg, &state.0, job.record.get_mut(end..).unwrap_or_default());
        self.encrypt(keys, &mut job.chain, job.record);
    }

    /// True if a burst of so many records is best sealed by [`seal`](Self::seal).
    pub(crate) fn seals_all(self, alg: HashAlg, records: usize) -> bool {
        self.both.is_some_and(|both| both.is_best_for(alg, records, self.hasher.kernel()))
    }

    /// Hashes whole blocks for nothing.
    pub(crate) fn hash_only(self, alg: HashAlg, text: &[u8]) {
        let mut state = Scratch(portable::hash::start(alg));
        self.hash(alg, &mut state.0, text.as_chunks().0);
        std::hint::black_box(&state.0);
    }
}

/// Bytes of stack to which the compiler may spill keys where cipher and hash share the registers.
const SPILLED: usize = 4 << 10;

/// Of its own frame, so that what it leaves is below the caller's.
#[inline(never)]
fn soft(alg: HashAlg, state: &mut [u8; 64], blocks: &[[u8; BLOCK]]) {
    portable::hash::compress(alg, state, blocks.as_flattened());
}
