//! Instructions that bursts and pipelines take, as Valgrind counts them, held to a budget: time cannot be trusted on machines that
//! others use, and instructions do not depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::gate::DENY;
use crate::ports;
use crate::report::Tally;
use crate::workspace::{Workspace, rustc_version, works};

/// Path of the budget.
const FILE: &str = "xtask/instructions.json";
/// By how much a figure may differ.
const TOLERANCE: f64 = 0.02;
/// Tiers that Valgrind knows, and what to deny so that keys get them.
const TIERS: [(&str, &str); 2] = [("aesni", "avx"), ("avx2", "vaes256")];
const SUITES: [&str; 2] = ["aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96"];
/// Bytes of a burst's texts, and of a pipeline's inner packets.
const SIZES: [usize; 2] = [64, 1420];
/// Packets of a burst.
const PACKETS: usize = 32;
/// Bursts that are counted; of pipelines the second number less the first, so that setting up is not.
const ROUNDS: [usize; 2] = [4, 12];
/// Text of Valgrind in front of a count.
const COLLECTED: &str = "Collected :";
const ACCEPT: &str = "if that is meant, cargo xtask instructions --write accepts it";

/// Code to be counted: functions by a pattern of their names, and arguments that make the program call it.
struct Subject {
    name: &'static str,
    function: &'static str,
    arguments: &'static [&'static str],
}

const SUBJECTS: [Subject; 4] = [
    Subject { name: "seal", function: "*counted_burst", arguments: &["count", "seal"] },
    Subject { name: "open", function: "*counted_burst", arguments: &["count", "open"] },
    Subject { name: "outbound", function: "*outbound_pipeline*", arguments: &["pipelines"] },
    Subject { name: "inbound", function: "*inbound_pipeline*", arguments: &["pipelines"] },
];

/// Instructions for a packet, by what was counted.
type Counts = BTreeMap<String, f64>;

/// The verb.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<Option<Tally>> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--check"] => return check(workspace).map(Some),
        [] | ["--write"] => {}
        _ => bail!(
            "instructions: {words:?} is no argument; there are --write and --check, one at a time"
        ),
    }
    ensure!(
        cfg!(target_arch = "x86_64"),
        "instructions: there are no kernels for this architecture"
    );
    let counts = count(&ports::build(workspace)?)?;
    counts.iter().for_each(|(name, count)| println!("{count:>10.1}  {name}"));
    if words == ["--write"] {
        let file = json!({ "rustc": rustc_version()?, "instructions": counts });
        fs::write(workspace.root.join(FILE), serde_json::to_string_pretty(&file)? + "\n")?;
    }
    Ok(None)
}

/// The step of the gate.
pub(crate) fn check(workspace: &Workspace) -> Result<Tally> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Tally::skip("instructions: there are no kernels for this architecture"));
    }
    if !works(Command::new("valgrind").arg("--version")) {
        return Ok(Tally::skip(
            "instructions: Valgrind is not installed (Debian: apt install valgrind)",
        ));
    }
    let text = fs::read_to_string(workspace.root.join(FILE));
    let text =
        text.with_context(|| format!("{FILE}: cargo xtask instructions --write makes it"))?;
    let (budget_of, budget) = parse(&text).with_context(|| format!("{FILE} is damaged"))?;
    let here = rustc_version()?;
    if budget_of != here {
        return Ok(Tally::skip(format!(
            "instructions: the budget is for {budget_of}, and here is {here}"
        )));
    }
    let tally = compare(&budget, &count(&ports::build(workspace)?)?);
    println!("instructions: {} of {} figures as the budget has them", tally.passed, budget.len());
    Ok(tally)
}

fn parse(text: &str) -> Result<(String, Counts)> {
    let file: Value = serde_json::from_str(text)?;
    let rustc = file["rustc"].as_str().context("it has no rustc")?;
    let listed = file["instructions"].as_object().context("it has no instructions")?;
    let number = |(name, value): (&String, &Value)| {
        Ok((name.clone(), value.as_f64().with_context(|| format!("{name}: no number"))?))
    };
    Ok((rustc.to_owned(), listed.iter().map(number).collect::<Result<_>>()?))
}

