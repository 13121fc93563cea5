//! Workers on threads: hand-off, order, sleeping, failing and stopping.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    GCM, Side, arena, cable, frame, receive, snapshot, snapshot_of_suites, surroundings,
};
use convoy_crypto::Suite;
use convoy_engine::front::Sharing;
use convoy_engine::model::{Faults, Settings};
use convoy_io::{IoError, Port, PortCounters, mem};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::lifetime::Lifetime;
use convoy_ipsec::sa::WorkerId;
use convoy_ipsec::snapshot::{Published, Snapshot, Writer};
use convoy_ipsec::suite::EspSuite;
use convoy_packet::{Arena, Burst, Pool};
use convoy_runtime::{
    CryptoPool, EngineChoice, Failure, PoolError, Runtime, Surroundings, ThreadConfig, WireMatch,
    WirePort, WorkerPorts,
};

const WAITING: mem::Config = mem::Config { depth: 1024, send_timeout: Duration::from_secs(20) };
type Owner = fn(u8) -> u16;

/// A guard against hanging: workers wait long for a processor on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Choice of who does the cryptography, and of how it is shared.
type Engine = (EngineChoice, Sharing);

fn gateway(
    side: Side,
    arena: &'static Arena,
    (engine, sharing): &Engine,
    ports: Vec<WorkerPorts>,
    (flows, suite_of): (u8, &dyn Fn(u8) -> Suite),
    owner: impl Fn(u8) -> u16,
    threads: &ThreadConfig,
) -> Runtime {
    let snapshot = snapshot_of_suites(side, flows, owner, Lifetime::default(), suite_of);
    let published = Published::new(snapshot);
    // All of it, so that what is wrong does not get far.
    let surroundings = Surroundings {
        engine: engine.clone(),
        sharing: *sharing,
        checks: 1,
        ..surroundings(arena)
    };
    Runtime::start(&surroundings, threads, ports, &published, |_| {}).unwrap()
}

/// Packets by who did their cryptography, at both gateways together.
#[derive(Debug, Default)]
struct Shared {
    away: u64,
    here: u64,
    deferred: u64,
    helped: u64,
    recalled: u64,
    /// Done again because an engine was lost, as on a busy machine when helpers get no processor.
    redone: u64,
}

/// Sends `each` packets of every flow into worker 0 of A while receiving at B, and checks order.
fn through(
    workers: usize,
    flows: u8,
    each: u64,
    threads: &ThreadConfig,
    owners: (Owner, Owner),
) -> (u64, u64) {
    through_engine(&EngineChoice::Inline, workers, flows, each, threads, owners)
}

/// The same with another engine.
fn through_engine(
    engine: &EngineChoice,
    workers: usize,
    flows: u8,
    each: u64,
    threads: &ThreadConfig,
    owners: (Owner, Owner),
) -> (u64, u64) {
    let engine = (engine.clone(), Sharing::default());
    let (handed, _) = through_suites(&engine, workers, (flows, &|_| GCM), each, threads, owners);
    handed
}

/// The same with the suite of each flow, and the sums of what engines and helpers did.
fn through_suites(
    engine: &Engine,
    workers: usize,
    (flows, suite_of): (u8, &dyn Fn(u8) -> Suite),
    each: u64,
    threads: &ThreadConfig,
    owners: (Owner, Owner),
) -> ((u64, u64), Shared) {
    let frames = 16_384 + 2 * workers * engine.0.frames();
    let arena = arena(frames as u32);
    let mut cabling = cable(workers, &WAITING);
    let begin = Instant::now();
    let a = gateway(Side::A, arena, engine, cabling.ports_a, (flows, suite_of), owners.0, threads);
    let b = gateway(Side::B, arena, engine, cabling.ports_b, (flows, suite_of), owners.1, threads);
    let mut pool = arena.pool();
    let mut burst = Burst::new();
    let mut next = vec![0; usize::from(flows)];
    let (mut sent, mut got) = (0, 0);
    let total = each * u64::from(flows);
    while got < total {
        // Half a ring under way at most, so that what is tested is order and not overflow.
        while sent < total && sent - got < 512 && !burst.is_full() {
            let (flow, number) = ((sent % u64::from(flows)) as u8, sent / u64::from(flows));
            burst.push(frame(&mut pool, Side::A, flow, number, 100)).unwrap();
            sent += 1;
        }
        cabling.hosts_a[0].tx(&mut pool, &mut burst).unwrap();
        let before = got;
        for host in &mut cabling.hosts_b {
            got += receive(host, &mut pool, &mut burst, &mut next);
        }
        if got == before {
            std::thread::yield_now();
        }
    }
    let handed = |runtime: &Runtime| {
        runtime.update_stats(LIMIT);
        runtime.stats().iter().map(|stats| stats.handed_off.get()).sum::<u64>()
    };
    let counts = (handed(&a), handed(&b));
    let mut shared = Shared::default();
    for runtime in [a, b] {
        let stats = runtime.stats().to_vec();
        let report = runtime.stop(LIMIT);
        assert!(report.lost == 0 && report.failures.is_empty(), "{report:?}");
        for worker in stats {
            let busy = u128::from(worker.busy_ns.get());
            // With one flow the others may have nothing to do.
            let is_used = flows > 1 || worker.worker() == WorkerId(0);
            assert!(
                (busy > 0 || !is_used) && busy <= begin.elapsed().as_nanos(),
                "busy for {busy} ns"
            );
            assert_eq!(worker.pipeline.drops.iter().map(|(_, n)| n).sum::<u64>(), 0);
            shared.away += worker.engine.jobs.get();
            shared.here += worker.engine.here.get();
            shared.deferred += worker.engine.deferred.get();
            shared.helped += worker.helped.get();
            shared.recalled += worker.engine.recalled.get();
            shared.redone += worker.engine.redone.get();
        }
    }
    drop((pool, burst, cabling.hosts_a, cabling.hosts_b));
    assert_eq!((arena.leaked(), arena.in_depot()), (0, frames));
    (counts, shared)
}

