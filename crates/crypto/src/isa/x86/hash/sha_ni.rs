//! SHA-1, SHA-224 and SHA-256 by the SHA extensions, two messages interleaved, or one alone.

use std::arch::x86_64::*;

use super::{
    lanes::{Engine, Parked},
    words::{MAX, Rows, States},
};
use crate::{
    isa::x86::token::{ShaNi, Task},
    pairs::PairedWith,
};

/// Messages side by side: as many as sixteen registers hold.
pub(super) const LANES: usize = 2;

/// SHA-1.
#[derive(Clone, Copy)]
pub(in super::super) struct Sha1(pub(in super::super) ShaNi);

/// SHA-224 and SHA-256.
#[derive(Clone, Copy)]
pub(in super::super) struct Sha256(pub(in super::super) ShaNi);

type B = __m128i;

/// SHA-256's constants, as many as a step takes in each row.
const K: &[[u32; 4]] = super::rounds::SHA256_WORDS.as_chunks::<4>().0;

/// A block of each lane.
type Message<const N: usize = LANES> = [[B; 4]; N];

/// One instruction, allowed by the proof that an engine holds.
macro_rules! one {
    ($intrinsic:expr $(,)?) => {{
        // SAFETY: a value of the implementing type holds the proof of the SHA extensions.
        unsafe { $intrinsic() }
    }};
    ($intrinsic:expr, $a:expr $(,)?) => {{
        let a = $a;
        // SAFETY: a value of the implementing type holds the proof of the SHA extensions.
        unsafe { $intrinsic(a) }
    }};
    ($intrinsic:expr, $a:expr, $b:expr $(,)?) => {{
        let (a, b) = ($a, $b);
        // SAFETY: a value of the implementing type holds the proof of the SHA extensions.
        unsafe { $intrinsic(a, b) }
    }};
    ($intrinsic:expr, $a:expr, $b:expr, $c:expr $(, $d:expr)? $(,)?) => {{
        let (a, b, c) = ($a, $b, $c);
        // SAFETY: a value of the implementing type holds the proof of the SHA extensions.
        unsafe { $intrinsic(a, b, c $(, $d)?) }
    }};
}

/// Sixteen bytes of a row.
#[inline(always)]
fn load<const N: usize>(row: &[u8; N], index: usize) -> B {
    let piece = row.as_chunks::<16>().0.get(index).unwrap_or(&[0; 16]);
    // SAFETY: the reference is valid for 16 bytes, and the load needs no alignment.
    unsafe { _mm_loadu_si128(piece.as_ptr().cast()) }
}

/// Stores sixteen bytes of a state.
#[inline(always)]
fn store(state: &mut [u8; 64], index: usize, piece: B) {
    if let Some(place) = state.as_chunks_mut::<16>().0.get_mut(index) {
        // SAFETY: the reference is valid for 16 bytes, and the store needs no alignment.
        unsafe { _mm_storeu_si128(place.as_mut_ptr().cast(), piece) }
    }
}

/// Implements [`Engine::copy_some`].
#[inline(always)]
fn copy_some(from: &[u8], pad: bool, bits: Option<u64>, to: &mut [u8; 64]) {
    let (whole, rest) = from.as_chunks::<16>();
    for (i, to) in to.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        *to = *whole.get(i).unwrap_or(&[0; 16]);
        if i == whole.len() {
            for (to, from) in to.iter_mut().paired_with(rest) {
                *to = *from;
            }
        }
    }
    if let Some(end) = to.get_mut(from.len()).filter(|_| pad) {
        *end = 0x80;
    }
    if let (Some(bits), Some(field)) = (bits, to.last_chunk_mut()) {
        *field = bits.to_ne_bytes();
    }
}

/// Order of bytes that swaps those of 32-bit words, and that reverses all.
const SWAP: [i64; 2] = [0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203];
const REVERSE: [i64; 2] = [0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f];

/// Does something for each of sixteen or twenty numbers that must be known when compiling: the compiler
/// would not unroll so long a loop, and then what is done beside it would be found out step by step.
macro_rules! each {
    ($step:ident: $($i:literal)*) => {
        $($step!($i);)*
    };
}

/// Does something for each lane, of which there are four at most. In a loop, compilers would have what lanes
/// hold in memory.
macro_rules! each_lane {
    ($lanes:expr, $lane:ident => $work:block) => {
        each_lane!(@ $lanes, $lane => $work, 0 1 2 3)
    };
    (@ $lanes:expr, $lane:ident => $work:block, $($number:literal)*) => {
        $(if $number < $lanes {
            const $lane: usize = $number;
            $work
        })*
    };
}
pub(in super::super) use each_lane;

