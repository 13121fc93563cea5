//! Exit codes: what scripts and monitoring may rely on.

use std::process::ExitCode;

/// Outcome of a verb. Errors are printed by then, or printed by `main`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Ok,
    /// A failure at run time, or a warning of `check` and `status`.
    Trouble,
    /// The command line or a site file is wrong; nothing was changed.
    Usage,
    /// No gateway answers, or none that may be asked.
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
    /// Text for standard error.
    pub message: String,
    /// Outcome of the process.
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

/// An error with its causes, each told once: many errors repeat their cause in their own text.
#[must_use]
pub fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    // Some write the system's words small, and leave out its number.
    let plain = |text: &str| match text.rsplit_once(" (os error ") {
        Some((words, _)) => words.to_lowercase(),
        None => text.to_lowercase(),
    };
    for cause in error.chain().map(ToString::to_string) {
        if plain(&text).ends_with(&plain(&cause)) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

/// Error of a program that was built without some of its features, as `make demo` builds it.
#[cfg(not(all(feature = "bench", feature = "provider")))]
pub(crate) fn left_out(what: &str) -> anyhow::Error {
    Stop::usage(format!(
        "this program was built without `convoy {what}`: `make build` makes one that has all of its verbs"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open: {0}")]
    struct Repeats(#[source] Error);

    #[test]
    fn a_cause_that_was_told_is_not_told_again() {
        let cause = || Repeats(Error::new(ErrorKind::NotFound, "no such file"));
        assert_eq!(describe(&cause().into()), "cannot open: no such file");
        let system = || Repeats(Error::from_raw_os_error(28));
        let full = "cannot open: No space left on device (os error 28)";
        assert_eq!(describe(&system().into()), full);
        let small = anyhow::Error::new(Error::from_raw_os_error(28));
        let small = small.context("cannot write: no space left on device");
        assert_eq!(describe(&small), "cannot write: no space left on device");
        let context = anyhow::Error::new(cause()).context("the state folder");
        assert_eq!(describe(&context), "the state folder: cannot open: no such file");
    }

    #[test]
    fn errors_carry_their_exit_code() {
        assert_eq!(code_of(&Stop::usage("x")), Exit::Usage);
        assert_eq!(code_of(&anyhow::anyhow!("x")), Exit::Trouble);
    }
}
