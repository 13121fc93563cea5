//! The fence with real packets: a gateway between a LAN and a wire, and a packet socket on the wire
//! that hears everything.

#![allow(clippy::unwrap_used, reason = "tests")]

mod clamp;
mod inbound;
mod lives;
mod model;
mod nat;
mod nearby;
mod pairs;
mod world;

use std::net::{SocketAddr, UdpSocket};

use convoy_host::{
    Claim, Fence, Finding, IpNet, Look, Network, Treatment,
    fence::{Exceptions, Pair, Repaired},
    findings,
};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};

use world::{Sender, World};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn protected(text: &str) -> Claim {
    Claim::protected(net(text), None)
}

fn claim(text: &str, treatment: Treatment) -> Claim {
    Claim { network: net(text), treatment }
}

const FAR: [&str; 2] = ["10.2.0.0/16", "2001:db8:2::/48"];

fn far() -> Vec<Claim> {
    FAR.map(protected).to_vec()
}

fn far_host(sender: &Sender) -> &'static str {
    if sender.is_v4() { "10.2.0.9" } else { "2001:db8:2::9" }
}

fn raise(world: &World) -> Fence {
    let fence = world.gateway.run(|| Fence::raise(world.config()).unwrap());
    assert_eq!(fence.filter_trouble(), None);
    fence
}

/// Nothing of all senders leaves in clear for the far network.
#[track_caller]
fn nothing_leaves(world: &World) {
    for sender in world.senders() {
        assert!(!world.leaves(&sender, far_host(&sender)), "{sender:?} got through in clear");
    }
}

#[track_caller]
fn all_goes_into(tun: &mut world::Tun, world: &World) {
    for sender in world.senders() {
        let tag = world.listener.tag();
        sender.send(far_host(&sender), &tag).unwrap();
        assert!(tun.brings(&tag), "nothing of {sender:?} came out of the TUN interface");
        world.listener.flush(&sender);
        assert_eq!(world.listener.count(&tag), 0, "{sender:?} got through in clear");
    }
}

#[test]
fn protected_packets_go_into_the_tun_interface_and_nowhere_when_it_has_gone() {
    let Some(world) = World::new() else { return };
    // The oracle hears what is not fenced in.
    for sender in world.senders() {
        assert!(world.leaves(&sender, far_host(&sender)));
    }
    let mut tun = world.tun();
    let mut fence = raise(&world);
    fence.add(&far()).unwrap();
    all_goes_into(&mut tun, &world);
    drop(tun);
    nothing_leaves(&world);
    for sender in world.senders() {
        let told = refusal(&sender);
        let unreachable = [libc::EHOSTUNREACH, libc::ENETUNREACH];
        assert!(unreachable.contains(&told), "{sender:?} was told {told}");
    }
    assert_eq!(fence.stopped().unwrap(), 0, "the routes alone must have held");
    let mut tun = world.tun();
    assert!(fence.repair().unwrap().any());
    all_goes_into(&mut tun, &world);
    assert!(!fence.repair().unwrap().any());
}

/// The error that a sender is told of, at once or by ICMP.
fn refusal(sender: &Sender) -> i32 {
    let to: std::net::IpAddr = far_host(sender).parse().unwrap();
    let wait = Some(std::time::Duration::from_secs(20));
    sender.socket.set_read_timeout(wait).unwrap();
    match sender.is_v4() {
        true => setsockopt(&sender.socket, sockopt::Ipv4RecvErr, &true).unwrap(),
        false => setsockopt(&sender.socket, sockopt::Ipv6RecvErr, &true).unwrap(),
    }
    let outcome = sender.socket.connect((to, 7)).and_then(|()| sender.socket.send(b"?"));
    let error = outcome.and_then(|_| sender.socket.recv(&mut [0; 10])).unwrap_err();
    error.raw_os_error().unwrap()
}

#[test]
fn what_was_killed_stays_closed_without_anybody() {
    let Some(world) = World::new() else { return };
    let tun = world.tun();
    let mut fence = raise(&world);
    fence.add(&far()).unwrap();
    drop(fence);
    drop(tun);
    nothing_leaves(&world);
}

