//! The routes that leak protection lays.
//!
//! Without questions these are `unreachable` ones in the main table, beneath those into the TUN interface, which others
//! lay. With questions, and where marks lead, there are two tables: one has the routes to remote networks, into the TUN
//! interface and `unreachable` beneath; the other leads everything there, for what was answered so. Where marks lead, the
//! first one is empty unless a site's own policies want routes.

use std::collections::BTreeSet;

use convoy_host::LinkName;
use convoy_netlink::{Refusal, Rtnl};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Message,
    link::{LinkAttribute, LinkMessage},
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
        RouteType,
    },
};

use crate::{config::Config, error::LeakProtectionError};

/// Origin of a route of leak protection (`proto` in `ip route`): a number that no routing daemon uses (`rtnetlink.h`).
pub const PROTOCOL: u8 = 0xc5;
/// The lowest metric of routes in the main table: behind all that are meant to carry anything.
const METRIC: u32 = 0xffe0_0000;
/// The bits of that metric that tell the routes of one interface from those of another.
const METRIC_BITS: u32 = 20;
/// Metrics in the tables that are only these routes'.
const PAST: u32 = 5;
const INTO_TUN: u32 = 10;
const UNREACHABLE: u32 = 20;
const MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// A route of this kind. Of those to one network, `unreachable` ones come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Route {
    table: u32,
    to: IpNet,
    /// Index of the interface; none if it leads nowhere.
    by: Option<u32>,
}

/// The routes of one TUN interface. Those in the main table are told from others by their metric.
#[derive(Debug)]
pub(crate) struct Routes {
    rtnl: Rtnl,
    tun: LinkName,
    metric: u32,
    /// The tables that are only theirs: of remote networks, and of what is to be protected.
    tables: [u32; 2],
    /// True if another interface has these now.
    are_anothers: bool,
}

impl Routes {
    /// Opens the routing tables of the calling thread's namespace.
    pub(crate) fn open(config: &Config) -> Result<Self, LeakProtectionError> {
        let rtnl = Rtnl::open().map_err(|error| LeakProtectionError::Netlink(error.into()))?;
        let Config { tun, questions, .. } = config;
        let (tun, metric) = (tun.clone(), metric(tun.as_str()));
        Ok(Self { rtnl, tun, metric, tables: questions.tables(), are_anothers: false })
    }

    /// Makes the routes those to these networks, new ones first: where marks are written, those of the two tables.
    /// How many were missing.
    pub(crate) fn set(
        &mut self,
        networks: &BTreeSet<IpNet>,
        marks: bool,
    ) -> Result<usize, LeakProtectionError> {
        let wanted = self.wanted(networks, marks)?;
        self.make(&wanted)
    }

    /// Leaves the two tables to another interface, or not.
    pub(crate) fn leave_tables(&mut self, are_anothers: bool) {
        self.are_anothers = are_anothers;
    }

    /// Removes all of them. How many there were.
    pub(crate) fn remove(&mut self) -> Result<usize, LeakProtectionError> {
        let count = self.present()?.len();
        self.make(&BTreeSet::new()).map(|_| count)
    }

    fn wanted(
        &mut self,
        networks: &BTreeSet<IpNet>,
        marks: bool,
    ) -> Result<BTreeSet<Route>, LeakProtectionError> {
        let networks = networks.iter().map(IpNet::trunc);
        let nowhere = |table| move |to| Route { table, to, by: None };
        if !marks {
            return Ok(networks.map(nowhere(MAIN)).collect());
        }
        let [remote, protected] = self.tables;
        let everything = [Ipv4Net::default().into(), Ipv6Net::default().into()];
        let mut wanted: BTreeSet<_> = networks.map(nowhere(remote)).collect();
        wanted.extend(everything.map(nowhere(protected)));
        if let Some(tun) = index_of(&mut self.rtnl, &self.tun)? {
            let into_tun: Vec<_> =
                wanted.iter().map(|route| Route { by: Some(tun), ..*route }).collect();
            wanted.extend(into_tun);
        }
        Ok(wanted)
    }

