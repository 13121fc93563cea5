//! The pipelines do not know whether their engine works at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Pair, Setup, inner, pipeline_parts, protect_all};
use convoy_crypto::{OpenKey, SealKey, SecretBytes};
use convoy_engine::{Caps, Engine, EngineKey, Inline, Job, JobBurst, KeyId, Op, Status};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::pipeline::{Inbound, Outbound};
use convoy_ipsec::sa::{InboundSpec, OutboundSpec, ReqId, SaSlot};
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::Direction;
use convoy_packet::Burst;
use convoy_wire::Spi;

/// Takes what it likes, finishes when it likes and in any order; refuses one job in `refuses`.
#[derive(Debug)]
struct Moody {
    inline: Inline,
    held: Vec<Job>,
    random: u64,
    refuses: u64,
}

impl Moody {
    fn boxed(random: u64, refuses: u64) -> Box<dyn Engine> {
        Box::new(Self { inline: Inline::new(), held: Vec::new(), random, refuses })
    }

    fn next(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random as usize
    }
}

impl Engine for Moody {
    fn caps(&self) -> Caps {
        Caps { max_in_flight: 700, in_order: false }
    }
    fn install(&mut self, id: KeyId, key: EngineKey) {
        self.inline.install(id, key);
    }
    fn remove(&mut self, id: KeyId) {
        self.inline.remove(id);
    }
    fn submit(&mut self, jobs: &mut JobBurst) -> usize {
        let n = (self.next() % (jobs.len() + 1)).min(700 - self.held.len());
        let mut taken = JobBurst::new();
        for mut job in jobs.drain_front(n) {
            if self.refuses > 0 && self.random % self.refuses == job.context.value % self.refuses {
                job.op = Op::Spent;
            }
            taken.push(job).unwrap();
        }
        self.inline.submit(&mut taken);
        self.inline.poll(&mut taken);
        self.held.extend(taken.drain());
        n
    }
    fn poll(&mut self, done: &mut JobBurst) -> usize {
        let mut n = 0;
        while !self.held.is_empty() && done.room() > 0 && !self.next().is_multiple_of(50) {
            let at = self.next() % self.held.len();
            assert_ne!(self.held[at].status, Status::Pending);
            done.push(self.held.swap_remove(at)).unwrap();
            n += 1;
        }
        n
    }
}

fn moody_pair(seed: u64, refuses: u64) -> Pair {
    let mut pair = Pair::new(&Setup::default());
    let mut parts = pipeline_parts(&pair.left_published, false, 0);
    parts.engine = Moody::boxed(seed, refuses);
    parts.counters = pair.left_counters.clone();
    pair.left = Outbound::new(parts);
    let mut parts = pipeline_parts(&pair.right_published, false, 0);
    parts.engine = Moody::boxed(seed + 1, 0);
    parts.counters = pair.right_counters.clone();
    pair.right = Inbound::new(parts);
    pair
}

#[test]
fn an_asynchronous_engine_loses_and_reorders_nothing() {
    for seed in 1..20 {
        let mut pair = moody_pair(seed, 0);
        let packets: Vec<_> = (0..1500).map(|n| inner(n % 3 == 0, n % 700)).collect();
        let (wire, _) = pair.protect(&packets);
        let numbers: Vec<_> = wire.iter().map(|packet| packet[24..28].to_vec()).collect();
        assert!(numbers.is_sorted());
        assert!(pair.open(&wire) == packets);
        pair.assert_no_leak();
    }
}

