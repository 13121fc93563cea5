//! AES-GCM over parts of a message, any counter in front.
//!
//! Between two parts the hash is kept *once more times H*: all blocks so far count, the last one with
//! zeros where bytes are missing, as if one more block of zeros were to follow. From a finished tag this
//! is found without dividing by H: the tag is that, plus the lengths times H, plus the mask. Bytes that
//! come to a block that was begun add their difference times H^2. And of `n` more blocks the first is
//! weighted by H^(n+1), so what was kept goes with the second, by H^n.

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

use super::{
    stream::{COUNT, with_count},
    width::{Four, One, Two, Widest, Width},
};
use crate::isa::part::{Lengths, PartOperation};
use crate::isa::x86::{
    aad,
    gcm256::PairSum,
    lanes::{B, Lanes},
    sum4::Sum4,
    tables::{Sum, Tables, late_round_keys},
    token::Task,
};

/// Registers in a group.
const GROUP: usize = 8;

/// Bytes from which on sums are kept lane by lane: it takes less time from stride to stride, and more at the end.
const LONG: usize = 4096;

/// Registers in a group where that makes two strides.
const HALF: usize = GROUP / 2;

/// Registers that GHASH is summed up over, by powers of H.
pub(super) trait Hashing: Width {
    /// Products that have not been reduced.
    type Sum: Copy;
    /// Registers between two reductions.
    const STRIDE: usize;
    /// The register with the second block.
    const SECOND: usize;

    fn none(self) -> Self::Sum;
    /// Adds blocks times powers of H, from the power of `n` downwards.
    fn add(self, sum: &mut Self::Sum, blocks: Self::V, tables: &Tables, n: usize);
    /// Adds blocks for [`reduce`](Self::reduce), the last one times H to the power of `n`.
    fn add_apart(self, sum: &mut Self::Sum, blocks: Self::V, tables: &Tables, n: usize);
    /// The sum over all blocks.
    fn total(self, sum: Self::Sum) -> Sum;
    /// Blocks that together are worth the sum, where each counts H times as much as the next. Where lanes
    /// are reduced apart, it takes less time than to add them up before.
    fn reduce(self, sum: Self::Sum) -> Self::V;
    /// A block where the second one of a message is in its register, zeros elsewhere.
    fn second(self, block: B) -> Self::V;
    /// The front of a register; the other bytes become zero.
    fn keep(self, a: Self::V, len: usize) -> Self::V;
    /// One of the blocks.
    fn block(self, a: Self::V, i: usize) -> B;
}

impl<L: Lanes> Hashing for One<L> {
    type Sum = Sum;
    const STRIDE: usize = 8;
    const SECOND: usize = 1;

    #[inline(always)]
    fn none(self) -> Sum {
        Sum::zero(self.0)
    }

    #[inline(always)]
    fn add(self, sum: &mut Sum, block: B, tables: &Tables, n: usize) {
        sum.add(self.0, block, tables.weight(n));
    }

    #[inline(always)]
    fn add_apart(self, sum: &mut Sum, block: B, tables: &Tables, n: usize) {
        self.add(sum, block, tables, n);
    }

    #[inline(always)]
    fn total(self, sum: Sum) -> Sum {
        sum
    }

    #[inline(always)]
    fn reduce(self, sum: Sum) -> B {
        sum.reduce(self.0)
    }

    #[inline(always)]
    fn second(self, block: B) -> B {
        block
    }

    #[inline(always)]
    fn keep(self, a: B, len: usize) -> B {
        self.0.keep(a, len)
    }

    #[inline(always)]
    fn block(self, a: B, _: usize) -> B {
        a
    }
}

impl Hashing for Two {
    type Sum = PairSum;
    const STRIDE: usize = 8;
    const SECOND: usize = 0;

    #[inline(always)]
    fn none(self) -> PairSum {
        PairSum::zero(self.0)
    }

