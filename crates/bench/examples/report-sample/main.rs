//! Writes a report whose numbers nobody measured, with all that a page may hold: to see how pages look, and for
//! `interop/report/run.py`.
//!
//! `cargo run -p convoy-bench --example report-sample > report.html`

mod sample;

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(convoy_bench::html::render(&sample::report()).as_bytes())
}
