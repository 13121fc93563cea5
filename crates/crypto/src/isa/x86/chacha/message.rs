//! One message alone: its blocks fill the lanes, those of the cipher and those of the MAC.
//!
//! Of the MAC a lane has every eighth block, or fourth or second, as many as there are lanes, so its
//! accumulator is multiplied by that power of the key; at the end the lanes are what a MAC of so many
//! blocks takes (Goll and Gueron, "Vectorization of Poly1305 message authentication code", 2015). It is
//! computed beside the cipher: of what was encrypted before, or of what is decrypted next.

use zeroize::Zeroize;

use super::{
    limbs::Field,
    poly::Poly,
    rounds::{Shadow, keystream, start_alone},
    wide::{BLOCK, Longs, MAX_LANES, Wide},
};
use crate::pass::ChaChaJob;

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

/// Whether [`run`] can do a message.
pub(super) fn fits<W: Wide>(job: &ChaChaJob<'_>) -> bool {
    job.aad.len() <= 16 || job.data.len() <= front::<W>()
}

/// Seals or opens a message that fits.
#[inline(always)]
pub(super) fn run<W: Field>(w: W, seal: bool, job: &mut ChaChaJob<'_>) {
    let mut scratch = Scratch {
        pads: [[0; BLOCK]; MAX_LANES],
        key: [0; BLOCK],
        rest: [0; GROUP_MAX],
        limbs: [Longs([0; 8]); 5],
    };
    let mut start = [w.splat(0); 16];
    start_alone(w, job, &mut start);
    scratch.fill_pads(w, &start);
    scratch.key = scratch.pads[0];
    let tag = match job.data.len() > front::<W>() {
        true => scratch.long(w, seal, job, &mut start),
        false => scratch.short(w, seal, job),
    };
    job.tag = tag.to_le_bytes();
}

/// What is secret and does not fit registers.
struct Scratch {
    /// Keystream.
    pads: [[u8; BLOCK]; MAX_LANES],
    /// The first block of it.
    key: [u8; BLOCK],
    /// The end of a message that is opened.
    rest: [u8; GROUP_MAX],
    /// Accumulators on their way from lanes to general registers.
    limbs: [Longs; 5],
}

impl Drop for Scratch {
    #[inline(always)]
    fn drop(&mut self) {
        self.pads.zeroize();
        self.key.zeroize();
        self.limbs.zeroize();
    }
}

impl Scratch {
    /// A pass of keystream.
    #[inline(always)]
    fn fill_pads<W: Wide>(&mut self, w: W, start: &[W::V; 16]) {
        self.pads = [[0; BLOCK]; MAX_LANES];
        let rows = keystream(w, start, &mut Idle);
        for (i, rows) in rows.into_iter().enumerate() {
            w.add_columns(rows, &mut self.pads[i..]);
        }
    }

    /// Does a message that the first pass has enough keystream for.
    #[inline(always)]
    fn short<W: Wide>(&mut self, w: W, seal: bool, job: &mut ChaChaJob<'_>) -> u128 {
        if seal {
            add(job.data, &self.pads[1..]);
        }
        let mut poly = Poly::new(&self.key);
        poly.padded(w, job.aad);
        poly.padded(w, job.data);
        poly.lengths(job.aad.len(), job.data.len());
        if !seal {
            add(job.data, &self.pads[1..]);
        }
        poly.finish()
    }

    /// Does a message that is longer, with additional data of a block or none.
    #[inline(always)]
    fn long<W: Field>(
        &mut self,
        w: W,
        seal: bool,
        job: &mut ChaChaJob<'_>,
        start: &mut [W::V; 16],
    ) -> u128 {
        let (aad, data) = (job.aad, &mut *job.data);
        let len = data.len();
        // How far the cipher has come.
        let mut at = front::<W>();
        if seal {
            add(&mut data[..at], &self.pads[1..]);
        }
        let mut mac = Mac::new(w, &self.key, aad, data);
        let end = len - (len - mac.taken) % group::<W>();
        if !seal {
            self.rest[..len - end].copy_from_slice(&data[end..]);
            // Beyond what is decrypted next, or to the end.
            mac.until(data, (at + group::<W>()).min(end));
            add(&mut data[..at], &self.pads[1..]);
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
        if !seal {
            mac.until(data, end);
        }
        if at < len {
            start[12] = w.add32(start[12], w.splat(W::LANES as i32));
            self.fill_pads(w, start);
            add(&mut data[at..], &self.pads);
        }
        mac.until(data, end);
        let mut poly = mac.sum(&self.key, &mut self.limbs);
        poly.padded(w, if seal { &data[end..] } else { &self.rest[..len - end] });
        poly.lengths(aad.len(), len);
        poly.finish()
    }
}

/// Adds keystream.
#[inline(always)]
fn add(data: &mut [u8], pads: &[[u8; BLOCK]]) {
    data.iter_mut().zip(pads.as_flattened()).for_each(|(byte, pad)| *byte ^= pad);
}

/// Nothing beside the cipher.
struct Idle;

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
    /// Those that are left, no more than there are double rounds.
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
    /// A MAC of additional data, a block or none, and the blocks of data that fill the lanes with it.
    #[inline(always)]
    fn new(w: W, key: &[u8; BLOCK], aad: &[u8], data: &[u8]) -> Self {
        let words = key.as_chunks::<8>().0;
        let word = |i: usize| w.splat64(i64::from_le_bytes(words[i]));
        let low = w.and_v(word(0), w.splat64(0x0fff_fffc_0fff_ffff));
        let high = w.and_v(word(1), w.splat64(0x0fff_fffc_0fff_fffc));
        let mut power = w.multiplier(w.number(low, high, 0));
        let mut lanes = 1;
        while lanes < W::LANES / 2 {
            power = w.multiplier(w.square(&power));
            lanes *= 2;
        }
        let mut blocks = [w.zero(); MAX_LANES / 2];
        let whole = data.as_chunks().0;
        let first = usize::from(!aad.is_empty());
        if first > 0 {
            blocks[0] = w.load_some(aad);
        }
        for (to, block) in blocks[first..W::LANES / 2].iter_mut().zip(whole) {
            *to = w.load(block);
        }
        let (low, high) = w.halves(&blocks);
        let taken = group::<W>() - 16 * first;
        Self { w, sums: w.number(low, high, 1), power, taken }
    }

    /// Takes the next group of data.
    #[inline(always)]
    fn step(&mut self, data: &[u8]) {
        let w = self.w;
        let Some(group) = data.get(self.taken..).and_then(|rest| rest.get(..group::<W>())) else {
            return;
        };
        let mut blocks = [w.zero(); MAX_LANES / 2];
        for (to, block) in blocks.iter_mut().zip(group.as_chunks().0) {
            *to = w.load(block);
        }
        let (low, high) = w.halves(&blocks);
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
    fn sum(&self, key: &[u8; BLOCK], limbs: &mut [Longs; 5]) -> Poly {
        self.w.store_number(self.sums, limbs);
        let mut poly = Poly::new(key);
        let lanes = W::LANES / 2;
        for lane in 0..lanes {
            // As `halves` has them.
            let at = if lane < lanes / 2 { 2 * lane } else { 2 * lane + 1 - lanes };
            let [a, b, c, d, e] = &*limbs;
            let limbs = [a.0[at], b.0[at], c.0[at], d.0[at], e.0[at]];
            poly.add(&Poly::resume(key, limbs, W::LIMB_BITS));
        }
        poly
    }
}
