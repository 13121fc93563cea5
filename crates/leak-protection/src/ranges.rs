//! Prefixes as ranges of addresses, and back.

use convoy_netlink::nft::{Range, number};
use ipnet::IpNet;

/// Addresses of a prefix.
pub(crate) fn range(net: &IpNet) -> Range {
    (number(net.network()), number(net.broadcast()))
}

/// The prefixes that make up a range.
pub(crate) fn prefixes(range: Range, is_v4: bool) -> Vec<IpNet> {
    let (from, to) = range;
    if is_v4 {
        let ends =
            [from, to].map(|end| std::net::Ipv4Addr::from(u32::try_from(end).unwrap_or(u32::MAX)));
        ipnet::Ipv4Subnets::new(ends[0], ends[1], 0).map(IpNet::V4).collect()
    } else {
        let ends = [from, to].map(std::net::Ipv6Addr::from);
        ipnet::Ipv6Subnets::new(ends[0], ends[1], 0).map(IpNet::V6).collect()
    }
}
