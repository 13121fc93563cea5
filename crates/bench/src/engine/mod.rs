//! Costs of engines on the core that submits to them, and their throughput.

pub mod line;
pub mod measure;
pub mod report;
mod results;
pub mod trials;
