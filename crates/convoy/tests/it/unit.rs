//! The systemd unit: what it exposes, and that systemd understands it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Most of what `systemd-analyze security` may find, in tenths.
const EXPOSURE: &str = "--threshold=32";

/// The unit as `make install` writes it, with its program.
fn rendered() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_convoy"), folder.path().join("bin/convoy")).unwrap();
    let template = include_str!("../../../../systemd/convoy.service.in");
    let path = folder.path().join("convoy.service");
    let prefix = folder.path().to_str().unwrap();
    fs::write(&path, template.replace("@PREFIX@", prefix)).unwrap();
    (folder, path)
}

/// Says why, and returns nothing, where systemd-analyze cannot do it.
fn analyze(words: &[&str], unit: &PathBuf) -> Option<Output> {
    match Command::new("systemd-analyze").arg("--no-pager").args(words).arg(unit).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("SKIPPED: there is no systemd-analyze");
            None
        }
        Err(error) => panic!("{error}"),
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("unrecognized option") => {
            println!("SKIPPED: systemd-analyze is older than 250 and cannot judge a file");
            None
        }
        Ok(output) => Some(output),
    }
}

#[test]
fn systemd_finds_little_exposed() {
    let (_folder, unit) = rendered();
    let Some(output) = analyze(&["security", "--offline=true", EXPOSURE], &unit) else { return };
    let found = String::from_utf8_lossy(&output.stdout);
    assert!(
        found.contains("Overall exposure level"),
        "{found}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{found}");
}

#[test]
fn systemd_understands_every_line() {
    let (_folder, unit) = rendered();
    let Some(output) = analyze(&["verify", "--recursive-errors=no"], &unit) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("convoy.service"), "{said}");
}

#[test]
fn what_a_start_needs_is_allowed() {
    let unit = include_str!("../../../../systemd/convoy.service.in");
    let last = unit.lines().rfind(|line| line.starts_with("SystemCallFilter=")).unwrap();
    // Without these a gateway pins no worker, shares no port, and keeps rights and calls that it should not.
    for call in ["bpf", "capset", "fchown", "seccomp", "sched_setaffinity", "setrlimit"] {
        assert!(last.split(['=', ' ']).any(|word| word == call), "{call} in {last}");
    }
}
