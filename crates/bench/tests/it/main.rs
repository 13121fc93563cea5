//! The integration tests of this crate, in one program: linking is what many would cost.
#![allow(clippy::unwrap_used, reason = "tests")]

mod agree;
mod compare;
mod documents;
mod dpdk;
mod esp;
mod figures;
mod figures_gateways;
mod html;
mod measure;
mod records;
mod results;
mod soak;
mod tls;
