//! Exceptions by source and destination.

use std::{collections::BTreeSet, net::UdpSocket, time::Duration};

use convoy_host::{
    Fence, Treatment,
    fence::{Exceptions, Pair, Repaired},
};

use super::{claim, far, far_host, net, nothing_leaves, protected, raise, world, world::World};

fn pairs(list: &[[&str; 2]]) -> BTreeSet<Pair> {
    list.iter().map(|[from, to]| Pair { from: net(from), to: net(to) }).collect()
}

/// From the host of the LAN to a part of what is protected.
fn open() -> Exceptions {
    let open = pairs(&[["10.1.0.2/32", "10.2.0.0/24"], ["2001:db8:0:1::2/128", "2001:db8:2::/64"]]);
    Exceptions { open, ..Exceptions::default() }
}

/// Who of gateway and LAN, in both IP versions, gets through in clear.
#[track_caller]
fn through(world: &World) -> Vec<bool> {
    world.senders().iter().map(|sender| world.leaves(sender, far_host(sender))).collect()
}

const ONLY_LAN: [bool; 4] = [false, true, false, true];

#[test]
fn open_pairs_leave_and_nobody_else_does() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    assert!(fence.takes_exceptions());
    fence.add(&far()).unwrap();
    nothing_leaves(&world);
    fence.except(open()).unwrap();
    assert_eq!(through(&world), ONLY_LAN);
    assert!(!fence.repair().unwrap().any());
    // To the rest of what is protected nothing leaves.
    let lan = &world.senders()[1];
    let tag = world.listener.tag();
    lan.send("10.2.1.9", &tag).unwrap();
    assert!(tun.brings(&tag));
    assert_eq!((world.listener.count(&tag), fence.stopped().unwrap()), (0, 0));
    // The filter alone tells them apart, too.
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} rule add priority 100 table main"));
    }
    assert_eq!(through(&world), ONLY_LAN);
    assert_eq!(fence.stopped().unwrap(), 2);
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} rule del priority 100"));
    }
    // Their end, also that of the fence's life.
    fence.except(Exceptions::default()).unwrap();
    nothing_leaves(&world);
    fence.except(open()).unwrap();
    drop(fence);
    assert_eq!(through(&world), ONLY_LAN);
    let mut fence: Fence = raise(&world);
    nothing_leaves(&world);
    fence.add(&far()).unwrap();
    nothing_leaves(&world);
    fence.open_up().unwrap();
    assert_eq!(world.gateway.ip("rule").matches("proto").count(), 0);
}

#[test]
fn admitted_pairs_come_in_and_open_ones_do_not() {
    let Some(world) = World::new() else { return };
    let mut fence = raise(&world);
    fence.add(&[protected("10.2.0.0/16"), claim("10.1.0.0/24", Treatment::Guarded)]).unwrap();
    world.wire.ip("address add 10.2.0.9/32 dev lo");
    world.wire.ip("address add 10.2.1.9/32 dev lo");
    world.wire.ip("route add 10.1.0.0/24 via 192.0.2.1");
    let inside = world.lan.run(|| UdpSocket::bind("10.1.0.2:7").unwrap());
    let arrives = |from: &str| {
        let outside = world.wire.run(|| UdpSocket::bind((from, 0)).unwrap());
        // Behind the last one comes one that nobody stops.
        let open = world.wire.run(|| UdpSocket::bind("192.0.2.2:0").unwrap());
        outside.send_to(b"clear", "10.1.0.2:7").unwrap();
        open.send_to(b"end", "10.1.0.2:7").unwrap();
        inside.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = [0; 10];
        let mut next = || inside.recv(&mut bytes).unwrap();
        let is_clear = next() == 5;
        is_clear && next() == 3
    };
    assert!(!arrives("10.2.0.9"));
    // What may leave in clear need not come in so.
    fence.except(open()).unwrap();
    assert!(!arrives("10.2.0.9"));
    let admitted =
        pairs(&[["10.2.0.0/24", "10.1.0.2/32"], ["2001:db8:2::/64", "2001:db8:0:1::2/128"]]);
    fence.except(Exceptions { admitted, ..Exceptions::default() }).unwrap();
    assert!(arrives("10.2.0.9"));
    assert!(!arrives("10.2.1.9"));
    assert_eq!(fence.refused().unwrap(), 3);
    // Nor does what may come in leave.
    assert!(!world.leaves(&world.senders()[1], "10.2.0.9"));
    fence.except(Exceptions::default()).unwrap();
    assert!(!arrives("10.2.0.9"));
}

