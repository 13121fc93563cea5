//! NAT behind routing, beside IKE daemons: what it gives the addresses of a protected packet goes into the tunnel, as a
//! kernel looks policies up again.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use convoy_host::LinkName;
use convoy_lab::{Family, HOST_LINK, LAN_LINK, WIRE_LINK};
use convoy_leak_protection::{Config, Listener};
use socket2::{Domain, Socket, Type};

use super::beside_daemons::with_daemons;
use super::{World, nothing_in_clear};
use crate::common::{Gateway, PATIENCE, ip, status, text};

/// Host A is in a network that no policy names, and hidden behind an address of one that is protected.
fn world() -> Option<World> {
    let world = World::new(with_daemons)?;
    let (host, gateway) = (&world.lab.a.host, &world.lab.a.gateway);
    ip(host, &format!("address add 192.168.7.2/24 dev {HOST_LINK}"));
    ip(gateway, &format!("address add 192.168.7.1/24 dev {}", LAN_LINK));
    ip(host, "route add 10.2.0.0/24 via 192.168.7.1 src 192.168.7.2");
    // Ahead of those that a site file asks for, which lead past rules for what leaves by the wire.
    let via = world.lab.b.wire_address(Family::V4);
    ip(gateway, &format!("route add 10.2.0.0/24 via {via}"));
    let rule = format!(
        "add table ip n ; add chain ip n post {{ type nat hook postrouting priority 100 ; }} ; \
         add rule ip n post oifname {WIRE_LINK} ip saddr 192.168.7.0/24 snat to 10.1.0.77"
    );
    let mut nft = Command::new("nft");
    nft.args(rule.split(' ')).stderr(Stdio::piped());
    match gateway.spawn(&mut nft).map(|nft| nft.wait_with_output().unwrap()) {
        Ok(done) if done.status.success() => return Some(world),
        Ok(done) => println!("SKIPPED: nothing changes addresses here: {}", text(&done.stderr)),
        Err(error) => println!("SKIPPED: no nft: {error}"),
    }
    None
}

/// Waits until a ping from the hidden host is answered, as often as all are.
fn wait_for_all(world: &World, gateway: &Gateway) {
    let begun = Instant::now();
    while world.answers() < 5 {
        assert!(begun.elapsed() < PATIENCE, "no way:\n{}", gateway.log());
    }
}

/// A megabyte there and back by one connection.
fn carries_tcp(world: &World) {
    let at = SocketAddr::new(world.lab.b.host_address(Family::V4), 80);
    let listener = world.lab.b.host.run(|| TcpListener::bind(at).unwrap()).unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, from) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
        from
    });
    let sent: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[(n % 3) as usize]).collect();
    let make = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let socket = world.lab.a.host.run(make).unwrap();
    socket.connect_timeout(&at.into(), PATIENCE).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(back == sent, "{} bytes came back", back.len());
    assert_eq!(served.join().unwrap().ip().to_string(), "10.1.0.77");
}

#[test]
fn what_source_nat_makes_a_protected_packet_takes_the_tunnel_and_no_other_way() {
    let Some(world) = world() else { return };
    for _ in 0..2 {
        let [a, b] = world.start();
        let report = world.captured(&world.lab.b.gateway, WIRE_LINK, || {
            wait_for_all(&world, &a);
            carries_tcp(&world);
        });
        nothing_in_clear(&report);
        assert!(report.protected() > 700, "{}", a.log());
        let told = status(&world.sites[0])["leak_protection"]["detail"].to_string();
        assert!(
            told.contains("behind NAT: ") && told.contains("dropped 0 outbound packets"),
            "{told}"
        );
        a.kill();
        nothing_in_clear(&world.wire());
        drop(b);
    }
}

#[test]
fn where_nat_cannot_be_followed_its_packets_are_dropped_and_status_says_so() {
    let Some(world) = world() else { return };
    let other = || Listener::open(&Config::new(LinkName::new("convoy0").unwrap()));
    let other = match world.lab.a.gateway.run(other).unwrap() {
        Ok(other) => other,
        Err(error) => return println!("SKIPPED: this kernel hands no packets over: {error}"),
    };
    let gateways = [&world.lab.a.gateway, &world.lab.b.gateway];
    let [a, _b] = [0, 1].map(|n| Gateway::start(gateways[n], &world.sites[n]));
    let report = world.captured(&world.lab.b.gateway, WIRE_LINK, || assert_eq!(world.answers(), 0));
    nothing_in_clear(&report);
    let told = status(&world.sites[0]).to_string();
    assert!(
        told.contains(
            "packets to which NAT gives the addresses of protected ones cannot be led into tunnels"
        ),
        "{told}"
    );
    drop(other);
    // It is tried again.
    let begun = Instant::now();
    while world.answers() < 5 {
        let log = || a.log();
        assert!(begun.elapsed() < PATIENCE + Duration::from_secs(10), "{}", log());
    }
    let told = status(&world.sites[0]).to_string();
    assert!(!told.contains("cannot be led into tunnels"), "{told}");
}
