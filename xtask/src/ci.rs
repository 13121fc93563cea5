//! The steps of the gate, in the order in which they tell most for the least time.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::report::Tally;
use crate::test_output::TestOutput;
use crate::tree::{Finding, Tree};
use crate::workspace::{Output, Workspace, cargo, stream, works};
use crate::{c_library, drop_reasons, header, interop, layers, rfc, sizes, unsafe_code, words};

/// The variable that denies CPU tiers to every program of a run.
const DENY: &str = "CONVOY_DENY_CPU";
/// What is denied in the further runs; a denied tier takes those with it that build on it.
const TIER_RUNS: &[&str] = &["avx512", "avx512,aesni"];
/// The packages whose tests depend on the tier.
const TIERED: &[&str] = &["convoy-crypto", "convoy-ipsec"];
/// How long each fuzz target runs, in seconds; `CONVOY_FUZZ_SECONDS` says otherwise.
const FUZZ_SECONDS: u32 = 15;

/// A step of the gate.
struct Step {
    name: &'static str,
    run: fn(&Workspace) -> Result<Tally>,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", run: fmt },
    Step { name: "layers", run: |workspace| source_check(workspace, "layers") },
    Step { name: "unsafe", run: |workspace| source_check(workspace, "unsafe") },
    Step { name: "sizes", run: |workspace| source_check(workspace, "sizes") },
    Step { name: "words", run: |workspace| source_check(workspace, "words") },
    Step { name: "drop-reasons", run: |workspace| source_check(workspace, "drop-reasons") },
    Step { name: "rfc", run: |workspace| source_check(workspace, "rfc") },
    Step { name: "header", run: header::check },
    Step { name: "clippy", run: clippy },
    Step { name: "doc", run: doc },
    Step { name: "test", run: test },
    Step { name: "privileged", run: privileged },
    Step { name: "tiers", run: tiers },
    Step { name: "isatrap", run: isatrap },
    Step { name: "c-library", run: c_library::run },
    Step { name: "fuzz", run: fuzz },
    Step { name: "interop", run: |workspace| interop::run(workspace, &[]) },
];

/// The checks that need nothing but the source.
pub(crate) const SOURCE_CHECKS: &[&str] =
    &["layers", "unsafe", "sizes", "words", "drop-reasons", "rfc"];

/// Runs the named steps, or all but interop where none is named; `--interop` adds that one.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<Tally> {
    let with_interop = arguments.iter().any(|argument| argument == "--interop");
    let chosen: Vec<&String> = arguments.iter().filter(|name| *name != "--interop").collect();
    for name in &chosen {
        let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        ensure!(known.contains(&name.as_str()), "no step {name:?}; there are {}", known.join(", "));
    }
    if let Ok(denied) = env::var(DENY) {
        println!("{DENY}={denied}: the whole run goes without these tiers");
    }
    let mut sum = Tally::default();
    let mut table = Vec::new();
    for step in STEPS {
        let wanted = if chosen.is_empty() {
            step.name != "interop" || with_interop
        } else {
            chosen.iter().any(|name| *name == step.name) || (step.name == "interop" && with_interop)
        };
        if !wanted {
            continue;
        }
        println!("\n== {} ==", step.name);
        let start = Instant::now();
        let tally = (step.run)(workspace)
            .unwrap_or_else(|error| Tally::fail(format!("{}: {error:#}", step.name)));
        table.push(format!("{:<14}{:>5} s   {tally}", step.name, start.elapsed().as_secs()));
        sum.add(tally);
    }
    println!("\n== summary ==");
    table.iter().for_each(|row| println!("{row}"));
    Ok(sum)
}

/// One check of the source, with everything it finds printed.
pub(crate) fn source_check(workspace: &Workspace, name: &str) -> Result<Tally> {
    let tree = Tree::read(&workspace.root)?;
    let findings: Vec<Finding> = match name {
        "layers" => layers::check(tree.text(layers::DRAWING), &workspace.packages),
        "unsafe" => unsafe_code::check(&tree, &workspace.packages),
        "sizes" => sizes::check(&tree),
        "words" => words::check(&tree),
        "rfc" => rfc::check(&tree),
        _ => drop_reasons::check(&tree),
    };
    if findings.is_empty() {
        println!("{name}: good");
        return Ok(Tally::pass());
    }
    findings.iter().for_each(|finding| println!("{finding}"));
    Ok(Tally::fail(format!("{name}: {} findings", findings.len())))
}

fn fmt(workspace: &Workspace) -> Result<Tally> {
    tool(workspace, "fmt", &["fmt", "--all", "--check"], "cargo fmt --all")
}

fn clippy(workspace: &Workspace) -> Result<Tally> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    tool(
        workspace,
        "clippy",
        &arguments,
        "follow each message, or allow the lint there and say why",
    )
}

/// Runs a part of cargo that a machine may lack.
fn tool(workspace: &Workspace, name: &str, arguments: &[&str], mend: &str) -> Result<Tally> {
    if !works(cargo().args([name, "--version"])) {
        return Ok(skip(format!("{name}: cargo {name} is not installed")));
    }
    let status = cargo().args(arguments).current_dir(&workspace.root).status()?;
    if status.success() {
        println!("{name}: good");
        return Ok(Tally::pass());
    }
    println!("    mend: {mend}");
    Ok(Tally::fail(name))
}

fn doc(workspace: &Workspace) -> Result<Tally> {
    let status = cargo()
        .args(["doc", "--workspace", "--no-deps", "--quiet"])
        .env("RUSTDOCFLAGS", "-D warnings")
        .current_dir(&workspace.root)
        .status()?;
    if status.success() {
        println!("doc: good");
        return Ok(Tally::pass());
    }
    println!("    mend: follow each message; links in documentation must resolve");
    Ok(Tally::fail("doc"))
}

