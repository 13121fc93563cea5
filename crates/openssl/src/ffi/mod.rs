//! The border to libcrypto, and all unsafe code.
//!
//! libcrypto calls the functions of the dispatch tables here. What it hands over becomes references in one
//! place for each kind: parameters in `param`, buffers and contexts in `cipher` and `cbc`. A panic, which would be a
//! defect, ends in [`core::guard`].

mod cbc;
mod cipher;
mod core;
pub(crate) mod counters;
mod param;
mod provider;
