//! What must come out of a tunnel does not come in another way (RFC 4301 section 5.2): the chains of
//! packets for this host and of those that it forwards.
//!
//! A kernel asks its policies of every packet that arrives. Here it is two sets: a packet from a closed
//! address to a guarded one must have come out of the TUN interface, unless its source and destination are
//! a pair that is admitted in clear.

use netlink_packet_netfilter::nftables::{InetHookNumber, MetaKey, Operator};

use super::{
    FenceConfig,
    book::View,
    chain::between,
    filter::{SETS, SetOf},
    pairs,
    rules::IKE_PORTS,
};
use crate::netlink::nft::{
    FIRST, LAST, Order, chain,
    expression::{
        ACCEPT, Expression, ICMP, ICMPV6, NETWORK, TRANSPORT, UDP, V4, V6, and, compare, equal,
        meta, name, neighbour_discovery, payload, verdict,
    },
    stop,
};

/// The chains.
pub(super) const CHAINS: [&str; 2] = ["ingress-host", "ingress-forward"];
/// Protocols that the gateway opens itself.
const ESP: u8 = 50;
const AH: u8 = 51;
/// Next header of a fragment (RFC 8200 section 4.5), and its offset among what follows.
const FRAGMENT: u8 = 44;
const FRAGMENT_OFFSET: [u8; 2] = [0xff, 0xf8];

pub(super) fn chains(config: &FenceConfig, table: &str, pairs: bool) -> Vec<Order> {
    let [host, forward] = CHAINS;
    let in_clear = if pairs { pairs::admit() } else { Vec::new() };
    let passes =
        [in_clear.clone(), admitted([IKE_PORTS[0], IKE_PORTS[1], config.udp_port])].concat();
    // Sources can be changed here as well (source NAT of `input`).
    let mut orders = chain(table, host, (InetHookNumber::LocalIn, FIRST), rules(config, passes));
    let forwarded = (InetHookNumber::Forward, LAST);
    // A bridge's, which `br_netfilter` shows here: no router passes it on.
    let passes = [in_clear, vec![neighbour_discovery()]].concat();
    orders.extend(chain(table, forward, forwarded, rules(config, passes)));
    orders
}

fn rules(config: &FenceConfig, passes: Vec<Vec<Expression>>) -> Vec<Vec<Expression>> {
    let from = |link: &str| vec![meta(MetaKey::Iifname), equal(name(link)), verdict(ACCEPT)];
    let mut rules = vec![from(config.tun.as_str()), from("lo")];
    rules.extend(passes);
    let guarded = || SETS.iter().filter(|set| set.view == View::Guarded);
    for closed in [View::Out, View::Nearby] {
        rules.extend(guarded().map(|set| refuse(closed, *set)));
    }
    rules
}

/// Counts and drops what a closed address sends to a guarded one.
fn refuse(closed: View, guarded: SetOf) -> Vec<Expression> {
    [between(SetOf { view: closed, ..guarded }, guarded), stop()].concat()
}

/// Lets in what a gateway is sent by peers whose addresses may be protected: ESP, AH, UDP to these ports,
/// errors about these, and Neighbour Discovery.
#[must_use]
pub fn admitted<const N: usize>(ports: [u16; N]) -> Vec<Vec<Expression>> {
    let of = |protocol: u8| vec![meta(MetaKey::L4Proto), equal(vec![protocol])];
    let pass = || vec![verdict(ACCEPT)];
    let mut rules: Vec<_> = [ESP, AH].map(|protocol| [of(protocol), pass()].concat()).into();
    let ports = || ports.map(|port| port.to_be_bytes().to_vec());
    for port in ports() {
        rules.push([of(UDP), vec![payload(TRANSPORT, 2, 2), equal(port)], pass()].concat());
    }
    rules.push(neighbour_discovery());
    rules.push(rest_of_fragments());
    // Errors about ESP and IKE, which quote it: whoever sent it compares that with what it sent.
    let error4 = vec![
        meta(MetaKey::Nfproto),
        equal(vec![V4]),
        meta(MetaKey::L4Proto),
        equal(vec![ICMP]),
        // Destination Unreachable, of which Fragmentation Needed is one.
        payload(TRANSPORT, 0, 1),
        equal(vec![3]),
        payload(TRANSPORT, 8, 1),
        equal(vec![0x45]),
    ];
    let error6 = vec![
        meta(MetaKey::Nfproto),
        equal(vec![V6]),
        meta(MetaKey::L4Proto),
        equal(vec![ICMPV6]),
        // Destination Unreachable and Packet Too Big.
        payload(TRANSPORT, 0, 1),
        compare(Operator::GreatherThanEqual, vec![1]),
        compare(Operator::LessThanEqual, vec![2]),
    ];
    for (error, protocol_at, behind) in [(error4, 8 + 9, 8 + 20), (error6, 8 + 6, 8 + 40)] {
        let quoted = |protocol: u8| vec![payload(TRANSPORT, protocol_at, 1), equal(vec![protocol])];
        rules.push([error.clone(), quoted(ESP), pass()].concat());
        for port in ports() {
            let from = vec![payload(TRANSPORT, behind, 2), equal(port)];
            rules.push([error.clone(), quoted(UDP), from, pass()].concat());
        }
    }
    rules
}

/// IPv6 is put together behind this chain, and a packet comes to nothing without its first fragment,
/// which the other rules see.
fn rest_of_fragments() -> Vec<Expression> {
    vec![
        meta(MetaKey::Nfproto),
        equal(vec![V6]),
        payload(NETWORK, 6, 1),
        equal(vec![FRAGMENT]),
        payload(NETWORK, 42, 2),
        and(&FRAGMENT_OFFSET),
        compare(Operator::NotEqual, vec![0, 0]),
        verdict(ACCEPT),
    ]
}
