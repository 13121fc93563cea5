//! The steps of the gate, in the order in which they tell most for the least time, and those that take
//! longer than a gate may.

use std::env;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::gate::{Ahead, DENY, Gate};
use crate::report::{self, Tally};
use crate::tree::{Finding, Tree};
use crate::workspace::{Workspace, cargo, skip, works};
use crate::{
    audit, c_library, count, drop_reasons, flags, fuzz, header, instructions, interop,
    kernel_calls, layers, levels, ports, rfc, rust_user, since, sizes, test_steps, unsafe_code,
    words,
};

/// Gates in which a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// In every gate.
    Gate,
    /// In every gate that may install packages: `make check` goes without.
    Oracles,
    /// In `make test-long`, or by its name.
    Long,
}

/// A step of the gate.
struct Step {
    name: &'static str,
    when: When,
    /// Claim of the step, for lists.
    claim: &'static str,
    run: fn(&Gate) -> Result<Tally>,
}

const fn gate(name: &'static str, claim: &'static str, run: fn(&Gate) -> Result<Tally>) -> Step {
    Step { name, when: When::Gate, claim, run }
}

const fn long(name: &'static str, claim: &'static str, run: fn(&Gate) -> Result<Tally>) -> Step {
    Step { name, when: When::Long, claim, run }
}

const STEPS: &[Step] = &[
    gate("fmt", "the source is formatted", fmt),
    gate(
        "layers",
        "crates use what ARCHITECTURE.md allows, and no circle within one is new",
        |gate| source_check(&gate.workspace, "layers"),
    ),
    gate("count", "parameters and doc comments that say too little do not become more", |gate| {
        source_check(&gate.workspace, "count")
    }),
    gate("unsafe", "unsafe stands only in its places", |gate| {
        source_check(&gate.workspace, "unsafe")
    }),
    gate("sizes", "files and functions are no longer than they may be", |gate| {
        source_check(&gate.workspace, "sizes")
    }),
    gate("words", "no open ends, no paths of one machine", |gate| {
        source_check(&gate.workspace, "words")
    }),
    gate("drop-reasons", "every drop reason is raised and tested", |gate| {
        source_check(&gate.workspace, "drop-reasons")
    }),
    gate("rfc", "requirements of RFCs name tests that exist", |gate| {
        source_check(&gate.workspace, "rfc")
    }),
    gate("header", "the header of the C library agrees with it", |gate| {
        header::check(&gate.workspace)
    }),
    gate("audit", "no crate used has an advisory or an unfit licence", |gate| {
        audit::run(&gate.workspace)
    }),
    gate("flags", "RUSTFLAGS from outside cannot change the portable tier", |gate| {
        flags::run(&gate.workspace)
    }),
    gate("clippy", "no warning in any target", clippy),
    gate(
        "test",
        "all unit, integration and documentation tests, with seeds of fuzz targets",
        test_steps::run,
    ),
    gate("kernels", "kernels call nothing but kernels, as their object code says", |gate| {
        kernel_calls::run(&gate.workspace)
    }),
    gate("ports", "kernels cost what they may on processors that are not at hand", |gate| {
        ports::check(&gate.workspace)
    }),
    gate("instructions", "kernels and pipelines take the instructions that they may", |gate| {
        instructions::check(&gate.workspace)
    }),
    gate("tiers", "tests of crypto and ipsec with CPU tiers denied", test_steps::run_tiers),
    gate("c-library", "the C library installs, and its examples run", c_library::run),
    gate(
        "ipsec-mb",
        "Intel's Wycheproof program agrees over libIPSec_MB, where its source is at hand",
        interop::ipsec_mb,
    ),
    gate("rust-user", "a program elsewhere depends on the library crates", rust_user::run),
    Step {
        name: "interop",
        when: When::Oracles,
        claim: "scapy, tshark and a Linux kernel agree: a case of each kind",
        run: |gate| interop::run(gate, &[], interop::Extent::OneOfEachKind),
    },
    long("doc", "the documentation builds without a warning", doc),
    long(
        "isatrap",
        "the library that emulates instructions agrees with standards",
        test_steps::run_isatrap,
    ),
    long("c-library-release", "the same with the library as it is shipped", c_library::run_release),
    long("fuzz", "every fuzz target, a minute each", |gate| fuzz::run(&gate.workspace)),
    long("oracles", "scapy, tshark and a Linux kernel: every case", |gate| {
        interop::run(gate, &[], interop::Extent::All)
    }),
    long(
        "engines",
        "tests of the pipelines over an engine that finishes in any order",
        test_steps::run_engines,
    ),
    long(
        "openssl",
        "OpenSSL's own vectors, and programs in C under AddressSanitizer and Valgrind",
        test_steps::run_openssl,
    ),
    long(
        "openssl-tests",
        "OpenSSL's own tests with the provider preferred, of the release here and the newest",
        interop::openssl_tests,
    ),
    long(
        "report",
        "Chromium shows the page of the bench's report whole, legible and without a request",
        interop::report,
    ),
    long(
        "ipsec-mb-programs",
        "Intel's test programs, and DPDK, over the stand-ins for libIPSec_MB",
        interop::ipsec_mb_programs,
    ),
    long(
        "kills",
        "tests that kill gateways, rekey or shake hands, by far more than a few times",
        test_steps::run_kills,
    ),
    long("jobs", "a million random jobs of the C library on each tier", test_steps::run_jobs),
    long(
        "soak",
        "an hour of leak protection against kills and foreign rules",
        test_steps::run_soak,
    ),
    long("emulator", "the crypto tests on emulated processors of seven levels", interop::emulator),
    long("levels", "tests, C library, fuzzing and oracles at every CPU tier", |gate| {
        levels::run(&gate.workspace, &[]).map(Option::unwrap_or_default)
    }),
];

