//! FRR beside gateways: networks that it learns through a tunnel with an interface of its own, while no gateway runs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use convoy_lab::traffic::{Ping, Watch};
use convoy_lab::{Family, Namespace};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{PATIENCE, ip};
use crate::docs::{block, page};
use crate::keep::World;

const IF_ID: u32 = 42;
const INTERFACE: &str = "[[xfrm.interface]]\nname = \"ipsec0\"\nif_id = 42\n\
                         addresses = [\"10.255.0.SIDE/30\"]\n";
/// Folder of FRR's daemons.
const PROGRAMS: &str = "/usr/lib/frr";
/// A flag nobody sets.
static NEVER: AtomicBool = AtomicBool::new(false);

/// The lines for zebra that the documentation gives.
fn lines_of_the_page() -> String {
    let page = page("docs/route-based.md");
    let (_, section) = page.split_once("## Routing daemons").unwrap();
    block(section, "with these lines for `zebra`")
}

/// The same without one of them.
fn lines_without(line: &str) -> String {
    let all = lines_of_the_page();
    let rest: Vec<_> = all.lines().filter(|it| it.trim() != line).collect();
    assert_eq!(rest.len() + 1, all.lines().count(), "{line} is not one of\n{all}");
    rest.join("\n")
}

/// True if FRR is there; else says so.
fn is_installed() -> bool {
    let programs = [&format!("{PROGRAMS}/zebra"), &format!("{PROGRAMS}/bgpd"), "/usr/bin/vtysh"];
    let missing = programs.into_iter().find(|program| !Path::new(program).exists());
    if let Some(program) = missing {
        println!("SKIPPED: FRR is not installed: {program} is not there");
    }
    missing.is_none()
}

/// FRR on one gateway, with files of its own: it announces the near network to the other gateway.
struct Frr {
    daemons: Vec<Child>,
    folder: TempDir,
}

impl Frr {
    fn start(world: &World, side: usize, zebra: &str) -> Self {
        let (near, far) = (side + 1, 2 - side);
        let network = world.site(side).network(Family::V4);
        let bgpd = format!(
            "router bgp 6500{near}\n bgp router-id 10.255.0.{near}\n no bgp ebgp-requires-policy\n \
             no bgp network import-check\n neighbor 10.255.0.{far} remote-as 6500{far}\n \
             neighbor 10.255.0.{far} timers connect 1\n address-family ipv4 unicast\n  \
             network {network}\n exit-address-family\nexit\n"
        );
        let mut frr = Self { daemons: Vec::new(), folder: tempfile::tempdir().unwrap() };
        // They give up root's rights for those of the package's user.
        let mut chown = Command::new("chown");
        assert!(chown.arg("frr:frr").arg(frr.folder.path()).status().unwrap().success());
        let namespace = &world.site(side).gateway;
        frr.spawn(namespace, "zebra", zebra, &[]);
        wait_until("zebra has a socket", || frr.folder.path().join("zserv.api").exists());
        frr.spawn(namespace, "bgpd", &bgpd, &["-l", &format!("10.255.0.{near}")]);
        frr
    }

