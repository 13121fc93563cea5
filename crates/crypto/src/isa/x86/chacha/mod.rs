//! ChaCha20-Poly1305 with a block of keystream per lane.
//!
//! The blocks of a burst make one list: for each packet the block that keys its MAC and those of its
//! data. Lanes take the next blocks of that list, whatever packets they belong to, so they are full
//! to the end. A lane has a counter of its own; keys and nonces are broadcast where all lanes share
//! them and gathered where they do not.

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

mod lanes;
mod poly;
mod wide;

use arrayvec::ArrayVec;
use zeroize::{DefaultIsZeroes, Zeroize};

use self::wide::{BLOCK, MAX_LANES, Wide, Words};
use super::token::Task;
use crate::pass::ChaChaJob;

/// Most packets that make one list. Their MAC keys wait on the stack.
const GROUP: usize = 256;

/// Bytes of data after which a list ends, so that they are still in a near cache when the MACs are
/// computed.
const GROUP_BYTES: usize = 1 << 18;

/// "expand 32-byte k" in little-endian words.
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// Seals or opens a burst.
pub(super) struct Burst<'s, 'j> {
    pub(super) seal: bool,
    pub(super) jobs: &'s mut [ChaChaJob<'j>],
}

impl<W: Wide> Task<W> for Burst<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: W) {
        let mut scratch = Scratch::new();
        let mut rest = self.jobs;
        while !rest.is_empty() {
            let (jobs, behind) = rest.split_at_mut(group(rest));
            rest = behind;
            if self.seal {
                keystream(token, jobs, Part::All, &mut scratch);
                tags(token, jobs, &scratch.mac_keys);
            } else {
                keystream(token, jobs, Part::MacKeys, &mut scratch);
                tags(token, jobs, &scratch.mac_keys);
                keystream(token, jobs, Part::Data, &mut scratch);
            }
        }
        scratch.wipe();
    }
}

/// How many of the first packets make a list: a number that fills the lanes if all are of one length,
/// unless there are no more.
fn group(jobs: &[ChaChaJob<'_>]) -> usize {
    let mut bytes = 0;
    let lists = jobs.chunks(MAX_LANES).take(GROUP / MAX_LANES).take_while(|jobs| {
        let before = bytes;
        bytes += jobs.iter().map(|job| job.data.len()).sum::<usize>();
        before < GROUP_BYTES
    });
    lists.map(<[_]>::len).sum()
}

/// What is secret and does not fit registers.
struct Scratch {
    keystream: [Words; MAX_LANES],
    mac_keys: [MacKey; GROUP],
}

impl Scratch {
    #[inline(always)]
    fn new() -> Self {
        Self { keystream: [Words([0; 16]); MAX_LANES], mac_keys: [MacKey([0; 8]); GROUP] }
    }

    fn wipe(&mut self) {
        self.keystream.zeroize();
        self.mac_keys.zeroize();
    }
}

/// The key of one packet's Poly1305.
#[derive(Clone, Copy, Default)]
struct MacKey([u32; 8]);

impl DefaultIsZeroes for MacKey {}

/// Which blocks of each packet are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    MacKeys,
    Data,
    All,
}

