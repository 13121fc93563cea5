//! Packets that travel together.

use crate::{Frame, Pool};

/// Largest number of packets in a burst.
pub const BURST_MAX: usize = 256;

/// Up to [`BURST_MAX`] packets, in order.
///
/// The list is allocated once; stages hand bursts on by swapping or draining them.
#[derive(Debug)]
pub struct Burst {
    frames: Vec<Frame>,
}

impl Burst {
    /// An empty burst with its full capacity allocated.
    #[must_use]
    pub fn new() -> Self {
        Self { frames: Vec::with_capacity(BURST_MAX) }
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// The frame itself, when the burst is full.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        // The capacity is there from the start; asking for it leaves no way to the allocator.
        if self.is_full() || self.frames.len() == self.frames.capacity() {
            return Err(frame);
        }
        self.frames.push(frame);
        Ok(())
    }

    /// Number of packets.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Number of packets that still fit.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        BURST_MAX - self.frames.len()
    }

    /// True if there is no packet.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// True if no more packet fits.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.frames.len() >= BURST_MAX
    }

    /// The packets, in order.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Frame] {
        &self.frames
    }

    /// The packets, in order, to be changed in place.
    #[inline]
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [Frame] {
        &mut self.frames
    }

    /// Takes all packets out, in order. What the iterator is not asked for is dropped as a leak,
    /// so run it to its end.
    #[inline]
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Frame> + '_ {
        self.frames.drain(..)
    }

    /// Takes the first `n` packets (all of them, if there are fewer) out, in order. The iterator can
    /// show those that are still to come.
    #[inline]
    pub fn drain_front(&mut self, n: usize) -> std::vec::Drain<'_, Frame> {
        let n = n.min(self.frames.len());
        self.frames.drain(..n)
    }

    /// Gives all packets back to `pool`.
    pub fn release(&mut self, pool: &mut Pool) {
        self.frames.drain(..).for_each(|frame| pool.free(frame));
    }
}

impl Default for Burst {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, FrameSize};

    #[test]
    fn a_full_burst_gives_the_frame_back() {
        let arena = Arena::map(300, FrameSize::for_packet(100)).unwrap();
        let mut pool = arena.pool();
        let mut burst = Burst::new();
        for _ in 0..BURST_MAX {
            burst.push(pool.alloc().unwrap()).unwrap();
        }
        assert!(burst.is_full() && burst.room() == 0);
        let extra = burst.push(pool.alloc().unwrap()).unwrap_err();
        pool.free(extra);
        burst.drain_front(6).for_each(|f| pool.free(f));
        assert_eq!(burst.len(), BURST_MAX - 6);
        burst.release(&mut pool);
        assert!(burst.is_empty());
        assert_eq!(arena.leaked(), 0);
    }

    #[test]
    fn order_is_kept() {
        let arena = Arena::map(4, FrameSize::for_packet(100)).unwrap();
        let mut pool = arena.pool();
        let mut burst = Burst::new();
        for n in 0..4_u8 {
            let mut frame = pool.alloc().unwrap();
            frame.fill_from(&[n]).unwrap();
            burst.push(frame).unwrap();
        }
        let seen: Vec<u8> = burst.as_slice().iter().map(|f| f.data()[0]).collect();
        assert_eq!(seen, [0, 1, 2, 3]);
        burst.release(&mut pool);
    }
}