/// Methods of engines for chaining values that lie in memory one after another, in the first rows.
macro_rules! parked_in_rows {
    () => {
        #[inline(always)]
        fn repeat(self, row: &[u8; 64]) -> Self::State {
            self.load(&[row; MAX])
        }

        #[inline(always)]
        fn resume(self, parked: &Parked) -> Self::State {
            let mut rows = [&parked.0[0]; MAX];
            for (row, parked) in rows.iter_mut().paired_with(&parked.0).take(LANES) {
                *row = parked;
            }
            self.load(&rows)
        }

        #[inline(always)]
        fn put(self, parked: &mut Parked, lane: usize, row: &[u8; 64]) {
            if let Some(to) = parked.0.get_mut(lane) {
                *to = *row;
            }
        }

        #[inline(always)]
        fn hand(self, from: &Parked, lane: usize, to: &mut Parked, to_lane: usize) {
            if let Some(row) = from.0.get(lane) {
                self.put(to, to_lane, row);
            }
        }
    };
}

/// A chaining value, in the order in which an engine has it.
pub(in super::super) type Pair = (B, B);

/// The block function on one message, or on few.
pub(in super::super) trait Single: Copy {
    /// A chaining value from memory.
    fn load_one(self, row: &[u8; 64]) -> Pair;
    /// A block from memory.
    fn words_one(self, row: &[u8; 64]) -> [B; 4];
    /// Takes in a block of each message, with something else done beside them.
    fn take<const N: usize>(
        self,
        states: &mut [Pair; N],
        words: [[B; 4]; N],
        beside: &mut impl Beside,
    );
    /// Takes in a block of one message, with something else done beside it.
    #[inline(always)]
    fn take_one(self, state: &mut Pair, words: [B; 4], beside: &mut impl Beside) {
        let mut states = [*state];
        self.take(&mut states, [words], beside);
        [*state] = states;
    }
    /// Stores a chaining value.
    fn store_one(self, state: Pair, to: &mut [u8; 64]);
}

/// Work that is done beside a hash.
pub(in super::super) trait Beside {
    /// The share that comes behind this step of so many. `hash` is a part of the hash under way: what
    /// both pass through stays in this order.
    fn step(&mut self, step: usize, steps: usize, hash: &mut B);
}

/// Nothing else.
pub(in super::super) struct Nothing;

impl Beside for Nothing {
    #[inline(always)]
    fn step(&mut self, _: usize, _: usize, _: &mut B) {}
}

/// A block in this order of bytes.
#[inline(always)]
fn words_in(row: &[u8; 64], [high, low]: [i64; 2]) -> [B; 4] {
    let order = one!(_mm_set_epi64x, high, low);
    let mut words = [order; 4];
    for (i, words) in words.iter_mut().enumerate() {
        *words = one!(_mm_shuffle_epi8, load(row, i), order);
    }
    words
}

/// Takes whole blocks of one message into a chaining value.
pub(super) struct Blocks<'r, E> {
    pub(super) engine: fn(ShaNi) -> E,
    pub(super) state: &'r mut [u8; 64],
    pub(super) blocks: &'r [[u8; 64]],
}

impl<E: Single> Task<ShaNi> for Blocks<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self, token: ShaNi) {
        let engine = (self.engine)(token);
        let mut state = engine.load_one(self.state);
        for block in self.blocks {
            engine.take_one(&mut state, engine.words_one(block), &mut Nothing);
        }
        engine.store_one(state, self.state);
    }
}

/// SHA-1's state: the first four words, the first one highest, and the fifth, highest.
type State1<const N: usize = LANES> = [(B, B); N];

impl Sha1 {
    #[inline(always)]
    fn compress<const N: usize>(
        self,
        state: &mut State1<N>,
        mut message: Message<N>,
        beside: &mut impl Beside,
    ) {
        let mut now = *state;
        macro_rules! step {
            ($i:expr) => {
                each_lane!(N, LANE => {
                    let ((abcd, e), words) = (&mut now[LANE], &mut message[LANE]);
                    if $i >= 4 {
                        let next = one!(_mm_sha1msg1_epu32, words[$i % 4], words[($i + 1) % 4]);
                        let next = one!(_mm_xor_si128, next, words[($i + 2) % 4]);
                        words[$i % 4] = one!(_mm_sha1msg2_epu32, next, words[($i + 3) % 4]);
                    }
                    let sum = if $i == 0 {
                        one!(_mm_add_epi32, *e, words[0])
                    } else {
                        one!(_mm_sha1nexte_epu32, *e, words[$i % 4])
                    };
                    *e = *abcd;
                    *abcd = one!(_mm_sha1rnds4_epu32::<{ $i / 5 }>, *abcd, sum);
                });
                beside.step($i, 20, &mut now[0].0);
            };
        }
        each!(step: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
        each_lane!(N, LANE => {
            let (state, (abcd, e)) = (&mut state[LANE], now[LANE]);
            state.0 = one!(_mm_add_epi32, state.0, abcd);
            state.1 = one!(_mm_sha1nexte_epu32, e, state.1);
        });
    }
}

impl Single for Sha1 {
    #[inline(always)]
    fn load_one(self, row: &[u8; 64]) -> Pair {
        let abcd = one!(_mm_shuffle_epi32::<0x1b>, load(row, 0));
        (abcd, one!(_mm_bslli_si128::<12>, load(row, 1)))
    }

