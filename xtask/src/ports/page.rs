//! The tables that are printed and stand in the page.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};

use super::budget::Versions;
use super::found::{Cost, Found, KernelLoop, PROFILE, tier};
use super::mca::Figures;
use super::models::{DIRECTIONS, LENGTHS, MODELS, SUITES};
use crate::workspace::Workspace;

/// The page, whose part between these lines is written.
const PAGE: &str = "docs/ports.md";
const BEGIN: &str = "<!-- ports: begin -->";
const END: &str = "<!-- ports: end -->";

/// In front of the tables that [`write`] keeps.
const OLDER: &str = "Older than the tables of other processors: when those were made, none of this tier was at hand.";

/// In place of figures where llvm-mca dies.
const DIES: &str = "llvm-mca dies";

/// All tables.
/// The tables; of processors that no burst was followed for those of `old`, if it has them.
pub(super) fn table(found: &Found, versions: &Versions, old: Option<&str>) -> String {
    let Versions { mca, rustc, .. } = versions;
    let mut text = format!("Made with llvm-mca {mca} and {rustc}, profile `{PROFILE}`.\n");
    for why in found.all_left_out() {
        let _ = write!(text, "\nLeft out: {why}.\n");
    }
    for model in &MODELS {
        let older = old.and_then(|old| section(old, model.name));
        if let (true, Some(older)) = (found.absent.contains(&model.name), older) {
            text += &older;
            continue;
        }
        let costs: Vec<&Cost> =
            found.costs.iter().filter(|cost| cost.model == model.name).collect();
        if !costs.is_empty() {
            let _ = write!(text, "\n### {} (`{}`)\n\n", model.name, tier(model.tier));
            text += &bursts(&costs);
        }
    }
    if !found.loops.is_empty() {
        text += "\n### Inner loops of all kernels\n\n";
        text += &kernels(&found.loops);
    }
    text
}

/// Section of a page on a processor, marked as older.
fn section(page: &str, model: &str) -> Option<String> {
    let (_, rest) = page.split_once(&format!("\n### {model} ("))?;
    let (head, rest) = rest.split_once('\n')?;
    let body = rest.split("\n### ").next()?;
    let rows: Vec<&str> = body.lines().filter(|line| line.starts_with('|')).collect();
    Some(format!("\n### {model} ({head}\n\n{OLDER}\n\n{}\n", rows.join("\n")))
}

/// A processor's bursts: cycles for a packet, micro-operations, what limits.
fn bursts(costs: &[&Cost]) -> String {
    let mut text = "| burst |".to_owned();
    LENGTHS.iter().for_each(|(bytes, packets)| {
        let _ = write!(text, " {packets} × {bytes} B |");
    });
    text += " inner loop of the longest |\n|---|";
    text += &"---|".repeat(LENGTHS.len() + 1);
    text.push('\n');
    for suite in SUITES {
        for direction in DIRECTIONS {
            let of = |bytes: usize| {
                let mut costs = costs.iter().filter(|cost| cost.burst.suite == suite);
                costs.find(|cost| cost.burst.direction == direction && cost.burst.bytes == bytes)
            };
            let _ = write!(text, "| {suite} {direction} |");
            for (bytes, _) in LENGTHS {
                let cell = of(bytes).map_or_else(
                    || "–".to_owned(),
                    |cost| match &cost.whole {
                        Some(whole) => cell(whole),
                        None => DIES.to_owned(),
                    },
                );
                let _ = write!(text, " {cell} |");
            }
            let inner = LENGTHS.last().and_then(|(bytes, _)| of(*bytes)?.inner.as_ref());
            let inner = inner.map_or_else(
                || "–".to_owned(),
                |(name, inner)| {
                    let cell = cell(inner);
                    format!("`{name}`, {} instructions: {cell}", inner.instructions)
                },
            );
            let _ = writeln!(text, " {inner} |");
        }
    }
    text
}

