//! One record, the hash in the gaps of the cipher.
//!
//! Each block of CBC encryption waits for the one before, some 40 cycles in which the processor has
//! nothing else of it to do. A block of the hash takes less than the four blocks of the cipher that are as
//! long, so it costs next to nothing beside them. The cipher follows the hash through the record, as it
//! writes over what the hash reads; it is beside it from the first block to that of the outer hash.

use std::arch::asm;

use super::{
    Kernel, Proofs,
    hash::sha_ni::{Beside, Nothing, Pair, Sha1, Sha256, Single},
    lanes::{B, Lanes},
    token::{AesSha, AvxSha, Door, ShaNi, Task},
};
use crate::{
    HashAlg, KeyBits, Tier,
    block::RoundKeys,
    pass::record::{Edges, Ends},
    secret::Scratch,
};

/// Encrypts and hashes a record side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordKernel {
    /// AES-NI and the SHA extensions.
    AesSha(AesSha),
    /// The same with AVX's encodings.
    AvxSha(AvxSha),
}

impl RecordKernel {
    /// The one for `alg` with the instructions of `tier`, if there is one.
    pub(crate) fn choose(proofs: &Proofs, tier: Tier, alg: HashAlg) -> Option<Self> {
        if !matches!(alg, HashAlg::Sha1 | HashAlg::Sha256) {
            return None;
        }
        match tier {
            Tier::Portable => None,
            Tier::AesNi => proofs.aes_sha.map(Self::AesSha),
            _ => proofs.avx_sha.map(Self::AvxSha),
        }
    }

    /// See [`pass::record::seal`](crate::pass::record::seal). Without ends, whole blocks are encrypted and
    /// hashed, and nothing comes of the hash.
    pub(crate) fn seal(
        self,
        alg: HashAlg,
        (bits, keys): (KeyBits, &RoundKeys),
        chain: &mut [u8; 16],
        record: &mut [u8],
        ends: Option<Ends<'_>>,
    ) {
        let work = Seal { alg, bits, keys, chain, record, ends };
        match self {
            Self::AesSha(token) => token.enter(work),
            Self::AvxSha(token) => token.enter(work),
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
struct Chain<'k, L, const ROUNDS: usize> {
    l: L,
    keys: &'k RoundKeys,
    /// The last block of ciphertext, and the first round key and `next` on it.
    state: B,
    /// The text of the next block if that is on the state already, else zero.
    next: B,
    is_next: bool,
    /// The first and the last round key together: the last round gives the next block's first state.
    turn: B,
}

impl<'k, L: Lanes, const ROUNDS: usize> Chain<'k, L, ROUNDS> {
    #[inline(always)]
    fn new(l: L, keys: &'k RoundKeys, chain: &[u8; 16]) -> Self {
        let (first, last) = (l.table(&keys.0[0]), l.table(&keys.0[ROUNDS]));
        let (state, turn) = (l.xor(l.load(chain), first), l.xor(first, last));
        Self { l, keys, state, next: l.zero(), is_next: false, turn }
    }

    /// Puts the text of a block on the state, unless it is there.
    #[inline(always)]
    fn begin(&mut self, text: &[u8; 16]) {
        if !self.is_next {
            self.state = self.l.xor(self.state, self.l.load(text));
        }
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
        self.is_next = next.is_some();
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

/// Four blocks of CBC beside a block of a hash.
struct Four<'c, 'k, 'b, L, const ROUNDS: usize> {
    chain: &'c mut Chain<'k, L, ROUNDS>,
    blocks: &'b mut [[u8; 16]; 4],
    /// The text behind them.
    next: Option<&'b [u8; 16]>,
}

impl<L: Lanes, const ROUNDS: usize> Beside for Four<'_, '_, '_, L, ROUNDS> {
    #[inline(always)]
    fn step(&mut self, step: usize, steps: usize, hash: &mut B) {
        let Self { chain, blocks, next } = self;
        let each = steps / 4;
        let (at, part) = (step / each, step % each);
        let middle = ROUNDS - 1;
        chain.rounds(1 + middle * part / each, 1 + middle * (part + 1) / each);
        if part + 1 == each {
            match blocks.split_at_mut_checked(at + 1) {
                Some(([.., block], [following, ..])) => chain.end(block, Some(following)),
                Some(([.., block], [])) => chain.end(block, *next),
                _ => {}
            }
        }
        tie(&mut chain.state, hash);
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

/// A record to be encrypted and hashed.
struct Seal<'r> {
    alg: HashAlg,
    bits: KeyBits,
    keys: &'r RoundKeys,
    chain: &'r mut [u8; 16],
    record: &'r mut [u8],
    ends: Option<Ends<'r>>,
}

impl Seal<'_> {
    #[inline(always)]
    fn go<L: Lanes>(self, l: L, sha_ni: ShaNi) {
        match (self.alg, self.bits) {
            (HashAlg::Sha1, KeyBits::Aes128) => self.with::<_, _, 10>(l, Sha1(sha_ni)),
            (HashAlg::Sha1, _) => self.with::<_, _, 14>(l, Sha1(sha_ni)),
            (_, KeyBits::Aes128) => self.with::<_, _, 10>(l, Sha256(sha_ni)),
            _ => self.with::<_, _, 14>(l, Sha256(sha_ni)),
        }
    }

    #[inline(always)]
    fn with<L: Lanes, E: Single, const ROUNDS: usize>(self, l: L, engine: E) {
        let Self { alg, keys, chain, record, ends, .. } = self;
        let mut both = Both {
            engine,
            chain: Chain::<_, ROUNDS>::new(l, keys, chain),
            hash: engine.load_one(ends.as_ref().map_or(&[0; 64], |ends| &ends.key.inner)),
            encrypted: 0,
        };
        match ends {
            Some(ends) => both.record(alg, record, &ends),
            None => both.text(record, 0, record.len()),
        }
        if let Some(rest) = record.get_mut(both.encrypted..) {
            both.chain.all(rest);
        }
        l.store(chain, both.chain.last());
    }
}

/// Cipher and hash on their way through a record.
struct Both<'k, L, E, const ROUNDS: usize> {
    engine: E,
    chain: Chain<'k, L, ROUNDS>,
    hash: Pair,
    /// How far the cipher has come.
    encrypted: usize,
}

impl<L: Lanes, E: Single, const ROUNDS: usize> Both<'_, L, E, ROUNDS> {
    /// Takes in blocks of text from `at` on, as many as there are up to `end`.
    #[inline(always)]
    fn text(&mut self, record: &mut [u8], mut at: usize, end: usize) {
        while let Some(block) = record.get(at..end).and_then(<[u8]>::first_chunk::<64>) {
            let words = self.engine.words_one(block);
            at += 64;
            self.beside(words, record, at, end);
        }
    }