#[test]
fn each_of_the_two_locks_holds_alone() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    fence.add(&far()).unwrap();
    // strongSwan's table behind ours, as it is by default, and ahead of ours.
    for (family, via) in [("-4", "192.0.2.2"), ("-6", "2001:db8:0:2::2")] {
        world.gateway.ip(&format!("{family} rule add priority 220 table 220"));
        let far = if family == "-4" { FAR[0] } else { FAR[1] };
        world.gateway.ip(&format!("{family} route add {far} via {via} dev wire0 table 220"));
    }
    all_goes_into(&mut tun, &world);
    assert_eq!(fence.stopped().unwrap(), 0);
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} rule add priority 100 table 220"));
    }
    nothing_leaves(&world);
    assert_eq!(fence.stopped().unwrap(), 4);
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} rule del priority 100"));
        world.gateway.ip(&format!("{family} route flush table 4500"));
        (210..=214)
            .chain([216, 221])
            .for_each(|n| drop(world.gateway.ip(&format!("{family} rule del priority {n}"))));
    }
    nothing_leaves(&world);
    let repaired = fence.repair().unwrap();
    assert_eq!((repaired.rules, repaired.filter), (14, false));
    all_goes_into(&mut tun, &world);
    // Who owns the table is asked first, where the kernel knows owners.
    match world.gateway.command("nft", "flush ruleset") {
        Ok(_) => {}
        Err(error) => world::skipped(&format!("nft flush ruleset: {error}")),
    }
    all_goes_into(&mut tun, &world);
    drop(tun);
    nothing_leaves(&world);
}

#[test]
fn links_that_go_down_and_up_open_nothing() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    fence.add(&far()).unwrap();
    for _ in 0..3 {
        world.gateway.ip("link set convoy0 down");
        nothing_leaves(&world);
        world.gateway.ip("link set convoy0 up");
        nothing_leaves(&world);
        assert_eq!(fence.repair().unwrap().networks, 2);
        all_goes_into(&mut tun, &world);
    }
    world.gateway.ip("link set wire0 down");
    world.gateway.ip("link set wire0 up");
    // The kernel removes the address and the route of IPv6 with the link.
    world.gateway.ip("route replace default via 192.0.2.2");
    world.gateway.ip("address replace 2001:db8:0:2::1/64 dev wire0 nodad");
    world.gateway.ip("route replace default via 2001:db8:0:2::2");
    all_goes_into(&mut tun, &world);
    assert!(!fence.repair().unwrap().any());
}

#[test]
fn ike_and_what_bears_the_mark_leave_though_everything_is_protected() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let mut config = world.config();
    // Bits outside of the mask say nothing.
    config.mark.value |= 0x10;
    let mut fence = world.gateway.run(|| Fence::raise(config.clone()).unwrap());
    fence.add(&["0.0.0.0/0", "::/0"].map(protected)).unwrap();
    for (to, any) in [("192.0.2.2", "0.0.0.0"), ("2001:db8:0:2::2", "[::]")] {
        let open = to.parse().unwrap();
        let sender = |space, port: u16| Sender::new(space, &format!("{any}:{port}"), open);
        // No port is exempt: any program may have it.
        for port in [500, 4500] {
            let daemon = sender(&world.gateway, port);
            let tag = world.listener.tag();
            let _ = daemon.send(to, &tag);
            setsockopt(&daemon.socket, sockopt::Mark, &config.mark.value).unwrap();
            assert!(world.leaves(&daemon, to), "IKE from port {port}");
            assert_eq!(world.listener.count(&tag), 0, "from port {port}, without the mark");
        }
        let marked = sender(&world.gateway, 0);
        setsockopt(&marked.socket, sockopt::Mark, &(config.mark.value | 7)).unwrap();
        assert!(world.leaves(&marked, to), "with the mark");
        let raw = world.listener.tag();
        let packet = match marked.is_v4() {
            true => world::packet4("192.0.2.1", to, &raw),
            false => world::packet6("2001:db8:0:2::1", to, &raw),
        };
        world.gateway.run(|| world::send_raw(&packet, open, config.mark.value));
        world.listener.flush(&marked);
        assert_eq!(world.listener.count(&raw), 1, "from a raw socket, to {to}");
        // All else goes into the TUN interface: without the mark, with another, and what only
        // looks like IKE because somebody behind the gateway sends it.
        let other = sender(&world.gateway, 0);
        setsockopt(&other.socket, sockopt::Mark, &(config.mark.value ^ 0x0100_0000)).unwrap();
        for one in
            [sender(&world.gateway, 0), other, sender(&world.lan, 500), sender(&world.lan, 4500)]
        {
            let tag = world.listener.tag();
            one.send(to, &tag).unwrap();
            assert!(tun.brings(&tag), "{one:?}");
            assert_eq!(world.listener.count(&tag), 0);
        }
    }
    // From the ports of IKE, without the mark.
    assert_eq!(fence.stopped().unwrap(), 4);
    // The same holds for the filter alone.
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} rule add priority 100 table main"));
    }
    let marked = Sender::new(&world.gateway, "0.0.0.0:0", "192.0.2.2".parse().unwrap());
    setsockopt(&marked.socket, sockopt::Mark, &config.mark.value).unwrap();
    for sender in world.senders() {
        let tag = world.listener.tag();
        let to = if sender.is_v4() { "192.0.2.2" } else { "2001:db8:0:2::2" };
        let _ = sender.send(to, &tag);
        world.listener.flush(&marked);
        assert_eq!(world.listener.count(&tag), 0, "{sender:?}");
    }
    assert_eq!(fence.stopped().unwrap(), 8);
    let ike = Sender::new(&world.gateway, "0.0.0.0:4500", "192.0.2.2".parse().unwrap());
    let tag = world.listener.tag();
    let _ = ike.send("192.0.2.2", &tag);
    setsockopt(&ike.socket, sockopt::Mark, &config.mark.value).unwrap();
    assert!(world.leaves(&ike, "192.0.2.2"));
    assert_eq!(world.listener.count(&tag), 0);
}

