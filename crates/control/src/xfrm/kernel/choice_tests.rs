//! Choice of one of several SAs for the packets of a policy.

use std::net::IpAddr;

use convoy_ipsec::selector::Direction;
use convoy_ipsec::snapshot::Published;
use convoy_ipsec::spd::PolicyAction;
use convoy_wire::{FlowKey, Ports, Protocol, Spi};
use convoy_xfrm::{Action, Addresses, Encap, Mode, Network, Policy, PolicyDirection, Request, Sa};

use super::tests::{
    Gateway, HERE, THERE, add, ask, flow, inbound, kernel, know_host, name_of, outbound, policy,
    put, query, sa,
};

const OTHER: [u8; 4] = [192, 0, 2, 3];

/// Outcome for a packet.
#[derive(Debug, PartialEq, Eq)]
enum Handling {
    /// It goes through the SA of this SPI.
    Through(u32),
    /// It waits for an SA.
    Waits,
    Dropped,
}

fn way(published: &Published, flow: &FlowKey) -> Handling {
    let snapshot = published.current();
    let decision = snapshot.spd().lookup(Direction::Outbound, flow).unwrap();
    let PolicyAction::Protect { reqid } = decision.action else { panic!("{decision:?}") };
    match snapshot.outbound_to(reqid, flow) {
        Some(owner) => Handling::Through(snapshot.outbound(owner.slot).unwrap().spi.get()),
        None if snapshot.is_on_demand(reqid) => Handling::Waits,
        None => Handling::Dropped,
    }
}

fn naming(spi: u32) -> Policy {
    let mut policy = policy(PolicyDirection::Out, Action::Allow, true);
    policy.templates[0].spi = Spi::new(spi);
    policy
}

fn delete(kernel: &mut Gateway, sa: &Sa) {
    ask(kernel, Request::DelSa(query(sa)), 0).unwrap();
}

/// A peer is sent nothing under an SPI that it does not know yet, nor under one that a policy does not mean.
#[test]
fn a_policy_that_names_an_spi_takes_no_other_sa() {
    let (mut kernel, published) = kernel();
    let used = || way(&published, &flow(true));
    add(&mut kernel, outbound(1, 1)).unwrap();
    put(&mut kernel, naming(1)).unwrap();
    add(&mut kernel, outbound(2, 2)).unwrap();
    assert_eq!(used(), Handling::Through(1), "the peer has not got the new one yet");
    put(&mut kernel, naming(2)).unwrap();
    assert_eq!(used(), Handling::Through(2));
    add(&mut kernel, outbound(3, 3)).unwrap();
    assert_eq!(used(), Handling::Through(2));
    delete(&mut kernel, &outbound(2, 2));
    assert_eq!(used(), Handling::Waits, "the others are not of its SPI");
    add(&mut kernel, outbound(2, 4)).unwrap();
    assert_eq!(used(), Handling::Through(2), "as after a move");
    // A policy that names none takes the newest.
    put(&mut kernel, policy(PolicyDirection::Out, Action::Allow, true)).unwrap();
    assert_eq!(used(), Handling::Through(2));
    add(&mut kernel, outbound(5, 5)).unwrap();
    assert_eq!(used(), Handling::Through(5));
    // The SA may come behind its policy.
    put(&mut kernel, naming(9)).unwrap();
    assert_eq!(used(), Handling::Waits);
    add(&mut kernel, outbound(9, 9)).unwrap();
    add(&mut kernel, outbound(10, 10)).unwrap();
    assert_eq!(used(), Handling::Through(9));
}

/// An SPI is asked for no longer than the policy that names it exists.
#[test]
fn a_policy_that_went_names_nothing_any_more() {
    let (mut kernel, published) = kernel();
    add(&mut kernel, outbound(1, 1)).unwrap();
    let mut whole = policy(PolicyDirection::Out, Action::Allow, true);
    whole.info.priority = 2000;
    let network = |n: u8, prefix_len| Network { address: [10, n, 0, 0].into(), prefix_len };
    whole.info.selector.addresses =
        Addresses::Networks { source: network(1, 16), destination: network(0, 8) };
    put(&mut kernel, whole).unwrap();
    put(&mut kernel, naming(7)).unwrap();
    assert_eq!(way(&published, &flow(true)), Handling::Waits);
    ask(&mut kernel, Request::DelPolicy(Box::new(name_of(&naming(7)))), 0).unwrap();
    assert_eq!(way(&published, &flow(true)), Handling::Through(1));
}

