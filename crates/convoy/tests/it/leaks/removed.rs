//! Somebody removes the TUN interface of a running gateway, or makes it useless.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use convoy_lab::{Family, WIRE_LINK};

use super::beside_daemons::with_daemons;
use super::{World, nothing_in_clear};
use crate::common::{PATIENCE, ip, status, text};

/// The gateway makes it again, and nothing leaves meanwhile, although somebody's route is more specific.
fn is_made_again(change: impl Fn(String) -> String, interface: &str) {
    let Some(world) = World::new(change) else { return };
    let [mut a, _b] = world.start();
    let gateway = &world.lab.a.gateway;
    let state = || {
        let words = ["-4 rule", "-6 rule", "route show table all dev tun0", "route show"];
        let of_host = words.map(|words| ip(gateway, words));
        // Their order is that in which they were laid, and the interface has another link-local address.
        of_host.map(|text| {
            let lines = text.lines().filter(|line| !line.contains("fe80:"));
            let mut lines: Vec<_> = lines.map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        })
    };
    let before = state();
    assert!(!before[2].is_empty(), "{before:?}");
    let via = world.lab.b.wire_address(Family::V4);
    for _ in 0..2 {
        let report = world.captured(&world.lab.b.gateway, WIRE_LINK, || {
            ip(gateway, &format!("route add 10.2.0.0/25 via {via}"));
            ip(gateway, &format!("link del {interface}"));
            world.send_from_gateway(None);
            world.answers();
            ip(gateway, "route del 10.2.0.0/25");
            world.wait_for_tunnel(&a);
            world.send_from_gateway(None);
        });
        nothing_in_clear(&report);
        assert!(report.protected() > 0);
        let begun = Instant::now();
        while state() != before {
            assert!(begun.elapsed() < PATIENCE, "{:?}\n{before:?}", state());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(world.is_reached(), "{}", a.log());
    }
    let said = format!("interface {interface} was removed by another process; made again");
    assert_eq!(a.log().matches(&said).count(), 2, "{}", a.log());
    // Where another one has the name, there is no other way.
    ip(gateway, "link add spare type veth peer name spare-end");
    ip(gateway, &format!("link set {interface} down"));
    ip(gateway, &format!("link set {interface} name removed"));
    ip(gateway, &format!("link set spare name {interface}"));
    ip(gateway, "link del removed");
    assert_eq!(a.wait().code(), Some(1), "{}", a.log());
    assert!(a.log().contains("cannot be made again"), "{}", a.log());
    nothing_in_clear(&world.wire());
}

#[test]
fn an_interface_that_somebody_removes_is_made_again() {
    // With a queue for each worker.
    is_made_again(|text| text.replace("count = 1\n", "count = 3\n"), "tun0");
}

#[test]
fn an_interface_that_somebody_removes_beside_daemons_is_made_again() {
    is_made_again(with_daemons, "tun0");
}

/// Nothing leaves in clear meanwhile; status and doctor say why nothing passes, and how it would again.
fn is_told_of(change: impl Fn(String) -> String) {
    let Some(world) = World::new(change) else { return };
    let [a, _b] = world.start();
    let (gateway, site) = (&world.lab.a.gateway, &world.sites[0]);
    let reasons = || status(site)["health"]["reasons"].to_string();
    let wait_for = |words: &str| {
        let begun = Instant::now();
        while !reasons().contains(words) {
            assert!(begun.elapsed() < PATIENCE, "{words}: {}\n{}", reasons(), a.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(status(site)["health"]["level"], "critical");
        nothing_in_clear(&world.wire());
    };
    let doctor = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
        command.arg("doctor").arg(site).stdout(Stdio::piped());
        let output = gateway.spawn(&mut command).unwrap().wait_with_output().unwrap();
        let said = text(&output.stdout);
        said.lines().find(|line| line.contains("TUN interface")).unwrap().to_owned()
    };
    assert!(doctor().starts_with("OK"), "{}", doctor());
    let mtu = || ip(gateway, "link show tun0").split_once(" mtu ").unwrap().1[..5].to_owned();
    let before = mtu();
    ip(gateway, "link set tun0 down");
    wait_for("interface tun0 is down, so nothing passes: ip link set tun0 up");
    assert!(doctor().starts_with("PROBLEM") && doctor().contains("is down"), "{}", doctor());
    ip(gateway, "link set tun0 name aside");
    ip(gateway, "link set aside up");
    wait_for("interface tun0 is called aside now");
    assert!(doctor().starts_with("PROBLEM") && doctor().contains("was renamed"), "{}", doctor());
    for step in ["set aside down", "set aside name tun0", "set tun0 up"] {
        ip(gateway, &format!("link {step}"));
    }
    world.wait_for_tunnel(&a);
    assert!(world.is_reached(), "{}", a.log());
    let begun = Instant::now();
    while reasons().contains("tun0") || mtu() != before {
        assert!(begun.elapsed() < PATIENCE, "{} {}\n{}", mtu(), reasons(), a.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(a.log().contains("resolved: interface tun0"), "{}", a.log());
    let mut there = world.lab.a.host.spawn(Command::new("sleep").arg("600")).unwrap();
    ip(gateway, &format!("link set tun0 netns {}", there.id()));
    wait_for("interface tun0 is in another network namespace");
    there.kill().unwrap();
    there.wait().unwrap();
}

#[test]
fn an_interface_in_which_nothing_passes_is_told_of() {
    is_told_of(|text| text);
}

#[test]
fn an_interface_in_which_nothing_passes_beside_daemons_is_told_of() {
    is_told_of(with_daemons);
}
