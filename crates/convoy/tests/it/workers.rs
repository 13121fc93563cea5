//! Packets whose SA belongs to another worker than the one whose sockets get them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use convoy_lab::traffic::{Direction, Ping, Rate, UdpPaced, UdpReport, Watch};
use convoy_lab::{Family, Topology, TopologyConfig, WIRE_LINK};
use serde_json::Value;

use crate::common::{Gateway, PATIENCE, Plan, can_make_namespaces, ip, site_of, status};

static NEVER: AtomicBool = AtomicBool::new(false);

/// Two workers, and each SA is that of the one which its SPI does not lead to.
fn crossed(site: &Path) {
    let text = fs::read_to_string(site).unwrap();
    let mut crossed = String::new();
    for line in text.lines() {
        crossed += &format!("{line}\n");
        if let Some(spi) = line.strip_prefix("spi = ") {
            crossed += &format!("worker = {}\n", (spi.parse::<u32>().unwrap() + 1) % 2);
        }
    }
    fs::write(site, crossed).unwrap();
}

/// Datagrams both ways, and what the kernel dropped meanwhile for want of room.
fn traffic(lab: &Topology) -> (UdpReport, u64) {
    let to = lab.b.host_address(Family::V4);
    // What the neighbours' addresses are must be known first.
    let ping = Ping { count: 5, timeout: PATIENCE, ..Ping::new(to) };
    let report = ping.run(&lab.a.host, &mut Watch::new(&NEVER)).unwrap();
    assert_eq!(report.received, 5, "{report:?}");
    let stream = UdpPaced {
        direction: Direction::Both,
        quiet: PATIENCE,
        ..UdpPaced::new(to, Rate::PacketsPerSecond(500), Duration::from_secs(1))
    };
    let run = || stream.run(&lab.a.host, &lab.b.host, &mut Watch::new(&NEVER)).unwrap();
    lab.counting_drops(run).unwrap()
}

/// The packets that a gateway's workers protected and accepted, and those that were handed over.
fn work(status: &Value) -> (Vec<[u64; 2]>, u64) {
    let of = |worker: &Value| {
        ["outbound_packets", "inbound_packets"].map(|key| worker[key].as_u64().unwrap())
    };
    let handed = status["counters"].as_array().unwrap().iter();
    let handed = handed.filter(|count| count["name"] == "worker.handed-off");
    let handed = handed.map(|count| count["value"].as_u64().unwrap()).sum();
    (status["by_worker"].as_array().unwrap().iter().map(of).collect(), handed)
}

fn hands_over(lab: &Topology, sites: [PathBuf; 2], is_led_by_spi: bool) {
    sites.iter().for_each(|site| crossed(site));
    let a = Gateway::start(&lab.a.gateway, &sites[0]);
    let b = Gateway::start(&lab.b.gateway, &sites[1]);
    let (report, dropped) = traffic(lab);
    for flow in [&report.forward, &report.backward] {
        assert!(flow.sent >= 400 && flow.duplicates + flow.damaged == 0, "{flow:?}");
    }
    assert_eq!(report.lost_beyond(dropped), 0, "{report:?}\n{}\n{}", a.log(), b.log());
    // The SAs for packets to B have SPI 0x1001, those for packets to A 0x1000.
    for (site, (out, into)) in sites.iter().zip([(0, 1), (1, 0)]) {
        let status = status(site);
        let (workers, handed) = work(&status);
        assert_eq!(workers.len(), 2, "{status}");
        let (goes, comes) = (workers[out][0], workers[into][1]);
        assert!(goes.min(comes) >= 400, "{workers:?}");
        assert_eq!((workers[1 - out][0], workers[1 - into][1]), (0, 0), "an SA has one owner");
        if is_led_by_spi {
            assert!(handed >= comes, "{handed} of {comes} were handed over");
        }
    }
    assert!(a.terminate().success() && b.terminate().success());
}

fn lab() -> Topology {
    Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap()
}

#[test]
fn raw_and_udp_sockets_hand_over_what_is_of_another_workers_sa() {
    if !can_make_namespaces() {
        return;
    }
    for udp_encap in [false, true] {
        let (lab, folder) = (lab(), tempfile::tempdir().unwrap());
        let plan = Plan { workers: 2, udp_encap, ..Plan::simple() };
        hands_over(&lab, ['a', 'b'].map(|side| plan.write(side, folder.path())), true);
    }
}

#[test]
fn packet_sockets_hand_over_what_is_of_another_workers_sa() {
    if !can_make_namespaces() {
        return;
    }
    let (lab, folder) = (lab(), tempfile::tempdir().unwrap());
    let plan = Plan { workers: 2, ..Plan::simple() };
    let sites = ['a', 'b'].map(|side| site_of(&plan, side, folder.path(), "af_packet"));
    hands_over(&lab, sites, true);
}

/// Frames come to the worker that has their queue.
#[test]
fn xdp_sockets_hand_over_what_is_of_another_workers_sa() {
    if !can_make_namespaces() {
        return;
    }
    let (lab, folder) = (lab(), tempfile::tempdir().unwrap());
    two_queues(&lab);
    let plan = Plan { workers: 2, ..Plan::simple() };
    let sites = ['a', 'b'].map(|side| {
        let site = site_of(&plan, side, folder.path(), "af_xdp");
        let text = fs::read_to_string(&site).unwrap();
        let text = text.replacen("backend = \"af_xdp\"", "backend = \"af_packet\"", 1);
        fs::write(&site, text).unwrap();
        site
    });
    hands_over(&lab, sites, false);
}

/// Another wire with two queues at both ends.
fn two_queues(lab: &Topology) {
    let mut there = Command::new("sleep");
    let mut there = lab.b.gateway.spawn(there.arg("60").stdin(Stdio::null())).unwrap();
    let queues = "numrxqueues 2 numtxqueues 2";
    ip(&lab.a.gateway, &format!("link del {WIRE_LINK}"));
    let peer = format!("peer name {WIRE_LINK} {queues} netns {}", there.id());
    ip(&lab.a.gateway, &format!("link add {WIRE_LINK} {queues} type veth {peer}"));
    for (site, other) in [(&lab.a, &lab.b), (&lab.b, &lab.a)] {
        let (own, peer) = (site.wire_address(Family::V4), other.wire_address(Family::V4));
        assert!(own.is_ipv4() && own != peer);
        ip(&site.gateway, &format!("address add {own}/24 dev {WIRE_LINK}"));
        ip(&site.gateway, &format!("link set {WIRE_LINK} up"));
    }
    there.kill().unwrap();
    there.wait().unwrap();
}
