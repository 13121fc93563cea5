//! Jobs, bursts and direct calls through this library, and the same through intel-ipsec-mb's own where it is installed: everything that comes
//! out is equal.
//!
//! `CONVOY_IPSEC_MB` names the file of another than the installed one.

#![allow(clippy::unwrap_used)]

// These tests are those of both libraries.
#[cfg(not(abi_1))]
extern crate convoy_ipsec_mb as stand_in;
#[cfg(abi_1)]
extern crate convoy_ipsec_mb_1 as stand_in;

mod custom;
mod direct;
mod header;
mod jobs;
mod library;
mod misuse;
mod registers;
mod suites;
mod vectors;
