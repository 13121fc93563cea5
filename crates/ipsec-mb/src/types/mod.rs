//! Memory that crosses the border: layouts and numbers of intel-ipsec-mb's public header, versions 1.3.0 and 2.0.2.
//!
//! Written down from the headers; the tests of this module compare offsets with what a C program prints that
//! includes them. `version` has what they do not agree about: `abi_1` chooses version 1.

mod job;
mod mgr;
mod numbers;
#[cfg_attr(abi_1, path = "version_1.rs")]
#[cfg_attr(not(abi_1), path = "version_2.rs")]
mod version;

pub use job::*;
pub use mgr::*;
pub use numbers::*;
pub use version::*;

pub use crate::ffi::functions::*;

#[cfg(test)]
mod tests;
