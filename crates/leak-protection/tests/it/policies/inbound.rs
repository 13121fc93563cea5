//! Packets that must come out of a tunnel do not come in by another way.

use std::{
    net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket},
    os::fd::AsRawFd as _,
    time::{Duration, Instant},
};

use convoy_leak_protection::{LeakProtection, Policy, SitePolicies, Verdict};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, bind, recv,
    sendto, setsockopt, socket, sockopt,
};

use super::{Counts as _, FAR, config, policy, raise};
use crate::world::{Space, World};

/// Addresses of the wire's host, besides those that are its own: some far, some bypassed.
const FAR_HOSTS: [&str; 2] = ["10.2.0.9", "2001:db8:2::9"];
const NEARER_HOSTS: [&str; 2] = ["10.2.3.9", "2001:db8:2:3::9"];
/// The LAN's host has these, too.
const STRAYED_HOSTS: [&str; 2] = ["10.2.8.9", "2001:db8:2:8::9"];
const WIRE: [&str; 2] = ["192.0.2.2", "2001:db8:0:2::2"];
/// The gateway's address in the LAN, and the LAN's host.
const INSIDE: [&str; 2] = ["10.1.0.1", "2001:db8:0:1::1"];
const LAN: [&str; 2] = ["10.1.0.2", "2001:db8:0:1::2"];
const LANS: [&str; 2] = ["10.1.0.0/24", "2001:db8:0:1::/64"];

/// A world whose wire speaks for far hosts, too.
fn world() -> Option<World> {
    let world = World::new()?;
    let strayed = STRAYED_HOSTS.map(|host| (&world.lan, host));
    let far = [FAR_HOSTS, NEARER_HOSTS].concat().into_iter().map(|host| (&world.wire, host));
    for (space, address) in far.chain(strayed) {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        space.ip(&format!("address add {address} dev eth0{nodad}"));
    }
    for (lan, via) in LANS.iter().zip(["192.0.2.1", "2001:db8:0:2::1"]) {
        world.wire.ip(&format!("route add {lan} via {via}"));
    }
    // What is tested is not to be the reverse path filter's work.
    for link in ["all", "wire0", "lan0", "default"] {
        let key = format!("/proc/sys/net/ipv4/conf/{link}/rp_filter");
        world.gateway.run(|| std::fs::write(key, "0").unwrap());
    }
    Some(world)
}

fn guarded() -> Vec<Policy> {
    LANS.into_iter().zip(FAR).map(|(lan, far)| policy(lan, far, Verdict::Protect)).collect()
}

fn everything(local: [&str; 2]) -> [Policy; 2] {
    let [v4, v6] = local;
    [policy(v4, "0.0.0.0/0", Verdict::Protect), policy(v6, "::/0", Verdict::Protect)]
}

/// Somebody who waits for datagrams, and somebody whom no policy covers.
struct Receiver {
    socket: UdpSocket,
    open: UdpSocket,
}

impl Receiver {
    fn new(world: &World, space: &Space, at: &str, port: u16) -> Self {
        let at = SocketAddr::new(at.parse().unwrap(), port);
        let socket = space.run(|| crate::world::bound(at));
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let open = if at.is_ipv4() { WIRE[0] } else { WIRE[1] };
        let receiver = Self { socket, open: from(&world.wire, open) };
        assert!(receiver.hears(&receiver.open, b"first"), "nobody reaches {at}");
        receiver
    }

    /// True if a datagram arrives, which is sent until it does.
    fn hears(&self, sender: &UdpSocket, tag: &[u8]) -> bool {
        let begun = Instant::now();
        let mut datagram = [0; 4000];
        while begun.elapsed() < Duration::from_secs(20) {
            let _ = sender.send_to(tag, self.socket.local_addr().unwrap());
            while let Ok(length) = self.socket.recv(&mut datagram) {
                if &datagram[..length] == tag {
                    return true;
                }
            }
        }
        false
    }

