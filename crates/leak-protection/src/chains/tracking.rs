//! The chains that keep packets from being tracked as flows, ahead of conntrack, in a table that asks. Without them
//! whoever opens enough connections through this host fills the table of connections, and tunnels are dead.

use convoy_netlink::nft::{
    Place,
    expression::{ACCEPT, Expression, TRANSPORT, UDP, equal, meta, payload, verdict},
    flow::{is_for_this_host, untracked},
};
use netlink_packet_netfilter::nftables::{InetHookNumber, MetaKey};

use super::{
    admitted, outbound,
    parts::{Chain, all_sides, between},
    quoting,
};
use crate::{config::Config, sets::Prefixes, tracked::Tracked};

/// `NF_IP_PRI_RAW`: behind where fragments are put together, ahead of conntrack.
const RAW: i32 = -300;
const ARRIVING: &str = "tracked-arriving";
const SENT: &str = "tracked-sent";
/// Port at which IKE begins (RFC 7296 section 2). What goes on at port 4500 is a flow that outlives a full table.
const IKE: [u16; 1] = [500];
/// Offsets of the ports in a UDP header.
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
            [tunnels_arriving(&admitted::ports(config)), asked_alone(config)].concat(),
            outbound::exempt(config)
                .map(|exempt| [exempt, skip()].concat())
                .chain(asked_alone(config))
                .collect(),
        ),
    };
    [(ARRIVING, arriving), (SENT, sent)]
}

/// Rules for packets that come for tunnels of this host.
fn tunnels_arriving(ports: &[u16]) -> Vec<Vec<Expression>> {
    let for_tunnels = tunnels(ports, DESTINATION_PORT).into_iter();
    for_tunnels.map(|one| [one, is_for_this_host(), skip()].concat()).collect()
}

/// Rules for packets that this host's tunnels send.
fn tunnels_sent(config: &Config) -> Vec<Vec<Expression>> {
    let of_tunnels = tunnels(&IKE, SOURCE_PORT).into_iter();
    let by_exempt = |one: Vec<Expression>| {
        outbound::exempt(config).map(move |exempt| [one.clone(), exempt, skip()].concat())
    };
    of_tunnels.flat_map(by_exempt).collect()
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
fn asked_alone(config: &Config) -> Vec<Vec<Expression>> {
    let accept = |error| [error, vec![verdict(ACCEPT)]].concat();
    let mut rules: Vec<_> = quoting::errors().map(accept).collect();
    for Prefixes { local, remote, partly_bypassed } in all_sides(config.leads) {
        for (from, to) in [(local, remote), (remote, local)] {
            for is_partly_bypassed in
                [partly_bypassed.has_source(), partly_bypassed.has_destination()]
            {
                rules.push([between(from, to), is_partly_bypassed, vec![verdict(ACCEPT)]].concat());
            }
        }
    }
    rules.push(skip());
    rules
}

fn skip() -> Vec<Expression> {
    vec![untracked()]
}