/// The checks that need nothing but the source.
pub(crate) const SOURCE_CHECKS: &[&str] =
    &["layers", "count", "unsafe", "sizes", "words", "drop-reasons", "rfc"];

/// True if there is a step of this name.
#[cfg(test)]
pub(crate) fn is_step(name: &str) -> bool {
    STEPS.iter().any(|step| step.name == name)
}

/// Choice of the user.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wish {
    oracles: bool,
    since: Option<String>,
    steps: Vec<String>,
}

fn wish(arguments: &[String]) -> Result<Wish> {
    let mut wish = Wish::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--interop" => wish.oracles = true,
            "--since" => {
                let reference =
                    rest.next().context("--since: name a commit, as in --since HEAD~1")?;
                wish.since = Some(reference.clone());
            }
            name => {
                let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
                ensure!(known.contains(&name), "no step {name:?}; there are {}", known.join(", "));
                wish.steps.push(name.to_owned());
            }
        }
    }
    ensure!(
        wish.since.is_none() || wish.steps.is_empty(),
        "--since chooses the steps by itself; leave {} out",
        wish.steps.join(", ")
    );
    Ok(wish)
}

/// Runs the named steps, or those of the gate where none is named. `--interop` adds the oracles; `--since`
/// leaves out what a change does not concern.
pub(crate) fn run(workspace: Workspace, arguments: &[String]) -> Result<Option<Tally>> {
    if arguments.iter().any(|argument| argument == "--help") {
        println!("{}", help());
        return Ok(None);
    }
    let wish = wish(arguments)?;
    let mut gate = Gate::new(workspace);
    if let Some(reference) = &wish.since {
        gate.concerned = Some(since::concerned(&gate.workspace, reference)?);
    }
    let is_wanted = |step: &&Step| match (step.when, &gate.concerned) {
        _ if !wish.steps.is_empty() => {
            wish.steps.iter().any(|name| name == step.name)
                || (step.when == When::Oracles && wish.oracles)
        }
        (When::Gate | When::Oracles, Some(concerned)) => concerned.needs(step.name),
        (When::Gate, None) => true,
        (When::Oracles, None) => wish.oracles,
        (When::Long, _) => false,
    };
    let steps: Vec<&Step> = STEPS.iter().filter(is_wanted).collect();
    let is_among = |name: &str| steps.iter().any(|step| step.name == name);
    gate.ahead = (is_among("tiers") && is_among("interop")).then(Ahead::default);
    if let Some(concerned) = &gate.concerned {
        let left_out = STEPS.iter().filter(|step| step.when != When::Long && !is_wanted(step));
        println!("{}", concerned.tell(&gate.workspace, left_out.map(|step| step.name)));
    }
    Ok(Some(run_steps(&gate, &steps)))
}

/// Runs what is too long for the gate, or tells with `--list` what that is.
pub(crate) fn run_long(workspace: Workspace, arguments: &[String]) -> Result<Option<Tally>> {
    let only_list = arguments.iter().any(|argument| argument == "--list");
    let unknown = arguments.iter().find(|argument| *argument != "--list");
    ensure!(unknown.is_none(), "long: no argument {:?}; there is --list", unknown);
    let steps: Vec<&Step> = STEPS.iter().filter(|step| step.when == When::Long).collect();
    println!("what is too long for the gate, in this order:");
    steps.iter().for_each(|step| println!("{}", row(step)));
    println!("each alone: cargo xtask ci STEP");
    if only_list {
        return Ok(None);
    }
    Ok(Some(run_steps(&Gate::new(workspace), &steps)))
}

