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

/// Computes the MACs in an engine of `L` lanes, at most [`MAX`].
#[inline(always)]
pub(super) fn run<E: Engine<B>, const B: usize, const L: usize>(
    engine: E,
    digest: usize,
    jobs: &mut [HmacJob<'_>],
) {
    let mut states = States([[0; 64]; MAX]);
    for chunk in jobs.chunks_mut(CHUNK) {
        inner::<E, B, L>(engine, chunk, &mut states);
        outer::<E, B, L>(engine, digest, chunk, &mut states);
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
struct Lanes<'j, const B: usize, const L: usize> {
    /// The job, by its number.
    job: [u8; L],
    /// The chaining value it starts from.
    start: [&'j [u8; 64]; L],
    /// Whole blocks of the message yet to come.
    message: [&'j [[u8; B]]; L],
    tail: [Tail<B>; L],
    tail_blocks: [u8; L],
    /// Blocks left of the message, or, in the tail, of the tail; idle lanes have no end.
    left: [u32; L],
    /// Lanes that are in their tails.
    in_tail: u32,
    /// Lanes that have a job.
    busy: u32,
}

static ZEROS: [u8; 128] = [0; 128];

/// The lanes of a mask.
#[inline(always)]
fn each<const L: usize>(mut mask: u32, mut visit: impl FnMut(usize)) {
    while mask != 0 {
        visit(mask.trailing_zeros() as usize % L);
        mask &= mask - 1;
    }
}

impl<'j, const B: usize, const L: usize> Lanes<'j, B, L> {
    /// Gives a lane its next job; returns how many blocks its message and its tail have.
    #[inline(always)]
    fn begin<E: Engine<B>>(
        &mut self,
        engine: E,
        lane: usize,
        i: u8,
        job: &HmacJob<'j>,
    ) -> (usize, usize) {
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
        (blocks.len(), tail)
    }

    /// Takes in blocks until a lane ends; returns the lanes that have ended. If all lanes begin and
    /// end `together`, that is how many blocks their messages and their tails have.
    #[inline(always)]
    fn advance<E: Engine<B>>(
        &mut self,
        engine: E,
        state: &mut E::State,
        together: Option<(usize, usize)>,
    ) -> u32 {
        let mut turned = false;
        loop {
            let mut heads = self.message;
            let count = match together {
                Some((blocks, _)) if !turned => blocks,
                Some((_, blocks)) => {
                    for (head, tail) in heads.iter_mut().zip(&self.tail) {
                        *head = tail.0.get(2 - blocks..).unwrap_or(&[]);
                    }
                    blocks
                }
                None => {
                    each::<L>(self.in_tail, |lane| {
                        let unused = 2 - self.left[lane] as usize;
                        heads[lane] = self.tail[lane].0.get(unused..).unwrap_or(&[]);
                    });
                    self.left.iter().fold(u32::MAX, |least, &left| least.min(left)) as usize
                }
            };
            for i in 0..count {
                let mut rows = [ZEROS.first_chunk::<B>().unwrap_or(&[0; B]); MAX];
                for (row, head) in rows.iter_mut().zip(heads) {
                    *row = head.get(i).unwrap_or(row);
                }
                engine.block(state, &rows);
            }
            if together.is_none() {
                let finished = self.account(count);
                if finished != 0 {
                    return finished;
                }
            } else if mem::replace(&mut turned, true) {
                return self.busy;
            }
        }
    }

    /// Notes that every lane has taken in `count` blocks; returns those that have ended.
    #[inline(always)]
    fn account(&mut self, count: usize) -> u32 {
        let mut ended = 0;
        for (lane, left) in self.left.iter_mut().enumerate() {
            *left -= count as u32;
            ended |= u32::from(*left == 0) << lane;
        }
        each::<L>(self.busy & !self.in_tail, |lane| {
            self.message[lane] = self.message[lane].get(count..).unwrap_or(&[]);
        });
        let finished = ended & self.in_tail;
        let turned = ended & !self.in_tail;
        self.in_tail |= turned;
        each::<L>(turned, |lane| self.left[lane] = u32::from(self.tail_blocks[lane]));
        finished
    }
}

/// Leaves the inner hashes' chaining values in the jobs' tags.
#[inline(always)]
fn inner<E: Engine<B>, const B: usize, const L: usize>(
    engine: E,
    jobs: &mut [HmacJob<'_>],
    states: &mut States,
) {
    let mut order = [0; CHUNK];
    sort::<B>(jobs, &mut order, L);
    let mut queue = order.iter().take(jobs.len());
    let zeros = ZEROS.first_chunk().unwrap_or(&[0; 64]);
    let mut lanes = Lanes::<B, L> {
        job: [0; L],
        start: [zeros; L],
        message: [&[]; L],
        tail: [Tail([[0; B]; 2]); L],
        tail_blocks: [0; L],
        left: [u32::MAX; L],
        in_tail: 0,
        busy: 0,
    };
    let mut idle: u32 = (1 << L) - 1;
    loop {
        let mut fresh = 0;
        let (mut blocks, mut alike) = ((0, 0), true);
        while idle & !fresh != 0 {
            let Some(&i) = queue.next() else { break };
            let Some(job) = jobs.get(usize::from(i)) else { break };
            let lane = (idle & !fresh).trailing_zeros() as usize % L;
            let new = lanes.begin(engine, lane, i, job);
            alike &= fresh == 0 || new == blocks;
            blocks = new;
            fresh |= 1 << lane;
        }
        if lanes.busy == 0 {
            return;
        }
        let together = (alike && fresh == lanes.busy).then_some(blocks);
        let mut rows: Rows<'_, 64> = [zeros; MAX];
        for (row, start) in rows.iter_mut().zip(lanes.start) {
            *row = start;
        }
        each::<L>(lanes.busy & !fresh, |lane| rows[lane] = &states.0[lane]);
        let mut state = engine.load(&rows);
        idle = lanes.advance(engine, &mut state, together);
        engine.store(state, states);
        each::<L>(idle, |lane| {
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
fn outer<E: Engine<B>, const B: usize, const L: usize>(
    engine: E,
    digest: usize,
    jobs: &mut [HmacJob<'_>],
    states: &mut States,
) {
    let zeros = ZEROS.first_chunk().unwrap_or(&[0; 64]);
    for group in jobs.chunks_mut(L) {
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
