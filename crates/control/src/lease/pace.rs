//! Bounds on the way of an anti-replay window's edge since it was written down.

/// Safety factor on the most numbers that passed between two writes, or two syncs.
const PACE_FACTOR: u64 = 4;

/// Of how far an edge moved, at most this many numbers count for the pace for each packet accepted:
/// the packet's own, and others that were lost. What the edge moved beyond that was a jump, as when
/// the peer is started anew and skips what it had leased, and says nothing of what comes next.
const NUMBERS_PER_PACKET: u64 = 4;

/// Packets added for a pace that was never seen, between two writes.
pub(crate) const LEAST_ALLOWANCE: u64 = 8;

/// Edge and packet counts of an SA.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// The highest number accepted.
    pub(crate) edge: u64,
    /// Packets accepted.
    pub(crate) packets: u64,
    /// Packets that the edge surely covers. A worker counts packets one by one and raises the edge
    /// behind a run of them: at any look some may be ahead of it.
    pub(crate) covered: u64,
}

impl Progress {
    /// Takes an edge and a count of packets that are seen now; `seen` is the count that was seen
    /// before.
    pub(crate) fn next(self, edge: u64, packets: u64, seen: u64) -> Self {
        let covered = match () {
            // What is ahead of an edge that moved since the last look was counted since then.
            () if edge > self.edge => seen,
            // No run takes so long.
            () if packets == seen => packets,
            () => self.covered,
        };
        Self { edge, packets, covered }
    }

    /// Numbers that passed since `earlier`, jumps left out.
    pub(crate) fn numbers_since(self, earlier: Self) -> u64 {
        let packets = self.packets.wrapping_sub(earlier.covered);
        self.edge.saturating_sub(earlier.edge).min(packets.saturating_mul(NUMBERS_PER_PACKET))
    }
}

/// Numbers added to an edge that was written down, at a pace in numbers between two writes.
pub(crate) fn allowance(pace: u64, least: u64) -> u64 {
    pace.saturating_mul(PACE_FACTOR).saturating_add(least)
}
