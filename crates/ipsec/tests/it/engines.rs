//! The pipelines do not know whether their engine works at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::engine::{self, Mood, Moody};
use crate::common::{Pair, Setup, inner, pipeline_parts, protect_all, suite};
use convoy_crypto::{SealKey, SecretBytes};
use convoy_engine::lookaside::run_copy;
use convoy_engine::model::{Faults, Model, Settings};
use convoy_engine::{EngineKey, Front, Job, KeyId, Op, Status, Synchronous};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::pipeline::{Inbound, Outbound};
use convoy_ipsec::sa::{InboundSpec, OutboundSpec, ReqId, SaSlot, SaSpec};
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::{Direction, Policy, PolicyAction, Spd};
use convoy_packet::Burst;
use convoy_wire::Spi;

fn pair_with(setup: &Setup, seed: u64, mood: &Arc<Mood>) -> Pair {
    let mut pair = Pair::new(setup);
    let mut parts = pipeline_parts(pair.left_writer.published(), false, 0);
    parts.engine = Moody::front(seed, mood);
    parts.counters = pair.left_counters.clone();
    pair.left = Outbound::new(parts);
    let mut parts = pipeline_parts(pair.right_writer.published(), false, 0);
    parts.engine = Moody::front(seed, mood);
    parts.counters = pair.right_counters.clone();
    pair.right = Inbound::new(parts);
    pair
}

#[test]
fn an_asynchronous_engine_loses_and_reorders_nothing() {
    for seed in 1..20 {
        let mut pair = pair_with(&Setup::default(), seed, &Arc::default());
        let packets: Vec<_> = (0..1500).map(|n| inner(n % 3 == 0, n % 700)).collect();
        let (wire, _) = pair.protect(&packets);
        let numbers: Vec<_> = wire.iter().map(|packet| packet[24..28].to_vec()).collect();
        assert!(numbers.is_sorted());
        assert!(pair.open(&wire) == packets);
        pair.assert_no_leak();
    }
}

/// One suite of each kind; the matrix of all suites runs over each engine by `cargo xtask ci engines`.
#[test]
fn every_engine_makes_the_same_packets() {
    let of_aead = ["aes-128-gcm-16", "aes-256-gcm-8", "chacha20-poly1305", "aes-128-ccm-16"];
    let of_pairs = ["aes-128-cbc+hmac-sha1-96", "aes-128-ctr+hmac-sha256-128", "null+aes-xcbc-96"];
    let packets: Vec<_> = (0..600).map(|n| inner(n % 3 == 0, n % 1300)).collect();
    for name in of_aead.into_iter().chain(of_pairs).chain(["aes-256-gmac-16"]) {
        let mut first: Option<Vec<Vec<u8>>> = None;
        for engine in engine::NAMES {
            let setup = Setup { suite: suite(name), encap: true, ..Setup::default() };
            let (wire, opened) = engine::with(engine, || {
                let mut pair = Pair::new(&setup);
                let (wire, _) = pair.protect(&packets);
                let opened = pair.open(&wire);
                pair.assert_no_leak();
                (wire, opened)
            });
            assert!(opened == packets, "{name} over {engine}");
            // IVs of CBC are drawn at random.
            if name.contains("cbc") {
                continue;
            }
            match &first {
                Some(first) => assert!(*first == wire, "{name} over {engine}"),
                None => first = Some(wire),
            }
        }
    }
}

#[test]
fn a_key_that_an_engine_refuses_is_told_of() {
    for sessions in [0, 1] {
        // It finishes at once, for the clock of these tests stands still.
        let settings =
            Settings { sessions, latency: 0, jitter: 0, bandwidth: 0, ..Settings::default() };
        let front = || Front::with(Box::new(Model::new(settings, Faults::default())));
        let mut pair = Pair::new(&Setup::default());
        let mut parts = pipeline_parts(pair.left_writer.published(), false, 0);
        (parts.engine, parts.counters) = (front(), pair.left_counters.clone());
        pair.left = Outbound::new(parts);
        let mut parts = pipeline_parts(pair.right_writer.published(), false, 0);
        (parts.engine, parts.counters) = (front(), pair.right_counters.clone());
        pair.right = Inbound::new(parts);
        let packets = vec![inner(false, 100); 50];
        let (wire, _) = pair.protect(&packets);
        assert!(pair.open(&wire) == packets);
        let told = [&pair.out.counters, &pair.inn.counters].map(|c| c.refused_by_engine.get());
        assert_eq!(told, [1 - sessions as u64; 2]);
        pair.assert_no_leak();
    }
}

