//! DPDK's example `ipsec-secgw`, a gateway with crypto devices: its input and its output.
//!
//! It stands between a device that has the same packets over and over and one that takes all (`net_pcap`, `net_null`), so neither a
//! card nor a kernel is in its figure. It has no way to say how long windows of packets take; `interop/secgw` adds that to
//! its source.

use std::net::Ipv4Addr;

use convoy_crypto::{Cipher, HashAlg, IcvLen, Integrity, KeyBits, MacAlg, Suite};

use super::PACKETS;
use super::options::Driver;

/// Its name.
pub const NAME: &str = "ipsec-secgw";
/// Variable of the patch: number of windows that it times before it ends.
pub(super) const WINDOWS_VARIABLE: &str = "SECGW_WINDOWS";
/// Names of its files.
pub(super) const FILES: [&str; 2] = ["secgw.cfg", "packets.pcap"];
/// Name of the file that [`Sink::Capture`] writes.
pub(super) const SEALED: &str = "sealed.pcap";
/// SPI of the SA that protects.
pub(super) const SPI: u32 = 5;
/// The tunnel's other end.
pub(super) const PEER: Ipv4Addr = Ipv4Addr::new(172, 16, 2, 5);
/// An Ethernet header of IPv4 (IEEE 802.3), addresses that are local.
const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];

/// The device that takes what comes out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sink {
    /// Forgets it.
    Null,
    /// Writes it to [`SEALED`].
    Capture,
}

/// Its configuration: one SA in each direction, and policies for the networks of [`Shape`](crate::esp::site::Shape)'s first
/// policy; none for suites that it does not have.
pub(super) fn configuration(suite: Suite) -> Option<String> {
    let algorithms = match suite {
        Suite::Gcm(params) if params.icv_len == IcvLen::Icv16 => {
            let bits = params.key_bits.bits();
            // The salt of the nonce follows the key (RFC 4106 section 8.1).
            format!("aead_algo aes-{bits}-gcm aead_key {}", key(suite.key_bytes() + 4))
        }
        Suite::Pair { cipher: Cipher::AesCbc(bits), integrity } => {
            let (bits, mac) = (KeyBits::bits(bits), mac(integrity)?);
            let (cipher_key, mac_key) = (key(suite.key_bytes()), key(suite.integrity_key_bytes()));
            format!(
                "cipher_algo aes-{bits}-cbc cipher_key {cipher_key} auth_algo {mac} auth_key {mac_key}"
            )
        }
        _ => return None,
    };
    let (near, far) = ("10.0.0.0/28", "10.128.0.0/28");
    let any = "sport 0:65535 dport 0:65535";
    Some(format!(
        "sp ipv4 out esp protect {SPI} pri 1 src {near} dst {far} {any}\n\
         sp ipv4 in esp protect 105 pri 1 src {far} dst {near} {any}\n\
         sa out {SPI} {algorithms} mode ipv4-tunnel src 172.16.1.5 dst {PEER}\n\
         sa in 105 {algorithms} mode ipv4-tunnel src {PEER} dst 172.16.1.5\n\
         rt ipv4 dst {PEER}/32 port 1\n\
         rt ipv4 dst {near} port 0\n"
    ))
}

/// A key that is not secret, as the configuration spells it.
fn key(bytes: usize) -> String {
    let bytes = (1..=bytes).map(|byte| format!("{byte:02x}"));
    bytes.collect::<Vec<_>>().join(":")
}

/// Its name of a MAC.
const fn mac(integrity: Integrity) -> Option<&'static str> {
    match (integrity.alg(), integrity.icv_bytes()) {
        (MacAlg::Hmac(HashAlg::Sha1), 12) => Some("sha1-hmac"),
        (MacAlg::Hmac(HashAlg::Sha256), 16) => Some("sha256-hmac"),
        (MacAlg::Hmac(HashAlg::Sha384), 24) => Some("sha384-hmac"),
        (MacAlg::Hmac(HashAlg::Sha512), 32) => Some("sha512-hmac"),
        (MacAlg::AesXcbc, 12) => Some("aes-xcbc-mac-96"),
        _ => None,
    }
}

/// A capture file (pcap 2.4) with these packets behind Ethernet headers.
pub(super) fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let words = |file: &mut Vec<u8>, words: &[u32]| {
        words.iter().for_each(|word| file.extend_from_slice(&word.to_le_bytes()));
    };
    // Magic number, version 2.4, no time zone, no accuracy, longest packet, Ethernet.
    words(&mut file, &[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1]);
    for packet in packets {
        let bytes = (ETHERNET.len() + packet.len()) as u32;
        words(&mut file, &[0, 0, bytes, bytes]);
        file.extend_from_slice(&ETHERNET);
        file.extend_from_slice(packet);
    }
    file
}

