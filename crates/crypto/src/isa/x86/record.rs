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

use std::{arch::asm, array, mem};

use super::{
    HashKernel, Kernel, Proofs,
    hash::sha_ni::{Beside, Nothing, Pair, Sha1, Sha256, Single, each_lane},
    lanes::{B, Lanes},
    token::{AesSha, Door, ShaNi, Task, WideSha},
};
use crate::{
    HashAlg, KeyBits, Tier,
    block::RoundKeys,
    isa::{
        job::SizedKeys,
        record_job::{BLOCK, Edges, RecordJob},
    },
    pairs::PairedWith,
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

    /// True if it seals so many records faster than `hashes` and then the cipher in lanes, as measured.
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
        SizedKeys { bits, keys }: SizedKeys<'_>,
        jobs: &mut [RecordJob<'_>],
    ) {
        match (alg, bits) {
            (HashAlg::Sha1, KeyBits::Aes128) => self.seal_with::<_, 10>(Sha1, alg, keys, jobs),
            (HashAlg::Sha1, _) => self.seal_with::<_, 14>(Sha1, alg, keys, jobs),
            (_, KeyBits::Aes128) => self.seal_with::<_, 10>(Sha256, alg, keys, jobs),
            _ => self.seal_with::<_, 14>(Sha256, alg, keys, jobs),
        }
    }

    fn seal_with<E: Single, const ROUNDS: usize>(
        self,
        engine: fn(ShaNi) -> E,
        alg: HashAlg,
        keys: &RoundKeys,
        jobs: &mut [RecordJob<'_>],
    ) {
        let seal = Seal::<_, ROUNDS> { engine, alg, keys };
        let (fours, rest): (&mut [[_; 4]], _) = match self {
            Self::Wide(_) => jobs.as_chunks_mut(),
            Self::Aes(_) => (&mut [], jobs),
        };
        for jobs in fours {
            self.seal_beside(seal, jobs, |texts| {
                if let Self::Wide(token) = self {
                    token.enter(texts);
                }
            });
        }
        let (twos, rest) = rest.as_chunks_mut::<2>();
        for jobs in twos {
            self.seal_beside(seal, jobs, |texts| match self {
                Self::Aes(token) => token.enter(texts),
                Self::Wide(token) => token.enter(texts),
            });
        }
        for job in rest {
            let jobs = array::from_mut(job);
            if is_short(&jobs[0]) {
                self.alone(seal, Part::All, jobs, &mut [Course::default()]);
            } else {
                self.seal_beside(seal, jobs, |_| {});
            }
        }
    }

    /// Seals records side by side through the blocks that all have, and each to its end alone.
    #[inline(always)]
    fn seal_beside<'j, E: Single, const ROUNDS: usize, const N: usize>(
        self,
        seal: Seal<'_, E, ROUNDS>,
        jobs: &mut [RecordJob<'j>; N],
        texts: impl FnOnce(Texts<'_, '_, 'j, E, ROUNDS, N>),
    ) {
        let mut courses = [Course::default(); N];
        self.alone(seal, Part::Front, jobs, &mut courses);
        texts(Texts { seal, jobs, courses: &mut courses });
        for (job, course) in jobs.iter_mut().zip(&mut courses) {
            if job.end() - course.hashed >= BLOCK {
                let (jobs, courses) = (array::from_mut(job), array::from_mut(course));
                let text = Texts { seal, jobs, courses };
                match self {
                    Self::Aes(token) => token.enter(text),
                    Self::Wide(token) => token.enter(text),
                }
            }
        }
        self.alone(seal, Part::Rest, jobs, &mut courses);
    }

    fn alone<E: Single, const ROUNDS: usize>(
        self,
        seal: Seal<'_, E, ROUNDS>,
        part: Part,
        jobs: &mut [RecordJob<'_>],
        courses: &mut [Course],
    ) {
        let work = Alone { seal, part, jobs, courses };
        match self {
            Self::Aes(token) => token.enter(work),
            Self::Wide(token) => token.enter(work),
        }
    }
}

/// True if no whole block of text is hashed behind that of the header.
fn is_short(job: &RecordJob<'_>) -> bool {
    job.text < BLOCK + if job.ends.is_some() { Edges::FIRST } else { 0 }
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
    blocks: [Option<&'b mut [[u8; 16]; 4]>; N],
}

impl<L: Lanes, E, const ROUNDS: usize, const N: usize> Beside
    for Ciphers<'_, '_, '_, L, E, ROUNDS, N>
{
    #[inline(always)]
    fn step(&mut self, step: usize, steps: usize, hash: &mut B) {
        let each = steps / 4;
        let (at, part) = (step / each, step % each);
        let middle = ROUNDS - 1;
        each_lane!(N, LANE => {
            let (chain, blocks) = (&mut self.both[LANE].chain, &mut self.blocks[LANE]);
            if let Some(blocks) = blocks {
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
        });
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

/// Algorithms and keys for records.
struct Seal<'r, E, const ROUNDS: usize> {
    engine: fn(ShaNi) -> E,
    alg: HashAlg,
    keys: &'r RoundKeys,
}

impl<E, const ROUNDS: usize> Clone for Seal<'_, E, ROUNDS> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<E, const ROUNDS: usize> Copy for Seal<'_, E, ROUNDS> {}

/// The parts of the work on a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    /// The block that the header begins.
    Front,
    /// All that follows.
    Rest,
}

/// Progress of cipher and hash with a record, between the doors. The caller's stack is wiped.
#[derive(Clone, Copy, Default)]
struct Course {
    /// The cipher's state, and the next text that is on it.
    chain: [[u8; 16]; 2],
    hash: [[u8; 16]; 2],
    hashed: usize,
    encrypted: usize,
}

/// Records that are worked on one after the other.
struct Alone<'r, 'j, E, const ROUNDS: usize> {
    seal: Seal<'r, E, ROUNDS>,
    part: Part,
    jobs: &'r mut [RecordJob<'j>],
    courses: &'r mut [Course],
}

/// The texts of records side by side.
struct Texts<'k, 'r, 'j, E, const ROUNDS: usize, const N: usize> {
    seal: Seal<'k, E, ROUNDS>,
    jobs: &'r mut [RecordJob<'j>; N],
    courses: &'r mut [Course; N],
}

/// Takes in blocks of texts, as many as there are in all of them.
#[inline(always)]
#[allow(unused_assignments)] // The last lane leaves no others.
fn text<L: Lanes, E: Single, const ROUNDS: usize, const N: usize>(
    all: &mut [Both<'_, L, E, ROUNDS>; N],
    jobs: &mut [RecordJob<'_>; N],
) {
    // A copy, which can stay in registers: what is written to records might be to memory of the original.
    let mut both = *all;
    let engine = both[0].engine;
    let mut left = usize::MAX;
    for (both, job) in both.iter().paired_with(&*jobs) {
        left = left.min((job.end() - both.hashed) / 64);
    }
    for _ in 0..left {
        let (mut states, mut words) = ([both[0].hash; N], [[both[0].hash.0; 4]; N]);
        let mut blocks = [const { None }; N];
        let mut others = &mut jobs[..];
        each_lane!(N, LANE => {
            let Some((job, more)) = mem::take(&mut others).split_first_mut() else { return };
            others = more;
            let Both { hash, hashed, encrypted, .. } = both[LANE];
            let Some(block) = job.chunk(hashed) else { return };
            (states[LANE], words[LANE]) = (hash, engine.words_one(block));
            // No cipher is in front of its hash.
            let Some(four) = job.chunk(encrypted) else { return };
            let Some((four, _)) = four.as_chunks_mut().0.split_first_chunk_mut::<4>() else {
                return;
            };
            blocks[LANE] = Some(four);
        });
        engine.take(&mut states, words, &mut Ciphers { both: &mut both, blocks });
        each_lane!(N, LANE => {
            let both = &mut both[LANE];
            both.hash = states[LANE];
            both.hashed += 64;
            both.encrypted += 64;
        });
    }
    *all = both;
}

/// Cipher and hash on their way through a record.
#[derive(Clone, Copy)]
struct Both<'k, L, E, const ROUNDS: usize> {
    engine: E,
    chain: Chain<'k, L, ROUNDS>,
    hash: Pair,
    /// Position of the hash in the record, after whole blocks.
    hashed: usize,
    /// Position of the cipher in the record.
    encrypted: usize,
}

impl<'k, L: Lanes, E: Single, const ROUNDS: usize> Both<'k, L, E, ROUNDS> {
    /// Sets out from a record's IV and key.
    #[inline(always)]
    fn new(l: L, engine: E, keys: &'k RoundKeys, job: &RecordJob<'_>) -> Self {
        let hash = match &job.ends {
            Some(ends) => engine.load_one(&ends.key.inner),
            None => engine.load_one(&[0; 64]),
        };
        let chain = Chain::new(l, keys, &job.chain);
        Self { engine, chain, hash, hashed: job.front, encrypted: 0 }
    }

    /// Goes on where a course has come to.
    #[inline(always)]
    fn resume(l: L, engine: E, keys: &'k RoundKeys, course: &Course) -> Self {
        let Course { chain: [state, next], hash: [a, b], hashed, encrypted } = course;
        let mut chain = Chain::new(l, keys, state);
        (chain.state, chain.next) = (l.load(state), l.load(next));
        let (hashed, encrypted) = (*hashed, *encrypted);
        Self { engine, chain, hash: (l.load(a), l.load(b)), hashed, encrypted }
    }

    /// Leaves the course to be resumed.
    #[inline(always)]
    fn leave(&self, course: &mut Course) {
        let Self { chain, hash, .. } = self;
        let [state, next] = &mut course.chain;
        chain.l.store(state, chain.state);
        chain.l.store(next, chain.next);
        let [a, b] = &mut course.hash;
        chain.l.store(a, hash.0);
        chain.l.store(b, hash.1);
        (course.hashed, course.encrypted) = (self.hashed, self.encrypted);
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
                let mut ciphers = Ciphers { both: &mut both, blocks: [Some(blocks)] };
                engine.take(&mut states, [words], &mut ciphers);
                [*self] = both;
                self.encrypted = at + 64;
            }
            None => engine.take(&mut states, [words], &mut Nothing),
        }
        [self.hash] = states;
    }

    /// Takes in the block that the header begins, if text fills it.
    #[inline(always)]
    fn front(&mut self, job: &mut RecordJob<'_>) {
        let mut edges = Edges::new();
        if edges.first(job) {
            self.hashed += Edges::FIRST;
            self.edge(edges.block(0), job, self.hashed);
        }
    }

    /// Takes in what is left of the text, less than a block of it, writes the MAC, and encrypts what is left.
    #[inline(always)]
    fn rest(&mut self, alg: HashAlg, job: &mut RecordJob<'_>) {
        let (mut edges, end) = (Edges::new(), job.end());
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
        impl<E: Single, const ROUNDS: usize> Task<$token> for Alone<'_, '_, E, ROUNDS> {
            type Output = ();

            #[inline(always)]
            fn run(self, token: $token) {
                let Self { seal: Seal { engine, alg, keys }, part, jobs, courses } = self;
                let engine = engine(token.sha_ni());
                for (job, course) in jobs.iter_mut().paired_with(courses) {
                    let mut both = match part {
                        Part::Rest => Both::<_, _, ROUNDS>::resume(token, engine, keys, course),
                        _ => Both::new(token, engine, keys, job),
                    };
                    if part != Part::Rest {
                        both.front(job);
                    }
                    if part == Part::Front {
                        both.leave(course);
                    } else {
                        both.rest(alg, job);
                    }
                }
            }
        }

        impl<E: Single, const ROUNDS: usize, const N: usize> Task<$token>
            for Texts<'_, '_, '_, E, ROUNDS, N>
        {
            type Output = ();

            #[inline(always)]
            fn run(self, token: $token) {
                let Self { seal: Seal { engine, keys, .. }, jobs, courses } = self;
                let engine = engine(token.sha_ni());
                let first = Both::<_, _, ROUNDS>::resume(token, engine, keys, &courses[0]);
                let mut all = [first; N];
                for (both, course) in all.iter_mut().paired_with(&*courses) {
                    *both = Both::resume(token, engine, keys, course);
                }
                text(&mut all, jobs);
                for (both, course) in all.iter().paired_with(courses) {
                    both.leave(course);
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
