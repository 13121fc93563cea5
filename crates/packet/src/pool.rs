//! A worker's own stock of free frames.

use crate::{Arena, Frame};

/// Frames moved between a pool and its arena at a time.
const BATCH: usize = 256;

/// Free frames for one worker.
///
/// Taking and giving back touch only the worker's own list; once in 256 frames it exchanges
/// a batch with the arena, so workers that mostly receive and workers that mostly send balance.
#[derive(Debug)]
pub struct Pool {
    arena: &'static Arena,
    free: Vec<u32>,
}

impl Pool {
    pub(crate) fn new(arena: &'static Arena) -> Self {
        Self { arena, free: Vec::with_capacity(3 * BATCH) }
    }

    /// An empty frame, or `None` when the arena is exhausted.
    #[inline]
    pub fn alloc(&mut self) -> Option<Frame> {
        if self.free.is_empty() {
            self.arena.draw(&mut self.free, BATCH);
        }
        self.free.pop().map(|index| self.arena.frame(index))
    }

    /// Gives a frame back.
    ///
    /// # Panics
    /// Panics if the frame belongs to another arena: mixing arenas is a defect of the program.
    #[inline]
    pub fn free(&mut self, frame: Frame) {
        if self.free.len() >= 2 * BATCH {
            self.arena.store(&mut self.free, BATCH);
        }
        self.free.push(frame.into_index(self.arena));
    }

    /// The arena this pool draws on.
    #[must_use]
    pub fn arena(&self) -> &'static Arena {
        self.arena
    }

    /// Free frames at hand without asking the arena.
    #[must_use]
    pub fn at_hand(&self) -> usize {
        self.free.len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let n = self.free.len();
        self.arena.store(&mut self.free, n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrameSize;

    #[test]
    fn pools_share_the_arena_without_losing_frames() {
        let arena = Arena::map(2000, FrameSize::for_packet(100)).unwrap();
        let (mut takes, mut gives) = (arena.pool(), arena.pool());
        for _ in 0..20 {
            let frames: Vec<_> = core::iter::from_fn(|| takes.alloc()).take(1000).collect();
            assert_eq!(frames.len(), 1000);
            frames.into_iter().for_each(|frame| gives.free(frame));
        }
        drop((takes, gives));
        assert_eq!(arena.in_depot(), 2000);
        assert_eq!(arena.leaked(), 0);
    }

    #[test]
    fn an_empty_arena_gives_none() {
        let arena = Arena::map(2, FrameSize::for_packet(100)).unwrap();
        let mut pool = arena.pool();
        let (a, b) = (pool.alloc().unwrap(), pool.alloc().unwrap());
        assert!(pool.alloc().is_none());
        assert_ne!(a.index(), b.index());
        pool.free(a);
        assert!(pool.alloc().is_some_and(|a| {
            pool.free(a);
            true
        }));
        pool.free(b);
    }

    #[test]
    #[should_panic(expected = "another arena")]
    fn a_foreign_frame_is_refused() {
        let one = Arena::map(1, FrameSize::for_packet(100)).unwrap();
        let two = Arena::map(1, FrameSize::for_packet(100)).unwrap();
        let frame = one.pool().alloc().unwrap();
        two.pool().free(frame);
    }
}
