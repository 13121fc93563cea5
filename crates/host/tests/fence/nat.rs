//! Source NAT beside the fence: who a packet is from is asked ahead of it.

use std::{net::UdpSocket, time::Duration};

use convoy_host::{
    Fence, Treatment,
    fence::{Exceptions, Pair},
};

use super::{claim, nearby, net, protected, raise};
use crate::world::{self, Sender, World};

/// Has a rule of somebody's change sources behind routing; whether there is an nft(8) to do so.
fn nat(world: &World, rule: &str) -> bool {
    let chain = "add table inet others ; \
                 add chain inet others post { type nat hook postrouting priority srcnat ; }";
    let words = format!("{chain} ; add rule inet others post {rule}");
    match world.gateway.command("nft", &words) {
        Ok(_) => true,
        Err(error) => {
            world::skipped(&format!("nothing changes sources here: {error}"));
            false
        }
    }
}

fn pairs(list: &[[&str; 2]]) -> std::collections::BTreeSet<Pair> {
    list.iter().map(|[from, to]| Pair { from: net(from), to: net(to) }).collect()
}

/// Somebody of the LAN with an address of its own.
fn of_the_lan(world: &World, address: &str) -> Sender {
    Sender::new(&world.lan, &format!("{address}:0"), "192.0.2.2".parse().unwrap())
}

/// What of all that comes out of the TUN interface reaches a host of the LAN.
struct Inside {
    socket: UdpSocket,
    tun: world::Tun,
}

impl Inside {
    fn is_reached_from(&mut self, world: &World, from: &str) -> bool {
        let tags = [world.listener.tag(), world.listener.tag()];
        self.tun.write(&world::packet4(from, "10.1.0.2", &tags[0]));
        // Behind it comes one that nobody stops.
        self.tun.write(&world::packet4("10.8.0.1", "10.1.0.2", &tags[1]));
        let mut datagram = [0; 100];
        let mut next = || {
            let length = self.socket.recv(&mut datagram).unwrap();
            tags.iter().position(|tag| datagram[..length].ends_with(tag)).unwrap()
        };
        let is_first = next() == 0;
        is_first && next() == 1
    }
}

