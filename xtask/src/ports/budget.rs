//! Budget of bursts: a file that `cargo xtask ports --write` writes and the gate holds them to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::found::{Cost, PROFILE};
use super::mca::Mca;
use crate::report::Tally;
use crate::workspace::{Workspace, rustc_version};

/// Path of the budget.
pub(crate) const FILE: &str = "xtask/ports.json";
/// By how much a figure may differ.
const TOLERANCE: f64 = 0.03;
const ACCEPT: &str =
    "if that is meant, cargo xtask ports --write accepts it, and docs/ports.md shows it";

/// Versions of tools that figures depend on beside the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) mca: String,
    pub(crate) rustc: String,
    /// The maker of the processor on which bursts were followed: kernels are chosen by it, too.
    pub(crate) vendor: String,
}

impl Versions {
    /// Finds those of this machine.
    pub(crate) fn here(mca: &Mca) -> Result<Self> {
        Ok(Self { mca: mca.version.clone(), rustc: rustc_version()?, vendor: vendor() })
    }
}

/// The maker of this processor, as the kernel tells it.
fn vendor() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = told.lines().find_map(|line| line.strip_prefix("vendor_id"));
    line.map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':'])).to_owned()
}

#[derive(Debug, PartialEq)]
pub(crate) struct Budget {
    versions: Versions,
    /// By what [`name`] and [`loop_name`] make of a burst on a processor.
    cycles: BTreeMap<String, f64>,
    /// Processors whose figures are older than the others: when those were made, no processor at hand had
    /// their tier. They are told, and hold nobody to them.
    older: BTreeSet<String>,
}

fn name(cost: &Cost) -> String {
    let burst = cost.burst;
    format!("{} {} {} {} B", cost.model, burst.suite, burst.direction, burst.bytes)
}

fn loop_name(cost: &Cost) -> String {
    format!("{}, inner loop", name(cost))
}

fn is_of_model(name: &str, model: &str) -> bool {
    name.strip_prefix(model).is_some_and(|rest| rest.starts_with(' '))
}

fn cycles(costs: &[Cost]) -> BTreeMap<String, f64> {
    let mut cycles = BTreeMap::new();
    for cost in costs {
        if let Some(whole) = &cost.whole {
            cycles.insert(name(cost), whole.cycles);
        }
        if let Some((_, inner)) = &cost.inner {
            cycles.insert(loop_name(cost), inner.cycles);
        }
    }
    cycles
}

/// A list of names, which may be missing.
fn models(list: &Value) -> Option<BTreeSet<String>> {
    let word = |value: &Value| value.as_str().map(str::to_owned);
    match list {
        Value::Null => Some(BTreeSet::new()),
        list => list.as_array()?.iter().map(word).collect(),
    }
}

impl Budget {
    pub(crate) fn of(versions: Versions, costs: &[Cost]) -> Self {
        // Two digits are enough, and differ less.
        let rounded = |(name, cycles): (String, f64)| (name, (cycles * 100.0).round() / 100.0);
        let cycles = cycles(costs).into_iter().map(rounded).collect();
        Self { versions, cycles, older: BTreeSet::new() }
    }

    /// Takes the figures of `models` over from an older budget.
    pub(crate) fn keep(&mut self, old: Self, models: &[&str]) {
        let is_kept = |name: &str| models.iter().any(|model| is_of_model(name, model));
        self.cycles.extend(old.cycles.into_iter().filter(|(name, _)| is_kept(name)));
        self.older.extend(models.iter().map(|model| (*model).to_owned()));
    }

    fn is_older(&self, name: &str) -> bool {
        self.older.iter().any(|model| is_of_model(name, model))
    }

    pub(crate) fn read(workspace: &Workspace) -> Result<Self> {
        let text = fs::read_to_string(workspace.root.join(FILE));
        let text = text.with_context(|| format!("{FILE}: cargo xtask ports --write makes it"))?;
        Self::parse(&text).with_context(|| format!("{FILE} is damaged"))
    }

    fn parse(text: &str) -> Result<Self> {
        let file: Value = serde_json::from_str(text)?;
        let word = |key: &str| {
            let word = file[key].as_str().map(str::to_owned);
            word.with_context(|| format!("it has no {key}"))
        };
        let listed = file["cycles"].as_object().context("it has no cycles")?;
        let number = |(name, value): (&String, &Value)| {
            let cycles = value.as_f64().with_context(|| format!("{name}: no number"))?;
            Ok((name.clone(), cycles))
        };
        Ok(Self {
            versions: Versions {
                mca: word("llvm-mca")?,
                rustc: word("rustc")?,
                vendor: word("vendor")?,
            },
            cycles: listed.iter().map(number).collect::<Result<_>>()?,
            older: models(&file["older"]).context("older is no list of processors")?,
        })
    }

    fn text(&self) -> Result<String> {
        let file = json!({
            "llvm-mca": self.versions.mca,
            "rustc": self.versions.rustc,
            "vendor": self.versions.vendor,
            "profile": PROFILE,
            "older": self.older,
            "cycles": self.cycles,
        });
        Ok(serde_json::to_string_pretty(&file)? + "\n")
    }

    pub(crate) fn write(&self, workspace: &Workspace) -> Result<()> {
        fs::write(workspace.root.join(FILE), self.text()?)?;
        Ok(())
    }

    /// True if it was made with this llvm-mca.
    pub(crate) fn is_of(&self, mca: &Mca) -> bool {
        self.versions.mca == mca.version
    }

    /// Reason for which the budget does not hold for the output of other tools.
    pub(crate) fn differs(&self, here: &Versions) -> Option<String> {
        let Versions { mca, rustc, vendor } = &self.versions;
        (self.versions != *here).then(|| {
            format!(
                "the budget is for llvm-mca {mca}, {rustc} and bursts on a processor of {vendor}; here are \
                 llvm-mca {}, {} and one of {}",
                here.mca, here.rustc, here.vendor
            )
        })
    }