/// All arguments of a run on one processor, with [`FILES`] in its folder; outbound, by the path of `librte_ipsec`.
pub(super) fn arguments(driver: &Driver, processor: usize, sink: Sink) -> Vec<String> {
    let sink = match sink {
        Sink::Null => "net_null0,no-rx=1".to_owned(),
        Sink::Capture => format!("net_pcap1,tx_pcap={SEALED}"),
    };
    let [configuration, capture] = FILES;
    let words = format!(
        "--no-huge -m 1024 --no-pci --no-telemetry --no-shconf -v --lcores 0@{processor} --vdev {driver}0 \
         --vdev net_pcap0,rx_pcap={capture},infinite_rx=1 --vdev {sink} \
         -- -p 0x3 -P -u 0x2 --mtu 1600 --config (0,0,0),(1,0,0) -f {configuration} -w 0 -l"
    );
    words.split_whitespace().map(str::to_owned).collect()
}

/// Cycles per packet of each of `count` windows, as the patch has them printed.
///
/// # Errors
/// The fault of the rows.
pub fn windows(text: &str, count: usize) -> Result<Vec<f64>, String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("window,"));
    let window = |row: &str| {
        let wrong = || format!("no row of its windows: {row}");
        let (packets, cycles) = row.split_once(',').ok_or_else(wrong)?;
        let packets: f64 = packets.trim().parse().map_err(|_| wrong())?;
        let cycles: f64 = cycles.trim().parse().map_err(|_| wrong())?;
        if packets >= PACKETS as f64 && cycles > 0.0 { Ok(cycles / packets) } else { Err(wrong()) }
    };
    let windows = rows.map(window).collect::<Result<Vec<f64>, _>>()?;
    match windows.len() {
        found if found == count => Ok(windows),
        0 => Err(
            "it timed no windows: build it with interop/secgw/build.sh, which adds that to its source"
                .to_owned(),
        ),
        other => Err(format!("it timed {other} windows instead of {count}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dpdk::WINDOWS;

    fn of(suite: &str) -> Option<String> {
        configuration(suite.parse().unwrap())
    }

    #[test]
    fn a_configuration_has_an_sa_and_a_policy_in_each_direction() {
        let gcm = of("aes-128-gcm-16").unwrap();
        let starts = |line: &str| gcm.lines().filter(|found| found.starts_with(line)).count();
        for line in
            ["sp ipv4 out esp protect 5 ", "sp ipv4 in esp protect 105 ", "sa out 5 ", "sa in 105 "]
        {
            assert_eq!(starts(line), 1, "{gcm}");
        }
        // The key and four bytes of salt.
        assert!(
            gcm.contains("aead_algo aes-128-gcm aead_key 01:02:") && gcm.contains(":14 mode"),
            "{gcm}"
        );
        let cbc = of("aes-256-cbc+hmac-sha256-128").unwrap();
        assert!(
            cbc.contains("cipher_algo aes-256-cbc cipher_key 01:")
                && cbc.contains(":20 auth_algo sha256-hmac"),
            "{cbc}"
        );
        for other in [
            "aes-128-gcm-8",
            "chacha20-poly1305",
            "aes-128-cbc+hmac-sha256-96",
            "null+hmac-sha1-96",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_capture_has_each_packet_behind_an_ethernet_header() {
        let file = capture(&[vec![0x45; 40], vec![0x46; 41]]);
        assert_eq!(file.len(), 24 + 2 * (16 + 14) + 40 + 41);
        assert_eq!(file[..8], [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]);
        assert_eq!(file[24 + 8..24 + 16], [54, 0, 0, 0, 54, 0, 0, 0]);
        assert_eq!(file[24 + 16 + 12..24 + 16 + 15], [8, 0, 0x45]);
    }

    #[test]
    fn windows_are_read_and_their_absence_is_told() {
        let rows = "entering main loop\n".to_owned() + &"window,1040,2080\n".repeat(WINDOWS);
        assert_eq!(windows(&rows, WINDOWS).unwrap(), [2.0; WINDOWS]);
        for (text, said) in [
            ("Bye...", "interop/secgw/build.sh"),
            ("window,1024,2048", "timed 1 windows instead of"),
            ("window,1,2048", "no row of its windows: 1,2048"),
            ("window,1024,fast", "no row of its windows"),
            ("window,1024", "no row of its windows"),
        ] {
            let error = windows(text, WINDOWS).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
