//! Passes for records of TLS alone: the hash and the cipher of one message.

use super::hmac::Hasher;
use crate::{
    HashAlg,
    isa::{
        Kernel, RecordKernel,
        job::{CipherJob, SizedKeys},
        record_job::{BLOCK, Edges, RecordJob},
    },
    portable,
    secret::{Scratch, wipe_below},
};

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
    fn encrypt(self, keys: SizedKeys<'_>, chain: &mut [u8; 16], data: &mut [u8]) {
        let SizedKeys { bits, keys } = keys;
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
    pub(crate) fn seal(self, alg: HashAlg, keys: SizedKeys<'_>, jobs: &mut [RecordJob<'_>]) {
        if let Some(both) = self.both {
            both.seal(alg, keys, jobs);
            return wipe_below::<SPILLED>();
        }
        for job in jobs {
            self.seal_apart(alg, keys, job);
        }
    }

    /// The same for one record, the hash first and then the cipher.
    fn seal_apart(self, alg: HashAlg, keys: SizedKeys<'_>, job: &mut RecordJob<'_>) {
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
