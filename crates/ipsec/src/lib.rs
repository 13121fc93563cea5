//! RFC 4301 and 4303 as stages over bursts.
//!
//! Control describes SAs ([`sa`]) and policies ([`spd`]) and publishes them as an immutable
//! [`snapshot`]; each worker runs the stages of [`pipeline`] over bursts of packets. There is no
//! I/O here and no unsafe code.
#![forbid(unsafe_code)]

pub mod clock;
pub mod counter;
pub mod counters;
pub mod drop_reason;
pub mod event;
pub mod key;
pub mod lifetime;
mod malformed;
pub mod pipeline;
pub mod replay;
pub mod sa;
mod salt;
pub mod selector;
pub mod sequence;
pub mod snapshot;
pub mod spd;
pub mod suite;
mod table;
pub mod trace;
