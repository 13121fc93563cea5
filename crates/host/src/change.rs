//! Changes that can be made on the host.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkMessage},
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
        RouteScope, RouteType,
    },
    rule::{RuleAction, RuleAttribute, RuleMessage},
};
use serde::{Deserialize, Serialize};

use crate::{LinkName, Sysctl};

/// `RT_TABLE_MAIN`.
const MAIN_TABLE: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// Origin of a rule, in `ip rule show`: a number that no routing daemon uses (`rtnetlink.h`).
pub(crate) const GUARD_PROTOCOL: u8 = 0xc5;

/// One change. Its `Display` says in plain words what it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Change {
    /// Set an interface up.
    LinkUp {
        /// The interface.
        link: LinkName,
    },
    /// Set an interface's MTU.
    Mtu {
        /// The interface.
        link: LinkName,
        /// Largest IP packet in bytes.
        mtu: u32,
    },
    /// Give an interface an alias: a note of up to 255 bytes that `ip link show` prints.
    Alias {
        /// The interface.
        link: LinkName,
        /// The note.
        alias: String,
    },
    /// Give an interface an address. IPv6 addresses are usable at once: no duplicate address
    /// detection is made for them.
    Address {
        /// The interface.
        link: LinkName,
        /// The address with the length of its network's prefix.
        address: IpNet,
    },
    /// Add a route.
    Route(Route),
    /// Keep the kernel from forwarding what arrives on an interface, whatever its routes and
    /// settings say. Packets to the host itself are not concerned.
    Guard {
        /// The interface.
        link: LinkName,
    },
    /// Give a kernel setting a value.
    Sysctl {
        /// The setting.
        key: Sysctl,
        /// Its value.
        value: String,
    },
}

/// A route through an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Destination network; bits beyond the prefix are ignored.
    pub to: IpNet,
    /// The interface.
    pub link: LinkName,
    /// The next hop; none when the destination is reached through the interface directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// Source address the host prefers for packets of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Metric: of two routes to one network the lower wins. The kernel's default is 0 for IPv4
    /// and 1024 for IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// Routing table; the main table (254) when none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Path MTU in bytes for this route, when it is below the interface's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

impl Route {
    /// A route to a network through an interface, and nothing else said.
    #[must_use]
    pub const fn new(to: IpNet, link: LinkName) -> Self {
        Self { to, link, via: None, source: None, metric: None, table: None, mtu: None }
    }
}

impl Change {
    /// A route to a network through an interface, and nothing else said.
    #[must_use]
    pub fn route(to: IpNet, link: LinkName) -> Self {
        Self::Route(Route::new(to, link))
    }

    /// The interface it is about, if it is about one.
    #[must_use]
    pub fn link(&self) -> Option<&LinkName> {
        match self {
            Self::LinkUp { link }
            | Self::Mtu { link, .. }
            | Self::Alias { link, .. }
            | Self::Address { link, .. }
            | Self::Guard { link } => Some(link),
            Self::Route(route) => Some(&route.link),
            Self::Sysctl { .. } => None,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkUp { link } => write!(f, "set interface {link} up"),
            Self::Mtu { link, mtu } => write!(f, "set the MTU of interface {link} to {mtu} bytes"),
            Self::Alias { link, alias } => {
                write!(f, "set the alias of interface {link} to '{alias}'")
            }
            Self::Address { link, address } => write!(f, "add address {address} to {link}"),
            Self::Route(route) => write!(f, "add {route}"),
            Self::Guard { link } => {
                write!(f, "keep the kernel from forwarding packets that arrive on {link}")
            }
            Self::Sysctl { key, value } => write!(f, "set {key} to {value}"),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route to {} through {}", self.to.trunc(), self.link)?;
        if let Some(via) = self.via {
            write!(f, ", next hop {via}")?;
        }
        if let Some(source) = self.source {
            write!(f, ", source {source}")?;
        }
        if let Some(metric) = self.metric {
            write!(f, ", metric {metric}")?;
        }
        if let Some(table) = self.table {
            write!(f, ", table {table}")?;
        }
        self.mtu.map_or(Ok(()), |mtu| write!(f, ", MTU {mtu}"))
    }
}

impl Route {
    /// The table it goes to.
    pub(crate) fn table_or_main(&self) -> u32 {
        self.table.unwrap_or(MAIN_TABLE)
    }

    /// The metric as the kernel stores it.
    pub(crate) fn metric_or_default(&self) -> u32 {
        match (self.to, self.metric) {
            (IpNet::V6(_), None | Some(0)) => 1024,
            (_, metric) => metric.unwrap_or(0),
        }
    }

    pub(crate) fn message(&self, index: u32) -> RouteMessage {
        let to = self.to.trunc();
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(to.addr()),
            destination_prefix_length: to.prefix_len(),
            // Tables beyond 255 only fit into the attribute.
            table: u8::try_from(self.table_or_main()).unwrap_or(RouteHeader::RT_TABLE_UNSPEC),
            protocol: RouteProtocol::Static,
            scope: match (to, self.via) {
                (IpNet::V4(_), None) => RouteScope::Link,
                _ => RouteScope::Universe,
            },
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        let list = &mut message.attributes;
        list.push(RouteAttribute::Destination(RouteAddress::from(to.addr())));
        list.push(RouteAttribute::Oif(index));
        list.push(RouteAttribute::Table(self.table_or_main()));
        list.extend(self.via.map(|a| RouteAttribute::Gateway(a.into())));
        list.extend(self.source.map(|a| RouteAttribute::PrefSource(a.into())));
        list.extend(self.metric.map(RouteAttribute::Priority));
        list.extend(self.mtu.map(|mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)])));
        message
    }
}

/// The message that adds or removes an address.
pub(crate) fn address_message(index: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    if address.addr().is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes.push(AddressAttribute::Local(address.addr()));
    message.attributes.push(AddressAttribute::Address(address.addr()));
    if let IpNet::V4(net) = address
        && net.prefix_len() < 31
    {
        message.attributes.push(AddressAttribute::Broadcast(net.broadcast()));
    }
    message
}

/// The message that sets an interface up or down.
pub(crate) fn up_message(index: u32, up: bool) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.change_mask = LinkFlags::Up;
    message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    message
}

/// The message that sets an interface's MTU.
pub(crate) fn mtu_message(index: u32, mtu: u32) -> LinkMessage {
    attribute_message(index, LinkAttribute::Mtu(mtu))
}

/// The message that sets an interface's alias; an empty one takes it away.
pub(crate) fn alias_message(index: u32, alias: &str) -> LinkMessage {
    attribute_message(index, LinkAttribute::IfAlias(alias.to_owned()))
}

/// The message that sets one attribute of an interface.
pub(crate) fn attribute_message(index: u32, attribute: LinkAttribute) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(attribute);
    message
}

/// The rule that drops what would be forwarded from an interface. It comes directly behind the one
/// that finds the host's own addresses.
pub(crate) fn guard_message(link: &LinkName, family: AddressFamily) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family;
    message.header.action = RuleAction::Blackhole;
    message.attributes.push(RuleAttribute::Iifname(link.to_string()));
    message.attributes.push(RuleAttribute::Priority(1));
    // Tells it from the rules of others.
    message.attributes.push(RuleAttribute::Protocol(RouteProtocol::Other(GUARD_PROTOCOL)));
    message
}

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
