//! Hashing in registers of words: one message per word.

use crate::pairs::PairedWith;
use std::marker::PhantomData;

use super::{
    lanes::{Engine, Parked},
    rounds::{Block, Hash, State},
    words::{Rows, States, Words},
};

/// The hash `H` in registers `W`.
pub(super) struct Vector<W, H>(W, PhantomData<H>);

impl<W, H> Vector<W, H> {
    #[inline(always)]
    pub(super) fn new(w: W) -> Self {
        Self(w, PhantomData)
    }
}

impl<W: Copy, H> Clone for Vector<W, H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: Copy, H> Copy for Vector<W, H> {}

/// Copies the word at one place of a row to a place of another.
#[inline(always)]
fn copy_word<W: Words>(from: &[u8; 64], at: usize, to: &mut [u8; 64], to_at: usize) {
    #[inline(always)]
    fn copy<const N: usize>(from: &[u8; 64], at: usize, to: &mut [u8; 64], to_at: usize) {
        if let (Some(from), Some(to)) =
            (from.as_chunks::<N>().0.get(at), to.as_chunks_mut().0.get_mut(to_at))
        {
            *to = *from;
        }
    }
    if size_of::<W::Word>() == 4 {
        copy::<4>(from, at, to, to_at)
    } else {
        copy::<8>(from, at, to, to_at)
    }
}

impl<W: Words, H: Hash<W>, const B: usize> Engine<B> for Vector<W, H> {
    const LITTLE_ENDIAN: bool = H::LITTLE_ENDIAN;
    type State = State<W>;
    type Words = Block<W>;

    #[inline(always)]
    fn copy_some(self, from: &[u8], pad: bool, bits: Option<u64>, to: &mut [u8; B]) {
        self.0.copy_some(from, pad, bits, to);
    }

    #[inline(always)]
    fn load(self, rows: &Rows<'_, 64>) -> State<W> {
        self.0.load::<64, false>(rows, 0)
    }

    #[inline(always)]
    fn repeat(self, row: &[u8; 64]) -> State<W> {
        let mut state = [self.0.number(0); 8];
        for (i, word) in state.iter_mut().enumerate().take(H::WORDS) {
            *word = self.0.repeat(row, i);
        }
        state
    }

    #[inline(always)]
    fn words(self, rows: &Rows<'_, B>) -> Block<W> {
        let mut words = [self.0.number(0); 16];
        for (i, half) in words.as_chunks_mut().0.iter_mut().enumerate() {
            *half = if H::LITTLE_ENDIAN {
                self.0.load::<B, false>(rows, i)
            } else {
                self.0.load::<B, true>(rows, i)
            };
        }
        words
    }

    #[inline(always)]
    fn digest(self, digest: usize, hashes: State<W>) -> Block<W> {
        let w = self.0;
        let word = size_of::<W::Word>();
        // The words of the inner digest need no swapping: they are those of the outer message.
        let mut words = [w.number(0); 16];
        let end = w.number(if H::LITTLE_ENDIAN { 0x80 } else { 1 << (8 * word - 1) });
        for i in 0..8 {
            if i < H::SHORTEST || (i < H::WORDS && i < digest) {
                words[i] = hashes[i];
            } else if i == digest {
                words[i] = end;
            }
        }
        if digest == 8 {
            words[8] = end;
        }
        words[if H::LITTLE_ENDIAN { 14 } else { 15 }] = w.number(8 * (B + digest * word) as u64);
        words
    }

    #[inline(always)]
    fn rounds(self, state: &mut State<W>, words: Block<W>) {
        H::block(self.0, state, words);
    }

    #[inline(always)]
    fn park(self, state: State<W>, parked: &mut Parked) {
        for (word, row) in state.iter().paired_with(&mut parked.0).take(H::WORDS) {
            self.0.store_row(*word, row);
        }
    }

    #[inline(always)]
    fn resume(self, parked: &Parked) -> State<W> {
        let mut state = [self.0.number(0); 8];
        for (word, row) in state.iter_mut().paired_with(&parked.0).take(H::WORDS) {
            *word = self.0.load_row(row);
        }
        state
    }

    #[inline(always)]
    fn put(self, parked: &mut Parked, lane: usize, row: &[u8; 64]) {
        for (i, to) in parked.0.iter_mut().enumerate().take(H::WORDS) {
            copy_word::<W>(row, i, to, lane);
        }
    }

    #[inline(always)]
    fn hand(self, from: &Parked, lane: usize, to: &mut Parked, to_lane: usize) {
        for (from, to) in from.0.iter().paired_with(&mut to.0).take(H::WORDS) {
            copy_word::<W>(from, lane, to, to_lane);
        }
    }

    #[inline(always)]
    fn macs(self, digest: usize, mut state: State<W>, macs: &mut States) {
        let w = self.0;
        for (i, word) in state.iter_mut().enumerate() {
            if !(i < H::SHORTEST || (i < H::WORDS && i < digest)) {
                *word = w.number(0);
            } else if !H::LITTLE_ENDIAN {
                *word = w.swap_bytes(*word);
            }
        }
        let [a, b, c, d, e, f, g, h] = state;
        w.store(macs, 0, [a, b, c, d]);
        if H::WORDS > 4 {
            w.store(macs, 1, [e, f, g, h]);
        }
    }
}
