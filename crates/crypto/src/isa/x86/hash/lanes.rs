//! Running the messages of a burst side by side.
//!
//! Every lane takes in the whole blocks of its message, then one or two blocks of a tail: what is
//! left of the message, the trailer and the padding. A lane that has ended takes the next message,
//! the longest first, and its inner hash waits until there is one for every lane; then their outer
//! hashes are computed, of one block each. Lanes that end together do not wait: their hashes stay in
//! the registers.

// Indices name lanes here, in several arrays at once.
#![allow(clippy::needless_range_loop)]

use std::{hint::black_box, marker::PhantomData, ptr};

use super::words::{MAX, Rows, States};
use crate::{
    block::HmacKey,
    isa::job::{HmacJob, TRAILER_MAX},
    pairs::PairedWith,
};

/// Jobs that are sorted and run together; there may be more, and then they come in turn.
const CHUNK: usize = 256;

/// Messages of at least as many blocks are not told apart when they are sorted.
const LONG: usize = 255;

/// A hash on some messages at once. `B` is the bytes of a block.
pub(super) trait Engine<const B: usize>: Copy {
    /// True if words lie in memory with their last byte first.
    const LITTLE_ENDIAN: bool = false;
    /// Chaining values of all lanes.
    type State: Copy;
    /// A block of each lane.
    type Words: Copy;

