//! The state that steps of the gate share.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};

use crate::programs::{self, Program};
use crate::report::Tally;
use crate::since::Concerned;
use crate::workspace::Workspace;

/// The variable that denies CPU tiers to every program of a run.
pub(crate) const DENY: &str = "CONVOY_DENY_CPU";

/// Lines that an oracle printed, and its outcome.
type Finished = (Vec<String>, Result<Tally>);

/// An oracle that runs while earlier steps do.
#[derive(Debug, Default)]
pub(crate) struct Ahead(pub(crate) Mutex<Option<JoinHandle<Finished>>>);

/// The workspace, its test programs, and the part of it that is concerned.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) workspace: Arc<Workspace>,
    /// Packages and steps that a change concerns, if the gate is to run for that alone.
    pub(crate) concerned: Option<Concerned>,
    programs: OnceLock<Option<Vec<Program>>>,
    /// An oracle that began before its step, if oracles are among the steps.
    pub(crate) ahead: Option<Ahead>,
}

impl Gate {
    pub(crate) fn new(workspace: Workspace) -> Self {
        let workspace = Arc::new(workspace);
        Self { workspace, concerned: None, programs: OnceLock::new(), ahead: None }
    }

    /// The test programs of all packages that are concerned, built at the first call.
    pub(crate) fn programs(&self) -> Result<Vec<Program>> {
        if self.programs.get().is_none() {
            let _ = self.programs.set(programs::build(&self.workspace)?);
        }
        let all = self.programs.get().and_then(Option::as_ref).context("the tests do not build")?;
        let is_wanted =
            |program: &&Program| self.concerned.as_ref().is_none_or(|c| c.has(&program.package));
        Ok(all.iter().filter(is_wanted).cloned().collect())
    }
}
