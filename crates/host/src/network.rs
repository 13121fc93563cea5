//! State of the network now: interfaces, addresses, routes, counters.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Message,
    address::{AddressAttribute, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage, Stats64},
    route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteType},
};

use crate::{
    Cause, HostError, LinkName,
    change::family,
    netlink::{Refusal, Rtnl},
};

const ETHERNET: LinkLayerType = LinkLayerType::Ether;

/// A view of the network stack of one network namespace: that of the thread which opened it.
#[derive(Debug)]
pub struct Network {
    pub(crate) rtnl: Rtnl,
    /// Index of the interface that packets are to leave by.
    bound: Option<u32>,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its index, unique within the namespace and not used again after it is gone.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The note left at it; empty: none.
    pub alias: String,
    /// Largest IP packet in bytes.
    pub mtu: u32,
    /// Smallest and largest MTU it takes in bytes, where the kernel says so.
    pub mtu_range: Option<(u32, u32)>,
    /// Set up by its administrator.
    pub up: bool,
    /// Something is at its other end: of a TUN interface, a program that has it open.
    pub carrier: bool,
    /// Its queueing discipline, as `tc` names it; empty: not known.
    pub qdisc: String,
    /// Its link address, if it has one of Ethernet's kind.
    pub mac: Option<[u8; 6]>,
    /// Its counters.
    pub counters: LinkCounters,
}

/// An interface's counters since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets that were damaged.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Received packets dropped by the kernel for want of room, or because no protocol wanted them.
    pub rx_dropped: u64,
    /// Packets to be sent that the kernel dropped; for a TUN interface, those its reader was too
    /// slow for.
    pub tx_dropped: u64,
    /// Received packets the device lost for want of buffers.
    pub rx_missed: u64,
}

impl LinkCounters {
    /// All packets the kernel lost, either way.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.rx_dropped.saturating_add(self.tx_dropped).saturating_add(self.rx_missed)
    }
}

/// Path that a packet to some destination would take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteTo {
    /// Index of the interface it would leave through.
    pub link_index: u32,
    /// Name of that interface.
    pub link: String,
    /// Source address the host would take.
    pub source: Option<IpAddr>,
    /// The next hop; none when the destination is on a connected network.
    pub via: Option<IpAddr>,
    /// The destination is an address of this host itself.
    pub local: bool,
    /// The routing table that says so.
    pub table: u32,
}

/// Properties of a packet, beside its destination, on which a route may depend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteBy {
    /// Its source.
    pub from: Option<IpAddr>,
    /// Index of the interface that it comes in by; none if this host sends it.
    pub link: Option<u32>,
    /// Its mark.
    pub mark: Option<u32>,
}

/// A line of the routing tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteEntry {
    /// Destination network.
    pub to: IpNet,
    /// Index of the interface, unless the route has several or none.
    pub link_index: Option<u32>,
    /// The next hop, if there is one.
    pub via: Option<IpAddr>,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Metric; the lower wins.
    pub metric: u32,
    /// Table; 254 is the main table, 255 the one of local addresses.
    pub table: u32,
    /// Packets go on to a next hop by it: it is not for the host's own addresses, for several receivers
    /// or for none.
    pub is_unicast: bool,
    /// Origin, as a number of `rtnetlink.h`; 2 is the kernel itself, for connected networks.
    pub protocol: u8,
}

impl Network {
    /// Opens a view of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`HostError::Netlink`] when the process may not open a routing socket.
    pub fn open() -> Result<Self, HostError> {
        Ok(Self { rtnl: Rtnl::open().map_err(HostError::Netlink)?, bound: None })
    }

    /// Has questions for routes answered as for a socket that is bound to an interface: routes through others do not count.
    /// While there is no interface of that name, they are answered as for a socket that is not bound.
    pub fn bind(&mut self, name: &str) {
        let link = LinkName::new(name).and_then(|name| self.link(&name));
        self.bound = link.ok().map(|link| link.index);
    }

