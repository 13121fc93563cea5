//! Modes whose blocks do not wait for one another: CTR, and CBC decryption.
//!
//! Packets go one after another, each in groups of [`GROUP`] registers and a tail compiled once per
//! number of registers. Lengths are known long before states are, so the processor begins the next
//! packet while the last is still in the AES unit; short packets overlap by themselves.

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use super::{
    super::token::Task,
    width::{Widest, Width},
};
use crate::{
    KeyBits,
    block::{Block, RoundKeys},
    isa::job::CipherJob,
};

/// Registers in a group, and in the longest tail.
const GROUP: usize = 8;

/// Blocks in the widest group.
const GROUP_BLOCKS: usize = 4 * GROUP;

/// Blocks that count, 0 to 32, in the low word.
pub(super) static COUNT: [Block; GROUP_BLOCKS + 1] = {
    let mut count = [Block::ZERO; GROUP_BLOCKS + 1];
    let mut i = 0;
    while i <= GROUP_BLOCKS {
        count[i].0[0] = i as u8;
        i += 1;
    }
    count
};

/// Runs code with the number of registers in a tail as a constant.
macro_rules! with_count {
    ($count:expr, $n:ident => $call:expr) => {
        with_count!(@ $count, $n => $call, 1 2 3 4 5 6 7 8)
    };
    (@ $count:expr, $n:ident => $call:expr, $($i:literal)*) => {
        match $count {
            $($i => {
                const $n: usize = $i;
                $call;
            })*
            _ => {}
        }
    };
}

pub(super) use with_count;

/// Encrypts or decrypts with AES-CTR.
pub(super) struct Ctr<'p, 'j> {
    pub(super) bits: KeyBits,
    pub(super) jobs: &'p mut [CipherJob<'j>],
}

impl<L: Widest> Task<L> for Ctr<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        let rounds = self.bits.rounds();
        for job in self.jobs {
            let counter = l.reverse(l.load(job.iv));
            let stream = Stream { w: l.widest(), keys: job.keys, rounds };
            stream.ctr(l.widest().repeat(counter), job.data);
        }
    }
}

/// Decrypts with AES-CBC.
pub(super) struct CbcDecrypt<'p, 'j> {
    pub(super) bits: KeyBits,
    pub(super) jobs: &'p mut [CipherJob<'j>],
}

impl<L: Widest> Task<L> for CbcDecrypt<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        let rounds = self.bits.rounds();
        for job in self.jobs {
            let stream = Stream { w: l.widest(), keys: job.keys, rounds };
            let iv = l.widest().repeat(l.load(job.iv));
            let whole = job.data.len() / 16 * 16;
            stream.cbc_decrypt(iv, job.data.get_mut(..whole).unwrap_or_default());
        }
    }
}

/// Constants of a packet.
#[derive(Clone, Copy)]
pub(super) struct Stream<'k, W> {
    pub(super) w: W,
    pub(super) keys: &'k RoundKeys,
    pub(super) rounds: usize,
}

impl<W: Width> Stream<'_, W> {
    /// Adds the keystream to `data`. `counter` is the first counter block in every place, its bytes
    /// reversed; its last 32 bits count.
    #[inline(always)]
    pub(super) fn ctr(self, mut counter: W::V, data: &mut [u8]) {
        let w = self.w;
        let mut groups = data.chunks_exact_mut(16 * W::BLOCKS * GROUP);
        for group in &mut groups {
            ctr_some::<W, GROUP>(self, counter, group);
            counter = w.add_words(counter, w.splat(&COUNT[W::BLOCKS * GROUP]));
        }
        let rest = groups.into_remainder();
        let registers = rest.len().div_ceil(16 * W::BLOCKS);
        with_count!(registers, N => ctr_some::<W, N>(self, counter, rest));
    }

    /// Decrypts whole blocks. `before` is the IV in every place.
    #[inline(always)]
    fn cbc_decrypt(self, mut before: W::V, data: &mut [u8]) {
        let mut groups = data.chunks_exact_mut(16 * W::BLOCKS * GROUP);
        for group in &mut groups {
            before = cbc_some::<W, GROUP>(self, before, group);
        }
        let rest = groups.into_remainder();
        let registers = rest.len().div_ceil(16 * W::BLOCKS);
        with_count!(registers, N => cbc_some::<W, N>(self, before, rest));
    }

    /// All rounds but the first key addition and the last.
    #[inline(always)]
    fn rounds<const N: usize, const DECRYPT: bool>(self, states: &mut [W::V; N]) {
        for i in 1..10 {
            self.round::<N, DECRYPT>(states, i);
        }
        if self.rounds > 10 {
            self.round::<N, DECRYPT>(states, 10);
            self.round::<N, DECRYPT>(states, 11);
            if self.rounds > 12 {
                self.round::<N, DECRYPT>(states, 12);
                self.round::<N, DECRYPT>(states, 13);
            }
        }
    }

    // No closure: those are not always inlined.
    #[inline(always)]
    fn round<const N: usize, const DECRYPT: bool>(self, states: &mut [W::V; N], number: usize) {
        let (w, key) = (self.w, self.w.splat(&self.keys.0[number]));
        for state in states {
            *state = if DECRYPT { w.undo_round(*state, key) } else { w.round(*state, key) };
        }
    }

    #[inline(always)]
    fn last_key(self) -> W::V {
        // The index is at most 14; saying so spares a check that would panic.
        self.w.splat(&self.keys.0[self.rounds.min(14)])
    }
}

/// CTR on `N` registers, of which the last may be short.
#[inline(always)]
fn ctr_some<W: Width, const N: usize>(s: Stream<'_, W>, counter: W::V, data: &mut [u8]) {
    let w = s.w;
    let size = 16 * W::BLOCKS;
    let Some((front, back)) = data.split_at_mut_checked(size * (N - 1)) else { return };
    let first = w.splat(&s.keys.0[0]);
    let mut states = [first; N];
    for i in 0..N {
        let counter = w.add_words(counter, w.row(&COUNT[W::BLOCKS * i..]));
        states[i] = w.xor(w.reverse(counter), first);
    }
    s.rounds::<N, false>(&mut states);
    let key = s.last_key();
    for i in 0..N - 1 {
        let bytes = &mut front[size * i..][..size];
        w.store(bytes, w.last(states[i], w.xor(w.load(bytes), key)));
    }
    w.store_some(back, w.last(states[N - 1], w.xor(w.load_some(back), key)));
}

/// CBC decryption of `N` registers; returns the last one's ciphertext.
#[inline(always)]
fn cbc_some<W: Width, const N: usize>(s: Stream<'_, W>, before: W::V, data: &mut [u8]) -> W::V {
    let w = s.w;
    let size = 16 * W::BLOCKS;
    let first = w.splat(&s.keys.0[0]);
    let Some((front, back)) = data.split_at_mut_checked(size * (N - 1)) else { return before };
    let last_input = w.load_some(back);
    let mut states = [w.xor(last_input, first); N];
    for i in 0..N - 1 {
        states[i] = w.xor(w.load(&front[size * i..][..size]), first);
    }
    s.rounds::<N, true>(&mut states);
    let key = s.last_key();
    let mut before = before;
    for i in 0..N - 1 {
        let bytes = &mut front[size * i..][..size];
        let input = w.load(bytes);
        let output = w.undo_last(states[i], w.xor(key, w.carry(before, input)));
        w.store(bytes, output);
        before = input;
    }
    let output = w.undo_last(states[N - 1], w.xor(key, w.carry(before, last_input)));
    w.store_some(back, output);
    last_input
}
