//! Poly1305 of several messages, one to each 64-bit lane, in limbs of 26 bits.

// Indices name limbs and lanes here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use super::{
    MacKey,
    poly::Poly,
    wide::{Longs, MAX_LANES, Wide},
};
use crate::{isa::x86::lanes::B, pass::ChaChaJob};

/// Most messages under way together.
pub(super) const MAX_MESSAGES: usize = MAX_LANES / 2;

/// Messages of at least so many blocks are hashed two blocks at a time; the square that it takes
/// costs a step, and each two steps in one save half of one.
const PAIRS_FROM: usize = 8;

/// A number modulo 2^130 - 5 in each lane, least limb first.
type Limbs<V> = [V; 5];

/// What the messages of one run are made of.
struct Messages<'j> {
    aad: [&'j [u8]; MAX_MESSAGES],
    data: [&'j [u8]; MAX_MESSAGES],
    keys: [MacKey; MAX_MESSAGES],
}

/// Computes the tags of the packets at these places: one to every lane, each with 1 to 16 bytes of
/// additional data.
#[inline(always)]
pub(super) fn tags<W: Wide>(
    w: W,
    jobs: &mut [ChaChaJob<'_>],
    mac_keys: &[MacKey],
    places: &[usize],
) {
    let mut messages = Messages {
        aad: [&[]; MAX_MESSAGES],
        data: [&[]; MAX_MESSAGES],
        keys: [MacKey([0; 8]); MAX_MESSAGES],
    };
    for (lane, &place) in places.iter().enumerate().take(MAX_MESSAGES) {
        let (Some(job), Some(key)) = (jobs.get(place), mac_keys.get(place)) else { return };
        messages.aad[lane] = job.aad;
        messages.data[lane] = job.data;
        messages.keys[lane] = *key;
    }
    let mut tags = [[0; 16]; MAX_MESSAGES];
    messages.tags(w, &mut tags);
    for (&place, tag) in places.iter().zip(tags) {
        if let Some(job) = jobs.get_mut(place) {
            job.tag = tag;
        }
    }
}

impl Messages<'_> {
    #[inline(always)]
    fn tags<W: Wide>(&self, w: W, tags: &mut [[u8; 16]; MAX_MESSAGES]) {
        let lanes = W::LANES / 2;
        let (mut least, mut most) = (usize::MAX, 0);
        for data in &self.data[..lanes] {
            least = least.min(data.len());
            most = most.max(data.len());
        }
        let alike = least.div_ceil(16) == most.div_ceil(16);
        // If all end with the same block, that one may be short; else the lanes part with the last
        // block that all have whole.
        let whole = if alike { least.div_ceil(16).saturating_sub(1) } else { least / 16 };
        let mut hash = Hash::new(w, &self.keys);
        hash.step(halves(w, |lane| w.load_some(self.aad[lane])));
        self.bulk(w, &mut hash, whole);
        if alike {
            if most > 0 {
                hash.step(halves(w, |lane| w.load_some(&self.data[lane][16 * whole..])));
            }
            hash.step(halves(w, |lane| {
                w.pair(self.data[lane].len() as i64, self.aad[lane].len() as i64)
            }));
        }
        let limbs = hash.limbs();
        for lane in 0..lanes {
            let at = if lane < lanes / 2 { 2 * lane } else { 2 * lane + 1 - lanes };
            let limbs = [0, 1, 2, 3, 4].map(|i: usize| limbs[i].0[at]);
            let mut poly = Poly::resume(self.keys[lane].0, limbs);
            if !alike {
                poly.padded(&self.data[lane][16 * whole..]);
                poly.lengths(self.aad[lane].len(), self.data[lane].len());
            }
            tags[lane] = poly.finish();
        }
    }

    /// The first blocks of the data, which all messages have whole.
    #[inline(always)]
    fn bulk<W: Wide>(&self, w: W, hash: &mut Hash<W>, count: usize) {
        let mut blocks: [&[[u8; 16]]; MAX_MESSAGES] = [&[]; MAX_MESSAGES];
        for (blocks, data) in blocks.iter_mut().zip(&self.data) {
            *blocks = data.as_chunks().0;
        }
        let mut at = 0;
        if count >= PAIRS_FROM {
            let square = hash.square();
            while at + 2 <= count {
                let first = halves(w, |lane| w.load(&blocks[lane][at]));
                let second = halves(w, |lane| w.load(&blocks[lane][at + 1]));
                hash.two_steps(first, second, &square);
                at += 2;
            }
        }
        while at < count {
            hash.step(halves(w, |lane| w.load(&blocks[lane][at])));
            at += 1;
        }
    }
}

/// Blocks, one to a lane, as their low and their high halves. The halves of the lanes that come
/// first and of those that come last alternate.
#[inline(always)]
fn halves<W: Wide>(w: W, block: impl Fn(usize) -> B) -> (W::V, W::V) {
    let first = w.chunks(&block);
    let last = w.chunks(|chunk| block(chunk + W::LANES / 4));
    (w.unpack_lo64(first, last), w.unpack_hi64(first, last))
}

/// A multiplier, and five times its high limbs: what they count for where they wrap around.
struct Multiplier<W: Wide> {
    limbs: Limbs<W::V>,
    fives: Limbs<W::V>,
}

impl<W: Wide> Multiplier<W> {
    #[inline(always)]
    fn new(w: W, limbs: Limbs<W::V>) -> Self {
        let mut fives = limbs;
        for five in &mut fives {
            *five = w.add64(*five, w.shl2(*five));
        }
        Self { limbs, fives }
    }

    /// Adds the products to `sums`, without carries.
    #[inline(always)]
    fn add_product(&self, w: W, sums: &mut Limbs<W::V>, by: &Limbs<W::V>) {
        for i in 0..5 {
            for j in 0..5 {
                let limb = if i >= j { self.limbs[i - j] } else { self.fives[5 + i - j] };
                sums[i] = w.add64(sums[i], w.mul(by[j], limb));
            }
        }
    }
}

/// Hashes under way.
struct Hash<W: Wide> {
    w: W,
    h: Limbs<W::V>,
    r: Multiplier<W>,
}

impl<W: Wide> Hash<W> {
    #[inline(always)]
    fn new(w: W, keys: &[MacKey; MAX_MESSAGES]) -> Self {
        let (low, high) = halves(w, |lane| w.load_words4(&keys[lane].0.as_chunks().0[0]));
        let low = w.and_v(low, w.splat64(0x0fff_fffc_0fff_ffff));
        let high = w.and_v(high, w.splat64(0x0fff_fffc_0fff_fffc));
        let r = Multiplier::new(w, split(w, low, high));
        Self { w, h: [w.splat64(0); 5], r }
    }

    /// Takes a block of each message.
    #[inline(always)]
    fn step(&mut self, (low, high): (W::V, W::V)) {
        let w = self.w;
        self.add(low, high);
        let mut sums = [w.splat64(0); 5];
        self.r.add_product(w, &mut sums, &self.h);
        self.h = carry(w, sums);
    }

    /// Takes two blocks of each message.
    #[inline(always)]
    fn two_steps(
        &mut self,
        (low, high): (W::V, W::V),
        second: (W::V, W::V),
        square: &Multiplier<W>,
    ) {
        let w = self.w;
        self.add(low, high);
        let mut block = split(w, second.0, second.1);
        block[4] = w.or_v(block[4], w.splat64(1 << 24));
        let mut sums = [w.splat64(0); 5];
        self.r.add_product(w, &mut sums, &block);
        square.add_product(w, &mut sums, &self.h);
        self.h = carry(w, sums);
    }

    #[inline(always)]
    fn add(&mut self, low: W::V, high: W::V) {
        let w = self.w;
        let mut block = split(w, low, high);
        block[4] = w.or_v(block[4], w.splat64(1 << 24));
        for i in 0..5 {
            self.h[i] = w.add64(self.h[i], block[i]);
        }
    }

    #[inline(always)]
    fn square(&self) -> Multiplier<W> {
        let w = self.w;
        let mut sums = [w.splat64(0); 5];
        self.r.add_product(w, &mut sums, &self.r.limbs);
        Multiplier::new(w, carry(w, sums))
    }

    #[inline(always)]
    fn limbs(&self) -> [Longs; 5] {
        let mut limbs = [Longs([0; 8]); 5];
        for i in 0..5 {
            self.w.store_longs(self.h[i], &mut limbs[i]);
        }
        limbs
    }
}

/// 128 bits as limbs.
#[inline(always)]
fn split<W: Wide>(w: W, low: W::V, high: W::V) -> Limbs<W::V> {
    let mask = w.splat64(LIMB);
    [
        w.and_v(low, mask),
        w.and_v(w.shr26(low), mask),
        w.and_v(w.or_v(w.shr52(low), w.shl12(high)), mask),
        w.and_v(w.shr14(high), mask),
        w.shr40(high),
    ]
}

/// A limb's bits.
const LIMB: i64 = (1 << 26) - 1;

/// Carries until every limb has 26 bits, or one more.
#[inline(always)]
fn carry<W: Wide>(w: W, [a, b, c, d, e]: Limbs<W::V>) -> Limbs<W::V> {
    let mask = w.splat64(LIMB);
    // Two chains at a time, for they wait for one another otherwise.
    let (b, a) = (w.add64(b, w.shr26(a)), w.and_v(a, mask));
    let (e, d) = (w.add64(e, w.shr26(d)), w.and_v(d, mask));
    let (c, b) = (w.add64(c, w.shr26(b)), w.and_v(b, mask));
    let (over, e) = (w.shr26(e), w.and_v(e, mask));
    let a = w.add64(a, w.add64(over, w.shl2(over)));
    let (d, c) = (w.add64(d, w.shr26(c)), w.and_v(c, mask));
    let (b, a) = (w.add64(b, w.shr26(a)), w.and_v(a, mask));
    let (e, d) = (w.add64(e, w.shr26(d)), w.and_v(d, mask));
    [a, b, c, d, e]
}