/// The MACs' tags, with the data as it is now. Packets of like length share the lanes; what is left
/// over, or has unusual additional data, goes one by one.
#[inline(always)]
fn tags<W: Wide>(w: W, jobs: &mut [ChaChaJob<'_>], mac_keys: &[MacKey; GROUP]) {
    let mut order: ArrayVec<(usize, usize), GROUP> = ArrayVec::new();
    for (place, job) in jobs.iter().enumerate().take(GROUP) {
        if (1..=16).contains(&job.aad.len()) {
            order.push((job.data.len(), place));
        }
    }
    order.sort_unstable();
    let mut places = [0; GROUP];
    for (to, (_, place)) in places.iter_mut().zip(&order) {
        *to = *place;
    }
    let full = order.len() - order.len() % (W::LANES / 2);
    for places in places[..full].chunks_exact(W::LANES / 2) {
        lanes::tags(w, jobs, mac_keys, places);
    }
    let left = places[full..order.len()].iter().copied();
    for place in left {
        let (job, key) = (&mut jobs[place], mac_keys[place]);
        job.tag = poly::tag(key.0, job.aad, job.data);
    }
    if order.len() < jobs.len() {
        for (job, key) in jobs.iter_mut().zip(mac_keys) {
            if !(1..=16).contains(&job.aad.len()) {
                job.tag = poly::tag(key.0, job.aad, job.data);
            }
        }
    }
}

/// Lanes that work on consecutive blocks of one packet.
#[derive(Clone, Copy)]
struct Run {
    job: usize,
    block: usize,
    count: usize,
}

/// What the lanes work on.
struct Lanes<'j> {
    runs: ArrayVec<Run, MAX_LANES>,
    counters: Words,
    keys: [&'j [u8; 32]; MAX_LANES],
    nonces: [&'j [u8; 16]; MAX_LANES],
    same_key: bool,
}

/// Runs through the list of blocks: adds keystream to data, and keeps the keys of the MACs.
#[inline(always)]
fn keystream<W: Wide>(w: W, jobs: &mut [ChaChaJob<'_>], part: Part, scratch: &mut Scratch) {
    let first = usize::from(part == Part::Data);
    let (mut job, mut block) = (0, first);
    while let Some(current) = jobs.get(job) {
        let mut lanes = Lanes {
            runs: ArrayVec::new(),
            counters: Words([0; 16]),
            keys: [&current.key.0; MAX_LANES],
            nonces: [current.nonce; MAX_LANES],
            same_key: true,
        };
        let mut filled = 0;
        while filled < W::LANES
            && let Some(current) = jobs.get(job)
        {
            let blocks = if part == Part::MacKeys { 0 } else { current.data.len().div_ceil(BLOCK) };
            let count = (blocks + 1 - block).min(W::LANES - filled);
            for i in 0..count {
                // A packet has fewer blocks than a counter has values.
                lanes.counters.0[filled + i] = (block + i) as u32;
                lanes.keys[filled + i] = &current.key.0;
                lanes.nonces[filled + i] = current.nonce;
            }
            lanes.same_key &= std::ptr::eq(lanes.keys[0], &current.key.0);
            if count > 0 {
                lanes.runs.push(Run { job, block, count });
            }
            filled += count;
            block += count;
            if block > blocks {
                (job, block) = (job + 1, first);
            }
        }
        blocks(w, &lanes, &mut scratch.keystream);
        add(w, jobs, &lanes.runs, scratch);
    }
}

/// A block of keystream in every lane (RFC 8439 section 2.3).
#[inline(always)]
fn blocks<W: Wide>(w: W, lanes: &Lanes<'_>, keystream: &mut [Words; MAX_LANES]) {
    let mut start = [w.splat(0); 16];
    fill(w, lanes, &mut start);
    let mut state = [w.splat(0); 16];
    // Register by register: as a whole it would be copied through memory.
    #[allow(clippy::manual_memcpy)]
    for i in 0..16 {
        state[i] = start[i];
    }
    for _ in 0..10 {
        quarter(w, &mut state, [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]);
        quarter(w, &mut state, [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]);
    }
    for i in 0..16 {
        state[i] = w.add32(state[i], start[i]);
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = state;
    let (first, second) = (w.transpose([a, b, c, d]), w.transpose([e, f, g, h]));
    let (third, last) = (w.transpose([i, j, k, l]), w.transpose([m, n, o, p]));
    for i in 0..4 {
        w.store_columns([first[i], second[i], third[i], last[i]], &mut keystream[i..]);
    }
}

/// The states at the start: constants, key, counter, nonce.
#[inline(always)]
fn fill<W: Wide>(w: W, lanes: &Lanes<'_>, start: &mut [W::V; 16]) {
    for (to, word) in start.iter_mut().zip(CONSTANTS) {
        *to = w.splat(word as i32);
    }
    if lanes.same_key {
        let words = lanes.keys[0].as_chunks::<4>().0;
        for (to, word) in start[4..12].iter_mut().zip(words) {
            *to = w.splat(i32::from_le_bytes(*word));
        }
    } else {
        for half in 0..2 {
            let row = |i: usize| {
                w.chunks(|chunk| w.load(&lanes.keys[4 * chunk + i].as_chunks::<16>().0[half]))
            };
            let words = w.transpose([row(0), row(1), row(2), row(3)]);
            start[4 + 4 * half..][..4].copy_from_slice(&words);
        }
    }
    start[12] = w.load_words(&lanes.counters);
    if lanes.runs.len() == 1 {
        let words = lanes.nonces[0].as_chunks::<4>().0;
        for (to, word) in start[13..].iter_mut().zip(words) {
            *to = w.splat(i32::from_le_bytes(*word));
        }
    } else {
        let row = |i: usize| w.chunks(|chunk| w.load(lanes.nonces[4 * chunk + i]));
        let words = w.transpose([row(0), row(1), row(2), row(3)]);
        start[13..].copy_from_slice(&words[..3]);
    }
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

/// Adds keystream to the data of the packets that the lanes worked on; block 0 of a packet is kept
/// as the key of its MAC.
#[inline(always)]
fn add<W: Wide>(w: W, jobs: &mut [ChaChaJob<'_>], runs: &[Run], scratch: &mut Scratch) {
    let Scratch { keystream, mac_keys } = scratch;
    let mut keystream = keystream.iter();
    for run in runs {
        let mut blocks = run.block..run.block + run.count;
        if run.block == 0 {
            blocks.next();
            if let (Some(block), Some(key)) = (keystream.next(), mac_keys.get_mut(run.job)) {
                key.0.copy_from_slice(&block.0[..8]);
            }
        }
        let Some(job) = jobs.get_mut(run.job) else { return };
        let data = &mut job.data[BLOCK * (blocks.start - 1)..];
        let len = data.len().min(BLOCK * blocks.len());
        let (whole, rest) = data[..len].as_chunks_mut::<BLOCK>();
        for (data, block) in whole.iter_mut().zip(&mut keystream) {
            w.add_block(data, block);
        }
        if !rest.is_empty()
            && let Some(block) = keystream.next()
        {
            for (data, words) in rest.chunks_mut(16).zip(block.0.as_chunks::<4>().0) {
                let sum = w.xor(w.load_some(data), w.load_words4(words));
                w.store_some(data, sum);
            }
        }
    }
}
