//! Packets without an SA wait for one within bounds (RFC 4301 section 5.1).

use std::sync::Arc;

use crate::common::{Pair, Setup, inner_with, protect_all, spd};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::event::Event;
use convoy_ipsec::sa::{Endpoints, InboundSpec, Mode, OutboundSpec, ReqId, SaSlot, SaSpec};
use convoy_ipsec::selector::Selector;
use convoy_ipsec::sequence::Lease;
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::{Direction, Policy, PolicyAction, Spd, SpdId};
use convoy_ipsec::trace::{self, Outcome};
use convoy_wire::{Prefix, SeqNum, Spi};

/// A gateway whose SAs are made on demand, and has none.
fn without_sa(policies: Spd) -> Pair {
    let mut pair = Pair::new(&Setup::default());
    publish(&mut pair, policies, &[]);
    pair
}

/// Publishes policies whose SAs are made on demand, and these SAs by reqid.
fn publish(pair: &mut Pair, policies: Spd, sas: &[(u32, Arc<OutboundSpec>)]) {
    let reqids: Vec<_> = policies.policies().map(|(_, policy)| policy.action).collect();
    let mut snapshot = Snapshot::new(policies);
    for action in reqids {
        if let PolicyAction::Protect { reqid } = action {
            snapshot.make_on_demand(reqid);
        }
    }
    for (slot, sa) in sas {
        snapshot.add_outbound(SaSlot(*slot), sa.clone()).unwrap();
    }
    pair.left_writer.publish(snapshot);
}

fn everything() -> Spd {
    protect_all(Direction::Outbound)
}

/// Networks 10.2.0.0/24 to 10.2.n.0/24, each under a reqid of its own.
fn networks(n: u32) -> Spd {
    spd((0..n)
        .map(|i| Policy {
            name: format!("network {i}").into(),
            priority: i,
            direction: Direction::Outbound,
            selector: Selector {
                remote: format!("10.2.{i}.0/24").parse::<Prefix>().unwrap().into(),
                ..Selector::default()
            },
            action: PolicyAction::Protect { reqid: ReqId(i + 1) },
        })
        .collect())
}

fn packet(network: u32, number: u16) -> Vec<u8> {
    inner_with(false, "10.1.0.1", &format!("10.2.{network}.1"), &number.to_be_bytes(), 0)
}

fn asked(pair: &mut Pair) -> Vec<u32> {
    let reqid = |event| match event {
        Event::Acquire { reqid, .. } => reqid.0,
        other => panic!("{other:?}"),
    };
    pair.events().into_iter().map(reqid).collect()
}

#[test]
fn packets_wait_for_their_sa_and_go_out_in_order_before_new_ones() {
    let mut pair = without_sa(everything());
    let packets: Vec<_> = (0..40).map(|n| packet(0, n)).collect();
    for burst in packets[..30].chunks(7) {
        assert!(pair.protect(burst).0.is_empty());
        pair.now.0 += 1;
    }
    assert_eq!(asked(&mut pair), [1], "asked for once");
    let sa = pair.out.clone();
    publish(&mut pair, everything(), &[(0, sa)]);
    let (wire, _) = pair.protect(&packets[30..]);
    assert_eq!(pair.open(&wire), packets);
    assert_eq!(pair.left_counters.held_for_sa.get(), 30);
    assert_eq!(asked(&mut pair), []);
    pair.assert_no_leak();
}

#[test]
fn the_event_shows_the_flow_that_needs_an_sa() {
    let mut pair = without_sa(everything());
    pair.protect(&[packet(7, 0)]);
    let [Event::Acquire { reqid, flow }] = pair.events()[..] else { panic!() };
    assert_eq!(reqid, ReqId(1));
    assert_eq!(flow.src_addr().to_string(), "10.1.0.1");
    assert_eq!(flow.dst_addr().to_string(), "10.2.7.1");
    pair.tick(100);
    pair.assert_no_leak();
}

#[test]
fn without_anybody_to_ask_packets_are_dropped_at_once() {
    let mut pair = Pair::new(&Setup::default());
    pair.left_writer.publish(Snapshot::new(everything()));
    assert!(pair.protect(&[packet(0, 0)]).0.is_empty());
    assert_eq!(pair.refused(DropReason::NoSa), 1);
    assert_eq!(asked(&mut pair), []);
    pair.assert_no_leak();
}

