//! New snapshots under way: nothing is lost, no number repeats, no window is forgotten.

use std::sync::Arc;

use crate::common::{Pair, Setup, inner, pipeline_parts, protect_all};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::pipeline::{HandOff, Outbound};
use convoy_ipsec::sa::{InboundSpec, OutboundSpec, ReqId, SaSlot, SaSpec, WorkerId};
use convoy_ipsec::selector::{AddressSelector, PortSelector, Selector, UpperSelector};
use convoy_ipsec::snapshot::{SaOwner, Snapshot, SnapshotError, Writer};
use convoy_ipsec::spd::{Direction, Policy, PolicyAction, PolicyId, SpdId};
use convoy_packet::Burst;
use convoy_wire::{PortRange, Prefix, Protocol, Spi};

fn out(setup: &Setup, old: &OutboundSpec) -> OutboundSpec {
    OutboundSpec {
        sa: SaSpec { counters: old.counters.clone(), ..setup.outbound().sa },
        lease: old.lease.clone(),
        ..setup.outbound()
    }
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
    pair.left_writer.publish(outbound(vec![(0, changed.clone())]));
    assert_eq!(numbers(&pair.protect(&packets).0), [4, 5, 6]);
    let moved = Arc::new(out(&setup, &changed));
    pair.left_writer.publish(outbound(vec![(5, moved)]));
    assert_eq!(numbers(&pair.protect(&packets).0), [7, 8, 9]);
}

#[test]
fn an_sa_whose_source_address_leaves_sends_nothing_until_it_is_back() {
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    let packets = vec![inner(false, 10); 3];
    assert_eq!(numbers(&pair.protect(&packets).0), [1, 2, 3]);
    let gone = Arc::new(out(&Setup { source_is_here: false, ..setup.clone() }, &pair.out));
    pair.left_writer.publish(outbound(vec![(0, gone.clone())]));
    assert!(pair.protect(&packets).0.is_empty());
    assert_eq!(pair.refused(DropReason::SourceAbsent), 3);
    let back = Arc::new(out(&setup, &gone));
    pair.left_writer.publish(outbound(vec![(0, back)]));
    assert_eq!(numbers(&pair.protect(&packets).0), [4, 5, 6]);
    pair.assert_no_leak();
}

#[test]
fn a_removed_sa_sends_nothing_and_comes_back_where_it_was() {
    let mut pair = Pair::new(&Setup::default());
    let packets = vec![inner(false, 10); 2];
    pair.protect(&packets);
    pair.left_writer.publish(outbound(vec![]));
    assert!(pair.protect(&packets).0.is_empty());
    assert_eq!(pair.refused(DropReason::NoSa), 2);
    let again = pair.out.clone();
    pair.left_writer.publish(outbound(vec![(1, again)]));
    assert_eq!(numbers(&pair.protect(&packets).0), [3, 4]);
}

#[test]
fn a_changed_inbound_record_keeps_its_window() {
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    let (wire, _) = pair.protect(&vec![inner(false, 10); 50]);
    assert_eq!(pair.open(&wire[..40]).len(), 40);
    let changed = InboundSpec {
        sa: SaSpec { counters: pair.inn.counters.clone(), ..setup.inbound().sa },
        ecn: false,
        ..setup.inbound()
    };
    let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
    snapshot.add_inbound(SaSlot(0), Arc::new(changed)).unwrap();
    pair.right_writer.publish(snapshot);
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
    let changed = InboundSpec {
        sa: SaSpec { counters: pair.inn.counters.clone(), ..larger.inbound().sa },
        ..larger.inbound()
    };
    let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
    snapshot.add_inbound(SaSlot(0), Arc::new(changed)).unwrap();
    pair.right_writer.publish(snapshot);
    assert_eq!(pair.open(&wire).len(), 10);
}