    #[inline(always)]
    fn add(self, sum: &mut PairSum, blocks: Self::V, tables: &Tables, n: usize) {
        if let Some(([whole], [divided])) = tables.registers::<2, 1>(n) {
            sum.add_pair(self.0, blocks, whole, divided);
        }
    }

    #[inline(always)]
    fn add_apart(self, sum: &mut PairSum, blocks: Self::V, tables: &Tables, n: usize) {
        sum.add_alike(self.0, blocks, tables.window(n));
    }

    #[inline(always)]
    fn total(self, sum: PairSum) -> Sum {
        Sum::of_hash(self.0, sum.fold(self.0))
    }

    #[inline(always)]
    fn reduce(self, sum: PairSum) -> Self::V {
        sum.reduce(self.0)
    }

    #[inline(always)]
    fn second(self, block: B) -> Self::V {
        self.0.join_pair(block, self.0.zero())
    }

    #[inline(always)]
    fn keep(self, a: Self::V, len: usize) -> Self::V {
        let (low, high) = (self.0.first(a), self.0.second(a));
        self.0.join_pair(self.0.keep(high, len.saturating_sub(16)), self.0.keep(low, len))
    }

    #[inline(always)]
    fn block(self, a: Self::V, i: usize) -> B {
        if i == 0 { self.0.first(a) } else { self.0.second(a) }
    }
}

impl Hashing for Four {
    type Sum = Sum4;
    const STRIDE: usize = 4;
    const SECOND: usize = 0;

    #[inline(always)]
    fn none(self) -> Sum4 {
        Sum4::zero(self.0)
    }

    #[inline(always)]
    fn add(self, sum: &mut Sum4, blocks: Self::V, tables: &Tables, n: usize) {
        if let Some(weights) = tables.four_powers(n) {
            sum.add(self.0, blocks, self.0.window4(weights));
        }
    }

    #[inline(always)]
    fn add_apart(self, sum: &mut Sum4, blocks: Self::V, tables: &Tables, n: usize) {
        sum.add(self.0, blocks, self.0.table4(tables.power(n)));
    }

    #[inline(always)]
    fn total(self, sum: Sum4) -> Sum {
        sum.fold(self.0)
    }

    #[inline(always)]
    fn reduce(self, sum: Sum4) -> Self::V {
        sum.reduce(self.0)
    }

    #[inline(always)]
    fn second(self, block: B) -> Self::V {
        self.0.join4(block, self.0.zero())
    }

    #[inline(always)]
    fn keep(self, a: Self::V, len: usize) -> Self::V {
        self.0.keep4(self.0.front_mask(len), a)
    }

    #[inline(always)]
    fn block(self, a: Self::V, i: usize) -> B {
        match i {
            0 => self.0.first_of2(self.0.lower(a)),
            1 => self.0.second(a),
            2 => self.0.third(a),
            _ => self.0.fourth(a),
        }
    }
}

/// Transforms whole blocks and what there may be of a last one.
pub(super) struct Part<'p> {
    pub(super) tables: &'p Tables,
    /// The first block's counter block.
    pub(super) counter: &'p [u8; 16],
    pub(super) operation: PartOperation,
    pub(super) data: &'p mut [u8],
    /// Once more times H, before and after.
    pub(super) hash: &'p mut [u8; 16],
    /// Room for the key stream of a last block that is not whole.
    pub(super) keystream: &'p mut [u8; 16],
}

impl<L: Widest<W: Hashing>> Task<L> for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        if self.operation == PartOperation::Seal {
            run::<_, true>(l.widest(), self);
        } else {
            run::<_, false>(l.widest(), self);
        }
    }
}

