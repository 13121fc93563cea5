//! Running the messages of a burst side by side.
//!
//! Every lane takes in the whole blocks of its message, then one or two blocks of a tail: what is
//! left of the message, the trailer and the padding. A lane that has ended takes the next message,
//! the longest first. Then all outer hashes are computed: one block each.

use std::{hint::black_box, mem};

use super::words::{MAX, Rows, States};
use crate::pass::{HmacJob, TRAILER_MAX};

/// Jobs that are sorted and run together; there may be more, and then they come in turn.
const CHUNK: usize = 256;

/// Messages of at least as many blocks are not told apart when they are sorted.
const LONG: usize = 255;

/// A hash on some messages at once. `B` is the bytes of a block.
pub(super) trait Engine<const B: usize>: Copy {
    /// How many messages, at most [`MAX`].
    const LANES: usize;
    /// Whether words lie in memory with their last byte first.
    const LITTLE_ENDIAN: bool = false;
    /// Chaining values of all lanes.
    type State;

    /// Copies `from`, which is shorter than a block, and puts zeros behind it.
    fn copy_some(self, from: &[u8], to: &mut [u8; B]);
    /// Chaining values from memory.
    fn load(self, rows: &Rows<'_, 64>) -> Self::State;
    /// Takes in a block of each lane.
    fn block(self, state: &mut Self::State, rows: &Rows<'_, B>);
    /// Stores chaining values.
    fn store(self, state: Self::State, states: &mut States);
    /// Computes MACs from the chaining values of `keys` and of the inner hashes. `digest` is how many
    /// words of the last chaining value count; behind them come zeros.
    fn outer(self, digest: usize, keys: &Rows<'_, 64>, hashes: &Rows<'_, 64>, states: &mut States);
}

/// Computes the MACs.
#[inline(always)]
pub(super) fn run<E: Engine<B>, const B: usize>(
    engine: E,
    digest: usize,
    jobs: &mut [HmacJob<'_>],
) {
    let mut states = States([[0; 64]; MAX]);
    for chunk in jobs.chunks_mut(CHUNK) {
        inner::<E, B>(engine, chunk, &mut states);
        outer::<E, B>(engine, digest, chunk, &mut states);
    }
    states.0 = [[0; 64]; MAX];
    black_box(&mut states);
}

/// The order in which jobs begin: those of most blocks first.
#[inline(always)]
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
        next += mem::replace(start, next);
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
        // The length field has an eighth of a block.
        let blocks = if used + B / 8 < B { 1 } else { 2 };
        // The block of padding before the message counts, too.
        let bits = 8 * (B + bytes + trailer.len()) as u64;
        let bits = if E::LITTLE_ENDIAN { bits.to_le_bytes() } else { bits.to_be_bytes() };
        let [first, last] = &mut self.0;
        if blocks == 1 {
            engine.copy_some(rest, last);
        } else {
            engine.copy_some(rest, first);
            *last = [0; B];
        }
        let start = (2 - blocks) * B + rest.len();
        let all = self.0.as_flattened_mut();
        if let Some(place) = all.get_mut(start..) {
            match (trailer.first_chunk::<4>(), place.first_chunk_mut::<4>()) {
                (Some(word), Some(place)) if trailer.len() == 4 => *place = *word,
                _ => place.iter_mut().zip(trailer).for_each(|(to, from)| *to = *from),
            }
            if let Some(end) = place.get_mut(trailer.len()) {
                *end = 0x80;
            }
        }
        if let Some(field) = all.last_chunk_mut() {
            *field = bits;
        }
        blocks
    }
}

/// What every lane is doing.
struct Lanes<'j, const B: usize> {
    /// The job, by its number.
    job: [u8; MAX],
    /// The chaining value it starts from.
    start: Rows<'j, 64>,
    /// Whole blocks of the message yet to come.
    message: [&'j [[u8; B]]; MAX],
    tail: [Tail<B>; MAX],
    tail_blocks: [u8; MAX],
    /// Blocks left of the message, or, in the tail, of the tail; idle lanes have no end.
    left: [u32; MAX],
    /// Lanes that are in their tails.
    in_tail: u32,
    /// Lanes that have a job.
    busy: u32,
}

static ZEROS: [u8; 128] = [0; 128];

/// The lanes of a mask.
#[inline(always)]
fn each(mut mask: u32, mut visit: impl FnMut(usize)) {
    while mask != 0 {
        visit(mask.trailing_zeros() as usize % MAX);
        mask &= mask - 1;
    }
}

impl<'j, const B: usize> Lanes<'j, B> {
    #[inline(always)]
    fn begin<E: Engine<B>>(&mut self, engine: E, lane: usize, i: u8, job: &HmacJob<'j>) {
        let (blocks, rest) = job.message.as_chunks();
        let bytes = job.message.len();
        let tail = self.tail[lane].fill(engine, bytes, rest, job.trailer);
        self.job[lane] = i;
        self.start[lane] = &job.key.inner;
        self.message[lane] = blocks;
        self.tail_blocks[lane] = tail as u8;
        self.busy |= 1 << lane;
        if blocks.is_empty() {
            self.left[lane] = tail as u32;
            self.in_tail |= 1 << lane;
        } else {
            self.left[lane] = blocks.len() as u32;
            self.in_tail &= !(1 << lane);
        }
    }

