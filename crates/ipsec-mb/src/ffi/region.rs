//! Memory of callers by its addresses alone.

use convoy_crypto::manager::Span;

/// The addresses of some memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) start: *const u8,
    pub(super) len: usize,
}

impl Region {
    pub(super) const fn new(start: *const u8, len: u64) -> Self {
        Self { start, len: len as usize }
    }

    /// The memory that both cover, if they share a byte.
    pub(super) fn united(self, other: Self) -> Option<Self> {
        let end = |region: Self| region.start.addr().saturating_add(region.len);
        let shared = self.start.addr().max(other.start.addr()) < end(self).min(end(other));
        let first = if self.start.addr() < other.start.addr() { self } else { other };
        let len = end(self).max(end(other)) - first.start.addr();
        shared.then_some(Self { start: first.start, len })
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.united(other).is_some()
    }

    /// Place of a part of it within it.
    pub(super) fn span_of(self, part: Self) -> Span {
        Span::new(part.start.addr() - self.start.addr(), part.len)
    }
}
