use super::*;
use crate::ipv6::FragmentHeader;
use crate::{Ipv4Repr, Ipv6Repr};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

fn v4(protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let repr = Ipv4Repr {
        tos: Tos(0xb9),
        ident: 1,
        dont_fragment: true,
        ttl: 60,
        protocol,
        src: [10, 0, 0, 1].into(),
        dst: [10, 9, 8, 7].into(),
        payload_len: payload.len(),
    };
    [&repr.to_bytes().unwrap()[..], payload].concat()
}

fn v6(next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    let repr = Ipv6Repr {
        tos: Tos(0xb9),
        flow_label: 3,
        next_header,
        hop_limit: 60,
        src: "2001:db8::1".parse().unwrap(),
        dst: "2001:db8::2".parse().unwrap(),
        payload_len: payload.len(),
    };
    [&repr.to_bytes().unwrap()[..], payload].concat()
}

const PORTS: [u8; 8] = [0x10, 0x00, 0x00, 0x35, 0, 8, 0, 0];
const KNOWN: Ports = Ports::Known { src: 0x1000, dst: 53 };

#[test]
fn everything_about_a_udp_packet_over_ipv4_is_found() {
    let info = parse_packet(&v4(Protocol::UDP, &PORTS)).unwrap();
    let expected = PacketInfo {
        flow: FlowKey::new([10, 0, 0, 1].into(), [10, 9, 8, 7].into(), Protocol::UDP, KNOWN)
            .unwrap(),
        total_len: 28,
        header_len: 20,
        upper_offset: 20,
        ttl: 60,
        tos: Tos(0xb9),
        dont_fragment: true,
        fragment: FragmentState::Whole,
    };
    assert_eq!(info, expected);
    assert_eq!(info.flow.src_addr(), IpAddr::from([10, 0, 0, 1]));
    assert_eq!(info.flow.reversed().ports, Ports::Known { src: 53, dst: 0x1000 });
}

/// Any change of the first bytes, taken both ways.
#[test]
fn the_short_way_finds_what_the_long_way_finds() {
    let packets =
        [v4(Protocol::UDP, &PORTS), v4(Protocol::TCP, &[7; 20]), v4(Protocol::ICMP, &PORTS)];
    let (mut short, mut long) = (0, 0);
    for packet in packets {
        for at in 0..24 {
            for byte in 0..=255 {
                let mut bytes = packet.clone();
                bytes[at] = byte;
                for len in [19, 20, 23, 24, bytes.len()] {
                    let bytes = &bytes[..len];
                    let Some(plain) = parse_plain(bytes) else {
                        long += 1;
                        continue;
                    };
                    short += 1;
                    let mut whole = PacketInfo::NONE;
                    let parsed = parse_v4(bytes, &ParseOptions::default(), &mut whole);
                    assert_eq!((parsed, plain), (Ok(()), whole));
                }
            }
        }
    }
    assert!(short > 1_000 && long > 1_000, "{short} {long}");
}

#[test]
fn everything_about_a_packet_with_extension_headers_is_found() {
    let mut payload = vec![Protocol::TCP.0, 1];
    payload.resize(16, 0);
    payload.extend(PORTS);
    let info = parse_packet(&v6(Protocol::DEST_OPTIONS, &payload)).unwrap();
    assert_eq!((info.flow.protocol, info.flow.ports), (Protocol::TCP, KNOWN));
    assert_eq!((info.header_len, info.upper_offset, info.total_len), (40, 56, 64));
    assert_eq!((info.ttl, info.tos, info.dont_fragment), (60, Tos(0xb9), true));
    assert_eq!(info.flow.dst_addr().to_string(), "2001:db8::2");
}

use std::string::ToString;

#[test]
fn icmp_type_and_code_stand_in_for_ports_only_in_their_own_version() {
    let ping = Ports::Icmp { ty: 8, code: 3 };
    let of = |packet: &[u8]| parse_packet(packet).unwrap().flow.ports;
    assert_eq!(of(&v4(Protocol::ICMP, &[8, 3])), ping);
    assert_eq!(of(&v6(Protocol::ICMPV6, &[8, 3])), ping);
    assert_eq!(of(&v4(Protocol::ICMPV6, &[8, 3])), Ports::Opaque);
    assert_eq!(of(&v6(Protocol::ICMP, &[8, 3])), Ports::Opaque);
    assert_eq!(of(&v4(Protocol::ESP, &[])), Ports::Opaque);
}