    /// Takes in a block; beside it the cipher advances, though not beyond `limit`. Up to `end` there is
    /// text.
    #[inline(always)]
    fn beside(&mut self, words: [B; 4], record: &mut [u8], limit: usize, end: usize) {
        let at = self.encrypted;
        let fits = at + 64 <= limit.min(end);
        let front = record.get_mut(at..end).filter(|_| fits);
        let Some((blocks, behind)) = front.and_then(|front| front.split_first_chunk_mut::<64>())
        else {
            return self.engine.take_one(&mut self.hash, words, &mut Nothing);
        };
        let Some((blocks, _)) = blocks.as_chunks_mut().0.split_first_chunk_mut::<4>() else {
            return;
        };
        let chain = &mut self.chain;
        chain.begin(&blocks[0]);
        let mut four = Four { chain, blocks, next: behind.first_chunk() };
        self.engine.take_one(&mut self.hash, words, &mut four);
        self.encrypted = at + 64;
    }

    /// Takes in a block that was put together elsewhere; all of the text may be encrypted.
    #[inline(always)]
    fn edge(&mut self, block: &[u8; 64], record: &mut [u8], limit: usize, end: usize) {
        let words = self.engine.words_one(block);
        self.beside(words, record, limit, end);
    }

    /// The hash of a record from its header to the MAC, which is written, and the cipher beside it.
    #[inline(always)]
    fn record(&mut self, alg: HashAlg, record: &mut [u8], ends: &Ends<'_>) {
        let mut edges = Edges::new();
        let (end, mut at) = (ends.front + ends.text, ends.front);
        if edges.first(ends, record) {
            at += Edges::FIRST;
            self.edge(edges.block(0), record, at, end);
            let whole = (end - at) / 64 * 64;
            self.text(record, at, end);
            at += whole;
        }
        for i in 0..edges.tail(ends, record.get(at..end).unwrap_or_default()) {
            self.edge(edges.block(i), record, end, end);
        }
        let mut state = Scratch([0; 64]);
        self.engine.store_one(self.hash, &mut state.0);
        edges.outer(alg, &state.0);
        self.hash = self.engine.load_one(&ends.key.outer);
        self.edge(edges.block(0), record, end, end);
        self.engine.store_one(self.hash, &mut state.0);
        edges.write(alg, &state.0, record.get_mut(end..).unwrap_or_default());
    }
}

macro_rules! task {
    ($token:ident) => {
        impl Task<$token> for Seal<'_> {
            type Output = ();

            #[inline(always)]
            fn run(self, token: $token) {
                self.go(token, token.sha_ni());
            }
        }
    };
}

task!(AesSha);
task!(AvxSha);

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
