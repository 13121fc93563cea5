//! Two gateways joined back to back: what the tests of the pipelines stand on.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

pub mod engine;

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use convoy_crypto::{Cpu, KeyMaterial, Nonce, SealKey, SealOp, SecretBytes, Suite, seal_burst};
use convoy_ipsec::clock::Now;
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::event::Event;
use convoy_ipsec::lifetime::Lifetime;
use convoy_ipsec::pipeline::{
    HandOff, Inbound, Outbound, PipelineConfig, PipelineParts, WorkerCounters,
};
use convoy_ipsec::sa::{
    AhAlignment, DfPolicy, DscpPolicy, Endpoints, InboundSpec, IpsecProtocol, Mode, OutboundSpec,
    OuterHeader, ReqId, SaSlot, SaSpec, Shared, UdpEncap, WorkerId,
};
use convoy_ipsec::selector::Selector;
use convoy_ipsec::sequence::Lease;
use convoy_ipsec::snapshot::{Published, Snapshot, Writer};
use convoy_ipsec::spd::{Direction, Policy, PolicyAction, Spd};
use convoy_packet::{Arena, Burst, FrameSize, InterfaceId, Pool};
use convoy_wire::{SeqNum, Spi};

pub const SALT: [u8; 4] = [0xca, 0xfe, 0xba, 0xbe];
pub const SPI: u32 = 0x1001;

/// Settings of the one SA between the gateways.
#[derive(Clone, Debug)]
pub struct Setup {
    pub protocol: IpsecProtocol,
    pub ah_alignment: AhAlignment,
    pub mode: Mode,
    pub local: IpAddr,
    pub remote: IpAddr,
    pub suite: Suite,
    pub esn: bool,
    pub encap: bool,
    pub from_peer_only: bool,
    pub replay_window: u32,
    pub outer: OuterHeader,
    pub source_is_here: bool,
    pub path_mtu: u16,
    pub pad_to: u16,
    pub dummy_every: Option<Duration>,
    pub decrement_ttl: bool,
    pub start: u64,
    pub granted: u64,
    pub lifetime: Lifetime,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            protocol: IpsecProtocol::Esp,
            ah_alignment: AhAlignment::Rfc4302,
            mode: Mode::Tunnel,
            local: "192.0.2.1".parse().unwrap(),
            remote: "192.0.2.2".parse().unwrap(),
            suite: suite("aes-128-gcm-16"),
            esn: true,
            encap: false,
            from_peer_only: false,
            replay_window: 1024,
            outer: OuterHeader {
                df: DfPolicy::Copy,
                dscp: DscpPolicy::Copy,
                ecn: true,
                hop_limit: 64,
            },
            source_is_here: true,
            path_mtu: 9200,
            pad_to: 0,
            dummy_every: None,
            decrement_ttl: false,
            start: 1,
            granted: 1 << 40,
            lifetime: Lifetime::default(),
        }
    }
}

pub fn cpu() -> Cpu {
    Cpu::detect().unwrap()
}

pub fn suite(name: &str) -> Suite {
    name.parse().unwrap()
}

/// The keys of every test: nothing but their length is of interest.
pub fn secrets(suite: Suite) -> KeyMaterial {
    let secret = |len: usize, flip: u8| {
        let bytes: Vec<u8> = (0..len as u8).map(|i| i.wrapping_mul(7) ^ flip).collect();
        SecretBytes::copy_from(&bytes)
    };
    KeyMaterial {
        cipher: secret(suite.key_bytes(), 0x5a),
        integrity: secret(suite.integrity_key_bytes(), 0xc3),
    }
}

impl Setup {
    pub fn outbound(&self) -> OutboundSpec {
        OutboundSpec {
            sa: SaSpec {
                name: "test out".into(),
                spi: Spi::new(SPI).unwrap(),
                reqid: ReqId(1),
                named: None,
                serial: 0,
                protocol: self.protocol,
                ah_alignment: self.ah_alignment,
                mode: self.mode,
                endpoints: Endpoints { local: self.local, remote: self.remote },
                encap: self.udp(),
                esn: self.esn,
                salt: SALT.into(),
                lifetime: self.lifetime,
                worker: WorkerId(0),
                counters: Shared::default(),
            },
            outer: self.outer,
            source_is_here: self.source_is_here,
            path_mtu: self.path_mtu,
            pad_to: self.pad_to,
            dummy_every: self.dummy_every,
            key: Arc::new(engine::seal_key(&cpu(), self.suite, secrets(self.suite))).into(),
            lease: Arc::new(Lease::new(SeqNum::new(self.start - 1), self.granted)).into(),
        }
    }

