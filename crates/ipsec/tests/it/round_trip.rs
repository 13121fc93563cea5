//! Every mode, version, suite and sequence-number size: what goes in comes out.

use std::net::IpAddr;

use crate::common::{Pair, Setup, inner};
use convoy_ipsec::sa::Mode;
use convoy_ipsec::suite::EspSuite;
use proptest::prelude::*;

const V4: (&str, &str) = ("192.0.2.1", "192.0.2.2");
const V6: (&str, &str) = ("2001:db8::1", "2001:db8::2");

fn ends((local, remote): (&str, &str)) -> (IpAddr, IpAddr) {
    (local.parse().unwrap(), remote.parse().unwrap())
}

/// All set-ups of tunnel mode.
fn tunnels() -> Vec<Setup> {
    let mut all = Vec::new();
    for outer in [V4, V6] {
        for suite in EspSuite::all().map(EspSuite::suite) {
            for (esn, encap) in [(false, false), (true, false), (false, true), (true, true)] {
                let (local, remote) = ends(outer);
                all.push(Setup { local, remote, suite, esn, encap, ..Setup::default() });
            }
        }
    }
    all
}

/// All set-ups of transport mode.
fn transports() -> Vec<Setup> {
    tunnels().into_iter().map(|setup| Setup { mode: Mode::Transport, ..setup }).collect()
}

#[test]
fn tunnels_carry_both_versions_at_every_length() {
    for setup in tunnels() {
        let mut pair = Pair::new(&setup);
        let packets: Vec<_> = (0..33)
            .chain([500, 1357, 1358, 1359, 1360, 8000])
            .flat_map(|len| [inner(false, len), inner(true, len)])
            .collect();
        let (wire, answers) = pair.protect(&packets);
        assert_eq!(wire.len(), packets.len(), "{setup:?}");
        assert!(answers.is_empty());
        let opened = pair.open(&wire);
        assert!(opened == packets, "{setup:?}");
        pair.assert_no_leak();
    }
}

#[test]
fn the_wire_shows_what_rfc_4303_says() {
    for setup in tunnels() {
        let mut pair = Pair::new(&setup);
        let (wire, _) = pair.protect(&[inner(false, 101), inner(true, 102)]);
        for (n, packet) in wire.iter().enumerate() {
            let sliced = etherparse::SlicedPacket::from_ip(packet).unwrap();
            let ip = sliced.net.unwrap();
            let (offset, version) = match &ip {
                etherparse::NetSlice::Ipv4(ip) => {
                    assert_eq!(ip.header().header_checksum(), {
                        ip.header().to_header().calc_header_checksum()
                    });
                    assert_eq!(ip.header().ttl(), 64);
                    (20, 4)
                }
                etherparse::NetSlice::Ipv6(ip) => {
                    assert_eq!(ip.header().hop_limit(), 64);
                    (40, 6)
                }
                other => panic!("{other:?}"),
            };
            let esp = if setup.encap {
                let udp = etherparse::UdpSlice::from_slice(&packet[offset..]).unwrap();
                assert_eq!((udp.source_port(), udp.destination_port()), (4500, 4500));
                let expected = if version == 4 { 0 } else { udp6_checksum(packet) };
                assert_eq!(udp.checksum(), expected);
                udp.payload()
            } else {
                assert_eq!(packet[if version == 4 { 9 } else { 6 }], 50);
                &packet[offset..]
            };
            assert_eq!(esp[..4], crate::common::SPI.to_be_bytes());
            assert_eq!(esp[4..8], (n as u32 + 1).to_be_bytes(), "numbers begin with 1");
            let lengths = EspSuite::new(setup.suite).unwrap().layout();
            if lengths.iv_len() == 8 && setup.suite.block_bytes() == 1 {
                assert_eq!(esp[8..16], (n as u64 + 1).to_be_bytes());
            }
            let text = esp.len() - lengths.prefix_len() - lengths.icv_len();
            assert_eq!(text % lengths.align(), 0, "RFC 4303 section 2.4");
            let inner = [101, 102][n] + if n == 0 { 28 } else { 48 };
            assert!(text < inner + 2 + lengths.align(), "no more padding than it takes");
        }
        pair.assert_no_leak();
    }
}

fn udp6_checksum(packet: &[u8]) -> u16 {
    let header = etherparse::Ipv6Header::from_slice(packet).unwrap().0;
    let (udp, payload) = etherparse::UdpHeader::from_slice(&packet[40..]).unwrap();
    udp.calc_checksum_ipv6(&header, payload).unwrap()
}

