//! Search of a captured wire for packets in the clear.

use std::{
    collections::BTreeMap,
    fs::File,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use ipnet::IpNet;
use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError, traits::PcapReaderIterator as _};

use crate::{LabError, error::Doing as _};

const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const HOP_BY_HOP: u8 = 0;
const ICMP: u8 = 1;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const ESP: u8 = 50;
const AH: u8 = 51;
const ICMPV6: u8 = 58;
const IKE_PORTS: [u16; 2] = [500, 4500];
/// Bytes of a capture read at once, and no less than its longest record.
const READ_AT_ONCE: usize = 1 << 20;
/// Packets in the clear that are described.
const MOST_TOLD: usize = 16;

/// Counts of the packets that a wire carried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WireReport {
    /// ESP and AH packets, fragments included.
    pub esp: u64,
    /// ESP in UDP (RFC 3948).
    pub esp_in_udp: u64,
    /// IKE messages and NAT keepalives.
    pub ike: u64,
    /// ARP, Neighbour Discovery and multicast group reports of the wire's own.
    pub neighbours: u64,
    /// ICMP messages between the wire's own addresses.
    pub icmp: u64,
    /// Everything else: packets that a tunnel should have carried, above all.
    pub clear: u64,
    /// The first of them.
    pub told: Vec<ClearPacket>,
}

/// A packet in the clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearPacket {
    /// Its number in the capture, from 1.
    pub number: u64,
    /// Whence and where to, if it is an IP packet.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// Its EtherType, or the protocol in IP.
    pub protocol: u16,
}

impl WireReport {
    /// Packets that an SA protected.
    #[must_use]
    pub fn protected(&self) -> u64 {
        self.esp + self.esp_in_udp
    }
}

/// Reads a capture of the wire between two gateways: whatever has an address of the `inner`
/// networks, and whatever is not IKE, ESP, AH or the link's own housekeeping, was in the clear. ICMP
/// messages count as clear when what they quote does.
///
/// # Errors
/// [`LabError::System`], [`LabError::Capture`].
pub fn wire_report(capture: &Path, inner: &[IpNet]) -> Result<WireReport, LabError> {
    let file = File::open(capture).doing(|| format!("open {}", capture.display()))?;
    let broken = |error: PcapError<&[u8]>| {
        // Its own words for malformed records quote all of them.
        let why = match error {
            PcapError::NomError(..) | PcapError::OwnedNomError(..) => "malformed".to_owned(),
            other => other.to_string(),
        };
        LabError::Capture { path: capture.to_owned(), why }
    };
    let mut reader = LegacyPcapReader::new(READ_AT_ONCE, file).map_err(broken)?;
    let mut report = WireReport::default();
    let mut number = 0;
    loop {
        match reader.next() {
            Ok((len, block)) => {
                if let PcapBlockOwned::Legacy(record) = block {
                    number += 1;
                    report.add(number, record.data, inner);
                }
                reader.consume(len);
            }
            Err(PcapError::Eof) => return Ok(report),
            Err(PcapError::Incomplete(_)) => reader.refill().map_err(broken)?,
            Err(error) => return Err(broken(error)),
        }
    }
}

/// Class of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Esp,
    EspInUdp,
    Ike,
    Neighbours,
    Icmp,
    Clear,
}

impl WireReport {
    fn add(&mut self, number: u64, frame: &[u8], inner: &[IpNet]) {
        let protocol = half(frame, 12).unwrap_or_default();
        let packet = frame.get(ETHERNET..).unwrap_or_default();
        let parsed = match protocol {
            ARP => return self.neighbours += 1,
            IPV4 | IPV6 => Packet::parse(packet),
            _ => None,
        };
        let kind = parsed.as_ref().map_or(Kind::Clear, |packet| packet.kind(inner));
        match kind {
            Kind::Esp => self.esp += 1,
            Kind::EspInUdp => self.esp_in_udp += 1,
            Kind::Ike => self.ike += 1,
            Kind::Neighbours => self.neighbours += 1,
            Kind::Icmp => self.icmp += 1,
            Kind::Clear => {
                self.clear += 1;
                if self.told.len() < MOST_TOLD {
                    let protocol = parsed.as_ref().map_or(protocol, |its| its.protocol.into());
                    let addresses = parsed.map(|its| (its.from, its.to));
                    self.told.push(ClearPacket { number, addresses, protocol });
                }
            }
        }
    }

