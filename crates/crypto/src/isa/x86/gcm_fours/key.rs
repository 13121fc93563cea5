//! The rounds and the hashes of four packets of one key.

use super::{
    super::{
        aad, gcm_lanes,
        lanes::{B, Lanes},
        lanes512::Z,
        sum192::{Factor, Sum192},
        tables::{POWERS, Tables, Window},
        token::Vaes512,
    },
    state::{
        BLOCK, Beside, By, EXACT, Each, Four, LANES, Last, PARTIAL, ROW, Start, Texts,
        rows_in_front,
    },
};
use crate::isa::packet::{GcmPacket, Parts};

/// Rows from one reduction of a hash to the next.
const STRETCH: usize = POWERS / 4;

/// A key that four packets share.
#[derive(Clone, Copy)]
pub(super) struct Key<'t, const R: usize, const END: u8, const SHORT: bool> {
    pub(super) v: Vaes512,
    pub(super) tables: &'t Tables,
    /// Change that the counters of each row make to the state behind round 1.
    pub(super) changes: &'t [Z],
    /// The same of counter 1, in all lanes.
    pub(super) tag: Z,
}

/// Four packets whose last rows are to be hashed.
struct Pending<'q, 'o, 't, O> {
    last: Last<'t>,
    /// The hashes of what is in front.
    sums: [Sum192; LANES],
    lengths: Z,
    /// None in front of the first four.
    ops: Option<&'q mut Four<'o, O>>,
}

/// The block of the lengths.
#[inline(always)]
fn length(v: Vaes512, parts: &Parts<'_>) -> B {
    v.pair(parts.aad_len as i64, parts.data.len() as i64)
}

#[inline(always)]
fn split(data: &mut [u8], front: usize) -> (&mut [[u8; ROW]], &mut [u8]) {
    let (front, last) = data.split_at_mut(front * ROW);
    (front.as_chunks_mut().0, last)
}

/// Computes something for each of four packets without a loop or a closure.
macro_rules! each {
    ($p:ident => $value:expr) => {
        [
            {
                const $p: usize = 0;
                $value
            },
            {
                const $p: usize = 1;
                $value
            },
            {
                const $p: usize = 2;
                $value
            },
            {
                const $p: usize = 3;
                $value
            },
        ]
    };
}

impl<'t, const R: usize, const END: u8, const SHORT: bool> Key<'t, R, END, SHORT> {
    /// H to the power of `n`, alike in all lanes.
    #[inline(always)]
    fn power(&self, n: usize) -> Factor {
        Factor::alike(self.v, self.tables.window(n))
    }

    #[inline(always)]
    fn start<'a, O: GcmPacket<'a>>(&self, ops: &mut Four<'_, O>) -> Option<Start> {
        let (v, tables) = (self.v, self.tables);
        let [Some(a), Some(b), Some(c), Some(d)] = ops else { return None };
        let (a, b, c, d) = (a.parts(), b.parts(), c.parts(), d.parts());
        let counters = [v.load(a.counter), v.load(b.counter), v.load(c.counter), v.load(d.counter)];
        let (len, aad_len) = (a.data.len(), a.aad_len);
        let is_alike = |parts: &Parts<'_>| parts.data.len() == len && parts.aad_len == aad_len;
        let lengths = if is_alike(&b) && is_alike(&c) && is_alike(&d) {
            v.repeat4(length(v, &a))
        } else {
            v.unite4([length(v, &a), length(v, &b), length(v, &c), length(v, &d)])
        };
        let aads = [
            aad::last_block(v, tables, a.aad),
            aad::last_block(v, tables, b.aad),
            aad::last_block(v, tables, c.aad),
            aad::last_block(v, tables, d.aad),
        ];
        let seed = v.xor4(v.unite4(counters), v.table4(&tables.round_keys[0]));
        let lanes = v.aes_round4(seed, v.table4(&tables.round_keys[1]));
        let mut aad = Sum192::zero(v);
        aad.add(v, v.reverse4(v.unite4(aads)), self.power(1));
        Some(Start {
            states: each!(P => v.spread4::<P>(lanes)),
            lanes,
            aad: aad.reduce(v),
            lengths: v.bits4(lengths),
        })
    }

