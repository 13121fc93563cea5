//! AES-GCM of one packet after the other, a row of four blocks per register.
//!
//! Rows go in steps of four, and the last two to five of them in a step of their own, which is compiled once
//! for each number of rows. A step's rows are hashed beside the AES of the next one, if sealed, and beside
//! their own, if opened. Each lane has a hash of its own, which is multiplied by H^16 from step to step; the
//! rows of the last step have a power of H for each lane, so that lanes need no other weight when they are
//! summed.
//!
//! Behind the text the last row has at least one free lane: the block of the lengths is hashed in the first of
//! them, and the block that masks the tag is encrypted in the fourth.

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use super::{
    aad,
    gcm_fours::{COUNTERS, ROW},
    lanes::{B, Lanes},
    lanes512::Z,
    sum192::{Factor, Sum192},
    tables::{Sum, Tables},
    tag,
    token::{Door, Task, Vaes512},
};
use crate::isa::packet::{GcmPacket, Parts, Slot};

/// Rows of a step.
const STEP: usize = 4;

/// Rows of the longest last step.
const LAST: usize = 5;

/// Bytes of the longest text: its counters, from 2 on, are below 256.
pub(super) const MOST: usize = 16 * 254;

/// Runs those of one class's operations that have at most [`MOST`] bytes.
pub(super) fn run<'a, O: GcmPacket<'a>>(v: Vaes512, slots: &mut [Slot<'_, O>]) {
    let Some(Some(first)) = slots.first() else { return };
    match first.tables().map_or(0, |tables| tables.rounds) {
        10 => v.enter(Rows::<O, 10>(slots)),
        12 => v.enter(Rows::<O, 12>(slots)),
        _ => v.enter(Rows::<O, 14>(slots)),
    }
}

/// Runs packets of keys of `R` rounds.
struct Rows<'s, 'o, O, const R: usize>(&'s mut [Slot<'o, O>]);

impl<'a, O: GcmPacket<'a>, const R: usize> Task<Vaes512> for Rows<'_, '_, O, R> {
    type Output = ();

    #[inline(always)]
    fn run(self, v: Vaes512) {
        let mut pending: Option<Pending<'_, '_, O>> = None;
        for op in self.0.iter_mut().flatten() {
            if op.data_len() > MOST {
                continue;
            }
            let Some(tables) = op.tables() else { continue };
            let op = &mut **op;
            let packet = Packet::<R>::new(v, tables, &op.parts());
            if let Some(before) = pending.take() {
                before.finish(v);
            }
            let end = packet.run::<O>(op.parts().data);
            let pended = Pending { tables, end, op };
            if O::SEAL {
                pending = Some(pended);
            } else {
                pended.finish(v);
            }
        }
        if let Some(last) = pending {
            last.finish(v);
        }
    }
}

/// Remaining work on a packet whose text is transformed.
#[derive(Clone, Copy)]
struct End {
    /// The rows that are still to be hashed.
    rows: [Z; LAST],
    /// Number of these rows, counted from the last one; and number of blocks of the last one.
    count: usize,
    blocks: usize,
    /// Sum of the products so far.
    sum: Sum192,
    /// The block that masks the tag.
    mask: B,
}

/// A packet that is yet to be ended.
struct Pending<'t, 'o, O> {
    tables: &'t Tables,
    end: End,
    op: &'o mut O,
}

impl<'a, O: GcmPacket<'a>> Pending<'_, '_, O> {
    /// Hashes the last rows, and writes the tag or compares it.
    ///
    /// It stands in front of the next packet's AES, which waits for nothing of it: so both fill the processor.
    #[inline(always)]
    fn finish(self, v: Vaes512) {
        let Self { tables, end, op } = self;
        let mut sum = end.sum;
        match end.count {
            0 => {}
            1 => add_rows::<1>(v, tables, &mut sum, &end),
            2 => add_rows::<2>(v, tables, &mut sum, &end),
            3 => add_rows::<3>(v, tables, &mut sum, &end),
            4 => add_rows::<4>(v, tables, &mut sum, &end),
            _ => add_rows::<LAST>(v, tables, &mut sum, &end),
        }
        let tag = v.xor(v.reverse(sum.fold(v)), end.mask);
        tag::finish(v, op, tag);
    }
}

#[inline(always)]
fn add_rows<const N: usize>(v: Vaes512, tables: &Tables, sum: &mut Sum192, end: &End) {
    let Some((whole, divided)) = tables.registers::<4, N>(first_power::<N>(end.blocks)) else {
        return;
    };
    for i in 0..N {
        sum.add(v, end.rows[i], Factor::lanes(v, &whole[i], &divided[i]));
    }
}

/// The power of H for the first block of `N` rows, the last of which has so many blocks, and the lengths behind them.
#[inline(always)]
fn first_power<const N: usize>(blocks: usize) -> usize {
    4 * (N - 1) + blocks + 1
}

