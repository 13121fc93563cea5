//! AES-GCM of four packets of one key that go in step.
//!
//! Registers lie along each packet: a row is four blocks of it. Four packets have as many rows each, and the
//! same row of all four is encrypted at once: four independent chains of AES fill the processor, no packet
//! has a head or a tail that the next one waits for, and round keys and powers of H are loaded once for four.
//! What is sealed is hashed a row later, between the rounds of the next one.
//!
//! GHASH keeps a sum for each packet and lane. Rows in front are weighted alike in all lanes: the n-th from
//! the end of such a run by H^4n. The last two rows have a power for each lane, so that lanes need no other
//! weight when they are summed. Four packets share the end: additional data, lengths and the blocks that mask
//! the tags are in lanes, a packet each.
//!
//! Behind round 1 counters below 256 differ in one column, by what depends on the key and the counter alone,
//! as the byte of a nonce's block that they are in is zero. So round 1 is run once for each packet, and each
//! row adds a constant.

// Indices name registers here, in several arrays at once; every such loop is unrolled.
#![allow(clippy::needless_range_loop)]

mod key;
mod state;

pub(super) use self::state::ROW;
use self::{
    key::Key,
    state::{BLOCK, EXACT, Four, LANES, PARTIAL, rows_in_front},
};
use super::{
    lanes512::{Quad, Z},
    tables::Tables,
    token::{Door, Task, Vaes512},
};
use crate::{
    isa::packet::{GcmPacket, MOST_ROWS, Slot},
    secret::wipe,
};

/// Counters 2 to 5, those of a packet's first row.
pub(super) static COUNTERS: Quad = {
    let mut counters = Quad([[0; 16]; 4]);
    let mut i = 0;
    while i < 4 {
        counters.0[i][15] = i as u8 + 2;
        i += 1;
    }
    counters
};

// Counters are below 256.
const _: () = assert!(4 * (MOST_ROWS + 1) + 2 < 256);

/// Runs as many of the operations as make fours, all of one class, one key of 128 or 256 bits and at most
/// [`MOST_ROWS`] rows; returns the others.
pub(super) fn run<'s, 'o, 'a, O: GcmPacket<'a>>(
    v: Vaes512,
    slots: &'s mut [Slot<'o, O>],
) -> &'s mut [Slot<'o, O>] {
    let Some(Some(first)) = slots.first() else { return slots };
    let (key, first_len) = (first.key_address(), first.data_len());
    let rounds = first.tables().map_or(0, |tables| tables.rounds);
    // Where so few lanes have text, a packet per lane is faster.
    let few = matches!(first_len.div_ceil(16), 0..=3 | 5);
    if slots.len() < LANES || few || first_len > ROW * MOST_ROWS || rounds == 12 {
        return slots;
    }
    // Of many keys, two seldom meet.
    if let [_, Some(second), ..] = slots
        && second.key_address() != key
    {
        return slots;
    }
    // Bits in which keys and rows differ, that any length has, and that any length less one has.
    let (mut keys, mut rows, mut lens, mut ends) = (0, 0, 0, 0);
    for op in slots.iter().flatten() {
        let len = op.data_len();
        keys |= op.key_address() ^ key;
        rows |= len.div_ceil(ROW) ^ first_len.div_ceil(ROW);
        lens |= len;
        ends |= len.wrapping_sub(1);
    }
    let ends = Ends { exact: lens % ROW == 0, block: ends % ROW < 16 };
    if keys | rows != 0 || (first_len <= ROW && !ends.exact) {
        return slots;
    }
    let (fours, rest) = slots.as_chunks_mut();
    match rounds {
        10 => run_all::<O, 10>(v, first_len, ends, fours),
        _ => run_all::<O, 14>(v, first_len, ends, fours),
    }
    rest
}

/// Ends that packets have in common.
#[derive(Clone, Copy)]
struct Ends {
    /// All end with a full row.
    exact: bool,
    /// All have a block at most behind their last full row.
    block: bool,
}

/// Runs packets of a key of `R` rounds, which have as many blocks as one of `len` bytes, or, above 16 blocks,
/// as many rows.
fn run_all<'a, O: GcmPacket<'a>, const R: usize>(
    v: Vaes512,
    len: usize,
    ends: Ends,
    fours: &mut [Four<'_, O>],
) {
    let Ends { exact, block } = ends;
    let short = rows_in_front(len, block) == 0;
    match (short, exact, block) {
        (true, true, _) => v.enter(Fours::<O, R, { EXACT }, true>(fours)),
        (true, _, true) => v.enter(Fours::<O, R, { BLOCK }, true>(fours)),
        (true, ..) => v.enter(Fours::<O, R, { PARTIAL }, true>(fours)),
        (_, true, _) => v.enter(Fours::<O, R, { EXACT }, false>(fours)),
        (_, _, true) => v.enter(Fours::<O, R, { BLOCK }, false>(fours)),
        _ => v.enter(Fours::<O, R, { PARTIAL }, false>(fours)),
    }
}

/// Runs packets of a key of `R` rounds that end with `END`. Those that are `SHORT` have but one row, and
/// maybe a block behind it.
struct Fours<'s, 'o, O, const R: usize, const END: u8, const SHORT: bool>(&'s mut [Four<'o, O>]);

impl<'a, O: GcmPacket<'a>, const R: usize, const END: u8, const SHORT: bool> Task<Vaes512>
    for Fours<'_, '_, O, R, END, SHORT>
{
    type Output = ();

    #[inline(always)]
    fn run(self, v: Vaes512) {
        let Some([Some(first), ..]) = self.0.first() else { return };
        let Some(tables) = first.tables() else { return };
        if SHORT {
            self.run_with(v, tables, &mut [v.zero4(); 2]);
        } else {
            let rows = (first.data_len() / ROW + 2).min(MOST_ROWS + 2);
            self.run_with(v, tables, &mut [v.zero4(); MOST_ROWS + 2][..rows]);
        }
    }
}

impl<'a, O: GcmPacket<'a>, const R: usize, const END: u8, const SHORT: bool>
    Fours<'_, '_, O, R, END, SHORT>
{
    /// The same with room for what the counters of each row change.
    #[inline(always)]
    fn run_with(self, v: Vaes512, tables: &Tables, changes: &mut [Z]) {
        for row in 0..changes.len() {
            changes[row] = change(v, tables, row);
        }
        let key = Key::<R, END, SHORT> { v, tables, changes, tag: tag_change(v, tables) };
        if O::SEAL {
            key.seal(self.0)
        } else {
            key.open(self.0)
        }
        wipe(changes, v.zero4());
    }
}

/// Change that the counters of a row make to the state behind round 1.
#[inline(always)]
fn change(v: Vaes512, tables: &Tables, row: usize) -> Z {
    // No carry out of the byte.
    let from = v.last_word4((4 * row as i32) << 24);
    change_by(v, tables, v.add_words4(v.constant4(&COUNTERS), from))
}

/// The same of counter 1, in all lanes.
#[inline(always)]
fn tag_change(v: Vaes512, tables: &Tables) -> Z {
    change_by(v, tables, v.last_word4(1 << 24))
}

#[inline(always)]
fn change_by(v: Vaes512, tables: &Tables, counters: Z) -> Z {
    let (first, zero) = (v.table4(&tables.round_keys[0]), v.zero4());
    v.xor4(v.aes_round4(v.xor4(first, counters), zero), v.aes_round4(first, zero))
}
