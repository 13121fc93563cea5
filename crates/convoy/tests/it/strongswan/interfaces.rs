//! Route-based: tunnels for everything, each with an interface of its own, and routes that choose.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use convoy_host::{LinkName, Network};
use convoy_lab::strongswan::{Child, Connection};
use convoy_lab::{Capture, CaptureConfig, Family, Namespace};
use serde_json::json;
use tempfile::TempDir;

use super::world::{FAMILIES, LIMIT, Plane, World};
use crate::common::{Gateway, segment_sizes, text};

const INTERFACES: &str = "[[xfrm.interface]]\nname = \"ipsec0\"\nif_id = 42\n\
                          [[xfrm.interface]]\nname = \"ipsec1\"\nif_id = 43\naddresses = \"fd00:ff::1/64\"\n";
/// A child for each interface. Their selectors are the same: everything.
const CHILDREN: [(&str, &str); 2] = [("net", "42"), ("other", "43")];

/// With SAs that outlive gateways in a folder in memory.
fn start() -> Option<(World, TempDir)> {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let state = format!("state = \"{}/NAME\"\n{INTERFACES}", memory.path().display());
    let mut world = World::start_with([Plane::Convoy; 2], &state)?;
    for side in 0..2 {
        let connections = CHILDREN.map(|(name, if_id)| connection(&world, side, name, if_id));
        world.daemons[side].as_mut().unwrap().reload(connections.to_vec()).unwrap();
    }
    for (child, _) in CHILDREN {
        world.daemon(0).initiate(child, LIMIT).unwrap();
        world.daemon(1).wait_installed(child, LIMIT).unwrap();
    }
    Some((world, memory))
}

/// Of identities of its own: to children of one connection a responder could not tell which is meant.
fn connection(world: &World, side: usize, name: &str, if_id: &str) -> Connection {
    let mut connection = world.connection(side, Family::V4);
    let all = ["0.0.0.0/0", "::/0"].map(str::to_owned).to_vec();
    connection.name = format!("peers-{name}");
    for id in [&mut connection.local_id, &mut connection.remote_id] {
        *id = format!("{id}.{name}");
    }
    connection.children = vec![Child {
        local_ts: all.clone(),
        remote_ts: all,
        more: ["if_id_in", "if_id_out"].map(|key| (key.into(), if_id.into())).to_vec(),
        ..Child::new(name, "", "")
    }];
    connection
}

/// The far networks are routed into an interface on both sides, as their owner would.
fn route(world: &World, interface: &str) {
    for side in 0..2 {
        for family in FAMILIES {
            let network = world.site(1 - side).network(family).to_string();
            let version = if family == Family::V4 { "-4" } else { "-6" };
            let words = [version, "route", "replace", &network, "dev", interface];
            run(world.gateway(side), Command::new("ip").args(words));
        }
    }
}

fn run(namespace: &Namespace, command: &mut Command) -> String {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = namespace.spawn(command).unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn status(world: &World) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
    command.arg("status").arg(&world.sites[0]).stdout(Stdio::piped());
    text(&world.gateway(0).spawn(&mut command).unwrap().wait_with_output().unwrap().stdout)
}