    pub fn inbound(&self) -> InboundSpec {
        InboundSpec {
            sa: SaSpec {
                name: "test in".into(),
                spi: Spi::new(SPI).unwrap(),
                reqid: ReqId(1),
                named: None,
                serial: 0,
                protocol: self.protocol,
                ah_alignment: self.ah_alignment,
                mode: self.mode,
                endpoints: Endpoints { local: self.remote, remote: self.local },
                encap: self.udp(),
                esn: self.esn,
                salt: SALT.into(),
                lifetime: self.lifetime,
                worker: WorkerId(0),
                counters: Shared::default(),
            },
            from_peer_only: self.from_peer_only,
            ecn: self.outer.ecn,
            replay_window: self.replay_window,
            interface: InterfaceId(0),
            key: Arc::new(engine::open_key(&cpu(), self.suite, secrets(self.suite))).into(),
        }
    }

    fn udp(&self) -> Option<UdpEncap> {
        self.encap.then_some(UdpEncap { local_port: 4500, remote_port: 4500, keepalive: None })
    }
}

/// Everything under one policy that protects.
pub fn protect_all(direction: Direction) -> Spd {
    spd(vec![Policy {
        name: "all".into(),
        priority: 0,
        direction,
        selector: Selector::default(),
        action: PolicyAction::Protect { reqid: ReqId(1) },
    }])
}

pub fn spd(policies: Vec<Policy>) -> Spd {
    Spd::new(policies).unwrap()
}

/// A gateway that protects and one that opens, with everything between them in reach.
pub struct Pair {
    pub arena: &'static Arena,
    pub pool: Pool,
    pub left: Outbound,
    pub right: Inbound,
    pub left_writer: Writer,
    pub right_writer: Writer,
    pub left_counters: Arc<WorkerCounters>,
    pub right_counters: Arc<WorkerCounters>,
    pub out: Arc<OutboundSpec>,
    pub inn: Arc<InboundSpec>,
    pub handoff: HandOff,
    pub now: Now,
}

pub fn pipeline_parts(
    published: &Arc<Published>,
    decrement_ttl: bool,
    worker: u16,
) -> PipelineParts {
    PipelineParts {
        config: PipelineConfig {
            worker: WorkerId(worker),
            decrement_ttl,
            udp6_checksum: true,
            icmp_source_v4: None,
            icmp_source_v6: None,
        },
        reader: published.reader(),
        engine: engine::front(),
        counters: Arc::new(WorkerCounters::default()),
    }
}

thread_local! {
    /// Arenas of pairs that are done: they are never unmapped, and a test may need hundreds.
    static ARENAS: RefCell<Vec<&'static Arena>> = const { RefCell::new(Vec::new()) };
}

fn arena() -> &'static Arena {
    let used = ARENAS.with_borrow_mut(Vec::pop);
    used.unwrap_or_else(|| Arena::map(4096, FrameSize::for_packet(9300)).unwrap())
}

impl Pair {
    pub fn new(setup: &Setup) -> Self {
        Self::with(setup, protect_all(Direction::Outbound), protect_all(Direction::Inbound))
    }

    pub fn with(setup: &Setup, left_spd: Spd, right_spd: Spd) -> Self {
        let arena = arena();
        let (out, inn) = (Arc::new(setup.outbound()), Arc::new(setup.inbound()));
        let mut left = Snapshot::new(left_spd);
        left.add_outbound(SaSlot(0), out.clone()).unwrap();
        let mut right = Snapshot::new(right_spd);
        right.add_inbound(SaSlot(0), inn.clone()).unwrap();
        let (left_writer, right_writer) = (Writer::new(left), Writer::new(right));
        let left_parts = pipeline_parts(left_writer.published(), setup.decrement_ttl, 0);
        let right_parts = pipeline_parts(right_writer.published(), setup.decrement_ttl, 0);
        Self {
            arena,
            pool: arena.pool(),
            left_counters: left_parts.counters.clone(),
            right_counters: right_parts.counters.clone(),
            left: Outbound::new(left_parts),
            right: Inbound::new(right_parts),
            left_writer,
            right_writer,
            out,
            inn,
            handoff: HandOff::new(1),
            now: Now(1_000_000_000),
        }
    }