fn row(step: &Step) -> String {
    format!("  {:<18}{}", step.name, step.claim)
}

/// Text of `--help`: the steps of each gate.
fn help() -> String {
    let part = |is_in: fn(&Step) -> bool| -> String {
        let rows: Vec<String> = STEPS.iter().filter(|step| is_in(step)).map(row).collect();
        rows.join("\n")
    };
    format!(
        "cargo xtask ci [--interop] [STEP…]     the gate, or only these steps\n\
         cargo xtask ci --since REF             the gate for what changed since a commit\n\n\
         In every gate (make check, make test, CI):\n{}\n\n\
         In make test and CI, with --interop, or with --since:\n{}\n\n\
         In make test-long (cargo xtask long), or by name:\n{}",
        part(|step| step.when == When::Gate),
        part(|step| step.when == When::Oracles),
        part(|step| step.when == When::Long),
    )
}

fn run_steps(gate: &Gate, steps: &[&Step]) -> Tally {
    if let Ok(denied) = env::var(DENY) {
        println!("{DENY}={denied}: the whole run goes without these tiers");
    }
    let mut sum = Tally::default();
    let mut table = Vec::new();
    let begin = Instant::now();
    for step in steps {
        println!("\n== {} ==", step.name);
        let start = Instant::now();
        let tally = (step.run)(gate)
            .unwrap_or_else(|error| Tally::fail(format!("{}: {error:#}", step.name)));
        table.push(format!("{:<18}{:>5} s   {tally}", step.name, start.elapsed().as_secs()));
        sum.add(tally);
    }
    println!("\n== summary ==");
    table.iter().for_each(|row| println!("{row}"));
    println!("{:<18}{:>5} s", "in all", begin.elapsed().as_secs());
    sum
}

/// One check of the source, with everything it finds printed.
pub(crate) fn source_check(workspace: &Workspace, name: &str) -> Result<Tally> {
    let tree = Tree::read(&workspace.root)?;
    let findings: Vec<Finding> = match name {
        "layers" => layers::check(tree.text(layers::DRAWING), &workspace.packages)
            .into_iter()
            .chain(count::check_circles(&tree, &workspace.packages))
            .collect(),
        "count" => count::check(&tree, &workspace.packages),
        "unsafe" => unsafe_code::check(&tree, &workspace.packages),
        "sizes" => sizes::check(&tree),
        "words" => words::check(&tree),
        "rfc" => rfc::check(&tree),
        _ => drop_reasons::check(&tree),
    };
    Ok(report::tell(name, &findings))
}

fn fmt(gate: &Gate) -> Result<Tally> {
    tool(&gate.workspace, "fmt", &["fmt", "--all", "--check"], "cargo fmt --all")
}

fn clippy(gate: &Gate) -> Result<Tally> {
    let mend = "follow each message, or allow the lint there and say why";
    let all = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    let tally = tool(&gate.workspace, "clippy", &all, mend)?;
    if tally.failed > 0 {
        return Ok(tally);
    }
    // What the demonstrations run.
    let least = [
        "clippy",
        "--package",
        "convoy",
        "--no-default-features",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    tool(&gate.workspace, "clippy", &least, mend)
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

fn doc(gate: &Gate) -> Result<Tally> {
    let status = cargo()
        .args(["doc", "--workspace", "--no-deps", "--quiet"])
        .env("RUSTDOCFLAGS", "-D warnings")
        .current_dir(&gate.workspace.root)
        .status()?;
    if status.success() {
        println!("doc: good");
        return Ok(Tally::pass());
    }
    println!("    mend: follow each message; links in documentation must resolve");
    Ok(Tally::fail("doc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish_of(words: &str) -> Result<Wish> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        wish(&words)
    }

    #[test]
    fn every_source_check_is_a_step() {
        for name in SOURCE_CHECKS {
            assert!(is_step(name), "{name}");
        }
    }

    #[test]
    fn every_step_stands_once_in_the_help() {
        for step in STEPS {
            let rows = help().lines().filter(|line| *line == row(step)).count();
            assert_eq!(rows, 1, "{}", step.name);
        }
    }

    #[test]
    fn wishes_are_read_and_what_makes_no_sense_is_refused() {
        let wish = wish_of("--interop fmt test").unwrap();
        assert!(wish.oracles && wish.steps == ["fmt", "test"]);
        assert_eq!(wish_of("--since HEAD~1").unwrap().since.as_deref(), Some("HEAD~1"));
        let refused = |words: &str| wish_of(words).unwrap_err().to_string();
        assert!(refused("everything").contains("no step \"everything\"; there are fmt, "));
        assert!(refused("--since").contains("name a commit"));
        assert!(refused("--since HEAD fmt").contains("leave fmt out"));
    }
}
