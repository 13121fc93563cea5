//! `convoy doctor`: looks at what on this host helps or hinders a gateway.

use std::path::PathBuf;

use clap::Args;
use convoy_control::client::{Client, Target};
use convoy_control::protocol::{Answer, Request};
use convoy_host::Netns;
use serde::Serialize;

use crate::doctor::{self, Check, Level};
use crate::exit::Exit;
use crate::{gateway, output};

/// Text behind the options in `--help`.
pub(crate) const HELP: &str = "\
Checks kernel modules, rights, routes and settings, rules of other programs with the same marks, flows that are
offloaded or not tracked, MTUs, ports and IKE daemons. It reads, and changes nothing.

Examples:
  convoy doctor                # the gateway of /etc/convoy/convoy.toml, else the one that runs here
  convoy doctor site.toml --json

One line for each check: OK, note (worth knowing, or not readable for this user), or PROBLEM, with its place
and its remedy. The checks:
  kernel ESP    modules esp4 and esp6, blocked or loaded; Convoy does without them
  TUN, rights   what `convoy run` needs: /dev/net/tun and capabilities
  Landlock      whether the kernel denies a running gateway the files that it does not need
  clock, IPv6   certificates and lifetimes need a clock that is right
  routes        routes past the tunnels, rules ahead of Convoy's, rp_filter, forwarding, peers without a route
  packet filter whether the kernel has nf_tables
  TUN interface whether that of a running gateway exists and is up
  MTU           path MTUs to the peers, beside the MTU of the TUN interface
  IKE daemon    whether those that run are led to Convoy
  UDP ports     which programs use 500, 4500 and `udp_port`
  gateway, XFRM socket, library, systemd: whether a daemon that starts finds Convoy
  engine        whether the engine of a running gateway was lost, or gave wrong results
  status        reasons for a warning of a running gateway

As root it sees more. Exit codes: 0 no problem, 1 problems, 2 the site file is wrong.";

/// `convoy doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Site file of the gateway.
    #[arg(value_name = "SITE.toml")]
    pub site: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The gateway that `make install` sets up.
const INSTALLED: &str = "/etc/convoy/convoy.toml";

#[derive(Serialize)]
struct Report {
    problems: usize,
    checks: Vec<Check>,
}

/// The site file of the only gateway that runs here.
fn site_of_running() -> Option<PathBuf> {
    let client = Client::find(&Target::Only).ok()?;
    match client.ask(Request::Status).ok()? {
        // As the gateway was given it: it may be relative to its folder.
        Answer::Status(status) => {
            let folder = std::fs::read_link(format!("/proc/{}/cwd", status.pid)).ok()?;
            Some(folder.join(status.site_file))
        }
        _ => None,
    }
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Exit> {
    let installed = || Some(PathBuf::from(INSTALLED)).filter(|path| path.exists());
    let path = args.site.clone().or_else(installed).or_else(site_of_running);
    let site = path.as_deref().map(gateway::load).transpose()?.map(|(site, _)| site);
    if let Some(namespace) = site.as_ref().and_then(|site| site.namespace.as_ref()) {
        Netns::open(namespace)?.enter_process()?;
    }
    let checks = doctor::look(site.as_ref());
    let problems = checks.iter().filter(|check| check.level == Level::Problem).count();
    if args.json {
        output::json(&Report { problems, checks })?;
    } else {
        let line = |check: &Check| {
            // One line each, whatever was found.
            format!("{:8} {}: {}\n", check.level, check.about, check.found.replace('\n', " "))
        };
        output::print(&checks.iter().map(line).collect::<String>())?;
    }
    Ok(if problems == 0 { Exit::Ok } else { Exit::Trouble })
}
