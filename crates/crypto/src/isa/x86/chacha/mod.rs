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
//! A message that is alone, whole or in parts, fills the lanes with its own blocks (`message`). So does a long
//! one in a burst, where registers have 256 bits.

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

mod beside;
mod lanes;
mod limbs;
mod message;
mod poly;
mod rounds;
mod scratch;
#[cfg(test)]
mod tests;
mod wide;

pub(super) use self::message::NextPart;
use self::{
    beside::{Beside, GROUP},
    limbs::Field,
    poly::Poly,
    rounds::{Blocks, Part, Place},
    scratch::Scratch,
    wide::{BLOCK, MAX_LANES, Wide},
};
use super::token::{Door, Task};
use crate::{block::ChaChaKey, isa::job::ChaChaJob, pairs::PairedWith};

/// Seals or opens a burst.
pub(super) fn burst<W: Field + Door>(w: W, seal: bool, jobs: &mut [ChaChaJob<'_>]) {
    if let [job] = jobs
        && message::fits::<W>(job)
    {
        alone(w, seal, job);
        return;
    }
    let mut scratch = Scratch::new();
    let mut rest = jobs;
    while !rest.is_empty() {
        let short = rest.iter().position(message::fills_lanes::<W>).unwrap_or(rest.len());
        if let Some(list) = rest.split_off_mut(..short.min(GROUP)).filter(|list| !list.is_empty()) {
            scratch.run(w, seal, list);
        } else if let Some(job) = rest.split_off_first_mut() {
            alone(w, seal, job);
        }
    }
}

/// Seals or opens a message by itself.
#[inline(always)]
fn alone<W: Field + Door>(w: W, seal: bool, job: &mut ChaChaJob<'_>) {
    let (mut mac, tail) = w.enter(FirstPart { seal, job });
    if !job.data.len().is_multiple_of(16) {
        mac.block(tail);
    }
    mac.lengths(job.aad.len() as u64, job.data.len() as u64);
    job.tag = mac.finish().to_le_bytes();
}

/// Seals or opens the first part of a message, which has additional data of a block at most, or all of a short
/// one. Yields the MAC of all whole blocks, and what is left of the text.
pub(super) struct FirstPart<'s, 'j> {
    pub(super) seal: bool,
    pub(super) job: &'s mut ChaChaJob<'j>,
}

impl<W: Field> Task<W> for FirstPart<'_, '_> {
    type Output = (Poly, u128);

    #[inline(always)]
    fn run(self, w: W) -> (Poly, u128) {
        message::begin(w, self.seal, self.job)
    }
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

impl Scratch {
    /// Seals or opens the packets of one list.
    fn run<W: Field + Door>(&mut self, w: W, seal: bool, jobs: &mut [ChaChaJob<'_>]) {
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
                    Part::Data => {
                        let (scratch, next) = (&mut *self, &mut next);
                        w.enter(Authentic { scratch, jobs, next, place })
                    }
                };
                let (scratch, place) = (&mut *self, &mut place);
                next = w.enter(Pass { scratch, jobs, part, place, border, end, next });
            }
            if part != Part::Data {
                let start = if seal { end } else { next };
                let end = jobs.len().min(start + in_lanes);
                w.enter(InLanes { scratch: self, jobs, start, end });
                if !seal {
                    next = end;
                }
            }
        }
        w.enter(Finish { scratch: self, jobs: &jobs[..end], next });
        for (job, tag) in jobs.iter_mut().zip(&self.tags) {
            job.tag = tag.to_le_bytes();
        }
    }
}

/// A pass of the lanes, with MACs beside it. Yields the next packet whose MAC is not under way.
struct Pass<'s, 'p, 'j> {
    scratch: &'s mut Scratch,
    jobs: &'p mut [ChaChaJob<'j>],
    part: Part,
    place: &'s mut Place,
    /// See [`Scratch::run`].
    border: usize,
    /// The packets whose MACs are computed beside the lanes.
    end: usize,
    next: usize,
}

impl<W: Wide> Task<W> for Pass<'_, '_, '_> {
    type Output = usize;

    #[inline(always)]
    fn run(self, w: W) -> usize {
        let Self { scratch, jobs, part, place, border, end, next } = self;
        let (left, right) = jobs.split_at_mut(border);
        let (keys_left, keys_right) = scratch.keys.split_at_mut(border);
        let (cipher, keys, mac, mac_keys, first) = match part {
            Part::All | Part::MacKeys => (right, keys_right, &*left, &*keys_left, 0),
            Part::Data => (left, keys_left, &*right, &*keys_right, border),
        };
        let skip = if part == Part::Data { place.job } else { 0 };
        let packets = cipher[skip..].iter_mut().paired_with(&mut keys[skip..]);
        let mut blocks = Blocks::new(&mut scratch.pads);
        blocks.fill(w, part, place, packets);
        let mac = mac.get(..end - first).unwrap_or(mac);
        let mut beside = Beside::resume(mac, mac_keys, first, next, &mut scratch.chains);
        blocks.pass(w, &mut beside, &mut scratch.tags);
        beside.pause()
    }
}

