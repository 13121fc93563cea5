//! Flows with another source, entered into the kernel's table by a process.
//!
//! The kernel enters a new flow itself when its first packet leaves. Who takes that packet away before enters the flow in
//! the kernel's place, so that answers find their way back.

use core::net::IpAddr;

use netlink_packet_core::{DefaultNla, Emitable as _, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_netfilter::NetfilterProtoFamily;

use super::{Conntrack, GET, NESTED, NEW, TUPLE, message};
use crate::{
    Refusal,
    nft::{
        Answer, Message,
        elements::all,
        expression::{ICMP, ICMPV6, UDP},
    },
};

/// `CTA_TUPLE_REPLY`, `CTA_PROTOINFO`, `CTA_NAT_SRC`, `CTA_TIMEOUT`.
const REPLY: u16 = 2;
const PROTOCOL_STATE: u16 = 4;
const NEW_SOURCE: u16 = 6;
const TIMEOUT: u16 = 7;
/// `CTA_TUPLE_IP` and `CTA_TUPLE_PROTO`.
const ADDRESSES: u16 = 1;
const PROTOCOL: u16 = 2;
/// `CTA_IP_V4_SRC` and `CTA_IP_V4_DST`; those of IPv6.
const V4: [u16; 2] = [1, 2];
const V6: [u16; 2] = [3, 4];
/// `CTA_PROTO_NUM`, `CTA_PROTO_SRC_PORT`, `CTA_PROTO_DST_PORT`; `CTA_PROTO_ICMP_ID`, `_TYPE`, `_CODE`, those of ICMPv6.
const NUMBER: u16 = 1;
const PORTS: [u16; 2] = [2, 3];
const ICMP_FIELDS: [u16; 3] = [4, 5, 6];
const ICMPV6_FIELDS: [u16; 3] = [7, 8, 9];
/// `CTA_NAT_V4_MINIP`, `CTA_NAT_V4_MAXIP`, `CTA_NAT_PROTO`, `CTA_NAT_V6_MINIP`, `CTA_NAT_V6_MAXIP`.
const NAT_V4: [u16; 2] = [1, 2];
const NAT_PROTOCOL: u16 = 3;
const NAT_V6: [u16; 2] = [4, 5];
/// `CTA_PROTONAT_PORT_MIN`, `CTA_PROTONAT_PORT_MAX`.
const NAT_PORTS: [u16; 2] = [1, 2];
/// `CTA_PROTOINFO_TCP`, `CTA_PROTOINFO_TCP_STATE`, `_FLAGS_ORIGINAL`, `_FLAGS_REPLY`.
const TCP_STATE_OF: u16 = 1;
const STATE: u16 = 1;
const FLAGS: [u16; 2] = [4, 5];
/// `TCP_CONNTRACK_SYN_SENT`, `TCP_CONNTRACK_ESTABLISHED`.
const SYN_SENT: u8 = 1;
const ESTABLISHED: u8 = 3;
/// `IP_CT_TCP_FLAG_BE_LIBERAL`, as value and mask: which windows were offered nobody has seen.
const LIBERAL: [u8; 2] = [8, 8];
/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// `SYN` and `ACK` among the flags of TCP, and where these are in its header.
const SYN: u8 = 2;
const ACK: u8 = 16;
const TCP_FLAGS_AT: usize = 13;
/// Echo Request and Echo Reply of ICMP, and of ICMPv6.
const ECHO: [u8; 2] = [8, 0];
const ECHO6: [u8; 2] = [128, 129];
/// Seconds that a flow stays without a second packet: as the kernel has it for one that is new.
const STAYS: u32 = 30;
const TCP_STAYS: u32 = 120;

/// A new flow whose source is changed. Of TCP, UDP, and echoes of ICMP and ICMPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hidden {
    protocol: u8,
    /// The source before it is changed, with its port, or the number of an ICMP message's flow.
    source: (IpAddr, u16),
    /// The same behind it.
    shown: (IpAddr, u16),
    destination: IpAddr,
    /// Its port; of ICMP, type and code.
    target: [u8; 2],
    /// Of TCP: whether it begins with this packet.
    begins: bool,
}

