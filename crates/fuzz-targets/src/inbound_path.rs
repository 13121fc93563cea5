//! The inbound path: no bytes from the wire panic, lose a frame, or pass without the key; and what
//! holds the key passes only as a valid packet that its policy allows.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use convoy_crypto::{
    Cpu, GcmParams, IcvLen, KeyBits, Nonce, OpenKey, SealKey, SealOp, SecretBytes, seal_burst,
};
use convoy_engine::registry;
use convoy_ipsec::clock::Now;
use convoy_ipsec::lifetime::Lifetime;
use convoy_ipsec::pipeline::{HandOff, Inbound, PipelineConfig, PipelineParts, WorkerCounters};
use convoy_ipsec::sa::{
    Endpoints, InboundSpec, InterfaceId, IpsecProtocol, Mode, ReqId, SaSlot, SaSpec, Shared,
    UdpEncap, WorkerId,
};
use convoy_ipsec::selector::Selector;
use convoy_ipsec::snapshot::{Published, Snapshot};
use convoy_ipsec::spd::{Direction, Policy, PolicyAction, Spd};
use convoy_packet::{Arena, Burst, FrameSize};
use convoy_wire::{Ipv4Repr, Ipv6Repr, Prefix, Protocol, Spi, Tos, parse_packet};

const SALT: [u8; 4] = [1, 2, 3, 4];
const FIRST_SPI: u32 = 0x1000;
/// Longest text of a sealed packet.
const TEXT_MAX: usize = 8000;

/// Packets of one burst.
#[derive(Arbitrary, Debug)]
pub struct Input<'a>(Vec<Packet<'a>>);

#[derive(Arbitrary, Debug)]
enum Packet<'a> {
    /// Whatever comes.
    Raw(&'a [u8]),
    /// A sealed packet with a text of the fuzzer's choice, changed afterwards or not.
    Sealed { sa: u8, seq: u32, tos: u8, text: &'a [u8], flip: Option<u16> },
    /// A sealed packet in two fragments that meet or not: where the first ends and the second
    /// begins, in units of eight bytes, and which comes first.
    Cut { sa: u8, seq: u32, text: &'a [u8], end: u8, begin: u8, turned: bool },
}

/// The SAs: every mode, version and encapsulation.
static SAS: LazyLock<Vec<(Mode, bool, bool, bool)>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for mode in [Mode::Tunnel, Mode::Transport] {
        for v6 in [false, true] {
            for encap in [false, true] {
                for esn in [false, true] {
                    all.push((mode, v6, encap, esn));
                }
            }
        }
    }
    all
});
static PARAMS: GcmParams = GcmParams::new(KeyBits::Aes128, IcvLen::Icv8);
static CPU: LazyLock<Cpu> = LazyLock::new(|| Cpu::detect().unwrap());
static SEAL: LazyLock<SealKey> =
    LazyLock::new(|| SealKey::new(&CPU, PARAMS, SecretBytes::copy_from(&[9; 16])).unwrap());
static OPEN: LazyLock<Arc<OpenKey>> = LazyLock::new(|| {
    Arc::new(OpenKey::new(&CPU, PARAMS, SecretBytes::copy_from(&[9; 16])).unwrap())
});
static ARENA: LazyLock<&'static Arena> =
    LazyLock::new(|| Arena::map(512, FrameSize::for_packet(9000)).unwrap());

fn ends(v6: bool) -> (IpAddr, IpAddr) {
    if v6 {
        ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
    } else {
        ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap())
    }
}

