//! IP versions and protocol numbers.

use core::fmt;

/// Version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum IpVersion {
    /// IPv4, RFC 791.
    V4 = 4,
    /// IPv6, RFC 8200.
    V6 = 6,
}

impl IpVersion {
    /// The version of a packet from its first byte; `None` when it is neither.
    #[inline]
    pub const fn of(first_byte: u8) -> Option<Self> {
        match first_byte >> 4 {
            4 => Some(Self::V4),
            6 => Some(Self::V6),
            _ => None,
        }
    }

    /// The version of an address.
    #[inline]
    pub const fn of_addr(addr: core::net::IpAddr) -> Self {
        match addr {
            core::net::IpAddr::V4(_) => Self::V4,
            core::net::IpAddr::V6(_) => Self::V6,
        }
    }

    /// Length of the header without options or extension headers: 20 or 40 bytes.
    #[inline]
    pub const fn header_len(self) -> usize {
        match self {
            Self::V4 => crate::ipv4::HEADER_LEN,
            Self::V6 => crate::ipv6::HEADER_LEN,
        }
    }

    /// The next-header value that announces a packet of this version inside ESP: 4 or 41.
    #[inline]
    pub const fn as_next_header(self) -> Protocol {
        match self {
            Self::V4 => Protocol::IPV4,
            Self::V6 => Protocol::IPV6,
        }
    }

    /// Number of bits of an address: 32 or 128.
    #[inline]
    pub const fn address_bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// A protocol number: the IPv4 Protocol field, the IPv6 Next Header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// IPv6 hop-by-hop options, RFC 8200 4.3.
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4, RFC 792.
    pub const ICMP: Self = Self(1);
    /// IPv4 in IP, RFC 2003: the next header of an ESP tunnel that carries IPv4.
    pub const IPV4: Self = Self(4);
    /// TCP, RFC 9293.
    pub const TCP: Self = Self(6);
    /// UDP, RFC 768.
    pub const UDP: Self = Self(17);
    /// DCCP, RFC 4340.
    pub const DCCP: Self = Self(33);
    /// IPv6 in IP, RFC 2473: the next header of an ESP tunnel that carries IPv6.
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header, RFC 8200 4.4.
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header, RFC 8200 4.5.
    pub const FRAGMENT: Self = Self(44);
    /// ESP, RFC 4303.
    pub const ESP: Self = Self(50);
    /// AH, RFC 4302.
    pub const AH: Self = Self(51);
    /// ICMP for IPv6, RFC 4443.
    pub const ICMPV6: Self = Self(58);
    /// No next header, RFC 8200 4.7: a dummy packet inside ESP (RFC 4303 2.6).
    pub const NONE: Self = Self(59);
    /// IPv6 destination options, RFC 8200 4.6.
    pub const DEST_OPTIONS: Self = Self(60);
    /// SCTP, RFC 9260.
    pub const SCTP: Self = Self(132);
    /// IPv6 mobility header, RFC 6275.
    pub const MOBILITY: Self = Self(135);
    /// UDP-Lite, RFC 3828.
    pub const UDP_LITE: Self = Self(136);

    /// True if the first four bytes of the upper layer are source and destination port.
    #[inline]
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::SCTP | Self::DCCP | Self::UDP_LITE)
    }

    /// The protocol's usual name, where this crate knows one.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::HOP_BY_HOP => "hopopt",
            Self::ICMP => "icmp",
            Self::IPV4 => "ipv4",
            Self::TCP => "tcp",
            Self::UDP => "udp",
            Self::DCCP => "dccp",
            Self::IPV6 => "ipv6",
            Self::ROUTING => "ipv6-route",
            Self::FRAGMENT => "ipv6-frag",
            Self::ESP => "esp",
            Self::AH => "ah",
            Self::ICMPV6 => "icmpv6",
            Self::NONE => "ipv6-nonxt",
            Self::DEST_OPTIONS => "ipv6-opts",
            Self::SCTP => "sctp",
            Self::MOBILITY => "mobility-header",
            Self::UDP_LITE => "udplite",
            _ => return None,
        })
    }

    /// The protocol with this name (as [`Protocol::name`] prints it) or decimal number.
    pub fn from_name(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse() {
            return Some(Self(number));
        }
        (0..=u8::MAX).map(Self).find(|p| p.name() == Some(text))
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn every_protocol_is_found_by_the_text_it_prints_as() {
        for n in 0..=u8::MAX {
            assert_eq!(Protocol::from_name(&Protocol(n).to_string()), Some(Protocol(n)));
        }
        assert_eq!(Protocol::from_name("tpc"), None);
        assert_eq!(Protocol::from_name("256"), None);
    }

    #[test]
    fn version_is_read_from_the_high_nibble() {
        assert_eq!(IpVersion::of(0x45), Some(IpVersion::V4));
        assert_eq!(IpVersion::of(0x60), Some(IpVersion::V6));
        assert_eq!(IpVersion::of(0x54), None);
    }
}
