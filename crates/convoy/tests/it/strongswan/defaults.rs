//! Daemons with the settings they come with: they lay routes of their own past the TUN interface, and
//! still no packet of what they protect leaves in clear, whatever happens.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use convoy_host::IpNet;
use convoy_lab::libreswan::{Conn, Libreswan};
use convoy_lab::strongswan::{Child, Connection, StartAction, StrongSwan};
use convoy_lab::{Family, WIRE_LINK};

use super::traffic::loaded;
use super::world::{FAMILIES, LIMIT, NAMES, Plane, World, launcher};
use crate::common::{ip, libreswan, status};

/// Gateways whose packets go to the other one where nobody protects them.
fn leaky(world: &World) {
    for side in 0..2 {
        default_routes(world, side);
        // Who asks on the wire for addresses behind a gateway is answered.
        let key = format!("net/ipv4/conf/{WIRE_LINK}/proxy_arp");
        world.gateway(side).set_sysctl(&key, "1").unwrap();
    }
}

fn default_routes(world: &World, side: usize) {
    for family in FAMILIES {
        let everywhere = if family == Family::V4 { "0.0.0.0/0" } else { "::/0" };
        let beyond = world.site(1 - side).wire_address(family);
        // A link that was down may have kept it.
        let _ = world.gateway(side).add_route(everywhere.parse().unwrap(), beyond);
    }
}

/// Traffic of hosts and of a gateway itself passes, at the latest after a while.
#[track_caller]
fn passes(world: &World, families: &[Family], what: &str) {
    let until = Instant::now() + LIMIT;
    for family in families {
        let to = world.site(1).host_address(*family);
        for from in [&world.site(0).host, world.gateway(0)] {
            while !World::try_ping(from, to) {
                assert!(Instant::now() < until, "{what}: no way to {to}{}", world.logs(0));
            }
        }
    }
}

/// The doctor finds nothing wrong with the daemon's routes.
#[track_caller]
fn is_well(world: &World, side: usize) {
    let site = world.sites[side].to_str().unwrap();
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_convoy"));
    doctor.args(["doctor", site, "--json"]).stdout(Stdio::piped());
    let doctor = world.gateway(side).spawn(&mut doctor).unwrap().wait_with_output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().iter();
    let routes: Vec<_> = checks.filter(|check| check["about"] == "routes").collect();
    assert!(routes.iter().all(|check| check["level"] != "problem"), "{routes:?}");
}

/// Does something while packets flow; none is asked whether it was lost.
fn under_load(world: &World, work: impl FnOnce(&World)) {
    loaded(world, Duration::from_millis(100), work);
}

fn counter(world: &World, side: usize, name: &str) -> u64 {
    let status = status(&world.sites[side]);
    let counters = status["counters"].as_array().unwrap();
    let found = counters.iter().find(|counter| counter["name"] == name);
    found.and_then(|counter| counter["value"].as_u64()).unwrap_or_else(|| panic!("{status}"))
}

fn trap(world: &World, side: usize) -> Connection {
    let mut connection = world.connection(side, Family::V4);
    connection.children[0].start = StartAction::Trap;
    connection
}

/// Everything that the wire's own interface loses with its link is given back.
fn flap(world: &World, side: usize) {
    let gateway = world.gateway(side);
    gateway.set_down(WIRE_LINK).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    gateway.set_up(WIRE_LINK).unwrap();
    let v6 = world.site(side).wire_address(Family::V6);
    let _ = gateway.add_address(WIRE_LINK, format!("{v6}/64").parse().unwrap());
    default_routes(world, side);
}

#[test]
fn strongswan_with_its_own_routes_lets_nothing_out_whatever_happens() {
    // What daemons negotiated is kept in memory.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let world = World::start_as([Plane::Convoy; 2], folder, "", |charon| charon.own_routes = true);
    let Some(mut world) = world else { return };
    leaky(&world);
    world.load(trap);
    passes(&world, &FAMILIES, "at first");
    let routes = ip(world.gateway(0), "route show table 220");
    assert!(routes.contains("10.2.0.0/24"), "charon laid no routes: {routes}");
    is_well(&world, 0);
    world = acts(world);
    world.assert_nothing_in_the_clear();
}

