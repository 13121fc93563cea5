//! AES-GCM with two blocks per register.
//!
//! A message of up to sixteen blocks is one row of registers: one for the block that masks the tag,
//! the others for the payload. A longer one is cut into groups of sixteen blocks; sealing hashes
//! each group while the next is encrypted. What is left of one to sixteen blocks goes through the
//! kernel for one block per register, and so do payloads of less than three blocks.

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use super::{
    aad, gcm128,
    lanes::{B, Lanes},
    lanes256::Y,
    tables::{Block, Sum, Tables, late_round_keys},
    tag,
    token::{Door, Task, Vaes256},
};
use crate::{
    burst::{SHORT_BLOCKS, Slot},
    op::{Op, Parts},
};

/// Registers in a group.
const GROUP: usize = 8;

/// Blocks in a group.
const GROUP_BLOCKS: usize = 2 * GROUP;

type Group = [[u8; 32]; GROUP];

/// Runs operations of one class.
pub(super) fn run<'a, O: Op<'a>>(v: Vaes256, slots: &mut [Slot<'_, O>]) {
    let Some(Some(first)) = slots.first() else { return };
    match first.data_len().div_ceil(16) {
        // With one block per register wider tiers have nothing to add.
        0..=2 => gcm128::run(v.avx2().avx(), slots),
        3..=4 => v.enter(Short::<O, 2>(slots)),
        5..=6 => v.enter(Short::<O, 3>(slots)),
        7..=8 => v.enter(Short::<O, 4>(slots)),
        9..=10 => v.enter(Short::<O, 5>(slots)),
        11..=12 => v.enter(Short::<O, 6>(slots)),
        13..=14 => v.enter(Short::<O, 7>(slots)),
        15..=SHORT_BLOCKS => v.enter(Short::<O, 8>(slots)),
        _ => v.enter(Long(slots)),
    }
}

/// Runs packets whose payload fits `N` registers.
struct Short<'s, 'o, O, const N: usize>(&'s mut [Slot<'o, O>]);

impl<'a, O: Op<'a>, const N: usize> Task<Vaes256> for Short<'_, '_, O, N> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: Vaes256) {
        short::<O, N>(token, self.0);
    }
}

/// Runs longer packets.
struct Long<'s, 'o, O>(&'s mut [Slot<'o, O>]);

impl<'a, O: Op<'a>> Task<Vaes256> for Long<'_, '_, O> {
    type Output = ();

    #[inline(always)]
    fn run(self, v: Vaes256) {
        for op in self.0.iter_mut().flatten() {
            let Some(tables) = op.key().tables() else { continue };
            let tag = long::<O>(v, tables, op.parts());
            tag::finish(v, &mut **op, tag);
        }
    }
}

/// A packet whose payload is done and whose hash is not.
struct Pending<'t, 'o, O, const N: usize> {
    tables: &'t Tables,
    blocks: [Y; N],
    /// Additional data and lengths, the one in each lane.
    ends: Y,
    /// Payload blocks.
    count: usize,
    /// The block that masks the tag.
    mask: B,
    op: &'o mut O,
}