    fn make(&mut self, wanted: &BTreeSet<Route>) -> Result<usize, LeakProtectionError> {
        let there = self.present()?;
        let missing: Vec<_> = wanted.difference(&there).copied().collect();
        let orders = missing
            .iter()
            .map(|route| (Message::NewRoute(self.message(route)), NLM_F_CREATE | NLM_F_EXCL));
        let orders = orders.collect();
        let made = self.change("lay", &missing, orders, |route, errno| match errno {
            nix::libc::EEXIST => true,
            _ => route.by.is_some() && is_down(errno, route.to),
        })?;
        // Those into the interface before what lies beneath.
        let gone: Vec<_> =
            there.iter().rev().filter(|route| !wanted.contains(route)).copied().collect();
        let orders = gone.iter().map(|route| (Message::DelRoute(self.message(route)), 0)).collect();
        let is_gone = |_: &Route, errno| matches!(errno, nix::libc::ESRCH | nix::libc::ENOENT);
        self.change("remove", &gone, orders, is_gone)?;
        Ok(made)
    }

    /// Carries out orders, one for each route; how many were.
    fn change(
        &mut self,
        doing: &'static str,
        routes: &[Route],
        orders: Vec<(Message, u16)>,
        is_excused: impl Fn(&Route, i32) -> bool,
    ) -> Result<usize, LeakProtectionError> {
        let outcomes = self.rtnl.change_many(orders).map_err(LeakProtectionError::Netlink)?;
        let networks = routes.iter().map(|route| (route, route.to));
        carried_out(doing, networks, outcomes, is_excused)
    }

    fn present(&mut self) -> Result<BTreeSet<Route>, LeakProtectionError> {
        Ok(all(&mut self.rtnl)?.iter().filter_map(|route| self.read(route)).collect())
    }

    /// Parses a route, if it is one of these.
    fn read(&self, route: &RouteMessage) -> Option<Route> {
        let header = &route.header;
        let attributes = &route.attributes;
        let table = table_of(route);
        let by = attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        });
        // IPv6 has unreachable routes lead by the loopback interface.
        let by = by.filter(|_| header.kind == RouteType::Unicast);
        let is_known = by.is_some() || header.kind == RouteType::Unreachable;
        let has_metric = attributes.contains(&RouteAttribute::Priority(self.metric));
        let is_in_main = table == MAIN && has_metric && by.is_none();
        let is_in_place = is_in_main || !self.are_anothers && self.tables.contains(&table);
        if header.protocol != RouteProtocol::Other(PROTOCOL) || !is_known || !is_in_place {
            return None;
        }
        let to = destination(route)?;
        Some(Route { table, to, by })
    }

    fn message(&self, route: &Route) -> RouteMessage {
        let Route { table, to, by } = *route;
        let leads = by.map_or(Leads::Nowhere, Leads::Into);
        let metric = if by.is_none() && table == MAIN { self.metric } else { leads.metric() };
        message(table, to, leads, metric)
    }
}

/// Target of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leads {
    /// To the next `ip rule`.
    Past,
    /// Into the interface with this index.
    Into(u32),
    Nowhere,
}

impl Leads {
    /// Order among routes to one network: the lowest comes first.
    pub(crate) const fn metric(self) -> u32 {
        match self {
            Self::Past => PAST,
            Self::Into(_) => INTO_TUN,
            Self::Nowhere => UNREACHABLE,
        }
    }

    pub(crate) fn of(route: &RouteMessage) -> Option<Self> {
        let by = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        });
        match route.header.kind {
            RouteType::Unicast => by.map(Self::Into),
            RouteType::Unreachable => Some(Self::Nowhere),
            RouteType::Throw => Some(Self::Past),
            _ => None,
        }
    }
}

/// All routes of the namespace.
pub(crate) fn all(rtnl: &mut Rtnl) -> Result<Vec<RouteMessage>, LeakProtectionError> {
    let mut all = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut question = RouteMessage::default();
        question.header.address_family = family;
        let answers = rtnl.dump(&Message::GetRoute(question));
        all.extend(answers.map_err(LeakProtectionError::Netlink)?.into_iter().filter_map(
            |message| match message {
                Message::NewRoute(route) => Some(route),
                _ => None,
            },
        ));
    }
    Ok(all)
}

