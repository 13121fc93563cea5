//! Workloads, peers, statistics and reports of `convoy bench`.
#![deny(unsafe_code)]

pub mod api;
pub mod between;
pub mod chart;
pub mod class;
pub mod contender;
pub mod convoy;
pub mod cores;
pub mod dpdk;
pub mod engine;
pub mod esp;
pub mod figures;
pub mod floor;
pub mod forward;
pub mod gate;
pub mod html;
pub mod machine;
pub mod maker;
pub mod memory;
pub mod mix;
#[allow(unsafe_code)]
pub mod peer;
pub mod rank;
pub mod records;
pub mod report;
pub mod results;
pub mod run;
pub mod stats;
pub mod stream;
pub mod suite;
pub mod tiers;
pub mod tls;
pub mod workload;
