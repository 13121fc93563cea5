//! The integration tests of this crate, in one program: linking is what many would cost.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod iproute;
mod netlink;
mod restart;
mod strangers;
