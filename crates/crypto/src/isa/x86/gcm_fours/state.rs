//! States and texts of four packets that go in step.

use super::super::{
    lanes512::Z,
    sum192::{Factor, Sum192},
    tables::Window,
    token::Vaes512,
};
use crate::isa::packet::Slot;

/// Packets that go together.
pub(super) const LANES: usize = 4;

/// Bytes of a row.
pub(in super::super) const ROW: usize = 64;

/// Operations that go together.
pub(super) type Four<'o, O> = [Slot<'o, O>; LANES];

/// A register for each packet.
pub(super) type Each = [Z; LANES];

/// Form of the end of packets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// With a full row.
    Exact,
    /// With a row that need not be full.
    Partial,
    /// With a full row and up to one block behind it, which goes a packet per lane.
    Block,
}

pub(super) const EXACT: u8 = End::Exact as u8;
pub(super) const PARTIAL: u8 = End::Partial as u8;
pub(super) const BLOCK: u8 = End::Block as u8;

/// Rows in front of the last one, with a block behind that or without.
#[inline(always)]
pub(super) fn rows_in_front(len: usize, block: bool) -> usize {
    let rows = len.saturating_sub(1) / ROW;
    if block { rows.saturating_sub(1) } else { rows }
}

/// The texts of four packets.
pub(super) struct Texts<'p> {
    /// Rows in front of the last one.
    pub(super) front: [&'p mut [[u8; ROW]]; LANES],
    /// The last row, and what is behind it.
    pub(super) last: [&'p mut [u8]; LANES],
}

/// A full row of each packet.
pub(super) type FullRows<'p> = [&'p mut [u8; ROW]; LANES];

impl Texts<'_> {
    /// A row of each in front of the last one.
    #[inline(always)]
    pub(super) fn row(&mut self, row: usize) -> Option<FullRows<'_>> {
        let [a, b, c, d] = &mut self.front;
        match (a.get_mut(row), b.get_mut(row), c.get_mut(row), d.get_mut(row)) {
            (Some(a), Some(b), Some(c), Some(d)) => Some([a, b, c, d]),
            _ => None,
        }
    }

    /// The last rows, which are full, and what is behind them.
    #[inline(always)]
    pub(super) fn full(&mut self) -> Option<(FullRows<'_>, [&mut [u8]; LANES])> {
        let [a, b, c, d] = &mut self.last;
        match (
            a.split_first_chunk_mut(),
            b.split_first_chunk_mut(),
            c.split_first_chunk_mut(),
            d.split_first_chunk_mut(),
        ) {
            (Some((a, e)), Some((b, f)), Some((c, g)), Some((d, h))) => {
                Some(([a, b, c, d], [e, f, g, h]))
            }
            _ => None,
        }
    }
}

/// Starting values of four packets.
pub(super) struct Start {
    /// The states behind round 1 with a counter of zero, in all lanes.
    pub(super) states: Each,
    /// The same, a packet per lane.
    pub(super) lanes: Z,
    /// The hashes of the additional data times H, a packet per lane: it is added to the first row.
    pub(super) aad: Z,
    /// The blocks of the lengths, a packet per lane.
    pub(super) lengths: Z,
}

/// Results of the last rows of four packets.
#[derive(Clone, Copy)]
pub(super) struct Last<'t> {
    /// Their ciphertext, as it is hashed.
    pub(super) rows: Each,
    /// The blocks that mask the tags, a packet per lane.
    pub(super) masks: Z,
    /// The ciphertext of the block behind the last row as it is hashed, a packet per lane; or nothing.
    pub(super) block: Z,
    /// The powers of H that belong to the lanes of the last rows.
    pub(super) windows: [Window<'t>; LANES],
}

/// Factors of the rows of four packets that are hashed between rounds of AES.
#[derive(Clone, Copy)]
pub(super) enum By<'t> {
    /// Rows times one power in all lanes.
    Alike(Factor),
    /// Rows times a power for each lane.
    Windows([Window<'t>; LANES]),
}

/// Rows to be hashed beside rounds.
#[derive(Clone, Copy)]
pub(super) struct Beside<'r, 't> {
    pub(super) rows: &'r Each,
    pub(super) by: By<'t>,
}

impl Beside<'_, '_> {
    /// Hashes row `p`.
    #[inline(always)]
    pub(super) fn add(self, v: Vaes512, sums: &mut [Sum192; LANES], p: usize) {
        let factor = match self.by {
            By::Alike(factor) => factor,
            By::Windows(windows) => Factor::window(v, windows[p]),
        };
        sums[p].add(v, self.rows[p], factor);
    }
}