    /// The text of four packets.
    #[inline(always)]
    fn texts<'p, 'a, O: GcmPacket<'a>>(
        ops: &'p mut Four<'_, O>,
        front: usize,
    ) -> Option<Texts<'p>> {
        let [Some(a), Some(b), Some(c), Some(d)] = ops else { return None };
        let (a, last_a) = split(a.parts().data, front);
        let (b, last_b) = split(b.parts().data, front);
        let (c, last_c) = split(c.parts().data, front);
        let (d, last_d) = split(d.parts().data, front);
        Some(Texts { front: [a, b, c, d], last: [last_a, last_b, last_c, last_d] })
    }

    /// The rounds from the second to the last but one. Rows are hashed between them.
    #[inline(always)]
    fn rounds<const N: usize>(
        &self,
        states: &mut [Z; N],
        beside: Beside<'_, '_>,
        sums: &mut [Sum192; LANES],
    ) {
        let v = self.v;
        for round in 2..10 {
            let key = v.table4(&self.tables.round_keys[round]);
            for i in 0..N {
                states[i] = v.aes_round4(states[i], key);
            }
            if round % 2 == 0 {
                beside.add(v, sums, round / 2 - 1);
            }
        }
        for round in 10..R {
            let key = v.table4(&self.tables.round_keys[round]);
            for i in 0..N {
                states[i] = v.aes_round4(states[i], key);
            }
        }
    }

    /// The last round of four rows, and their texts: what becomes of them.
    #[inline(always)]
    fn last_round(&self, states: &Each, input: &Each) -> Each {
        let v = self.v;
        let key = v.table4(&self.tables.last);
        each!(P => v.aes_last4(states[P], v.xor4(key, input[P])))
    }

    /// Encrypts full rows at `row`, and hashes others beside them. Returns the ciphertext as it is hashed.
    #[inline(always)]
    fn seal_row(
        &self,
        start: &Start,
        row: usize,
        change: Z,
        texts: &mut Texts<'_>,
        beside: Beside<'_, '_>,
        sums: &mut [Sum192; LANES],
    ) -> Each {
        let v = self.v;
        let Some(bytes) = texts.row(row) else { return *beside.rows };
        let mut states = each!(P => v.xor4(start.states[P], change));
        self.rounds(&mut states, beside, sums);
        let output = self.last_round(&states, &each!(P => v.load4(bytes[P])));
        for p in 0..LANES {
            v.store4(bytes[p], output[p]);
        }
        each!(P => v.reverse4(output[P]))
    }

    /// Decrypts full rows at `row`, which are hashed meanwhile with what is `beside` them.
    #[inline(always)]
    fn open_row(
        &self,
        start: &Start,
        row: usize,
        change: Z,
        texts: &mut Texts<'_>,
        beside: Beside<'_, '_>,
        sums: &mut [Sum192; LANES],
    ) {
        let v = self.v;
        let Some(bytes) = texts.row(row) else { return };
        let input = each!(P => v.load4(bytes[P]));
        let rows = each!(P => v.xor4(v.reverse4(input[P]), beside.rows[P]));
        let mut states = each!(P => v.xor4(start.states[P], change));
        self.rounds(&mut states, Beside { rows: &rows, by: beside.by }, sums);
        let output = self.last_round(&states, &input);
        for p in 0..LANES {
            v.store4(bytes[p], output[p]);
        }
    }

    /// Runs last rows that are not full, at `row`, and the blocks that mask the tags. Rows in front of them are
    /// hashed beside them, if sealed; themselves with `beside`, if opened.
    #[inline(always)]
    fn partial_row<'a, O: GcmPacket<'a>>(
        &self,
        start: &Start,
        change: Z,
        texts: &mut Texts<'_>,
        beside: Beside<'_, '_>,
        sums: &mut [Sum192; LANES],
    ) -> Last<'t> {
        let v = self.v;
        let bytes = &mut texts.last;
        let input = each!(P => v.load_some4(bytes[P]));
        let windows = each!(P => self.tables.window(blocks_of_row(bytes[P]) + 1));
        let [a, b, c, d] = each!(P => v.xor4(start.states[P], change));
        let mut states = [a, b, c, d, v.xor4(start.lanes, self.tag)];
        self.last_rounds::<O, 5>(&mut states, &input, windows, beside, sums);
        let [a, b, c, d, tag] = states;
        let output = self.last_round(&[a, b, c, d], &input);
        let masks = v.aes_last4(tag, v.table4(&self.tables.last));
        for p in 0..LANES {
            v.store_some4(bytes[p], output[p]);
        }
        let rows = each!(P => v.reverse4(v.keep4(v.front_mask(bytes[P].len()), output[P])));
        Last { rows, masks, block: v.zero4(), windows }
    }

    /// The same with rows that are full, and a block behind them if that is their end.
    #[inline(always)]
    fn full_row<'a, O: GcmPacket<'a>>(
        &self,
        start: &Start,
        change: Z,
        next: Z,
        texts: &mut Texts<'_>,
        beside: Beside<'_, '_>,
        sums: &mut [Sum192; LANES],
    ) -> Last<'t> {
        let v = self.v;
        let Some((bytes, rest)) = texts.full() else { return self.nothing() };
        let input = each!(P => v.load4(bytes[P]));
        let windows = [self.tables.window(if END == BLOCK { 6 } else { 5 }); LANES];
        let [a, b, c, d] = each!(P => v.xor4(start.states[P], change));
        let tag = v.xor4(start.lanes, self.tag);
        let mut states = [a, b, c, d, tag, v.xor4(start.lanes, v.spread4::<0>(next))];
        let mut behind = v.zero4();
        if END == BLOCK {
            behind = v.unite4(each!(P => v.load_some(rest[P])));
            self.last_rounds::<O, 6>(&mut states, &input, windows, beside, sums);
        } else if let Some(states) = states.first_chunk_mut() {
            self.last_rounds::<O, 5>(states, &input, windows, beside, sums);
        }
        let [a, b, c, d, tag, after] = states;
        let output = self.last_round(&[a, b, c, d], &input);
        let key = v.table4(&self.tables.last);
        let masks = v.aes_last4(tag, key);
        for p in 0..LANES {
            v.store4(bytes[p], output[p]);
        }
        let mut block = v.zero4();
        if END == BLOCK {
            let output = v.aes_last4(after, v.xor4(key, behind));
            let blocks = v.blocks_of4(output);
            for p in 0..LANES {
                v.store_some(rest[p], blocks[p]);
            }
            let mask = |p: usize| v.front_mask(rest[p].len()) << (16 * p);
            let mask = mask(0) | mask(1) | mask(2) | mask(3);
            block = v.reverse4(if O::SEAL { v.keep4(mask, output) } else { behind });
        }
        Last { rows: each!(P => v.reverse4(output[P])), masks, block, windows }
    }

    /// The rounds of last rows. What is hashed beside them is what was sealed before, or what they open.
    #[inline(always)]
    fn last_rounds<'a, O: GcmPacket<'a>, const N: usize>(
        &self,
        states: &mut [Z; N],
        input: &Each,
        windows: [Window<'t>; LANES],
        beside: Beside<'_, '_>,
        sums: &mut [Sum192; LANES],
    ) {
        let v = self.v;
        if O::SEAL {
            self.rounds(states, beside, sums);
        } else {
            let rows = each!(P => v.xor4(v.reverse4(input[P]), beside.rows[P]));
            self.rounds(states, Beside { rows: &rows, by: By::Windows(windows) }, sums);
        }
    }

    #[inline(always)]
    fn last_row<'a, O: GcmPacket<'a>>(
        &self,
        start: &Start,
        row: usize,
        texts: &mut Texts<'_>,
        beside: Beside<'_, '_>,
        sums: &mut [Sum192; LANES],
    ) -> Last<'t> {
        let (Some(&change), Some(&next)) = (self.changes.get(row), self.changes.get(row + 1))
        else {
            return self.nothing();
        };
        match END {
            PARTIAL => self.partial_row::<O>(start, change, texts, beside, sums),
            _ => self.full_row::<O>(start, change, next, texts, beside, sums),
        }
    }

    /// The powers of H that belong to the lanes of the rows in front of the last ones.
    #[inline(always)]
    fn windows_before(&self, texts: &Texts<'_>) -> [Window<'t>; LANES] {
        match END {
            EXACT => [self.tables.window(9); LANES],
            BLOCK => [self.tables.window(10); LANES],
            _ => each!(P => self.tables.window(blocks_of_row(texts.last[P]) + 5)),
        }
    }

    /// Ends four packets whose sums are complete.
    #[inline(always)]
    fn finish<'a, O: GcmPacket<'a>>(
        &self,
        last: &Last<'_>,
        lengths: Z,
        sums: [Sum192; LANES],
        ops: &mut Four<'_, O>,
    ) {
        let v = self.v;
        let mut sum = Sum192::fold_each(v, sums);
        sum.add(v, lengths, self.power(1));
        if END == BLOCK {
            sum.add(v, last.block, self.power(2));
        }
        gcm_lanes::finish(v, sum.reduce(v), last.masks, ops);
    }

    #[inline(always)]
    fn nothing(&self) -> Last<'t> {
        let zero = self.v.zero4();
        let windows = [self.tables.window(1); LANES];
        Last { rows: [zero; LANES], masks: zero, block: zero, windows }
    }

    #[inline(always)]
    pub(super) fn seal<'a, O: GcmPacket<'a>>(&self, fours: &mut [Four<'_, O>]) {
        let v = self.v;
        let zero = [Sum192::zero(v); LANES];
        let mut pending =
            Pending { last: self.nothing(), sums: zero, lengths: v.zero4(), ops: None };
        for ops in fours {
            let Some(front) = Self::front(ops) else { continue };
            let Some(start) = self.start(ops) else { continue };
            let Some(mut texts) = Self::texts(ops, front) else { continue };
            let texts = &mut texts;
            let before = Beside { rows: &pending.last.rows, by: By::Windows(pending.last.windows) };
            let mut sums = zero;
            let last = if SHORT {
                let last = self.last_row::<O>(&start, 0, texts, before, &mut pending.sums);
                pending.finish(self);
                Last { rows: with_aad(v, last.rows, start.aad), ..last }
            } else {
                let Some(&first) = self.changes.first() else { continue };
                let rows = self.seal_row(&start, 0, first, texts, before, &mut pending.sums);
                pending.finish(self);
                let rows = with_aad(v, rows, start.aad);
                let rows = self.seal_front(&start, front, texts, rows, &mut sums);
                let beside = Beside { rows: &rows, by: By::Windows(self.windows_before(texts)) };
                self.last_row::<O>(&start, front, texts, beside, &mut sums)
            };
            pending = Pending { last, sums, lengths: start.lengths, ops: Some(ops) };
        }
        let beside = Beside { rows: &pending.last.rows, by: By::Windows(pending.last.windows) };
        for p in 0..LANES {
            beside.add(v, &mut pending.sums, p);
        }
        pending.finish(self);
    }

    /// Seals the rows from the second to the last but one. Each is hashed beside the next one, the first of `rows`;
    /// returns those that are not hashed yet.
    #[inline(always)]
    fn seal_front(
        &self,
        start: &Start,
        front: usize,
        texts: &mut Texts<'_>,
        rows: Each,
        sums: &mut [Sum192; LANES],
    ) -> Each {
        let v = self.v;
        let mut rows = rows;
        let mut left = first_stretch(front);
        for row in 1..front {
            let Some(&change) = self.changes.get(row) else { break };
            let beside = Beside { rows: &rows, by: By::Alike(self.power(4 * left)) };
            rows = self.seal_row(start, row, change, texts, beside, sums);
            left -= 1;
            if left == 0 {
                rows = each!(P => v.xor4(rows[P], sums[P].reduce(v)));
                *sums = [Sum192::zero(v); LANES];
                left = STRETCH;
            }
        }
        rows
    }

    /// Number of rows in front of the last one.
    #[inline(always)]
    fn front<'a, O: GcmPacket<'a>>(ops: &Four<'_, O>) -> Option<usize> {
        let first = ops.first()?.as_ref()?;
        Some(if SHORT { 0 } else { rows_in_front(first.data_len(), END == BLOCK) })
    }

    #[inline(always)]
    pub(super) fn open<'a, O: GcmPacket<'a>>(&self, fours: &mut [Four<'_, O>]) {
        let v = self.v;
        let zero = [Sum192::zero(v); LANES];
        for ops in fours {
            let Some(front) = Self::front(ops) else { continue };
            let Some(start) = self.start(ops) else { continue };
            let Some(mut texts) = Self::texts(ops, front) else { continue };
            let texts = &mut texts;
            let mut sums = zero;
            let mut hash = with_aad(v, [v.zero4(); LANES], start.aad);
            if !SHORT {
                let mut left = first_stretch(front);
                for row in 0..front - 1 {
                    let Some(&change) = self.changes.get(row) else { break };
                    let by = By::Alike(self.power(4 * left));
                    self.open_row(
                        &start,
                        row,
                        change,
                        texts,
                        Beside { rows: &hash, by },
                        &mut sums,
                    );
                    hash = [v.zero4(); LANES];
                    left -= 1;
                    if left == 0 {
                        hash = each!(P => sums[P].reduce(v));
                        sums = zero;
                        left = STRETCH;
                    }
                }
                let row = front - 1;
                let Some(&change) = self.changes.get(row) else { continue };
                let by = By::Windows(self.windows_before(texts));
                self.open_row(&start, row, change, texts, Beside { rows: &hash, by }, &mut sums);
                hash = [v.zero4(); LANES];
            }
            let beside = Beside { rows: &hash, by: By::Windows([self.tables.window(1); LANES]) };
            let last = self.last_row::<O>(&start, front, texts, beside, &mut sums);
            self.finish(&last, start.lengths, sums, ops);
        }
    }
}

impl<O> Pending<'_, '_, '_, O> {
    /// Ends the packets, whose sums are complete; nothing in front of the first four.
    #[inline(always)]
    fn finish<'a, const R: usize, const END: u8, const SHORT: bool>(
        &mut self,
        key: &Key<'_, R, END, SHORT>,
    ) where
        O: GcmPacket<'a>,
    {
        if let Some(ops) = self.ops.take() {
            key.finish(&self.last, self.lengths, self.sums, ops);
        }
    }
}

/// Number of rows that are weighted together at first, so that those left in front of the last two rows make whole
/// stretches.
#[inline(always)]
fn first_stretch(front: usize) -> usize {
    (front + STRETCH - 2) % STRETCH + 1
}

/// Blocks of a last row, or as many as a row has.
#[inline(always)]
fn blocks_of_row(bytes: &[u8]) -> usize {
    bytes.len().min(ROW).div_ceil(16)
}

/// Adds the hash of the additional data to the first rows.
#[inline(always)]
fn with_aad(v: Vaes512, rows: Each, aad: Z) -> Each {
    each!(P => v.xor4(rows[P], v.to_front4::<P>(aad)))
}
