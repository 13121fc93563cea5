//! Poly1305 of several messages, one to each 64-bit lane.

// Indices name limbs and lanes here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use super::{
    limbs::Field,
    poly::Poly,
    scratch::Scratch,
    wide::{Longs, MAX_LANES},
};
use crate::{isa::job::ChaChaJob, pairs::PairedWith};

/// Most messages under way together.
pub(super) const MAX_MESSAGES: usize = MAX_LANES / 2;

/// Messages of at least so many blocks are hashed two blocks at a time; the square that it takes
/// costs a step, and each two steps in one save half of one.
const PAIRS_FROM: usize = 8;

/// Parts of the messages of one run.
struct Messages<'j> {
    aad: [&'j [u8]; MAX_MESSAGES],
    data: [&'j [u8]; MAX_MESSAGES],
    keys: [&'j [u8; 64]; MAX_MESSAGES],
}

/// A block of each message, as its low and its high eight bytes.
#[derive(Clone, Copy)]
struct Halves<V> {
    low: V,
    high: V,
}

impl<V> Halves<V> {
    #[inline(always)]
    fn of(halves: (V, V)) -> Self {
        Self { low: halves.0, high: halves.1 }
    }
}

/// True if a packet's additional data make one block.
#[inline(always)]
pub(super) fn fits(job: &ChaChaJob<'_>) -> bool {
    (1..=16).contains(&job.aad.len())
}

/// Computes the tags of the packets at these places, one to every lane.
#[inline(always)]
pub(super) fn tags<W: Field>(
    w: W,
    jobs: &[ChaChaJob<'_>],
    scratch: &mut Scratch,
    places: &[(usize, usize)],
) {
    let Scratch { keys, tags, limbs, .. } = scratch;
    let mut messages = Messages {
        aad: [&[]; MAX_MESSAGES],
        data: [&[]; MAX_MESSAGES],
        keys: [&[0; 64]; MAX_MESSAGES],
    };
    for (lane, &(_, place)) in places.iter().enumerate().take(MAX_MESSAGES) {
        let (Some(job), Some(key)) = (jobs.get(place), keys.get(place)) else { return };
        messages.aad[lane] = job.aad;
        messages.data[lane] = job.data;
        messages.keys[lane] = &key.0;
    }
    let ends_alike = messages.hash(w, limbs);
    for (lane, &(_, place)) in places.iter().enumerate().take(MAX_MESSAGES) {
        let (width, data) = (W::LANES / 2, messages.data[lane]);
        let at = if lane < width / 2 { 2 * lane } else { 2 * lane + 1 - width };
        let [a, b, c, d, e] = &*limbs;
        let limbs = [a.0[at], b.0[at], c.0[at], d.0[at], e.0[at]];
        let mut poly = Poly::new(messages.keys[lane]).with_limbs(limbs, W::LIMB_BITS);
        if let Some(whole) = ends_alike {
            poly.padded(w, &data[16 * whole..]);
            poly.lengths(messages.aad[lane].len() as u64, data.len() as u64);
        }
        if let Some(tag) = tags.get_mut(place) {
            *tag = poly.finish();
        }
    }
}

impl Messages<'_> {
    /// Hashes the messages and leaves their accumulators in `limbs`: to their ends, or else to the
    /// block of data that it yields.
    #[inline(always)]
    fn hash<W: Field>(&self, w: W, limbs: &mut [Longs; 5]) -> Option<usize> {
        let lanes = W::LANES / 2;
        let (mut least, mut most) = (usize::MAX, 0);
        for data in &self.data[..lanes] {
            least = least.min(data.len());
            most = most.max(data.len());
        }
        let alike = least.div_ceil(16) == most.div_ceil(16);
        // Of the block behind those that all have whole, there may be a part; else the lanes part.
        let whole = least / 16;
        let mut hash = Hash::new(w, &self.keys);
        // No closures: the compiler would call them, without the tier's features.
        let mut blocks = [w.zero(); MAX_MESSAGES];
        for lane in 0..lanes {
            blocks[lane] = w.load_some(self.aad[lane]);
        }
        hash.step(Halves::of(w.halves(&blocks)));
        self.bulk(w, &mut hash, whole);
        if alike {
            if most > 16 * whole {
                for lane in 0..lanes {
                    blocks[lane] = w.load_some(&self.data[lane][16 * whole..]);
                }
                hash.step(Halves::of(w.halves(&blocks)));
            }
            for lane in 0..lanes {
                blocks[lane] = w.pair(self.data[lane].len() as i64, self.aad[lane].len() as i64);
            }
            hash.step(Halves::of(w.halves(&blocks)));
        }
        w.store_number(hash.h, limbs);
        (!alike).then_some(whole)
    }

    /// The first blocks of the data, which all messages have whole.
    #[inline(always)]
    fn bulk<W: Field>(&self, w: W, hash: &mut Hash<W>, count: usize) {
        let mut blocks: [&[[u8; 16]]; MAX_MESSAGES] = [&[]; MAX_MESSAGES];
        for (blocks, data) in blocks.iter_mut().paired_with(&self.data) {
            *blocks = data.as_chunks().0;
        }
        let lanes = W::LANES / 2;
        let mut next = [w.zero(); MAX_MESSAGES];
        let mut at = 0;
        if count >= PAIRS_FROM {
            let square = hash.square();
            while at + 4 <= count {
                let mut four = [&[[0; 16]; 4]; MAX_MESSAGES];
                for lane in 0..lanes {
                    if let Some(blocks) = blocks[lane][at..].first_chunk() {
                        four[lane] = blocks;
                    }
                }
                let [a, b, c, d] = w.four_halves(&four);
                hash.two_steps(Halves::of(a), Halves::of(b), &square);
                hash.two_steps(Halves::of(c), Halves::of(d), &square);
                at += 4;
            }
        }
        while at < count {
            for lane in 0..lanes {
                next[lane] = w.load(&blocks[lane][at]);
            }
            hash.step(Halves::of(w.halves(&next)));
            at += 1;
        }
    }
}

/// Hashes under way.
struct Hash<W: Field> {
    w: W,
    h: W::Number,
    r: W::Multiplier,
}

impl<W: Field> Hash<W> {
    #[inline(always)]
    fn new(w: W, keys: &[&[u8; 64]; MAX_MESSAGES]) -> Self {
        let mut multipliers = [w.zero(); MAX_MESSAGES];
        for lane in 0..W::LANES / 2 {
            multipliers[lane] = w.load(&keys[lane].as_chunks().0[0]);
        }
        let (low, high) = w.halves(&multipliers);
        let low = w.and_v(low, w.splat64(0x0fff_fffc_0fff_ffff));
        let high = w.and_v(high, w.splat64(0x0fff_fffc_0fff_fffc));
        let zero = w.number(w.splat64(0), w.splat64(0), 0);
        Self { w, h: zero, r: w.multiplier(w.number(low, high, 0)) }
    }

    /// Takes a block of each message.
    #[inline(always)]
    fn step(&mut self, block: Halves<W::V>) {
        let w = self.w;
        let sum = w.sum(self.h, w.number(block.low, block.high, 1));
        self.h = w.product(sum, &self.r);
    }

    /// Takes two blocks of each message.
    #[inline(always)]
    fn two_steps(&mut self, first: Halves<W::V>, second: Halves<W::V>, square: &W::Multiplier) {
        let w = self.w;
        let sum = w.sum(self.h, w.number(first.low, first.high, 1));
        self.h = w.products(w.number(second.low, second.high, 1), &self.r, sum, square);
    }

    #[inline(always)]
    fn square(&self) -> W::Multiplier {
        self.w.multiplier(self.w.square(&self.r))
    }
}
