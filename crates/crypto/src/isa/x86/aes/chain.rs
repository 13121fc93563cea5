//! Modes whose blocks wait for one another, CBC encryption and CBC-MAC, in lanes of one packet each.
//!
//! All lanes advance together, as many blocks as the shortest has left; then whatever lane is done
//! takes the next packet. No lane is idle before the last packet has begun.

// Indices name registers and lanes here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use std::{cell::Cell, hint::black_box, marker::PhantomData, ops::Range, ptr};

use zeroize::optimization_barrier;

use super::{
    super::lanes::{B, Lanes},
    order::Order,
    width::{Gather, One, Width},
};
use crate::block::{Block, ROUND_KEYS, RoundKeys};

/// Most lanes that chains have.
pub(super) const LANES: usize = 16;

/// Use that chains make of blocks.
pub(super) trait Access {
    /// True if states are stored over the blocks.
    const WRITES: bool;
}

/// They are only read: a MAC.
pub(super) enum Reading {}

/// They are overwritten: encryption.
pub(super) enum Writing {}

impl Access for Reading {
    const WRITES: bool = false;
}

impl Access for Writing {
    const WRITES: bool = true;
}

/// Consecutive blocks in memory, borrowed as long as `'k` as their access demands.
pub(super) struct Piece<'k, A> {
    at: *mut [u8; 16],
    blocks: usize,
    borrow: PhantomData<(&'k mut [u8], A)>,
}

impl<'k, A> Piece<'k, A> {
    const fn of(at: *mut [u8; 16], blocks: usize) -> Self {
        Self { at, blocks, borrow: PhantomData }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.blocks == 0
    }
}

impl<'k> Piece<'k, Reading> {
    #[inline(always)]
    pub(super) fn reading(blocks: &'k [[u8; 16]]) -> Self {
        Self::of(blocks.as_ptr().cast_mut(), blocks.len())
    }

    /// Blocks that may be written to while chains do not run.
    #[inline(always)]
    pub(super) fn watching(blocks: &'k [Cell<[u8; 16]>]) -> Self {
        Self::of(blocks.as_ptr().cast_mut().cast(), blocks.len())
    }
}

impl<'k> Piece<'k, Writing> {
    #[inline(always)]
    pub(super) fn writing(blocks: &'k mut [[u8; 16]]) -> Self {
        Self::of(blocks.as_mut_ptr(), blocks.len())
    }
}

/// A packet about to enter a lane.
pub(super) struct Start<'k, A> {
    /// Its first piece, which is not empty.
    pub(super) piece: Piece<'k, A>,
    pub(super) keys: &'k RoundKeys,
    /// State that is added to the first block.
    pub(super) state: B,
}

/// Source of packets, and receiver of their final states.
pub(super) trait Feed<'k> {
    type Access: Access;

    /// The next packet, for this lane.
    fn start(&mut self, lane: usize) -> Option<Start<'k, Self::Access>>;

    /// The next piece of the packet in this lane, which is not empty.
    fn more(&mut self, lane: usize) -> Option<Piece<'k, Self::Access>>;

    /// The packet in this lane has ended with this state.
    fn done(&mut self, lane: usize, state: &Block);
}

/// The round keys of all lanes.
pub(super) trait LaneKeys<'k, W: Gather> {
    /// True if registers are left to hold some keys throughout a run: where all come from memory,
    /// loads take longer than the rounds.
    const HELD: bool = false;

    /// Lane `lane` now uses `keys`.
    fn set(&mut self, lane: usize, keys: &'k RoundKeys);

    /// The round keys of the lanes in a register.
    fn key(&self, w: W, round: usize, register: usize) -> W::V;
}

/// One key for all.
#[derive(Clone, Copy)]
pub(super) struct Shared<'k>(pub(super) &'k RoundKeys);

impl<'k, W: Gather> LaneKeys<'k, W> for Shared<'k> {
    #[inline(always)]
    fn set(&mut self, _: usize, _: &'k RoundKeys) {}

    #[inline(always)]
    fn key(&self, w: W, round: usize, _: usize) -> W::V {
        w.splat(&self.0.0[round])
    }
}

