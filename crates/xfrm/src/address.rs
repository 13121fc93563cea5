//! Addresses, families and the protocols of SAs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use convoy_wire::IpVersion;

use crate::bytes::{Fields, Writer};

/// `AF_INET` and `AF_INET6`.
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// The version that an address family stands for.
pub(crate) const fn version(family: u16) -> Option<IpVersion> {
    match family {
        AF_INET => Some(IpVersion::V4),
        AF_INET6 => Some(IpVersion::V6),
        _ => None,
    }
}

/// The address family of a version; `AF_UNSPEC` for none.
pub(crate) const fn family(version: Option<IpVersion>) -> u16 {
    match version {
        Some(IpVersion::V4) => AF_INET,
        Some(IpVersion::V6) => AF_INET6,
        None => 0,
    }
}

/// `xfrm_address_t`: 16 bytes, of which IPv4 uses the first four.
pub(crate) type RawAddress = [u8; 16];

pub(crate) fn address(version: IpVersion, raw: RawAddress) -> IpAddr {
    match version {
        IpVersion::V4 => {
            let [a, b, c, d, ..] = raw;
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        IpVersion::V6 => IpAddr::V6(Ipv6Addr::from(raw)),
    }
}

pub(crate) fn raw(address: IpAddr) -> RawAddress {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl Fields<'_> {
    pub(crate) fn address(&mut self, version: IpVersion) -> IpAddr {
        address(version, self.array())
    }
}

impl Writer {
    pub(crate) fn address(&mut self, address: IpAddr) {
        self.bytes(&raw(address));
    }
}

/// Protocol of an SA: `xfrm_id.proto`, the number that IP headers carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SaProtocol {
    /// Encapsulating Security Payload, 50 (RFC 4303).
    Esp,
    /// Authentication Header, 51 (RFC 4302).
    Ah,
    /// IP payload compression, 108 (RFC 3173).
    Comp,
    /// Routing header of Mobile IPv6, 43.
    Routing,
    /// Destination options of Mobile IPv6, 60.
    DestinationOptions,
}

impl SaProtocol {
    /// The number in IP headers.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Esp => 50,
            Self::Ah => 51,
            Self::Comp => 108,
            Self::Routing => 43,
            Self::DestinationOptions => 60,
        }
    }

    /// The protocol with this number, where XFRM has SAs of it.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            50 => Some(Self::Esp),
            51 => Some(Self::Ah),
            108 => Some(Self::Comp),
            43 => Some(Self::Routing),
            60 => Some(Self::DestinationOptions),
            _ => None,
        }
    }

    /// True if it is one of IPsec's, whose SAs have SPIs.
    #[must_use]
    pub const fn is_ipsec(self) -> bool {
        matches!(self, Self::Esp | Self::Ah | Self::Comp)
    }
}

/// `IPSEC_PROTO_ANY`.
pub(crate) const PROTO_ANY: u8 = 255;

/// Protocols that a flush or a dump covers: 0 for all, 255 for IPsec's three, else one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProtocolFilter(pub u8);

impl ProtocolFilter {
    /// All protocols.
    pub const ALL: Self = Self(0);
    /// ESP, AH and IPComp (`IPSEC_PROTO_ANY`).
    pub const IPSEC: Self = Self(PROTO_ANY);

    /// True if SAs of `protocol` are covered.
    #[must_use]
    pub const fn matches(self, protocol: SaProtocol) -> bool {
        match self.0 {
            0 => true,
            PROTO_ANY => protocol.is_ipsec(),
            number => number == protocol.number(),
        }
    }
}

/// Encapsulation of packets by an SA: `XFRM_MODE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// 0: the packet keeps its IP header (RFC 4301 3.2).
    Transport,
    /// 1: the packet travels in another one.
    Tunnel,
    /// 2: route optimisation of Mobile IPv6.
    RouteOptimization,
    /// 3: a trigger of Mobile IPv6, which only templates may name.
    InTrigger,
    /// 4: bound end-to-end tunnel.
    Beet,
    /// 5: aggregation and fragmentation (RFC 9347).
    IpTfs,
}

impl Mode {
    const ALL: [Self; 6] = [
        Self::Transport,
        Self::Tunnel,
        Self::RouteOptimization,
        Self::InTrigger,
        Self::Beet,
        Self::IpTfs,
    ];

    /// The mode with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Transport => 0,
            Self::Tunnel => 1,
            Self::RouteOptimization => 2,
            Self::InTrigger => 3,
            Self::Beet => 4,
            Self::IpTfs => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_what_they_stand_for() {
        for number in 0..=255 {
            if let Some(protocol) = SaProtocol::from_number(number) {
                assert_eq!(protocol.number(), number);
            }
            if let Some(mode) = Mode::from_number(number) {
                assert_eq!(mode.number(), number);
            }
        }
    }

    #[test]
    fn a_filter_means_all_ipsecs_or_one() {
        use SaProtocol::{Comp, Esp, Routing};
        assert!(ProtocolFilter::ALL.matches(Routing));
        assert!(ProtocolFilter::IPSEC.matches(Comp) && !ProtocolFilter::IPSEC.matches(Routing));
        assert!(ProtocolFilter(50).matches(Esp) && !ProtocolFilter(50).matches(Comp));
    }
}
