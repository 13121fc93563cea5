//! Native ESP by AF_XDP beside sockets (`backend = "auto"`), and what has gateways use sockets.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use convoy_lab::traffic::{Ping, Watch};
use convoy_lab::{Capture, CaptureConfig, Family, Namespace, Topology, TopologyConfig, WIRE_LINK};

use crate::common::{Gateway, PATIENCE, Plan, can_make_namespaces, ip, read_pcap, status};
use crate::keep::World;

/// The site of one side, with a [wire] section.
fn site(plan: &Plan, side: char, folder: &Path, wire: &str) -> PathBuf {
    let path = plan.write(side, folder);
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replace("[wire]\nbackend = \"socket\"\n", "");
    fs::write(&path, text.replace("[workers]", &format!("[wire]\n{wire}[workers]"))).unwrap();
    path
}

fn lab() -> Option<Topology> {
    let config = TopologyConfig { named: false, ..TopologyConfig::default() };
    can_make_namespaces().then(|| Topology::build(&config).unwrap())
}

fn answered(from: &Namespace, to: IpAddr, count: u16) -> u64 {
    answered_within(from, to, count, PATIENCE)
}

fn answered_within(from: &Namespace, to: IpAddr, count: u16, timeout: Duration) -> u64 {
    let (cancel, interval) = (AtomicBool::new(false), Duration::from_millis(20));
    let ping = Ping { count, interval, timeout, ..Ping::new(to) };
    ping.run(from, &mut Watch::new(&cancel)).unwrap().received
}

/// Number of IPv4 packets with ESP in a capture of Ethernet frames.
fn esp_of(capture: &Path) -> usize {
    let is_esp = |frame: &Vec<u8>| frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&50);
    read_pcap(capture).iter().filter(|frame| is_esp(frame)).count()
}

/// Way of native ESP, and the reason of it.
fn way(site: &Path) -> (String, String) {
    let wire = &status(site)["wire"];
    let text = |key: &str| wire[key].as_str().unwrap_or_default().to_owned();
    (text("native"), text("reason"))
}

#[test]
fn native_esp_goes_by_af_xdp_and_by_sockets_when_the_interface_is_gone() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan::simple();
    let sites = ['a', 'b'].map(|side| site(&plan, side, folder.path(), ""));
    let start = |namespace: &Namespace, site: &PathBuf| Gateway::start(namespace, site);
    let (a, b) = (start(&lab.a.gateway, &sites[0]), start(&lab.b.gateway, &sites[1]));
    for site in &sites {
        let wire = status(site)["wire"].clone();
        assert_eq!(
            (&wire["backend"], &wire["native"]),
            (&"auto".into(), &"af_xdp".into()),
            "{wire}"
        );
        assert_eq!((&wire["interface"], &wire["has_sockets"]), (&WIRE_LINK.into(), &true.into()));
        assert_eq!(wire["mode"], "native, copied");
    }
    let far = lab.b.host_address(Family::V4);
    // The kernels do not know each other yet: sockets send the first ones.
    assert_eq!(answered(&lab.a.host, far, 1), 1, "{}\n{}", a.log(), b.log());
    let watched = folder.path().join("wire.pcap");
    let capture = Capture::start(&lab.a.gateway, WIRE_LINK, &watched, CaptureConfig::default());
    let capture = capture.unwrap();
    assert_eq!(answered(&lab.a.host, far, 20), 20, "{}\n{}", a.log(), b.log());
    capture.stop().unwrap();
    // Few passed the kernels.
    let by_sockets = esp_of(&watched);
    assert!(by_sockets < 20, "{by_sockets} of 40 by sockets");
    // Its routes are those of the kernel, for the addresses of the SA.
    ip(&lab.a.gateway, "route add unreachable 198.51.100.2 table 77");
    ip(&lab.a.gateway, "rule add from 198.51.100.1 lookup 77");
    let begun = Instant::now();
    while answered_within(&lab.a.host, far, 1, Duration::from_millis(200)) > 0 {
        assert!(begun.elapsed() < PATIENCE, "{}", a.log());
    }
    ip(&lab.a.gateway, "rule delete from 198.51.100.1 lookup 77");
    // Its neighbours are those of the kernel.
    ip(&lab.a.gateway, "neigh flush dev wire");
    assert_eq!(answered(&lab.a.host, far, 3), 3);

    ip(&lab.a.gateway, "link delete wire");
    for (gateway, site) in [(&a, &sites[0]), (&b, &sites[1])] {
        let begun = Instant::now();
        while way(site).0 != "socket" {
            assert!(begun.elapsed() < PATIENCE, "{}", gateway.log());
        }
        let told = "go by sockets from now on: interface wire was removed";
        assert!(gateway.log().contains(told), "{}", gateway.log());
    }
    lab.join_gateways().unwrap();
    // Gateways look once a second whether their addresses are back.
    let begun = Instant::now();
    while answered_within(&lab.a.host, far, 1, Duration::from_secs(1)) == 0
        || sites.iter().any(|site| way(site).0 != "af_xdp")
    {
        assert!(begun.elapsed() < PATIENCE, "{}\n{}", a.log(), b.log());
    }
    assert_eq!(answered(&lab.a.host, far, 20), 20, "{}\n{}", a.log(), b.log());
}

