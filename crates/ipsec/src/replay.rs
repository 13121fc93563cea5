//! The anti-replay window (RFC 4303 section 3.4.3 and appendix A).
//!
//! A bit for each of the last sequence numbers, in a ring of 64-bit words (the scheme of RFC 6479):
//! moving the window clears whole words and shifts nothing. A number is checked before the packet
//! is authenticated and committed after; the commit checks again, so that of two equal packets in
//! one burst only one passes.
//!
//! ```
//! use convoy_ipsec::replay::{ReplayWindow, Stale};
//! use convoy_wire::SeqNum;
//!
//! let mut window = ReplayWindow::new(64, false, SeqNum::new(0))?;
//! let seq = window.infer(7);
//! let first = window.check(seq).expect("7 is new");
//! let twin = window.check(seq).expect("7 is still new");
//! // … both packets turn out authentic …
//! assert!(window.commit(first).is_ok());
//! assert_eq!(window.commit(twin), Err(Stale::Replayed));
//! # Ok::<(), convoy_ipsec::replay::WindowError>(())
//! ```

use core::sync::atomic::{AtomicU64, Ordering};

use convoy_crypto::prefetch_read;
use convoy_wire::SeqNum;

use crate::drop_reason::DropReason;

/// Smallest window that is not off, packets (RFC 4303 section 3.4.3).
pub const MIN_WINDOW: u32 = 32;
/// Largest window, packets.
pub const MAX_WINDOW: u32 = 65_536;

const WORD_BITS: u64 = u64::BITS as u64;

/// A window cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// Neither 0 nor 32 to 65536 packets.
    #[error("anti-replay window of {0} packets; it must be 0 (off) or 32 to 65536")]
    Size(u32),
    /// No window, but extended sequence numbers, whose high half is found with its help.
    #[error("extended sequence numbers need an anti-replay window")]
    EsnWithoutWindow,
}

/// Reason to refuse a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// Seen before.
    Replayed,
    /// Left of the window, or not above the floor.
    TooOld,
}

impl From<Stale> for DropReason {
    fn from(stale: Stale) -> Self {
        stale.drop_reason()
    }
}

impl Stale {
    /// Reason that the packet is counted under.
    #[inline]
    #[must_use]
    pub const fn drop_reason(self) -> DropReason {
        match self {
            Self::Replayed => DropReason::Replayed,
            Self::TooOld => DropReason::TooOld,
        }
    }
}

/// Says that a number was new when it was checked. Neither `Clone` nor `Copy`; only
/// [`ReplayWindow::commit`] takes it, after the packet is authenticated.
#[derive(Debug, PartialEq, Eq)]
pub struct ReplayOk(SeqNum);

impl ReplayOk {
    /// The number, for the authentication that comes next.
    #[inline]
    #[must_use]
    pub const fn seq(&self) -> SeqNum {
        self.0
    }
}

/// Says that a number was accepted, once and for the first time.
#[derive(Debug, PartialEq, Eq)]
pub struct Committed(SeqNum);

impl Committed {
    /// The number.
    #[inline]
    #[must_use]
    pub const fn seq(&self) -> SeqNum {
        self.0
    }
}

/// The highest number that a key has accepted, kept beyond the life of a window: by the worker for
/// its successor, by control for the time after a restart.
#[derive(Debug, Default)]
pub struct Floor(AtomicU64);

impl Floor {
    /// Nothing at or below `seq` will be accepted by windows that start from this floor.
    #[must_use]
    pub const fn new(seq: SeqNum) -> Self {
        Self(AtomicU64::new(seq.get()))
    }

    /// The floor for a window that begins now.
    #[inline]
    #[must_use]
    pub fn get(&self) -> SeqNum {
        SeqNum::new(self.0.load(Ordering::Acquire))
    }

    /// Raises the floor, usually to a window's right edge once a burst. Never lowers it. Only the
    /// owning worker calls this; before it has the SA, who makes the record.
    #[inline]
    pub fn raise(&self, seq: SeqNum) {
        if seq > self.get() {
            self.0.store(seq.get(), Ordering::Release);
        }
    }
}

/// The window of one inbound SA; by default it is off.
#[derive(Debug, Default)]
pub struct ReplayWindow {
    /// A power of two of words, at least one more than the window needs; empty when off.
    ring: Box<[u64]>,
    /// Packets. Of 32 bits, so that a hot SA fits its cache lines.
    size: u32,
    /// The highest number accepted, or the floor: the right edge, never below the floor.
    edge: u64,
    /// Nothing at or below is accepted.
    floor: u64,
    /// One below the lowest number accepted so far: from where missing ones are counted.
    origin: u64,
    /// Numbers accepted.
    accepted: u64,
    esn: bool,
}

impl ReplayWindow {
    /// A window of `size` packets that accepts only numbers above `floor`.
    ///
    /// # Errors
    /// [`WindowError`] when `size` is neither 0 nor [`MIN_WINDOW`] to [`MAX_WINDOW`], or 0 with
    /// `esn`.
    pub fn new(size: u32, esn: bool, floor: SeqNum) -> Result<Self, WindowError> {
        let words = match size {
            0 if esn => return Err(WindowError::EsnWithoutWindow),
            0 => 0,
            // One word more than needed: the edge's word also has bits right of the edge.
            MIN_WINDOW..=MAX_WINDOW => (size.div_ceil(u64::BITS) + 1).next_power_of_two(),
            _ => return Err(WindowError::Size(size)),
        };
        Ok(Self {
            ring: vec![0; words as usize].into_boxed_slice(),
            size,
            edge: floor.get(),
            floor: floor.get(),
            origin: floor.get(),
            accepted: 0,
            esn,
        })
    }