#[inline(always)]
fn run<W: Hashing, const SEAL: bool>(w: W, part: Part<'_>) {
    let l = w.lanes();
    let mut m = Message {
        w,
        tables: part.tables,
        counter: w.repeat(l.reverse(l.load(part.counter))),
        hash: l.reverse(l.load(part.hash)),
        sums: w.zero(),
        added: if part.operation == PartOperation::Ahead {
            w.zero()
        } else {
            w.repeat(l.load(&[0xff; 16]))
        },
    };
    let mut rest = if part.data.len() < LONG {
        m.groups::<GROUP, SEAL, false>(part.data)
    } else {
        let rest = m.groups::<GROUP, SEAL, true>(part.data);
        m.end_groups();
        rest
    };
    if W::STRIDE < GROUP {
        rest = m.groups::<HALF, SEAL, false>(rest);
    }
    let registers = rest.len().div_ceil(16 * W::BLOCKS);
    with_count!(registers, N => m.tail::<N, SEAL>(rest, part.keystream));
    l.store(part.hash, l.reverse(m.hash));
}

/// State of a part: constants, and values that change from group to group.
struct Message<'t, W: Width> {
    w: W,
    tables: &'t Tables,
    /// The next counter block in every place, its bytes reversed.
    counter: W::V,
    /// Once more times H; zero once a group has it.
    hash: B,
    /// The hash over groups, as [`Hashing::reduce`] leaves it. Nothing more is multiplied.
    sums: W::V,
    /// All ones where input is added to the key stream, zeros where that comes out alone. Of no use when sealing.
    added: W::V,
}