/// A key for each lane, where each register is one lane.
pub(super) struct Apart<'k, const N: usize>(pub(super) [&'k RoundKeys; N]);

impl<'k, L: Lanes, const N: usize> LaneKeys<'k, One<L>> for Apart<'k, N> {
    const HELD: bool = L::REGISTERS >= 4 * N;

    #[inline(always)]
    fn set(&mut self, lane: usize, keys: &'k RoundKeys) {
        if let Some(place) = self.0.get_mut(lane) {
            *place = keys;
        }
    }

    #[inline(always)]
    fn key(&self, w: One<L>, round: usize, register: usize) -> B {
        w.splat(&self.0[register].0[round])
    }
}

/// Keys of lanes, of which those of the first rounds are in registers.
struct Held<'h, K, V, const R: usize> {
    keys: &'h K,
    first: [[V; R]; 2],
}

impl<'h, K, V: Copy, const R: usize> Held<'h, K, V, R> {
    #[inline(always)]
    fn new<'k, W: Gather<V = V>>(w: W, keys: &'h K) -> Self
    where
        K: LaneKeys<'k, W>,
    {
        let mut first = [[w.zero(); R]; 2];
        for round in 0..2 {
            for r in 0..R {
                first[round][r] = keys.key(w, round, r);
            }
        }
        Self { keys, first }
    }
}

impl<'k, K, W, const R: usize> LaneKeys<'k, W> for Held<'_, K, W::V, R>
where
    K: LaneKeys<'k, W>,
    W: Gather,
{
    #[inline(always)]
    fn set(&mut self, _: usize, _: &'k RoundKeys) {}

    #[inline(always)]
    fn key(&self, w: W, round: usize, register: usize) -> W::V {
        match self.first.get(round) {
            Some(keys) => keys[register],
            None => self.keys.key(w, round, register),
        }
    }
}

/// A key for each lane, copied so that those of one register lie side by side. `HELD` is what
/// [`LaneKeys::HELD`] says.
#[repr(C, align(64))]
pub(super) struct Rows<const N: usize, const HELD: bool> {
    rows: [[Block; N]; ROUND_KEYS],
    rounds: usize,
}

impl<const N: usize, const HELD: bool> Rows<N, HELD> {
    #[inline(always)]
    fn new(rounds: usize) -> Self {
        Self { rows: [[Block::ZERO; N]; ROUND_KEYS], rounds }
    }

    #[inline(always)]
    fn copy(&mut self, lane: usize, keys: &RoundKeys, which: Range<usize>) {
        for i in which {
            if let Some(place) = self.rows[i].get_mut(lane) {
                *place = keys.0[i];
            }
        }
    }
}

impl<const N: usize, const HELD: bool> Drop for Rows<N, HELD> {
    #[inline(always)]
    fn drop(&mut self) {
        self.rows = [[Block::ZERO; N]; ROUND_KEYS];
        optimization_barrier(self);
    }
}

impl<'k, W: Gather, const N: usize, const HELD: bool> LaneKeys<'k, W> for Rows<N, HELD> {
    const HELD: bool = HELD;

    #[inline(always)]
    fn set(&mut self, lane: usize, keys: &'k RoundKeys) {
        self.copy(lane, keys, 0..11);
        if self.rounds > 10 {
            self.copy(lane, keys, 11..ROUND_KEYS);
        }
    }

    #[inline(always)]
    fn key(&self, w: W, round: usize, register: usize) -> W::V {
        w.row(&self.rows[round][W::BLOCKS * register..])
    }
}

/// The states of all lanes between two runs.
#[repr(C, align(64))]
struct States<const N: usize>([Block; N]);

impl<const N: usize> Drop for States<N> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0 = [Block::ZERO; N];
        optimization_barrier(self);
    }
}

/// All packets of a feed, to be run in at most [`LANES`] lanes.
pub(super) struct Run<'r, 'k, L, F> {
    pub(super) l: L,
    pub(super) rounds: usize,
    /// The key of any packet.
    pub(super) first: &'k RoundKeys,
    pub(super) order: &'r Order,
    pub(super) feed: &'r mut F,
}