#[test]
fn what_an_engine_refuses_is_dropped_under_its_reason() {
    let mut pair = moody_pair(3, 10);
    let packets: Vec<_> = (0..1000).map(|n| inner(false, n % 700)).collect();
    let (wire, _) = pair.protect(&packets);
    let refused = pair.refused(DropReason::EngineRejected);
    assert!(refused > 0);
    assert_eq!(wire.len() as u64 + refused, 1000);
    assert_eq!(pair.open(&wire).len(), wire.len());
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

/// Takes nothing while it is closed.
#[derive(Debug)]
struct Gate {
    inline: Inline,
    closed: Arc<AtomicBool>,
}

impl Engine for Gate {
    fn caps(&self) -> Caps {
        self.inline.caps()
    }
    fn install(&mut self, id: KeyId, key: EngineKey) {
        self.inline.install(id, key);
    }
    fn remove(&mut self, id: KeyId) {
        self.inline.remove(id);
    }
    fn submit(&mut self, jobs: &mut JobBurst) -> usize {
        if self.closed.load(Ordering::Relaxed) { 0 } else { self.inline.submit(jobs) }
    }
    fn poll(&mut self, done: &mut JobBurst) -> usize {
        self.inline.poll(done)
    }
}

fn gated_pair(setup: &Setup) -> (Pair, Arc<AtomicBool>) {
    let closed = Arc::new(AtomicBool::new(true));
    let gate = || Box::new(Gate { inline: Inline::new(), closed: closed.clone() });
    let mut pair = Pair::new(setup);
    let mut parts = pipeline_parts(&pair.left_published, false, 0);
    parts.engine = gate();
    parts.counters = pair.left_counters.clone();
    pair.left = Outbound::new(parts);
    let mut parts = pipeline_parts(&pair.right_published, false, 0);
    parts.engine = gate();
    parts.counters = pair.right_counters.clone();
    pair.right = Inbound::new(parts);
    (pair, closed)
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
    let (mut pair, closed) = gated_pair(&setup);
    let packets: Vec<_> = (0..256).map(|n| inner(false, n)).collect();
    // The first burst is laid out and waits for the engine, the second only classified.
    for _ in 0..2 {
        let mut input = burst(&mut pair, &packets);
        pair.left.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
        assert!(input.is_empty());
    }
    let other = SecretBytes::copy_from(&[0x99; 16]);
    let new = Arc::new(OutboundSpec {
        spi: Spi::new(0x2002).unwrap(),
        key: Arc::new(SealKey::new(&crate::common::cpu(), setup.suite, other).unwrap()),
        ..setup.outbound()
    });
    let mut snapshot = Snapshot::new(protect_all(Direction::Outbound));
    snapshot.add_outbound(SaSlot(0), new.clone()).unwrap();
    pair.left_published.publish(snapshot);
    pair.left.submit(pair.now, &mut pair.pool, &mut Burst::new(), &mut pair.handoff);

    closed.store(false, Ordering::Relaxed);
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
        let (mut pair, closed) = gated_pair(&setup);
        closed.store(false, Ordering::Relaxed);
        let packets: Vec<_> = (0..100).map(|n| inner(false, n)).collect();
        let (wire, _) = pair.protect(&packets);

        closed.store(!in_engine, Ordering::Relaxed);
        let mut input = burst(&mut pair, &wire);
        pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
        let changed = InboundSpec {
            reqid: ReqId(1),
            ecn: false,
            counters: pair.inn.counters.clone(),
            ..setup.inbound()
        };
        let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
        snapshot.add_inbound(SaSlot(0), Arc::new(changed)).unwrap();
        pair.right_published.publish(snapshot);
        pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
        closed.store(false, Ordering::Relaxed);
        assert!(pair.open(&[]) == packets, "in engine: {in_engine}");
        assert!(pair.open(&wire).is_empty(), "and the window knows them");
        pair.assert_no_leak();
    }
}

/// A packet is opened with the key of the SA that it was found for.
#[test]
fn packets_that_wait_while_their_slot_changes_hands_are_opened_for_their_sa() {
    let setup = Setup::default();
    let (mut pair, closed) = gated_pair(&setup);
    closed.store(false, Ordering::Relaxed);
    let (wire, _) = pair.protect(&vec![inner(false, 10); 5]);
    closed.store(true, Ordering::Relaxed);
    let mut input = burst(&mut pair, &wire);
    pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    let key = SecretBytes::copy_from(&[0x99; 16]);
    let other = InboundSpec {
        spi: Spi::new(0x2002).unwrap(),
        key: Arc::new(OpenKey::new(&crate::common::cpu(), setup.suite, key).unwrap()),
        ..setup.inbound()
    };
    let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
    let other = Arc::new(other);
    snapshot.add_inbound(SaSlot(0), other.clone()).unwrap();
    pair.right_published.publish(snapshot);
    pair.right.submit(pair.now, &mut pair.pool, &mut input, &mut pair.handoff);
    closed.store(false, Ordering::Relaxed);
    assert_eq!(pair.open(&[]).len(), 5);
    assert_eq!((pair.inn.counters.floor.get().get(), other.counters.floor.get().get()), (5, 0));
    pair.assert_no_leak();
}

#[test]
fn a_worker_that_ends_gives_back_all_that_its_engines_hold() {
    let (mut pair, closed) = gated_pair(&Setup::default());
    closed.store(false, Ordering::Relaxed);
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
    pair.left.release(&mut pair.pool);
    pair.right.release(&mut pair.pool);
    assert_eq!((pair.left.in_flight(), pair.right.in_flight()), (0, 0));
    wire.release(&mut pair.pool);
    plain.release(&mut pair.pool);
    pair.assert_no_leak();
}