/// Seen before: 49 of 50 packets that had arrived at the far host were counted.
#[test]
fn counters_that_are_brought_up_to_date_include_what_has_arrived_elsewhere() {
    let arena = arena(16_384);
    let mut cabling = cable(1, &WAITING);
    let (engine, threads) = ((EngineChoice::Inline, Sharing::default()), ThreadConfig::default());
    let flows: (u8, &dyn Fn(u8) -> Suite) = (1, &|_| GCM);
    let a = gateway(Side::A, arena, &engine, cabling.ports_a, flows, |_| 0, &threads);
    let b = gateway(Side::B, arena, &engine, cabling.ports_b, flows, |_| 0, &threads);
    let mut pool = arena.pool();
    let mut burst = Burst::new();
    let mut next = [0];
    for number in 0..500 {
        burst.push(frame(&mut pool, Side::A, 0, number, 100)).unwrap();
        cabling.hosts_a[0].tx(&mut pool, &mut burst).unwrap();
        let begun = Instant::now();
        while receive(&mut cabling.hosts_b[0], &mut pool, &mut burst, &mut next) == 0 {
            assert!(begun.elapsed() < LIMIT, "packet {number} does not arrive");
            std::thread::yield_now();
        }
        for runtime in [&a, &b] {
            runtime.update_stats(LIMIT);
            let (plain, wire) = (runtime.stats()[0].plain(), runtime.stats()[0].wire());
            let counts =
                [&plain, &wire].map(|port| port.value("rx_packets") + port.value("tx_packets"));
            assert_eq!(counts, [number + 1; 2]);
        }
    }
    for runtime in [a, b] {
        assert_eq!(runtime.stop(LIMIT).lost, 0);
    }
}

#[test]
fn packets_reach_the_worker_that_owns_their_sa_in_order() {
    // Both of A's SAs on worker 1, B's on worker 0: every packet changes workers on both sides.
    let counts = through(2, 2, 20_000, &ThreadConfig::default(), (|_| 1, |_| 0));
    assert_eq!(counts, (40_000, 40_000));
}

#[test]
fn three_workers_keep_the_order_of_each_sa() {
    let owners: (Owner, Owner) = (|i| u16::from(i % 3), |i| u16::from((i + 1) % 3));
    let (a, b) = through(3, 6, 8_000, &ThreadConfig::default(), owners);
    // At A, four of six flows leave worker 0; at B, each flow arrives one worker too early.
    assert_eq!((a, b), (4 * 8_000, 6 * 8_000));
}

#[test]
fn busy_workers_do_the_same_without_ever_sleeping() {
    let threads = ThreadConfig { busy_poll: true, ..ThreadConfig::default() };
    through(1, 1, 20_000, &threads, (|_| 0, |_| 0));
}

#[test]
fn threads_of_a_pool_keep_the_order_of_each_sa_and_lose_nothing() {
    for threads in [1, 2] {
        let pool = CryptoPool::start(&vec![None; threads]).unwrap();
        let engine = EngineChoice::Pool(pool);
        for workers in [1, 2] {
            let alone: (Owner, Owner) = (|_| 0, |_| 0);
            let both: (Owner, Owner) = (|flow| u16::from(flow) % 2, |flow| u16::from(flow + 1) % 2);
            let owner = if workers == 1 { alone } else { both };
            through_engine(&engine, workers, 6, 2000, &ThreadConfig::default(), owner);
        }
    }
}