    /// Holds bursts to it. Where something was left out, not everything needs to be there.
    pub(crate) fn compare(&self, costs: &[Cost], left_out: &[String]) -> Tally {
        let found = cycles(costs);
        let mut tally = Tally::default();
        let names: BTreeSet<&String> = found.keys().chain(self.cycles.keys()).collect();
        for name in names {
            let verdict = match (self.cycles.get(name), found.get(name)) {
                (Some(was), Some(is)) if (is - was).abs() <= TOLERANCE * was => Tally::pass(),
                (Some(_), Some(_)) if self.is_older(name) => continue,
                (Some(was), Some(is)) => {
                    let percent = (is / was - 1.0) * 100.0;
                    let by = "cycles by llvm-mca, the budget has";
                    Tally::fail(format!(
                        "ports: {name}: {is:.2} {by} {was:.2} ({percent:+.1} %); {ACCEPT}"
                    ))
                }
                (None, _) => Tally::fail(format!("ports: {name} has no budget; {ACCEPT}")),
                (_, None) if !left_out.is_empty() => continue,
                (_, None) => Tally::fail(format!("ports: {name} is gone; {ACCEPT}")),
            };
            tally.add(verdict);
        }
        for model in &self.older {
            tally.add(Tally::skip(format!(
                "ports: what differs on {model}: its figures are older than the others; cargo xtask ports --write \
                 on a processor of its tier makes them anew"
            )));
        }
        println!("ports: {} of {} figures as the budget has them", tally.passed, self.cycles.len());
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::super::mca::Figures;
    use super::super::models::Burst;
    use super::*;

    fn cost(model: &'static str, cycles: f64) -> Cost {
        let limit = "Zn4FP0".to_owned();
        let whole = Figures { instructions: 9, cycles, micro_operations: 9.0, limit, used: 1.0 };
        let burst = Burst { suite: "aes-128-gcm-16", direction: "seal", bytes: 64, packets: 64 };
        Cost { model, burst, inner: Some(("Long".to_owned(), whole.clone())), whole: Some(whole) }
    }

    fn versions() -> Versions {
        let (mca, rustc) = ("19.1.7".to_owned(), "rustc 1.95.0".to_owned());
        Versions { mca, rustc, vendor: "AuthenticAMD".to_owned() }
    }

    #[test]
    fn budget_is_read_as_it_was_written() {
        let budget = Budget::of(versions(), &[cost("znver4", 41.234)]);
        assert_eq!(budget.cycles["znver4 aes-128-gcm-16 seal 64 B"], 41.23);
        assert_eq!(Budget::parse(&budget.text().unwrap()).unwrap(), budget);
        assert!(Budget::parse("{}").is_err());
    }

    #[test]
    fn older_figures_are_kept_and_told_and_hold_nobody() {
        let old = Budget::of(versions(), &[cost("znver3", 40.0), cost("znver4", 100.0)]);
        let mut budget = Budget::of(versions(), &[cost("znver3", 41.5)]);
        budget.keep(old, &["znver4"]);
        assert_eq!(budget.cycles["znver4 aes-128-gcm-16 seal 64 B"], 100.0);
        assert_eq!(budget.cycles["znver3 aes-128-gcm-16 seal 64 B"], 41.5);
        assert_eq!(Budget::parse(&budget.text().unwrap()).unwrap(), budget);
        let tally = budget.compare(&[cost("znver3", 41.5), cost("znver4", 120.0)], &[]);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (2, 0, 1));
        let tally = budget.compare(&[cost("znver3", 45.0), cost("znver4", 120.0)], &[]);
        assert_eq!(tally.failed, 2);
    }

    #[test]
    fn what_differs_by_more_than_it_may_fails_and_says_by_how_much() {
        let budget = Budget::of(versions(), &[cost("znver4", 100.0)]);
        assert_eq!(budget.compare(&[cost("znver4", 103.0)], &[]).failed, 0);
        let tally = budget.compare(&[cost("znver4", 103.1)], &[]);
        assert_eq!((tally.passed, tally.failed), (0, 2));
        let why = &tally.failures[0];
        assert!(why.starts_with("ports: znver4 aes-128-gcm-16 seal 64 B: 103.10 cycles"), "{why}");
        assert!(why.contains("100.00 (+3.1 %)") && why.contains("ports --write"), "{why}");
        // A gain is to be kept.
        assert_eq!(budget.compare(&[cost("znver4", 90.0)], &[]).failed, 2);
    }

    #[test]
    fn what_comes_or_goes_fails_unless_it_was_left_out() {
        let both = [cost("znver3", 1.0), cost("znver4", 1.0)];
        let budget = Budget::of(versions(), &both);
        assert_eq!(budget.compare(&both[..1], &[]).failed, 2);
        let tally = budget.compare(&both[..1], &["znver4".to_owned()]);
        assert_eq!((tally.passed, tally.failed), (2, 0));
        assert_eq!(Budget::of(versions(), &both[..1]).compare(&both, &[]).failed, 2);
    }

    #[test]
    fn other_tools_have_no_budget() {
        let budget = Budget::of(versions(), &[]);
        assert_eq!(budget.differs(&versions()), None);
        let why = budget.differs(&Versions { mca: "14.0.6".to_owned(), ..versions() }).unwrap();
        assert!(why.contains("19.1.7") && why.contains("14.0.6"), "{why}");
        let intel = Versions { vendor: "GenuineIntel".to_owned(), ..versions() };
        assert!(budget.differs(&intel).unwrap().contains("GenuineIntel"));
    }
}
