//! Records, the hash in the gaps of the cipher.
//!
//! Each block of CBC encryption waits for the one before, some 40 cycles in which the processor has
//! nothing else of it to do. A block of the hash takes less than the four blocks of the cipher that are as
//! long, so it costs next to nothing beside them. The cipher follows the hash through the record, as it
//! writes over what the hash reads; it is beside it from the first block to that of the outer hash.
//!
//! Instructions of SHA have legacy encodings alone, which on some processors wait long where registers'
//! upper halves are in use. So what is beside them has legacy encodings, too, except where that is harmless.
//!
//! A few records go side by side through the blocks that all have, and each goes to its end alone.

use std::{arch::asm, array};

use arrayvec::ArrayVec;

use super::{
    HashKernel, Kernel, Proofs,
    hash::sha_ni::{Beside, Nothing, Pair, Sha1, Sha256, Single},
    lanes::{B, Lanes},
    token::{AesSha, Door, Task, WideSha},
};
use crate::{
    HashAlg, KeyBits, Tier,
    block::RoundKeys,
    pass::record::{Edges, RecordJob},
    secret::Scratch,
};

/// Encrypts and hashes a record side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordKernel {
    /// AES-NI and the SHA extensions.
    Aes(AesSha),
    /// The same with those of AVX-512, for more registers.
    Wide(WideSha),
}

impl RecordKernel {
    /// The one for `alg` with the instructions of `tier`, if there is one.
    pub(crate) fn choose(proofs: &Proofs, tier: Tier, alg: HashAlg) -> Option<Self> {
        if !matches!(alg, HashAlg::Sha1 | HashAlg::Sha256) {
            return None;
        }
        match (tier, proofs.wide_sha) {
            (Tier::Portable, _) => None,
            (Tier::Vaes512, Some(token)) => Some(Self::Wide(token)),
            _ => proofs.aes_sha.map(Self::Aes),
        }
    }

    /// Whether it seals so many records faster than `hashes` and then the cipher in lanes, as measured.
    pub(crate) fn is_best_for(
        self,
        alg: HashAlg,
        records: usize,
        hashes: Option<HashKernel>,
    ) -> bool {
        match self {
            Self::Wide(_) => records <= if alg == HashAlg::Sha1 { 4 } else { 8 },
            _ => hashes.is_some_and(|hashes| hashes.takes_two(records)),
        }
    }

    /// See [`One::seal`](crate::pass::record::One::seal).
    pub(crate) fn seal(
        self,
        alg: HashAlg,
        (bits, keys): (KeyBits, &RoundKeys),
        jobs: &mut [RecordJob<'_>],
    ) {
        let (fours, rest): (&mut [[_; 4]], _) = match self {
            Self::Wide(_) => jobs.as_chunks_mut(),
            _ => (&mut [], jobs),
        };
        if let Self::Wide(token) = self {
            fours.iter_mut().for_each(|jobs| token.enter(Seal { alg, bits, keys, jobs }));
        }
        let (twos, rest) = rest.as_chunks_mut::<2>();
        twos.iter_mut().for_each(|jobs| self.enter(Seal { alg, bits, keys, jobs }));
        if let Some(jobs) = rest.first_chunk_mut::<1>() {
            self.enter(Seal { alg, bits, keys, jobs });
        }
    }

    fn enter<const N: usize>(self, work: Seal<'_, '_, N>) {
        match self {
            Self::Aes(token) => token.enter(work),
            Self::Wide(token) => token.enter(work),
        }
    }
}

impl Kernel {
    /// Encrypts whole blocks with CBC; `chain` is the IV, then the last block.
    pub(crate) fn cbc_encrypt_one(
        self,
        bits: KeyBits,
        keys: &RoundKeys,
        chain: &mut [u8; 16],
        data: &mut [u8],
    ) {
        let work = One { bits, keys, chain, data };
        match self {
            Self::AesNi(token) => token.enter(work),
            Self::Avx(token) => token.enter(work),
            Self::Avx2(token) => token.avx().enter(work),
            Self::Avx512(token) => token.avx2().avx().enter(work),
            Self::Vaes256(token) => token.avx2().avx().enter(work),
            Self::Vaes512(token) => token.avx512().avx2().avx().enter(work),
        }
    }
}

/// CBC encryption under way.
#[derive(Clone, Copy)]
struct Chain<'k, L, const ROUNDS: usize> {
    l: L,
    keys: &'k RoundKeys,
    /// The last block of ciphertext, and the first round key and `next` on it.
    state: B,
    /// The text of the next block if that is on the state already, else zero.
    next: B,
    /// The first and the last round key together: the last round gives the next block's first state.
    turn: B,
}

