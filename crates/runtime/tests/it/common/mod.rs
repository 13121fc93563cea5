//! Two gateways with any number of workers, joined by wires in memory.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::sync::Arc;

use convoy_crypto::{
    Cpu, GcmParams, IcvLen, KeyBits, KeyMaterial, OpenKey, SealKey, SecretBytes, Suite,
};
use convoy_engine::front::Sharing;
use convoy_io::{Port, mem};
use convoy_ipsec::clock::Now;
use convoy_ipsec::lifetime::Lifetime;
use convoy_ipsec::pipeline::PipelineConfig;
use convoy_ipsec::sa::{
    DfPolicy, DscpPolicy, Endpoints, InboundSpec, IpsecProtocol, Mode, OutboundSpec, OuterHeader,
    ReqId, SaSlot, SaSpec, Shared, WorkerId,
};
use convoy_ipsec::selector::Selector;
use convoy_ipsec::sequence::Lease;
use convoy_ipsec::snapshot::{Published, Snapshot};
use convoy_ipsec::spd::{Direction, Policy, PolicyAction, Spd, SpdId};
use convoy_packet::{Arena, Burst, Frame, FrameSize, InterfaceId, Pool};
use convoy_runtime::{EngineChoice, Surroundings, WireMatch, WirePort, Worker, WorkerPorts};
use convoy_wire::{Ipv4Repr, Prefix, Protocol, SeqNum, Spi, Tos, udp::UdpRepr};

/// One of the two gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    A,
    B,
}

impl Side {
    fn net(self) -> u8 {
        match self {
            Self::A => 1,
            Self::B => 2,
        }
    }

    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    fn wire(self) -> std::net::IpAddr {
        [192, 0, 2, self.net()].into()
    }
}

/// Policies and SAs of one side: flow `i` runs between 10.1.i.0/24 and 10.2.i.0/24 through SAs of
/// its own, which belong to worker `owner(i)`.
pub fn snapshot(side: Side, flows: u8, owner: impl Fn(u8) -> u16) -> Snapshot {
    limited_snapshot(side, flows, owner, Lifetime::default())
}

/// As [`snapshot`], with SAs that end.
pub fn limited_snapshot(
    side: Side,
    flows: u8,
    owner: impl Fn(u8) -> u16,
    lifetime: Lifetime,
) -> Snapshot {
    snapshot_of_suites(side, flows, owner, lifetime, &|_| GCM)
}

/// AES-128-GCM, the suite of all flows unless a test says otherwise.
pub const GCM: Suite = Suite::Gcm(GcmParams::new(KeyBits::Aes128, IcvLen::Icv16));

/// As [`limited_snapshot`], with the suite of each flow.
pub fn snapshot_of_suites(
    side: Side,
    flows: u8,
    owner: impl Fn(u8) -> u16,
    lifetime: Lifetime,
    suite_of: &dyn Fn(u8) -> Suite,
) -> Snapshot {
    let cpu = Cpu::detect().unwrap();
    let network = |side: Side, i| Prefix::new([10, side.net(), i, 0].into(), 24).unwrap().into();
    let policy = |i: u8, direction| Policy {
        name: format!("flow {i}").into(),
        priority: 0,
        direction,
        selector: Selector {
            local: network(side, i),
            remote: network(side.other(), i),
            ..Selector::default()
        },
        action: PolicyAction::Protect { reqid: ReqId(i.into()) },
    };
    let policies =
        (0..flows).flat_map(|i| [policy(i, Direction::Outbound), policy(i, Direction::Inbound)]);
    let mut snapshot = Snapshot::new(Spd::new(policies).unwrap());
    let key = |from: Side, i: u8| {
        let suite = suite_of(i);
        // Of bytes that differ, for 3DES takes no key of equal parts.
        let secret = |len: usize| {
            let byte = |at: usize| from.net() ^ i.wrapping_mul(16) ^ at as u8;
            SecretBytes::from((0..len).map(byte).collect::<Vec<_>>())
        };
        let material = KeyMaterial {
            cipher: secret(suite.key_bytes()),
            integrity: secret(suite.integrity_key_bytes()),
        };
        (suite, material)
    };
    let seal = |(suite, material)| SealKey::new(&cpu, suite, material).unwrap();
    let open = |(suite, material)| OpenKey::new(&cpu, suite, material).unwrap();
    let spi = |from: Side, i: u8| Spi::new(0x1000 * u32::from(from.net()) + u32::from(i)).unwrap();
    let endpoints = Endpoints { local: side.wire(), remote: side.other().wire() };
    for i in 0..flows {
        let slot = SaSlot(i.into());
        let worker = WorkerId(owner(i));
        let outbound = OutboundSpec {
            sa: SaSpec {
                name: format!("out {i}").into(),
                spi: spi(side, i),
                reqid: ReqId(i.into()),
                named: None,
                serial: 0,
                protocol: IpsecProtocol::Esp,
                mode: Mode::Tunnel,
                endpoints,
                encap: None,
                esn: true,
                salt: [i; 4].into(),
                lifetime,
                worker,
                counters: Shared::default(),
            },
            outer: OuterHeader {
                df: DfPolicy::Copy,
                dscp: DscpPolicy::Copy,
                ecn: true,
                hop_limit: 64,
            },
            source_is_here: true,
            path_mtu: 1500,
            pad_to: 0,
            dummy_every: None,
            key: Arc::new(seal(key(side, i))).into(),
            lease: Arc::new(Lease::new(SeqNum::new(0), 1 << 40)).into(),
        };
        snapshot.add_outbound(slot, Arc::new(outbound)).unwrap();
        let inbound = InboundSpec {
            sa: SaSpec {
                name: format!("in {i}").into(),
                spi: spi(side.other(), i),
                reqid: ReqId(i.into()),
                named: None,
                serial: 0,
                protocol: IpsecProtocol::Esp,
                mode: Mode::Tunnel,
                endpoints,
                encap: None,
                esn: true,
                salt: [i; 4].into(),
                lifetime,
                worker,
                counters: Shared::default(),
            },
            from_peer_only: false,
            ecn: true,
            replay_window: 4096,
            interface: InterfaceId(0),
            key: Arc::new(open(key(side.other(), i))).into(),
        };
        snapshot.add_inbound(slot, Arc::new(inbound)).unwrap();
    }
    snapshot
}

