//! ChaCha20-Poly1305 with a block of keystream per lane.
//!
//! The blocks of a burst make one list: for each packet the block that keys its MAC and those of its
//! data. Lanes take the next blocks of that list, whatever packets they belong to, so they are full
//! to the end. A lane has a counter of its own; keys and nonces are broadcast where all lanes share
//! them and gathered where they do not.
//!
//! In a burst, while vectors run ChaCha20, general registers compute the MACs of packets whose text is
//! ready, as many as fit in its shadow (`beside`). The other MACs take a lane each (`lanes`).
//!
//! A message that is alone, whole or in parts, fills the lanes with its own blocks (`message`).

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

mod beside;
mod lanes;
mod limbs;
mod message;
mod poly;
mod rounds;
#[cfg(test)]
mod tests;
mod wide;

use arrayvec::ArrayVec;

use self::{
    beside::{Beside, Chain, Tags},
    limbs::Field,
    poly::Poly,
    rounds::{Blocks, Place},
    wide::{BLOCK, Longs, MAX_LANES, Pad, Wide},
};
use super::token::Task;
use crate::{
    block::ChaChaKey,
    pass::{ChaChaJob, ChaChaState},
    secret::wipe,
};

/// Most packets that make one list. Their MAC keys wait on the stack.
const GROUP: usize = 128;

/// Seals or opens a burst.
pub(super) struct Burst<'s, 'j> {
    pub(super) seal: bool,
    pub(super) jobs: &'s mut [ChaChaJob<'j>],
}

impl<W: Field> Task<W> for Burst<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: W) {
        if let [job] = &mut *self.jobs
            && message::fits::<W>(job)
        {
            return message::run(token, self.seal, job);
        }
        let mut scratch = Scratch::new();
        for jobs in self.jobs.chunks_mut(GROUP) {
            scratch.run(token, self.seal, jobs);
        }
    }
}

/// Seals or opens the first part of a message, which has additional data of a block at most.
pub(super) struct FirstPart<'s, 'j> {
    pub(super) seal: bool,
    pub(super) job: ChaChaJob<'j>,
    pub(super) state: &'s mut ChaChaState,
}

impl<W: Field> Task<W> for FirstPart<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self, w: W) {
        message::first(w, self.seal, &mut self.job, self.state);
    }
}

/// Seals or opens another part of a message, from the beginning of a block of keystream on.
pub(super) struct NextPart<'s> {
    pub(super) seal: bool,
    pub(super) key: &'s ChaChaKey,
    pub(super) nonce: &'s [u8; 16],
    /// The number of the block.
    pub(super) block: u32,
    /// At least [`MIN_PART`](crate::pass::chacha_parts::MIN_PART) bytes.
    pub(super) data: &'s mut [u8],
    pub(super) state: &'s mut ChaChaState,
}

impl<W: Field> Task<W> for NextPart<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, w: W) {
        message::next(w, self);
    }
}

/// Computes keystream, from a block on.
pub(super) struct Keystream<'s> {
    pub(super) key: &'s ChaChaKey,
    pub(super) nonce: &'s [u8; 16],
    /// The number of the block.
    pub(super) block: u32,
    pub(super) pads: &'s mut [[u8; BLOCK]; MAX_LANES],
}

impl<W: Field> Task<W> for Keystream<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, w: W) {
        let mut start = rounds::start_alone(w, self.key, self.nonce, self.block);
        for pads in self.pads.chunks_exact_mut(W::LANES) {
            message::fill(w, &start, pads, &mut message::Idle);
            start[12] = w.add32(start[12], w.splat(W::LANES as i32));
        }
    }
}

/// What is secret and does not fit registers.
struct Scratch {
    /// The first block of each packet's keystream, whose front is the key of its MAC.
    keys: [Pad; GROUP],
    tags: Tags,
    /// Keystream of which only the front is wanted, or nothing.
    pads: [[u8; BLOCK]; MAX_LANES],
    /// Hashes on their way from lanes to general registers.
    limbs: [Longs; 5],
    chains: [Chain; 2],
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // In stores as wide as there are: byte by byte, keystream alone would take a thousand cycles.
        wipe(&mut self.keys, Pad::default());
        wipe(&mut self.tags, 0);
        wipe(self.pads.as_flattened_mut(), 0);
        wipe(&mut self.limbs, Longs([0; 8]));
        wipe(&mut self.chains, Chain::default());
    }
}

/// Which blocks of each packet are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    MacKeys,
    Data,
}

impl Scratch {
    #[inline(always)]
    fn new() -> Self {
        Self {
            keys: [Pad([0; 64]); GROUP],
            tags: [0; GROUP],
            pads: [[0; BLOCK]; MAX_LANES],
            limbs: [Longs([0; 8]); 5],
            chains: [Chain::default(); 2],
        }
    }