    #[inline(always)]
    fn words_one(self, row: &[u8; 64]) -> [B; 4] {
        words_in(row, REVERSE)
    }

    #[inline(always)]
    fn take<const N: usize>(
        self,
        states: &mut [Pair; N],
        words: [[B; 4]; N],
        beside: &mut impl Beside,
    ) {
        self.compress(states, words, beside);
    }

    #[inline(always)]
    fn store_one(self, state: Pair, to: &mut [u8; 64]) {
        let (abcd, e) = state;
        store(to, 0, one!(_mm_shuffle_epi32::<0x1b>, abcd));
        store(to, 1, one!(_mm_bsrli_si128::<12>, e));
    }
}

impl Engine<64> for Sha1 {
    type State = State1;
    type Words = Message;

    #[inline(always)]
    fn copy_some(self, from: &[u8], pad: bool, bits: Option<u64>, to: &mut [u8; 64]) {
        copy_some(from, pad, bits, to);
    }

    parked_in_rows!();

    #[inline(always)]
    fn load(self, rows: &Rows<'_, 64>) -> State1 {
        [self.load_one(rows[0]), self.load_one(rows[1])]
    }

    #[inline(always)]
    fn words(self, rows: &Rows<'_, 64>) -> Message {
        [self.words_one(rows[0]), self.words_one(rows[1])]
    }

    #[inline(always)]
    fn rounds(self, state: &mut State1, words: Message) {
        self.compress(state, words, &mut Nothing);
    }

    #[inline(always)]
    fn park(self, state: State1, parked: &mut Parked) {
        for (to, state) in parked.0.iter_mut().paired_with(state) {
            self.store_one(state, to);
        }
    }

    #[inline(always)]
    fn digest(self, digest: usize, hashes: State1) -> Message {
        let end = one!(_mm_set_epi32, 0, 1 << 31, 0, 0);
        let length = one!(_mm_set_epi32, 0, 0, 0, 8 * (64 + 4 * digest) as i32);
        let zero = one!(_mm_setzero_si128);
        let mut message = [[zero; 4]; LANES];
        for (words, (abcd, e)) in message.iter_mut().paired_with(hashes) {
            *words = [abcd, one!(_mm_or_si128, e, end), zero, length];
        }
        message
    }

    #[inline(always)]
    fn macs(self, _: usize, state: State1, macs: &mut States) {
        let order = one!(_mm_set_epi64x, REVERSE[0], REVERSE[1]);
        for (to, (abcd, e)) in macs.0.iter_mut().paired_with(state) {
            store(to, 0, one!(_mm_shuffle_epi8, abcd, order));
            store(
                to,
                1,
                one!(
                    _mm_bsrli_si128::<12>,
                    one!(_mm_shuffle_epi8, e, one!(_mm_set_epi64x, SWAP[0], SWAP[1]))
                ),
            );
        }
    }
}

/// SHA-256's state: words a, b, e, f and c, d, g, h, the last lowest.
type State2<const N: usize = LANES> = [(B, B); N];

impl Sha256 {
    #[inline(always)]
    fn compress<const N: usize>(
        self,
        state: &mut State2<N>,
        mut message: Message<N>,
        beside: &mut impl Beside,
    ) {
        let mut now = *state;
        macro_rules! step {
            ($i:expr) => {
                // SAFETY: the reference is valid for 16 bytes, and the load needs no alignment.
                let k = unsafe { _mm_loadu_si128(K[$i].as_ptr().cast()) };
                each_lane!(N, LANE => {
                    let ((abef, cdgh), words) = (&mut now[LANE], &mut message[LANE]);
                    if $i >= 4 {
                        let last = words[($i + 3) % 4];
                        let next = one!(_mm_sha256msg1_epu32, words[$i % 4], words[($i + 1) % 4]);
                        let middle = one!(_mm_alignr_epi8::<4>, last, words[($i + 2) % 4]);
                        let next = one!(_mm_add_epi32, next, middle);
                        words[$i % 4] = one!(_mm_sha256msg2_epu32, next, last);
                    }
                    let sum = one!(_mm_add_epi32, words[$i % 4], k);
                    *cdgh = one!(_mm_sha256rnds2_epu32, *cdgh, *abef, sum);
                    let sum = one!(_mm_shuffle_epi32::<0x0e>, sum);
                    *abef = one!(_mm_sha256rnds2_epu32, *abef, *cdgh, sum);
                });
                beside.step($i, 16, &mut now[0].0);
            };
        }
        each!(step: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        each_lane!(N, LANE => {
            let (state, now) = (&mut state[LANE], now[LANE]);
            state.0 = one!(_mm_add_epi32, state.0, now.0);
            state.1 = one!(_mm_add_epi32, state.1, now.1);
        });
    }

    /// Words a to d and e to h, the first lowest.
    #[inline(always)]
    fn words(self, state: Pair) -> Pair {
        let (abef, cdgh) = state;
        let abcd = one!(_mm_unpackhi_epi64, cdgh, abef);
        let efgh = one!(_mm_unpacklo_epi64, cdgh, abef);
        (one!(_mm_shuffle_epi32::<0x1b>, abcd), one!(_mm_shuffle_epi32::<0x1b>, efgh))
    }
}

/// The words e to h that count: SHA-224 leaves out word h.
#[inline(always)]
fn kept(digest: usize) -> B {
    let ones = one!(_mm_set1_epi32, -1);
    if digest < 8 { one!(_mm_bsrli_si128::<4>, ones) } else { ones }
}

impl Single for Sha256 {
    #[inline(always)]
    fn load_one(self, row: &[u8; 64]) -> Pair {
        let dcba = one!(_mm_shuffle_epi32::<0x1b>, load(row, 0));
        let hgfe = one!(_mm_shuffle_epi32::<0x1b>, load(row, 1));
        (one!(_mm_unpackhi_epi64, hgfe, dcba), one!(_mm_unpacklo_epi64, hgfe, dcba))
    }

