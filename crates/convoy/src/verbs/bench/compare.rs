//! `convoy bench compare`: two results beside each other.

use std::path::{Path, PathBuf};

use clap::Args;
use convoy_bench::results::Results;
use convoy_bench::results::compare::{Change, Comparison, Comparisons, compare};

use crate::exit::{Exit, Stop};
use crate::output;

/// What `convoy bench compare --help` teaches.
pub const HELP: &str = "\
Examples:
  convoy bench crypto --json > before.json; convoy bench crypto --json > after.json
  convoy bench compare before.json after.json
  convoy bench compare --tolerance 1 --all before.json after.json

Points of both are matched by what was measured and where. If both hold ratios of Convoy to the same peer, those are
compared, of each peer by its best interface; else Convoy's own rounds, which say nothing if the machine was busier
or clocked otherwise meanwhile. A change is told if medians differ by more than the tolerance and the test of Mann and Whitney,
corrected by Holm's method for the number of comparisons, gives chance a probability below 1 %.

The test takes rounds for independent. What is different for the whole of a run, such as other programs beside it, looks
like a change of the program: on a shared machine two runs of one build differ, too. Run both several times, in turn.

Exit code 1: something got worse. Exit code 2: a file cannot be read, or there is nothing to compare.";

/// `convoy bench compare`
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Results that a bench wrote with --json.
    #[arg(value_name = "BEFORE.json")]
    before: PathBuf,
    /// Others of the same bench.
    #[arg(value_name = "AFTER.json")]
    after: PathBuf,
    /// Changes up to so many per cent are none, 0 to 100.
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
    tolerance: f64,
    /// Print what did not change, too.
    #[arg(long)]
    all: bool,
}

pub(super) fn run(args: &CompareArgs) -> anyhow::Result<Exit> {
    if !(0.0..=100.0).contains(&args.tolerance) {
        return Err(Stop::usage(format!("--tolerance {}: use 0 to 100", args.tolerance)));
    }
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let found = compare(&before, &after, args.tolerance / 100.0);
    let found = found.map_err(|error| Stop::usage(error.to_string()))?;
    output::print(&text(&found, args))?;
    let has_loss = found.of(Change::Loss).next().is_some();
    Ok(if has_loss { Exit::Trouble } else { Exit::Ok })
}

fn read(path: &Path) -> anyhow::Result<Results> {
    Results::read(path).map_err(|error| Stop::usage(error.to_string()))
}

fn text(found: &Comparisons, args: &CompareArgs) -> String {
    let heading = ["", "CHANGE", "BEFORE", "AFTER", "CHANCE", "WHAT", "POINT"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let is_told = |it: &&Comparison| args.all || it.change != Change::None;
    rows.extend(found.all.iter().filter(is_told).map(row));
    let mut text = String::new();
    if rows.len() > 1 {
        text += &format!("{}\n", output::table(&rows));
    }
    let [losses, gains] = [Change::Loss, Change::Gain].map(|change| found.of(change).count());
    text += &format!(
        "{} compared: {losses} worse and {gains} better by more than {} %\n",
        found.all.len(),
        args.tolerance
    );
    for (count, path) in found.apart.iter().zip([&args.before, &args.after]) {
        if *count > 0 {
            text += &format!("not compared: {count} points that are in {} alone\n", path.display());
        }
    }
    if found.other_machine {
        text +=
            "the processors are other ones: ratios may differ by that alone, rounds say nothing\n";
    }
    text
}

fn row(it: &Comparison) -> Vec<String> {
    let word = match it.change {
        Change::Loss => "worse",
        Change::Gain => "better",
        Change::None => "–",
    };
    let [before, after] = it.medians.map(number);
    let chance = match it.probability {
        p if p < 1e-4 => "< 0.01 %".to_owned(),
        p => format!("{:.2} %", 100.0 * p),
    };
    let change = format!("{:+.1} %", 100.0 * it.gain);
    vec![word.to_owned(), change, before, after, chance, it.what.clone(), it.point.clone()]
}

/// Small numbers with three digits behind the point, large ones with none.
fn number(value: f64) -> String {
    match value.abs() {
        size if size < 100.0 => format!("{value:.3}"),
        size if size < 10_000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
