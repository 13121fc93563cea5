//! The chains that drop what comes in in clear although it must come out of a tunnel (RFC 4301 section 5.2).

use convoy_netlink::nft::{FIRST, LAST, Place, expression::Expression, flow::Bits, stop};
use netlink_packet_netfilter::nftables::{InetHookNumber, MetaKey};

use super::{
    admitted::admitted_to,
    neighbours,
    parts::{Chain, Counted, answered, between, by, drop_between, sides},
};
use crate::{
    config::Config, marks::Noted, policy_direction::PolicyDirection, questions::Asking,
    sets::Prefixes,
};

/// For this host, ahead of what changes sources there; and for what it forwards.
pub(super) fn chains(config: &Config, asking: Option<&Asking>) -> [Chain; 2] {
    let chain = |name, way, (hook, priority), passes, answers: &[Bits]| Chain {
        name,
        place: Place::At(hook, priority),
        counts: Some(Counted::Inbound),
        rules: rules(config, asking, way, passes, answers),
    };
    // What a bridge passes on comes by the second one where `br_netfilter` shows it.
    let forwarded = vec![neighbours::of_link()];
    let marks = config.questions.marks;
    let here = [marks.noted(Noted::Here)];
    // What came out of a tunnel is not asked.
    let any = [marks.noted(Noted::Bypass), marks.protect_forwarded()];
    let (host, forward) = (InetHookNumber::LocalIn, InetHookNumber::Forward);
    [
        chain("inbound", PolicyDirection::In, (host, FIRST), admitted_to(config), &here),
        // Who answered for these has asked the policies of both ways.
        chain("inbound-forward", PolicyDirection::Forward, (forward, LAST), forwarded, &any),
    ]
}

fn rules(
    config: &Config,
    asking: Option<&Asking>,
    way: PolicyDirection,
    passes: Vec<Vec<Expression>>,
    answers: &[Bits],
) -> Vec<Vec<Expression>> {
    let mut rules = vec![by(MetaKey::Iifname, config.tun.as_str()), by(MetaKey::Iifname, "lo")];
    rules.extend(passes);
    if asking.is_some() {
        rules.extend(sides(config.leads, way).map(
            |Prefixes { local, remote, partly_bypassed }| {
                [between(remote, local), partly_bypassed.lacks_source(), stop()].concat()
            },
        ));
        rules.extend(answered(answers));
    }
    rules.extend(
        sides(config.leads, way).map(|Prefixes { local, remote, .. }| drop_between(remote, local)),
    );
    rules
}
