//! A `libIPSec_MB.so.2` for programs that are linked with intel-ipsec-mb: its functions, job layout and error numbers, over
//! Convoy's kernels.
//!
//! `types` holds what crosses the border as memory, `check` what jobs are refused for, `ffi` the functions. All the work is done by
//! `convoy-crypto`. What is in the set, README.md says; whatever is not comes back as invalid, with an error number.

#![deny(unsafe_code)]
#![cfg(target_arch = "x86_64")]

mod check;
#[allow(unsafe_code)]
pub mod ffi;
pub mod types;