#[test]
fn neighbours_find_each_other_and_ike_arrives_though_everything_is_closed() {
    let Some(world) = World::new() else { return };
    for link in ["all", "wire0"] {
        let key = format!("/proc/sys/net/ipv4/conf/{link}/rp_filter");
        world.gateway.run(|| std::fs::write(key, "0").unwrap());
    }
    let mut fence = raise(&world);
    fence.add(&["0.0.0.0/0", "::/0"].map(protected)).unwrap();
    for (to, any) in [("192.0.2.1", "0.0.0.0:0"), ("2001:db8:0:2::1", "[::]:0")] {
        for port in [500, 4500] {
            world.wire.ip("neigh flush all");
            let inside =
                world.gateway.run(|| world::bound(SocketAddr::new(to.parse().unwrap(), port)));
            inside.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            let outside = world.wire.run(|| UdpSocket::bind(any).unwrap());
            outside.send_to(b"who are you", (to, port)).unwrap();
            assert_eq!(inside.recv(&mut [0; 20]).unwrap(), 11, "{to} port {port}");
        }
    }
    assert_eq!(fence.stopped().unwrap(), 0);
}

#[test]
fn a_table_without_an_owner_is_taken_over_and_made_again_when_it_is_flushed() {
    let Some(world) = World::new() else { return };
    if let Err(error) = world.gateway.command("nft", "add table inet convoy-convoy0") {
        return world::skipped(&format!("nobody else can make the table, no nft: {error}"));
    }
    let mut fence = raise(&world);
    fence.add(&far()).unwrap();
    assert!(!fence.repair().unwrap().any());
    let hole = "delete element inet convoy-convoy0 closed4 { 10.2.0.0/16 }";
    world.gateway.command("nft", hole).unwrap();
    let only_filter = Repaired { filter: true, ..Repaired::default() };
    assert_eq!(fence.repair().unwrap(), only_filter);
    assert!(!fence.repair().unwrap().any());
    world.gateway.command("nft", "flush ruleset").unwrap();
    nothing_leaves(&world);
    assert_eq!(fence.repair().unwrap(), only_filter);
    assert!(!fence.repair().unwrap().any());
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} rule add priority 100 table main"));
    }
    nothing_leaves(&world);
    assert_eq!(fence.stopped().unwrap(), 4);
}