/// Policies of one reqid may name different SAs, as while a daemon replaces a key: one after the other.
#[test]
fn each_policy_uses_the_sa_that_it_names() {
    let (mut kernel, published) = kernel();
    let to = |n: u8, spi: u32| {
        let mut policy = naming(spi);
        let network = |n: u8| Network { address: [10, n, 0, 0].into(), prefix_len: 16 };
        policy.info.selector.addresses =
            Addresses::Networks { source: network(1), destination: network(n) };
        policy
    };
    let flow = |n: u8| {
        let ports = Ports::Known { src: 1, dst: 2 };
        FlowKey::new([10, 1, 0, 1].into(), [10, n, 0, 1].into(), Protocol::UDP, ports).unwrap()
    };
    let used = |ns: [u8; 4]| ns.map(|n| way(&published, &flow(n)));
    let ns = [2, 3, 4, 5];
    add(&mut kernel, outbound(1, 1)).unwrap();
    add(&mut kernel, outbound(2, 2)).unwrap();
    for (n, spi) in [(2, 1), (3, 2), (4, 3), (5, 0)] {
        put(&mut kernel, to(n, spi)).unwrap();
    }
    let through = Handling::Through;
    assert_eq!(used(ns), [through(1), through(2), Handling::Waits, through(2)]);
    add(&mut kernel, outbound(3, 3)).unwrap();
    assert_eq!(used(ns), [through(1), through(2), through(3), through(3)]);
    put(&mut kernel, to(2, 3)).unwrap();
    assert_eq!(used(ns), [through(3), through(2), through(3), through(3)]);
    delete(&mut kernel, &outbound(2, 2));
    assert_eq!(used(ns), [through(3), Handling::Waits, through(3), through(3)]);
    delete(&mut kernel, &outbound(3, 3));
    assert_eq!(used(ns), [Handling::Waits, Handling::Waits, Handling::Waits, through(1)]);
    for n in ns {
        let name = name_of(&to(n, 0));
        ask(&mut kernel, Request::DelPolicy(Box::new(name)), 0).unwrap();
    }
    delete(&mut kernel, &outbound(1, 1));
    assert!(published.current().is_empty() && published.current().spd().is_empty());
}

/// So does one that lets packets in.
#[test]
fn a_policy_in_that_names_an_spi_means_that_sa_alone() {
    let (mut kernel, published) = kernel();
    know_host(&mut kernel, &flow(false));
    add(&mut kernel, inbound(1, 1)).unwrap();
    add(&mut kernel, inbound(2, 2)).unwrap();
    for (spi, expected) in [(None, &[1, 2][..]), (Some(2), &[2]), (Some(3), &[])] {
        let mut policy = policy(PolicyDirection::In, Action::Allow, true);
        policy.templates[0].spi = spi.and_then(Spi::new);
        put(&mut kernel, policy).unwrap();
        let snapshot = published.current();
        let decision = snapshot.spd().lookup(Direction::Inbound, &flow(false)).unwrap();
        let PolicyAction::Protect { reqid } = decision.action else { panic!("{decision:?}") };
        let taken = snapshot.inbound_sas().filter(|(_, sa)| sa.serves(reqid));
        assert_eq!(taken.map(|(_, sa)| sa.spi.get()).collect::<Vec<_>>(), expected);
    }
}

fn between(destination: [u8; 4]) -> FlowKey {
    let ports = Ports::Known { src: 1000, dst: 2000 };
    FlowKey::new(HERE.into(), destination.into(), Protocol::UDP, ports).unwrap()
}

/// An SA in transport mode under the one reqid of all.
fn transport(source: [u8; 4], destination: [u8; 4], spi: u32) -> Sa {
    let mut sa = sa(source, destination, spi, spi as u8);
    sa.info.mode = Mode::Transport;
    sa
}

/// A policy of transport mode from this host to the addresses of a prefix.
fn to(destination: [u8; 4], prefix_len: u8, spi: Option<u32>) -> Policy {
    let mut policy = policy(PolicyDirection::Out, Action::Allow, true);
    let here = Network { address: HERE.into(), prefix_len: 32 };
    let there = Network { address: destination.into(), prefix_len };
    policy.info.selector.addresses = Addresses::Networks { source: here, destination: there };
    policy.info.priority = 2000 - u32::from(prefix_len);
    let none: IpAddr = [0, 0, 0, 0].into();
    let template = &mut policy.templates[0];
    (template.source, template.destination, template.mode) = (none, none, Mode::Transport);
    template.spi = spi.and_then(Spi::new);
    policy
}

#[test]
fn hosts_that_share_a_reqid_in_transport_mode_have_their_own_sas() {
    let (mut kernel, published) = kernel();
    for (peer, spi) in [(THERE, 1), (OTHER, 2)] {
        put(&mut kernel, to(peer, 32, None)).unwrap();
        add(&mut kernel, transport(peer, HERE, 100 + spi)).unwrap();
        add(&mut kernel, transport(HERE, peer, spi)).unwrap();
    }
    let used = |peer| way(&published, &between(peer));
    assert_eq!((used(THERE), used(OTHER)), (Handling::Through(1), Handling::Through(2)));
    // One of them gets a new key, and later none.
    add(&mut kernel, transport(HERE, THERE, 3)).unwrap();
    assert_eq!((used(THERE), used(OTHER)), (Handling::Through(3), Handling::Through(2)));
    delete(&mut kernel, &transport(HERE, THERE, 3));
    delete(&mut kernel, &transport(HERE, THERE, 1));
    assert_eq!((used(THERE), used(OTHER)), (Handling::Waits, Handling::Through(2)));
}

