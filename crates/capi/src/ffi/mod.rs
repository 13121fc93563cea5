//! The functions of the library, and all its unsafe code.
//!
//! A pointer from C becomes a reference in one place only, `raw`, after it was found to be neither
//! null nor misaligned and the memory behind it not to be absurdly large. The rest is the caller's
//! promise, which each function's documentation repeats.

mod aead;
mod chunk;
mod keys;
mod long_ivs;
mod manager;
mod misc;
#[cfg(test)]
mod misuse_tests;
#[cfg(test)]
mod packet_tests;
mod packets;
mod parts;
#[cfg(test)]
mod random_tests;
mod raw;
#[cfg(test)]
mod segment_tests;
mod segments;
mod stream;
#[cfg(test)]
mod vector_tests;
mod view;

pub use aead::*;
pub use keys::*;
pub use manager::*;
pub use misc::*;
pub use segments::*;
pub use stream::*;
