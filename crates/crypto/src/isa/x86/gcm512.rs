//! AES-GCM with four blocks per register.
//!
//! A message is a row of slots, and slot `s` belongs to counter `s`:
//!
//! ```text
//! slot        0      1            2   3   …   n+1   n+2
//! keystream   –      masks tag    payload blocks    –
//! hashed      –      last AAD     ciphertext        lengths
//! ```
//!
//! Registers take four slots each, so the block that masks the tag, the additional data and the
//! lengths travel in lanes that would be empty otherwise.
//!
//! Which kernel a class of packets goes through is decided here. Four of one key and as many rows go in step
//! (`gcm_fours`), four of up to eight blocks a packet per lane (`gcm_lanes`), what is left of them through the kernel
//! for one block per register; of the others those of up to 16 blocks and the very long ones are run here, and the
//! rest in rows (`gcm_rows`). Those of up to 16 blocks are compiled once per number of blocks; their lengths are
//! hashed in slot 0, which is always free.
//!
//! The front of a longer message goes through groups of 16 slots, in pairs. There each lane keeps a
//! hash of its own, multiplied by H^16 per group; the lanes are weighted and summed only in the tail of
//! 4 to 19 slots, which is compiled once per number of registers.

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop, clippy::manual_memcpy)]

use super::{
    aad, gcm_fours, gcm_lanes, gcm_rows, gcm128,
    lanes::{B, Lanes},
    lanes512::{HEAD, Quad, Z},
    sum4::Sum4,
    tables::{Tables, late_round_keys},
    tag,
    token::{Door, Task, Vaes512},
};
use crate::block::Block;
use crate::isa::packet::{CHUNK, GcmPacket, MOST_ROWS, Parts, SHORT_BLOCKS, Slot, are_few};

/// Registers in a group.
const GROUP: usize = 4;

/// Registers in a pair of groups.
const PAIR: usize = 2 * GROUP;

/// Registers in the longest tail.
const TAIL: usize = 5;

/// Slots in the longest tail.
const TAIL_SLOTS: usize = 4 * TAIL;

/// Counters 0 to 19, four to a register, in the last word of each block.
static COUNTERS: [Quad; TAIL] = {
    let mut counters = [const { Quad([[0; 16]; 4]) }; TAIL];
    let mut i = 0;
    while i < TAIL_SLOTS {
        counters[i / 4].0[i % 4][15] = i as u8;
        i += 1;
    }
    counters
};

/// Places that keys are sorted into.
const PLACES: usize = 1 << u8::BITS;

