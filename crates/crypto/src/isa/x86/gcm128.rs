//! AES-GCM with one block per register.
//!
//! Up to eight blocks make a short packet, compiled once per number of blocks. Packets of one class
//! run one after another through that code. What is hashed while the counter blocks of one are
//! encrypted is its own ciphertext when it is opened, one block between each two rounds, and the
//! ciphertext of the one before when it is sealed, so the AES and multiplier units never wait.
//!
//! A longer message is cut into groups of eight blocks and a tail of one to eight. There, sealing
//! hashes each group while the next is encrypted. The last group and the tail share one reduction.

// Indices name registers here, in several arrays at once; every such loop is unrolled. Core's copies are not
// always inlined.
#![allow(clippy::needless_range_loop, clippy::manual_memcpy)]

use super::{
    aad,
    lanes::{B, Lanes},
    tables::{Sum, Tables, Weights, late_round_keys},
    tag,
    token::{Door, Task},
};
use crate::block::Block;
use crate::isa::packet::{GcmPacket, Parts, Slot};

/// Blocks in a group, and in the longest tail.
const GROUP: usize = 8;

/// States of a tail: its keystream and, in front, the block that masks the tag.
type TailStates = [B; GROUP + 1];

type Group = [[u8; 16]; GROUP];

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

/// Runs operations of one class.
pub(super) fn run<'a, L: Lanes + Door, O: GcmPacket<'a>>(l: L, slots: &mut [Slot<'_, O>]) {
    let Some(Some(first)) = slots.first() else { return };
    match first.data_len().div_ceil(16) {
        0 => l.enter(Short::<O, 0>(slots)),
        1 => l.enter(Short::<O, 1>(slots)),
        2 => l.enter(Short::<O, 2>(slots)),
        3 => l.enter(Short::<O, 3>(slots)),
        4 => l.enter(Short::<O, 4>(slots)),
        5 => l.enter(Short::<O, 5>(slots)),
        6 => l.enter(Short::<O, 6>(slots)),
        7 => l.enter(Short::<O, 7>(slots)),
        8 => l.enter(Short::<O, 8>(slots)),
        _ => l.enter(Long(slots)),
    }
}

/// Runs packets of `T` blocks.
struct Short<'s, 'o, O, const T: usize>(&'s mut [Slot<'o, O>]);

impl<'a, L: Lanes, O: GcmPacket<'a>, const T: usize> Task<L> for Short<'_, '_, O, T> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: L) {
        short::<L, O, T>(token, self.0);
    }
}

/// Runs longer packets.
struct Long<'s, 'o, O>(&'s mut [Slot<'o, O>]);

impl<'a, L: Lanes, O: GcmPacket<'a>> Task<L> for Long<'_, '_, O> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        for op in self.0.iter_mut().flatten() {
            let Some(tables) = op.tables() else { continue };
            let tag = long::<L, O>(l, tables, op.parts());
            tag::finish(l, &mut **op, tag);
        }
    }
}

/// A sealed packet that has yet to be hashed.
struct Pending<'t, 'o, O> {
    tables: &'t Tables,
    /// The block that masks the tag.
    mask: B,
    /// The last block of ciphertext. From memory it would have to be loaded under the mask under which
    /// it was stored, and wait until it is there.
    last: B,
    op: &'o mut O,
}