#[test]
fn what_af_xdp_would_pass_by_has_sockets_used() {
    let Some(lab) = lab() else { return };
    let gateway = &lab.a.gateway;
    let run = |words: &str| {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let status = gateway
            .run(move || std::process::Command::new(&words[0]).args(&words[1..]).status().unwrap());
        assert!(status.unwrap().success());
    };
    let plan = Plan::simple();
    let folder = tempfile::tempdir().unwrap();
    let file = site(&plan, 'a', folder.path(), "");
    let in_udp = Plan { udp_encap: true, ..Plan::simple() };
    run("tc qdisc replace dev wire root tbf rate 1gbit burst 1mb latency 50ms");
    let one = Gateway::start(gateway, &file);
    let (native, why) = way(&file);
    assert_eq!(native, "socket", "{}", one.log());
    assert!(why.contains("queueing discipline tbf"), "{why}");
    drop(one);
    run("tc qdisc delete dev wire root");
    run("nft add table ip others");
    run("nft add chain ip others in { type filter hook input priority 0 ; }");
    let one = Gateway::start(gateway, &file);
    assert!(way(&file).1.contains("chain in of table others"), "{}", way(&file).1);
    drop(one);
    run("nft delete table ip others");
    let file = site(&in_udp, 'a', folder.path(), "");
    let one = Gateway::start(gateway, &file);
    assert!(way(&file).1.contains("in UDP"), "{}", way(&file).1);
    drop(one);
    let file = site(&plan, 'a', folder.path(), "backend = \"socket\"\n");
    let _one = Gateway::start(gateway, &file);
    assert_eq!(way(&file), ("socket".to_owned(), String::new()));
}

#[test]
fn daemons_sas_go_by_af_xdp_where_the_site_asks_for_it() {
    daemons_sas_go_by_af_xdp("[wire]\nbackend = \"af_xdp\"\ninterface = \"wire\"\n");
}

#[test]
fn daemons_sas_go_by_af_xdp_from_the_first_one_on() {
    daemons_sas_go_by_af_xdp("[wire]\nbackend = \"auto\"\n");
}

fn daemons_sas_go_by_af_xdp(wire: &str) {
    let Some(world) = World::start_by(wire) else { return };
    (0..2).for_each(|side| world.make_tunnel(side));
    let logs = || world.gateways.iter().flatten().map(Gateway::log).collect::<Vec<_>>().join("\n");
    for side in 0..2 {
        let site = world.folder(side).join("site.toml");
        let begun = Instant::now();
        while way(&site) != ("af_xdp".to_owned(), String::new()) {
            assert!(begun.elapsed() < PATIENCE, "{}", logs());
        }
    }
    let far = world.lab.b.host_address(Family::V4);
    assert_eq!(answered(&world.lab.a.host, far, 5), 5, "{}", logs());
    // Routes to the peers are asked for once a second.
    let file = world.folder(0).join("wire.pcap");
    let begun = Instant::now();
    loop {
        let gateway = &world.lab.a.gateway;
        let capture = Capture::start(gateway, WIRE_LINK, &file, CaptureConfig::default()).unwrap();
        assert_eq!(answered(&world.lab.a.host, far, 10), 10, "{}", logs());
        capture.stop().unwrap();
        if esp_of(&file) == 0 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", logs());
    }
}
