//! `convoy check`: finds every error of site files before anything depends on them.

use std::path::PathBuf;

use clap::Args;
use convoy_control::site::{Finding, Site};
use serde::Serialize;

use crate::exit::Exit;
use crate::gateway;
use crate::output;

/// `convoy check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Site files.
    #[arg(required = true, value_name = "SITE.toml")]
    pub sites: Vec<PathBuf>,
    /// Print findings as JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Report {
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
    /// Findings about this machine alone; the file may be meant for another.
    notes: Vec<Finding>,
}

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<Exit> {
    let mut report = Report { errors: Vec::new(), warnings: Vec::new(), notes: Vec::new() };
    for path in &args.sites {
        match Site::load(path) {
            Ok((site, warnings)) => {
                let mut errors = gateway::unusable(&site);
                errors.extend(gateway::lost_state(&site));
                let mut warnings: Vec<_> = warnings.into_iter().map(|warning| warning.0).collect();
                // The file may be meant for another machine.
                warnings.extend(gateway::missing_cpus(&site));
                let notes = gateway::notes_here(&site);
                if !args.json && errors.is_empty() {
                    let word = if warnings.is_empty() { "good" } else { "usable, with warnings" };
                    let here = if notes.is_empty() { "" } else { ", but not yet on this machine" };
                    output::print(&format!("{}: {word}{here}\n", path.display()))?;
                }
                report.notes.extend(notes);
                report.errors.extend(errors);
                report.warnings.extend(warnings);
            }
            Err(errors) => report.errors.extend(errors.errors),
        }
    }
    if args.json {
        output::json(&report)?;
    } else {
        report.warnings.iter().for_each(|finding| eprintln!("warning: {finding}"));
        report.notes.iter().for_each(|finding| eprintln!("note: {finding}"));
        report.errors.iter().for_each(|finding| eprintln!("error: {finding}"));
    }
    Ok(match (report.errors.is_empty(), report.warnings.is_empty()) {
        (false, _) => Exit::Usage,
        (true, false) => Exit::Trouble,
        (true, true) => Exit::Ok,
    })
}
