//! The chains of the table, one file each kind.

mod admitted;
pub(crate) mod discarded;
mod inbound;
pub(crate) mod marking;
mod neighbours;
mod outbound;
pub(crate) mod questions;
pub(crate) mod quoting;
pub(crate) mod rewritten;
pub(crate) mod tracking;

use convoy_netlink::nft::{
    AddressSet, Place,
    expression::{ACCEPT, Expression, equal, meta, name, verdict},
    flow::Bits,
    stop,
};
use netlink_packet_netfilter::nftables::MetaKey;

use crate::{
    Config, Lead, PolicyDirection, prefix_sets::of_way, queues::Asking, table::SETS,
    tracked::Tracked,
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

/// All chains; those that others jump to come before these.
pub(crate) fn all(
    config: &Config,
    asking: Option<&Asking>,
    rewriting: Option<&Asking>,
    tracked: Tracked,
) -> Vec<Chain> {
    let tracking = asking.map(|_| tracking::chains(config, tracked)).into_iter().flatten();
    let discarded = asking.map(|_| discarded::chains()).into_iter().flatten();
    let questions = asking.into_iter().flat_map(|asking| questions::chains(config, asking));
    let questions = discarded.chain(questions);
    let marks = asking.is_some() || config.leads == Lead::ByMark;
    let marking = marks.then(|| marking::chains(config, asking, rewriting)).into_iter().flatten();
    let rewritten = rewriting
        .into_iter()
        .flat_map(|queues| rewritten::chains(config, asking.is_some(), queues));
    let others = outbound::chains(config, asking, rewriting)
        .into_iter()
        .chain(inbound::chains(config, asking));
    core::iter::once(neighbours::chain())
        .chain(questions)
        .chain(tracking)
        .chain(rewritten)
        .chain(marking)
        .chain(others)
        .collect()
}

/// Accepts what bears one of these marks.
fn answered(marks: &[Bits]) -> Vec<Vec<Expression>> {
    marks.iter().map(|bits| [bits.in_mark(), vec![verdict(ACCEPT)]].concat()).collect()
}

/// Accepts what goes in or out by one interface.
fn by(direction: MetaKey, link: &str) -> Vec<Expression> {
    vec![meta(direction), equal(name(link)), verdict(ACCEPT)]
}

/// Goes on if this host sends the packet. What it forwards came in by an interface.
fn is_of_this_host() -> Vec<Expression> {
    vec![meta(MetaKey::Iif), equal(0_u32.to_ne_bytes().to_vec())]
}

/// Near, far and mixed prefixes of one way, of IPv4 and of IPv6. Policies of a site alone mean all ways.
fn sides(
    leads: Lead,
    way: PolicyDirection,
) -> impl Iterator<Item = (AddressSet, AddressSet, AddressSet)> {
    let way = if leads == Lead::ByMark { way } else { PolicyDirection::Out };
    let of_version = move |is_v4| of_way(&SETS, way, is_v4).copied();
    [true, false].into_iter().filter_map(of_version).map(|[near, far, mixed]| (near, far, mixed))
}

/// Near, far and mixed prefixes of all ways that have some of their own.
fn all_sides(leads: Lead) -> impl Iterator<Item = (AddressSet, AddressSet, AddressSet)> {
    let ways =
        if leads == Lead::ByMark { &PolicyDirection::ALL[..] } else { &[PolicyDirection::Out] };
    ways.iter().flat_map(move |way| sides(leads, *way))
}

/// Goes on if the packet goes from one network to another.
fn between(from: AddressSet, to: AddressSet) -> Vec<Expression> {
    [from.of_version(), from.has_source(), to.has_destination()].concat()
}

/// Goes on if the packet goes between near and far, either way.
fn either_way(leads: Lead) -> impl Iterator<Item = Vec<Expression>> {
    all_sides(leads).flat_map(|(near, far, _)| [between(near, far), between(far, near)])
}

/// True if a rule of a table that asks drops what has no answer.
pub(crate) fn drops_unanswered(rule: &[Expression]) -> bool {
    all_sides(Lead::ByMark)
        .any(|(near, far, _)| rule == drop_between(near, far) || rule == drop_between(far, near))
}

/// Counts and drops what goes from one network to another.
fn drop_between(from: AddressSet, to: AddressSet) -> Vec<Expression> {
    [between(from, to), stop()].concat()
}