fn acts(mut world: World) -> World {
    flap_and_rekey(&world, &FAMILIES);
    deaths_of_a_gateway(&mut world, &FAMILIES);
    // Hard limits, and SAs that the next packet makes.
    world.load(|world, side| {
        let mut connection = trap(world, side);
        if side == 0 {
            connection.children[0].more.push(("life_packets".into(), "500".into()));
        }
        connection
    });
    world.daemon(0).terminate_ike("peers").unwrap();
    under_load(&world, |world| {
        let mut id = world.daemon(0).wait_installed("net", LIMIT).unwrap().id;
        for _ in 0..3 {
            id = world.daemon(0).wait_rekeyed("net", id, LIMIT).unwrap().id;
        }
    });
    world.load(trap);
    world.daemon(0).terminate_ike("peers").unwrap();
    passes(&world, &FAMILIES, "with SAs without limits");
    // A daemon's death, and its return.
    let charon = world.daemons[0].take().unwrap();
    let mut config = None;
    under_load(&world, |_| {
        config = Some(charon.kill().unwrap());
        std::thread::sleep(Duration::from_millis(300));
    });
    let mut charon = None;
    under_load(&world, |world| {
        charon = Some(StrongSwan::start(world.gateway(0), config.take().unwrap()).unwrap());
        std::thread::sleep(Duration::from_millis(200));
    });
    world.daemons[0] = charon;
    under_load(&world, |world| passes(world, &FAMILIES, "after a daemon's return"));
    world
}

/// Somebody empties the packet filter, as far as the kernel lets them, and the table of flows.
fn flush(world: &World) {
    let commands = [("nft", &["flush", "ruleset"][..]), ("conntrack", &["-F"])];
    for (program, arguments) in commands {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        match world.gateway(0).spawn(&mut command) {
            Ok(mut child) => drop(child.wait().unwrap()),
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: {program}: {error}");
            }
        }
    }
}

fn flap_and_rekey(world: &World, families: &[Family]) {
    under_load(world, |world| {
        flap(world, 1);
        passes(world, families, "after the link was down");
        flush(world);
        passes(world, families, "after all rules and flows were flushed");
        for _ in 0..3 {
            let before = world.daemon(1).wait_installed("net", LIMIT).unwrap().id;
            world.daemon(1).rekey("net").unwrap();
            world.daemon(1).wait_rekeyed("net", before, LIMIT).unwrap();
        }
        passes(world, families, "after rekeys");
    });
}

/// A gateway's death, and its end in good order.
fn deaths_of_a_gateway(world: &mut World, families: &[Family]) {
    for is_killed in [true, false] {
        let gateway = world.gateways[0].take().unwrap();
        under_load(world, |_| {
            if is_killed {
                gateway.kill();
            } else {
                gateway.terminate();
            }
            std::thread::sleep(Duration::from_millis(300));
        });
        world.start_gateway(0);
        under_load(world, |world| {
            passes(world, families, if is_killed { "after a death" } else { "after an end" })
        });
    }
}

/// A gateway all of whose packets go into the tunnel, those to where its peer is as well.
#[test]
fn a_road_warrior_of_strongswan_lets_nothing_out_whatever_happens() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let world = World::start_as([Plane::Convoy; 2], folder, "", |charon| charon.own_routes = true);
    let Some(mut world) = world else { return };
    leaky(&world);
    // The peer is the way to everything, and would send what is for no router back to where it is from.
    ip(world.gateway(1), "route add blackhole 169.254.0.0/16");
    world.load(|world, side| {
        let mut connection = trap(world, side);
        connection.dpd_delay = Some(Duration::from_secs(1));
        let child = &mut connection.children[0];
        let all = if side == 0 { &mut child.remote_ts } else { &mut child.local_ts };
        *all = ["0.0.0.0/0", "::/0"].map(str::to_owned).to_vec();
        connection
    });
    passes(&world, &FAMILIES, "at first");
    is_well(&world, 0);
    speak_to_links(&world);
    flap_and_rekey(&world, &FAMILIES);
    deaths_of_a_gateway(&mut world, &FAMILIES);
    speak_to_links(&world);
    world.assert_nothing_in_the_clear();
}

