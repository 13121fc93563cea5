//! Refusals, answers, cuts and numbers of the sending side.

use std::sync::Arc;

use crate::common::{Pair, Setup, inner, inner_with};
use convoy_ipsec::clock::Now;
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::pipeline::PathMtuNews;
use convoy_ipsec::sa::{
    DfPolicy, DscpPolicy, IpsecProtocol, Mode, OutboundSpec, OuterHeader, ReqId, SaSlot, SaSpec,
    UdpEncap,
};
use convoy_ipsec::selector::Selector;
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::{Direction, Policy, PolicyAction};
use convoy_packet::{BURST_MAX, Burst};
use convoy_wire::{Dscp, Prefix, Spi};

fn to(prefix: &str, priority: u32, action: PolicyAction) -> Policy {
    Policy {
        name: prefix.into(),
        priority,
        direction: Direction::Outbound,
        selector: Selector {
            remote: prefix.parse::<Prefix>().unwrap().into(),
            ..Selector::default()
        },
        action,
    }
}

#[test]
fn policies_protect_bypass_and_discard() {
    let spd = crate::common::spd(vec![
        to("10.2.0.0/16", 1, PolicyAction::Protect { reqid: ReqId(1) }),
        to("10.3.0.0/16", 2, PolicyAction::Bypass),
        to("10.4.0.0/16", 3, PolicyAction::Discard),
        to("10.5.0.0/16", 4, PolicyAction::Protect { reqid: ReqId(99) }),
    ]);
    let mut pair =
        Pair::with(&Setup::default(), spd, crate::common::protect_all(Direction::Inbound));
    let packet = |dst| inner_with(false, "10.1.0.1", dst, b"data", 0);
    let packets = ["10.2.0.1", "10.3.0.1", "10.4.0.1", "10.5.0.1", "10.6.0.1"].map(packet);
    let (wire, answers) = pair.protect(&packets);
    assert!(answers.is_empty());
    assert_eq!(wire.len(), 2);
    assert!(wire.contains(&packets[1]), "bypassed as it was");
    assert_eq!(pair.left_counters.bypassed.get(), 1);
    assert_eq!(pair.refused(DropReason::PolicyDiscard), 1);
    assert_eq!(pair.refused(DropReason::NoSa), 1);
    assert_eq!(pair.refused(DropReason::NoPolicy), 1);
    pair.assert_no_leak();
}

#[test]
fn what_policies_decide_that_protect_nothing_is_counted_for_each() {
    let spd = crate::common::spd(vec![
        to("10.2.0.0/16", 1, PolicyAction::Protect { reqid: ReqId(1) }),
        to("10.3.0.0/16", 2, PolicyAction::Bypass),
        to("10.4.0.0/16", 3, PolicyAction::Discard),
        to("10.5.0.0/16", 4, PolicyAction::Discard),
    ]);
    let from_left = |action| Policy { direction: Direction::Inbound, ..to("0.0.0.0/0", 1, action) };
    let right = crate::common::spd(vec![from_left(PolicyAction::Discard)]);
    let mut pair = Pair::with(&Setup::default(), spd, right);
    let count = |snapshot: Arc<Snapshot>| -> Vec<_> {
        let spd = snapshot.spd();
        let uses = spd.policies().map(|(id, _)| spd.uses(id));
        uses.map(|uses| uses.map(|n| (n.packets(), n.bytes(), n.last_packet_ns()))).collect()
    };
    let none = Some((0, 0, 0));
    assert_eq!(count(pair.left_writer.current()), [None, none, none, none]);
    let packet = |dst| inner_with(false, "10.1.0.1", dst, b"data", 0);
    let packets = ["10.3.0.1", "10.2.0.1", "10.4.0.1", "10.4.0.2", "10.5.0.1", "10.4.0.3"];
    let packets = packets.map(packet);
    let (mut wire, _) = pair.protect(&packets);
    let (len, now) = (packets[0].len() as u64, pair.now.0);
    let all = [None, Some((1, len, now)), Some((3, 3 * len, now)), Some((1, len, now))];
    assert_eq!(count(pair.left_writer.current()), all);
    wire.retain(|packet| *packet != packets[0]);
    assert_eq!(pair.open(&wire), [[0_u8; 0]; 0]);
    assert_eq!(count(pair.right_writer.current()), [Some((1, len, now))]);

    // Another snapshot with the same policies goes on.
    let mut next = Snapshot::clone(&pair.left_writer.current());
    let (gone, _) = next.spd().policies().last().unwrap();
    next.spd_of_mut(convoy_ipsec::spd::SpdId(0)).unwrap().remove(gone);
    pair.left_writer.publish(next);
    pair.protect(&packets);
    let all = [None, Some((2, 2 * len, now)), Some((6, 6 * len, now))];
    assert_eq!(count(pair.left_writer.current()), all);
    pair.assert_no_leak();
}

