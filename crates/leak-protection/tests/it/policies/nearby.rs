//! Multicast, broadcast and link-local addresses within protected networks: the host speaks to them, but nobody
//! does in clear whom a policy covers.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket},
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use convoy_leak_protection::{Policy, Verdict};
use nix::{
    libc,
    sys::socket::{setsockopt, sockopt},
};

use super::{Counts as _, policy, protected, raise};
use crate::world::{Space, World, bound, skipped};

pub(super) const GROUP4: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x77);
/// The gateway's addresses that a policy is for.
const COVERED: [&str; 2] = ["10.1.0.1", "2001:db8:0:1::1"];

/// Policies of the LAN for all groups and link-local addresses, and for much else.
pub(super) fn everything() -> Vec<Policy> {
    let v4 = ["0.0.0.0/1", "128.0.0.0/2", "224.0.0.0/3"].map(|far| ("10.1.0.0/24", far));
    let all = v4.into_iter().chain([("2001:db8:0:1::/64", "8000::/1")]);
    all.map(|(lan, far)| policy(lan, far, Verdict::Protect)).collect()
}

fn index_of(space: &Space, link: &str) -> u32 {
    space.run(|| nix::net::if_::if_nametoindex(link).unwrap())
}

/// Sets an option that takes a struct.
fn set(socket: &impl AsRawFd, level: i32, option: i32, value: &[u8]) -> std::io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).unwrap();
    let from = value.as_ptr().cast();
    // SAFETY: the kernel reads as many bytes as there are.
    let outcome = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, from, length) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// A socket of the gateway or a host with this address, whose datagrams leave by a link.
pub(super) fn speaker(space: &Space, address: &str, link: &str) -> UdpSocket {
    let at = SocketAddr::new(address.parse().unwrap(), 0);
    let socket = space.run(|| bound(at));
    setsockopt(&socket, sockopt::BindToDevice, &link.into()).unwrap();
    if at.is_ipv4() {
        socket.set_broadcast(true).unwrap();
        socket.set_multicast_ttl_v4(9).unwrap();
    } else {
        let hops = 9_i32.to_ne_bytes();
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, &hops).unwrap();
    }
    socket
}

/// True if a datagram leaves on the wire in clear.
#[track_caller]
pub(super) fn leaves(world: &World, socket: &UdpSocket, to: SocketAddr) -> bool {
    let tag = world.listener.tag();
    let _sent = socket.send_to(&[crate::world::SIGN, &tag].concat(), to);
    for sender in world.senders().iter().filter(|sender| sender.is_v4() == to.is_ipv4()) {
        world.listener.flush(sender);
    }
    world.listener.count(&tag) > 0
}

/// Whom the host speaks to on its own links.
fn nearby(world: &World) -> Vec<SocketAddr> {
    let scope = index_of(&world.gateway, "wire0");
    let v6 = |address| SocketAddr::V6(SocketAddrV6::new(address, 7, 0, scope));
    let v4 = |address: Ipv4Addr| SocketAddr::new(address.into(), 7);
    let link_local = v6("fe80::2".parse().unwrap());
    world.wire.ip("address add fe80::2/64 dev eth0 nodad");
    let v4 = [Ipv4Addr::new(169, 254, 7, 2), GROUP4, Ipv4Addr::BROADCAST].map(v4);
    v4.into_iter().chain([v6(GROUP6), link_local]).collect()
}

#[test]
fn the_host_speaks_to_its_links_but_not_for_those_whom_a_policy_covers() {
    let Some(world) = World::new() else { return };
    let speak = |address| speaker(&world.gateway, address, "wire0");
    let covered = COVERED.map(speak);
    let others = ["192.0.2.1", "2001:db8:0:2::1"].map(speak);
    let all = nearby(&world);
    let heard = |sockets: &[UdpSocket; 2]| -> Vec<bool> {
        let of = |to: &SocketAddr| &sockets[usize::from(to.is_ipv6())];
        all.iter().map(|to| leaves(&world, of(to), *to)).collect()
    };
    // The first packet to a neighbour waits until it is found.
    let begun = Instant::now();
    while heard(&covered) != [true; 5] {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", heard(&covered));
    }
    let mut fence = raise(&world);
    assert_eq!(heard(&covered), [true; 5]);
    fence.come(&everything());
    assert_eq!(heard(&covered), [false; 5]);
    assert_eq!(heard(&others), [true; 5]);
    // Of multicast the host hears a copy.
    assert!(fence.stopped() >= 5);
    assert!(!fence.repair().unwrap().any());
    // Also while nobody lives, and when the next life begins, and its tables have been emptied.
    drop(fence);
    assert_eq!(heard(&covered), [false; 5]);
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} route flush table 4511"));
    }
    let mut fence = raise(&world);
    assert_eq!((heard(&covered), heard(&others)), (vec![false; 5], vec![true; 5]));
    fence.settle().unwrap();
    assert_eq!(heard(&covered), [true; 5]);
    // One that names them, for everybody.
    fence.come(&[protected("224.0.0.0/4")]);
    assert_eq!(heard(&others), [true, false, true, true, true]);
}

