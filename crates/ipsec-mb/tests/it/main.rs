//! Jobs, bursts and direct calls through this library, and the same through intel-ipsec-mb's own where it is installed: everything that comes
//! out is equal.
//!
//! `CONVOY_IPSEC_MB` names the file of another than the installed one.

#![allow(clippy::unwrap_used)]

mod custom;
mod direct;
mod jobs;
mod library;
mod suites;
mod vectors;
