//! AES-GCM with two blocks per register.
//!
//! A message of up to sixteen blocks is one row of registers; the block that masks the tag goes alone. It is
//! hashed while the next message is encrypted. A longer one is cut into groups of sixteen blocks and a tail of one to
//! sixteen, which is compiled once per number of registers. What is sealed in groups is hashed beside the rounds of
//! what comes behind it. Lanes are hashed apart there, each block times an even power of H from group to group; in the
//! tail each lane has its own power, so that lanes need no other weight when they are summed. Payloads of less than three
//! blocks go through the kernel for one block per register.
//!
//! Products have 192 bits (see `sum192`): a reduction is a product and three more instructions, for both lanes at once.

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use super::{
    aad, gcm128,
    lanes::{B, Lanes},
    lanes256::Y,
    tables::{FOLD, Sum, Tables, Window, late_round_keys},
    tag,
    token::{Door, Task, Vaes256},
};
use crate::block::Block;
use crate::isa::packet::{GcmPacket, Parts, SHORT_BLOCKS, Slot};

/// Registers in a group.
const GROUP: usize = 8;

/// Blocks in a group.
const GROUP_BLOCKS: usize = 2 * GROUP;

type Group = [[u8; 32]; GROUP];

/// Counters 0 to 15 in the last word of each block.
static COUNTERS: [[Block; 2]; GROUP] = {
    let mut counters = [[Block::ZERO; 2]; GROUP];
    let mut i = 0;
    while i < GROUP_BLOCKS {
        counters[i / 2][i % 2].0[15] = i as u8;
        i += 1;
    }
    counters
};

/// Runs operations of one class.
pub(super) fn run<'a, O: GcmPacket<'a>>(v: Vaes256, slots: &mut [Slot<'_, O>]) {
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

impl<'a, O: GcmPacket<'a>, const N: usize> Task<Vaes256> for Short<'_, '_, O, N> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: Vaes256) {
        short::<O, N>(token, self.0);
    }
}

/// Runs longer packets.
struct Long<'s, 'o, O>(&'s mut [Slot<'o, O>]);

impl<'a, O: GcmPacket<'a>> Task<Vaes256> for Long<'_, '_, O> {
    type Output = ();

    #[inline(always)]
    fn run(self, v: Vaes256) {
        for op in self.0.iter_mut().flatten() {
            let Some(tables) = op.tables() else { continue };
            let tag = long::<O>(v, tables, op.parts());
            tag::finish(v, &mut **op, tag);
        }
    }
}

/// A sealed packet that has yet to be hashed.
struct Pending<'t, 'o, O> {
    tables: &'t Tables,
    /// The last register of ciphertext. From memory it would have to be loaded under the mask under which
    /// it was stored, and wait until it is there.
    last: Y,
    /// The block that masks the tag.
    mask: B,
    op: &'o mut O,
}

