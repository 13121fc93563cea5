//! Selectors: which packets a policy means (RFC 4301 section 4.4.1.1).
//!
//! A selector speaks of *local* and *remote*; which of them is a packet's source depends on the
//! direction. ANY matches every value and also a value that is not there; OPAQUE matches only a
//! value that is not there, as the ports of a later fragment.

use core::fmt;
use core::net::IpAddr;

use convoy_wire::flow::{addr, addr_bytes};
use convoy_wire::{FlowKey, IpVersion, PortRange, Ports, Prefix, Protocol};

/// Way that packets go, seen from the protected side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the plain side to the wire: the source is local.
    Outbound,
    /// From the wire to the plain side: the destination is local.
    Inbound,
}

impl Direction {
    /// The opposite direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::Outbound => Self::Inbound,
            Self::Inbound => Self::Outbound,
        }
    }

    /// The name in site files and logs: `outbound` or `inbound`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Outbound => "outbound",
            Self::Inbound => "inbound",
        }
    }
}

/// The addresses from a first to a last one, both included. Never empty, of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressRange {
    version: IpVersion,
    /// In the layout of [`FlowKey`], whose byte order is that of the addresses.
    first: [u8; 16],
    last: [u8; 16],
}

impl AddressRange {
    /// The range from `first` to `last`; `None` when it is reversed or of two IP versions.
    #[must_use]
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        let version = IpVersion::of_addr(first);
        let valid = version == IpVersion::of_addr(last) && first <= last;
        valid.then(|| Self { version, first: addr_bytes(first), last: addr_bytes(last) })
    }

    /// The first address.
    #[must_use]
    pub fn first(&self) -> IpAddr {
        addr(self.version, self.first)
    }

    /// The last address.
    #[must_use]
    pub fn last(&self) -> IpAddr {
        addr(self.version, self.last)
    }

    /// IP version, first and last address in the layout of [`FlowKey`].
    pub(crate) const fn bounds(&self) -> (IpVersion, &[u8; 16], &[u8; 16]) {
        (self.version, &self.first, &self.last)
    }

    #[inline]
    fn contains(&self, version: IpVersion, addr: &[u8; 16]) -> bool {
        let number = |bytes: &[u8; 16]| u128::from_be_bytes(*bytes);
        let addr = number(addr);
        self.version == version && number(&self.first) <= addr && addr <= number(&self.last)
    }
}

impl From<Prefix> for AddressRange {
    fn from(prefix: Prefix) -> Self {
        Self {
            version: prefix.version(),
            first: addr_bytes(prefix.addr()),
            last: addr_bytes(prefix.last()),
        }
    }
}

/// As a network where it is one, else as `first-last`.
impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.first(), self.last());
        let mut lengths = 0..=self.version.address_bits();
        let network = lengths.find_map(|len| {
            let prefix = Prefix::containing(first, len).ok()?;
            ((prefix.addr(), prefix.last()) == (first, last)).then_some(prefix)
        });
        match network {
            Some(network) => network.fmt(f),
            None => write!(f, "{first}-{last}"),
        }
    }
}

/// Condition that an address must meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AddressSelector {
    /// Nothing: any address of either IP version.
    #[default]
    Any,
    /// That it lies in a range.
    Range(AddressRange),
}

impl From<Prefix> for AddressSelector {
    fn from(prefix: Prefix) -> Self {
        Self::Range(prefix.into())
    }
}

impl AddressSelector {
    #[inline]
    fn matches(&self, version: IpVersion, addr: &[u8; 16]) -> bool {
        match self {
            Self::Any => true,
            Self::Range(range) => range.contains(version, addr),
        }
    }
}

/// Condition that a port must meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PortSelector {
    /// Nothing: any port, or none.
    #[default]
    Any,
    /// That it is known and lies in a range.
    Range(PortRange),
    /// That it is not known.
    Opaque,
}

/// The range of all ports is ANY, so that it matches fragments too (as RFC 7296 section 3.13.1
/// writes ANY).
impl From<PortRange> for PortSelector {
    fn from(range: PortRange) -> Self {
        if range.is_any() { Self::Any } else { Self::Range(range) }
    }
}

impl PortSelector {
    #[inline]
    fn matches(self, port: Option<u16>) -> bool {
        match (self, port) {
            (Self::Any, _) | (Self::Opaque, None) => true,
            (Self::Range(range), Some(port)) => range.contains(port),
            (Self::Range(_), None) | (Self::Opaque, Some(_)) => false,
        }
    }
}