/// One that somebody took away is missed by the next change at the latest, and is whole after the one that
/// follows; meanwhile the routes hold.
#[test]
fn a_change_that_failed_is_made_up_for_and_opens_nothing() {
    let Some(world) = World::new() else { return };
    if let Err(error) = world.gateway.command("nft", "add table inet convoy-convoy0") {
        return world::skipped(&format!("nobody else can make the table, no nft: {error}"));
    }
    let nft = |words: &str| world.gateway.command("nft", words).unwrap();
    // What a fence makes anew is its own, and nobody else can take it away.
    let anew = |old: Fence| {
        drop(old);
        nft("delete table inet convoy-convoy0");
        nft("add table inet convoy-convoy0");
        raise(&world)
    };
    let mut fence = raise(&world);
    fence.add(&far()).unwrap();
    let late = |n: u8| [protected(&format!("10.{n}.0.0/16"))];
    let lan = &world.senders()[1];
    nft("delete table inet convoy-convoy0");
    assert!(fence.add(&late(4)).is_err(), "the table is not there");
    nothing_leaves(&world);
    assert!(!world.leaves(lan, "10.4.0.9"));
    fence.add(&late(5)).unwrap();
    assert!(!fence.repair().unwrap().any());
    nothing_leaves(&world);
    let only_filter = Repaired { filter: true, ..Repaired::default() };
    fence = anew(fence);
    fence.add(&[&far()[..], &late(4), &late(5)].concat()).unwrap();
    fence.settle().unwrap();
    nft("delete table inet convoy-convoy0");
    assert!(fence.remove(&late(5)).is_err());
    nothing_leaves(&world);
    assert_eq!(fence.repair().unwrap(), only_filter);
    // Exceptions that could not be made are made up for, too.
    fence = anew(fence);
    fence.add(&[&far()[..], &late(4)].concat()).unwrap();
    fence.settle().unwrap();
    let chains = ["egress", "egress-behind-nat", "egress-forward"];
    let flush = chains.map(|chain| format!("flush chain inet convoy-convoy0 {chain} ; "));
    nft(&format!("{}delete set inet convoy-convoy0 withheld4", flush.concat()));
    let withheld = [Pair { from: net("10.9.0.0/16"), to: net("10.1.0.0/24") }].into();
    let withheld = Exceptions { withheld, ..Exceptions::default() };
    assert!(fence.except(withheld).is_err());
    nothing_leaves(&world);
    assert_eq!(fence.repair().unwrap(), only_filter);
    let sets = nft("list set inet convoy-convoy0 withheld4");
    assert!(sets.contains("10.9.0.0/16 . 10.1.0.0/24"), "{sets}");
    // It is whole: now it holds alone.
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} rule add priority 100 table main"));
    }
    nothing_leaves(&world);
    assert!(!world.leaves(lan, "10.4.0.9"));
    assert_eq!(fence.stopped().unwrap(), 5);
    assert!(world.leaves(lan, "10.5.0.9"));
}

#[test]
fn without_ipv6_the_rest_holds() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    world
        .gateway
        .run(|| std::fs::write("/proc/sys/net/ipv6/conf/convoy0/disable_ipv6", "1").unwrap());
    let mut fence = raise(&world);
    fence.add(&far()).unwrap();
    nothing_leaves(&world);
    let [local4, ..] = world.senders();
    let tag = world.listener.tag();
    local4.send(far_host(&local4), &tag).unwrap();
    assert!(tun.brings(&tag));
    fence.open_up().unwrap();
}

#[test]
fn bypassed_networks_leave_and_protected_ones_within_them_do_not() {
    let Some(world) = World::new() else { return };
    let _tun = world.tun();
    let mut fence = raise(&world);
    fence
        .add(&["10.0.0.0/8", "2001:db8::/32", "10.2.3.0/24", "2001:db8:2:3::/64"].map(protected))
        .unwrap();
    let bypass = ["10.2.0.0/16", "2001:db8:2::/48", "192.0.2.0/24", "2001:db8:0:2::/64"];
    let bypass = bypass.map(|net| claim(net, Treatment::Bypassed));
    fence.add(&bypass).unwrap();
    for sender in world.senders() {
        let [beside, within, deepest] = match sender.is_v4() {
            true => ["10.3.0.9", "10.2.0.9", "10.2.3.9"],
            false => ["2001:db8:3::9", "2001:db8:2::9", "2001:db8:2:3::9"],
        };
        assert!(!world.leaves(&sender, beside));
        assert!(world.leaves(&sender, within), "{sender:?}");
        assert!(!world.leaves(&sender, deepest));
    }
    assert_eq!(fence.stopped().unwrap(), 0);
    fence.remove(&bypass[..2]).unwrap();
    nothing_leaves(&world);
}

#[test]
fn what_tunnels_bring_reaches_the_lan_within_a_protected_network() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    fence.add(&[protected("10.0.0.0/8"), claim("10.1.0.0/24", Treatment::Local)]).unwrap();
    let inside = world.lan.run(|| UdpSocket::bind("10.1.0.2:7").unwrap());
    inside.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let tag = world.listener.tag();
    tun.write(&world::packet4("10.9.0.1", "10.1.0.2", &tag));
    let mut datagram = [0; 100];
    let length = inside.recv(&mut datagram).unwrap();
    assert!(datagram[..length].ends_with(&tag));
    // Also where strongSwan, whose peer is everything, leads all packets to the wire.
    world.gateway.ip("rule add priority 220 table 220");
    world.gateway.ip("route add default via 192.0.2.2 dev wire0 table 220");
    let tag = world.listener.tag();
    tun.write(&world::packet4("10.9.0.1", "10.1.0.2", &tag));
    let length = inside.recv(&mut datagram).unwrap();
    assert!(datagram[..length].ends_with(&tag));
    // From one tunnel into another goes by way of the gateway's own policies.
    let tag = world.listener.tag();
    tun.write(&world::packet4("10.9.0.1", "10.8.0.1", &tag));
    assert!(tun.brings(&tag));
    // What the host sends to its LAN is protected, as the policy says.
    let tag = world.listener.tag();
    let sender = &world.senders()[0];
    sender.send("10.1.0.2", &tag).unwrap();
    assert!(tun.brings(&tag));
    assert_eq!(fence.stopped().unwrap(), 0);
}

