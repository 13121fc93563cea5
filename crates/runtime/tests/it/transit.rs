//! Packets go from tunnel to tunnel through a gateway of several workers: a worker that opens a packet gives it to the
//! one whose SA protects it next, and each flow stays in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Side, arena, cable, frame, read, settle, snapshot, surroundings};
use convoy_io::{Port, mem};
use convoy_ipsec::sa::{
    Endpoints, InboundSpec, OutboundSpec, ReqId, SaSlot, SaSpec, Shared, WorkerId,
};
use convoy_ipsec::selector::Selector;
use convoy_ipsec::sequence::Lease;
use convoy_ipsec::snapshot::{Snapshot, Writer};
use convoy_ipsec::spd::{Direction, KnownNetworks, Policy, PolicyAction, Spd};
use convoy_packet::{Arena, Burst, Pool};
use convoy_runtime::{
    Runtime, ThreadConfig, WireMatch, WirePort, Worker, WorkerPorts, WorkerStats,
};
use convoy_wire::{Prefix, SeqNum};

/// Flows, each with SAs of its own on both sides of the hub.
const FLOWS: u8 = 4;
/// Reqids and slots of the hub's tunnels to B are those of its tunnels to A, and so many more.
const TO_B: u32 = 100;

/// The snapshot of a hub between A and B: it ends what A sends to B, and sends it on. Packets of flow `i` are
/// opened by worker `of_a(i)` and protected by worker `of_b(i)`.
fn hub(of_a: impl Fn(u8) -> u16, of_b: impl Fn(u8) -> u16) -> Snapshot {
    let (a, b) = (snapshot(Side::A, FLOWS, |_| 0), snapshot(Side::B, FLOWS, |_| 0));
    let network = |side: u8, i| Prefix::new([10, side, i, 0].into(), 24).unwrap().into();
    let policy = |i: u8, direction, (local, remote), reqid: u32| Policy {
        name: format!("{i} {reqid}").into(),
        priority: 0,
        direction,
        selector: Selector {
            local: network(local, i),
            remote: network(remote, i),
            ..Selector::default()
        },
        action: PolicyAction::Protect { reqid: ReqId(reqid) },
    };
    let policies = (0..FLOWS).flat_map(|i| {
        let reqid = u32::from(i);
        [
            policy(i, Direction::Inbound, (2, 1), reqid),
            policy(i, Direction::Outbound, (2, 1), reqid),
            policy(i, Direction::Inbound, (1, 2), TO_B + reqid),
            policy(i, Direction::Outbound, (1, 2), TO_B + reqid),
        ]
    });
    let mut spd = Spd::new(policies).unwrap();
    spd.set_transit(Some(&KnownNetworks::default()));
    let mut hub = Snapshot::new(spd);
    for i in 0..FLOWS {
        let slot = SaSlot(i.into());
        // From A it receives as B would, and to B it sends as A would, with the same keys.
        let opens = b.inbound(slot).unwrap();
        let opens = InboundSpec {
            sa: SaSpec {
                name: "from a".into(),
                worker: WorkerId(of_a(i)),
                counters: Shared::default(),
                ..opens.sa.clone()
            },
            ..InboundSpec::clone(opens)
        };
        hub.add_inbound(slot, Arc::new(opens)).unwrap();
        let seals = a.outbound(slot).unwrap();
        let endpoints = Endpoints { ..seals.endpoints };
        let seals = OutboundSpec {
            sa: SaSpec {
                name: "to b".into(),
                reqid: ReqId(TO_B + u32::from(i)),
                worker: WorkerId(of_b(i)),
                endpoints,
                counters: Shared::default(),
                ..seals.sa.clone()
            },
            lease: Arc::new(Lease::new(SeqNum::new(0), 1 << 40)).into(),
            ..OutboundSpec::clone(seals)
        };
        hub.add_outbound(slot, Arc::new(seals)).unwrap();
    }
    hub
}

/// Ports of A, hub and B, whose worker `i` each is wired to the next one's.
struct Chain {
    ports: [Vec<WorkerPorts>; 3],
    /// The hosts' ends of the plain sides.
    hosts: [Vec<mem::MemPort>; 3],
}

fn chain(workers: usize, config: &mem::Config) -> Chain {
    let a = cable(workers, config);
    let b = cable(workers, config);
    // The hub takes the place of B towards A, and that of A towards B.
    let mut hub_ports = Vec::new();
    for (to_a, to_b) in a.ports_b.into_iter().zip(b.ports_a) {
        let mut wire = to_a.wire;
        // All that it sends goes to B: the other wire only receives.
        wire.push(WirePort { carries: WireMatch::default(), port: take(to_b.wire) });
        wire.rotate_right(1);
        hub_ports.push(WorkerPorts { plain: to_a.plain, interfaces: Vec::new(), wire });
    }
    Chain { ports: [a.ports_a, hub_ports, b.ports_b], hosts: [a.hosts_a, a.hosts_b, b.hosts_b] }
}

fn take(wire: Vec<WirePort>) -> Box<dyn Port> {
    wire.into_iter().next().unwrap().port
}

fn pictures(of_a: impl Fn(u8) -> u16, of_b: impl Fn(u8) -> u16) -> [Writer; 3] {
    let ends = [Side::A, Side::B].map(|side| Writer::new(snapshot(side, FLOWS, |i| i.into())));
    let [a, b] = ends;
    [a, Writer::new(hub(of_a, of_b)), b]
}

fn sum(stats: &[Arc<WorkerStats>], of: impl Fn(&WorkerStats) -> u64) -> u64 {
    stats.iter().map(|worker| of(worker)).sum()
}

