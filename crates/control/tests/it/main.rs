//! The integration tests of this crate, in one program: linking is what many would cost.
#![allow(clippy::unwrap_used, reason = "tests")]

mod all_errors;
mod broken;
mod daemons;
mod folder;
mod kill;
mod replay;
mod site;
mod socket;
mod status;
mod wireshark;
mod xfrm_kernel;
mod xfrm_server;
