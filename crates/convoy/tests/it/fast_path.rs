//! Native ESP by AF_XDP beside sockets (`backend = "auto"`), and what has gateways use sockets.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use convoy_lab::traffic::{Ping, Watch};
use convoy_lab::{Capture, CaptureConfig, Family, Namespace, Topology, TopologyConfig, WIRE_LINK};

use crate::common::{
    Gateway, PATIENCE, Plan, can_make_namespaces, convoy, ip, read_pcap, status, text,
};
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

/// Runs a command in a namespace.
fn run(namespace: &Namespace, words: &str) {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let status = namespace
        .run(move || std::process::Command::new(&words[0]).args(&words[1..]).status().unwrap());
    assert!(status.unwrap().success());
}

fn wait_for_way(site: &Path, native: &str, why: &str, gateway: &Gateway) {
    let begun = Instant::now();
    loop {
        let (now, reason) = way(site);
        if now == native && reason.contains(why) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{now}, {reason}\n{}", gateway.log());
    }
}

#[test]
fn packet_sockets_send_where_af_xdp_would_pass_by_what_is_set_up() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan::simple();
    let sites = ['a', 'b'].map(|side| site(&plan, side, folder.path(), ""));
    let ends = [&lab.a.gateway, &lab.b.gateway];
    for end in ends {
        run(end, "tc qdisc replace dev wire root tbf rate 10gbit burst 1mb latency 50ms");
    }
    let gateways = [0, 1].map(|n| Gateway::start(ends[n], &sites[n]));
    for (site, gateway) in sites.iter().zip(&gateways) {
        wait_for_way(site, "af_packet", "queueing discipline tbf", gateway);
        assert_eq!(status(site)["wire"]["mode"], "sending");
        let shown = text(&convoy(&["status", site.to_str().unwrap()]).stdout);
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains("packet sockets send native ESP and AH on wire"), "{shown}");
    }
    let logs = || gateways.each_ref().map(Gateway::log).join("\n");
    let far = lab.b.host_address(Family::V4);
    // The kernel does not know its neighbours yet: a raw socket sends the first ones.
    assert_eq!(answered(&lab.a.host, far, 1), 1, "{}", logs());
    let watched = folder.path().join("wire.pcap");
    let capture = Capture::start(ends[0], WIRE_LINK, &watched, CaptureConfig::default()).unwrap();
    run(ends[0], "nft add table ip others");
    run(ends[0], "nft add chain ip others in { type filter hook input priority 0 ; }");
    assert_eq!(answered(&lab.a.host, far, 20), 20, "{}", logs());
    capture.stop().unwrap();
    assert!(esp_of(&watched) >= 40, "captures see all of it");
    let sent = |site: &Path| {
        let status = status(site);
        let counters = status["counters"].as_array().unwrap().clone();
        let packets = counters.iter().find(|c| c["name"] == "wire.tx-packets");
        packets.and_then(|c| c["value"].as_u64()).unwrap()
    };
    assert!(sent(&sites[0]) >= 20);
    // Its chains see what sockets send.
    run(ends[0], "nft add chain ip others out { type filter hook output priority 0 ; }");
    wait_for_way(&sites[0], "socket", "chain out of table others", &gateways[0]);
    assert_eq!(answered(&lab.a.host, far, 20), 20, "{}", logs());
    run(ends[1], "ip link delete wire");
    wait_for_way(&sites[1], "socket", "", &gateways[1]);
    lab.join_gateways().unwrap();
    let begun = Instant::now();
    while answered_within(&lab.a.host, far, 1, Duration::from_secs(1)) == 0 {
        assert!(begun.elapsed() < PATIENCE, "{}", logs());
    }
}

#[test]
fn sockets_are_used_alone_where_nothing_is_native_or_the_site_says_so() {
    let Some(lab) = lab() else { return };
    let gateway = &lab.a.gateway;
    let plan = Plan::simple();
    let folder = tempfile::tempdir().unwrap();
    let in_udp = Plan { udp_encap: true, ..Plan::simple() };
    let file = site(&in_udp, 'a', folder.path(), "");
    let one = Gateway::start(gateway, &file);
    assert_eq!(way(&file), ("socket".to_owned(), "all SAs are in UDP".to_owned()));
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
    // Gateways look at SAs once a second. These come after the first look.
    std::thread::sleep(Duration::from_millis(1500));
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
        let senders: Vec<_> = read_pcap(&file).iter().map(|frame| frame[26..30].to_vec()).collect();
        assert!(begun.elapsed() < PATIENCE, "{senders:?}\n{}", logs());
    }
}
