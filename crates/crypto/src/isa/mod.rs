//! Instruction sets: proof that the machine has them, and the kernels that use them.
//!
//! This folder holds all of the crate's `unsafe` code, and a safe door to everything in it.

pub(crate) mod features;
mod hint;
#[allow(dead_code)]
mod none;

pub use hint::{prefetch_read, time_stamp};
pub(crate) use none::{Kernel, Proofs, Tables, detect};
