//! Parts that chains are made of.

use convoy_netlink::nft::{
    AddressSet, Place,
    expression::{ACCEPT, Expression, equal, meta, name, verdict},
    flow::Bits,
    stop,
};
use netlink_packet_netfilter::nftables::MetaKey;

use crate::{
    config::Lead,
    policy_direction::PolicyDirection,
    sets::{Prefixes, SETS},
};

/// A chain and its rules.
pub(crate) struct Chain {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    /// Packets that its counters count.
    pub(crate) counts: Option<Counted>,
    pub(crate) rules: Vec<Vec<Expression>>,
}

/// Packets that a chain drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Packets that would leave in clear.
    Outbound,
    /// Packets that came in in clear.
    Inbound,
    /// Packets that were answered to be dropped before.
    Discarded,
}

/// Accepts what bears one of these marks.
pub(super) fn answered(marks: &[Bits]) -> Vec<Vec<Expression>> {
    marks.iter().map(|bits| [bits.in_mark(), vec![verdict(ACCEPT)]].concat()).collect()
}

/// Accepts what goes in or out by one interface.
pub(super) fn by(direction: MetaKey, link: &str) -> Vec<Expression> {
    vec![meta(direction), equal(name(link)), verdict(ACCEPT)]
}

/// Goes on if this host sends the packet. What it forwards came in by an interface.
pub(super) fn is_of_this_host() -> Vec<Expression> {
    vec![meta(MetaKey::Iif), equal(0_u32.to_ne_bytes().to_vec())]
}

/// Local, remote and partly bypassed prefixes of one way, of IPv4 and of IPv6. Policies of a site alone mean all ways.
pub(super) fn sides(
    leads: Lead,
    way: PolicyDirection,
) -> impl Iterator<Item = Prefixes<AddressSet>> {
    let way = if leads == Lead::ByMark { way } else { PolicyDirection::Out };
    SETS.of(way).both().into_iter().map(|(_, prefixes)| *prefixes)
}

/// Local, remote and partly bypassed prefixes of all ways that have some of their own.
pub(super) fn all_sides(leads: Lead) -> impl Iterator<Item = Prefixes<AddressSet>> {
    let ways =
        if leads == Lead::ByMark { &PolicyDirection::ALL[..] } else { &[PolicyDirection::Out] };
    ways.iter().flat_map(move |way| sides(leads, *way))
}

/// Goes on if the packet goes from one network to another.
pub(super) fn between(from: AddressSet, to: AddressSet) -> Vec<Expression> {
    [from.of_version(), from.has_source(), to.has_destination()].concat()
}

/// Goes on if the packet goes between local and remote networks, either way.
pub(super) fn either_way(leads: Lead) -> impl Iterator<Item = Vec<Expression>> {
    all_sides(leads)
        .flat_map(|Prefixes { local, remote, .. }| [between(local, remote), between(remote, local)])
}

/// True if a rule of a table that asks drops what has no answer.
pub(crate) fn drops_unanswered(rule: &[Expression]) -> bool {
    all_sides(Lead::ByMark).any(|Prefixes { local, remote, .. }| {
        rule == drop_between(local, remote) || rule == drop_between(remote, local)
    })
}

/// Counts and drops what goes from one network to another.
pub(super) fn drop_between(from: AddressSet, to: AddressSet) -> Vec<Expression> {
    [between(from, to), stop()].concat()
}