/// Condition that the upper layer must meet beyond its protocol number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UpperSelector {
    /// Nothing.
    #[default]
    Any,
    /// Ports.
    Ports {
        /// The port on this side.
        local: PortSelector,
        /// The port on the far side.
        remote: PortSelector,
    },
    /// ICMP or ICMPv6 type and code. All of both is ANY.
    Icmp {
        /// First and last type.
        types: (u8, u8),
        /// First and last code.
        codes: (u8, u8),
    },
}

impl UpperSelector {
    #[inline]
    fn matches(&self, ports: Ports) -> bool {
        const ALL: (u8, u8) = (0, u8::MAX);
        let within = |(first, last): (u8, u8), value| first <= value && value <= last;
        match (self, ports) {
            (Self::Any, _) | (Self::Icmp { types: ALL, codes: ALL }, _) => true,
            (Self::Ports { local, remote }, Ports::Known { src, dst }) => {
                local.matches(Some(src)) && remote.matches(Some(dst))
            }
            (Self::Ports { local, remote }, Ports::Opaque) => {
                local.matches(None) && remote.matches(None)
            }
            // The protocol has no ports, but type and code in their place: neither known nor opaque.
            (Self::Ports { local, remote }, Ports::Icmp { .. }) => {
                *local == PortSelector::Any && *remote == PortSelector::Any
            }
            (Self::Icmp { types, codes }, Ports::Icmp { ty, code }) => {
                within(*types, ty) && within(*codes, code)
            }
            (Self::Icmp { .. }, Ports::Known { .. } | Ports::Opaque) => false,
        }
    }

    const fn mirrored(self) -> Self {
        match self {
            Self::Ports { local, remote } => Self::Ports { local: remote, remote: local },
            other => other,
        }
    }
}

/// Packets that a policy means. The default means every packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    /// The address on this side.
    pub local: AddressSelector,
    /// The address on the far side.
    pub remote: AddressSelector,
    /// The upper layer's protocol; `None` is ANY.
    pub protocol: Option<Protocol>,
    /// More about the upper layer.
    pub upper: UpperSelector,
}

impl Selector {
    /// True if a packet that goes in `direction` is meant.
    #[inline]
    #[must_use]
    pub fn matches(&self, direction: Direction, key: &FlowKey) -> bool {
        match direction {
            Direction::Outbound => self.matches_from_local(key),
            Direction::Inbound => self.mirrored().matches_from_local(key),
        }
    }

    /// As [`Selector::matches`] with the source as the local side.
    #[inline]
    pub(crate) fn matches_from_local(&self, key: &FlowKey) -> bool {
        self.protocol.is_none_or(|protocol| protocol == key.protocol)
            && self.local.matches(key.version, &key.src)
            && self.remote.matches(key.version, &key.dst)
            && self.upper.matches(key.ports)
    }

