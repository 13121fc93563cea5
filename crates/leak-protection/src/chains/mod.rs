//! The chains of the table, one file each kind.

mod inbound;
mod outbound;

use convoy_netlink::nft::{
    AddressSet,
    expression::{ACCEPT, Expression, equal, meta, name, verdict},
    stop,
};
use netlink_packet_netfilter::nftables::{InetHookNumber, MetaKey};

use crate::Config;

/// A chain at a hook.
pub(crate) struct Chain {
    pub(crate) name: &'static str,
    pub(crate) place: (InetHookNumber, i32),
    /// Whether it drops what comes in, not what leaves.
    pub(crate) is_inbound: bool,
    pub(crate) rules: Vec<Vec<Expression>>,
}

pub(crate) fn all(config: &Config) -> Vec<Chain> {
    outbound::chains(config).into_iter().chain(inbound::chains(config)).collect()
}

/// Accepts what goes in or out by one interface.
fn by(direction: MetaKey, link: &str) -> Vec<Expression> {
    vec![meta(direction), equal(name(link)), verdict(ACCEPT)]
}

/// Counts and drops what goes from one network to another.
fn drop_between(from: AddressSet, to: AddressSet) -> Vec<Expression> {
    [to.of_version(), from.has_source(), to.has_destination(), stop()].concat()
}