/// Software, but for one job in ten.
#[derive(Debug, Default)]
struct Choosy(Vec<(KeyId, EngineKey)>);

impl Synchronous for Choosy {
    fn install(&mut self, id: KeyId, key: EngineKey) {
        self.0.push((id, key));
    }
    fn remove(&mut self, id: KeyId) {
        self.0.retain(|(other, _)| *other != id);
    }
    fn run(&mut self, jobs: &mut [Job]) {
        for job in jobs {
            job.status = Status::Rejected;
            if let Some((_, key)) = self.0.iter().find(|(id, _)| *id == job.key)
                && !job.context.value.is_multiple_of(10)
            {
                let mut packet = job.frame.data().to_vec();
                job.status = run_copy(key, job, &mut packet);
                job.frame.data_mut().copy_from_slice(&packet);
            }
            job.op = Op::Spent;
        }
    }
}

#[test]
fn what_a_synchronous_engine_rejects_is_dropped_under_its_reason() {
    let mut pair = Pair::new(&Setup::default());
    let mut parts = pipeline_parts(pair.left_writer.published(), false, 0);
    parts.engine = Front::synchronous(Box::<Choosy>::default());
    parts.counters = pair.left_counters.clone();
    pair.left = Outbound::new(parts);
    let packets: Vec<_> = (0..1000).map(|n| inner(false, n % 700)).collect();
    let (wire, _) = pair.protect(&packets);
    assert_eq!((wire.len(), pair.refused(DropReason::EngineRejected)), (900, 100));
    assert_eq!(pair.open(&wire).len(), 900);
    pair.assert_no_leak();
}

#[test]
fn a_packet_without_room_for_esp_is_dropped_under_its_reason() {
    let mut pair = Pair::new(&Setup::default());
    let mut frame = pair.pool.alloc().unwrap();
    // The packet stands at the very front of its frame.
    while frame.grow_front(1).is_ok() {}
    frame.truncate(0);
    frame.grow_back(100).unwrap().copy_from_slice(&inner(false, 72));
    let mut input = Burst::new();
    input.push(frame).unwrap();
    pair.left.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    assert_eq!(pair.refused(DropReason::NoFrame), 1);
    assert_eq!(pair.out.lease.used().get(), 0, "and no number was used for it");
    pair.assert_no_leak();
}

/// A pair whose engines take nothing while they are closed, as they are at first.
fn gated_pair(setup: &Setup) -> (Pair, Arc<Mood>) {
    let mood = Arc::new(Mood { closed: true.into(), ..Mood::default() });
    (pair_with(setup, 0, &mood), mood)
}

fn burst(pair: &mut Pair, packets: &[Vec<u8>]) -> Burst {
    let mut burst = Burst::new();
    for packet in packets {
        let mut frame = pair.pool.alloc().unwrap();
        frame.fill_from(packet).unwrap();
        burst.push(frame).unwrap();
    }
    burst
}

