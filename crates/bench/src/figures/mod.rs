//! The figures of the report, made from results.

pub mod chart;
