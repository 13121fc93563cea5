//! The oracles nobody here wrote: scapy, tshark, the Linux kernel, an emulated processor.
//!
//! Each is a script below `interop/` that ends with 0 (passed), 1 (failed) or 77 (cannot run here), prints
//! `SKIPPED: why` for whatever it leaves out, and ends with a line `N passed, N failed, N skipped`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, PoisonError};
use std::thread;

use anyhow::{Result, anyhow, ensure};

use crate::gate::Gate;
use crate::report::Tally;
use crate::side_by_side::{self, Job, Tell};
use crate::workspace::{Workspace, stream};

/// Exit status of a script that cannot run on this machine.
const CANNOT_RUN: i32 = 77;

/// Share of an oracle that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// One case of each kind: each suite, mode and encapsulation once, not each with each.
    OneOfEachKind,
    All,
}

/// An oracle, by the name that is given on the command line.
struct Oracle {
    name: &'static str,
    script: &'static str,
}

/// The slowest first: they run beside each other.
const ORACLES: &[Oracle] = &[
    Oracle { name: "scapy", script: "scapy_oracle.py" },
    Oracle { name: "kernel", script: "kernel_peer.py" },
    Oracle { name: "tshark", script: "tshark_oracle.py" },
];

const EMULATOR: Oracle = Oracle { name: "emulator", script: "emulator/test_tiers.py" };

const OPENSSL_TESTS: Oracle = Oracle { name: "openssl-tests", script: "openssl-tests/run.sh" };

const REPORT: Oracle = Oracle { name: "report", script: "report/run.py" };

const IPSEC_MB: Oracle = Oracle { name: "ipsec-mb", script: "ipsec-mb/run.sh" };

const DPDK: Oracle = Oracle { name: "dpdk", script: "ipsec-mb/dpdk.sh" };

/// The oracle that takes longest, for its emulated machine takes a CPU while it starts: it begins beside tests that
/// wait for nobody, and so suffer no more than it does.
const AHEAD: &str = "kernel";

/// Begins the oracle that takes longest, where its step follows; that step waits for it and prints its lines.
pub(crate) fn begin_ahead(gate: &Gate) {
    let (Some(ahead), Some(oracle)) = (&gate.ahead, ORACLES.iter().find(|o| o.name == AHEAD))
    else {
        return;
    };
    let workspace = Arc::clone(&gate.workspace);
    let run = thread::spawn(move || {
        let mut lines = Vec::new();
        let keep = &mut |line: &str| lines.push(line.to_owned());
        let outcome = run_one(&workspace, oracle, Extent::OneOfEachKind, keep);
        (lines, outcome)
    });
    *ahead.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
}

/// Waits for the oracle that began before its step; `None` if it did not.
fn finish_ahead(gate: &Gate, oracle: &Oracle, tell: Tell<'_>) -> Option<Result<Tally>> {
    let ahead = gate.ahead.as_ref().filter(|_| oracle.name == AHEAD)?;
    let run = ahead.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    Some(match run.join() {
        Ok((lines, outcome)) => {
            lines.iter().for_each(|line| tell(line));
            outcome
        }
        Err(_) => Err(anyhow!("its thread panicked")),
    })
}

/// Runs the named oracles, or all where none is named.
pub(crate) fn run(gate: &Gate, names: &[String], extent: Extent) -> Result<Tally> {
    for name in names {
        let known: Vec<&str> = ORACLES.iter().map(|oracle| oracle.name).collect();
        ensure!(
            known.contains(&name.as_str()),
            "no oracle {name:?}; there are {}",
            known.join(", ")
        );
    }
    // The build of the tests makes the programs that the oracles run.
    gate.programs()?;
    let wanted = |oracle: &&Oracle| names.is_empty() || names.iter().any(|n| n == oracle.name);
    let jobs = ORACLES.iter().filter(wanted).map(|oracle| {
        Job::new(format!("oracle {}", oracle.name), move |tell: Tell<'_>| {
            finish_ahead(gate, oracle, tell)
                .unwrap_or_else(|| run_one(&gate.workspace, oracle, extent, tell))
        })
    });
    Ok(side_by_side::run(jobs.collect()))
}

/// The crypto tests on emulated processors.
pub(crate) fn emulator(gate: &Gate) -> Result<Tally> {
    run_one(&gate.workspace, &EMULATOR, Extent::All, &mut |line| println!("{line}"))
}

/// OpenSSL's own tests with the provider, which its script builds.
pub(crate) fn openssl_tests(gate: &Gate) -> Result<Tally> {
    run_one(&gate.workspace, &OPENSSL_TESTS, Extent::All, &mut |line| println!("{line}"))
}

/// Chromium's look at the page of the bench's report, which its script builds.
pub(crate) fn report(gate: &Gate) -> Result<Tally> {
    run_one(&gate.workspace, &REPORT, Extent::All, &mut |line| println!("{line}"))
}