/// A packet that waits for the engine keeps the SA it was classified for, whatever comes to that
/// SA's slot: another key would see the old SA's nonce, and another peer the packet.
#[test]
fn packets_that_wait_while_their_slot_changes_hands_keep_their_sa() {
    let setup = Setup { esn: false, ..Setup::default() };
    let (mut pair, mood) = gated_pair(&setup);
    let packets: Vec<_> = (0..256).map(|n| inner(false, n)).collect();
    // The first burst is laid out and waits for the engine, the second only classified.
    for _ in 0..2 {
        let mut input = burst(&mut pair, &packets);
        pair.left.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
        assert!(input.is_empty());
    }
    let other = SecretBytes::copy_from(&[0x99; 16]);
    let new = Arc::new(OutboundSpec {
        sa: SaSpec { spi: Spi::new(0x2002).unwrap(), ..setup.outbound().sa },
        key: Arc::new(SealKey::new(&crate::common::cpu(), setup.suite, other).unwrap()).into(),
        ..setup.outbound()
    });
    let mut snapshot = Snapshot::new(protect_all(Direction::Outbound));
    snapshot.add_outbound(SaSlot(0), new.clone()).unwrap();
    pair.left_writer.publish(snapshot);
    pair.left.submit(pair.now, &mut pair.pool, &mut Burst::new(), &mut pair.handoff);

    mood.closed.store(false, Ordering::Relaxed);
    let (wire, _) = pair.protect(&packets[..3]);
    let spi = |packet: &Vec<u8>| u32::from_be_bytes(packet[20..24].try_into().unwrap());
    let (before, after) = wire.split_at(512);
    assert!(before.iter().all(|packet| spi(packet) == crate::common::SPI));
    assert_eq!(pair.open(before).len(), 512, "all were sealed with their own key");
    assert!(after.len() == 3 && after.iter().all(|packet| spi(packet) == 0x2002));
    assert_eq!((pair.out.counters.sequence.get(), new.counters.sequence.get()), (512, 3));
    pair.assert_no_leak();
}

#[test]
fn packets_on_their_way_in_survive_a_changed_record() {
    for in_engine in [false, true] {
        let setup = Setup::default();
        let (mut pair, mood) = gated_pair(&setup);
        mood.closed.store(false, Ordering::Relaxed);
        let packets: Vec<_> = (0..100).map(|n| inner(false, n)).collect();
        let (wire, _) = pair.protect(&packets);

        mood.closed.store(!in_engine, Ordering::Relaxed);
        let mut input = burst(&mut pair, &wire);
        pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
        let changed = InboundSpec {
            sa: SaSpec {
                reqid: ReqId(1),
                counters: pair.inn.counters.clone(),
                ..setup.inbound().sa
            },
            ecn: false,
            ..setup.inbound()
        };
        let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
        snapshot.add_inbound(SaSlot(0), Arc::new(changed)).unwrap();
        pair.right_writer.publish(snapshot);
        pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
        mood.closed.store(false, Ordering::Relaxed);
        assert!(pair.open(&[]) == packets, "in engine: {in_engine}");
        assert!(pair.open(&wire).is_empty(), "and the window knows them");
        pair.assert_no_leak();
    }
}

/// Another SA for the slot of the first one, or for the next, with the same key.
fn other_sa(setup: &Setup) -> Arc<InboundSpec> {
    Arc::new(InboundSpec {
        sa: SaSpec { spi: Spi::new(0x2002).unwrap(), ..setup.inbound().sa },
        ..setup.inbound()
    })
}

fn publish_inbound(pair: &mut Pair, sas: &[(u32, &Arc<InboundSpec>)]) {
    let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
    for (slot, sa) in sas {
        snapshot.add_inbound(SaSlot(*slot), Arc::clone(sa)).unwrap();
    }
    pair.right_writer.publish(snapshot);
}

fn with_spi(packet: &[u8], spi: u32) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[20..24].copy_from_slice(&spi.to_be_bytes());
    packet
}

