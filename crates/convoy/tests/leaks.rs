//! Nothing that a site's policies protect leaves in clear, and nothing comes in so: while a gateway runs, after its
//! end however it came, and after somebody changed the host's routes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use common::{Gateway, PATIENCE, Plan, convoy, ip, status, text};
use convoy_lab::traffic::{Ping, Watch};
use convoy_lab::{
    Capture, CaptureConfig, Family, HOST_LINK, Namespace, Topology, TopologyConfig, WIRE_LINK,
    WireReport, wire_report,
};
use nix::sys::socket::{setsockopt, sockopt};
use tempfile::TempDir;

/// Two sites, each with a default route by way of the other, and a folder for files.
struct World {
    lab: Topology,
    folder: TempDir,
    sites: [PathBuf; 2],
}

impl World {
    fn new(change: impl Fn(String) -> String) -> Option<Self> {
        if !common::can_make_namespaces() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let lab = Topology::build(&TopologyConfig { named: false, ..Default::default() }).unwrap();
        for (gateway, via) in [(&lab.a, &lab.b), (&lab.b, &lab.a)] {
            let via = via.wire_address(Family::V4);
            ip(&gateway.gateway, &format!("route add default via {via}"));
        }
        let sites = ['a', 'b'].map(|side| {
            let path = Plan::simple().write(side, folder.path());
            fs::write(&path, change(fs::read_to_string(&path).unwrap())).unwrap();
            path
        });
        Some(Self { lab, folder, sites })
    }

    fn start(&self) -> [Gateway; 2] {
        let gateways = [&self.lab.a.gateway, &self.lab.b.gateway];
        let [a, b] = [0, 1].map(|n| Gateway::start(gateways[n], &self.sites[n]));
        self.wait_for_tunnel(&a);
        [a, b]
    }

    /// Who was killed refuses what a peer sent shortly before, so the first packets may be lost.
    fn wait_for_tunnel(&self, gateway: &Gateway) {
        let begun = Instant::now();
        while self.answers() == 0 {
            assert!(begun.elapsed() < PATIENCE, "no tunnel:\n{}", gateway.log());
        }
    }

    /// How many of a few echo requests from host to host are answered.
    fn answers(&self) -> u64 {
        let cancel = AtomicBool::new(false);
        let ping = Ping {
            count: 5,
            interval: Duration::from_millis(10),
            timeout: Duration::from_millis(300),
            ..Ping::new(self.lab.b.host_address(Family::V4))
        };
        ping.run(&self.lab.a.host, &mut Watch::new(&cancel)).unwrap().received
    }

    /// What is on the wire while host A, and its gateway from its address in the LAN, send to host B.
    fn wire(&self) -> WireReport {
        self.captured(&self.lab.b.gateway, WIRE_LINK, || {
            self.answers();
            self.send_from_gateway(None);
        })
    }

    fn captured(&self, namespace: &Namespace, link: &str, work: impl FnOnce()) -> WireReport {
        let file = self.folder.path().join("captured.pcap");
        let capture = Capture::start(namespace, link, &file, CaptureConfig::default()).unwrap();
        work();
        capture.stop().unwrap();
        let inner = [&self.lab.a, &self.lab.b].map(|site| site.network(Family::V4));
        wire_report(&file, &inner).unwrap()
    }

    /// Datagrams of gateway A, from its address in the LAN, past the routes if an interface is given.
    fn send_from_gateway(&self, link: Option<&str>) {
        let from = SocketAddr::new(self.lab.a.gateway_address(Family::V4), 0);
        let to = SocketAddr::new(self.lab.b.host_address(Family::V4), 9);
        let send = || {
            let socket = UdpSocket::bind(from).unwrap();
            if let Some(link) = link {
                setsockopt(&socket, sockopt::BindToDevice, &link.into()).unwrap();
            }
            // Whatever a send is told, what counts is on the wire.
            (0..5).for_each(|_| drop(socket.send_to(b"from the gateway", to)));
        };
        self.lab.a.gateway.run(send).unwrap();
    }

    fn open(&self, side: usize) {
        let gateway = [&self.lab.a.gateway, &self.lab.b.gateway][side];
        let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
        command.arg("open").arg(&self.sites[side]);
        assert!(gateway.spawn(&mut command).unwrap().wait().unwrap().success());
    }
}

#[track_caller]
fn nothing_in_clear(report: &WireReport) {
    assert_eq!(report.clear, 0, "{}", report.clear_in_words());
}