#[test]
fn two_workers_never_own_one_key() {
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    let packets = vec![inner(false, 10); 2];
    assert_eq!(numbers(&pair.protect(&packets).0), [1, 2]);

    // The next snapshot gives the SA to worker 1, which sees it before worker 0 does.
    let spec = OutboundSpec {
        sa: SaSpec { worker: WorkerId(1), ..out(&setup, &pair.out).sa },
        ..out(&setup, &pair.out)
    };
    let spec = Arc::new(spec);
    pair.left_writer.publish(outbound(vec![(0, spec)]));
    let mut other = Outbound::new(pipeline_parts(pair.left_writer.published(), false, 1));
    let mut handoff = HandOff::new(2);
    let mut run = |other: &mut Outbound, pair: &mut Pair| {
        let (mut input, mut wire, mut plain) = (Burst::new(), Burst::new(), Burst::new());
        let mut frame = pair.pool.alloc().unwrap();
        frame.fill_from(&packets[0]).unwrap();
        input.push(frame).unwrap();
        other.submit(pair.now, &mut pair.pool, &mut input, &mut handoff);
        while other.in_flight() > 0 {
            other.collect(pair.now, &mut pair.pool, &mut wire, &mut plain);
        }
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
    let spec =
        InboundSpec { sa: SaSpec { worker: WorkerId(2), ..setup.inbound().sa }, ..setup.inbound() };
    snapshot.add_inbound(SaSlot(0), Arc::new(spec)).unwrap();
    pair.right_writer.publish(snapshot);
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
    let twin = OutboundSpec {
        sa: SaSpec { spi: Spi::new(9).unwrap(), ..out(&setup, &first).sa },
        ..out(&setup, &first)
    };
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
    let no_window = InboundSpec {
        sa: SaSpec { spi: Spi::new(10).unwrap(), ..setup.inbound().sa },
        replay_window: 0,
        ..setup.inbound()
    };
    assert!(snapshot.add_inbound(SaSlot(1), Arc::new(no_window)).is_err());
}

#[test]
fn readers_see_each_picture_once_and_in_order() {
    let mut writer = Writer::new(Snapshot::default());
    let mut reader = writer.published().reader();
    assert!(reader.refresh().is_some(), "the first look shows the first snapshot");
    assert!(reader.refresh().is_none());
    let generation = writer.publish(Snapshot::default());
    assert!(reader.refresh().is_some());
    assert_eq!(reader.generation(), generation);
    assert!(Arc::ptr_eq(reader.snapshot(), &writer.current()));
}

#[test]
fn debug_shows_no_salt() {
    let setup = Setup::default();
    for text in [format!("{:?}", setup.outbound()), format!("{:?}", setup.inbound())] {
        assert!(text.contains("0x00001001"), "{text}");
        assert!(!text.contains("202") && !text.contains("salt"), "{text}");
    }
}

#[test]
fn an_older_sa_of_a_reqid_is_used_again_when_the_newer_one_goes() {
    let setup = Setup::default();
    let mut snapshot = Snapshot::default();
    let newest = |snapshot: &Snapshot| snapshot.outbound_for(ReqId(1)).map(|owner| owner.slot.0);
    for slot in [3, 1, 2] {
        snapshot.add_outbound(SaSlot(slot), Arc::new(setup.outbound())).unwrap();
        assert_eq!(newest(&snapshot), Some(slot));
    }
    let kept = snapshot.clone();
    // A changed record stays where it was among them, also when it goes to another worker.
    let old = snapshot.outbound(SaSlot(1)).unwrap().clone();
    let moved = OutboundSpec {
        sa: SaSpec { worker: WorkerId(7), ..out(&setup, &old).sa },
        ..out(&setup, &old)
    };
    let before = snapshot.replace_outbound(SaSlot(1), Arc::new(moved)).unwrap();
    assert!(Arc::ptr_eq(&before, &old));
    assert_eq!(newest(&snapshot), Some(2));
    snapshot.remove_outbound(SaSlot(2)).unwrap();
    let owner = SaOwner { slot: SaSlot(1), worker: WorkerId(7) };
    assert_eq!(snapshot.outbound_for(ReqId(1)), Some(owner));
    snapshot.remove_outbound(SaSlot(3)).unwrap();
    assert_eq!(newest(&snapshot), Some(1));
    let last = snapshot.remove_outbound(SaSlot(1)).unwrap();
    assert_eq!((newest(&snapshot), snapshot.is_empty()), (None, true));
    assert!(snapshot.remove_outbound(SaSlot(1)).is_none());
    // Its key is free again; with another reqid it has another place.
    snapshot.add_outbound(SaSlot(0), last.clone()).unwrap();
    let other = OutboundSpec {
        sa: SaSpec { reqid: ReqId(5), ..out(&setup, &last).sa },
        ..out(&setup, &last)
    };
    snapshot.replace_outbound(SaSlot(0), Arc::new(other)).unwrap();
    assert_eq!(newest(&snapshot), None);
    assert_eq!(snapshot.outbound_for(ReqId(5)).map(|owner| owner.slot), Some(SaSlot(0)));
    assert_eq!((newest(&kept), kept.len()), (Some(2), (3, 0)), "the clone stayed as it was");
}

#[test]
fn an_inbound_sa_is_found_by_spi_address_and_protocol() {
    let setup = Setup::default();
    let mut snapshot = Snapshot::default();
    snapshot.add_inbound(SaSlot(4), Arc::new(setup.inbound())).unwrap();
    let (spi, local) = (Spi::new(crate::common::SPI).unwrap(), setup.remote);
    let found = |snapshot: &Snapshot, spi, local, protocol| {
        snapshot.inbound_for(spi, local, protocol).map(|owner| owner.slot.0)
    };
    assert_eq!(found(&snapshot, spi, local, Protocol::ESP), Some(4));
    assert_eq!(found(&snapshot, spi, local, Protocol::AH), None);
    assert_eq!(found(&snapshot, spi, setup.local, Protocol::ESP), None);
    let other = Spi::new(77).unwrap();
    assert_eq!(found(&snapshot, other, local, Protocol::ESP), None);
    let changed = Arc::new(InboundSpec {
        sa: SaSpec { spi: other, ..setup.inbound().sa },
        ..setup.inbound()
    });
    snapshot.replace_inbound(SaSlot(4), changed.clone()).unwrap();
    assert_eq!(found(&snapshot, spi, local, Protocol::ESP), None);
    assert_eq!(found(&snapshot, other, local, Protocol::ESP), Some(4));
    let twin = Arc::new(setup.inbound());
    snapshot.add_inbound(SaSlot(5), twin.clone()).unwrap();
    assert!(snapshot.replace_inbound(SaSlot(4), twin.clone()).is_err());
    assert_eq!(found(&snapshot, other, local, Protocol::ESP), Some(4), "nothing has changed");
    assert_eq!(snapshot.replace_inbound(SaSlot(9), twin).unwrap_err(), SnapshotError::Empty(9));
    assert!(Arc::ptr_eq(&snapshot.remove_inbound(SaSlot(4)).unwrap(), &changed));
    assert_eq!(found(&snapshot, other, local, Protocol::ESP), None);
}

#[test]
fn a_table_that_is_full_refuses() {
    let setup = Setup::default();
    let mut snapshot = Snapshot::default();
    let beyond = SaSlot(1 << 20);
    let error = snapshot.add_outbound(beyond, Arc::new(setup.outbound())).unwrap_err();
    assert_eq!(error.to_string(), "slot 1048576 is beyond the last of a direction's 1048576 slots");
    let error = snapshot.add_inbound(beyond, Arc::new(setup.inbound())).unwrap_err();
    assert_eq!(error, SnapshotError::Full(1 << 20));
}

/// Changes under way, each made from the snapshot before: what is between two gateways sees all of
/// the old one or all of the new one.
#[test]
fn readers_see_whole_pictures_while_control_changes_them() {
    let setup = Setup::default();
    let mut writer = Writer::new(Snapshot::default());
    let specs: Vec<_> = (0..64)
        .map(|n| {
            let spi = Spi::new(1000 + n).unwrap();
            let out = OutboundSpec {
                sa: SaSpec { reqid: ReqId(n), ..setup.outbound().sa },
                ..setup.outbound()
            };
            (
                Arc::new(out),
                Arc::new(InboundSpec {
                    sa: SaSpec { spi, ..setup.inbound().sa },
                    ..setup.inbound()
                }),
            )
        })
        .collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = writer.published().reader();
            let done = &done;
            scope.spawn(move || {
                let mut last = 0;
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    reader.refresh();
                    assert!(reader.generation() >= last);
                    last = reader.generation();
                    let snapshot = reader.snapshot();
                    // A change adds or removes an SA of either direction, in one.
                    let (outbound, inbound) = snapshot.len();
                    assert_eq!(outbound, inbound);
                    assert_eq!(snapshot.outbound_sas().count(), outbound);
                    for (slot, sa) in snapshot.outbound_sas() {
                        assert_eq!(snapshot.outbound_for(sa.reqid).unwrap().slot, slot);
                    }
                    for (slot, sa) in snapshot.inbound_sas() {
                        let found = snapshot.inbound_for(sa.spi, setup.remote, Protocol::ESP);
                        assert_eq!(found.unwrap().slot, slot);
                    }
                }
            });
        }
        for step in 0..3000_u32 {
            let at = step.wrapping_mul(37) % 64;
            let slot = SaSlot(at * 50);
            let (out, inn) = specs[at as usize].clone();
            let change = writer.change(|snapshot| {
                if snapshot.remove_outbound(slot).is_some() {
                    snapshot.remove_inbound(slot).unwrap();
                    return Ok(());
                }
                snapshot.add_outbound(slot, out)?;
                snapshot.add_inbound(slot, inn)
            });
            change.unwrap();
            assert_eq!(writer.published().generation(), u64::from(step) + 2);
        }
        done.store(true, std::sync::atomic::Ordering::Release);
    });
    let failed = writer.change(|snapshot| {
        snapshot.remove_outbound(SaSlot(0));
        snapshot.add_inbound(SaSlot(1 << 20), Arc::new(setup.inbound()))
    });
    assert_eq!(failed.unwrap_err(), SnapshotError::Full(1 << 20));
    assert_eq!(writer.published().reader().refresh().map(|_| ()), Some(()));
}

