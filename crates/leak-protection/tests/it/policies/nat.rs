//! Source NAT beside leak protection: who a packet is from is asked ahead of it.

use std::{net::UdpSocket, time::Duration};

use convoy_leak_protection::{LeakProtection, Verdict};

use super::{Counts as _, nearby, policy, raise};
use crate::world::World;

/// Has a rule of somebody's change sources behind routing; whether there is an nft(8) to do so.
fn nat(world: &World, rule: &str) -> bool {
    let chain = "add table inet others ; \
                 add chain inet others post { type nat hook postrouting priority srcnat ; }";
    let words = format!("{chain} ; add rule inet others post {rule}");
    match world.gateway.command("nft", &words) {
        Ok(_) => true,
        Err(error) => {
            crate::world::skipped(&format!("nothing changes sources here: {error}"));
            false
        }
    }
}

#[test]
fn the_host_does_not_speak_to_its_links_with_a_source_that_a_policy_is_for() {
    let Some(world) = World::new() else { return };
    if !nat(&world, "ip saddr 192.0.2.1 ip daddr 239.1.1.1 snat ip to 10.1.0.1") {
        return;
    }
    let socket = nearby::speaker(&world.gateway, "192.0.2.1", "wire0");
    let is_heard = |port: u16| nearby::leaves(&world, &socket, (nearby::GROUP4, port).into());
    assert!(is_heard(7));
    let mut fence = raise(&world);
    fence.come(&nearby::everything());
    // Of another connection, which is not known yet.
    assert!(!is_heard(8) && !is_heard(7));
    assert!(fence.stopped() >= 2);
}

/// Source NAT of `input` is ahead of no question who it was that sent in clear.
#[test]
fn nobody_comes_in_to_the_host_behind_another_source() {
    let Some(world) = World::new() else { return };
    let chain = "add table inet others ; \
                 add chain inet others in { type nat hook input priority 100 ; } ; \
                 add rule inet others in ip saddr 10.2.0.0/16 snat ip to 198.51.100.9";
    if let Err(error) = world.gateway.command("nft", chain) {
        return crate::world::skipped(&format!("no source NAT of input here: {error}"));
    }
    world.wire.ip("address add 10.2.0.9/32 dev lo");
    world.wire.ip("route add 10.1.0.0/24 via 192.0.2.1");
    let inside = world.gateway.run(|| UdpSocket::bind("10.1.0.1:7").unwrap());
    inside.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let outside = world.wire.run(|| UdpSocket::bind("10.2.0.9:0").unwrap());
    let open = world.wire.run(|| UdpSocket::bind("192.0.2.2:0").unwrap());
    let mut fence = raise(&world);
    let first = |fence: &mut LeakProtection| {
        outside.send_to(b"clear", "10.1.0.1:7").unwrap();
        open.send_to(b"end", "10.1.0.1:7").unwrap();
        let mut bytes = [0; 10];
        let (length, from) = inside.recv_from(&mut bytes).unwrap();
        let refused = fence.refused();
        (length == 5).then(|| inside.recv(&mut bytes).unwrap());
        (length, from.ip().to_string(), refused)
    };
    assert_eq!(first(&mut fence), (5, "198.51.100.9".into(), 0));
    fence.come(&[policy("10.1.0.0/24", "10.2.0.0/16", Verdict::Protect)]);
    assert_eq!(first(&mut fence), (3, "192.0.2.2".into(), 1));
}
