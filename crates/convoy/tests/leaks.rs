//! Nothing that a site's policies protect leaves in clear, and nothing comes in so: while a gateway runs, after its
//! end however it came, and after somebody changed the host's routes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
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
    let a = Gateway::start(gateway, site);
    assert!(a.log().contains("10.2.0.0/24 stay closed"), "{}", a.log());
    let routes = ip(gateway, "route show table all");
    assert!(!routes.contains("unreachable 10."), "{routes}");
    nothing_in_clear(&world.wire());
    assert!(a.terminate().success());
    world.open(0);
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

/// A policy that passes one UDP port of host B, ahead of the one that protects all.
fn with_a_free_port(text: String) -> String {
    let (local, remote, port) = match text.contains("name = \"a\"") {
        true => ("10.1.0.0/24", "10.2.0.0/24", "remote_port"),
        false => ("10.2.0.0/24", "10.1.0.0/24", "local_port"),
    };
    format!(
        "{text}[[policy]]\nname = \"free\"\naction = \"bypass\"\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
         protocol = \"udp\"\n{port} = 9\npriority = 10\n"
    )
}

/// A socket of host A, and whether host B, which sends back what comes to its free port, is reached by it.
struct Caller(UdpSocket);

impl Caller {
    fn new(world: &World) -> Self {
        let socket = world.lab.a.host.run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        Self(socket)
    }

    fn is_answered(&self, world: &World) -> bool {
        let to = SocketAddr::new(world.lab.b.host_address(Family::V4), 9);
        let mut answer = [0; 16];
        (0..5).any(|_| {
            let _ = self.0.send_to(b"is anybody there", to);
            self.0.recv(&mut answer).is_ok()
        })
    }
}

/// Sends back what comes, until it is dropped.
struct Echo(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Echo {
    fn start(world: &World) -> Self {
        let socket = world.lab.b.host.run(|| UdpSocket::bind("0.0.0.0:9").unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut packet = [0; 64];
            while !ends.load(Ordering::Relaxed) {
                if let Ok((len, from)) = socket.recv_from(&mut packet) {
                    let _ = socket.send_to(&packet[..len], from);
                }
            }
        });
        Self(is_over, Some(thread))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(JoinHandle::join);
    }
}

#[test]
fn a_port_that_a_policy_passes_is_reached_in_clear_and_nothing_else_is() {
    let Some(world) = World::new(with_a_free_port) else { return };
    let _echo = Echo::start(&world);
    let [a, b] = world.start();
    let caller = Caller::new(&world);
    let wire = |work: &dyn Fn()| world.captured(&world.lab.b.gateway, WIRE_LINK, work);
    let report = wire(&|| assert!(caller.is_answered(&world), "{}\n{}", a.log(), b.log()));
    assert!(report.clear >= 2, "there and back");
    // The gateway itself, from its address in the LAN; its packets wait for an answer first.
    let speak = || {
        world.send_from_gateway(None);
        std::thread::sleep(Duration::from_millis(300));
    };
    assert!((0..10).any(|_| wire(&speak).clear >= 5));
    let report = wire(&|| assert!(world.answers() > 0));
    nothing_in_clear(&report);
    assert!(report.protected() > 0);
    let detail = status(&world.sites[0])["leak_protection"]["detail"].to_string();
    assert!(detail.contains("asked about 10.2.0.0/24"), "{detail}");
    // Without a gateway what was decided goes on, and nothing else does.
    a.kill();
    assert!(caller.is_answered(&world));
    let another = Caller::new(&world);
    nothing_in_clear(&wire(&|| {
        assert!(!another.is_answered(&world));
        world.answers();
    }));
    let a = Gateway::start(&world.lab.a.gateway, &world.sites[0]);
    assert!(another.is_answered(&world), "{}", a.log());
    world.wait_for_tunnel(&a);
    // The policy goes; so do answers by it, and with them the questions.
    let path = &world.sites[0];
    let all = fs::read_to_string(path).unwrap();
    let (before, _) = all.split_once("[[policy]]\nname = \"free\"").unwrap();
    fs::write(path, before).unwrap();
    let reload = || {
        let output = convoy(&["reload", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    reload();
    nothing_in_clear(&wire(&|| {
        let _ = another.is_answered(&world);
        assert!(world.answers() > 0, "{}", a.log());
    }));
    fs::write(path, &all).unwrap();
    reload();
    assert!(another.is_answered(&world), "{}", a.log());
    assert!(world.answers() > 0, "{}", a.log());
    assert!(a.terminate().success());
    world.open(0);
    let rules = ip(&world.lab.a.gateway, "rule");
    assert!(!rules.contains("fwmark"), "{rules}");
    drop(b);
}

#[test]
fn what_the_kernel_asks_is_answered_from_the_database_of_the_interface() {
    let in_a_database_of_its_own = |text: String| {
        let text = with_a_free_port(text);
        let text = text.replace("[plain]\n", "[plain]\nspd = \"lan\"\n");
        let text = text.replace("[[policy]]\n", "[[policy]]\nspd = \"lan\"\n");
        // The common one passes everything.
        text + "[[policy]]\nname = \"others\"\naction = \"bypass\"\nlocal = \"0.0.0.0/0\"\n\
                remote = \"0.0.0.0/0\"\npriority = 1\n"
    };
    let Some(world) = World::new(in_a_database_of_its_own) else { return };
    let _echo = Echo::start(&world);
    let [a, _b] = world.start();
    let report = world.captured(&world.lab.b.gateway, WIRE_LINK, || {
        assert!(world.answers() > 0, "{}", a.log());
    });
    nothing_in_clear(&report);
    assert!(Caller::new(&world).is_answered(&world), "{}", a.log());
}
