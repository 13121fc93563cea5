//! The chains that stop what would leave in clear, and the sets that they ask.
//!
//! Whom a packet is from is said by its source as it was sent, which is what policies speak of: so the chain
//! that knows pairs lies ahead of all that changes sources, at a hook behind all that changes destinations,
//! and needs no connection tracking. A second one lies behind, where a packet is as it will leave: nobody
//! is given a source there that a tunnel carries.
//!
//! Multicast, broadcast and link-local addresses within closed networks have sets of their own: nobody sends
//! there for whom a policy is. What is forwarded there is asked in a chain of its own, too.

use netlink_packet_netfilter::nftables::{InetHookNumber, MetaKey};

use super::{
    FenceConfig,
    book::View,
    filter::{SETS, SetOf},
    inbound, pairs,
};
use crate::netlink::nft::{
    FIRST, LAST, Order, chain,
    expression::{ACCEPT, Expression, and, equal, meta, name, neighbour_discovery, verdict},
    stop,
};

/// Ahead of what changes sources, and behind it; and where only what is forwarded comes by.
pub(super) const CHAINS: [&str; 3] = ["egress", "egress-behind-nat", "egress-forward"];

/// The sets and the chains. Sets without a set that they belong to cannot be made, so they come first.
/// Without pairs where the kernel knows none.
pub(super) fn sets_and_rules(config: &FenceConfig, table: &str, pairs: bool) -> Vec<Order> {
    let mut orders: Vec<_> =
        SETS.iter().zip(1..).map(|(set, id)| set.addresses().make(table, id)).collect();
    if pairs {
        orders.extend(pairs::new_sets(table, SETS.len() as u32 + 1));
    }
    let behind_routing = InetHookNumber::PostRouting;
    let places = [(behind_routing, FIRST), (behind_routing, LAST), (InetHookNumber::Forward, LAST)];
    let [ahead, behind] = rules(config, pairs);
    let all = [ahead, behind, forwarded(config, pairs)];
    for ((name, place), rules) in CHAINS.into_iter().zip(places).zip(all) {
        orders.extend(chain(table, name, place, rules));
    }
    orders.extend(inbound::chains(config, table, pairs));
    orders
}

/// The rules of both chains, as many for ten thousand networks as for one.
fn rules(config: &FenceConfig, pairs: bool) -> [Vec<Vec<Expression>>; 2] {
    let tun = name(config.tun.as_str());
    let from_tun = || vec![meta(MetaKey::Iifname), equal(tun.clone())];
    let with_pairs = |rules: fn() -> Vec<Vec<Expression>>| if pairs { rules() } else { Vec::new() };
    let mut both = [passes(config), passes(config)];
    for rules in &mut both {
        for withheld in with_pairs(pairs::withhold) {
            rules.push([from_tun(), withheld].concat());
        }
    }
    let [ahead, behind] = &mut both;
    for set in SETS.iter().filter(|set| set.view == View::FromTun) {
        ahead.push([from_tun(), to(*set), stop()].concat());
    }
    for rules in [&mut *ahead, &mut *behind] {
        rules.push([from_tun(), vec![verdict(ACCEPT)]].concat());
        rules.extend(with_pairs(pairs::let_pass));
    }
    for closed in SETS.iter().filter(|set| set.view == View::Out) {
        ahead.push([to(*closed), stop()].concat());
        let guarded = SetOf { view: View::Guarded, ..*closed };
        behind.push([between(guarded, *closed), stop()].concat());
        let [sender, nearby] = [View::Sender, View::Nearby].map(|view| SetOf { view, ..*closed });
        for rules in [&mut *ahead, &mut *behind] {
            rules.push([between(sender, nearby), stop()].concat());
        }
    }
    both
}

/// The rules for what is forwarded to multicast, broadcast and link-local addresses. Behind routing it cannot
/// always be told from the host's own: a kernel passes on some multicast as if it had made it.
fn forwarded(config: &FenceConfig, pairs: bool) -> Vec<Vec<Expression>> {
    let tun = |at: MetaKey| vec![meta(at), equal(name(config.tun.as_str()))];
    let with_pairs = |rules: fn() -> Vec<Vec<Expression>>| if pairs { rules() } else { Vec::new() };
    let of_view = |view: View| SETS.iter().filter(move |set| set.view == view);
    let mut rules = vec![[tun(MetaKey::Oifname), vec![verdict(ACCEPT)]].concat()];
    // A bridge's, which `br_netfilter` shows here: no router passes it on.
    rules.push(neighbour_discovery());
    for withheld in with_pairs(pairs::withhold) {
        rules.push([tun(MetaKey::Iifname), withheld].concat());
    }
    for closed in of_view(View::FromTun) {
        rules.push([tun(MetaKey::Iifname), to(*closed), stop()].concat());
    }
    rules.push([tun(MetaKey::Iifname), vec![verdict(ACCEPT)]].concat());
    rules.extend(with_pairs(pairs::let_pass));
    for nearby in of_view(View::Nearby) {
        let sender = SetOf { view: View::Sender, ..*nearby };
        rules.push([between(sender, *nearby), stop()].concat());
    }
    rules
}

/// What leaves wherever it goes.
fn passes(config: &FenceConfig) -> Vec<Vec<Expression>> {
    let from_host = vec![meta(MetaKey::Iif), equal(0_u32.to_ne_bytes().to_vec())];
    let into = |link: &str| vec![meta(MetaKey::Oifname), equal(name(link)), verdict(ACCEPT)];
    // Where they belong.
    let mut rules = vec![into(config.tun.as_str()), into("lo")];
    let (mark, mask) = (config.mark.masked(), config.mark.mask);
    let masked =
        vec![meta(MetaKey::Mark), and(&mask.to_ne_bytes()), equal(mark.to_ne_bytes().to_vec())];
    rules.push([from_host, masked, vec![verdict(ACCEPT)]].concat());
    // The kernel gives these an interface that they came from, and they came from nowhere: what is
    // forwarded has another hop limit by now.
    rules.push(neighbour_discovery());
    rules
}

/// What is sent to an address of a set.
fn to(set: SetOf) -> Vec<Expression> {
    let set = set.addresses();
    [set.of_version(), set.has_destination()].concat()
}

/// What an address of a set sends to one of another, of the same IP version.
pub(super) fn between(from: SetOf, to: SetOf) -> Vec<Expression> {
    let [from, to] = [from, to].map(SetOf::addresses);
    [to.of_version(), from.has_source(), to.has_destination()].concat()
}