/// Runs packets whose payload fits `N` registers. Each is hashed only after the next one's keystream
/// is under way, so that the two overlap.
#[inline(always)]
fn short<'a, O: Op<'a>, const N: usize>(v: Vaes256, slots: &mut [Slot<'_, O>]) {
    let mut pending: Option<Pending<'_, '_, O, N>> = None;
    for op in slots.iter_mut().flatten() {
        let Some(tables) = op.key().tables() else { continue };
        let op = &mut **op;
        let Parts { counter, aad, aad_len, data } = op.parts();
        let m = Message::new(v, tables, counter);
        let mut states = [m.seed; N];
        for i in 0..N {
            let counter = 2 * i as i32 + 2;
            // Counters this small fill the last byte alone.
            states[i] = v.xor_pair(m.seed, v.counters_pair((counter + 1) << 24, counter << 24));
        }
        let mut mask = v.xor_pair(m.seed, v.counters_pair(1 << 24, 1 << 24));
        m.encrypt_with(&mut states, &mut mask);
        if let Some(before) = pending.take() {
            before.finish(v);
        }
        let count = data.len().div_ceil(16);
        let ends = v
            .join_pair(aad::length_block(v, aad_len, data.len()), aad::first_block(v, tables, aad));
        let mut blocks = [v.zero_pair(); N];
        let mut rest = data;
        for i in 0..N {
            blocks[i] = if i + 1 < N {
                let Some((bytes, tail)) = rest.split_first_chunk_mut::<32>() else { break };
                rest = tail;
                m.crypt::<O>(bytes, states[i])
            } else {
                m.crypt_some::<O>(rest, states[i])
            };
        }
        pending = Some(Pending { tables, blocks, ends, count, mask: v.first(mask), op });
    }
    if let Some(last) = pending {
        last.finish(v);
    }
}

impl<'a, O: Op<'a>, const N: usize> Pending<'_, '_, O, N> {
    #[inline(always)]
    fn finish(self, v: Vaes256) {
        let tables = self.tables;
        let weights = v.join_pair(v.table(tables.power(1)), v.table(tables.power(self.count + 2)));
        let mut sum = PairSum::of(v, self.ends, weights);
        for i in 0..N {
            // The lane behind the last block is zero, whatever its weight.
            let Some(weights) = tables.pair(self.count + 1 - 2 * i) else { break };
            sum.add(v, self.blocks[i], v.window_pair(weights));
        }
        let tag = v.xor(v.reverse(sum.fold(v).reduce(v)), self.mask);
        tag::finish(v, self.op, tag);
    }
}

/// A message of more than sixteen blocks; returns the tag.
#[inline(always)]
fn long<'a, O: Op<'a>>(v: Vaes256, tables: &Tables, parts: Parts<'_>) -> B {
    let Parts { counter, aad, aad_len, data } = parts;
    let m = Message::new(v, tables, counter);
    let lengths = aad::length_block(v, aad_len, data.len());
    // What goes to the other kernel is never nothing.
    let count = (data.len() - 1) / (16 * GROUP_BLOCKS);
    let (groups, rest) = data.split_at_mut(count * 16 * GROUP_BLOCKS);
    let groups = groups.as_chunks_mut::<32>().0.as_chunks_mut::<GROUP>().0;
    let first = aad::first_block(v, tables, aad);
    let first = Sum::of(v, first, tables.weight(1)).reduce(v);
    let hash = m.groups::<O>(groups, first);
    // Counters wrap at 32 bits, which a payload of legal length never reaches.
    let next = (count * GROUP_BLOCKS) as u32 + 2;
    gcm128::rest::<_, O>(v, tables, counter, rest, hash, lengths, next)
}

/// Products summed lane by lane, before their reduction.
#[derive(Clone, Copy)]
pub(super) struct PairSum {
    lo: Y,
    mid: Y,
    hi: Y,
}

impl PairSum {
    #[inline(always)]
    pub(super) fn zero(v: Vaes256) -> Self {
        Self { lo: v.zero_pair(), mid: v.zero_pair(), hi: v.zero_pair() }
    }

    #[inline(always)]
    fn of(v: Vaes256, x: Y, power: Y) -> Self {
        let mut sum = Self::zero(v);
        sum.add(v, x, power);
        sum
    }

    #[inline(always)]
    pub(super) fn add(&mut self, v: Vaes256, x: Y, power: Y) {
        self.lo = v.xor_pair(self.lo, v.mul_lo_pair(x, power));
        self.hi = v.xor_pair(self.hi, v.mul_hi_pair(x, power));
        self.mid = v
            .xor_pair(self.mid, v.xor_pair(v.mul_lo_hi_pair(x, power), v.mul_hi_lo_pair(x, power)));
    }

    /// The sum over the lanes.
    #[inline(always)]
    pub(super) fn fold(self, v: Vaes256) -> Sum {
        Sum::from_parts(v, v.fold_pair(self.lo), v.fold_pair(self.mid), v.fold_pair(self.hi))
    }
}

/// What stays the same throughout a message.
#[derive(Clone, Copy)]
struct Message<'t> {
    v: Vaes256,
    tables: &'t Tables,
    /// The nonce with a counter of zero, and round key 0 already added, in both lanes.
    seed: Y,
}

impl<'t> Message<'t> {
    #[inline(always)]
    fn new(v: Vaes256, tables: &'t Tables, counter: &[u8; 16]) -> Self {
        let seed = v.xor(v.load(counter), v.table(&tables.round_keys[0]));
        Self { v, tables, seed: v.repeat_pair(seed) }
    }