/// Intel's Wycheproof program over the stand-ins for its library, where its source is at hand. The build of the tests makes those.
pub(crate) fn ipsec_mb(gate: &Gate) -> Result<Tally> {
    gate.programs()?;
    run_one(&gate.workspace, &IPSEC_MB, Extent::OneOfEachKind, &mut |line| println!("{line}"))
}

/// All of Intel's programs, and DPDK, over the stand-ins.
pub(crate) fn ipsec_mb_programs(gate: &Gate) -> Result<Tally> {
    let mut sum = Tally::default();
    for oracle in [IPSEC_MB, DPDK] {
        let run = run_one(&gate.workspace, &oracle, Extent::All, &mut |line| println!("{line}"))?;
        sum.add(run);
    }
    Ok(sum)
}

fn run_one(
    workspace: &Workspace,
    oracle: &Oracle,
    extent: Extent,
    tell: Tell<'_>,
) -> Result<Tally> {
    let mut log = workspace.log(&format!("interop-{}", oracle.name))?;
    let script = workspace.root.join("interop").join(oracle.script);
    let mut command = if script.extension().is_some_and(|extension| extension == "py") {
        let mut command = Command::new(python(workspace));
        command.arg(script);
        command
    } else {
        Command::new(script)
    };
    command
        .args((extent == Extent::OneOfEachKind).then_some("--smoke"))
        .current_dir(&workspace.root)
        .env("PYTHONUNBUFFERED", "1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("CONVOY_BIN", workspace.target.join("debug").join("convoy"))
        .env("CONVOY_TARGET", &workspace.target)
        .env("CARGO_TARGET_DIR", &workspace.target);
    let mut lines = Vec::new();
    let status = stream(&mut command, &mut log, |_, line| {
        tell(&format!("  {line}"));
        lines.push(line.to_owned());
    })?;
    Ok(verdict(oracle.name, status.code(), &lines))
}

/// The interpreter that has scapy: the one `interop/install-deps.sh` set up, else the machine's.
fn python(workspace: &Workspace) -> PathBuf {
    let own = workspace.tools().join("python/bin/python3");
    if own.exists() { own } else { PathBuf::from("python3") }
}

fn verdict(name: &str, code: Option<i32>, lines: &[String]) -> Tally {
    let mut tally = lines.iter().rev().find_map(|line| Tally::parse(line)).unwrap_or_default();
    let marked = |mark: &str| -> Vec<String> {
        let found = lines.iter().filter_map(|line| line.trim_start().strip_prefix(mark));
        found.map(|what| format!("{name}: {what}")).collect()
    };
    tally.skips = marked("SKIPPED: ");
    tally.skips.extend(marked("SKIPPED in part: "));
    tally.failures = marked("FAILED: ");
    match code {
        Some(0) if tally.failed == 0 && tally.passed > 0 => {}
        Some(0) => tally.add(Tally::fail(format!("{name}: ended well without a passed case"))),
        Some(CANNOT_RUN) => {
            tally.skipped = tally.skipped.max(1);
            if tally.skips.is_empty() {
                tally.skips.push(format!("{name}: gave no reason"));
            }
        }
        _ if tally.failed > 0 => {}
        Some(code) => tally.add(Tally::fail(format!("{name}: exit status {code}"))),
        None => tally.add(Tally::fail(format!("{name}: killed by a signal"))),
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn good_run_yields_its_counts_and_its_skips() {
        let tally = verdict(
            "scapy",
            Some(0),
            &lines("SKIPPED: 12-byte ICV\n7 passed, 0 failed, 1 skipped"),
        );
        assert_eq!(tally.to_string(), "7 passed, 0 failed, 1 skipped");
        assert_eq!(tally.skips, ["scapy: 12-byte ICV"]);
    }

    #[test]
    fn run_that_proved_nothing_fails() {
        assert_eq!(verdict("scapy", Some(0), &[]).failed, 1);
        assert_eq!(verdict("scapy", Some(0), &lines("0 passed, 0 failed, 2 skipped")).failed, 1);
        assert_eq!(verdict("scapy", Some(0), &lines("5 passed, 1 failed, 0 skipped")).failed, 2);
    }

    #[test]
    fn failure_is_counted_once_and_named() {
        let tally =
            verdict("scapy", Some(1), &lines("FAILED: 6in4\n5 passed, 1 failed, 0 skipped"));
        assert_eq!((tally.failed, tally.failures), (1, vec!["scapy: 6in4".to_owned()]));
        assert_eq!(verdict("scapy", Some(2), &[]).failed, 1);
        assert_eq!(verdict("scapy", None, &[]).failed, 1);
    }

    #[test]
    fn machine_that_cannot_is_a_skip_with_a_reason() {
        let tally = verdict("kernel", Some(77), &lines("SKIPPED: no qemu"));
        assert_eq!(
            (tally.failed, tally.skipped, tally.skips),
            (0, 1, vec!["kernel: no qemu".to_owned()])
        );
        assert_eq!(verdict("kernel", Some(77), &[]).skips.len(), 1);
    }
}
