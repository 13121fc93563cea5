//! The integration tests of this crate, in one program: linking is what many would cost.
#![allow(clippy::unwrap_used, reason = "tests")]

mod interference;
mod kinds;
mod model;
mod neighbours;
mod policies;
mod questions;
mod second_lock;
mod tracking;
mod world;