/// Constants of a packet.
#[derive(Clone, Copy)]
struct Packet<'t, const R: usize> {
    v: Vaes512,
    tables: &'t Tables,
    /// The nonce with a counter of zero, and round key 0 already added, in every lane.
    seed: Z,
    /// The hash of the additional data times H: it is added to the first row.
    aad: B,
    /// The block of the lengths.
    lengths: B,
}

/// Counters and hash on the way through a packet.
#[derive(Clone, Copy)]
struct State {
    /// Counters of the next row.
    counters: Z,
    /// The rows to be hashed, the hash so far being part of the first.
    rows: [Z; STEP],
    /// Addend of the first row to come: the hash so far of what is opened, of additional data alone where
    /// nothing is.
    hash: Z,
}

impl<'t, const R: usize> Packet<'t, R> {
    #[inline(always)]
    fn new(v: Vaes512, tables: &'t Tables, parts: &Parts<'_>) -> Self {
        let seed = v.xor4(v.repeat4(v.load(parts.counter)), v.table4(&tables.round_keys[0]));
        let aad = aad::first_block(v, tables, parts.aad);
        let aad = Sum::of(v, aad, tables.weight(1)).reduce(v);
        Self {
            v,
            tables,
            seed,
            aad,
            lengths: aad::length_block(v, parts.aad_len, parts.data.len()),
        }
    }

    /// Transforms the text.
    #[inline(always)]
    fn run<'a, O: GcmPacket<'a>>(self, data: &mut [u8]) -> End {
        let v = self.v;
        // One lane more than blocks.
        let rows = data.len().div_ceil(16) / 4 + 1;
        let last = if rows < 2 { rows } else { (rows - 2) % STEP + 2 };
        let (front, rest) = data.split_at_mut((rows - last) * ROW);
        let zero = v.zero4();
        let hash = v.to_first4(self.aad);
        let mut state = State { counters: v.constant4(&COUNTERS), rows: [zero; STEP], hash };
        let mut steps = front.as_chunks_mut::<ROW>().0.as_chunks_mut::<STEP>().0.iter_mut();
        if O::SEAL
            && let Some(step) = steps.next()
        {
            self.seal_step::<false>(step, &mut state);
            state.rows[0] = v.xor4(state.rows[0], hash);
            for step in steps {
                self.seal_step::<true>(step, &mut state);
            }
            return self.any_last_step::<O, true>(last, rest, &mut state);
        }
        for step in steps {
            self.open_step(step, &mut state);
        }
        self.any_last_step::<O, false>(last, rest, &mut state)
    }

    /// The last step, of `rows` rows.
    #[inline(always)]
    fn any_last_step<'a, O: GcmPacket<'a>, const HASH: bool>(
        self,
        rows: usize,
        rest: &mut [u8],
        state: &mut State,
    ) -> End {
        match rows {
            1 => self.last_step::<O, 1, HASH>(rest, state),
            2 => self.last_step::<O, 2, HASH>(rest, state),
            3 => self.last_step::<O, 3, HASH>(rest, state),
            4 => self.last_step::<O, 4, HASH>(rest, state),
            _ => self.last_step::<O, LAST, HASH>(rest, state),
        }
    }

    /// The states of the next rows.
    #[inline(always)]
    fn states<const N: usize>(self, counters: &mut Z) -> [Z; N] {
        let v = self.v;
        let four = v.last_word4(4 << 24);
        let mut states = [self.seed; N];
        for i in 0..N {
            states[i] = v.xor4(self.seed, *counters);
            // No carry out of the byte.
            *counters = v.add_words4(*counters, four);
        }
        states
    }

    /// All rounds but the last, and beside them, if `HASH`, four rows that are hashed, the first one last, as
    /// it waits for the hash of those before. Returns their hash.
    #[inline(always)]
    fn rounds<const N: usize, const HASH: bool>(self, states: &mut [Z; N], rows: &[Z; STEP]) -> Z {
        let v = self.v;
        let mut sum = Sum192::zero(v);
        for round in 1..10 {
            let key = v.table4(&self.tables.round_keys[round]);
            for i in 0..N {
                states[i] = v.aes_round4(states[i], key);
            }
            if HASH && round.is_multiple_of(2) {
                let i = STEP - round / 2;
                sum.add(v, rows[i], self.power(4 * (STEP - i)));
            }
        }
        for round in 10..R {
            let key = v.table4(&self.tables.round_keys[round]);
            for i in 0..N {
                states[i] = v.aes_round4(states[i], key);
            }
        }
        sum.reduce(v)
    }

    /// H to the power of `n`, alike in all lanes.
    #[inline(always)]
    fn power(self, n: usize) -> Factor {
        Factor::alike(self.v, self.tables.window(n))
    }