#[test]
fn what_is_withheld_does_not_come_out_of_tunnels() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    fence.add(&[protected("10.0.0.0/8"), claim("10.1.0.0/24", Treatment::Local)]).unwrap();
    let inside = world.lan.run(|| UdpSocket::bind("10.1.0.2:7").unwrap());
    inside.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let comes = |tun: &mut world::Tun, from: &str| {
        let tags = [world.listener.tag(), world.listener.tag()];
        tun.write(&world::packet4(from, "10.1.0.2", &tags[0]));
        tun.write(&world::packet4("10.8.0.1", "10.1.0.2", &tags[1]));
        let mut datagram = [0; 100];
        let mut next = || {
            let length = inside.recv(&mut datagram).unwrap();
            tags.iter().position(|tag| datagram[..length].ends_with(tag)).unwrap()
        };
        let is_first = next() == 0;
        is_first && next() == 1
    };
    assert!(comes(&mut tun, "10.9.0.1"));
    let withheld = pairs(&[["10.9.0.0/24", "10.1.0.0/24"], ["10.9.0.0/16", "10.1.0.128/25"]]);
    fence.except(Exceptions { withheld, ..Exceptions::default() }).unwrap();
    assert!(!comes(&mut tun, "10.9.0.1"));
    assert!(comes(&mut tun, "10.9.1.1"));
    assert_eq!(fence.stopped().unwrap(), 1);
    // For those behind another tunnel it goes into that.
    let withheld = pairs(&[["10.9.0.0/24", "10.0.0.0/8"]]);
    fence.except(Exceptions { withheld, ..Exceptions::default() }).unwrap();
    assert!(!comes(&mut tun, "10.9.0.1"));
    let tag = world.listener.tag();
    tun.write(&world::packet4("10.9.0.1", "10.7.0.1", &tag));
    assert!(tun.brings(&tag));
    assert_eq!(fence.stopped().unwrap(), 2);
    fence.except(Exceptions::default()).unwrap();
    assert!(comes(&mut tun, "10.9.0.1"));
}

/// A world whose packet filter's table others may change, as on kernels before 6.9.
fn open_to_others() -> Option<(World, Fence)> {
    let world = World::new()?;
    match world.gateway.command("nft", "add table inet convoy-convoy0") {
        Ok(_) => {
            let fence = raise(&world);
            Some((world, fence))
        }
        Err(error) => {
            world::skipped(&format!("nobody else can make the table, no nft: {error}"));
            None
        }
    }
}

#[test]
fn rules_of_open_pairs_go_where_the_packet_filter_refuses() {
    let Some((world, mut fence)) = open_to_others() else { return };
    fence.add(&far()).unwrap();
    fence.except(open()).unwrap();
    let rules = || world.gateway.ip("-4 rule").matches("from 10.1.0.2 to 10.2.0.0/24").count();
    assert_eq!(rules(), 1);
    world.gateway.command("nft", "delete table inet convoy-convoy0").unwrap();
    assert!(fence.except(Exceptions::default()).is_err());
    assert_eq!(rules(), 0);
    nothing_leaves(&world);
    assert!(fence.repair().unwrap().filter);
    // Nor do new ones come before the packet filter lets such packets pass.
    drop(fence);
    world.gateway.command("nft", "delete table inet convoy-convoy0").unwrap();
    world.gateway.command("nft", "add table inet convoy-convoy0").unwrap();
    let mut fence = raise(&world);
    fence.add(&far()).unwrap();
    world.gateway.command("nft", "delete table inet convoy-convoy0").unwrap();
    assert!(fence.except(open()).is_err());
    assert_eq!(rules(), 0);
    nothing_leaves(&world);
    // What was asked for is made up for.
    assert!(fence.repair().unwrap().filter);
    assert_eq!((rules(), through(&world)), (1, ONLY_LAN.to_vec()));
    assert!(!fence.repair().unwrap().any());
}