    /// Sends packets in on the plain side. Returns those on the wire, and ICMP back on the plain side.
    pub fn protect(&mut self, packets: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let (mut wire, mut plain) = (Vec::new(), Vec::new());
        let mut next = packets.iter();
        let mut input = Burst::new();
        let (mut to_wire, mut to_plain) = (Burst::new(), Burst::new());
        loop {
            fill(&mut input, &mut next, &mut self.pool);
            self.left.submit(self.now, &mut self.pool, &mut input, &mut self.handoff);
            self.left.collect(self.now, &mut self.pool, &mut to_wire, &mut to_plain);
            let idle = to_wire.is_empty() && to_plain.is_empty() && input.is_empty();
            empty(&mut to_wire, &mut wire, &mut self.pool);
            empty(&mut to_plain, &mut plain, &mut self.pool);
            if idle && self.left.in_flight() == 0 && next.len() == 0 {
                return (wire, plain);
            }
        }
    }

    /// Takes packets from the wire. Returns those that are accepted.
    pub fn open(&mut self, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut plain = Vec::new();
        let mut next = packets.iter();
        let (mut input, mut to_plain) = (Burst::new(), Burst::new());
        loop {
            fill(&mut input, &mut next, &mut self.pool);
            self.right.submit(self.now, &mut self.pool, &mut input, &mut self.handoff);
            self.right.collect(self.now, &mut self.pool, &mut to_plain);
            let idle = to_plain.is_empty() && input.is_empty();
            empty(&mut to_plain, &mut plain, &mut self.pool);
            if idle && self.right.in_flight() == 0 && next.len() == 0 {
                return plain;
            }
        }
    }

    /// Lets so much time pass that fragments which wait for others are dropped.
    pub fn give_up_fragments(&mut self) {
        self.now.0 += 31_000_000_000;
        self.left.expire(self.now, &mut self.pool);
        self.right.expire(self.now, &mut self.pool);
    }

    /// News that both gateways have to tell, the sending one first.
    pub fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let mut note = |event| {
            events.push(event);
            true
        };
        self.left.tell(&mut note);
        self.right.tell(&mut note);
        events
    }

    /// Lets time pass.
    pub fn tick(&mut self, seconds: u64) {
        self.now.0 += seconds * 1_000_000_000;
        self.left.expire(self.now, &mut self.pool);
        self.right.expire(self.now, &mut self.pool);
    }

    /// Number of packets that the receiving gateway dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.right_counters.drops.get(reason)
    }

    /// Number of packets that the sending gateway dropped for this reason.
    pub fn refused(&self, reason: DropReason) -> u64 {
        self.left_counters.drops.get(reason)
    }

    /// Fails when a frame was lost or is still out.
    pub fn assert_no_leak(self) {
        let Self { arena, mut pool, mut left, mut right, now, .. } = self;
        assert_eq!(left.release(now, &mut pool) + right.release(now, &mut pool), 0);
        drop((left, right, pool));
        assert_eq!(arena.leaked(), 0, "frames dropped instead of given back");
        assert_eq!(arena.in_depot(), arena.frames() as usize, "frames not given back");
        ARENAS.with_borrow_mut(|arenas| arenas.push(arena));
    }
}

fn fill<'a>(input: &mut Burst, next: &mut impl Iterator<Item = &'a Vec<u8>>, pool: &mut Pool) {
    while !input.is_full() {
        let Some(bytes) = next.next() else { return };
        let mut frame = pool.alloc().unwrap();
        frame.fill_from(bytes).unwrap();
        input.push(frame).unwrap();
    }
}

fn empty(burst: &mut Burst, into: &mut Vec<Vec<u8>>, pool: &mut Pool) {
    for frame in burst.drain() {
        into.push(frame.data().to_vec());
        pool.free(frame);
    }
}

/// An inner packet with `payload` bytes of UDP.
pub fn inner(v6: bool, payload: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..payload).map(|i| (i * 31 + payload) as u8).collect();
    if v6 {
        inner_with(v6, "2001:db8:1::1", "2001:db8:2::2", &data, 0)
    } else {
        inner_with(v6, "10.1.0.1", "10.2.0.2", &data, 0)
    }
}

