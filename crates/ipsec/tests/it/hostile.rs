//! Packets that must not pass do not, and each is counted under its own reason.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Pair, Setup, inner, sealed, text};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::sa::{Mode, ReqId};
use convoy_ipsec::selector::Selector;
use convoy_ipsec::spd::{Direction, Policy, PolicyAction};
use convoy_wire::Prefix;

fn all_drops(pair: &Pair) -> u64 {
    DropReason::ALL.iter().map(|&reason| pair.dropped(reason)).sum()
}

#[test]
fn every_flipped_bit_is_noticed() {
    for encap in [false, true] {
        let setup = Setup { encap, ..Setup::default() };
        let mut pair = Pair::new(&setup);
        let (wire, _) = pair.protect(&[inner(false, 50)]);
        let mut passed = 0;
        for bit in 0..wire[0].len() * 8 {
            let mut packet = wire[0].clone();
            packet[bit / 8] ^= 0x80 >> (bit % 8);
            let before = all_drops(&pair);
            let opened = pair.open(&[packet]);
            // What the bit made a fragment of is dropped when the others do not come.
            pair.give_up_fragments();
            // Bits of the outer header that nothing protects may change without harm: but then
            // the packet is the very one that was sent, and the window takes it only once.
            if opened.is_empty() {
                assert_eq!(all_drops(&pair), before + 1, "bit {bit} dropped without a reason");
            } else {
                let header = if encap { 28 } else { 20 };
                assert!(bit / 8 < header, "bit {bit} passed");
                passed += 1;
            }
        }
        assert!(passed <= 1);
        assert!(pair.dropped(DropReason::BadIcv) > 0);
        pair.assert_no_leak();
    }
}

#[test]
fn every_truncation_is_refused() {
    for encap in [false, true] {
        for cut_in_header in [false, true] {
            let setup = Setup { encap, ..Setup::default() };
            let mut pair = Pair::new(&setup);
            let (wire, _) = pair.protect(&[inner(false, 50)]);
            for len in 0..wire[0].len() {
                let mut packet = wire[0][..len].to_vec();
                if cut_in_header && len >= 20 {
                    // The header agrees with the cut, so that only ESP's own checks are left.
                    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                    if encap && len >= 28 {
                        packet[24..26].copy_from_slice(&(len as u16 - 20).to_be_bytes());
                    }
                }
                assert!(pair.open(&[packet]).is_empty(), "{len} bytes passed");
            }
            assert_eq!(all_drops(&pair), wire[0].len() as u64);
            pair.assert_no_leak();
        }
    }
}

#[test]
fn replays_are_dropped_also_within_one_burst() {
    let mut pair = Pair::new(&Setup::default());
    let packets: Vec<_> = (0..100).map(|n| inner(false, n)).collect();
    let (wire, _) = pair.protect(&packets);
    let twice: Vec<_> = wire.iter().flat_map(|p| [p.clone(), p.clone(), p.clone()]).collect();
    assert!(pair.open(&twice) == packets);
    assert_eq!(pair.dropped(DropReason::Replayed), 200);
    assert!(pair.open(&wire).is_empty());
    assert_eq!(pair.dropped(DropReason::Replayed), 300);
    assert_eq!(pair.inn.counters.replayed.get(), 300);
}