impl<'k, L: Lanes, const ROUNDS: usize> Chain<'k, L, ROUNDS> {
    #[inline(always)]
    fn new(l: L, keys: &'k RoundKeys, chain: &[u8; 16]) -> Self {
        let (first, last) = (l.table(&keys.0[0]), l.table(&keys.0[ROUNDS]));
        let (state, turn) = (l.xor(l.load(chain), first), l.xor(first, last));
        Self { l, keys, state, next: l.zero(), turn }
    }

    /// Puts the text of a block on the state.
    #[inline(always)]
    fn begin(&mut self, text: &[u8; 16]) {
        self.state = self.l.xor(self.state, self.l.load(text));
    }

    /// Some of the rounds between the first and the last.
    #[inline(always)]
    fn rounds(&mut self, from: usize, to: usize) {
        for round in from..to {
            self.state = self.l.aes_round(self.state, self.l.table(&self.keys.0[round]));
        }
    }

    /// The last round of a block, which is written over its text. With the next text on the last round
    /// key, the next state does not wait for the block.
    #[inline(always)]
    fn end(&mut self, block: &mut [u8; 16], next: Option<&[u8; 16]>) {
        let l = self.l;
        self.next = next.map_or_else(|| l.zero(), |next| l.load(next));
        self.state = l.aes_last(self.state, l.xor(self.turn, self.next));
        l.store(block, self.last());
    }

    /// The last block of ciphertext.
    #[inline(always)]
    fn last(&self) -> B {
        self.l.xor3(self.state, self.next, self.l.table(&self.keys.0[0]))
    }

    /// Encrypts whole blocks.
    #[inline(always)]
    fn all(&mut self, data: &mut [u8]) {
        for block in data.as_chunks_mut().0 {
            self.begin(block);
            self.rounds(1, ROUNDS);
            self.end(block, None);
        }
    }
}

/// Four blocks of each chain of CBC beside a block of each hash.
struct Ciphers<'c, 'k, 'b, L, E, const ROUNDS: usize, const N: usize> {
    both: &'c mut [Both<'k, L, E, ROUNDS>; N],
    blocks: [&'b mut [[u8; 16]; 4]; N],
}

impl<L: Lanes, E, const ROUNDS: usize, const N: usize> Beside
    for Ciphers<'_, '_, '_, L, E, ROUNDS, N>
{
    #[inline(always)]
    fn step(&mut self, step: usize, steps: usize, hash: &mut B) {
        let each = steps / 4;
        let (at, part) = (step / each, step % each);
        let middle = ROUNDS - 1;
        for (Both { chain, .. }, blocks) in self.both.iter_mut().zip(&mut self.blocks) {
            if step == 0 {
                chain.begin(&blocks[0]);
            }
            chain.rounds(1 + middle * part / each, 1 + middle * (part + 1) / each);
            if part + 1 == each {
                match blocks.split_at_mut_checked(at + 1) {
                    Some(([.., block], [following, ..])) => chain.end(block, Some(following)),
                    Some(([.., block], [])) => chain.end(block, None),
                    _ => {}
                }
            }
            tie(&mut chain.state, hash);
        }
    }
}