/// Holds counts to a budget.
fn compare(budget: &Counts, found: &Counts) -> Tally {
    let mut tally = Tally::default();
    let names: BTreeSet<&String> = budget.keys().chain(found.keys()).collect();
    for name in names {
        tally.add(match (budget.get(name), found.get(name)) {
            (Some(was), Some(is)) if (is - was).abs() <= TOLERANCE * was => Tally::pass(),
            (Some(was), Some(is)) => Tally::fail(format!(
                "instructions: {name}: {is:.1} for a packet, the budget has {was:.1} ({:+.1} %); {ACCEPT}",
                (is / was - 1.0) * 100.0
            )),
            (None, _) => Tally::fail(format!("instructions: {name} has no budget; {ACCEPT}")),
            (_, None) => Tally::fail(format!("instructions: {name} is gone; {ACCEPT}")),
        });
    }
    tally
}

/// Everything that is held to the budget.
fn count(program: &Path) -> Result<Counts> {
    let mut counts = Counts::new();
    for (tier, denied) in TIERS {
        let given = std::env::var(DENY).unwrap_or_default();
        let denied = format!("{given},{denied}");
        for suite in SUITES {
            for subject in &SUBJECTS {
                for size in SIZES {
                    let each = for_a_packet(program, &denied, subject, suite, size)?;
                    // Tenths are enough, and differ less.
                    let each = (each * 10.0).round() / 10.0;
                    counts.insert(format!("{tier} {suite} {} {size} B", subject.name), each);
                }
            }
        }
    }
    Ok(counts)
}

fn for_a_packet(
    program: &Path,
    denied: &str,
    subject: &Subject,
    suite: &str,
    size: usize,
) -> Result<f64> {
    let counted = |rounds: usize| -> Result<u64> {
        let mut words: Vec<String> = vec![subject.arguments[0].to_owned(), suite.to_owned()];
        words.extend(subject.arguments[1..].iter().map(|word| (*word).to_owned()));
        words.extend([size, PACKETS, rounds].map(|number| number.to_string()));
        collected(program, denied, subject.function, &words)
    };
    let [few, many] = ROUNDS;
    let instructions =
        counted(many)?.checked_sub(counted(few)?).context("fewer with more rounds")?;
    Ok(instructions as f64 / ((many - few) * PACKETS) as f64)
}

/// Instructions within the functions of a pattern.
fn collected(program: &Path, denied: &str, function: &str, words: &[String]) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={function}"))
        .arg(program)
        .args(words)
        .env(DENY, denied)
        .output()
        .context("cannot run valgrind")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind of {words:?}: {told}");
    let line =
        told.lines().find_map(|line| line.split_once(COLLECTED)).map(|(_, count)| count.trim());
    let count = line.and_then(|count| count.parse().ok());
    count
        .filter(|count| *count > 0)
        .with_context(|| format!("no call of {function} was counted: {told}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_by_more_than_two_per_cent_fails_and_says_by_how_much() {
        let counts = |one: f64| Counts::from([("avx2 seal".to_owned(), one)]);
        assert_eq!(compare(&counts(100.0), &counts(102.0)).passed, 1);
        assert_eq!(compare(&counts(100.0), &counts(98.0)).passed, 1);
        let tally = compare(&counts(100.0), &counts(103.0));
        assert!(
            tally.failures[0].contains("103.0 for a packet, the budget has 100.0 (+3.0 %)"),
            "{tally:?}"
        );
        assert_eq!(compare(&counts(100.0), &Counts::new()).failed, 1);
        assert_eq!(compare(&Counts::new(), &counts(1.0)).failed, 1);
    }

    #[test]
    fn a_budget_is_read() {
        let (rustc, counts) = parse(r#"{"rustc": "rustc 1", "instructions": {"a": 1.5}}"#).unwrap();
        assert_eq!((rustc.as_str(), counts["a"]), ("rustc 1", 1.5));
        for damaged in ["{}", r#"{"rustc": "x"}"#, r#"{"rustc": "x", "instructions": {"a": "b"}}"#]
        {
            assert!(parse(damaged).is_err(), "{damaged}");
        }
    }
}
