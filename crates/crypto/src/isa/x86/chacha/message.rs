//! One message alone: its blocks fill the lanes, those of the cipher and those of the MAC.
//!
//! Of the MAC a lane has every eighth block, or fourth or second, as many as there are lanes, so its
//! accumulator is multiplied by that power of the key; at the end the lanes are what a MAC of so many
//! blocks takes (Goll and Gueron, "Vectorization of Poly1305 message authentication code", 2015). It is
//! computed beside the cipher: of what was encrypted before, or of what is decrypted next.

use std::slice;

use super::{
    limbs::Field,
    poly::{Poly, some},
    rounds::{Shadow, few, keystream, start_alone},
    wide::{BLOCK, Longs, MAX_LANES, Wide},
};
use crate::{
    block::ChaChaKey,
    isa::{
        job::ChaChaJob,
        part::{ChaChaState, KeystreamFrom, MIN_PART},
    },
    pairs::PairedWith,
    secret::wipe,
};

/// Seals or opens another part of a message, from the beginning of a block of keystream on.
pub(in super::super) struct NextPart<'s> {
    pub(in super::super) seal: bool,
    pub(in super::super) key: &'s ChaChaKey,
    pub(in super::super) nonce: &'s [u8; 16],
    /// The number of the block.
    pub(in super::super) block: u32,
    /// At least [`MIN_PART`](crate::isa::part::MIN_PART) bytes.
    pub(in super::super) data: &'s mut [u8],
    pub(in super::super) state: &'s mut ChaChaState,
}

/// Most bytes that the lanes of a MAC take in a step.
const GROUP_MAX: usize = 8 * MAX_LANES;

/// Bytes that the lanes of a MAC take in a step: a block of 16 in each lane of 64 bits.
const fn group<W: Wide>() -> usize {
    8 * W::LANES
}

/// Bytes of keystream of a pass.
const fn pass<W: Wide>() -> usize {
    BLOCK * W::LANES
}

/// Bytes of text that the first pass has keystream for: its first block keys the MAC.
const fn front<W: Wide>() -> usize {
    pass::<W>() - BLOCK
}

/// True if [`begin`] can do a message.
#[inline(always)]
pub(super) fn fits<W: Wide>(job: &ChaChaJob<'_>) -> bool {
    job.aad.len() <= 16 || job.data.len() <= front::<W>()
}

/// True if a message of a burst is done by itself: with 256 bits, from 8 KB on, that takes 7 to 15 % less time on
/// Zen 3. With 128 bits it never does; with 512 it was not measured.
#[inline(always)]
pub(super) fn fills_lanes<W: Wide>(job: &ChaChaJob<'_>) -> bool {
    W::LANES == 8 && job.data.len() >= 8 << 10 && fits::<W>(job)
}

/// Seals or opens a message that fits and may go on. Yields the MAC of all whole blocks, and what is left of
/// the text.
#[inline(always)]
pub(super) fn begin<W: Field>(w: W, seal: bool, job: &mut ChaChaJob<'_>) -> (Poly, u128) {
    let mut scratch = Scratch::new();
    if job.data.len() + BLOCK <= a_few::<W>() {
        fill_few(
            w,
            KeystreamFrom { key: job.key, nonce: job.nonce, block: 0 },
            &mut scratch.pads,
            &mut Idle,
        );
        scratch.key = Poly::new(&scratch.pads[0]);
        return scratch.short(w, seal, job);
    }
    let mut start = start_alone(w, job.key, job.nonce, 0);
    fill(w, &start, &mut scratch.pads[..W::LANES], &mut Idle);
    scratch.key = Poly::new(&scratch.pads[0]);
    if job.data.len() <= front::<W>() {
        return scratch.short(w, seal, job);
    }
    let ChaChaJob { key, nonce, aad, .. } = *job;
    let text = Text { key, nonce, block: 1, aad, data: job.data };
    scratch.long::<W, false>(w, seal, text, &mut start)
}

/// Seals or opens a part of a message that is under way.
#[inline(always)]
pub(super) fn next<W: Field>(w: W, part: NextPart<'_>) {
    const { assert!(MIN_PART >= GROUP_MAX) };
    let NextPart { seal, key, nonce, block, data, state } = part;
    if data.len() < MIN_PART {
        return;
    }
    let mut scratch = Scratch::new();
    let mut start = start_alone(w, key, nonce, block);
    fill(w, &start, &mut scratch.pads[..W::LANES], &mut Idle);
    scratch.key = state.mac;
    let text = Text { key, nonce, block, aad: &[], data };
    let (poly, tail) = scratch.long::<W, true>(w, seal, text, &mut start);
    (state.mac, state.tail) = (poly, tail.to_le_bytes());
}

/// Text of which the first pass has keystream for a part.
struct Text<'t> {
    key: &'t ChaChaKey,
    nonce: &'t [u8; 16],
    /// The number of its first block of keystream.
    block: u32,
    aad: &'t [u8],
    data: &'t mut [u8],
}

