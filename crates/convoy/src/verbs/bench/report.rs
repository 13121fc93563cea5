//! `convoy bench report`: the figures of the field's studies, measured again and drawn.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use convoy_bench::figures::plan::{Effort, Machine, Step, Wanted, steps};
use convoy_bench::figures::{Experiment, Id, merge, page};
use convoy_bench::html;
use convoy_bench::results::head::Head;
use convoy_bench::results::{LeftOut, Results};
use convoy_crypto::PORTABLE_IS_SOFT;

use super::child::Child;
use crate::exit::{Exit, Stop};
use crate::interrupt::Interrupt;
use crate::output;

/// Text behind the options in `convoy bench report --help`.
pub(super) const HELP: &str = "\
Examples:
  convoy bench report                              # all of it, within 20 minutes: convoy-report/report.html
  convoy bench report --quick                      # a part of the grid, within three minutes
  convoy bench report --only F1,F2 --out tunnel    # one tunnel on one core alone
  convoy bench report --only F8 --ipsec-mb ./libIPSec_MB.so.1,./libIPSec_MB.so.2    # managers of both
  convoy bench report --only F9 --secgw $(interop/secgw/build.sh)         # DPDK's gateway beside a worker
  convoy bench report --with tls.json,gateways.json       # figures of results that were measured before
  convoy bench report --from convoy-report/report.json    # draws the page again, and measures nothing

Four studies by Intel have the figures that are quoted most. This measures them again on this machine, with the peers that are
installed in the same runs, and writes one page: report.html, with nothing beside it, and report.json, what it is drawn
from.

  F1 to F3    AES-GCM through one tunnel on one core (the Linux kernel, 2010): throughput and cycles by frame size
  F4 to F6    the same through many tunnels on all processors
  F7 and F8   the crypto library alone (multi-buffer IPsec, 2012): three suites by size, DPDK's devices, tiers of the processor
  F9 to F12   software beside a look-aside device (VPP, 2018): rate at 0.01 % loss, latency, variability
  F13         whole gateways: from a result of interop/throughput/compare.py, given to --with
  F14 to F16  a web server (nginx, 2015), where nginx is installed

Each figure is measured by another verb of convoy bench, whose command is printed below it: run that for more. The ratios on
top are of one interleaved run each. What was not measured is named, with the reason.

Run it on a quiet machine. Ctrl-C ends the command under way; what was measured until then is written.
Exit code 1: something went wrong in what was measured, or it was interrupted. Exit code 2: nothing was measured.";

/// `convoy bench report`
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Measure a part of the grid, within three minutes.
    #[arg(long)]
    quick: bool,
    /// Measure several times longer.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Figures to measure, F1 to F16; what is measured together is measured, the others are not drawn.
    #[arg(long, value_name = "FIGURE", value_delimiter = ',')]
    only: Vec<Id>,
    /// The folder to write to.
    #[arg(long, value_name = "FOLDER", default_value = "convoy-report")]
    out: PathBuf,
    /// Results of other runs to draw, too, written with --json by convoy bench tls, forward or engine, or by
    /// interop/throughput/compare.py.
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    with: Vec<PathBuf>,
    /// Shared libraries of intel-ipsec-mb, instead of the system's, two at most: one of version 1 and one of version 2, for
    /// example. F7 has the first one, F8 the managers of both.
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    ipsec_mb: Vec<String>,
    /// DPDK's ipsec-secgw, as interop/secgw/build.sh makes it: F9 sets it beside a worker.
    #[arg(long, value_name = "FILE")]
    secgw: Option<String>,
    /// Draw this report again, and measure nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "full", "with", "ipsec_mb", "secgw"])]
    from: Option<PathBuf>,
}

/// A step that takes twice what it should, and so many seconds more, is ended.
const LATE: f64 = 60.0;

/// Message about a build whose assertions stand in the kernels.
const DEBUG: &str = "this program was built with debug assertions, which cost more than what is measured; build it with make";