/// Ten thousand policies, half of them where the packets' own policy is found, come and go on both
/// gateways while packets pass.
#[test]
fn ten_thousand_policies_come_and_go_under_traffic_and_no_packet_is_lost() {
    const MANY: u32 = 10_000;
    let mut pair = Pair::new(&Setup::default());
    let policy = |n: u32, direction| {
        let far = Prefix::containing([172, 16, (n >> 8) as u8, n as u8].into(), 32).unwrap();
        // The policy of the packets has priority 0 and all addresses.
        let remote = if n.is_multiple_of(2) { far.into() } else { AddressSelector::Any };
        let port = PortRange::single((n % 60_000) as u16).into();
        let upper = UpperSelector::Ports { local: PortSelector::Any, remote: port };
        let protocol = Some(Protocol::SCTP);
        Policy {
            name: "other".into(),
            priority: n % 3,
            direction,
            selector: Selector { remote, protocol, upper, ..Selector::default() },
            action: PolicyAction::Discard,
        }
    };
    let done = std::sync::atomic::AtomicBool::new(false);
    let taken = |writer: &mut Writer| std::mem::replace(writer, Writer::new(Snapshot::default()));
    let mut writers = [
        (taken(&mut pair.left_writer), Direction::Outbound),
        (taken(&mut pair.right_writer), Direction::Inbound),
    ];
    let mut passed = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..8 {
                for (writer, direction) in &mut writers {
                    let change = writer.change(|snapshot| {
                        let spd = snapshot.spd_mut();
                        if round % 2 == 0 {
                            return (0..MANY)
                                .try_for_each(|n| spd.insert(policy(n, *direction)).map(drop));
                        }
                        // The packets' own policy was there first.
                        (1..=MANY).for_each(|id| drop(spd.remove(PolicyId(id)).unwrap()));
                        Ok(())
                    });
                    change.unwrap();
                }
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        loop {
            let last = done.load(std::sync::atomic::Ordering::Acquire);
            let (wire, plain) = pair.protect(&vec![inner(false, 64); 50]);
            assert_eq!((wire.len(), plain.len()), (50, 0));
            assert_eq!(pair.open(&wire).len(), 50);
            passed += 50;
            if last {
                return;
            }
        }
    });
    assert_eq!(writers[0].0.current().spd().len(), 1);
    for counters in [&pair.left_counters, &pair.right_counters] {
        assert_eq!(counters.drops.iter().map(|(_, n)| n).sum::<u64>(), 0);
    }
    assert_eq!(pair.right_counters.inbound_packets.get(), passed);
    pair.assert_no_leak();
}

