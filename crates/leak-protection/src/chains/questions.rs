//! The chains that ask the gateway about packets between partly bypassed prefixes, where what a policy protects and what one
//! bypasses differ in more than prefixes. The kernel keeps answers in marks of flows (conntrack), for each direction
//! and for one epoch of policies.

use convoy_netlink::nft::{
    Place, back,
    expression::{ACCEPT, Expression, equal, meta, name, verdict},
    flow::{
        ESTABLISHED, EXPECTED, FlowDirection, NEW, RELATED, goes, is_for_this_host,
        is_not_in_state, is_with,
    },
    jump, queue,
};
use netlink_packet_netfilter::nftables::{InetHookNumber, MetaKey};

use super::{
    admitted::admitted_to,
    discarded,
    parts::{Chain, between, either_way, sides},
    quoting,
};
use crate::{
    config::Config,
    marks::Noted,
    policy_direction::PolicyDirection,
    questions::{Asking, Kind},
    sets::Prefixes,
};

/// Behind the answers.
pub(super) const KEEPS: i32 = -80;
pub(super) const DIRECTIONS: [FlowDirection; 2] = [FlowDirection::Original, FlowDirection::Reply];

/// Chains that know the epoch.
pub(crate) const RECALL: &str = "recall";
pub(crate) const KEEP: &str = "keep";
pub(super) const FROM_LOCAL: &str = "from-near";
pub(super) const CAME_IN: &str = "came-in";
const FROM_FAR: &str = "from-far";

pub(super) fn chains(config: &Config, asking: &Asking) -> Vec<Chain> {
    let chain = |name, place, rules| Chain { name, place, counts: None, rules };
    vec![
        chain(RECALL, Place::Jumps, recall(asking)),
        chain(KEEP, Place::Jumps, keep(asking)),
        chain(FROM_LOCAL, Place::Jumps, from_near(config, asking)),
        chain(FROM_FAR, Place::Jumps, from_far(config, asking)),
        chain(CAME_IN, Place::Jumps, came_in(config)),
        quoting::chain(asking),
        chain("sent-answered", Place::At(InetHookNumber::LocalOut, KEEPS), kept(config, asking)),
    ]
}

/// Rules of the chains that know the epoch.
pub(crate) fn of_epoch(asking: &Asking) -> [(&'static str, Vec<Vec<Expression>>); 3] {
    let quoting = quoting::chain(asking);
    [(RECALL, recall(asking)), (KEEP, keep(asking)), (quoting.name, quoting.rules)]
}

/// Asks, and drops what nobody answers for.
pub(super) fn ask(asking: &Asking, kind: Kind) -> Expression {
    queue(asking.by, asking.number(kind))
}

pub(super) fn pass() -> Vec<Expression> {
    vec![verdict(ACCEPT)]
}

/// Gives a packet the verdict that its flow remembers.
fn recall(asking: &Asking) -> Vec<Vec<Expression>> {
    let marks = asking.marks;
    let Some(epoch) = asking.epoch else { return Vec::new() };
    let known = NEW | ESTABLISHED | RELATED;
    let mut rules = vec![
        [is_not_in_state(known), vec![back()]].concat(),
        // It has the mark of another flow, by which a helper (as that of FTP) expected it.
        [is_with(EXPECTED), vec![back()]].concat(),
        [marks.epoch(epoch).not_in_flow(), vec![back()]].concat(),
    ];
    rules.extend(DIRECTIONS.into_iter().flat_map(|direction| {
        Noted::ALL.map(|noted| {
            let is_so = marks.of_flow(direction, noted).in_flow();
            [goes(direction), is_so, marks.noted(noted).into_mark()].concat()
        })
    }));
    rules
}

/// Has the flow remember a fresh verdict. An ICMP error does not decide for the flow that it is about.
fn keep(asking: &Asking) -> Vec<Vec<Expression>> {
    let marks = asking.marks;
    let Some(epoch) = asking.epoch else { return vec![marks.fresh(false).into_mark()] };
    let mut rules = vec![
        [marks.fresh(true).not_in_mark(), vec![back()]].concat(),
        marks.fresh(false).into_mark(),
        [is_not_in_state(NEW | ESTABLISHED), vec![back()]].concat(),
        [marks.epoch(epoch).not_in_flow(), marks.undecided(epoch).into_flow()].concat(),
    ];
    rules.extend(DIRECTIONS.into_iter().flat_map(|direction| {
        Noted::ALL.map(|noted| {
            let is_so = marks.noted(noted).in_mark();
            [goes(direction), is_so, marks.of_flow(direction, noted).into_flow()].concat()
        })
    }));
    rules
}

/// Has flows remember what was just answered about packets between local and remote networks.
pub(super) fn kept(config: &Config, asking: &Asking) -> Vec<Vec<Expression>> {
    let fresh = asking.marks.fresh(true).in_mark();
    either_way(config.leads)
        .map(|between| [fresh.clone(), between, vec![jump(KEEP)]].concat())
        .collect()
}

/// Ends with a verdict that the flow remembers.
pub(super) fn remembered(asking: &Asking) -> [Vec<Expression>; 2] {
    let unanswered = asking.marks.unanswered();
    [vec![jump(RECALL)], [unanswered.not_in_mark(), pass()].concat()]
}

/// From local to remote networks, before it is routed.
fn from_near(config: &Config, asking: &Asking) -> Vec<Vec<Expression>> {
    let out_of_tunnel = || vec![meta(MetaKey::Iifname), equal(name(config.tun.as_str()))];
    let mut rules = vec![
        [out_of_tunnel(), is_for_this_host(), pass()].concat(),
        // No flow remembers what is said of these: it would hold for the same packets in clear, too.
        [out_of_tunnel(), vec![ask(asking, Kind::Sent)]].concat(),
    ];
    rules.extend(remembered(asking));
    rules.push([is_for_this_host(), pass()].concat());
    rules.push(discarded::known());
    rules.push(vec![ask(asking, Kind::Leaving)]);
    rules
}

/// Rules for packets that come in in clear, before they are routed. What is held whole is asked about by nobody: other
/// chains drop it.
fn came_in(config: &Config) -> Vec<Vec<Expression>> {
    let mut rules = Vec::new();
    let from_far = |meant: Vec<Expression>, whole: Vec<Expression>| {
        let asked = [meant.clone(), vec![jump(FROM_FAR)]].concat();
        [[meant, whole, pass()].concat(), asked]
    };
    for Prefixes { local, remote, partly_bypassed } in sides(config.leads, PolicyDirection::In) {
        let is_for_host = [between(remote, local), is_for_this_host()].concat();
        rules.extend(from_far(is_for_host, partly_bypassed.lacks_source()));
    }
    for Prefixes { local, remote, partly_bypassed } in sides(config.leads, PolicyDirection::Forward)
    {
        // Of these, policies `in` say nothing.
        rules.push([between(remote, local), is_for_this_host(), pass()].concat());
        rules.extend(from_far(between(remote, local), partly_bypassed.lacks_source()));
    }
    rules
}

/// From remote to local networks, before it is routed.
fn from_far(config: &Config, asking: &Asking) -> Vec<Vec<Expression>> {
    let mut rules = Vec::from(remembered(asking));
    // Peers may be within what is protected.
    let peers = admitted_to(config);
    rules.extend(peers.into_iter().map(|passes| [is_for_this_host(), passes].concat()));
    rules.push(discarded::known());
    rules.push([is_for_this_host(), vec![ask(asking, Kind::Arriving)]].concat());
    rules.push(vec![ask(asking, Kind::Forwarded)]);
    rules
}