/// Keeps two computations side by side: the compiler would put one of them before the other.
#[inline(always)]
fn tie(a: &mut B, b: &mut B) {
    // SAFETY: nothing is done.
    unsafe {
        asm!(
            "/* {0} {1} */",
            inout(xmm_reg) * a,
            inout(xmm_reg) * b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
}

/// Records to be encrypted and hashed.
struct Seal<'r, 'j, const N: usize> {
    alg: HashAlg,
    bits: KeyBits,
    keys: &'r RoundKeys,
    jobs: &'r mut [RecordJob<'j>; N],
}

impl<const N: usize> Seal<'_, '_, N> {
    #[inline(always)]
    fn with<L: Lanes, E: Single, const ROUNDS: usize>(self, l: L, engine: E) {
        let Self { alg, keys, jobs, .. } = self;
        let mut both = [Both::<_, _, ROUNDS>::new(l, engine, keys); N];
        for (both, job) in both.iter_mut().zip(&mut *jobs) {
            both.begin(job);
        }
        if N > 1 {
            text(&mut both, jobs);
        }
        for (both, job) in both.iter_mut().zip(jobs) {
            both.end(alg, job);
        }
    }
}

/// Takes in blocks of texts, as many as there are in all of them.
#[inline(always)]
fn text<L: Lanes, E: Single, const ROUNDS: usize, const N: usize>(
    all: &mut [Both<'_, L, E, ROUNDS>; N],
    jobs: &mut [RecordJob<'_>; N],
) {
    // A copy, which can stay in registers: what is written to records might be to memory of the original.
    let mut both = *all;
    let engine = both[0].engine;
    let left = both.iter().zip(&*jobs).map(|(both, job)| (job.end() - both.hashed) / 64);
    for _ in 0..left.min().unwrap_or(0) {
        let (mut states, mut words) = ([both[0].hash; N], [[both[0].hash.0; 4]; N]);
        let mut blocks = ArrayVec::<_, N>::new();
        for (i, job) in jobs.iter_mut().enumerate() {
            let Both { hash, hashed, encrypted, .. } = both[i];
            let Some(block) = job.chunk(hashed) else { return };
            (states[i], words[i]) = (hash, engine.words_one(block));
            // No cipher is in front of its hash.
            let Some(four) = job.chunk(encrypted) else { return };
            let Some((four, _)) = four.as_chunks_mut().0.split_first_chunk_mut::<4>() else {
                return;
            };
            blocks.push(four);
        }
        let Ok(blocks) = blocks.into_inner() else { return };
        engine.take(&mut states, words, &mut Ciphers { both: &mut both, blocks });
        for (both, state) in both.iter_mut().zip(states) {
            both.hash = state;
            both.hashed += 64;
            both.encrypted += 64;
        }
    }
    *all = both;
}

/// Cipher and hash on their way through a record.
#[derive(Clone, Copy)]
struct Both<'k, L, E, const ROUNDS: usize> {
    engine: E,
    chain: Chain<'k, L, ROUNDS>,
    hash: Pair,
    /// How far the hash has come in whole blocks.
    hashed: usize,
    /// How far the cipher has come.
    encrypted: usize,
}

impl<'k, L: Lanes, E: Single, const ROUNDS: usize> Both<'k, L, E, ROUNDS> {
    #[inline(always)]
    fn new(l: L, engine: E, keys: &'k RoundKeys) -> Self {
        let (chain, hash) = (Chain::new(l, keys, &[0; 16]), (l.zero(), l.zero()));
        Self { engine, chain, hash, hashed: 0, encrypted: 0 }
    }

    /// Sets out from a record's IV and key, and takes in the block of the header if text fills it.
    #[inline(always)]
    fn begin(&mut self, job: &mut RecordJob<'_>) {
        self.chain = Chain::new(self.chain.l, self.chain.keys, &job.chain);
        self.hashed = job.front;
        self.hash = match &job.ends {
            Some(ends) => self.engine.load_one(&ends.key.inner),
            None => self.engine.load_one(&[0; 64]),
        };
        let mut edges = Edges::new();
        if edges.first(job) {
            self.hashed += Edges::FIRST;
            self.edge(edges.block(0), job, self.hashed);
        }
    }

    /// Takes in a block that was put together elsewhere; beside it the cipher advances, though not beyond
    /// `limit` or the text.
    #[inline(always)]
    fn edge(&mut self, block: &[u8; 64], job: &mut RecordJob<'_>, limit: usize) {
        let (engine, words, at) = (self.engine, self.engine.words_one(block), self.encrypted);
        let mut states = [self.hash];
        let fits = at + 64 <= limit.min(job.end());
        let blocks = job.chunk(at).filter(|_| fits);
        match blocks.and_then(|blocks| blocks.as_chunks_mut().0.first_chunk_mut()) {
            Some(blocks) => {
                let mut both = [*self];
                let mut ciphers = Ciphers { both: &mut both, blocks: [blocks] };
                engine.take(&mut states, [words], &mut ciphers);
                [*self] = both;
                self.encrypted = at + 64;
            }
            None => engine.take(&mut states, [words], &mut Nothing),
        }
        [self.hash] = states;
    }

    /// Takes in all that is left of the text, writes the MAC, and encrypts what is left.
    #[inline(always)]
    fn end(&mut self, alg: HashAlg, job: &mut RecordJob<'_>) {
        let (mut edges, end) = (Edges::new(), job.end());
        text(array::from_mut(self), array::from_mut(job));
        if let Some(ends) = &job.ends {
            let outer = &ends.key.outer;
            for i in 0..edges.tail(job, self.hashed) {
                self.edge(edges.block(i), job, end);
            }
            let mut state = Scratch([0; 64]);
            self.engine.store_one(self.hash, &mut state.0);
            edges.outer(alg, &state.0);
            self.hash = self.engine.load_one(outer);
            self.edge(edges.block(0), job, end);
            self.engine.store_one(self.hash, &mut state.0);
            edges.write(alg, &state.0, job.record.get_mut(end..).unwrap_or_default());
        }
        if let Some(rest) = job.record.get_mut(self.encrypted..) {
            self.chain.all(rest);
        }
        self.chain.l.store(&mut job.chain, self.chain.last());
    }
}

macro_rules! task {
    ($token:ident) => {
        impl<const N: usize> Task<$token> for Seal<'_, '_, N> {
            type Output = ();

            #[inline(always)]
            fn run(self, token: $token) {
                let sha_ni = token.sha_ni();
                match (self.alg, self.bits) {
                    (HashAlg::Sha1, KeyBits::Aes128) => self.with::<_, _, 10>(token, Sha1(sha_ni)),
                    (HashAlg::Sha1, _) => self.with::<_, _, 14>(token, Sha1(sha_ni)),
                    (_, KeyBits::Aes128) => self.with::<_, _, 10>(token, Sha256(sha_ni)),
                    _ => self.with::<_, _, 14>(token, Sha256(sha_ni)),
                }
            }
        }
    };
}

task!(AesSha);
task!(WideSha);

/// CBC encryption of whole blocks, one after the other.
struct One<'r> {
    bits: KeyBits,
    keys: &'r RoundKeys,
    chain: &'r mut [u8; 16],
    data: &'r mut [u8],
}

impl One<'_> {
    #[inline(always)]
    fn with<L: Lanes, const ROUNDS: usize>(self, l: L) {
        let mut chain = Chain::<_, ROUNDS>::new(l, self.keys, self.chain);
        chain.all(self.data);
        l.store(self.chain, chain.last());
    }
}

impl<L: Lanes> Task<L> for One<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        match self.bits {
            KeyBits::Aes128 => self.with::<_, 10>(l),
            KeyBits::Aes192 => self.with::<_, 12>(l),
            KeyBits::Aes256 => self.with::<_, 14>(l),
        }
    }
}
