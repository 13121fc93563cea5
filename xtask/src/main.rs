//! The gate: everything CI runs, as one program.
fn main() {}
