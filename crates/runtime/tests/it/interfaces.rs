//! Plain interfaces beside the first: each with policies of its own, for the same networks.

use std::cell::RefCell;
use std::sync::Arc;

use crate::common::{Side, arena, cable, frame, read, settle, snapshot, surroundings};
use convoy_io::{Port, mem};
use convoy_ipsec::clock::Now;
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::sa::{InboundSpec, ReqId, SaSlot};
use convoy_ipsec::selector::Selector;
use convoy_ipsec::snapshot::{Published, Snapshot};
use convoy_ipsec::spd::{Direction, Policy, PolicyAction, PolicyId, Spd, SpdId};
use convoy_ipsec::trace;
use convoy_packet::{Burst, Frame, InterfaceId, Pool};
use convoy_runtime::{Worker, WorkerPorts};
use convoy_wire::parse_packet;

/// Two workers on either side. SA 0 is for interface 0 and SA 1 for interface 1, where the same
/// networks are protected; each belongs to the worker of its number.
struct Net {
    /// Gateway A's, then gateway B's.
    workers: Vec<Worker>,
    /// The hosts' ends by side, worker and interface.
    hosts: [Vec<Vec<mem::MemPort>>; 2],
    pool: Pool,
}

/// The pictures of one side, and the database of interface 1.
fn picture(side: Side) -> (Snapshot, SpdId) {
    let mut snapshot = snapshot(side, 2, |flow| flow.into());
    let policies: Vec<Policy> =
        snapshot.spd().policies().map(|(_, policy)| Policy::clone(policy)).collect();
    // Those of flow 1 go; those of flow 0 stay, and are on interface 1 for the other SA.
    let own = policies.iter().filter(|policy| &*policy.name == "flow 0").map(|policy| Policy {
        action: PolicyAction::Protect { reqid: ReqId(1) },
        ..policy.clone()
    });
    let own = Spd::new(own).unwrap();
    for (id, policy) in policies.iter().enumerate().filter(|(_, p)| &*p.name == "flow 1") {
        let gone = snapshot.spd_mut().remove(PolicyId(id as u32)).unwrap();
        assert_eq!(gone.name, policy.name);
    }
    let spd = snapshot.add_spd(own).unwrap();
    let old = snapshot.remove_inbound(SaSlot(1)).unwrap();
    let new = InboundSpec { interface: InterfaceId(1), ..InboundSpec::clone(&old) };
    snapshot.add_inbound(SaSlot(1), Arc::new(new)).unwrap();
    (snapshot, spd)
}

fn net() -> Net {
    net_with(|_, _, _| {})
}

fn net_with(change: impl Fn(Side, &mut Snapshot, SpdId)) -> Net {
    let arena = arena(16384);
    let config = mem::Config::default();
    let cabling = cable(2, &config);
    let mut workers = Vec::new();
    let mut side = |side, mut ports: Vec<WorkerPorts>, hosts: Vec<mem::MemPort>| {
        let mut ends = Vec::new();
        for (ports, first) in ports.iter_mut().zip(hosts) {
            let (plain, host) = mem::pair(&config);
            ports.interfaces.push(Box::new(plain));
            ends.push(vec![first, host]);
        }
        let (mut picture, spd) = picture(side);
        change(side, &mut picture, spd);
        let mut surroundings = surroundings(arena);
        surroundings.spds.push(spd);
        workers.extend(Worker::team(&surroundings, ports, &Published::new(picture)).unwrap());
        ends
    };
    let a = side(Side::A, cabling.ports_a, cabling.hosts_a);
    let b = side(Side::B, cabling.ports_b, cabling.hosts_b);
    Net { workers, hosts: [a, b], pool: arena.pool() }
}

impl Net {
    /// The host of A gives worker 0 packets with these numbers, through an interface.
    fn send(&mut self, interface: usize, numbers: impl Iterator<Item = u64>) {
        let mut burst = Burst::new();
        for number in numbers {
            burst.push(frame(&mut self.pool, Side::A, 0, number, 100)).unwrap();
        }
        self.give(interface, burst);
    }

    fn give(&mut self, interface: usize, mut burst: Burst) {
        self.hosts[0][0][interface].tx(&mut self.pool, &mut burst).unwrap();
        settle(&mut self.workers);
    }

    /// Packets that the host of a side got, by worker and interface.
    fn got(&mut self, side: usize) -> Vec<(usize, usize, Vec<Frame>)> {
        let mut all = Vec::new();
        for (worker, interfaces) in self.hosts[side].iter_mut().enumerate() {
            for (interface, host) in interfaces.iter_mut().enumerate() {
                let mut burst = Burst::new();
                host.rx(&mut self.pool, &mut burst).unwrap();
                if !burst.is_empty() {
                    all.push((worker, interface, burst.drain().collect()));
                }
            }
        }
        all
    }

    fn numbers(&mut self, side: usize) -> Vec<(usize, usize, Vec<u64>)> {
        let mut all = Vec::new();
        for (worker, interface, frames) in self.got(side) {
            let numbers = frames.iter().map(|frame| read(frame).1).collect();
            frames.into_iter().for_each(|frame| self.pool.free(frame));
            all.push((worker, interface, numbers));
        }
        all
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.workers.iter().map(|worker| worker.stats().pipeline.drops.get(reason)).sum()
    }
}

