//! Wire ports that come and go while workers run.

use std::net::UdpSocket;
use std::time::Duration;

use crate::common::{Side, arena, cable, frame, receive, settle, snapshot, surroundings, teams};
use convoy_io::{Port, mem, udp};
use convoy_ipsec::snapshot::Published;
use convoy_packet::{Arena, Burst};
use convoy_runtime::{
    Runtime, ThreadConfig, WireId, WireMatch, WirePlace, WirePort, Wiring, WiringError, Worker,
};

const CONFIG: mem::Config = mem::Config { depth: 512, send_timeout: Duration::from_millis(1) };
const LIMIT: Duration = Duration::from_secs(20);

/// The outer address of a side.
fn from(side: Side) -> WirePlace {
    WirePlace::OfSource([192, 0, 2, if side == Side::A { 1 } else { 2 }].into())
}

/// One wire port per worker, and the far ends.
fn ports(n: usize) -> (Vec<WirePort>, Vec<mem::MemPort>) {
    let pairs = (0..n).map(|_| {
        let (near, far) = mem::pair(&CONFIG);
        (WirePort { carries: WireMatch::default(), port: Box::new(near) as Box<dyn Port> }, far)
    });
    pairs.unzip()
}

/// Takes all that has come to far ends, by port.
fn take(far: &mut [mem::MemPort], arena: &'static Arena) -> Vec<usize> {
    let (mut pool, mut burst) = (arena.pool(), Burst::new());
    far.iter_mut()
        .map(|port| {
            let mut n = 0;
            while port.rx(&mut pool, &mut burst).unwrap() > 0 {
                n += burst.len();
                burst.release(&mut pool);
            }
            n
        })
        .collect()
}

/// Gateway A stepped by hand, its hosts, and the far ends of the ports it was made with.
struct Bench {
    arena: &'static Arena,
    workers: Vec<Worker>,
    wiring: Wiring,
    hosts: Vec<mem::MemPort>,
    first: Vec<mem::MemPort>,
    number: u64,
}

impl Bench {
    fn new(n: usize) -> Self {
        let arena = arena(4096);
        let mut cabling = cable(n, &CONFIG);
        let (wire, first) = ports(n);
        for (worker, port) in cabling.ports_a.iter_mut().zip(wire) {
            worker.wire = vec![port];
        }
        let owner = move |flow| u16::from(flow) % n as u16;
        let mut workers = teams((cabling.ports_a, cabling.ports_b), arena, n as u8, owner, owner);
        workers.truncate(n);
        let wiring = Wiring::of(&mut workers);
        Self { arena, workers, wiring, hosts: cabling.hosts_a, first, number: 0 }
    }

    /// Ten packets of each flow, flow `i` to and through worker `i`.
    fn send(&mut self) {
        let (mut pool, mut burst) = (self.arena.pool(), Burst::new());
        for (flow, host) in (0..).zip(&mut self.hosts) {
            for n in 0..10 {
                burst.push(frame(&mut pool, Side::A, flow, self.number + n, 100)).unwrap();
            }
            host.tx(&mut pool, &mut burst).unwrap();
        }
        self.number += 10;
        settle(&mut self.workers);
    }

    /// Sums over all workers: sent, received.
    fn counts(&mut self) -> (u64, u64) {
        self.workers.iter_mut().for_each(Worker::publish);
        let sum = |name| self.workers.iter().map(|w| w.stats().wire().value(name)).sum();
        (sum("tx_packets"), sum("rx_packets"))
    }

    fn add(&mut self, place: WirePlace) -> (WireId, Vec<mem::MemPort>) {
        let (ports, far) = ports(self.workers.len());
        let id = self.wiring.add(ports, place).unwrap();
        settle(&mut self.workers);
        (id, far)
    }

    /// Workers stepped by hand let go only with their next turn.
    fn remove(&mut self, id: WireId) {
        assert!(!self.wiring.remove(id, Duration::ZERO).unwrap());
        settle(&mut self.workers);
        self.wiring.collect();
    }
}

