//! Additional data and lengths: the first and the last block of GHASH.

use super::{
    lanes::{B, Lanes},
    tables::{Sum, Tables},
};

/// Hashes all of `aad` but its last block, and returns that last block with the hash added: the
/// block with which hashing of the payload begins. Without additional data it is zero, and adds
/// nothing.
#[inline(always)]
pub(super) fn first_block<L: Lanes>(l: L, tables: &Tables, aad: &[u8]) -> B {
    if aad.len() <= 16 {
        return l.reverse(l.load_some(aad));
    }
    let h = tables.weight(1);
    let mut hash = l.zero();
    let mut rest = aad;
    while let Some((block, tail)) = rest.split_first_chunk::<16>()
        && !tail.is_empty()
    {
        hash = Sum::of(l, l.xor(hash, l.reverse(l.load(block))), h).reduce(l);
        rest = tail;
    }
    l.xor(hash, l.reverse(l.load_some(rest)))
}

/// The last block of [`first_block`], its bytes not reversed.
#[inline(always)]
pub(super) fn last_block<L: Lanes>(l: L, tables: &Tables, aad: &[u8]) -> B {
    match aad.len() {
        // What ESP has, without extended sequence numbers and with them.
        8 => l.pair(0, word(aad, 0)),
        12 => l.pair(word(aad, 8), word(aad, 0)),
        0..=16 => l.load_some(aad),
        _ => l.reverse(first_block(l, tables, aad)),
    }
}

/// Eight bytes of `aad`, or four if it ends there.
#[inline(always)]
fn word(aad: &[u8], start: usize) -> i64 {
    let Some(bytes) = aad.get(start..) else { return 0 };
    match (bytes.first_chunk(), bytes.first_chunk()) {
        (Some(bytes), _) => i64::from_le_bytes(*bytes),
        (_, Some(bytes)) => i64::from(u32::from_le_bytes(*bytes)),
        _ => 0,
    }
}

/// The last block: both lengths in bits (NIST SP 800-38D section 7.1), bytes reversed like every
/// hashed block.
#[inline(always)]
pub(super) fn length_block<L: Lanes>(l: L, aad: usize, data: usize) -> B {
    l.pair((aad as i64) << 3, (data as i64) << 3)
}
