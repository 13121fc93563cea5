//! The chains that drop what comes in in clear although it must come out of a tunnel (RFC 4301 section 5.2).

use convoy_host::fence::admitted;
use convoy_netlink::nft::{
    FIRST, LAST,
    expression::{Expression, neighbour_discovery},
};
use netlink_packet_netfilter::nftables::{InetHookNumber, MetaKey};

use super::{Chain, by, drop_between};
use crate::{
    Config,
    table::{FAR, NEAR},
};

/// For this host, ahead of what changes sources there; and for what it forwards.
pub(super) fn chains(config: &Config) -> [Chain; 2] {
    let chain =
        |name, place, passes| Chain { name, place, is_inbound: true, rules: rules(config, passes) };
    // What a bridge passes on comes by the second one where `br_netfilter` shows it.
    let forwarded = vec![neighbour_discovery()];
    [
        chain("inbound", (InetHookNumber::LocalIn, FIRST), admitted([config.udp_port])),
        chain("inbound-forward", (InetHookNumber::Forward, LAST), forwarded),
    ]
}

fn rules(config: &Config, passes: Vec<Vec<Expression>>) -> Vec<Vec<Expression>> {
    let mut rules = vec![by(MetaKey::Iifname, config.tun.as_str()), by(MetaKey::Iifname, "lo")];
    rules.extend(passes);
    rules.extend(FAR.into_iter().zip(NEAR).map(|(far, near)| drop_between(far, near)));
    rules
}