#[test]
fn among_thousands_of_sas_each_packet_finds_its_own() {
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    let fill = |writer: &mut Writer| {
        writer.change(|snapshot| {
            (1..3000).try_for_each(|n| {
                let spi = Spi::new(crate::common::SPI + n).unwrap();
                let out = OutboundSpec {
                    sa: SaSpec { reqid: ReqId(1 + n), spi, ..setup.outbound().sa },
                    ..setup.outbound()
                };
                snapshot.add_outbound(SaSlot(n), Arc::new(out))?;
                snapshot.add_inbound(
                    SaSlot(n),
                    Arc::new(InboundSpec {
                        sa: SaSpec { spi, ..setup.inbound().sa },
                        ..setup.inbound()
                    }),
                )
            })
        })
    };
    fill(&mut pair.left_writer).unwrap();
    fill(&mut pair.right_writer).unwrap();
    let (mut wire, _) = pair.protect(&vec![inner(false, 30); 20]);
    assert_eq!(numbers(&wire), (1..=20).collect::<Vec<_>>());
    // Of a neighbour's SPI, whose key is the same but whose header the ICV covers; of no SA's.
    wire[3][23] ^= 2;
    wire[4][20] = 0xee;
    assert_eq!(pair.open(&wire).len(), 18);
    assert_eq!((pair.dropped(DropReason::BadIcv), pair.dropped(DropReason::UnknownSpi)), (1, 1));
    pair.assert_no_leak();
}