    /// Seals or opens the packets of one list.
    #[inline(always)]
    fn run<W: Field>(&mut self, w: W, seal: bool, jobs: &mut [ChaChaJob<'_>]) {
        // Keystream is added to what is there.
        for key in &mut self.keys[..jobs.len()] {
            key.0 = [0; 64];
        }
        let parts: &[Part] = if seal { &[Part::All] } else { &[Part::MacKeys, Part::Data] };
        // MACs that do not fit beside the lanes' work are computed in lanes as well, after all others
        // if packets are sealed.
        let in_lanes = in_lanes::<W>(jobs);
        let end = if seal { jobs.len() - in_lanes } else { jobs.len() };
        // The MACs of packets before this one are computed or under way.
        let mut next = 0;
        for &part in parts {
            let mut place = Place::new(part);
            while place.job < jobs.len() {
                // On one side of the border lanes work, on the other MACs are computed: of packets
                // to be sealed behind the lanes, of packets to be opened before them.
                let border = match part {
                    Part::All | Part::MacKeys => place.job,
                    Part::Data => self.authentic(w, jobs, &mut next, place),
                };
                let (left, right) = jobs.split_at_mut(border);
                let (keys_left, keys_right) = self.keys.split_at_mut(border);
                let (cipher, keys, mac, mac_keys, first) = match part {
                    Part::All | Part::MacKeys => (right, keys_right, &*left, &*keys_left, 0),
                    Part::Data => (left, keys_left, &*right, &*keys_right, border),
                };
                let skip = if part == Part::Data { place.job } else { 0 };
                let packets = cipher[skip..].iter_mut().zip(&mut keys[skip..]);
                let mut blocks = Blocks::new(&mut self.pads);
                blocks.fill(w, part, &mut place, packets);
                let mac = mac.get(..end - first).unwrap_or(mac);
                let mut beside = Beside::resume(mac, mac_keys, first, next, &mut self.chains);
                blocks.pass(w, &mut beside, &mut self.tags);
                next = beside.pause();
            }
            if part != Part::Data {
                let start = if seal { end } else { next };
                let end = jobs.len().min(start + in_lanes);
                self.tags(w, jobs, start, end);
                if !seal {
                    next = end;
                }
            }
        }
        self.finish(w, &jobs[..end], next);
        for (job, tag) in jobs.iter_mut().zip(&self.tags) {
            job.tag = tag.to_le_bytes();
        }
    }

    /// Until where packets are authentic, so that lanes may overwrite their ciphertext: at least as
    /// far as fills the lanes, if there is as much.
    #[inline(always)]
    fn authentic<W: Wide>(
        &mut self,
        w: W,
        jobs: &[ChaChaJob<'_>],
        next: &mut usize,
        place: Place,
    ) -> usize {
        loop {
            let busy = self.chains.iter().filter(|chain| chain.busy).map(|chain| chain.job);
            let border = busy.fold(*next, usize::min);
            let mut wanted = W::LANES + place.block - 1;
            for job in &jobs[place.job..border] {
                if wanted == 0 {
                    break;
                }
                wanted = wanted.saturating_sub(job.data.len().div_ceil(BLOCK));
            }
            if wanted == 0 || border == jobs.len() {
                return border;
            }
            let mut beside = Beside::resume(jobs, &self.keys, 0, *next, &mut self.chains);
            beside.step(w, &mut self.tags);
            *next = beside.pause();
        }
    }

    /// Computes MACs in general registers, without lanes beside, to the end.
    #[inline(always)]
    fn finish<W: Wide>(&mut self, w: W, jobs: &[ChaChaJob<'_>], next: usize) {
        let mut beside = Beside::resume(jobs, &self.keys, 0, next, &mut self.chains);
        while !beside.is_done() {
            beside.step(w, &mut self.tags);
        }
        beside.pause();
    }

    /// Computes the MACs of these packets in lanes, as far as they fill them. Packets of like length
    /// share the lanes.
    #[inline(always)]
    fn tags<W: Field>(&mut self, w: W, jobs: &[ChaChaJob<'_>], start: usize, end: usize) {
        let width = W::LANES / 2;
        let mut order: ArrayVec<(usize, usize), GROUP> = ArrayVec::new();
        let mut sorted = true;
        for (place, job) in (start..end).zip(&jobs[start..end]) {
            if lanes::fits(job) {
                sorted &= order.last().is_none_or(|&(last, _)| last <= job.data.len());
                order.push((job.data.len(), place));
            }
        }
        if !sorted {
            order.sort_unstable();
        }
        let groups = order.chunks_exact(width);
        let left = groups.remainder().iter().map(|&(_, place)| place);
        let misfits =
            (start..end).filter(|&place| jobs.get(place).is_some_and(|job| !lanes::fits(job)));
        for place in left.chain(misfits) {
            let (Some(job), Some(key), Some(tag)) =
                (jobs.get(place), self.keys.get(place), self.tags.get_mut(place))
            else {
                continue;
            };
            let mut poly = Poly::new(&key.0);
            poly.padded(w, job.aad);
            poly.padded(w, job.data);
            poly.lengths(job.aad.len() as u64, job.data.len() as u64);
            *tag = poly.finish();
        }
        for places in groups {
            lanes::tags(w, jobs, self, places);
        }
    }
}

/// How many MACs to compute in lanes: those that do not fit beside ChaCha20.
fn in_lanes<W: Wide>(jobs: &[ChaChaJob<'_>]) -> usize {
    let width = W::LANES / 2;
    let mut room = blocks(jobs) / W::LANES * beside::STEPS;
    let mut fit = 0;
    for job in jobs {
        let Some(left) = room.checked_sub(beside::steps::<W>(job)) else { break };
        (fit, room) = (fit + 1, left);
    }
    (jobs.len() - fit).next_multiple_of(width).min(jobs.len() / width * width)
}

/// Blocks of keystream that the jobs take, those of their one-time keys among them.
// Never inlined, to be compiled without a tier's features: with AVX-512 the compiler gathers from
// eight jobs at once, which is slow on many processors.
#[inline(never)]
fn blocks(jobs: &[ChaChaJob<'_>]) -> usize {
    jobs.iter().map(|job| 1 + job.data.len().div_ceil(BLOCK)).sum()
}
