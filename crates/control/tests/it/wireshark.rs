//! tshark, which nobody here wrote, decrypts packets with the keys that `wireshark::esp_sa` writes.

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use convoy_control::site::Site;
use convoy_control::wireshark::esp_sa;
use convoy_crypto::{Cipher, Cpu, Nonce, SealKey, SealOp, Suite, seal_burst};
use convoy_ipsec::suite::EspSuite;

/// Every suite that tshark has a name for, in turn over IPv4, IPv6 and UDP.
fn site(dir: &Path) -> Site {
    let mut text =
        "name = \"left\"\nlegacy = true\nstate_dir = \".\"\n[plain]\ninterface = \"tun\"\n"
            .to_owned();
    for (n, esp) in named().enumerate() {
        let suite = esp.suite();
        // No two bytes of a key alike, for 3DES takes none of equal parts.
        let digits = |bytes: usize, first: usize| -> String {
            (0..bytes).map(|at| format!("{:02x}", (first + n) ^ at)).collect()
        };
        let key = digits(suite.key_bytes() + esp.salt_bytes(), 0x11);
        let mac = digits(suite.integrity_key_bytes(), 0x61);
        let name = suite.to_string();
        let mut algorithms = match (suite, name.split_once('+')) {
            (_, Some((cipher, mac))) => {
                format!("encryption = \"{cipher}\"\nintegrity = \"{mac}\"\n")
            }
            (Suite::Gcm(params), None) => {
                let bits = params.key_bits.bits();
                format!("algorithm = \"aes-{bits}-gcm\"\nicv = {}\n", params.icv_len.bytes())
            }
            (other, None) => panic!("{other}"),
        };
        for (name, key) in [("key", key), ("integrity_key", mac)] {
            if !key.is_empty() {
                algorithms += &format!("{name} = \"{key}\"\n");
            }
        }
        let (local, remote) =
            if n % 3 == 1 { ("2001:db8::1", "2001:db8::2") } else { ("192.0.2.1", "192.0.2.2") };
        let encap = if n % 3 == 2 { "encap = \"udp\"\n" } else { "" };
        text += &format!(
            "[[sa]]\nname = \"s{n}\"\ndirection = \"outbound\"\nspi = {}\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
             {algorithms}esn = false\n{encap}",
            4096 + n
        );
    }
    let path = dir.join("left.toml");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
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

/// The suites that tshark has a name for.
fn named() -> impl Iterator<Item = EspSuite> {
    EspSuite::all().filter(|esp| match esp.suite() {
        Suite::Pair { cipher, .. } => !matches!(cipher, Cipher::CamelliaCbc(_)),
        suite => matches!(suite, Suite::Gcm(_)),
    })
}

/// An echo request inside ESP, as an SA of the site would send it (RFC 4303).
fn packet(sa: &convoy_control::site::Association) -> Vec<u8> {
    let mut echo = vec![8, 0, 0, 0, 0, 7, 0, 1];
    echo.extend([0x61; 18]);
    let check = sum(&echo);
    echo[2..4].copy_from_slice(&check);
    let mut payload = ip("10.1.0.1".parse().unwrap(), "10.2.0.1".parse().unwrap(), 1, &echo);
    let suite = sa.key.suite();
    let lengths = sa.key.esp().layout();
    // Padding 1, 2, 3 …, its length, and next header 4: IPv4.
    let pad = (lengths.align() - (payload.len() + 2) % lengths.align()) % lengths.align();
    payload.extend((1..=pad as u8).chain([pad as u8, 4]));
    let sequence = 1_u32;
    let mut body = sa.spi.get().to_be_bytes().to_vec();
    body.extend(sequence.to_be_bytes());
    let aad = body.clone();
    let iv = [0x5a; 16];
    body.extend(&iv[..lengths.iv_len()]);
    let header = body.len();
    body.extend(payload);
    let salt = sa.key.salt();
    let nonce = [&salt.expose()[..sa.key.esp().salt_bytes()], &iv].concat();
    let nonce = Nonce::front(*nonce.first_chunk().unwrap(), suite.nonce_bytes() as u8);
    let key = SealKey::new(&Cpu::detect().unwrap(), suite, sa.key.keys()).unwrap();
    let mut icv = vec![0; lengths.icv_len()];
    let op = if suite.is_aead() {
        SealOp::new(&key, nonce, &aad, &mut body[header..], &mut icv)
    } else {
        SealOp::framed(&key, nonce, &mut body, header, &[], &mut icv)
    };
    seal_burst(&mut [op.unwrap()]);
    body.extend(icv);
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
    for (line, sa) in out.lines().zip(&site.outbound) {
        let suite = sa.association.key.suite();
        // It does not check AES-XCBC and AES-CMAC, and says nothing of them then.
        let unchecked = suite.to_string().contains("+aes-");
        let (icv, icmp) = line.split_once('\t').unwrap();
        assert!(matches!(icv, "1" | "True") || unchecked, "{suite}: {line}\n{err}");
        assert_eq!(icmp, "8", "{suite}: not decrypted\n{err}");
    }
    assert_eq!(out.lines().count(), packets.len(), "{out}\n{err}");
    assert!(!err.contains("esp_sa"), "{err}");
}

#[test]
fn what_wireshark_has_no_name_for_stands_as_a_comment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("left.toml");
    let text =
        "name = \"left\"\nstate_dir = \".\"\n[plain]\ninterface = \"tun\"\n[[sa]]\nname = \"c\"\n\
         direction = \"outbound\"\nspi = 4096\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\n\
         algorithm = \"aes-128-ccm\"\nkey = \""
            .to_owned();
    std::fs::write(&path, text + &"1f".repeat(19) + "\"\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let site = Site::load(&path).unwrap_or_else(|errors| panic!("{errors}")).0;
    assert_eq!(*esp_sa(&site), "# c: Wireshark has no name for aes-128-ccm-16\n");
}
