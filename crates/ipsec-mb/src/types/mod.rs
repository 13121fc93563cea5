//! What crosses the border as memory: layouts and numbers of intel-ipsec-mb's public header, version 2.0.2.
//!
//! Written down from the header; the tests of this module compare offsets with what a C program prints that
//! includes it.

mod job;
mod mgr;
mod numbers;

pub use job::*;
pub use mgr::*;
pub use numbers::*;

pub use crate::ffi::functions::*;

#[cfg(test)]
mod tests;
