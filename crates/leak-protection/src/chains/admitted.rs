//! Packets that this host lets in in clear whatever policies say, since tunnels are made of them.

use convoy_netlink::nft::expression::{
    ACCEPT, Expression, ICMP, ICMPV6, NETWORK, TRANSPORT, UDP, V4, V6, and, compare, equal, meta,
    payload, verdict,
};
use netlink_packet_netfilter::nftables::{MetaKey, Operator};

use super::neighbours;
use crate::config::{Config, Lead};

/// UDP ports that IKE comes to (RFC 7296 section 2).
const IKE_PORTS: [u16; 2] = [500, 4500];
/// Protocols that the gateway opens itself.
pub(super) const ESP: u8 = 50;
pub(super) const AH: u8 = 51;
/// Next header of a fragment (RFC 8200 section 4.5), and its offset among what follows.
const FRAGMENT: u8 = 44;
const FRAGMENT_OFFSET: [u8; 2] = [0xff, 0xf8];

impl Config {
    /// True if this host lets packets for itself in in clear whatever policies say: those of a protocol, for UDP to a
    /// port. Errors about such packets, and Neighbour Discovery of a link, are let in beside them.
    #[must_use]
    pub fn admits(&self, protocol: u8, port: Option<u16>) -> bool {
        match protocol {
            ESP | AH => true,
            UDP => port.is_some_and(|port| ports(self).contains(&port)),
            _ => false,
        }
    }
}

/// UDP ports of a gateway: those of IKE only where there is a daemon.
pub(super) fn ports(config: &Config) -> Vec<u16> {
    match config.leads {
        Lead::ByMark => [&IKE_PORTS[..], &[config.udp_port]].concat(),
        Lead::ByDestination => vec![config.udp_port],
    }
}

/// Rules that accept packets sent to a gateway.
pub(super) fn admitted_to(config: &Config) -> Vec<Vec<Expression>> {
    admitted(&ports(config))
}

/// Lets in what a gateway is sent by peers whose addresses may be protected: ESP, AH, UDP to these ports,
/// errors about these, and Neighbour Discovery of a link.
fn admitted(ports: &[u16]) -> Vec<Vec<Expression>> {
    let of = |protocol: u8| vec![meta(MetaKey::L4Proto), equal(vec![protocol])];
    let pass = || vec![verdict(ACCEPT)];
    let mut rules: Vec<_> = [ESP, AH].map(|protocol| [of(protocol), pass()].concat()).into();
    let ports = || ports.iter().map(|port| port.to_be_bytes().to_vec());
    for port in ports() {
        rules.push([of(UDP), vec![payload(TRANSPORT, 2, 2), equal(port)], pass()].concat());
    }
    rules.push(neighbours::of_link());
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
