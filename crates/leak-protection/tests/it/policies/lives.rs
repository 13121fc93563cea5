//! One life of the gateway after another, and many networks.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::ExitStatusExt as _,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use convoy_host::LinkName;
use convoy_leak_protection::{
    Config, LeakProtection, LeakProtectionError, Policy, SitePolicies, Verdict,
    remote_prefixes as far_prefixes,
};
use ipnet::IpNet;
use nix::libc;

use super::{Counts as _, config, far, far_host, net, nothing_leaves, policy, protected, raise};
use crate::world::{Tun, World};

#[test]
fn a_later_life_keeps_closed_what_it_finds_until_it_settles() {
    let Some(world) = World::new() else { return };
    let mut fence = raise(&world);
    fence.come(&far());
    fence.come(&[protected("10.3.0.0/16")]);
    let closed = world.picture();
    drop(fence);
    let mut fence = raise(&world);
    assert_eq!(world.picture(), closed);
    let mut left: Vec<IpNet> = fence.left().collect();
    left.sort_unstable();
    // Neighbours are one range to the packet filter.
    let mut all = ["10.2.0.0/15", "2001:db8:2::/48"].map(net);
    all.sort_unstable();
    assert_eq!(left, all);
    nothing_leaves(&world);
    let mut tun = world.tun();
    fence.repair().unwrap();
    fence.come(&far());
    super::all_goes_into(&mut tun, &world);
    let [local, ..] = world.senders();
    assert!(!world.leaves(&local, "10.3.0.9"));
    fence.settle().unwrap();
    assert_eq!(fence.left().count(), 0);
    super::all_goes_into(&mut tun, &world);
    assert!(world.leaves(&local, "10.3.0.9"));
    fence.go(&far());
    assert!(world.leaves(&local, far_host(&local)));
}

#[test]
fn policies_that_are_taken_back_leave_closed_what_an_earlier_life_left() {
    let Some(world) = World::new() else { return };
    let mut fence = raise(&world);
    fence.come(&far());
    drop(fence);
    let mut fence = raise(&world);
    let left: Vec<IpNet> = fence.left().collect();
    for come in [far(), vec![protected("10.0.0.0/8"), protected("10.5.0.0/16")]] {
        let closed = world.picture();
        fence.come(&come);
        assert!(fence.left().count() < left.len());
        assert!(fence.take_back(&come).unwrap().answers, "less was held meanwhile");
        assert_eq!(world.picture(), closed);
        assert_eq!(fence.left().collect::<Vec<_>>(), left);
        nothing_leaves(&world);
    }
    assert!(!fence.repair().unwrap().any());
    fence.settle().unwrap();
    let [local, ..] = world.senders();
    assert!(world.leaves(&local, far_host(&local)));
}

#[test]
fn nobody_takes_over_from_one_who_lives() {
    let Some(world) = World::new() else { return };
    let fence = raise(&world);
    let error = world
        .gateway
        .run(|| LeakProtection::install(config(&world), SitePolicies::default()).unwrap_err());
    assert_eq!(error, LeakProtectionError::Held { table: "convoy-convoy0".to_owned() });
    drop(fence);
    raise(&world).remove().unwrap();
}

/// Four senders never stop while the gateway starts, is killed, starts again, and changes what it
/// protects around the one network that is protected all the time.
#[test]
fn a_flood_finds_no_gap_between_lives() {
    let Some(world) = World::new() else { return };
    let mut fence = Some(raise(&world));
    fence.as_mut().unwrap().come(&far());
    let ended = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    let tag = world.listener.tag();
    let senders = world.senders();
    thread::scope(|scope| {
        for sender in &senders {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let _ = sender.send(far_host(sender), &tag);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Panics must not leave the senders running.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..15 {
                let tun = world.tun();
                let living = fence.as_mut().unwrap();
                living.repair().unwrap();
                let around = ["10.2.0.0/15", "10.2.0.0/14", "2001:db8:2::/47"].map(protected);
                living.come(&around);
                living.go(&around);
                let same = policy("0.0.0.0/0", "10.2.0.0/16", Verdict::Discard);
                living.come(&[same]);
                living.go(&[same]);
                world.gateway.ip("link set convoy0 down");
                world.gateway.ip("link set convoy0 up");
                living.repair().unwrap();
                assert_eq!(living.stopped(), 0, "the routes alone must have held");
                // Killed: nobody is there for a while, nor is the interface.
                drop(fence.take());
                drop(tun);
                fence = Some(raise(&world));
                let fence = fence.as_mut().unwrap();
                fence.come(&far());
                fence.settle().unwrap();
            }
        }));
        ended.store(true, Ordering::Relaxed);
        done.unwrap();
    });
    for sender in &senders {
        world.listener.flush(sender);
    }
    assert!(sent.load(Ordering::Relaxed) > 1000);
    assert_eq!(world.listener.count(&tag), 0);
}

