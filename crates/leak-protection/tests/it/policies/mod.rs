//! Leak protection by policies with real packets: a gateway between a LAN and a wire, and a packet socket on the
//! wire that hears everything.

mod clamp;
mod inbound;
mod lives;
mod model;
mod nat;
mod nearby;
mod others;
mod rewritten;
mod second_lock;

use std::net::{SocketAddr, UdpSocket};

use convoy_leak_protection::{
    Config, Drops, Finding, Lead, LeakProtection, Look, Policy, SitePolicies, Verdict, findings,
};
use ipnet::IpNet;
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};

use crate::world::{Sender, World};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn policy(local: &str, remote: &str, verdict: Verdict) -> Policy {
    Policy { local: net(local), remote: net(remote), is_whole: true, verdict, way: None }
}

/// Policy that protects what everybody sends to a network.
fn protected(remote: &str) -> Policy {
    policy(if remote.contains(':') { "::/0" } else { "0.0.0.0/0" }, remote, Verdict::Protect)
}

fn config(world: &World) -> Config {
    Config { leads: Lead::ByMark, ..world.config() }
}

trait Counts {
    /// Packets that were kept from leaving in clear.
    fn stopped(&mut self) -> u64;
    /// Packets that did not come in in clear.
    fn refused(&mut self) -> u64;
    fn come(&mut self, policies: &[Policy]);
    fn go(&mut self, policies: &[Policy]);
}

impl Counts for LeakProtection {
    fn stopped(&mut self) -> u64 {
        let Drops { outbound, .. } = self.drops().unwrap().unwrap();
        outbound
    }

    fn refused(&mut self) -> u64 {
        let Drops { inbound, .. } = self.drops().unwrap().unwrap();
        inbound
    }

    fn come(&mut self, policies: &[Policy]) {
        let _ = self.change(policies, &[]).unwrap();
    }

    fn go(&mut self, policies: &[Policy]) {
        let _ = self.change(&[], policies).unwrap();
    }
}

const NOBODY: u32 = 65534;
const FAR: [&str; 2] = ["10.2.0.0/16", "2001:db8:2::/48"];

fn far() -> Vec<Policy> {
    FAR.map(protected).to_vec()
}

fn far_host(sender: &Sender) -> &'static str {
    if sender.is_v4() { "10.2.0.9" } else { "2001:db8:2::9" }
}

fn raise(world: &World) -> LeakProtection {
    crate::world::raise(|| {
        world.gateway.run(|| LeakProtection::install(config(world), SitePolicies::default()))
    })
}

/// Nothing of all senders leaves in clear for the far network.
#[track_caller]
fn nothing_leaves(world: &World) {
    for sender in world.senders() {
        assert!(!world.leaves(&sender, far_host(&sender)), "{sender:?} got through in clear");
    }
}

#[track_caller]
fn all_goes_into(tun: &mut crate::world::Tun, world: &World) {
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
    // The oracle hears what is not held.
    for sender in world.senders() {
        assert!(world.leaves(&sender, far_host(&sender)));
    }
    let mut tun = world.tun();
    let mut fence = raise(&world);
    fence.come(&far());
    all_goes_into(&mut tun, &world);
    drop(tun);
    // Processes that other tests have just started may still have copies of the descriptor.
    let begun = std::time::Instant::now();
    while world.gateway.command("ip", "link show convoy0").is_ok() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "convoy0 stays");
    }
    nothing_leaves(&world);
    for sender in world.senders() {
        let told = refusal(&sender);
        let unreachable = [libc::EHOSTUNREACH, libc::ENETUNREACH];
        assert!(unreachable.contains(&told), "{sender:?} was told {told}");
    }
    assert_eq!(fence.stopped(), 0, "the routes alone must have held");
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
    fence.come(&far());
    drop(fence);
    drop(tun);
    nothing_leaves(&world);
}

