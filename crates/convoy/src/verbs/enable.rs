//! `convoy enable`: the service of an IKE daemon starts under Convoy, or no longer.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::Args;

use crate::exit::{Exit, Stop};
use crate::output;
use crate::preload::find_library;
use crate::units::{Daemon, UNIT_FOLDERS, drop_in, folder_with};

pub(crate) const HELP: &str = "\
Writes /etc/systemd/system/UNIT.service.d/50-convoy.conf for each service of the daemon that this host has. It
preloads Convoy's library into the daemon and has systemd start the gateway first. Nothing is restarted: the
daemon speaks to Convoy from its next start on.

Examples:
  convoy enable strongswan && systemctl restart strongswan
  convoy enable libreswan --off       # the kernel does its IPsec again, from the next start on

Exit codes: 0 done, or it was so already; 1 a file cannot be written; 2 this host has no such service.";

/// Text of a drop-in.
const TEMPLATE: &str = include_str!("../../../../systemd/daemon.conf.in");
/// The folder of units that belongs to the administrator.
const ETC: &str = UNIT_FOLDERS[0];

/// `convoy enable`
#[derive(Debug, Args)]
pub struct EnableArgs {
    /// IKE daemon.
    #[arg(value_enum)]
    pub daemon: Daemon,
    /// Undo it: the kernel does the daemon's IPsec again.
    #[arg(long)]
    pub off: bool,
    /// Root folder of the host, for images of other machines.
    #[arg(long, default_value = "/", value_name = "FOLDER")]
    pub root: PathBuf,
}

pub(crate) fn run(args: &EnableArgs) -> anyhow::Result<Exit> {
    let root = fs::canonicalize(&args.root)
        .map_err(|error| Stop::usage(format!("--root {}: {error}", args.root.display())))?;
    let told = if args.off { disable(args.daemon, &root)? } else { enable(args.daemon, &root)? };
    output::print(&told)?;
    Ok(Exit::Ok)
}

/// Writes the drop-ins. Returns what was done, for the user.
fn enable(daemon: Daemon, root: &Path) -> anyhow::Result<String> {
    let units: Vec<_> = daemon
        .units()
        .iter()
        .filter(|unit| folder_with(root, &format!("{unit}.service")).is_some())
        .collect();
    if units.is_empty() {
        let names: Vec<_> = daemon.units().iter().map(|unit| format!("{unit}.service")).collect();
        return Err(Stop::usage(format!(
            "this host has no service of {} ({} in {}): install the daemon first; `convoy exec` leads one \
             that systemd does not start",
            daemon.name(),
            names.join(", "),
            UNIT_FOLDERS.map(|folder| format!("/{folder}")).join(", ")
        )));
    }
    let text = text(&library_below(root)?)?;
    let mut told = String::new();
    for unit in &units {
        let path = root.join(ETC).join(drop_in(unit));
        let is_new = !matches!(fs::read_to_string(&path), Ok(there) if there == text);
        if is_new {
            write(&path, &text)?;
        }
        let outcome = if is_new { "wrote" } else { "was there already:" };
        told.push_str(&format!("{outcome} {}\n", path.display()));
    }
    told.push_str(&reload(root)?);
    let restart: Vec<_> = units.iter().map(|unit| format!("systemctl restart {unit}")).collect();
    told.push_str(&format!(
        "{} runs under Convoy from its next start on: {}\n",
        daemon.name(),
        restart.join(", or ")
    ));
    Ok(told)
}

/// Removes the drop-ins, those of earlier versions beside the installed units too.
fn disable(daemon: Daemon, root: &Path) -> anyhow::Result<String> {
    let mut told = String::new();
    for folder in UNIT_FOLDERS {
        for unit in daemon.units() {
            let path = root.join(folder).join(drop_in(unit));
            let there = fs::symlink_metadata(&path);
            if matches!(&there, Err(error) if error.kind() == ErrorKind::NotFound) {
                continue;
            }
            check_own(&path)?;
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            // Others may have drop-ins in it.
            let _ = path.parent().map(fs::remove_dir);
            told.push_str(&format!("removed {}\n", path.display()));
        }
    }
    if told.is_empty() {
        return Ok(format!("{} was not led to Convoy: nothing to remove\n", daemon.name()));
    }
    told.push_str(&reload(root)?);
    told.push_str(&format!(
        "the kernel does the IPsec of {} from its next start on\n",
        daemon.name()
    ));
    Ok(told)
}

