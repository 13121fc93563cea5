//! Tunnels, and what passes beside them in clear, work whatever the host's reverse path filter does (`rp_filter`), in the
//! sandbox of the systemd unit, where nobody may write below `/proc/sys`, and without an address of the TUN interface.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use convoy_lab::{Family, Namespace, WIRE_LINK};

use super::beside_daemons::with_daemons;
use super::{Caller, Echo, World, nothing_in_clear, with_a_free_port};
use crate::common::{Gateway, sandboxed, status};

fn without_addresses(text: &str) -> String {
    text.lines()
        .filter(|line| !line.starts_with("addresses"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Sets a setting of all interfaces there are, and of those to come.
fn set_everywhere(gateway: &Namespace, key: &str, value: &str) {
    let set = || {
        for link in fs::read_dir("/proc/sys/net/ipv4/conf").unwrap() {
            fs::write(link.unwrap().path().join(key), value).unwrap();
        }
    };
    gateway.run(set).unwrap();
}

/// True if host B answers what gateway A sends it from its address in the LAN.
fn answers_gateway(world: &World, port: u16) -> bool {
    let from = SocketAddr::new(world.lab.a.gateway_address(Family::V4), 0);
    let to = SocketAddr::new(world.lab.b.host_address(Family::V4), port);
    let ask = || {
        let socket = UdpSocket::bind(from).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        (0..5).any(|_| {
            let _ = socket.send_to(b"it is the gateway", to);
            socket.recv(&mut [0; 32]).is_ok()
        })
    };
    world.lab.a.gateway.run(ask).unwrap()
}

fn works(change: impl Fn(String) -> String) {
    let Some(world) = World::new(|text| change(without_addresses(&text))) else { return };
    let [a, b] = [&world.lab.a.gateway, &world.lab.b.gateway];
    let both = |key: &str, value: &str| [a, b].map(|gateway| set_everywhere(gateway, key, value));
    // What interfaces that come later begin with.
    both("rp_filter", "1");
    let _echoes = [9, 10].map(|port| Echo::at(&world, port));
    let mut gateways = [a, b].into_iter().zip(&world.sites).map(|(namespace, site)| {
        let mut gateway = Gateway::launch_by(namespace, sandboxed(world.folder.path()), site);
        assert!(gateway.wait_ready(), "not ready:\n{}", gateway.log());
        gateway
    });
    let (a, _b) = (gateways.next().unwrap(), gateways.next().unwrap());
    let all_is_well = |when: &str| {
        // From the LAN to the tunnel, and the answers from the tunnel to the LAN.
        assert!((0..5).any(|_| world.answers() == 5), "{when}: the tunnel is dead: {}", a.log());
        assert!(Caller::new(&world).is_answered(&world), "{when}: port 9 is not reached");
        assert!(answers_gateway(&world, 10), "{when}: the gateway does not reach the tunnel");
        assert!(answers_gateway(&world, 9), "{when}: the gateway does not reach port 9");
    };
    all_is_well("strict from the beginning");
    for filter in ["0", "2", "1"] {
        both("rp_filter", filter);
        all_is_well(&format!("rp_filter {filter}"));
    }
    // As wg-quick sets it.
    both("src_valid_mark", "1");
    all_is_well("strict, with marks looked at everywhere");
    let health = status(&world.sites[0])["health"].to_string();
    assert!(!health.contains("reverse path"), "{health}");
    let wire = || {
        world.captured(&world.lab.b.gateway, WIRE_LINK, || {
            let _ = world.answers();
        })
    };
    let report = wire();
    nothing_in_clear(&report);
    assert!(report.protected() > 0);
    drop(a);
    nothing_in_clear(&wire());
}

#[test]
fn a_site_works_under_every_reverse_path_filter() {
    works(|text| text);
}

#[test]
fn a_site_that_passes_a_port_works_under_every_reverse_path_filter() {
    works(with_a_free_port);
}

#[test]
fn a_site_beside_daemons_works_under_every_reverse_path_filter() {
    works(with_daemons);
}

#[test]
fn a_site_beside_daemons_that_passes_a_port_works_under_every_reverse_path_filter() {
    works(|text| with_daemons(with_a_free_port(text)));
}