#[test]
fn an_interface_can_have_policies_of_its_own() {
    let mut pair = Pair::new(&Setup::default());
    let own = pair.left_writer.change(|snapshot| {
        let bypass = Policy {
            name: "own".into(),
            priority: 0,
            direction: Direction::Outbound,
            selector: Selector::default(),
            action: PolicyAction::Bypass,
        };
        snapshot.add_spd(crate::common::spd(vec![bypass]))
    });
    let own = own.unwrap();
    let packets = vec![inner(false, 10); 3];
    let esp = |wire: &[Vec<u8>]| wire.iter().filter(|packet| packet[9] == 50).count();
    let wire = pair.protect(&packets).0;
    assert_eq!((wire.len(), esp(&wire)), (3, 3));
    let parts = pipeline_parts(pair.left_writer.published(), false, 0);
    pair.left = Outbound::new(parts).with_spds(&[own]);
    let wire = pair.protect(&packets).0;
    assert_eq!((wire.len(), esp(&wire)), (3, 0), "its own policies say bypass");
    // They change apart from the others.
    let change = pair.left_writer.change(|snapshot| {
        snapshot.spd_of_mut(own).unwrap().remove(PolicyId(0)).map(drop).ok_or(())
    });
    change.unwrap();
    assert!(pair.protect(&packets).0.is_empty());
    assert_eq!(pair.left_writer.current().spd().len(), 1);
    let parts = pipeline_parts(pair.left_writer.published(), false, 0);
    pair.left = Outbound::new(parts).with_spds(&[SpdId(9)]);
    assert!(pair.protect(&packets).0.is_empty(), "there is no such database");
}
