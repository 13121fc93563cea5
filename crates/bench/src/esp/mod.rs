//! `convoy bench esp`: what a packet costs in the pipelines, and whether all of them arrive.
//!
//! ```text
//! generator → outbound → (fault injector) → inbound → sink
//! ```
//!
//! One thread drives both pipelines in memory ([`rig`]). The sink compares every packet, byte by
//! byte, with what the generator made ([`traffic`]), and at the end all counters must add up
//! ([`books`]). Beside each burst the crypto library alone seals and opens one of the same lengths
//! under the same keys ([`alone`]), so that what the pipelines add is measured in the same run.
//! The real runtime shows the rate of workers that share the work ([`workers`]).

pub mod alone;
pub mod beside;
pub mod books;
pub mod goal;
pub mod measure;
pub mod report;
mod results;
pub mod rig;
pub mod site;
pub mod soak;
pub mod stages;
pub mod traffic;
pub mod workers;