fn gateway() -> (Inbound, Arc<WorkerCounters>) {
    let policy = |n: u32, local: &str| Policy {
        name: local.into(),
        priority: n,
        direction: Direction::Inbound,
        selector: Selector {
            local: local.parse::<Prefix>().unwrap().into(),
            ..Selector::default()
        },
        action: PolicyAction::Protect { reqid: ReqId(1) },
    };
    let locals = ["10.2.0.0/16", "2001:db8:2::/48", "192.0.2.2/32", "2001:db8::2/128"];
    let policies = (0..).zip(locals).map(|(n, local)| policy(n, local));
    let mut snapshot = Snapshot::new(Spd::new(policies).unwrap());
    for (slot, &(mode, v6, encap, esn)) in (0..).zip(SAS.iter()) {
        let (remote, local) = ends(v6);
        let udp = UdpEncap { local_port: 4500, remote_port: 4500, keepalive: None };
        let spec = InboundSpec {
            sa: SaSpec {
                name: "fuzz".into(),
                spi: Spi::new(FIRST_SPI + slot).unwrap(),
                reqid: ReqId(1),
                named: None,
                serial: 0,
                protocol: IpsecProtocol::Esp,
                lifetime: Lifetime::default(),
                mode,
                endpoints: Endpoints { local, remote },
                encap: encap.then_some(udp),
                esn,
                salt: SALT.into(),
                worker: WorkerId(0),
                counters: Shared::default(),
            },
            from_peer_only: false,
            ecn: true,
            replay_window: 64,
            interface: InterfaceId(0),
            key: OPEN.clone().into(),
        };
        snapshot.add_inbound(SaSlot(slot), Arc::new(spec)).unwrap();
    }
    let counters = Arc::new(WorkerCounters::default());
    let inbound = Inbound::new(PipelineParts {
        config: PipelineConfig {
            worker: WorkerId(0),
            decrement_ttl: true,
            udp6_checksum: false,
            icmp_source_v4: None,
            icmp_source_v6: None,
        },
        reader: Published::new(snapshot).reader(),
        engine: registry::find(None).unwrap().make(),
        counters: counters.clone(),
    });
    (inbound, counters)
}

/// A packet of the SA's own form around a text that need not make sense.
fn seal(sa: u8, seq: u32, tos: u8, text: &[u8]) -> Vec<u8> {
    let at = usize::from(sa) % SAS.len();
    let (_, v6, encap, esn) = SAS[at];
    let spi = (FIRST_SPI + at as u32).to_be_bytes();
    let iv = u64::from(seq).to_be_bytes();
    let aad = if esn { [&spi[..], &iv].concat() } else { [&spi[..], &iv[4..]].concat() };
    let nonce: [u8; 12] = [&SALT[..], &iv].concat().try_into().unwrap();
    let mut text = text.to_vec();
    let mut icv = [0; 8];
    let op = SealOp::new(&SEAL, Nonce::new(nonce), &aad, &mut text, &mut icv).unwrap();
    seal_burst(&mut [op]);
    let mut payload = [&spi[..], &seq.to_be_bytes(), &iv, &text, &icv].concat();
    if encap {
        let len = (payload.len() + 8) as u16;
        let port = 4500_u16.to_be_bytes();
        payload = [&port[..], &port, &len.to_be_bytes(), &[0, 0], &payload].concat();
    }
    let protocol = if encap { Protocol::UDP } else { Protocol::ESP };
    let payload_len = payload.len();
    let mut packet = vec![0; 40];
    let len = match ends(v6) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Ipv4Repr {
            tos: Tos(tos),
            ident: 1,
            dont_fragment: true,
            ttl: 9,
            protocol,
            src,
            dst,
            payload_len,
        }
        .emit(&mut packet),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Ipv6Repr {
            tos: Tos(tos),
            flow_label: 0,
            hop_limit: 9,
            next_header: protocol,
            src,
            dst,
            payload_len,
        }
        .emit(&mut packet),
        _ => unreachable!(),
    }
    .unwrap();
    packet.truncate(len);
    packet.extend(payload);
    packet
}