impl<W: Hashing> Message<'_, W> {
    /// Transforms and hashes as many groups of `G` registers as there are; returns what is left. The hash is
    /// left in `sums` if lanes are kept `APART`.
    #[inline(always)]
    fn groups<'d, const G: usize, const SEAL: bool, const APART: bool>(
        &mut self,
        data: &'d mut [u8],
    ) -> &'d mut [u8] {
        let w = self.w;
        let size = 16 * W::BLOCKS;
        let mut groups = data.chunks_exact_mut(size * G);
        let mut sealed: Option<&[u8]> = None;
        for group in &mut groups {
            let mut states = self.states::<G>();
            let hashed = if SEAL { sealed } else { Some(&*group) };
            match hashed {
                Some(hashed) => {
                    let mut sum = w.none();
                    for round in 1..10 {
                        self.round(&mut states, round);
                        if round <= G {
                            self.step::<G, APART>(&mut sum, hashed, round - 1);
                        }
                    }
                }
                None => {
                    for round in 1..10 {
                        self.round(&mut states, round);
                    }
                }
            }
            self.late_rounds(&mut states);
            for i in 0..G {
                let bytes = &mut group[size * i..][..size];
                w.store(bytes, self.output::<SEAL>(w.load(bytes), states[i]));
            }
            sealed = Some(group);
        }
        if SEAL && let Some(hashed) = sealed {
            let mut sum = w.none();
            for j in 0..G {
                self.step::<G, APART>(&mut sum, hashed, j);
            }
        }
        groups.into_remainder()
    }

    #[inline(always)]
    fn output<const SEAL: bool>(&self, input: W::V, keystream: W::V) -> W::V {
        let added = if SEAL { input } else { self.w.and(input, self.added) };
        self.w.xor(added, keystream)
    }

    /// Takes a register of a group. The hash so far comes last in a stride: it is still waited for when the
    /// first blocks are multiplied.
    #[inline(always)]
    fn step<const G: usize, const APART: bool>(
        &mut self,
        sum: &mut W::Sum,
        group: &[u8],
        j: usize,
    ) {
        let w = self.w;
        let (stride, size) = (W::STRIDE.min(G), 16 * W::BLOCKS);
        let place = j % stride;
        let i = if APART { place } else { (place + W::SECOND + 1) % stride };
        let mut blocks = w.reverse(w.load(&group[size * (j - place + i)..][..size]));
        if i == W::SECOND {
            blocks = w.xor(blocks, w.second(self.hash));
        }
        let is_last = place == stride - 1;
        match APART {
            true if is_last => {
                w.add_apart(sum, self.sums, self.tables, W::BLOCKS * stride);
                self.sums = w.xor(w.reduce(*sum), blocks);
                (self.hash, *sum) = (w.lanes().zero(), w.none());
            }
            true => w.add_apart(sum, blocks, self.tables, W::BLOCKS * (stride - 1 - i)),
            false => {
                w.add(sum, blocks, self.tables, W::BLOCKS * (stride - i) + 1);
                if is_last {
                    self.hash = w.total(*sum).reduce(w.lanes());
                    *sum = w.none();
                }
            }
        }
    }

    /// Makes one hash of sums that were kept apart.
    #[inline(always)]
    fn end_groups(&mut self) {
        let w = self.w;
        let mut sum = w.none();
        w.add(&mut sum, self.sums, self.tables, W::BLOCKS + 1);
        self.hash = w.total(sum).reduce(w.lanes());
    }

    /// The last `N` registers, of which the last one may be short.
    #[inline(always)]
    fn tail<const N: usize, const SEAL: bool>(
        &mut self,
        data: &mut [u8],
        keystream: &mut [u8; 16],
    ) {
        if N > W::STRIDE {
            return;
        }
        let (w, size) = (self.w, 16 * W::BLOCKS);
        let len = data.len();
        let blocks = if W::BLOCKS == 1 { N } else { len.div_ceil(16) };
        let Some((front, back)) = data.split_at_mut_checked(size * (N - 1)) else { return };
        let mut states = self.states::<N>();
        for round in 1..10 {
            self.round(&mut states, round);
        }
        self.late_rounds(&mut states);
        let mut hashed = [w.zero(); N];
        for i in 0..N {
            let (input, kept) = if i < N - 1 {
                let bytes = &mut front[size * i..][..size];
                let input = w.load(bytes);
                let output = self.output::<SEAL>(input, states[i]);
                w.store(bytes, output);
                (input, output)
            } else {
                let input = w.load_some(back);
                let output = self.output::<SEAL>(input, states[i]);
                w.store_some(back, output);
                (input, w.keep(output, back.len()))
            };
            hashed[i] = w.reverse(if SEAL { kept } else { input });
        }
        let mut sum = w.none();
        if W::SECOND < N {
            hashed[W::SECOND] = w.xor(hashed[W::SECOND], w.second(self.hash));
        } else {
            w.add(&mut sum, w.second(self.hash), self.tables, 1);
        }
        for i in 0..N {
            w.add(&mut sum, hashed[i], self.tables, blocks + 1 - W::BLOCKS * i);
        }
        let l = w.lanes();
        self.hash = w.total(sum).reduce(l);
        if !len.is_multiple_of(16) {
            l.store(keystream, w.block(states[N - 1], (blocks - 1) % W::BLOCKS));
        }
    }

    /// The start states of the next `N` registers.
    #[inline(always)]
    fn states<const N: usize>(&mut self) -> [W::V; N] {
        let w = self.w;
        let first = w.splat(&self.tables.round_keys[0]);
        let mut states = [first; N];
        for i in 0..N {
            let counter = w.add_words(self.counter, w.row(&COUNT[W::BLOCKS * i..]));
            states[i] = w.xor(w.reverse(counter), first);
        }
        self.counter = w.add_words(self.counter, w.splat(&COUNT[W::BLOCKS * N]));
        states
    }

    #[inline(always)]
    fn round<const N: usize>(&self, states: &mut [W::V; N], round: usize) {
        let key = self.w.splat(&self.tables.round_keys[round]);
        for state in states {
            *state = self.w.round(*state, key);
        }
    }

    /// All rounds from the tenth on.
    #[inline(always)]
    fn late_rounds<const N: usize>(&self, states: &mut [W::V; N]) {
        let tables = self.tables;
        late_round_keys!(tables, key => {
            let key = self.w.splat(key);
            for state in &mut *states {
                *state = self.w.round(*state, key);
            }
        });
        let key = self.w.splat(&tables.last);
        for state in states {
            *state = self.w.last(*state, key);
        }
    }
}

