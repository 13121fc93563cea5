//! Results as JSON.

use convoy_bench::results::Results;

use crate::output;

/// Prints results at the end of a run.
pub(super) fn print(mut results: Results) -> anyhow::Result<()> {
    results.machine.look_again();
    output::print(&results.to_json()?)
}