/// Number of orders for routes that were carried out, if those that were not are excused.
pub(crate) fn carried_out<'a, R: 'a>(
    doing: &'static str,
    routes: impl Iterator<Item = (&'a R, IpNet)>,
    outcomes: Vec<Result<(), Refusal>>,
    is_excused: impl Fn(&R, i32) -> bool,
) -> Result<usize, LeakProtectionError> {
    let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let failed = routes.zip(outcomes).filter_map(|((route, to), outcome)| {
        let refusal = outcome.err()?;
        let is_no_matter = is_excused(route, refusal.errno) || is_without_v6(refusal.errno, to);
        (!is_no_matter).then_some((to, refusal))
    });
    let mut failed = failed.collect::<Vec<_>>().into_iter();
    match failed.next() {
        Some((network, refusal)) => {
            let more = failed.len();
            Err(LeakProtectionError::Route { doing, network, refusal, more })
        }
        None => Ok(done),
    }
}

/// The table that a route is in.
pub(crate) fn table_of(route: &RouteMessage) -> u32 {
    let table = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    table.unwrap_or_else(|| route.header.table.into())
}

/// The network that a route is to.
pub(crate) fn destination(route: &RouteMessage) -> Option<IpNet> {
    let to = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(to)) => Some((*to).into()),
        RouteAttribute::Destination(RouteAddress::Inet6(to)) => Some((*to).into()),
        _ => None,
    });
    let everything = || match route.header.address_family {
        AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
        _ => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    IpNet::new(to.unwrap_or_else(everything), route.header.destination_prefix_length).ok()
}

/// A route of leak protection.
pub(crate) fn message(table: u32, to: IpNet, leads: Leads, metric: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: match to {
            IpNet::V4(_) => AddressFamily::Inet,
            IpNet::V6(_) => AddressFamily::Inet6,
        },
        destination_prefix_length: to.prefix_len(),
        // Tables beyond 255 only fit into the attribute.
        table: u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC),
        protocol: RouteProtocol::Other(PROTOCOL),
        scope: match (leads, to) {
            (Leads::Into(_), IpNet::V4(_)) => RouteScope::Link,
            _ => RouteScope::Universe,
        },
        kind: match leads {
            Leads::Into(_) => RouteType::Unicast,
            Leads::Nowhere => RouteType::Unreachable,
            Leads::Past => RouteType::Throw,
        },
        ..RouteHeader::default()
    };
    message.attributes.push(RouteAttribute::Table(table));
    message.attributes.push(RouteAttribute::Destination(to.network().into()));
    message.attributes.push(RouteAttribute::Priority(metric));
    if let Leads::Into(index) = leads {
        message.attributes.push(RouteAttribute::Oif(index));
    }
    message
}

/// The interface has gone, is down, or has no IPv6: what leads nowhere holds until it is back.
pub(crate) fn is_down(errno: i32, to: IpNet) -> bool {
    match errno {
        nix::libc::ENODEV | nix::libc::ENETDOWN => true,
        nix::libc::EACCES | nix::libc::EINVAL => to.addr().is_ipv6(),
        _ => false,
    }
}

/// The kernel was started without IPv6: nothing leaves by it.
fn is_without_v6(errno: i32, to: IpNet) -> bool {
    to.addr().is_ipv6() && matches!(errno, nix::libc::EOPNOTSUPP | nix::libc::EAFNOSUPPORT)
}

/// The index of an interface, if it is there.
pub(crate) fn index_of(
    rtnl: &mut Rtnl,
    tun: &LinkName,
) -> Result<Option<u32>, LeakProtectionError> {
    let mut question = LinkMessage::default();
    question.attributes.push(LinkAttribute::IfName(tun.as_str().into()));
    match rtnl.query(Message::GetLink(question)) {
        Ok(Some(Message::NewLink(link))) => Ok(Some(link.header.index)),
        Ok(_) | Err(Refusal { errno: nix::libc::ENODEV, .. }) => Ok(None),
        Err(refusal) => Err(LeakProtectionError::Netlink(refusal)),
    }
}

/// A metric of its own for an interface.
fn metric(tun: &str) -> u32 {
    METRIC | number(tun)
}

/// A number of 20 bits that tells an interface from others: its name, hashed (FNV-1a).
pub(crate) fn number(tun: &str) -> u32 {
    let hash = tun
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash >> (u32::BITS - METRIC_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_behind_all_others_and_apart() {
        let names = (0..1000).map(|n| metric(&format!("convoy{n}")));
        let metrics: BTreeSet<_> = names.collect();
        assert!(metrics.len() > 990, "{}", metrics.len());
        assert!(metrics.iter().all(|metric| (METRIC..u32::MAX).contains(metric)));
    }
}