#[test]
fn every_suite_passes_through_a_pool() {
    let suites: Vec<_> = EspSuite::all().map(EspSuite::suite).collect();
    let pool = EngineChoice::Pool(CryptoPool::start(&[None; 2]).unwrap());
    let engine = (pool, Sharing::default());
    let owners: (Owner, Owner) = (|flow| u16::from(flow) % 2, |flow| u16::from(flow + 1) % 2);
    let flows = u8::try_from(suites.len()).unwrap();
    let suite_of = |flow: u8| suites[usize::from(flow)];
    through_suites(&engine, 2, (flows, &suite_of), 100, &ThreadConfig::default(), owners);
}

/// One SA, whose packets are done by its worker and by threads, or other workers, in both directions.
#[test]
fn one_sa_over_several_cores_keeps_its_order_and_loses_nothing() {
    let long = std::env::var_os("CONVOY_LONG").is_some();
    let each = if long { 1_000_000 } else { 20_000 };
    let alone: (Owner, Owner) = (|_| 0, |_| 0);
    let balance = Sharing { balance: true, budget: 0 };
    let pool = |threads| EngineChoice::Pool(CryptoPool::start(&vec![None; threads]).unwrap());
    // What is beyond the budget goes away without fail; what a worker does not keep up with is a matter of chance.
    let tight = Sharing { balance: true, budget: 10_000 };
    for (engine, sharing, workers) in [
        (pool(1), balance, 1),
        (pool(2), tight, 1),
        (EngineChoice::Workers(2), tight, 2),
        (EngineChoice::Workers(3), tight, 3),
        (EngineChoice::Workers(3), balance, 3),
    ] {
        let (name, engine) = (engine.name(), (engine, sharing));
        let threads = ThreadConfig::default();
        let (_, shared) = through_suites(&engine, workers, (1, &|_| GCM), each, &threads, alone);
        let Shared { away, here, deferred, helped, recalled, redone } = shared;
        assert_eq!(away + here, 2 * each, "{shared:?}");
        if sharing.budget > 0 {
            assert!(here > 0 && deferred > 0 && deferred <= away, "{name}: {shared:?}");
        }
        // Each of those was done by another worker, or was taken back, if only by one that waited too long.
        let done = if name == "workers" { helped + recalled } else { away };
        assert!(done <= away && done + redone >= away, "{name}: {shared:?}");
    }
}