#[test]
fn packets_go_on_within_a_turn_of_the_worker_that_opens_them() {
    let arena = arena(16_384);
    let Chain { ports, mut hosts } = chain(1, &mem::Config::default());
    let [mut a, hub, mut b] = pictures(|_| 0, |_| 0);
    // One worker each.
    let one = |side, writer: &mut Writer| {
        writer.publish(snapshot(side, FLOWS, |_| 0));
    };
    one(Side::A, &mut a);
    one(Side::B, &mut b);
    let mut workers: Vec<Worker> = Vec::new();
    for (ports, writer) in ports.into_iter().zip([&a, &hub, &b]) {
        let published = writer.published();
        workers.extend(Worker::team(&surroundings(arena), ports, published).unwrap());
    }
    let mut pool = arena.pool();
    let mut burst = Burst::new();
    for number in 0..256 {
        let flow = (number % 4) as u8;
        burst.push(frame(&mut pool, Side::A, flow, number, 200)).unwrap();
    }
    hosts[0][0].tx(&mut pool, &mut burst).unwrap();
    settle(&mut workers);
    assert_eq!(hosts[1][0].rx(&mut pool, &mut burst).unwrap(), 0, "the hub's host sees nothing");
    assert_eq!(hosts[2][0].rx(&mut pool, &mut burst).unwrap(), 256);
    for (frame, number) in burst.drain().zip(0..) {
        assert_eq!(read(&frame), ((number % 4) as u8, number));
        // A, hub and B take one each.
        assert_eq!(frame.data()[8], 64 - 3);
        pool.free(frame);
    }
    let hub = &workers[1].stats().pipeline;
    assert_eq!((hub.transit_packets.get(), hub.outbound_packets.get()), (256, 256));
    drop((workers, pool));
    assert_eq!(arena.leaked(), 0);
}

/// Sends `each` packets of every flow from A through the hub while receiving at B.
fn through(of_a: fn(u8) -> u16, of_b: fn(u8) -> u16) -> (u64, u64) {
    const EACH: u64 = 20_000;
    let waiting = mem::Config { depth: 1024, send_timeout: Duration::from_secs(20) };
    let arena = arena(32_768);
    let Chain { ports, mut hosts } = chain(2, &waiting);
    let [mut a, hub, mut b] = pictures(of_a, of_b);
    // A and B have one owner for all that comes: what is wired to it.
    for (writer, side) in [(&mut a, Side::A), (&mut b, Side::B)] {
        writer.publish(snapshot(side, FLOWS, |i| u16::from(i) % 2));
    }
    let threads = ThreadConfig::default();
    let start = |(ports, writer): (Vec<WorkerPorts>, &Writer)| {
        Runtime::start(&surroundings(arena), &threads, ports, writer.published(), |_| {}).unwrap()
    };
    let runtimes: Vec<_> = ports.into_iter().zip([&a, &hub, &b]).map(start).collect();
    let mut pool = arena.pool();
    let (mut sent, mut got) = (0, 0);
    let mut next = vec![0; usize::from(FLOWS)];
    let until = Instant::now() + Duration::from_secs(120);
    while got < EACH * u64::from(FLOWS) {
        assert!(Instant::now() < until, "{got} of {sent} came through");
        sent = feed(arena, &mut pool, &mut hosts[0][0], (sent, got), EACH * u64::from(FLOWS));
        let mut burst = Burst::new();
        let before = got;
        for host in &mut hosts[2] {
            got += crate::common::receive(host, &mut pool, &mut burst, &mut next);
        }
        if got == before {
            std::thread::yield_now();
        }
    }
    runtimes[1].update_stats(Duration::from_secs(60));
    let hub = runtimes[1].stats();
    let counts = (
        sum(hub, |worker| worker.pipeline.transit_packets.get()),
        sum(hub, |worker| worker.handed_off.get()),
    );
    for runtime in runtimes {
        let stats = runtime.stats().to_vec();
        let report = runtime.stop(Duration::from_secs(10));
        assert!(report.lost == 0 && report.failures.is_empty(), "{report:?}");
        let drops = sum(&stats, |w| w.pipeline.drops.iter().map(|(_, n)| n).sum());
        assert_eq!(drops, 0);
    }
    drop(pool);
    assert_eq!(arena.leaked(), 0);
    assert_eq!(counts.0, EACH * u64::from(FLOWS));
    counts
}

/// Sends some packets more, of all flows in turn.
fn feed(
    arena: &'static Arena,
    pool: &mut Pool,
    host: &mut mem::MemPort,
    (mut sent, got): (u64, u64),
    total: u64,
) -> u64 {
    let mut burst = Burst::new();
    // Half a ring under way at most, so that what is tested is order and not overflow.
    while sent < total && sent - got < 512 && !burst.is_full() {
        let (flow, number) = ((sent % u64::from(FLOWS)) as u8, sent / u64::from(FLOWS));
        burst.push(frame(pool, Side::A, flow, number, 100)).unwrap();
        sent += 1;
    }
    host.tx(pool, &mut burst).unwrap();
    assert_eq!(arena.leaked(), 0);
    sent
}

#[test]
fn workers_use_their_own_outbound_sas_alone_and_flows_stay_in_order() {
    // The same worker opens and protects; then always the other one does.
    let (_, same) = through(|i| u16::from(i) % 2, |i| u16::from(i) % 2);
    let (all, other) = through(|i| u16::from(i) % 2, |i| u16::from(i + 1) % 2);
    assert!(other >= same + all, "{same} and {other} were handed to another worker");
}
