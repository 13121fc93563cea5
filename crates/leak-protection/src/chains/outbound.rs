//! The chains that drop what would leave in clear. They lie behind routing, so they see what the host sends
//! and what it forwards, whatever led it there.

use convoy_netlink::nft::{
    FIRST, LAST,
    expression::{ACCEPT, Expression, and, equal, meta, neighbour_discovery, verdict},
};
use netlink_packet_netfilter::nftables::{InetHookNumber, MetaKey};

use super::{Chain, by, drop_between};
use crate::{
    Config,
    table::{FAR, NEAR},
};

/// The chains: policies speak of sources as they were sent, so the first lies ahead of all that changes them. The
/// second lies behind that, for what source NAT made a packet from near.
pub(super) fn chains(config: &Config) -> [Chain; 2] {
    [("outbound", FIRST), ("outbound-behind-nat", LAST)].map(|(name, at)| Chain {
        name,
        place: (InetHookNumber::PostRouting, at),
        is_inbound: false,
        rules: rules(config),
    })
}

fn rules(config: &Config) -> Vec<Vec<Expression>> {
    let mut rules = vec![
        by(MetaKey::Oifname, config.tun.as_str()),
        by(MetaKey::Oifname, "lo"),
        of_the_gateway(config),
        // Who forwards it takes one from its hop limit.
        neighbour_discovery(),
    ];
    rules.extend(NEAR.into_iter().zip(FAR).map(|(near, far)| drop_between(near, far)));
    rules
}

/// Accepts the gateway's own packets. What is forwarded can bear the same mark by rules of others, but comes from
/// an interface.
fn of_the_gateway(config: &Config) -> Vec<Expression> {
    let (mask, value) = (config.mark.mask, config.mark.value & config.mark.mask);
    vec![
        meta(MetaKey::Iif),
        equal(0_u32.to_ne_bytes().to_vec()),
        meta(MetaKey::Mark),
        and(&mask.to_ne_bytes()),
        equal(value.to_ne_bytes().to_vec()),
        verdict(ACCEPT),
    ]
}