#[test]
fn packets_that_waited_too_long_are_dropped_and_the_next_ask_again() {
    let mut pair = without_sa(everything());
    pair.protect(&[packet(0, 0)]);
    pair.tick(3);
    pair.protect(&[packet(0, 1)]);
    assert_eq!(asked(&mut pair), [1]);
    pair.tick(2);
    assert_eq!(pair.refused(DropReason::AcquireTimeout), 1);
    pair.protect(&[packet(0, 2)]);
    assert_eq!(asked(&mut pair), [1], "five seconds after the first question");
    // Snapshots that do not bring the SA keep the packets' age.
    publish(&mut pair, everything(), &[]);
    pair.protect(&[]);
    pair.tick(3);
    assert_eq!(pair.refused(DropReason::AcquireTimeout), 2);
    let sa = pair.out.clone();
    publish(&mut pair, everything(), &[(0, sa)]);
    let (wire, _) = pair.protect(&[]);
    assert_eq!(pair.open(&wire), [packet(0, 2)]);
    pair.assert_no_leak();
}

/// As when a daemon ends what it has just made, or a peer does.
#[test]
fn an_sa_that_came_and_went_is_asked_for_at_once() {
    let mut pair = without_sa(everything());
    pair.protect(&[packet(0, 0), packet(0, 1)]);
    assert_eq!(asked(&mut pair), [1]);
    // A snapshot that does not bring it.
    publish(&mut pair, everything(), &[]);
    pair.now.0 += 1;
    pair.protect(&[packet(0, 2)]);
    assert_eq!(asked(&mut pair), [], "it is still waited for");
    let sa = pair.out.clone();
    publish(&mut pair, everything(), &[(0, sa)]);
    pair.now.0 += 1;
    let (wire, _) = pair.protect(&[]);
    assert_eq!(pair.open(&wire), [0, 1, 2].map(|n| packet(0, n)));
    publish(&mut pair, everything(), &[]);
    pair.now.0 += 1;
    for number in 3..6 {
        pair.protect(&[packet(0, number)]);
    }
    assert_eq!(asked(&mut pair), [1], "once again");
    pair.tick(5);
    assert_eq!(pair.refused(DropReason::AcquireTimeout), 3);
    pair.assert_no_leak();
}

#[test]
fn each_policy_and_all_together_hold_only_so_many() {
    let mut pair = without_sa(networks(100));
    let burst: Vec<_> = (0..100).map(|n| packet(0, n)).collect();
    pair.protect(&burst);
    assert_eq!(pair.refused(DropReason::AcquireFull), 36, "64 wait for one policy");
    for network in 1..10 {
        let burst: Vec<_> = (0..64).map(|n| packet(network, n)).collect();
        pair.protect(&burst);
    }
    let held = pair.left_counters.held_for_sa.get();
    assert_eq!(
        held,
        3 * 64 + 32 + 16 + 8 + 4 + 2 + 1 + 1,
        "256 wait in all, half of the rest each"
    );
    assert_eq!(pair.refused(DropReason::AcquireFull), 36 + 9 * 64 - (256 - 64));
    assert_eq!(asked(&mut pair), (1..=10).collect::<Vec<_>>());
    // A flood over all policies asks for 64 of them at most.
    for network in 10..100 {
        pair.protect(&[packet(network, 0)]);
    }
    assert_eq!(asked(&mut pair), (11..=64).collect::<Vec<_>>());
    pair.tick(5);
    assert_eq!(pair.refused(DropReason::AcquireTimeout), 256);
    pair.protect(&[packet(90, 0)]);
    assert_eq!(asked(&mut pair), [91], "old questions make room");
    pair.left.release(pair.now, &mut pair.pool);
    pair.assert_no_leak();
}

/// In transport mode each destination wants an SA of its own: one policy for many could take all places.
#[test]
fn a_policy_for_many_hosts_leaves_room_for_others() {
    let mut pair = Pair::new(&Setup::default());
    let mut snapshot = Snapshot::new(networks(11));
    for n in 1..=10 {
        snapshot.make_on_demand(ReqId(n));
    }
    snapshot.make_on_demand_between(ReqId(11));
    pair.left_writer.publish(snapshot);
    let to = |host: u16, n: u16| {
        inner_with(false, "10.1.0.1", &format!("10.2.10.{host}"), &n.to_be_bytes(), 0)
    };
    // A scan, and then many packets to each host.
    for host in 0..250 {
        pair.protect(&[to(host, 0)]);
    }
    assert_eq!(asked(&mut pair), [11; 32], "half of what may be asked for");
    for host in 0..32 {
        pair.protect(&(1..10).map(|n| to(host, n)).collect::<Vec<_>>());
    }
    assert_eq!(pair.left_counters.held_for_sa.get(), 128, "half of what may wait");
    for network in 0..10 {
        pair.protect(&[packet(network, 0), packet(network, 1)]);
    }
    assert_eq!(asked(&mut pair), (1..=10).collect::<Vec<_>>());
    assert_eq!(pair.left_counters.held_for_sa.get(), 128 + 20);
    // What is over makes room.
    pair.tick(5);
    pair.protect(&[to(200, 0)]);
    assert_eq!(asked(&mut pair), [11]);
    pair.left.release(pair.now, &mut pair.pool);
    pair.assert_no_leak();
}