pub fn surroundings(arena: &'static Arena) -> Surroundings {
    Surroundings {
        pipeline: PipelineConfig {
            worker: WorkerId(0),
            decrement_ttl: true,
            udp6_checksum: true,
            icmp_source_v4: None,
            icmp_source_v6: None,
        },
        spds: vec![SpdId::default()],
        engine: EngineChoice::Inline,
        sharing: Sharing::default(),
        checks: 0,
        arena,
    }
}

pub fn arena(frames: u32) -> &'static Arena {
    Arena::map(frames, FrameSize::for_packet(1600)).unwrap()
}

/// Ports of a pair of gateways with `n` workers each: worker `i` of A is wired to worker `i` of B.
pub struct Cabling {
    pub ports_a: Vec<WorkerPorts>,
    pub ports_b: Vec<WorkerPorts>,
    /// The hosts' ends of the plain sides, by worker.
    pub hosts_a: Vec<mem::MemPort>,
    pub hosts_b: Vec<mem::MemPort>,
}

pub fn cable(n: usize, config: &mem::Config) -> Cabling {
    let mut cabling = Cabling {
        ports_a: Vec::new(),
        ports_b: Vec::new(),
        hosts_a: Vec::new(),
        hosts_b: Vec::new(),
    };
    for _ in 0..n {
        let (wire_a, wire_b) = mem::pair(config);
        let (plain_a, host_a) = mem::pair(config);
        let (plain_b, host_b) = mem::pair(config);
        let ports = |plain: mem::MemPort, wire: mem::MemPort| WorkerPorts {
            plain: Box::new(plain),
            interfaces: Vec::new(),
            wire: vec![WirePort { carries: WireMatch::default(), port: Box::new(wire) }],
        };
        cabling.ports_a.push(ports(plain_a, wire_a));
        cabling.ports_b.push(ports(plain_b, wire_b));
        cabling.hosts_a.push(host_a);
        cabling.hosts_b.push(host_b);
    }
    cabling
}

/// Workers of both gateways, to be stepped by hand.
pub fn teams(
    cabling: (Vec<WorkerPorts>, Vec<WorkerPorts>),
    arena: &'static Arena,
    flows: u8,
    owner_a: impl Fn(u8) -> u16,
    owner_b: impl Fn(u8) -> u16,
) -> Vec<Worker> {
    let published_a = Published::new(snapshot(Side::A, flows, owner_a));
    let published_b = Published::new(snapshot(Side::B, flows, owner_b));
    let mut all = Worker::team(&surroundings(arena), cabling.0, &published_a).unwrap();
    all.extend(Worker::team(&surroundings(arena), cabling.1, &published_b).unwrap());
    all
}

const HEADERS: usize = 28;

/// A UDP packet of `len` bytes of flow `flow`, `number` in its payload.
pub fn packet(from: Side, flow: u8, number: u64, len: usize) -> ([u8; 1500], usize) {
    let mut bytes = [0; 1500];
    let len = len.clamp(HEADERS + 8, 1400);
    let ip = Ipv4Repr {
        tos: Tos::default(),
        ident: number as u16,
        dont_fragment: true,
        ttl: 64,
        protocol: Protocol::UDP,
        src: [10, from.net(), flow, 1].into(),
        dst: [10, from.other().net(), flow, 1].into(),
        payload_len: len - 20,
    };
    ip.emit(&mut bytes).unwrap();
    let udp = UdpRepr { src_port: 7, dst_port: 7, payload_len: len - HEADERS };
    udp.emit(&mut bytes[20..]).unwrap();
    bytes[HEADERS..HEADERS + 8].copy_from_slice(&number.to_be_bytes());
    (bytes, len)
}

pub fn frame(pool: &mut Pool, from: Side, flow: u8, number: u64, len: usize) -> Frame {
    let mut frame = pool.alloc().expect("frames");
    let (bytes, len) = packet(from, flow, number, len);
    frame.fill_from(&bytes[..len]).unwrap();
    frame
}

/// Flow and number of a packet that came through.
pub fn read(frame: &Frame) -> (u8, u64) {
    let data = frame.data();
    (data[18], u64::from_be_bytes(data[HEADERS..HEADERS + 8].try_into().unwrap()))
}

/// Receives what a host gets, checks that each flow's numbers go on where they were, and counts.
pub fn receive(
    host: &mut mem::MemPort,
    pool: &mut Pool,
    burst: &mut Burst,
    next: &mut [u64],
) -> u64 {
    let mut got = 0;
    while host.rx(pool, burst).unwrap() > 0 {
        for frame in burst.drain() {
            let (flow, number) = read(&frame);
            pool.free(frame);
            let expected = &mut next[usize::from(flow)];
            assert_eq!(number, *expected, "flow {flow}");
            *expected += 1;
            got += 1;
        }
    }
    got
}

/// Steps all workers until none has anything to do.
pub fn settle(workers: &mut [Worker]) {
    while workers.iter_mut().map(|w| w.turn(Now(1)).unwrap()).sum::<usize>() > 0 {}
}
