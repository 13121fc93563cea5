//! Tests that take too long for the gate: OpenSSL's own vectors, and the programs in C under AddressSanitizer and
//! Valgrind. `cargo xtask ci openssl` fetches the vectors and runs it.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "the other program of tests uses more of what both share")]

#[path = "../it/common.rs"]
mod common;
mod memory;
mod own_vectors;
#[path = "../it/vector.rs"]
mod vector;