    /// Takes in blocks until a lane ends; returns the lanes that have ended.
    #[inline(always)]
    fn advance<E: Engine<B>>(&mut self, engine: E, state: &mut E::State) -> u32 {
        loop {
            let lanes = self.left.iter().take(E::LANES);
            let count = lanes.fold(u32::MAX, |least, &left| least.min(left));
            let mut heads = self.message;
            each(self.in_tail, |lane| {
                heads[lane] = self.tail[lane].0.get(2 - self.left[lane] as usize..).unwrap_or(&[]);
            });
            for i in 0..count as usize {
                let mut rows = [ZEROS.first_chunk::<B>().unwrap_or(&[0; B]); MAX];
                for (row, head) in rows.iter_mut().zip(heads).take(E::LANES) {
                    *row = head.get(i).unwrap_or(row);
                }
                engine.block(state, &rows);
            }
            let mut ended = 0;
            for (lane, left) in self.left.iter_mut().enumerate().take(E::LANES) {
                *left -= count;
                ended |= u32::from(*left == 0) << lane;
            }
            each(self.busy & !self.in_tail, |lane| {
                self.message[lane] = self.message[lane].get(count as usize..).unwrap_or(&[]);
            });
            let finished = ended & self.in_tail;
            let turned = ended & !self.in_tail;
            self.in_tail |= turned;
            each(turned, |lane| self.left[lane] = u32::from(self.tail_blocks[lane]));
            if finished != 0 {
                return finished;
            }
        }
    }
}

/// Leaves the inner hashes' chaining values in the jobs' tags.
#[inline(always)]
fn inner<E: Engine<B>, const B: usize>(engine: E, jobs: &mut [HmacJob<'_>], states: &mut States) {
    let mut order = [0; CHUNK];
    sort::<B>(jobs, &mut order, E::LANES);
    let mut queue = order.iter().take(jobs.len());
    let zeros = ZEROS.first_chunk().unwrap_or(&[0; 64]);
    let mut lanes = Lanes::<B> {
        job: [0; MAX],
        start: [zeros; MAX],
        message: [&[]; MAX],
        tail: [Tail([[0; B]; 2]); MAX],
        tail_blocks: [0; MAX],
        left: [u32::MAX; MAX],
        in_tail: 0,
        busy: 0,
    };
    let all = (1 << E::LANES) - 1;
    let mut idle: u32 = all;
    loop {
        let mut fresh = 0;
        while idle & !fresh != 0 {
            let Some(&i) = queue.next() else { break };
            let Some(job) = jobs.get(usize::from(i)) else { break };
            let lane = (idle & !fresh).trailing_zeros() as usize % MAX;
            lanes.begin(engine, lane, i, job);
            fresh |= 1 << lane;
        }
        if lanes.busy == 0 {
            return;
        }
        let mut rows = lanes.start;
        if fresh != all {
            each(all & !fresh, |lane| rows[lane] = &states.0[lane]);
        }
        let mut state = engine.load(&rows);
        idle = lanes.advance(engine, &mut state);
        engine.store(state, states);
        each(idle, |lane| {
            if let Some(job) = jobs.get_mut(usize::from(lanes.job[lane])) {
                job.tag = states.0[lane];
            }
            lanes.left[lane] = u32::MAX;
            lanes.message[lane] = &[];
        });
        lanes.busy &= !idle;
        lanes.in_tail &= !idle;
    }
}

/// Turns the inner hashes in the tags into MACs.
#[inline(always)]
fn outer<E: Engine<B>, const B: usize>(
    engine: E,
    digest: usize,
    jobs: &mut [HmacJob<'_>],
    states: &mut States,
) {
    let zeros = ZEROS.first_chunk().unwrap_or(&[0; 64]);
    for group in jobs.chunks_mut(E::LANES) {
        let mut keys: Rows<'_, 64> = [zeros; MAX];
        let mut hashes: Rows<'_, 64> = [zeros; MAX];
        for ((key, hash), job) in keys.iter_mut().zip(&mut hashes).zip(&*group) {
            (*key, *hash) = (&job.key.outer, &job.tag);
        }
        engine.outer(digest, &keys, &hashes, states);
        for (job, state) in group.iter_mut().zip(&states.0) {
            job.tag = *state;
        }
    }
}
