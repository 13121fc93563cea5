//! Time as pipelines see it.

/// A moment: nanoseconds of a monotonic clock, read once per burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now(pub u64);