/// Runs packets whose payload fits `N` registers. What is sealed is hashed only after the next one's keystream is
/// under way, so that the two overlap; what is opened, while it is decrypted.
#[inline(always)]
fn short<'a, O: GcmPacket<'a>, const N: usize>(v: Vaes256, slots: &mut [Slot<'_, O>]) {
    let mut pending: Option<Pending<'_, '_, O>> = None;
    for op in slots.iter_mut().flatten() {
        let Some(tables) = op.tables() else { continue };
        let op = &mut **op;
        let parts = op.parts();
        let m = Message::new(v, tables, parts.counter);
        if !O::SEAL {
            let sum = m.ends(&parts);
            let tail = Tail { before: None, hash: v.zero_pair(), sum, next: 2 };
            let tag = m.tail::<O, N>(parts.data, tail);
            tag::finish(v, op, tag);
            continue;
        }
        let mut states = m.states::<N>(2);
        let mut mask = m.mask_state();
        if let Some(before) = pending.take() {
            before.finish::<N>(m, &mut states, &mut mask);
        } else {
            m.rounds(&mut states, &mut mask);
        }
        m.last_rounds(&mut states, &mut mask);
        let Some((front, last)) = split::<N>(parts.data) else { continue };
        for i in 0..N - 1 {
            m.apply(&mut front[i], states[i]);
        }
        let last = m.seal_some(last, states[N - 1]);
        pending = Some(Pending { tables, last, mask, op });
    }
    if let Some(last) = pending {
        let m = Message { v, tables: last.tables, seed: v.zero_pair() };
        last.finish::<N>(m, &mut [v.zero_pair(); N], &mut v.zero());
    }
}

/// The full registers of a payload in `N`, and the bytes of the last one.
#[inline(always)]
fn split<const N: usize>(data: &mut [u8]) -> Option<(&mut [[u8; 32]], &mut [u8])> {
    let (front, last) = data.split_at_mut_checked((N - 1) * 32)?;
    Some((front.as_chunks_mut().0.get_mut(..N - 1)?, last))
}

impl<'a, O: GcmPacket<'a>> Pending<'_, '_, O> {
    /// Hashes the packet and ends it, and does the rounds of the next one meanwhile.
    #[inline(always)]
    fn finish<const N: usize>(self, next: Message<'_>, states: &mut [Y; N], mask: &mut B) {
        let v = next.v;
        let parts = self.op.parts();
        let m = Message { v, tables: self.tables, seed: v.zero_pair() };
        let mut sum = m.ends(&parts);
        let count = parts.data.len().div_ceil(16);
        let Some((whole, divided)) = m.tables.registers::<2, N>(count + 1) else { return };
        let Some((front, _)) = split::<N>(parts.data) else { return };
        for round in 1..10 {
            next.round(states, mask, round);
            if round <= N {
                let i = round - 1;
                let row = if i < N - 1 { v.load_pair(&front[i]) } else { self.last };
                // The lane behind the last block is zero, whatever its weight.
                sum.add_pair(v, v.reverse_pair(row), &whole[i], &divided[i]);
            }
        }
        tag::finish(v, self.op, v.xor(v.reverse(sum.fold(v)), self.mask));
    }
}

/// A message of more than sixteen blocks; returns the tag.
#[inline(always)]
fn long<'a, O: GcmPacket<'a>>(v: Vaes256, tables: &Tables, parts: Parts<'_>) -> B {
    let Parts { counter, aad, aad_len, data } = parts;
    let m = Message::new(v, tables, counter);
    let lengths = aad::length_block(v, aad_len, data.len());
    // The tail is never nothing.
    let count = (data.len() - 1) / (16 * GROUP_BLOCKS);
    let (groups, rest) = data.split_at_mut(count * 16 * GROUP_BLOCKS);
    let groups = groups.as_chunks_mut::<32>().0.as_chunks_mut::<GROUP>().0;
    let first = aad::first_block(v, tables, aad);
    let first = v.widen(Sum::of(v, first, tables.weight(1)).reduce(v));
    // Counters wrap at 32 bits, which a payload of legal length never reaches.
    let next = (count * GROUP_BLOCKS) as u32 + 2;
    let (before, hash) =
        if O::SEAL { m.seal_groups(groups, first) } else { (None, m.open_groups(groups, first)) };
    let mut sum = PairSum::zero(v);
    sum.add_alike(v, v.widen(lengths), tables.window(1));
    let tail = Tail { before, hash, sum, next };
    match rest.len().div_ceil(32) {
        1 => m.tail::<O, 1>(rest, tail),
        2 => m.tail::<O, 2>(rest, tail),
        3 => m.tail::<O, 3>(rest, tail),
        4 => m.tail::<O, 4>(rest, tail),
        5 => m.tail::<O, 5>(rest, tail),
        6 => m.tail::<O, 6>(rest, tail),
        7 => m.tail::<O, 7>(rest, tail),
        _ => m.tail::<O, GROUP>(rest, tail),
    }
}

/// State that the tail of a long message goes on from.
#[derive(Clone, Copy)]
struct Tail<'g> {
    /// The group in front of it, if it is yet to be hashed.
    before: Option<&'g Group>,
    /// The hash of each lane so far.
    hash: Y,
    /// Product that is hashed apart: the block of the lengths.
    sum: PairSum,
    /// The counter of its first block.
    next: u32,
}