    /// All interfaces, by index.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn links(&mut self) -> Result<Vec<Link>, HostError> {
        let list = self.rtnl.dump(&Message::GetLink(LinkMessage::default()))?;
        let mut links: Vec<_> = list.iter().filter_map(link_of).collect();
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// An interface by name.
    ///
    /// # Errors
    /// [`HostError::NoSuchLink`], [`HostError::Netlink`].
    pub fn link(&mut self, name: &LinkName) -> Result<Link, HostError> {
        let mut question = LinkMessage::default();
        question.attributes.push(LinkAttribute::IfName(name.to_string()));
        match self.rtnl.query(Message::GetLink(question)) {
            Ok(Some(answer)) => link_of(&answer),
            Ok(None) => None,
            Err(Refusal { errno: nix::libc::ENODEV, .. }) => None,
            Err(other) => return Err(other.into()),
        }
        .ok_or_else(|| HostError::NoSuchLink { link: name.clone() })
    }

    /// An interface by index; none when it is gone.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, HostError> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        match self.rtnl.query(Message::GetLink(question)) {
            Ok(answer) => Ok(answer.as_ref().and_then(link_of)),
            Err(Refusal { errno: nix::libc::ENODEV, .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// An interface's counters.
    ///
    /// # Errors
    /// As [`Network::link`].
    pub fn counters(&mut self, name: &LinkName) -> Result<LinkCounters, HostError> {
        Ok(self.link(name)?.counters)
    }

    /// Addresses of an interface, or of all.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn addresses(&mut self, link_index: Option<u32>) -> Result<Vec<IpNet>, HostError> {
        let wanted = |link: u32| link_index.is_none_or(|index| link == index);
        let all = self.addresses_of_links()?.into_iter();
        Ok(all.filter(|(link, _)| wanted(*link)).map(|(_, address)| address).collect())
    }

    /// The host's addresses, each with the index of its interface.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn addresses_of_links(&mut self) -> Result<Vec<(u32, IpNet)>, HostError> {
        let list = self.rtnl.dump(&Message::GetAddress(AddressMessage::default()))?;
        let of_link = |m: &Message| match m {
            Message::NewAddress(address) => Some((address.header.index, address_of(address)?)),
            _ => None,
        };
        Ok(list.iter().filter_map(of_link).collect())
    }

    /// An address of the host within a network: what it should send from to be covered by a policy
    /// whose local network that is. Of several the lowest; none for the whole address space, since
    /// then every address will do.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn source_within(&mut self, local: &IpNet) -> Result<Option<IpAddr>, HostError> {
        Ok(preferred_source(&self.addresses(None)?, local))
    }

    /// Route of a packet to `to`, optionally from a given source address.
    ///
    /// # Errors
    /// [`HostError::NoRoute`] when nothing leads there; [`HostError::Netlink`].
    pub fn route_to(&mut self, to: IpAddr, from: Option<IpAddr>) -> Result<RouteTo, HostError> {
        self.route_by(to, RouteBy { from, ..RouteBy::default() })
    }

    /// Route of a packet to `to` with a mark.
    ///
    /// # Errors
    /// As [`Network::route_to`].
    pub fn marked_route_to(&mut self, to: IpAddr, mark: u32) -> Result<RouteTo, HostError> {
        self.route_by(to, RouteBy { mark: Some(mark), ..RouteBy::default() })
    }

    /// Route of a packet to `to` with the properties `by`.
    ///
    /// # Errors
    /// As [`Network::route_to`]; also when the host would not take it from that interface.
    pub fn route_by(&mut self, to: IpAddr, by: RouteBy) -> Result<RouteTo, HostError> {
        let mut question = question(to, by, self.bound);
        question.header.flags |= RouteFlags::LookupTable;
        let route = self.route(to, question)?;
        let link_index = oif(&route).ok_or_else(|| unreachable(to))?;
        Ok(RouteTo {
            link_index,
            source: source(&route),
            via: gateway(&route),
            link: self.link_at(to, link_index)?.name,
            local: route.header.kind == RouteType::Local,
            table: table(&route),
        })
    }

    /// Largest IP packet in bytes to `to` with the properties `by`, as it was configured: that of the route if
    /// it has one, and of the narrowest interface that it may take.
    ///
    /// What ICMP messages told the kernel of the path does not count: anyone can send them.
    ///
    /// # Errors
    /// As [`Network::route_to`].
    pub fn mtu_to(&mut self, to: IpAddr, by: RouteBy) -> Result<u32, HostError> {
        let mut asked = question(to, by, self.bound);
        // The entry of the table itself, without what was learned of this destination.
        asked.header.flags |= RouteFlags::FibMatch;
        let route = self.route(to, asked)?;
        let mut links = hops(&route);
        if links.is_empty() {
            // One that only names a next-hop object (`net.ipv4.nexthop_compat_mode`).
            links.push(self.route_by(to, by)?.link_index);
        }
        let mut mtu = path_mtu(&route).unwrap_or(u32::MAX);
        for index in links {
            mtu = mtu.min(self.link_at(to, index)?.mtu);
        }
        Ok(mtu)
    }

    fn route(&mut self, to: IpAddr, question: RouteMessage) -> Result<RouteMessage, HostError> {
        match self.rtnl.query(Message::GetRoute(question)) {
            Ok(Some(Message::NewRoute(route))) => Ok(route),
            Ok(_) => Err(unreachable(to)),
            Err(refusal) => Err(HostError::NoRoute { to, cause: refusal.into() }),
        }
    }

    fn link_at(&mut self, to: IpAddr, index: u32) -> Result<Link, HostError> {
        self.link_by_index(index)?.ok_or_else(|| unreachable(to))
    }

    /// The routing tables of both families, local and broadcast routes included.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn routes(&mut self) -> Result<Vec<RouteEntry>, HostError> {
        let mut entries = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut question = RouteMessage::default();
            question.header.address_family = family;
            let list = self.rtnl.dump(&Message::GetRoute(question))?;
            entries.extend(list.iter().filter_map(entry_of));
        }
        Ok(entries)
    }
}