    #[inline(always)]
    fn seal_step<const HASH: bool>(self, step: &mut [[u8; ROW]; STEP], state: &mut State) {
        let v = self.v;
        let mut states = self.states::<STEP>(&mut state.counters);
        let hash = self.rounds::<STEP, HASH>(&mut states, &state.rows);
        let key = v.table4(&self.tables.last);
        for i in 0..STEP {
            states[i] = v.aes_last4(states[i], v.xor4(key, v.load4(&step[i])));
        }
        for i in 0..STEP {
            v.store4(&mut step[i], states[i]);
            state.rows[i] = v.reverse4(states[i]);
        }
        if HASH {
            state.rows[0] = v.xor4(state.rows[0], hash);
        }
    }

    #[inline(always)]
    fn open_step(self, step: &mut [[u8; ROW]; STEP], state: &mut State) {
        let v = self.v;
        let mut input = [v.zero4(); STEP];
        let mut rows = input;
        for i in 0..STEP {
            input[i] = v.load4(&step[i]);
            rows[i] = v.reverse4(input[i]);
        }
        rows[0] = v.xor4(rows[0], state.hash);
        let mut states = self.states::<STEP>(&mut state.counters);
        state.hash = self.rounds::<STEP, true>(&mut states, &rows);
        let key = v.table4(&self.tables.last);
        for i in 0..STEP {
            states[i] = v.aes_last4(states[i], v.xor4(key, input[i]));
        }
        for i in 0..STEP {
            v.store4(&mut step[i], states[i]);
        }
    }

    /// The last `N` rows, of which the last one is not full. If `HASH`, those in front of them are to be hashed.
    #[inline(always)]
    fn last_step<'a, O: GcmPacket<'a>, const N: usize, const HASH: bool>(
        self,
        rest: &mut [u8],
        state: &mut State,
    ) -> End {
        let v = self.v;
        // The last row but one may lack some of its last bytes; the last one is empty then.
        let (full, rest) = rest.split_at_mut((N.max(2) - 2) * ROW);
        let at = if N == 1 { 0 } else { rest.len().min(ROW) };
        let (near, end) = rest.split_at_mut(at);
        let Some(full) = full.as_chunks_mut::<ROW>().0.get_mut(..N.max(2) - 2) else {
            return End {
                rows: [v.zero4(); LAST],
                count: 0,
                blocks: 0,
                sum: Sum192::zero(v),
                mask: v.zero(),
            };
        };
        let mut input = [v.zero4(); N];
        for i in 0..full.len() {
            input[i] = v.load4(&full[i]);
        }
        if N > 1 {
            input[N - 2] = v.load_some4(near);
        }
        input[N - 1] = v.load_some4(end);
        let mut states = self.states::<N>(&mut state.counters);
        states[N - 1] = v.xor4(v.keep4(0x0000_ffff_ffff_ffff, states[N - 1]), self.mask_state());
        let mut sum = Sum192::zero(v);
        let blocks = end.len().min(48).div_ceil(16);
        let lengths = v.place4(0xf << (4 * blocks), self.lengths);
        if !O::SEAL
            && let Some((whole, divided)) = self.tables.registers::<4, N>(first_power::<N>(blocks))
        {
            for i in (0..N).rev() {
                let mut row = v.reverse4(input[i]);
                if i == N - 1 {
                    row = v.xor4(row, lengths);
                }
                if i == 0 {
                    row = v.xor4(row, state.hash);
                }
                sum.add(v, row, Factor::lanes(v, &whole[i], &divided[i]));
            }
        }
        let before = self.rounds::<N, HASH>(&mut states, &state.rows);
        let key = v.table4(&self.tables.last);
        let mut output = states;
        // The fourth lane of the last row has no text.
        for i in 0..N {
            output[i] = v.aes_last4(states[i], v.xor4(key, input[i]));
        }
        for i in 0..full.len() {
            v.store4(&mut full[i], output[i]);
        }
        if N > 1 {
            v.store_some4(near, output[N - 2]);
            output[N - 2] = v.keep4(v.front_mask(near.len()), output[N - 2]);
        }
        v.store_some4(end, output[N - 1]);
        let mask = v.fourth(output[N - 1]);
        let mut rows = [v.zero4(); LAST];
        if !O::SEAL {
            return End { rows, count: 0, blocks, sum, mask };
        }
        for i in 0..N {
            let mut row = output[i];
            if i == N - 1 {
                row = v.keep4(v.front_mask(end.len()), row);
            }
            row = v.reverse4(row);
            if i == N - 1 {
                row = v.xor4(row, lengths);
            }
            if i == 0 {
                row = v.xor4(row, if HASH { before } else { state.hash });
            }
            rows[i] = row;
        }
        End { rows, count: N, blocks, sum, mask }
    }

    /// The state of the block that masks the tag, in the fourth lane.
    #[inline(always)]
    fn mask_state(self) -> Z {
        let v = self.v;
        v.keep4(0xffff << 48, v.xor4(self.seed, v.last_word4(1 << 24)))
    }
}
