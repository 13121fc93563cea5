//! `convoy doctor`: looks at what on this host helps or hinders a gateway.

use std::path::Path;

use convoy_host::Netns;
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::doctor::{self, Check, Level};
use crate::exit::Exit;
use crate::{gateway, output};

/// The gateway that `make install` sets up.
const INSTALLED: &str = "/etc/convoy/convoy.toml";

#[derive(Serialize)]
struct Report {
    schema: u32,
    problems: usize,
    checks: Vec<Check>,
}

pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<Exit> {
    let installed = || Some(Path::new(INSTALLED)).filter(|path| path.exists());
    let site = args.site.as_deref().or_else(installed).map(gateway::load).transpose()?;
    let site = site.map(|(site, _)| site);
    if let Some(namespace) = site.as_ref().and_then(|site| site.namespace.as_ref()) {
        Netns::open(namespace)?.enter_process()?;
    }
    let checks = doctor::look(site.as_ref());
    let problems = checks.iter().filter(|check| check.level == Level::Problem).count();
    if args.json {
        output::json(&Report { schema: 1, problems, checks })?;
    } else {
        let line = |check: &Check| {
            // One line each, whatever was found.
            format!("{:8} {}: {}\n", check.level, check.about, check.found.replace('\n', " "))
        };
        output::print(&checks.iter().map(line).collect::<String>())?;
    }
    Ok(if problems == 0 { Exit::Ok } else { Exit::Trouble })
}