/// Products of 192 bits, summed lane by lane, before their reduction; see `sum192`.
#[derive(Clone, Copy)]
pub(super) struct PairSum {
    lo: Y,
    hi: Y,
}

impl PairSum {
    #[inline(always)]
    pub(super) fn zero(v: Vaes256) -> Self {
        Self { lo: v.zero_pair(), hi: v.zero_pair() }
    }

    /// Adds `x` times the highest power of a window.
    #[inline(always)]
    pub(super) fn add_alike(&mut self, v: Vaes256, x: Y, window: Window<'_>) {
        let ([whole, ..], [divided, ..]) = (window.whole, window.divided);
        self.add(v, x, v.table_pair(whole), v.table_pair(divided));
    }

    #[inline(always)]
    fn add(&mut self, v: Vaes256, x: Y, whole: Y, divided: Y) {
        let lo = v.xor_pair(v.mul_lo_pair(x, divided), v.mul_hi_lo_pair(x, whole));
        let hi = v.xor_pair(v.mul_lo_hi_pair(x, divided), v.mul_hi_pair(x, whole));
        self.lo = v.xor_pair(self.lo, lo);
        self.hi = v.xor_pair(self.hi, hi);
    }

    /// Adds `x` times a power for each lane; the second factor is the same divided by x^64.
    #[inline(always)]
    pub(super) fn add_pair(&mut self, v: Vaes256, x: Y, whole: &[Block; 2], divided: &[Block; 2]) {
        self.add(v, x, v.window_pair(whole), v.window_pair(divided));
    }

    /// Adds each lane of `x` times the highest power of its window.
    #[inline(always)]
    fn add_lanes(&mut self, v: Vaes256, x: Y, [first, second]: [Window<'_>; 2]) {
        let ([a, ..], [b, ..]) = (first.whole, second.whole);
        let ([c, ..], [d, ..]) = (first.divided, second.divided);
        let whole = v.join_pair(v.table(b), v.table(a));
        self.add(v, x, whole, v.join_pair(v.table(d), v.table(c)));
    }

    /// The sum over the lanes, modulo the polynomial.
    #[inline(always)]
    pub(super) fn fold(self, v: Vaes256) -> B {
        let (lo, hi) = (v.fold_pair(self.lo), v.fold_pair(self.hi));
        v.xor3(hi, v.swap_halves(lo), v.mul_lo(lo, v.pair(FOLD, FOLD)))
    }

    /// Each lane's sum modulo the GHASH polynomial.
    #[inline(always)]
    pub(super) fn reduce(self, v: Vaes256) -> Y {
        let lo = v.xor_pair(v.swap_halves_pair(self.lo), v.mul_lo_pair(self.lo, v.fill_pair(FOLD)));
        v.xor_pair(self.hi, lo)
    }
}

/// Constants of a message.
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

    /// The products of the additional data and of the lengths of a payload of up to sixteen blocks.
    #[inline(always)]
    fn ends(self, parts: &Parts<'_>) -> PairSum {
        let (v, tables) = (self.v, self.tables);
        let aad = aad::first_block(v, tables, parts.aad);
        let lengths = aad::length_block(v, parts.aad_len, parts.data.len());
        let first = tables.window(parts.data.len().div_ceil(16) + 2);
        let mut sum = PairSum::zero(v);
        sum.add_lanes(v, v.join_pair(lengths, aad), [first, tables.window(1)]);
        sum
    }

