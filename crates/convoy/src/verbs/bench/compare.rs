//! `convoy bench compare`: two results beside each other.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use convoy_bench::results::Results;
use convoy_bench::results::compare::{Change, Comparison, Comparisons, compare_runs};

use super::child::Child;
use crate::exit::{Exit, Stop};
use crate::interrupt::Interrupt;
use crate::output;

/// Text behind the options in `convoy bench compare --help`.
pub(super) const HELP: &str = "\
Examples:
  convoy bench crypto --json > before.json; convoy bench crypto --json > after.json
  convoy bench compare before.json after.json
  convoy bench compare --tolerance 1 --all before.json after.json
  convoy bench compare a1.json,a2.json,a3.json b1.json,b2.json,b3.json     # several runs a side
  convoy bench compare --against ./convoy-before --tolerance 1 -- crypto --suite aes-128-gcm-16 --time 0.1

Points of both are matched by what was measured and where. If both hold ratios of Convoy to the same peer, those are
compared, of each peer by its best interface. A change is told if medians differ by more than the tolerance and the test of
Mann and Whitney, corrected by Holm's method for the number of comparisons, gives chance a probability below 1 %.

The test takes rounds for independent. What is different for the whole of a run, such as other programs beside it or where
its memory lies, looks like a change of the program. So of two files only ratios are compared, and a change must also be larger than
the quartile ranges of both together. To find less, give several files a side, or have --against run another build and
this one in turn, the other one first and this one first: each run then counts once, with its median, and Convoy's own rounds are
compared where there is no peer. With fewer than eight runs a side chance cannot be ruled out for many points.

Exit code 1: something got worse. Exit code 2: a file cannot be read, or there is nothing to compare.";

/// Files with commas between.
#[derive(Clone, Debug)]
struct Files(Vec<PathBuf>);

impl FromStr for Files {
    type Err = Infallible;

    fn from_str(word: &str) -> Result<Self, Infallible> {
        Ok(Self(word.split(',').map(PathBuf::from).collect()))
    }
}

/// `convoy bench compare`
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Results that a bench wrote with --json; of several runs, with commas between.
    #[arg(value_name = "BEFORE.json", required_unless_present = "against")]
    before: Option<Files>,
    /// Others of the same bench.
    #[arg(value_name = "AFTER.json", required_unless_present = "against")]
    after: Option<Files>,
    /// Another build of this program: runs the bench behind "--" with it, as before, and with this one, as after, in turn.
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["before", "after"], requires = "bench")]
    against: Option<PathBuf>,
    /// Runs of each, 2 to 1000.
    #[arg(long, value_name = "COUNT", default_value_t = 12, requires = "against")]
    runs: usize,
    /// Command to run: what follows convoy bench, without --json.
    #[arg(value_name = "BENCH", last = true, requires = "against")]
    bench: Vec<String>,
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
    if let (None, Some(word)) = (&args.against, args.bench.first()) {
        let what = "files are compared; --against PROGRAM runs what stands behind \"--\"";
        return Err(Stop::usage(format!("{word:?}: {what}")));
    }
    let [before, after] = match &args.against {
        Some(program) => in_turn(program, args)?,
        None => {
            let read = |files: &Option<Files>| -> anyhow::Result<Vec<Results>> {
                files.iter().flat_map(|Files(paths)| paths).map(|path| read(path)).collect()
            };
            [read(&args.before)?, read(&args.after)?]
        }
    };
    let found = compare_runs([&before, &after], args.tolerance / 100.0);
    let found = found.map_err(|error| Stop::usage(error.to_string()))?;
    output::print(&text(&found, args))?;
    let has_loss = found.of(Change::Loss).next().is_some();
    Ok(if has_loss { Exit::Trouble } else { Exit::Ok })
}

/// Runs the bench with another build and with this one, by turns one and the other first.
fn in_turn(other: &Path, args: &CompareArgs) -> anyhow::Result<[Vec<Results>; 2]> {
    if !(2..=1000).contains(&args.runs) {
        return Err(Stop::usage(format!("--runs {}: use 2 to 1000", args.runs)));
    }
    let own = std::env::current_exe()?;
    let arguments: Vec<String> = args.bench.iter().cloned().chain(["--json".to_owned()]).collect();
    let interrupt = Interrupt::listen()?;
    let mut runs = [Vec::new(), Vec::new()];
    for turn in 0..args.runs {
        for side in if turn.is_multiple_of(2) { [0, 1] } else { [1, 0] } {
            let program = if side == 0 { other } else { &own };
            eprintln!("compare: run {} of {}: {}", turn + 1, args.runs, program.display());
            let child = Child::start(program, &arguments, &[]);
            let results = child.and_then(|child| child.results(&interrupt, None));
            interrupt.check()?;
            let results = results
                .map_err(|error| Stop::usage(format!("{}: {error:#}", program.display())))?;
            runs[side].push(results);
        }
    }
    Ok(runs)
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
    for (count, side) in found.apart.iter().zip(["before", "after"]) {
        if *count > 0 {
            text += &format!("not compared: {count} points that are {side} alone\n");
        }
    }
    if found.without_ratio > 0 {
        text += &format!(
            "not compared: {} points without a ratio, which one run a side says nothing of; --against runs both in turn\n",
            found.without_ratio
        );
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