#[test]
fn what_a_site_protects_stays_closed_however_its_gateway_ends() {
    let Some(world) = World::new(|text| text) else { return };
    // The capture hears what is not held.
    assert!(world.wire().clear >= 5);
    for is_killed in [false, true] {
        let [a, b] = world.start();
        let report = world.wire();
        nothing_in_clear(&report);
        assert!(report.protected() > 0);
        match is_killed {
            true => a.kill(),
            false => {
                assert!(a.terminate().success());
                let log = fs::read_to_string(world.sites[0].with_extension("log")).unwrap();
                assert!(log.contains("stays closed") && log.contains("convoy open"), "{log}");
            }
        }
        nothing_in_clear(&world.wire());
        drop(b);
    }
    world.open(0);
    assert!(world.wire().clear >= 5);
    let rest = ip(&world.lab.a.gateway, "route show table all");
    assert!(!rest.contains("unreachable 10.2."), "{rest}");
    // There is nothing to open twice.
    world.open(0);
}

#[test]
fn no_route_rule_or_socket_leads_past_the_tunnel() {
    let Some(world) = World::new(|text| text) else { return };
    let _gateways = world.start();
    let gateway = &world.lab.a.gateway;
    let via = world.lab.b.wire_address(Family::V4);
    ip(gateway, &format!("route add 10.2.0.0/25 via {via}"));
    nothing_in_clear(&world.wire());
    ip(gateway, "route del 10.2.0.0/25");
    ip(gateway, &format!("route add default via {via} table 77"));
    ip(gateway, "rule add priority 5 lookup 77");
    nothing_in_clear(&world.wire());
    ip(gateway, "rule del priority 5 lookup 77");
    nothing_in_clear(&world.captured(&world.lab.b.gateway, WIRE_LINK, || {
        world.send_from_gateway(Some(WIRE_LINK));
    }));
    let stopped = counter(&world.sites[0], "leak-protection.outbound");
    assert!(stopped >= 15, "{stopped}");
    assert!(world.answers() > 0);
}

fn counter(site: &Path, name: &str) -> u64 {
    // Counters are read about once a second.
    std::thread::sleep(Duration::from_millis(1500));
    let status = status(site);
    let counters = status["counters"].as_array().unwrap();
    let found = counters.iter().find(|counter| counter["name"] == name);
    found.unwrap_or_else(|| panic!("{status}"))["value"].as_u64().unwrap()
}

#[test]
fn routes_that_somebody_flushed_are_laid_again_and_nothing_leaves_meanwhile() {
    let Some(world) = World::new(|text| text) else { return };
    let [a, _b] = world.start();
    let gateway = &world.lab.a.gateway;
    let report = world.captured(&world.lab.b.gateway, WIRE_LINK, || {
        ip(gateway, "route flush table main");
        // The ordinary ones are back at once.
        ip(gateway, "route add 198.51.100.0/24 dev wire");
        ip(gateway, "route add 10.1.0.0/24 dev lan");
        let via = world.lab.b.wire_address(Family::V4);
        ip(gateway, &format!("route add default via {via}"));
        world.send_from_gateway(None);
        world.wait_for_tunnel(&a);
    });
    nothing_in_clear(&report);
    assert!(a.log().contains("removed the route to 10.2.0.0/24"), "{}", a.log());
    // Also those that are beneath.
    a.kill();
    let routes = ip(gateway, "route show");
    assert!(routes.contains("unreachable 10.2.0.0/24"), "{routes}");
}

#[test]
fn nothing_comes_in_in_clear_from_a_network_behind_a_tunnel() {
    let Some(world) = World::new(|text| text) else { return };
    let [_a, b] = world.start();
    b.kill();
    world.open(1);
    let far = world.lab.b.host_address(Family::V4);
    let to_host = SocketAddr::new(world.lab.a.host_address(Family::V4), 9);
    let to_gateway = SocketAddr::new(world.lab.a.gateway_address(Family::V4), 9);
    let lan = world.captured(&world.lab.a.host, HOST_LINK, || {
        let send = || {
            let socket = UdpSocket::bind(SocketAddr::new(far, 0)).unwrap();
            for to in [to_host, to_gateway] {
                (0..5).for_each(|_| drop(socket.send_to(b"in clear", to)));
            }
        };
        world.lab.b.host.run(send).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    });
    nothing_in_clear(&lan);
    let refused = counter(&world.sites[0], "leak-protection.inbound");
    assert!(refused >= 10, "{refused}");
}

