//! Frames that a port keeps between calls.

use std::collections::VecDeque;

use convoy_packet::{Arena, Frame, Pool};

/// A bounded queue of frames, which finds the way back to the arena when the port is closed.
#[derive(Debug)]
pub(crate) struct Stash {
    frames: VecDeque<Frame>,
    bound: usize,
    arena: Option<&'static Arena>,
}

impl Stash {
    /// A queue of at most `bound` frames, allocated now.
    pub(crate) fn new(bound: usize) -> Self {
        Self { frames: VecDeque::with_capacity(bound), bound, arena: None }
    }

    pub(crate) fn push(&mut self, frame: Frame, pool: &mut Pool) {
        self.arena = Some(pool.arena());
        if self.frames.len() < self.bound {
            self.frames.push_back(frame);
        } else {
            pool.free(frame);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Frame> {
        self.frames.pop_front()
    }

    pub(crate) fn take(&mut self, at: usize) -> Option<Frame> {
        self.frames.remove(at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() >= self.bound
    }

    /// Draws on `pool` until `n` frames are at hand; tells how many are.
    pub(crate) fn fill(&mut self, n: usize, pool: &mut Pool) -> usize {
        self.arena = Some(pool.arena());
        let n = n.min(self.bound);
        while self.frames.len() < n {
            let Some(frame) = pool.alloc() else { break };
            self.frames.push_back(frame);
        }
        self.frames.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Frame> {
        self.frames.iter_mut()
    }
}

impl Drop for Stash {
    fn drop(&mut self) {
        if let Some(arena) = self.arena {
            let mut pool = arena.pool();
            self.frames.drain(..).for_each(|frame| pool.free(frame));
        }
    }
}