#[test]
fn each_group_of_sas_is_waited_for_by_itself() {
    let mut pair = without_sa(networks(2));
    let mixed: Vec<_> = (0..20).map(|n| packet(u32::from(n % 2), n)).collect();
    pair.protect(&mixed);
    assert_eq!(asked(&mut pair), [1, 2]);
    let first = pair.out.clone();
    publish(&mut pair, networks(2), &[(0, first.clone())]);
    let (wire, _) = pair.protect(&[]);
    assert_eq!(pair.open(&wire).len(), 10, "those of the first network");
    let second = Arc::new(OutboundSpec {
        sa: SaSpec {
            reqid: ReqId(2),
            spi: Spi::new(0x2002).unwrap(),
            ..Setup::default().outbound().sa
        },
        lease: Arc::new(Lease::new(SeqNum::new(0), 1 << 20)).into(),
        ..Setup::default().outbound()
    });
    publish(&mut pair, networks(2), &[(0, first), (1, second)]);
    assert_eq!(pair.protect(&[]).0.len(), 10);
    assert_eq!(asked(&mut pair), []);
    pair.assert_no_leak();
}

#[test]
fn a_new_policy_may_decide_otherwise_about_what_waits() {
    let mut pair = without_sa(everything());
    let packets: Vec<_> = (0..5).map(|n| packet(0, n)).collect();
    pair.protect(&packets);
    let bypass = spd(vec![Policy {
        name: "bypass".into(),
        priority: 0,
        direction: Direction::Outbound,
        selector: Selector::default(),
        action: PolicyAction::Bypass,
    }]);
    publish(&mut pair, bypass, &[]);
    assert_eq!(pair.protect(&[]).0, packets);
    pair.assert_no_leak();
}

#[test]
fn a_question_nobody_took_is_asked_again() {
    let mut pair = without_sa(everything());
    pair.protect(&[packet(0, 0)]);
    pair.left.tell(|_| false);
    assert!(pair.left.has_news());
    assert_eq!(asked(&mut pair), [1]);
    assert!(!pair.left.has_news());
    pair.left.release(pair.now, &mut pair.pool);
    assert_eq!(pair.refused(DropReason::AcquireTimeout), 1, "counted at the end as well");
    pair.assert_no_leak();
}

/// A transport-mode SA from 10.1.0.1 to a host, under a number that no policy names.
fn between(remote: &str, spi: u32) -> Arc<OutboundSpec> {
    let (local, remote) = ("10.1.0.1".parse().unwrap(), remote.parse().unwrap());
    Arc::new(OutboundSpec {
        sa: SaSpec {
            reqid: ReqId(100 + spi),
            spi: Spi::new(spi).unwrap(),
            ..Setup { mode: Mode::Transport, local, remote, ..Setup::default() }.outbound().sa
        },
        lease: Arc::new(Lease::new(SeqNum::new(0), 1 << 20)).into(),
        ..Setup { mode: Mode::Transport, local, remote, ..Setup::default() }.outbound()
    })
}

#[test]
fn hosts_under_one_policy_have_and_wait_for_sas_of_their_own() {
    let mut pair = Pair::new(&Setup::default());
    let sas = [between("10.2.0.1", 0x2001), between("10.2.1.1", 0x2002)];
    let mut snapshot = Snapshot::new(everything());
    snapshot.make_on_demand_between(ReqId(1));
    pair.left_writer.publish(snapshot.clone());
    assert!(pair.protect(&[packet(0, 0), packet(1, 1), packet(0, 2)]).0.is_empty());
    assert_eq!(asked(&mut pair), [1, 1], "for each of the two");
    let mut sent = Vec::new();
    for (slot, sa) in (0..).map(SaSlot).zip(&sas) {
        snapshot.add_outbound(slot, sa.clone()).unwrap();
        let Endpoints { local, remote } = sa.endpoints;
        snapshot.use_between(ReqId(1), local, remote, Some(slot));
        pair.left_writer.publish(snapshot.clone());
        let (wire, _) = pair.protect(&[]);
        sent.extend(wire.iter().map(|packet| packet[20..24].to_vec()));
    }
    assert_eq!(sent, [[0, 0, 0x20, 1], [0, 0, 0x20, 1], [0, 0, 0x20, 2]]);
    let (wire, _) = pair.protect(&[packet(1, 3), packet(0, 4), packet(1, 5)]);
    let to: Vec<_> = wire.iter().map(|packet| (packet[18], packet[23])).collect();
    assert_eq!(to, [(1, 2), (0, 1), (1, 2)]);
    let Endpoints { local, remote } = sas[0].endpoints;
    snapshot.use_between(ReqId(1), local, remote, None);
    pair.left_writer.publish(snapshot);
    assert_eq!(pair.protect(&[packet(0, 6), packet(1, 7)]).0.len(), 1);
    pair.left.release(pair.now, &mut pair.pool);
    pair.assert_no_leak();
}

