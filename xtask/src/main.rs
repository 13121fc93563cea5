//! The gate: everything CI runs, as one program. `cargo xtask` prints what it can do.

#![forbid(unsafe_code)]

mod audit;
mod c_library;
mod ci;
mod circles;
mod count;
mod drop_reasons;
mod flags;
mod fuzz;
mod gate;
mod header;
mod instructions;
mod interop;
mod kernel_calls;
mod layers;
mod levels;
mod modules;
mod ports;
mod programs;
mod ratchet;
mod report;
mod rfc;
mod rust_user;
mod side_by_side;
mod since;
mod sizes;
mod syntax;
mod test_output;
mod test_steps;
mod tokens;
mod tree;
mod unsafe_code;
mod words;
mod workspace;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::process::ExitCode;

use anyhow::Result;

use crate::gate::Gate;
use crate::interop::Extent;
use crate::report::Tally;
use crate::tree::Tree;
use crate::workspace::Workspace;

const USAGE: &str = "\
cargo xtask ci [--interop] [STEP…]  everything CI runs; with steps, only these; --help lists them
cargo xtask ci --since REF          the same for what changed since a commit, and all that uses it
cargo xtask long [--list]           what is too long for that
cargo xtask interop [--all] [NAME…] the oracles: scapy, tshark, kernel; a case of each kind, or all
cargo xtask levels [--list]         what of the gate runs code, once for every CPU tier that can be denied here
cargo xtask ports [--write|--time]  what kernels cost on processors that are not at hand, by llvm-mca
cargo xtask instructions [--write]  what bursts and pipelines take under Valgrind, held to xtask/instructions.json
cargo xtask layers [--names]        crates use what the table in ARCHITECTURE.md allows; circles within crates
cargo xtask count [--places|--write] what makes source hard to read, held to xtask/measures.json
cargo xtask unsafe [--write]        unsafe only in its places; UNSAFE.md agrees (or is written)
cargo xtask header [--write]        the header of the C library agrees with it (or is written)
cargo xtask sizes                   no file above 1000 code lines, no function above 120
cargo xtask words                   no open ends, no paths or hosts of one machine
cargo xtask drop-reasons            every drop reason is raised and tested
cargo xtask rfc                     every requirement in docs/rfc.md names tests that exist

CONVOY_DENY_CPU=TIER,…      deny CPU tiers to the whole run
CONVOY_FUZZ_SECONDS=N       how long each fuzz target runs
SOAK=N SEED=N               how long the soak of leak protection runs, and with which seed";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(Some(tally)) => conclude(&tally),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<Option<Tally>> {
    let Some((verb, rest)) = arguments.split_first() else {
        println!("{USAGE}");
        return Ok(None);
    };
    let workspace = Workspace::load()?;
    match verb.as_str() {
        "ci" => ci::run(workspace, rest),
        "long" => ci::run_long(workspace, rest),
        "instructions" => instructions::run(&workspace, rest),
        "ports" => ports::run(&workspace, rest),
        "levels" => levels::run(&workspace, rest),
        "interop" => {
            let is_all = rest.iter().any(|argument| argument == "--all");
            let extent = if is_all { Extent::All } else { Extent::OneOfEachKind };
            let names: Vec<String> = rest.iter().filter(|a| *a != "--all").cloned().collect();
            interop::run(&Gate::new(workspace), &names, extent).map(Some)
        }
        "unsafe" if rest.iter().any(|argument| argument == "--write") => {
            let text = unsafe_code::inventory(&Tree::read(&workspace.root)?);
            fs::write(workspace.root.join(unsafe_code::INVENTORY), text)?;
            Ok(None)
        }
        "header" if rest.iter().any(|argument| argument == "--write") => {
            header::write(&workspace).map(|()| None)
        }
        "header" => header::check(&workspace).map(Some),
        "count" => count::run(&workspace, rest).map(Some),
        "layers" => count::run_layers(&workspace, rest).map(Some),
        check if ci::SOURCE_CHECKS.contains(&check) => {
            ci::source_check(&workspace, check).map(Some)
        }
        other => anyhow::bail!("no verb {other:?}\n{USAGE}"),
    }
}

/// Lists what was left out and what failed; the last line is the count, alone.
fn conclude(tally: &Tally) -> ExitCode {
    let mut skips = BTreeMap::<&str, usize>::new();
    for why in &tally.skips {
        *skips.entry(why).or_default() += 1;
    }
    for (why, times) in skips {
        let times = if times > 1 { format!(" ({times} times)") } else { String::new() };
        println!("SKIPPED: {why}{times}");
    }
    for why in &tally.failures {
        println!("FAILED: {why}");
    }
    println!("{tally}");
    if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