/// Multicast and link-local addresses of the wire, which are part of everything.
fn speak_to_links(world: &World) {
    let before = counter(world, 0, "leak-protection.outbound");
    let site = world.site(0);
    for (space, own) in [
        (world.gateway(0), site.gateway_address(Family::V4)),
        (&site.host, site.host_address(Family::V4)),
    ] {
        let speak = || {
            let socket = UdpSocket::bind((own, 0)).unwrap();
            for to in ["169.254.7.2", "239.1.1.1"] {
                let _ = socket.send_to(b"in clear", (to, 7));
            }
        };
        space.run(speak).unwrap();
    }
    let until = Instant::now() + LIMIT;
    // The kernel sends to groups by the interface of the source, whatever routes say. The rest goes into
    // the tunnel.
    while counter(world, 0, "leak-protection.outbound") <= before {
        assert!(Instant::now() < until, "{}", status(&world.sites[0]));
    }
}

/// A tunnel for everything from one address, beside a network that may be reached in clear by others.
#[test]
fn a_passthrough_policy_opens_its_network_to_those_whom_it_names() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    // charon's route for everything would lead what comes back for the network away, as with a kernel.
    let world = World::start_as([Plane::Convoy; 2], folder, "", |charon| charon.own_routes = false);
    let Some(mut world) = world else { return };
    leaky(&world);
    let [own, beyond] = [0, 1].map(|side| match side {
        0 => world.site(0).gateway_address(Family::V4),
        _ => world.site(1).wire_address(Family::V4),
    });
    world.load(|world, side| {
        let mut connection = trap(world, side);
        let child = &mut connection.children[0];
        let ends = [format!("{own}/32"), "0.0.0.0/0".into()];
        let [near, far] = if side == 0 { [0, 1] } else { [1, 0] };
        child.local_ts = vec![ends[near].clone()];
        child.remote_ts = vec![ends[far].clone()];
        if side == 0 {
            let network = world.site(0).network(Family::V4);
            let mut pass = Child::new("pass", network, format!("{beyond}/32"));
            pass.start = StartAction::Trap;
            pass.more.push(("mode".into(), "pass".into()));
            connection.children.push(pass);
        }
        connection
    });
    assert_eq!(World::ping(&world.site(0).host, beyond, 3), 3, "{}", world.logs(0));
    // The gateway's own go into the tunnel.
    let until = Instant::now() + LIMIT;
    let inside = world.site(1).host_address(Family::V4);
    let network = world.site(1).network(Family::V4);
    ip(world.gateway(0), &format!("route add {network} via {beyond} src {own}"));
    while !World::try_ping(world.gateway(0), inside) {
        assert!(Instant::now() < until, "{}", world.logs(0));
    }
    World::try_ping(world.gateway(0), beyond);
    // What the rules no longer lead is stopped by the filter, which is counted.
    ip(world.gateway(0), "rule add priority 100 table main");
    World::try_ping(world.gateway(0), inside);
    while counter(&world, 0, "leak-protection.outbound") == 0 {
        assert!(Instant::now() < until, "{}", status(&world.sites[0]));
    }
    world.assert_not_in_the_clear(&[own.into()]);
}

/// As `docs/ike-daemons.md` says: what a gateway and its network send to each other, and to groups.
#[test]
fn beside_a_tunnel_for_everything_a_policy_passes_what_stays_in_the_network() {
    let Some(mut world) = World::start([Plane::Convoy; 2]) else { return };
    leaky(&world);
    let load = |world: &mut World, passes: bool| {
        world.load(|world, side| {
            let mut connection = trap(world, side);
            let networks = [0, 1].map(|side| world.site(side).network(Family::V4).to_string());
            let child = &mut connection.children[0];
            (child.local_ts, child.remote_ts) =
                (vec!["0.0.0.0/0".into()], vec![networks[0].clone()]);
            if side == 0 {
                std::mem::swap(&mut child.local_ts, &mut child.remote_ts);
            }
            if side == 0 && passes {
                let mut pass = Child::new("lan", &networks[0], &networks[0]);
                pass.remote_ts.extend(["224.0.0.0/4", "255.255.255.255/32"].map(str::to_owned));
                pass.start = StartAction::Trap;
                pass.more.push(("mode".into(), "pass".into()));
                connection.children.push(pass);
            }
            connection
        });
    };
    let inside = world.site(0).gateway_address(Family::V4);
    let (IpAddr::V4(own), IpAddr::V4(host)) = (inside, world.site(0).host_address(Family::V4))
    else {
        panic!("{inside} is none of IPv4")
    };
    let group = Ipv4Addr::new(239, 1, 1, 1);
    let listener = world.site(0).host.run(|| {
        let listener = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 9)).unwrap();
        listener.join_multicast_v4(&group, &host).unwrap();
        listener.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        listener
    });
    let speaker = world.gateway(0).run(|| UdpSocket::bind((own, 0)).unwrap()).unwrap();
    let listener = listener.unwrap();
    let is_heard = |text: &[u8]| {
        let mut got = [0; 9];
        speaker.send_to(text, (group, 9)).is_ok()
            && std::iter::from_fn(|| listener.recv(&mut got).ok().map(|n| got[..n] == *text))
                .any(|is| is)
    };
    load(&mut world, true);
    passes(&world, &[Family::V4], "through the tunnel");
    assert_eq!(World::ping(&world.site(0).host, inside, 3), 3, "{}", world.logs(0));
    assert!((0..20).any(|_| is_heard(b"to all")), "{}", world.logs(0));
    load(&mut world, false);
    passes(&world, &[Family::V4], "through the tunnel alone");
    assert!(!World::try_ping(&world.site(0).host, inside));
    assert!(!is_heard(b"to none"));
    world.assert_nothing_in_the_clear();
}

