//! Packets that a worker sends of its own.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Side, arena, cable, snapshot, surroundings};
use convoy_io::mem;
use convoy_ipsec::clock::Now;
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::sa::{OutboundSpec, SaSlot};
use convoy_ipsec::snapshot::{Published, Snapshot};
use convoy_runtime::Worker;

const CONFIG: mem::Config = mem::Config { depth: 512, patience: Duration::from_millis(1) };
const FLOWS: u8 = 3;

/// All outbound SAs send dummies after two seconds.
fn talkative() -> Snapshot {
    let mut snapshot = snapshot(Side::A, FLOWS, |_| 0);
    let every = Some(Duration::from_secs(2));
    for slot in (0..FLOWS.into()).map(SaSlot) {
        let old = snapshot.remove_outbound(slot).unwrap();
        let old = Arc::into_inner(old).unwrap();
        snapshot.add_outbound(slot, Arc::new(OutboundSpec { dummy_every: every, ..old })).unwrap();
    }
    snapshot
}

#[test]
fn workers_that_have_nothing_to_send_send_dummies() {
    let arena = arena(4096);
    let cabling = cable(1, &CONFIG);
    let mut workers = Vec::new();
    for (ports, snapshot) in
        [(cabling.ports_a, talkative()), (cabling.ports_b, snapshot(Side::B, FLOWS, |_| 0))]
    {
        let published = Published::new(snapshot);
        workers.extend(Worker::team(&surroundings(arena), ports, &published).unwrap());
    }
    // Nine seconds, a quarter at a time, as a gateway would that sleeps in between.
    for quarter in 1..=36_u64 {
        for _ in 0..3 {
            for worker in &mut workers {
                worker.turn(Now(quarter * 250_000_000)).unwrap();
            }
        }
    }
    let (a, b) = (&workers[0].stats().pipeline, &workers[1].stats().pipeline);
    assert_eq!(a.dummies_sent.get(), 4 * u64::from(FLOWS));
    assert_eq!(b.drops.get(DropReason::DummyPacket), a.dummies_sent.get());
    assert_eq!((b.dummies_sent.get(), b.inbound_packets.get()), (0, 0));
}