/// Has the gateway forward a group from a link to the wire, as a multicast routing daemon does, as long as
/// this lives. None where this kernel does not.
fn forward_group(world: &World, from: IpAddr, link: &str) -> Option<OwnedFd> {
    // MRT_INIT, MRT6_INIT; those that add an interface and a route.
    const INIT: i32 = 200;
    const ADD_INTERFACE: i32 = INIT + 2;
    const ADD_ROUTE: i32 = INIT + 4;
    let is_v4 = from.is_ipv4();
    let level = if is_v4 { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 };
    let protocol = if is_v4 { libc::IPPROTO_IGMP } else { libc::IPPROTO_ICMPV6 };
    let socket = world.gateway.run(|| crate::world::raw(is_v4, protocol));
    if let Err(error) = set(&socket, level, INIT, &1_i32.to_ne_bytes()) {
        skipped(&format!("this kernel forwards no multicast, IPv4 {is_v4}: {error}"));
        return None;
    }
    for (number, link) in [(0_u16, link), (1, "wire0")] {
        let index = index_of(&world.gateway, link).to_ne_bytes();
        let interface = match is_v4 {
            // struct vifctl: VIFF_USE_IFINDEX, threshold, rate limit, link, remote address.
            true => [&number.to_ne_bytes()[..], &[8, 1], &[0; 4], &index, &[0; 4]].concat(),
            // struct mif6ctl: flags, threshold, link, rate limit.
            false => [&number.to_ne_bytes()[..], &[0, 1], &index[..2], &[0; 2], &[0; 4]].concat(),
        };
        set(&socket, level, ADD_INTERFACE, &interface).unwrap();
    }
    let route = match from {
        IpAddr::V4(from) => {
            // struct mfcctl: origin, group, interface it comes by, thresholds of interfaces, counters.
            let mut thresholds = [0; 32];
            thresholds[1] = 1;
            let ends = [from.octets(), GROUP4.octets()].concat();
            [&ends[..], &[0; 2], &thresholds, &[0; 2 + 16]].concat()
        }
        IpAddr::V6(from) => {
            // struct mf6cctl: origin, group, interface it comes by, set of interfaces.
            let family = u16::try_from(libc::AF_INET6).unwrap().to_ne_bytes();
            let address =
                |address: Ipv6Addr| [&family[..], &[0; 6], &address.octets(), &[0; 4]].concat();
            let ends = [address(from), address(GROUP6)].concat();
            [&ends[..], &[0; 4], &2_u32.to_ne_bytes(), &[0; 28]].concat()
        }
    };
    set(&socket, level, ADD_ROUTE, &route).unwrap();
    Some(socket)
}

