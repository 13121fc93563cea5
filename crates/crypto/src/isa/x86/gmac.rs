//! AES-GMAC with one block per register.
//!
//! The blocks that mask the tags of up to eight packets are encrypted together, whatever their keys;
//! then the packets are hashed one after another. A hash is a sum of up to fourteen products with
//! powers of H between two reductions, so short packets have one or two.

use super::{
    aad,
    lanes::{B, Lanes},
    tables::{FOLDS, Sum, Tables},
    token::Task,
};
use crate::{isa::job::GmacJob, pairs::PairedWith, secret::wipe};

/// Packets whose masks are encrypted together.
const GROUP: usize = 8;

/// Blocks between two reductions.
const STRIDE: usize = FOLDS;

/// Computes the tags of a burst.
pub(super) struct Run<'s, 'j>(pub(super) &'s mut [GmacJob<'j>]);

impl<L: Lanes> Task<L> for Run<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: L) {
        for jobs in self.0.chunks_mut(GROUP) {
            // Each mask waits where the tag it goes into will be.
            masks(token, jobs);
            for job in jobs {
                let hash = hash(token, job.tables, job.aad, job.data);
                let tag = token.xor(token.reverse(hash), token.load(&job.tag));
                token.store(&mut job.tag, tag);
            }
        }
    }
}

/// Leaves in each job the block that masks its tag: the nonce with a counter of one, encrypted.
#[inline(always)]
fn masks<L: Lanes>(l: L, jobs: &mut [GmacJob<'_>]) {
    let mut masks = [l.zero(); GROUP];
    // A group that is not full does its last job over and over.
    let Some(last) = jobs.last() else { return };
    let mut tables = [last.tables; GROUP];
    for (tables, job) in tables.iter_mut().paired_with(&*jobs) {
        *tables = job.tables;
    }
    let one = l.quad(1 << 24, 0, 0, 0);
    for (i, mask) in masks.iter_mut().enumerate() {
        let nonce = l.load(jobs.get(i).map_or(last.nonce, |job| job.nonce));
        *mask = l.xor(l.xor(nonce, one), l.table(&tables[i].round_keys[0]));
    }
    for round in 1..10 {
        for (mask, tables) in masks.iter_mut().paired_with(tables) {
            *mask = l.aes_round(*mask, l.table(&tables.round_keys[round]));
        }
    }
    for (mask, tables) in masks.iter_mut().paired_with(tables) {
        for key in &tables.round_keys[10..usize::from(tables.rounds).clamp(10, 14)] {
            *mask = l.aes_round(*mask, l.table(key));
        }
        *mask = l.aes_last(*mask, l.table(&tables.last));
    }
    for (job, mask) in jobs.iter_mut().paired_with(&masks) {
        l.store(&mut job.tag, *mask);
    }
    // For any number of jobs, the compiler has them in memory.
    wipe(&mut masks, l.zero());
}

/// GHASH of both strings as one string of additional data, padded, and of its length.
#[inline(always)]
fn hash<L: Lanes>(l: L, tables: &Tables, aad: &[u8], data: &[u8]) -> B {
    let bytes = aad.len() + data.len();
    let mut hash = Hash::new(l, tables, bytes.div_ceil(16) + 1);
    let (blocks, front) = aad.as_chunks::<16>();
    for block in blocks {
        hash.push(l.reverse(l.load(block)));
    }
    let mut data = data;
    if !front.is_empty() {
        let (back, rest) = data.split_at(data.len().min(16 - front.len()));
        hash.push(l.reverse(join(l, front, back)));
        data = rest;
    }
    let (blocks, rest) = data.as_chunks::<16>();
    let (first, blocks) = blocks.split_at(blocks.len().min(hash.left));
    for block in first {
        hash.push(l.reverse(l.load(block)));
    }
    let (strides, blocks) = blocks.as_chunks::<STRIDE>();
    for stride in strides {
        hash.push_stride(stride);
    }
    for block in blocks {
        hash.push(l.reverse(l.load(block)));
    }
    if !rest.is_empty() {
        hash.push(l.reverse(l.load_some(rest)));
    }
    hash.push(aad::length_block(l, bytes, 0));
    hash.hash
}

/// Computes GHASH alone: of both strings, each padded, and of their lengths.
pub(super) struct Ghash<'t> {
    pub(super) tables: &'t Tables,
    pub(super) aad: &'t [u8],
    pub(super) data: &'t [u8],
}

