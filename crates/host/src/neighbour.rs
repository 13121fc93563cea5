//! Ways to others, as the kernel knows them: neighbours, and next hops of routes from an interface.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Message,
    neighbour::{
        NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
    },
    route::{RouteAttribute, RouteHeader, RouteMessage, RouteNextHop, RouteType, RouteVia},
};

use crate::{HostError, Network, change::family, network::plain};

/// `RT_TABLE_DEFAULT`.
const DEFAULT_TABLE: u32 = 253;

/// A host on a link, and what the kernel knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its link address.
    pub mac: [u8; 6],
    /// The kernel would ask again before it relied on it (RFC 4861 section 7.3.2: not REACHABLE).
    pub stale: bool,
}

/// Next step of a route, seen from one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// Through it, to the destination itself.
    Direct,
    /// Through it, to a router.
    Via(IpAddr),
    /// Through another interface, or nowhere.
    Elsewhere,
}

impl Network {
    /// The neighbours on an interface whose link addresses are known.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn neighbours(&mut self, link_index: u32) -> Result<Vec<Neighbour>, HostError> {
        let mut neighbours = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut question = NeighbourMessage::default();
            question.header.family = family;
            let list = self.rtnl.dump(&Message::GetNeighbour(question))?;
            neighbours.extend(list.iter().filter_map(|message| match message {
                Message::NewNeighbour(n) if n.header.ifindex == link_index => neighbour_of(n),
                _ => None,
            }));
        }
        Ok(neighbours)
    }

    /// Makes the kernel find a neighbour's link address, or make sure of it, as if it had a packet
    /// to send there.
    ///
    /// # Errors
    /// [`HostError::Netlink`], above all without `CAP_NET_ADMIN`.
    pub fn seek_neighbour(&mut self, link_index: u32, address: IpAddr) -> Result<(), HostError> {
        let mut order = NeighbourMessage::default();
        order.header.family = family(address);
        order.header.ifindex = link_index;
        order.header.flags = NeighbourFlags::Use;
        order.header.kind = RouteType::Unicast;
        let destination = match address {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        };
        order.attributes.push(NeighbourAttribute::Destination(destination));
        Ok(self.rtnl.change(Message::NewNeighbour(order), NLM_F_CREATE | NLM_F_REPLACE)?)
    }

    /// The routes of the main and the default table of both families, as they lead from one
    /// interface; of two to the same network the preferred one comes first.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn ways(&mut self, link_index: u32) -> Result<Vec<(IpNet, NextHop)>, HostError> {
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut question = RouteMessage::default();
            question.header.address_family = family;
            let list = self.rtnl.dump(&Message::GetRoute(question))?;
            found.extend(list.iter().filter_map(|message| match message {
                Message::NewRoute(route) => way_of(route, link_index),
                _ => None,
            }));
        }
        // The main table is asked before the default one.
        found.sort_by_key(|(rank, ..)| *rank);
        Ok(found.into_iter().map(|(_, to, way)| (to, way)).collect())
    }
}

fn neighbour_of(message: &NeighbourMessage) -> Option<Neighbour> {
    let stale = match message.header.state {
        NeighbourState::Reachable | NeighbourState::Permanent | NeighbourState::Noarp => false,
        // Being asked already.
        NeighbourState::Delay | NeighbourState::Probe => false,
        NeighbourState::Stale => true,
        _ => return None,
    };
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                address = Some(IpAddr::from(*v4));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                address = Some(IpAddr::from(*v6));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    // The addresses of groups follow from a rule; the kernel notes some all the same.
    let address = address.filter(|address| !address.is_multicast())?;
    Some(Neighbour { address, mac: mac?, stale })
}

/// Table and metric, by which the kernel prefers routes to one network.
type Rank = (bool, u32);

fn way_of(route: &RouteMessage, link_index: u32) -> Option<(Rank, IpNet, NextHop)> {
    let find = |pick: fn(&RouteAttribute) -> Option<u32>| route.attributes.iter().find_map(pick);
    let table = find(|a| if let RouteAttribute::Table(n) = a { Some(*n) } else { None })
        .unwrap_or_else(|| u32::from(route.header.table));
    let is_main = table == u32::from(RouteHeader::RT_TABLE_MAIN);
    if !is_main && table != DEFAULT_TABLE {
        return None;
    }
    let metric = find(|a| if let RouteAttribute::Priority(n) = a { Some(*n) } else { None });
    let unspecified: IpAddr = match route.header.address_family {
        AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
        _ => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let to = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => plain(address),
        _ => None,
    });
    let to = IpNet::new(to.unwrap_or(unspecified), route.header.destination_prefix_length).ok()?;
    let way = if route.header.kind == RouteType::Unicast {
        way_through(&route.attributes, link_index)
    } else {
        NextHop::Elsewhere
    };
    Some(((!is_main, metric.unwrap_or(0)), to, way))
}

fn way_through(attributes: &[RouteAttribute], link_index: u32) -> NextHop {
    let (mut here, mut hop, mut several): (_, _, &[RouteNextHop]) = (false, None, &[]);
    for attribute in attributes {
        match attribute {
            RouteAttribute::Oif(index) => here = *index == link_index,
            RouteAttribute::Gateway(address) => hop = plain(address),
            RouteAttribute::Via(RouteVia::Inet(v4)) => hop = Some((*v4).into()),
            RouteAttribute::Via(RouteVia::Inet6(v6)) => hop = Some((*v6).into()),
            RouteAttribute::MultiPath(hops) => several = hops,
            _ => {}
        }
    }
    // Of several equal ways one is as good as another.
    if let Some(one) = several.iter().find(|one| one.interface_index == link_index) {
        here = true;
        hop = one.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => plain(address),
            RouteAttribute::Via(RouteVia::Inet(v4)) => Some((*v4).into()),
            RouteAttribute::Via(RouteVia::Inet6(v6)) => Some((*v6).into()),
            _ => None,
        });
    }
    match (here, hop) {
        (false, _) => NextHop::Elsewhere,
        (true, Some(router)) => NextHop::Via(router),
        (true, None) => NextHop::Direct,
    }
}
