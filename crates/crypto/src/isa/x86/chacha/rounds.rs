//! ChaCha20 (RFC 8439 section 2.3), a block of keystream in every lane.

// Indices name registers here; every such loop is unrolled. Core's copies are not always inlined.
#![allow(clippy::manual_memcpy)]

use super::{
    beside::{Beside, Tags},
    wide::{BLOCK, Longs, MAX_LANES, Pad, Wide},
};
use crate::{
    block::{Block, ChaChaKey},
    isa::job::ChaChaJob,
    pairs::PairedWith,
};

/// Blocks of each packet that are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    All,
    MacKeys,
    Data,
}

/// "expand 32-byte k" in little-endian words.
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// Moves a nonce behind a counter when used as a shuffle.
const BEHIND: Block = Block([255, 255, 255, 255, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);

/// The numbers of the lanes, two in a word.
const NUMBERS: Longs = {
    let mut words = [0; 8];
    let mut i = 0;
    while i < words.len() {
        let even = 2 * i as u64;
        words[i] = even | (even + 1) << 32;
        i += 1;
    }
    Longs(words)
};

/// Position in a list: the next packet, and the next of its blocks.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) job: usize,
    pub(super) block: usize,
}

impl Place {
    pub(super) fn new(part: Part) -> Self {
        Self { job: 0, block: usize::from(part == Part::Data) }
    }

    /// Goes on by `count` of the `left` blocks that the packet still has.
    #[inline(always)]
    fn advance(&mut self, part: Part, count: usize, left: usize) {
        if count < left {
            self.block += count;
        } else {
            *self = Self { job: self.job + 1, ..Self::new(part) };
        }
    }
}

