//! The chains that drop what would leave in clear. They lie behind routing, so they see what the host sends
//! and what it forwards, whatever led it there.

use convoy_netlink::nft::{
    FIRST, LAST, Place,
    expression::{ACCEPT, Expression, and, equal, meta, neighbour_discovery, verdict},
    flow::{SOURCE_NAT, is_with},
    stop,
};
use netlink_packet_netfilter::nftables::{InetHookNumber, MetaKey};

use super::{Chain, Counted, answered, between, by, drop_between, questions::ask, sides};
use crate::{
    Config, Way,
    marks::Noted,
    queues::{Asking, Kind},
};

/// The chains: policies speak of sources as they were sent, so the first lies ahead of all that changes them. The
/// second lies behind that, for what source NAT made a packet from near.
pub(super) fn chains(config: &Config, asking: Option<&Asking>) -> [Chain; 2] {
    [("outbound", FIRST, false), ("outbound-behind-nat", LAST, true)].map(
        |(name, priority, is_behind_nat)| Chain {
            name,
            place: Place::At(InetHookNumber::PostRouting, priority),
            counts: Some(Counted::Outbound),
            rules: rules(config, asking, is_behind_nat),
        },
    )
}

fn rules(config: &Config, asking: Option<&Asking>, is_behind_nat: bool) -> Vec<Vec<Expression>> {
    let sides = || sides(config.leads, Way::Out);
    let mut rules = vec![
        by(MetaKey::Oifname, config.tun.as_str()),
        by(MetaKey::Oifname, "lo"),
        of_the_gateway(config),
        // Who forwards it takes one from its hop limit.
        neighbour_discovery(),
    ];
    if let Some(asking) = asking {
        rules.push([asking.marks.noted(Noted::Protect).in_mark(), stop()].concat());
        rules.extend(sides().map(|(near, far, mixed)| {
            [between(near, far), mixed.lacks_destination(), stop()].concat()
        }));
        if is_behind_nat {
            // Another source is another question, also of what nobody asked about by the one before.
            rules.extend(sides().map(|(near, far, _)| {
                let asked = vec![ask(asking, Kind::Sent)];
                [between(near, far), is_with(SOURCE_NAT), asked].concat()
            }));
        }
        // Packets of no flow, as an ICMP error about an unknown one, have no other source either.
        rules.extend(answered(asking, &[Noted::Bypass]));
    }
    rules.extend(sides().map(|(near, far, _)| drop_between(near, far)));
    rules
}

/// Accepts the gateway's own packets. What is forwarded can bear the same mark by rules of others, but comes from
/// an interface.
pub(super) fn of_the_gateway(config: &Config) -> Vec<Expression> {
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
