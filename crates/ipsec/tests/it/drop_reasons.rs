//! Every drop reason is raised: one case for each, and a reason without a case fails.
//!
//! Other tests say when exactly a reason is right; this one says that it can come at all, alone, and
//! that no frame is lost with it.

use std::sync::Arc;

use crate::common::{Pair, Setup, inner, inner_with, protect_all, sealed, spd, text};
use convoy_engine::{EngineKey, Front, Job, KeyId, Status, Synchronous};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::lifetime::{Lifetime, Limits};
use convoy_ipsec::pipeline::Outbound;
use convoy_ipsec::sa::{IpsecProtocol, Mode, OutboundSpec, ReqId, SaSlot, SaSpec, WorkerId};
use convoy_ipsec::selector::Selector;
use convoy_ipsec::sequence::SequenceLimits;
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::{Direction, Policy, PolicyAction, Spd};
use convoy_packet::Burst;

/// Way to raise a reason.
enum Case {
    /// These packets of the plain side, between gateways set up so.
    Plain(Setup, Vec<Vec<u8>>),
    /// These packets of the wire, likewise.
    Wire(Setup, Vec<Vec<u8>>),
    /// Something that takes more than packets; drops them for the reason and nothing else.
    Play(fn() -> Pair),
    /// Only the worker around the pipelines raises it: the test file there that does.
    Worker(&'static str),
}

#[test]
fn every_reason_is_raised_alone() {
    for &reason in DropReason::ALL {
        match case(reason) {
            Case::Plain(setup, packets) => {
                let mut pair = Pair::new(&setup);
                pair.protect(&packets);
                judge(reason, pair);
            }
            Case::Wire(setup, packets) => {
                let mut pair = Pair::new(&setup);
                pair.open(&packets);
                judge(reason, pair);
            }
            Case::Play(play) => judge(reason, play()),
            Case::Worker(file) => {
                let named = format!("DropReason::{reason:?}");
                assert!(file.contains(&named), "no test of the worker asserts {named}");
            }
        }
    }
}

fn judge(reason: DropReason, mut pair: Pair) {
    pair.left.release(pair.now, &mut pair.pool);
    pair.right.release(pair.now, &mut pair.pool);
    for &other in DropReason::ALL {
        let dropped = pair.refused(other) + pair.dropped(other);
        assert_eq!(dropped > 0, other == reason, "{other:?} in the case of {reason:?}");
    }
    pair.assert_no_leak();
}

/// The case of a reason. A new reason has its case here.
fn case(reason: DropReason) -> Case {
    use Case::{Plain, Play, Wire, Worker};
    const WIRE_DROPS: &str = include_str!("../../../runtime/tests/it/wire_drops.rs");
    let usual = Setup::default();
    let transport = Setup { mode: Mode::Transport, ..usual.clone() };
    let encap = Setup { encap: true, ..usual.clone() };
    let good = inner(false, 50);
    let opened = |next, packet: &[u8]| vec![sealed(&usual, 1, &text(packet, next), 0)];
    match reason {
        DropReason::IpTruncated => Plain(usual, vec![good[..10].to_vec()]),
        DropReason::IpVersion => Plain(usual, vec![changed(&good, 0, 0x55)]),
        DropReason::IpHeaderLength => Plain(usual, vec![changed(&good, 0, 0x44)]),
        DropReason::IpTotalLength => Plain(usual, vec![changed(&good, 3, 200)]),
        DropReason::ExtensionHeaders => Plain(usual, vec![endless_extensions()]),
        DropReason::BadFragment => Plain(usual, vec![changed(&good, 6, 0x3f)]),
        DropReason::UpperTruncated => Plain(usual, vec![without_ports(&good)]),
        DropReason::NoPolicy => Play(|| left_under(Spd::default())),
        DropReason::LinkLocal => Play(|| {
            let mut pair = Pair::new(&Setup::default());
            pair.left_writer.publish(Snapshot::default());
            pair.protect(&[inner_with(true, "fe80::1", "ff02::2", &[], 0)]);
            pair
        }),
        DropReason::PolicyDiscard => Play(|| left_under(all(PolicyAction::Discard))),
        DropReason::NoSa => Play(|| left_under(protect_all(Direction::Outbound))),
        DropReason::AcquireTimeout => Play(|| on_demand(1)),
        DropReason::AcquireFull => Play(|| {
            let mut pair = on_demand(65);
            // The 64 that waited go out; only what found no room is lost.
            let mut snapshot = Snapshot::new(protect_all(Direction::Outbound));
            snapshot.add_outbound(SaSlot(0), pair.out.clone()).unwrap();
            pair.left_writer.publish(snapshot);
            pair.protect(&[]);
            pair
        }),
        DropReason::IpChecksum
        | DropReason::BypassImpossible
        | DropReason::IoTxFailed
        | DropReason::IoTxTooBig
        | DropReason::NotForwardable => Worker(WIRE_DROPS),
        DropReason::SequenceExhausted => {
            let start = SequenceLimits::new(false).hard.get() + 1;
            Plain(Setup { esn: false, start, ..usual }, vec![good])
        }
        DropReason::LeaseExhausted => Plain(Setup { granted: 1, ..usual }, vec![good]),
        DropReason::SourceAbsent => Plain(Setup { source_is_here: false, ..usual }, vec![good]),
        DropReason::LifetimeExpired => {
            let hard = Limits { packets: Some(1), ..Limits::default() };
            let lifetime = Lifetime { hard, ..Lifetime::default() };
            Plain(Setup { lifetime, ..usual }, vec![good; 2])
        }
        DropReason::TooBig => Plain(Setup { path_mtu: 1400, ..usual }, vec![inner(true, 1400)]),
        DropReason::TtlExpired => {
            Plain(Setup { decrement_ttl: true, ..usual }, vec![changed(&good, 8, 1)])
        }
        DropReason::TransportFragment => {
            let packet = inner_with(false, "192.0.2.1", "192.0.2.2", &[0; 64], 0);
            Plain(transport, vec![changed(&packet, 6, 0x20)])
        }
        DropReason::TransportAddress => Plain(transport, vec![good]),
        DropReason::NotEsp => Wire(usual, vec![changed(&good, 9, 6)]),
        DropReason::FragmentTimeout => Wire(usual.clone(), vec![esp_part(&usual, 0, 1)]),
        DropReason::FragmentsFull => Play(|| {
            let mut pair = Pair::new(&Setup::default());
            let gaps = (0..17).map(|n| esp_part(&Setup::default(), 2 * n, 1));
            pair.open(&gaps.collect::<Vec<_>>());
            pair
        }),
        DropReason::FragmentOverlap => Play(|| {
            let mut pair = Pair::new(&Setup::default());
            let mut second = esp_part(&Setup::default(), 1, 1);
            second[20] ^= 1;
            // The first eight bytes of the second part again, with others behind them.
            let setup = Setup::default();
            pair.open(&[long_part(&setup), second]);
            pair
        }),
        DropReason::FragmentDuplicate => Play(|| {
            let mut pair = Pair::new(&Setup::default());
            let (wire, _) = pair.protect(&[inner(false, 100)]);
            let cuts = halves(&wire[0]);
            assert_eq!(pair.open(&[cuts[0].clone(), cuts[0].clone(), cuts[1].clone()]).len(), 1);
            pair
        }),
        DropReason::ReassemblyTooBig => Wire(usual.clone(), vec![esp_part(&usual, 5000, 1)]),
        DropReason::FragmentOnWire => {
            // TCP in a fragment of whole eight bytes.
            Wire(usual, vec![changed(&changed(&inner(false, 48), 9, 6), 6, 0x20)])
        }
        DropReason::NatKeepalive => Wire(encap, vec![udp_4500(&[0xff])]),
        DropReason::IkeMessage => Wire(encap, vec![udp_4500(&[0, 0, 0, 0, 1])]),
        DropReason::EspLength => Wire(encap, vec![udp_4500(&[1, 2])]),
        DropReason::AhLength => Play(|| {
            let mut pair = Pair::new(&ah(Mode::Tunnel));
            let (wire, _) = pair.protect(&[inner(false, 9)]);
            pair.open(&[changed(&wire[0], 21, 200)]);
            pair
        }),
        DropReason::AhOptions => {
            let packet = inner_with(false, "192.0.2.1", "192.0.2.2", b"options", 0);
            let mut packet = [&packet[..20], &[1, 1, 1, 1], &packet[20..]].concat();
            let len = packet.len() as u8;
            (packet[0], packet[3]) = (0x46, len);
            Plain(ah(Mode::Transport), vec![packet])
        }
        DropReason::EncapMismatch => Wire(encap, opened(4, &good)),
        DropReason::UnknownSpi => Wire(usual.clone(), vec![changed(&opened(4, &good)[0], 20, 9)]),
        DropReason::Replayed => {
            let packet = opened(4, &good).remove(0);
            Wire(usual, vec![packet; 2])
        }
        DropReason::TooOld => {
            let setup = Setup { esn: false, ..usual };
            let packet = |seq| sealed(&setup, seq, &text(&good, 4), 0);
            let packets = vec![packet(5000), packet(1)];
            Wire(setup, packets)
        }
        DropReason::BadIcv => {
            let mut packet = opened(4, &good).remove(0);
            *packet.last_mut().unwrap() ^= 1;
            Wire(usual, vec![packet])
        }
        DropReason::BadPadding => Wire(usual.clone(), vec![sealed(&usual, 1, &[0, 0, 250, 4], 0)]),
        DropReason::BadNextHeader => Wire(usual.clone(), opened(6, &good)),
        DropReason::DummyPacket => Wire(usual.clone(), opened(59, &good)),
        DropReason::InnerMalformed => Wire(usual.clone(), opened(4, &good[..30])),
        DropReason::InnerPolicyMismatch => Play(|| {
            let (out, none) = (protect_all(Direction::Outbound), Spd::default());
            let mut pair = Pair::with(&Setup::default(), out, none);
            let (wire, _) = pair.protect(&[inner(false, 9)]);
            pair.open(&wire);
            pair
        }),
        DropReason::EcnDrop => {
            // Congestion outside, a transport inside that cannot hear of it.
            let packet = sealed(&usual, 1, &text(&good, 4), 3);
            Wire(usual, vec![packet])
        }
        DropReason::EngineRejected => Play(refusing_engine),
        DropReason::NoFrame => Play(no_headroom),
        DropReason::RingFull => Play(|| {
            let mut pair = Pair::new(&Setup::default());
            let lease = pair.out.lease.clone();
            let spec = OutboundSpec {
                sa: SaSpec { worker: WorkerId(9), ..Setup::default().outbound().sa },
                lease,
                ..Setup::default().outbound()
            };
            let mut snapshot = Snapshot::new(protect_all(Direction::Outbound));
            snapshot.add_outbound(SaSlot(0), Arc::new(spec)).unwrap();
            pair.left_writer.publish(snapshot);
            pair.protect(&[inner(false, 9)]);
            pair
        }),
        DropReason::RoutingLoop => Worker(include_str!("../../../runtime/tests/it/interfaces.rs")),
        other => panic!("{other:?} has no case: add one that raises it"),
    }
}

fn ah(mode: Mode) -> Setup {
    let suite = crate::common::suite("null+hmac-sha256-128");
    Setup { protocol: IpsecProtocol::Ah, suite, mode, ..Setup::default() }
}

fn changed(packet: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[at] = byte;
    packet
}

fn all(action: PolicyAction) -> Spd {
    let selector = Selector::default();
    let direction = Direction::Outbound;
    spd(vec![Policy { name: "all".into(), priority: 0, direction, selector, action }])
}

/// Sends one packet under these policies, without an SA.
fn left_under(policies: Spd) -> Pair {
    let mut pair = Pair::new(&Setup::default());
    pair.left_writer.publish(Snapshot::new(policies));
    pair.protect(&[inner(false, 9)]);
    pair
}

/// Sends `n` packets that wait for an SA.
fn on_demand(n: usize) -> Pair {
    let mut pair = Pair::new(&Setup::default());
    let mut snapshot = Snapshot::new(protect_all(Direction::Outbound));
    snapshot.make_on_demand(ReqId(1));
    pair.left_writer.publish(snapshot);
    pair.protect(&vec![inner(false, 9); n]);
    pair
}

/// An IPv6 packet with more destination options headers than anybody needs.
fn endless_extensions() -> Vec<u8> {
    let mut packet = inner(true, 0)[..40].to_vec();
    packet[6] = 60;
    for _ in 0..64 {
        packet.extend([60, 0, 1, 4, 0, 0, 0, 0]);
    }
    let len = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet
}

/// UDP with room for one port.
fn without_ports(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet[..22].to_vec();
    packet[2..4].copy_from_slice(&22_u16.to_be_bytes());
    packet
}

fn udp_4500(payload: &[u8]) -> Vec<u8> {
    let mut packet = inner_with(false, "192.0.2.1", "192.0.2.2", payload, 0);
    packet[22..24].copy_from_slice(&4500_u16.to_be_bytes());
    packet
}

/// Eight bytes of an ESP packet as a fragment, `at` times eight bytes from its start.
fn esp_part(setup: &Setup, at: u16, ident: u16) -> Vec<u8> {
    let mut packet = sealed(setup, 1, &text(&inner(false, 50), 4), 0)[..28].to_vec();
    packet[2..4].copy_from_slice(&28_u16.to_be_bytes());
    packet[4..6].copy_from_slice(&ident.to_be_bytes());
    packet[6..8].copy_from_slice(&(0x2000 | at).to_be_bytes());
    packet
}

/// The first 24 bytes in one fragment.
fn long_part(setup: &Setup) -> Vec<u8> {
    let mut packet = sealed(setup, 1, &text(&inner(false, 50), 4), 0)[..44].to_vec();
    packet[2..4].copy_from_slice(&44_u16.to_be_bytes());
    packet[4..6].copy_from_slice(&1_u16.to_be_bytes());
    packet[6..8].copy_from_slice(&0x2000_u16.to_be_bytes());
    packet
}

/// An IPv4 packet in two fragments.
fn halves(packet: &[u8]) -> [Vec<u8>; 2] {
    let middle = 20 + 64;
    let mut first = packet[..middle].to_vec();
    let mut second = [&packet[..20], &packet[middle..]].concat();
    for (part, flags) in [(&mut first, 0x2000_u16), (&mut second, 8)] {
        let len = part.len() as u16;
        part[2..4].copy_from_slice(&len.to_be_bytes());
        part[6..8].copy_from_slice(&flags.to_be_bytes());
    }
    [first, second]
}

/// Gives every job back undone.
#[derive(Debug)]
struct Refusing;

impl Synchronous for Refusing {
    fn install(&mut self, _: KeyId, _: EngineKey) {}
    fn remove(&mut self, _: KeyId) {}
    fn run(&mut self, jobs: &mut [Job]) {
        jobs.iter_mut().for_each(|job| job.status = Status::Rejected);
    }
}

fn refusing_engine() -> Pair {
    let mut pair = Pair::new(&Setup::default());
    let mut parts = crate::common::pipeline_parts(pair.left_writer.published(), false, 0);
    parts.engine = Front::synchronous(Box::new(Refusing));
    parts.counters = pair.left_counters.clone();
    pair.left = Outbound::new(parts);
    pair.protect(&[inner(false, 9)]);
    pair
}

/// A packet at the very front of its frame.
fn no_headroom() -> Pair {
    let mut pair = Pair::new(&Setup::default());
    let mut frame = pair.pool.alloc().unwrap();
    while frame.grow_front(1).is_ok() {}
    frame.truncate(0);
    frame.grow_back(100).unwrap().copy_from_slice(&inner(false, 72));
    let mut input = Burst::new();
    input.push(frame).unwrap();
    pair.left.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    pair
}