/// Secrets that do not fit registers.
struct Scratch {
    /// Keystream.
    pads: [[u8; BLOCK]; MAX_LANES],
    /// The MAC before the text.
    key: Poly,
    /// The end of a message that is opened.
    rest: [u8; GROUP_MAX],
    /// Accumulators on their way from lanes to general registers.
    limbs: [Longs; 5],
}

impl Drop for Scratch {
    #[inline(always)]
    fn drop(&mut self) {
        wipe(&mut self.pads, [0; BLOCK]);
        wipe(slice::from_mut(&mut self.key), Poly::NONE);
        wipe(&mut self.limbs, Longs([0; 8]));
    }
}

impl Scratch {
    #[inline(always)]
    fn new() -> Self {
        Self {
            pads: [[0; BLOCK]; MAX_LANES],
            key: Poly::NONE,
            rest: [0; GROUP_MAX],
            limbs: [Longs([0; 8]); 5],
        }
    }

    /// Does a message that the first pass has enough keystream for.
    #[inline(always)]
    fn short<W: Wide>(&mut self, w: W, seal: bool, job: &mut ChaChaJob<'_>) -> (Poly, u128) {
        if seal {
            add(job.data, &self.pads[1..]);
        }
        let mut poly = self.key;
        poly.padded(w, job.aad);
        let tail = some(w, poly.blocks(job.data));
        if !seal {
            add(job.data, &self.pads[1..]);
        }
        (poly, tail)
    }

    /// Does text that is longer, with additional data of a block or none, or text behind other text.
    #[inline(always)]
    fn long<W: Field, const GOES_ON: bool>(
        &mut self,
        w: W,
        seal: bool,
        text: Text<'_>,
        start: &mut [W::V; 16],
    ) -> (Poly, u128) {
        let Text { key, nonce, block, aad, data } = text;
        let len = data.len();
        // The first block of a message keys the MAC.
        let first = usize::from(!GOES_ON);
        // How far the cipher has come.
        let mut at = len.min(pass::<W>() - BLOCK * first);
        if seal {
            add(&mut data[..at], &self.pads[first..]);
        }
        let mut mac = Mac::new::<GOES_ON>(w, &self.key, aad, data, &mut self.limbs);
        let end = len - (len - mac.taken) % group::<W>();
        if !seal {
            self.rest[..len - end].copy_from_slice(&data[end..]);
            // Beyond what is decrypted next, or to the end.
            mac.until(data, (at + group::<W>()).min(end));
            add(&mut data[..at], &self.pads[first..]);
        }
        while len - at >= pass::<W>() {
            start[12] = w.add32(start[12], w.splat(W::LANES as i32));
            // What is encrypted already, or what is about to be decrypted.
            let ready = if seal { at.min(end) } else { end };
            let steps = (ready - mac.taken).min(pass::<W>()) / group::<W>();
            let mut beside = Beside { mac: &mut mac, data: &*data, steps };
            let rows = keystream(w, start, &mut beside);
            let blocks = data[at..].as_chunks_mut().0;
            for (i, rows) in rows.into_iter().enumerate() {
                w.add_columns(rows, &mut blocks[i..]);
            }
            at += pass::<W>();
        }
        if at < len {
            let ready = if seal { at.min(end) } else { end };
            let steps = (ready - mac.taken).min(pass::<W>()) / group::<W>();
            let mut beside = Beside { mac: &mut mac, data: &*data, steps };
            if len - at <= a_few::<W>() {
                let block = block.wrapping_add((at / BLOCK) as u32);
                fill_few(w, KeystreamFrom { key, nonce, block }, &mut self.pads, &mut beside);
            } else {
                start[12] = w.add32(start[12], w.splat(W::LANES as i32));
                fill(w, start, &mut self.pads[..W::LANES], &mut beside);
            }
            if !seal {
                mac.until(data, end);
            }
            add(&mut data[at..], &self.pads);
        }
        mac.until(data, end);
        let mut poly = mac.sum(&self.key, &mut self.limbs);
        let rest = poly.blocks(if seal { &data[end..] } else { &self.rest[..len - end] });
        (poly, some(w, rest))
    }
}

/// Computes keystream, a pass of it.
#[inline(always)]
pub(super) fn fill<W: Wide>(
    w: W,
    start: &[W::V; 16],
    pads: &mut [[u8; BLOCK]],
    shadow: &mut impl Shadow<W>,
) {
    let rows = keystream(w, start, shadow);
    for pad in &mut *pads {
        *pad = [0; BLOCK];
    }
    for (i, rows) in rows.into_iter().enumerate() {
        w.add_columns(rows, &mut pads[i..]);
    }
}

/// Bytes of a few blocks.
const fn a_few<W: Wide>() -> usize {
    BLOCK * W::LANES / 4
}

/// Computes a few blocks of keystream; behind them, pads are in disorder.
#[inline(always)]
fn fill_few<W: Wide>(
    w: W,
    from: KeystreamFrom<'_>,
    pads: &mut [[u8; BLOCK]; MAX_LANES],
    shadow: &mut impl Shadow<W>,
) {
    let rows = few(w, from.key, from.nonce, from.block, shadow);
    for i in 0..W::LANES / 4 {
        pads[4 * i] = [0; BLOCK];
    }
    // Columns are four blocks apart.
    w.add_columns(rows, pads);
    for i in 1..W::LANES / 4 {
        pads[i] = pads[4 * i];
    }
}

