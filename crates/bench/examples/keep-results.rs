//! Prints of results of `convoy bench crypto` what documents are made from, few rounds of the series that goals are about:
//! `cargo run -p convoy-bench --example keep-results -- FILE.json > docs/results/crypto-CLASS.json`.

use std::path::Path;

use convoy_bench::results::Results;

/// Rounds of each series that are kept.
const ROUNDS: usize = 41;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path =
        std::env::args().nth(1).ok_or("give a file that convoy bench crypto --json wrote")?;
    let results = Results::read(Path::new(&path))?;
    print!("{}", results.kept(ROUNDS).to_json()?);
    Ok(())
}
