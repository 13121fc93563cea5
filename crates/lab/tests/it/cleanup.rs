//! Nothing is left behind. One test after the other: each looks at the whole host.

use std::{
    io::Read as _,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::common::{NEVER, alone, build, seconds};
use convoy_lab::{
    Family, HostState, LabError, Namespace, Program, TopologyConfig, leftovers, run_name, sweep,
    traffic::{Ping, TcpBulk, Watch},
};

/// Differences since `before` that this process is to blame for: other runs on the machine may
/// come and go with namespaces of their own.
fn since(before: &HostState) -> Vec<String> {
    let mut lines = before.differences(&HostState::snapshot().unwrap());
    let others = |line: &String| {
        let kind = line.split(' ').nth(1).unwrap_or_default();
        matches!(kind, "namespace" | "mount") && !line.contains(&run_name(""))
    };
    lines.retain(|line| !others(line));
    lines
}

#[test]
fn a_run_with_traffic_leaves_nothing() {
    let Some(_alone) = alone() else { return };
    let before = HostState::snapshot().unwrap();
    let lab = build(&TopologyConfig::default());
    assert_eq!(since(&before).iter().filter(|l| l.starts_with("left: namespace")).count(), 4);
    assert!(since(&before).iter().all(|line| !line.contains("interface")));
    let routes = lab.direct_routes().unwrap();
    let bulk = TcpBulk::new(lab.b.host_address(Family::V4), seconds(0.1));
    bulk.run(&lab.a.host, &lab.b.host, &mut Watch::new(&NEVER)).unwrap();
    drop(routes);
    lab.delete().unwrap();
    assert_eq!(since(&before), Vec::<String>::new());
}

#[test]
fn a_panic_in_between_leaves_nothing() {
    let Some(_alone) = alone() else { return };
    let before = HostState::snapshot().unwrap();
    let panicked = std::panic::catch_unwind(|| {
        let lab = build(&TopologyConfig::default());
        let _routes = lab.direct_routes().unwrap();
        let ping = Ping::new(lab.b.host_address(Family::V6));
        let mut tell = |_: convoy_lab::traffic::Progress| panic!("in between");
        let _ = ping.run(&lab.a.host, &mut Watch::new(&NEVER).on_progress(&mut tell));
    });
    assert!(panicked.is_err());
    assert_eq!(since(&before), Vec::<String>::new());
}

#[test]
fn a_panic_inside_a_namespace_reaches_the_caller() {
    let Some(_alone) = alone() else { return };
    let namespace = Namespace::anonymous().unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        namespace.run(|| panic!("inside")).unwrap()
    }));
    assert!(panicked.is_err());
}

#[test]
fn a_topology_that_cannot_be_completed_leaves_nothing() {
    let Some(_alone) = alone() else { return };
    let before = HostState::snapshot().unwrap();
    let taken = Namespace::for_run("gwB").unwrap();
    let error = convoy_lab::Topology::build(&TopologyConfig::default()).unwrap_err();
    assert!(matches!(error, LabError::NamespaceExists { .. }), "{error}");
    drop(taken);
    let config = TopologyConfig { wire_mtu: 10, ..TopologyConfig::default() };
    let error = convoy_lab::Topology::build(&config).unwrap_err();
    assert!(error.to_string().starts_with("cannot create the veth pair wire–wire"), "{error}");
    assert_eq!(since(&before), Vec::<String>::new());
}

#[test]
fn what_is_left_is_seen() {
    let Some(_alone) = alone() else { return };
    let before = HostState::snapshot().unwrap();
    let namespace = Namespace::for_run("left").unwrap();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let lines = since(&before);
    assert!(lines.contains(&format!("left: namespace {}", run_name("left"))), "{lines:?}");
    assert!(lines.contains(&format!("left: process {}: sleep", child.id())), "{lines:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(namespace);
    assert_eq!(since(&before), Vec::<String>::new());
}

#[test]
fn a_program_and_a_thread_started_in_a_namespace_are_in_it() {
    let Some(_alone) = alone() else { return };
    let namespace = Namespace::for_run("inside").unwrap();
    let own = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let inside = namespace.run(own).unwrap();
    assert_ne!(inside, own());
    let mut command = Command::new("readlink");
    let child = namespace.spawn(command.arg("/proc/self/ns/net").stdout(Stdio::piped())).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), inside.to_str().unwrap());
    let thread = namespace.start("inside", own).unwrap();
    assert_eq!(thread.join().unwrap(), inside);
    assert!(namespace.path().exists());
    let error = namespace.spawn(&mut Command::new("/no/such/program")).unwrap_err();
    assert!(error.to_string().starts_with("cannot start /no/such/program: "), "{error}");
}

#[test]
fn names_are_checked_and_taken_once() {
    let Some(_alone) = alone() else { return };
    for bad in ["", "a/b", "..", "a b"] {
        assert!(matches!(Namespace::named(bad), Err(LabError::BadName { .. })), "{bad:?}");
    }
    let name = run_name("twice");
    let first = Namespace::named(&name).unwrap();
    assert_eq!(first.name(), Some(name.as_str()));
    assert!(matches!(Namespace::named(&name), Err(LabError::NamespaceExists { .. })));
    // The failed second try has not taken the first one's name away.
    assert!(Path::new("/run/netns").join(&name).exists());
    drop(first);
    assert!(!Path::new("/run/netns").join(&name).exists());
}

#[test]
fn what_a_killed_run_left_is_swept_and_the_living_are_spared() {
    let Some(_alone) = alone() else { return };
    let mut child = Command::new("true").spawn().unwrap();
    let dead = child.id();
    child.wait().unwrap();
    let living = Namespace::for_run("living").unwrap();
    let orphan = Namespace::named(&format!("convoy-{dead}-hostA")).unwrap();
    let mut inside = orphan.spawn(Command::new("sleep").arg("60")).unwrap();
    std::mem::forget(orphan);
    let found = leftovers();
    let ours = found.iter().find(|l| l.run == dead).unwrap();
    assert_eq!(ours.processes, [inside.id()]);
    assert!(found.iter().all(|l| l.run != std::process::id()));
    sweep().unwrap();
    assert!(leftovers().iter().all(|l| l.run != dead));
    assert!(living.path().exists());
    inside.kill().unwrap();
    inside.wait().unwrap();
}

#[test]
fn a_program_ends_with_its_owner_even_against_its_will() {
    let Some(_alone) = alone() else { return };
    let before = HostState::snapshot().unwrap();
    let namespace = Namespace::anonymous().unwrap();
    let mut willing = Program::start(&namespace, Command::new("sleep").arg("60")).unwrap();
    assert!(willing.ended().unwrap().is_none());
    let status = willing.end(seconds(10.0)).unwrap();
    assert_eq!(status.signal(), Some(15));
    let stubborn = "trap '' TERM; echo ready; exec sleep 60";
    let mut command = Command::new("sh");
    command.args(["-c", stubborn]).stdout(Stdio::piped());
    let mut stubborn = Program::start(&namespace, &mut command).unwrap();
    let mut ready = [0; 5];
    stubborn.child().stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let status = stubborn.end(seconds(0.1)).unwrap();
    assert_eq!(status.signal(), Some(9));
    drop(Program::start(&namespace, Command::new("sleep").arg("60")).unwrap());
    assert_eq!(since(&before), Vec::<String>::new());
}