#[test]
fn opening_up_leaves_the_host_as_it_was() {
    let Some(world) = World::new() else { return };
    let before = world.picture();
    let mut fence = raise(&world);
    fence.add(&far()).unwrap();
    fence.add(&[claim("10.2.7.0/24", Treatment::Bypassed)]).unwrap();
    fence.add(&[protected("0.0.0.0/0"), claim("10.1.0.0/24", Treatment::Local)]).unwrap();
    let with = world.picture();
    assert!(before.iter().zip(&with).all(|(before, with)| before != with), "{with:#?}");
    fence.open_up().unwrap();
    assert_eq!(world.picture(), before);
    for sender in world.senders() {
        assert!(world.leaves(&sender, far_host(&sender)));
    }
}

#[test]
fn what_works_against_the_fence_is_found_on_a_real_host() {
    let Some(world) = World::new() else { return };
    let _tun = world.tun();
    let mut fence = raise(&world);
    let networks = ["10.2.0.0/16", "2001:db8:2::/48", "192.0.2.0/24"].map(net);
    fence.add(&networks.map(|network| Claim::protected(network, None))).unwrap();
    let peers = ["192.0.2.2".parse().unwrap(), "2001:db8:0:2::2".parse().unwrap()];
    let found = || {
        let config = world.config();
        let look = world.gateway.run(|| Look::around(&config, &peers).unwrap());
        findings(&look, &config, &networks)
    };
    let set = |key: &str, value: &str| {
        world.gateway.run(|| std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap());
    };
    for link in ["all", "wire0", "lan0"] {
        set(&format!("ipv4/conf/{link}/rp_filter"), "0");
    }
    assert_eq!(found(), []);
    // As charon makes them.
    world.gateway.ip("-4 rule add priority 220 table 220");
    world.gateway.ip("-4 route add 10.2.0.0/16 via 192.0.2.2 dev wire0 src 10.1.0.1 table 220");
    // As Libreswan's _updown makes them.
    world.gateway.ip("-6 route replace 2001:db8:2::/48 via 2001:db8:0:2::2 dev wire0");
    set("ipv4/ip_forward", "0");
    set("ipv4/conf/wire0/rp_filter", "1");
    let said: Vec<String> = found().iter().map(ToString::to_string).collect();
    let wanted =
        ["install_routes = no", "leftupdown=", "rp_filter = 2", "rp_filter = 2", "ip_forward = 1"];
    assert_eq!(said.len(), wanted.len(), "{said:#?}");
    for (said, wanted) in said.iter().zip(wanted) {
        assert!(said.contains(wanted), "{said}");
    }
    world.gateway.ip("route del default");
    world.gateway.ip("address del 192.0.2.1/24 dev wire0");
    assert!(found().contains(&Finding::NoRouteToPeer { peer: peers[0] }));
}

#[test]
fn the_host_sends_from_the_address_that_the_policy_covers_while_it_has_it() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    let locals = ["10.1.0.0/16", "2001:db8:0:1::/64"].map(net);
    for (network, local) in ["10.2.0.0/16", "2001:db8:2::/48"].map(net).iter().zip(locals) {
        let source = world.gateway.run(|| Network::open().unwrap().source_within(&local).unwrap());
        assert!(source.is_some_and(|source| local.contains(&source)));
        fence.add(&[Claim::protected(*network, source)]).unwrap();
    }
    for (to, from) in [("10.2.0.9", "10.1.0.1"), ("2001:db8:2::9", "2001:db8:0:1::1")] {
        let route = world.gateway.ip(&format!("route get {to}"));
        assert!(route.contains(&format!("src {from} ")), "{route}");
    }
    // The address goes, and with it the kernel takes the route; closed all the same.
    world.gateway.ip("address del 10.1.0.1/24 dev lan0");
    let [local, ..] = world.senders();
    assert!(!world.leaves(&local, "10.2.0.9"));
    fence.repair().unwrap();
    let tag = world.listener.tag();
    local.send("10.2.0.9", &tag).unwrap();
    assert!(tun.brings(&tag));
}