    /// True if a datagram arrives before one that is certain to.
    fn is_reached_by(&self, sender: &UdpSocket, tag: &[u8]) -> bool {
        let _ = sender.send_to(tag, self.socket.local_addr().unwrap());
        let mut is_reached = false;
        let mut datagram = [0; 4000];
        // Which processor carries a datagram decides which is first: the last of many is behind.
        for n in 0..5 {
            let end = [tag, b" is over ", &[b'0' + n]].concat();
            let _ = self.open.send_to(&end, self.socket.local_addr().unwrap());
            let begun = Instant::now();
            loop {
                assert!(begun.elapsed() < Duration::from_secs(20), "nothing arrives any more");
                match self.socket.recv(&mut datagram) {
                    Ok(length) if &datagram[..length] == tag => is_reached = true,
                    Ok(length) if datagram[..length] == end => break,
                    _ => {}
                }
            }
        }
        is_reached
    }
}

/// A socket with an address of a space.
fn from(space: &Space, address: &str) -> UdpSocket {
    space.run(|| UdpSocket::bind((address.parse::<IpAddr>().unwrap(), 0)).unwrap())
}

/// The host and its LAN, in both IP versions: who waits there, and what a tunnel may bring them.
fn receivers(world: &World) -> Vec<(Receiver, UdpSocket)> {
    let at = |space, addresses: [&str; 2]| {
        let both = addresses.into_iter().zip(FAR_HOSTS);
        let both =
            both.map(|(to, far)| (Receiver::new(world, space, to, 7), from(&world.wire, far)));
        both.collect::<Vec<_>>()
    };
    [at(&world.gateway, INSIDE), at(&world.lan, LAN)].into_iter().flatten().collect()
}

#[track_caller]
fn nothing_comes_in(receivers: &[(Receiver, UdpSocket)]) {
    for (receiver, far) in receivers {
        assert!(!receiver.is_reached_by(far, b"spoofed"), "{far:?} reached {:?}", receiver.socket);
    }
}

#[test]
fn packets_in_clear_from_protected_networks_do_not_come_in_and_those_of_tunnels_do() {
    let Some(world) = world() else { return };
    let receivers = receivers(&world);
    for (receiver, far) in &receivers {
        assert!(receiver.hears(far, b"as yet open"));
    }
    let mut tun = world.tun();
    let mut fence = raise(&world);
    fence.come(&guarded());
    nothing_comes_in(&receivers);
    assert_eq!((fence.refused(), fence.stopped()), (4, 0));
    for (receiver, far) in &receivers {
        let address = |socket: &UdpSocket| socket.local_addr().unwrap().ip().to_string();
        let (from, to) = (address(far), address(&receiver.socket));
        let tag = world.listener.tag();
        tun.write(&match from.contains(':') {
            false => crate::world::packet4(&from, &to, &tag),
            true => crate::world::packet6(&from, &to, &tag),
        });
        receiver.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut datagram = [0; 100];
        let length = receiver.socket.recv(&mut datagram).unwrap();
        assert!(datagram[..length].ends_with(&tag));
        receiver.socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    }
    // What was killed lets nothing in, either, nor while the next life begins.
    drop((fence, tun));
    nothing_comes_in(&receivers);
    let mut fence = raise(&world);
    nothing_comes_in(&receivers);
    assert_eq!(fence.refused(), 4);
    fence.settle().unwrap();
    for (receiver, far) in &receivers {
        assert!(receiver.hears(far, b"nobody claimed it"));
    }
    fence.come(&guarded());
    nothing_comes_in(&receivers);
    fence.go(&guarded());
    for (receiver, far) in &receivers {
        assert!(receiver.hears(far, b"given up"));
    }
    fence.come(&guarded());
    nothing_comes_in(&receivers);
    fence.remove().unwrap();
    for (receiver, far) in &receivers {
        assert!(receiver.hears(far, b"open again"));
    }
}

