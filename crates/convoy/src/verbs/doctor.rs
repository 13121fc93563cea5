//! `convoy doctor`: looks at what on this host helps or hinders a gateway.

use std::path::{Path, PathBuf};

use clap::Args;
use convoy_host::Netns;
use serde::Serialize;

use crate::doctor::{self, Check, Level};
use crate::exit::Exit;
use crate::{gateway, output};

/// Text behind the options in `--help`.
pub(crate) const HELP: &str = "\
Looks at kernel modules, rights, routes and settings, at rules of others with the same marks, at flows that
are offloaded or not tracked, at MTUs, ports and IKE daemons. It reads, and changes nothing.

Examples:
  convoy doctor                # as /etc/convoy/convoy.toml says, if that is there
  convoy doctor site.toml --json

One line for each thing: OK, note (worth knowing, or not to be seen by this user), or PROBLEM, with where
it was found and what would be right. What is looked at:
  kernel ESP    modules esp4 and esp6, blocked or loaded; Convoy does without them
  TUN, rights   what `convoy run` needs: /dev/net/tun and capabilities
  Landlock      whether the kernel keeps a running gateway from files that it does not need
  clock, IPv6   certificates and lifetimes need a clock that is right
  routes        routes past the tunnels, rules ahead of Convoy's, rp_filter, forwarding, peers without a route
  packet filter whether the kernel has nf_tables
  MTU           of the ways to the peers, beside that of the TUN interface
  IKE daemon    whether those that run are led to Convoy
  UDP ports     who holds 500, 4500 and `udp_port`
  gateway, XFRM socket, library, systemd: whether a daemon that starts finds Convoy
  engine        of a running gateway: whether it was lost, or wrong

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

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Exit> {
    let installed = || Some(Path::new(INSTALLED)).filter(|path| path.exists());
    let site = args.site.as_deref().or_else(installed).map(gateway::load).transpose()?;
    let site = site.map(|(site, _)| site);
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
