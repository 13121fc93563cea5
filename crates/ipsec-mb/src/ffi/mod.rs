//! The functions of the library, and all its unsafe code.
//!
//! Null arguments are refused with the error number of the header. The rest is the caller's promise, as the header of
//! intel-ipsec-mb has it: that a pointer which is not null points to as much as its length or type says, and that no two jobs
//! under way write what the other one reads or writes.

mod apart;
mod burst;
mod chacha;
mod direct;
pub(crate) mod functions;
mod gcm;
mod keys;
#[cfg(not(abi_1))]
mod later;
mod manager;
mod misc;
#[cfg(test)]
mod misuse_tests;
mod one;
mod packets;
#[cfg(not(abi_1))]
mod quic;
#[cfg(not(abi_1))]
mod quic_hp;
mod raw;
mod region;
mod ring;
mod sgl;
mod state;
mod task;
mod views;
mod work;

#[cfg(not(abi_1))]
pub use later::*;
pub use manager::*;
pub use misc::*;
#[cfg(not(abi_1))]
pub use quic::*;
#[cfg(not(abi_1))]
pub use quic_hp::*;