/// A gateway that makes changes until it is killed.
#[test]
#[ignore = "a process of the test below, which starts it in a namespace"]
fn a_gateway_to_be_killed() {
    let _tun = Tun::open("convoy0");
    let up = Command::new("ip").args(["link", "set", "convoy0", "up"]).status().unwrap();
    assert!(up.success());
    let config = Config::new(LinkName::new("convoy0").unwrap());
    let mut fence = LeakProtection::install(config, SitePolicies::default()).unwrap();
    fence.come(&far());
    fence.settle().unwrap();
    println!("{READY}");
    let around =
        ["10.2.0.0/15", "10.2.0.0/17", "2001:db8:2::/47", "2001:db8:2::/50"].map(protected);
    // Of another sender's, so that some is asked about.
    let other = policy("10.7.0.0/16", "10.2.7.0/24", Verdict::Bypass);
    loop {
        fence.come(&around);
        let _ = fence.change(&[other], &around).unwrap();
        fence.go(&[other]);
    }
}

const READY: &str = "the gateway protects";

#[test]
fn a_process_that_is_killed_anywhere_leaves_no_gap() {
    let Some(world) = World::new() else { return };
    let ended = AtomicBool::new(false);
    let started = AtomicBool::new(false);
    let tag = world.listener.tag();
    let senders = world.senders();
    thread::scope(|scope| {
        for sender in &senders {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    if started.load(Ordering::Relaxed) {
                        let _ = sender.send(far_host(sender), &tag);
                    }
                    thread::yield_now();
                }
            });
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..8 {
                let mut gateway = Command::new(std::env::current_exe().unwrap());
                gateway.args([
                    "--ignored",
                    "--exact",
                    "policies::lives::a_gateway_to_be_killed",
                    "--nocapture",
                ]);
                let mut gateway = world.gateway.spawn(gateway.stdout(Stdio::piped()));
                let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
                // The harness's own words stand on the same line.
                assert!(
                    lines.any(|line| line.unwrap().contains(READY)),
                    "the gateway does not start"
                );
                started.store(true, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5 * round));
                gateway.kill().unwrap();
                let status = gateway.wait().unwrap();
                assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}");
            }
        }));
        ended.store(true, Ordering::Relaxed);
        done.unwrap();
    });
    nothing_leaves(&world);
    senders.iter().for_each(|sender| world.listener.flush(sender));
    assert_eq!(world.listener.count(&tag), 0);
    raise(&world).remove().unwrap();
    assert!(world.leaves(&senders[0], far_host(&senders[0])));
}

#[test]
fn ten_thousand_networks_come_and_go() {
    let Some(world) = World::new() else { return };
    let _tun = world.tun();
    let before = world.picture();
    let mut fence = raise(&world);
    let v4 = (0..5000_u32).map(|n| IpNet::new((0x0b00_0000 + n * 512).to_be_bytes().into(), 24));
    let v6 = (0..5000_u128)
        .map(|n| IpNet::new(((0x2001_0db9 << 96) + (n << 81)).to_be_bytes().into(), 48));
    let policies: Vec<Policy> =
        v4.chain(v6).map(|net| protected(&net.unwrap().to_string())).collect();
    fence.come(&policies);
    fence.come(&policies);
    fence.go(&policies);
    let shown = || {
        let config = config(&world);
        world.gateway.run(|| far_prefixes(config).unwrap()).len()
    };
    assert_eq!(shown(), 10_000);
    assert!(!fence.repair().unwrap().any());
    let [local4, _, local6, _] = world.senders();
    assert!(!world.leaves(&local4, "11.0.2.9"));
    assert!(world.leaves(&local4, "11.0.1.9"));
    assert!(!world.leaves(&local6, "2001:db9:2::9"));
    assert!(world.leaves(&local6, "2001:db9:1::9"));
    // One after the other, in the middle of the others.
    for policy in policies.iter().step_by(100) {
        fence.go(&[*policy]);
    }
    assert!(!fence.repair().unwrap().any());
    assert_eq!(shown(), 9900);
    // The next life takes over as many.
    drop(fence);
    let mut fence = raise(&world);
    assert_eq!(fence.left().count(), 9900);
    assert!(!world.leaves(&local4, "11.0.2.9"));
    fence.settle().unwrap();
    assert!(world.leaves(&local4, "11.0.2.9"));
    fence.remove().unwrap();
    assert_eq!(world.picture(), before);
}