/// An inner packet between two addresses; written by etherparse, which is not ours.
pub fn inner_with(v6: bool, src: &str, dst: &str, data: &[u8], tos: u8) -> Vec<u8> {
    use etherparse::{IpDscp, IpEcn, PacketBuilder};
    let mut out = Vec::new();
    if v6 {
        let (src, dst): (std::net::Ipv6Addr, std::net::Ipv6Addr) =
            (src.parse().unwrap(), dst.parse().unwrap());
        let builder = PacketBuilder::ipv6(src.octets(), dst.octets(), 64).udp(4000, 5000);
        builder.write(&mut out, data).unwrap();
        out[0] |= tos >> 4;
        out[1] |= tos << 4;
    } else {
        let (src, dst): (std::net::Ipv4Addr, std::net::Ipv4Addr) =
            (src.parse().unwrap(), dst.parse().unwrap());
        let mut header = etherparse::Ipv4Header::new(
            0,
            64,
            etherparse::IpNumber::UDP,
            src.octets(),
            dst.octets(),
        )
        .unwrap();
        header.dscp = IpDscp::try_new(tos >> 2).unwrap();
        header.ecn = IpEcn::try_new(tos & 3).unwrap();
        header.identification = 77;
        header.dont_fragment = false;
        let builder = PacketBuilder::ip(etherparse::IpHeaders::Ipv4(
            header,
            etherparse::Ipv4Extensions::default(),
        ))
        .udp(4000, 5000);
        builder.write(&mut out, data).unwrap();
    }
    out
}

/// An ESP packet with any text, sealed by the library under the test's key, in an IPv4 header
/// from the left to the right gateway. Its IV is the sequence number, or for CBC made of it.
pub fn sealed(setup: &Setup, seq: u64, text: &[u8], tos: u8) -> Vec<u8> {
    let key = SealKey::new(&cpu(), setup.suite, secrets(setup.suite)).unwrap();
    let (high, low) = (((seq >> 32) as u32).to_be_bytes(), (seq as u32).to_be_bytes());
    let mut esp = [SPI.to_be_bytes(), low].concat();
    let esn = setup.esn;
    let beside = match setup.suite {
        Suite::Pair { .. } if esn => high.to_vec(),
        Suite::Pair { .. } => vec![],
        Suite::Gmac(_) if esn => [&SPI.to_be_bytes()[..], &high, &low, &seq.to_be_bytes()].concat(),
        Suite::Gmac(_) => [&SPI.to_be_bytes()[..], &low, &seq.to_be_bytes()].concat(),
        _ if esn => [SPI.to_be_bytes(), high, low].concat(),
        _ => esp.clone(),
    };
    let mut nonce = [0; 16];
    match setup.suite.nonce_bytes() {
        0 => {}
        16 => {
            nonce = u128::from(seq)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
                .to_be_bytes();
            esp.extend(nonce);
        }
        len => {
            let salt = len - 8;
            nonce[..salt].copy_from_slice(&SALT[..salt]);
            nonce[salt..len].copy_from_slice(&seq.to_be_bytes());
            esp.extend(seq.to_be_bytes());
        }
    }
    let nonce = Nonce::front(nonce, setup.suite.nonce_bytes() as u8);
    let header = esp.len();
    esp.extend(text);
    let mut icv = vec![0; setup.suite.icv_bytes()];
    let op = if setup.suite.is_aead() {
        SealOp::new(&key, nonce, &beside, &mut esp[header..], &mut icv)
    } else {
        SealOp::framed(&key, nonce, &mut esp, header, &beside, &mut icv)
    };
    seal_burst(&mut [op.unwrap()]);
    esp.extend(icv);
    let mut header = etherparse::Ipv4Header::new(
        esp.len() as u16,
        64,
        etherparse::IpNumber::ENCAPSULATING_SECURITY_PAYLOAD,
        [192, 0, 2, 1],
        [192, 0, 2, 2],
    )
    .unwrap();
    header.dscp = etherparse::IpDscp::try_new(tos >> 2).unwrap();
    header.ecn = etherparse::IpEcn::try_new(tos & 3).unwrap();
    header.header_checksum = header.calc_header_checksum();
    [&header.to_bytes()[..], &esp].concat()
}

/// The text of a well-formed tunnel packet: inner packet, padding, pad length, next header.
pub fn text(inner: &[u8], next: u8) -> Vec<u8> {
    text_in_blocks(inner, next, 4)
}

/// The same for a cipher with blocks of `block` bytes.
pub fn text_in_blocks(inner: &[u8], next: u8, block: usize) -> Vec<u8> {
    let pad = (block - (inner.len() + 2) % block) % block;
    let mut text = inner.to_vec();
    text.extend((1..=pad as u8).chain([pad as u8, next]));
    text
}
