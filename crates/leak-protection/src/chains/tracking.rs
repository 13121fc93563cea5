//! The chains that keep packets from being tracked as flows, ahead of conntrack, in a table that asks. Without them
//! whoever opens enough connections through this host fills the table of connections, and tunnels are dead.

use convoy_netlink::nft::{
    AddressSet, Place,
    expression::{
        ACCEPT, Expression, ICMP, ICMPV6, TRANSPORT, UDP, compare, equal, meta, payload, verdict,
    },
    flow::{is_for_this_host, untracked},
};
use netlink_packet_netfilter::nftables::{InetHookNumber, MetaKey, Operator};

use super::{Chain, admitted, between, outbound, sides};
use crate::{Config, table::NEAR, tracked::Tracked};

/// `NF_IP_PRI_RAW`: behind where fragments are put together, ahead of conntrack.
const RAW: i32 = -300;
const ARRIVING: &str = "tracked-arriving";
const SENT: &str = "tracked-sent";
/// Where IKE begins (RFC 7296 section 2). What goes on at port 4500 is a flow that outlives a full table.
const IKE: [u16; 1] = [500];
/// Types of ICMP messages about packets, first and last (RFC 792): Destination Unreachable, Source Quench and Redirect; Time
/// Exceeded and Parameter Problem. And of ICMPv6 (RFC 4443 section 3).
const ERRORS: [(u8, u8); 2] = [(3, 5), (11, 12)];
const ERRORS6: (u8, u8) = (1, 4);
/// Where a UDP header has its ports.
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;

pub(super) fn chains(config: &Config, tracked: Tracked) -> [Chain; 2] {
    let [arriving, sent] = rules(config, tracked);
    let chain =
        |(name, rules), hook| Chain { name, place: Place::At(hook, RAW), counts: None, rules };
    [chain(arriving, InetHookNumber::PreRouting), chain(sent, InetHookNumber::LocalOut)]
}

/// Rules by chain.
pub(crate) fn rules(
    config: &Config,
    tracked: Tracked,
) -> [(&'static str, Vec<Vec<Expression>>); 2] {
    let (arriving, sent) = match tracked {
        Tracked::All => (Vec::new(), Vec::new()),
        Tracked::AllButTunnels => (tunnels_arriving(&IKE), tunnels_sent(config)),
        Tracked::Asked => (
            [tunnels_arriving(&admitted::ports(config)), asked_alone()].concat(),
            [vec![[outbound::by_the_gateway(config), skip()].concat()], asked_alone()].concat(),
        ),
    };
    [(ARRIVING, arriving), (SENT, sent)]
}

/// What comes for tunnels of this host.
fn tunnels_arriving(ports: &[u16]) -> Vec<Vec<Expression>> {
    let for_tunnels = tunnels(ports, DESTINATION_PORT).into_iter();
    for_tunnels.map(|one| [one, is_for_this_host(), skip()].concat()).collect()
}

/// What this host's tunnels send.
fn tunnels_sent(config: &Config) -> Vec<Vec<Expression>> {
    let of_tunnels = tunnels(&IKE, SOURCE_PORT).into_iter();
    of_tunnels.map(|one| [one, outbound::by_the_gateway(config), skip()].concat()).collect()
}

/// ESP, AH, and UDP with these ports.
fn tunnels(ports: &[u16], at: u32) -> Vec<Vec<Expression>> {
    let of = |protocol: u8| vec![meta(MetaKey::L4Proto), equal(vec![protocol])];
    let udp = |port: &u16| {
        [of(UDP), vec![payload(TRANSPORT, at, 2), equal(port.to_be_bytes().to_vec())]].concat()
    };
    [admitted::ESP, admitted::AH].map(of).into_iter().chain(ports.iter().map(udp)).collect()
}

/// Leaves what is asked about to conntrack, in both directions, and nothing else but errors, which may be about that,
/// whoever sends them to whom. They make no entries.
fn asked_alone() -> Vec<Vec<Expression>> {
    let mut rules = errors();
    for (near, far, mixed) in sides() {
        for (from, to) in [(near, far), (far, near)] {
            for is_mixed in [mixed.has_source(), mixed.has_destination()] {
                rules.push([between(from, to), is_mixed, vec![verdict(ACCEPT)]].concat());
            }
        }
    }
    rules.push(skip());
    rules
}

/// Leaves ICMP errors to conntrack.
fn errors() -> Vec<Vec<Expression>> {
    let [v4, v6] = NEAR;
    let of = |version: AddressSet, protocol, (first, last): (u8, u8)| {
        let mut rule = version.of_version();
        rule.extend([
            meta(MetaKey::L4Proto),
            equal(vec![protocol]),
            payload(TRANSPORT, 0, 1),
            compare(Operator::GreatherThanEqual, vec![first]),
            compare(Operator::LessThanEqual, vec![last]),
            verdict(ACCEPT),
        ]);
        rule
    };
    let v4 = ERRORS.map(|types| of(v4, ICMP, types)).into_iter();
    v4.chain([of(v6, ICMPV6, ERRORS6)]).collect()
}

fn skip() -> Vec<Expression> {
    vec![untracked()]
}
