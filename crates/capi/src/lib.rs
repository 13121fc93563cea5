//! The C library `libconvoy_crypto`.
//!
//! What a C program sees is `include/convoy_crypto.h`, generated from this crate by `cargo xtask
//! header --write`; the documentation here is the text of its comments. `types` holds what crosses
//! the border as memory, `ffi` the functions. All the work is done by `convoy-crypto`.
//!
//! Every function answers null pointers, wrong lengths, absurd sizes and overlapping buffers with
//! an error value. What cannot be checked is the caller's promise, as ever in C: that a pointer
//! which is not null points to as many bytes as its length says.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod ffi;
pub mod types;
