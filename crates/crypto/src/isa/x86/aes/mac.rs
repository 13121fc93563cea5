//! CBC-MAC in lanes: what AES-XCBC, AES-CMAC and CCM have in common.
//!
//! A message is at most three pieces: a head put together in the lane's scratch, a body that lies
//! ready in memory, and a tail in the scratch again.

use std::{cell::Cell, slice};

use zeroize::optimization_barrier;

use super::{
    super::lanes::{B, Lanes},
    chain::{Feed, LANES, Piece, Reading, Run, Start},
    order::Order,
    width::{Widest, Width},
};
use crate::block::{Block, RoundKeys};

/// Memory in which a lane's message is put together, as far as it does not lie ready in memory.
pub(super) struct Scratch<const HEAD: usize> {
    pub(super) head: [Cell<[u8; 16]>; HEAD],
    pub(super) tail: [Cell<[u8; 16]>; TAIL],
}

/// Blocks of a tail.
pub(super) const TAIL: usize = 2;

impl<const HEAD: usize> Scratch<HEAD> {
    const fn empty() -> Self {
        Self {
            head: [const { Cell::new([0; 16]) }; HEAD],
            tail: [const { Cell::new([0; 16]) }; TAIL],
        }
    }
}

/// A message as lanes take it; at least one block.
pub(super) struct Message<'m> {
    pub(super) keys: &'m RoundKeys,
    /// The state in front of it.
    pub(super) state: B,
    /// Blocks of the scratch's head.
    pub(super) head: usize,
    pub(super) body: &'m [[u8; 16]],
    /// Blocks of the scratch's tail.
    pub(super) tail: usize,
}

/// Messages by number, with heads of up to `HEAD` blocks.
pub(super) trait Messages<'k, const HEAD: usize> {
    /// Puts a message together.
    fn message(&self, number: usize, scratch: &Scratch<HEAD>) -> Option<Message<'k>>;

    /// Takes the MAC of a message.
    fn done(&mut self, number: usize, mac: &Block);
}

/// Makes the MACs of messages; `first` is the key of any.
#[inline(always)]
pub(super) fn run<'k, L: Widest, M: Messages<'k, HEAD>, const HEAD: usize>(
    l: L,
    rounds: usize,
    first: &'k RoundKeys,
    order: &Order,
    messages: &mut M,
) {
    let mut scratch = [const { Scratch::<HEAD>::empty() }; LANES];
    let lanes = [const { Lane { number: 0, body: &[], tail: &[] } }; LANES];
    let mut feed = Packets { messages, order: order.packets().iter(), scratch: &scratch, lanes };
    l.widest().chains(Run { l, rounds, first, order, feed: &mut feed });
    // No more lanes than packets were ever used.
    for scratch in scratch.iter_mut().take(order.packets().len()) {
        *scratch = Scratch::empty();
        optimization_barrier(scratch);
    }
}

/// Rest of the message in a lane.
struct Lane<'s> {
    number: u8,
    body: &'s [[u8; 16]],
    tail: &'s [Cell<[u8; 16]>],
}

/// Messages on their way through lanes.
struct Packets<'s, 'm, M, const HEAD: usize> {
    messages: &'m mut M,
    order: slice::Iter<'m, u8>,
    scratch: &'s [Scratch<HEAD>; LANES],
    lanes: [Lane<'s>; LANES],
}

impl<'s, 'k: 's, M, const HEAD: usize> Feed<'s> for Packets<'s, '_, M, HEAD>
where
    M: Messages<'k, HEAD>,
{
    type Access = Reading;

    #[inline(always)]
    fn start(&mut self, lane: usize) -> Option<Start<'s, Reading>> {
        let number = *self.order.next()?;
        let (lane, scratch) = (self.lanes.get_mut(lane)?, self.scratch.get(lane)?);
        let Message { keys, state, head, body, tail } =
            self.messages.message(usize::from(number), scratch)?;
        lane.number = number;
        let tail = &scratch.tail[..tail.min(TAIL)];
        let piece = if head > 0 {
            (lane.body, lane.tail) = (body, tail);
            Piece::watching(&scratch.head[..head.min(HEAD)])
        } else if !body.is_empty() {
            (lane.body, lane.tail) = (&[], tail);
            Piece::reading(body)
        } else {
            (lane.body, lane.tail) = (&[], &[]);
            Piece::watching(tail)
        };
        Some(Start { piece, keys, state })
    }

    #[inline(always)]
    fn more(&mut self, lane: usize) -> Option<Piece<'s, Reading>> {
        let lane = self.lanes.get_mut(lane)?;
        if !lane.body.is_empty() {
            let body = lane.body;
            lane.body = &[];
            return Some(Piece::reading(body));
        }
        if lane.tail.is_empty() {
            return None;
        }
        let tail = lane.tail;
        lane.tail = &[];
        Some(Piece::watching(tail))
    }

    #[inline(always)]
    fn done(&mut self, lane: usize, state: &Block) {
        if let Some(lane) = self.lanes.get(lane) {
            self.messages.done(usize::from(lane.number), state);
        }
    }
}

/// Zeros, the numbers 0 to 15, zeros: windows into it move the bytes of a block when used as a
/// shuffle. (A shuffle makes zeros of numbers with the high bit set.)
static MOVE: [u8; 48] = {
    let mut order = [0x80; 48];
    let mut i = 0;
    while i < 16 {
        order[16 + i] = i as u8;
        i += 1;
    }
    order
};

#[inline(always)]
fn moved<L: Lanes>(l: L, block: B, window: usize) -> B {
    match MOVE.get(window..).and_then(<[u8]>::first_chunk) {
        Some(order) => l.shuffle(block, l.load(order)),
        None => l.zero(),
    }
}

/// The block with its bytes moved up by `by`, at most 16, and zeros below.
#[inline(always)]
pub(super) fn up<L: Lanes>(l: L, block: B, by: usize) -> B {
    moved(l, block, 16usize.wrapping_sub(by))
}

/// The block with its bytes moved down by `by`, at most 16, and zeros above.
#[inline(always)]
pub(super) fn down<L: Lanes>(l: L, block: B, by: usize) -> B {
    moved(l, block, 16usize.wrapping_add(by))
}

/// The last `len` bytes of a message as the front of a block, zeros behind them: at most 16, and all
/// if it has fewer.
#[inline(always)]
pub(super) fn end<L: Lanes>(l: L, message: &[u8], len: usize) -> B {
    match message.last_chunk() {
        Some(last) => down(l, l.load(last), 16usize.wrapping_sub(len)),
        // No bytes may lie where nothing can be read.
        None if len == 0 => l.zero(),
        None => l.load_some(message),
    }
}
