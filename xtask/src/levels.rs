//! `cargo xtask levels`: the gate once for every kind of processor that this one can pass for.

use std::env;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::gate::DENY;
use crate::report::Tally;
use crate::workspace::{Output, Workspace, cargo, stream};

/// The steps of the gate that run code for a processor; the others say the same on each.
const STEPS: [&str; 4] = ["test", "c-library", "fuzz", "oracles"];
/// The word that denies the SHA extensions, which are no tier.
const SHA_NI: &str = "sha-ni";

/// Runs the gate for each level, or says with `--list` which there are.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<Option<Tally>> {
    let only_list = arguments.iter().any(|argument| argument == "--list");
    let unknown = arguments.iter().find(|argument| *argument != "--list");
    ensure!(unknown.is_none(), "levels: no argument {unknown:?}; there is --list");
    let levels = levels(&tiers_here(workspace)?, has_sha_ni());
    println!("levels: {} to deny here: {}", levels.len(), levels.join("; "));
    println!("levels: each runs the steps {}", STEPS.join(", "));
    if only_list {
        return Ok(None);
    }
    let mut sum = Tally::default();
    let mut table = Vec::new();
    for (number, denied) in levels.iter().enumerate() {
        println!("\n==== level {} of {}: {DENY}={denied} ====", number + 1, levels.len());
        let tally = gate(workspace, denied)?;
        table.push(format!("{denied:<24}{tally}"));
        sum.add(tally);
    }
    println!("\n==== levels ====");
    table.iter().for_each(|row| println!("{row}"));
    Ok(Some(sum))
}

/// Features to deny in each run, from most to least. `tiers` are those of this machine, least preferred first.
///
/// Denying a tier denies what builds on it, so each run leaves another tier as the best one. One more run
/// leaves AVX2 and AES-NI alone, without the SHA extensions that processors with newer tiers have.
fn levels(tiers: &[String], has_sha_ni: bool) -> Vec<String> {
    let mut levels: Vec<String> =
        tiers.iter().filter(|name| *name != "portable").cloned().collect();
    if has_sha_ni {
        let above_avx2 = ["avx512", "vaes256"].map(str::to_owned);
        let mut alone: Vec<String> =
            above_avx2.into_iter().filter(|name| tiers.contains(name)).collect();
        alone.push(SHA_NI.to_owned());
        levels.push(alone.join(","));
    }
    levels
}

/// The tiers of this machine, as the program under test tells them.
fn tiers_here(workspace: &Workspace) -> Result<Vec<String>> {
    let output = cargo()
        .args(["run", "--quiet", "--package", "convoy", "--", "crypto", "--json"])
        .env_remove(DENY)
        .current_dir(&workspace.root)
        .output()
        .context("cannot ask convoy crypto")?;
    ensure!(output.status.success(), "convoy crypto: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let rows = report["tiers"].as_array().context("convoy crypto tells no tiers")?;
    let is_here = |row: &&Value| row["state"] != "missing";
    let names = rows.iter().rev().filter(is_here).filter_map(|row| row["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

#[cfg(target_arch = "x86_64")]
fn has_sha_ni() -> bool {
    is_x86_feature_detected!("sha")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_sha_ni() -> bool {
    false
}

/// The gate in a process of its own, since the variable is for everything in it.
fn gate(workspace: &Workspace, denied: &str) -> Result<Tally> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("ci").args(STEPS).env(DENY, denied).current_dir(&workspace.root);
    let mut log = workspace.log(&format!("level-{denied}"))?;
    let mut count = None;
    let (mut failures, mut skips) = (Vec::new(), Vec::new());
    let status = stream(&mut command, &mut log, |from, line| {
        println!("{line}");
        if from == Output::Standard {
            if let Some(tally) = Tally::parse(line) {
                count = Some(tally);
            }
            failures.extend(line.strip_prefix("FAILED: ").map(|why| format!("{denied}: {why}")));
            skips.extend(line.strip_prefix("SKIPPED: ").map(str::to_owned));
        }
    })?;
    let Some(mut tally) = count else {
        return Ok(Tally::fail(format!("{denied}: the gate did not come to its end")));
    };
    tally.failures = failures;
    // Each is printed where it happens and again at the end of its run.
    skips.sort();
    skips.dedup();
    tally.skips = skips;
    if !status.success() && tally.failed == 0 {
        tally.add(Tally::fail(format!("{denied}: the gate ended with {status}")));
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels_of(tiers: &str, has_sha_ni: bool) -> Vec<String> {
        let tiers: Vec<String> = tiers.split(' ').map(str::to_owned).collect();
        levels(&tiers, has_sha_ni)
    }

    #[test]
    fn every_tier_but_the_portable_one_is_denied_once() {
        assert_eq!(levels_of("portable aesni avx avx2", false), ["aesni", "avx", "avx2"]);
        assert_eq!(
            levels_of("portable aesni avx avx2 avx512", false),
            ["aesni", "avx", "avx2", "avx512"]
        );
    }

    #[test]
    fn avx2_and_aes_ni_are_left_alone_once() {
        assert_eq!(
            levels_of("portable aesni avx avx2 vaes256", true),
            ["aesni", "avx", "avx2", "vaes256", "vaes256,sha-ni"]
        );
        let all = levels_of("portable aesni avx avx2 avx512 vaes256 vaes512", true);
        assert_eq!(all.last().unwrap(), "avx512,vaes256,sha-ni");
        assert_eq!(all.len(), 7);
    }

    #[test]
    fn steps_are_those_of_the_gate() {
        for step in STEPS {
            assert!(crate::ci::is_step(step), "{step}");
        }
    }
}