impl Hidden {
    /// The flow of a packet, from its IP header on, whose source is changed already: what the source was, with its port.
    /// None if flows of its kind are not entered here, or the packet is not whole.
    #[must_use]
    pub fn of(packet: &[u8], source: IpAddr, port: u16) -> Option<Self> {
        let (protocol, addresses, rest) = match packet.first()? >> 4 {
            4 => {
                let length = usize::from(packet.first()? & 0xf) * 4;
                let addresses = packet.get(12..20)?;
                (*packet.get(9)?, addresses, packet.get(length.max(20)..)?)
            }
            // What extension headers are between, the kernel would not track by its ports otherwise.
            6 => (*packet.get(6)?, packet.get(8..40)?, packet.get(40..)?),
            _ => return None,
        };
        let (from, to) = addresses.split_at_checked(addresses.len() / 2)?;
        let [a, b, c, d, e, f, ..] = *rest.first_chunk::<8>()?;
        let is_v4 = from.len() == 4;
        let (shown, target) = match protocol {
            TCP | UDP => ([a, b], [c, d]),
            ICMP if is_v4 && a == ECHO[0] => ([e, f], [a, b]),
            ICMPV6 if !is_v4 && a == ECHO6[0] => ([e, f], [a, b]),
            _ => return None,
        };
        let flags = rest.get(TCP_FLAGS_AT).copied().unwrap_or_default();
        Some(Self {
            protocol,
            source: (source, port),
            shown: (address(from)?, u16::from_be_bytes(shown)),
            destination: address(to)?,
            target,
            begins: flags & (SYN | ACK) == SYN,
        })
    }

    /// The source that the packet has now.
    #[must_use]
    pub const fn shown(&self) -> IpAddr {
        self.shown.0
    }

    const fn is_icmp(&self) -> bool {
        matches!(self.protocol, ICMP | ICMPV6)
    }

    const fn family(&self) -> NetfilterProtoFamily {
        match self.destination {
            IpAddr::V4(_) => NetfilterProtoFamily::IPv4,
            IpAddr::V6(_) => NetfilterProtoFamily::IPv6,
        }
    }

    fn icmp_fields(&self) -> [u16; 3] {
        if self.protocol == ICMP { ICMP_FIELDS } else { ICMPV6_FIELDS }
    }

    /// Addresses and protocol fields of the flow's packets, or of answers if they went to the source as it was.
    fn tuple(&self, is_reply: bool) -> Vec<DefaultNla> {
        let kinds = if self.destination.is_ipv4() { V4 } else { V6 };
        let port = self.source.1.to_be_bytes();
        let mut ends = [(self.source.0, port), (self.destination, self.target)];
        if is_reply {
            ends.reverse();
        }
        let addresses = kinds.iter().zip(ends).map(|(kind, (it, _))| plain(*kind, &bytes(it)));
        let mut fields = vec![plain(NUMBER, &[self.protocol])];
        if self.is_icmp() {
            let [id, kind, code] = self.icmp_fields();
            let [request, reply] = if self.protocol == ICMP { ECHO } else { ECHO6 };
            let of = if is_reply { reply } else { request };
            let [_, code_is] = self.target;
            fields.extend([plain(id, &port), plain(kind, &[of]), plain(code, &[code_is])]);
        } else {
            fields.extend(PORTS.iter().zip(ends).map(|(kind, (_, port))| plain(*kind, &port)));
        }
        vec![nested(ADDRESSES, addresses.collect()), nested(PROTOCOL, fields)]
    }

    /// Source that packets get.
    fn new_source(&self) -> Vec<DefaultNla> {
        let kinds = if self.shown.0.is_ipv4() { NAT_V4 } else { NAT_V6 };
        let address = bytes(self.shown.0);
        let mut source: Vec<_> = kinds.iter().map(|kind| plain(*kind, &address)).collect();
        let port = self.shown.1.to_be_bytes();
        source.push(nested(NAT_PROTOCOL, NAT_PORTS.iter().map(|it| plain(*it, &port)).collect()));
        source
    }

    fn order(&self) -> Message {
        let stays = if self.protocol == TCP { TCP_STAYS } else { STAYS };
        let mut attributes = vec![
            nested(TUPLE, self.tuple(false)),
            nested(REPLY, self.tuple(true)),
            nested(NEW_SOURCE, self.new_source()),
            plain(TIMEOUT, &stays.to_be_bytes()),
        ];
        if self.protocol == TCP {
            let state = if self.begins { SYN_SENT } else { ESTABLISHED };
            let mut of_tcp = vec![plain(STATE, &[state])];
            of_tcp.extend(FLAGS.map(|kind| plain(kind, &LIBERAL)));
            attributes.push(nested(PROTOCOL_STATE, vec![nested(TCP_STATE_OF, of_tcp)]));
        }
        message(self.family(), NEW, attributes)
    }

