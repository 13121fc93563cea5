//! Fuzzing by time: every target, some seconds each, on the stable tool chain.
//!
//! Their seeds run in the tests of the crate `fuzz-targets`, without cargo-fuzz.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::report::Tally;
use crate::side_by_side::{self, Job, Tell};
use crate::workspace::{Workspace, cargo, skip, works};

/// Time that each fuzz target runs, in seconds; `CONVOY_FUZZ_SECONDS` says otherwise.
const FUZZ_SECONDS: u32 = 60;

/// Runs every target.
pub(crate) fn run(workspace: &Workspace) -> Result<Tally> {
    let targets = fuzz_targets(&workspace.root)?;
    if targets.is_empty() {
        return Ok(Tally::fail("fuzz: there are no targets in fuzz/fuzz_targets"));
    }
    let Some(tool) = cargo_fuzz(workspace)? else {
        let why = "fuzz: cargo-fuzz is not installed and cargo install could not get it";
        return Ok(skip(why.to_owned()));
    };
    if !works(Command::new("c++").arg("--version")) {
        return Ok(skip("fuzz: there is no C++ compiler for libFuzzer".to_owned()));
    }
    let seconds = env::var("CONVOY_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let seconds: u32 = seconds.unwrap_or(FUZZ_SECONDS);
    let built = Command::new(&tool)
        .args(["fuzz", "build", "--sanitizer", "none"])
        .current_dir(&workspace.root)
        .status()?;
    if !built.success() {
        return Ok(Tally::fail("fuzz: the targets do not build"));
    }
    let jobs = targets.into_iter().map(|target| {
        let tool = &tool;
        Job::new(format!("fuzz {target}, {seconds} s"), move |tell: Tell<'_>| {
            fuzz_one(workspace, tool, &target, seconds, tell)
        })
    });
    Ok(side_by_side::run(jobs.collect()))
}

fn fuzz_one(
    workspace: &Workspace,
    tool: &Path,
    target: &str,
    seconds: u32,
    tell: Tell<'_>,
) -> Result<Tally> {
    // New inputs go below the target folder; seeds that are committed are read only.
    let corpus = workspace.target.join("fuzz-corpus").join(target);
    fs::create_dir_all(&corpus)?;
    let mut command = Command::new(tool);
    command.args(["fuzz", "run", "--sanitizer", "none", target]).arg(&corpus);
    let seeds = workspace.root.join("fuzz/seeds").join(target);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    command.arg("--").arg(format!("-max_total_time={seconds}"));
    let log = workspace.log(&format!("fuzz-{target}"))?;
    command.stdout(log.try_clone()?).stderr(log).current_dir(&workspace.root);
    if command.status()?.success() {
        return Ok(Tally::pass());
    }
    let log = workspace.target.join(format!("gate/fuzz-{target}.log"));
    tell(&last_lines(&log, 40));
    Ok(Tally::fail(format!("fuzz {target}: see {}", log.display())))
}

fn last_lines(path: &Path, count: usize) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

fn fuzz_targets(root: &Path) -> Result<Vec<String>> {
    let Ok(folder) = fs::read_dir(root.join("fuzz/fuzz_targets")) else { return Ok(Vec::new()) };
    let mut names = Vec::new();
    for entry in folder {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// The cargo-fuzz of the machine, else one that is installed into the target folder and stays there.
fn cargo_fuzz(workspace: &Workspace) -> Result<Option<PathBuf>> {
    let on_path = PathBuf::from("cargo-fuzz");
    let own = workspace.tools().join("bin/cargo-fuzz");
    for tool in [&on_path, &own] {
        if works(Command::new(tool).args(["fuzz", "--version"])) {
            return Ok(Some(tool.clone()));
        }
    }
    println!("installing cargo-fuzz below {}", workspace.tools().display());
    let status = cargo()
        .args(["install", "--locked", "--quiet", "cargo-fuzz", "--root"])
        .arg(workspace.tools())
        .status()?;
    Ok(status.success().then_some(own))
}
