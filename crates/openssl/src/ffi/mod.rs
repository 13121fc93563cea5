//! The border to libcrypto, and all unsafe code.
//!
//! libcrypto calls the functions of the dispatch tables here. What it hands over becomes references in one
//! place for each kind: parameters in `param`, buffers and contexts in `context` and in `aead`, `gcm`,
//! `cbc` and `chacha`. A panic, which would be a defect, ends in [`core::guard`].

mod aead;
mod cbc;
mod chacha;
mod context;
mod core;
mod counters;
mod environment;
mod gcm;
mod loading;
mod param;
mod provider;