    fn question(&self) -> Message {
        message(self.family(), GET, vec![nested(TUPLE, self.tuple(false))])
    }

    /// True if an entry of the same packets gives them the same source.
    fn is_in(&self, entry: &Answer) -> bool {
        let Some(reply) = entry.attributes(REPLY).next() else { return false };
        let of = |outer: u16, kind: u16| {
            let all_of = |bytes| all(bytes).collect::<Vec<_>>();
            let part = all_of(reply).into_iter().find(|(it, _)| *it == outer);
            let field = part.and_then(|(_, it)| all_of(it).into_iter().find(|(it, _)| *it == kind));
            field.map(|(_, value)| value.to_vec())
        };
        let [_, to] = if self.shown.0.is_ipv4() { V4 } else { V6 };
        let ([id, ..], [_, port]) = (self.icmp_fields(), PORTS);
        of(ADDRESSES, to) == Some(bytes(self.shown.0))
            && of(PROTOCOL, if self.is_icmp() { id } else { port })
                == Some(self.shown.1.to_be_bytes().to_vec())
    }
}

impl Conntrack {
    /// Enters a flow; whether it is there now. It is not where another one has its addresses and ports.
    ///
    /// # Errors
    /// The kernel's refusal: without `CAP_NET_ADMIN`, without `nf_conntrack_netlink`, or when its table is full.
    pub fn enter(&mut self, flow: &Hidden) -> Result<bool, Refusal> {
        match self.channel.ask(flow.order(), NLM_F_CREATE | NLM_F_EXCL) {
            Ok(_) => Ok(true),
            Err(Refusal { errno: nix::libc::EEXIST, .. }) => self.knows(flow),
            Err(refusal) => Err(refusal),
        }
    }

    fn knows(&mut self, flow: &Hidden) -> Result<bool, Refusal> {
        match self.channel.ask(flow.question(), 0) {
            Ok(Some(Message::Heard(entry))) => Ok(flow.is_in(&entry)),
            Ok(_) | Err(Refusal { errno: nix::libc::ENOENT, .. }) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => Some(v4.into()),
        Err(_) => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn plain(kind: u16, value: &[u8]) -> DefaultNla {
    DefaultNla::new(kind, value.to_vec())
}

fn nested(kind: u16, attributes: Vec<DefaultNla>) -> DefaultNla {
    let attributes = attributes.as_slice();
    let mut value = vec![0; attributes.buffer_len()];
    attributes.emit(&mut value);
    DefaultNla::new(kind | NESTED, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: [u8; 4] = [192, 168, 7, 2];

    fn packet(protocol: u8, rest: &[u8]) -> Vec<u8> {
        let header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 1, 0, 77, 10, 2, 0, 2];
        [&header[..], rest].concat()
    }

    #[test]
    fn flows_are_told_by_their_first_packet() {
        let of = |packet: &[u8]| Hidden::of(packet, SOURCE.into(), 4000);
        let udp = of(&packet(UDP, &[0x10, 0, 0, 53, 0, 8, 0, 0])).unwrap();
        assert_eq!((udp.shown(), udp.shown.1), ([10, 1, 0, 77].into(), 0x1000));
        assert_eq!((udp.destination, udp.target), ([10, 2, 0, 2].into(), [0, 53]));
        let tcp = |flags| [&[0; TCP_FLAGS_AT][..], &[flags, 0, 0]].concat();
        assert!(of(&packet(TCP, &tcp(SYN))).unwrap().begins);
        assert!(!of(&packet(TCP, &tcp(SYN | ACK))).unwrap().begins);
        let echo = of(&packet(ICMP, &[8, 0, 0, 0, 0x12, 0x34, 0, 1])).unwrap();
        assert_eq!((echo.shown.1, echo.target), (0x1234, [8, 0]));
        // An error, another protocol, and packets that are not whole.
        assert_eq!(of(&packet(ICMP, &[3, 0, 0, 0, 0, 0, 0, 0])), None);
        assert_eq!(of(&packet(132, &[0; 12])), None);
        let whole = packet(UDP, &[0; 8]);
        for cut in 0..whole.len() {
            assert_eq!(of(&whole[..cut]), None);
        }
    }
}