/// Blocks that the lanes work on.
pub(super) struct Blocks<'a> {
    /// Blocks that keystream is added to, if the lanes have consecutive blocks, again and again.
    run: &'a mut [[u8; BLOCK]],
    /// Blocks that keystream is added to, otherwise; pads where fewer bytes are wanted, or none.
    targets: [&'a mut [u8; BLOCK]; MAX_LANES],
    /// The first lanes on pads, and what each is for.
    short: [Option<(usize, &'a mut [u8])>; MAX_LANES],
    shorts: usize,
    /// The first lane that has nothing to do.
    end: usize,
    /// Counters, and nonces behind them.
    rows: [Block; MAX_LANES],
    keys: [&'a [u8; 32]; MAX_LANES],
    same_key: bool,
    same_nonce: bool,
}

impl<'a> Blocks<'a> {
    #[inline(always)]
    pub(super) fn new(pads: &'a mut [[u8; BLOCK]; MAX_LANES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = pads;
        let targets = [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p];
        Self {
            run: &mut [],
            targets,
            short: [const { None }; MAX_LANES],
            shorts: 0,
            end: 0,
            rows: [Block::ZERO; MAX_LANES],
            keys: [&[0; 32]; MAX_LANES],
            same_key: true,
            same_nonce: true,
        }
    }

    /// Takes the next blocks of these packets, as many as there are lanes; the first packet is the
    /// one at `place`.
    #[inline(always)]
    pub(super) fn fill<'j: 'a, W: Wide>(
        &mut self,
        w: W,
        part: Part,
        place: &mut Place,
        packets: impl Iterator<Item = (&'a mut ChaChaJob<'j>, &'a mut Pad)>,
    ) {
        let one = w.quad(0, 0, 0, 1);
        let mut lane = 0;
        for (job, key) in packets {
            if lane == W::LANES {
                break;
            }
            // A packet has fewer blocks than a counter has values.
            let mut row = w.add_words(
                w.shuffle(w.load(job.nonce), w.table(&BEHIND)),
                w.quad(0, 0, 0, place.block as i32),
            );
            let begins = place.block == 0;
            let from = place.block.saturating_sub(1);
            let (whole, rest) = match part {
                Part::MacKeys => (&mut [][..], &mut [][..]),
                Part::All | Part::Data => job.data.as_chunks_mut(),
            };
            let whole = whole.get_mut(from..).unwrap_or_default();
            let all = usize::from(begins) + whole.len() + usize::from(!rest.is_empty());
            if lane == 0 {
                w.store(&mut self.rows[0].0, row);
                self.keys = [&job.key.0; MAX_LANES];
                let count = whole.len() / W::LANES * W::LANES;
                if !begins && count > 0 {
                    self.run = &mut whole[..count];
                    place.advance(part, count, all);
                    return;
                }
            }
            let mut free =
                self.targets[lane..W::LANES].iter_mut().paired_with(&mut self.rows[lane..]);
            let before = free.len();
            if begins && let Some((target, to)) = free.next() {
                *target = &mut key.0;
                w.store(&mut to.0, row);
                row = w.add_words(row, one);
            }
            for (block, (target, to)) in whole.iter_mut().paired_with(&mut free) {
                *target = block;
                w.store(&mut to.0, row);
                row = w.add_words(row, one);
            }
            let mut count = before - free.len();
            if count + 1 == all
                && !rest.is_empty()
                && let Some((_, to)) = free.next()
            {
                w.store(&mut to.0, row);
                if let Some(place) = self.short.get_mut(self.shorts) {
                    *place = Some((lane + count, rest));
                    self.shorts += 1;
                }
                count += 1;
            }
            if !std::ptr::eq(self.keys[0], &job.key.0) {
                self.same_key = false;
                for key in self.keys[lane..].iter_mut().take(count) {
                    *key = &job.key.0;
                }
            }
            self.same_nonce = lane == 0;
            place.advance(part, count, all);
            lane += count;
        }
        self.end = lane;
    }

    /// Adds keystream; beside it, MACs are computed.
    #[inline(always)]
    pub(super) fn pass<W: Wide>(&mut self, w: W, beside: &mut Beside<'_, '_>, tags: &mut Tags) {
        let mut start = [w.splat(0); 16];
        self.start(w, &mut start);
        let mut run = std::mem::take(&mut self.run).chunks_exact_mut(W::LANES);
        loop {
            let chunk = run.next();
            let rows = keystream(w, &start, &mut Macs { beside: &mut *beside, tags: &mut *tags });
            let Some(chunk) = chunk else {
                let targets = &mut self.targets[..W::LANES];
                for i in 0..4 {
                    w.add_columns(rows[i], &mut targets[i..]);
                }
                break;
            };
            for i in 0..4 {
                w.add_columns(rows[i], &mut chunk[i..]);
            }
            if run.len() == 0 {
                return;
            }
            start[12] = w.add32(start[12], w.splat(W::LANES as i32));
        }
        let targets = &mut self.targets[..W::LANES];
        for place in self.short.iter_mut().take(self.shorts) {
            let Some((lane, data)) = place.as_mut() else { continue };
            let pad = &mut *targets[*lane];
            for (data, pad) in data.chunks_mut(16).paired_with(pad.as_chunks::<16>().0) {
                let sum = w.xor(w.load_some(data), w.load(pad));
                w.store_some(data, sum);
            }
            *pad = [0; BLOCK];
        }
        for pad in targets.get_mut(self.end..).unwrap_or_default() {
            **pad = [0; BLOCK];
        }
    }

    /// The states at the start: constants, key, counter, nonce.
    #[inline(always)]
    fn start<W: Wide>(&self, w: W, start: &mut [W::V; 16]) {
        for (to, word) in start.iter_mut().paired_with(CONSTANTS) {
            *to = w.splat(word as i32);
        }
        if self.same_key {
            let words = self.keys[0].as_chunks::<4>().0;
            for (to, word) in start[4..12].iter_mut().paired_with(words) {
                *to = w.splat(i32::from_le_bytes(*word));
            }
        } else {
            for half in 0..2 {
                let row = |i: usize| {
                    w.chunks(|chunk| w.load(&self.keys[4 * chunk + i].as_chunks::<16>().0[half]))
                };
                let words = w.transpose([row(0), row(1), row(2), row(3)]);
                for i in 0..4 {
                    start[4 + 4 * half + i] = words[i];
                }
            }
        }
        if self.same_nonce {
            let words = self.rows[0].0.as_chunks::<4>().0;
            for (to, word) in start[12..].iter_mut().paired_with(words) {
                *to = w.splat(i32::from_le_bytes(*word));
            }
            start[12] = w.add32(start[12], w.load_longs(&NUMBERS));
        } else {
            let row = |i: usize| w.chunks(|chunk| w.load_row(&self.rows[4 * chunk + i]));
            let words = w.transpose([row(0), row(1), row(2), row(3)]);
            for i in 0..4 {
                start[12 + i] = words[i];
            }
        }
    }
}

/// Work beside the rounds: after the first and after the second half of each double round.
pub(super) trait Shadow<W> {
    fn first(&mut self, w: W);
    fn second(&mut self, w: W);
}

/// MACs of a list.
struct Macs<'m, 'a, 'j> {
    beside: &'m mut Beside<'a, 'j>,
    tags: &'m mut Tags,
}

impl<W: Wide> Shadow<W> for Macs<'_, '_, '_> {
    #[inline(always)]
    fn first(&mut self, w: W) {
        self.beside.step_a(w, self.tags);
    }

    #[inline(always)]
    fn second(&mut self, w: W) {
        self.beside.step_b(w, self.tags);
    }
}

/// A block of keystream for every lane, as [`Wide::add_columns`] wants it: row `i` is for the blocks
/// from `i` on.
#[inline(always)]
pub(super) fn keystream<W: Wide>(
    w: W,
    start: &[W::V; 16],
    shadow: &mut impl Shadow<W>,
) -> [[W::V; 4]; 4] {
    let mut state = [w.splat(0); 16];
    // Register by register: as a whole it would be copied through memory.
    #[allow(clippy::manual_memcpy)]
    for i in 0..16 {
        state[i] = start[i];
    }
    for _ in 0..10 {
        quarter(w, &mut state, [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]);
        shadow.first(w);
        quarter(w, &mut state, [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]);
        shadow.second(w);
    }
    for i in 0..16 {
        state[i] = w.add32(state[i], start[i]);
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = state;
    let (first, second) = (w.transpose([a, b, c, d]), w.transpose([e, f, g, h]));
    let (third, last) = (w.transpose([i, j, k, l]), w.transpose([m, n, o, p]));
    let mut rows = [first; 4];
    for i in 0..4 {
        rows[i] = [first[i], second[i], third[i], last[i]];
    }
    rows
}

/// The states at the start of a message's blocks, from a number on.
#[inline(always)]
pub(super) fn start_alone<W: Wide>(
    w: W,
    key: &ChaChaKey,
    nonce: &[u8; 16],
    block: u32,
) -> [W::V; 16] {
    let (key, nonce) = (key.0.as_chunks::<4>().0, nonce.as_chunks::<4>().0);
    let mut start = [w.splat(0); 16];
    for (to, word) in start.iter_mut().paired_with(CONSTANTS) {
        *to = w.splat(word as i32);
    }
    for (to, word) in start[4..12].iter_mut().paired_with(key) {
        *to = w.splat(i32::from_le_bytes(*word));
    }
    start[12] = w.add32(w.load_longs(&NUMBERS), w.splat(block.cast_signed()));
    for (to, word) in start[13..].iter_mut().paired_with(nonce) {
        *to = w.splat(i32::from_le_bytes(*word));
    }
    start
}

/// Keystream of a few blocks, as many as a register has chunks, from a number on: a row of four words of
/// every block in each register. It takes about half the time of a pass.
#[inline(always)]
pub(super) fn few<W: Wide>(
    w: W,
    key: &ChaChaKey,
    nonce: &[u8; 16],
    block: u32,
    shadow: &mut impl Shadow<W>,
) -> [W::V; 4] {
    let nonce = w.shuffle(w.load(nonce), w.table(&BEHIND));
    let halves = key.0.as_chunks::<16>().0;
    let [e, x, p, k] = CONSTANTS;
    let [e, x, p, k] = [e.cast_signed(), x.cast_signed(), p.cast_signed(), k.cast_signed()];
    // What closures give is made before: they are not always inlined.
    let (constants, first, second) = (w.quad(k, p, x, e), w.load(&halves[0]), w.load(&halves[1]));
    let mut counters = [nonce; MAX_LANES / 4];
    for chunk in 0..W::LANES / 4 {
        let number = block.wrapping_add(chunk as u32).cast_signed();
        counters[chunk] = w.add_words(nonce, w.quad(0, 0, 0, number));
    }
    let start = [
        w.chunks(|_| constants),
        w.chunks(|_| first),
        w.chunks(|_| second),
        w.chunks(|chunk| counters[chunk]),
    ];
    let [mut a, mut b, mut c, mut d] = start;
    for _ in 0..10 {
        [a, b, c, d] = row_round(w, [a, b, c, d]);
        shadow.first(w);
        (b, c, d) = (w.turn1(b), w.turn2(c), w.turn3(d));
        [a, b, c, d] = row_round(w, [a, b, c, d]);
        shadow.second(w);
        (b, c, d) = (w.turn3(b), w.turn2(c), w.turn1(d));
    }
    let [e, f, g, h] = start;
    [w.add32(a, e), w.add32(b, f), w.add32(c, g), w.add32(d, h)]
}

/// The four quarter rounds of every block.
#[inline(always)]
fn row_round<W: Wide>(w: W, [mut a, mut b, mut c, mut d]: [W::V; 4]) -> [W::V; 4] {
    a = w.add32(a, b);
    d = w.rotate16(w.xor_v(d, a));
    c = w.add32(c, d);
    b = w.rotate12(w.xor_v(b, c));
    a = w.add32(a, b);
    d = w.rotate8(w.xor_v(d, a));
    c = w.add32(c, d);
    b = w.rotate7(w.xor_v(b, c));
    [a, b, c, d]
}

/// Four quarter rounds (RFC 8439 section 2.1), step by step together.
#[inline(always)]
fn quarter<W: Wide>(
    w: W,
    state: &mut [W::V; 16],
    x: [usize; 4],
    y: [usize; 4],
    z: [usize; 4],
    u: [usize; 4],
) {
    let all = [x, y, z, u];
    for [a, b, _, d] in all {
        state[a] = w.add32(state[a], state[b]);
        state[d] = w.rotate16(w.xor_v(state[d], state[a]));
    }
    for [_, b, c, d] in all {
        state[c] = w.add32(state[c], state[d]);
        state[b] = w.rotate12(w.xor_v(state[b], state[c]));
    }
    for [a, b, _, d] in all {
        state[a] = w.add32(state[a], state[b]);
        state[d] = w.rotate8(w.xor_v(state[d], state[a]));
    }
    for [_, b, c, d] in all {
        state[c] = w.add32(state[c], state[d]);
        state[b] = w.rotate7(w.xor_v(state[b], state[c]));
    }
}