/// The part of a packet's payload between two places.
fn fragment(packet: &[u8], start: usize, end: usize) -> Vec<u8> {
    let v4 = packet[0] >> 4 == 4;
    let (head, data) = packet.split_at(if v4 { 20 } else { 40 });
    let (start, end) = (start.min(data.len() / 8 * 8), end.min(data.len()));
    let mut part = head.to_vec();
    let more = u16::from(end < data.len());
    if v4 {
        part[6..8].copy_from_slice(&(more << 13 | (start / 8) as u16).to_be_bytes());
    } else {
        part[6] = 44;
        part.extend([head[6], 0]);
        part.extend((start as u16 | more).to_be_bytes());
        part.extend([0, 0, 0, 1]);
    }
    part.extend(&data[start..end.max(start)]);
    let total = part.len() as u16;
    if v4 {
        part[2..4].copy_from_slice(&total.to_be_bytes());
    } else {
        part[4..6].copy_from_slice(&(total - 40).to_be_bytes());
    }
    part
}

/// The packets that one of the input makes, and whether they bear an authentic ICV.
fn made(packet: &Packet<'_>) -> (Vec<Vec<u8>>, bool) {
    match packet {
        Packet::Raw(bytes) => (vec![bytes.to_vec()], false),
        Packet::Sealed { sa, seq, tos, text, flip } => {
            let mut bytes = seal(*sa, *seq, *tos, &text[..text.len().min(TEXT_MAX)]);
            if let Some(bit) = flip {
                let at = usize::from(*bit) % (bytes.len() * 8);
                bytes[at / 8] ^= 1 << (at % 8);
            }
            (vec![bytes], true)
        }
        Packet::Cut { sa, seq, text, end, begin, turned } => {
            let whole = seal(*sa, *seq, 0, &text[..text.len().min(TEXT_MAX)]);
            let first = fragment(&whole, 0, usize::from(*end) * 8);
            let mut parts = vec![first, fragment(&whole, usize::from(*begin) * 8, 8100)];
            if *turned {
                parts.reverse();
            }
            (parts, true)
        }
    }
}

/// Panics where the inbound path loses a frame, or lets pass what it must not.
pub fn check(packets: &Input<'_>) {
    let (mut inbound, counters) = gateway();
    let mut pool = ARENA.pool();
    let mut handoff = HandOff::new(1);
    let (mut input, mut plain) = (Burst::new(), Burst::new());
    let (mut given, mut genuine, mut passed) = (0_u64, 0_u64, 0_u64);
    for packet in packets.0.iter().take(100) {
        let (made, is_genuine) = made(packet);
        genuine += u64::from(is_genuine);
        for bytes in made {
            let mut frame = pool.alloc().unwrap();
            if frame.fill_from(&bytes).is_err() || input.room() == 0 {
                pool.free(frame);
                continue;
            }
            input.push(frame).unwrap();
            given += 1;
        }
    }
    inbound.submit(Now(1), &mut pool, &mut input, &mut handoff);
    inbound.collect(Now(1), &mut pool, &mut plain);
    assert!(input.is_empty() && inbound.in_flight() == 0);
    for frame in plain.drain() {
        let info = parse_packet(frame.data()).expect("what passes is a valid packet");
        assert_eq!(info.total_len as usize, frame.len());
        let allowed = match info.flow.dst_addr() {
            IpAddr::V4(dst) => dst.octets()[..2] == [10, 2] || dst.octets() == [192, 0, 2, 2],
            IpAddr::V6(dst) => dst.segments()[..2] == [0x2001, 0xdb8],
        };
        assert!(allowed, "inner policy was not applied");
        passed += 1;
        pool.free(frame);
    }
    // Fragments wait for their others, and are counted when these do not come.
    inbound.expire(Now(40_000_000_000), &mut pool);
    let dropped: u64 = counters.drops.iter().map(|(_, n)| n).sum();
    let joined = counters.fragments_joined.get();
    assert_eq!(given, passed + dropped + joined, "each packet ends in exactly one place");
    assert!(passed <= genuine, "nothing passes without the key");
    drop(pool);
    assert_eq!(ARENA.leaked(), 0);
    assert_eq!(ARENA.in_depot(), ARENA.frames() as usize);
}