impl<L: Lanes> Task<L> for Ghash<'_> {
    type Output = [u8; 16];

    #[inline(always)]
    fn run(self, token: L) -> [u8; 16] {
        let Self { tables, aad, data } = self;
        let blocks = aad.len().div_ceil(16) + data.len().div_ceil(16) + 1;
        let mut hash = Hash::new(token, tables, blocks);
        for part in [aad, data] {
            let (blocks, rest) = part.as_chunks::<16>();
            for block in blocks {
                hash.push(token.reverse(token.load(block)));
            }
            if !rest.is_empty() {
                hash.push(token.reverse(token.load_some(rest)));
            }
        }
        hash.push(aad::length_block(token, aad.len(), data.len()));
        token.to_bytes(token.reverse(hash.hash))
    }
}

/// Goes on with a hash: `hash` is the next block, the hash so far added to it, and `blocks` follow.
pub(super) struct GhashOn<'t> {
    pub(super) tables: &'t Tables,
    pub(super) hash: &'t mut [u8; 16],
    pub(super) blocks: &'t [[u8; 16]],
}

impl<L: Lanes> Task<L> for GhashOn<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        let mut hash = Hash::new(l, self.tables, self.blocks.len() + 1);
        hash.push(l.reverse(l.load(self.hash)));
        let (first, blocks) = self.blocks.split_at(self.blocks.len().min(hash.left % STRIDE));
        for block in first {
            hash.push(l.reverse(l.load(block)));
        }
        let (strides, _) = blocks.as_chunks::<STRIDE>();
        for stride in strides {
            hash.push_stride(stride);
        }
        l.store(self.hash, l.reverse(hash.hash));
    }
}

/// The bytes of `front`, those of `back` behind them, and zeros: at most 16 in all.
#[inline(always)]
fn join<L: Lanes>(l: L, front: &[u8], back: &[u8]) -> B {
    let low = u128::from_le_bytes(l.to_bytes(l.load_some(front)));
    let high = u128::from_le_bytes(l.to_bytes(l.load_some(back)));
    l.load(&(low | high << (8 * (front.len() % 16))).to_le_bytes())
}

/// A hash under way.
struct Hash<'t, L> {
    l: L,
    tables: &'t Tables,
    /// Products since the last reduction.
    sum: Sum,
    /// Result of the last reduction, which joins the next block.
    hash: B,
    /// Blocks until the next reduction.
    left: usize,
}

impl<'t, L: Lanes> Hash<'t, L> {
    /// A hash of so many blocks, of which there is at least one. The first sum takes what makes the
    /// others full.
    #[inline(always)]
    fn new(l: L, tables: &'t Tables, blocks: usize) -> Self {
        let left = (blocks - 1) % STRIDE + 1;
        Self { l, tables, sum: Sum::zero(l), hash: l.zero(), left }
    }

    #[inline(always)]
    fn push(&mut self, block: B) {
        let l = self.l;
        self.sum.add(l, l.xor(block, self.hash), self.tables.weight(self.left));
        self.hash = l.zero();
        self.left -= 1;
        if self.left == 0 {
            self.reduce();
        }
    }

    /// A stride of blocks right behind a reduction.
    #[inline(always)]
    fn push_stride(&mut self, blocks: &[[u8; 16]; STRIDE]) {
        let l = self.l;
        for (i, block) in blocks.iter().enumerate() {
            let mut block = l.reverse(l.load(block));
            if i == 0 {
                block = l.xor(block, self.hash);
            }
            self.sum.add(l, block, self.tables.weight(STRIDE - i));
        }
        self.reduce();
    }

    #[inline(always)]
    fn reduce(&mut self) {
        self.hash = self.sum.reduce(self.l);
        self.sum = Sum::zero(self.l);
        self.left = STRIDE;
    }
}