    /// Seals groups, and hashes all of them but the last, which it returns with the hash of each lane.
    #[inline(always)]
    fn seal_groups(self, groups: &mut [Group], mut hash: Y) -> (Option<&Group>, Y) {
        let Some((group, groups)) = groups.split_first_mut() else { return (None, hash) };
        let mut counter = 2u32;
        let mut states = self.states::<GROUP>(counter);
        self.rounds(&mut states, &mut self.v.zero());
        self.apply_group(group, states);
        let mut previous = &*group;
        for group in groups {
            counter = counter.wrapping_add(GROUP_BLOCKS as u32);
            let mut states = self.states::<GROUP>(counter);
            hash = self.rounds_and_hash(&mut states, &mut self.v.zero(), previous, hash);
            self.apply_group(group, states);
            previous = group;
        }
        (Some(previous), hash)
    }

    /// Opens groups; returns the hash of each lane.
    #[inline(always)]
    fn open_groups(self, groups: &mut [Group], mut hash: Y) -> Y {
        let mut counter = 2u32;
        for group in groups {
            let mut states = self.states::<GROUP>(counter);
            hash = self.rounds_and_hash(&mut states, &mut self.v.zero(), group, hash);
            self.apply_group(group, states);
            counter = counter.wrapping_add(GROUP_BLOCKS as u32);
        }
        hash
    }

    /// The last one to sixteen blocks, in `N` registers; returns the tag.
    ///
    /// Here each lane has its own power of H, so that lanes need no other weight when they are summed.
    #[inline(always)]
    fn tail<'a, O: GcmPacket<'a>, const N: usize>(self, rest: &mut [u8], tail: Tail<'_>) -> B {
        let (v, tables) = (self.v, self.tables);
        let Tail { before, mut hash, mut sum, next } = tail;
        let mut states = self.states::<N>(next);
        let mut mask = self.mask_state();
        let count = rest.len().div_ceil(16);
        let Some((whole, divided)) = tables.registers::<2, N>(count + 1) else { return mask };
        let Some((front, last)) = split::<N>(rest) else { return mask };
        let mut rows = [v.zero_pair(); N];
        for i in 0..N - 1 {
            rows[i] = v.load_pair(&front[i]);
        }
        rows[N - 1] = v.load_some_pair(last);
        if O::SEAL {
            if let Some(group) = before {
                hash = self.rounds_and_hash(&mut states, &mut mask, group, hash);
            } else {
                self.rounds(&mut states, &mut mask);
            }
        } else {
            for round in 1..10 {
                self.round(&mut states, &mut mask, round);
                if round <= N {
                    let i = round - 1;
                    let mut row = v.reverse_pair(rows[i]);
                    if i == 0 {
                        row = v.xor_pair(row, hash);
                    }
                    sum.add_pair(v, row, &whole[i], &divided[i]);
                }
            }
        }
        self.last_rounds(&mut states, &mut mask);
        for i in 0..N - 1 {
            rows[i] = self.apply(&mut front[i], states[i]);
        }
        if O::SEAL {
            rows[N - 1] = self.seal_some(last, states[N - 1]);
            for i in 0..N {
                let mut row = v.reverse_pair(rows[i]);
                if i == 0 {
                    row = v.xor_pair(row, hash);
                }
                sum.add_pair(v, row, &whole[i], &divided[i]);
            }
        } else {
            v.store_some_pair(last, v.xor_pair(rows[N - 1], states[N - 1]));
        }
        v.xor(v.reverse(sum.fold(v)), mask)
    }

    /// The start state of the block that masks the tag.
    #[inline(always)]
    fn mask_state(self) -> B {
        let v = self.v;
        v.xor(v.first(self.seed), v.quad(1 << 24, 0, 0, 0))
    }

    /// The start states of up to sixteen counter blocks from `counter` on, which is 2 more than a multiple of 16.
    ///
    /// So only the last four bits differ in all pairs but the last, and carries need no care.
    #[inline(always)]
    fn states<const N: usize>(self, counter: u32) -> [Y; N] {
        let v = self.v;
        let low = self.seed_at(counter - 2);
        let high = self.seed_at(counter.wrapping_add(14));
        let mut states = [low; N];
        for i in 0..N {
            let (seed, i_of) = if i + 1 < GROUP { (low, i + 1) } else { (high, 0) };
            states[i] = v.xor_pair(seed, v.window_pair(&COUNTERS[i_of]));
        }
        states
    }

