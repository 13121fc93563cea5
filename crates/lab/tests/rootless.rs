//! The laboratory of an ordinary user. The process has to have one thread, so there is no harness:
//! as root it starts itself again as nobody, as anyone else it is the test.

#![allow(clippy::unwrap_used, reason = "this is a test")]

#[path = "it/common/mod.rs"]
mod common;

use std::{os::unix::process::CommandExt as _, path::Path, process::Command};

use common::{FAMILIES, NEVER, seconds};
use convoy_lab::{
    RootlessError, Topology, TopologyConfig, rootless,
    traffic::{Ping, TcpBulk, Watch},
};
use nix::unistd::geteuid;

/// The user and group that own nothing.
const NOBODY: u32 = 65_534;

/// Waits until ended threads are gone from the kernel's accounting too, which is a moment after `join`.
fn until_single_threaded() {
    while std::fs::read_dir("/proc/self/task").unwrap().count() > 1 {
        std::thread::yield_now();
    }
}

fn main() {
    if geteuid().is_root() {
        let before = Path::new("/run/netns").exists();
        let status = Command::new("/proc/self/exe").uid(NOBODY).gid(NOBODY).status().unwrap();
        assert!(status.success(), "{status}");
        assert_eq!(Path::new("/run/netns").exists(), before);
        return;
    }
    let refused = std::thread::spawn(rootless).join().unwrap();
    assert!(matches!(refused, Err(RootlessError::Threads { threads: 2 })), "{refused:?}");
    until_single_threaded();
    if let Err(why) = rootless() {
        println!("SKIPPED: rootless laboratory: {why}");
        return;
    }
    assert!(geteuid().is_root());
    let lab = Topology::build(&TopologyConfig::default()).unwrap();
    assert!(lab.a.host.path().starts_with("/run/netns"));
    let routes = lab.direct_routes().unwrap();
    for family in FAMILIES {
        let to = lab.b.host_address(family);
        let ping = Ping { interval: seconds(0.01), ..Ping::new(to) };
        let report = ping.run(&lab.a.host, &mut Watch::new(&NEVER)).unwrap();
        assert_eq!((report.sent, report.received), (5, 5), "{report:?}");
        let bulk = TcpBulk::new(to, seconds(0.2));
        let report = bulk.run(&lab.a.host, &lab.b.host, &mut Watch::new(&NEVER)).unwrap();
        assert_eq!(report.forward.sent, report.forward.received);
        assert_eq!(report.forward.damaged, 0);
    }
    println!("an ordinary user's laboratory works in both families");
    drop(routes);
    drop(lab);
    // The limit of the namespace the process now is root of; the system's own is not touched.
    let limit = "/proc/sys/user/max_user_namespaces";
    std::fs::write(limit, "0").unwrap();
    until_single_threaded();
    let refused = rootless().unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("this system does not let ordinary users make user namespaces ({limit} = 0)")
    );
}
