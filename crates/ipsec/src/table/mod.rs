//! Tables that are copied on write, a page at a time.
//!
//! A snapshot that differs from its predecessor in one entry shares everything else with it, so
//! making it costs the same whatever the number of entries, and a reader finds what changed by
//! comparing pointers. A table that is not shared is changed in place.

mod hash;
mod map;
mod paged;

pub(crate) use hash::Seed;
pub(crate) use map::{Key, PagedMap};
pub use paged::MAX_SLOTS;
pub(crate) use paged::PagedTable;