#[test]
fn a_policy_for_many_hosts_in_transport_mode_takes_the_sa_of_a_packets_hosts() {
    let (mut kernel, published) = kernel();
    let used = |peer| way(&published, &between(peer));
    add(&mut kernel, transport(HERE, THERE, 1)).unwrap();
    put(&mut kernel, to([192, 0, 2, 0], 24, None)).unwrap();
    assert_eq!((used(THERE), used(OTHER)), (Handling::Through(1), Handling::Waits));
    add(&mut kernel, transport(HERE, OTHER, 2)).unwrap();
    add(&mut kernel, transport(HERE, OTHER, 3)).unwrap();
    assert_eq!((used(THERE), used(OTHER)), (Handling::Through(1), Handling::Through(3)));
    // A policy for one of them names an SA for itself alone.
    put(&mut kernel, to(OTHER, 32, Some(2))).unwrap();
    assert_eq!((used(THERE), used(OTHER)), (Handling::Through(1), Handling::Through(2)));
    ask(&mut kernel, Request::DelPolicy(Box::new(name_of(&to(OTHER, 32, Some(2))))), 0).unwrap();
    assert_eq!(used(OTHER), Handling::Through(3));
    put(&mut kernel, to([192, 0, 2, 0], 24, Some(2))).unwrap();
    assert_eq!((used(THERE), used(OTHER)), (Handling::Waits, Handling::Through(2)));
    put(&mut kernel, to([192, 0, 2, 0], 24, None)).unwrap();
    for (peer, spi) in [(THERE, 1), (OTHER, 2), (OTHER, 3)] {
        delete(&mut kernel, &transport(HERE, peer, spi));
    }
    assert_eq!((used(THERE), used(OTHER)), (Handling::Waits, Handling::Waits));
}

/// As a kernel: whose packets come by an SA of the right reqid and mode is let in, whatever its addresses.
#[test]
fn policies_in_take_sas_in_transport_mode_of_any_hosts() {
    let (mut kernel, published) = kernel();
    let mut flow = between(THERE);
    std::mem::swap(&mut flow.src, &mut flow.dst);
    know_host(&mut kernel, &flow);
    add(&mut kernel, transport(THERE, HERE, 1)).unwrap();
    let mut tunnel = inbound(2, 2);
    tunnel.info.reqid = 1;
    add(&mut kernel, tunnel).unwrap();
    let mut policy = to(THERE, 32, None);
    policy.info.direction = PolicyDirection::In;
    let Addresses::Networks { source, destination } = policy.info.selector.addresses else {
        panic!()
    };
    policy.info.selector.addresses =
        Addresses::Networks { source: destination, destination: source };
    put(&mut kernel, policy).unwrap();
    let snapshot = published.current();
    let decision = snapshot.spd().lookup(Direction::Inbound, &flow).unwrap();
    let PolicyAction::Protect { reqid } = decision.action else { panic!("{decision:?}") };
    let taken = snapshot.inbound_sas().filter(|(_, sa)| sa.reqid == reqid);
    assert_eq!(taken.map(|(_, sa)| sa.spi.get()).collect::<Vec<_>>(), [1]);
}

/// Behind a NAT ESP says nothing of a packet's source: an SA's own selector does, where it names a host.
#[test]
fn an_sa_in_transport_mode_keeps_the_host_that_its_selector_names() {
    let (mut kernel, published) = kernel();
    let host = |address: [u8; 4]| Network { address: address.into(), prefix_len: 32 };
    let any = Network { address: [0, 0, 0, 0].into(), prefix_len: 0 };
    for (spi, source, expected) in [(1, host(THERE), true), (2, any, false)] {
        let sa = || {
            let mut sa = transport(THERE, HERE, spi);
            sa.info.selector.addresses = Addresses::Networks { source, destination: host(HERE) };
            let original = [0; 4].into();
            sa.encap = Some(Encap { kind: 2, source_port: 4501, destination_port: 4500, original });
            sa
        };
        // As daemons do: the update of a live one changes nothing of this.
        ask(&mut kernel, Request::NewSa(Box::new(sa())), 0).unwrap();
        ask(&mut kernel, Request::UpdSa(Box::new(sa())), 0).unwrap();
        let snapshot = published.current();
        let found = snapshot.inbound_sas().find(|(_, sa)| sa.spi.get() == spi).unwrap();
        assert_eq!(found.1.from_peer_only, expected);
    }
}
