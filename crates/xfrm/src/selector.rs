//! Selectors of packets.

use std::net::IpAddr;

use convoy_wire::IpVersion;

use crate::address::{self, RawAddress};
use crate::bytes::{Fields, Writer};
use crate::refusal::Refusal;

/// Addresses that agree in their first bits. Other than a [`convoy_wire::Prefix`] it keeps the bits
/// behind them, because a kernel shows them and tells policies apart by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// The address.
    pub address: IpAddr,
    /// Number of bits that count: 0 to 32 or 128 in checked requests.
    pub prefix_len: u8,
}

/// A port under a mask: `port & mask == value & mask`. Mask 0 means any port, 0xffff one.
///
/// Ranges are sent as the smallest mask that covers them, and ICMP's type and code as source and
/// destination port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortMask {
    /// The port, in host order.
    pub value: u16,
    /// The bits that count.
    pub mask: u16,
}

/// Packets that an SA or a policy is for: `struct xfrm_selector`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Sources and destinations of packets.
    pub addresses: Addresses,
    /// The source port, or the type of an ICMP message.
    pub source_port: PortMask,
    /// The destination port, or the code of an ICMP message.
    pub destination_port: PortMask,
    /// The upper protocol as in IP headers; 0 for any.
    pub protocol: u8,
    /// The number of the interface; 0 for any.
    pub interface: i32,
    /// A user number that kernels keep and do not look at.
    pub user: u32,
}

/// Sources and destinations of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// Networks of one version.
    Networks {
        /// Network that packets come from.
        source: Network,
        /// Network that packets go to.
        destination: Network,
    },
    /// `AF_UNSPEC`, which only SAs may have: packets of any version with any addresses, ports and
    /// protocol. What the message has in their place is shown by tools, and not looked at.
    Unspecified {
        /// Bytes in place of the source.
        source: [u8; 16],
        /// Bytes in place of the destination.
        destination: [u8; 16],
        /// Numbers in place of the lengths of the prefixes: the source's, the destination's.
        prefix_lens: (u8, u8),
    },
}

impl Selector {
    /// All packets of any version.
    pub const ANY: Self = Self {
        addresses: Addresses::Unspecified {
            source: [0; 16],
            destination: [0; 16],
            prefix_lens: (0, 0),
        },
        source_port: PortMask { value: 0, mask: 0 },
        destination_port: PortMask { value: 0, mask: 0 },
        protocol: 0,
        interface: 0,
        user: 0,
    };

    /// All packets, with addresses to show that are not looked at: what a kernel gives an SA that only
    /// has its SPI yet.
    #[must_use]
    pub fn any_but_showing(source: IpAddr, destination: IpAddr) -> Self {
        let bits = |ip| IpVersion::of_addr(ip).address_bits();
        let addresses = Addresses::Unspecified {
            source: address::raw(source),
            destination: address::raw(destination),
            prefix_lens: (bits(source), bits(destination)),
        };
        Self { addresses, ..Self::ANY }
    }

    /// The version of the packets meant, if it is one.
    #[must_use]
    pub const fn version(&self) -> Option<IpVersion> {
        match self.addresses {
            Addresses::Networks { source, .. } => Some(IpVersion::of_addr(source.address)),
            Addresses::Unspecified { .. } => None,
        }
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        let (source, destination, prefix_lens) = match self.addresses {
            Addresses::Networks { source, destination } => {
                let prefix_lens = (source.prefix_len, destination.prefix_len);
                (address::raw(source.address), address::raw(destination.address), prefix_lens)
            }
            Addresses::Unspecified { source, destination, prefix_lens } => {
                (source, destination, prefix_lens)
            }
        };
        to.bytes(&destination);
        to.bytes(&source);
        to.be16(self.destination_port.value);
        to.be16(self.destination_port.mask);
        to.be16(self.source_port.value);
        to.be16(self.source_port.mask);
        to.u16(address::family(self.version()));
        to.u8(prefix_lens.1);
        to.u8(prefix_lens.0);
        to.u8(self.protocol);
        to.zeros::<3>();
        to.i32(self.interface);
        to.u32(self.user);
    }
}

/// `struct xfrm_selector` before anybody has looked at the family: 56 bytes.
#[derive(Clone, Copy)]
pub(crate) struct RawSelector {
    destination: RawAddress,
    source: RawAddress,
    destination_port: PortMask,
    source_port: PortMask,
    pub(crate) family: u16,
    destination_len: u8,
    source_len: u8,
    protocol: u8,
    interface: i32,
    user: u32,
}

impl RawSelector {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
        let destination = fields.array();
        let source = fields.array();
        let destination_port = PortMask { value: fields.be16(), mask: fields.be16() };
        let source_port = PortMask { value: fields.be16(), mask: fields.be16() };
        let family = fields.u16();
        let (destination_len, source_len) = (fields.u8(), fields.u8());
        let protocol = fields.u8();
        fields.skip::<3>();
        let (interface, user) = (fields.i32(), fields.u32());
        Self {
            destination,
            source,
            destination_port,
            source_port,
            family,
            destination_len,
            source_len,
            protocol,
            interface,
            user,
        }
    }

    /// Refuses prefixes that are longer than the addresses of `version`.
    pub(crate) fn check_prefixes(&self, version: IpVersion) -> Result<(), Refusal> {
        let text = match version {
            IpVersion::V4 => "Invalid prefix length in selector (must be <= 32 for IPv4)",
            IpVersion::V6 => "Invalid prefix length in selector (must be <= 128 for IPv6)",
        };
        let max = version.address_bits();
        if self.destination_len > max || self.source_len > max {
            return Err(Refusal::invalid(text));
        }
        Ok(())
    }

    /// The selector, with families other than IPv4's and IPv6's as none.
    pub(crate) fn typed(&self) -> Selector {
        let addresses = match address::version(self.family) {
            Some(version) => Addresses::Networks {
                source: Network {
                    address: address::address(version, self.source),
                    prefix_len: self.source_len,
                },
                destination: Network {
                    address: address::address(version, self.destination),
                    prefix_len: self.destination_len,
                },
            },
            None => Addresses::Unspecified {
                source: self.source,
                destination: self.destination,
                prefix_lens: (self.source_len, self.destination_len),
            },
        };
        Selector {
            addresses,
            source_port: self.source_port,
            destination_port: self.destination_port,
            protocol: self.protocol,
            interface: self.interface,
            user: self.user,
        }
    }
}