    /// The seed with a counter in it.
    #[inline(always)]
    fn seed_at(self, counter: u32) -> Y {
        let v = self.v;
        v.xor_pair(self.seed, v.repeat_pair(v.quad(counter.swap_bytes() as i32, 0, 0, 0)))
    }

    /// Adds a pair of blocks of a group to the sum; the hash so far joins the first.
    #[inline(always)]
    fn hash_pair(self, sum: &mut PairSum, group: &Group, hash: Y, i: usize) {
        let v = self.v;
        let mut blocks = v.reverse_pair(v.load_pair(&group[i]));
        if i == 0 {
            blocks = v.xor_pair(blocks, hash);
        }
        sum.add_alike(v, blocks, self.tables.window(GROUP_BLOCKS - 2 * i));
    }

    /// The rounds to the ninth, and a group that is hashed between them, the first pair last, as it waits for the hash so
    /// far. Returns the hash of each lane.
    #[inline(always)]
    fn rounds_and_hash<const N: usize>(
        self,
        states: &mut [Y; N],
        one: &mut B,
        group: &Group,
        hash: Y,
    ) -> Y {
        let mut sum = PairSum::zero(self.v);
        for round in 1..10 {
            self.round(states, one, round);
            if round <= GROUP {
                self.hash_pair(&mut sum, group, hash, GROUP - round);
            }
        }
        sum.reduce(self.v)
    }

    /// The rounds to the ninth.
    #[inline(always)]
    fn rounds<const N: usize>(self, states: &mut [Y; N], one: &mut B) {
        for round in 1..10 {
            self.round(states, one, round);
        }
    }

    /// A round of the states, and of a block alone.
    #[inline(always)]
    fn round<const N: usize>(self, states: &mut [Y; N], one: &mut B, round: usize) {
        self.round_with(states, one, &self.tables.round_keys[round]);
    }

    #[inline(always)]
    fn round_with<const N: usize>(self, states: &mut [Y; N], one: &mut B, key: &Block) {
        let v = self.v;
        let key = v.table_pair(key);
        for i in 0..N {
            states[i] = v.aes_round_pair(states[i], key);
        }
        *one = v.aes_round(*one, v.first(key));
    }

    /// The rounds from the tenth on.
    #[inline(always)]
    fn last_rounds<const N: usize>(self, states: &mut [Y; N], one: &mut B) {
        let (v, tables) = (self.v, self.tables);
        late_round_keys!(tables, key => self.round_with(states, one, key));
        let key = v.table_pair(&tables.last);
        for i in 0..N {
            states[i] = v.aes_last_pair(states[i], key);
        }
        *one = v.aes_last(*one, v.first(key));
    }

    /// Ends the rounds of a group's states, and adds the keystream.
    #[inline(always)]
    fn apply_group(self, group: &mut Group, mut states: [Y; GROUP]) {
        self.last_rounds(&mut states, &mut self.v.zero());
        for i in 0..GROUP {
            self.apply(&mut group[i], states[i]);
        }
    }

    /// Adds the keystream to a full register of payload; returns the sum.
    #[inline(always)]
    fn apply(self, bytes: &mut [u8; 32], keystream: Y) -> Y {
        let v = self.v;
        let output = v.xor_pair(v.load_pair(bytes), keystream);
        v.store_pair(bytes, output);
        output
    }

    /// The same for up to 32 bytes, zeros behind them.
    #[inline(always)]
    fn seal_some(self, bytes: &mut [u8], keystream: Y) -> Y {
        let v = self.v;
        let output = v.xor_pair(v.load_some_pair(bytes), keystream);
        v.store_some_pair(bytes, output)
    }
}
