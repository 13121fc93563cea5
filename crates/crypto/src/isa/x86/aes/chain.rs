//! Modes whose blocks wait for one another, CBC encryption and CBC-MAC, in lanes of one packet each.
//!
//! All lanes advance together, as many blocks as the shortest has left; then whatever lane is done
//! takes the next packet. No lane is idle before the last packet has begun.

// Indices name registers and lanes here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use std::{cell::Cell, marker::PhantomData, ptr};

use zeroize::Zeroize;

use super::{
    super::lanes::{B, Lanes},
    width::{One, Width},
};
use crate::block::{Block, ROUND_KEYS, RoundKeys};

/// Most lanes that chains have.
pub(super) const LANES: usize = 16;

/// What chains do with blocks.
pub(super) trait Access {
    /// Whether states are stored over the blocks.
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
    /// Nothing.
    pub(super) const EMPTY: Self = Self::of(ptr::null_mut(), 0);

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
    /// What is added to the first block.
    pub(super) state: B,
}

/// Where packets come from, and where they go.
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
pub(super) trait LaneKeys<'k, W: Width> {
    /// Lane `lane` now uses `keys`.
    fn set(&mut self, lane: usize, keys: &'k RoundKeys);

    /// The round keys of the lanes in a register.
    fn key(&self, w: W, round: usize, register: usize) -> W::V;
}

/// One key for all.
#[derive(Clone, Copy)]
pub(super) struct Shared<'k>(pub(super) &'k RoundKeys);

impl<'k, W: Width> LaneKeys<'k, W> for Shared<'k> {
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

/// A key for each lane, copied so that those of one register lie side by side.
#[derive(Zeroize)]
#[repr(C, align(64))]
pub(super) struct Rows<const N: usize>([[Block; N]; ROUND_KEYS]);

impl<const N: usize> Rows<N> {
    pub(super) fn new() -> Self {
        Self([[Block::ZERO; N]; ROUND_KEYS])
    }
}

impl<const N: usize> Drop for Rows<N> {
    fn drop(&mut self) {
        self.zeroize();
    }
}

impl<'k, W: Width, const N: usize> LaneKeys<'k, W> for Rows<N> {
    #[inline(always)]
    fn set(&mut self, lane: usize, keys: &'k RoundKeys) {
        for (row, key) in self.0.iter_mut().zip(&keys.0) {
            if let Some(place) = row.get_mut(lane) {
                *place = *key;
            }
        }
    }

    #[inline(always)]
    fn key(&self, w: W, round: usize, register: usize) -> W::V {
        w.row(&self.0[round][W::BLOCKS * register..])
    }
}

/// The states of all lanes between two runs.
#[derive(Zeroize)]
#[repr(C, align(64))]
struct States<const N: usize>([Block; N]);

impl<const N: usize> Drop for States<N> {
    fn drop(&mut self) {
        self.zeroize();
    }
}

/// All packets of a feed, to be run in at most [`LANES`] lanes.
pub(super) struct Run<'r, 'k, L, F> {
    pub(super) l: L,
    pub(super) rounds: usize,
    /// The key of any packet.
    pub(super) first: &'k RoundKeys,
    /// Whether all packets have that key.
    pub(super) shared: bool,
    /// How many packets there are.
    pub(super) packets: usize,
    pub(super) feed: &'r mut F,
}

impl<'k, L: Lanes, F: Feed<'k>> Run<'_, 'k, L, F> {
    /// Runs them with one block per register.
    #[inline(always)]
    pub(super) fn narrow(self) {
        let w = One(self.l);
        if self.shared {
            run::<_, _, _, 8, 8>(w, self.rounds, self.feed, &mut Shared(self.first));
        } else {
            run::<_, _, _, 8, 8>(w, self.rounds, self.feed, &mut Apart([self.first; 8]));
        }
    }

    /// Runs them in `N` lanes, which fill `R` registers.
    #[inline(always)]
    pub(super) fn wide<W: Width, const R: usize, const N: usize>(self, w: W) {
        if self.packets <= 8 {
            self.narrow();
        } else if self.shared {
            run::<_, _, _, R, N>(w, self.rounds, self.feed, &mut Shared(self.first));
        } else {
            run::<_, _, _, R, N>(w, self.rounds, self.feed, &mut Rows::<N>::new());
        }
    }
}

