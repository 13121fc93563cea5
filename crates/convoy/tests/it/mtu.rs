//! MTUs that change while packets flow.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Gateway, PATIENCE, Plan, can_make_namespaces, ip, site_of, status};
use crate::direct::complaint;
use crate::keep::World;
use convoy_lab::traffic::{Direction, Ping, PingProblem, Rate, UdpPaced, Watch};
use convoy_lab::{Family, HOST_LINK, Namespace, Topology, TopologyConfig};
use socket2::{Domain, Protocol, Socket, Type};

/// Bytes of an IPv4 header and that of an echo.
const HEADERS: usize = 28;

/// Asks until `size` bytes are answered, or their sender is told how many would be.
fn largest(lab: &Topology, size: usize) -> Result<(), u32> {
    largest_to(lab, lab.b.host_address(Family::V4), size)
}

fn largest_to(lab: &Topology, far: IpAddr, size: usize) -> Result<(), u32> {
    let cancel = AtomicBool::new(false);
    let begun = Instant::now();
    loop {
        // What the host has learned of the path, it heeds.
        ip(&lab.a.host, "route flush cache");
        let ping = Ping { count: 1, payload: size - HEADERS, ..Ping::new(far) };
        let report = ping.run(&lab.a.host, &mut Watch::new(&cancel)).unwrap();
        match report.problems.first() {
            Some(PingProblem::TooBig { mtu }) => return Err(*mtu),
            _ if report.received > 0 => return Ok(()),
            _ => {}
        }
        assert!(begun.elapsed() < PATIENCE, "{size} bytes: {report:?}");
    }
}