#[test]
fn transport_mode_keeps_the_packets_own_header() {
    for setup in transports() {
        let Setup { local, encap, .. } = setup;
        let v6 = local.is_ipv6();
        let outer = if v6 { V6 } else { V4 };
        let mut pair = Pair::new(&setup);
        let packets: Vec<_> = (0..33)
            .map(|len| {
                crate::common::inner_with(v6, outer.0, outer.1, &vec![len; len.into()], 0x28)
            })
            .collect();
        let (wire, _) = pair.protect(&packets);
        assert_eq!(wire.len(), packets.len());
        for (packet, original) in wire.iter().zip(&packets) {
            let next = packet[if v6 { 6 } else { 9 }];
            assert_eq!(next, if encap { 17 } else { 50 });
            let addresses = if v6 { 8..40 } else { 12..20 };
            assert_eq!(packet[addresses.clone()], original[addresses]);
            assert!(etherparse::IpSlice::from_slice(packet).is_ok());
        }
        assert!(pair.open(&wire) == packets);
        pair.assert_no_leak();
    }
}

#[test]
fn transport_mode_goes_behind_ipv6_extension_headers() {
    let (local, remote) = ends(V6);
    let setup = Setup { mode: Mode::Transport, local, remote, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let plain = crate::common::inner_with(true, V6.0, V6.1, b"behind extensions", 0);
    // Hop-by-hop and destination options of 8 bytes each, padded (RFC 8200 section 4.2).
    let mut packet = plain[..40].to_vec();
    packet[6] = 0;
    packet.extend([60, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    packet.extend(&plain[40..]);
    let payload = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&payload.to_be_bytes());
    let (wire, _) = pair.protect(std::slice::from_ref(&packet));
    assert_eq!(wire[0][6], 0, "hop-by-hop stays outside");
    assert_eq!(wire[0][40], 50, "and announces ESP");
    assert_eq!(pair.open(&wire), [packet]);
}

#[test]
fn ttl_is_decremented_on_both_sides_where_the_gateway_forwards() {
    for v6 in [false, true] {
        let setup = Setup { decrement_ttl: true, ..Setup::default() };
        let mut pair = Pair::new(&setup);
        let packet = inner(v6, 60);
        let (wire, _) = pair.protect(std::slice::from_ref(&packet));
        let opened = pair.open(&wire).remove(0);
        let at = if v6 { 7 } else { 8 };
        assert_eq!((packet[at], opened[at]), (64, 62));
        if !v6 {
            let header = etherparse::Ipv4Header::from_slice(&opened).unwrap().0;
            assert_eq!(header.header_checksum, header.calc_header_checksum());
        }
    }
}

#[test]
fn traffic_flow_padding_is_cut_off() {
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    let packet = inner(false, 33);
    let padded = [&packet[..], &[0xaa; 301]].concat();
    let wire = crate::common::sealed(&setup, 1, &crate::common::text(&padded, 4), 0);
    assert_eq!(pair.open(&[wire]), [packet]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_burst_survives_any_tunnel(
        which in any::<proptest::sample::Index>(),
        start in prop_oneof![Just(1_u64), Just(u64::from(u32::MAX) - 40), 1_u64..1 << 39],
        lengths in proptest::collection::vec((any::<bool>(), 0_usize..8900), 1..400),
    ) {
        let mut setup = which.get(&tunnels()).clone();
        if !setup.esn && start > 1 << 30 {
            // Without ESN a counter ends before 2^32; what happens there has its own test.
            setup.start = 1 + (start & 0xffff);
        } else {
            setup.start = start;
        }
        let mut pair = Pair::new(&setup);
        // A peer that starts late is followed only from its high half on, which the floor gives.
        pair.inn.counters.floor.raise(convoy_wire::SeqNum::new(setup.start.saturating_sub(1)));
        pair.right = convoy_ipsec::pipeline::Inbound::new(
            crate::common::pipeline_parts(pair.right_writer.published(), false, 0));
        let packets: Vec<_> = lengths.iter().map(|&(v6, len)| inner(v6, len)).collect();
        let (wire, _) = pair.protect(&packets);
        prop_assert_eq!(wire.len(), packets.len());
        prop_assert!(pair.open(&wire) == packets);
        pair.assert_no_leak();
    }
}