    /// The selector with local and remote exchanged.
    pub(crate) const fn mirrored(self) -> Self {
        Self {
            local: self.remote,
            remote: self.local,
            protocol: self.protocol,
            upper: self.upper.mirrored(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn network(text: &str) -> AddressSelector {
        text.parse::<Prefix>().unwrap().into()
    }

    fn key(src: &str, dst: &str, protocol: Protocol, ports: Ports) -> FlowKey {
        FlowKey::new(addr(src), addr(dst), protocol, ports).unwrap()
    }

    fn web() -> Selector {
        Selector {
            local: network("10.1.0.0/16"),
            remote: network("10.2.0.0/16"),
            protocol: Some(Protocol::TCP),
            upper: UpperSelector::Ports {
                local: PortSelector::Any,
                remote: PortRange::new(80, 88).unwrap().into(),
            },
        }
    }

    const fn known(src: u16, dst: u16) -> Ports {
        Ports::Known { src, dst }
    }

    #[test]
    fn local_is_the_source_outbound_and_the_destination_inbound() {
        let there = key("10.1.0.1", "10.2.0.1", Protocol::TCP, known(5000, 80));
        let back = key("10.2.0.1", "10.1.0.1", Protocol::TCP, known(80, 5000));
        assert!(web().matches(Direction::Outbound, &there));
        assert!(!web().matches(Direction::Outbound, &back));
        assert!(web().matches(Direction::Inbound, &back));
        assert!(!web().matches(Direction::Inbound, &there));
    }

    #[test]
    fn each_field_can_exclude_a_packet() {
        let good = key("10.1.0.1", "10.2.0.1", Protocol::TCP, known(1, 80));
        assert!(web().matches(Direction::Outbound, &good));
        for bad in [
            key("10.3.0.1", "10.2.0.1", Protocol::TCP, known(1, 80)),
            key("10.1.0.1", "10.3.0.1", Protocol::TCP, known(1, 80)),
            key("10.1.0.1", "10.2.0.1", Protocol::UDP, known(1, 80)),
            key("10.1.0.1", "10.2.0.1", Protocol::TCP, known(1, 79)),
            key("10.1.0.1", "10.2.0.1", Protocol::TCP, known(1, 89)),
        ] {
            assert!(!web().matches(Direction::Outbound, &bad), "{bad:?}");
        }
    }

    #[test]
    fn any_matches_what_is_not_there_and_opaque_only_that() {
        let fragment = key("10.1.0.1", "10.2.0.1", Protocol::TCP, Ports::Opaque);
        let whole = key("10.1.0.1", "10.2.0.1", Protocol::TCP, known(1, 80));
        let with = |port: PortSelector| Selector {
            upper: UpperSelector::Ports { local: PortSelector::Any, remote: port },
            ..web()
        };
        for (port, matches_fragment, matches_whole) in [
            (PortSelector::Any, true, true),
            (PortRange::ANY.into(), true, true),
            (PortSelector::Opaque, true, false),
            (PortRange::single(80).into(), false, true),
        ] {
            let selector = with(port);
            assert_eq!(selector.matches(Direction::Outbound, &fragment), matches_fragment);
            assert_eq!(selector.matches(Direction::Outbound, &whole), matches_whole);
        }
    }

    #[test]
    fn icmp_types_and_codes_are_ranges() {
        let icmp = |ty, code| key("10.1.0.1", "10.2.0.1", Protocol::ICMP, Ports::Icmp { ty, code });
        let selector = |types, codes| Selector {
            protocol: Some(Protocol::ICMP),
            upper: UpperSelector::Icmp { types, codes },
            ..Selector::default()
        };
        let unreachable = selector((3, 3), (0, 4));
        assert!(unreachable.matches(Direction::Outbound, &icmp(3, 4)));
        assert!(!unreachable.matches(Direction::Outbound, &icmp(3, 5)));
        assert!(!unreachable.matches(Direction::Outbound, &icmp(4, 0)));
        let fragment = key("10.1.0.1", "10.2.0.1", Protocol::ICMP, Ports::Opaque);
        assert!(!unreachable.matches(Direction::Outbound, &fragment));
        assert!(selector((0, 255), (0, 255)).matches(Direction::Outbound, &fragment));
        assert!(!web().upper.matches(Ports::Icmp { ty: 0, code: 80 }));
    }

    #[test]
    fn ranges_hold_both_ends_and_one_ip_version() {
        let range = AddressRange::new(addr("10.0.0.5"), addr("10.0.0.9")).unwrap();
        let holds =
            |text: &str| range.contains(IpVersion::of_addr(addr(text)), &addr_bytes(addr(text)));
        assert!(holds("10.0.0.5") && holds("10.0.0.9"));
        assert!(!holds("10.0.0.4") && !holds("10.0.0.10"));
        assert!(!holds("a00:7::"), "the same leading bytes, another version");
        assert_eq!(AddressRange::new(addr("10.0.0.9"), addr("10.0.0.5")), None);
        assert_eq!(AddressRange::new(addr("10.0.0.9"), addr("::")), None);
        let everything = Selector::default();
        assert!(
            everything
                .matches(Direction::Inbound, &key("::1", "::2", Protocol::ESP, Ports::Opaque))
        );
    }

    proptest! {
        #[test]
        fn a_network_means_exactly_its_addresses(net in any::<u32>(), len in 0u8..=32, other in any::<u32>(), near in any::<bool>()) {
            let prefix = Prefix::containing(IpAddr::V4(net.into()), len).unwrap();
            let other = if near { net ^ (other >> len.min(31)) } else { other };
            let other = IpAddr::V4(other.into());
            let range = AddressRange::from(prefix);
            prop_assert_eq!(range.contains(IpVersion::V4, &addr_bytes(other)), prefix.contains(other));
        }
    }
}
