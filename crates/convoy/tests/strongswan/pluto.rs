//! An unmodified pluto on a live gateway.

use std::io::Write as _;
use std::path::PathBuf;

use convoy_lab::Family;
use convoy_lab::libreswan::{Conn, Libreswan};

use super::world::{LIMIT, NAMES, Plane, World, launcher};

/// Where `interop/install-libreswan.sh` unpacks it.
fn unpacked() -> PathBuf {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_path_buf();
    target.join("tools/libreswan")
}

/// A tunnel that pluto makes on a gateway, towards charon on top of what it has.
fn tunnel_to(peer: Plane, outer: Family, encap: bool, esp: [&str; 2]) {
    if !unpacked().join("usr/libexec/ipsec/pluto").exists() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: not there: interop/install-libreswan.sh");
        return;
    }
    let Some(mut world) = World::start([Plane::Convoy, peer]) else { return };
    // The daemon that came with it makes room.
    world.daemons[0].take().unwrap().stop().unwrap();
    let networks = [0, 1].map(|side| world.site(side).network(Family::V4));
    let mut connection = world.connection(1, outer);
    connection.encap = encap;
    let child = &mut connection.children[0];
    child.local_ts = vec![networks[1].to_string()];
    child.remote_ts = vec![networks[0].to_string()];
    child.proposals = esp[1].to_owned();
    world.daemons[1].as_mut().unwrap().reload(vec![connection]).unwrap();
    let conn = Conn {
        name: "net".into(),
        gateways: [0, 1].map(|side| world.site(side).wire_address(outer)),
        ids: NAMES.map(str::to_owned),
        networks: Some(networks),
        secret: "of this test only".into(),
        esp: esp[0].into(),
        encap,
        esn: false,
        more: vec![],
    };
    let folder = world.sites[0].with_file_name("pluto");
    let launcher = launcher(&world.sites[0].with_file_name("xfrm.sock"));
    let pluto = Libreswan::start(world.gateway(0), &folder, &unpacked(), &launcher, &[conn]);
    let pluto = pluto.unwrap();
    pluto.initiate("net", LIMIT).unwrap();
    world.daemon(1).wait_installed("net", LIMIT).unwrap();
    for from in 0..2 {
        let to = world.site(1 - from).host_address(Family::V4);
        let answered = World::ping(&world.site(from).host, to, 5);
        assert_eq!(answered, 5, "{}", pluto.log());
    }
    let traffic = pluto.traffic("net").unwrap().unwrap();
    // Ten echo requests or replies of 84 bytes each way.
    assert_eq!((traffic.bytes_in, traffic.bytes_out), (840, 840));
    pluto.stop().unwrap();
    world.assert_nothing_in_the_clear();
}

#[test]
fn pluto_makes_a_tunnel_to_strongswans_own_esp() {
    tunnel_to(Plane::Libipsec, Family::V4, true, ["aes_gcm128", "aes128gcm16"]);
}

#[test]
fn pluto_makes_a_native_tunnel_between_gateways() {
    tunnel_to(Plane::Convoy, Family::V6, false, ["aes256-sha2_512", "aes256-sha512"]);
}
