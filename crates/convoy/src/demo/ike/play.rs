//! One act after the other, each with its verdict.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;

use super::shares::{Datagrams, Shares};
use super::world::World;
use crate::demo::progress::Progress;
use crate::interrupt::Interrupt;
use crate::output;

/// Outcome of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Passed,
    Failed,
    Skipped,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::Skipped => "SKIPPED",
        }
    }
}

/// An act: its name and what is done.
pub(super) struct Act {
    pub(super) name: &'static str,
    pub(super) play: fn(&mut Play<'_>) -> anyhow::Result<Done>,
}

/// An act that went as it should.
#[derive(Clone, Debug)]
pub(super) enum Done {
    /// Result that was seen.
    Passed(String),
    /// Reason for which it cannot be played here.
    Skipped(&'static str),
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Scene {
    act: &'static str,
    verdict: Verdict,
    /// Result that was seen, or the error.
    said: String,
    seconds: f64,
}

/// Outcome of all acts.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    peers: &'static str,
    tunnels: usize,
    acts: Vec<Scene>,
    pub(super) failed: usize,
    skipped: usize,
    /// SAs and packets of each worker in the act about them.
    workers: Shares,
    /// Datagrams of that act.
    datagrams: Datagrams,
    /// Configurations, logs and captures.
    folder: PathBuf,
}

impl Summary {
    /// The last words for people.
    pub(super) fn text(&self) -> String {
        let passed = self.acts.len() - self.failed - self.skipped;
        let mut text = format!(
            "\n{passed} passed, {} failed, {} skipped; {}\n",
            self.failed, self.skipped, self.peers
        );
        text.push_str(&self.workers.text(self.datagrams));
        // Writing to a String does not fail.
        let _ = writeln!(text, "configurations, logs and captures: {}", self.folder.display());
        text
    }
}

/// The first line and the last: daemons explain themselves at length, and their logs have it all.
fn shortened(said: &str) -> String {
    match (said.lines().next(), said.lines().last()) {
        (Some(first), Some(last)) if first != last => format!("{first} … {}", last.trim()),
        _ => said.to_owned(),
    }
}

/// A play under way.
pub(super) struct Play<'a> {
    pub(super) world: World,
    pub(super) progress: Progress,
    pub(super) interrupt: &'a Interrupt,
    scenes: Vec<Scene>,
    aloud: bool,
    /// SAs and packets of each worker while so many datagrams were sent and lost.
    pub(super) shares: Shares,
    pub(super) datagrams: Datagrams,
}

impl<'a> Play<'a> {
    pub(super) fn new(
        world: World,
        progress: Progress,
        interrupt: &'a Interrupt,
        aloud: bool,
    ) -> anyhow::Result<Self> {
        let (scenes, shares) = (Vec::new(), Shares::default());
        let datagrams = Datagrams::default();
        let mut play = Self { world, progress, interrupt, scenes, aloud, shares, datagrams };
        play.progress.phase("daemons and gateways start");
        play.world.start(interrupt)?;
        Ok(play)
    }

    /// Plays an act and says what came of it. A failure is no reason to stop; an interruption is.
    pub(super) fn act(&mut self, act: &Act) -> anyhow::Result<()> {
        self.progress.phase(act.name);
        let begun = Instant::now();
        let done = (act.play)(self);
        self.interrupt.check()?;
        let (verdict, said) = match done {
            Ok(Done::Passed(said)) => (Verdict::Passed, said),
            Ok(Done::Skipped(why)) => (Verdict::Skipped, why.to_owned()),
            Err(error) => (Verdict::Failed, format!("{error:#}")),
        };
        let seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        self.progress.clear();
        if self.aloud {
            let words = shortened(&said);
            output::print(&format!("{:<8}{:<34}{words}\n", verdict.word(), act.name))?;
        }
        self.scenes.push(Scene { act: act.name, verdict, said, seconds });
        Ok(())
    }

    /// Ends everything and sums up.
    pub(super) fn end(self) -> anyhow::Result<Summary> {
        let count = |verdict| self.scenes.iter().filter(|scene| scene.verdict == verdict).count();
        let (failed, skipped) = (count(Verdict::Failed), count(Verdict::Skipped));
        let summary = Summary {
            peers: self.world.peers_in_words(),
            tunnels: self.world.tunnels.len(),
            acts: self.scenes,
            failed,
            skipped,
            workers: self.shares,
            datagrams: self.datagrams,
            folder: self.world.folder.path().to_owned(),
        };
        self.progress.clear();
        self.world.end()?;
        Ok(summary)
    }
}