/// Waits until the SA that protects thinks so of its path.
fn wait_for(site: &Path, mtu: u64, gateway: &Gateway) {
    let begun = Instant::now();
    loop {
        let sas = status(site)["sas"].as_array().unwrap().clone();
        let all: Vec<_> = sas.iter().filter_map(|sa| sa["path_mtu"].as_u64()).collect();
        if all == [mtu] {
            return;
        }
        let log = || gateway.log();
        assert!(begun.elapsed() < PATIENCE, "{mtu} bytes, but SAs think {all:?}\n{}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A packet inside an outer one of 1500 bytes with AES-GCM over IPv4 is at most 1446 bytes long.
fn follows(backend: &str) {
    if !can_make_namespaces() {
        return;
    }
    let lab = Topology::build(&TopologyConfig {
        named: false,
        wire_mtu: 1400,
        ..TopologyConfig::default()
    });
    let lab = lab.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sites = ['a', 'b'].map(|side| match backend {
        "socket" => Plan::simple().write(side, folder.path()),
        _ => site_of(&Plan::simple(), side, folder.path(), backend),
    });
    let a = Gateway::start(&lab.a.gateway, &sites[0]);
    let b = Gateway::start(&lab.b.gateway, &sites[1]);
    let widen = |mtu: u32| {
        for gateway in [&lab.b.gateway, &lab.a.gateway] {
            ip(gateway, &format!("link set wire mtu {mtu}"));
        }
        let both = sites.iter().zip([&a, &b]);
        both.for_each(|(site, gateway)| wait_for(site, mtu.into(), gateway));
    };
    // Not where the path is asked about: when a host's kernel replaces a route with an MTU it has learned, it may
    // discard a packet on its way to the same address.
    let other = Ipv4Addr::new(10, 2, 0, 77);
    ip(&lab.b.host, &format!("address add {other}/24 dev {HOST_LINK}"));
    // Neighbours are known from here on: until they have answered, few packets can wait.
    for far in [lab.b.host_address(Family::V4), other.into()] {
        assert_eq!(largest_to(&lab, far, 1000), Ok(()), "{}", a.log());
    }
    let cancel = AtomicBool::new(false);
    let work = || {
        std::thread::scope(|scope| {
            // Small packets are not concerned.
            let traffic = scope.spawn(|| {
                let udp = UdpPaced {
                    payload: 64,
                    direction: Direction::Both,
                    ..UdpPaced::new(
                        other.into(),
                        Rate::PacketsPerSecond(1000),
                        Duration::from_secs(60),
                    )
                };
                udp.run(&lab.a.host, &lab.b.host, &mut Watch::new(&cancel)).unwrap()
            });
            assert_eq!(largest(&lab, 1342), Ok(()), "{}", a.log());
            // The first that is too long finds out, at once.
            ip(&lab.a.gateway, "link set wire mtu 1330");
            assert_eq!(largest(&lab, 1300), Err(1274), "{}", a.log());
            assert_eq!(largest(&lab, 1274), Ok(()), "{}", a.log());
            wait_for(&sites[0], 1330, &a);
            widen(1500);
            assert_eq!(largest(&lab, 1446), Ok(()), "{}\n{}", a.log(), b.log());
            assert_eq!(largest(&lab, 1447), Err(1446), "{}", a.log());
            widen(1400);
            assert_eq!(largest(&lab, 1346), Ok(()), "{}", a.log());
            assert_eq!(largest(&lab, 1400), Err(1346), "{}", a.log());
            cancel.store(true, Ordering::Relaxed);
            traffic.join().unwrap()
        })
    };
    // What the kernel drops for want of room is a busy machine's; it tells a gateway that takes packets
    // from interfaces alone.
    let by_gateways =
        || sites.iter().filter_map(|site| status(site)["kernel_drops"].as_u64()).sum();
    let before: u64 = by_gateways();
    let (report, mut dropped) = lab.counting_drops(work).unwrap();
    if backend != "socket" {
        dropped += by_gateways() - before;
    }
    for flow in [&report.forward, &report.backward] {
        assert!(flow.received > 100, "{report:?}");
        assert_eq!(flow.duplicates, 0, "{report:?}");
    }
    let counters = || {
        sites.iter().map(|site| {
            let status = status(site);
            format!("{}\n{}", status["drops"], status["counters"])
        })
    };
    assert_eq!(
        report.lost_beyond(dropped),
        0,
        "{dropped} {report:?}\n{}\n{}\n{}",
        a.log(),
        b.log(),
        counters().collect::<Vec<_>>().join("\n")
    );
    assert!(a.log().contains("path MTU to the peers changed from 1330 to 1500 bytes"));
    assert!(a.terminate().success() && b.terminate().success());
}

#[test]
fn packet_sockets_follow_the_mtu_of_their_interface() {
    follows("af_packet");
}

#[test]
fn xdp_sockets_follow_the_mtu_of_their_interface() {
    follows("af_xdp");
}

#[test]
fn sockets_and_the_tun_interface_follow_the_mtu_of_the_way_out() {
    follows("socket");
}

/// Filters against forged sources drop what is said in the name of the host that a packet was for.
#[test]
fn who_sent_a_packet_that_is_too_big_hears_it_from_the_gateway() {
    if !can_make_namespaces() {
        return;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sites = ['a', 'b'].map(|side| Plan::simple().write(side, folder.path()));
    let a = Gateway::start(&lab.a.gateway, &sites[0]);
    let _b = Gateway::start(&lab.b.gateway, &sites[1]);
    // Otherwise the kernel says it, as it knows what the interface takes.
    ip(&lab.a.gateway, "link set tun0 mtu 1500");
    let far = lab.b.host_address(Family::V4);
    let said = complaint(&lab.a.host, far, 64, 1472);
    let own = lab.a.gateway_address(Family::V4);
    assert_eq!(said, Some((own, "too big".into())), "{}", a.log());
}

#[test]
fn an_mtu_beyond_all_frames_is_followed_as_far_as_there_is_room_and_the_log_says_so() {
    if !can_make_namespaces() {
        return;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let site = site_of(&Plan::simple(), 'a', folder.path(), "af_packet");
    let a = Gateway::start(&lab.a.gateway, &site);
    ip(&lab.b.gateway, "link set wire mtu 9000");
    ip(&lab.a.gateway, "link set wire mtu 9000");
    wait_for_log(&a, "MTU of interface wire is 9000 bytes now, but the gateway's frames hold");
    wait_for_log(&a, "path MTU to the peers is 9000 bytes");
    let sas = status(&site)["sas"].as_array().unwrap().clone();
    let mtu = sas.iter().find_map(|sa| sa["path_mtu"].as_u64()).unwrap();
    assert!((1501..9000).contains(&mtu), "{mtu}");
}

/// Waits until the log says so.
fn wait_for_log(gateway: &Gateway, words: &str) {
    let begun = Instant::now();
    while !gateway.log().contains(words) {
        assert!(begun.elapsed() < PATIENCE, "{words}\n{}", gateway.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_mtu_beyond_what_xdp_sockets_get_from_the_driver_is_said() {
    if !can_make_namespaces() {
        return;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let site = site_of(&Plan::simple(), 'a', folder.path(), "af_xdp");
    let a = Gateway::start(&lab.a.gateway, &site);
    ip(&lab.a.gateway, "link set wire mtu 3600");
    wait_for_log(&a, "wire is 3600 bytes now, but the gateway's frames hold 3506");
}

/// Waits until an interface takes packets of so many bytes.
fn wait_for_link(gateway: &Gateway, namespace: &Namespace, link: &str, mtu: u32) {
    let begun = Instant::now();
    let show = || ip(namespace, &format!("link show {link}"));
    while !show().contains(&format!(" mtu {mtu} ")) {
        assert!(begun.elapsed() < PATIENCE, "{mtu}: {}{}", show(), gateway.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn sas_of_daemons_follow_the_routes_to_their_peers() {
    let config = TopologyConfig { wire_mtu: 9000, lan_mtu: 9000, ..TopologyConfig::default() };
    let Some(world) = World::start_on(&config) else { return };
    let sides = [&world.lab.a, &world.lab.b];
    (0..2).for_each(|side| world.make_tunnel(side));
    let gateways = || world.gateways.iter().flatten();
    let follow = |wire: u64, plain: u32| {
        for ((number, side), gateway) in sides.iter().enumerate().zip(gateways()) {
            wait_for(&world.folder(number).join("site.toml"), wire, gateway);
            wait_for_link(gateway, &side.gateway, "convoy0", plain);
        }
    };
    follow(9000, 8946);
    assert_eq!(largest(&world.lab, 2000), Ok(()));
    assert_eq!(largest(&world.lab, 9000), Err(8946));
    // What the operator says of a route counts, without an interface that changes.
    let on_routes = |change: &str| {
        for (near, far) in [(sides[0], sides[1]), (sides[1], sides[0])] {
            ip(
                &near.gateway,
                &format!("route {change}")
                    .replace("PEER", &far.wire_address(Family::V4).to_string()),
            );
        }
    };
    on_routes("add PEER/32 dev wire mtu 1300");
    follow(1300, 1246);
    assert_eq!(largest(&world.lab, 1300), Err(1246));
    on_routes("del PEER/32");
    follow(9000, 8946);
    sides.iter().for_each(|side| drop(ip(&side.gateway, "link set wire mtu 1400")));
    follow(1400, 1346);
    assert_eq!(largest(&world.lab, 1346), Ok(()));
}

/// A TUN interface that cannot be widened now can be later.
#[test]
fn the_tun_interface_follows_as_soon_as_it_can() {
    if !can_make_namespaces() {
        return;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let site = Plan::simple().write('a', folder.path());
    let a = Gateway::start(&lab.a.gateway, &site);
    let rename = |from: &str, to: &str| {
        ip(&lab.a.gateway, &format!("link set {from} down"));
        ip(&lab.a.gateway, &format!("link set {from} name {to}"));
        ip(&lab.a.gateway, &format!("link set {to} up"));
    };
    let wait_for_tun = |mtu| wait_for_link(&a, &lab.a.gateway, "tun0", mtu);
    wait_for_tun(1446);
    rename("tun0", "aside");
    ip(&lab.a.gateway, "link set wire mtu 1400");
    wait_for_log(&a, "interface tun0 does not exist");
    rename("aside", "tun0");
    wait_for_tun(1346);
    // Below the least of a path, nothing follows any more.
    ip(&lab.a.gateway, "link set wire mtu 68");
    wait_for(&site, 576, &a);
    wait_for_tun(522);
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let sum: u32 = bytes.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    (!((sum >> 16) + sum) as u16).to_be_bytes()
}

/// Message of a router about an answer to a ping that was too big for it (RFC 1191 section 4). The kernel
/// believes it without a socket that it concerns.
fn too_big(from: Ipv4Addr, to: Ipv4Addr, mtu: u16) -> Vec<u8> {
    let mut quoted = vec![0x45, 0, 5, 120, 0, 1, 0x40, 0, 64, 1, 0, 0];
    quoted.extend(from.octets().iter().chain(&to.octets()));
    let sum = checksum(&quoted);
    quoted[10..12].copy_from_slice(&sum);
    quoted.extend([0, 0, 0xff, 0xfe, 0, 0, 0, 1]);
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(quoted);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum);
    message
}

/// The kernel believes whoever sends it an ICMP message; SAs ask for a packet of theirs.
#[test]
fn what_the_kernel_was_told_of_a_path_is_not_what_sas_begin_with() {
    if !can_make_namespaces() {
        return;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let site = Plan::simple().write('a', folder.path());
    let a = Gateway::start(&lab.a.gateway, &site);
    wait_for(&site, 1500, &a);
    let [near, far] = [1, 2].map(|host| Ipv4Addr::new(198, 51, 100, host));
    let lie = too_big(near, far, 560);
    let forge = || {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
        socket.send_to(&lie, &SocketAddrV4::new(near, 0).into()).unwrap();
    };
    lab.b.gateway.run(forge).unwrap();
    let is_deceived = || ip(&lab.a.gateway, &format!("route get {far}")).contains("mtu 560");
    let begun = Instant::now();
    while !is_deceived() {
        assert!(begun.elapsed() < PATIENCE, "the kernel was to believe it");
        std::thread::sleep(Duration::from_millis(50));
    }
    // An interface that changes has the gateway look at its routes again.
    ip(&lab.a.gateway, "link set wire mtu 1400");
    wait_for(&site, 1400, &a);
    assert!(is_deceived());
    assert!(!a.log().contains("to 560 bytes"), "{}", a.log());
    // A gateway that starts now is not deceived either.
    assert!(a.terminate().success());
    let again = Gateway::start(&lab.a.gateway, &site);
    assert!(is_deceived());
    wait_for(&site, 1400, &again);
    // What the operator says of a route counts.
    ip(&lab.a.gateway, &format!("route add {far}/32 dev wire mtu 1350"));
    ip(&lab.a.gateway, "link set wire mtu 1500");
    wait_for(&site, 1350, &again);
    assert!(again.terminate().success());
}
