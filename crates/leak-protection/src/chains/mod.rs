//! The chains of the table, one file each kind.

mod admitted;
mod inbound;
pub(crate) mod marking;
mod outbound;
pub(crate) mod questions;

use convoy_netlink::nft::{
    AddressSet, Place,
    expression::{ACCEPT, Expression, equal, meta, name, verdict},
    stop,
};
use netlink_packet_netfilter::nftables::MetaKey;

use crate::{Config, Lead, Way, marks::Noted, prefix_sets::of_way, queues::Asking, table::SETS};

/// A chain and its rules.
pub(crate) struct Chain {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    /// What its counters count.
    pub(crate) counts: Option<Counted>,
    pub(crate) rules: Vec<Vec<Expression>>,
}

/// Packets that a chain drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// What would leave in clear.
    Outbound,
    /// What came in in clear.
    Inbound,
}

/// All chains; those that others jump to come before these.
pub(crate) fn all(config: &Config, asking: Option<&Asking>) -> Vec<Chain> {
    let questions = asking.into_iter().flat_map(|asking| questions::chains(config, asking));
    let marks = asking.is_some() || config.leads == Lead::ByMark;
    let marking = marks.then(|| marking::chains(config, asking)).into_iter().flatten();
    let others =
        outbound::chains(config, asking).into_iter().chain(inbound::chains(config, asking));
    questions.chain(marking).chain(others).collect()
}

/// Accepts what bears one of these marks.
fn answered(asking: &Asking, marks: &[Noted]) -> Vec<Vec<Expression>> {
    let accept = |it: &Noted| [asking.marks.noted(*it).in_mark(), vec![verdict(ACCEPT)]].concat();
    marks.iter().map(accept).collect()
}

/// Accepts what goes in or out by one interface.
fn by(direction: MetaKey, link: &str) -> Vec<Expression> {
    vec![meta(direction), equal(name(link)), verdict(ACCEPT)]
}

/// Near, far and mixed prefixes of one way, of IPv4 and of IPv6. Policies of a site alone mean all ways.
fn sides(leads: Lead, way: Way) -> impl Iterator<Item = (AddressSet, AddressSet, AddressSet)> {
    let way = if leads == Lead::ByMark { way } else { Way::Out };
    let of_version = move |is_v4| of_way(&SETS, way, is_v4).copied();
    [true, false].into_iter().filter_map(of_version).map(|[near, far, mixed]| (near, far, mixed))
}

/// Goes on if the packet goes from one network to another.
fn between(from: AddressSet, to: AddressSet) -> Vec<Expression> {
    [from.of_version(), from.has_source(), to.has_destination()].concat()
}

/// Whether a rule of a table that asks drops what has no answer.
pub(crate) fn drops_unanswered(rule: &[Expression]) -> bool {
    let mut sides = Way::ALL.into_iter().flat_map(|way| sides(Lead::ByMark, way));
    sides.any(|(near, far, _)| rule == drop_between(near, far) || rule == drop_between(far, near))
}

/// Counts and drops what goes from one network to another.
fn drop_between(from: AddressSet, to: AddressSet) -> Vec<Expression> {
    [between(from, to), stop()].concat()
}
