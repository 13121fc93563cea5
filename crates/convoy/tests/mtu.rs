//! MTUs that change while packets flow.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Gateway, PATIENCE, Plan, can_make_namespaces, ip, site_of, status};
use convoy_lab::traffic::{Direction, Ping, PingTrouble, Rate, UdpPaced, Watch};
use convoy_lab::{Family, Topology, TopologyConfig};

/// Bytes of an IPv4 header and that of an echo.
const HEADERS: usize = 28;

/// Asks until `size` bytes are answered, or their sender is told how many would be.
fn largest(lab: &Topology, size: usize) -> Result<(), u32> {
    let cancel = AtomicBool::new(false);
    let far = lab.b.host_address(Family::V4);
    let begun = Instant::now();
    loop {
        // What the host has learned of the path, it heeds.
        ip(&lab.a.host, "route flush cache");
        let ping = Ping { count: 1, payload: size - HEADERS, ..Ping::new(far) };
        let report = ping.run(&lab.a.host, &mut Watch::new(&cancel)).unwrap();
        match report.troubles.first() {
            Some(PingTrouble::TooBig { mtu }) => return Err(*mtu),
            _ if report.received > 0 => return Ok(()),
            _ => {}
        }
        assert!(begun.elapsed() < PATIENCE, "{size} bytes: {report:?}");
    }
}

/// Waits until the SA that protects thinks so of its path.
fn wait_for(site: &Path, mtu: u64) {
    let begun = Instant::now();
    loop {
        let sas = status(site)["sas"].as_array().unwrap().clone();
        let all: Vec<_> = sas.iter().filter_map(|sa| sa["path_mtu"].as_u64()).collect();
        if all == [mtu] {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{mtu} bytes, but SAs think {all:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What is inside an outer packet of AES-GCM over IPv4 with 1500 bytes is at most 1446 long.
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
        sites.iter().for_each(|site| wait_for(site, mtu.into()));
    };
    let cancel = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        // Small packets are not concerned.
        let traffic = scope.spawn(|| {
            let udp = UdpPaced {
                payload: 64,
                direction: Direction::Both,
                ..UdpPaced::new(
                    lab.b.host_address(Family::V4),
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
        wait_for(&sites[0], 1330);
        widen(1500);
        assert_eq!(largest(&lab, 1446), Ok(()), "{}\n{}", a.log(), b.log());
        assert_eq!(largest(&lab, 1447), Err(1446), "{}", a.log());
        widen(1400);
        assert_eq!(largest(&lab, 1346), Ok(()), "{}", a.log());
        assert_eq!(largest(&lab, 1400), Err(1346), "{}", a.log());
        cancel.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    for flow in [&report.forward, &report.backward] {
        assert!(flow.received > 100, "{report:?}");
        assert_eq!((flow.lost_on_the_way(), flow.duplicates), (0, 0), "{report:?}");
    }
    assert!(a.log().contains("packets to the peers may have 1500 bytes now, not 1330"));
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
    let log = "interface wire takes packets of 9000 bytes now, but there is room for";
    let begun = Instant::now();
    while !a.log().contains(log) {
        assert!(begun.elapsed() < PATIENCE, "{}", a.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(a.log().contains("the way to the peers takes packets of 9000 bytes"), "{}", a.log());
    let sas = status(&site)["sas"].as_array().unwrap().clone();
    let mtu = sas.iter().find_map(|sa| sa["path_mtu"].as_u64()).unwrap();
    assert!((1501..9000).contains(&mtu), "{mtu}");
}