/// Runs all packets of a feed in `N` lanes, which fill `R` registers.
#[inline(always)]
fn run<'k, W, F, K, const R: usize, const N: usize>(w: W, rounds: usize, feed: &mut F, keys: &mut K)
where
    W: Width,
    F: Feed<'k>,
    K: LaneKeys<'k, W>,
{
    const { assert!(R * W::BLOCKS == N) };
    let l = w.lanes();
    let mut states = States([Block::ZERO; N]);
    let mut lanes = [const { Piece::EMPTY }; N];
    let mut busy = 0;
    for lane in 0..N {
        let Some(start) = feed.start(lane) else { break };
        keys.set(lane, start.keys);
        l.store(&mut states.0[lane].0, start.state);
        lanes[lane] = start.piece;
        busy += 1;
    }
    while busy > 0 {
        let steps = lanes.iter().map(|piece| piece.blocks.wrapping_sub(1)).min();
        // Idle lanes have no blocks, which wraps to the most there can be.
        let steps = steps.unwrap_or(0).wrapping_add(1);
        if busy == N {
            // SAFETY: all lanes have that many blocks.
            unsafe { advance::<_, _, _, R, N>(w, rounds, &mut states, &lanes, steps, keys) };
        } else {
            // SAFETY: all lanes that have blocks have that many.
            unsafe { advance_some::<_, _, _, R, N>(w, rounds, &mut states, &lanes, steps, keys) };
        }
        for lane in 0..N {
            let piece = &mut lanes[lane];
            if piece.blocks == 0 {
                continue;
            }
            piece.at = piece.at.wrapping_add(steps);
            piece.blocks -= steps;
            if piece.blocks > 0 {
                continue;
            }
            if let Some(more) = feed.more(lane) {
                *piece = more;
                continue;
            }
            feed.done(lane, &states.0[lane]);
            if let Some(start) = feed.start(lane) {
                keys.set(lane, start.keys);
                l.store(&mut states.0[lane].0, start.state);
                *piece = start.piece;
            } else {
                busy -= 1;
            }
        }
    }
}

/// Advances every lane by `steps` blocks.
///
/// # Safety
///
/// Every lane must have that many blocks.
#[inline(always)]
unsafe fn advance<'k, A, W, K, const R: usize, const N: usize>(
    w: W,
    rounds: usize,
    states: &mut States<N>,
    lanes: &[Piece<'k, A>; N],
    steps: usize,
    keys: &K,
) where
    A: Access,
    W: Width,
    K: LaneKeys<'k, W>,
{
    let l = w.lanes();
    let at = std::array::from_fn::<_, N, _>(|lane| lanes[lane].at);
    let mut s = load_states::<W, R, N>(w, states);
    for step in 0..steps {
        for r in 0..R {
            let block = w.gather(|i| {
                let at = at[W::BLOCKS * r + i].wrapping_add(step);
                // SAFETY: the caller vouches for the lane's blocks, and `Piece` for the memory.
                l.load(unsafe { &*at })
            });
            s[r] = w.xor3(block, keys.key(w, 0, r), s[r]);
        }
        encrypt::<W, K, R>(w, rounds, &mut s, keys);
        if A::WRITES {
            for r in 0..R {
                w.scatter(s[r], |i, block| {
                    let at = at[W::BLOCKS * r + i].wrapping_add(step);
                    // SAFETY: the caller vouches for the lane's blocks, and `Piece` for the memory.
                    l.store(unsafe { &mut *at }, block);
                });
            }
        }
    }
    store_states::<W, R, N>(w, states, &s);
}

/// Advances every lane that has blocks by `steps` blocks.
///
/// # Safety
///
/// Every lane that has any blocks must have that many.
#[inline(always)]
unsafe fn advance_some<'k, A, W, K, const R: usize, const N: usize>(
    w: W,
    rounds: usize,
    states: &mut States<N>,
    lanes: &[Piece<'k, A>; N],
    steps: usize,
    keys: &K,
) where
    A: Access,
    W: Width,
    K: LaneKeys<'k, W>,
{
    let l = w.lanes();
    let mut s = load_states::<W, R, N>(w, states);
    for step in 0..steps {
        for r in 0..R {
            let block = w.gather(|i| {
                let piece = &lanes[W::BLOCKS * r + i];
                if piece.blocks == 0 {
                    return l.zero();
                }
                let at = piece.at.wrapping_add(step);
                // SAFETY: the caller vouches for the lane's blocks, and `Piece` for the memory.
                l.load(unsafe { &*at })
            });
            s[r] = w.xor3(block, keys.key(w, 0, r), s[r]);
        }
        encrypt::<W, K, R>(w, rounds, &mut s, keys);
        if A::WRITES {
            for r in 0..R {
                w.scatter(s[r], |i, block| {
                    let piece = &lanes[W::BLOCKS * r + i];
                    if piece.blocks > 0 {
                        let at = piece.at.wrapping_add(step);
                        // SAFETY: the caller vouches for the lane's blocks, and `Piece` for the
                        // memory.
                        l.store(unsafe { &mut *at }, block);
                    }
                });
            }
        }
    }
    store_states::<W, R, N>(w, states, &s);
}

#[inline(always)]
fn load_states<W: Width, const R: usize, const N: usize>(w: W, states: &States<N>) -> [W::V; R] {
    let mut s = [w.zero(); R];
    for r in 0..R {
        s[r] = w.row(&states.0[W::BLOCKS * r..]);
    }
    s
}

#[inline(always)]
fn store_states<W: Width, const R: usize, const N: usize>(
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
fn encrypt<'k, W: Width, K: LaneKeys<'k, W>, const R: usize>(
    w: W,
    rounds: usize,
    s: &mut [W::V; R],
    keys: &K,
) {
    let mut round = |round: usize| {
        for r in 0..R {
            s[r] = w.round(s[r], keys.key(w, round, r));
        }
    };
    for i in 1..10 {
        round(i);
    }
    if rounds > 10 {
        round(10);
        round(11);
        if rounds > 12 {
            round(12);
            round(13);
        }
    }
    // At most 14; saying so spares a check that would panic.
    let last = rounds.min(ROUND_KEYS - 1);
    for r in 0..R {
        s[r] = w.last(s[r], keys.key(w, last, r));
    }
}