fn cell(figures: &Figures) -> String {
    let Figures { cycles, micro_operations, limit, .. } = figures;
    format!("**{cycles:.1}**, {micro_operations:.0} µops, {limit} {:.0} %", share(figures))
}

/// For how many of the cycles what limits is in use, in percent.
fn share(figures: &Figures) -> f64 {
    100.0 * figures.used / figures.cycles
}

fn kernels(loops: &[KernelLoop]) -> String {
    let mut text = "| kernel | tier | instructions |".to_owned();
    MODELS.iter().for_each(|model| {
        let _ = write!(text, " {} |", model.name);
    });
    text += "\n|---|---|---|";
    text += &"---|".repeat(MODELS.len());
    text.push('\n');
    for KernelLoop { kernel, instructions, figures } in loops {
        let _ = write!(text, "| `{}` | `{}` | {instructions} |", kernel.task, kernel.token);
        for model in &MODELS {
            let cell = match figures.get(model.name) {
                Some(Some(figures)) => {
                    format!("{:.1}, {} {:.0} %", figures.cycles, figures.limit, share(figures))
                }
                Some(None) => DIES.to_owned(),
                None => "–".to_owned(),
            };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text
}

/// Puts the tables into the page.
pub(super) fn write(workspace: &Workspace, found: &Found, versions: &Versions) -> Result<()> {
    let path = workspace.root.join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let table = table(found, versions, Some(&page));
    let page = put(&page, &table).with_context(|| format!("{PAGE} has no {BEGIN} and {END}"))?;
    Ok(fs::write(path, page)?)
}

fn put(page: &str, table: &str) -> Option<String> {
    let (front, rest) = page.split_once(BEGIN)?;
    let (_, behind) = rest.split_once(END)?;
    Some(format!("{front}{BEGIN}\n{table}{END}{behind}"))
}

#[cfg(test)]
mod tests {
    use super::super::models::Burst;
    use super::*;

    #[test]
    fn tables_say_cycles_and_what_limits() {
        let limit = "Zn4FP0".to_owned();
        let whole =
            Figures { instructions: 9, cycles: 50.0, micro_operations: 90.4, limit, used: 45.0 };
        let burst = Burst { suite: "aes-128-gcm-16", direction: "open", bytes: 256, packets: 32 };
        let cost = Cost { model: "znver4", burst, whole: Some(whole), inner: None };
        let (mca, rustc) = ("19.1.7".to_owned(), "rustc 1.95.0".to_owned());
        let versions = Versions { mca, rustc, vendor: "AuthenticAMD".to_owned() };
        let found = Found { costs: vec![cost], ..Found::default() };
        let table = table(&found, &versions, None);
        let row = "| aes-128-gcm-16 open | – | **50.0**, 90 µops, Zn4FP0 90 % | – | – |\n";
        assert!(table.contains(row), "{table}");
        assert!(table.contains("### znver4") && !table.contains("### znver3"));
        let absent = Found { absent: vec!["znver4"], ..Found::default() };
        let (mca, rustc) = ("20.1.0".to_owned(), "rustc 1.96.0".to_owned());
        let versions = Versions { mca, rustc, vendor: "AuthenticAMD".to_owned() };
        let older = super::table(&absent, &versions, Some(&table));
        assert!(older.contains(row) && older.matches(OLDER).count() == 1, "{older}");
        let again = super::table(&absent, &versions, Some(&older));
        assert_eq!(again, older);
        assert!(!super::table(&absent, &versions, None).contains("###"));
    }

    #[test]
    fn only_the_part_between_the_marks_is_written() {
        let page = format!("above\n{BEGIN}\nold\n{END}\nbelow\n");
        assert_eq!(put(&page, "new\n").unwrap(), format!("above\n{BEGIN}\nnew\n{END}\nbelow\n"));
        assert_eq!(put("nothing", "new"), None);
    }
}
