//! `convoy demo ike` as it is called: what it says, how it ends, what is left behind.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::common::{can_make_namespaces, preload, text};
use convoy_lab::strongswan::{DataPlane, missing};
use serde_json::Value;

/// Demonstrations one after another: each alone fills a small machine.
static ONE: Mutex<()> = Mutex::new(());

fn one_at_a_time() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says loudly why no daemon can run here.
fn can_run() -> bool {
    let absent = missing(&DataPlane::Libipsec);
    if !absent.is_empty() {
        // Past the harness, which would keep it from being seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED: not installed: {}", absent.join(", "));
        return false;
    }
    can_make_namespaces()
}

fn demo(out: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
    command.args(["demo", "ike", "--json", "--seconds", "1", "--out"]).arg(out);
    let (variable, library) = preload();
    command.env(variable, library);
    command.args(arguments.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Processes whose command line or environment names a folder.
fn users_of(folder: &Path) -> Vec<String> {
    let wanted = folder.to_str().unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let read = |path: &Path, file: &str| text(&std::fs::read(path.join(file)).unwrap_or_default());
    let uses = |path: &std::path::PathBuf| {
        read(path, "environ").contains(wanted) || read(path, "cmdline").contains(wanted)
    };
    all.filter(uses).map(|path| read(&path, "cmdline").replace('\0', " ")).collect()
}

/// Daemons with files in a folder that die with who started them: each has a process that watches. One
/// that is killed in the moment between the two starts leaves a daemon.
fn watched_daemons(folder: &Path) -> usize {
    let wanted = folder.to_str().unwrap();
    let all = || std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let read = |path: &Path, file: &str| text(&std::fs::read(path.join(file)).unwrap_or_default());
    let is_daemon = |path: &std::path::PathBuf| {
        read(path, "environ").contains(wanted) && read(path, "cmdline").contains("charon")
    };
    let is_watched = |path: &std::path::PathBuf| {
        let end = format!("\0watch\0{}\0", path.file_name().unwrap().to_str().unwrap());
        all().any(|other| read(&other, "cmdline").ends_with(&end))
    };
    all().filter(is_daemon).filter(is_watched).count()
}

/// Every act passes, or is skipped as it must be. Returns the summary.
fn plays_well(arguments: &str, skipped: &[&str]) -> Value {
    let _one = one_at_a_time();
    let out = tempfile::tempdir().unwrap();
    let output = demo(out.path(), arguments).output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr))
    });
    let acts = summary["acts"].as_array().unwrap();
    assert!(acts.len() >= 4, "{summary}");
    for act in acts {
        let is_skipped = skipped.contains(&act["act"].as_str().unwrap());
        let verdict = if is_skipped { "skipped" } else { "passed" };
        assert_eq!(act["verdict"], verdict, "{summary:#}{}", text(&output.stderr));
    }
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(users_of(out.path()), Vec::<String>::new());
    summary
}

#[test]
fn daemons_alone_play_every_act_but_the_death_of_a_gateway() {
    if can_run() {
        plays_well("--peers libipsec", &["kill -9 of Convoy"]);
    }
}

#[test]
fn gateways_and_daemons_die_and_come_back() {
    if can_run() {
        plays_well("", &[]);
    }
}

#[test]
fn many_tunnels_play_under_load() {
    if can_run() {
        plays_well("--peers libipsec --tunnels 3", &["packets per worker"]);
        plays_well("--tunnels 3 --engine pool", &[]);
    }
}

#[test]
fn workers_share_many_tunnels() {
    if !can_run() {
        return;
    }
    let summary = plays_well("--tunnels 12 --workers 2", &[]);
    let workers = summary["workers"].as_array().unwrap();
    let of = |key: &str| workers.iter().map(|w| w[key].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(of("worker"), [0, 1, 0, 1], "of two gateways: {summary:#}");
    for way in ["outbound", "inbound"] {
        // Rekeys come before: what is balanced anew is about even.
        for pair in of(&format!("{way}_sas")).chunks(2) {
            assert!(
                pair.iter().sum::<u64>() == 12 && pair[0].abs_diff(pair[1]) <= 6,
                "{summary:#}"
            );
        }
        assert!(of(&format!("{way}_packets")).iter().all(|packets| *packets > 0), "{summary:#}");
    }
    assert!(summary["datagrams"]["sent"].as_u64() > Some(0), "{summary:#}");
}

#[test]
fn daemons_do_not_outlive_a_demonstration_that_is_killed() {
    if !can_run() {
        return;
    }
    let _one = one_at_a_time();
    let out = tempfile::tempdir().unwrap();
    let mut child = demo(out.path(), "--peers libipsec").spawn().unwrap();
    // A guard against hanging: daemons start slowly on a busy machine.
    let until = Instant::now() + Duration::from_secs(90);
    while watched_daemons(out.path()) < 2 {
        assert!(Instant::now() < until, "no daemons: {:?}", users_of(out.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    while !users_of(out.path()).is_empty() {
        assert!(Instant::now() < until, "left: {:?}", users_of(out.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
    convoy_lab::sweep().unwrap();
}
