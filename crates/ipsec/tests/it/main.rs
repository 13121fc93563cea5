//! The integration tests of this crate, in one program: linking is what many would cost.
#![allow(clippy::unwrap_used, reason = "tests")]

mod acquire;
mod ah;
mod common;
mod drop_reasons;
mod dummies;
mod engines;
mod fragments;
mod hostile;
mod lifetime;
mod mapping;
mod outbound;
mod pictures;
mod reload;
mod round_trip;
mod suites;
mod trace;
mod transit;