impl<'k, L: Lanes, F: Feed<'k>> Run<'_, 'k, L, F> {
    /// Runs them with one block per register.
    #[inline(always)]
    pub(super) fn narrow(self) {
        let w = One(self.l);
        if self.order.packets().len() <= 4 {
            // Where lanes would be idle, fewer cost less.
            run::<_, _, _, 4, 4>(w, self.rounds, self.feed, &mut Apart([self.first; 4]));
        } else if self.order.shared() {
            run::<_, _, _, 8, 8>(w, self.rounds, self.feed, &mut Shared(self.first));
        } else {
            run::<_, _, _, 8, 8>(w, self.rounds, self.feed, &mut Apart([self.first; 8]));
        }
    }

    /// Runs them in `N` lanes, which fill `R` registers; `HELD` is what [`LaneKeys::HELD`] says.
    #[inline(always)]
    pub(super) fn wide<W, const R: usize, const N: usize, const HELD: bool>(self, w: W)
    where
        W: Gather,
    {
        if self.order.packets().len() <= 8 {
            self.narrow();
        } else if self.order.shared() {
            run::<_, _, _, R, N>(w, self.rounds, self.feed, &mut Shared(self.first));
        } else {
            let mut keys = Rows::<N, HELD>::new(self.rounds);
            run::<_, _, _, R, N>(w, self.rounds, self.feed, &mut keys);
        }
    }
}

/// State of the lanes. Time counts the blocks that each lane has gone through since the start.
struct Current<'k, A, const N: usize> {
    /// Address that each lane's block of time zero would have.
    at: [*mut [u8; 16]; N],
    /// Time at which each lane's blocks end; never, if it has none.
    until: [usize; N],
    borrow: PhantomData<Piece<'k, A>>,
}

/// The time that never comes. Pieces are in memory, so there are far fewer blocks.
const NEVER: usize = usize::MAX;

impl<'k, A, const N: usize> Current<'k, A, N> {
    #[inline(always)]
    fn put(&mut self, lane: usize, now: usize, piece: Piece<'k, A>) {
        self.at[lane] = piece.at.wrapping_sub(now);
        self.until[lane] = now.wrapping_add(piece.blocks);
    }
}

/// Runs all packets of a feed in `N` lanes, which fill `R` registers.
#[inline(always)]
fn run<'k, W, F, K, const R: usize, const N: usize>(w: W, rounds: usize, feed: &mut F, keys: &mut K)
where
    W: Gather,
    F: Feed<'k>,
    K: LaneKeys<'k, W>,
{
    const { assert!(R * W::BLOCKS == N) };
    let l = w.lanes();
    let mut states = States([Block::ZERO; N]);
    let mut lanes = Current { at: [ptr::null_mut(); N], until: [NEVER; N], borrow: PhantomData };
    let mut now = 0;
    let mut idle = 0;
    // At first, every lane is done with nothing.
    for lane in 0..N {
        match feed.start(lane) {
            Some(start) => {
                keys.set(lane, start.keys);
                l.store(&mut states.0[lane].0, start.state);
                lanes.put(lane, now, start.piece);
            }
            None => idle += 1,
        }
    }
    while idle < N {
        let until = lanes.until.iter().fold(NEVER, |least, &until| least.min(until));
        if idle == 0 && K::HELD {
            let keys = &Held::<_, _, R>::new(w, &*keys);
            // SAFETY: no lane ends earlier.
            unsafe {
                advance::<_, _, _, false, R, N>(w, rounds, &mut states, &lanes, now, until, keys);
            }
        } else if idle == 0 {
            // SAFETY: no lane ends earlier.
            unsafe {
                advance::<_, _, _, false, R, N>(w, rounds, &mut states, &lanes, now, until, keys);
            }
        } else {
            // SAFETY: no lane ends earlier, and idle ones do not end.
            unsafe {
                advance::<_, _, _, true, R, N>(w, rounds, &mut states, &lanes, now, until, keys);
            }
        }
        now = until;
        for lane in 0..N {
            if lanes.until[lane] != now {
                continue;
            }
            if let Some(more) = feed.more(lane) {
                lanes.put(lane, now, more);
                continue;
            }
            feed.done(lane, &states.0[lane]);
            if let Some(start) = feed.start(lane) {
                keys.set(lane, start.keys);
                l.store(&mut states.0[lane].0, start.state);
                lanes.put(lane, now, start.piece);
            } else {
                lanes.until[lane] = NEVER;
                idle += 1;
            }
        }
    }
}