/// Runs operations of one class.
pub(super) fn run<'a, O: GcmPacket<'a>>(v: Vaes512, slots: &mut [Slot<'_, O>]) {
    let slots = gcm_fours::run(v, slots);
    let Some(Some(first)) = slots.first() else { return };
    match first.data_len().div_ceil(16) {
        blocks @ 0..=gcm_lanes::MOST => {
            let rest = gcm_lanes::run(v, blocks, slots);
            run_apart(v, rest);
        }
        ..=ROWS_MOST
            if slots.len() > 4 && are_few(slots.iter().flatten().map(|op| op.key_address())) =>
        {
            run_by_key(v, slots);
        }
        _ => run_apart(v, slots),
    }
}

/// Blocks of the longest packets that go in fours.
const ROWS_MOST: usize = 4 * MOST_ROWS;

/// Runs operations of one class and a few keys: those of each key go in fours, the others apart.
#[inline(never)]
fn run_by_key<'a, O: GcmPacket<'a>>(v: Vaes512, slots: &mut [Slot<'_, O>]) {
    for slots in slots.chunks_mut(CHUNK) {
        let mut places = [0u8; CHUNK];
        let mut ends = [0u16; PLACES];
        for (slot, place) in slots.iter().zip(&mut places) {
            let key = slot.as_deref().map_or(0, |op| op.key_address());
            // The highest bits of the product depend on all of the key's address (Knuth's multiplicative hash).
            *place = ((key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
            ends[usize::from(*place)] += 1;
        }
        let mut end = 0;
        for count in &mut ends {
            end += *count;
            *count = end;
        }
        let mut sorted = [const { None }; CHUNK];
        for (slot, &place) in slots.iter_mut().zip(&places) {
            let end = &mut ends[usize::from(place)];
            *end -= 1;
            if let Some(to) = sorted.get_mut(usize::from(*end)) {
                *to = slot.take();
            }
        }
        let key = |slot: &Slot<'_, O>| slot.as_deref().map(|op| op.key_address());
        let sorted = sorted.get_mut(..slots.len()).unwrap_or_default();
        let mut left = 0;
        for same in sorted.chunk_by_mut(|a, b| key(a) == key(b)) {
            for slot in gcm_fours::run(v, same) {
                if let Some(to) = slots.get_mut(left) {
                    *to = slot.take();
                    left += 1;
                }
            }
        }
        run_apart(v, slots.get_mut(..left).unwrap_or_default());
    }
}

/// Runs operations of one class, none beside another.
pub(super) fn run_apart<'a, O: GcmPacket<'a>>(v: Vaes512, slots: &mut [Slot<'_, O>]) {
    let Some(Some(first)) = slots.first() else { return };
    match first.data_len().div_ceil(16) {
        0..=gcm_lanes::MOST => gcm128::run(v.avx512(), slots),
        9 => v.enter(Short::<O, 3, 9>(slots)),
        10 => v.enter(Short::<O, 3, 10>(slots)),
        11 => v.enter(Short::<O, 4, 11>(slots)),
        12 => v.enter(Short::<O, 4, 12>(slots)),
        13 => v.enter(Short::<O, 4, 13>(slots)),
        14 => v.enter(Short::<O, 4, 14>(slots)),
        15 => v.enter(Short::<O, 5, 15>(slots)),
        SHORT_BLOCKS => v.enter(Short::<O, 5, 16>(slots)),
        // These may be of one class.
        _ => {
            gcm_rows::run(v, slots);
            if slots.iter().flatten().any(|op| op.data_len() > gcm_rows::MOST) {
                v.enter(Long(slots));
            }
        }
    }
}

/// Runs packets of `T` blocks, which are in `N` registers.
struct Short<'s, 'o, O, const N: usize, const T: usize>(&'s mut [Slot<'o, O>]);

impl<'a, O: GcmPacket<'a>, const N: usize, const T: usize> Task<Vaes512>
    for Short<'_, '_, O, N, T>
{
    type Output = ();

    #[inline(always)]
    fn run(self, token: Vaes512) {
        short::<O, N, T>(token, self.0);
    }
}

/// Runs packets that are too long for [`gcm_rows`].
struct Long<'s, 'o, O>(&'s mut [Slot<'o, O>]);

impl<'a, O: GcmPacket<'a>> Task<Vaes512> for Long<'_, '_, O> {
    type Output = ();

    #[inline(always)]
    fn run(self, v: Vaes512) {
        for op in self.0.iter_mut().flatten() {
            if op.data_len() <= gcm_rows::MOST {
                continue;
            }
            let Some(tables) = op.tables() else { continue };
            let tag = long::<O>(v, tables, op.parts());
            tag::finish(v, &mut **op, tag);
        }
    }
}

/// The slot of the lengths in a long message, which is the last one.
#[inline(always)]
fn length_slot(data_len: usize) -> usize {
    data_len.div_ceil(16) + 2
}

/// A packet whose payload is done and whose hash is not.
struct Pending<'t, 'o, O, const N: usize> {
    tables: &'t Tables,
    hashed: [Z; N],
    /// The block that masks the tag.
    mask: B,
    op: &'o mut O,
}

/// Runs packets of `T` blocks, which are in `N` registers. Each is hashed only after the next one's
/// keystream is under way, so that the two overlap.
#[inline(always)]
fn short<'a, O: GcmPacket<'a>, const N: usize, const T: usize>(
    v: Vaes512,
    slots: &mut [Slot<'_, O>],
) {
    let mut pending: Option<Pending<'_, '_, O, N>> = None;
    for op in slots.iter_mut().flatten() {
        let Some(tables) = op.tables() else { continue };
        let op = &mut **op;
        let parts = op.parts();
        let m = Message::new(v, tables, &parts);
        let mut states = [m.seed; N];
        for i in 0..N {
            states[i] = v.xor4(m.seed, v.constant4(&COUNTERS[i]));
        }
        m.encrypt(&mut states);
        if let Some(before) = pending.take() {
            before.finish::<T>(v);
        }
        let ends = v.join4(aad::first_block(v, tables, parts.aad), m.lengths);
        let hashed = m.crypt_short::<O, N, T>(parts.data, &states, ends);
        pending = Some(Pending { tables, hashed, mask: v.second(states[0]), op });
    }
    if let Some(last) = pending {
        last.finish::<T>(v);
    }
}

impl<'a, O: GcmPacket<'a>, const N: usize> Pending<'_, '_, O, N> {
    #[inline(always)]
    fn finish<const T: usize>(self, v: Vaes512) {
        // The lane in front of the additional data has the lengths.
        let mut sum = Sum4::zero(v);
        for i in 0..N {
            let Some(window) = self.tables.four_powers(T + 3 - 4 * i) else { break };
            let mut window = v.window4(window);
            if i == 0 {
                window = v.set_first4(window, self.tables.power(1));
            }
            sum.add(v, self.hashed[i], window);
        }
        let tag = v.xor(v.reverse(sum.fold(v).reduce(v)), self.mask);
        tag::finish(v, self.op, tag);
    }
}

/// A longer message: groups of 16 slots, then a tail of at least four. Returns the tag.
#[inline(always)]
fn long<'a, O: GcmPacket<'a>>(v: Vaes512, tables: &Tables, parts: Parts<'_>) -> B {
    let m = Message::new(v, tables, &parts);
    let first = m.first_block(parts.aad);
    let last = length_slot(parts.data.len());
    let groups = (last + 1 - 4) / (4 * GROUP);
    let (front, rest) = parts.data.split_at_mut(groups * 64 * GROUP - HEAD);
    // Compiled once for every key size: a branch among the rounds would keep hashing from overlapping
    // with them.
    let (mask, hashed) = match tables.rounds {
        10 => m.groups::<O, 10>(front, first),
        12 => m.groups::<O, 12>(front, first),
        _ => m.groups::<O, 14>(front, first),
    };
    let (slot, last) = (groups * 4 * GROUP, last - groups * 4 * GROUP);
    let hash = match hashed.last_chunk::<GROUP>() {
        Some(hashed) if groups == 1 => m.any_tail::<O, GROUP>(rest, hashed, slot, last),
        _ => m.any_tail::<O, PAIR>(rest, &hashed, slot, last),
    };
    v.xor(v.reverse(hash), mask)
}

/// The hashed blocks of a tail.
#[derive(Clone, Copy)]
struct Hashed<const N: usize> {
    blocks: [Z; N],
    /// The last block, if the registers are full without it.
    lengths: B,
    /// The slot of the lengths, from the start of the tail.
    last: usize,
}

impl<const N: usize> Hashed<N> {
    /// The sum of all blocks, weighted by their powers of H, and reduced.
    #[inline(always)]
    fn sum(self, v: Vaes512, tables: &Tables) -> B {
        let Some((weights, _)) = tables.registers::<4, N>(self.last + 1) else { return v.zero() };
        let mut sum = Sum4::zero(v);
        for i in 0..N {
            sum.add(v, self.blocks[i], v.window4(&weights[i]));
        }
        let mut sum = sum.fold(v);
        if self.last.is_multiple_of(4) {
            sum.add(v, self.lengths, tables.weight(1));
        }
        sum.reduce(v)
    }
}

/// Hashing of groups of registers, lane by lane, beside the rounds of AES.
struct Beside {
    sum: Sum4,
    /// The hash of each lane over the groups so far.
    hash: Z,
}

impl Beside {
    #[inline(always)]
    fn new(v: Vaes512) -> Self {
        Self { sum: Sum4::zero(v), hash: v.zero4() }
    }

    /// Hashes the share of one group or two that goes beside round `round`. The hash so far is part of the
    /// first register.
    #[inline(always)]
    fn step<const G: usize>(&mut self, m: Message<'_>, hashed: &[Z; G], round: usize) {
        if round > G {
            return;
        }
        // The first register of a group comes last: what it waits for was begun last.
        let i = (G - round) ^ (G - GROUP);
        let block = if i == GROUP { m.v.xor4(hashed[i], self.hash) } else { hashed[i] };
        self.sum.add(m.v, block, m.stride(i % GROUP));
        if i.is_multiple_of(GROUP) {
            self.hash = self.sum.reduce(m.v);
            self.sum = Sum4::zero(m.v);
        }
    }
}

/// Constants of a message.
#[derive(Clone, Copy)]
struct Message<'t> {
    v: Vaes512,
    tables: &'t Tables,
    /// The nonce with a counter of zero, and round key 0 already added, in every lane.
    seed: Z,
    /// The last block that is hashed.
    lengths: B,
}

impl<'t> Message<'t> {
    #[inline(always)]
    fn new(v: Vaes512, tables: &'t Tables, parts: &Parts<'_>) -> Self {
        let seed = v.xor4(v.repeat4(v.load(parts.counter)), v.table4(&tables.round_keys[0]));
        let lengths = aad::length_block(v, parts.aad_len, parts.data.len());
        Self { v, tables, seed, lengths }
    }

    /// The additional data in its lane.
    #[inline(always)]
    fn first_block(self, aad: &[u8]) -> Z {
        self.v.place4(0x00f0, aad::first_block(self.v, self.tables, aad))
    }

    /// The groups of a long message, of which there is at least one. Returns the block that masks
    /// the tag, and the last pair, which has yet to be hashed.
    ///
    /// They go in pairs, since one alone would leave the AES units waiting for it. A pair is hashed
    /// while the next one is encrypted. Where the number of groups is odd, the first goes alone.
    #[inline(always)]
    fn groups<'a, O: GcmPacket<'a>, const R: usize>(
        self,
        front: &mut [u8],
        first: Z,
    ) -> (B, [Z; PAIR]) {
        let v = self.v;
        let Some((head, rest)) = front.split_first_chunk_mut() else {
            return (v.second(self.seed), [v.zero4(); PAIR]);
        };
        let registers = rest.as_chunks_mut::<64>().0;
        let alone = registers.len() % PAIR < GROUP;
        let (start, rest) = registers.split_at_mut(if alone { GROUP } else { PAIR } - 1);
        let mut hashed = [v.zero4(); PAIR];
        let mask = if alone {
            let (mask, group) = self.crypt_first::<O, GROUP>(head, start, first);
            // It counts as the second of a pair; what stands in front of it adds nothing.
            for i in 0..GROUP {
                hashed[GROUP + i] = group[i];
            }
            mask
        } else {
            let (mask, pair) = self.crypt_first::<O, PAIR>(head, start, first);
            hashed = pair;
            mask
        };
        // Slots fit 32 bits: a legal payload has fewer blocks.
        let mut slot = 4 * (start.len() + 1) as u32;
        for pair in rest.as_chunks_mut::<PAIR>().0 {
            let mut states = self.counters::<PAIR>(slot);
            slot += 4 * PAIR as u32;
            let mut beside = Beside::new(v);
            // Two loops: a longer one is not unrolled, and then chooses at run time what to hash.
            for round in 1..10 {
                self.round(&mut states, &self.tables.round_keys[round]);
                beside.step(self, &hashed, round);
            }
            for round in 10..R {
                self.round(&mut states, &self.tables.round_keys[round]);
            }
            self.last_round(&mut states);
            for i in 0..PAIR {
                hashed[i] = self.crypt::<O>(&mut pair[i], states[i]);
            }
            hashed[0] = v.xor4(hashed[0], beside.hash);
        }
        (mask, hashed)
    }

    /// The first `N` registers of a long message. Returns the block that masks the tag, and what is
    /// to be hashed.
    #[inline(always)]
    fn crypt_first<'a, O: GcmPacket<'a>, const N: usize>(
        self,
        head: &mut [u8; HEAD],
        others: &mut [[u8; 64]],
        first: Z,
    ) -> (B, [Z; N]) {
        let v = self.v;
        let mut states = self.counters::<N>(0);
        self.encrypt(&mut states);
        let mut hashed = [v.xor4(self.crypt_head::<O>(head, states[0]), first); N];
        for i in 1..N {
            hashed[i] = self.crypt::<O>(&mut others[i - 1], states[i]);
        }
        (v.second(states[0]), hashed)
    }

    /// The weight of register `i` of a group, alike in all lanes.
    #[inline(always)]
    fn stride(self, i: usize) -> Z {
        self.v.table4(self.tables.power(4 * (GROUP - i)))
    }

    /// The start states of one or two groups' counter blocks; `slot` is a multiple of 16.
    #[inline(always)]
    fn counters<const N: usize>(self, slot: u32) -> [Z; N] {
        let v = self.v;
        let mut states = [self.seed; N];
        for i in 0..N {
            let group = slot.wrapping_add((i - i % GROUP) as u32 * 4);
            let seed = v.xor4(self.seed, v.last_word4(group.swap_bytes() as i32));
            states[i] = v.xor4(seed, v.constant4(&COUNTERS[i % GROUP]));
        }
        states
    }

    /// The tail of a long message, which begins at `slot`, a multiple of 16. `hashed` are the `G`
    /// registers in front of it, which are hashed meanwhile.
    #[inline(always)]
    fn any_tail<'a, O: GcmPacket<'a>, const G: usize>(
        self,
        data: &mut [u8],
        hashed: &[Z; G],
        slot: usize,
        last: usize,
    ) -> B {
        match last.div_ceil(4) {
            1 => self.long_tail::<O, 1, G>(data, hashed, slot, last),
            2 => self.long_tail::<O, 2, G>(data, hashed, slot, last),
            3 => self.long_tail::<O, 3, G>(data, hashed, slot, last),
            4 => self.long_tail::<O, 4, G>(data, hashed, slot, last),
            _ => self.long_tail::<O, TAIL, G>(data, hashed, slot, last),
        }
    }

    #[inline(always)]
    fn long_tail<'a, O: GcmPacket<'a>, const N: usize, const G: usize>(
        self,
        data: &mut [u8],
        hashed: &[Z; G],
        slot: usize,
        last: usize,
    ) -> B {
        let v = self.v;
        let mut states = [self.seed; N];
        for i in 0..N {
            // Slots fit 32 bits: a legal payload has fewer blocks.
            let slot = (slot + 4 * i) as u32;
            let counters =
                v.xor4(v.last_word4(slot.swap_bytes() as i32), v.constant4(&COUNTERS[0]));
            states[i] = v.xor4(self.seed, counters);
        }
        let mut beside = Beside::new(v);
        for round in 1..10 {
            self.round(&mut states, &self.tables.round_keys[round]);
            beside.step(self, hashed, round);
        }
        self.late_rounds(&mut states);
        self.tail::<O, N>(data, &states, beside.hash, last).sum(v, self.tables)
    }

    /// Transforms a payload of `T` blocks in `N` registers and returns what is to be hashed. `ends`
    /// is hashed in the first register, in front of the payload.
    #[inline(always)]
    fn crypt_short<'a, O: GcmPacket<'a>, const N: usize, const T: usize>(
        self,
        data: &mut [u8],
        states: &[Z; N],
        ends: Z,
    ) -> [Z; N] {
        let v = self.v;
        let mut hashed = [ends; N];
        let Some((head, mut rest)) = data.split_first_chunk_mut() else { return hashed };
        hashed[0] = v.xor4(self.crypt_head::<O>(head, states[0]), ends);
        for i in 1..N - 1 {
            let Some((bytes, tail)) = rest.split_first_chunk_mut() else { return hashed };
            rest = tail;
            hashed[i] = self.crypt::<O>(bytes, states[i]);
        }
        let input = v.load_blocks4(T + 2 - 4 * (N - 1), rest);
        let output = v.xor4(input, states[N - 1]);
        v.store_blocks4(T + 2 - 4 * (N - 1), rest, output);
        let output = if O::SEAL { v.keep4(v.front_mask(rest.len()), output) } else { input };
        hashed[N - 1] = v.reverse4(output);
        hashed
    }

    /// Transforms the end of a long message in `N` registers of slots and returns what is to be
    /// hashed. `before`, the hash so far, is added to the first register. `last` is the slot of the
    /// lengths, from the start of the tail.
    #[inline(always)]
    fn tail<'a, O: GcmPacket<'a>, const N: usize>(
        self,
        data: &mut [u8],
        states: &[Z; N],
        before: Z,
        last: usize,
    ) -> Hashed<N> {
        let v = self.v;
        let mut blocks = [v.zero4(); N];
        let mut rest = data;
        for i in 0..N {
            blocks[i] = if i + 1 < N {
                let Some((bytes, tail)) = rest.split_first_chunk_mut::<64>() else { break };
                rest = tail;
                self.crypt::<O>(bytes, states[i])
            } else {
                self.crypt_some::<O>(rest, states[i])
            };
        }
        blocks[0] = v.xor4(blocks[0], before);
        // The lengths go into the last register unless their lane would begin another.
        let lane = last % 4;
        let lengths = v.place4(if lane == 0 { 0 } else { 0xf << (4 * lane) }, self.lengths);
        blocks[N - 1] = v.xor4(blocks[N - 1], lengths);
        Hashed { blocks, lengths: self.lengths, last }
    }

    /// Transforms a full register of payload and returns its ciphertext, as it is hashed.
    #[inline(always)]
    fn crypt<'a, O: GcmPacket<'a>>(self, bytes: &mut [u8; 64], keystream: Z) -> Z {
        let v = self.v;
        let input = v.load4(bytes);
        let output = v.xor4(input, keystream);
        v.store4(bytes, output);
        v.reverse4(if O::SEAL { output } else { input })
    }

    /// The same for the upper half of a message's first register.
    #[inline(always)]
    fn crypt_head<'a, O: GcmPacket<'a>>(self, bytes: &mut [u8; HEAD], keystream: Z) -> Z {
        let v = self.v;
        let input = v.load_upper4(bytes);
        let output = v.xor4(input, keystream);
        v.store_upper4(bytes, output);
        v.reverse4(if O::SEAL { v.only_upper4(output) } else { input })
    }

    /// The same for up to 64 bytes.
    #[inline(always)]
    fn crypt_some<'a, O: GcmPacket<'a>>(self, bytes: &mut [u8], keystream: Z) -> Z {
        let v = self.v;
        let input = v.load_some4(bytes);
        let output = v.xor4(input, keystream);
        v.store_some4(bytes, output);
        v.reverse4(if O::SEAL { v.keep4(v.front_mask(bytes.len()), output) } else { input })
    }

    /// All rounds of AES but the first key addition.
    #[inline(always)]
    fn encrypt<const N: usize>(self, states: &mut [Z; N]) {
        for round in 1..10 {
            self.round(states, &self.tables.round_keys[round]);
        }
        self.late_rounds(states);
    }

    /// All rounds from the tenth on.
    #[inline(always)]
    fn late_rounds<const N: usize>(self, states: &mut [Z; N]) {
        let tables = self.tables;
        late_round_keys!(tables, key => self.round(states, key));
        self.last_round(states);
    }

    #[inline(always)]
    fn last_round<const N: usize>(self, states: &mut [Z; N]) {
        let key = self.v.table4(&self.tables.last);
        for state in states {
            *state = self.v.aes_last4(*state, key);
        }
    }

    #[inline(always)]
    fn round<const N: usize>(self, states: &mut [Z; N], key: &Block) {
        let key = self.v.table4(key);
        for state in states {
            *state = self.v.aes_round4(*state, key);
        }
    }
}
