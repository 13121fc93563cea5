//! CBC-MAC in lanes: what AES-XCBC, AES-CMAC and CCM have in common.
//!
//! A message is at most three pieces: a head put together in the lane's scratch, a body that lies
//! ready in memory, and a tail in the scratch again. Short messages are copied to be one piece.

use std::{cell::Cell, mem, ops::Range, ptr, slice};

use zeroize::Zeroize;

use super::{
    super::lanes::{B, Lanes},
    chain::{Feed, LANES, Piece, Reading, Run, Start},
    order::Order,
    width::{Widest, Width},
};
use crate::block::{Block, RoundKeys};

/// Bodies of up to this many blocks are copied.
const SHORT: usize = 8;

/// Most blocks that a message has in front of its body.
pub(super) const HEAD: usize = 4;

/// Bytes in front of the first block, over which sixteen bytes may be stored whose end is wanted.
const SLACK: usize = 16;

const SCRATCH: usize = SLACK + 16 * (HEAD + SHORT) + 48;

/// Where a lane's message is put together, as far as it does not lie ready in memory.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Scratch([u8; SCRATCH]);

impl Scratch {
    /// The blocks behind the slack.
    #[inline(always)]
    fn blocks(cell: &Cell<Self>) -> &[Cell<[u8; 16]>] {
        // SAFETY: `Scratch` is bytes alone, a cell has the layout of what is in it, and blocks of
        // bytes need no alignment.
        let blocks: &Cell<[[u8; 16]; SCRATCH / 16]> = unsafe { &*ptr::from_ref(cell).cast() };
        blocks.as_array_of_cells().split_at(SLACK / 16).1
    }
}

/// Puts a message together.
pub(super) struct Writer<'s, L> {
    l: L,
    scratch: &'s mut Scratch,
    /// Bytes written.
    end: usize,
}

/// A message as lanes take it.
pub(super) struct Message<'m> {
    pub(super) keys: &'m RoundKeys,
    /// The state in front of it.
    pub(super) state: B,
    /// Blocks of the scratch that come before the body.
    pub(super) head: usize,
    /// Blocks that lie ready.
    pub(super) body: &'m [[u8; 16]],
    /// Blocks of the scratch that come behind the body.
    pub(super) tail: Range<usize>,
}

impl<L: Lanes> Writer<'_, L> {
    /// Bytes written.
    #[inline(always)]
    pub(super) fn bytes(&self) -> usize {
        self.end
    }

    /// Stores a block `back` bytes before the end, at most 16 before the first block.
    #[inline(always)]
    fn store(&mut self, back: usize, block: B) {
        let start = (self.end + SLACK).wrapping_sub(back);
        if let Some(bytes) = self.scratch.0.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
            self.l.store(bytes, block);
        }
    }

    /// Appends the front of a block: `len` bytes.
    #[inline(always)]
    pub(super) fn push(&mut self, block: B, len: usize) {
        self.store(0, block);
        self.end += len;
    }

    /// Appends whole blocks if they are few, and returns them if not.
    #[inline(always)]
    pub(super) fn push_short<'m>(&mut self, blocks: &'m [[u8; 16]]) -> &'m [[u8; 16]] {
        if blocks.len() > SHORT {
            return blocks;
        }
        for block in blocks {
            self.push(self.l.load(block), 16);
        }
        &[]
    }

    /// Appends the last `len` bytes of a message: at most 16, and all if it has less. What lies up
    /// to 16 bytes before may be overwritten with the bytes of the message that precede.
    #[inline(always)]
    pub(super) fn push_end(&mut self, message: &[u8], len: usize) {
        self.end += len;
        match message.last_chunk() {
            Some(last) => self.store(16, self.l.load(last)),
            None => self.store(len, self.l.load_some(message)),
        }
    }

    /// Appends `byte` and fills the block with zeros, if one has been begun or `always`; returns
    /// whether it did.
    #[inline(always)]
    pub(super) fn pad(&mut self, byte: u8, always: bool) -> bool {
        let pads = always || !self.end.is_multiple_of(16);
        if pads {
            self.push(self.l.quad(0, 0, 0, i32::from(byte)), 1);
            self.end = self.end.next_multiple_of(16);
        }
        pads
    }

    /// Adds to the last block.
    #[inline(always)]
    pub(super) fn add_to_last(&mut self, block: B) {
        let start = SLACK + self.end - 16;
        if let Some(bytes) = self.scratch.0.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
            self.l.store(bytes, self.l.xor(self.l.load(bytes), block));
        }
    }
}