/// Runs packets of `T` blocks. Each is hashed while the next one is encrypted, or, opening, while it
/// is decrypted itself.
#[inline(always)]
fn short<'a, L: Lanes, O: GcmPacket<'a>, const T: usize>(l: L, slots: &mut [Slot<'_, O>]) {
    let mut pending: Option<Pending<'_, '_, O>> = None;
    for op in slots.iter_mut().flatten() {
        let Some(tables) = op.tables() else { continue };
        let op = &mut **op;
        let Parts { counter, aad, aad_len, data } = op.parts();
        let m = Message::new(l, tables, counter);
        let mut states = m.first_states::<T>();
        if O::SEAL {
            if let Some(before) = pending.take() {
                before.finish::<L, T>(m, &mut states);
            } else {
                let work = Work::none(l, tables);
                m.encrypt::<_, 0>(&mut states, T + 1, &mut Sum::zero(l), &work);
            }
            let last = m.apply_tail::<O, T>(op.parts().data, &states);
            pending = Some(Pending { tables, mask: states[0], last, op });
        } else {
            let mut sum = ends::<L, T>(l, tables, aad, aad_len, data.len());
            let (full, last) = full_blocks::<T>(data);
            let work = Work::tail::<_, T>(l, tables, full, l.load_some(last));
            m.encrypt::<_, T>(&mut states, T + 1, &mut sum, &work);
            m.apply_tail::<O, T>(data, &states);
            let tag = l.xor(l.reverse(sum.reduce(l)), states[0]);
            tag::finish(l, op, tag);
        }
    }
    if let Some(last) = pending {
        let m = Message { l, tables: last.tables, seed: l.zero() };
        last.finish::<L, T>(m, &mut [l.zero(); GROUP + 1]);
    }
}

impl<'a, O: GcmPacket<'a>> Pending<'_, '_, O> {
    /// Hashes the packet and ends it, and encrypts the states of the next one meanwhile.
    #[inline(always)]
    fn finish<L: Lanes, const T: usize>(self, next: Message<'_, L>, states: &mut TailStates) {
        let l = next.l;
        let Parts { aad, aad_len, data, .. } = self.op.parts();
        let mut sum = ends::<L, T>(l, self.tables, aad, aad_len, data.len());
        let full = full_blocks::<T>(data).0;
        let work = Work::tail::<_, T>(l, self.tables, full, self.last);
        next.encrypt::<_, T>(states, T + 1, &mut sum, &work);
        let tag = l.xor(l.reverse(sum.reduce(l)), self.mask);
        tag::finish(l, self.op, tag);
    }
}

/// The hash of what stands around a text of `T` blocks: additional data and lengths.
#[inline(always)]
fn ends<L: Lanes, const T: usize>(
    l: L,
    tables: &Tables,
    aad: &[u8],
    aad_len: usize,
    data_len: usize,
) -> Sum {
    let mut sum = Sum::of(l, aad::first_block(l, tables, aad), tables.weight(T + 2));
    sum.add(l, aad::length_block(l, aad_len, data_len), tables.weight(1));
    sum
}

/// All blocks of a tail of `T` but the last, and the bytes of the last.
#[inline(always)]
fn full_blocks<const T: usize>(data: &[u8]) -> (&[[u8; 16]], &[u8]) {
    let (full, last) = data.split_at(16 * T.saturating_sub(1));
    (full.as_chunks().0, last)
}

/// A message of more than eight blocks; returns the tag.
#[inline(always)]
fn long<'a, L: Lanes, O: GcmPacket<'a>>(l: L, tables: &Tables, parts: Parts<'_>) -> B {
    let Parts { counter, aad, aad_len, data } = parts;
    let m = Message::new(l, tables, counter);
    let lengths = aad::length_block(l, aad_len, data.len());
    let count = (data.len() - 1) / (16 * GROUP);
    let (groups, rest) = data.split_at_mut(count * 16 * GROUP);
    let groups = groups.as_chunks_mut::<16>().0.as_chunks_mut::<GROUP>().0;
    // The tail and the lengths follow the last group without a reduction between, so it weighs that
    // much more.
    let tail = rest.len().div_ceil(16);
    let shift = tail + 1;
    let first_weight = GROUP + 1 + if count == 1 { shift } else { 0 };
    let mut sum = Sum::of(l, aad::first_block(l, tables, aad), tables.far_weight(first_weight));
    let mut hash = l.zero();
    if O::SEAL {
        m.seal_groups(groups, &mut sum, &mut hash);
    } else {
        m.open_groups(groups, &mut sum, hash, shift);
    }
    sum.add(l, lengths, tables.weight(1));
    let last = groups.last().filter(|_| O::SEAL).map(|group| (group, hash));
    // Counters wrap at 32 bits, which a payload of legal length never reaches.
    let counter = (count * GROUP) as u32 + 2;
    m.any_tail::<O>(rest, sum, last, counter)
}

/// Blocks to be hashed while counter blocks are encrypted.
#[derive(Clone, Copy)]
struct Work<'w> {
    blocks: &'w [[u8; 16]],
    /// One more block, which may be short in memory.
    last: B,
    /// The hash so far, which joins the first block.
    hash: B,
    /// The power of H for each block.
    weights: Weights<'w>,
}

impl<'w> Work<'w> {
    #[inline(always)]
    fn none<L: Lanes>(l: L, tables: &'w Tables) -> Self {
        Self { blocks: &[], last: l.zero(), hash: l.zero(), weights: tables.weights(1) }
    }

    /// A group, which the hash so far joins.
    #[inline(always)]
    fn group(group: &'w Group, hash: B, weights: Weights<'w>) -> Self {
        Self { blocks: group, last: hash, hash, weights }
    }