pub(super) fn run(args: &ReportArgs) -> anyhow::Result<Exit> {
    if args.ipsec_mb.len() > 2 {
        return Err(Stop::usage("--ipsec-mb: two at most"));
    }
    let folder = Folder::open(&args.out).map_err(|error| Stop::usage(format!("{error:#}")))?;
    let results = match &args.from {
        Some(path) => read(path, "report")?,
        None => measure(args)?,
    };
    folder.write("report.json", &results.to_json()?)?;
    let page = page::report(&results, &args.only);
    folder.write("report.html", &html::render(&page))?;
    output::print(&told(&page, &folder))?;
    let is_well = results.complete && results.errors.is_empty();
    Ok(if is_well { Exit::Ok } else { Exit::Trouble })
}

/// Runs all commands, and puts what they wrote together.
fn measure(args: &ReportArgs) -> anyhow::Result<Results> {
    let others = args.with.iter().map(|path| other(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let effort = match (args.quick, args.full) {
        (true, _) => Effort::Quick,
        (_, true) => Effort::Full,
        _ => Effort::Usual,
    };
    let head = Head::now();
    let machine = Machine {
        processors: head.machine.processors.len(),
        tiers: head.machine.tiers.clone(),
        portable_is_soft: PORTABLE_IS_SOFT,
    };
    let mut report = Results::new("report", &head);
    if cfg!(debug_assertions) {
        eprintln!("report: {DEBUG}");
        report.left_out.push(LeftOut::new("figures that say something", DEBUG));
    }
    let wanted = Wanted {
        only: args.only.clone(),
        given: others.iter().map(|(experiment, _)| *experiment).collect(),
        effort,
        ipsec_mb: args.ipsec_mb.clone(),
        secgw: args.secgw.clone(),
    };
    let (steps, left_out) = steps(&wanted, &machine);
    report.left_out.extend(left_out);
    let interrupt = Interrupt::listen()?;
    let mut left: f64 = steps.iter().map(|step| step.seconds).sum();
    for (at, step) in steps.iter().enumerate() {
        let title = format!("{}: {}", step.experiment.name(), step.name);
        if interrupt.is_set() {
            report.complete = false;
            report.left_out.push(LeftOut::new(title, "the run was interrupted before"));
            continue;
        }
        eprintln!("report: {} of {}: {title}; {} left", at + 1, steps.len(), duration(left));
        match carry_out(step, &interrupt) {
            Ok(results) => merge::add(&mut report, step.experiment, step.name, results),
            Err(error) => {
                eprintln!("report: {title}: {error:#}");
                report.left_out.push(LeftOut::new(title, format!("{error:#}")));
            }
        }
        report.complete &= !interrupt.is_set();
        left -= step.seconds;
    }
    for (experiment, results) in others {
        let name = results.bench.clone();
        merge::add(&mut report, experiment, &name, results);
    }
    report.machine.look_again();
    Ok(report)
}

/// Results of another run, and what they are of.
fn other(path: &Path) -> anyhow::Result<(Experiment, Results)> {
    let results =
        Results::read_any(path).map_err(|error| Stop::usage(format!("--with {error}")))?;
    let Some(experiment) = Experiment::of_bench(&results.bench) else {
        return Err(Stop::usage(format!(
            "--with {}: results of convoy bench {}; use those of convoy bench tls, forward or engine, or of \
             interop/throughput/compare.py",
            path.display(),
            results.bench
        )));
    };
    Ok((experiment, results))
}

fn read(path: &Path, bench: &str) -> anyhow::Result<Results> {
    let results = Results::read(path).map_err(|error| Stop::usage(format!("--from {error}")))?;
    if results.bench == bench {
        return Ok(results);
    }
    let of = &results.bench;
    Err(Stop::usage(format!(
        "--from {}: results of convoy bench {of}, not of a report",
        path.display()
    )))
}

/// Runs one command and reads what it writes.
fn carry_out(step: &Step, interrupt: &Interrupt) -> anyhow::Result<Results> {
    let program = std::env::current_exe().context("this program's file")?;
    let child = Child::start(&program, &step.arguments, &step.environment)?;
    // On a busy machine some benches measure again and again.
    let limit = Duration::from_secs_f64(2.0 * step.seconds + LATE);
    let begun = Instant::now();
    let results = child.results(interrupt, Some(limit));
    let late = format!("it took longer than {} s: the machine is busy", limit.as_secs());
    let is_late = begun.elapsed() > limit;
    let mut results =
        results.with_context(|| if is_late { late.clone() } else { "no results".to_owned() })?;
    if is_late {
        results.left_out.push(LeftOut::new(format!("the rest of {}", step.name), late));
    }
    for (name, value) in &step.environment {
        results.command.insert_str(0, &format!("{name}={value} "));
    }
    Ok(results)
}

/// Path under which reports are written.
struct Folder<'a>(&'a Path);

impl<'a> Folder<'a> {
    /// Makes the folder, and sees that files can be written there before anything is measured.
    fn open(path: &'a Path) -> anyhow::Result<Self> {
        let why = || format!("--out {}: cannot write there", path.display());
        fs::create_dir_all(path).with_context(why)?;
        tempfile::tempfile_in(path).map(drop).with_context(why)?;
        Ok(Self(path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Puts a whole file in the place of another of its name, or nothing.
    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path(name);
        let why = || format!("cannot write {}", path.display());
        output::replace_file(&path, text).with_context(why)
    }
}

/// Summary to print at the end: the ratios on top, and the path of the page.
fn told(page: &html::Report, folder: &Folder<'_>) -> String {
    let mut rows = vec![
        ["FIGURE", "RATIO", "QUARTILES", "ASKED", "REACHED", "OF"].map(str::to_owned).to_vec(),
    ];
    for line in &page.headline {
        let reached = match line.is_reached {
            Some(true) => "yes",
            Some(false) => "no",
            None => "–",
        };
        rows.push(vec![
            line.figure.clone().unwrap_or_default(),
            line.value.clone(),
            line.spread.clone(),
            line.asked.clone().unwrap_or_default(),
            reached.to_owned(),
            line.what.clone(),
        ]);
    }
    let mut text =
        if page.headline.is_empty() { String::new() } else { output::table(&rows) + "\n" };
    let figures: Vec<&str> = page.figures.iter().map(|figure| figure.id.as_str()).collect();
    let drawn = if figures.is_empty() { "no figure".to_owned() } else { figures.join(", ") };
    text += &format!("{drawn}: {}\n", folder.path("report.html").display());
    let all = page.left_out.iter().chain(page.figures.iter().flat_map(|figure| &figure.left_out));
    let mut told: Vec<&LeftOut> = Vec::new();
    for one in all {
        if !told.contains(&one) {
            text += &format!("left out: {}: {}\n", one.what, one.why);
            told.push(one);
        }
    }
    for error in &page.errors {
        text += &format!("wrong: {error}\n");
    }
    text
}

/// Seconds in words.
fn duration(seconds: f64) -> String {
    let seconds = seconds.max(1.0).round() as u64;
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("about {seconds} s"),
        (minutes, seconds) => format!("about {minutes} min {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_minutes() {
        assert_eq!(duration(0.0), "about 1 s");
        assert_eq!(duration(59.4), "about 59 s");
        assert_eq!(duration(60.0), "about 1 min 0 s");
        assert_eq!(duration(754.0), "about 12 min 34 s");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told_before_anything_is_measured() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Folder::open(file.path()).err().unwrap();
        assert!(format!("{error:#}").contains("cannot write there"), "{error:#}");
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::open(folder.path()).unwrap();
        folder.write("a", "one").unwrap();
        folder.write("a", "two").unwrap();
        assert_eq!(fs::read_to_string(folder.path("a")).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.0).unwrap().count(), 1);
    }
}
