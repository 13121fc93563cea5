//! SAs neither of whose ends is here.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use convoy_ipsec::sequence::{SequenceCounter, SequenceLimits};
use convoy_ipsec::snapshot::Published;
use convoy_wire::SeqNum;
use convoy_xfrm::{Errno, Request, Sa, SaDirection};

use super::tests::{
    Gateway, inbounds, kernel, moment, outbound, outbounds, policy, query, replies, sa,
};
use super::*;

/// Both ends of the SAs below; one may come to this host.
const SHARED: [u8; 4] = [192, 0, 2, 9];
const PEER: [u8; 4] = [198, 51, 100, 7];

/// A host that has [`SHARED`] when told so.
#[derive(Clone, Debug, Default)]
struct Standby(Arc<AtomicBool>);

impl Host for Standby {
    fn is_local(&self, address: IpAddr) -> bool {
        address == IpAddr::from(SHARED) && self.0.load(Ordering::Relaxed)
    }

    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}

fn standby() -> (Gateway, Arc<Published>, Standby) {
    let (mut kernel, published) = kernel();
    let host = Standby::default();
    kernel.host = Box::new(host.clone());
    (kernel, published, host)
}

fn receives(spi: u32, key: u8) -> Sa {
    sa(PEER, SHARED, spi, key)
}

fn sends(spi: u32, key: u8) -> Sa {
    sa(SHARED, PEER, spi, key)
}

/// A policy between the networks of two gateways.
fn policy_of(direction: PolicyDirection, source: [u8; 4], destination: [u8; 4]) -> Request {
    let mut policy = policy(direction, convoy_xfrm::Action::Allow, true);
    let template = &mut policy.templates[0];
    (template.source, template.destination) = (source.into(), destination.into());
    Request::UpdPolicy(Box::new(policy))
}

fn add(kernel: &mut Gateway, sa: Sa) -> Result<Carried, Refusal> {
    tests::ask(kernel, Request::NewSa(Box::new(sa)), 0)
}

/// SPIs of inbound SAs and of outbound ones.
fn spis(published: &Published) -> (Vec<u32>, Vec<u32>) {
    let mut into: Vec<_> = inbounds(published).iter().map(|sa| sa.spi.get()).collect();
    let mut out: Vec<_> = outbounds(published).iter().map(|sa| sa.spi.get()).collect();
    into.sort_unstable();
    out.sort_unstable();
    (into, out)
}

#[test]
fn a_passive_node_takes_directions_from_policies() {
    let (mut kernel, published, _) = standby();
    add(&mut kernel, receives(1, 1)).unwrap();
    add(&mut kernel, sends(2, 2)).unwrap();
    assert_eq!(spis(&published), (vec![1, 2], vec![]), "both receive at first");
    let told = kernel.unknown_directions().unwrap();
    assert!(told.contains("SA 00000001") && told.contains("1 other"), "{told}");
    let carried =
        tests::ask(&mut kernel, policy_of(PolicyDirection::Out, SHARED, PEER), 1).unwrap();
    assert_eq!(carried.answer.events.len(), 1, "the policy alone is told");
    assert_eq!(spis(&published), (vec![1], vec![2]));
    assert_eq!(kernel.unknown_directions(), None);
    assert!(!outbounds(&published)[0].source_is_here, "and sends nothing yet");
    // Each is found as before.
    for (spi, seconds) in [(receives(1, 1), 2), (sends(2, 2), 3)] {
        tests::ask(&mut kernel, Request::DelSa(query(&spi)), seconds).unwrap();
    }
    assert_eq!(spis(&published), (vec![], vec![]));
}

#[test]
fn an_address_that_comes_says_the_direction() {
    let (mut kernel, published, host) = standby();
    add(&mut kernel, receives(1, 1)).unwrap();
    add(&mut kernel, sends(2, 2)).unwrap();
    assert!(kernel.review_directions(true, moment(1)).is_empty());
    assert_eq!(spis(&published), (vec![1, 2], vec![]));
    host.0.store(true, Ordering::Relaxed);
    assert!(kernel.review_directions(true, moment(2)).is_empty());
    assert_eq!(spis(&published), (vec![1], vec![2]));
    assert!(outbounds(&published)[0].source_is_here);
    assert_eq!(kernel.unknown_directions(), None);
}