/// A packet is opened with the key of the SA that it was found for, and those of the SA that takes its slot
/// wait.
#[test]
fn packets_that_wait_while_their_slot_changes_hands_are_opened_for_their_sa() {
    for in_engine in [false, true] {
        let setup = Setup::default();
        let (mut pair, mood) = gated_pair(&setup);
        mood.closed.store(false, Ordering::Relaxed);
        let (wire, _) = pair.protect(&vec![inner(false, 10); 5]);
        mood.closed.store(!in_engine, Ordering::Relaxed);
        mood.holding.store(in_engine, Ordering::Relaxed);
        let mut input = burst(&mut pair, &wire);
        pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
        let other = other_sa(&setup);
        publish_inbound(&mut pair, &[(0, &other)]);
        let mut input = burst(&mut pair, &[with_spi(&wire[0], 0x2002)]);
        pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
        assert_eq!(input.len(), 1, "it waits");
        mood.closed.store(false, Ordering::Relaxed);
        mood.holding.store(false, Ordering::Relaxed);
        assert_eq!(pair.open(&[]).len(), 5);
        assert_eq!((pair.inn.counters.floor.get().get(), other.counters.floor.get().get()), (5, 0));
        pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
        assert!(input.is_empty());
        assert_eq!(pair.open(&[]).len(), 0, "its ICV is of another SPI");
        assert_eq!(pair.dropped(DropReason::BadIcv), 1);
        pair.assert_no_leak();
    }
}

/// A reload may give a group of SAs another number, in policies and SAs at once.
#[test]
fn packets_under_way_are_judged_by_the_picture_that_they_met() {
    let setup = Setup::default();
    let (mut pair, mood) = gated_pair(&setup);
    mood.closed.store(false, Ordering::Relaxed);
    let (wire, _) = pair.protect(&vec![inner(false, 10); 9]);
    mood.holding.store(true, Ordering::Relaxed);
    let mut input = burst(&mut pair, &wire[..5]);
    pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    let counters = pair.inn.counters.clone();
    let renumbered = |reqid| {
        let policy = |policy: Policy| Policy {
            action: PolicyAction::Protect { reqid: ReqId(reqid) },
            ..policy
        };
        let spd = protect_all(Direction::Inbound);
        let policies = spd.policies().map(|(_, old)| policy(Policy::clone(old)));
        let mut snapshot = Snapshot::new(Spd::new(policies).unwrap());
        let counters = counters.clone();
        let sa = InboundSpec {
            sa: SaSpec { reqid: ReqId(reqid), counters, ..setup.inbound().sa },
            ..setup.inbound()
        };
        snapshot.add_inbound(SaSlot(0), Arc::new(sa)).unwrap();
        snapshot
    };
    for reqid in [7, 8] {
        pair.right_writer.publish(renumbered(reqid));
        let mut none = Burst::new();
        pair.right.submit(pair.now, &mut pair.pool, &mut none, &mut pair.handoff);
    }
    mood.holding.store(false, Ordering::Relaxed);
    assert_eq!(pair.open(&wire[5..7]).len(), 7, "of both numbers");
    // Nothing is under way any more that met the first numbers.
    let mut other = Snapshot::new(protect_all(Direction::Inbound));
    other.add_inbound(SaSlot(0), renumbered(8).inbound(SaSlot(0)).unwrap().clone()).unwrap();
    pair.right_writer.publish(other);
    assert_eq!(pair.open(&wire[7..]).len(), 0);
    assert_eq!(pair.dropped(DropReason::InnerPolicyMismatch), 2);
    pair.assert_no_leak();
}

/// The window goes along, and what is under way still moves it.
#[test]
fn an_sa_that_moves_to_another_slot_accepts_no_packet_twice() {
    let setup = Setup::default();
    let (mut pair, mood) = gated_pair(&setup);
    mood.closed.store(false, Ordering::Relaxed);
    let (wire, _) = pair.protect(&vec![inner(false, 10); 5]);
    mood.holding.store(true, Ordering::Relaxed);
    let mut input = burst(&mut pair, &wire);
    pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    let moved = pair.inn.clone();
    publish_inbound(&mut pair, &[(1, &moved)]);
    let mut input = burst(&mut pair, &wire);
    pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    assert_eq!(input.len(), 5, "they wait");
    mood.holding.store(false, Ordering::Relaxed);
    assert_eq!(pair.open(&[]).len(), 5);
    pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    assert_eq!((input.len(), pair.open(&[]).len()), (0, 0));
    assert_eq!(pair.inn.counters.replayed.get(), 5);
    pair.assert_no_leak();
}

