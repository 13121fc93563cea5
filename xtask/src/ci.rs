//! The steps of the gate, in the order in which they tell most for the least time.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::layers::Package;
use crate::report::Tally;
use crate::side_by_side::{self, Job, Tell};
use crate::test_output::TestOutput;
use crate::tree::{Finding, Tree};
use crate::workspace::{Output, Workspace, cargo, stream, works};
use crate::{
    audit, c_library, drop_reasons, flags, header, interop, layers, rfc, sizes, unsafe_code, words,
};

/// The variable that denies CPU tiers to every program of a run.
pub(crate) const DENY: &str = "CONVOY_DENY_CPU";
/// What is denied in the further runs; a denied tier takes those with it that build on it.
const TIER_RUNS: &[&str] = &["avx512", "avx512,aesni"];
/// The packages whose tests depend on the tier.
const TIERED: &[&str] = &["convoy-crypto", "convoy-ipsec"];
/// The packages whose tests set up networks and wait for packets.
const WAITING: &[&str] = &["convoy", "io", "lab"];
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
    Step { name: "audit", run: audit::run },
    Step { name: "flags", run: flags::run },
    Step { name: "clippy", run: clippy },
    Step { name: "doc", run: doc },
    Step { name: "test", run: test },
    Step { name: "tiers", run: tiers },
    Step { name: "isatrap", run: isatrap },
    Step { name: "c-library", run: c_library::run },
    Step { name: "fuzz", run: fuzz },
    Step { name: "interop", run: |workspace| interop::run(workspace, &[]) },
];

/// The checks that need nothing but the source.
pub(crate) const SOURCE_CHECKS: &[&str] =
    &["layers", "unsafe", "sizes", "words", "drop-reasons", "rfc"];

/// Whether the gate has a step of this name.
#[cfg(test)]
pub(crate) fn is_step(name: &str) -> bool {
    STEPS.iter().any(|step| step.name == name)
}

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

/// All tests, in groups beside each other: those of networks mostly wait.
fn test(workspace: &Workspace) -> Result<Tally> {
    let mut build = cargo();
    build.args(["test", "--workspace", "--no-run"]).current_dir(&workspace.root);
    if !build.status()?.success() {
        return Ok(Tally::fail("test: the tests do not build"));
    }
    let groups = test_groups(&workspace.packages);
    let jobs = groups.into_iter().map(|(name, chosen)| {
        Job::new(name, move |tell: Tell<'_>| {
            let mut command = cargo();
            command.args(["test", "--workspace", "--no-fail-fast"]).args(chosen);
            command.args(["--", "--show-output"]);
            tests(workspace, name, &mut command, tell)
        })
    });
    Ok(side_by_side::run(jobs.collect()))
}

/// What to ask cargo for, so that all tests run once. A test program's name may stand for those of
/// several packages, which stay together.
fn test_groups(packages: &[Package]) -> [(&'static str, Vec<String>); 3] {
    let names = |waiting: bool| -> BTreeSet<&String> {
        let of = packages.iter().filter(|package| WAITING.contains(&&*package.name) == waiting);
        of.flat_map(|package| &package.tests).collect()
    };
    let waiting = names(true);
    let others = names(false).into_iter().filter(|name| !waiting.contains(name)).collect();
    let select = |names: BTreeSet<&String>| -> Vec<String> {
        names.into_iter().flat_map(|name| ["--test".to_owned(), name.clone()]).collect()
    };
    let units = ["--lib", "--bins"].map(str::to_owned).into_iter();
    [
        ("test-networks", select(waiting.clone())),
        ("test-others", units.chain(select(others)).collect()),
        ("test-doc", vec!["--doc".to_owned()]),
    ]
}

/// The tests that depend on the CPU tier, once more for each set of denied tiers.
fn tiers(workspace: &Workspace) -> Result<Tally> {
    let denied = tier_runs(&env::var(DENY).unwrap_or_default());
    if denied.is_empty() {
        println!("nothing left to deny");
        return Ok(Tally::default());
    }
    let command = || {
        let mut command = cargo();
        command.args(["test", "--no-fail-fast"]).current_dir(&workspace.root);
        command.args(TIERED.iter().flat_map(|package| ["--package", package]));
        command
    };
    if !command().arg("--no-run").status()?.success() {
        return Ok(Tally::fail("tiers: the tests do not build"));
    }
    let jobs = denied.into_iter().map(|denied| {
        Job::new(format!("{DENY}={denied}"), move |tell: Tell<'_>| {
            let mut command = command();
            command.args(["--", "--show-output"]).env(DENY, &denied);
            let mut tally = tests(workspace, &format!("tiers-{denied}"), &mut command, tell)?;
            // That a denied tier is not there is what the run is for.
            tally.skips.retain(|why| !why.starts_with("in part: tier "));
            Ok(tally)
        })
    });
    Ok(side_by_side::run(jobs.collect()))
}

/// The tests of the library that emulates instructions, which is no part of the workspace.
fn isatrap(workspace: &Workspace) -> Result<Tally> {
    let mut command = cargo();
    command.args(["test", "--manifest-path", "interop/isatrap/Cargo.toml", "--no-fail-fast"]);
    command.args(["--", "--show-output"]);
    tests(workspace, "isatrap", &mut command, &mut print)
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

/// Tells at once what there is to be told.
fn print(line: &str) {
    println!("{line}");
}

/// Runs a `cargo test` and counts.
fn tests(
    workspace: &Workspace,
    name: &str,
    command: &mut Command,
    tell: Tell<'_>,
) -> Result<Tally> {
    let mut log = workspace.log(name)?;
    let mut output = TestOutput::default();
    command.current_dir(&workspace.root);
    let status = stream(command, &mut log, |from, line| match from {
        Output::Standard => {
            output.note_failure(line);
            if output.feed(line) {
                tell(line);
            }
        }
        Output::Error => {
            output.feed_error(line);
            tell(line);
        }
    })?;
    let mut tally = output.into_tally();
    if !status.success() && tally.failed == 0 {
        tally.add(Tally::fail(format!("{name}: cargo test did not build, or a test program died")));
    }
    Ok(tally)
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
    fn every_test_program_is_in_one_group() {
        let package = |name: &str, tests: &[&str]| Package {
            name: name.to_owned(),
            manifest: String::new(),
            roots: Vec::new(),
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
            uses: Vec::new(),
        };
        let packages = [
            package("io", &["tun", "no_alloc"]),
            package("ipsec", &["ah", "no_alloc"]),
            package("convoy", &["demo"]),
        ];
        let [(_, networks), (_, others), (_, doc)] = test_groups(&packages);
        assert_eq!(networks, ["--test", "demo", "--test", "no_alloc", "--test", "tun"]);
        assert_eq!(others, ["--lib", "--bins", "--test", "ah"]);
        assert_eq!(doc, ["--doc"]);
    }

    #[test]
    fn the_packages_that_wait_are_there() {
        let workspace = Workspace::load().unwrap();
        for name in WAITING {
            let package = workspace.packages.iter().find(|package| package.name == *name);
            assert!(package.is_some_and(|package| !package.tests.is_empty()));
        }
    }

    #[test]
    fn every_source_check_is_a_step() {
        for name in SOURCE_CHECKS {
            assert!(STEPS.iter().any(|step| step.name == *name), "{name}");
        }
    }
}