/// A request over the XFRM socket was kept waiting until a worker had woken.
#[test]
fn a_worker_that_rests_keeps_nobody_waiting() {
    let arena = arena(1024);
    let mut writer = Writer::new(Snapshot::default());
    let ports = cable(1, &WAITING).ports_a;
    let threads = ThreadConfig::default();
    let runtime =
        Runtime::start(&surroundings(arena), &threads, ports, writer.published(), |_| {}).unwrap();
    let stats = runtime.stats()[0].clone();
    let until = Instant::now() + LIMIT;
    // Nobody wakes it: it looks around by itself now and then, and may do so just then.
    loop {
        let generation = writer.publish(Snapshot::default());
        let is_seen = stats.has_seen(generation);
        if is_seen && stats.generation() < generation {
            break;
        }
        assert!(Instant::now() < until, "it is seen only when the worker has woken");
        std::thread::sleep(Duration::from_millis(1));
    }
    let last = writer.publish(Snapshot::default());
    runtime.wake();
    while stats.generation() < last {
        assert!(Instant::now() < until, "it does not take what was published");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_pool_needs_threads_and_processors_that_exist() {
    assert!(matches!(CryptoPool::start(&[]), Err(PoolError::NoThreads)));
    let error = CryptoPool::start(&[None, Some(1000)]).unwrap_err().to_string();
    assert!(error.starts_with("processor 1000 is not available here"), "{error}");
}

#[test]
fn a_device_that_fails_in_every_way_loses_and_reorders_nothing() {
    let faults = Faults {
        lost: 10,
        doubled: 300,
        late: 10,
        refused: 300,
        wrong: 5,
        stalled: 5,
        removed: 5,
        full: 2000,
        tells: true,
        absent: 3_000_000,
        ..Faults::default()
    };
    let engine = EngineChoice::Model(Settings::default(), faults);
    let owners: (Owner, Owner) = (|flow| u16::from(flow) % 2, |flow| u16::from(flow + 1) % 2);
    through_engine(&engine, 2, 6, 3000, &ThreadConfig::default(), owners);
}

#[test]
fn a_stop_brings_everything_that_had_arrived_to_its_end() {
    for _ in 0..20 {
        let arena = arena(16_384);
        let mut cabling = cable(2, &WAITING);
        let threads = ThreadConfig::default();
        let published = Published::new(snapshot(Side::A, 2, |_| 1));
        let mut pool = arena.pool();
        let mut burst = Burst::new();
        // Everything is there before the gateway runs, and it is stopped at once.
        for number in 0..900 {
            let frame = frame(&mut pool, Side::A, (number % 2) as u8, number / 2, 100);
            burst.push(frame).unwrap();
            if burst.len() == 225 {
                cabling.hosts_a[0].tx(&mut pool, &mut burst).unwrap();
            }
        }
        let runtime =
            Runtime::start(&surroundings(arena), &threads, cabling.ports_a, &published, |_| {})
                .unwrap();
        let stats = runtime.stats().to_vec();
        let report = runtime.stop(LIMIT);
        assert!(report.lost == 0 && report.failures.is_empty(), "{report:?}");
        let sent: u64 = stats.iter().map(|s| s.wire().value("tx_packets")).sum();
        assert_eq!(sent, 900);
        drop((pool, burst, cabling.ports_b, cabling.hosts_a, cabling.hosts_b));
        assert_eq!((arena.leaked(), arena.in_depot()), (0, 16_384));
    }
}

/// A port without packets that can be made to fail.
struct Breaking {
    after: Option<u32>,
    panics: bool,
}

impl Port for Breaking {
    fn rx(&mut self, _: &mut Pool, _: &mut Burst) -> Result<usize, IoError> {
        match self.after.as_mut() {
            Some(0) if self.panics => panic!("a defect"),
            Some(0) => Err(IoError::Dead(std::io::ErrorKind::BrokenPipe.into())),
            Some(n) => {
                *n -= 1;
                Ok(0)
            }
            None => Ok(0),
        }
    }
    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        from.release(pool);
        Ok(())
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

fn breaking(after: Option<u32>, panics: bool) -> WorkerPorts {
    WorkerPorts {
        plain: Box::new(Breaking { after, panics }),
        interfaces: Vec::new(),
        wire: vec![WirePort {
            carries: WireMatch::default(),
            port: Box::new(Breaking { after: None, panics: false }),
        }],
    }
}

#[test]
fn a_worker_that_fails_raises_the_alarm_and_says_how() {
    for panics in [false, true] {
        let arena = arena(64);
        let published = Published::new(snapshot(Side::A, 1, |_| 0));
        let alarms = Arc::new(AtomicU64::new(0));
        let ports = vec![breaking(None, false), breaking(Some(100), panics)];
        let runtime =
            Runtime::start(&surroundings(arena), &ThreadConfig::default(), ports, &published, {
                let alarms = alarms.clone();
                move |worker| {
                    alarms.fetch_add(1 + u64::from(worker.0), Ordering::Release);
                }
            })
            .unwrap();
        while alarms.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(alarms.load(Ordering::Acquire), 2, "worker 1, once");
        // No thread waits for one that has ended.
        let begun = Instant::now();
        runtime.update_stats(10 * LIMIT);
        assert!(begun.elapsed() < 10 * LIMIT);
        let report = runtime.stop(LIMIT);
        match report.failures.as_slice() {
            [Failure::Panicked { worker: 1, message }] if panics => assert_eq!(message, "a defect"),
            [Failure::Port { worker: 1, .. }] if !panics => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_impossible_processor_stops_the_start() {
    let arena = arena(64);
    let published = Published::new(snapshot(Side::A, 1, |_| 0));
    let threads = ThreadConfig { pin: vec![1_000_000], ..ThreadConfig::default() };
    let ports = vec![breaking(None, false)];
    let error = Runtime::start(&surroundings(arena), &threads, ports, &published, |_| {});
    assert_eq!(
        error.unwrap_err().to_string(),
        "worker 0: processor number 1000000 is too large for this system"
    );
}

#[test]
fn what_a_full_ring_does_not_take_is_dropped_and_counted() {
    let arena = arena(16_384);
    let mut cabling = cable(2, &mem::Config { depth: 8192, send_timeout: Duration::ZERO });
    let mut workers =
        crate::common::teams((cabling.ports_a, cabling.ports_b), arena, 1, |_| 1, |_| 1);
    let mut pool = arena.pool();
    let mut burst = Burst::new();
    for number in 0..4096 {
        burst.push(frame(&mut pool, Side::A, 0, number, 100)).unwrap();
        if burst.is_full() {
            cabling.hosts_a[0].tx(&mut pool, &mut burst).unwrap();
            // Only worker 0 runs; worker 1, which owns the SA, never empties its ring.
            workers[0].turn(convoy_ipsec::clock::Now(1)).unwrap();
        }
    }
    let stats = workers[0].stats().clone();
    let dropped = stats.pipeline.drops.get(DropReason::RingFull);
    assert_eq!((stats.handed_off.get(), dropped), (2048, 2048));
    assert_eq!(workers[0].id(), WorkerId(0));
    drop((workers, pool, burst, cabling.hosts_a, cabling.hosts_b));
    assert_eq!((arena.leaked(), arena.in_depot()), (0, 16_384));
}
