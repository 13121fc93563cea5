//! Findings of the checks, and the gateway that they are about.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use convoy_control::site::Site;
use serde::Serialize;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing, or not to be seen.
    Note,
    /// To be put right.
    Problem,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "OK",
            Self::Note => "note",
            Self::Problem => "PROBLEM",
        })
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) level: Level,
    /// Subject, in a word or two.
    pub(crate) about: &'static str,
    /// Finding, its place, and the remedy.
    pub(crate) found: String,
}

impl Check {
    pub(super) fn ok(about: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Ok, about, found: found.into() }
    }

    pub(super) fn note(about: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Note, about, found: found.into() }
    }

    pub(super) fn problem(about: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Problem, about, found: found.into() }
    }
}

/// Gateway that the checks are about.
#[derive(Debug)]
pub(super) struct Patient<'a> {
    pub(super) site: Option<&'a Site>,
    /// Peers that the site file and the running gateway name.
    pub(super) peers: Vec<IpAddr>,
    pub(super) udp_port: u16,
    pub(super) interface: String,
    /// Path at which XFRM is served, if it is to be.
    pub(super) socket: Option<PathBuf>,
    /// `Ok` if the gateway answers; else the reason, in words.
    pub(super) gateway: Result<(), String>,
    /// True if it runs, as far as that is known.
    pub(super) is_running: Option<bool>,
}

impl Patient<'_> {
    /// The interface that its sockets are bound to.
    pub(super) fn wire(&self) -> Option<&str> {
        self.site?.wire.interface.as_deref()
    }
}
