//! AES-GCM with four packets per register, each in a lane of its own.
//!
//! A register holds the same block of four short packets of one class. Unlike with four blocks of one
//! packet, no lane is empty, GHASH has no lanes to sum up, and four packets share one reduction. Rows
//! of a packet's blocks become such columns of blocks, and back, by transposition.

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use std::marker::PhantomData;

use super::{
    aad,
    lanes::Lanes,
    lanes512::{Quad, Z},
    sum4::Sum4,
    tables::Tables,
    tag,
    token::{Door, Task, Vaes512},
};
use crate::{
    block::Block,
    isa::{
        made_public,
        packet::{GcmPacket, Parts, Slot},
    },
    pairs::PairedWith,
};

/// Packets that go together.
const LANES: usize = 4;

/// Operations that go together.
type Four<'o, O> = [Slot<'o, O>; LANES];

/// Blocks of the longest payload, so that registers hold all columns of two times four packets.
pub(super) const MOST: usize = 8;

// Beside each of the first nine rounds one block is hashed, and at most one behind them.
const _: () = assert!(MOST + 2 == 10);

/// Blocks of a payload in a register, before they are transposed.
const ROW: usize = 4;

/// The blocks that mask the tags, and the keystream.
type States = [Z; MOST + 1];

/// Payload blocks, and room for as many as rows have.
type Columns = [Z; MOST.next_multiple_of(ROW)];

/// Counters from 1 on in the last word of each block.
static COUNTERS: [Quad; MOST + 1] = {
    let mut counters = [const { Quad([[0; 16]; LANES]) }; MOST + 1];
    let mut i = 0;
    while i < LANES * (MOST + 1) {
        counters[i / LANES].0[i % LANES][15] = (i / LANES) as u8 + 1;
        i += 1;
    }
    counters
};

/// Runs as many of the operations as make fours, all of one class and of `blocks` blocks, at most
/// [`MOST`]; returns the others.
pub(super) fn run<'s, 'o, 'a, O: GcmPacket<'a>>(
    v: Vaes512,
    blocks: usize,
    slots: &'s mut [Slot<'o, O>],
) -> &'s mut [Slot<'o, O>] {
    let (fours, rest) = slots.as_chunks_mut();
    let mut keys = fours.as_flattened().iter().flatten().map(|op| op.key_address());
    let first = keys.next();
    if keys.all(|key| first == Some(key)) {
        run_all::<O, Shared<'a>>(v, blocks, fours);
    } else {
        run_all::<O, Each<'a>>(v, blocks, fours);
    }
    rest
}

fn run_all<'a, O: GcmPacket<'a>, K: Keys<'a>>(
    v: Vaes512,
    blocks: usize,
    fours: &mut [Four<'_, O>],
) {
    match blocks {
        0 => v.enter(Fours::<O, K, 0>(fours, PhantomData)),
        1 => v.enter(Fours::<O, K, 1>(fours, PhantomData)),
        2 => v.enter(Fours::<O, K, 2>(fours, PhantomData)),
        3 => v.enter(Fours::<O, K, 3>(fours, PhantomData)),
        4 => v.enter(Fours::<O, K, 4>(fours, PhantomData)),
        5 => v.enter(Fours::<O, K, 5>(fours, PhantomData)),
        6 => v.enter(Fours::<O, K, 6>(fours, PhantomData)),
        7 => v.enter(Fours::<O, K, 7>(fours, PhantomData)),
        _ => v.enter(Fours::<O, K, MOST>(fours, PhantomData)),
    }
}

/// Runs packets of `T` blocks.
struct Fours<'s, 'o, O, K, const T: usize>(&'s mut [Four<'o, O>], PhantomData<K>);

impl<'a, O: GcmPacket<'a>, K: Keys<'a>, const T: usize> Task<Vaes512> for Fours<'_, '_, O, K, T> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: Vaes512) {
        run_fours::<O, K, T>(token, self.0);
    }
}

/// The keys of four packets.
trait Keys<'t>: Copy {
    /// Takes the keys of these operations.
    fn new<O: GcmPacket<'t>>(ops: &Four<'_, O>) -> Option<Self>;

    /// Something of each key, in its lane.
    fn block(self, v: Vaes512, of: impl Fn(&Tables) -> &Block) -> Z;

    /// The key in a lane.
    fn of(&self, lane: usize) -> &Tables;
}

/// One key for all.
#[derive(Clone, Copy)]
struct Shared<'t>(&'t Tables);

impl<'t> Keys<'t> for Shared<'t> {
    #[inline(always)]
    fn new<O: GcmPacket<'t>>([first, ..]: &Four<'_, O>) -> Option<Self> {
        first.as_ref().and_then(|op| op.tables()).map(Self)
    }

    #[inline(always)]
    fn block(self, v: Vaes512, of: impl Fn(&Tables) -> &Block) -> Z {
        v.table4(of(self.0))
    }

    #[inline(always)]
    fn of(&self, _: usize) -> &Tables {
        self.0
    }
}

