//! The steps that run programs of tests.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::gate::{DENY, Gate};
use crate::interop;
use crate::programs::Program;
use crate::report::Tally;
use crate::side_by_side::{self, Job, Tell};
use crate::test_output::TestOutput;
use crate::workspace::{Output, Workspace, cargo, stream};

/// Tiers denied in the further runs; a denied tier takes those with it that build on it.
const TIER_RUNS: &[&str] = &["avx512", "avx512,aesni"];
/// The packages whose tests depend on the tier.
const TIERED: &[&str] = &["crypto", "ipsec"];
/// The packages whose integration tests set up networks and wait for packets: these begin first, for they
/// take longest and leave processors to others.
const WAITING: &[&str] = &["convoy", "leak-protection", "control", "io", "lab"];
/// The variable that names the engine of the tests of pipelines.
const ENGINE: &str = "CONVOY_TEST_ENGINE";
/// Engines that the gate has not run them over.
const ENGINES: [&str; 5] = ["moody", "shared", "model", "aws-lc", "cryptodev"];
/// The variable that has tests do often what they do some times in a gate.
const LONG: &str = "CONVOY_LONG";
/// The programs that heed it, and which of their tests do.
const KILLING: [(&str, &str, &[&str]); 6] = [
    ("convoy", "it", &["adversity::", "rotation::"]),
    ("leak-protection", "it", &["kinds::"]),
    ("control", "it", &["kill::"]),
    ("engine", "convoy_engine", &["front::tests::faults::"]),
    ("runtime", "it", &["threads::one_sa"]),
    ("openssl", "it", &["evp::threads"]),
];

/// All tests, one program for each processor at a time.
pub(crate) fn run(gate: &Gate) -> Result<Tally> {
    let mut programs = gate.programs()?;
    programs.sort_by_key(|program| turn(&program.package, &program.name));
    let mut jobs: Vec<Job<'_>> = programs
        .iter()
        .map(|program| job(&gate.workspace, program, |command| patient(program, command)))
        .collect();
    jobs.push(Job::new("documentation", |tell: Tell<'_>| {
        let mut command = cargo();
        command.args(["test", "--workspace", "--doc", "--locked", "--no-fail-fast"]);
        command.args(["--", "--show-output"]).current_dir(&gate.workspace.root);
        tests(&gate.workspace, "test-documentation", &mut command, tell)
    }));
    Ok(side_by_side::run(jobs))
}

/// Place of a program in the order.
fn turn(package: &str, name: &str) -> usize {
    let place = WAITING.iter().position(|waiting| *waiting == package);
    place.filter(|_| name == "it").unwrap_or(WAITING.len())
}

/// One more test at a time than there are processors where tests mostly wait.
fn patient(program: &Program, command: &mut Command) {
    if turn(&program.package, &program.name) < WAITING.len() {
        let threads = 1 + std::thread::available_parallelism().map_or(1, usize::from);
        command.args(["--test-threads", &threads.to_string()]);
    }
}

fn job<'a>(workspace: &'a Workspace, program: &Program, change: impl Fn(&mut Command)) -> Job<'a> {
    let (title, mut command) = (program.title(), program.command());
    change(&mut command);
    let name = format!("test-{}-{}", program.package, program.name);
    Job::new(title, move |tell: Tell<'_>| tests(workspace, &name, &mut command, tell))
}

/// A program's tests with a variable set.
fn with_variable<'a>(gate: &'a Gate, program: &Program, variable: &str, value: &str) -> Job<'a> {
    let mut command = program.command();
    command.env(variable, value);
    let title = format!("{variable}={value} {}", program.title());
    let name = format!("{variable}-{value}-{}-{}", program.package, program.name);
    let denies = variable == DENY;
    Job::new(title, move |tell: Tell<'_>| {
        let mut tally = tests(&gate.workspace, &name, &mut command, tell)?;
        // That a denied tier is not there is what the run is for.
        tally.skips.retain(|why| !denies || !why.starts_with("in part: tier "));
        Ok(tally)
    })
}

/// The tests that depend on the CPU tier, once more for each set of denied tiers.
pub(crate) fn run_tiers(gate: &Gate) -> Result<Tally> {
    let denied = tier_runs(&env::var(DENY).unwrap_or_default());
    if denied.is_empty() {
        println!("nothing left to deny");
        return Ok(Tally::default());
    }
    let mut programs = gate.programs()?;
    interop::begin_ahead(gate);
    programs.retain(|program| TIERED.contains(&&*program.package));
    let mut jobs = Vec::new();
    for denied in &denied {
        for program in &programs {
            jobs.push(with_variable(gate, program, DENY, denied));
        }
    }
    Ok(side_by_side::run(jobs))
}

/// The tests of the pipelines over engines that work elsewhere, or with another library.
pub(crate) fn run_engines(gate: &Gate) -> Result<Tally> {
    let program = find(gate, "ipsec", "it")?;
    let over = |engine: &str| with_variable(gate, &program, ENGINE, engine);
    Ok(side_by_side::run(ENGINES.map(over).into()))
}