/// Computes MACs in general registers until packets are authentic, so that lanes may overwrite their
/// ciphertext: at least as far as fills the lanes, if there is as much. Yields until where they are.
struct Authentic<'s, 'p, 'j> {
    scratch: &'s mut Scratch,
    jobs: &'p [ChaChaJob<'j>],
    next: &'s mut usize,
    place: Place,
}

impl<W: Wide> Task<W> for Authentic<'_, '_, '_> {
    type Output = usize;

    #[inline(always)]
    fn run(self, w: W) -> usize {
        let Self { scratch, jobs, next, place } = self;
        loop {
            let mut border = *next;
            for chain in &scratch.chains {
                if chain.busy {
                    border = border.min(chain.job);
                }
            }
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
            let mut beside = Beside::resume(jobs, &scratch.keys, 0, *next, &mut scratch.chains);
            beside.step(w, &mut scratch.tags);
            *next = beside.pause();
        }
    }
}

/// Computes MACs in general registers, without lanes beside, to the end.
struct Finish<'s, 'p, 'j> {
    scratch: &'s mut Scratch,
    jobs: &'p [ChaChaJob<'j>],
    next: usize,
}

impl<W: Wide> Task<W> for Finish<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, w: W) {
        let Scratch { keys, tags, chains, .. } = self.scratch;
        let mut beside = Beside::resume(self.jobs, keys, 0, self.next, chains);
        while !beside.is_done() {
            beside.step(w, tags);
        }
        beside.pause();
    }
}

/// Computes the MACs of the packets from `start` to `end` in lanes, as far as they fill them. Packets of like
/// length share the lanes.
struct InLanes<'s, 'p, 'j> {
    scratch: &'s mut Scratch,
    jobs: &'p [ChaChaJob<'j>],
    start: usize,
    end: usize,
}

impl<W: Field> Task<W> for InLanes<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, w: W) {
        let Self { scratch, jobs, start, end } = self;
        let width = W::LANES / 2;
        let order = ByLength::of(jobs, start, end);
        let groups = order.places().chunks_exact(width);
        let left = groups.remainder();
        // Those that are left, and then those that lanes cannot do.
        for number in 0..left.len() + (end - start) {
            let of_left = left.get(number);
            let place = match of_left {
                Some(&(_, place)) => place,
                None => start + number - left.len(),
            };
            let (Some(job), Some(key), Some(tag)) =
                (jobs.get(place), scratch.keys.get(place), scratch.tags.get_mut(place))
            else {
                continue;
            };
            if of_left.is_none() && lanes::fits(job) {
                continue;
            }
            let mut poly = Poly::new(&key.0);
            poly.padded(w, job.aad);
            poly.padded(w, job.data);
            poly.lengths(job.aad.len() as u64, job.data.len() as u64);
            *tag = poly.finish();
        }
        for places in groups {
            lanes::tags(w, jobs, scratch, places);
        }
    }
}

/// Packets whose MACs can be computed in lanes, the shortest first: bytes of data, and the place in the list.
struct ByLength {
    places: [(usize, usize); GROUP],
    packets: usize,
}

impl ByLength {
    /// Sorts the packets from `start` to `end` whose MACs can be computed in lanes.
    // Never inlined: it is there once for all tiers.
    #[inline(never)]
    fn of(jobs: &[ChaChaJob<'_>], start: usize, end: usize) -> Self {
        let mut order = Self { places: [(0, 0); GROUP], packets: 0 };
        for (place, job) in (start..end).zip(&jobs[start..end]) {
            if lanes::fits(job)
                && let Some(free) = order.places.get_mut(order.packets)
            {
                *free = (job.data.len(), place);
                order.packets += 1;
            }
        }
        let places = &mut order.places[..order.packets];
        if !places.is_sorted() {
            places.sort_unstable();
        }
        order
    }

    #[inline(always)]
    fn places(&self) -> &[(usize, usize)] {
        self.places.get(..self.packets).unwrap_or_default()
    }
}

/// Number of MACs to compute in lanes: those that do not fit beside ChaCha20.
#[inline(never)]
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