/// A key for each packet.
#[derive(Clone, Copy)]
struct Each<'t>([&'t Tables; LANES]);

impl<'t> Keys<'t> for Each<'t> {
    #[inline(always)]
    fn new<O: GcmPacket<'t>>(ops: &Four<'_, O>) -> Option<Self> {
        let [Some(a), Some(b), Some(c), Some(d)] = ops else { return None };
        let (a, b) = (a.tables()?, b.tables()?);
        Some(Self([a, b, c.tables()?, d.tables()?]))
    }

    #[inline(always)]
    fn block(self, v: Vaes512, of: impl Fn(&Tables) -> &Block) -> Z {
        let [a, b, c, d] = self.0;
        v.tables4([of(a), of(b), of(c), of(d)])
    }

    #[inline(always)]
    fn of(&self, lane: usize) -> &Tables {
        self.0[lane]
    }
}

/// Four packets whose payloads are done and that are yet to be hashed.
struct Pending<'q, 'o, O, K> {
    hashed: Hashed<K>,
    /// The blocks that mask the tags.
    masks: Z,
    ops: &'q mut Four<'o, O>,
}

/// Input to the hash of four packets: additional data, payload, lengths.
#[derive(Clone, Copy)]
struct Hashed<K> {
    keys: K,
    aad: Z,
    payload: Columns,
    lengths: Z,
}

/// Runs packets of `T` blocks.
///
/// Four are hashed while the counter blocks of the next four are encrypted.
#[inline(always)]
fn run_fours<'a, O: GcmPacket<'a>, K: Keys<'a>, const T: usize>(
    v: Vaes512,
    fours: &mut [Four<'_, O>],
) {
    let mut pending: Option<Pending<'_, '_, O, K>> = None;
    for ops in fours {
        let Some(keys) = K::new(ops) else { continue };
        let mut hashed = Hashed::new(v, keys, ops);
        let mut states = start::<O, K, T>(v, keys, ops);
        if let Some(before) = pending.take() {
            let hash = encrypt::<K, T>(v, keys, &mut states, Some(&before.hashed));
            finish(v, hash, before.masks, before.ops);
        } else {
            encrypt::<K, T>(v, keys, &mut states, None);
        }
        hashed.payload = apply::<O, T>(v, &states, ops);
        pending = Some(Pending { hashed, masks: states[0], ops });
    }
    if let Some(last) = pending {
        finish(v, last.hashed.all::<T>(v), last.masks, last.ops);
    }
}

/// Ends four operations, each with the tag in its lane.
#[inline(always)]
pub(super) fn finish<'a, O: GcmPacket<'a>>(v: Vaes512, hash: Z, masks: Z, ops: &mut Four<'_, O>) {
    let tags = v.xor4(v.reverse4(hash), masks);
    if let [Some(a), Some(b), Some(c), Some(d)] = ops
        && let [Some(w), Some(x), Some(y), Some(z)] =
            [a.expected(), b.expected(), c.expected(), d.expected()]
    {
        let expected = v.unite4([v.load(w), v.load(x), v.load(y), v.load(z)]);
        // Two bits to a lane: all that is known of the tags hereafter is which are right.
        let differs = v.differs4(tags, expected);
        for (lane, op) in [a, b, c, d].into_iter().enumerate() {
            op.settle(made_public(differs >> (2 * lane) & 3 == 0));
        }
        return;
    }
    let [w, x, y, z] = v.blocks_of4(tags);
    if let [Some(a), Some(b), Some(c), Some(d)] = ops
        && let [Some(to_a), Some(to_b), Some(to_c), Some(to_d)] =
            [a.place(), b.place(), c.place(), d.place()]
    {
        v.store(to_a, w);
        v.store(to_b, x);
        v.store(to_c, y);
        v.store(to_d, z);
        for op in [a, b, c, d] {
            op.settle(true);
        }
        return;
    }
    for (op, tag) in ops.iter_mut().paired_with([w, x, y, z]) {
        if let Some(op) = op {
            tag::finish(v, &mut **op, tag);
        }
    }
}

impl<'t, K: Keys<'t>> Hashed<K> {
    /// Without the payload.
    #[inline(always)]
    fn new<'a, O: GcmPacket<'a>>(v: Vaes512, keys: K, ops: &mut Four<'_, O>) -> Self {
        let mut aads = [v.zero(); LANES];
        let mut lengths = [v.zero(); LANES];
        for lane in 0..LANES {
            let Some(op) = &mut ops[lane] else { continue };
            let Parts { aad, aad_len, data, .. } = op.parts();
            aads[lane] = aad::last_block(v, keys.of(lane), aad);
            lengths[lane] = v.pair(aad_len as i64, data.len() as i64);
        }
        let lengths = v.bits4(v.unite4(lengths));
        Self {
            keys,
            aad: v.reverse4(v.unite4(aads)),
            payload: [v.zero4(); MOST.next_multiple_of(ROW)],
            lengths,
        }
    }

