//! AES-GCM with one block per register.
//!
//! A message is cut into groups of eight blocks and a tail of one to eight (none if it is empty). A group's eight
//! counter blocks are encrypted side by side, one hashed block between each two rounds; the tail's counter blocks and
//! the one that masks the tag go together. The tail alone is the whole of a short packet, compiled once per number of
//! blocks, so consecutive packets of one class run without a mispredicted branch and overlap in the processor.

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use super::{
    aad,
    lanes::{B, Lanes},
    tables::{Block, Sum, Tables},
};
use crate::{
    burst::Entry,
    op::{Op, Parts},
};

/// Blocks in a group.
const GROUP: usize = 8;

/// Counters 0 to 15 in the last word of a block, most significant byte first.
static COUNTERS: [Block; 16] = {
    let mut counters = [Block::ZERO; 16];
    let mut i = 0;
    while i < 16 {
        counters[i].0[15] = i as u8;
        i += 1;
    }
    counters
};

type Group = [[u8; 16]; GROUP];

/// Runs operations of one class.
#[inline(always)]
pub(super) fn run<'a, L: Lanes, O: Op<'a>>(l: L, slots: &mut [Option<Entry<'a, '_, O>>]) {
    for entry in slots.iter_mut().flatten() {
        let tables = entry.tables;
        let tag = message::<L, O>(l, tables, entry.op.parts());
        entry.op.finish(l.to_bytes(tag));
    }
}

/// What stays the same throughout a message.
#[derive(Clone, Copy)]
struct Message<'t, L> {
    l: L,
    tables: &'t Tables,
    /// The nonce with a counter of zero, and round key 0 already added.
    seed: B,
    /// The last block that is hashed.
    lengths: B,
}

/// Transforms the payload and returns the tag.
#[inline(always)]
fn message<'a, L: Lanes, O: Op<'a>>(l: L, tables: &Tables, parts: Parts<'_>) -> B {
    let Parts { counter, aad, data } = parts;
    let seed = l.xor(l.load(counter), l.table(&tables.round_keys[0]));
    let lengths = aad::length_block(l, aad.len(), data.len());
    let m = Message { l, tables, seed, lengths };
    let first = aad::first_block(l, tables, aad);
    match data.len().div_ceil(16) {
        0 => m.tail::<O, 0, true>(data, first, 2),
        1 => m.tail::<O, 1, true>(data, first, 2),
        2 => m.tail::<O, 2, true>(data, first, 2),
        3 => m.tail::<O, 3, true>(data, first, 2),
        4 => m.tail::<O, 4, true>(data, first, 2),
        5 => m.tail::<O, 5, true>(data, first, 2),
        6 => m.tail::<O, 6, true>(data, first, 2),
        7 => m.tail::<O, 7, true>(data, first, 2),
        8 => m.tail::<O, 8, true>(data, first, 2),
        _ => m.long::<O>(data, first),
    }
}

