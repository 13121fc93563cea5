//! The rules that drop ICMP errors of this host about what came out of a tunnel. An error quotes the packet that it is
//! about, up to 548 bytes of it over IPv4 and 1,232 over IPv6, and the host may send it from an address that is not local.

use core::ops::RangeInclusive;

use convoy_netlink::nft::{
    AddressSet, Place, back,
    expression::{
        ACCEPT, Expression, ICMP, ICMPV6, TRANSPORT, compare, equal, meta, payload, verdict,
    },
    flow::{RELATED, goes, is_not_in_state},
    jump, stop,
};
use netlink_packet_netfilter::nftables::{MetaKey, Operator};

use super::{
    parts::{Chain, is_of_this_host, sides},
    questions::DIRECTIONS,
};
use crate::{
    config::Lead,
    marks::{Epoch, Marks, Noted},
    policy_direction::PolicyDirection,
    questions::Asking,
    sets::Prefixes,
};

/// Types of ICMP messages that quote packets, first and last: Destination Unreachable, Source Quench and Redirect; Time
/// Exceeded and Parameter Problem (RFC 792).
const ERRORS: [RangeInclusive<u8>; 2] = [3..=5, 11..=12];
/// Redirect.
const REDIRECT: RangeInclusive<u8> = 5..=5;
/// Types of ICMPv6: Destination Unreachable to Parameter Problem (RFC 4443 section 3). A Redirect stays on its link.
const ERRORS6: [RangeInclusive<u8>; 1] = [1..=4];
/// The chain that lets errors about flows pass that pass in clear themselves.
const QUOTES_MIXED: &str = "quotes-mixed";

/// Drops errors about packets from remote to local networks. To be asked of what leaves by another interface than that of tunnels.
pub(super) fn drops(asking: Option<&Asking>) -> Vec<Vec<Expression>> {
    let drop = quotes().map(|(quotes, _)| [quotes, stop()].concat());
    asking.into_iter().flat_map(|_| passed()).chain(drop).collect()
}

/// Accepts, with the mark of what passes in clear, errors about packets that do.
pub(super) fn passed() -> impl Iterator<Item = Vec<Expression>> {
    quotes().map(|(quotes, is_partly_bypassed)| {
        [quotes, is_partly_bypassed, vec![jump(QUOTES_MIXED)]].concat()
    })
}

/// The rules that drop such errors.
pub(crate) fn drop_rules() -> Vec<Vec<Expression>> {
    quotes().map(|(quotes, _)| [quotes, stop()].concat()).collect()
}

/// Expressions that match errors about packets from remote to local networks, with those that match if the remote one is partly bypassed. Tunnels
/// bring what answers to packets that leave, so these are the prefixes of that way.
fn quotes() -> impl Iterator<Item = (Vec<Expression>, Vec<Expression>)> {
    sides(Lead::ByMark, PolicyDirection::Out).flat_map(
        |Prefixes { local, remote, partly_bypassed }| {
            let errors = error_types(local).iter().map(move |types| {
                let about = [remote.quotes_source(), local.quotes_destination()].concat();
                (of_types(local, types), about, partly_bypassed.quotes_source())
            });
            // A packet from local to remote networks came out of a tunnel, too, if it left by the interface that it had come in by.
            let redirect = local.is_v4.then(|| {
                let about = [local.quotes_source(), remote.quotes_destination()].concat();
                (of_types(local, &REDIRECT), about, partly_bypassed.quotes_destination())
            });
            errors.chain(redirect).map(|(types, about, is_partly_bypassed)| {
                ([is_of_this_host(), types, about].concat(), is_partly_bypassed)
            })
        },
    )
}

/// Accepts errors about packets that were answered to pass in clear, whichever way the error goes.
pub(super) fn chain(asking: &Asking) -> Chain {
    let rules = asking.epoch.map(|epoch| about_passed(asking.marks, epoch)).unwrap_or_default();
    Chain { name: QUOTES_MIXED, place: Place::Jumps, counts: None, rules }
}

fn about_passed(marks: Marks, epoch: Epoch) -> Vec<Vec<Expression>> {
    let in_clear = marks.noted(Noted::Bypass).into_mark();
    let mut rules = vec![
        [is_not_in_state(RELATED), vec![back()]].concat(),
        [marks.epoch(epoch).not_in_flow(), vec![back()]].concat(),
    ];
    let quoted = DIRECTIONS.into_iter().rev();
    rules.extend(DIRECTIONS.into_iter().zip(quoted).flat_map(|(error, quoted)| {
        [Noted::Bypass, Noted::Here].map(|noted| {
            let passed = marks.of_flow(quoted, noted).in_flow();
            [goes(error), passed, in_clear.clone(), vec![verdict(ACCEPT)]].concat()
        })
    }));
    rules
}

/// Each goes on if the packet is an ICMP error of some types.
pub(super) fn errors() -> impl Iterator<Item = Vec<Expression>> {
    sides(Lead::ByMark, PolicyDirection::Out)
        .map(|prefixes| prefixes.local)
        .flat_map(|of| error_types(of).iter().map(move |types| of_types(of, types)))
}

const fn error_types(of: AddressSet) -> &'static [RangeInclusive<u8>] {
    if of.is_v4 { &ERRORS } else { &ERRORS6 }
}

/// Goes on if the packet is an ICMP message of these types.
fn of_types(version: AddressSet, types: &RangeInclusive<u8>) -> Vec<Expression> {
    let (first, last) = (*types.start(), *types.end());
    let protocol = if version.is_v4 { ICMP } else { ICMPV6 };
    let mut steps = version.of_version();
    steps.extend([
        meta(MetaKey::L4Proto),
        equal(vec![protocol]),
        payload(TRANSPORT, 0, 1),
        compare(Operator::GreatherThanEqual, vec![first]),
        compare(Operator::LessThanEqual, vec![last]),
    ]);
    steps
}
