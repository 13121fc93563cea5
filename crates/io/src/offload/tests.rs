//! Splitting and coalescing without a device.

use convoy_packet::{Arena, BURST_MAX, Burst, Frame, FrameSize, Pool};
use proptest::prelude::*;

use super::coalesce::Coalescer;
use super::split::{Malformed, Split, finish_checksum};
use super::vnet::{Gso, Vnet};
use super::{ACK, CWR, FIN, PSH, SYN};

/// RFC 1071 word by word, apart from the code under test.
fn naive_sum(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for pair in pieces.concat().chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// True if lengths and checksums of a packet without extension headers are right.
fn is_right(packet: &[u8]) -> bool {
    let v6 = packet[0] >> 4 == 6;
    let (l4, protocol, addresses) =
        if v6 { (40, packet[6], &packet[8..40]) } else { (20, packet[9], &packet[12..20]) };
    let length = if v6 {
        40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]))
    } else {
        usize::from(u16::from_be_bytes([packet[2], packet[3]]))
    };
    let l4_len = ((packet.len() - l4) as u16).to_be_bytes();
    length == packet.len()
        && (v6 || naive_sum(&[&packet[..20]]) == 0xffff)
        && (protocol != 17 || packet[l4 + 4..l4 + 6] == l4_len)
        && naive_sum(&[addresses, &[0, protocol], &l4_len, &packet[l4..]]) == 0xffff
}

#[derive(Clone, Debug)]
struct Stream {
    v6: bool,
    tcp: bool,
    port: u16,
    seq: u32,
    id: u16,
    df: bool,
    flags: u8,
    options: usize,
}

impl Stream {
    fn tcp() -> Self {
        Self { v6: false, tcp: true, port: 1000, seq: 7, id: 9, df: true, flags: ACK, options: 12 }
    }

    fn udp() -> Self {
        Self { tcp: false, options: 0, flags: 0, ..Self::tcp() }
    }

    fn headers(&self) -> usize {
        let ip = if self.v6 { 40 } else { 20 };
        ip + if self.tcp { 20 + self.options } else { 8 }
    }

    /// The packet with `payload` at the stream's position, all checksums right; moves on.
    fn packet(&mut self, payload: &[u8], flags: u8) -> Vec<u8> {
        let l4_at = if self.v6 { 40 } else { 20 };
        let l4_len = self.headers() - l4_at + payload.len();
        let total = (l4_at + l4_len) as u16;
        let mut ip = vec![0; l4_at];
        let protocol = if self.tcp { 6 } else { 17 };
        if self.v6 {
            ip[..4].copy_from_slice(&[0x62, 0x30, 0x12, 0x34]);
            ip[4..6].copy_from_slice(&(l4_len as u16).to_be_bytes());
            ip[6..8].copy_from_slice(&[protocol, 63]);
            ip[8..24].fill(0x20);
            ip[24..40].fill(0x21);
        } else {
            ip[..2].copy_from_slice(&[0x45, 0x02]);
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            ip[4..6].copy_from_slice(&self.id.to_be_bytes());
            ip[6] = if self.df { 0x40 } else { 0 };
            ip[8..10].copy_from_slice(&[64, protocol]);
            ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            let sum = !naive_sum(&[&ip]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let mut l4 = vec![0; self.headers() - l4_at];
        l4[..2].copy_from_slice(&self.port.to_be_bytes());
        l4[2..4].copy_from_slice(&443_u16.to_be_bytes());
        if self.tcp {
            l4[4..8].copy_from_slice(&self.seq.to_be_bytes());
            l4[8..12].copy_from_slice(&77_u32.to_be_bytes());
            l4[12..16].copy_from_slice(&[
                ((20 + self.options) as u8 / 4) << 4,
                self.flags | flags,
                4,
                0,
            ]);
            l4[20..].fill(1);
        } else {
            l4[4..6].copy_from_slice(&(l4_len as u16).to_be_bytes());
        }
        l4.extend_from_slice(payload);
        let addresses = if self.v6 { &ip[8..40] } else { &ip[12..20] };
        let sum = !naive_sum(&[addresses, &[0, protocol], &(l4_len as u16).to_be_bytes(), &l4]);
        let at = if self.tcp { 16 } else { 6 };
        let sum = if sum == 0 && !self.tcp { 0xffff } else { sum };
        l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        self.seq = self.seq.wrapping_add(payload.len() as u32);
        self.id = self.id.wrapping_add(1);
        [ip, l4].concat()
    }
}

fn bytes(n: usize, seed: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 + seed * 17 + i / 251) as u8).collect()
}

fn pool() -> Pool {
    Arena::map(600, FrameSize::for_packet(9000)).unwrap().pool()
}

