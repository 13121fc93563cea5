//! The `unreachable` routes that lie beneath those into the TUN interface.

use std::collections::BTreeSet;

use convoy_host::LinkName;
use convoy_netlink::Rtnl;
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Message,
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
        RouteType,
    },
};

use crate::LeakProtectionError;

/// Who made a route, in `ip route`: a number that no routing daemon uses (`rtnetlink.h`).
const PROTOCOL: u8 = 0xc5;
/// The lowest metric of such routes: behind all that are meant to carry anything.
const METRIC: u32 = 0xffe0_0000;
/// The bits of the metric that tell the routes of one interface from those of another.
const METRIC_BITS: u32 = 20;

/// The routes of one TUN interface, told from others by their metric.
#[derive(Debug)]
pub(crate) struct Routes {
    rtnl: Rtnl,
    metric: u32,
}

impl Routes {
    /// Opens the routing tables of the calling thread's namespace.
    pub(crate) fn open(tun: &LinkName) -> Result<Self, LeakProtectionError> {
        let rtnl = Rtnl::open().map_err(|error| LeakProtectionError::Netlink(error.into()))?;
        Ok(Self { rtnl, metric: metric(tun.as_str()) })
    }

    /// Makes these the routes that there are, new ones first. How many were missing.
    pub(crate) fn set(&mut self, wanted: &BTreeSet<IpNet>) -> Result<usize, LeakProtectionError> {
        let wanted: BTreeSet<_> = wanted.iter().map(IpNet::trunc).collect();
        let there = self.present()?;
        let missing: Vec<_> = wanted.difference(&there).copied().collect();
        let orders = missing
            .iter()
            .map(|net| (Message::NewRoute(self.unreachable(net)), NLM_F_CREATE | NLM_F_EXCL));
        let orders = orders.collect();
        let made = self.change("lay", &missing, orders, |errno| errno == nix::libc::EEXIST)?;
        let gone: Vec<_> = there.difference(&wanted).copied().collect();
        let orders = gone.iter().map(|net| (Message::DelRoute(self.unreachable(net)), 0)).collect();
        let is_gone = |errno| matches!(errno, nix::libc::ESRCH | nix::libc::ENOENT);
        self.change("remove", &gone, orders, is_gone)?;
        Ok(made)
    }

    /// Carries out orders, one for each network; how many.
    fn change(
        &mut self,
        doing: &'static str,
        networks: &[IpNet],
        orders: Vec<(Message, u16)>,
        is_excused: impl Fn(i32) -> bool,
    ) -> Result<usize, LeakProtectionError> {
        let outcomes = self.rtnl.change_many(orders).map_err(LeakProtectionError::Netlink)?;
        let no_v6 = |network: &IpNet, errno| {
            // The kernel was started without IPv6: nothing leaves by it.
            let is_without = matches!(errno, nix::libc::EOPNOTSUPP | nix::libc::EAFNOSUPPORT);
            network.addr().is_ipv6() && is_without
        };
        let failed = networks.iter().zip(outcomes).filter_map(|(network, outcome)| {
            let refusal = outcome.err()?;
            let is_no_matter = is_excused(refusal.errno) || no_v6(network, refusal.errno);
            (!is_no_matter).then_some((*network, refusal))
        });
        let mut failed = failed.collect::<Vec<_>>().into_iter();
        match failed.next() {
            Some((network, refusal)) => {
                let more = failed.len();
                Err(LeakProtectionError::Route { doing, network, refusal, more })
            }
            None => Ok(networks.len()),
        }
    }

    fn present(&mut self) -> Result<BTreeSet<IpNet>, LeakProtectionError> {
        let mut found = BTreeSet::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut question = RouteMessage::default();
            question.header.address_family = family;
            let answers = self.rtnl.dump(&Message::GetRoute(question));
            for message in answers.map_err(LeakProtectionError::Netlink)? {
                let Message::NewRoute(route) = message else { continue };
                found.extend(self.network_of(&route));
            }
        }
        Ok(found)
    }

    /// Where a route leads to, if it is one of these.
    fn network_of(&self, route: &RouteMessage) -> Option<IpNet> {
        let header = &route.header;
        let is_such = header.kind == RouteType::Unreachable
            && header.protocol == RouteProtocol::Other(PROTOCOL)
            && header.table == RouteHeader::RT_TABLE_MAIN
            && route.attributes.contains(&RouteAttribute::Priority(self.metric));
        let to = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(to)) => Some((*to).into()),
            RouteAttribute::Destination(RouteAddress::Inet6(to)) => Some((*to).into()),
            _ => None,
        });
        let everything = || match header.address_family {
            AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
            _ => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let to = to.unwrap_or_else(everything);
        is_such.then(|| IpNet::new(to, header.destination_prefix_length).ok())?
    }

    fn unreachable(&self, to: &IpNet) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: match to {
                IpNet::V4(_) => AddressFamily::Inet,
                IpNet::V6(_) => AddressFamily::Inet6,
            },
            destination_prefix_length: to.prefix_len(),
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Other(PROTOCOL),
            scope: RouteScope::Universe,
            kind: RouteType::Unreachable,
            ..RouteHeader::default()
        };
        message.attributes.push(RouteAttribute::Destination(to.network().into()));
        message.attributes.push(RouteAttribute::Priority(self.metric));
        message
    }
}

/// A metric of its own for an interface: its name, hashed (FNV-1a).
fn metric(tun: &str) -> u32 {
    let hash = tun
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    METRIC | (hash >> (u32::BITS - METRIC_BITS))
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