    /// Packets in the clear, in words: number, protocol, and the two ends.
    #[must_use]
    pub fn clear_in_words(&self) -> String {
        let mut kinds = BTreeMap::<String, u64>::new();
        for packet in &self.told {
            let who = packet
                .addresses
                .map_or_else(|| "no IP".into(), |(from, to)| format!("{from} to {to}"));
            *kinds.entry(format!("{who}, protocol {}", packet.protocol)).or_default() += 1;
        }
        kinds.iter().map(|(kind, count)| format!("{count} × {kind}")).collect::<Vec<_>>().join("; ")
    }
}

/// The headers that matter of an IP packet.
#[derive(Debug)]
struct Packet<'a> {
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    /// Not the beginning of what the protocol carries.
    is_later_fragment: bool,
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Self::parse_v4(bytes),
            6 => Self::parse_v6(bytes),
            _ => None,
        }
    }

    fn parse_v4(bytes: &'a [u8]) -> Option<Self> {
        let header = usize::from(bytes.first()? & 0xf) * 4;
        let address = |at: usize| {
            let octets: [u8; 4] = *bytes.get(at..)?.first_chunk()?;
            Some(IpAddr::from(Ipv4Addr::from(octets)))
        };
        Some(Self {
            from: address(12)?,
            to: address(16)?,
            protocol: *bytes.get(9)?,
            is_later_fragment: half(bytes, 6)? & 0x1fff != 0,
            payload: bytes.get(header..)?,
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Option<Self> {
        let address = |at: usize| {
            let octets: [u8; 16] = *bytes.get(at..)?.first_chunk()?;
            Some(IpAddr::from(Ipv6Addr::from(octets)))
        };
        let mut packet = Self {
            from: address(8)?,
            to: address(24)?,
            protocol: *bytes.get(6)?,
            is_later_fragment: false,
            payload: bytes.get(40..)?,
        };
        if packet.protocol == HOP_BY_HOP {
            let length = (usize::from(*packet.payload.get(1)?) + 1) * 8;
            packet.protocol = *packet.payload.first()?;
            packet.payload = packet.payload.get(length..)?;
        }
        if packet.protocol == FRAGMENT {
            packet.is_later_fragment = half(packet.payload, 2)? >> 3 != 0;
            packet.protocol = *packet.payload.first()?;
            packet.payload = packet.payload.get(8..)?;
        }
        Some(packet)
    }

    fn kind(&self, inner: &[IpNet]) -> Kind {
        if inner.iter().any(|net| net.contains(&self.from) || net.contains(&self.to)) {
            return Kind::Clear;
        }
        match self.protocol {
            ESP | AH => Kind::Esp,
            // Its beginning says which; what matters is that the wire's own addresses have it.
            UDP if self.is_later_fragment => Kind::EspInUdp,
            UDP => self.udp(),
            ICMP | ICMPV6 => self.icmp(inner),
            _ => Kind::Clear,
        }
    }

    fn udp(&self) -> Kind {
        let ports = [half(self.payload, 0), half(self.payload, 2)];
        if !ports.iter().flatten().any(|port| IKE_PORTS.contains(port)) {
            return Kind::Clear;
        }
        let data = self.payload.get(8..).unwrap_or_default();
        let to_500 = ports.contains(&Some(IKE_PORTS[0]));
        // Four zero bytes mark IKE at port 4500, one byte a keepalive (RFC 3948).
        match data.first_chunk::<4>() {
            Some(spi) if !to_500 && *spi != [0; 4] => Kind::EspInUdp,
            _ => Kind::Ike,
        }
    }

    fn icmp(&self, inner: &[IpNet]) -> Kind {
        /// Neighbour Discovery and reports of multicast groups (RFC 4861, RFC 3810).
        const NEIGHBOURS: [u8; 9] = [130, 131, 132, 133, 134, 135, 136, 137, 143];
        let Some(kind) = self.payload.first() else { return Kind::Clear };
        let is_error = match self.protocol {
            ICMPV6 if NEIGHBOURS.contains(kind) => return Kind::Neighbours,
            ICMPV6 => *kind < 128,
            _ => [3, 4, 5, 11, 12].contains(kind),
        };
        if !is_error {
            return Kind::Icmp;
        }
        let quoted = self.payload.get(8..).and_then(Packet::parse);
        match quoted.map(|quoted| quoted.kind(inner)) {
            Some(Kind::Clear) | None => Kind::Clear,
            Some(_) => Kind::Icmp,
        }
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INNER: &str = "10.1.0.0/24";

    fn ipv4(from: [u8; 4], to: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        bytes.extend(from);
        bytes.extend(to);
        bytes.extend(payload);
        bytes
    }

    fn outer(protocol: u8, payload: &[u8]) -> Vec<u8> {
        ipv4([198, 51, 100, 1], [198, 51, 100, 2], protocol, payload)
    }

    fn udp(from: u16, to: u16, data: &[u8]) -> Vec<u8> {
        let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
        [&ports[..], &[0; 4], data].concat()
    }

    fn kind(packet: &[u8]) -> Kind {
        Packet::parse(packet).map_or(Kind::Clear, |packet| packet.kind(&[INNER.parse().unwrap()]))
    }

    #[test]
    fn what_gateways_say_to_each_other_is_told_apart() {
        let spi = [0xc0, 0, 0, 1, 9, 9];
        assert_eq!(kind(&outer(ESP, &spi)), Kind::Esp);
        assert_eq!(kind(&outer(UDP, &udp(4500, 4500, &spi))), Kind::EspInUdp);
        assert_eq!(kind(&outer(UDP, &udp(4500, 4500, &[0; 30]))), Kind::Ike);
        assert_eq!(kind(&outer(UDP, &udp(4500, 4500, &[0xff]))), Kind::Ike);
        assert_eq!(kind(&outer(UDP, &udp(500, 500, &spi))), Kind::Ike);
        let refused = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &outer(UDP, &udp(4500, 4500, &spi))].concat();
        assert_eq!(kind(&outer(ICMP, &refused)), Kind::Icmp);
        let v6 = |next: u8, payload: &[u8]| {
            let mut bytes = vec![0x60, 0, 0, 0, 0, 0, next, 64];
            bytes.extend([0xfe; 32]);
            bytes.extend(payload);
            kind(&bytes)
        };
        assert_eq!(v6(ICMPV6, &[135]), Kind::Neighbours);
        assert_eq!(v6(HOP_BY_HOP, &[ICMPV6, 0, 0, 0, 0, 0, 0, 0, 143]), Kind::Neighbours);
        assert_eq!(v6(FRAGMENT, &[ESP, 0, 0, 1, 0, 0, 0, 0]), Kind::Esp);
        assert_eq!(v6(6, &[0; 20]), Kind::Clear);
    }

    #[test]
    fn whatever_names_an_inner_address_is_in_the_clear() {
        let ping = ipv4([10, 1, 0, 2], [10, 2, 0, 2], ICMP, &[8, 0, 0, 0]);
        assert_eq!(kind(&ping), Kind::Clear);
        // Even as ESP: the tunnel's own end is another.
        assert_eq!(kind(&ipv4([192, 0, 2, 1], [10, 1, 0, 2], ESP, &[1; 8])), Kind::Clear);
        let quoting = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &ping].concat();
        assert_eq!(kind(&outer(ICMP, &quoting)), Kind::Clear);
        assert_eq!(kind(&outer(UDP, &udp(53, 53, &[1; 8]))), Kind::Clear);
        assert_eq!(kind(&outer(6, &[0; 20])), Kind::Clear);
    }

    #[test]
    fn cut_packets_are_in_the_clear_and_no_reason_to_panic() {
        let whole = outer(UDP, &udp(4500, 4500, &[1; 8]));
        for end in 0..20 {
            assert_eq!(kind(&whole[..end]), Kind::Clear);
        }
        let mut report = WireReport::default();
        report.add(1, &[0; 13], &[]);
        report.add(2, &[&[0; 12][..], &[0x08, 0x06]].concat(), &[]);
        assert_eq!((report.clear, report.neighbours, report.told[0].number), (1, 1, 1));
    }
}
