//! The two gateways as processes.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use convoy_control::client::{Client, Target};
use convoy_control::protocol::{Answer, Request};
use convoy_control::status::Status;
use convoy_lab::{Namespace, Program, Topology};

use super::folder::{Folder, NAMES};
use crate::interrupt::Interrupt;

/// Longest time until traffic can flow. This and the next only guard against hanging;
/// a busy machine takes long.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Longest time that its end may take.
const END_LIMIT: Duration = Duration::from_secs(20);
/// Longest time until it dies after it has closed its socket.
const DEATH_LIMIT: Duration = Duration::from_secs(2);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// Lines of a log that are shown when its gateway died.
const LOG_LINES: usize = 12;

/// Both gateways. Dropping ends them.
#[derive(Debug)]
pub(super) struct Gateways([Gateway; 2]);

/// One gateway. Dropping ends it.
#[derive(Debug)]
pub(super) struct Gateway {
    name: &'static str,
    site: PathBuf,
    log: PathBuf,
    program: Program,
}

impl Gateways {
    /// Starts both and waits until traffic can flow.
    pub(super) fn start(
        lab: &Topology,
        folder: &Folder,
        sites: &[PathBuf; 2],
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let launch = |n: usize, namespace| {
            Gateway::launch(NAMES[n], namespace, &sites[n], folder.log(NAMES[n]))
        };
        let (a, ready_a) = launch(0, &lab.a.gateway)?;
        let (b, ready_b) = launch(1, &lab.b.gateway)?;
        let mut both = Self([a, b]);
        for (gateway, ready) in both.0.iter_mut().zip([ready_a, ready_b]) {
            gateway.wait_ready(&ready, interrupt)?;
        }
        Ok(both)
    }

    /// An error that tells which gateway died, if one has.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.0.iter_mut().try_for_each(Gateway::check)
    }

    /// True if both live.
    pub(super) fn live(&mut self) -> bool {
        self.0.iter_mut().all(|gateway| gateway.program.ended().is_ok_and(|end| end.is_none()))
    }

    /// Asks both for their status.
    pub(super) fn status(&mut self) -> anyhow::Result<[Status; 2]> {
        let [a, b] = &self.0;
        let both = a.status().and_then(|a| Ok([a, b.status()?]));
        self.unless_dead(both)
    }

    /// The same result, or an error that tells which gateway died, if that is why it is one: a gateway that
    /// dies takes its interface along and closes its socket before it is gone.
    pub(super) fn unless_dead<T>(&mut self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        let begun = Instant::now();
        while result.is_err() && begun.elapsed() < DEATH_LIMIT {
            self.check()?;
            std::thread::sleep(PAUSE);
        }
        result
    }

    /// Process numbers, by name.
    pub(super) fn processes(&mut self) -> [(&'static str, u32); 2] {
        self.0.each_mut().map(|gateway| (gateway.name, gateway.program.child().id()))
    }

    /// Ends both in good order.
    pub(super) fn end(self) -> anyhow::Result<()> {
        self.0.into_iter().try_for_each(Gateway::end)
    }
}

impl Gateway {
    /// Starts it; what it prints comes out of the second part.
    pub(super) fn launch(
        name: &'static str,
        namespace: &Namespace,
        site: &Path,
        log: PathBuf,
    ) -> anyhow::Result<(Self, mpsc::Receiver<String>)> {
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let own = std::env::current_exe().context("cannot find the own program")?;
        let mut command = Command::new(own);
        // The pipe ends with this process, however that ends.
        command.arg("run").arg("--until-stdin-ends").arg(site);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        // Ctrl-C is for the demonstration, which then ends the gateways.
        command.process_group(0);
        let mut program = Program::start(namespace, &mut command)?;
        let stdout = program.child().stdout.take().context("a gateway without output")?;
        let (lines, received) = mpsc::channel();
        std::thread::Builder::new().name(format!("{name} output")).spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Read on when nobody listens, so that the gateway never waits.
                let _ = lines.send(line);
            }
        })?;
        Ok((Self { name, site: site.to_owned(), log, program }, received))
    }

    /// Waits until traffic can flow.
    pub(super) fn wait_ready(
        &mut self,
        lines: &mpsc::Receiver<String>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            interrupt.check()?;
            match lines.recv_timeout(PAUSE) {
                Ok(line) if line == "ready" => return Ok(()),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                // It has closed its output: it is about to end.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(PAUSE),
            }
            self.check()?;
            if begun.elapsed() > START_LIMIT {
                bail!("gateway {} does not become ready{}", self.name, last_lines(&self.log));
            }
        }
    }

    /// Ends it in good order.
    pub(super) fn end(self) -> anyhow::Result<()> {
        let Self { name, log, program, .. } = self;
        let status = program.end(END_LIMIT)?;
        if !status.success() {
            bail!("gateway {name} did not end well ({status}){}", last_lines(&log));
        }
        Ok(())
    }

    /// Kills it without warning (SIGKILL).
    pub(super) fn kill(mut self) -> anyhow::Result<()> {
        let child = self.program.child();
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    fn check(&mut self) -> anyhow::Result<()> {
        match self.program.ended()? {
            None => Ok(()),
            Some(status) => bail!("gateway {} died ({status}){}", self.name, last_lines(&self.log)),
        }
    }

    /// Asks it for its status.
    pub(super) fn status(&self) -> anyhow::Result<Status> {
        let client = Client::find(&Target::Site(self.site.clone()))?;
        match client.ask(Request::Status)? {
            Answer::Status(status) => Ok(*status),
            _ => bail!("gateway {} gives no status when asked for it", self.name),
        }
    }
}

/// The end of a log, to be put behind a message.
fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
    if last.is_empty() {
        return "; it logged nothing".into();
    }
    format!("; {} ends with\n  {}", log.display(), last.join("\n  "))
}