    #[inline(always)]
    fn words_one(self, row: &[u8; 64]) -> [B; 4] {
        words_in(row, SWAP)
    }

    #[inline(always)]
    fn take<const N: usize>(
        self,
        states: &mut [Pair; N],
        words: [[B; 4]; N],
        beside: &mut impl Beside,
    ) {
        self.compress(states, words, beside);
    }

    #[inline(always)]
    fn store_one(self, state: Pair, to: &mut [u8; 64]) {
        let (abcd, efgh) = self.words(state);
        store(to, 0, abcd);
        store(to, 1, efgh);
    }
}

impl Engine<64> for Sha256 {
    type State = State2;
    type Words = Message;

    #[inline(always)]
    fn copy_some(self, from: &[u8], pad: bool, bits: Option<u64>, to: &mut [u8; 64]) {
        copy_some(from, pad, bits, to);
    }

    parked_in_rows!();

    #[inline(always)]
    fn load(self, rows: &Rows<'_, 64>) -> State2 {
        [self.load_one(rows[0]), self.load_one(rows[1])]
    }

    #[inline(always)]
    fn words(self, rows: &Rows<'_, 64>) -> Message {
        [self.words_one(rows[0]), self.words_one(rows[1])]
    }

    #[inline(always)]
    fn rounds(self, state: &mut State2, words: Message) {
        self.compress(state, words, &mut Nothing);
    }

    #[inline(always)]
    fn park(self, state: State2, parked: &mut Parked) {
        for (to, state) in parked.0.iter_mut().paired_with(state) {
            self.store_one(state, to);
        }
    }

    #[inline(always)]
    fn digest(self, digest: usize, hashes: State2) -> Message {
        let zero = one!(_mm_setzero_si128);
        let first = one!(_mm_set_epi32, 0, 0, 0, i32::MIN);
        let last = one!(_mm_set_epi32, i32::MIN, 0, 0, 0);
        let (end, after) = if digest < 8 { (last, zero) } else { (zero, first) };
        let keep = kept(digest);
        let length = one!(_mm_set_epi32, 8 * (64 + 4 * digest) as i32, 0, 0, 0);
        let mut message = [[zero; 4]; LANES];
        for (words, hash) in message.iter_mut().paired_with(hashes) {
            let (abcd, efgh) = self.words(hash);
            let efgh = one!(_mm_or_si128, one!(_mm_and_si128, efgh, keep), end);
            *words = [abcd, efgh, after, length];
        }
        message
    }

    #[inline(always)]
    fn macs(self, digest: usize, state: State2, macs: &mut States) {
        let keep = kept(digest);
        let order = one!(_mm_set_epi64x, SWAP[0], SWAP[1]);
        for (to, state) in macs.0.iter_mut().paired_with(state) {
            let (abcd, efgh) = self.words(state);
            store(to, 0, one!(_mm_shuffle_epi8, abcd, order));
            store(to, 1, one!(_mm_shuffle_epi8, one!(_mm_and_si128, efgh, keep), order));
        }
    }
}