/// Advances every lane that is not idle from one time to another. `IDLE` says whether there are idle
/// ones.
///
/// # Safety
///
/// Every lane must have blocks from `now` to `until`, but for those that never end if `IDLE` says so.
#[inline(always)]
unsafe fn advance<'k, A, W, K, const IDLE: bool, const R: usize, const N: usize>(
    w: W,
    rounds: usize,
    states: &mut States<N>,
    lanes: &Current<'k, A, N>,
    now: usize,
    until: usize,
    keys: &K,
) where
    A: Access,
    W: Gather,
    K: LaneKeys<'k, W>,
{
    let l = w.lanes();
    let mut s = load_states::<W, R, N>(w, states);
    for time in now..until {
        // Opaque, or else the compiler counts up each of these pointers in a register of its own,
        // of which there are too few.
        let at = black_box(&lanes.at);
        for r in 0..R {
            let block = w.gather(|i| {
                let lane = W::BLOCKS * r + i;
                if IDLE && lanes.until[lane] == NEVER {
                    return l.zero();
                }
                // SAFETY: the caller vouches for the lane's blocks, and `Piece` for the memory.
                l.load(unsafe { &*at[lane].wrapping_add(time) })
            });
            s[r] = w.xor3(block, keys.key(w, 0, r), s[r]);
        }
        encrypt::<W, K, R>(w, rounds, &mut s, keys);
        if A::WRITES {
            for r in 0..R {
                w.scatter(s[r], |i, block| {
                    let lane = W::BLOCKS * r + i;
                    if IDLE && lanes.until[lane] == NEVER {
                        return;
                    }
                    // SAFETY: the caller vouches for the lane's blocks, and `Piece` for the memory.
                    l.store(unsafe { &mut *at[lane].wrapping_add(time) }, block);
                });
            }
        }
    }
    store_states::<W, R, N>(w, states, &s);
}

#[inline(always)]
fn load_states<W: Gather, const R: usize, const N: usize>(w: W, states: &States<N>) -> [W::V; R] {
    let mut s = [w.zero(); R];
    for r in 0..R {
        s[r] = w.row(&states.0[W::BLOCKS * r..]);
    }
    s
}

#[inline(always)]
fn store_states<W: Gather, const R: usize, const N: usize>(
    w: W,
    states: &mut States<N>,
    s: &[W::V; R],
) {
    for r in 0..R {
        w.set_row(&mut states.0[W::BLOCKS * r..], s[r]);
    }
}

/// All rounds but the first key addition.
#[inline(always)]
pub(super) fn encrypt<'k, W: Gather, K: LaneKeys<'k, W>, const R: usize>(
    w: W,
    rounds: usize,
    s: &mut [W::V; R],
    keys: &K,
) {
    for i in 1..10 {
        round(w, s, keys, i);
    }
    if rounds > 10 {
        round(w, s, keys, 10);
        round(w, s, keys, 11);
        if rounds > 12 {
            round(w, s, keys, 12);
            round(w, s, keys, 13);
        }
    }
    // At most 14; saying so spares a check that would panic.
    let last = rounds.min(ROUND_KEYS - 1);
    for r in 0..R {
        s[r] = w.last(s[r], keys.key(w, last, r));
    }
}

// A function, for closures are not always inlined, and then instructions are not either.
#[inline(always)]
fn round<'k, W: Gather, K: LaneKeys<'k, W>, const R: usize>(
    w: W,
    s: &mut [W::V; R],
    keys: &K,
    round: usize,
) {
    for r in 0..R {
        s[r] = w.round(s[r], keys.key(w, round, r));
    }
}
