//! New snapshots under way: nothing is lost, no number repeats, no window is forgotten.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::sync::Arc;

use common::{Pair, Setup, inner, pipeline_parts, protect_all};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::pipeline::{HandOff, Outbound};
use convoy_ipsec::sa::{InboundSpec, OutboundSpec, SaSlot, WorkerId};
use convoy_ipsec::snapshot::{Published, Snapshot, SnapshotError};
use convoy_ipsec::spd::Direction;
use convoy_packet::Burst;
use convoy_wire::Spi;

fn out(setup: &Setup, old: &OutboundSpec) -> OutboundSpec {
    OutboundSpec { lease: old.lease.clone(), counters: old.counters.clone(), ..setup.outbound() }
}

fn outbound(entries: Vec<(u32, Arc<OutboundSpec>)>) -> Snapshot {
    let mut snapshot = Snapshot::new(protect_all(Direction::Outbound));
    for (slot, spec) in entries {
        snapshot.add_outbound(SaSlot(slot), spec).unwrap();
    }
    snapshot
}

fn numbers(wire: &[Vec<u8>]) -> Vec<u32> {
    wire.iter().map(|p| u32::from_be_bytes(p[24..28].try_into().unwrap())).collect()
}

#[test]
fn a_changed_record_goes_on_counting_also_in_another_slot() {
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    let packets = vec![inner(false, 10); 3];
    assert_eq!(numbers(&pair.protect(&packets).0), [1, 2, 3]);
    let changed = Arc::new(out(&Setup { path_mtu: 1400, ..setup.clone() }, &pair.out));
    pair.left_published.publish(outbound(vec![(0, changed.clone())]));
    assert_eq!(numbers(&pair.protect(&packets).0), [4, 5, 6]);
    let moved = Arc::new(out(&setup, &changed));
    pair.left_published.publish(outbound(vec![(5, moved)]));
    assert_eq!(numbers(&pair.protect(&packets).0), [7, 8, 9]);
}

#[test]
fn a_removed_sa_sends_nothing_and_comes_back_where_it_was() {
    let mut pair = Pair::new(&Setup::default());
    let packets = vec![inner(false, 10); 2];
    pair.protect(&packets);
    pair.left_published.publish(outbound(vec![]));
    assert!(pair.protect(&packets).0.is_empty());
    assert_eq!(pair.refused(DropReason::NoSa), 2);
    let again = pair.out.clone();
    pair.left_published.publish(outbound(vec![(1, again)]));
    assert_eq!(numbers(&pair.protect(&packets).0), [3, 4]);
}

#[test]
fn a_changed_inbound_record_keeps_its_window() {
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    let (wire, _) = pair.protect(&vec![inner(false, 10); 50]);
    assert_eq!(pair.open(&wire[..40]).len(), 40);
    let changed = InboundSpec { floor: pair.inn.floor.clone(), ecn: false, ..setup.inbound() };
    let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
    snapshot.add_inbound(SaSlot(0), Arc::new(changed)).unwrap();
    pair.right_published.publish(snapshot);
    assert_eq!(pair.open(&wire).len(), 10, "the first forty are known");
    assert_eq!(pair.dropped(DropReason::Replayed), 40);
}

#[test]
fn a_new_window_of_the_same_key_starts_above_what_was_accepted() {
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    let (wire, _) = pair.protect(&vec![inner(false, 10); 50]);
    assert_eq!(pair.open(&wire[..40]).len(), 40);
    let larger = Setup { replay_window: 4096, ..setup };
    let changed = InboundSpec { floor: pair.inn.floor.clone(), ..larger.inbound() };
    let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
    snapshot.add_inbound(SaSlot(0), Arc::new(changed)).unwrap();
    pair.right_published.publish(snapshot);
    assert_eq!(pair.open(&wire).len(), 10);
}

