//! Packets of hosts that exist only in this process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Context as _;
use convoy_lab::Family;
use convoy_wire::checksum::{Sum, fill_icmp, fill_udp};
use convoy_wire::udp::UdpRepr;
use convoy_wire::{Ipv4Repr, Ipv6Repr, Protocol, Tos};

/// ICMP and ICMPv6 echo request and reply (RFC 792, RFC 4443 section 4).
const ECHO_V4: [u8; 2] = [8, 0];
const ECHO_V6: [u8; 2] = [128, 129];
/// ICMP header before the payload, with identifier and sequence number.
const ICMP_HEADER: usize = 8;
const UDP_HEADER: usize = 8;
/// The number of a datagram, and the same number with every bit flipped: together they add nothing
/// to the checksum, so that it need not be computed again.
const NUMBER: usize = 16;
/// Bytes of an echo request behind its header.
const ECHO_PAYLOAD: usize = 56;
/// The hosts' UDP port.
const PORT: u16 = 4000;

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    A,
    B,
}

impl Host {
    /// The one that it sends to.
    pub(super) const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// The two hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hosts {
    pub(super) family: Family,
}

impl Hosts {
    fn address(self, host: Host) -> IpAddr {
        let n = match host {
            Host::A => 1,
            Host::B => 2,
        };
        match self.family {
            Family::V4 => Ipv4Addr::new(10, n, 0, 2).into(),
            Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, n.into(), 0, 0, 0, 0, 2).into(),
        }
    }

    fn ip_header(self) -> usize {
        match self.family {
            Family::V4 => 20,
            Family::V6 => 40,
        }
    }

    /// A packet of `sender` with `protocol` and this payload, and its pseudo-header.
    fn packet(
        self,
        sender: Host,
        protocol: Protocol,
        payload: &[u8],
    ) -> anyhow::Result<(Vec<u8>, Sum)> {
        let (from, to) = (self.address(sender), self.address(sender.other()));
        let mut packet = match (from, to) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Ipv4Repr {
                tos: Tos(0),
                ident: 0,
                dont_fragment: true,
                ttl: 64,
                protocol,
                src,
                dst,
                payload_len: payload.len(),
            }
            .to_bytes()?
            .to_vec(),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Ipv6Repr {
                tos: Tos(0),
                flow_label: 0,
                next_header: protocol,
                hop_limit: 64,
                src,
                dst,
                payload_len: payload.len(),
            }
            .to_bytes()?
            .to_vec(),
            _ => anyhow::bail!("hosts of two families"),
        };
        packet.extend_from_slice(payload);
        let pseudo = Sum::pseudo(from, to, protocol, payload.len()).context("packet too long")?;
        Ok((packet, pseudo))
    }

    /// An echo request, which A sends, or its reply, which B sends.
    pub(super) fn echo(self, sender: Host, number: u16) -> anyhow::Result<Vec<u8>> {
        let (protocol, kinds) = match self.family {
            Family::V4 => (Protocol::ICMP, ECHO_V4),
            Family::V6 => (Protocol::ICMPV6, ECHO_V6),
        };
        let mut message = vec![0; ICMP_HEADER + ECHO_PAYLOAD];
        message[0] = kinds[sender as usize];
        message[6..8].copy_from_slice(&number.to_be_bytes());
        let (mut packet, pseudo) = self.packet(sender, protocol, &message)?;
        let pseudo = if self.family == Family::V4 { Sum::default() } else { pseudo };
        fill_icmp(pseudo, &mut packet[self.ip_header()..])?;
        Ok(packet)
    }

    /// True if a packet carries the same message as another: everything behind the IP header, in
    /// which routers count.
    pub(super) fn same_message(self, a: &[u8], b: &[u8]) -> bool {
        a.len() == b.len() && a.get(self.ip_header()..) == b.get(self.ip_header()..)
    }

    /// A datagram of `sender`, of `size` bytes in all, as [`Datagrams`].
    pub(super) fn datagrams(self, sender: Host, size: usize) -> anyhow::Result<Datagrams> {
        let number_at = self.ip_header() + UDP_HEADER;
        let payload = size.checked_sub(number_at).filter(|room| *room >= NUMBER);
        let payload_len = payload.context("no room for a datagram")?;
        let header = UdpRepr { src_port: PORT, dst_port: PORT, payload_len };
        let mut message = header.to_bytes()?.to_vec();
        // The number 0 and its complement, then bytes that differ from their neighbours.
        message.extend_from_slice(&[0; NUMBER / 2]);
        message.extend_from_slice(&[0xff; NUMBER / 2]);
        message.extend((NUMBER..payload_len).map(|n| ((n * 167) >> 3) as u8));
        let (mut packet, pseudo) = self.packet(sender, Protocol::UDP, &message)?;
        fill_udp(pseudo, &mut packet[self.ip_header()..])?;
        Ok(Datagrams { packet, number_at })
    }
}