impl<L: Lanes> Message<'_, L> {
    /// A message of more than eight blocks: groups, then the tail.
    #[inline(always)]
    fn long<'a, O: Op<'a>>(self, data: &mut [u8], first: B) -> B {
        let count = (data.len() - 1) / (16 * GROUP);
        let (groups, rest) = data.split_at_mut(count * 16 * GROUP);
        let groups = groups.as_chunks_mut::<16>().0.as_chunks_mut::<GROUP>().0;
        let sum = Sum::of(self.l, first, self.power(GROUP + 1));
        let hash =
            if O::SEAL { self.seal_groups(groups, sum) } else { self.open_groups(groups, sum) };
        // Counters wrap at 32 bits, which a payload of legal length never reaches.
        let counter = (count * GROUP) as u32 + 2;
        match rest.len().div_ceil(16) {
            1 => self.tail::<O, 1, false>(rest, hash, counter),
            2 => self.tail::<O, 2, false>(rest, hash, counter),
            3 => self.tail::<O, 3, false>(rest, hash, counter),
            4 => self.tail::<O, 4, false>(rest, hash, counter),
            5 => self.tail::<O, 5, false>(rest, hash, counter),
            6 => self.tail::<O, 6, false>(rest, hash, counter),
            7 => self.tail::<O, 7, false>(rest, hash, counter),
            _ => self.tail::<O, 8, false>(rest, hash, counter),
        }
    }

    /// Seals groups. Each group's ciphertext is hashed while the next group is encrypted, so that neither waits.
    #[inline(always)]
    fn seal_groups(self, groups: &mut [Group], first: Sum) -> B {
        let l = self.l;
        let (mut sum, mut hash) = (first, l.zero());
        let mut counter = 2;
        let mut groups = groups.iter_mut();
        let Some(group) = groups.next() else { return hash };
        let keystream = self.encrypt::<false>(self.counters(counter), &mut sum, hash, group);
        self.apply(group, &keystream);
        let mut previous = &*group;
        for group in groups {
            counter += GROUP as u32;
            let keystream = self.encrypt::<true>(self.counters(counter), &mut sum, hash, previous);
            self.apply(group, &keystream);
            hash = sum.reduce(l);
            sum = Sum::zero(l);
            previous = group;
        }
        for (i, block) in previous.iter().enumerate() {
            self.absorb(&mut sum, i, hash, block);
        }
        sum.reduce(l)
    }

    /// Opens groups, hashing each one's ciphertext while its keystream is made.
    #[inline(always)]
    fn open_groups(self, groups: &mut [Group], first: Sum) -> B {
        let l = self.l;
        let (mut sum, mut hash) = (first, l.zero());
        let mut counter = 2;
        for group in groups {
            let keystream = self.encrypt::<true>(self.counters(counter), &mut sum, hash, group);
            self.apply(group, &keystream);
            hash = sum.reduce(l);
            sum = Sum::zero(l);
            counter += GROUP as u32;
        }
        hash
    }

    /// The start states of a group's eight counter blocks.
    #[inline(always)]
    fn counters(self, counter: u32) -> [B; GROUP] {
        let l = self.l;
        let mut states = [l.zero(); GROUP];
        if counter as u8 <= u8::MAX - GROUP as u8 {
            // No carry out of the last byte, so adding to it is adding to the number.
            let base = self.counter_block(counter);
            for i in 0..GROUP {
                states[i] = l.xor(self.seed, l.add32(base, self.shifted_counter(i)));
            }
        } else {
            for i in 0..GROUP {
                states[i] = l.xor(self.seed, self.counter_block(counter.wrapping_add(i as u32)));
            }
        }
        states
    }

    /// A counter alone, in its place in the block.
    #[inline(always)]
    fn counter_block(self, counter: u32) -> B {
        self.l.quad(counter.swap_bytes() as i32, 0, 0, 0)
    }

    /// Counter `i` below 16, in its place in the block.
    #[inline(always)]
    fn shifted_counter(self, i: usize) -> B {
        self.l.table(&COUNTERS[i])
    }

    #[inline(always)]
    fn power(self, n: usize) -> B {
        self.l.table(self.tables.power(n))
    }

    /// Encrypts eight counter blocks, and with `HASH` adds eight blocks to the hash on the way.
    #[inline(always)]
    fn encrypt<const HASH: bool>(
        self,
        mut states: [B; GROUP],
        sum: &mut Sum,
        hash: B,
        hashed: &Group,
    ) -> [B; GROUP] {
        let (l, tables) = (self.l, self.tables);
        for round in 1..10 {
            let key = l.table(&tables.round_keys[round]);
            for state in &mut states {
                *state = l.aes_round(*state, key);
            }
            if HASH && round <= GROUP {
                self.absorb(sum, round - 1, hash, &hashed[round - 1]);
            }
        }
        self.last_rounds(&mut states, GROUP);
        states
    }

    /// Adds block `i` of a group to the sum; `hash`, the hash so far, joins the first.
    #[inline(always)]
    fn absorb(self, sum: &mut Sum, i: usize, hash: B, block: &[u8; 16]) {
        let l = self.l;
        let mut x = l.reverse(l.load(block));
        if i == 0 {
            x = l.xor(x, hash);
        }
        sum.add(l, x, self.power(GROUP - i));
    }

    /// The rounds that longer keys have in addition, and the last one, on the first `count` states.
    #[inline(always)]
    fn last_rounds<const N: usize>(self, states: &mut [B; N], count: usize) {
        let (l, tables) = (self.l, self.tables);
        if tables.rounds > 10 {
            self.two_rounds(states, count, 10);
            if tables.rounds > 12 {
                self.two_rounds(states, count, 12);
            }
        }
        let key = l.table(&tables.last);
        for state in &mut states[..count] {
            *state = l.aes_last(*state, key);
        }
    }

    #[inline(always)]
    fn two_rounds<const N: usize>(self, states: &mut [B; N], count: usize, first: usize) {
        let (l, tables) = (self.l, self.tables);
        for round in [first, first + 1] {
            let key = l.table(&tables.round_keys[round]);
            for state in &mut states[..count] {
                *state = l.aes_round(*state, key);
            }
        }
    }

    /// Adds the keystream to a group.
    #[inline(always)]
    fn apply(self, group: &mut Group, keystream: &[B; GROUP]) {
        let l = self.l;
        for i in 0..GROUP {
            let block = l.xor(l.load(&group[i]), keystream[i]);
            l.store(&mut group[i], block);
        }
    }

    /// The last `T` blocks of a message; returns the tag.
    ///
    /// If they are also its first (`FIRST`), then `before` is a block hashed in front of them; otherwise it is the
    /// hash so far.
    #[inline(always)]
    fn tail<'a, O: Op<'a>, const T: usize, const FIRST: bool>(
        self,
        data: &mut [u8],
        before: B,
        counter: u32,
    ) -> B {
        let l = self.l;
        let keystream = self.tail_keystream::<T, FIRST>(counter);
        let (mut sum, hash) = if FIRST {
            (Sum::of(l, before, self.power(T + 2)), l.zero())
        } else {
            (Sum::zero(l), before)
        };
        if T > 0 {
            let (full, last) = data.split_at_mut(16 * (T - 1));
            let full = full.as_chunks_mut::<16>().0;
            for i in 0..T - 1 {
                let input = l.load(&full[i]);
                let output = l.xor(input, keystream[i + 1]);
                l.store(&mut full[i], output);
                let hashed = if O::SEAL { output } else { input };
                self.absorb_tail::<T>(&mut sum, i, hash, hashed);
            }
            let input = l.load_some(last);
            let output = l.xor(input, keystream[T]);
            l.store_some(last, output);
            let hashed = if O::SEAL { l.keep(output, last.len()) } else { input };
            self.absorb_tail::<T>(&mut sum, T - 1, hash, hashed);
        }
        sum.add(l, self.lengths, self.power(1));
        l.xor(l.reverse(sum.reduce(l)), keystream[0])
    }

    /// Adds block `i` of a tail of `T` to the sum; the length block follows the tail.
    #[inline(always)]
    fn absorb_tail<const T: usize>(self, sum: &mut Sum, i: usize, hash: B, block: B) {
        let l = self.l;
        let mut x = l.reverse(block);
        if i == 0 {
            x = l.xor(x, hash);
        }
        sum.add(l, x, self.power(T + 1 - i));
    }

    /// The block that masks the tag, then `T` blocks for the tail.
    #[inline(always)]
    fn tail_keystream<const T: usize, const FIRST: bool>(self, counter: u32) -> [B; GROUP + 1] {
        let (l, tables) = (self.l, self.tables);
        let mut states = [l.zero(); GROUP + 1];
        if FIRST {
            for i in 0..=T {
                states[i] = l.xor(self.seed, self.shifted_counter(i + 1));
            }
        } else {
            let counters = self.counters(counter);
            states[0] = l.xor(self.seed, self.shifted_counter(1));
            states[1..].copy_from_slice(&counters);
        }
        for round in 1..10 {
            let key = l.table(&tables.round_keys[round]);
            for state in &mut states[..T + 1] {
                *state = l.aes_round(*state, key);
            }
        }
        self.last_rounds(&mut states, T + 1);
        states
    }
}