#[test]
fn a_site_can_do_without_and_says_so() {
    let Some(world) = World::new(|text| format!("leak_protection = false\n{text}")) else { return };
    let checked = convoy(&["check", world.sites[0].to_str().unwrap()]);
    let said = text(&checked.stderr);
    assert!(said.contains("leak_protection") && said.contains("in clear"), "{said}");
    let [a, _b] = world.start();
    let report = status(&world.sites[0]);
    assert_eq!(report["leak_protection"]["is_on"], false, "{report}");
    let shown = text(&convoy(&["status", world.sites[0].to_str().unwrap()]).stdout);
    assert!(shown.contains("leak protection  off: leak_protection = false"), "{shown}");
    assert!(a.terminate().success());
    assert!(world.wire().clear >= 5);
}

#[test]
fn a_reload_closes_and_opens_what_policies_say() {
    let Some(world) = World::new(|text| text) else { return };
    let [a, _b] = world.start();
    let path = &world.sites[0];
    let text_before = fs::read_to_string(path).unwrap();
    let reload = |remote: &str| {
        let elsewhere =
            text_before.replace("remote = \"10.2.0.0/24\"", &format!("remote = {remote}"));
        fs::write(path, elsewhere).unwrap();
        let output = convoy(&["reload", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    let state = || ip(&world.lab.a.gateway, "route show");
    reload("[\"10.2.0.0/24\", \"10.7.0.0/16\"]");
    assert!(state().contains("unreachable 10.7.0.0/16"), "{}", state());
    nothing_in_clear(&world.wire());
    // Nobody protects host B any more: it is reached in clear.
    reload("[\"10.7.0.0/16\"]");
    assert!(!state().contains("unreachable 10.2.0.0/24"), "{}", state());
    assert!(world.wire().clear >= 5);
    reload("[\"10.2.0.0/24\"]");
    nothing_in_clear(&world.wire());
    assert!(world.answers() > 0, "{}", a.log());
}

#[test]
fn another_interface_or_kind_of_gateway_leaves_nothing_of_the_earlier_one() {
    let Some(world) = World::new(|text| text) else { return };
    let site = &world.sites[0];
    let gateway = &world.lab.a.gateway;
    world.start().into_iter().for_each(Gateway::kill);
    let text_before = fs::read_to_string(site).unwrap();
    fs::write(site, text_before.replace("tun0", "tun7")).unwrap();
    let a = Gateway::start(gateway, site);
    let said = a.log();
    assert!(
        said.contains("stands for interface tun0") && said.contains("--interface tun0"),
        "{said}"
    );
    a.kill();
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
    command.arg("open").arg(site).args(["--interface", "tun0"]);
    assert!(gateway.spawn(&mut command).unwrap().wait().unwrap().success());
    nothing_in_clear(&world.wire());
    // One for daemons, under the name that is left.
    let folder = world.folder.path().display();
    let daemons = format!(
        "name = \"d\"\ncontrol_socket = \"{folder}/a.sock\"\n[plain]\ninterface = \"tun7\"\n\
         [xfrm]\nsocket = \"{folder}/xfrm.sock\"\n"
    );
    fs::write(site, daemons).unwrap();
    assert!(Gateway::start(gateway, site).terminate().success());
    let routes = ip(gateway, "route show table all");
    assert!(!routes.contains("unreachable 10."), "{routes}");
    assert!(world.wire().clear >= 5);
}

#[test]
fn a_policy_for_everything_without_routes_is_refused_and_nothing_changes() {
    let everything = |text: String| {
        text.replace("10.1.0.0/24", "0.0.0.0/0")
            .replace("10.2.0.0/24", "0.0.0.0/0")
            .replace("[plain]\n", "[plain]\nroutes = \"none\"\n")
    };
    let Some(world) = World::new(everything) else { return };
    let checked = convoy(&["check", world.sites[0].to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(2));
    let mut a = Gateway::launch(&world.lab.a.gateway, &world.sites[0]);
    assert!(!a.wait_ready());
    assert_eq!(a.wait().code(), Some(2), "{}", a.log());
    let said = text(&checked.stderr) + &a.log();
    assert_eq!(said.matches("leak protection would cut this host off").count(), 2, "{said}");
    assert!(!ip(&world.lab.a.gateway, "route show").contains("unreachable"));
    assert!(world.wire().clear >= 5);
}
