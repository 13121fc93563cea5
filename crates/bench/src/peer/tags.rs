//! ICVs that a library computed and left to its caller to compare.

use crate::suite::Layout as _;
use crate::workload::{Arena, Packet, Workload};

/// Number of packets of the arena that end in the ICVs in `tags`.
///
/// Not in constant time: a benchmark has no secrets, and this is the least a caller can do.
pub(super) fn authentic(work: &Workload, arena: &Arena, tags: &[[u8; 64]]) -> usize {
    let (bytes, header, icv) = (arena.bytes(), work.suite.header_bytes(), work.suite.icv_bytes());
    let same = |packet: &Packet, tag: &[u8; 64]| {
        let start = packet.start + header + packet.text;
        let given = &bytes[start..start + icv];
        // ICVs are whole words.
        match icv {
            12 => words::<3>(given) == words::<3>(tag),
            16 => words::<4>(given) == words::<4>(tag),
            _ => *given == tag[..icv],
        }
    };
    work.packets.iter().zip(tags).filter(|(packet, tag)| same(packet, tag)).count()
}

#[inline(always)]
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
    }
    words
}
