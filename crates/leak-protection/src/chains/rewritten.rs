//! Packets that NAT gives the addresses of a protected one, where marks lead. A kernel looks policies up again then; here
//! the packet is routed already, and not into the TUN interface.
//!
//! Of a flow that the kernel has in its table it is known before routing which addresses its packets will have, so marks
//! lead them as they lead others ([`led`]). The first packet of a flow with another source gets there behind routing
//! alone. It is queued for the gateway ([`taken`]), which enters the flow into the kernel's table and takes the packet as if
//! it had come by the TUN interface. So are packets that policies tell apart, each of them. While nobody listens they are
//! dropped.

use convoy_netlink::nft::{
    AddressSet, Notes, Place,
    expression::{ACCEPT, Expression, verdict},
    flow::{CONFIRMED, DESTINATION_NAT, End, FlowDirection, SOURCE_NAT, goes, is_with, is_without},
    jump,
};

use super::{
    marking::protect,
    parts::{Chain, between, sides},
    questions::ask,
};
use crate::{
    config::Config,
    marks::Rewritten,
    policy_direction::PolicyDirection,
    questions::{Asking, Kind},
    sets::Prefixes,
};

/// The chain that marks packets that are to be protected once they are rewritten.
const LEADS: &str = "to-be-rewritten";
/// Sets that note new flows, of IPv4 and of IPv6.
pub(crate) const NOTES: [Notes; 2] =
    [Notes { name: "hidden4", is_v4: true }, Notes { name: "hidden6", is_v4: false }];

pub(super) fn chains(config: &Config, asks: bool, queues: &Asking) -> [Chain; 3] {
    let chain = |name, rules| Chain { name, place: Place::Jumps, counts: None, rules };
    [
        chain(LEADS, leads(config, asks)),
        chain(queue_of(true), queued(queues, true)),
        chain(queue_of(false), queued(queues, false)),
    ]
}

/// The chain that queues what is protected by its prefixes, or what policies tell apart.
const fn queue_of(is_whole: bool) -> &'static str {
    if is_whole { "rewritten" } else { "rewritten-mixed" }
}

/// Goes on if the addresses of the packet's flow are changed.
pub(super) fn is_of_nat() -> Vec<Expression> {
    is_with(SOURCE_NAT | DESTINATION_NAT)
}

/// Marks a packet before it is routed that is to be rewritten to a protected one.
pub(super) fn led() -> Vec<Expression> {
    [is_of_nat(), vec![jump(LEADS)]].concat()
}

fn leads(config: &Config, asks: bool) -> Vec<Vec<Expression>> {
    // Packets go to those, and from those, whom packets of the other direction come from, and go to.
    let directions = [
        (FlowDirection::Original, FlowDirection::Reply),
        (FlowDirection::Reply, FlowDirection::Original),
    ];
    let rule = |Prefixes { local, remote, partly_bypassed }: Prefixes<AddressSet>, (way, back)| {
        let whole =
            if asks { partly_bypassed.lacks_of_flow(back, End::Source) } else { Vec::new() };
        [
            local.of_version(),
            goes(way),
            local.has_of_flow(back, End::Destination),
            remote.has_of_flow(back, End::Source),
            whole,
            protect(config),
            vec![verdict(ACCEPT)],
        ]
        .concat()
    };
    sides(config.leads, PolicyDirection::Out)
        .flat_map(|sides| directions.map(|directions| rule(sides, directions)))
        .collect()
}

/// Queues what was rewritten to a packet from a local network to remote networks.
pub(super) fn taken(config: &Config, asks: bool) -> Vec<Vec<Expression>> {
    let mut rules = Vec::new();
    for Prefixes { local, remote, partly_bypassed } in sides(config.leads, PolicyDirection::Out) {
        let rewritten = [between(local, remote), is_of_nat()].concat();
        let whole = if asks { partly_bypassed.lacks_destination() } else { Vec::new() };
        rules.push([rewritten.clone(), whole, vec![jump(queue_of(true))]].concat());
        if asks {
            rules.push([rewritten, vec![jump(queue_of(false))]].concat());
        }
    }
    rules
}

fn queued(queues: &Asking, is_whole: bool) -> Vec<Vec<Expression>> {
    let queue = || vec![ask(queues, Kind::Rewritten)];
    let bits = |is_first| queues.marks.rewritten(Rewritten { is_first, is_whole });
    let known = [is_with(CONFIRMED), bits(false).into_mark(), queue()].concat();
    // Others than these are not entered by a process: their packets go on to where they are dropped.
    let is_first =
        [goes(FlowDirection::Original), is_with(SOURCE_NAT), is_without(DESTINATION_NAT)].concat();
    let first = NOTES.map(|notes| {
        [notes.of_version(), is_first.clone(), notes.note(bits(true)), queue()].concat()
    });
    core::iter::once(known).chain(first).collect()
}