#[test]
fn what_others_do_to_pairs_and_rules_is_found() {
    let Some((world, mut fence)) = open_to_others() else { return };
    fence.add(&[protected("10.0.0.0/8"), claim("10.1.0.0/24", Treatment::Local)]).unwrap();
    let withheld = pairs(&[
        ["10.9.0.0/16", "10.1.0.0/24"],
        ["10.8.0.7/32", "10.1.0.7/32"],
        ["0.0.0.0/0", "10.3.0.0/16"],
        ["2001:db8:9::/48", "2001:db8:0:1::/64"],
    ]);
    fence.except(Exceptions { withheld, ..open() }).unwrap();
    assert!(!fence.repair().unwrap().any());
    let only_filter = Repaired { filter: true, ..Repaired::default() };
    for words in [
        "flush set inet convoy-convoy0 withheld4",
        "flush set inet convoy-convoy0 withheld6",
        "add element inet convoy-convoy0 open4 { 10.0.0.0/8 . 10.2.7.0/24 }",
        "delete element inet convoy-convoy0 withheld4 { 10.8.0.7 . 10.1.0.7 }",
        "flush chain inet convoy-convoy0 egress",
        "flush chain inet convoy-convoy0 egress-behind-nat",
        "flush chain inet convoy-convoy0 egress-forward",
        "insert rule inet convoy-convoy0 ingress-forward accept",
    ] {
        world.gateway.command("nft", words).unwrap();
        assert_eq!(fence.repair().unwrap(), only_filter, "{words}");
        assert!(!fence.repair().unwrap().any());
        // What was made anew is the fence's own, where the kernel knows owners.
        let asked = fence.exceptions().clone();
        drop(fence);
        for words in ["delete table inet convoy-convoy0", "add table inet convoy-convoy0"] {
            world.gateway.command("nft", words).unwrap();
        }
        fence = raise(&world);
        fence.except(asked).unwrap();
        assert!(!fence.repair().unwrap().any());
    }
}

/// Pairs that overlap in so many ways that there is no room for them.
fn many(to: &str) -> BTreeSet<Pair> {
    let wide =
        (0..40).map(|n| Pair { from: net("10.0.0.0/8"), to: net(&format!("10.2.{n}.0/25")) });
    let narrow = (0..40).map(|n| Pair { from: net(&format!("10.9.0.{n}/32")), to: net(to) });
    wide.chain(narrow).collect()
}

#[test]
fn without_room_what_opens_is_less_and_what_closes_is_more() {
    let Some(world) = World::new() else { return };
    let _tun = world.tun();
    let mut fence = raise(&world);
    fence.add(&far()).unwrap();
    fence.except(open()).unwrap();
    let all = Exceptions {
        open: many("10.0.0.0/8").union(&open().open).copied().collect(),
        withheld: many("10.1.0.0/16")
            .union(&pairs(&[["10.9.0.0/16", "10.0.0.0/8"]]))
            .copied()
            .collect(),
        admitted: pairs(&[["10.2.0.0/24", "10.1.0.2/32"]]),
    };
    fence.except(all.clone()).unwrap();
    assert_eq!((fence.exceptions(), &fence.exceptions_made().open), (&all, &open().open));
    assert_eq!(fence.exceptions_made().admitted, all.admitted);
    assert_eq!(through(&world), ONLY_LAN);
    assert!(!fence.repair().unwrap().any());
}

#[test]
fn as_many_pairs_of_ipv6_as_there_is_room_for_are_made() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    let local = claim("2001:db8:0:1::/64", Treatment::Local);
    fence.add(&[protected("2001:db8::/32"), local]).unwrap();
    let inside = world.lan.run(|| UdpSocket::bind("[2001:db8:0:1::2]:7").unwrap());
    inside.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let from = |n: u32| format!("2001:db8:9:{n:x}::");
    let pair = |n| Pair { from: net(&format!("{}/64", from(n))), to: net("2001:db8:0:1::/64") };
    let withheld: BTreeSet<_> = (0..1000).map(pair).collect();
    fence.except(Exceptions { withheld, ..Exceptions::default() }).unwrap();
    assert_eq!(fence.exceptions_made(), fence.exceptions());
    let mut write = |n| {
        let tag = world.listener.tag();
        tun.write(&world::packet6(&format!("{}1", from(n)), "2001:db8:0:1::2", &tag));
        tag
    };
    [0, 500, 779, 780, 999].into_iter().for_each(|n| drop(write(n)));
    let open = write(1000);
    let mut datagram = [0; 100];
    let length = inside.recv(&mut datagram).unwrap();
    assert!(datagram[..length].ends_with(&open));
    assert_eq!(fence.stopped().unwrap(), 5);
}