#[test]
fn packets_leave_through_the_port_of_their_address_while_it_is_there() {
    let mut bench = Bench::new(2);
    bench.send();
    assert_eq!(take(&mut bench.first, bench.arena), [10, 10]);
    let (other, mut of_other) = bench.add(from(Side::B));
    bench.send();
    assert_eq!(take(&mut of_other, bench.arena), [0, 0]);
    assert_eq!(take(&mut bench.first, bench.arena), [10, 10]);
    let (own, mut of_own) = bench.add(from(Side::A));
    assert_eq!(bench.wiring.len(), 2);
    bench.send();
    assert_eq!(take(&mut of_own, bench.arena), [10, 10]);
    assert_eq!(take(&mut bench.first, bench.arena), [0, 0]);
    bench.remove(own);
    bench.remove(other);
    assert!(bench.wiring.is_empty());
    bench.send();
    assert_eq!(take(&mut bench.first, bench.arena), [10, 10]);
    let drops: u64 = bench
        .workers
        .iter()
        .flat_map(|w| w.stats().pipeline.drops.iter().collect::<Vec<_>>())
        .map(|(_, n)| n)
        .sum();
    assert_eq!(drops, 0);
}

#[test]
fn a_port_without_an_address_is_asked_last() {
    let mut bench = Bench::new(1);
    let (_, mut late) = bench.add(WirePlace::Last);
    bench.send();
    assert_eq!(take(&mut late, bench.arena), [0]);
    assert_eq!(take(&mut bench.first, bench.arena), [10]);
}

#[test]
fn sums_go_on_when_ports_leave_and_others_take_their_slots() {
    let mut bench = Bench::new(3);
    let mut expected = (0, 0);
    // More often than there are slots.
    for _ in 0..100 {
        let (id, mut far) = bench.add(from(Side::A));
        bench.send();
        assert_eq!(take(&mut far, bench.arena), [10, 10, 10]);
        let mut pool = bench.arena.pool();
        let mut burst = Burst::new();
        // Something received: what it is does not matter.
        burst.push(frame(&mut pool, Side::B, 0, 0, 100)).unwrap();
        far[1].tx(&mut pool, &mut burst).unwrap();
        settle(&mut bench.workers);
        expected = (expected.0 + 30, expected.1 + 1);
        assert_eq!(bench.counts(), expected);
        bench.remove(id);
        assert_eq!(bench.counts(), expected);
        bench.send();
        expected.0 += 30;
        assert_eq!(take(&mut bench.first, bench.arena), [10, 10, 10]);
        assert_eq!(bench.counts(), expected);
    }
}

#[test]
fn what_was_received_is_still_taken_in_and_frames_come_back() {
    let mut bench = Bench::new(1);
    let (id, mut far) = bench.add(from(Side::A));
    let (mut pool, mut burst) = (bench.arena.pool(), Burst::new());
    for number in 0..50 {
        burst.push(frame(&mut pool, Side::B, 0, number, 100)).unwrap();
    }
    far[0].tx(&mut pool, &mut burst).unwrap();
    bench.workers[0].turn(convoy_ipsec::clock::Now(1)).unwrap();
    assert!(!bench.wiring.remove(id, Duration::ZERO).unwrap());
    settle(&mut bench.workers);
    bench.wiring.collect();
    assert_eq!(bench.counts().1, 50);
    let arena = bench.arena;
    drop((bench, far, pool, burst));
    assert_eq!((arena.leaked(), arena.in_depot()), (0, 4096));
}

#[test]
fn wrong_numbers_and_unknown_sets_are_refused() {
    let mut bench = Bench::new(2);
    let wrong = WiringError::Count { ports: 1, workers: 2 };
    assert_eq!(bench.wiring.add(ports(1).0, WirePlace::Last), Err(wrong));
    let ids: Vec<_> = (0..64).map(|_| bench.add(from(Side::B)).0).collect();
    let more = || ports(2).0;
    assert_eq!(bench.wiring.add(more(), from(Side::B)), Err(WiringError::Full));
    // Its slot is free when the workers have let go, not before.
    assert_eq!(bench.wiring.remove(ids[7], Duration::ZERO), Ok(false));
    assert_eq!(bench.wiring.add(more(), from(Side::B)), Err(WiringError::Full));
    assert_eq!(bench.wiring.remove(ids[7], Duration::ZERO), Err(WiringError::Unknown));
    settle(&mut bench.workers);
    bench.wiring.add(more(), from(Side::B)).unwrap();
    assert_eq!(bench.wiring.remove(ids[7], Duration::ZERO), Err(WiringError::Unknown));
    assert_eq!(bench.wiring.len(), 64);
    // Workers that ended hold nothing.
    bench.workers.clear();
    assert_eq!(bench.wiring.remove(ids[0], Duration::ZERO), Ok(true));
}

