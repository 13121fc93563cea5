//! From site file to published snapshot; leases, status, reload.
#![forbid(unsafe_code)]

pub mod lease;
pub mod site;
