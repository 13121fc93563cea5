//! The functions of the library, and all its unsafe code.
//!
//! What is null is refused with the error number of the header. The rest is the caller's promise, as the header of
//! intel-ipsec-mb has it: that a pointer which is not null points to as much as its length or type says, and that no two jobs
//! under way write what the other one reads or writes.

mod apart;
mod burst;
mod chacha;
mod direct;
pub(crate) mod functions;
mod gcm;
mod keys;
mod manager;
mod misc;
#[cfg(test)]
mod misuse_tests;
mod packets;
mod quic;
mod quic_hp;
mod raw;
mod ring;
mod sgl;
mod state;
mod work;

pub use keys::imb_hmac_ipad_opad;
pub use manager::*;
pub use misc::*;
pub use quic::*;
pub use quic_hp::*;
