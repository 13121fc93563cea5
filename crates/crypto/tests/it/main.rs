//! The integration tests of this crate, in one program: linking is what many would cost.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod cross_tier;
mod differential;
mod expect_tiers;
mod heap;
mod kat;
mod kat_rfc;
mod kernels;
mod manager;
mod records;
mod registers;
mod stack;
mod suites;
mod wide_units;
mod wycheproof;