#[test]
fn libreswan_with_its_own_updown_script_lets_nothing_out_whatever_happens() {
    let Some(unpacked) = libreswan() else { return };
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let world = World::start_as([Plane::Convoy; 2], folder, "", |_| ());
    let Some(mut world) = world else { return };
    // The daemon that came with it makes room.
    world.daemons[0].take().unwrap().stop().unwrap();
    leaky(&world);
    let networks = [0, 1].map(|side| world.site(side).network(Family::V4));
    let mut connection = trap(&world, 1);
    let child = &mut connection.children[0];
    (child.local_ts, child.remote_ts) =
        (vec![networks[1].to_string()], vec![networks[0].to_string()]);
    world.daemons[1].as_mut().unwrap().reload(vec![connection]).unwrap();
    let pluto = Some(start_pluto(&world, &unpacked, networks));
    passes(&world, &[Family::V4], "at first");
    let routes = ip(world.gateway(0), "route show table main");
    assert!(
        routes.contains("10.2.0.0/24 "),
        "pluto laid no routes: {routes}{}",
        pluto.as_ref().unwrap().log()
    );
    is_well(&world, 0);
    flap_and_rekey(&world, &[Family::V4]);
    deaths_of_a_gateway(&mut world, &[Family::V4]);
    let mut pluto = pluto;
    under_load(&world, |_| {
        pluto.take().unwrap().kill().unwrap();
        std::thread::sleep(Duration::from_millis(300));
    });
    under_load(&world, |world| {
        pluto = Some(start_pluto(world, &unpacked, networks));
        passes(world, &[Family::V4], "after a daemon's return");
    });
    pluto.unwrap().kill().unwrap();
    world.assert_nothing_in_the_clear();
}

/// A pluto on the left gateway, whose script is the one that it has when nothing is said.
fn start_pluto(world: &World, unpacked: &Path, networks: [IpNet; 2]) -> Libreswan {
    let conn = Conn {
        name: "net".into(),
        gateways: [0, 1].map(|side| world.site(side).wire_address(Family::V4)),
        ids: NAMES.map(str::to_owned),
        networks: Some(networks),
        secret: "of this test only".into(),
        esp: "aes_gcm128".into(),
        encap: false,
        esn: false,
        more: vec![
            ("leftupdown".into(), "\"ipsec _updown\"".into()),
            // Without one the script sees no need for a route.
            ("leftsourceip".into(), world.site(0).gateway_address(Family::V4).to_string()),
        ],
    };
    let programs = unpacked.join("usr/sbin").display().to_string();
    let path = format!("PATH={programs}:{}", std::env::var("PATH").unwrap());
    let mut words = vec!["env".into(), path.into()];
    words.extend(launcher(&world.sites[0].with_file_name("xfrm.sock")));
    let folder = world.sites[0].with_file_name("pluto");
    let pluto = Libreswan::start(world.gateway(0), &folder, unpacked, &words, &[conn]);
    let pluto = pluto.unwrap();
    pluto.route("net").unwrap();
    pluto
}
