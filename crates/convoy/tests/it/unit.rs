//! The systemd unit: what it exposes, and that systemd understands it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Most of what `systemd-analyze security` may find, in tenths.
const EXPOSURE: &str = "--threshold=25";

/// The units as `make install` writes them, with their program: the gateway's, and the helper's.
fn rendered() -> (TempDir, [PathBuf; 2]) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_convoy"), folder.path().join("bin/convoy")).unwrap();
    let socket = include_str!("../../../../systemd/convoy-helper.socket");
    fs::write(folder.path().join("convoy-helper.socket"), socket).unwrap();
    let units = [
        ("convoy.service", include_str!("../../../../systemd/convoy.service.in")),
        ("convoy-helper@.service", include_str!("../../../../systemd/convoy-helper@.service.in")),
    ];
    let units = units.map(|(name, template)| {
        let path = folder.path().join(name);
        let prefix = folder.path().to_str().unwrap();
        fs::write(&path, template.replace("@PREFIX@", prefix)).unwrap();
        path
    });
    (folder, units)
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
    let (_folder, units) = rendered();
    for unit in &units {
        let Some(output) = analyze(&["security", "--offline=true", EXPOSURE], unit) else { return };
        let found = String::from_utf8_lossy(&output.stdout);
        assert!(
            found.contains("Overall exposure level"),
            "{found}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "{found}");
    }
}

#[test]
fn systemd_understands_every_line() {
    let (folder, units) = rendered();
    let socket = folder.path().join("convoy-helper.socket");
    for unit in units.iter().chain([&socket]) {
        let Some(output) = analyze(&["verify", "--recursive-errors=no"], unit) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("convoy"), "{said}");
    }
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
    let others = ["bpf", "capset", "seccomp", "sched_setaffinity", "setrlimit"];
    for call in landlock.into_iter().chain(others) {
        assert!(last.split(['=', ' ']).any(|word| word == call), "{call} in {last}");
    }
    let helper = include_str!("../../../../systemd/convoy-helper@.service.in");
    let last = helper.lines().rfind(|line| line.starts_with("SystemCallFilter=")).unwrap();
    for call in landlock.into_iter().chain(["capset", "fchown", "seccomp"]) {
        assert!(last.split(['=', ' ']).any(|word| word == call), "{call} in {last}");
    }
}
