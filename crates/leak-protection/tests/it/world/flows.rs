//! Packets that policies tell apart, and what of them comes out of the TUN interface.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{SIGN, Tun, packet4, packet6};

/// A packet, as far as policies look at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    /// Of the destination.
    pub(crate) port: u16,
}

impl Flow {
    pub(crate) fn of(packet: &[u8]) -> Self {
        let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        if packet[0] >> 4 == 4 {
            let address =
                |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
            Self { from: address(12), to: address(16), port: port(22) }
        } else {
            let address =
                |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
            Self { from: address(8), to: address(24), port: port(42) }
        }
    }
}

/// A packet with UDP from one port to another.
pub(crate) fn packet(from: &str, to: &str, ports: [u16; 2], tag: &[u8]) -> Vec<u8> {
    let is_v4 = !from.contains(':');
    let mut packet = if is_v4 { packet4(from, to, tag) } else { packet6(from, to, tag) };
    let udp = if is_v4 { 20 } else { 40 };
    for (at, port) in [udp, udp + 2].into_iter().zip(ports) {
        let old = u32::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        packet[at..at + 2].copy_from_slice(&port.to_be_bytes());
        if !is_v4 {
            // RFC 1624 equation 3.
            let sum = u32::from(!u16::from_be_bytes([packet[46], packet[47]]));
            let sum = sum + (0xffff - old) + u32::from(port);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
            packet[46..48].copy_from_slice(&sum.to_be_bytes());
        }
    }
    packet
}

/// Tags of what comes out of the TUN interface.
pub(crate) fn drain(tun: &mut Tun, seen: &mut BTreeSet<Vec<u8>>) {
    while let Some(packet) = tun.read() {
        // Errors quote packets of others.
        let protocol = if packet[0] >> 4 == 4 { packet[9] } else { packet[6] };
        if protocol != 17 {
            continue;
        }
        if let Some(at) = packet.windows(SIGN.len()).position(|w| w == SIGN) {
            let tag = packet[at + SIGN.len()..].iter().copied().take(8).collect();
            seen.insert(tag);
        }
    }
}
