//! Prefixes as ranges of addresses, and back.

use std::net::IpAddr;

use convoy_host::Family;
use convoy_netlink::nft::{Range, number};
use ipnet::IpNet;

/// Addresses of a prefix.
pub(crate) fn range(net: &IpNet) -> Range {
    (number(net.network()), number(net.broadcast()))
}

/// The prefixes that make up a range.
pub(crate) fn prefixes(range: Range, version: Family) -> Vec<IpNet> {
    let (from, to) = range;
    if version == Family::V4 {
        let ends =
            [from, to].map(|end| std::net::Ipv4Addr::from(u32::try_from(end).unwrap_or(u32::MAX)));
        ipnet::Ipv4Subnets::new(ends[0], ends[1], 0).map(IpNet::V4).collect()
    } else {
        let ends = [from, to].map(std::net::Ipv6Addr::from);
        ipnet::Ipv6Subnets::new(ends[0], ends[1], 0).map(IpNet::V6).collect()
    }
}

/// IP version of an address.
pub(crate) const fn version_of(address: IpAddr) -> Family {
    match address {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}