/// The trace of a packet between the hosts; its interface is not given.
fn trace(world: &World) -> serde_json::Value {
    let [from, to] =
        [&world.lab.a, &world.lab.b].map(|site| site.host_address(Family::V4).to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
    command.arg("trace").arg(&world.sites[0]).args(["--from", &from, "--to", &to, "--json"]);
    serde_json::from_str(&run(world.gateway(0), &mut command)).unwrap()
}

fn mtu(namespace: &Namespace, interface: &str) -> Option<u32> {
    let name = LinkName::new(interface).unwrap();
    namespace.run(|| Network::open().unwrap().link(&name).ok().map(|link| link.mtu)).unwrap()
}

fn ping_all(world: &World) {
    for family in FAMILIES {
        let to = world.lab.b.host_address(family);
        assert_eq!(World::ping(&world.lab.a.host, to, 4), 4, "{to}{}", world.logs(0));
    }
}

/// Packets of a child's SA that were sent.
fn sent(world: &World, child: &str) -> u64 {
    world.daemon(0).installed(child).unwrap().iter().map(|sa| sa.packets_out).sum()
}

#[test]
fn routes_into_interfaces_choose_among_tunnels_for_everything() {
    let Some((mut world, _memory)) = start() else { return };
    let seen = tempfile::NamedTempFile::new().unwrap();
    let config = CaptureConfig::default();
    let capture = Capture::start(world.gateway(0), "ipsec0", seen.path(), config).unwrap();
    for (n, (child, _)) in CHILDREN.into_iter().enumerate() {
        route(&world, &format!("ipsec{n}"));
        let other = CHILDREN[1 - n].0;
        let before = (sent(&world, child), sent(&world, other));
        ping_all(&world);
        let more = (sent(&world, child) - before.0, sent(&world, other) - before.1);
        // The kernel looks for IPv6 routers behind each interface by itself.
        assert!((8..12).contains(&more.0) && more.1 < 4, "{more:?}");
        let traced = trace(&world);
        let way =
            (&traced["host"]["route"]["link"], &traced["host"]["fate"], &traced["packet"]["if_id"]);
        let if_id = 42 + n;
        assert_eq!(
            way,
            (&json!(format!("ipsec{n}")), &json!("into-tunnel"), &json!(if_id)),
            "{traced}"
        );
        assert!(traced["sa"].is_object(), "{traced}");
    }
    // 1500 bytes without the outer IPv4 header, ESP's own, its IV and ICV, and the trailer.
    let until = Instant::now() + LIMIT;
    let ends = [0, 1].map(|side| ["ipsec0", "ipsec1"].map(|name| (side, name)));
    for (side, name) in ends.into_iter().flatten() {
        while mtu(world.gateway(side), name) != Some(1446) {
            assert!(Instant::now() < until, "{name}: {:?}", mtu(world.gateway(side), name));
            thread::sleep(Duration::from_millis(50));
        }
    }
    let sizes = segment_sizes(&world.lab);
    // What fits 1446 bytes behind headers of IPv4 and TCP, which has timestamps.
    assert_eq!(sizes, [1446 - 20 - 20 - 12; 2]);
    let mut sa = Command::new(env!("CARGO_BIN_EXE_convoy"));
    let shown = run(world.gateway(0), sa.arg("sa").arg(&world.sites[0]));
    let row = |line: &&str| CHILDREN.iter().any(|(_, if_id)| line.trim_end().ends_with(if_id));
    assert_eq!(
        (shown.matches("if_id").count(), shown.lines().filter(row).count()),
        (2, 4),
        "{shown}"
    );
    // What is in the tunnel is plain to see on its interface, and nowhere else.
    assert_eq!(capture.stop().unwrap().dropped, 0);
    let bytes = std::fs::read(seen.path()).unwrap();
    assert!(bytes.len() > 24 + 16 * 84, "only {} bytes were captured", bytes.len());
    world.assert_nothing_in_the_clear();
}

/// As with a kernel's interfaces, what is routed into one goes nowhere else, also while there is no
/// gateway.
#[test]
fn interfaces_and_routes_into_them_outlive_a_gateway_that_is_killed() {
    let Some((mut world, _memory)) = start() else { return };
    route(&world, "ipsec0");
    let everywhere = "0.0.0.0/0".parse().unwrap();
    let beyond = world.lab.b.wire_address(Family::V4);
    world.lab.a.gateway.add_route(everywhere, beyond).unwrap();
    ping_all(&world);
    world.gateways[0].take().map(Gateway::kill).unwrap();
    let to = world.lab.b.host_address(Family::V4);
    assert_eq!(World::ping(&world.lab.a.host, to, 4), 0);
    assert!(mtu(world.gateway(0), "ipsec0").is_some());
    world.start_gateway(0);
    // Numbers that may have come before the end are not accepted again.
    assert!(World::ping(&world.lab.a.host, to, 100) > 0, "{}", world.logs(0));
    ping_all(&world);
    // One that somebody removes takes no other with it.
    run(world.gateway(0), Command::new("ip").args(["link", "delete", "ipsec1"]));
    ping_all(&world);
    let until = Instant::now() + LIMIT;
    while !status(&world).contains("interface ipsec1 is gone") {
        assert!(Instant::now() < until, "{}", status(&world));
        thread::sleep(Duration::from_millis(100));
    }
    // Also an orderly end leaves them, until they are taken away.
    assert!(world.gateways[0].take().unwrap().terminate().success());
    assert_eq!(World::ping(&world.lab.a.host, to, 4), 0);
    let mut open = Command::new(env!("CARGO_BIN_EXE_convoy"));
    let said = run(world.gateway(0), open.arg("open").arg(&world.sites[0]));
    assert!(said.contains("routes into them: ipsec0"), "{said}");
    assert_eq!(mtu(world.gateway(0), "ipsec0"), None);
    world.start_gateway(0);
    world.assert_nothing_in_the_clear();
}
