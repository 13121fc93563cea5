//! Events reach control: none twice, none lost, and no worker waits.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Side, arena, cable, frame, limited_snapshot, surroundings};
use convoy_io::{Port, mem};
use convoy_ipsec::clock::Now;
use convoy_ipsec::event::Event;
use convoy_ipsec::lifetime::{Lifetime, Limits};
use convoy_ipsec::sa::SaSlot;
use convoy_ipsec::snapshot::Published;
use convoy_packet::Burst;
use convoy_runtime::{Events, Runtime, ThreadConfig, Worker};

/// More events than a ring holds.
const FLOWS: u8 = 200;

/// A warning after one packet, the end after two.
fn short() -> Lifetime {
    let packets = |n| Limits { packets: Some(n), ..Limits::default() };
    Lifetime { soft: packets(1), hard: packets(2) }
}

#[test]
fn events_that_find_the_ring_full_come_later() {
    let arena = arena(4096);
    let mut cabling = cable(1, &mem::Config::default());
    let published = Published::new(limited_snapshot(Side::A, FLOWS, |_| 0, short()));
    let mut workers = Worker::team(&surroundings(arena), cabling.ports_a, &published).unwrap();
    let mut pool = arena.pool();
    let mut burst = Burst::new();
    let mut send = |workers: &mut [Worker]| {
        for flow in 0..FLOWS {
            burst.push(frame(&mut pool, Side::A, flow, 0, 100)).unwrap();
            if burst.is_full() || flow + 1 == FLOWS {
                cabling.hosts_a[0].tx(&mut pool, &mut burst).unwrap();
                while workers[0].turn(Now(1)).unwrap() > 0 {}
            }
        }
    };
    // Nobody listens yet: the warnings stay with their SAs.
    send(&mut workers);
    let mut events = Events::of(&mut workers).unwrap();
    workers[0].turn(Now(1)).unwrap();
    // The ends come while the ring is full of warnings.
    send(&mut workers);
    send(&mut workers);
    let mut told: BTreeMap<SaSlot, Vec<bool>> = BTreeMap::new();
    let mut rounds = 0;
    loop {
        let mut any = false;
        while let Some((_, event)) = events.pop() {
            any = true;
            match event {
                Event::Soft { sa, .. } => told.entry(sa.slot).or_default().push(false),
                Event::Hard { sa, .. } => told.entry(sa.slot).or_default().push(true),
                other => panic!("{other:?}"),
            }
        }
        if !any {
            break;
        }
        rounds += 1;
        workers[0].turn(Now(1)).unwrap();
    }
    assert!(rounds > 1, "the ring was never full");
    assert_eq!(told.len(), usize::from(FLOWS));
    assert!(told.values().all(|kinds| *kinds == [false, true]), "{told:?}");
    assert!(!events.is_over());
    drop(workers);
    assert!(events.is_over());
}

#[test]
fn a_listener_is_woken_by_events_and_by_the_end() {
    let arena = arena(8192);
    let mut cabling = cable(2, &mem::Config::default());
    let published = Published::new(limited_snapshot(Side::A, 2, u16::from, short()));
    let threads = ThreadConfig::default();
    let mut runtime =
        Runtime::start(&surroundings(arena), &threads, cabling.ports_a, &published, |_| {})
            .unwrap();
    let mut events = runtime.take_events().unwrap();
    assert!(runtime.take_events().is_none());
    let listener = std::thread::spawn(move || {
        let mut told = Vec::new();
        while !events.is_over() {
            // A wake-up that is lost makes the test hang, not pass.
            events.wait(Duration::from_secs(3600));
            while let Some((worker, event)) = events.pop() {
                told.push((worker.0, matches!(event, Event::Hard { .. })));
            }
        }
        told
    });
    let mut pool = arena.pool();
    let mut burst = Burst::new();
    for number in 0..3 {
        for flow in 0..2 {
            burst.push(frame(&mut pool, Side::A, flow, number, 100)).unwrap();
        }
    }
    cabling.hosts_a[0].tx(&mut pool, &mut burst).unwrap();
    let report = runtime.stop(Duration::from_secs(10));
    assert!(report.failures.is_empty());
    let mut told = listener.join().unwrap();
    told.sort_unstable();
    assert_eq!(told, [(0, false), (0, true), (1, false), (1, true)]);
}
