//! The chains that mark packets before they are routed: by the answers of [`super::questions`], and where marks alone
//! lead packets into the TUN interface, by prefixes.

use convoy_netlink::nft::{
    Place,
    expression::{Expression, compare, equal, is_neighbour_discovery, meta, name},
    jump,
};
use netlink_packet_netfilter::nftables::{InetHookNumber, MetaKey, Operator};

use super::{
    discarded, neighbours, outbound,
    parts::{Chain, between, by, either_way, sides},
    questions::{CAME_IN, FROM_LOCAL, KEEPS, ask, kept, pass, remembered},
    quoting, rewritten,
};
use crate::{
    config::{Config, Lead},
    marks::Noted,
    policy_direction::PolicyDirection,
    questions::{Asking, Kind},
    sets::Prefixes,
};

/// Behind destination NAT (`NF_IP_PRI_NAT_DST`), so that policies are asked about what packets are to be.
pub(crate) const MARKS: i32 = -90;

/// Name of the chain that shows that a table marks packets.
pub(crate) const ARRIVING: &str = "arriving";

pub(super) fn chains(
    config: &Config,
    asking: Option<&Asking>,
    rewriting: Option<&Asking>,
) -> [Chain; 3] {
    let chain = |name, place, rules| Chain { name, place, counts: None, rules };
    let arriving = |priority| Place::At(InetHookNumber::PreRouting, priority);
    [
        chain(ARRIVING, arriving(MARKS), arrives(config, asking, rewriting)),
        chain("arriving-answered", arriving(KEEPS), forwards(config, asking, rewriting)),
        chain("sent", Place::Routing(MARKS), sends(config, asking, rewriting)),
    ]
}

/// Rules for packets that come in by another interface than that of the tunnels, and are to go there.
fn forwards(
    config: &Config,
    asking: Option<&Asking>,
    rewriting: Option<&Asking>,
) -> Vec<Vec<Expression>> {
    let marks = config.questions.marks;
    let mut rules: Vec<_> = asking.map(|_| discarded::noted(marks)).into_iter().collect();
    rules.extend(asking.map(|asking| kept(config, asking)).unwrap_or_default());
    let elsewhere =
        vec![meta(MetaKey::Iifname), compare(Operator::NotEqual, name(config.tun.as_str()))];
    let protected = [marks.noted(Noted::Protect).in_mark(), elsewhere].concat();
    rules.extend(sides(config.leads, PolicyDirection::Out).map(
        |Prefixes { local, remote, .. }| {
            [protected.clone(), between(local, remote), marks.protect_forwarded().into_mark()]
                .concat()
        },
    ));
    rules.extend(rewriting.map(|_| {
        [protected, rewritten::is_of_nat(), marks.protect_forwarded().into_mark()].concat()
    }));
    rules
}

/// Takes the bits away that others gave packets between local and remote networks. Packets of others keep theirs.
fn none_yet(config: &Config) -> impl Iterator<Item = Vec<Expression>> {
    let none = config.questions.marks.none();
    either_way(config.leads)
        .map(move |between| [none.not_in_mark(), between, none.into_mark()].concat())
}

/// Rules for packets that come in. Nothing is asked where both sides are protected whole: other chains know what they may do.
fn arrives(
    config: &Config,
    asking: Option<&Asking>,
    rewriting: Option<&Asking>,
) -> Vec<Vec<Expression>> {
    let marks = config.questions.marks;
    // Nobody is asked about what the gateway itself forwards.
    let forwarding = config.forwarding.iter().map(|link| by(MetaKey::Iifname, link.as_str()));
    let mut rules: Vec<_> = forwarding.chain(none_yet(config)).collect();
    rules.push(by(MetaKey::Iifname, "lo"));
    if config.leads == Lead::ByMark {
        // Nobody is asked: what a bridge passes on takes no notice of marks, and goes on.
        let sides =
            sides(config.leads, PolicyDirection::Out).filter(|prefixes| !prefixes.local.is_v4);
        rules.extend(sides.map(|Prefixes { local, remote, .. }| {
            [is_neighbour_discovery(), between(local, remote), protect(config), pass()].concat()
        }));
    }
    rules.push(neighbours::of_link());
    if config.leads == Lead::ByMark {
        let out_of_tunnel = vec![meta(MetaKey::Iifname), equal(name(config.tun.as_str()))];
        rules.push([out_of_tunnel, marks.out_of_tunnel().into_mark()].concat());
    }
    if asking.is_some() {
        let is_in_clear = compare(Operator::NotEqual, name(config.tun.as_str()));
        rules.push(vec![meta(MetaKey::Iifname), is_in_clear, jump(CAME_IN)]);
    }
    for Prefixes { local, remote, partly_bypassed } in sides(config.leads, PolicyDirection::Out) {
        let whole = match (asking, config.leads) {
            (None, _) => Vec::new(),
            (Some(_), Lead::ByMark) => partly_bypassed.lacks_destination(),
            // Without an answer only routes lead it.
            (Some(_), Lead::ByDestination) => {
                [partly_bypassed.lacks_source(), partly_bypassed.lacks_destination()].concat()
            }
        };
        rules.push([between(local, remote), whole, protect(config), pass()].concat());
        if asking.is_some() {
            rules.push([between(local, remote), vec![jump(FROM_LOCAL)]].concat());
        }
    }
    rules.extend(rewriting.map(|_| rewritten::led()));
    rules
}

/// Rules for packets that this host sends.
fn sends(
    config: &Config,
    asking: Option<&Asking>,
    rewriting: Option<&Asking>,
) -> Vec<Vec<Expression>> {
    let marks = config.questions.marks;
    // A daemon's socket may have had other bits than those of its exemption.
    let exempt =
        outbound::exempt(config).map(|exempt| [exempt, marks.none().into_mark(), pass()].concat());
    let mut rules: Vec<_> = exempt.collect();
    rules.extend([by(MetaKey::Oifname, "lo"), neighbours::leaving()]);
    rules.extend(none_yet(config));
    rules.extend(asking.into_iter().flat_map(|_| quoting::passed()));
    for Prefixes { local, remote, partly_bypassed } in sides(config.leads, PolicyDirection::Out) {
        let outward = between(local, remote);
        let whole = if asking.is_some() { partly_bypassed.lacks_destination() } else { Vec::new() };
        rules.push([outward.clone(), whole, protect(config), pass()].concat());
        if let Some(asking) = asking {
            rules.extend(remembered(asking).map(|rule| [outward.clone(), rule].concat()));
            rules.push([outward, vec![ask(asking, Kind::Sent)]].concat());
        }
    }
    rules.extend(rewriting.map(|_| rewritten::led()));
    rules
}

/// Marks what is protected whole, where marks lead.
pub(super) fn protect(config: &Config) -> Vec<Expression> {
    match config.leads {
        Lead::ByMark => config.questions.marks.noted(Noted::Protect).into_mark(),
        Lead::ByDestination => Vec::new(),
    }
}
