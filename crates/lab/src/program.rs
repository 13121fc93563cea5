//! Programs started in a namespace, which end with their owner.

use std::{
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{LabError, Namespace, error::Doing as _};

/// Longest time that a dropped program may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// A program in a namespace. Dropping it ends the program: asked first (SIGTERM), made to (SIGKILL)
/// when it does not.
#[derive(Debug)]
pub struct Program {
    child: Child,
}

impl Program {
    /// Starts a program in a namespace.
    ///
    /// # Errors
    /// As [`Namespace::spawn`].
    pub fn start(namespace: &Namespace, command: &mut Command) -> Result<Self, LabError> {
        Ok(Self { child: namespace.spawn(command)? })
    }

    /// Its process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// [`LabError::System`] when the system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, LabError> {
        self.child.try_wait().doing(|| "look after a program".into())
    }

    /// Asks it to end, and makes it when it has not after a time. Returns how it ended.
    ///
    /// # Errors
    /// [`LabError::System`] when it cannot be ended.
    pub fn end(mut self, patience: Duration) -> Result<ExitStatus, LabError> {
        self.make_end(patience)
    }

    fn make_end(&mut self, patience: Duration) -> Result<ExitStatus, LabError> {
        let begun = Instant::now();
        if let Some(status) = self.ended()? {
            return Ok(status);
        }
        // Not waited for yet, so the number is still its own.
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGTERM).doing(|| "ask a program to end".into())?;
        while begun.elapsed() < patience {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            thread::sleep(PAUSE);
        }
        self.child.kill().doing(|| "end a program".into())?;
        self.child.wait().doing(|| "wait for a program".into())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // One that cannot be ended has ended.
        let _ = self.make_end(PATIENCE);
    }
}
