//! Random snapshots while packets are under way: SAs come, go, move to other slots and workers, and
//! what RFC 4303 promises holds all the same.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use crate::common::{Setup, inner_with, pipeline_parts, spd};
use convoy_ipsec::clock::Now;
use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::pipeline::{HandOff, Inbound, Outbound};
use convoy_ipsec::sa::{InboundSpec, OutboundSpec, ReqId, SaSlot, SaSpec, Shared, WorkerId};
use convoy_ipsec::selector::Selector;
use convoy_ipsec::sequence::Lease;
use convoy_ipsec::snapshot::{Published, Snapshot, SpiListener, Writer};
use convoy_ipsec::spd::{Direction, Policy, PolicyAction};
use convoy_packet::{Arena, Burst, FrameSize};
use convoy_wire::{Prefix, SeqNum, Spi};

struct Rng(u64);
impl Rng {
    fn next(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }
}

/// SPI, reqid, lease and worker.
type Live = (u32, u32, Arc<Lease>, u16);

/// So chosen that hints of several fall to one place.
const REQIDS: [u32; 6] = [1, 65, 129, 2, 66, 130];

fn out_spec(s: &Setup, reqid: u32, spi: u32, worker: u16, lease: Arc<Lease>) -> OutboundSpec {
    OutboundSpec {
        sa: SaSpec {
            reqid: ReqId(reqid),
            spi: Spi::new(spi).unwrap(),
            worker: WorkerId(worker),
            counters: Shared::default(),
            ..s.outbound().sa
        },
        lease: lease.into(),
        ..s.outbound()
    }
}

/// SPIs that were told.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<u32>>);

impl SpiListener for Heard {
    fn add(&self, spi: Spi) {
        self.0.lock().unwrap().push(spi.get());
    }

    fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

#[test]
fn spis_are_told_with_each_snapshot_that_brings_them() {
    let setup = Setup::default();
    let inbound = |spi: u32| {
        let sa = SaSpec { spi: Spi::new(spi).unwrap(), ..setup.inbound().sa };
        Arc::new(InboundSpec { sa, ..setup.inbound() })
    };
    let mut writer = Writer::new(Snapshot::default());
    writer.change(|next| next.add_inbound(SaSlot(3), inbound(0x300))).unwrap();
    let heard = Arc::<Heard>::default();
    writer.tell_spis(heard.clone());
    let told = || core::mem::take(&mut *heard.0.lock().unwrap());
    assert_eq!(told(), [0x300]);
    let mut draft = writer.draft();
    draft.add_inbound(SaSlot(70_000), inbound(0x400)).unwrap();
    draft.replace_inbound(SaSlot(3), inbound(0x301)).unwrap();
    assert_eq!(told(), [0; 0], "nobody sees a draft");
    draft.commit();
    let mut of_draft = told();
    of_draft.sort_unstable();
    assert_eq!(of_draft, [0x301, 0x400]);
    writer.change(|next| next.add_inbound(SaSlot(4), inbound(0x500))).unwrap();
    assert_eq!(told(), [0x500], "those beside it were told before");
    writer.change(|next| next.remove_inbound(SaSlot(3)).ok_or(())).unwrap();
    writer.change(|next| next.remove_inbound(SaSlot(4)).ok_or(())).unwrap();
    assert_eq!(told(), [0; 0]);
    writer.tell_spis_again();
    assert_eq!(told(), [0x400]);
    writer.publish(Snapshot::default());
    writer.tell_spis_again();
    assert_eq!(told(), [0; 0]);
}

#[test]
fn packets_take_the_sa_of_the_picture_and_no_number_twice() {
    let arena = Arena::map(8192, FrameSize::for_packet(1500)).unwrap();
    let setup = Setup { path_mtu: 300, esn: true, ..Setup::default() };
    for seed in 1..60_u64 {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut pool = arena.pool();
        let policies = REQIDS.iter().enumerate().map(|(n, reqid)| Policy {
            name: n.to_string().into(),
            priority: 0,
            direction: Direction::Outbound,
            selector: Selector {
                remote: Prefix::containing([10, n as u8, 0, 0].into(), 16).unwrap().into(),
                ..Selector::default()
            },
            action: PolicyAction::Protect { reqid: ReqId(*reqid) },
        });
        let mut start = Snapshot::new(spd(policies.collect()));
        start.make_on_demand(ReqId(1));
        start.make_on_demand(ReqId(65));
        let mut writer = Writer::new(start);
        // Two workers over the same snapshot, as two threads that take turns.
        let mut workers: Vec<_> =
            (0..2).map(|w| Outbound::new(pipeline_parts(writer.published(), false, w))).collect();
        // What is in each slot; and the slots of each reqid, newest last.
        let mut live: BTreeMap<u32, Live> = BTreeMap::new();
        let mut order: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut next_spi = 0x1000;
        let mut seen = HashSet::new();
        let mut handoff = HandOff::new(2);
        let mut now = 1_000_000_000_u64;
        let mut sent = 0;
        for _ in 0..300 {
            now += 1_000_000;
            if rng.next(3) == 0 {
                let mut next = writer.draft();
                for _ in 0..1 + rng.next(3) {
                    let slot = rng.next(8) as u32;
                    match (live.get(&slot).cloned(), rng.next(4)) {
                        (Some((_, reqid, ..)), 0 | 1) => {
                            next.remove_outbound(SaSlot(slot)).unwrap();
                            live.remove(&slot);
                            order.get_mut(&reqid).unwrap().retain(|s| *s != slot);
                        }
                        (Some((spi, reqid, lease, _)), _) => {
                            // Another record of the same key, perhaps another worker's.
                            let worker = rng.next(2) as u16;
                            let spec = out_spec(&setup, reqid, spi, worker, lease.clone());
                            next.replace_outbound(SaSlot(slot), Arc::new(spec)).unwrap();
                            live.insert(slot, (spi, reqid, lease, worker));
                        }
                        (None, _) => {
                            let reqid = REQIDS[rng.next(REQIDS.len())];
                            next_spi += 1;
                            let worker = rng.next(2) as u16;
                            let lease =
                                Arc::new(Lease::new(SeqNum::new(0), 1 + rng.next(200) as u64));
                            let spec = out_spec(&setup, reqid, next_spi, worker, lease.clone());
                            next.add_outbound(SaSlot(slot), Arc::new(spec)).unwrap();
                            live.insert(slot, (next_spi, reqid, lease, worker));
                            order.entry(reqid).or_default().push(slot);
                        }
                    }
                }
                next.commit();
            }
            if rng.next(4) == 0 {
                for (_, _, lease, _) in live.values() {
                    lease.grant(lease.granted() + rng.next(50) as u64);
                }
            }
            let w = rng.next(2);
            let mut input = Burst::new();
            let mut want = Vec::new();
            for _ in 0..rng.next(120) {
                let n = rng.next(REQIDS.len());
                let big = if rng.next(10) == 0 { 700 } else { 20 };
                let packet =
                    inner_with(false, "10.9.0.1", &format!("10.{n}.0.2"), &vec![1; big], 0);
                let mut frame = pool.alloc().unwrap();
                frame.fill_from(&packet).unwrap();
                input.push(frame).unwrap();
                want.push(n);
            }
            workers[w].submit(Now(now), &mut pool, &mut input, &mut handoff);
            // What is handed on is dropped here.
            for other in 0..2 {
                if let Some(burst) = handoff.for_worker(WorkerId(other)) {
                    burst.release(&mut pool);
                }
            }
            let (mut wire, mut plain) = (Burst::new(), Burst::new());
            if rng.next(3) > 0 {
                workers[w].collect(Now(now), &mut pool, &mut wire, &mut plain);
            }
            input.release(&mut pool);
            for frame in wire.drain() {
                let d = frame.data();
                let spi = u32::from_be_bytes(d[20..24].try_into().unwrap());
                let seq = u64::from_be_bytes(d[28..36].try_into().unwrap());
                assert!(seen.insert((spi, seq)), "seed {seed}: {spi:#x} {seq} twice");
                sent += 1;
                pool.free(frame);
            }
            plain.release(&mut pool);
        }
        assert!(sent > 100, "seed {seed}: {sent}");
        // At rest: the SA is the newest of the snapshot.
        for w in 0..2 {
            for (n, reqid) in REQIDS.iter().enumerate() {
                for _ in 0..4 {
                    let (mut wire, mut plain) = (Burst::new(), Burst::new());
                    for worker in &mut workers {
                        for _ in 0..400 {
                            worker.submit(Now(now), &mut pool, &mut Burst::new(), &mut handoff);
                            worker.collect(Now(now), &mut pool, &mut wire, &mut plain);
                            wire.release(&mut pool);
                            plain.release(&mut pool);
                        }
                    }
                    let mut input = Burst::new();
                    let packet = inner_with(false, "10.9.0.1", &format!("10.{n}.0.2"), &[1; 20], 0);
                    let mut frame = pool.alloc().unwrap();
                    frame.fill_from(&packet).unwrap();
                    input.push(frame).unwrap();
                    workers[w].submit(Now(now), &mut pool, &mut input, &mut handoff);
                    assert!(input.is_empty());
                    workers[w].collect(Now(now), &mut pool, &mut wire, &mut plain);
                    let newest = order.get(reqid).and_then(|o| o.last());
                    for frame in wire.drain() {
                        let d = frame.data();
                        let spi = u32::from_be_bytes(d[20..24].try_into().unwrap());
                        let newest = &live[newest.unwrap()];
                        assert_eq!((spi, w), (newest.0, usize::from(newest.3)), "seed {seed}");
                        pool.free(frame);
                    }
                    plain.release(&mut pool);
                    for other in 0..2 {
                        handoff.for_worker(WorkerId(other)).unwrap().release(&mut pool);
                    }
                }
            }
        }
        for worker in &mut workers {
            worker.release(Now(0), &mut pool);
        }
        drop(workers);
        drop(pool);
        assert_eq!((arena.leaked(), arena.in_depot()), (0, 8192), "seed {seed}");
    }
}

#[test]
fn no_packet_is_accepted_twice_whatever_becomes_of_its_sa() {
    let arena = Arena::map(8192, FrameSize::for_packet(1500)).unwrap();
    for seed in 1..40_u64 {
        let esn = seed % 2 == 0;
        let setup = Setup { esn, ..Setup::default() };
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut pool = arena.pool();
        let mut writer = Writer::new(Snapshot::new(crate::common::protect_all(Direction::Inbound)));
        let mut right = Inbound::new(pipeline_parts(writer.published(), false, 0));
        // Four keys, alike but for their SPI, each at a place of the same hint.
        let counters: Vec<Arc<SaCounters>> = (0..4).map(|_| Arc::default()).collect();
        let base = setup.inbound();
        let mut at: [Option<u32>; 4] = [None; 4];
        let wire: Vec<Vec<Vec<u8>>> = (0..4_u32)
            .map(|k| {
                let mut left = Snapshot::new(crate::common::protect_all(Direction::Outbound));
                let spec = OutboundSpec {
                    sa: SaSpec { spi: Spi::new(0x1001 + k * 64).unwrap(), ..setup.outbound().sa },
                    ..setup.outbound()
                };
                left.add_outbound(SaSlot(0), Arc::new(spec)).unwrap();
                let left = Published::new(left);
                let mut left = Outbound::new(pipeline_parts(&left, false, 0));
                let mut made = Vec::new();
                for n in 0..400_u32 {
                    let data = [k.to_be_bytes(), n.to_be_bytes()].concat();
                    let packet = inner_with(false, "10.1.0.1", "10.2.0.2", &data, 0);
                    let (mut input, mut out, mut plain) =
                        (Burst::new(), Burst::new(), Burst::new());
                    let mut frame = pool.alloc().unwrap();
                    frame.fill_from(&packet).unwrap();
                    input.push(frame).unwrap();
                    left.submit(Now(1), &mut pool, &mut input, &mut HandOff::new(1));
                    while left.in_flight() > 0 {
                        left.collect(Now(1), &mut pool, &mut out, &mut plain);
                    }
                    for frame in out.drain() {
                        made.push(frame.data().to_vec());
                        pool.free(frame);
                    }
                }
                left.release(Now(0), &mut pool);
                made
            })
            .collect();
        let mut accepted = HashSet::new();
        let mut handoff = HandOff::new(2);
        let mut reach = 10;
        for _ in 0..300 {
            if rng.next(4) == 0 {
                let mut next = writer.draft();
                for _ in 0..2 {
                    let k = rng.next(4);
                    if let Some(slot) = at[k].take() {
                        next.remove_inbound(SaSlot(slot)).unwrap();
                    }
                    let slot = rng.next(6) as u32;
                    if !at.contains(&Some(slot)) {
                        let spec = InboundSpec {
                            sa: SaSpec {
                                spi: Spi::new(0x1001 + k as u32 * 64).unwrap(),
                                counters: counters[k].clone().into(),
                                ..setup.inbound().sa
                            },
                            key: base.key.clone(),
                            replay_window: [32, 64, 1024][rng.next(3)],
                            ..setup.inbound()
                        };
                        next.add_inbound(SaSlot(slot), Arc::new(spec)).unwrap();
                        at[k] = Some(slot);
                    }
                }
                next.commit();
            }
            reach = (reach + rng.next(6)).min(400);
            let mut input = Burst::new();
            for _ in 0..rng.next(100) {
                let (k, n) =
                    (rng.next(4), rng.next(reach).max(reach.saturating_sub(1 + rng.next(80))));
                let mut bytes = wire[k][n.min(reach - 1)].clone();
                if rng.next(5) == 0 {
                    let at = 28 + rng.next(bytes.len() - 28);
                    bytes[at] ^= 1;
                }
                if rng.next(20) == 0 {
                    // Numbers far ahead, forged.
                    bytes[24] = 0x7f;
                }
                let mut frame = pool.alloc().unwrap();
                frame.fill_from(&bytes).unwrap();
                input.push(frame).unwrap();
            }
            right.submit(Now(1), &mut pool, &mut input, &mut handoff);
            let mut plain = Burst::new();
            if rng.next(3) > 0 {
                right.collect(Now(1), &mut pool, &mut plain);
            }
            input.release(&mut pool);
            for frame in plain.drain() {
                assert!(accepted.insert(frame.data()[28..36].to_vec()), "seed {seed}");
                pool.free(frame);
            }
        }
        assert!(accepted.len() > 100, "{}", accepted.len());
        right.release(Now(0), &mut pool);
        drop((right, pool));
        assert_eq!((arena.leaked(), arena.in_depot()), (0, 8192), "seed {seed}");
    }
}
