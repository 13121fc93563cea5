//! Promises of leak protection to a site with keys of its own, which a gateway for IKE daemons does not make.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;

use convoy_lab::{Family, HOST_LINK, LAN_LINK, WIRE_LINK};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;

use super::{World, nothing_in_clear, trace_between};
use crate::common::{Gateway, ip, read_pcap, status};

const SENT: &[u8] = b"sent by the gateway";

impl World {
    /// Writes the file of another site in the namespace of gateway A.
    fn beside(&self, name: &str, interface: &str, more: &str) -> PathBuf {
        let folder = self.folder.path();
        let path = folder.join(format!("{name}.toml"));
        let text = format!(
            "name = \"{name}\"\ncontrol_socket = \"{0}/{name}.sock\"\n[plain]\ninterface = \"{interface}\"\n{more}",
            folder.display()
        );
        fs::write(&path, text).unwrap();
        path
    }

    /// Sends datagrams from the address of gateway A in its LAN.
    fn send_to(&self, to: &str, link: Option<&str>) {
        let from = SocketAddr::new(self.lab.a.gateway_address(Family::V4), 0);
        let to = SocketAddr::new(to.parse().unwrap(), 9);
        let send = || {
            let socket = UdpSocket::bind(from).unwrap();
            socket.set_broadcast(true).unwrap();
            if let Some(link) = link {
                setsockopt(&socket, sockopt::BindToDevice, &link.into()).unwrap();
            }
            (0..5).for_each(|_| drop(socket.send_to(SENT, to)));
        };
        self.lab.a.gateway.run(send).unwrap();
    }

    /// True if datagrams of gateway A to an address are on the wire in clear.
    fn leaves_in_clear(&self, to: &str) -> bool {
        self.captured(&self.lab.b.gateway, WIRE_LINK, || self.send_to(to, None));
        self.has_captured()
    }

    /// True if datagrams of gateway A to an address are on its LAN.
    fn is_on_lan(&self, to: &str) -> bool {
        self.captured(&self.lab.a.host, HOST_LINK, || self.send_to(to, Some(LAN_LINK)));
        self.has_captured()
    }

    fn has_captured(&self) -> bool {
        let packets = read_pcap(&self.folder.path().join("captured.pcap"));
        packets.iter().any(|packet| packet.windows(SENT.len()).any(|it| it == SENT))
    }
}

/// Changes the file of site A alone.
fn of_a(change: impl Fn(String) -> String) -> impl Fn(String) -> String {
    move |text| if text.contains("name = \"a\"") { change(text) } else { text }
}

fn is_on(site: &std::path::Path) -> Value {
    status(site)["leak_protection"]["is_on"].clone()
}

#[test]
fn gateways_protect_beside_each_other_in_one_namespace() {
    let Some(world) = World::new(|text| text) else { return };
    let [a, _b] = world.start();
    let policy = "[[policy]]\nname = \"all\"\naction = \"protect\"\nacquire = true\nlocal = \"10.1.0.0/24\"\n\
                  remote = \"10.9.0.0/16\"\n";
    let keyed = world.beside("c", "tun1", policy);
    let xfrm = format!("[xfrm]\nsocket = \"{}/d.xfrm\"\n", world.folder.path().display());
    let for_daemons = world.beside("d", "tun2", &xfrm);
    assert!(world.leaves_in_clear("10.9.0.9"));
    let c = Gateway::start(&world.lab.a.gateway, &keyed);
    let d = Gateway::start(&world.lab.a.gateway, &for_daemons);
    for site in [&world.sites[0], &keyed, &for_daemons] {
        assert_eq!(is_on(site), true, "{}\n{}\n{}", a.log(), c.log(), d.log());
    }
    let is_closed = || {
        nothing_in_clear(&world.wire());
        assert!(!world.leaves_in_clear("10.9.0.9"));
        assert!(world.leaves_in_clear("10.8.0.9"));
    };
    is_closed();
    assert!(world.is_reached(), "{}", a.log());
    c.kill();
    is_closed();
    assert!(d.terminate().success());
    is_closed();
    let c = Gateway::start(&world.lab.a.gateway, &keyed);
    is_closed();
    assert!(world.is_reached(), "{}\n{}", a.log(), c.log());
}

#[test]
fn without_routes_the_hosts_own_lead_and_the_rest_is_dropped() {
    let without_routes = of_a(|text| text.replace("[plain]\n", "[plain]\nroutes = \"none\"\n"));
    let Some(world) = World::new(without_routes) else { return };
    let gateway = &world.lab.a.gateway;
    let a = Gateway::start(gateway, &world.sites[0]);
    let _b = Gateway::start(&world.lab.b.gateway, &world.sites[1]);
    nothing_in_clear(&world.wire());
    assert_eq!(world.answers(), 0, "nothing leads into the tunnel");
    let routes = ip(gateway, "route show");
    assert!(!routes.contains("tun0") && !routes.contains("unreachable"), "{routes}");
    ip(gateway, "route add 10.2.0.0/24 dev tun0");
    world.wait_for_tunnel(&a);
    assert!(world.is_reached(), "{}", a.log());
    ip(gateway, "route del 10.2.0.0/24 dev tun0");
    nothing_in_clear(&world.wire());
    // A list of networks is routed; the rest is protected all the same.
    let before = fs::read_to_string(&world.sites[0]).unwrap();
    a.kill();
    let listed = before.replace("routes = \"none\"", "routes = [\"10.2.0.0/25\"]");
    fs::write(&world.sites[0], listed).unwrap();
    let a = Gateway::start(gateway, &world.sites[0]);
    world.wait_for_tunnel(&a);
    assert!(world.is_reached(), "{}", a.log());
    let routes = ip(gateway, "route show");
    assert!(routes.contains("10.2.0.0/25 dev tun0"), "{routes}");
    assert!(routes.contains("unreachable 10.2.0.0/25"), "{routes}");
    assert!(!routes.contains("10.2.0.0/24"), "{routes}");
    assert!(!world.leaves_in_clear("10.2.0.200"));
    a.kill();
    assert!(!world.leaves_in_clear("10.2.0.200"));
    assert!(!world.leaves_in_clear("10.2.0.9"));
}