#[test]
fn nobody_whom_a_policy_covers_is_forwarded_there() {
    let Some(world) = World::new() else { return };
    let from = |text: &str| forward_group(&world, text.parse().unwrap(), "lan0");
    let forwarding = ["10.1.0.2", "2001:db8:0:1::2"].map(from);
    let scope = index_of(&world.lan, "eth0");
    let group6 = SocketAddr::V6(SocketAddrV6::new(GROUP6, 7, 0, scope));
    let [forwards4, forwards6] = forwarding.each_ref().map(Option::is_some);
    let ways = [
        (true, "10.1.0.2", SocketAddr::from(([169, 254, 7, 2], 7))),
        (forwards4, "10.1.0.2", (GROUP4, 7).into()),
        (forwards6, "2001:db8:0:1::2", group6),
    ];
    let ways: Vec<_> = { ways.into_iter() }
        .filter(|(is_there, ..)| *is_there)
        .map(|(_, from, to)| (speaker(&world.lan, from, "eth0"), to))
        .collect();
    let heard = || -> Vec<bool> {
        // Another sender's datagrams may overtake it.
        let settled = Duration::from_millis(100);
        let mut heard = Vec::new();
        for (socket, to) in &ways {
            let begun = Instant::now();
            let mut is_heard = leaves(&world, socket, *to);
            while !is_heard && begun.elapsed() < settled {
                is_heard = leaves(&world, socket, *to);
            }
            heard.push(is_heard);
        }
        heard
    };
    let all = |is: bool| vec![is; ways.len()];
    assert_eq!(heard(), all(true));
    let mut fence = raise(&world);
    fence.come(&[policy("10.1.0.0/24", "10.2.0.0/16", Verdict::Protect)]);
    assert_eq!(heard(), all(true));
    fence.come(&everything());
    let stopped = fence.stopped();
    assert_eq!(heard(), all(false));
    assert!(fence.stopped() >= stopped + ways.len() as u64);
    drop(fence);
    assert_eq!(heard(), all(false));
    let mut fence = raise(&world);
    assert_eq!(heard(), all(false));
    // For whom no policy is.
    fence.settle().unwrap();
    assert_eq!(heard(), all(true));
}

/// Packets that a kernel forwards to groups look behind routing as if the host had sent them.
#[test]
fn what_tunnels_bring_for_a_group_is_not_taken_for_the_hosts_own() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    for link in ["all", "convoy0"] {
        let key = format!("/proc/sys/net/ipv4/conf/{link}/rp_filter");
        world.gateway.run(|| std::fs::write(key, "0").unwrap());
    }
    let from = "10.2.0.5".parse().unwrap();
    let Some(_forwarding) = forward_group(&world, from, "convoy0") else { return };
    let flush = || world.senders().iter().for_each(|sender| world.listener.flush(sender));
    let mut is_heard = |port: u16| {
        let tag = world.listener.tag();
        let mut packet = crate::world::packet4("10.2.0.5", &GROUP4.to_string(), &tag);
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        tun.write(&packet);
        flush();
        world.listener.count(&tag) > 0
    };
    let mut fence = raise(&world);
    assert!(is_heard(9) && is_heard(500));
    // A hub: what a spoke sends to everything goes on through another tunnel.
    fence.come(&[policy("10.2.0.0/16", "224.0.0.0/3", Verdict::Protect)]);
    assert!(!is_heard(9) && !is_heard(500) && !is_heard(4500));
    assert_eq!(fence.stopped(), 3);
}

/// With `br_netfilter`, which containers come with, IP sees what a bridge passes on.
#[test]
fn hosts_on_a_bridge_of_the_gateway_still_find_each_other() {
    let Some(world) = World::new() else { return };
    let hosts = [Space::new().unwrap(), Space::new().unwrap()];
    world.gateway.ip("link add br0 type bridge");
    world.gateway.ip("link set br0 up");
    for (n, host) in hosts.iter().enumerate() {
        let file = host.file();
        world.gateway.ip(&format!("link add port{n} type veth peer name eth0 netns {file}"));
        world.gateway.ip(&format!("link set port{n} master br0 up"));
        host.run(|| std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "0").unwrap());
        host.ip(&format!("address add 2001:db8:0:1::a{n}/64 dev eth0 nodad"));
        host.ip("link set eth0 up");
    }
    let show = "/proc/sys/net/bridge/bridge-nf-call-ip6tables";
    if let Err(error) = world.gateway.run(|| std::fs::write(show, "1")) {
        return skipped(&format!("no bridge shows IP what it passes on: {error}"));
    }
    let [asking, asked] = &hosts;
    let socket = asking.run(|| UdpSocket::bind("[2001:db8:0:1::a0]:0").unwrap());
    let address = asked.ip("link show eth0");
    let address = address.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap();
    let finds = || {
        let begun = Instant::now();
        hosts.iter().for_each(|host| drop(host.ip("neighbour flush dev eth0 nud all")));
        while begun.elapsed() < Duration::from_secs(20) {
            let _sent = socket.send_to(b"hello", "[2001:db8:0:1::a1]:9");
            if asking.ip("neighbour show dev eth0").contains(address) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    };
    assert!(finds(), "not even without leak protection");
    let mut fence = raise(&world);
    fence.come(&everything());
    assert!(finds());
}