#[test]
fn a_policy_that_means_one_sa_takes_no_other_of_its_group() {
    let mut pair = without_sa(networks(3));
    let sa = |spi, named| {
        Arc::new(OutboundSpec {
            sa: SaSpec {
                spi: Spi::new(spi).unwrap(),
                named: Some(ReqId(named)),
                ..Setup::default().outbound().sa
            },
            lease: Arc::new(Lease::new(SeqNum::new(0), 1 << 20)).into(),
            ..Setup::default().outbound()
        })
    };
    let (old, new) = (sa(0x2001, 2), sa(0x2002, 3));
    let all: Vec<_> = (0..3).map(|network| packet(network, 0)).collect();
    let spis = |pair: &mut Pair| -> Vec<u8> {
        // Twice: the second time workers remember where SAs lie.
        let first = pair.protect(&all).0;
        let again = pair.protect(&all).0;
        [first, again].iter().flatten().map(|packet| packet[23]).collect()
    };
    publish(&mut pair, networks(3), &[(0, old.clone())]);
    assert_eq!(spis(&mut pair), [1, 1, 1, 1], "the third waits for its own");
    publish(&mut pair, networks(3), &[(0, old.clone()), (1, new.clone())]);
    assert_eq!(spis(&mut pair), [2, 2, 2, 1, 2, 2, 1, 2], "those that waited go first");
    // Another record in the place of one changes nothing; and one that goes takes no other's place.
    let mut snapshot = pair.left_writer.current().as_ref().clone();
    let again = OutboundSpec {
        sa: SaSpec {
            spi: old.spi,
            named: old.named,
            counters: old.counters.clone(),
            ..Setup::default().outbound().sa
        },
        lease: old.lease.clone(),
        path_mtu: 1400,
        ..Setup::default().outbound()
    };
    snapshot.replace_outbound(SaSlot(0), Arc::new(again)).unwrap();
    pair.left_writer.publish(snapshot.clone());
    assert_eq!(spis(&mut pair), [2, 1, 2, 2, 1, 2]);
    snapshot.remove_outbound(SaSlot(1));
    pair.left_writer.publish(snapshot);
    assert_eq!(spis(&mut pair), [1, 1, 1, 1]);
    pair.left.release(pair.now, &mut pair.pool);
    pair.assert_no_leak();
}

/// The template of a policy in names an SPI as well (RFC 4301 section 5.2, step 4).
#[test]
fn what_an_sa_carried_is_let_in_by_a_policy_that_means_it_alone() {
    for (named, passes) in [(None, 0), (Some(ReqId(7)), 1), (Some(ReqId(8)), 0)] {
        let policies = spd(vec![Policy {
            name: "one".into(),
            priority: 0,
            direction: Direction::Inbound,
            selector: Selector::default(),
            action: PolicyAction::Protect { reqid: ReqId(7) },
        }]);
        let setup = Setup::default();
        let mut pair = Pair::with(&setup, everything(), policies.clone());
        let mut snapshot = Snapshot::new(policies);
        let inn = InboundSpec {
            sa: SaSpec { named, counters: pair.inn.counters.clone(), ..setup.inbound().sa },
            ..setup.inbound()
        };
        snapshot.add_inbound(SaSlot(0), Arc::new(inn)).unwrap();
        let flow = convoy_wire::parse_packet(&packet(0, 0)).unwrap().flow;
        let way = trace::inbound(&snapshot, SpdId::default(), SaSlot(0), &flow, pair.now);
        assert_eq!(way.outcome == Outcome::Accepted, passes == 1);
        pair.right_writer.publish(snapshot);
        let (wire, _) = pair.protect(&[packet(0, 0)]);
        assert_eq!(pair.open(&wire).len(), passes);
        pair.assert_no_leak();
    }
}
