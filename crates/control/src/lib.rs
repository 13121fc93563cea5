//! From site file to published snapshot; leases, status, reload.
#![forbid(unsafe_code)]

pub mod init;
pub mod lease;
pub mod site;
pub mod state;