#[test]
fn link_padding_is_left_out_of_the_length() {
    let mut packet = v4(Protocol::UDP, &PORTS);
    packet.extend([0; 18]);
    assert_eq!(parse_packet(&packet).unwrap().total_len, 28);
}

#[test]
fn packets_cut_at_every_byte_are_refused() {
    for packet in [v4(Protocol::UDP, &PORTS), v6(Protocol::UDP, &PORTS)] {
        let header_len = packet.len() - 8;
        for cut in 0..packet.len() {
            let expected = match cut {
                _ if cut < header_len => ParseError::Truncated,
                _ => ParseError::LengthBeyondData,
            };
            assert_eq!(parse_packet(&packet[..cut]), Err(expected), "cut at {cut}");
        }
    }
}

#[test]
fn packets_without_room_for_their_ports_are_refused() {
    for len in 0..4 {
        for protocol in [Protocol::TCP, Protocol::UDP, Protocol::SCTP] {
            let short = v4(protocol, &PORTS[..len]);
            assert_eq!(parse_packet(&short), Err(ParseError::UpperTruncated));
            let short = v6(protocol, &PORTS[..len]);
            assert_eq!(parse_packet(&short), Err(ParseError::UpperTruncated));
        }
    }
    assert_eq!(parse_packet(&v4(Protocol::ICMP, &[8])), Err(ParseError::UpperTruncated));
}

#[test]
fn a_wrong_header_checksum_is_refused_only_where_asked() {
    let strict = ParseOptions { verify_checksum: true, ..ParseOptions::default() };
    let mut packet = v4(Protocol::UDP, &PORTS);
    assert!(parse_packet_with(&packet, &strict).is_ok());
    packet[8] ^= 1;
    assert!(parse_packet(&packet).is_ok());
    assert_eq!(parse_packet_with(&packet, &strict), Err(ParseError::BadChecksum));
}

#[test]
fn versions_other_than_4_and_6_are_refused() {
    for first in [0x00, 0x15, 0x55, 0x75, 0xf5] {
        assert_eq!(parse_packet(&[first; 60]), Err(ParseError::BadVersion));
    }
    assert_eq!(parse_packet(&[]), Err(ParseError::Truncated));
}

/// A fragment over IPv4 with this flags-and-offset word.
fn v4_fragment(word: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = v4(Protocol::UDP, payload);
    packet[6..8].copy_from_slice(&word.to_be_bytes());
    packet
}

fn v6_fragment(offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    let header = FragmentHeader { next_header: Protocol::UDP, offset, more, ident: 9 };
    v6(Protocol::FRAGMENT, &[&header.to_bytes()[..], data].concat())
}

#[test]
fn only_first_fragments_have_ports() {
    let of = |packet: &[u8]| parse_packet(packet).map(|i| (i.fragment, i.flow.ports));
    let first = Ok((FragmentState::First, KNOWN));
    let later = Ok((FragmentState::Later, Ports::Opaque));
    assert_eq!(of(&v4_fragment(0x2000, &PORTS)), first);
    assert_eq!(of(&v4_fragment(0x2001, &PORTS)), later);
    assert_eq!(of(&v4_fragment(0x0001, &PORTS[..3])), later);
    assert_eq!(of(&v6_fragment(0, true, &PORTS)), first);
    assert_eq!(of(&v6_fragment(8, true, &PORTS)), later);
    assert_eq!(of(&v6_fragment(8, false, &PORTS[..3])), later);
    assert_eq!(of(&v6_fragment(0, false, &PORTS)), Ok((FragmentState::Whole, KNOWN)));
}

