//! Exit codes: what scripts and monitoring may rely on.

use std::process::ExitCode;

/// How a verb ended. Errors are printed by then, or printed by `main`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Ok,
    /// A failure at run time, or a warning of `check` and `status`.
    Trouble,
    /// The command line or a site file is wrong; nothing was changed.
    Usage,
    /// No gateway answers.
    NoGateway,
    /// `status` only: packets are being lost for want of something.
    Critical,
}

impl Exit {
    /// The number. Those of `status` are what monitoring systems take for ok, warning, critical
    /// and unknown.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Trouble => 1,
            Self::Usage | Self::Critical => 2,
            Self::NoGateway => 3,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error that carries its exit code; everything else ends with [`Exit::Trouble`].
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Stop {
    /// What is printed to standard error.
    pub message: String,
    /// How the process ends.
    pub exit: Exit,
}

impl Stop {
    /// The command line or a site file is wrong.
    pub fn usage(message: impl Into<String>) -> anyhow::Error {
        Self { message: message.into(), exit: Exit::Usage }.into()
    }
}

/// The exit code an error stands for.
#[must_use]
pub fn code_of(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<Stop>().map_or(Exit::Trouble, |stop| stop.exit)
}