#[test]
fn each_of_the_two_locks_holds_alone() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    fence.come(&far());
    // strongSwan's table behind ours, as it is by default, and ahead of ours.
    for (family, via) in [("-4", "192.0.2.2"), ("-6", "2001:db8:0:2::2")] {
        world.gateway.ip(&format!("{family} rule add priority 220 table 220"));
        let far = if family == "-4" { FAR[0] } else { FAR[1] };
        world.gateway.ip(&format!("{family} route add {far} via {via} dev wire0 table 220"));
    }
    all_goes_into(&mut tun, &world);
    assert_eq!(fence.stopped(), 0);
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} rule add priority 100 table 220"));
    }
    nothing_leaves(&world);
    assert_eq!(fence.stopped(), 4);
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} rule del priority 100"));
        world.gateway.ip(&format!("{family} route flush table 4511"));
        [210, 211, 212, 213, 214, 221]
            .into_iter()
            .for_each(|n| drop(world.gateway.ip(&format!("{family} rule del priority {n}"))));
    }
    nothing_leaves(&world);
    let repaired = fence.repair().unwrap();
    assert_eq!((repaired.rules, repaired.table), (12, false));
    all_goes_into(&mut tun, &world);
    // Who owns the table is asked first, where the kernel knows owners.
    match world.gateway.command("nft", "flush ruleset") {
        Ok(_) => {}
        Err(error) => crate::world::skipped(&format!("nft flush ruleset: {error}")),
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
    fence.come(&far());
    for _ in 0..3 {
        world.gateway.ip("link set convoy0 down");
        nothing_leaves(&world);
        world.gateway.ip("link set convoy0 up");
        nothing_leaves(&world);
        // Of both versions what marks lead by, and what the host's own packets do before they have one.
        assert_eq!(fence.repair().unwrap().routes, 4);
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

/// Policies for all that the gateway's two sides send anywhere.
fn everything() -> Vec<Policy> {
    let v4 = ["10.1.0.0/24", "192.0.2.1/32"].map(|local| (local, "0.0.0.0/0"));
    let v6 = ["2001:db8:0:1::/64", "2001:db8:0:2::1/128"].map(|local| (local, "::/0"));
    { v4.into_iter().chain(v6) }.map(|(near, far)| policy(near, far, Verdict::Protect)).collect()
}

#[test]
fn ike_and_what_bears_the_mark_leave_though_everything_is_protected() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let mut config = config(&world);
    // Bits outside of the mask say nothing.
    config.mark.value |= 0x10;
    let mut fence = world
        .gateway
        .run(|| LeakProtection::install(config.clone(), SitePolicies::default()).unwrap());
    fence.come(&everything());
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
            true => crate::world::packet4("192.0.2.1", to, &raw),
            false => crate::world::packet6("2001:db8:0:2::1", to, &raw),
        };
        world.gateway.run(|| crate::world::send_raw(&packet, open, config.mark.value));
        world.listener.flush(&marked);
        assert_eq!(world.listener.count(&raw), 1, "from a raw socket, to {to}");
        // All else goes into the TUN interface: without the mark, with another, of a user whose programs may set
        // marks, and what only looks like IKE because somebody behind the gateway sends it.
        let other = sender(&world.gateway, 0);
        setsockopt(&other.socket, sockopt::Mark, &(config.mark.value ^ 0x0100_0000)).unwrap();
        let of_user = world.gateway.run(|| {
            nix::unistd::setfsuid(NOBODY.into());
            UdpSocket::bind(format!("{any}:0")).unwrap()
        });
        setsockopt(&of_user, sockopt::Mark, &config.mark.value).unwrap();
        let of_user = sender(&world.gateway, 0).by(of_user);
        for one in [
            sender(&world.gateway, 0),
            other,
            of_user,
            sender(&world.lan, 500),
            sender(&world.lan, 4500),
        ] {
            let tag = world.listener.tag();
            one.send(to, &tag).unwrap();
            assert!(tun.brings(&tag), "{one:?}");
            assert_eq!(world.listener.count(&tag), 0);
        }
    }
    assert_eq!(fence.stopped(), 0);
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
    assert_eq!(fence.stopped(), 4);
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
    // The way back is looked for in the host's own tables.
    for link in ["all", "wire0"] {
        let key = format!("/proc/sys/net/ipv4/conf/{link}/rp_filter");
        world.gateway.run(|| std::fs::write(key, "1").unwrap());
    }
    let mut fence = raise(&world);
    fence.come(&["0.0.0.0/0", "::/0"].map(protected));
    for (to, any) in [("192.0.2.1", "0.0.0.0:0"), ("2001:db8:0:2::1", "[::]:0")] {
        for port in [500, 4500] {
            world.wire.ip("neigh flush all");
            let inside = world
                .gateway
                .run(|| crate::world::bound(SocketAddr::new(to.parse().unwrap(), port)));
            inside.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            let outside = world.wire.run(|| UdpSocket::bind(any).unwrap());
            outside.send_to(b"who are you", (to, port)).unwrap();
            assert_eq!(inside.recv(&mut [0; 20]).unwrap(), 11, "{to} port {port}");
        }
    }
    assert_eq!(fence.stopped(), 0);
}

#[test]
fn without_ipv6_the_rest_holds() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    world
        .gateway
        .run(|| std::fs::write("/proc/sys/net/ipv6/conf/convoy0/disable_ipv6", "1").unwrap());
    let mut fence = raise(&world);
    fence.come(&far());
    nothing_leaves(&world);
    let [local4, ..] = world.senders();
    let tag = world.listener.tag();
    local4.send(far_host(&local4), &tag).unwrap();
    assert!(tun.brings(&tag));
    fence.remove().unwrap();
}