fn test(workspace: &Workspace) -> Result<Tally> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast", "--", "--show-output"]);
    let (tally, ignored) = tests(workspace, "test", &mut command)?;
    if ignored > 0 {
        println!("{ignored} tests need privileges; the step \"privileged\" runs them");
    }
    Ok(tally)
}

/// Tests that set up interfaces and namespaces: marked `#[ignore]`, run here one after the other.
fn privileged(workspace: &Workspace) -> Result<Tally> {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    if !is_root || !works(Command::new("unshare").args(["--net", "true"])) {
        let why = if is_root { "namespaces are refused here" } else { "they need root" };
        return Ok(skip(format!("privileged: tests marked as ignored, because {why}")));
    }
    let mut command = cargo();
    command.args(["test", "--workspace", "--tests", "--no-fail-fast"]);
    command.args(["--", "--ignored", "--show-output", "--test-threads=1"]);
    Ok(tests(workspace, "privileged", &mut command)?.0)
}

/// The tests that depend on the CPU tier, once more for each set of denied tiers.
fn tiers(workspace: &Workspace) -> Result<Tally> {
    let given = env::var(DENY).unwrap_or_default();
    let mut sum = Tally::default();
    for denied in tier_runs(&given) {
        println!("{DENY}={denied}");
        let mut command = cargo();
        command.args(["test", "--no-fail-fast"]);
        TIERED.iter().for_each(|package| {
            command.args(["--package", package]);
        });
        command.args(["--", "--show-output"]).env(DENY, &denied);
        let (mut tally, _) = tests(workspace, &format!("tiers-{denied}"), &mut command)?;
        // That a denied tier is not there is what the run is for.
        tally.skips.retain(|why| !why.starts_with("in part: tier "));
        sum.add(tally);
    }
    if sum == Tally::default() {
        println!("nothing left to deny");
    }
    Ok(sum)
}

/// The tests of the library that emulates instructions, which is no part of the workspace.
fn isatrap(workspace: &Workspace) -> Result<Tally> {
    let mut command = cargo();
    command.args(["test", "--manifest-path", "interop/isatrap/Cargo.toml", "--no-fail-fast"]);
    command.args(["--", "--show-output"]);
    Ok(tests(workspace, "isatrap", &mut command)?.0)
}

/// The sets to deny beyond what the user denies already.
fn tier_runs(given: &str) -> Vec<String> {
    let split = |list: &str| -> BTreeSet<String> {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    };
    let mut seen = vec![split(given)];
    let mut runs = Vec::new();
    for more in TIER_RUNS {
        let set: BTreeSet<String> = split(given).union(&split(more)).cloned().collect();
        if !seen.contains(&set) {
            runs.push(set.iter().cloned().collect::<Vec<_>>().join(","));
            seen.push(set);
        }
    }
    runs
}

/// Runs a `cargo test` and counts; also yields how many tests were ignored.
fn tests(workspace: &Workspace, name: &str, command: &mut Command) -> Result<(Tally, u64)> {
    let mut log = workspace.log(name)?;
    let mut output = TestOutput::default();
    command.current_dir(&workspace.root);
    let status = stream(command, &mut log, |from, line| match from {
        Output::Standard => {
            output.note_failure(line);
            if output.feed(line) {
                println!("{line}");
            }
        }
        Output::Error => {
            output.feed_error(line);
            eprintln!("{line}");
        }
    })?;
    let ignored = output.ignored;
    let mut tally = output.into_tally();
    if !status.success() && tally.failed == 0 {
        tally.add(Tally::fail(format!("{name}: cargo test did not build, or a test program died")));
    }
    Ok((tally, ignored))
}

/// A short run of every fuzz target on the stable tool chain.
fn fuzz(workspace: &Workspace) -> Result<Tally> {
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
    let mut sum = Tally::default();
    for target in targets {
        println!("fuzz {target}: {seconds} s");
        // New inputs go below the target folder; seeds that are committed are read only.
        let corpus = workspace.target.join("fuzz-corpus").join(&target);
        fs::create_dir_all(&corpus)?;
        let mut command = Command::new(&tool);
        command.args(["fuzz", "run", "--sanitizer", "none", &target]).arg(&corpus);
        let seeds = workspace.root.join("fuzz/seeds").join(&target);
        if seeds.is_dir() {
            command.arg(seeds);
        }
        command.arg("--").arg(format!("-max_total_time={seconds}"));
        let log = workspace.log(&format!("fuzz-{target}"))?;
        command.stdout(log.try_clone()?).stderr(log).current_dir(&workspace.root);
        sum.add(if command.status()?.success() {
            Tally::pass()
        } else {
            let log = workspace.target.join(format!("gate/fuzz-{target}.log"));
            println!("{}", last_lines(&log, 40));
            Tally::fail(format!("fuzz {target}: see {}", log.display()))
        });
    }
    Ok(sum)
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

fn skip(why: String) -> Tally {
    println!("SKIPPED: {why}");
    Tally::skip(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_denied_on_top_of_what_the_user_denies() {
        assert_eq!(tier_runs(""), ["avx512", "aesni,avx512"]);
        assert_eq!(tier_runs("avx512"), ["aesni,avx512"]);
        assert_eq!(tier_runs("aesni"), ["aesni,avx512"]);
        assert_eq!(tier_runs("aesni, avx512"), Vec::<String>::new());
        assert_eq!(tier_runs("vaes512"), ["avx512,vaes512", "aesni,avx512,vaes512"]);
    }

    #[test]
    fn every_source_check_is_a_step() {
        for name in SOURCE_CHECKS {
            assert!(STEPS.iter().any(|step| step.name == *name), "{name}");
        }
    }
}