fn burst_of(pool: &mut Pool, packets: &[Vec<u8>]) -> Burst {
    let mut burst = Burst::new();
    for packet in packets {
        let mut frame = pool.alloc().unwrap();
        frame.fill_from(packet).unwrap();
        burst.push(frame).unwrap();
    }
    burst
}

/// Writes for `packets`: vnet header and bytes of each.
fn coalesced(packets: &[Vec<u8>]) -> Vec<(Vnet, Vec<u8>)> {
    let mut pool = pool();
    let mut burst = burst_of(&mut pool, packets);
    let mut coalescer = Coalescer::new(true, true);
    coalescer.plan(burst.as_mut_slice());
    let bytes = |write| {
        let mut all = Vec::new();
        for (n, at) in coalescer.chain(write).enumerate() {
            let skip = if n == 0 { 0 } else { usize::from(write.headers) };
            all.extend_from_slice(&burst.as_slice()[at].data()[skip..]);
        }
        all
    };
    let writes = coalescer.writes().iter().map(|w| (w.vnet, bytes(w))).collect();
    burst.release(&mut pool);
    writes
}

/// The packets that the kernel, or our receiving side, makes of a write.
fn split(vnet: &Vnet, packet: &[u8]) -> Vec<Vec<u8>> {
    if vnet.gso == Gso::None {
        return vec![packet.to_vec()];
    }
    let split = Split::new(vnet, packet).unwrap();
    let mut pool = pool();
    let mut frame: Frame = pool.alloc().unwrap();
    let mut packets = Vec::new();
    for index in 0..split.count() {
        split.emit(packet, index, &mut frame).unwrap();
        packets.push(frame.data().to_vec());
    }
    pool.free(frame);
    packets
}

#[test]
fn a_run_of_full_segments_becomes_one_write_and_comes_apart_again() {
    for v6 in [false, true] {
        let mut stream = Stream { v6, ..Stream::tcp() };
        let mut packets: Vec<_> = (0..20).map(|n| stream.packet(&bytes(1400, n), 0)).collect();
        packets.push(stream.packet(&bytes(3, 99), PSH));
        assert!(packets.iter().all(|p| is_right(p)));
        let writes = coalesced(&packets);
        assert_eq!(writes.len(), 1);
        let (vnet, bytes) = &writes[0];
        assert!(vnet.needs_csum && vnet.gso_size == 1400);
        assert_eq!(bytes.len(), stream.headers() + 20 * 1400 + 3);
        assert_eq!(split(vnet, bytes), packets);
    }
}

#[test]
fn the_pseudo_header_sum_is_what_the_kernel_expects() {
    let mut stream = Stream::tcp();
    let packets: Vec<_> = (0..3).map(|n| stream.packet(&bytes(100, n), 0)).collect();
    let (vnet, mut bytes) = coalesced(&packets).remove(0);
    assert_eq!((vnet.csum_start, vnet.csum_offset, vnet.hdr_len), (20, 16, 52));
    // Finishing the checksum over the whole super-segment must give a right TCP packet.
    finish_checksum(&vnet, &mut bytes).unwrap();
    assert!(is_right(&bytes));
}

#[test]
fn udp_datagrams_of_one_size_become_one_write_of_at_most_64() {
    let mut stream = Stream::udp();
    let packets: Vec<_> = (0..70).map(|n| stream.packet(&bytes(500, n), 0)).collect();
    let writes = coalesced(&packets);
    assert_eq!(writes.len(), 2);
    assert_eq!(writes[0].0.gso, Gso::Udp);
    assert_eq!(writes[0].1.len(), 28 + 64 * 500);
    let again: Vec<_> = writes.iter().flat_map(|(vnet, bytes)| split(vnet, bytes)).collect();
    assert_eq!(again, packets);
}

#[test]
fn a_super_segment_never_exceeds_the_largest_ip_packet() {
    let mut stream = Stream::tcp();
    let packets: Vec<_> = (0..100).map(|n| stream.packet(&bytes(1400, n), 0)).collect();
    let writes = coalesced(&packets);
    assert!(writes.iter().all(|(_, bytes)| bytes.len() <= 65_535));
    assert_eq!(writes.len(), 3);
}

/// Packets 0 and 1 would merge; `change` makes the second one differ.
fn second_differs(change: impl Fn(&mut Stream) -> Vec<u8>) -> usize {
    let mut stream = Stream::tcp();
    let first = stream.packet(&bytes(100, 1), 0);
    let second = change(&mut stream);
    coalesced(&[first, second]).len()
}

