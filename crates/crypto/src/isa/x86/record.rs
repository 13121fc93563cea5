//! One record, the hash in the gaps of the cipher.
//!
//! Each block of CBC encryption waits for the one before, some 40 cycles in which the processor has
//! nothing else of it to do. A block of the hash takes less than the four blocks of the cipher that are as
//! long, so it costs next to nothing beside them.

use std::arch::{asm, x86_64::__m128i};

use super::{
    Kernel, Proofs,
    hash::sha_ni::{Beside, Sha1, Sha256, Single},
    lanes::{B, Lanes},
    token::{AesSha, AvxSha, Door, ShaNi, Task},
};
use crate::{HashAlg, KeyBits, Tier, block::RoundKeys};

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

    /// Encrypts the front of a record, and takes as many bytes of it into a hash, whose first block
    /// begins at `ahead`: as many blocks of 64 bytes as there are from there. Gives how many bytes those
    /// are; `chain` is the last block of what was encrypted.
    #[allow(clippy::too_many_arguments, reason = "a record has so many sides")]
    pub(crate) fn both(
        self,
        alg: HashAlg,
        bits: KeyBits,
        keys: &RoundKeys,
        chain: &mut [u8; 16],
        state: &mut [u8; 64],
        record: &mut [u8],
        ahead: usize,
    ) -> usize {
        let bytes = record.len().saturating_sub(ahead) / 64 * 64;
        let work = Both { hash: alg, bits, keys, chain, state, record, ahead };
        match self {
            Self::AesSha(token) => token.enter(work),
            Self::AvxSha(token) => token.enter(work),
        }
        bytes
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
    /// The last block of ciphertext, and the first round key on it.
    white: B,
    /// The first and the last round key together: the last round gives the next block's first state.
    turn: B,
}

impl<'k, L: Lanes, const ROUNDS: usize> Chain<'k, L, ROUNDS> {
    #[inline(always)]
    fn new(l: L, keys: &'k RoundKeys, chain: &[u8; 16]) -> Self {
        let (first, last) = (l.table(&keys.0[0]), l.table(&keys.0[ROUNDS]));
        Self { l, keys, white: l.xor(l.load(chain), first), turn: l.xor(first, last) }
    }

    /// Some of the rounds between the first and the last.
    #[inline(always)]
    fn rounds(&self, mut state: B, from: usize, to: usize) -> B {
        for round in from..to {
            state = self.l.aes_round(state, self.l.table(&self.keys.0[round]));
        }
        state
    }

    /// A block, all of it.
    #[inline(always)]
    fn block(&mut self, block: &mut [u8; 16]) {
        let l = self.l;
        let state = self.rounds(l.xor(l.load(block), self.white), 1, ROUNDS);
        self.white = l.aes_last(state, self.turn);
        l.store(block, self.last());
    }

    /// The last block of ciphertext.
    #[inline(always)]
    fn last(&self) -> B {
        self.l.xor(self.white, self.l.table(&self.keys.0[0]))
    }
}

/// Four blocks of CBC beside a block of a hash.
struct Four<'c, 'k, 'b, L, const ROUNDS: usize> {
    chain: &'c mut Chain<'k, L, ROUNDS>,
    state: B,
    blocks: &'b mut [[u8; 16]; 4],
}

impl<L: Lanes, const ROUNDS: usize> Beside for Four<'_, '_, '_, L, ROUNDS> {
    #[inline(always)]
    fn step(&mut self, step: usize, steps: usize, hash: &mut __m128i) {
        let Self { chain, state, blocks } = self;
        let l = chain.l;
        let each = steps / 4;
        let (at, part) = (step / each, step % each);
        if step == 0 {
            *state = l.xor(l.load(&blocks[0]), chain.white);
        }
        let middle = ROUNDS - 1;
        *state = chain.rounds(*state, 1 + middle * part / each, 1 + middle * (part + 1) / each);
        if part + 1 == each {
            if at < 3 {
                // With the next text on the last round key, the next state does not wait for the block.
                let next = l.load(&blocks[at + 1]);
                *state = l.aes_last(*state, l.xor(next, chain.turn));
                let white = l.xor(*state, next);
                l.store(&mut blocks[at], l.xor(white, l.table(&chain.keys.0[0])));
            } else {
                chain.white = l.aes_last(*state, chain.turn);
                *state = chain.white;
                l.store(&mut blocks[at], chain.last());
            }
        }
        tie(state, hash);
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

/// What both sides of a record are made of.
struct Both<'r> {
    hash: HashAlg,
    bits: KeyBits,
    keys: &'r RoundKeys,
    chain: &'r mut [u8; 16],
    state: &'r mut [u8; 64],
    record: &'r mut [u8],
    ahead: usize,
}

impl Both<'_> {
    #[inline(always)]
    fn go<L: Lanes>(self, l: L, sha_ni: ShaNi) {
        match (self.hash, self.bits) {
            (HashAlg::Sha1, KeyBits::Aes128) => self.with::<_, _, 10>(l, Sha1(sha_ni)),
            (HashAlg::Sha1, _) => self.with::<_, _, 14>(l, Sha1(sha_ni)),
            (_, KeyBits::Aes128) => self.with::<_, _, 10>(l, Sha256(sha_ni)),
            _ => self.with::<_, _, 14>(l, Sha256(sha_ni)),
        }
    }

    #[inline(always)]
    fn with<L: Lanes, E: Single, const ROUNDS: usize>(self, l: L, engine: E) {
        let mut chain = Chain::<_, ROUNDS>::new(l, self.keys, self.chain);
        let mut hash = engine.load_one(self.state);
        let mut rest = self.record;
        let window = self.ahead + 64;
        while let Some(now) = rest.get_mut(..window) {
            // The hash reads its block before the cipher writes over the text, here or further on.
            let Some(words) = now.last_chunk::<64>().map(|block| engine.words_one(block)) else {
                break;
            };
            let Some((blocks, _)) = now.split_first_chunk_mut::<64>() else { break };
            let Some((blocks, _)) = blocks.as_chunks_mut().0.split_first_chunk_mut::<4>() else {
                break;
            };
            let mut four = Four { chain: &mut chain, state: l.zero(), blocks };
            engine.take_one(&mut hash, words, &mut four);
            rest = &mut rest[64..];
        }
        engine.store_one(hash, self.state);
        l.store(self.chain, chain.last());
    }
}

impl Task<AesSha> for Both<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: AesSha) {
        self.go(token, token.sha_ni());
    }
}

impl Task<AvxSha> for Both<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: AvxSha) {
        self.go(token, token.sha_ni());
    }
}

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
        for block in self.data.as_chunks_mut().0 {
            chain.block(block);
        }
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
