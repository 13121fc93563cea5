//! Instruction sets: proof that the machine has them, and the kernels that use them.
//!
//! This folder holds all of the crate's `unsafe` code, and a safe door to everything in it. Outside
//! it a kernel is a [`Kernel`] value, which exists only if detection found the tier and nobody
//! denied it.

pub(crate) mod features;
mod hint;
pub(crate) mod job;
#[cfg(all(feature = "secret-marks", target_arch = "x86_64"))]
pub mod marks;
#[cfg(not(target_arch = "x86_64"))]
mod none;
pub(crate) mod packet;
pub(crate) mod part;
mod public;
pub(crate) mod record_job;
mod secure;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use hint::{prefetch_front, prefetch_read, time_stamp};
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use none::{
    HashKernel, Kernel, Proofs, RecordKernel, Tables, detect, is_by_amd, sleepers_mhz,
};
pub(crate) use public::made_public;
pub(crate) use secure::{is_secure, with_variable};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{
    HashKernel, Kernel, Proofs, RecordKernel, Tables, detect, is_by_amd, sleepers_mhz,
    wipe_general_registers,
};