#[test]
fn what_differs_stays_apart() {
    let payload = bytes(100, 2);
    assert_eq!(second_differs(|s| s.packet(&payload, 0)), 1, "the same flow merges");
    assert_eq!(second_differs(|s| s.packet(&payload, CWR)), 2, "CWR starts anew");
    assert_eq!(second_differs(|s| s.packet(&payload, SYN)), 2);
    assert_eq!(second_differs(|s| s.packet(&payload, 0x40)), 2, "ECE changed");
    assert_eq!(second_differs(|s| s.packet(&bytes(101, 2), 0)), 2, "longer than the first");
    assert_eq!(second_differs(|s| s.packet(&[], 0)), 2, "no payload");
    let with = |set: fn(&mut Stream)| {
        second_differs(|s| {
            set(s);
            s.packet(&payload, 0)
        })
    };
    assert_eq!(with(|s| s.seq += 1), 2, "a hole");
    assert_eq!(with(|s| s.port += 1), 2);
    assert_eq!(with(|s| s.options = 8), 2);
    assert_eq!(with(|s| s.df = false), 2);
    assert_eq!(with(|s| s.v6 = true), 2);
    assert_eq!(with(|s| s.id += 5), 1, "the identification means nothing with DF");
    for (at, what) in [(1, "tos"), (8, "ttl"), (28, "ack"), (34, "window"), (41, "option")] {
        let changed = second_differs(|s| {
            let mut packet = s.packet(&payload, 0);
            packet[at] ^= 4;
            packet
        });
        assert_eq!(changed, 2, "{what}");
    }
}

#[test]
fn without_df_the_identification_must_count_on() {
    let mut stream = Stream { df: false, ..Stream::tcp() };
    let one = stream.packet(&bytes(100, 1), 0);
    let two = stream.packet(&bytes(100, 2), 0);
    stream.id += 1;
    let three = stream.packet(&bytes(100, 3), 0);
    assert_eq!(coalesced(&[one, two, three]).len(), 2);
}

#[test]
fn damaged_segments_are_passed_on_as_they_are() {
    let mut stream = Stream::tcp();
    let mut packets: Vec<_> = (0..6).map(|n| stream.packet(&bytes(100, n), 0)).collect();
    packets[3][120] ^= 1;
    let writes = coalesced(&packets);
    let again: Vec<_> = writes.iter().flat_map(|(vnet, bytes)| split(vnet, bytes)).collect();
    assert_eq!(again, packets);
    assert!(writes.iter().any(|(vnet, bytes)| *vnet == Vnet::PLAIN && *bytes == packets[3]));
    // A damaged first segment must not lend its headers to others either.
    packets[0][120] ^= 1;
    let again: Vec<_> =
        coalesced(&packets).iter().flat_map(|(vnet, bytes)| split(vnet, bytes)).collect();
    assert_eq!(again, packets);
}

#[test]
fn interleaved_flows_are_told_apart() {
    let mut streams: Vec<_> =
        (0..5).map(|n| Stream { port: n, v6: n % 2 == 1, ..Stream::tcp() }).collect();
    let mut packets = Vec::new();
    for n in 0..BURST_MAX {
        packets.push(streams[n % 5].packet(&bytes(700, n), 0));
    }
    let writes = coalesced(&packets);
    assert_eq!(writes.len(), 5);
    let mut again: Vec<_> = writes.iter().flat_map(|(vnet, bytes)| split(vnet, bytes)).collect();
    again.sort();
    packets.sort();
    assert_eq!(again, packets);
}

#[test]
fn fragments_and_options_and_other_protocols_are_left_alone() {
    let mut stream = Stream::tcp();
    let plain: Vec<_> = (0..4).map(|n| stream.packet(&bytes(100, n), 0)).collect();
    for (at, value) in [(0, 0x46), (6, 0x20), (7, 1), (9, 50), (0, 0x55), (3, 0)] {
        let mut packets = plain.clone();
        packets.iter_mut().for_each(|p| p[at] = value);
        let writes = coalesced(&packets);
        assert_eq!(writes.len(), 4, "byte {at} = {value:#x}");
        assert!(writes.iter().zip(&packets).all(|(w, p)| w.0 == Vnet::PLAIN && w.1 == *p));
    }
}

#[test]
fn flags_go_to_the_first_or_last_segment_only() {
    let mut stream = Stream::tcp();
    let packet = stream.packet(&bytes(1000, 1), CWR | PSH | FIN);
    let vnet = Vnet {
        needs_csum: true,
        gso: Gso::TcpV4,
        ecn: true,
        hdr_len: 52,
        gso_size: 300,
        csum_start: 20,
        csum_offset: 16,
    };
    let packets = split(&vnet, &packet);
    let flags: Vec<u8> = packets.iter().map(|p| p[33]).collect();
    assert_eq!(flags, [ACK | CWR, ACK, ACK, ACK | PSH | FIN]);
    assert!(packets.iter().all(|p| is_right(p)));
    assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [352, 352, 352, 152]);
}

