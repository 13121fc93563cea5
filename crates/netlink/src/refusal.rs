//! Refusals by the kernel.

use std::io;

/// A request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", io::Error::from_raw_os_error(*.errno), .said.as_deref().map_or(String::new(), |s| format!(" ({s})")))]
pub struct Refusal {
    /// The error number.
    pub errno: i32,
    /// Words that the kernel added, if any.
    pub said: Option<String>,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self { errno, said: None },
            None => Self { errno: nix::libc::EIO, said: Some(error.to_string()) },
        }
    }
}
