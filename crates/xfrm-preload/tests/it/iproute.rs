//! `ip xfrm`, unmodified, in front of a server that is not the kernel.

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use crate::common::{Running, Server, Told, output, preloaded, until};

fn has_ip() -> bool {
    let has = std::process::Command::new("ip").arg("-V").output().is_ok();
    if !has {
        println!("SKIPPED: no ip of iproute2");
    }
    has
}

fn ip(socket: &Path, arguments: &str) -> String {
    output(preloaded("ip", socket).args(arguments.split(' ')))
}

const STATE: &str = "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000 reqid 7 mode tunnel \
    aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128";
const POLICY: &str = "xfrm policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel";

#[test]
fn ip_adds_lists_and_counts() {
    if !has_ip() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("xfrm.sock");
    let server = Server::start(&socket);
    assert_eq!(ip(&socket, STATE), "");
    assert_eq!(ip(&socket, POLICY), "");
    let listed = ip(&socket, "xfrm state list");
    assert!(listed.contains("proto esp spi 0x00001000 reqid 7 mode tunnel"), "{listed}");
    let listed = ip(&socket, "xfrm policy list");
    assert!(listed.contains("src 10.1.0.0/24 dst 10.2.0.0/24"), "{listed}");
    assert!(ip(&socket, "xfrm state count").contains("SAD count 1"));
    assert_eq!(ip(&socket, "xfrm state flush"), "");
    assert!(ip(&socket, "xfrm state count").contains("SAD count 0"));
    // Not even when a server has words for it does ip take a refusal for success.
    let refused = preloaded("ip", &socket).args(["xfrm", "policy", "flush"]).output().unwrap();
    assert!(!refused.status.success());
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(words.contains("not in this test"), "{words}");
    assert!(server.told().contains(&Told::Option { number: 11, value: 1 }));
}

#[test]
fn ip_monitors_across_a_restart() {
    if !has_ip() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("xfrm.sock");
    let server = Server::start(&socket);
    let mut child = preloaded("stdbuf", &socket);
    let mut child = child.args(["-oL", "ip", "xfrm", "monitor"]).spawn().map(Running).unwrap();
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let bound = |server: &Server| {
        let is = |told: &Told| matches!(told, Told::Bind { groups, .. } if groups & 2 != 0);
        server.told().iter().any(is)
    };
    until("bound", || bound(&server));
    server.emit(1);
    assert_eq!(lines.next().unwrap().trim_end(), "Flushed state proto esp");
    drop(server);
    let server = Server::start(&socket);
    until("bound again", || bound(&server));
    // It says that events were lost, and goes on.
    let mut errors = BufReader::new(child.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let lost = errors.next().unwrap();
    assert!(lost.contains("No buffer space available"), "{lost}");
    server.emit(2);
    assert_eq!(lines.next().unwrap().trim_end(), "Flushed state proto esp");
}
