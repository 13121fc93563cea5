//! What engines cost the core that submits to them, and what they get done.

pub mod line;
pub mod measure;
pub mod report;
pub mod trials;
