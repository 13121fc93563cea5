//! Chunks: jobs that are translated and worked on together.

/// Jobs that are translated and worked on together.
pub(super) const CHUNK: usize = 64;

/// Some of the jobs of a chunk, a bit each by their places.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places(u64);

impl Places {
    #[inline(always)]
    pub(super) fn add(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    #[inline(always)]
    pub(super) fn has(self, place: usize) -> bool {
        self.0 >> place & 1 != 0
    }

    #[inline(always)]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

// A bit for each job.
const _: () = assert!(CHUNK == u64::BITS as usize);