    /// A tail of `T` blocks, which the lengths follow.
    #[inline(always)]
    fn tail<L: Lanes, const T: usize>(
        l: L,
        tables: &'w Tables,
        full: &'w [[u8; 16]],
        last: B,
    ) -> Self {
        Self { blocks: full, last, hash: l.zero(), weights: tables.weights(T + 1) }
    }

    /// Adds block `i` to the sum.
    #[inline(always)]
    fn step<L: Lanes>(&self, l: L, sum: &mut Sum, i: usize) {
        let mut block = l.reverse(self.blocks.get(i).map_or(self.last, |block| l.load(block)));
        if i == 0 {
            block = l.xor(block, self.hash);
        }
        sum.add(l, block, self.weights.at(i));
    }

    /// Adds the first `H` blocks to the sum.
    #[inline(always)]
    fn all<L: Lanes, const H: usize>(&self, l: L, sum: &mut Sum) {
        for i in 0..H {
            self.step(l, sum, i);
        }
    }
}

/// Constants of a message.
#[derive(Clone, Copy)]
struct Message<'t, L> {
    l: L,
    tables: &'t Tables,
    /// The nonce with a counter of zero, and round key 0 already added.
    seed: B,
}

impl<'t, L: Lanes> Message<'t, L> {
    #[inline(always)]
    fn new(l: L, tables: &'t Tables, counter: &[u8; 16]) -> Self {
        Self { l, tables, seed: l.xor(l.load(counter), l.table(&tables.round_keys[0])) }
    }

    /// Seals groups, and hashes all of them but the last.
    #[inline(always)]
    fn seal_groups(self, groups: &mut [Group], sum: &mut Sum, hash: &mut B) {
        let l = self.l;
        let Some((group, groups)) = groups.split_first_mut() else { return };
        let mut counter = 2;
        let mut states = self.states(counter);
        self.encrypt::<_, 0>(&mut states, GROUP, sum, &Work::none(l, self.tables));
        self.apply(group, &states);
        let mut previous = &*group;
        for group in groups {
            counter += GROUP as u32;
            let mut states = self.states(counter);
            let work = Work::group(previous, *hash, self.tables.weights(GROUP));
            self.encrypt::<_, GROUP>(&mut states, GROUP, sum, &work);
            self.apply(group, &states);
            *hash = sum.reduce(l);
            *sum = Sum::zero(l);
            previous = group;
        }
    }

    /// Opens groups and hashes them all; `shift` blocks follow the last one before the next
    /// reduction.
    #[inline(always)]
    fn open_groups(self, groups: &mut [Group], sum: &mut Sum, mut hash: B, shift: usize) {
        let l = self.l;
        let Some((last, groups)) = groups.split_last_mut() else { return };
        let mut counter = 2;
        for group in groups {
            self.open_group(group, counter, sum, hash, self.tables.weights(GROUP));
            counter += GROUP as u32;
            hash = sum.reduce(l);
            *sum = Sum::zero(l);
        }
        self.open_group(last, counter, sum, hash, self.tables.far_weights(GROUP + shift));
    }

    #[inline(always)]
    fn open_group(
        self,
        group: &mut Group,
        counter: u32,
        sum: &mut Sum,
        hash: B,
        weights: Weights<'_>,
    ) {
        let mut states = self.states(counter);
        let work = Work::group(group, hash, weights);
        self.encrypt::<_, GROUP>(&mut states, GROUP, sum, &work);
        self.apply(group, &states);
    }

    /// The last one to eight blocks of a long message; see [`tail`](Self::tail).
    #[inline(always)]
    fn any_tail<'a, O: GcmPacket<'a>>(
        self,
        data: &mut [u8],
        sum: Sum,
        before: Option<(&Group, B)>,
        counter: u32,
    ) -> B {
        match data.len().div_ceil(16) {
            1 => self.tail::<O, 1>(data, sum, before, counter),
            2 => self.tail::<O, 2>(data, sum, before, counter),
            3 => self.tail::<O, 3>(data, sum, before, counter),
            4 => self.tail::<O, 4>(data, sum, before, counter),
            5 => self.tail::<O, 5>(data, sum, before, counter),
            6 => self.tail::<O, 6>(data, sum, before, counter),
            7 => self.tail::<O, 7>(data, sum, before, counter),
            _ => self.tail::<O, 8>(data, sum, before, counter),
        }
    }