#[test]
fn two_workers_never_own_one_key() {
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    let packets = vec![inner(false, 10); 2];
    assert_eq!(numbers(&pair.protect(&packets).0), [1, 2]);

    // The next snapshot gives the SA to worker 1, which sees it before worker 0 does.
    let spec = OutboundSpec { worker: WorkerId(1), ..out(&setup, &pair.out) };
    let spec = Arc::new(spec);
    pair.left_published.publish(outbound(vec![(0, spec)]));
    let mut other = Outbound::new(pipeline_parts(&pair.left_published, false, 1));
    let mut handoff = HandOff::new(2);
    let mut run = |other: &mut Outbound, pair: &mut Pair| {
        let (mut input, mut wire, mut plain) = (Burst::new(), Burst::new(), Burst::new());
        let mut frame = pair.pool.alloc().unwrap();
        frame.fill_from(&packets[0]).unwrap();
        input.push(frame).unwrap();
        other.submit(pair.now, &mut pair.pool, &mut input, &mut handoff);
        other.collect(pair.now, &mut pair.pool, &mut wire, &mut plain);
        let sent: Vec<_> = wire.as_slice().iter().map(|f| f.data().to_vec()).collect();
        wire.release(&mut pair.pool);
        numbers(&sent)
    };
    assert!(run(&mut other, &mut pair).is_empty(), "worker 0 still has the key");
    // Worker 0 looks, lets go, and hands its packets to worker 1.
    pair.handoff = HandOff::new(2);
    assert!(pair.protect(&packets).0.is_empty());
    assert_eq!(pair.handoff.for_worker(WorkerId(1)).unwrap().len(), 2);
    pair.handoff.for_worker(WorkerId(1)).unwrap().release(&mut pair.pool);
    assert_eq!(run(&mut other, &mut pair), [3]);
}

#[test]
fn packets_of_another_workers_sa_are_handed_over_both_ways() {
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    let (wire, _) = pair.protect(&vec![inner(false, 10); 7]);
    let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
    let spec = InboundSpec { worker: WorkerId(2), ..setup.inbound() };
    snapshot.add_inbound(SaSlot(0), Arc::new(spec)).unwrap();
    pair.right_published.publish(snapshot);
    pair.handoff = HandOff::new(3);
    assert!(pair.open(&wire).is_empty());
    let handed = pair.handoff.for_worker(WorkerId(2)).unwrap();
    assert!(handed.as_slice().iter().map(|f| f.data()).eq(wire.iter().map(Vec::as_slice)));
    handed.release(&mut pair.pool);
    // A worker that does not exist gets nothing, and the packet is counted.
    pair.handoff = HandOff::new(1);
    assert!(pair.open(&wire).is_empty());
    assert_eq!(pair.dropped(DropReason::RingFull), 7);
    pair.assert_no_leak();
}

#[test]
fn inconsistent_pictures_are_refused() {
    let setup = Setup::default();
    let mut snapshot = Snapshot::default();
    let first = Arc::new(setup.outbound());
    snapshot.add_outbound(SaSlot(0), first.clone()).unwrap();
    let twin = OutboundSpec { spi: Spi::new(9).unwrap(), ..out(&setup, &first) };
    let error = snapshot.add_outbound(SaSlot(1), Arc::new(twin)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "outbound SAs 'test out' and 'test out' have the same key and salt"
    );
    let error = snapshot.add_outbound(SaSlot(0), Arc::new(setup.outbound())).unwrap_err();
    assert_eq!(error, SnapshotError::SlotTwice(0));
    snapshot.add_inbound(SaSlot(0), Arc::new(setup.inbound())).unwrap();
    let error = snapshot.add_inbound(SaSlot(1), Arc::new(setup.inbound())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "inbound SAs 'test in' and 'test in' share SPI 0x1001 and address 192.0.2.2"
    );
    let no_window = InboundSpec { replay_window: 0, spi: Spi::new(10).unwrap(), ..setup.inbound() };
    assert!(snapshot.add_inbound(SaSlot(1), Arc::new(no_window)).is_err());
}

#[test]
fn readers_see_each_picture_once_and_in_order() {
    let published = Published::new(Snapshot::default());
    let mut reader = published.reader();
    assert!(reader.refresh().is_some(), "the first look shows the first picture");
    assert!(reader.refresh().is_none());
    let generation = published.publish(Snapshot::default());
    assert!(reader.refresh().is_some());
    assert_eq!(reader.generation(), generation);
    assert!(Arc::ptr_eq(reader.snapshot(), &published.current()));
}

#[test]
fn debug_shows_no_salt() {
    let setup = Setup::default();
    for text in [format!("{:?}", setup.outbound()), format!("{:?}", setup.inbound())] {
        assert!(text.contains("0x00001001"), "{text}");
        assert!(!text.contains("202") && !text.contains("salt"), "{text}");
    }
}
