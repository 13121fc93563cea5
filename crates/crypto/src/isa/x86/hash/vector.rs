//! Hashing in registers of words: one message per word.

use std::marker::PhantomData;

use super::{
    lanes::Engine,
    rounds::{Hash, Message, State},
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

/// Blocks from memory.
struct Stream<'r, H, const B: usize>(&'r Rows<'r, B>, PhantomData<H>);

impl<W: Words, H: Hash<W>, const B: usize> Message<W> for Stream<'_, H, B> {
    #[inline(always)]
    fn quarter(&self, w: W, quarter: usize) -> [W::V; 4] {
        let [a, b, c, d] = w.load(self.0, quarter);
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

impl<W: Words, H: Hash<W>, const B: usize> Engine<B> for Vector<W, H> {
    const LITTLE_ENDIAN: bool = H::LITTLE_ENDIAN;
    type State = State<W>;

    #[inline(always)]
    fn copy_some(self, from: &[u8], to: &mut [u8; B]) {
        self.0.copy_some(from, to);
    }

    #[inline(always)]
    fn load(self, rows: &Rows<'_, 64>) -> State<W> {
        let [a, b, c, d] = self.0.load(rows, 0);
        let [e, f, g, h] = if H::WORDS > 4 { self.0.load(rows, 1) } else { [a, b, c, d] };
        [a, b, c, d, e, f, g, h]
    }

    #[inline(always)]
    fn block(self, state: &mut State<W>, rows: &Rows<'_, B>) {
        H::block(self.0, state, Stream::<H, B>(rows, PhantomData));
    }

    #[inline(always)]
    fn store(self, state: State<W>, states: &mut States) {
        let [a, b, c, d, e, f, g, h] = state;
        self.0.store(states, 0, [a, b, c, d]);
        if H::WORDS > 4 {
            self.0.store(states, 1, [e, f, g, h]);
        }
    }

    #[inline(always)]
    fn outer(self, digest: usize, keys: &Rows<'_, 64>, hashes: &Rows<'_, 64>, states: &mut States) {
        let w = self.0;
        let word = size_of::<W::Word>();
        let mut state = Engine::<B>::load(self, keys);
        let hash = Engine::<B>::load(self, hashes);

        // The words of the inner digest need no swapping: they are those of the outer message.
        let zero = w.number(0);
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
        Engine::<B>::store(self, state, states);
    }
}