#[test]
fn a_network_that_a_policy_frees_passes_in_clear_and_nothing_is_asked() {
    let frees = of_a(|text| {
        text.replace("remote = \"10.2.0.0/24\"", "remote = \"10.2.0.0/16\"")
            + "[[policy]]\nname = \"free\"\naction = \"bypass\"\nlocal = \"10.1.0.0/24\"\n\
               remote = \"10.2.5.0/24\"\npriority = 10\n"
    });
    let Some(world) = World::new(frees) else { return };
    let gateway = &world.lab.a.gateway;
    // The host's own route leads there.
    ip(gateway, &format!("route add 10.2.5.0/24 via {}", world.lab.b.wire_address(Family::V4)));
    let [a, _b] = world.start();
    let is_free = || {
        assert!(world.leaves_in_clear("10.2.5.9"));
        assert!(!world.leaves_in_clear("10.2.6.9"));
        nothing_in_clear(&world.wire());
    };
    is_free();
    let report = status(&world.sites[0]);
    let told = &report["leak_protection"];
    assert_eq!((&told["is_on"], &told["questions"]), (&true.into(), &Value::Null), "{report}");
    let rules = ip(gateway, "rule");
    assert!(!rules.contains("4511"), "no answers lead: {rules}");
    assert_eq!(connections_tracked(&world), 0);
    a.kill();
    is_free();
    // Once the policy has gone, so has the freedom.
    let text = fs::read_to_string(&world.sites[0]).unwrap();
    let (without, _) = text.split_once("[[policy]]\nname = \"free\"").unwrap();
    let a = Gateway::start(gateway, &world.sites[0]);
    is_free();
    world.reload(without);
    assert!(!world.leaves_in_clear("10.2.5.9"), "{}", a.log());
    world.reload(&text);
    is_free();
}

/// Number of flows that the kernel tracks in the namespace of gateway A.
fn connections_tracked(world: &World) -> u64 {
    let count = || fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
    let count = world.lab.a.gateway.run(count).unwrap();
    count.map_or(0, |text| text.trim().parse().unwrap())
}

#[test]
fn a_site_that_does_without_lets_go_what_an_earlier_run_protected() {
    let Some(world) = World::new(|text| text) else { return };
    let [a, _b] = world.start();
    a.kill();
    nothing_in_clear(&world.wire());
    let text = fs::read_to_string(&world.sites[0]).unwrap();
    fs::write(&world.sites[0], format!("leak_protection = false\n{text}")).unwrap();
    let a = Gateway::start(&world.lab.a.gateway, &world.sites[0]);
    assert_eq!(is_on(&world.sites[0]), false, "{}", a.log());
    assert!(world.is_reached(), "{}", a.log());
    a.kill();
    assert!(world.wire().clear >= 5);
}

#[test]
fn a_lan_within_a_tunnel_for_everything_and_addresses_of_a_link_are_reached() {
    let for_everything = of_a(|text| {
        text.replace("remote = \"10.2.0.0/24\"", "remote = \"0.0.0.0/0\"")
            .replace("[plain]\n", "[plain]\nroutes = \"none\"\n")
    });
    let Some(world) = World::new(for_everything) else { return };
    let gateway = &world.lab.a.gateway;
    let lan_host = world.lab.a.host_address(Family::V4).to_string();
    let a = Gateway::start(gateway, &world.sites[0]);
    let _b = Gateway::start(&world.lab.b.gateway, &world.sites[1]);
    ip(gateway, "route add 10.2.0.0/24 dev tun0");
    world.wait_for_tunnel(&a);
    let is_as_promised = || {
        assert!(world.is_on_lan(&lan_host));
        // All systems of the link, as routers are found (RFC 5771).
        assert!(world.is_on_lan("224.0.0.5"));
        assert!(world.is_on_lan("255.255.255.255"));
        assert!(!world.is_on_lan("239.1.1.1"));
        assert!(!world.leaves_in_clear("203.0.113.9"));
        nothing_in_clear(&world.wire());
    };
    is_as_promised();
    let own = world.lab.a.gateway_address(Family::V4).to_string();
    let prefixes = |to: &str| {
        let (told, words) = trace_between(&world, &own, to, &[]);
        (told["host"]["prefixes"].as_str().unwrap().to_owned(), words)
    };
    for to in [lan_host.as_str(), "224.0.0.5", "169.254.9.9"] {
        assert_eq!(prefixes(to).0, "neither", "{}", prefixes(to).1);
    }
    let far = world.lab.b.host_address(Family::V4).to_string();
    for to in [far.as_str(), "239.1.1.1"] {
        assert_eq!(prefixes(to).0, "whole", "{}", prefixes(to).1);
    }
    a.kill();
    is_as_promised();
}
