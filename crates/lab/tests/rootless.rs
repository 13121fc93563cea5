//! The laboratory of an ordinary user. The process has to have one thread, so there is no harness:
//! as root it starts itself again as nobody, as anyone else it is the test.

#![allow(clippy::unwrap_used, reason = "this is a test")]

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
    if let Err(why) = rootless() {
        println!("SKIPPED: rootless laboratory: {why}");
        return;
    }
    assert!(geteuid().is_root());
    let lab = Topology::build(&TopologyConfig::default()).unwrap();
    assert!(lab.a.host.path().starts_with("/run/netns"));
    let _routes = lab.direct_routes().unwrap();
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
}