    /// Adds block `i` of `T + 2`.
    #[inline(always)]
    fn step<const T: usize>(&self, v: Vaes512, sum: &mut Sum4, i: usize) {
        let block = match i {
            0 => self.aad,
            _ if i <= T => self.payload[i - 1],
            _ => self.lengths,
        };
        sum.add(v, block, self.keys.block(v, |tables| tables.power(T + 2 - i)));
    }

    /// The hash.
    #[inline(always)]
    fn all<const T: usize>(&self, v: Vaes512) -> Z {
        let mut sum = Sum4::zero(v);
        for i in 0..T + 2 {
            self.step::<T>(v, &mut sum, i);
        }
        sum.reduce(v)
    }
}

/// The start states of the blocks that mask the tags, and of the payload's counter blocks.
#[inline(always)]
fn start<'a, O: GcmPacket<'a>, K: Keys<'a>, const T: usize>(
    v: Vaes512,
    keys: K,
    ops: &mut Four<'_, O>,
) -> States {
    let mut counters = [v.zero(); LANES];
    for lane in 0..LANES {
        let Some(op) = &mut ops[lane] else { continue };
        counters[lane] = v.load(op.parts().counter);
    }
    let seed = v.xor4(v.unite4(counters), keys.block(v, |tables| &tables.round_keys[0]));
    let mut states = [seed; MOST + 1];
    for i in 0..T + 1 {
        states[i] = v.xor4(seed, v.constant4(&COUNTERS[i]));
    }
    states
}

/// Encrypts the states, and hashes something between the rounds.
#[inline(always)]
fn encrypt<'t, K: Keys<'t>, const T: usize>(
    v: Vaes512,
    keys: K,
    states: &mut States,
    beside: Option<&Hashed<K>>,
) -> Z {
    let mut sum = Sum4::zero(v);
    let states = &mut states[..=T];
    for round in 1..10 {
        encrypt_round(v, keys, states, round);
        if let Some(hashed) = beside
            && round <= T + 2
        {
            hashed.step::<T>(v, &mut sum, round - 1);
        }
    }
    if let Some(hashed) = beside
        && T == MOST
    {
        hashed.step::<T>(v, &mut sum, MOST + 1);
    }
    // All keys of a class have as many rounds.
    if keys.of(0).rounds > 10 {
        encrypt_round(v, keys, states, 10);
        encrypt_round(v, keys, states, 11);
        if keys.of(0).rounds > 12 {
            encrypt_round(v, keys, states, 12);
            encrypt_round(v, keys, states, 13);
        }
    }
    let key = keys.block(v, |tables| &tables.last);
    for state in states {
        *state = v.aes_last4(*state, key);
    }
    sum.reduce(v)
}

#[inline(always)]
fn encrypt_round<'t, K: Keys<'t>>(v: Vaes512, keys: K, states: &mut [Z], round: usize) {
    let key = keys.block(v, |tables| &tables.round_keys[round]);
    for state in states {
        *state = v.aes_round4(*state, key);
    }
}

#[inline(always)]
fn load_row<const T: usize>(v: Vaes512, row: usize, bytes: &[u8]) -> Z {
    match bytes.first_chunk() {
        Some(full) if ROW * (row + 1) < T => v.load4(full),
        _ => v.load_blocks4(T - ROW * row, bytes),
    }
}

/// Adds the keystream to the payloads; returns columns of ciphertext to be hashed.
#[inline(always)]
fn apply<'a, O: GcmPacket<'a>, const T: usize>(
    v: Vaes512,
    states: &States,
    ops: &mut Four<'_, O>,
) -> Columns {
    let mut columns = [v.zero4(); MOST.next_multiple_of(ROW)];
    for row in 0..T.div_ceil(ROW) {
        let mut keystream = [v.zero4(); ROW];
        for i in 0..ROW {
            if ROW * row + i < T {
                keystream[i] = states[ROW * row + i + 1];
            }
        }
        let mut rows = v.transpose4(keystream);
        for lane in 0..LANES {
            let Some(op) = &mut ops[lane] else { continue };
            let Some(bytes) = op.parts().data.get_mut(64 * row..) else { continue };
            let input = load_row::<T>(v, row, bytes);
            let output = v.xor4(input, rows[lane]);
            rows[lane] = if O::SEAL { output } else { input };
            match bytes.first_chunk_mut() {
                Some(full) if ROW * (row + 1) < T => v.store4(full, output),
                _ => {
                    v.store_blocks4(T - ROW * row, bytes, output);
                    if O::SEAL {
                        rows[lane] = v.keep4(v.front_mask(bytes.len()), output);
                    }
                }
            }
        }
        let rows = v.transpose4(rows);
        for i in 0..ROW {
            columns[ROW * row + i] = v.reverse4(rows[i]);
        }
    }
    columns
}