/// The lowest of these addresses within a network that others can answer to.
#[must_use]
pub fn preferred_source(addresses: &[IpNet], local: &IpNet) -> Option<IpAddr> {
    let is_usable = |address: &IpAddr| match address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    };
    let within = addresses.iter().map(IpNet::addr).filter(|a| local.contains(a) && is_usable(a));
    within.min().filter(|_| local.prefix_len() > 0)
}

fn host_len(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// A question for the route of a packet, from a socket that is bound to an interface if one is given.
fn question(to: IpAddr, by: RouteBy, bound: Option<u32>) -> RouteMessage {
    let mut question = RouteMessage::default();
    question.header.address_family = family(to);
    question.header.destination_prefix_length = host_len(to);
    question.attributes.push(RouteAttribute::Destination(to.into()));
    // With a source the kernel takes IPv6 routes through other interfaces, too, if the question comes from no socket.
    let from = by.from.filter(|from| bound.is_none() || from.is_ipv4());
    if let Some(from) = from {
        question.header.source_prefix_length = host_len(from);
        question.attributes.push(RouteAttribute::Source(from.into()));
    }
    question.attributes.extend(by.link.map(RouteAttribute::Iif));
    question.attributes.extend(bound.map(RouteAttribute::Oif));
    question.attributes.extend(by.mark.map(RouteAttribute::Mark));
    question
}

fn unreachable(to: IpAddr) -> HostError {
    let refusal = Refusal { errno: nix::libc::ENETUNREACH, said: None };
    HostError::NoRoute { to, cause: refusal.into() }
}

fn link_of(message: &Message) -> Option<Link> {
    let Message::NewLink(message) = message else { return None };
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        alias: String::new(),
        mtu: 0,
        mtu_range: None,
        carrier: false,
        up: message.header.flags.contains(LinkFlags::Up),
        qdisc: String::new(),
        mac: None,
        counters: LinkCounters::default(),
    };
    let (mut min, mut max) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::IfAlias(alias) => link.alias.clone_from(alias),
            LinkAttribute::Qdisc(qdisc) => link.qdisc.clone_from(qdisc),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Carrier(carrier) => link.carrier = *carrier != 0,
            LinkAttribute::Address(address) if message.header.link_layer_type == ETHERNET => {
                link.mac = address.as_slice().try_into().ok();
            }
            LinkAttribute::MinMtu(mtu) => min = Some(*mtu),
            // Zero stands for "no limit but the field's own".
            LinkAttribute::MaxMtu(mtu) => max = Some(if *mtu == 0 { u32::MAX } else { *mtu }),
            LinkAttribute::Stats64(stats) => link.counters = counters_of(stats),
            _ => {}
        }
    }
    link.mtu_range = min.zip(max);
    Some(link)
}