/// The library as it will be named on the host whose root this is.
fn library_below(root: &Path) -> anyhow::Result<PathBuf> {
    let library = find_library()?;
    if root == Path::new("/") {
        return Ok(library);
    }
    let below = library.strip_prefix(root).map_err(|_| {
        Stop::usage(format!(
            "{} is not below --root {}: run the convoy that is installed there",
            library.display(),
            root.display()
        ))
    })?;
    Ok(Path::new("/").join(below))
}

/// The drop-in that preloads a library.
fn text(library: &Path) -> anyhow::Result<String> {
    let usual = "@PREFIX@/lib/convoy/libconvoy_xfrm.so";
    let named = library.to_str().filter(|name| !name.contains([' ', ':', '%', '"', '\\']));
    let named = named.ok_or_else(|| {
        Stop::usage(format!(
            "{}: a unit cannot name this path (blank, colon, percent, quote or not UTF-8)",
            library.display()
        ))
    })?;
    Ok(TEMPLATE.replace(usual, named))
}

/// Puts a drop-in at its place, whole or not at all.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let why = || format!("cannot write {}", path.display());
    if fs::symlink_metadata(path).is_ok() {
        check_own(path)?;
    }
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).with_context(why)?;
    output::replace_file(path, text).with_context(why)
}

/// Refuses a file of this name that Convoy did not write.
fn check_own(path: &Path) -> anyhow::Result<()> {
    let begins = TEMPLATE.split_once(". ").map_or(TEMPLATE, |(sentence, _)| sentence);
    let is_file = fs::symlink_metadata(path).is_ok_and(|there| there.is_file());
    match fs::read_to_string(path) {
        Ok(there) if is_file && there.starts_with(begins) => Ok(()),
        _ => Err(Stop::usage(format!(
            "{}: this file is not one that Convoy wrote: look at it, and remove it first",
            path.display()
        ))),
    }
}

/// Has systemd read its units again, where it runs.
fn reload(root: &Path) -> anyhow::Result<String> {
    const COMMAND: &str = "systemctl daemon-reload";
    let runs_here = root == Path::new("/") && Path::new("/run/systemd/system").is_dir();
    if !runs_here || env::var_os("SYSTEMD_OFFLINE").is_some_and(|value| value == "1") {
        return Ok(String::new());
    }
    let outcome = Command::new("systemctl").arg("daemon-reload").status();
    match outcome {
        Ok(status) if status.success() => Ok(format!("ran {COMMAND}\n")),
        Ok(status) => {
            anyhow::bail!("{COMMAND} failed ({status}); the file is written, run it again")
        }
        Err(error) => anyhow::bail!("{COMMAND}: {error}; the file is written, run it again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root of a host with units, and the library of which it is told.
    fn host(units: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("usr/lib/systemd/system");
        fs::create_dir_all(&folder).unwrap();
        for unit in units {
            fs::write(folder.join(unit), "").unwrap();
        }
        root
    }

    #[test]
    fn a_drop_in_names_the_library() {
        let text = text(Path::new("/opt/convoy/lib/convoy/libconvoy_xfrm.so")).unwrap();
        assert!(
            text.contains("\nEnvironment=LD_PRELOAD=/opt/convoy/lib/convoy/libconvoy_xfrm.so\n")
        );
        assert!(!text.contains('@'), "{text}");
        assert!(super::text(Path::new("/a b/libconvoy_xfrm.so")).is_err());
    }

    #[test]
    fn a_host_without_the_daemon_is_refused() {
        let root = host(&["ipsec.service"]);
        let error = enable(Daemon::Strongswan, root.path()).unwrap_err().to_string();
        assert!(
            error.contains("strongswan.service, strongswan-starter.service in /etc"),
            "{error}"
        );
    }

    #[test]
    fn drop_ins_of_earlier_versions_are_removed_and_files_of_others_are_not() {
        let root = host(&["ipsec.service"]);
        let old = root.path().join("usr/local/lib/systemd/system/ipsec.service.d/50-convoy.conf");
        write(&old, TEMPLATE).unwrap();
        let told = disable(Daemon::Libreswan, root.path()).unwrap();
        assert!(told.contains("removed ") && !old.parent().unwrap().exists(), "{told}");
        let told = disable(Daemon::Libreswan, root.path()).unwrap();
        assert!(told.contains("nothing to remove"), "{told}");
        let theirs = root.path().join(ETC).join(drop_in("ipsec"));
        fs::create_dir_all(theirs.parent().unwrap()).unwrap();
        fs::write(&theirs, "[Service]\n").unwrap();
        for outcome in [disable(Daemon::Libreswan, root.path()).map(drop), write(&theirs, TEMPLATE)]
        {
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains("not one that Convoy wrote"), "{error}");
        }
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "[Service]\n");
    }
}