    fn spawn(&mut self, namespace: &Namespace, name: &str, lines: &str, more: &[&str]) {
        let folder = self.folder.path();
        let file = |end: &str| folder.join(format!("{name}.{end}"));
        fs::write(file("conf"), lines).unwrap();
        let log = fs::File::create(file("log")).unwrap();
        let mut command = Command::new(format!("{PROGRAMS}/{name}"));
        command.args(["-u", "frr", "-g", "frr", "-A", "127.0.0.1", "-P", "0", "-z"]);
        command.arg(folder.join("zserv.api")).arg("--vty_socket").arg(folder);
        command.arg("-i").arg(file("pid")).arg("-f").arg(file("conf")).args(["--log", "stdout"]);
        command.args(more).stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log);
        self.daemons.push(namespace.spawn(&mut command).unwrap());
    }

    /// Answer of a daemon to a command.
    fn ask(&self, daemon: &str, command: &str) -> Value {
        let mut vtysh = Command::new("/usr/bin/vtysh");
        vtysh.arg("--vty_socket").arg(self.folder.path()).args(["-d", daemon, "-c", command]);
        serde_json::from_slice(&vtysh.output().unwrap().stdout).unwrap_or_default()
    }

    /// True if zebra knows that the interface has no carrier.
    fn sees_no_carrier(&self) -> bool {
        let told = self.ask("zebra", "show interface ipsec0 json");
        told["ipsec0"]["flags"].as_str().is_some_and(|flags| !flags.contains("RUNNING"))
    }

    /// True if there is a session with the other gateway.
    fn has_session(&self) -> bool {
        let told = self.ask("bgpd", "show bgp ipv4 unicast summary json");
        let peers = told["peers"].as_object();
        peers.is_some_and(|peers| peers.values().any(|peer| peer["state"] == "Established"))
    }

    fn log(&self) -> String {
        let mut all = String::new();
        for name in ["zebra", "bgpd"] {
            let log = self.folder.path().join(format!("{name}.log"));
            writeln!(all, "== {name}\n{}", fs::read_to_string(log).unwrap_or_default()).unwrap();
        }
        all
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // The orderly end, by which they remove what they keep beside their files.
            let _ = kill(Pid::from_raw(daemon.id() as i32), Signal::SIGTERM);
            let _ = daemon.wait();
        }
    }
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not after {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The kernel's route of a gateway to the network behind the other one; empty if there is none.
fn learnt(world: &World, side: usize) -> String {
    let network = world.site(1 - side).network(Family::V4);
    ip(&world.site(side).gateway, &format!("route show {network}"))
}

/// Two gateways with a tunnel for everything, and FRR with these lines for zebra, once each has learnt of the other's
/// network.
fn start(zebra: [&str; 2]) -> Option<(World, [Frr; 2])> {
    if !is_installed() {
        return None;
    }
    let world = World::start_by(INTERFACE)?;
    (0..2).for_each(|side| world.make_tunnel_for_all(side, IF_ID));
    let frr = [0, 1].map(|side| Frr::start(&world, side, zebra[side]));
    for (side, daemons) in frr.iter().enumerate() {
        let begun = Instant::now();
        while !learnt(&world, side).contains("dev ipsec0 proto bgp") {
            assert!(begun.elapsed() < PATIENCE, "{}{}", learnt(&world, side), daemons.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
    Some((world, frr))
}

fn ping(world: &World) -> bool {
    let to = world.lab.b.host_address(Family::V4);
    let ping = Ping { count: 1, timeout: Duration::from_millis(300), ..Ping::new(to) };
    ping.run(&world.lab.a.host, &mut Watch::new(&NEVER)).is_ok_and(|report| report.received > 0)
}

#[test]
fn routes_of_frr_stay_while_no_gateway_runs_with_the_lines_of_the_page() {
    let lines = lines_of_the_page();
    let Some((mut world, frr)) = start([&lines; 2]) else { return };
    wait_until("a ping is answered", || ping(&world));
    world.kill(0);
    wait_until("zebra sees no carrier", || frr[0].sees_no_carrier());
    assert!(frr[0].has_session(), "{}", frr[0].log());
    let route = learnt(&world, 0);
    assert!(route.contains("dev ipsec0 proto bgp"), "{route}{}", frr[0].log());
    world.start_with(0, INTERFACE);
    wait_until("a ping is answered", || ping(&world));
    assert!(frr[0].has_session(), "{}", frr[0].log());
}

/// So each of them is needed: without one FRR takes the route away, without the other the kernel.
#[test]
fn routes_of_frr_go_with_the_gateway_without_one_of_the_lines() {
    let lines = ["no link-detect", "no zebra nexthop kernel enable"].map(lines_without);
    let Some((mut world, _frr)) = start([&lines[0], &lines[1]]) else { return };
    (0..2).for_each(|side| world.kill(side));
    for (side, lines) in lines.iter().enumerate() {
        wait_until(&format!("no route with\n{lines}"), || learnt(&world, side).is_empty());
    }
}