    /// Copies `from`, which is shorter than a block. Behind it come a set bit, if it is to be padded,
    /// and zeros. The last eight bytes are replaced by `bits`.
    fn copy_some(self, from: &[u8], pad: bool, bits: Option<u64>, to: &mut [u8; B]);
    /// Chaining values from memory.
    fn load(self, rows: &Rows<'_, 64>) -> Self::State;
    /// The same chaining value in each lane.
    fn repeat(self, row: &[u8; 64]) -> Self::State;
    /// A block of each lane from memory.
    fn words(self, rows: &Rows<'_, B>) -> Self::Words;
    /// The block of the outer hash that holds inner hashes, of which `digest` words count.
    fn digest(self, digest: usize, hashes: Self::State) -> Self::Words;
    /// Takes in a block of each lane.
    fn rounds(self, state: &mut Self::State, words: Self::Words);
    /// Sets chaining values aside.
    fn park(self, state: Self::State, parked: &mut Parked);
    /// Takes them up again.
    fn resume(self, parked: &Parked) -> Self::State;
    /// Replaces the chaining value of a lane by one from memory.
    fn put(self, parked: &mut Parked, lane: usize, row: &[u8; 64]);
    /// Copies the chaining value of one lane to another lane.
    fn hand(self, from: &Parked, lane: usize, to: &mut Parked, to_lane: usize);
    /// Stores the MACs that outer hashes have come to: `digest` words, and zeros behind them.
    fn macs(self, digest: usize, state: Self::State, macs: &mut States);
}

/// Chaining values of all lanes, set aside as the engine likes them.
#[repr(C, align(64))]
pub(super) struct Parked(pub(super) [[u8; 64]; 8]);

impl Parked {
    pub(super) const EMPTY: Self = Self([[0; 64]; 8]);
}

/// Everything that holds parts of messages or chaining values, for an engine of `L` lanes.
#[repr(C, align(64))]
pub(super) struct Scratch<const B: usize, const L: usize> {
    tails: [Tail<B>; L],
    /// Inner hashes under way.
    current: Parked,
    /// Inner hashes that wait for their outer ones.
    waiting: Parked,
    macs: States,
}

impl<const B: usize, const L: usize> Scratch<B, L> {
    const EMPTY: Self = Self {
        tails: [Tail([[0; B]; 2]); L],
        current: Parked::EMPTY,
        waiting: Parked::EMPTY,
        macs: States([[0; 64]; MAX]),
    };

    /// Does something with it, and wipes it. Called outside doors, so that their frames stay small.
    #[inline(always)]
    pub(super) fn with(f: impl FnOnce(&mut Self)) {
        let mut scratch = Self::EMPTY;
        f(&mut scratch);
        scratch = Self::EMPTY;
        black_box(&mut scratch);
    }
}

/// Computes the MACs in an engine of `L` lanes, at most [`MAX`].
#[inline(always)]
pub(super) fn run<E: Engine<B>, const B: usize, const L: usize>(
    engine: E,
    digest: usize,
    jobs: &mut [HmacJob<'_>],
    scratch: &mut Scratch<B, L>,
) {
    for chunk in jobs.chunks_mut(CHUNK) {
        run_chunk(engine, digest, chunk, scratch);
    }
}

/// The order in which jobs begin: those of most blocks first.
// Never inlined, to be compiled without a tier's features: with AVX-512 the compiler gathers from
// eight jobs at once, which is slow on many processors.
#[inline(never)]
fn sort<const B: usize>(jobs: &[HmacJob<'_>], order: &mut [u8; CHUNK], lanes: usize) {
    order.iter_mut().enumerate().for_each(|(i, place)| *place = i as u8);
    if jobs.len() <= lanes {
        return;
    }
    let mut blocks = [0u8; CHUNK];
    let (mut least, mut most) = (LONG as u8, 0);
    for (count, job) in blocks.iter_mut().zip(jobs) {
        let bytes = job.message.len() + job.trailer.len() + B / 8;
        *count = (bytes / B).min(LONG) as u8;
        (least, most) = (least.min(*count), most.max(*count));
    }
    if least == most {
        return;
    }
    let mut starts = [0u16; LONG + 1];
    for (&count, _) in blocks.iter().zip(jobs) {
        starts[usize::from(count)] += 1;
    }
    let mut next = 0;
    for start in starts[usize::from(least)..=usize::from(most)].iter_mut().rev() {
        next += std::mem::replace(start, next);
    }
    for (i, &count) in blocks.iter().enumerate().take(jobs.len()) {
        let start = &mut starts[usize::from(count)];
        order[usize::from(*start) % CHUNK] = i as u8;
        *start += 1;
    }
}

/// The last blocks of a lane's message: two, of which the first may be unused.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Tail<const B: usize>([[u8; B]; 2]);

impl<const B: usize> Tail<B> {
    /// Makes the tail of a message whose last bytes are `rest`; returns how many blocks it has.
    #[inline(always)]
    fn fill<E: Engine<B>>(
        &mut self,
        engine: E,
        bytes: usize,
        rest: &[u8],
        trailer: &[u8],
    ) -> usize {
        let trailer = trailer.get(..TRAILER_MAX).unwrap_or(trailer);
        let used = rest.len() + trailer.len();
        // The block of padding before the message counts, too.
        let bits = 8 * (B + bytes + trailer.len()) as u64;
        let bits = if E::LITTLE_ENDIAN { bits } else { bits.swap_bytes() };
        let pad = trailer.is_empty();
        let [first, last] = &mut self.0;
        // The length field has an eighth of a block.
        let alone = used + B / 8 < B;
        let (to, blocks) = if alone {
            (last, 1)
        } else {
            engine.copy_some(&[], false, Some(bits), last);
            (first, 2)
        };
        engine.copy_some(rest, pad, alone.then_some(bits), to);
        if !trailer.is_empty() {
            let start = (2 - blocks) * B + rest.len();
            let place = self.0.get_mut(start / B).and_then(|block| block.get_mut(start % B..));
            match (trailer.first_chunk::<4>(), place.and_then(|place| place.first_chunk_mut::<4>()))
            {
                (Some(word), Some(place)) if trailer.len() == 4 => *place = *word,
                _ => {
                    for (i, byte) in trailer.iter().enumerate() {
                        self.set(start + i, *byte);
                    }
                }
            }
            self.set(start + trailer.len(), 0x80);
        }
        blocks
    }

    #[inline(always)]
    fn set(&mut self, at: usize, byte: u8) {
        if let Some(block) = self.0.get_mut(at / B) {
            block[at % B] = byte;
        }
    }
}

/// State of every lane. Time counts the blocks that all lanes have taken in.
struct Lanes<'j, const B: usize, const L: usize> {
    /// The job, by its number.
    job: [u8; L],
    /// Address that the message's block of time zero would have.
    message: [*const [u8; B]; L],
    /// Time at which the tail comes.
    turn: [usize; L],
    /// Address that the tail's block of time zero would have.
    tail: [*const [u8; B]; L],
    /// Time at which the job ends; idle lanes have no end.
    until: [usize; L],
    messages: PhantomData<&'j [u8]>,
}

/// The time that never comes: messages are in memory, so there are far fewer blocks.
const NEVER: usize = usize::MAX;

static ZEROS: [u8; 128] = [0; 128];

/// The lanes of a mask, of which there are `L`. (No closures: they cannot be told to be inlined.)
struct Each<const L: usize>(u32);

impl<const L: usize> Iterator for Each<L> {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let lane = self.0.trailing_zeros() as usize % L;
        let more = self.0 != 0;
        self.0 &= self.0.wrapping_sub(1);
        more.then_some(lane)
    }
}

impl<'j, const B: usize, const L: usize> Lanes<'j, B, L> {
    /// Gives a lane its next job.
    #[inline(always)]
    fn begin<E: Engine<B>>(
        &mut self,
        engine: E,
        lane: usize,
        now: usize,
        i: u8,
        job: &HmacJob<'j>,
        tail: &mut Tail<B>,
    ) {
        let (blocks, rest) = job.message.as_chunks();
        let tail_blocks = tail.fill(engine, job.message.len(), rest, job.trailer);
        let turn = now.wrapping_add(blocks.len());
        self.job[lane] = i;
        self.message[lane] = blocks.as_ptr().wrapping_sub(now);
        self.turn[lane] = turn;
        self.tail[lane] = tail.0.as_ptr().wrapping_add(2 - tail_blocks).wrapping_sub(turn);
        self.until[lane] = turn.wrapping_add(tail_blocks);
    }

    /// Lets idle lanes read what some busy lane reads.
    #[inline(always)]
    fn idle_along(&mut self, busy: u32) {
        let leader = busy.trailing_zeros() as usize % L;
        for lane in Each::<L>(!busy & ((1 << L) - 1)) {
            self.message[lane] = self.message[leader];
            self.turn[lane] = self.turn[leader];
            self.tail[lane] = self.tail[leader];
        }
    }

    /// Time at which the next lane ends.
    #[inline(always)]
    fn end(&self) -> usize {
        self.until.iter().fold(NEVER, |least, &until| least.min(until))
    }

    /// Addresses of lanes' blocks, at time zero, and the time until which they hold, at most `end`. `mixed` is room
    /// for lanes of which some have turned to their tails.
    #[inline(always)]
    fn heads<'h>(
        &'h self,
        now: usize,
        end: usize,
        mixed: &'h mut [*const [u8; B]; L],
    ) -> (&'h [*const [u8; B]; L], usize) {
        let first = self.turn.iter().fold(NEVER, |first, &turn| first.min(turn));
        let last = self.turn.iter().fold(0, |last, &turn| last.max(turn));
        if now >= last {
            return (&self.tail, end);
        }
        if now < first {
            return (&self.message, first.min(end));
        }
        let mut until = end;
        for lane in 0..L {
            let turned = now >= self.turn[lane];
            mixed[lane] = if turned { self.tail[lane] } else { self.message[lane] };
            until = if turned { until } else { until.min(self.turn[lane]) };
        }
        (mixed, until)
    }

    /// The lanes that end at this time.
    #[inline(always)]
    fn ended(&self, now: usize) -> u32 {
        let bits = self.until.iter().enumerate();
        bits.fold(0, |ended, (lane, &until)| ended | u32::from(until == now) << lane)
    }
}

/// The key of all jobs, if they have the same one.
#[inline(always)]
fn shared_key<'j>(jobs: &[HmacJob<'j>]) -> Option<&'j HmacKey> {
    let first = jobs.first()?.key;
    jobs.iter().all(|job| ptr::eq(job.key, first)).then_some(first)
}

