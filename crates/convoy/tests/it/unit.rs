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

/// Whoever makes starts fail for a while must not have systemd give up for good.
#[test]
fn no_number_of_failed_starts_ends_the_unit_for_good() {
    let unit = include_str!("../../../../systemd/convoy.service.in");
    let section = |name: &str| {
        let text = unit.split_once(&format!("[{name}]\n")).unwrap().1;
        text.split("\n[").next().unwrap().lines().collect::<Vec<_>>()
    };
    assert!(section("Unit").contains(&"StartLimitIntervalSec=0"), "{unit}");
    let service = section("Service");
    assert!(service.contains(&"Restart=always"), "{unit}");
    let pause = service.iter().find_map(|line| line.strip_prefix("RestartSec=")).unwrap();
    let pause: u32 = pause.strip_suffix("ms").unwrap().parse().unwrap();
    assert!((100..=1000).contains(&pause), "{pause} ms");
}

#[test]
fn what_a_start_needs_is_allowed() {
    let unit = include_str!("../../../../systemd/convoy.service.in");
    let last = unit.lines().rfind(|line| line.starts_with("SystemCallFilter=")).unwrap();
    // Without these a gateway pins no worker, shares no port, and keeps rights and calls that it should not.
    let landlock = ["landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self"];
    let others = ["bpf", "capset", "fchown", "seccomp", "sched_setaffinity", "setrlimit"];
    for call in landlock.into_iter().chain(others) {
        assert!(last.split(['=', ' ']).any(|word| word == call), "{call} in {last}");
    }
}