#[test]
fn numbers_end_at_the_limit_and_never_wrap() {
    let last = u64::from(u32::MAX);
    let setup = Setup { esn: false, start: last - 2, granted: u64::MAX, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let (wire, _) = pair.protect(&vec![inner(false, 1); 10]);
    let sent: Vec<u32> =
        wire.iter().map(|p| u32::from_be_bytes(p[24..28].try_into().unwrap())).collect();
    assert_eq!(sent, [u32::MAX - 2, u32::MAX - 1, u32::MAX]);
    assert_eq!(pair.refused(DropReason::SequenceExhausted), 7);
}

#[test]
fn numbers_beyond_the_lease_are_not_used() {
    let setup = Setup { granted: 4, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let (wire, _) = pair.protect(&vec![inner(false, 1); 10]);
    assert_eq!(wire.len(), 3, "1, 2 and 3 are below the granted 4");
    assert_eq!(pair.refused(DropReason::LeaseExhausted), 7);
    pair.out.lease.grant(100);
    let (wire, _) = pair.protect(&vec![inner(false, 1); 10]);
    assert_eq!(wire.len(), 10);
    assert_eq!(wire[0][24..28], 4_u32.to_be_bytes());
}

/// A sender that asks for many messages leaves others theirs: without them a sender's packets vanish.
#[test]
fn one_sender_does_not_take_the_messages_of_others() {
    let mut pair = Pair::new(&Setup { path_mtu: 1400, ..Setup::default() });
    let from = |source| inner_with(true, source, "2001:db8:2::1", &[0; 1400], 0);
    let (_, answers) = pair.protect(&vec![from("2001:db8:1::bad"); 200]);
    assert_eq!(answers.len(), 8);
    // One of 256 senders has the same place as the greedy one; of four, hardly all of them.
    let others = ["2001:db8:1::1", "2001:db8:1::2", "2001:db8:1::3", "2001:db8:1::4"].map(from);
    let (_, answers) = pair.protect(&others);
    assert!(!answers.is_empty());
    pair.now.0 += 8_000_000;
    let (_, answers) = pair.protect(&vec![from("2001:db8:1::bad"); 200]);
    assert_eq!(answers.len(), 1, "one more every eight milliseconds");
    pair.assert_no_leak();
}

#[test]
fn too_big_is_answered_to_the_inner_sender() {
    for (v6, least) in [(false, 576), (true, 1280)] {
        let setup = Setup { path_mtu: 1400, ..Setup::default() };
        let mut pair = Pair::new(&setup);
        let mut packet = inner(v6, 1390);
        if !v6 {
            packet[6] = 0x40;
            let sum = etherparse::Ipv4Header::from_slice(&packet).unwrap().0.calc_header_checksum();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let (wire, answers) = pair.protect(std::slice::from_ref(&packet));
        assert!(wire.is_empty());
        assert_eq!(pair.refused(DropReason::TooBig), 1);
        assert_eq!(answers.len(), 1);
        let sliced = etherparse::SlicedPacket::from_ip(&answers[0]).unwrap();
        let mtu = match sliced.transport.unwrap() {
            etherparse::TransportSlice::Icmpv4(icmp) => match icmp.icmp_type() {
                etherparse::Icmpv4Type::DestinationUnreachable(
                    etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu },
                ) => u32::from(next_hop_mtu),
                other => panic!("{other:?}"),
            },
            etherparse::TransportSlice::Icmpv6(icmp) => match icmp.icmp_type() {
                etherparse::Icmpv6Type::PacketTooBig { mtu } => mtu,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert!(mtu >= least);
        // A packet of just that size passes, one byte more does not.
        let headers = if v6 { 48 } else { 28 };
        let mut fits = inner(v6, mtu as usize - headers);
        let mut over = inner(v6, mtu as usize - headers + 1);
        if !v6 {
            fits[6] = 0x40;
            over[6] = 0x40;
        }
        let (wire, _) = pair.protect(&[fits, over]);
        assert_eq!(wire.len(), 1);
        assert!(wire[0].len() <= 1400);
    }
}

/// No IPv6 sender goes below 1280 bytes, whatever it is told (RFC 8200 section 5): over a narrower
/// path the outer packet is left to be fragmented (RFC 2473 section 7.1).
#[test]
fn ipv6_packets_of_the_least_size_pass_a_narrower_ipv4_path() {
    let allowing = |df, path_mtu| {
        let outer = OuterHeader { df, ..Setup::default().outer };
        Pair::new(&Setup { outer, path_mtu, ..Setup::default() })
    };
    for (df, path_mtu, outer_df) in [
        (DfPolicy::Copy, 1300, false),
        (DfPolicy::Clear, 1300, false),
        (DfPolicy::Copy, 1500, true),
    ] {
        let mut pair = allowing(df, path_mtu);
        let packet = inner(true, 1280 - 48);
        assert_eq!(packet.len(), 1280);
        let (wire, answers) = pair.protect(std::slice::from_ref(&packet));
        assert!(wire.len() == 1 && answers.is_empty(), "{df:?} over {path_mtu}");
        let header = etherparse::Ipv4Header::from_slice(&wire[0]).unwrap().0;
        assert_eq!(header.dont_fragment, outer_df, "{df:?} over {path_mtu}");
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(pair.open(&wire), [packet]);
    }
    let mut pair = allowing(DfPolicy::Copy, 1300);
    let (wire, answers) = pair.protect(&[inner(true, 1281 - 48)]);
    assert!(wire.is_empty());
    assert_eq!(answers[0][44..48], 1280_u32.to_be_bytes());
    let mut pair = allowing(DfPolicy::Set, 1300);
    let (wire, answers) = pair.protect(&[inner(true, 1280 - 48)]);
    assert!(wire.is_empty() && answers.len() == 1, "fragments were forbidden");
}

#[test]
fn answers_are_limited_in_rate() {
    let setup = Setup { path_mtu: 1400, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let from =
        |n: usize| inner_with(true, &format!("2001:db8:1::{n:x}"), "2001:db8:2::1", &[0; 1390], 0);
    // Of so many senders, none comes to his own limit first.
    let packets: Vec<_> = (0..1000).map(from).collect();
    let (_, answers) = pair.protect(&packets);
    assert!((1..=64).contains(&answers.len()), "{} answers", answers.len());
    assert_eq!(pair.refused(DropReason::TooBig), 1000);
    pair.now = Now(pair.now.0 + 10_000_000);
    let (_, more) = pair.protect(&packets);
    assert_eq!(more.len(), 10, "one a millisecond");
}

#[test]
fn packets_that_allow_it_are_fragmented_before_esp() {
    let setup = Setup { path_mtu: 600, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let packet = inner(false, 4000);
    let (wire, answers) = pair.protect(std::slice::from_ref(&packet));
    assert!(answers.is_empty());
    assert!(wire.len() > 7 && wire.iter().all(|p| p.len() <= 600));
    let fragments = pair.open(&wire);
    let mut data = vec![0; packet.len() - 20];
    for fragment in &fragments {
        let ip = etherparse::Ipv4Slice::from_slice(fragment).unwrap();
        let header = ip.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        let at = usize::from(header.fragment_offset.byte_offset());
        let part = ip.payload().payload;
        data[at..at + part.len()].copy_from_slice(part);
        assert_eq!(header.more_fragments, at + part.len() < data.len());
    }
    assert_eq!(data, packet[20..]);
    assert_eq!(pair.left_counters.fragments_made.get(), fragments.len() as u64 - 1);
    assert_eq!(pair.out.counters.dropped.get(), 0, "what is cut is not dropped");
    pair.assert_no_leak();
}

#[test]
fn many_fragments_keep_their_order_across_bursts() {
    let setup = Setup { path_mtu: 600, replay_window: 0, esn: false, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let (wire, _) = pair.protect(&vec![inner(false, 4000); 200]);
    let numbers: Vec<u32> =
        wire.iter().map(|p| u32::from_be_bytes(p[24..28].try_into().unwrap())).collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u32));
    let lost = pair.refused(DropReason::TooBig);
    assert!(numbers.len() > 1000);
    assert_eq!(numbers.len() as u64 % 8, 0, "packets are cut whole or not at all");
    assert_eq!(numbers.len() as u64 / 8 + lost, 200);
    pair.assert_no_leak();
}

#[test]
fn the_outer_header_follows_its_rules() {
    let outer = |df, dscp, ecn| OuterHeader { df, dscp, ecn, hop_limit: 77 };
    let fixed = DscpPolicy::Fixed(Dscp::new(46).unwrap());
    let cases = [
        // inner TOS and DF, rules, outer TOS and DF
        (0xb9, true, outer(DfPolicy::Copy, DscpPolicy::Copy, true), 0xb9, true),
        (0xb9, false, outer(DfPolicy::Copy, DscpPolicy::Copy, true), 0xb9, false),
        (0xb9, false, outer(DfPolicy::Set, DscpPolicy::Copy, false), 0xb8, true),
        (0x03, true, outer(DfPolicy::Clear, fixed, true), 46 << 2 | 3, false),
        (0x02, true, outer(DfPolicy::Clear, fixed, false), 46 << 2, false),
    ];
    for (tos, df, outer, outer_tos, outer_df) in cases {
        let mut pair = Pair::new(&Setup { outer, ..Setup::default() });
        let mut packet = inner_with(false, "10.1.0.1", "10.2.0.2", b"x", tos);
        packet[6] = if df { 0x40 } else { 0 };
        let (wire, _) = pair.protect(&[packet]);
        let header = etherparse::Ipv4Header::from_slice(&wire[0]).unwrap().0;
        assert_eq!(wire[0][1], outer_tos, "{outer:?}");
        assert_eq!(header.dont_fragment, outer_df, "{outer:?}");
        assert_eq!(header.time_to_live, 77);
        assert_eq!(header.header_checksum, header.calc_header_checksum());
    }
}

#[test]
fn a_used_up_ttl_is_answered_and_not_forwarded() {
    for v6 in [false, true] {
        let mut pair = Pair::new(&Setup { decrement_ttl: true, ..Setup::default() });
        let mut packet = inner(v6, 30);
        packet[if v6 { 7 } else { 8 }] = 1;
        let (wire, answers) = pair.protect(&[packet]);
        assert!(wire.is_empty());
        assert_eq!(answers.len(), 1);
        let kind = answers[0][if v6 { 40 } else { 20 }];
        assert_eq!(kind, if v6 { 3 } else { 11 }, "time exceeded");
        assert_eq!(pair.refused(DropReason::TtlExpired), 1);
    }
}

#[test]
fn transport_mode_refuses_fragments_and_strangers() {
    let mut pair = Pair::new(&Setup { mode: Mode::Transport, ..Setup::default() });
    let mut fragment = inner_with(false, "192.0.2.1", "192.0.2.2", &[0; 24], 0);
    fragment[6] = 0x20;
    let stranger = inner_with(false, "192.0.2.9", "192.0.2.2", b"x", 0);
    let (wire, _) = pair.protect(&[fragment, stranger]);
    assert!(wire.is_empty());
    assert_eq!(pair.refused(DropReason::TransportFragment), 1);
    assert_eq!(pair.refused(DropReason::TransportAddress), 1);
}

#[test]
fn malformed_packets_are_refused_each_under_its_reason() {
    let mut pair = Pair::new(&Setup::default());
    let good = inner(false, 20);
    let mut version = good.clone();
    version[0] = 0x55;
    let mut header = good.clone();
    header[0] = 0x44;
    let mut length = good.clone();
    length[3] = 200;
    let bad = vec![vec![], good[..10].to_vec(), version, header, length];
    let (wire, _) = pair.protect(&bad);
    assert!(wire.is_empty());
    let reasons = DropReason::ALL.iter().filter(|&&reason| pair.refused(reason) > 0).count();
    let total: u64 = DropReason::ALL.iter().map(|&reason| pair.refused(reason)).sum();
    assert_eq!(total, 5);
    assert!(reasons >= 4, "{reasons} reasons");
}

#[test]
fn link_padding_is_not_protected() {
    let mut pair = Pair::new(&Setup::default());
    let packet = inner(false, 1);
    let padded = [&packet[..], &[0; 17]].concat();
    let (wire, _) = pair.protect(&[padded]);
    assert_eq!(pair.open(&wire), [packet]);
}

#[test]
fn path_mtu_is_believed_only_from_who_saw_our_packet() {
    let mut pair = Pair::new(&Setup { path_mtu: 1500, ..Setup::default() });
    let packet = inner(true, 1300);
    let (wire, _) = pair.protect(&vec![packet.clone(); 5]);
    assert_eq!(wire.len(), 5);
    let news = PathMtuNews {
        destination: "192.0.2.2".parse().unwrap(),
        mtu: 1300,
        quote: Some((crate::common::SPI, 3)),
    };
    let lies = [
        PathMtuNews { quote: None, ..news },
        PathMtuNews { quote: Some((crate::common::SPI + 1, 3)), ..news },
        PathMtuNews { quote: Some((crate::common::SPI, 6)), ..news },
        PathMtuNews { destination: "192.0.2.3".parse().unwrap(), ..news },
        PathMtuNews { mtu: 1501, ..news },
    ];
    for lie in lies {
        assert!(!pair.left.path_mtu(pair.now, &lie), "{lie:?}");
    }
    assert_eq!(pair.protect(std::slice::from_ref(&packet)).0.len(), 1);
    assert!(pair.left.path_mtu(pair.now, &news));
    assert_eq!(pair.out.counters.path_mtu.get(), 1300);
    let (wire, answers) = pair.protect(std::slice::from_ref(&packet));
    assert!(wire.is_empty() && answers.len() == 1);
    // An absurd value is not followed below what every link must carry.
    assert!(pair.left.path_mtu(pair.now, &PathMtuNews { mtu: 1, ..news }));
    assert_eq!(pair.out.counters.path_mtu.get(), 576);
    // Ten minutes later the old size is tried again (RFC 1191 section 6.3).
    pair.now = Now(pair.now.0 + 601_000_000_000);
    assert_eq!(pair.protect(std::slice::from_ref(&packet)).0.len(), 1);
}

#[test]
fn the_word_of_this_host_about_its_own_link_needs_no_proof() {
    let mut pair = Pair::new(&Setup { path_mtu: 1500, ..Setup::default() });
    let _ = pair.protect(&[inner(true, 100)]);
    let mut hears = |to: &str, mtu| pair.left.link_mtu(pair.now, to.parse().unwrap(), mtu);
    assert!(!hears("192.0.2.3", 1300), "another peer");
    assert!(!hears("192.0.2.2", 1500), "no narrower than it was");
    assert!(hears("192.0.2.2", 1300));
    assert_eq!(pair.out.counters.path_mtu.get(), 1300);
}

/// News of a path finds the SAs it is about among those that come, go and change.
#[test]
fn path_news_finds_its_sas_as_they_come_and_go() {
    let spec = |spi: u32, remote: &str, ah: bool| {
        let mut setup = Setup { remote: remote.parse().unwrap(), ..Setup::default() };
        if ah {
            (setup.protocol, setup.suite) =
                (IpsecProtocol::Ah, crate::common::suite("null+aes-cmac-96"));
        }
        let spec = OutboundSpec {
            sa: SaSpec { spi: Spi::new(spi).unwrap(), ..setup.outbound().sa },
            ..setup.outbound()
        };
        // As if packets had been sent lately.
        spec.counters.sequence.set(100);
        Arc::new(spec)
    };
    let sas = [
        spec(0x1001, "192.0.2.2", false),
        // The other protocol may have the same SPI (RFC 4301 section 4.1).
        spec(0x1001, "192.0.2.2", true),
        spec(0x1002, "192.0.2.2", false),
        spec(0x1001, "192.0.2.3", false),
        spec(0x1001, "2001:db8::2", false),
    ];
    let mut snapshot = Snapshot::new(crate::common::protect_all(Direction::Outbound));
    for (slot, sa) in (0..).zip(&sas) {
        snapshot.add_outbound(SaSlot(slot), sa.clone()).unwrap();
    }
    let mut pair = Pair::new(&Setup::default());
    pair.left_writer.publish(snapshot.clone());
    pair.protect(&[]);
    let mtus = |sas: &[Arc<OutboundSpec>]| {
        sas.iter().map(|sa| sa.counters.path_mtu.get()).collect::<Vec<_>>()
    };
    let hears = |pair: &mut Pair, spi, seq_low, to: &str, mtu| {
        let quote = Some((spi, seq_low));
        let news = PathMtuNews { destination: to.parse().unwrap(), mtu, quote };
        pair.left.path_mtu(pair.now, &news)
    };
    assert!(hears(&mut pair, 0x1001, 99, "192.0.2.3", 1400));
    assert_eq!(mtus(&sas), [9200, 9200, 9200, 1400, 9200]);
    // Of two with the same SPI it is the one that sent such a packet.
    sas[0].counters.sequence.set(1 << 20);
    assert!(hears(&mut pair, 0x1001, 99, "192.0.2.2", 1300));
    assert_eq!(mtus(&sas), [9200, 1300, 9200, 1400, 9200]);
    assert!(pair.left.link_mtu(pair.now, "192.0.2.2".parse().unwrap(), 1200));
    assert_eq!(mtus(&sas), [1200, 1200, 1200, 1400, 9200]);
    assert!(pair.left.link_mtu(pair.now, "2001:db8::2".parse().unwrap(), 1280));

    // One goes, one comes into its slot, one moves to another peer.
    snapshot.remove_outbound(SaSlot(3)).unwrap();
    let new = spec(0x2001, "192.0.2.9", false);
    snapshot.add_outbound(SaSlot(3), new.clone()).unwrap();
    let moved = OutboundSpec { lease: sas[2].lease.clone(), ..setup_of("192.0.2.7").outbound() };
    let moved = Arc::new(moved);
    moved.counters.sequence.set(100);
    snapshot.replace_outbound(SaSlot(2), moved.clone()).unwrap();
    pair.left_writer.publish(snapshot);
    pair.protect(&[]);
    for gone in ["192.0.2.3", "2001:db8::3"] {
        assert!(!hears(&mut pair, 0x1001, 99, gone, 1000));
        assert!(!pair.left.link_mtu(pair.now, gone.parse().unwrap(), 1000));
    }
    assert!(!hears(&mut pair, 0x1002, 99, "192.0.2.2", 1000), "it has another peer");
    assert!(hears(&mut pair, crate::common::SPI, 99, "192.0.2.7", 1100));
    assert!(hears(&mut pair, 0x2001, 99, "192.0.2.9", 1000));
    assert!(pair.left.link_mtu(pair.now, "192.0.2.2".parse().unwrap(), 900));
    assert_eq!(mtus(&[moved, new]), [1100, 1000]);
    assert_eq!(mtus(&sas), [900, 900, 1200, 1400, 1280], "what has gone hears nothing");
}

fn setup_of(remote: &str) -> Setup {
    Setup { remote: remote.parse().unwrap(), ..Setup::default() }
}

#[test]
fn keepalives_are_sent_when_nothing_else_was() {
    let setup = Setup { encap: true, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let mut spec = setup.outbound();
    let interval = std::time::Duration::from_secs(20);
    spec.sa.encap =
        Some(UdpEncap { local_port: 4500, remote_port: 4501, keepalive: Some(interval) });
    let mut snapshot = Snapshot::new(crate::common::protect_all(Direction::Outbound));
    snapshot.add_outbound(SaSlot(0), Arc::new(spec)).unwrap();
    pair.left_writer.publish(snapshot);
    let (wire, _) = pair.protect(&[inner(false, 1)]);
    assert_eq!(wire.len(), 1);
    let mut burst = Burst::new();
    let start = pair.now.0;
    pair.left.keepalives(Now(start + 19_000_000_000), &mut pair.pool, &mut burst);
    assert!(burst.is_empty());
    for at in [20_000_000_000, 21_000_000_000] {
        pair.left.keepalives(Now(start + at), &mut pair.pool, &mut burst);
    }
    assert_eq!(burst.len(), 1, "and not again at once");
    let packet = burst.as_slice()[0].data().to_vec();
    let udp = etherparse::UdpSlice::from_slice(&packet[20..]).unwrap();
    assert_eq!((udp.source_port(), udp.destination_port()), (4500, 4501));
    assert_eq!(udp.payload(), [0xff]);
    burst.release(&mut pair.pool);
    assert_eq!(pair.left_counters.keepalives_sent.get(), 1);
    // An SA that has gone keeps nothing alive.
    pair.left_writer.publish(Snapshot::new(crate::common::protect_all(Direction::Outbound)));
    pair.protect(&[]);
    assert!(pair.left.keepalives(Now(start + 90_000_000_000), &mut pair.pool, &mut burst));
    assert!(burst.is_empty());
}

/// More SAs than fit a burst: what found no room is next.
#[test]
fn keepalives_that_find_no_room_come_next() {
    const SAS: u32 = BURST_MAX as u32 + 10;
    let mut snapshot = Snapshot::new(crate::common::protect_all(Direction::Outbound));
    let keepalive = Some(std::time::Duration::from_secs(20));
    for n in 0..SAS {
        let mut spec = Setup { encap: true, ..Setup::default() }.outbound();
        spec.sa.encap = spec.encap.map(|encap| UdpEncap { keepalive, ..encap });
        snapshot.add_outbound(SaSlot(n), Arc::new(spec)).unwrap();
    }
    let mut pair = Pair::new(&Setup::default());
    pair.left_writer.publish(snapshot);
    pair.protect(&[]);
    let (now, mut burst) = (Now(pair.now.0 + 20_000_000_000), Burst::new());
    assert!(!pair.left.keepalives(now, &mut pair.pool, &mut burst));
    assert_eq!(burst.len(), BURST_MAX);
    burst.release(&mut pair.pool);
    assert!(pair.left.keepalives(now, &mut pair.pool, &mut burst));
    assert_eq!(burst.len(), 10);
    burst.release(&mut pair.pool);
    assert!(pair.left.keepalives(now, &mut pair.pool, &mut burst) && burst.is_empty());
    assert_eq!(pair.left_counters.keepalives_sent.get(), SAS.into());
}

/// RFC 8200 section 8.1: no UDP over IPv6 without checksum; RFC 3948 lets only IPv4 go without.
#[test]
fn keepalives_over_ipv6_have_a_checksum() {
    let (local, remote) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let setup = Setup { encap: true, local, remote, ..Setup::default() };
    let mut pair = Pair::new(&setup);
    let mut spec = setup.outbound();
    let keepalive = Some(std::time::Duration::from_secs(20));
    spec.sa.encap = spec.encap.map(|encap| UdpEncap { keepalive, ..encap });
    let mut snapshot = Snapshot::new(crate::common::protect_all(Direction::Outbound));
    snapshot.add_outbound(SaSlot(0), Arc::new(spec)).unwrap();
    pair.left_writer.publish(snapshot);
    pair.protect(&[inner(false, 1)]);
    let mut burst = Burst::new();
    pair.left.keepalives(Now(pair.now.0 + 20_000_000_000), &mut pair.pool, &mut burst);
    let packet = burst.as_slice()[0].data().to_vec();
    burst.release(&mut pair.pool);
    let header = etherparse::Ipv6Header::from_slice(&packet).unwrap().0;
    let (udp, payload) = etherparse::UdpHeader::from_slice(&packet[40..]).unwrap();
    assert_eq!(payload, [0xff]);
    assert_eq!(udp.checksum, udp.calc_checksum_ipv6(&header, payload).unwrap());
}

/// RFC 1812 section 5.3.1: who forwards takes one from the TTL, and discards at zero.
#[test]
fn a_bypassed_packet_that_the_gateway_forwards_loses_a_hop() {
    for decrement_ttl in [true, false] {
        let bypass = crate::common::spd(vec![Policy {
            name: "b".into(),
            priority: 0,
            direction: Direction::Outbound,
            selector: Selector::default(),
            action: PolicyAction::Bypass,
        }]);
        let setup = Setup { decrement_ttl, ..Setup::default() };
        let mut pair = Pair::with(&setup, bypass, crate::common::protect_all(Direction::Inbound));
        let mut last = inner(false, 20);
        last[8] = 1;
        let (wire, answers) = pair.protect(&[inner(false, 20), inner(true, 20), last]);
        if decrement_ttl {
            assert_eq!((wire.len(), wire[0][8], wire[1][7]), (2, 63, 63));
            let header = etherparse::Ipv4Slice::from_slice(&wire[0]).unwrap().header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            assert_eq!((answers.len(), answers[0][20]), (1, 11), "time exceeded");
            assert_eq!(pair.refused(DropReason::TtlExpired), 1);
        } else {
            assert_eq!((wire.len(), wire[0][8], wire[1][7], wire[2][8]), (3, 64, 64, 1));
        }
        pair.assert_no_leak();
    }
}

/// An IPv6 UDP packet between the hosts of a transport SA, with `extra` behind its IP header.
fn with_extension(next: u8, extra: &[u8]) -> Vec<u8> {
    let plain = inner_with(true, "2001:db8::1", "2001:db8::2", &[7; 32], 0);
    let (header, rest) = plain.split_at(40);
    let mut packet = [header, extra, rest].concat();
    packet[6] = next;
    let len = u16::from_be_bytes([plain[4], plain[5]]) + extra.len() as u16;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet
}

fn transport_v6(encap: bool) -> Setup {
    Setup {
        mode: Mode::Transport,
        encap,
        local: "2001:db8::1".parse().unwrap(),
        remote: "2001:db8::2".parse().unwrap(),
        ..Setup::default()
    }
}

/// RFC 8200 section 8.1: no UDP without checksum over IPv6.
#[test]
fn udp_over_ipv6_has_a_checksum_behind_extension_headers_too() {
    let mut pair = Pair::new(&transport_v6(true));
    // Hop-by-hop options: next header UDP, PadN.
    let packet = with_extension(0, &[17, 0, 1, 4, 0, 0, 0, 0]);
    let (wire, _) = pair.protect(std::slice::from_ref(&packet));
    assert_eq!((wire[0][6], wire[0][40]), (0, 17));
    assert_eq!(&wire[0][48..52], [0x11, 0x94, 0x11, 0x94], "UDP 4500 to 4500");
    let (sent, payload) = (&wire[0][54..56], &wire[0][56..]);
    let header = etherparse::UdpHeader {
        source_port: 4500,
        destination_port: 4500,
        length: payload.len() as u16 + 8,
        checksum: 0,
    };
    let (source, destination) = (wire[0][8..24].try_into(), wire[0][24..40].try_into());
    let right =
        header.calc_checksum_ipv6_raw(source.unwrap(), destination.unwrap(), payload).unwrap();
    assert_eq!(sent, right.to_be_bytes());
    assert_eq!(pair.open(&wire), [packet]);
    pair.assert_no_leak();
}

/// RFC 6946: an atomic fragment counts as whole, but its fragment header cannot go into ESP's place.
#[test]
fn an_atomic_fragment_is_refused_by_a_transport_sa_before_it_costs_a_number() {
    let mut pair = Pair::new(&transport_v6(false));
    let (wire, _) = pair.protect(&[with_extension(44, &[17, 0, 0, 0, 0, 0, 0, 9])]);
    assert!(wire.is_empty());
    assert_eq!(pair.refused(DropReason::TransportFragment), 1);
    assert_eq!(pair.out.counters.sequence.get(), 0);
    pair.assert_no_leak();
}