#[test]
fn contradictory_super_segments_are_refused() {
    let packet = Stream::tcp().packet(&bytes(1000, 1), 0);
    let good = Vnet {
        needs_csum: true,
        gso: Gso::TcpV4,
        ecn: false,
        hdr_len: 52,
        gso_size: 300,
        csum_start: 20,
        csum_offset: 16,
    };
    assert!(Split::new(&good, &packet).is_ok());
    let bad = [
        Vnet { gso_size: 0, ..good },
        Vnet { gso: Gso::TcpV6, ..good },
        Vnet { csum_start: 10, ..good },
        Vnet { csum_start: 2000, ..good },
        Vnet { csum_start: 1045, ..good },
    ];
    for vnet in bad {
        assert_eq!(Split::new(&vnet, &packet), Err(Malformed), "{vnet:?}");
    }
    for len in 0..52 {
        assert_eq!(Split::new(&good, &packet[..len]), Err(Malformed), "cut to {len}");
    }
    let plain = Vnet { gso: Gso::None, csum_offset: 2000, ..good };
    assert_eq!(finish_checksum(&plain, &mut packet.clone()), Err(Malformed));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn coalescing_then_splitting_changes_nothing(
        kinds in proptest::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 1..10),
        steps in proptest::collection::vec((0_usize..10, 0_usize..4, 0_u8..20, 0_u8..40), 1..200),
    ) {
        let mut streams: Vec<_> = kinds.iter().enumerate().map(|(n, (v6, tcp, df))| {
            let base = if *tcp { Stream::tcp() } else { Stream::udp() };
            Stream { v6: *v6, df: *df, port: n as u16, ..base }
        }).collect();
        let sizes = [1, 333, 1000, 1000];
        let mut packets = Vec::new();
        for (n, (stream, size, flags, harm)) in steps.into_iter().enumerate() {
            let at = stream % streams.len();
            let stream = &mut streams[at];
            let flags = match flags { 0 => PSH, 1 => FIN, 2 => CWR, 3 => SYN, _ => 0 };
            let mut packet = stream.packet(&bytes(sizes[size], n), flags);
            match harm {
                0 => { let at = n % packet.len(); packet[at] ^= 1 << (n % 8); }
                1 => packet.truncate(n % packet.len()),
                2 => stream.seq = stream.seq.wrapping_sub(500),
                3 => stream.id = stream.id.wrapping_add(500),
                _ => {}
            }
            packets.push(packet);
        }
        let writes = coalesced(&packets);
        let again: Vec<_> = writes.iter().flat_map(|(vnet, bytes)| split(vnet, bytes)).collect();
        // Every packet comes out again, byte for byte but for identifications that mean nothing.
        let key = |p: &Vec<u8>| {
            let mut p = p.clone();
            if p.len() >= 20 && p[0] == 0x45 && p[6] & 0x40 != 0 {
                p[4..6].fill(0);
                p[10..12].fill(0);
            }
            p
        };
        let (mut sent, mut got): (Vec<_>, Vec<_>) =
            (packets.iter().map(key).collect(), again.iter().map(key).collect());
        // ... and those that are intact in order within each flow.
        for n in 0..streams.len() as u16 {
            let flow = |all: &[Vec<u8>]| -> Vec<Vec<u8>> {
                all.iter().filter(|p| is_intact(p) && port(p) == n).cloned().collect()
            };
            prop_assert!(flow(&packets) .iter().map(key).eq(flow(&again).iter().map(key)));
        }
        sent.sort();
        got.sort();
        prop_assert!(sent == got);
    }

    #[test]
    fn no_input_makes_the_coalescer_or_splitter_panic(
        packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 0..50),
        vnet: [u8; 10],
    ) {
        let _ = coalesced(&packets);
        if let (Some(vnet), Some(packet)) = (Vnet::parse(&vnet), packets.first()) {
            let _ = finish_checksum(&vnet, &mut packet.clone());
            if let Ok(good) = Split::new(&vnet, packet) {
                prop_assert_eq!(split(&vnet, packet).len(), good.count());
            }
        }
    }
}

/// As [`is_right`], for bytes that may be cut anywhere.
fn is_intact(p: &[u8]) -> bool {
    let least = match p.first() {
        Some(0x45) => 28,
        Some(0x62) => 48,
        _ => return false,
    };
    p.len() >= least && is_right(p)
}

fn port(intact: &[u8]) -> u16 {
    let l4 = if intact[0] == 0x45 { 20 } else { 40 };
    u16::from_be_bytes([intact[l4], intact[l4 + 1]])
}