/// Adds keystream.
#[inline(always)]
fn add(data: &mut [u8], pads: &[[u8; BLOCK]]) {
    let (blocks, rest) = data.as_chunks_mut::<BLOCK>();
    let last = pads.get(blocks.len());
    for (block, pad) in blocks.iter_mut().paired_with(pads) {
        for i in 0..BLOCK {
            block[i] ^= pad[i];
        }
    }
    // By index: of this loop compilers make vectors.
    let (bytes, pad) = (rest.len(), last.unwrap_or(&[0; BLOCK]));
    let pad = pad.get(..bytes).unwrap_or_default();
    for i in 0..pad.len() {
        rest[i] ^= pad[i];
    }
}

/// Nothing beside the cipher.
pub(super) struct Idle;

impl<W> Shadow<W> for Idle {
    #[inline(always)]
    fn first(&mut self, _: W) {}

    #[inline(always)]
    fn second(&mut self, _: W) {}
}

/// Steps of a MAC beside the cipher.
struct Beside<'a, 'd, W: Field> {
    mac: &'a mut Mac<W>,
    data: &'d [u8],
    /// Steps that are left, no more than there are double rounds.
    steps: usize,
}

impl<W: Field> Shadow<W> for Beside<'_, '_, W> {
    #[inline(always)]
    fn first(&mut self, _: W) {
        if self.steps > 0 {
            self.mac.step(self.data);
            self.steps -= 1;
        }
    }

    #[inline(always)]
    fn second(&mut self, _: W) {}
}

/// The MAC of one message in lanes.
struct Mac<W: Field> {
    w: W,
    sums: W::Number,
    /// The key to the power of the number of lanes.
    power: W::Multiplier,
    /// Bytes of data that were taken.
    taken: usize,
}

impl<W: Field> Mac<W> {
    /// A MAC of additional data, a block or none, and the blocks of data that fill the lanes with it. One
    /// that goes on has no additional data; what it has come to counts with the first block.
    #[inline(always)]
    fn new<const GOES_ON: bool>(
        w: W,
        key: &Poly,
        aad: &[u8],
        data: &[u8],
        limbs: &mut [Longs; 5],
    ) -> Self {
        let [low, high] = key.multiplier();
        let (low, high) = (w.splat64(low.cast_signed()), w.splat64(high.cast_signed()));
        let mut power = w.multiplier(w.number(low, high, 0));
        let mut lanes = 1;
        while lanes < W::LANES / 2 {
            power = w.multiplier(w.square(&power));
            lanes *= 2;
        }
        let whole = data.as_chunks().0;
        let first = usize::from(!aad.is_empty());
        let front = match first {
            0 => w.load_chunks(whole),
            _ => w.chunks(|chunk| match chunk {
                0 => w.load_some(aad),
                _ => whole.get(chunk - 1).map_or_else(|| w.zero(), |block| w.load(block)),
            }),
        };
        let back = w.load_chunks(whole.get(W::LANES / 4 - first..).unwrap_or_default());
        let (low, high) = w.unpack64(front, back);
        let mut sums = w.number(low, high, 1);
        if GOES_ON {
            for (to, limb) in limbs.iter_mut().paired_with(key.limbs(W::LIMB_BITS)) {
                *to = Longs([limb, 0, 0, 0, 0, 0, 0, 0]);
            }
            sums = w.sum(sums, w.load_number(limbs));
        }
        let taken = group::<W>() - 16 * first;
        Self { w, sums, power, taken }
    }

    /// Takes the next group of data.
    #[inline(always)]
    fn step(&mut self, data: &[u8]) {
        let w = self.w;
        let Some(group) = data.get(self.taken..).and_then(|rest| rest.get(..group::<W>())) else {
            return;
        };
        let blocks = group.as_chunks().0;
        let (front, back) = blocks.split_at(blocks.len() / 2);
        let (front, back) = (w.load_chunks(front), w.load_chunks(back));
        let (low, high) = w.unpack64(front, back);
        self.sums = w.sum(w.product(self.sums, &self.power), w.number(low, high, 1));
        self.taken += group.len();
    }

    /// Takes data until so much was taken.
    #[inline(always)]
    fn until(&mut self, data: &[u8], end: usize) {
        while self.taken + group::<W>() <= end {
            self.step(data);
        }
    }

    /// The MAC of what was taken.
    #[inline(always)]
    fn sum(&self, key: &Poly, limbs: &mut [Longs; 5]) -> Poly {
        self.w.store_number(self.sums, limbs);
        let mut poly = key.fresh();
        let lanes = W::LANES / 2;
        for lane in 0..lanes {
            // As `halves` has them.
            let at = if lane < lanes / 2 { 2 * lane } else { 2 * lane + 1 - lanes };
            let [a, b, c, d, e] = &*limbs;
            let limbs = [a.0[at], b.0[at], c.0[at], d.0[at], e.0[at]];
            poly.add(&key.with_limbs(limbs, W::LIMB_BITS));
        }
        poly
    }
}
