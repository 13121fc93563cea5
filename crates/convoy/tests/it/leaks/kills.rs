//! A gateway is killed again and again, and the packet filter emptied at that moment, while hosts never stop sending.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use convoy_lab::{Family, Namespace};

use super::{World, nothing_in_clear};
use crate::common::{Gateway, ip};

/// True if `nft flush ruleset` empties the packet filter of a namespace; none where it does not run here.
pub(super) fn is_emptied(namespace: &Namespace) -> Option<bool> {
    let mut nft = Command::new("nft");
    nft.args(["flush", "ruleset"]).stderr(Stdio::null());
    Some(namespace.spawn(&mut nft).ok()?.wait().unwrap().success())
}

#[test]
fn a_flood_finds_no_gap_when_gateways_are_killed_and_the_packet_filter_is_emptied() {
    let Some(world) = World::new(|text| text) else { return };
    let gateway = &world.lab.a.gateway;
    if is_emptied(gateway).is_none() {
        return println!("SKIPPED: nft does not run here");
    }
    let via = world.lab.b.wire_address(Family::V4);
    ip(gateway, &format!("route add 10.2.0.0/25 via {via}"));
    assert!(world.wire().clear >= 5, "the capture hears what is not held");
    let [a, _b] =
        [0, 1].map(|n| Gateway::start([gateway, &world.lab.b.gateway][n], &world.sites[n]));
    let mut a = Some(a);
    let (ended, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let senders = [
        (&world.lab.a.host, world.lab.a.host_address(Family::V4)),
        (gateway, world.lab.a.gateway_address(Family::V4)),
    ];
    let to = (world.lab.b.host_address(Family::V4), 9);
    let report = world.captured(&world.lab.b.gateway, super::WIRE_LINK, || {
        thread::scope(|scope| {
            for (space, from) in senders {
                let (ended, sent) = (&ended, &sent);
                scope.spawn(move || {
                    let socket = space.run(|| std::net::UdpSocket::bind((from, 0)).unwrap());
                    let socket = socket.unwrap();
                    while !ended.load(Ordering::Relaxed) {
                        let _ = socket.send_to(b"never in clear", to);
                        sent.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_micros(20));
                    }
                });
            }
            for _ in 0..6 {
                let flushes = scope.spawn(|| {
                    // While the gateway lives its table stays, and the whole command fails.
                    while is_emptied(gateway) == Some(false) {}
                });
                thread::sleep(Duration::from_millis(20));
                if let Some(gateway) = a.take() {
                    gateway.kill();
                }
                flushes.join().unwrap();
                thread::sleep(Duration::from_millis(20));
                a = Some(Gateway::start(gateway, &world.sites[0]));
            }
            ended.store(true, Ordering::Relaxed);
        });
    });
    assert!(sent.load(Ordering::Relaxed) > 1000);
    nothing_in_clear(&report);
}
