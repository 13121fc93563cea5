//! The pipelines do not know whether their engine works at once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Pair, Setup, inner, pipeline_parts};
use convoy_engine::{Caps, Engine, EngineKey, Inline, Job, JobBurst, KeyId, Op, Status};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::pipeline::{Inbound, Outbound};
use convoy_packet::Burst;

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
