//! Nothing that a site's policies protect leaves in clear, and nothing comes in so: while a gateway runs, after its
//! end however it came, and after somebody changed the host's routes.

mod answering;
mod beside_daemons;
mod connections;
mod errors;
mod faults;
mod kills;
mod nat;
mod promises;
mod removed;
mod reverse_path;

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::{Gateway, PATIENCE, Plan, convoy, ip, status, text};
use convoy_lab::traffic::{Ping, Watch};
use convoy_lab::{
    Capture, CaptureConfig, Family, HOST_LINK, Namespace, Topology, TopologyConfig, WIRE_LINK,
    WireReport, wire_report,
};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use tempfile::TempDir;

/// Two sites, each with a default route by way of the other, and a folder for files.
struct World {
    lab: Topology,
    folder: TempDir,
    sites: [PathBuf; 2],
}

impl World {
    fn new(change: impl Fn(String) -> String) -> Option<Self> {
        if !crate::common::can_make_namespaces() {
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

    /// A gateway that was killed refuses what a peer sent shortly before, so the first packets may be lost.
    fn wait_for_tunnel(&self, gateway: &Gateway) {
        let begun = Instant::now();
        while self.answers() == 0 {
            assert!(begun.elapsed() < PATIENCE, "no tunnel:\n{}", gateway.log());
        }
    }

    /// Number of answers to a few echo requests from host to host.
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

    /// True if host B answers to all of a few requests, once; they may be late before.
    fn is_reached(&self) -> bool {
        (0..20).any(|_| self.answers() == 5)
    }

    /// Traffic on the wire while host A, and its gateway from its address in the LAN, send to host B.
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

    /// Reads the file of side A again.
    fn reload(&self, text_of_file: &str) {
        let path = &self.sites[0];
        fs::write(path, text_of_file).unwrap();
        let output = convoy(&["reload", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// What `convoy open` says.
    fn open(&self, side: usize) -> String {
        let gateway = [&self.lab.a.gateway, &self.lab.b.gateway][side];
        let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
        command.arg("open").arg(&self.sites[side]).stdout(Stdio::piped());
        let output = gateway.spawn(&mut command).unwrap().wait_with_output().unwrap();
        assert!(output.status.success());
        text(&output.stdout)
    }
}

#[track_caller]
fn nothing_in_clear(report: &WireReport) {
    assert_eq!(report.clear, 0, "{}", report.clear_in_words());
}

#[test]
fn what_a_site_protects_stays_closed_however_its_gateway_ends() {
    stays_closed(|text| text);
}

fn stays_closed(change: impl Fn(String) -> String) {
    let Some(world) = World::new(change) else { return };
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
                assert!(
                    log.contains("leak protection stays installed") && log.contains("convoy open"),
                    "{log}"
                );
            }
        }
        nothing_in_clear(&world.wire());
        nothing_in_clear(&world.captured(&world.lab.b.gateway, WIRE_LINK, || {
            world.send_from_gateway(Some(WIRE_LINK));
        }));
        drop(b);
    }
    let log = fs::read_to_string(world.sites[0].with_extension("log")).unwrap();
    assert!(
        !log.contains("stay blocked since the previous run"),
        "its own policies name all: {log}"
    );
    world.open(0);
    assert!(world.wire().clear >= 5);
    let rest = ip(&world.lab.a.gateway, "route show table all");
    assert!(!rest.contains("unreachable 10.2."), "{rest}");
    // There is nothing to open twice.
    world.open(0);
}

/// A disk may not be there, and somebody may have emptied the packet filter: routes are in the way still.
#[test]
fn a_site_is_opened_without_its_state_and_key_files() {
    let Some(world) = World::new(|text| text) else { return };
    let [a, b] = world.start();
    a.kill();
    drop(b);
    let site = &world.sites[0];
    let folder = world.folder.path();
    fs::rename(folder.join("a.state"), folder.join("unmounted")).unwrap();
    let in_file = |line: &str| match line.starts_with("key = ") {
        true => "key_file = \"keys/one\"\n".to_owned(),
        false => format!("{line}\n"),
    };
    let text: String = fs::read_to_string(site).unwrap().lines().map(in_file).collect();
    fs::write(site, text).unwrap();
    assert_eq!(convoy(&["check", site.to_str().unwrap()]).status.code(), Some(2));
    let _ = kills::is_emptied(&world.lab.a.gateway);
    nothing_in_clear(&world.wire());
    let said = world.open(0);
    assert!(said.contains("removed the leak protection of tun0"), "{said}");
    assert!(world.wire().clear >= 5);
    let said = world.open(0);
    assert!(said.contains("nothing to remove: tun0 has no leak protection"), "{said}");
}

#[test]
fn no_route_rule_or_socket_leads_past_the_tunnel() {
    let Some(world) = World::new(|text| text) else { return };
    let _gateways = world.start();
    let gateway = &world.lab.a.gateway;
    let via = world.lab.b.wire_address(Family::V4);
    let to = |world: &World| trace(world, &world.lab.b.host_address(Family::V4).to_string(), &[]);
    let (told, words) = to(&world);
    assert_eq!(
        (&told["host"]["prefixes"], &told["host"]["fate"]),
        (&"whole".into(), &"into-tunnel".into())
    );
    assert_eq!(
        (&told["verdict"]["what"], &told["host"]["mark"]),
        (&"protected".into(), &Value::Null)
    );
    assert!(
        words.contains("local to remote, all protected") && words.contains("dev tun0 (table 254)"),
        "{words}"
    );
    ip(gateway, &format!("route add 10.2.0.0/25 via {via}"));
    nothing_in_clear(&world.wire());
    let (told, words) = to(&world);
    assert_eq!(
        (&told["verdict"]["what"], &told["reason"]["name"]),
        (&"dropped".into(), &"leak-protection".into())
    );
    assert_eq!(told["host"]["fate"], "past-interface", "{words}");
    let said = "leads 10.2.0.0/25 through wire, past Convoy";
    let until = Instant::now() + PATIENCE;
    while !status(&world.sites[0])["health"]["reasons"].to_string().contains(said) {
        assert!(Instant::now() < until, "{}", status(&world.sites[0]));
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
    command.args(["run", "--dry-run"]).arg(&world.sites[0]);
    let planned = gateway.run(|| command.output().unwrap()).unwrap();
    assert!(text(&planned.stderr).contains(said), "{}", text(&planned.stderr));
    assert!(words.contains(&format!("route    via {via} dev {WIRE_LINK}")), "{words}");
    ip(gateway, "route del 10.2.0.0/25");
    ip(gateway, &format!("route add default via {via} table 77"));
    ip(gateway, "rule add priority 5 lookup 77");
    nothing_in_clear(&world.wire());
    ip(gateway, "rule del priority 5 lookup 77");
    nothing_in_clear(&world.captured(&world.lab.b.gateway, WIRE_LINK, || {
        world.send_from_gateway(Some(WIRE_LINK));
    }));
    let names = ["leak-protection.outbound", "leak-protection.past-interface"];
    wait_for_counters(&world.sites[0], names, |[stopped, past]| stopped >= 15 && past == stopped);
    let output = convoy(&["status", world.sites[0].to_str().unwrap()]);
    let said = text(&output.stdout);
    assert!(said.contains("of them led past the interface)"), "{said}");
    assert!(!said.contains("queue full"), "nothing is asked: {said}");
    assert!(world.is_reached());
}

/// Waits until counters are as they should be; those of the packet filter are read about once a second.
fn wait_for_counters<const N: usize>(
    site: &Path,
    names: [&str; N],
    are_right: impl Fn([u64; N]) -> bool,
) {
    let begun = Instant::now();
    loop {
        let status = status(site);
        let counters = status["counters"].as_array().unwrap();
        let counts = names.map(|name| {
            let found = counters.iter().find(|counter| counter["name"] == name);
            found.unwrap_or_else(|| panic!("{status}"))["value"].as_u64().unwrap()
        });
        if are_right(counts) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{names:?} {counts:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
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
    assert!(a.log().contains("the route to 10.2.0.0/24 was removed"), "{}", a.log());
    // Also those that are beneath.
    a.kill();
    let routes = ip(gateway, "route show");
    assert!(routes.contains("unreachable 10.2.0.0/24"), "{routes}");
}

#[test]
fn nothing_comes_in_in_clear_from_a_network_behind_a_tunnel() {
    comes_in(|text| text);
}

fn comes_in(change: impl Fn(String) -> String) {
    let Some(world) = World::new(change) else { return };
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
    wait_for_counters(&world.sites[0], ["leak-protection.inbound"], |[refused]| refused >= 10);
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
    closes_and_opens(|text| text, "main");
}

fn closes_and_opens(change: impl Fn(String) -> String, table: &str) {
    let Some(world) = World::new(change) else { return };
    let [a, _b] = world.start();
    let path = &world.sites[0];
    let text_before = fs::read_to_string(path).unwrap();
    let reload = |remote: &str| {
        world.reload(
            &text_before.replace("remote = \"10.2.0.0/24\"", &format!("remote = {remote}")),
        );
    };
    let state = || ip(&world.lab.a.gateway, &format!("route show table {table}"));
    reload("[\"10.2.0.0/24\", \"10.7.0.0/16\"]");
    assert!(state().contains("unreachable 10.7.0.0/16"), "{}", state());
    nothing_in_clear(&world.wire());
    // Nobody protects host B any more: it is reached in clear.
    reload("[\"10.7.0.0/16\"]");
    assert!(!state().contains("unreachable 10.2.0.0/24"), "{}", state());
    assert!(world.wire().clear >= 5);
    reload("[\"10.2.0.0/24\"]");
    nothing_in_clear(&world.wire());
    assert!(world.is_reached(), "{}", a.log());
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
        said.contains("leak protection of interface tun0 is installed")
            && said.contains("--interface tun0"),
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
    assert!(a.log().contains("10.2.0.0/24 stay blocked"), "{}", a.log());
    let routes = ip(gateway, "route show table all");
    let of_sites = |line: &&str| line.starts_with("unreachable 10.") && !line.contains("table");
    assert_eq!(routes.lines().find(of_sites), None, "{routes}");
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
struct Caller(UdpSocket, AtomicU32);

impl Caller {
    fn new(world: &World) -> Self {
        let socket = world.lab.a.host.run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        Self(socket, AtomicU32::new(0))
    }

    fn is_answered(&self, world: &World) -> bool {
        (0..5).any(|_| self.is_answered_once(world))
    }

    fn is_answered_once(&self, world: &World) -> bool {
        let to = SocketAddr::new(world.lab.b.host_address(Family::V4), 9);
        // Each call has a number: the answer to one before may come late.
        let mut call = *b"anybody there?..";
        call[12..].copy_from_slice(&self.1.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let _ = self.0.send_to(&call, to);
        let mut answer = [0; 16];
        while self.0.recv(&mut answer).is_ok() {
            if answer == call {
                return true;
            }
        }
        false
    }
}

/// Sends back what comes, until it is dropped.
struct Echo(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Echo {
    fn start(world: &World) -> Self {
        Self::at(world, 9)
    }

    fn at(world: &World, port: u16) -> Self {
        let socket = world.lab.b.host.run(|| UdpSocket::bind(("0.0.0.0", port)).unwrap()).unwrap();
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
    passes_a_port(with_a_free_port, "verdicts on 10.2.0.0/24");
}

/// As beside Calico, which uses the upper half of packets' marks, and kube-proxy, which uses two bits below.
const MARKS: &str = "[marks]\nexempt = \"0x00000500/0x00000f00\"\npackets = \"0x000000f0\"\n\
                     flows = \"0xfff00000\"\n";

#[test]
fn a_port_is_passed_by_the_bits_of_marks_that_the_site_file_chooses() {
    let change = |text| with_a_free_port(text).replace("[plain]\n", &format!("{MARKS}[plain]\n"));
    passes_a_port(change, "verdicts on 10.2.0.0/24");
}

#[test]
fn a_reload_does_not_change_bits_of_marks() {
    let Some(world) = World::new(with_a_free_port) else { return };
    let [a, _b] = world.start();
    let path = &world.sites[0];
    let before = fs::read_to_string(path).unwrap();
    fs::write(path, before.replace("[plain]\n", &format!("{MARKS}[plain]\n"))).unwrap();
    let output = convoy(&["reload", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("marks cannot change while the gateway runs"), "{said}");
    assert!(ip(&world.lab.a.gateway, "rule").contains("fwmark 0xc5000000/0xff000000"));
    assert!(a.terminate().success());
    let a = Gateway::start(&world.lab.a.gateway, path);
    world.wait_for_tunnel(&a);
    let rules = ip(&world.lab.a.gateway, "rule");
    let ours = ["0x500/0xf00", "0x10/0x70", "0x20/0x70", "0x30/0x70"];
    assert!(ours.iter().all(|mark| rules.contains(&format!("fwmark {mark} "))), "{rules}");
    assert!(!rules.contains("0xc5000000"), "{rules}");
}

/// Findings about gateway A, in words.
fn doctor(world: &World) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
    command.arg("doctor").arg(&world.sites[0]);
    text(&world.lab.a.gateway.run(|| command.output().unwrap()).unwrap().stdout)
}

#[test]
fn rules_of_others_with_the_same_marks_are_told_at_the_start_and_by_the_doctor() {
    let Some(world) = World::new(with_a_free_port) else { return };
    let rule = "fwmark 0x100000/0xf00000 lookup 77 priority 5000";
    ip(&world.lab.a.gateway, &format!("rule add {rule}"));
    let [a, _b] = world.start();
    let said = "rule 5000 selects packets by fwmark 0x100000/0xf00000, of which 0x00f00000 are marks.packets";
    assert!(a.log().contains(said), "{}", a.log());
    assert!(doctor(&world).contains(said), "{}", doctor(&world));
    ip(&world.lab.a.gateway, &format!("rule del {rule}"));
    assert!(doctor(&world).contains("no other rule uses the same bits"), "{}", doctor(&world));
}

/// Fate of a packet of host A to somewhere, as JSON and in words.
fn trace(world: &World, to: &str, more: &[&str]) -> (Value, String) {
    let from = world.lab.a.host_address(Family::V4).to_string();
    trace_between(world, &from, to, more)
}

/// Prefixes, decision, mark, the interface that it comes in by, and fate.
fn told_of(told: &Value) -> [String; 5] {
    ["prefixes", "decision", "mark", "from_link", "fate"]
        .map(|key| told["host"][key].as_str().unwrap_or_default().to_owned())
}

fn trace_between(world: &World, from: &str, to: &str, more: &[&str]) -> (Value, String) {
    let site = world.sites[0].to_str().unwrap();
    let ask = |last: &[&str]| {
        let words = [&["trace", site, "--from", from, "--to", to][..], more, last].concat();
        let output = convoy(&words);
        assert!(!output.stdout.is_empty(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    (serde_json::from_str(&ask(&["--json"])).unwrap(), ask(&[]))
}

#[test]
fn a_trace_follows_routes_and_what_the_kernel_is_answered() {
    let Some(world) = World::new(with_a_free_port) else { return };
    let [a, _b] = world.start();
    let far = world.lab.b.host_address(Family::V4).to_string();
    let asked = || {
        let policies =
            text(&convoy(&["policy", world.sites[0].to_str().unwrap(), "--json"]).stdout);
        let policies: Value = serde_json::from_str(&policies).unwrap();
        let all = policies["policies"].as_array().unwrap().clone();
        all.iter().map(|policy| policy["asked_out"].as_u64().unwrap()).sum::<u64>()
    };
    let before = asked();
    let (told, words) = trace(&world, &far, &["--proto", "udp", "--dport", "9"]);
    let host = &told["host"];
    assert_eq!(
        (&host["prefixes"], &host["decision"]),
        (&"mixed".into(), &"bypass".into()),
        "{words}"
    );
    assert_eq!(host["mark"], "0x00100000/0x00700000");
    assert_eq!(
        (&host["fate"], &host["route"]["link"]),
        (&"in-clear".into(), &WIRE_LINK.into()),
        "{words}"
    );
    assert_eq!(
        (&told["verdict"]["what"], &told["policy"]["name"]),
        (&"in-clear".into(), &"free".into())
    );
    assert_eq!(told["reason"], Value::Null);
    assert!(
        words.contains(
            "comes in by lan; local to remote, partly bypassed: the kernel requests a verdict"
        ),
        "{words}"
    );
    let (told, words) = trace(&world, &far, &["--proto", "tcp", "--dport", "9"]);
    let host = &told["host"];
    assert_eq!(
        (&host["decision"], &host["fate"]),
        (&"protect".into(), &"into-tunnel".into()),
        "{words}"
    );
    assert_eq!(
        (&host["mark"], &host["route"]["table"]),
        (&"0x00500000/0x00700000".into(), &4511.into())
    );
    assert_eq!(told["verdict"]["what"], "protected", "{words}");
    // Elsewhere nothing is held, and nothing leads there by the gateway.
    let (told, words) = trace(&world, "203.0.113.9", &[]);
    let host = &told["host"];
    assert_eq!(
        (&host["prefixes"], &host["fate"]),
        (&"neither".into(), &"in-clear".into()),
        "{words}"
    );
    assert_eq!(told["verdict"]["what"], "in-clear", "{words}");
    assert_eq!(asked(), before, "a trace is no question of the kernel");
    // A rule of somebody else ahead of those that lead what was answered.
    let via = world.lab.b.wire_address(Family::V4);
    ip(&world.lab.a.gateway, &format!("route add default via {via} table 77"));
    ip(&world.lab.a.gateway, "rule add priority 5 lookup 77");
    let (told, words) = trace(&world, &far, &["--proto", "tcp", "--dport", "9"]);
    assert_eq!(
        (&told["host"]["fate"], &told["host"]["route"]["table"]),
        (&"past-interface".into(), &77.into())
    );
    assert!(words.contains("dropped: a route or rule leads it past the TUN interface"), "{words}");
    ip(&world.lab.a.gateway, "rule del priority 5 lookup 77");
    // What comes in in clear from behind the tunnel, and policies let in: by the wire, as its strict filter takes it.
    let near = world.lab.a.host_address(Family::V4).to_string();
    let own = world.lab.a.gateway_address(Family::V4).to_string();
    let filter_reverse_path = |value: &str| {
        for scope in ["all", WIRE_LINK] {
            let key = format!("/proc/sys/net/ipv4/conf/{scope}/rp_filter");
            world.lab.a.gateway.run(|| fs::write(&key, value).unwrap()).unwrap();
        }
    };
    filter_reverse_path("1");
    let back = ["--proto", "udp", "--sport", "9"];
    let (told, words) = trace_between(&world, &far, &near, &back);
    assert_eq!(
        told_of(&told),
        ["mixed-inbound", "bypass", "0x00100000/0x00700000", WIRE_LINK, "in-clear"],
        "{words}"
    );
    assert_eq!(told["host"]["route"]["link"], "lan", "{words}");
    let (told, words) = trace_between(&world, &far, &own, &back);
    assert_eq!(
        told_of(&told),
        ["mixed-inbound", "bypass", "0x00300000/0x00700000", WIRE_LINK, "for-host"],
        "{words}"
    );
    // Tunnels themselves come in so, where the strict filter does not look for the way back to a far network.
    filter_reverse_path("0");
    let (told, words) = trace_between(&world, &far, &own, &["--proto", "esp"]);
    assert_eq!(told_of(&told), ["admitted", "routed", "", WIRE_LINK, "for-host"], "{words}");
    let (told, words) = trace_between(&world, &far, &own, &["--proto", "udp", "--dport", "500"]);
    assert_eq!(
        told_of(&told),
        ["mixed-inbound", "discard", "", WIRE_LINK, "not-in-clear"],
        "{words}"
    );
    ip(&world.lab.a.gateway, "route del default");
    // Without a way back nobody knows where it comes in.
    let (told, words) = trace_between(&world, &far, &near, &back);
    assert_eq!(told_of(&told)[3], "", "{words}");
    assert!(
        words.contains("comes in by an interface that is not known; remote to local"),
        "{words}"
    );
    let (told, words) = trace_between(&world, &own, &far, &["--proto", "udp", "--dport", "9"]);
    assert!(words.contains("sent by the host itself; local to remote, partly bypassed"), "{words}");
    assert_eq!(
        (&told["host"]["is_own"], &told["host"]["fate"]),
        (&true.into(), &"no-route".into())
    );
    let output =
        convoy(&["trace", world.sites[0].to_str().unwrap(), "--from", &far, "--to", &near]);
    assert_eq!(output.status.code(), Some(1), "{}", a.log());
    let words = text(&output.stdout);
    assert!(
        words.contains("remote to local, in clear, partly bypassed")
            && words.contains("dropped: it comes in"),
        "{words}"
    );
}

/// Of the port that is free some were answered for, and of all else; the policies that decided are known.
fn counts_questions(site: &Path) {
    let of = |report: &Value, way: &str, what: &str| {
        report["leak_protection"]["questions"][way][what]
            .as_u64()
            .unwrap_or_else(|| panic!("{report}"))
    };
    let verdicts = |report: &Value| {
        ["bypassed", "protected", "discarded"].map(|what| of(report, "outbound", what))
    };
    // What the kernel counts is looked at about once a second.
    let until = Instant::now() + PATIENCE;
    let report = loop {
        let report = status(site);
        if of(&report, "outbound", "asked") >= verdicts(&report).iter().sum() {
            break report;
        }
        assert!(Instant::now() < until, "{report}");
        std::thread::sleep(Duration::from_millis(100));
    };
    let of = |way: &str, what: &str| of(&report, way, what);
    let verdicts = verdicts(&report);
    assert!(verdicts[0] > 0 && verdicts[1] > 0, "{report}");
    assert!(of("inbound", "bypassed") > 0, "replies of the echo come in in clear: {report}");
    assert_eq!((of("outbound", "queue_full"), of("outbound", "unread")), (0, 0));
    let shown = text(&convoy(&["status", site.to_str().unwrap()]).stdout);
    assert!(shown.contains("queue full"), "{shown}");
    let output = convoy(&["policy", site.to_str().unwrap(), "--json"]);
    let policies: Value = serde_json::from_slice(&output.stdout).unwrap();
    let asked = |name: &str, way: &str| {
        let all = policies["policies"].as_array().unwrap();
        all.iter().find(|policy| policy["name"] == name).unwrap()[way].as_u64().unwrap()
    };
    assert!(asked("free", "asked_out") > 0 && asked("free", "asked_in") > 0, "{policies}");
    let others: Vec<_> = policies["policies"].as_array().unwrap().iter().collect();
    let protecting = others.iter().find(|policy| policy["action"] == "protect").unwrap();
    assert!(protecting["asked_out"].as_u64() > Some(0), "{policies}");
}

fn passes_a_port(change: impl Fn(String) -> String, said: &str) {
    let Some(world) = World::new(change) else { return };
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
    let report = wire(&|| assert!(world.is_reached()));
    nothing_in_clear(&report);
    assert!(report.protected() > 0);
    let detail = status(&world.sites[0])["leak_protection"]["detail"].to_string();
    assert!(detail.contains(said), "{detail}");
    counts_questions(&world.sites[0]);
    assert!(doctor(&world).contains("table inet convoy-tun0 is installed\n"), "{}", doctor(&world));
    // Without a gateway what was decided goes on, and nothing else does. Flows that are silent are soon
    // forgotten, and a busy machine takes long for a doctor.
    assert!(caller.is_answered(&world));
    a.kill();
    assert!(caller.is_answered(&world));
    assert!(
        doctor(&world).contains("drops protected packets, because no gateway answers"),
        "{}",
        doctor(&world)
    );
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
    world.reload(before);
    nothing_in_clear(&wire(&|| {
        let _ = another.is_answered(&world);
        assert!(world.is_reached(), "{}", a.log());
    }));
    world.reload(&all);
    assert!(another.is_answered(&world), "{}", a.log());
    assert!(world.is_reached(), "{}", a.log());
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
        assert!(world.is_reached(), "{}", a.log());
    });
    nothing_in_clear(&report);
    assert!(Caller::new(&world).is_answered(&world), "{}", a.log());
}
