//! What `convoy bench` runs: workloads, peers, statistics, report.
#![deny(unsafe_code)]

pub mod contender;
pub mod convoy;
pub mod mix;
#[allow(unsafe_code)]
pub mod peer;
pub mod stats;
pub mod suite;
pub mod workload;