#[test]
fn what_tunnels_bring_reaches_the_lan_within_a_protected_network() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let mut fence = raise(&world);
    // Where the reverse path filter is strict, too, which asks by marks then.
    for (key, value) in [("rp_filter", "1"), ("src_valid_mark", "1")] {
        let key = format!("/proc/sys/net/ipv4/conf/all/{key}");
        world.gateway.run(|| std::fs::write(key, value).unwrap());
    }
    fence.come(&[policy("10.1.0.0/24", "10.0.0.0/8", Verdict::Protect)]);
    let inside = world.lan.run(|| UdpSocket::bind("10.1.0.2:7").unwrap());
    inside.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let tag = world.listener.tag();
    tun.write(&crate::world::packet4("10.9.0.1", "10.1.0.2", &tag));
    let mut datagram = [0; 100];
    let length = inside.recv(&mut datagram).unwrap();
    assert!(datagram[..length].ends_with(&tag));
    // Also where strongSwan, whose peer is everything, leads all packets to the wire.
    world.gateway.ip("rule add priority 220 table 220");
    world.gateway.ip("route add default via 192.0.2.2 dev wire0 table 220");
    let tag = world.listener.tag();
    tun.write(&crate::world::packet4("10.9.0.1", "10.1.0.2", &tag));
    let length = inside.recv(&mut datagram).unwrap();
    assert!(datagram[..length].ends_with(&tag));
    // From one tunnel into another.
    fence.come(&[policy("10.9.0.0/16", "10.0.0.0/8", Verdict::Protect)]);
    let tag = world.listener.tag();
    tun.write(&crate::world::packet4("10.9.0.1", "10.8.0.1", &tag));
    assert!(tun.brings(&tag));
    // What the host sends to its LAN is protected, as the policy says.
    let tag = world.listener.tag();
    let sender = Sender::new(&world.gateway, "10.1.0.1:0", "192.0.2.2".parse().unwrap());
    sender.send("10.1.0.2", &tag).unwrap();
    assert!(tun.brings(&tag));
    // But for a redirect of what went back by the interface that it had come in by.
    assert_eq!(fence.drops().unwrap().unwrap().past_interface(), 0);
}

#[test]
fn opening_up_leaves_the_host_as_it_was() {
    let Some(world) = World::new() else { return };
    let before = world.picture();
    let mut fence = raise(&world);
    fence.come(&far());
    fence.come(&[policy("10.1.0.0/24", "10.2.7.0/24", Verdict::Bypass)]);
    fence.come(&[policy("10.1.0.0/24", "0.0.0.0/0", Verdict::Protect)]);
    let with = world.picture();
    assert!(before.iter().zip(&with).all(|(before, with)| before != with), "{with:#?}");
    fence.remove().unwrap();
    assert_eq!(world.picture(), before);
    for sender in world.senders() {
        assert!(world.leaves(&sender, far_host(&sender)));
    }
}

#[test]
fn what_works_against_it_is_found_on_a_real_host() {
    let Some(world) = World::new() else { return };
    let _tun = world.tun();
    let mut fence = raise(&world);
    fence.come(&far());
    let peers = ["192.0.2.2".parse().unwrap(), "2001:db8:0:2::2".parse().unwrap()];
    let found_by = |wire: Option<&str>| {
        let config = config(&world);
        let look = world.gateway.run(|| Look::around(&config, &peers, wire).unwrap());
        let far =
            world.gateway.run(|| convoy_leak_protection::remote_prefixes(config.clone()).unwrap());
        assert_eq!(far, FAR.map(net));
        findings(&look, &config, &far)
    };
    let found = || found_by(None);
    assert_eq!(found(), []);
    // As transport mode has it, of sockets that are bound.
    for peer in peers {
        world.gateway.ip(&format!("route add {peer} dev convoy0"));
        let lost = Finding::NoRouteToPeer { peer };
        assert_eq!((found(), found_by(Some("wire0"))), (vec![lost], vec![]));
        world.gateway.ip(&format!("route del {peer} dev convoy0"));
    }
    // As charon and Libreswan's _updown make them: marks lead past them.
    world.gateway.ip("-4 rule add priority 220 table 220");
    world.gateway.ip("-4 route add 10.2.0.0/16 via 192.0.2.2 dev wire0 src 10.1.0.1 table 220");
    world.gateway.ip("-6 route replace 2001:db8:2::/48 via 2001:db8:0:2::2 dev wire0");
    assert_eq!(found(), []);
    world.gateway.ip("-4 rule add priority 100 table 220");
    world.gateway.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap());
    let said: Vec<String> = found().iter().map(ToString::to_string).collect();
    let wanted = ["a priority above 210", "ip_forward = 1"];
    assert_eq!(said.len(), wanted.len(), "{said:#?}");
    for (said, wanted) in said.iter().zip(wanted) {
        assert!(said.contains(wanted), "{said}");
    }
    world.gateway.ip("route del default");
    world.gateway.ip("address del 192.0.2.1/24 dev wire0");
    assert!(found().contains(&Finding::NoRouteToPeer { peer: peers[0] }));
}