/// Two blocks, encrypted.
#[inline(always)]
fn encrypt<L: Lanes>(l: L, tables: &Tables, blocks: [B; 2]) -> [B; 2] {
    let first = l.table(&tables.round_keys[0]);
    let [mut a, mut b] = [l.xor(blocks[0], first), l.xor(blocks[1], first)];
    for key in &tables.round_keys[1..10] {
        let key = l.table(key);
        (a, b) = (l.aes_round(a, key), l.aes_round(b, key));
    }
    late_round_keys!(tables, key => {
        let key = l.table(key);
        (a, b) = (l.aes_round(a, key), l.aes_round(b, key));
    });
    let key = l.table(&tables.last);
    [l.aes_last(a, key), l.aes_last(b, key)]
}

/// Takes the tag of a message apart that is to go on.
pub(super) struct Resume<'p> {
    pub(super) tables: &'p Tables,
    /// The block in front of the first counter block.
    pub(super) origin: &'p [u8; 16],
    /// The counter block of the last block, for what is not used of it.
    pub(super) counter: &'p [u8; 16],
    /// Bytes of additional data and text.
    pub(super) lengths: Lengths,
    /// The tag; then the hash, once more times H.
    pub(super) hash: &'p mut [u8; 16],
    pub(super) mask: &'p mut [u8; 16],
    pub(super) keystream: &'p mut [u8; 16],
}

impl<L: Lanes> Task<L> for Resume<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        let blocks = [l.load(self.origin), l.load(self.counter)];
        let [mask, keystream] = encrypt(l, self.tables, blocks);
        l.store(self.mask, mask);
        l.store(self.keystream, keystream);
        l.store(self.hash, with_lengths(l, self.tables, self.lengths, l.load(self.hash), mask));
    }
}

/// From a hash that is once more times H to the tag, or from the tag to that.
#[inline(always)]
fn with_lengths<L: Lanes>(l: L, tables: &Tables, lengths: Lengths, hash: B, mask: B) -> B {
    let lengths = aad::length_block(l, lengths.aad as usize, lengths.text as usize);
    let product = Sum::of(l, lengths, tables.weight(1)).reduce(l);
    l.xor(l.xor(hash, l.reverse(product)), mask)
}

/// Begins the text behind additional data.
pub(super) struct Begin<'p> {
    pub(super) tables: &'p Tables,
    pub(super) origin: &'p [u8; 16],
    /// The last block of additional data with the hash so far added; then the hash, once more times H.
    pub(super) hash: &'p mut [u8; 16],
    pub(super) mask: &'p mut [u8; 16],
}

impl<L: Lanes> Task<L> for Begin<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        let origin = l.load(self.origin);
        l.store(self.mask, encrypt(l, self.tables, [origin, origin])[0]);
        let block = l.reverse(l.load(self.hash));
        let hash = Sum::of(l, block, self.tables.weight(2)).reduce(l);
        l.store(self.hash, l.reverse(hash));
    }
}

/// Adds bytes of a block that was begun.
pub(super) struct Add<'p> {
    pub(super) tables: &'p Tables,
    /// The bytes in their place, zeros around them.
    pub(super) bytes: &'p [u8; 16],
    pub(super) hash: &'p mut [u8; 16],
}

impl<L: Lanes> Task<L> for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        let block = l.reverse(l.load(self.bytes));
        let product = Sum::of(l, block, self.tables.weight(2)).reduce(l);
        l.store(self.hash, l.xor(l.load(self.hash), l.reverse(product)));
    }
}

/// Makes the tag of the hash.
pub(super) struct Finish<'p> {
    pub(super) tables: &'p Tables,
    pub(super) lengths: Lengths,
    pub(super) mask: &'p [u8; 16],
    pub(super) hash: &'p mut [u8; 16],
}

impl<L: Lanes> Task<L> for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, l: L) {
        let (hash, mask) = (l.load(self.hash), l.load(self.mask));
        l.store(self.hash, with_lengths(l, self.tables, self.lengths, hash, mask));
    }
}
