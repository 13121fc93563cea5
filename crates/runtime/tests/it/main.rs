//! The integration tests of this crate, in one program: linking is what many would cost.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod events;
mod interfaces;
mod no_alloc;
mod threads;
mod transit;
mod upkeep;
mod wake_model;
mod wire_drops;
mod wiring;