/// Tests that kill gateways, rekey, try random packets and shake hands, as often as is too long for the gate.
pub(crate) fn run_kills(gate: &Gate) -> Result<Tally> {
    let mut jobs = Vec::new();
    for (package, name, modules) in KILLING {
        let program = find(gate, package, name)?;
        let set = |command: &mut Command| {
            command.env(LONG, "1").args(modules);
        };
        jobs.push(job(&gate.workspace, &program, set));
    }
    Ok(side_by_side::run(jobs))
}

/// Random jobs of the C library on each tier beside the portable one: a million, or `JOBS`.
pub(crate) fn run_jobs(gate: &Gate) -> Result<Tally> {
    let jobs = env::var("JOBS").unwrap_or_else(|_| "1000000".to_owned());
    let program = find(gate, "capi", "convoy_capi")?;
    let mut command = program.command();
    command.arg("random_tests::").env("CONVOY_RANDOM_JOBS", &jobs);
    tests(&gate.workspace, "jobs", &mut command, &mut |line: &str| println!("{line}"))
}

fn find(gate: &Gate, package: &str, name: &str) -> Result<Program> {
    let mut programs = gate.programs()?.into_iter();
    let is_it = |program: &Program| program.package == package && program.name == name;
    programs.find(is_it).with_context(|| format!("{package} has no test program {name}"))
}

/// Leak protection for an hour, or for `SOAK` seconds: three quarters of it with whole gateways, the rest for the
/// model tests, which run one after another.
pub(crate) fn run_soak(gate: &Gate) -> Result<Tally> {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("SOAK").unwrap_or(3600);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    let seed = number("SEED").unwrap_or(now);
    println!("soak: SEED={seed}, {seconds} seconds; each minute tells how far it is");
    let mut sum = Tally::default();
    for (package, module, seconds) in
        [("convoy", "adversity::", seconds * 3 / 4), ("leak-protection", "kinds::", seconds / 20)]
    {
        let program = find(gate, package, "it")?;
        let mut command = program.command();
        command.arg(module).args(["--test-threads", "2"]);
        command.env("CONVOY_SEED", seed.to_string());
        command.env("CONVOY_SOAK_SECONDS", seconds.to_string());
        let tell = &mut |line: &str| println!("{line}");
        sum.add(tests(&gate.workspace, &format!("soak-{package}"), &mut command, tell)?);
    }
    Ok(sum)
}

/// The tests of the library that emulates instructions, which is no part of the workspace.
pub(crate) fn run_isatrap(gate: &Gate) -> Result<Tally> {
    let mut command = cargo();
    command.args(["test", "--manifest-path", "interop/isatrap/Cargo.toml", "--no-fail-fast"]);
    command.args(["--", "--show-output"]).current_dir(&gate.workspace.root);
    tests(&gate.workspace, "isatrap", &mut command, &mut |line| println!("{line}"))
}

/// Runs the tests of the OpenSSL provider that are too long for the gate. OpenSSL's vectors are fetched before.
pub(crate) fn run_openssl(gate: &Gate) -> Result<Tally> {
    let fallback = || gate.workspace.root.join("target/vectors");
    let vectors = env::var_os("CONVOY_VECTORS").map_or_else(fallback, PathBuf::from);
    let fetched = Command::new("interop/fetch-openssl-vectors.sh")
        .arg(vectors.join("openssl"))
        .current_dir(&gate.workspace.root)
        .status()
        .context("cannot run interop/fetch-openssl-vectors.sh")?;
    let mut sum = Tally::default();
    // Where they are not to be had, the tests that need them are skipped, and say so.
    if !fetched.success() && fetched.code() != Some(77) {
        sum.add(Tally::fail("interop/fetch-openssl-vectors.sh".to_owned()));
    }
    let mut command = cargo();
    command.args(["test", "--package", "convoy-openssl", "--locked", "--lib", "--test", "long"]);
    command.args(["--", "--show-output"]).current_dir(&gate.workspace.root);
    sum.add(tests(&gate.workspace, "openssl", &mut command, &mut |line| println!("{line}"))?);
    Ok(sum)
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

/// Runs tests and counts.
pub(crate) fn tests(
    workspace: &Workspace,
    name: &str,
    command: &mut Command,
    tell: Tell<'_>,
) -> Result<Tally> {
    let mut log = workspace.log(name)?;
    let mut output = TestOutput::default();
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
        tally.add(Tally::fail(format!("{name}: it did not build, or a test program died")));
    }
    Ok(tally)
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
    fn programs_of_networks_begin_first_and_unit_tests_do_not() {
        assert!(turn("convoy", "it") < turn("io", "it"));
        assert!(turn("io", "it") < turn("convoy", "convoy"));
        assert_eq!(turn("convoy", "convoy"), turn("crypto", "it"));
    }

    #[test]
    fn the_packages_that_are_named_are_there() {
        let workspace = Workspace::load().unwrap();
        for name in WAITING.iter().chain(TIERED) {
            assert!(workspace.packages.iter().any(|package| package.name == *name), "{name}");
        }
    }
}
