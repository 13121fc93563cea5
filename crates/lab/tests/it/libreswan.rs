//! An unmodified pluto, as far as it goes on its own: it speaks IKE with charon until it wants SAs of
//! a kernel.

use std::{io::Write as _, path::PathBuf, time::Duration};

use crate::common::{alone, build, nameless};
use convoy_lab::{
    Family,
    libreswan::{Conn, Libreswan},
    strongswan::{Child, Connection, DataPlane, StrongSwan, StrongSwanConfig, missing},
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(10);

/// Folder into which `interop/install-libreswan.sh` unpacks it.
fn unpacked() -> PathBuf {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_path_buf();
    target.join("tools/libreswan")
}

#[test]
fn pluto_and_charon_authenticate_each_other() {
    let Some(_alone) = alone() else { return };
    let absent = missing(&DataPlane::Libipsec);
    if !unpacked().exists() || !absent.is_empty() || !nix::unistd::geteuid().is_root() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: pluto and charon need root, interop/install-strongswan.sh and \
             interop/install-libreswan.sh"
        );
        return;
    }
    let lab = build(&nameless());
    let folder = TempDir::new().unwrap();
    let wire = [&lab.a, &lab.b].map(|site| site.wire_address(Family::V4));
    let networks = [&lab.a, &lab.b].map(|site| site.network(Family::V4));
    let mut config = StrongSwanConfig::new(&folder.path().join("right"), DataPlane::Libipsec);
    config.connections = vec![
        Connection::psk("peers", "right.test", "left.test", "neither of us tells")
            .between(wire[1], wire[0])
            .child(Child::new("net", networks[1], networks[0])),
    ];
    let right = StrongSwan::start(&lab.b.gateway, config).unwrap();
    let conn = Conn {
        name: "net".into(),
        gateways: wire,
        ids: ["left.test".into(), "right.test".into()],
        networks: Some(networks),
        secret: "neither of us tells".into(),
        esp: "aes_gcm128".into(),
        encap: true,
        esn: false,
        more: vec![],
    };
    let own = folder.path().join("left");
    let left = Libreswan::start(&lab.a.gateway, &own, &unpacked(), &[], &[conn]).unwrap();
    // What comes of it is this machine's kernel's affair.
    let _ = left.initiate("net", LIMIT);
    assert!(right.log().contains("authentication of 'left.test' with pre-shared key successful"));
    assert_eq!(left.traffic("nobody").unwrap(), None);
    left.stop().unwrap();
    right.stop().unwrap();
}