#[test]
fn another_sa_of_the_reqid_says_the_direction() {
    let (mut kernel, published, _) = standby();
    add(&mut kernel, sends(2, 2)).unwrap();
    add(&mut kernel, Sa { direction: Some(SaDirection::In), ..receives(1, 1) }).unwrap();
    assert_eq!(spis(&published), (vec![1], vec![2]));
    // A rekey goes the way of the SA before it.
    add(&mut kernel, receives(3, 3)).unwrap();
    add(&mut kernel, sends(4, 4)).unwrap();
    assert_eq!(spis(&published), (vec![1, 3], vec![2, 4]));
    assert_eq!(kernel.unknown_directions(), None);
}

#[test]
fn what_comes_by_an_sa_says_that_it_receives() {
    let (mut kernel, published, _) = standby();
    add(&mut kernel, sends(2, 2)).unwrap();
    inbounds(&published)[0].counters.packets.add(1);
    inbounds(&published)[0].counters.floor.raise(SeqNum::new(1));
    kernel.review_directions(false, moment(1));
    assert_eq!(kernel.unknown_directions(), None);
    tests::ask(&mut kernel, policy_of(PolicyDirection::Out, SHARED, PEER), 1).unwrap();
    assert_eq!(spis(&published), (vec![2], vec![]), "and never sends");
}

/// A node of a pair gets the SA anew when its address comes, and may have guessed otherwise before.
#[test]
fn an_sa_that_was_a_guess_is_added_again_the_other_way() {
    let (mut kernel, published, host) = standby();
    add(&mut kernel, sends(2, 2)).unwrap();
    tests::ask(&mut kernel, Request::DelSa(query(&sends(2, 2))), 1).unwrap();
    host.0.store(true, Ordering::Relaxed);
    add(&mut kernel, sends(2, 2)).unwrap();
    assert_eq!(spis(&published), (vec![], vec![2]));
    // One that sent has its direction for good.
    tests::ask(&mut kernel, Request::DelSa(query(&sends(2, 2))), 2).unwrap();
    let refused = add(&mut kernel, Sa { direction: Some(SaDirection::In), ..sends(2, 2) });
    assert_eq!(refused.unwrap_err().errno, Errno::EINVAL);
}

/// RFC 4106 section 3: the higher number may have been used by another host.
#[test]
fn an_sa_that_is_added_again_takes_the_higher_number() {
    let (mut kernel, published) = kernel();
    let numbered = |sent| {
        let replay = convoy_xfrm::Replay { sent, ..convoy_xfrm::Replay::default() };
        let mut sa = outbound(1, 1);
        sa.state.replay = Some(replay);
        sa
    };
    for (sent, expected) in [(1_000_000, 1_000_000), (5, 1_000_000), (9_000_000, 9_000_000)] {
        add(&mut kernel, numbered(sent)).unwrap();
        let asked = tests::ask(&mut kernel, Request::GetSa(query(&outbound(1, 1))), 1).unwrap();
        let [convoy_xfrm::Reply::NewSa(shown)] = &replies(&asked)[..] else { panic!() };
        assert_eq!(shown.state.replay.unwrap().sent, expected);
        tests::ask(&mut kernel, Request::DelSa(query(&outbound(1, 1))), 1).unwrap();
    }
    add(&mut kernel, outbound(1, 1)).unwrap();
    let lease = outbounds(&published)[0].lease.clone();
    let counter =
        SequenceCounter::claim(lease.as_arc().clone(), SeqNum::new(1), SequenceLimits::new(false));
    assert_eq!(counter.unwrap().next().unwrap().number(), SeqNum::new(9_000_001));
}