#[test]
fn ike_esp_and_errors_about_them_come_in_though_everything_is_protected() {
    let Some(world) = world() else { return };
    let mut config = config(&world);
    config.udp_port = 4600;
    let outer = ["192.0.2.1", "2001:db8:0:2::1"];
    let both = || outer.into_iter().zip(WIRE);
    // Made while nothing is closed, since they wait for a first datagram.
    let at = |port| {
        let made = both().map(move |(to, _)| (to, port));
        made.map(|(to, port)| Receiver::new(&world, &world.gateway, to, port)).collect::<Vec<_>>()
    };
    let (ike, others) = ([500, 4500, 4600].map(at), at(501));
    let mut fence =
        world.gateway.run(|| LeakProtection::install(config, SitePolicies::default()).unwrap());
    fence.come(&everything(["192.0.2.1/32", "2001:db8:0:2::1/128"]));
    for (port, receivers) in ike.iter().enumerate() {
        for receiver in receivers {
            // Certificates make IKE's datagrams larger than a packet.
            assert!(receiver.hears(&receiver.open, &[7; 3500]), "port {port}");
        }
    }
    for (to, peer) in both() {
        let esp = Raw::new(&world.gateway, to, 50);
        assert!(esp.hears(&Raw::new(&world.wire, peer, 50), to, b"....esp of the peer"), "{to}");
        let is_v4 = to.contains('.');
        let icmp = if is_v4 { 1 } else { 58 };
        let (inside, outside) =
            (Raw::new(&world.gateway, to, icmp), Raw::new(&world.wire, peer, icmp));
        for (protocol, port, comes) in [(50, 0, true), (17, 4600, true), (17, 999, false)] {
            let error = too_big(is_v4, protocol, port);
            let before = fence.refused();
            if comes {
                assert!(inside.hears(&outside, to, &error), "{protocol} {port} to {to}");
                assert_eq!(fence.refused(), before);
            } else {
                outside.send(to, &error);
                comes_to(&mut fence, before + 1);
            }
        }
    }
    // All else does not come in, fragments of it neither.
    for receiver in &others {
        let before = fence.refused();
        receiver.open.send_to(b"short", receiver.socket.local_addr().unwrap()).unwrap();
        receiver.open.send_to(&[7; 3500], receiver.socket.local_addr().unwrap()).unwrap();
        comes_to(&mut fence, before + 2);
        assert!(receiver.socket.recv(&mut [0; 4000]).is_err());
    }
}

#[track_caller]
fn comes_to(fence: &mut LeakProtection, refused: u64) {
    let begun = Instant::now();
    while fence.refused() < refused && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(fence.refused(), refused);
}

/// A raw socket of a protocol with an address.
struct Raw(std::os::fd::OwnedFd);

impl Raw {
    fn new(space: &Space, address: &str, protocol: i32) -> Self {
        let at = SocketAddr::new(address.parse().unwrap(), 0);
        let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let protocol = match protocol {
            1 => SockProtocol::Icmp,
            58 => SockProtocol::IcmpV6,
            // 50 has no name in nix; the kernel is asked by what has one.
            _ => return Self(space.run(|| esp(at))),
        };
        let socket = space.run(|| socket(family, SockType::Raw, SockFlag::empty(), protocol));
        Self(bound(socket.unwrap(), at))
    }

    fn send(&self, to: &str, message: &[u8]) {
        let fd = self.0.as_raw_fd();
        let sent = match SocketAddr::new(to.parse().unwrap(), 0) {
            SocketAddr::V4(to) => sendto(fd, message, &SockaddrIn::from(to), MsgFlags::empty()),
            SocketAddr::V6(to) => sendto(fd, message, &SockaddrIn6::from(to), MsgFlags::empty()),
        };
        assert_eq!(sent.unwrap(), message.len());
    }

    /// True if a message arrives that another sends.
    fn hears(&self, sender: &Self, to: &str, message: &[u8]) -> bool {
        let begun = Instant::now();
        let mut packet = [0; 2000];
        // Checksums are the kernel's in IPv6.
        let wanted = &message[4..];
        while begun.elapsed() < Duration::from_secs(20) {
            sender.send(to, message);
            while let Ok(length) = recv(self.0.as_raw_fd(), &mut packet, MsgFlags::empty()) {
                if packet[..length].ends_with(wanted) {
                    return true;
                }
            }
        }
        false
    }
}

