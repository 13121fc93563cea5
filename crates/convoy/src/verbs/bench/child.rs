//! Benches that run as programs of their own, this one's or another build's.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use convoy_bench::results::Results;
use rustix::process::{Pid, Signal, kill_process};

use crate::interrupt::Interrupt;

/// Time between two looks at a program.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest time until it ends once it was interrupted.
const PATIENCE: Duration = Duration::from_secs(60);

/// A bench under way. What it says goes to standard error, indented.
pub(super) struct Child {
    process: process::Child,
    written: File,
    told: JoinHandle<String>,
}

impl Child {
    /// Starts `program bench` with `arguments`, which have to ask for JSON.
    pub(super) fn start(
        program: &Path,
        arguments: &[String],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let written = tempfile::tempfile().context("a temporary file")?;
        let mut command = Command::new(program);
        command.arg0("convoy").arg("bench").args(arguments).envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(written.try_clone()?).stderr(Stdio::piped());
        let mut process =
            command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let stderr = process.stderr.take();
        let told = thread::spawn(move || {
            let mut last = String::new();
            for line in stderr.into_iter().flat_map(|pipe| BufReader::new(pipe).lines()) {
                let Ok(line) = line else { break };
                eprintln!("  {line}");
                last = line;
            }
            last
        });
        Ok(Self { process, written, told })
    }

    /// Waits for its end, by itself or after `limit`, and reads its output. Some end with an exit code and have results all the same.
    pub(super) fn results(
        mut self,
        interrupt: &Interrupt,
        limit: Option<Duration>,
    ) -> anyhow::Result<Results> {
        let status = wait(&mut self.process, interrupt, limit)?;
        let last = self.told.join().unwrap_or_default();
        let mut bytes = Vec::new();
        self.written.rewind()?;
        self.written.read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            anyhow::bail!("ended with {status} and wrote nothing: {}", last.trim());
        }
        Results::parse(&bytes).with_context(|| format!("ended with {status}"))
    }
}

/// Waits for a program, and ends it if this one is to end or it takes longer than it may.
fn wait(
    process: &mut process::Child,
    interrupt: &Interrupt,
    limit: Option<Duration>,
) -> anyhow::Result<ExitStatus> {
    let begun = Instant::now();
    let is_late = || limit.is_some_and(|limit| begun.elapsed() > limit);
    let mut until: Option<Instant> = None;
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        match until {
            None if interrupt.is_set() || is_late() => {
                // One that knows how to end early writes what it has.
                let _ = kill_process(Pid::from_child(process), Signal::INT);
                until = Some(Instant::now() + PATIENCE);
            }
            Some(until) if Instant::now() > until => process.kill()?,
            _ => {}
        }
        thread::sleep(PAUSE);
    }
}