#[inline(always)]
fn run_chunk<E: Engine<B>, const B: usize, const L: usize>(
    engine: E,
    digest: usize,
    jobs: &mut [HmacJob<'_>],
    scratch: &mut Scratch<B, L>,
) {
    let Scratch { tails, current, waiting, macs } = scratch;
    let all: u32 = (1 << L) - 1;
    let zeros = ZEROS.first_chunk().unwrap_or(&[0; 64]);
    let mut order = [0; CHUNK];
    sort::<B>(jobs, &mut order, L);
    let mut queue = order.iter().take(jobs.len());
    let shared = shared_key(jobs);
    let mut lanes = Lanes::<B, L> {
        job: [0; L],
        message: [ptr::null(); L],
        turn: [0; L],
        tail: [ptr::null(); L],
        until: [NEVER; L],
        messages: PhantomData,
    };
    let (mut now, mut busy, mut ended): (usize, u32, u32) = (0, 0, 0);
    // Jobs that wait for their outer hashes, and how many they are.
    let (mut done, mut waiters) = ([0; L], 0);
    let mut state = engine.load(&[zeros; MAX]);
    loop {
        // The turn is that of outer hashes if there are enough of them, or if nothing else is left.
        let hashes = if ended == all && waiters == 0 {
            (done, waiters, ended) = (lanes.job, L, 0);
            state
        } else {
            for lane in Each::<L>(ended).take(L - waiters) {
                engine.hand(current, lane, waiting, waiters);
                done[waiters] = lanes.job[lane];
                (ended, waiters) = (ended & (ended - 1), waiters + 1);
            }
            engine.resume(waiting)
        };
        let left = busy != 0 || queue.len() != 0;
        let outer = waiters == L || (waiters != 0 && !left);
        let mut end = now;
        let mut rows = [zeros; MAX];
        if outer {
            state = outer_states(engine, shared, jobs, done.iter().take(waiters));
        } else if left {
            let mut fresh = 0;
            for lane in Each::<L>(all & !busy) {
                let Some(&i) = queue.next() else { break };
                let Some(job) = jobs.get(usize::from(i)) else { break };
                lanes.begin(engine, lane, now, i, job, &mut tails[lane]);
                rows[lane] = &job.key.inner;
                fresh |= 1 << lane;
            }
            busy |= fresh;
            state = if fresh != busy {
                for lane in Each::<L>(fresh) {
                    engine.put(current, lane, rows[lane]);
                }
                engine.resume(current)
            } else if let Some(key) = shared {
                engine.repeat(&key.inner)
            } else {
                engine.load(&rows)
            };
            if busy != all {
                lanes.idle_along(busy);
            }
            end = lanes.end();
        } else {
            return;
        }

        // One loop for both kinds of blocks, so that the rounds are there only once.
        let mut mixed = [ptr::null(); L];
        let (mut at, mut until) = (&lanes.message, now);
        loop {
            let words = if outer {
                engine.digest(digest, hashes)
            } else {
                if now == until {
                    (at, until) = lanes.heads(now, end, &mut mixed);
                }
                let mut rows = [ZEROS.first_chunk::<B>().unwrap_or(&[0; B]); MAX];
                for lane in 0..L {
                    let at = at[lane].wrapping_add(now);
                    // SAFETY: busy lanes have blocks of the message until the turn, then of the tail
                    // until they end, which none does earlier; idle ones point to where a busy one
                    // does.
                    rows[lane] = unsafe { &*at };
                }
                now += 1;
                engine.words(&rows)
            };
            engine.rounds(&mut state, words);
            if now >= end {
                break;
            }
        }

        if outer {
            engine.macs(digest, state, macs);
            hand_out(macs, jobs, done.iter().take(waiters));
            waiters = 0;
        } else {
            ended = lanes.ended(now) & busy;
            busy &= !ended;
            if ended != all || waiters != 0 {
                engine.park(state, current);
            }
            for lane in Each::<L>(ended) {
                lanes.until[lane] = NEVER;
            }
        }
    }
}

/// The chaining values with which the outer hashes of these jobs begin.
#[inline(always)]
fn outer_states<'i, E: Engine<B>, const B: usize>(
    engine: E,
    shared: Option<&HmacKey>,
    jobs: &[HmacJob<'_>],
    numbers: impl Iterator<Item = &'i u8>,
) -> E::State {
    if let Some(key) = shared {
        return engine.repeat(&key.outer);
    }
    let mut rows = [ZEROS.first_chunk().unwrap_or(&[0; 64]); MAX];
    for (row, &i) in rows.iter_mut().paired_with(numbers) {
        if let Some(job) = jobs.get(usize::from(i)) {
            *row = &job.key.outer;
        }
    }
    engine.load(&rows)
}

/// Gives these jobs their MACs.
#[inline(always)]
fn hand_out<'i>(macs: &States, jobs: &mut [HmacJob<'_>], numbers: impl Iterator<Item = &'i u8>) {
    for (mac, &i) in macs.0.iter().paired_with(numbers) {
        if let Some(job) = jobs.get_mut(usize::from(i)) {
            job.tag = *mac;
        }
    }
}