fn inside(world: &World) -> Inside {
    let socket = world.lan.run(|| UdpSocket::bind("10.1.0.2:7").unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    Inside { socket, tun: world.tun() }
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
    fence.add(&nearby::everything()).unwrap();
    // Of another connection, which is not known yet.
    assert!(!is_heard(8) && !is_heard(7));
    assert!(fence.stopped().unwrap() >= 2);
}

#[test]
fn a_tunnel_reaches_no_withheld_network_behind_another_source() {
    let Some(world) = World::new() else { return };
    if !nat(&world, "oifname lan0 masquerade") {
        return;
    }
    let mut inside = inside(&world);
    let mut fence = raise(&world);
    fence.add(&[protected("10.0.0.0/8"), claim("10.1.0.0/24", Treatment::Local)]).unwrap();
    assert!(inside.is_reached_from(&world, "10.9.0.1"));
    let withheld = pairs(&[["10.9.0.0/16", "10.1.0.0/24"]]);
    fence.except(Exceptions { withheld, ..Exceptions::default() }).unwrap();
    // Of another connection, which is not known yet.
    assert!(!inside.is_reached_from(&world, "10.9.0.2"));
    assert!(!inside.is_reached_from(&world, "10.9.0.1"));
    assert_eq!((fence.stopped().unwrap(), fence.refused().unwrap()), (2, 0));
}

/// As SNPT of ip6tables does: without connection tracking, and long ahead of source NAT.
#[test]
fn nor_behind_one_that_is_written_without_nat() {
    let Some(world) = World::new() else { return };
    let chain = "add table inet others ; \
                 add chain inet others post { type filter hook postrouting priority mangle ; } ; \
                 add rule inet others post ip saddr 10.9.0.0/16 ip saddr set 10.7.0.1";
    if let Err(error) = world.gateway.command("nft", chain) {
        return world::skipped(&format!("nothing changes sources here: {error}"));
    }
    let mut inside = inside(&world);
    let mut fence = raise(&world);
    fence.add(&[protected("10.0.0.0/8"), claim("10.1.0.0/24", Treatment::Local)]).unwrap();
    assert!(inside.is_reached_from(&world, "10.9.0.1"));
    let withheld = pairs(&[["10.9.0.0/16", "10.1.0.0/24"]]);
    fence.except(Exceptions { withheld, ..Exceptions::default() }).unwrap();
    assert!(!inside.is_reached_from(&world, "10.9.0.1"));
    assert_eq!(fence.stopped().unwrap(), 1);
}

#[test]
fn nor_with_a_source_that_is_withheld() {
    let Some(world) = World::new() else { return };
    if !nat(&world, "oifname lan0 ip saddr 10.7.0.1 snat ip to 10.9.0.7") {
        return;
    }
    let mut inside = inside(&world);
    let mut fence = raise(&world);
    fence.add(&[protected("10.0.0.0/8"), claim("10.1.0.0/24", Treatment::Local)]).unwrap();
    let withheld = pairs(&[["10.9.0.0/16", "10.1.0.0/24"]]);
    fence.except(Exceptions { withheld, ..Exceptions::default() }).unwrap();
    assert!(!inside.is_reached_from(&world, "10.7.0.1"));
    assert_eq!(fence.stopped().unwrap(), 1);
}

/// From two hosts of the LAN and the gateway itself, one of which an open pair names.
#[test]
fn open_pairs_leave_behind_another_source_and_nobody_else_does() {
    let Some(world) = World::new() else { return };
    if !nat(&world, "oifname wire0 ip saddr 10.1.0.0/24 masquerade") {
        return;
    }
    world.lan.ip("address add 10.1.0.3/24 dev eth0");
    world.lan.ip("address add 10.1.0.4/24 dev eth0");
    let hosts = ["10.1.0.2", "10.1.0.3"].map(|host| of_the_lan(&world, host));
    let mut tun = world.tun();
    let mut fence = raise(&world);
    fence.add(&[protected("10.2.0.0/16")]).unwrap();
    let open = pairs(&[["10.1.0.2/32", "10.2.0.0/24"], ["10.1.0.4/32", "10.2.0.0/24"]]);
    fence.except(Exceptions { open, ..Exceptions::default() }).unwrap();
    let out = |sender: &Sender| world.leaves(sender, "10.2.0.9");
    assert!(out(&hosts[0]));
    let tag = world.listener.tag();
    hosts[1].send("10.2.0.9", &tag).unwrap();
    assert!(tun.brings(&tag));
    assert_eq!((world.listener.count(&tag), fence.stopped().unwrap()), (0, 0));
    // The filter alone tells them apart, also where another source is made of a connection than one
    // that a pair names.
    world.gateway.ip("rule add priority 100 table main");
    assert!(nat(&world, "oifname wire0 ip saddr 192.0.2.1 snat ip to 10.1.0.2"));
    let gateway = &world.senders()[0];
    assert_eq!([&hosts[0], &hosts[1], gateway].map(out), [true, false, false]);
    assert_eq!(fence.stopped().unwrap(), 2);
    // Where the source that they get is one that tunnels carry, they must not leave as that one.
    fence.add(&[claim("192.0.2.1/32", Treatment::Guarded)]).unwrap();
    let other = of_the_lan(&world, "10.1.0.4");
    assert!(!out(&other));
    assert_eq!(fence.stopped().unwrap(), 3);
}

/// Source NAT of `input` is ahead of no question who it was that sent in clear.
#[test]
fn nobody_comes_in_to_the_host_behind_another_source() {
    let Some(world) = World::new() else { return };
    let chain = "add table inet others ; \
                 add chain inet others in { type nat hook input priority 100 ; } ; \
                 add rule inet others in ip saddr 10.2.0.0/16 snat ip to 198.51.100.9";
    if let Err(error) = world.gateway.command("nft", chain) {
        return world::skipped(&format!("no source NAT of input here: {error}"));
    }
    world.wire.ip("address add 10.2.0.9/32 dev lo");
    world.wire.ip("route add 10.1.0.0/24 via 192.0.2.1");
    let inside = world.gateway.run(|| UdpSocket::bind("10.1.0.1:7").unwrap());
    inside.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let outside = world.wire.run(|| UdpSocket::bind("10.2.0.9:0").unwrap());
    let open = world.wire.run(|| UdpSocket::bind("192.0.2.2:0").unwrap());
    let mut fence = raise(&world);
    let first = |fence: &mut Fence| {
        outside.send_to(b"clear", "10.1.0.1:7").unwrap();
        open.send_to(b"end", "10.1.0.1:7").unwrap();
        let mut bytes = [0; 10];
        let (length, from) = inside.recv_from(&mut bytes).unwrap();
        let refused = fence.refused().unwrap();
        (length == 5).then(|| inside.recv(&mut bytes).unwrap());
        (length, from.ip().to_string(), refused)
    };
    assert_eq!(first(&mut fence), (5, "198.51.100.9".into(), 0));
    fence.add(&[protected("10.2.0.0/16"), claim("10.1.0.0/24", Treatment::Guarded)]).unwrap();
    assert_eq!(first(&mut fence), (3, "192.0.2.2".into(), 1));
}
