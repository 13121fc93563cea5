//! Paths of the workspace, and programs that the gate runs.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;

use crate::layers::{self, Package};
use crate::report::Tally;

/// The workspace as cargo sees it.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        let output = cargo()
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run cargo metadata")?;
        ensure!(output.status.success(), "cargo metadata failed");
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let path = |key: &str| metadata[key].as_str().map(PathBuf::from);
        Ok(Self {
            root: path("workspace_root").context("cargo metadata names no root")?,
            target: path("target_directory").context("cargo metadata names no target folder")?,
            packages: layers::packages(&metadata)?,
        })
    }

    /// Folder of tools that the gate installs for itself.
    pub(crate) fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// Log file for the full output of a step.
    pub(crate) fn log(&self, step: &str) -> Result<File> {
        let folder = self.target.join("gate");
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{step}.log"));
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// True if a command can be started and ends well; its output is thrown away.
pub(crate) fn works(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The compiler's version, in its own words.
pub(crate) fn rustc_version() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output().context("cannot run rustc")?;
    ensure!(output.status.success(), "rustc does not tell its version");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Tells what is left out, and counts it.
pub(crate) fn skip(why: String) -> Tally {
    println!("SKIPPED: {why}");
    Tally::skip(why)
}

/// From which of its two outputs a line of a program comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Standard,
    Error,
}

/// Runs a command, hands each line that it prints to `each` and to `log`.
pub(crate) fn stream(
    command: &mut Command,
    log: &mut File,
    mut each: impl FnMut(Output, &str),
) -> Result<ExitStatus> {
    let program = Path::new(command.get_program()).display().to_string();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let output = child.stdout.take().context("standard output was not piped")?;
    let errors = child.stderr.take().context("standard error was not piped")?;
    let (sender, lines) = mpsc::channel();
    let readers = [
        spawn_reader(Output::Standard, output, sender.clone()),
        spawn_reader(Output::Error, errors, sender),
    ];
    for (from, line) in lines {
        writeln!(log, "{line}")?;
        each(from, &line);
    }
    for reader in readers {
        reader.join().map_err(|_| anyhow!("reading the output of {program} failed"))??;
    }
    Ok(child.wait()?)
}

fn spawn_reader(
    from: Output,
    output: impl Read + Send + 'static,
    lines: mpsc::Sender<(Output, String)>,
) -> thread::JoinHandle<io::Result<()>> {
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            if lines.send((from, line)).is_err() {
                break;
            }
        }
        Ok(())
    })
}
