//! Captures through two gateways that exist only for that.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::common::{Plan, convoy, read_pcap, text};

const PACKETS: u32 = 3000;

/// A capture of link type RAW with these packets.
fn write_pcap(path: &Path, packets: &[Vec<u8>]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for packet in packets {
        for word in [0, 0, packet.len() as u32, packet.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    fs::write(path, file).unwrap();
}

/// A UDP packet between the inner networks, with right checksums as far as there are any.
fn packet(number: u32) -> Vec<u8> {
    let len = 40 + number as usize % 1200;
    let mut packet = vec![0; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..20].copy_from_slice(&[10, 1, 0, 2, 10, 2, 0, 2]);
    packet[24..26].copy_from_slice(&(len as u16 - 20).to_be_bytes());
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    let sum: u32 =
        packet[..20].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}

fn replay(arguments: &[&str]) -> serde_json::Value {
    let output = convoy(&[&["replay", "--json"], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn packets_come_out_as_they_went_in_and_a_second_run_uses_new_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // Far fewer numbers at a time than packets: the run waits for leases and drops nothing.
    let plan = Plan { lease_block: 64, ..Plan::simple() };
    let (site_a, site_b) = (plan.write('a', folder.path()), plan.write('b', folder.path()));
    let (site_a, site_b) = (site_a.to_str().unwrap(), site_b.to_str().unwrap());
    let packets: Vec<_> = (0..PACKETS).map(packet).collect();
    write_pcap(Path::new(&path("in.pcap")), &packets);
    let mut ivs = HashSet::new();
    for round in 0..2 {
        let (inner, wire, out) = (path("in.pcap"), path("wire.pcap"), path("out.pcap"));
        let counts = replay(&[site_a, "--plain-in", &inner, "--wire-out", &wire]);
        assert_eq!(counts["drops"], serde_json::json!({}), "{counts:#}");
        assert_eq!(counts["wire"]["packets_out"], PACKETS);
        for esp in read_pcap(Path::new(&wire)) {
            assert!(ivs.insert(esp[28..36].to_vec()), "round {round}: an IV came twice");
        }
        let counts = replay(&[site_b, "--wire-in", &wire, "--plain-out", &out]);
        assert_eq!(counts["drops"], serde_json::json!({}), "{counts:#}");
        // The gateways forward, so each takes one from the time to live; nothing else changes.
        for (before, after) in packets.iter().zip(read_pcap(Path::new(&out))) {
            assert_eq!((before.len(), &before[28..]), (after.len(), &after[28..]));
        }
        // The same again is a replay, also in another run.
        let counts = replay(&[site_b, "--wire-in", &wire, "--plain-out", &out]);
        assert_eq!(counts["plain"]["packets_out"], 0, "{counts:#}");
    }
    assert_eq!(ivs.len(), 2 * PACKETS as usize);
}

#[test]
fn a_capture_that_is_none_is_told_and_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let site = Plan::simple().write('a', folder.path());
    let not_a_capture = folder.path().join("a.toml");
    let arguments =
        ["replay", site.to_str().unwrap(), "--plain-in", not_a_capture.to_str().unwrap()];
    let output = convoy(&arguments);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(convoy(&arguments[..2]).status.code(), Some(2), "nothing to replay");
}

#[test]
fn captures_that_are_written_are_for_their_owner_alone_and_follow_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let site = Plan::simple().write('a', folder.path());
    let site = site.to_str().unwrap();
    write_pcap(Path::new(&path("in.pcap")), &[]);
    let outs = [path("plain.pcap"), path("wire.pcap")];
    // One is new; the other was there, for all to read.
    fs::write(&outs[1], "of before").unwrap();
    fs::set_permissions(&outs[1], fs::Permissions::from_mode(0o644)).unwrap();
    let [plain, wire] = &outs;
    replay(&[site, "--plain-in", &path("in.pcap"), "--plain-out", plain, "--wire-out", wire]);
    for out in &outs {
        assert_eq!(fs::metadata(out).unwrap().permissions().mode() & 0o7777, 0o600, "{out}");
        assert_eq!(read_pcap(Path::new(out)).len(), 0);
    }
    let (target, link) = (path("target"), path("link.pcap"));
    fs::write(&target, "of others").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    for option in ["--plain-out", "--wire-out"] {
        let output = convoy(&["replay", site, "--plain-in", &path("in.pcap"), option, &link]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let right = format!(
            "{link}: cannot use the capture file: it is a link, which is not followed (owner "
        );
        assert!(said.contains(&right), "{said}");
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "of others");
}
