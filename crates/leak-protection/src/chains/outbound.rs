//! The chains that drop what would leave in clear. They lie behind routing, so they see what the host sends
//! and what it forwards, whatever led it there.

use std::collections::BTreeSet;

use convoy_netlink::nft::{
    FIRST, LAST, Place,
    expression::{ACCEPT, Expression, and, equal, meta, verdict},
    flow::{SOURCE_NAT, is_with},
    stop,
};
use netlink_packet_netfilter::nftables::{InetHookNumber, MetaKey};

use super::{
    admitted::ESP,
    neighbours,
    parts::{Chain, Counted, answered, between, by, drop_between, is_of_this_host, sides},
    questions::ask,
    quoting, rewritten,
};
use crate::{
    config::Config,
    marks::Noted,
    policy_direction::PolicyDirection,
    questions::{Asking, Kind},
    sets::Prefixes,
};

/// The user whom IKE daemons run as.
const ROOT: u32 = 0;

/// The chains: policies speak of sources as they were sent, so the first lies ahead of all that changes them. The
/// second lies behind that, for what source NAT made a packet from a local network.
pub(super) fn chains(
    config: &Config,
    asking: Option<&Asking>,
    rewriting: Option<&Asking>,
) -> [Chain; 2] {
    [("outbound", FIRST, false), ("outbound-behind-nat", LAST, true)].map(
        |(name, priority, is_behind_nat)| Chain {
            name,
            place: Place::At(InetHookNumber::PostRouting, priority),
            counts: Some(Counted::Outbound),
            rules: rules(config, asking, rewriting.filter(|_| is_behind_nat), is_behind_nat),
        },
    )
}

fn rules(
    config: &Config,
    asking: Option<&Asking>,
    rewriting: Option<&Asking>,
    is_behind_nat: bool,
) -> Vec<Vec<Expression>> {
    let sides = || sides(config.leads, PolicyDirection::Out);
    // First, and on its own: this is most of what passes here.
    let of_esp = || vec![meta(MetaKey::L4Proto), equal(vec![ESP])];
    let mut rules: Vec<_> =
        exempt(config).map(|exempt| [of_esp(), exempt, vec![verdict(ACCEPT)]].concat()).collect();
    rules.extend([by(MetaKey::Oifname, config.tun.as_str()), by(MetaKey::Oifname, "lo")]);
    rules.extend(quoting::drops(asking));
    rules.extend(exempt(config).map(|exempt| [exempt, vec![verdict(ACCEPT)]].concat()));
    rules.push(neighbours::leaving());
    if rewriting.is_some() {
        rules.extend(rewritten::taken(config, asking.is_some()));
    }
    if let Some(asking) = asking {
        let marks = asking.marks;
        let protected = [marks.noted(Noted::Protect), marks.protect_forwarded()];
        for (bits, Prefixes { local, remote, .. }) in
            protected.into_iter().flat_map(|bits| sides().map(move |it| (bits, it)))
        {
            rules.push([bits.in_mark(), between(local, remote), stop()].concat());
        }
        rules.extend(sides().map(|Prefixes { local, remote, partly_bypassed }| {
            [between(local, remote), partly_bypassed.lacks_destination(), stop()].concat()
        }));
        if is_behind_nat {
            // Another source is another question, also of what nobody asked about by the one before.
            rules.extend(sides().map(|Prefixes { local, remote, .. }| {
                let asked = vec![ask(asking, Kind::Sent)];
                [between(local, remote), is_with(SOURCE_NAT), asked].concat()
            }));
        }
        // Packets of no flow, as an ICMP error about an unknown one, have no other source either.
        rules.extend(answered(&[marks.noted(Noted::Bypass)]));
    }
    rules.extend(sides().map(|Prefixes { local, remote, .. }| drop_between(local, remote)));
    rules
}

/// Goes on if the packet is the gateway's own, by its user and by root. What is forwarded can bear the same mark by rules
/// of others, but comes from an interface and no socket.
pub(super) fn exempt(config: &Config) -> impl Iterator<Item = Vec<Expression>> {
    let (mask, value) = (config.mark.mask, config.mark.value & config.mark.mask);
    BTreeSet::from([ROOT, config.user]).into_iter().map(move |user| {
        let of_user = [
            meta(MetaKey::Mark),
            and(&mask.to_ne_bytes()),
            equal(value.to_ne_bytes().to_vec()),
            meta(MetaKey::SocketUserId),
            equal(user.to_ne_bytes().to_vec()),
        ];
        [is_of_this_host(), of_user.into()].concat()
    })
}