#[test]
fn packets_of_an_interface_go_by_its_policies_to_the_same_one_of_the_peer() {
    let mut net = net();
    net.send(0, 0..3);
    assert_eq!(net.numbers(1), [(0, 0, vec![0, 1, 2])]);
    // Its SA is another worker's, where they come out too.
    net.send(1, 3..6);
    assert_eq!(net.numbers(1), [(1, 1, vec![3, 4, 5])]);
    assert!(
        net.workers.iter().all(|worker| worker.stats().pipeline.drops.iter().all(|(_, n)| n == 0))
    );
}

#[test]
fn packets_of_several_interfaces_in_one_burst_find_their_own_ways() {
    let mut net = net();
    // What worker 0 hands to worker 1, and what that receives itself, meets in one burst.
    for number in 0..8 {
        let mut burst = Burst::new();
        burst.push(frame(&mut net.pool, Side::A, 0, number, 100)).unwrap();
        let interface = (number % 2) as usize;
        let host = &mut net.hosts[0][(number / 4) as usize][interface];
        host.tx(&mut net.pool, &mut burst).unwrap();
    }
    settle(&mut net.workers);
    let mut got = net.numbers(1);
    got.iter_mut().for_each(|(_, _, numbers)| numbers.sort_unstable());
    assert_eq!(got, [(0, 0, vec![0, 2, 4, 6]), (1, 1, vec![1, 3, 5, 7])]);
}

/// The peer's interface 1 has no policies: what came through its SA is nowhere allowed, though the first
/// interface has a policy for the same networks.
#[test]
fn an_sa_brings_to_its_interface_only_what_the_policies_of_that_allow() {
    let mut net = net_with(|side, picture, spd| {
        let own = picture.spd_of_mut(spd).unwrap();
        let ids: Vec<_> = own.policies().map(|(id, _)| id).collect();
        ids.into_iter().filter(|_| side == Side::B).for_each(|id| drop(own.remove(id)));
    });
    net.send(1, 0..3);
    assert_eq!(net.numbers(1), []);
    assert_eq!(net.dropped(DropReason::InnerPolicyMismatch), 3);
    net.send(0, 3..4);
    assert_eq!(net.numbers(1), [(0, 0, vec![3])]);
}

/// A default route into an interface, and none to the peer.
#[test]
fn what_an_sa_sent_does_not_go_through_it_again() {
    let seen = RefCell::new(None);
    let mut net = net_with(|side, picture, spd| {
        let everything = Policy {
            name: "everything".into(),
            priority: 9,
            direction: Direction::Outbound,
            selector: Selector::default(),
            action: PolicyAction::Protect { reqid: ReqId(1) },
        };
        picture.spd_of_mut(spd).unwrap().insert(everything).unwrap();
        if side == Side::A {
            seen.replace(Some((picture.clone(), spd)));
        }
    });
    let (picture, spd) = seen.take().unwrap();
    let mut bytes = frame(&mut net.pool, Side::A, 0, 0, 100);
    bytes.data_mut()[12..20].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
    for (protocol, loops) in [(50, 1), (17, 1)] {
        let mut packet = net.pool.alloc().unwrap();
        packet.fill_from(bytes.data()).unwrap();
        packet.data_mut()[9] = protocol;
        let flow = parse_packet(packet.data()).unwrap().flow;
        // What is said of it is what becomes of it.
        for interface in [0, 1].map(InterfaceId) {
            let asked = trace::Packet { flow, len: packet.len(), dont_fragment: false, interface };
            let said = trace::outbound(&picture, spd, &asked, Now(0)).outcome.reason();
            let loops = (protocol, interface) == (50, InterfaceId(1));
            assert_eq!(said, loops.then_some(DropReason::RoutingLoop), "{protocol} {interface:?}");
        }
        let mut burst = Burst::new();
        burst.push(packet).unwrap();
        net.give(1, burst);
        // Others may go between the same addresses.
        assert_eq!(net.dropped(DropReason::RoutingLoop), loops, "protocol {protocol}");
    }
    net.pool.free(bytes);
}

#[test]
fn who_sent_through_an_interface_is_told_through_it_what_was_wrong() {
    let mut net = net();
    let mut last_hop = frame(&mut net.pool, Side::A, 0, 0, 100);
    last_hop.data_mut()[8] = 1;
    let mut burst = Burst::new();
    burst.push(last_hop).unwrap();
    net.give(1, burst);
    let told = net.got(0);
    let [(worker, interface, frames)] = &told[..] else { panic!("{told:?}") };
    // By the worker of the SA, through its own queue of the interface.
    assert_eq!((*worker, *interface, frames.len()), (1, 1, 1));
    assert_eq!((frames[0].data()[9], frames[0].data()[20]), (1, 11), "time exceeded");
    told.into_iter().flat_map(|(_, _, frames)| frames).for_each(|frame| net.pool.free(frame));
    assert_eq!(net.dropped(DropReason::TtlExpired), 1);
}
