//! One life of the gateway after another, and many networks.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::ExitStatusExt as _,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use convoy_host::{Claim, Fence, FenceConfig, IpNet, LinkName, Treatment};
use nix::libc;

use crate::{
    far, far_host, net, nothing_leaves, protected, raise,
    world::{Tun, World, packet4},
};

#[test]
fn a_later_life_keeps_closed_what_it_finds_until_it_settles() {
    let Some(world) = World::new() else { return };
    let mut fence = raise(&world);
    fence.add(&far()).unwrap();
    fence.add(&[protected("10.3.0.0/16")]).unwrap();
    let hole = Claim { network: net("10.2.7.0/24"), treatment: Treatment::Bypassed };
    let lan = Claim { network: net("10.2.1.0/24"), treatment: Treatment::Local };
    fence.add(&[hole, lan]).unwrap();
    fence.remove(&[hole, lan]).unwrap();
    let closed = world.picture();
    fence.add(&[hole, lan]).unwrap();
    fence.leave_closed();
    let mut fence = raise(&world);
    // Nobody knows any more against whom was weighed what was open.
    assert_eq!(world.picture(), closed);
    let left: Vec<IpNet> = fence.left_behind().collect();
    let mut all: Vec<IpNet> = far().iter().map(|claim| claim.network).collect();
    all.push(net("10.3.0.0/16"));
    all.sort_unstable();
    assert_eq!(left, all);
    nothing_leaves(&world);
    let mut tun = world.tun();
    fence.add(&far()).unwrap();
    crate::all_goes_into(&mut tun, &world);
    let [local, ..] = world.senders();
    for to in ["10.2.7.9", "10.3.0.9"] {
        assert!(!world.leaves(&local, to));
    }
    // Out of tunnels neither.
    let tag = world.listener.tag();
    tun.write(&packet4("10.9.0.1", "10.2.1.9", &tag));
    assert!(tun.brings(&tag));
    fence.add(&[hole]).unwrap();
    assert!(world.leaves(&local, "10.2.7.9"));
    fence.settle().unwrap();
    assert_eq!(fence.left_behind().count(), 0);
    crate::all_goes_into(&mut tun, &world);
    assert!(world.leaves(&local, "10.2.7.9"));
    assert!(world.leaves(&local, "10.3.0.9"));
    fence.remove(&[hole]).unwrap();
    assert!(!world.leaves(&local, "10.2.7.9"));
    fence.remove(&far()).unwrap();
    assert!(world.leaves(&local, far_host(&local)));
}

#[test]
fn nobody_takes_over_from_one_who_lives() {
    let Some(world) = World::new() else { return };
    let fence = raise(&world);
    let error = world.gateway.run(|| Fence::raise(world.config()).unwrap_err());
    assert_eq!(
        error.to_string(),
        "cannot make the packet filter's table: one that another running process holds is already \
         there"
    );
    drop(fence);
    raise(&world).open_up().unwrap();
}

#[test]
fn what_the_packet_filter_remembers_is_enough_to_go_on() {
    let Some(world) = World::new() else { return };
    let mut fence = raise(&world);
    fence.add(&far()).unwrap();
    fence.add(&[Claim { network: net("10.2.7.0/24"), treatment: Treatment::Bypassed }]).unwrap();
    fence.leave_closed();
    for family in ["-4", "-6"] {
        for table in ["4500", "4501"] {
            world.gateway.ip(&format!("{family} route flush table {table}"));
        }
    }
    nothing_leaves(&world);
    let fence = raise(&world);
    nothing_leaves(&world);
    let [local, ..] = world.senders();
    let routes = world.gateway.ip("route show table 4500");
    assert!(routes.contains("unreachable 10.2.8.0/21"), "{routes}");
    fence.open_up().unwrap();
    assert!(world.leaves(&local, far_host(&local)));
}

/// Four senders never stop while the gateway starts, is killed, starts again, and changes what it
/// protects around the one network that is protected all the time.
#[test]
fn a_flood_finds_no_gap_between_lives() {
    let Some(world) = World::new() else { return };
    let mut fence = Some(raise(&world));
    fence.as_mut().unwrap().add(&far()).unwrap();
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
            for round in 0..15 {
                let tun = world.tun();
                let living = fence.as_mut().unwrap();
                living.repair().unwrap();
                let around = ["10.0.0.0/8", "0.0.0.0/1", "2001:db8::/32", "::/1"].map(protected);
                living.add(&around).unwrap();
                living.remove(&around).unwrap();
                let other = "192.0.2.1".parse().ok().filter(|_| round % 2 == 0);
                let same = Claim::protected(net("10.2.0.0/16"), other);
                living.add(&[same]).unwrap();
                living.remove(&[same]).unwrap();
                world.gateway.ip("link set convoy0 down");
                world.gateway.ip("link set convoy0 up");
                living.repair().unwrap();
                assert_eq!(living.stopped().unwrap(), 0, "the routes alone must have held");
                // Killed: nobody is there for a while, nor is the interface.
                drop(fence.take());
                drop(tun);
                fence = Some(raise(&world));
                let fence = fence.as_mut().unwrap();
                fence.add(&far()).unwrap();
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
    let config = FenceConfig::new(LinkName::new("convoy0").unwrap());
    let mut fence = Fence::raise(config).unwrap();
    fence.add(&far()).unwrap();
    fence.settle().unwrap();
    println!("{READY}");
    let around = ["10.0.0.0/8", "10.2.0.0/17", "2001:db8:2::/47", "2001:db8:2::/50"].map(protected);
    let hole = Claim { network: net("10.2.7.0/24"), treatment: Treatment::Bypassed };
    loop {
        fence.add(&around).unwrap();
        fence.change(&[hole], &around).unwrap();
        fence.remove(&[hole]).unwrap();
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
                    "lives::a_gateway_to_be_killed",
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
    raise(&world).open_up().unwrap();
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
    let claims: Vec<_> = v4.chain(v6).map(|net| Claim::protected(net.unwrap(), None)).collect();
    fence.add(&claims).unwrap();
    fence.add(&claims).unwrap();
    fence.remove(&claims).unwrap();
    let routes = world.gateway.ip("route show table 4500").lines().count();
    // Two for each, and those of addresses that are never routed.
    assert_eq!(routes, 2 * 5000 + 3);
    assert!(!fence.repair().unwrap().any());
    let [local4, _, local6, _] = world.senders();
    assert!(!world.leaves(&local4, "11.0.2.9"));
    assert!(world.leaves(&local4, "11.0.1.9"));
    assert!(!world.leaves(&local6, "2001:db9:2::9"));
    assert!(world.leaves(&local6, "2001:db9:1::9"));
    // One after the other, in the middle of the others.
    for claim in claims.iter().step_by(100) {
        fence.remove(&[*claim]).unwrap();
    }
    assert!(!fence.repair().unwrap().any());
    assert_eq!(world.gateway.ip("route show table 4500").lines().count(), 2 * 4950 + 3);
    // The next life takes over as many.
    fence.leave_closed();
    let mut fence = raise(&world);
    assert_eq!(fence.left_behind().count(), 9900);
    assert!(!world.leaves(&local4, "11.0.2.9"));
    fence.settle().unwrap();
    assert!(world.leaves(&local4, "11.0.2.9"));
    fence.open_up().unwrap();
    assert_eq!(world.picture(), before);
}
