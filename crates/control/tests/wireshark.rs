//! tshark, which nobody here wrote, decrypts packets with the keys that `wireshark::esp_sa` writes.
#![allow(clippy::unwrap_used)] // tests may, but clippy sees test functions only

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use convoy_control::site::Site;
use convoy_control::wireshark::esp_sa;
use convoy_crypto::{Cpu, Nonce, SealKey, SealOp, seal_burst};

/// Every key size with every ICV length, in turn over IPv4, IPv6 and UDP.
fn site(dir: &Path) -> Site {
    let mut text = "name = \"left\"\nstate_dir = \".\"\n[plain]\ninterface = \"tun\"\n".to_owned();
    for (n, (bits, icv)) in
        [128, 192, 256].iter().flat_map(|b| [16, 12, 8].map(|i| (b, i))).enumerate()
    {
        let key = format!("{:02x}", 0x11 * (n + 1)).repeat(bits / 8 + 4);
        let (local, remote) =
            if n % 3 == 1 { ("2001:db8::1", "2001:db8::2") } else { ("192.0.2.1", "192.0.2.2") };
        let encap = if n % 3 == 2 { "encap = \"udp\"\n" } else { "" };
        text += &format!(
            "[[sa]]\nname = \"s{n}\"\ndirection = \"outbound\"\nspi = {}\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
             algorithm = \"aes-{bits}-gcm\"\nicv = {icv}\nkey = \"{key}\"\nesn = false\n{encap}",
            4096 + n
        );
    }
    let path = dir.join("left.toml");
    std::fs::write(&path, text).unwrap();
    Site::load(&path).unwrap_or_else(|errors| panic!("{errors}")).0
}

fn sum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 =
        bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

fn ip(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = (20 + payload.len()) as u16;
            packet.extend([0x45, 0]);
            packet.extend(total.to_be_bytes());
            packet.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            let sum = sum(&packet);
            packet[10..12].copy_from_slice(&sum);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend((payload.len() as u16).to_be_bytes());
            packet.extend([protocol, 64]);
            packet.extend(from.octets());
            packet.extend(to.octets());
        }
        _ => panic!(),
    }
    packet.extend(payload);
    packet
}

/// An echo request inside ESP, as an SA of the site would send it (RFC 4303, RFC 4106).
fn packet(sa: &convoy_control::site::Association) -> Vec<u8> {
    let mut echo = vec![8, 0, 0, 0, 0, 7, 0, 1];
    echo.extend([0x61; 18]);
    let check = sum(&echo);
    echo[2..4].copy_from_slice(&check);
    let mut payload = ip("10.1.0.1".parse().unwrap(), "10.2.0.1".parse().unwrap(), 1, &echo);
    // Padding 1, 2, 3 …, its length, and next header 4: IPv4.
    let pad = (4 - (payload.len() + 2) % 4) % 4;
    payload.extend((1..=pad as u8).chain([pad as u8, 4]));
    let sequence = 1_u32;
    let mut esp = sa.spi.get().to_be_bytes().to_vec();
    esp.extend(sequence.to_be_bytes());
    let iv = u64::from(sequence).to_be_bytes();
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&sa.key.salt());
    nonce[4..].copy_from_slice(&iv);
    let key = SealKey::new(&Cpu::detect().unwrap(), sa.key.params(), sa.key.cipher_key()).unwrap();
    let mut icv = vec![0; sa.key.params().icv_len.bytes()];
    seal_burst(&mut [SealOp::new(&key, Nonce::new(nonce), &esp, &mut payload, &mut icv).unwrap()]);
    let body = [esp.as_slice(), &iv, &payload, &icv].concat();
    match sa.encap {
        None => ip(sa.endpoints.local, sa.endpoints.remote, 50, &body),
        Some(encap) => {
            let mut udp = encap.local_port.to_be_bytes().to_vec();
            udp.extend(encap.remote_port.to_be_bytes());
            udp.extend((8 + body.len() as u16).to_be_bytes());
            udp.extend([0, 0]);
            udp.extend(body);
            ip(sa.endpoints.local, sa.endpoints.remote, 17, &udp)
        }
    }
}

/// A capture of raw IP packets (LINKTYPE_RAW, 101).
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 101, 0, 0, 0]);
    for packet in packets {
        file.extend([0; 8]);
        file.extend((packet.len() as u32).to_le_bytes().repeat(2));
        file.extend(packet);
    }
    file
}

#[test]
fn tshark_decrypts_and_authenticates_with_our_lines() {
    if Command::new("tshark").arg("--version").output().is_err() {
        // Past the harness, which keeps the output of tests that pass to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: tshark is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let site = site(dir.path());
    let packets: Vec<_> = site.outbound.iter().map(|sa| packet(&sa.association)).collect();
    std::fs::write(dir.path().join("wire.pcap"), capture(&packets)).unwrap();
    std::fs::write(dir.path().join("esp_sa"), esp_sa(&site).as_bytes()).unwrap();
    let run = Command::new("tshark")
        .env("WIRESHARK_CONFIG_DIR", dir.path())
        .arg("-r")
        .arg(dir.path().join("wire.pcap"))
        .args([
            "-n",
            "-o",
            "esp.enable_encryption_decode:TRUE",
            "-o",
            "esp.enable_authentication_check:TRUE",
        ])
        .args(["-T", "fields", "-e", "esp.icv_good", "-e", "icmp.type"])
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let decrypted = out
        .lines()
        .filter(|line| line.split('\t').eq(["1", "8"]) || line.split('\t').eq(["True", "8"]));
    assert_eq!(decrypted.count(), packets.len(), "{out}\n{err}");
    assert!(!err.contains("esp_sa"), "{err}");
}