#[test]
fn running_workers_take_sockets_in_and_close_them() {
    let arena = arena(16_384);
    let mut cabling = cable(2, &CONFIG);
    let published = Published::new(snapshot(Side::A, 2, u16::from));
    let threads = ThreadConfig::default();
    let surroundings = surroundings(arena);
    // Without ports that must be polled, so that the workers sleep for as long as they may.
    for (n, worker) in cabling.ports_a.iter_mut().enumerate() {
        worker.wire.clear();
        let local = format!("127.0.0.{}:0", n + 1).parse().unwrap();
        worker.plain = Box::new(udp::open(&udp::Config::new(local)).unwrap().remove(0));
    }
    let mut runtime =
        Runtime::start(&surroundings, &threads, cabling.ports_a, &published, |_| {}).unwrap();
    let mut wiring = runtime.take_wiring().unwrap();
    assert!(runtime.take_wiring().is_none());
    let received = |runtime: &Runtime| -> u64 {
        runtime.stats().iter().map(|s| s.wire().value("rx_packets")).sum()
    };
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for round in 1..=20 {
        let config = udp::Config { workers: 2, ..udp::Config::new("127.0.0.1:0".parse().unwrap()) };
        let opened = udp::open(&config).unwrap();
        let local = opened[0].local();
        let carries = WireMatch::default();
        let ports = opened.into_iter().map(|port| WirePort { carries, port: Box::new(port) });
        let id = wiring.add(ports.collect(), WirePlace::OfSource(local.ip())).unwrap();
        for spi in 256..260_u32 {
            peer.send_to(&[spi.to_be_bytes(), [0; 4]].concat(), local).unwrap();
        }
        // Counters are published at the latest when a worker goes to sleep.
        while received(&runtime) < 4 * round {
            std::thread::yield_now();
        }
        assert_eq!(wiring.remove(id, LIMIT), Ok(true));
        // Closed: the port is free for one that does not share.
        drop(UdpSocket::bind(local).unwrap());
        assert_eq!(received(&runtime), 4 * round);
    }
    let report = runtime.stop(LIMIT);
    assert!(report.failures.is_empty(), "{report:?}");
}

#[test]
fn traffic_goes_on_while_ports_come_and_go() {
    let arena = arena(16_384);
    let waiting = mem::Config { depth: 1024, send_timeout: LIMIT };
    let mut cabling = cable(1, &waiting);
    let start = |side, ports| {
        let published = Published::new(snapshot(side, 1, |_| 0));
        let threads = ThreadConfig::default();
        Runtime::start(&surroundings(arena), &threads, ports, &published, |_| {}).unwrap()
    };
    let mut a = start(Side::A, cabling.ports_a);
    let b = start(Side::B, cabling.ports_b);
    let mut wiring = a.take_wiring().unwrap();
    let (mut pool, mut burst, mut next) = (arena.pool(), Burst::new(), [0]);
    let mut added = None;
    for round in 0..500 {
        for n in 0..20 {
            burst.push(frame(&mut pool, Side::A, 0, round * 20 + n, 100)).unwrap();
        }
        cabling.hosts_a[0].tx(&mut pool, &mut burst).unwrap();
        // Of another address: the traffic never goes this way.
        match added.take() {
            None => added = Some(wiring.add(ports(1).0, from(Side::B)).unwrap()),
            Some(id) => assert_eq!(wiring.remove(id, LIMIT), Ok(true)),
        }
        receive(&mut cabling.hosts_b[0], &mut pool, &mut burst, &mut next);
    }
    while next[0] < 500 * 20 {
        receive(&mut cabling.hosts_b[0], &mut pool, &mut burst, &mut next);
    }
    for runtime in [a, b] {
        let report = runtime.stop(LIMIT);
        assert!(report.lost == 0 && report.failures.is_empty(), "{report:?}");
    }
}
