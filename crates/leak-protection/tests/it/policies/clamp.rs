//! TCP connections through tunnels begin with segments that fit.

use std::{
    net::{IpAddr, TcpListener},
    time::{Duration, Instant},
};

use convoy_host::{Clamp, LinkName};
use nix::sys::socket::{getsockopt, sockopt};

use super::{Counts as _, raise};
use crate::world::World;

/// A port of ours in the far network.
const PORT: u16 = 7;
const SYN: u8 = 2;
const ACK: u8 = 16;
/// Segment size in a SYN of the far side: less than what the LAN takes.
const LARGE: u16 = 1450;

/// A connection that somebody behind the tunnel makes to a host of the LAN: what segment size the host
/// believes in, and what its answer says.
fn connect(world: &World, tun: &mut crate::world::Tun, ends: [&str; 2], size: u16) -> [u16; 2] {
    let [far, near] = ends.map(|end| end.parse::<IpAddr>().unwrap());
    let listener = world.lan.run(|| TcpListener::bind((near, 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    tun.write(&segment(
        [far, near],
        [PORT, port],
        [100, 0],
        SYN,
        &[[2, 4], size.to_be_bytes()].concat(),
    ));
    let until = Instant::now() + Duration::from_secs(20);
    let answer = loop {
        assert!(Instant::now() < until, "no answer from {near}");
        let Some(packet) = tun.read() else { continue };
        let header = if near.is_ipv4() { 20 } else { 40 };
        let tcp = packet.get(header..).unwrap_or_default();
        if tcp.len() >= 24 && tcp[..2] == port.to_be_bytes() && tcp[13] == SYN | ACK {
            assert_eq!(sum([near, far], tcp), 0, "a wrong checksum");
            break tcp.to_vec();
        }
    };
    let sequence = u32::from_be_bytes(answer[4..8].try_into().unwrap());
    assert_eq!(answer[20..22], [2, 4], "the first option is another one");
    let said = u16::from_be_bytes(answer[22..24].try_into().unwrap());
    tun.write(&segment([far, near], [PORT, port], [101, sequence + 1], ACK, &[]));
    let (accepted, _) = listener.accept().unwrap();
    let believed = getsockopt(&accepted, sockopt::TcpMaxSeg).unwrap();
    [u16::try_from(believed).unwrap(), said]
}

fn segment(
    ends: [IpAddr; 2],
    ports: [u16; 2],
    numbers: [u32; 2],
    flags: u8,
    options: &[u8],
) -> Vec<u8> {
    let mut tcp = ports.map(u16::to_be_bytes).concat();
    tcp.extend(numbers.map(u32::to_be_bytes).concat());
    tcp.extend([u8::try_from((20 + options.len()) * 4).unwrap(), flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend(options);
    let checksum = sum(ends, &tcp).to_be_bytes();
    tcp[16..18].copy_from_slice(&checksum);
    let [from, to] = ends.map(bytes);
    let length = u16::try_from(tcp.len()).unwrap();
    let header = if ends[0].is_ipv4() {
        let mut header =
            [&[0x45, 0][..], &(length + 20).to_be_bytes(), &[0, 0, 0, 0, 64, 6, 0, 0], &from, &to]
                .concat();
        let checksum = folded(&header).to_be_bytes();
        header[10..12].copy_from_slice(&checksum);
        header
    } else {
        [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[6, 64], &from, &to].concat()
    };
    [header, tcp].concat()
}

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The checksum of a segment with its pseudo-header; 0 when it has the right one.
fn sum(ends: [IpAddr; 2], tcp: &[u8]) -> u16 {
    let length = u32::try_from(tcp.len()).unwrap().to_be_bytes();
    folded(&[&ends.map(bytes).concat()[..], &length, &[0, 0, 0, 6], tcp].concat())
}

fn folded(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
}

#[test]
fn segments_of_forwarded_connections_fit_the_tunnels() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let ends = [["10.2.0.9", "10.1.0.2"], ["2001:db8:2::9", "2001:db8:0:1::2"]];
    world.gateway.ip("link set convoy0 mtu 1379");
    let routes = ["10.2.0.0/16", "2001:db8:2::/48"];
    let route = |verb: &str| {
        for net in routes {
            world.gateway.ip(&format!("route {verb} {net} dev convoy0"));
        }
    };
    route("add");
    // The oracle: without a clamp it is the LAN's segments that both believe in.
    assert_eq!(connect(&world, &mut tun, ends[0], LARGE), [LARGE, 1460]);
    let mut fence = raise(&world);
    route("del");
    let mut clamp = raised(&world, &[]);
    fence.come(&super::far());
    assert_eq!(connect(&world, &mut tun, ends[0], LARGE), [1339, 1339]);
    assert_eq!(connect(&world, &mut tun, ends[1], LARGE), [1319, 1319]);
    // Never more than was said.
    assert_eq!(connect(&world, &mut tun, ends[0], 600), [600, 1339]);
    // It follows the MTU.
    world.gateway.ip("link set convoy0 mtu 1300");
    clamp.fit(1300).unwrap();
    assert_eq!(connect(&world, &mut tun, ends[0], LARGE), [1260, 1260]);
    assert_eq!(connect(&world, &mut tun, ends[1], LARGE), [1240, 1240]);
}

/// The clamp of a TUN interface of 1379 bytes, and of others.
fn raised(world: &World, others: &[&str]) -> Clamp {
    let others: Vec<_> = others.iter().map(|name| LinkName::new(*name).unwrap()).collect();
    let tun = LinkName::new("convoy0").unwrap();
    let mut clamp = world.gateway.run(|| Clamp::raise(&tun, others).unwrap());
    clamp.fit(1379).unwrap();
    clamp
}

#[test]
fn other_interfaces_are_clamped_when_they_are_named() {
    let Some(world) = World::new() else { return };
    let mut tun = world.gateway.run(|| crate::world::Tun::open("other0"));
    world.gateway.ip("link set other0 up mtu 1379");
    world.gateway.ip("route add 10.2.0.0/16 dev other0");
    let ends = ["10.2.0.9", "10.1.0.2"];
    let clamp = raised(&world, &[]);
    assert_eq!(connect(&world, &mut tun, ends, LARGE), [LARGE, 1460]);
    drop(clamp);
    let clamp = raised(&world, &["other0"]);
    assert_eq!(connect(&world, &mut tun, ends, LARGE), [1339, 1339]);
    drop(clamp);
    assert_eq!(connect(&world, &mut tun, ends, LARGE), [LARGE, 1460]);
}

#[test]
fn where_routes_lead_the_mtu_need_not_be_said() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let ends = ["10.2.0.9", "10.1.0.2"];
    world.gateway.ip("link set convoy0 mtu 1379");
    world.gateway.ip("route add 10.2.0.0/16 dev convoy0");
    let tun_name = LinkName::new("convoy0").unwrap();
    let clamp = world.gateway.run(|| Clamp::raise(&tun_name, []).unwrap());
    assert_eq!(connect(&world, &mut tun, ends, LARGE), [1339, 1339]);
    drop(clamp);
    assert_eq!(connect(&world, &mut tun, ends, LARGE), [LARGE, 1460]);
}