    /// Transforms groups; returns the hash, which was `hash` before.
    #[inline(always)]
    fn groups<'a, O: Op<'a>>(self, groups: &mut [Group], mut hash: B) -> B {
        let v = self.v;
        let mut counter = 2u32;
        let mut previous: Option<&Group> = None;
        for group in groups {
            let mut states = self.states(counter);
            counter = counter.wrapping_add(GROUP_BLOCKS as u32);
            let mut sum = PairSum::zero(v);
            if O::SEAL {
                if let Some(previous) = previous {
                    self.encrypt_and_hash(&mut states, &mut sum, previous, hash);
                    hash = sum.fold(v).reduce(v);
                } else {
                    self.encrypt(&mut states);
                }
                self.apply(group, &states);
                previous = Some(group);
            } else {
                self.encrypt_and_hash(&mut states, &mut sum, group, hash);
                self.apply(group, &states);
                hash = sum.fold(v).reduce(v);
            }
        }
        if let Some(previous) = previous {
            let mut sum = PairSum::zero(v);
            for i in 0..GROUP {
                self.hash_pair(&mut sum, previous, hash, i);
            }
            hash = sum.fold(v).reduce(v);
        }
        hash
    }

    /// The start states of a group's counter blocks; `counter` is 2 more than a multiple of 16.
    #[inline(always)]
    fn states(self, counter: u32) -> [Y; GROUP] {
        let v = self.v;
        let mut states = [self.seed; GROUP];
        for i in 0..GROUP {
            let first = counter.wrapping_add(2 * i as u32);
            let second = first.wrapping_add(1);
            let counters = v.counters_pair(second.swap_bytes() as i32, first.swap_bytes() as i32);
            states[i] = v.xor_pair(self.seed, counters);
        }
        states
    }

    /// Adds a pair of blocks of a group to the sum; the hash so far joins the first.
    #[inline(always)]
    fn hash_pair(self, sum: &mut PairSum, group: &Group, hash: B, i: usize) {
        let v = self.v;
        let mut blocks = v.reverse_pair(v.load_pair(&group[i]));
        if i == 0 {
            blocks = v.xor_pair(blocks, v.widen(hash));
        }
        let Some(weights) = self.tables.pair(GROUP_BLOCKS - 2 * i) else { return };
        sum.add(v, blocks, v.window_pair(weights));
    }

    /// Encrypts the states and hashes a group between the rounds.
    #[inline(always)]
    fn encrypt_and_hash(self, states: &mut [Y; GROUP], sum: &mut PairSum, group: &Group, hash: B) {
        for round in 1..10 {
            self.round(states, &self.tables.round_keys[round]);
            if round <= GROUP {
                self.hash_pair(sum, group, hash, round - 1);
            }
        }
        self.last_rounds(states);
    }

    #[inline(always)]
    fn encrypt<const N: usize>(self, states: &mut [Y; N]) {
        for round in 1..10 {
            self.round(states, &self.tables.round_keys[round]);
        }
        self.last_rounds(states);
    }

    /// Encrypts the states and one more.
    #[inline(always)]
    fn encrypt_with<const N: usize>(self, states: &mut [Y; N], mask: &mut Y) {
        for round in 1..10 {
            self.round(states, &self.tables.round_keys[round]);
            self.round(std::array::from_mut(mask), &self.tables.round_keys[round]);
        }
        self.last_rounds(states);
        self.last_rounds(std::array::from_mut(mask));
    }

    #[inline(always)]
    fn last_rounds<const N: usize>(self, states: &mut [Y; N]) {
        let tables = self.tables;
        late_round_keys!(tables, key => self.round(states, key));
        let key = self.v.table_pair(&tables.last);
        for state in states {
            *state = self.v.aes_last_pair(*state, key);
        }
    }

    #[inline(always)]
    fn round<const N: usize>(self, states: &mut [Y; N], key: &Block) {
        let key = self.v.table_pair(key);
        for state in states {
            *state = self.v.aes_round_pair(*state, key);
        }
    }

    /// Adds the keystream to a group.
    #[inline(always)]
    fn apply(self, group: &mut Group, keystream: &[Y; GROUP]) {
        let v = self.v;
        for i in 0..GROUP {
            let blocks = v.xor_pair(v.load_pair(&group[i]), keystream[i]);
            v.store_pair(&mut group[i], blocks);
        }
    }

    /// Transforms a full register of payload and returns its ciphertext, as it is hashed.
    #[inline(always)]
    fn crypt<'a, O: Op<'a>>(self, bytes: &mut [u8; 32], keystream: Y) -> Y {
        let v = self.v;
        let input = v.load_pair(bytes);
        let output = v.xor_pair(input, keystream);
        v.store_pair(bytes, output);
        v.reverse_pair(if O::SEAL { output } else { input })
    }

    /// The same for up to 32 bytes.
    #[inline(always)]
    fn crypt_some<'a, O: Op<'a>>(self, bytes: &mut [u8], keystream: Y) -> Y {
        let v = self.v;
        let input = v.load_some_pair(bytes);
        let output = v.store_some_pair(bytes, v.xor_pair(input, keystream));
        v.reverse_pair(if O::SEAL { output } else { input })
    }
}