    /// The last `T` blocks of a long message; returns the tag. `before` is a group yet to be
    /// hashed.
    #[inline(always)]
    fn tail<'a, O: GcmPacket<'a>, const T: usize>(
        self,
        data: &mut [u8],
        mut sum: Sum,
        before: Option<(&Group, B)>,
        counter: u32,
    ) -> B {
        let (l, tables) = (self.l, self.tables);
        let mut states = [l.xor(self.seed, self.small_counter(1)); GROUP + 1];
        let others = self.states(counter);
        for i in 0..GROUP {
            states[1 + i] = others[i];
        }
        if O::SEAL {
            if let Some((group, hash)) = before {
                let work = Work::group(group, hash, tables.weights(GROUP + T + 1));
                self.encrypt::<_, GROUP>(&mut states, T + 1, &mut sum, &work);
            } else {
                self.encrypt::<_, 0>(&mut states, T + 1, &mut sum, &Work::none(l, self.tables));
            }
            let last = self.apply_tail::<O, T>(data, &states);
            let full = full_blocks::<T>(data).0;
            Work::tail::<_, T>(l, tables, full, last).all::<_, T>(l, &mut sum);
        } else {
            let (full, last) = full_blocks::<T>(data);
            let work = Work::tail::<_, T>(l, tables, full, l.load_some(last));
            self.encrypt::<_, T>(&mut states, T + 1, &mut sum, &work);
            self.apply_tail::<O, T>(data, &states);
        }
        l.xor(l.reverse(sum.reduce(l)), states[0])
    }

    /// A counter below 16, in its place in the block.
    #[inline(always)]
    fn small_counter(self, counter: usize) -> B {
        self.l.table(&COUNTERS[counter])
    }

    /// Any counter, in its place in the block.
    #[inline(always)]
    fn counter(self, counter: u32) -> B {
        self.l.quad(counter.swap_bytes() as i32, 0, 0, 0)
    }

    /// The start states of eight counter blocks from `counter` on, which is 2 more than a multiple
    /// of 8.
    ///
    /// So only the last three bits differ within each half, and carries need no care.
    #[inline(always)]
    fn states(self, counter: u32) -> [B; GROUP] {
        let l = self.l;
        let low = l.xor(self.seed, self.counter(counter - 2));
        let high = l.xor(self.seed, self.counter(counter.wrapping_add(6)));
        let mut states = [low; GROUP];
        for i in 0..6 {
            states[i] = l.xor(low, self.small_counter(i + 2));
        }
        states[6] = high;
        states[7] = l.xor(high, self.small_counter(1));
        states
    }

    /// The start states of a short packet of `T` blocks.
    #[inline(always)]
    fn first_states<const T: usize>(self) -> TailStates {
        let mut states = [self.seed; GROUP + 1];
        for i in 0..T + 1 {
            states[i] = self.l.xor(self.seed, self.small_counter(i + 1));
        }
        states
    }

    /// Encrypts the first `count` states, and hashes the first `H` blocks of `work` between the
    /// rounds.
    #[inline(always)]
    fn encrypt<const N: usize, const H: usize>(
        self,
        states: &mut [B; N],
        count: usize,
        sum: &mut Sum,
        work: &Work<'_>,
    ) {
        let tables = self.tables;
        for round in 1..10 {
            self.round(states, count, &tables.round_keys[round]);
            if round <= H {
                work.step(self.l, sum, round - 1);
            }
        }
        late_round_keys!(tables, key => self.round(states, count, key));
        let key = self.l.table(&tables.last);
        for state in &mut states[..count] {
            *state = self.l.aes_last(*state, key);
        }
    }

    #[inline(always)]
    fn round<const N: usize>(self, states: &mut [B; N], count: usize, key: &Block) {
        let key = self.l.table(key);
        for state in &mut states[..count] {
            *state = self.l.aes_round(*state, key);
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

    /// Adds the keystream to `T` blocks; returns the last as ciphertext if it was sealed, zeros
    /// behind it.
    #[inline(always)]
    fn apply_tail<'a, O: GcmPacket<'a>, const T: usize>(
        self,
        data: &mut [u8],
        states: &TailStates,
    ) -> B {
        let l = self.l;
        if T == 0 {
            return l.zero();
        }
        let (full, last) = data.split_at_mut(16 * (T - 1));
        let full = full.as_chunks_mut::<16>().0;
        for i in 0..T - 1 {
            let block = l.xor(l.load(&full[i]), states[i + 1]);
            l.store(&mut full[i], block);
        }
        let block = l.xor(l.load_some(last), states[T]);
        l.store_some(last, block);
        if O::SEAL { l.keep(block, last.len()) } else { block }
    }
}
