//! The provider as OpenSSL's users meet it: loaded by libcrypto through a configuration file.
//! One program: linking is what many would cost.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod counters;
mod evp;
mod haproxy;
mod nginx;
mod offer;
mod programs;
mod talk;
mod upgrade;
mod vector;
mod vectors;