/// Datagrams that differ in their numbers only.
#[derive(Debug)]
pub(super) struct Datagrams {
    packet: Vec<u8>,
    number_at: usize,
}

impl Datagrams {
    /// The one with a number.
    pub(super) fn numbered(&mut self, number: u64) -> &[u8] {
        let at = self.number_at;
        self.packet[at..at + 8].copy_from_slice(&number.to_be_bytes());
        self.packet[at + 8..at + NUMBER].copy_from_slice(&(!number).to_be_bytes());
        &self.packet
    }

    /// Payload bytes of each.
    pub(super) fn payload(&self) -> usize {
        self.packet.len() - self.number_at
    }

    /// The number of a packet that is one of these, undamaged behind its IP header's counters.
    pub(super) fn number_of(&self, packet: &[u8]) -> Option<u64> {
        let number = u64::from_be_bytes(*packet.get(self.number_at..)?.first_chunk()?);
        let complement = u64::from_be_bytes(*packet.get(self.number_at + 8..)?.first_chunk()?);
        let rest = self.number_at + NUMBER;
        let right = number == !complement && packet.get(rest..) == self.packet.get(rest..);
        right.then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoy_wire::checksum::verify;

    const BOTH: [Hosts; 2] = [Hosts { family: Family::V4 }, Hosts { family: Family::V6 }];

    #[test]
    fn the_checksum_holds_for_every_number() {
        for hosts in BOTH {
            let mut datagrams = hosts.datagrams(Host::A, 1400).unwrap();
            for number in [0, 1, 0xffff, 0x1234_5678_9abc_def0, u64::MAX] {
                let packet = datagrams.numbered(number).to_vec();
                let message = &packet[hosts.ip_header()..];
                let (from, to) = (hosts.address(Host::A), hosts.address(Host::B));
                let pseudo = Sum::pseudo(from, to, Protocol::UDP, message.len()).unwrap();
                assert!(verify(pseudo, message));
                assert_eq!(datagrams.number_of(&packet), Some(number));
            }
        }
    }

    #[test]
    fn a_damaged_datagram_has_no_number() {
        let mut datagrams = BOTH[0].datagrams(Host::B, 100).unwrap();
        for at in [30, 40, 50, 99] {
            let mut packet = datagrams.numbered(7).to_vec();
            packet[at] ^= 1;
            assert_eq!(datagrams.number_of(&packet), None, "byte {at}");
        }
        let short = datagrams.numbered(7)[..99].to_vec();
        assert_eq!(datagrams.number_of(&short), None);
        assert!(BOTH[1].datagrams(Host::A, 63).is_err());
    }

    #[test]
    fn a_reply_is_not_its_request() {
        for hosts in BOTH {
            let [request, reply] = [Host::A, Host::B].map(|sender| hosts.echo(sender, 3).unwrap());
            assert!(hosts.same_message(&request, &request));
            assert!(!hosts.same_message(&request, &reply));
            assert!(!hosts.same_message(&reply, &hosts.echo(Host::B, 4).unwrap()));
        }
    }
}