/// Messages by number.
pub(super) trait Messages<'k, L> {
    /// Puts a message together, which has at least one block.
    fn message(&self, number: usize, writer: &mut Writer<'_, L>) -> Option<Message<'k>>;

    /// Takes the MAC of a message.
    fn done(&mut self, number: usize, mac: &Block);
}

/// Makes the MACs of messages, all with the key `first` if they are `shared`.
#[inline(always)]
pub(super) fn run<'k, L: Widest, M: Messages<'k, L>>(
    l: L,
    rounds: usize,
    first: &'k RoundKeys,
    shared: bool,
    order: &Order,
    messages: &mut M,
) {
    let packets = order.packets();
    let mut scratch = [const { Cell::new(Scratch([0; SCRATCH])) }; LANES];
    let lanes = [const { Lane { number: 0, body: Piece::EMPTY, tail: Piece::EMPTY } }; LANES];
    let mut feed = Packets { l, messages, order: packets.iter(), scratch: &scratch, lanes };
    l.widest().chains(Run { l, rounds, first, shared, packets: packets.len(), feed: &mut feed });
    for scratch in scratch.iter_mut().take(packets.len()) {
        scratch.get_mut().0.zeroize();
    }
}

/// What is left of the message in a lane.
struct Lane<'s> {
    number: u8,
    body: Piece<'s, Reading>,
    tail: Piece<'s, Reading>,
}

/// Messages on their way through lanes.
struct Packets<'s, 'm, L, M> {
    l: L,
    messages: &'m mut M,
    order: slice::Iter<'m, u8>,
    scratch: &'s [Cell<Scratch>; LANES],
    lanes: [Lane<'s>; LANES],
}

impl<'s, 'k: 's, L: Lanes, M: Messages<'k, L>> Feed<'s> for Packets<'s, '_, L, M> {
    type Access = Reading;

    #[inline(always)]
    fn start(&mut self, lane: usize) -> Option<Start<'s, Reading>> {
        let number = *self.order.next()?;
        let (place, cell) = (self.lanes.get_mut(lane)?, self.scratch.get(lane)?);
        // SAFETY: chains, which read the scratch, do not run, and nobody else has a reference.
        let scratch = unsafe { &mut *cell.as_ptr() };
        let mut writer = Writer { l: self.l, scratch, end: 0 };
        let message = self.messages.message(usize::from(number), &mut writer)?;
        let blocks = Scratch::blocks(cell);
        let head = Piece::watching(blocks.get(..message.head)?);
        let body = Piece::reading(message.body);
        let tail = Piece::watching(blocks.get(message.tail)?);
        place.number = number;
        let piece = if !head.is_empty() {
            (place.body, place.tail) = (body, tail);
            head
        } else if !body.is_empty() {
            (place.body, place.tail) = (Piece::EMPTY, tail);
            body
        } else {
            (place.body, place.tail) = (Piece::EMPTY, Piece::EMPTY);
            tail
        };
        Some(Start { piece, keys: message.keys, state: message.state })
    }

    #[inline(always)]
    fn more(&mut self, lane: usize) -> Option<Piece<'s, Reading>> {
        let lane = self.lanes.get_mut(lane)?;
        let body = mem::replace(&mut lane.body, Piece::EMPTY);
        if !body.is_empty() {
            return Some(body);
        }
        let tail = mem::replace(&mut lane.tail, Piece::EMPTY);
        (!tail.is_empty()).then_some(tail)
    }

    #[inline(always)]
    fn done(&mut self, lane: usize, state: &Block) {
        if let Some(lane) = self.lanes.get(lane) {
            self.messages.done(usize::from(lane.number), state);
        }
    }
}
