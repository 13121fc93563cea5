//! What stands in the fence's tables: routes.

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Message,
    route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType},
};

use super::{PROTOCOL, book::State};
use crate::{
    change::family,
    netlink::{Refusal, Rtnl},
    network::plain,
};

/// Metrics: of the routes to one network the lowest wins. The one into the TUN interface vanishes
/// with it, and then the next one holds.
const INTO_TUN: u32 = 10;
pub(super) const UNREACHABLE: u32 = 20;
const THROW: u32 = 30;

/// A route of ours that is in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Laid {
    pub(super) table: u32,
    pub(super) network: IpNet,
    pub(super) way: Way,
}

/// Where a route leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Way {
    /// Through the interface of this index; none if there are several.
    Through(Option<u32>),
    Nowhere,
    /// On to the tables behind.
    Onward,
}

/// A change of the tables that is to be made.
#[derive(Debug, Clone)]
pub(super) struct Step {
    message: RouteMessage,
    add: bool,
    network: IpNet,
    /// The same without what may be refused.
    instead: Option<RouteMessage>,
}

/// What brings a network from whatever it was into a state. At no time between the steps is it more
/// open than before and after.
pub(super) fn steps(
    table: u32,
    network: IpNet,
    state: Option<State>,
    tun: Option<u32>,
) -> Vec<Step> {
    let bare = |kind: RouteType, metric: u32| {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(network.addr()),
            destination_prefix_length: network.prefix_len(),
            // Tables beyond 255 only fit into the attribute.
            table: u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC),
            protocol: RouteProtocol::Other(PROTOCOL),
            scope: RouteScope::Universe,
            kind,
            ..RouteHeader::default()
        };
        message.attributes.push(RouteAttribute::Destination(network.addr().into()));
        message.attributes.push(RouteAttribute::Table(table));
        message.attributes.push(RouteAttribute::Priority(metric));
        message
    };
    let step = |message, add| Step { message, add, network, instead: None };
    let mut into_tun = bare(RouteType::Unicast, INTO_TUN);
    if network.addr().is_ipv4() {
        into_tun.header.scope = RouteScope::Link;
    }
    let into_tun_gone = step(into_tun.clone(), false);
    let unreachable = bare(RouteType::Unreachable, UNREACHABLE);
    let throw = bare(RouteType::Throw, THROW);
    match state {
        Some(State::Closed { into, source }) => {
            let mut steps = vec![step(unreachable, true)];
            match tun.filter(|_| into) {
                Some(index) => {
                    into_tun.attributes.push(RouteAttribute::Oif(index));
                    let without = into_tun.clone();
                    let instead = source.map(|source| {
                        into_tun.attributes.push(RouteAttribute::PrefSource(source.into()));
                        without
                    });
                    steps.push(Step { message: into_tun, add: true, network, instead });
                }
                None => steps.push(into_tun_gone),
            }
            steps.push(step(throw, false));
            steps
        }
        Some(State::Open) => {
            vec![step(throw, true), into_tun_gone, step(unreachable, false)]
        }
        None => vec![into_tun_gone, step(unreachable, false), step(throw, false)],
    }
}

/// The routes that stand for a state.
pub(super) fn expected(
    table: u32,
    network: IpNet,
    state: Option<State>,
    tun: Option<u32>,
) -> Vec<Laid> {
    let laid = |way| Laid { table, network, way };
    match state {
        Some(State::Closed { into, .. }) => {
            let into_tun = tun.filter(|_| into).map(|tun| laid(Way::Through(Some(tun))));
            core::iter::once(laid(Way::Nowhere)).chain(into_tun).collect()
        }
        Some(State::Open) => vec![laid(Way::Onward)],
        None => Vec::new(),
    }
}

/// Makes changes in this order; a route that is there already, or gone already, is none. What could
/// not be done, with the network concerned.
pub(super) fn lay(rtnl: &mut Rtnl, steps: Vec<Step>) -> Result<Vec<(IpNet, Refusal)>, Refusal> {
    let outcomes = rtnl.change_many(steps.iter().map(Step::order).collect())?;
    let mut failed = Vec::new();
    let mut again = Vec::new();
    for (step, outcome) in steps.into_iter().zip(outcomes) {
        match outcome.err() {
            None => {}
            Some(refusal) if step.is_excused(refusal.errno) => {}
            Some(refusal) => match step.instead {
                // An address that the host does not have any more.
                Some(message) if refusal.errno == nix::libc::EINVAL => {
                    again.push(Step { message, instead: None, ..step });
                }
                _ => failed.push((step.network, refusal)),
            },
        }
    }
    if !again.is_empty() {
        failed.extend(lay(rtnl, again)?);
    }
    Ok(failed)
}

impl Step {
    fn order(&self) -> (Message, u16) {
        let message = self.message.clone();
        match (self.add, message.header.kind) {
            (false, _) => (Message::DelRoute(message), 0),
            // The interface or the source may be another one now.
            (true, RouteType::Unicast) => {
                (Message::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
            }
            (true, _) => (Message::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL),
        }
    }

    fn is_excused(&self, errno: i32) -> bool {
        let is_v6 = self.network.addr().is_ipv6();
        if is_v6 && matches!(errno, nix::libc::EOPNOTSUPP | nix::libc::EAFNOSUPPORT) {
            // The kernel was started without IPv6: nothing leaves by it.
            return true;
        }
        match (self.add, self.message.header.kind) {
            (false, _) => matches!(errno, nix::libc::ESRCH | nix::libc::ENOENT),
            // The TUN interface has gone, or is down: the network stays closed all the same, and
            // repair lays the route when it is back.
            (true, RouteType::Unicast) => {
                matches!(errno, nix::libc::ENODEV | nix::libc::ENETDOWN)
                    // IPv6 is switched off on the interface.
                    || is_v6 && errno == nix::libc::EACCES
            }
            (true, _) => errno == nix::libc::EEXIST,
        }
    }
}

/// The routes of ours in these tables.
pub(super) fn present(rtnl: &mut Rtnl, tables: [u32; 2]) -> Result<Vec<Laid>, Refusal> {
    let mut found = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut question = RouteMessage::default();
        question.header.address_family = family;
        for message in rtnl.dump(&Message::GetRoute(question))? {
            let Message::NewRoute(route) = message else { continue };
            found.extend(laid(&route).filter(|laid| tables.contains(&laid.table)));
        }
    }
    Ok(found)
}

fn laid(route: &RouteMessage) -> Option<Laid> {
    if u8::from(route.header.protocol) != PROTOCOL {
        return None;
    }
    let unspecified = match route.header.address_family {
        AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
        _ => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let (mut to, mut table, mut link) = (unspecified, u32::from(route.header.table), None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(address) => to = plain(address)?,
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Oif(index) => link = Some(*index),
            _ => {}
        }
    }
    let network = IpNet::new(to, route.header.destination_prefix_length).ok()?;
    let way = match route.header.kind {
        RouteType::Unicast => Way::Through(link),
        RouteType::Throw => Way::Onward,
        _ => Way::Nowhere,
    };
    Some(Laid { table, network, way })
}