/// Rekeying does not wait for an engine: SAs come at once, and one that goes takes nothing more, while its
/// last packets come out.
#[test]
fn sas_come_and_go_while_packets_are_with_the_engine() {
    let setup = Setup::default();
    let (mut pair, mood) = gated_pair(&setup);
    mood.closed.store(false, Ordering::Relaxed);
    let (wire, _) = pair.protect(&vec![inner(false, 10); 9]);
    mood.holding.store(true, Ordering::Relaxed);
    let mut input = burst(&mut pair, &wire[..4]);
    pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    assert_eq!(pair.right.in_flight(), 4);

    let (first, other) = (pair.inn.clone(), other_sa(&setup));
    let before = pair.right.generation();
    publish_inbound(&mut pair, &[(0, &first), (1, &other)]);
    let mut input = burst(&mut pair, &[wire[4].clone(), with_spi(&wire[5], 0x2002)]);
    pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    assert_eq!((pair.right.in_flight(), input.len()), (6, 0), "both are known");

    publish_inbound(&mut pair, &[(1, &other)]);
    let mut input = burst(&mut pair, &wire[6..8]);
    pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    assert_eq!((pair.right.in_flight(), pair.dropped(DropReason::UnknownSpi)), (6, 2));
    pair.right.collect(pair.now, &mut pair.pool, &mut Burst::new());
    assert_eq!(pair.right.generation(), before, "some under way met the first snapshot");
    mood.holding.store(false, Ordering::Relaxed);
    assert_eq!(pair.open(&[]).len(), 5);
    assert_eq!(pair.right.generation(), before + 3, "all have met the last one");
    assert_eq!(pair.open(&wire[8..]).len(), 0);
    assert_eq!(pair.dropped(DropReason::UnknownSpi), 3);
    assert_eq!(first.counters.floor.get().get(), 5);

    // One that was about to go and stays takes packets again.
    publish_inbound(&mut pair, &[(0, &first), (1, &other)]);
    assert_eq!(pair.open(&wire[5..6]).len(), 1);
    mood.holding.store(true, Ordering::Relaxed);
    let mut input = burst(&mut pair, &wire[6..7]);
    pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    for sas in [&[(1, &other)][..], &[(0, &first), (1, &other)]] {
        publish_inbound(&mut pair, sas);
        pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    }
    mood.holding.store(false, Ordering::Relaxed);
    assert_eq!(pair.open(&wire[7..8]).len(), 2);
    pair.assert_no_leak();
}

#[test]
fn a_worker_that_ends_gives_back_all_that_its_engines_hold() {
    let (mut pair, mood) = gated_pair(&Setup::default());
    mood.closed.store(false, Ordering::Relaxed);
    let packets: Vec<_> = (0..256).map(|n| inner(false, n)).collect();
    let mut wire = burst(&mut pair, &packets[..250]);
    // The wire takes a few packets only, so finished ones pile up behind it and in the engine.
    for _ in 0..3 {
        let mut input = burst(&mut pair, &packets);
        pair.left.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
        pair.left.collect(pair.now, &mut pair.pool, &mut wire, &mut Burst::new());
        input.release(&mut pair.pool);
    }
    let mut plain = burst(&mut pair, &packets[..250]);
    let (sealed, _) = Pair::new(&Setup::default()).protect(&vec![inner(false, 10); 600]);
    for part in sealed.chunks(200) {
        let mut input = burst(&mut pair, part);
        pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
        pair.right.collect(pair.now, &mut pair.pool, &mut plain);
        input.release(&mut pair.pool);
    }
    assert!(pair.left.in_flight() > 256 && pair.right.in_flight() > 256);
    assert_eq!(pair.left.release(pair.now, &mut pair.pool), 0);
    assert_eq!(pair.right.release(pair.now, &mut pair.pool), 0);
    assert_eq!((pair.left.in_flight(), pair.right.in_flight()), (0, 0));
    wire.release(&mut pair.pool);
    plain.release(&mut pair.pool);
    pair.assert_no_leak();
}