#[test]
fn a_forged_packet_does_not_move_the_window() {
    let setup = Setup { esn: false, replay_window: 64, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let (wire, _) = pair.protect(&[inner(false, 10), inner(false, 11)]);
    let mut forged = sealed(&setup, 1 << 31, &text(&inner(false, 1), 4), 0);
    *forged.last_mut().unwrap() ^= 1;
    assert!(pair.open(&[forged]).is_empty());
    assert_eq!(pair.dropped(DropReason::BadIcv), 1);
    assert_eq!(pair.inn.counters.icv_failures.get(), 1);
    assert_eq!(pair.open(&wire).len(), 2, "the window still stands at its start");
}

/// An edge that outlives the process is there before a packet goes further, and moved by authentic
/// packets alone.
#[test]
fn the_edge_that_outlives_a_process_is_that_of_what_was_accepted() {
    static EDGE: AtomicU64 = AtomicU64::new(0);
    let setup = Setup { esn: false, replay_window: 64, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let reached = || EDGE.load(Ordering::SeqCst);
    let (wire, _) = pair.protect(&vec![inner(false, 10); 20]);
    pair.inn.counters.outliving.set(&EDGE).unwrap();
    assert_eq!(pair.open(&wire[..1]).len(), 1);
    assert_eq!(reached(), setup.start);
    let mut forged = wire[19].clone();
    *forged.last_mut().unwrap() ^= 1;
    assert!(pair.open(&[forged]).is_empty());
    assert_eq!(reached(), setup.start);
    assert_eq!(pair.open(&wire[5..15]).len(), 10);
    assert_eq!(reached(), setup.start + 14);
    assert_eq!(pair.open(&wire[1..5]).len(), 4);
    assert_eq!(reached(), setup.start + 14);
}

#[test]
fn packets_left_of_the_window_are_too_old() {
    let setup = Setup { replay_window: 64, esn: false, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let (wire, _) = pair.protect(&vec![inner(false, 10); 300]);
    assert_eq!(pair.open(&wire[200..201]).len(), 1);
    assert!(pair.open(&wire[..100]).is_empty());
    assert_eq!(pair.dropped(DropReason::TooOld), 100);
    assert_eq!(pair.open(&wire[150..200]).len(), 50);
}

/// With extended numbers, what is left of the window is taken for the next block of 2^32
/// (RFC 4303 appendix A2.2), and authentication tells that it is not.
#[test]
fn packets_left_of_an_extended_window_fail_authentication() {
    let setup = Setup { replay_window: 64, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let (wire, _) = pair.protect(&vec![inner(false, 10); 300]);
    assert_eq!(pair.open(&wire[200..201]).len(), 1);
    assert!(pair.open(&wire[..100]).is_empty());
    assert_eq!(pair.dropped(DropReason::BadIcv), 100);
}

#[test]
fn unknown_spi_and_foreign_address_are_told_apart_from_forgery() {
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    let (wire, _) = pair.protect(&[inner(false, 10)]);
    let mut wrong_spi = wire[0].clone();
    wrong_spi[23] ^= 1;
    let mut wrong_address = wire[0].clone();
    wrong_address[19] ^= 1;
    assert!(pair.open(&[wrong_spi, wrong_address]).is_empty());
    assert_eq!(pair.dropped(DropReason::UnknownSpi), 2);
}

#[test]
fn what_is_no_esp_is_named() {
    let udp = |payload: &[u8]| {
        let mut packet = crate::common::inner_with(false, "192.0.2.1", "192.0.2.2", payload, 0);
        packet[22..24].copy_from_slice(&4500_u16.to_be_bytes());
        packet
    };
    let mut tcp = crate::common::inner_with(false, "192.0.2.1", "192.0.2.2", &[0; 40], 0);
    tcp[9] = 6;
    let mut zero_spi = sealed(&Setup::default(), 1, &text(&inner(false, 1), 4), 0);
    zero_spi[20..24].fill(0);
    let cases = [
        (udp(&[0xff]), DropReason::NatKeepalive),
        (udp(&[0, 0, 0, 0, 1, 2, 3]), DropReason::IkeMessage),
        (udp(&[1, 2]), DropReason::EspLength),
        (udp(&[]), DropReason::EspLength),
        (tcp, DropReason::NotEsp),
    ];
    for (packet, reason) in cases {
        let mut pair = Pair::new(&Setup { encap: true, ..Setup::default() });
        assert!(pair.open(&[packet]).is_empty());
        assert_eq!(pair.dropped(reason), 1, "{reason:?}");
        assert_eq!(all_drops(&pair), 1);
    }
    let mut pair = Pair::new(&Setup::default());
    assert!(pair.open(&[zero_spi]).is_empty());
    assert_eq!(all_drops(&pair), 1);
}

#[test]
fn encapsulation_must_be_as_agreed() {
    for (sends, expects) in [(true, false), (false, true)] {
        let (wire, _) =
            Pair::new(&Setup { encap: sends, ..Setup::default() }).protect(&[inner(false, 9)]);
        let mut pair = Pair::new(&Setup { encap: expects, ..Setup::default() });
        assert!(pair.open(&wire).is_empty());
        assert_eq!(pair.dropped(DropReason::EncapMismatch), 1);
    }
}

/// In transport mode the outer header is the packet's own, and ESP does not cover it.
#[test]
fn a_changed_source_in_transport_mode_is_refused_unless_a_nat_may_have_changed_it() {
    for encap in [false, true] {
        let setup = Setup { mode: Mode::Transport, encap, ..Setup::default() };
        let mut pair = Pair::new(&setup);
        let packet =
            crate::common::inner_with(false, "192.0.2.1", "192.0.2.2", b"between hosts", 0);
        let (wire, _) = pair.protect(&[packet.clone(), packet]);
        let mut moved = wire[0].clone();
        moved[15] = 77;
        assert_eq!(pair.open(&[moved]).len(), usize::from(encap));
        assert_eq!(pair.dropped(DropReason::TransportAddress), u64::from(!encap));
        assert_eq!(pair.open(&wire).len(), if encap { 1 } else { 2 }, "the window did not move");
        pair.assert_no_leak();
    }
}

/// Linux fills Record Route in when it delivers to a raw socket, and leaves the checksum as it was.
#[test]
fn options_that_the_kernel_filled_in_have_a_right_checksum_behind_transport_mode() {
    let setup = Setup { mode: Mode::Transport, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let plain = crate::common::inner_with(false, "192.0.2.1", "192.0.2.2", b"ping -R", 0);
    // One place for an address, and the end of the list.
    let options = [7, 7, 4, 0, 0, 0, 0, 0];
    let mut packet = [&plain[..20], &options, &plain[20..]].concat();
    packet[0] = 0x47;
    let len = packet.len() as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    let checksum = |packet: &[u8]| {
        let header = etherparse::Ipv4Header::from_slice(packet).unwrap().0;
        (header.header_checksum, header.calc_header_checksum())
    };
    let right = checksum(&packet).1;
    packet[10..12].copy_from_slice(&right.to_be_bytes());
    let (mut wire, _) = pair.protect(&[packet]);
    wire[0][22..27].copy_from_slice(&[8, 192, 0, 2, 2]);
    let opened = pair.open(&wire);
    assert_eq!(opened[0][20..28], [7, 7, 8, 192, 0, 2, 2, 0]);
    let (written, right) = checksum(&opened[0]);
    assert_eq!(written, right);
    pair.assert_no_leak();
}

/// RFC 4301 section 5.2, step 4: what is authentic is still not anybody's.
#[test]
fn a_transport_sa_in_udp_that_selects_its_peers_host_takes_no_other_source() {
    let setup =
        Setup { mode: Mode::Transport, encap: true, from_peer_only: true, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let packet = crate::common::inner_with(false, "192.0.2.1", "192.0.2.2", b"between hosts", 0);
    let (wire, _) = pair.protect(&[packet.clone(), packet]);
    let mut moved = wire[0].clone();
    moved[15] = 77;
    assert!(pair.open(&[moved]).is_empty());
    assert_eq!(pair.dropped(DropReason::TransportAddress), 1);
    assert_eq!(pair.inn.counters.dropped.get(), 1);
    assert_eq!(pair.open(&wire[1..]).len(), 1);
    pair.assert_no_leak();
}

#[test]
fn authentic_nonsense_is_refused() {
    let v4 = inner(false, 20);
    let v6 = inner(true, 20);
    let mut bad_padding = text(&inner(false, 21), 4);
    let at = bad_padding.len() - 3;
    bad_padding[at] ^= 0xff;
    let mut long_padding = text(&v4, 4);
    let at = long_padding.len() - 2;
    long_padding[at] = 255;
    let mut short_header = v4.clone();
    short_header[0] = 0x44;
    let mut too_long = v4.clone();
    too_long[2..4].copy_from_slice(&1000_u16.to_be_bytes());
    let cases = [
        (bad_padding, DropReason::BadPadding),
        (long_padding, DropReason::BadPadding),
        (text(&v4, 6), DropReason::BadNextHeader),
        (text(&v4, 59), DropReason::DummyPacket),
        (text(&v4, 41), DropReason::InnerMalformed),
        (text(&v6, 4), DropReason::InnerMalformed),
        (text(&[], 4), DropReason::InnerMalformed),
        (text(&short_header, 4), DropReason::InnerMalformed),
        (text(&too_long, 4), DropReason::InnerMalformed),
        (text(&v6[..50], 41), DropReason::InnerMalformed),
    ];
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    for (seq, (text, reason)) in (1..).zip(cases) {
        let before = pair.dropped(reason);
        let opened = pair.open(&[sealed(&setup, seq, &text, 0)]);
        assert!(opened.is_empty(), "{reason:?}");
        assert_eq!(pair.dropped(reason), before + 1, "packet {seq}: {reason:?}");
    }
    assert_eq!(all_drops(&pair), 10);
    pair.assert_no_leak();
}

/// RFC 4303 section 2.4: the text ends on a multiple of four bytes, so it has at least four.
#[test]
fn text_of_a_length_that_padding_rules_out_is_refused() {
    let setup = Setup::default();
    let mut pair = Pair::new(&setup);
    let lengths = [0, 1, 2, 3, 5, 6, 7, 61, 62, 63];
    for (seq, len) in (1..).zip(lengths) {
        assert!(pair.open(&[sealed(&setup, seq, &vec![0; len], 0)]).is_empty());
    }
    assert_eq!(pair.dropped(DropReason::EspLength), lengths.len() as u64);
}

/// RFC 6040 figure 4: a mark that the inner transport cannot hear drops the packet.
#[test]
fn congestion_marks_follow_rfc_6040() {
    let setup = Setup::default();
    // (inner, outer) and what comes out; None: dropped.
    let table = [
        (0b00, 0b00, Some(0b00)),
        (0b00, 0b10, Some(0b00)),
        (0b00, 0b11, None),
        (0b10, 0b00, Some(0b10)),
        (0b10, 0b01, Some(0b01)),
        (0b10, 0b11, Some(0b11)),
        (0b01, 0b10, Some(0b01)),
        (0b01, 0b11, Some(0b11)),
        (0b11, 0b00, Some(0b11)),
    ];
    for v6 in [false, true] {
        let mut pair = Pair::new(&setup);
        for (seq, (inside, outside, expected)) in (1..).zip(table) {
            let (src, dst, next) = if v6 {
                ("2001:db8:1::1", "2001:db8:2::2", 41)
            } else {
                ("10.1.0.1", "10.2.0.2", 4)
            };
            let packet = crate::common::inner_with(v6, src, dst, b"marked", inside);
            let wire = sealed(&setup, seq, &text(&packet, next), outside);
            let opened = pair.open(&[wire]);
            let ecn =
                opened.first().map(|packet| if v6 { packet[1] >> 4 & 3 } else { packet[1] & 3 });
            assert_eq!(ecn, expected, "inner {inside:02b} outer {outside:02b}");
            if let (false, Some(packet)) = (v6, opened.first()) {
                let header = etherparse::Ipv4Header::from_slice(packet).unwrap().0;
                assert_eq!(header.header_checksum, header.calc_header_checksum());
            }
        }
        assert_eq!(pair.dropped(DropReason::EcnDrop), 1);
        assert!(pair.right_counters.ecn_alarms.get() > 0);
    }
}

#[test]
fn an_inner_packet_outside_its_policy_never_reaches_the_plain_side() {
    let policy = |remote: &str, reqid| Policy {
        name: remote.into(),
        priority: reqid,
        direction: Direction::Inbound,
        selector: Selector {
            remote: remote.parse::<Prefix>().unwrap().into(),
            ..Selector::default()
        },
        action: PolicyAction::Protect { reqid: ReqId(reqid) },
    };
    // 10.1/16 may come through the test's SA, 10.9/16 only through another.
    let spd = crate::common::spd(vec![policy("10.1.0.0/16", 1), policy("10.9.0.0/16", 2)]);
    let mut pair =
        Pair::with(&Setup::default(), crate::common::protect_all(Direction::Outbound), spd);
    let from = |src| crate::common::inner_with(false, src, "10.2.0.2", b"inner", 0);
    let packets = [from("10.1.0.1"), from("10.9.0.1"), from("10.200.0.1")];
    let (wire, _) = pair.protect(&packets);
    assert_eq!(wire.len(), 3);
    assert_eq!(pair.open(&wire), packets[..1]);
    assert_eq!(pair.dropped(DropReason::InnerPolicyMismatch), 2);
}

#[test]
fn random_bytes_are_counted_and_nothing_else() {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut pair = Pair::new(&Setup::default());
    let mut packets = Vec::new();
    for n in 0..5000_u64 {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(n);
        let bytes = hasher.finish().to_le_bytes();
        let len = (n % 200) as usize;
        packets.push(bytes.iter().copied().cycle().take(len).collect::<Vec<u8>>());
    }
    assert!(pair.open(&packets).is_empty());
    let (wire, _) = pair.protect(&packets);
    pair.give_up_fragments();
    assert_eq!(all_drops(&pair), 5000);
    let refused: u64 = DropReason::ALL.iter().map(|&reason| pair.refused(reason)).sum();
    assert_eq!(wire.len() as u64 + refused, 5000);
    pair.assert_no_leak();
}