fn bound(socket: std::os::fd::OwnedFd, at: SocketAddr) -> std::os::fd::OwnedFd {
    let wait = nix::sys::time::TimeVal::new(0, 200_000);
    setsockopt(&socket, sockopt::ReceiveTimeout, &wait).unwrap();
    match at {
        SocketAddr::V4(at) => bind(socket.as_raw_fd(), &SockaddrIn::from(at)).unwrap(),
        SocketAddr::V6(at) => bind(socket.as_raw_fd(), &SockaddrIn6::from(at)).unwrap(),
    }
    socket
}

/// A raw socket for ESP.
fn esp(at: SocketAddr) -> std::os::fd::OwnedFd {
    bound(crate::world::raw(at.is_ipv4(), 50), at)
}

/// An ICMP error about a packet of a protocol that the gateway sent from a port.
fn too_big(is_v4: bool, protocol: u8, port: u16) -> Vec<u8> {
    let mut quoted = if is_v4 { vec![0; 20] } else { vec![0; 40] };
    quoted[0] = if is_v4 { 0x45 } else { 0x60 };
    quoted[if is_v4 { 9 } else { 6 }] = protocol;
    quoted.extend(port.to_be_bytes());
    quoted.extend([0; 6]);
    let [kind, code] = if is_v4 { [3, 4] } else { [2, 0] };
    let mut error = [vec![kind, code, 0, 0, 0, 0, 5, 0], quoted].concat();
    if is_v4 {
        let sum: u32 = error.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap();
        error[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    error
}

#[test]
fn link_local_addresses_within_a_protected_network_send_nothing_to_who_is_guarded() {
    let Some(world) = world() else { return };
    world.wire.ip("address add 169.254.7.2/16 dev eth0");
    world.wire.ip("address add fe80::7/64 dev eth0 nodad");
    world.gateway.ip("route add 169.254.0.0/16 dev wire0");
    let scope = world.wire.run(|| nix::net::if_::if_nametoindex("eth0").unwrap());
    let at = SocketAddrV6::new("fe80::7".parse().unwrap(), 0, 0, scope);
    let sender6 = world.wire.run(|| UdpSocket::bind(at).unwrap());
    let sender4 = || from(&world.wire, "169.254.7.2");
    let at = |space, address| Receiver::new(&world, space, address, 8);
    // IPv6 does not forward what they send.
    let ways = [
        (at(&world.gateway, INSIDE[0]), sender4()),
        (at(&world.lan, LAN[0]), sender4()),
        (at(&world.gateway, INSIDE[1]), sender6),
    ];
    for (receiver, sender) in &ways {
        assert!(receiver.hears(sender, b"as yet open"));
    }
    let mut fence = raise(&world);
    // The receivers' other senders are not to be held.
    let named = ["169.254.0.0/16", "fe80::/10"].into_iter().zip(LANS);
    let named: Vec<_> = named.map(|(far, lan)| policy(lan, far, Verdict::Protect)).collect();
    fence.come(&named);
    nothing_comes_in(&ways);
    assert_eq!(fence.refused(), 3);
    fence.go(&named);
    for (receiver, sender) in &ways {
        assert!(receiver.hears(sender, b"bypassed"));
    }
}

#[test]
fn the_guard_is_taken_over_where_it_stood() {
    let Some(world) = world() else { return };
    let receivers = receivers(&world);
    let mut fence = raise(&world);
    fence.come(&guarded());
    // Without an owner somebody may empty it, and it is made again.
    drop(fence);
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} route flush table 4511"));
    }
    let fence = raise(&world);
    let left: Vec<_> = fence.left().map(|network| network.to_string()).collect();
    assert_eq!(left, FAR);
    nothing_comes_in(&receivers);
}