#[test]
fn impossible_fragments_are_refused() {
    let bad = Err(ParseError::BadFragment);
    for len in [0, 1, 4, 7] {
        assert_eq!(parse_packet(&v4_fragment(0x2000, &PORTS[..len])), bad);
        assert_eq!(parse_packet(&v6_fragment(0, true, &PORTS[..len])), bad);
    }
    // 65528 is the highest offset; what follows it must fit 65535 with the IPv4 header.
    assert_eq!(parse_packet(&v4_fragment(0x1fff, &PORTS)), bad);
    // 8 bytes of data at 65512 end within 65535 alone, but not with the header of 20 bytes.
    assert_eq!(parse_packet(&v4_fragment(65_512 / 8, &PORTS)), bad);
    assert!(parse_packet(&v4_fragment(65_504 / 8, &PORTS)).is_ok());
    assert!(parse_packet(&v6_fragment(65_528, false, &PORTS[..7])).is_ok());
    assert_eq!(parse_packet(&v6_fragment(65_528, false, &PORTS)), bad);
}

#[test]
fn flow_keys_of_mixed_versions_cannot_be_made() {
    let v4 = IpAddr::from([1, 2, 3, 4]);
    let v6: IpAddr = "::1".parse().unwrap();
    assert_eq!(FlowKey::new(v4, v6, Protocol::UDP, Ports::Opaque), None);
}

proptest! {
    #[test]
    fn any_bytes_yield_lengths_that_lie_inside(
        mut bytes in prop::collection::vec(any::<u8>(), 1..200), shape in 0u8..4,
    ) {
        match shape {
            0 => bytes[0] = 0x45,
            1 => bytes[0] = 0x60,
            // Lengths that fit, so that the upper layers are reached.
            2 if bytes.len() >= 20 => {
                bytes[0] = 0x40 | bytes[0] & 0x7;
                [bytes[2], bytes[3]] = [0, bytes.len() as u8];
            }
            3 if bytes.len() >= 40 => {
                bytes[0] = 0x60;
                [bytes[4], bytes[5]] = [0, bytes.len() as u8 - 40];
                bytes[6] = [0, 43, 44, 60][usize::from(bytes[6] % 4)];
            }
            _ => {}
        }
        let strict = ParseOptions { verify_checksum: true, ..ParseOptions::default() };
        let _ = parse_packet_with(&bytes, &strict);
        if let Ok(info) = parse_packet(&bytes) {
            prop_assert!(info.total_len as usize <= bytes.len());
            prop_assert!(u32::from(info.upper_offset) <= info.total_len);
            prop_assert!(info.header_len <= info.upper_offset);
            let trimmed = &bytes[..info.total_len as usize];
            prop_assert_eq!(parse_packet(trimmed), Ok(info));
        }
    }

    #[test]
    fn agrees_with_etherparse_on_whole_packets_it_builds(
        ports in any::<(u16, u16)>(), src in any::<[u8; 16]>(), dst in any::<[u8; 16]>(), is_v6 in any::<bool>(),
        tcp in any::<bool>(), ttl in any::<u8>(), payload in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        use etherparse::PacketBuilder;
        let four = |a: [u8; 16]| [a[0], a[1], a[2], a[3]];
        let ip = if is_v6 { PacketBuilder::ipv6(src, dst, ttl) } else { PacketBuilder::ipv4(four(src), four(dst), ttl) };
        let mut bytes = Vec::new();
        if tcp {
            ip.tcp(ports.0, ports.1, 1, 1000).write(&mut bytes, &payload).unwrap();
        } else {
            ip.udp(ports.0, ports.1).write(&mut bytes, &payload).unwrap();
        }
        let strict = ParseOptions { verify_checksum: true, ..ParseOptions::default() };
        let info = parse_packet_with(&bytes, &strict).unwrap();
        prop_assert_eq!(info.flow.ports, Ports::Known { src: ports.0, dst: ports.1 });
        prop_assert_eq!(info.flow.protocol, if tcp { Protocol::TCP } else { Protocol::UDP });
        prop_assert_eq!(info.total_len as usize, bytes.len());
        prop_assert_eq!(info.ttl, ttl);
        let addr = |a: [u8; 16]| if is_v6 { IpAddr::from(a) } else { IpAddr::from(four(a)) };
        prop_assert_eq!(info.flow.src_addr(), addr(src));
        prop_assert_eq!(info.flow.dst_addr(), addr(dst));
    }
}