    /// The full number of a packet with this low half (RFC 4303 appendix A2.2): the one nearest to
    /// the window. Without ESN the high half is 0.
    #[inline]
    #[must_use]
    pub fn infer(&self, low: u32) -> SeqNum {
        if !self.esn {
            return SeqNum::from_parts(0, low);
        }
        let edge = SeqNum::new(self.edge);
        // The low half of the window's left edge, which may lie in the block of 2³² before.
        #[allow(clippy::cast_possible_truncation)] // at most 65536
        let left = edge.low().wrapping_sub(self.size.wrapping_sub(1));
        let high = if left <= edge.low() {
            // The whole window lies in one block. At the last block's end nothing can follow: the
            // number stays in it and is too old.
            edge.high().saturating_add(u32::from(low < left))
        } else {
            // The window reaches into the block before; there is none before the first.
            edge.high().saturating_sub(u32::from(low >= left))
        };
        SeqNum::from_parts(high, low)
    }

    /// Starts loading what a packet with this low half will ask and change.
    #[inline]
    pub(crate) fn prefetch(&self, low: u32) {
        let (word, _) = self.place(self.infer(low).get());
        if let Some(word) = self.ring.get(word) {
            prefetch_read(word);
        }
    }

    /// Tests if a packet with this number may be new. Changes nothing: the packet may be forged.
    ///
    /// # Errors
    /// [`Stale`] when it was seen or is too old to tell.
    #[inline]
    pub fn check(&self, seq: SeqNum) -> Result<ReplayOk, Stale> {
        self.judge(seq.get()).map(|()| ReplayOk(seq))
    }

    #[inline]
    fn judge(&self, seq: u64) -> Result<(), Stale> {
        if self.size == 0 || seq > self.edge {
            return Ok(());
        }
        // Not above the edge, so the difference does not wrap.
        if seq <= self.floor || self.edge.wrapping_sub(seq) >= u64::from(self.size) {
            return Err(Stale::TooOld);
        }
        let (word, bit) = self.place(seq);
        match self.ring.get(word) {
            Some(word) if word & bit == 0 => Ok(()),
            _ => Err(Stale::Replayed),
        }
    }

    /// Accepts an authenticated packet's number, if it is still new.
    ///
    /// # Errors
    /// [`Stale`] when meanwhile the number was accepted or the window moved past it.
    #[inline]
    pub fn commit(&mut self, ok: ReplayOk) -> Result<Committed, Stale> {
        let ReplayOk(seq) = ok;
        self.accept(seq)
    }

    /// As [`ReplayWindow::commit`], for a number that came back from an engine without its proof.
    /// The packet must be authenticated.
    ///
    /// # Errors
    /// [`Stale`] when the number was accepted before or is too old.
    #[inline]
    pub fn accept(&mut self, seq: SeqNum) -> Result<Committed, Stale> {
        let number = seq.get();
        if number > self.edge {
            if self.accepted == 0 {
                // What the peer sent before it is not known to be lost.
                self.origin = number.saturating_sub(1);
            }
            self.advance(number);
        } else {
            self.judge(number)?;
            self.origin = self.origin.min(number.saturating_sub(1));
        }
        self.accepted = self.accepted.saturating_add(1);
        let (word, bit) = self.place(number);
        if let Some(word) = self.ring.get_mut(word) {
            *word |= bit;
        }
        Ok(Committed(seq))
    }

    /// Moves the right edge to `to` and clears the words that come to stand for new numbers.
    #[inline]
    fn advance(&mut self, to: u64) {
        let (from_word, to_word) = (self.edge / WORD_BITS, to / WORD_BITS);
        let steps = to_word.wrapping_sub(from_word).min(self.ring.len() as u64);
        for step in 0..steps {
            let (word, _) = self.place(to.wrapping_sub(step * WORD_BITS));
            if let Some(word) = self.ring.get_mut(word) {
                *word = 0;
            }
        }
        self.edge = to;
    }

    /// A number's word in the ring and its bit there.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // masked to the ring's length
    fn place(&self, seq: u64) -> (usize, u64) {
        let mask = (self.ring.len() as u64).wrapping_sub(1);
        (((seq / WORD_BITS) & mask) as usize, 1 << (seq % WORD_BITS))
    }

    /// The highest number accepted, or the floor if none was.
    #[inline]
    #[must_use]
    pub const fn right_edge(&self) -> SeqNum {
        SeqNum::new(self.edge)
    }

    /// Count of the numbers that were accepted.
    #[inline]
    pub(crate) const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Size of the window, packets; 0 when it is off.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size as u64
    }

    /// Numbers between the lowest and the highest accepted that never came: lost, or still on the
    /// way. Always 0 when the window is off.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        if self.size == 0 {
            return 0;
        }
        self.edge.saturating_sub(self.origin).saturating_sub(self.accepted)
    }
}

#[cfg(test)]
mod tests;
