//! Checks of this host for what helps or hinders a gateway. They read, and change nothing.

mod ciphers;
mod engine;
mod kernel;
mod modules;
mod network;
mod programs;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use convoy_control::client::{Client, Target};
use convoy_control::protocol::{Answer, Request};
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
    fn ok(about: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Ok, about, found: found.into() }
    }

    fn note(about: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Note, about, found: found.into() }
    }

    fn problem(about: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Problem, about, found: found.into() }
    }
}

/// Gateway that the checks are about.
#[derive(Debug)]
struct Patient<'a> {
    site: Option<&'a Site>,
    /// Peers that the site file and the running gateway name.
    peers: Vec<IpAddr>,
    udp_port: u16,
    interface: String,
    /// Path at which XFRM is served, if it is to be.
    socket: Option<PathBuf>,
    /// `Ok` if the gateway answers; else the reason, in words.
    gateway: Result<(), String>,
    /// True if it runs, as far as that is known.
    is_running: Option<bool>,
}

/// Looks at everything, in the calling thread's network namespace.
pub(crate) fn look(site: Option<&Site>) -> Vec<Check> {
    let target = site.map_or(Target::Only, |site| Target::Socket(site.control_socket.clone()));
    let answer = Client::find(&target).and_then(|client| client.ask(Request::Status));
    let of_site = site.into_iter().flat_map(Site::associations).map(|sa| sa.endpoints.remote);
    let mut peers: Vec<IpAddr> = of_site.collect();
    let (mut engine, mut status_of) = (None, None);
    if let Ok(Answer::Status(status)) = &answer {
        peers.extend(status.sas.iter().map(|sa| sa.remote));
        engine = engine::look(status);
        status_of = Some(status);
    }
    peers.sort_unstable();
    peers.dedup();
    let is_running = match &answer {
        Ok(_) => Some(true),
        Err(error) => error.is_no_gateway().then_some(false),
    };
    let served = Path::new("/run/convoy/xfrm.sock");
    let ciphers = ciphers::look(site, status_of.map(|status| &**status));
    let patient = Patient {
        site,
        peers,
        udp_port: site.map_or(4500, |site| site.wire.udp_port),
        interface: site.map_or_else(|| "convoy0".to_owned(), |site| site.plain.tun()),
        socket: match site {
            Some(site) => site.xfrm.as_ref().map(|xfrm| xfrm.socket.clone()),
            None => Some(served.to_owned()),
        },
        gateway: answer.map(drop).map_err(|error| error.to_string()),
        is_running,
    };
    let root = Path::new("/");
    let mut checks = kernel::look(root);
    checks.extend(network::look(root, &patient));
    checks.extend(programs::look(root, &patient));
    checks.extend(engine);
    checks.extend(ciphers);
    checks
}
