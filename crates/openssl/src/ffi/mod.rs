//! The border to libcrypto, and all unsafe code.
//!
//! libcrypto calls the functions of the dispatch tables here. What it hands over becomes references in one
//! place for each kind: parameters in `param`, buffers and contexts in `context` and in the ciphers' `gcm`,
//! `cbc` and `chacha`. A panic, which would be a defect, ends in [`core::guard`].

mod cbc;
mod chacha;
mod context;
mod core;
pub(crate) mod counters;
mod environment;
mod gcm;
mod param;
mod provider;