fn counters_of(stats: &Stats64) -> LinkCounters {
    LinkCounters {
        rx_packets: stats.rx_packets,
        tx_packets: stats.tx_packets,
        rx_bytes: stats.rx_bytes,
        tx_bytes: stats.tx_bytes,
        rx_errors: stats.rx_errors,
        tx_errors: stats.tx_errors,
        rx_dropped: stats.rx_dropped,
        tx_dropped: stats.tx_dropped,
        rx_missed: stats.rx_missed_errors,
    }
}

fn address_of(message: &AddressMessage) -> Option<IpNet> {
    let pick = |local: bool| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) if local => Some(*address),
            AddressAttribute::Address(address) if !local => Some(*address),
            _ => None,
        })
    };
    // On point-to-point interfaces "address" is the peer's and "local" is ours.
    let address = pick(true).or_else(|| pick(false))?;
    IpNet::new(address, message.header.prefix_len).ok()
}

fn entry_of(message: &Message) -> Option<RouteEntry> {
    let Message::NewRoute(route) = message else { return None };
    let unspecified: IpAddr = match route.header.address_family {
        AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
        _ => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let find = |pick: fn(&RouteAttribute) -> Option<u32>| route.attributes.iter().find_map(pick);
    let to = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => plain(address),
        _ => None,
    });
    Some(RouteEntry {
        to: IpNet::new(to.unwrap_or(unspecified), route.header.destination_prefix_length).ok()?,
        link_index: oif(route),
        via: gateway(route),
        source: source(route),
        metric: find(|a| if let RouteAttribute::Priority(n) = a { Some(*n) } else { None })
            .unwrap_or(0),
        table: find(|a| if let RouteAttribute::Table(n) = a { Some(*n) } else { None })
            .unwrap_or_else(|| u32::from(route.header.table)),
        is_unicast: route.header.kind == RouteType::Unicast,
        protocol: route.header.protocol.into(),
    })
}

fn oif(route: &RouteMessage) -> Option<u32> {
    route
        .attributes
        .iter()
        .find_map(|a| if let RouteAttribute::Oif(n) = a { Some(*n) } else { None })
}

/// The table that has a route.
fn table(route: &RouteMessage) -> u32 {
    let number = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(number) => Some(*number),
        _ => None,
    });
    number.unwrap_or_else(|| route.header.table.into())
}

/// Interfaces that a route may take.
fn hops(route: &RouteMessage) -> Vec<u32> {
    let several = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops.iter().map(|hop| hop.interface_index)),
        _ => None,
    });
    several.into_iter().flatten().chain(oif(route)).collect()
}

fn gateway(route: &RouteMessage) -> Option<IpAddr> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => plain(address),
        _ => None,
    })
}

fn source(route: &RouteMessage) -> Option<IpAddr> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::PrefSource(address) => plain(address),
        _ => None,
    })
}

fn path_mtu(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Metrics(metrics) => metrics.iter().find_map(|metric| match metric {
            RouteMetric::Mtu(mtu) if *mtu != 0 => Some(*mtu),
            _ => None,
        }),
        _ => None,
    })
}

pub(crate) fn plain(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

impl From<HostError> for Cause {
    /// The cause within a larger change: what was looked up for it failed.
    fn from(error: HostError) -> Self {
        match error {
            HostError::NoSuchLink { link } => Self::NoSuchLink(link),
            HostError::Netlink(error) => error.into(),
            other => Self::Other { errno: nix::libc::EIO, said: Some(other.to_string()) },
        }
    }
}
