//! The site file's own policies beside those of IKE daemons.

use std::cell::Cell;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use convoy_lab::{Family, WIRE_LINK};

use super::{
    Caller, Echo, World, closes_and_opens, comes_in, nothing_in_clear, passes_a_port, stays_closed,
    trace, with_a_free_port,
};
use crate::common::{PATIENCE, convoy, exec, ip, status, text};

fn xfrm_socket(control_socket: &str) -> String {
    format!("{control_socket}.xfrm")
}

/// A site that serves IKE daemons, too.
pub(super) fn with_daemons(text: String) -> String {
    let (_, rest) = text.split_once("control_socket = \"").unwrap();
    let (socket, _) = rest.split_once('"').unwrap();
    let xfrm = format!("[xfrm]\nsocket = \"{}\"\n[plain]\n", xfrm_socket(socket));
    text.replace("[plain]\n", &xfrm)
}

/// `ip xfrm` on side A, led to its gateway as a daemon is.
pub(super) fn ip_xfrm(world: &World, arguments: &str) -> String {
    try_ip_xfrm(world, arguments).unwrap_or_else(|said| panic!("ip xfrm {arguments}: {said}"))
}

/// The same, or what it says when it is refused.
pub(super) fn try_ip_xfrm(world: &World, arguments: &str) -> Result<String, String> {
    let mut command = exec(xfrm_socket(&world.folder.path().join("a.sock").display().to_string()));
    command.args(["timeout", "20", "ip", "xfrm"]).args(arguments.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = world.lab.a.gateway.spawn(&mut command).unwrap().wait_with_output().unwrap();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn what_a_site_protects_beside_daemons_stays_closed_however_its_gateway_ends() {
    stays_closed(with_daemons);
}

#[test]
fn nothing_comes_in_in_clear_beside_daemons() {
    comes_in(with_daemons);
}

#[test]
fn a_reload_closes_and_opens_what_policies_beside_daemons_say() {
    closes_and_opens(with_daemons, "4510");
}

#[test]
fn a_port_is_passed_beside_daemons() {
    let change = |text| with_daemons(with_a_free_port(text));
    passes_a_port(change, "verdicts on partly bypassed networks");
}

/// Policies of daemons, and those of the site file for the same networks, are one database.
#[test]
fn own_policies_and_those_of_daemons_decide_together() {
    let Some(world) = World::new(with_daemons) else { return };
    let _echo = Echo::start(&world);
    let [a, _b] = world.start();
    let caller = Caller::new(&world);
    let wire = |work: &dyn Fn()| world.captured(&world.lab.b.gateway, WIRE_LINK, work);
    nothing_in_clear(&wire(&|| assert!(caller.is_answered(&world), "{}", a.log())));
    let shown = status(&world.sites[0])["leak_protection"]["detail"].to_string();
    assert!(
        shown.contains("traffic that policies of this site and of IKE daemons protect"),
        "{shown}"
    );
    // A daemon passes the port, and nothing else.
    let free = "src 10.1.0.0/24 dst 10.2.0.0/24 proto udp dport 9 dir out";
    ip_xfrm(&world, &format!("policy add {free} priority 1"));
    let report = wire(&|| {
        let _ = caller.is_answered(&world);
        let _ = Caller::new(&world).is_answered(&world);
    });
    assert!(report.clear >= 2, "{}", a.log());
    nothing_in_clear(&wire(&|| assert!(world.is_reached(), "{}", a.log())));
    // All of its policies go; those of the site file stay.
    ip_xfrm(&world, "policy flush");
    nothing_in_clear(&wire(&|| assert!(caller.is_answered(&world), "{}", a.log())));
    // One of a daemon for another local network: what neither means passes, as with a kernel.
    let ends = "tmpl src 198.51.100.1 dst 198.51.100.2 proto esp reqid 9 mode tunnel";
    ip_xfrm(&world, &format!("policy add src 10.5.0.0/24 dst 10.6.0.0/24 dir out {ends}"));
    nothing_in_clear(&wire(&|| assert!(world.is_reached(), "{}", a.log())));
    a.kill();
    nothing_in_clear(&world.wire());
}

#[test]
fn no_route_or_rule_beside_daemons_leads_past_the_tunnel() {
    let Some(world) = World::new(with_daemons) else { return };
    let [a, _b] = world.start();
    let gateway = &world.lab.a.gateway;
    let via = world.lab.b.wire_address(Family::V4);
    // Marks lead.
    ip(gateway, &format!("route add 10.2.0.0/25 via {via}"));
    let report = world.wire();
    nothing_in_clear(&report);
    assert!(report.protected() > 0, "{}", a.log());
    ip(gateway, &format!("route add default via {via} table 77"));
    ip(gateway, "rule add priority 5 lookup 77");
    nothing_in_clear(&world.wire());
    let said = "ip rule 5 leads to table 77 before Convoy's routes";
    let until = Instant::now() + PATIENCE;
    while !status(&world.sites[0])["health"]["reasons"].to_string().contains(said) {
        assert!(Instant::now() < until, "{}", status(&world.sites[0]));
        std::thread::sleep(Duration::from_millis(100));
    }
    let planned = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
        command.args(arguments).arg(&world.sites[0]);
        gateway.run(|| command.output().unwrap()).unwrap()
    };
    let dry = planned(&["run", "--dry-run"]);
    assert!(text(&dry.stderr).contains(said), "{}", text(&dry.stderr));
    let would = "mark packets from 10.1.0.0/24 to 10.2.0.0/24 to lead them into tun0";
    assert!(text(&dry.stdout).contains(would), "{}", text(&dry.stdout));
    assert!(!text(&dry.stdout).contains("request a verdict"), "{}", text(&dry.stdout));
}

#[test]
fn a_port_is_passed_beside_daemons_when_the_far_side_begins() {
    let Some(world) = World::new(|text| with_daemons(with_a_free_port(text))) else { return };
    let [a, _b] = world.start();
    let checked = convoy(&["check", world.sites[0].to_str().unwrap()]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    let [near, far] = [&world.lab.a, &world.lab.b];
    let reached = |port: u16| {
        let ours = near.host.run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        let theirs = far.host.run(|| UdpSocket::bind(("0.0.0.0", port)).unwrap()).unwrap();
        let at = SocketAddr::new(near.host_address(Family::V4), ours.local_addr().unwrap().port());
        let mut buffer = [0; 16];
        for socket in [&ours, &theirs] {
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        }
        (0..5).any(|_| {
            let _ = theirs.send_to(b"from the far side", at);
            let heard = ours.recv_from(&mut buffer);
            heard.is_ok_and(|(_, from)| {
                let _ = ours.send_to(b"and back", from);
                theirs.recv(&mut buffer).is_ok()
            })
        })
    };
    let wire = |port| {
        let is_reached = Cell::new(false);
        let work = || is_reached.set(reached(port));
        let report = world.captured(&far.gateway, WIRE_LINK, work);
        assert!(is_reached.get(), "port {port}: {}", a.log());
        report
    };
    let report = wire(9);
    assert_eq!((report.clear >= 2, report.protected()), (true, 0));
    let report = wire(10);
    nothing_in_clear(&report);
    assert!(report.protected() >= 2);
}

/// Another port is passed by a policy of the same name and networks: answers of before are not believed.
#[test]
fn a_reload_beside_daemons_has_the_kernel_forget_what_policies_of_before_said() {
    let Some(world) = World::new(|text| with_daemons(with_a_free_port(text))) else { return };
    let _echo = Echo::start(&world);
    let [a, _b] = world.start();
    let caller = Caller::new(&world);
    assert!(caller.is_answered(&world), "{}", a.log());
    let wire = |work: &dyn Fn()| world.captured(&world.lab.b.gateway, WIRE_LINK, work);
    assert!(
        wire(&|| {
            let _ = caller.is_answered(&world);
        })
        .clear
            >= 2
    );
    let all = fs::read_to_string(&world.sites[0]).unwrap();
    world.reload(&all.replace("remote_port = 9", "remote_port = 10"));
    nothing_in_clear(&wire(&|| {
        let _ = caller.is_answered(&world);
    }));
    let (told, words) = trace(
        &world,
        &world.lab.b.host_address(Family::V4).to_string(),
        &["--proto", "udp", "--dport", "10"],
    );
    assert_eq!(told["host"]["fate"], "in-clear", "{words}");
    // One that drops it is asked first.
    let (free, _) = all.split_once("[[policy]]\nname = \"free\"").unwrap();
    let drops = "[[policy]]\nname = \"none\"\naction = \"discard\"\nlocal = \"10.1.0.0/24\"\n\
                 remote = \"10.2.0.0/24\"\nprotocol = \"udp\"\nremote_port = 9\npriority = 5\n";
    world.reload(&format!("{free}{drops}"));
    let report = wire(&|| assert!(!caller.is_answered(&world)));
    nothing_in_clear(&report);
    assert_eq!(report.protected(), 0);
    assert!(world.is_reached(), "{}", a.log());
}

/// The host's own packets find a source and a way without a route of the host's, and no LAN is lost.
#[test]
fn own_policies_beside_daemons_have_routes_that_pass_in_clear_packets_do_not_use() {
    let Some(world) = World::new(|text| {
        // From the address of the TUN interface, as a road warrior's.
        with_daemons(with_a_free_port(text))
            .replace("\"10.1.0.0/24\"", "[\"10.1.0.0/24\", \"10.255.0.1/32\"]")
    }) else {
        return;
    };
    ip(&world.lab.a.gateway, "route del default");
    let [a, _b] = world.start();
    let far = world.lab.b.host_address(Family::V4);
    let way = ip(&world.lab.a.gateway, &format!("route get {far}"));
    assert!(way.contains("dev tun0 table 4510 src 10.255.0.1"), "{way}");
    let before = status(&world.sites[0])["outbound"]["packets"].as_u64();
    let send = || UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"hello", (far, 7)).unwrap();
    world.lab.a.gateway.run(send).unwrap();
    let until = Instant::now() + PATIENCE;
    while status(&world.sites[0])["outbound"]["packets"].as_u64() == before {
        assert!(Instant::now() < until, "{}", a.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    // What passes in clear has no way, and is not led into the tunnel.
    let (told, words) = trace(&world, &far.to_string(), &["--proto", "udp", "--dport", "9"]);
    assert_eq!(
        (&told["host"]["decision"], &told["host"]["fate"]),
        (&"bypass".into(), &"no-route".into()),
        "{words}"
    );
    // A far network around the host's own ones leaves these where they are.
    let all = fs::read_to_string(&world.sites[0]).unwrap();
    world.reload(&all.replace("remote = \"10.2.0.0/24\"", "remote = \"10.0.0.0/8\""));
    let lan = ip(&world.lab.a.gateway, "route get 10.1.0.99");
    assert!(!lan.contains("tun0"), "{lan}");
    let elsewhere = ip(&world.lab.a.gateway, "route get 10.77.0.1");
    assert!(elsewhere.contains("dev tun0 table 4510"), "{elsewhere}");
    // Nowhere, without a gateway.
    a.kill();
    let mut get = Command::new("ip");
    get.args(["route", "get", "10.77.0.1"]).stderr(Stdio::piped());
    let told = world.lab.a.gateway.spawn(&mut get).unwrap().wait_with_output().unwrap();
    assert!(
        text(&told.stderr).contains("unreachable") || text(&told.stderr).contains("No route"),
        "{told:?}"
    );
}

#[test]
fn what_is_left_of_own_policies_beside_daemons_is_only_what_the_file_still_names() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let state = memory.path().join("state");
    let change = |text: String| {
        let text = with_daemons(text);
        // For some only, so that it is asked about what no policy means.
        let text = text.replace("priority = 100", "priority = 100\nprotocol = \"icmp\"");
        match text.contains("name = \"a\"") {
            true => {
                text.replace("[plain]\n", &format!("state = \"{}\"\n[plain]\n", state.display()))
            }
            false => text,
        }
    };
    let Some(world) = World::new(change) else { return };
    let passes = || {
        world
            .captured(&world.lab.b.gateway, WIRE_LINK, || {
                world.send_from_gateway(None);
                std::thread::sleep(Duration::from_millis(300));
            })
            .clear
            >= 1
    };
    for is_killed in [false, true, false] {
        let [a, b] = world.start();
        assert!((0..10).any(|_| passes()), "what no policy means passes: {}", a.log());
        match is_killed {
            true => a.kill(),
            false => assert!(a.terminate().success()),
        }
        assert!(!passes(), "new flows are dropped without a gateway");
        drop(b);
    }
}
