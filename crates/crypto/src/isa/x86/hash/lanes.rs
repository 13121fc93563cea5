//! Running the messages of a burst side by side.
//!
//! Every lane takes in the whole blocks of its message, then one or two blocks of a tail: what is
//! left of the message, the trailer and the padding. A lane that has ended takes the next message,
//! the longest first. Then all outer hashes are computed: one block each.

use std::{hint::black_box, marker::PhantomData, mem};

use super::{
    rounds::{Hash, Message, State},
    words::{MAX, Rows, States, Words},
};
use crate::pass::{HmacJob, TRAILER_MAX};

/// Jobs that are sorted and run together; there may be more, and then they come in turn.
const CHUNK: usize = 256;

/// Messages of at least as many blocks are not told apart when they are sorted.
const LONG: usize = 255;

/// Computes the MACs. `digest` is how many words of the last chaining value count, `B` the bytes of
/// a block.
#[inline(always)]
pub(super) fn run<W: Words, H: Hash<W>, const B: usize>(
    w: W,
    digest: usize,
    jobs: &mut [HmacJob<'_>],
) {
    let mut states = States([[0; 64]; MAX]);
    for chunk in jobs.chunks_mut(CHUNK) {
        inner::<W, H, B>(w, chunk, &mut states);
        outer::<W, H, B>(w, digest, chunk, &mut states);
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
    fn fill<W: Words>(
        &mut self,
        w: W,
        little_endian: bool,
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
        let bits = if little_endian { bits.to_le_bytes() } else { bits.to_be_bytes() };
        let [first, last] = &mut self.0;
        if blocks == 1 {
            w.copy_some(rest, last);
        } else {
            w.copy_some(rest, first);
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
    fn begin<W: Words>(
        &mut self,
        w: W,
        little_endian: bool,
        lane: usize,
        i: u8,
        job: &HmacJob<'j>,
    ) {
        let (blocks, rest) = job.message.as_chunks();
        let bytes = job.message.len();
        let tail = self.tail[lane].fill(w, little_endian, bytes, rest, job.trailer);
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
    fn advance<W: Words, H: Hash<W>>(&mut self, w: W, state: &mut State<W>) -> u32 {
        loop {
            let count = self.left.iter().fold(u32::MAX, |least, &left| least.min(left));
            let mut heads = self.message;
            each(self.in_tail, |lane| {
                heads[lane] = self.tail[lane].0.get(2 - self.left[lane] as usize..).unwrap_or(&[]);
            });
            for i in 0..count as usize {
                let mut rows = [ZEROS.first_chunk::<B>().unwrap_or(&[0; B]); MAX];
                for (row, head) in rows.iter_mut().zip(heads).take(W::LANES) {
                    *row = head.get(i).unwrap_or(row);
                }
                H::block(w, state, Stream::<H, B>(rows, PhantomData));
            }
            let mut ended = 0;
            for (lane, left) in self.left.iter_mut().enumerate() {
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

/// Blocks from memory.
struct Stream<'r, H, const B: usize>(Rows<'r, B>, PhantomData<H>);

impl<W: Words, H: Hash<W>, const B: usize> Message<W> for Stream<'_, H, B> {
    #[inline(always)]
    fn quarter(&self, w: W, quarter: usize) -> [W::V; 4] {
        let [a, b, c, d] = w.load(&self.0, quarter);
        if H::LITTLE_ENDIAN {
            return [a, b, c, d];
        }
        [w.swap_bytes(a), w.swap_bytes(b), w.swap_bytes(c), w.swap_bytes(d)]
    }
}

/// Blocks that hold a digest.
struct Digest<W: Words>([W::V; 16]);

impl<W: Words> Message<W> for Digest<W> {
    #[inline(always)]
    fn quarter(&self, _: W, quarter: usize) -> [W::V; 4] {
        self.0.as_chunks().0[quarter]
    }
}

/// Leaves the inner hashes' chaining values in the jobs' tags.
#[inline(always)]
fn inner<W: Words, H: Hash<W>, const B: usize>(
    w: W,
    jobs: &mut [HmacJob<'_>],
    states: &mut States,
) {
    let mut order = [0; CHUNK];
    sort::<B>(jobs, &mut order, W::LANES);
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
    let all = (1 << W::LANES) - 1;
    let mut idle: u32 = all;
    loop {
        let mut fresh = 0;
        while idle & !fresh != 0 {
            let Some(&i) = queue.next() else { break };
            let Some(job) = jobs.get(usize::from(i)) else { break };
            let lane = (idle & !fresh).trailing_zeros() as usize % MAX;
            lanes.begin(w, H::LITTLE_ENDIAN, lane, i, job);
            fresh |= 1 << lane;
        }
        if lanes.busy == 0 {
            return;
        }
        let mut rows = lanes.start;
        if fresh != all {
            each(all & !fresh, |lane| rows[lane] = &states.0[lane]);
        }
        let mut state = load_state::<W, H>(w, &rows);
        idle = lanes.advance::<W, H>(w, &mut state);
        let [a, b, c, d, e, f, g, h] = state;
        w.store(states, 0, [a, b, c, d]);
        if H::WORDS > 4 {
            w.store(states, 1, [e, f, g, h]);
        }
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

/// States in the layout of [`HmacKey`](crate::block::HmacKey).
#[inline(always)]
fn load_state<W: Words, H: Hash<W>>(w: W, rows: &Rows<'_, 64>) -> State<W> {
    let [a, b, c, d] = w.load(rows, 0);
    let [e, f, g, h] = if H::WORDS > 4 { w.load(rows, 1) } else { [a, b, c, d] };
    [a, b, c, d, e, f, g, h]
}

/// Turns the inner hashes in the tags into MACs.
#[inline(always)]
fn outer<W: Words, H: Hash<W>, const B: usize>(
    w: W,
    digest: usize,
    jobs: &mut [HmacJob<'_>],
    states: &mut States,
) {
    let word = mem::size_of::<W::Word>();
    let zero = w.number(0);
    for group in jobs.chunks_mut(W::LANES) {
        let zeros = ZEROS.first_chunk().unwrap_or(&[0; 64]);
        let mut keys: Rows<'_, 64> = [zeros; MAX];
        let mut hashes: Rows<'_, 64> = [zeros; MAX];
        for ((key, hash), job) in keys.iter_mut().zip(&mut hashes).zip(&*group) {
            (*key, *hash) = (&job.key.outer, &job.tag);
        }
        let mut state = load_state::<W, H>(w, &keys);
        let hash = load_state::<W, H>(w, &hashes);

        let mut message = [zero; 16];
        let end = w.number(if H::LITTLE_ENDIAN { 0x80 } else { 1 << (8 * word - 1) });
        for i in 0..8 {
            if i < H::SHORTEST || (i < H::WORDS && i < digest) {
                message[i] = hash[i];
            } else if i == digest {
                message[i] = end;
            }
        }
        if digest == 8 {
            message[8] = end;
        }
        message[if H::LITTLE_ENDIAN { 14 } else { 15 }] = w.number(8 * (B + digest * word) as u64);
        H::block(w, &mut state, Digest::<W>(message));

        for (i, word) in state.iter_mut().enumerate() {
            if !(i < H::SHORTEST || (i < H::WORDS && i < digest)) {
                *word = zero;
            } else if !H::LITTLE_ENDIAN {
                *word = w.swap_bytes(*word);
            }
        }
        let [a, b, c, d, e, f, g, h] = state;
        w.store(states, 0, [a, b, c, d]);
        if H::WORDS > 4 {
            w.store(states, 1, [e, f, g, h]);
        }
        for (job, state) in group.iter_mut().zip(&states.0) {
            job.tag = *state;
        }
    }
}
