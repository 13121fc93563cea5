//! Fragments: put together on the wire side, classified with their packet on the plain sides.

use crate::common::{Pair, Setup, inner, protect_all, spd};
use convoy_ipsec::clock::Now;
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::sa::{IpsecProtocol, ReqId};
use convoy_ipsec::selector::{PortSelector, Selector, UpperSelector};
use convoy_ipsec::spd::{Direction, Policy, PolicyAction};
use convoy_wire::{PortRange, Protocol};
use proptest::prelude::*;

/// Cuts a packet without options or extension headers into fragments of `step` bytes of data.
fn cut(packet: &[u8], step: usize, ident: u32) -> Vec<Vec<u8>> {
    assert_eq!(step % 8, 0);
    let head = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let data = &packet[head..];
    let starts = (0..data.len()).step_by(step);
    starts.map(|at| part(packet, at, (at + step).min(data.len()), ident)).collect()
}

/// One fragment with the data from `start` to `end`; the last one when `end` is the packet's.
fn part(packet: &[u8], start: usize, end: usize, ident: u32) -> Vec<u8> {
    let v4 = packet[0] >> 4 == 4;
    let (head, data) = packet.split_at(if v4 { 20 } else { 40 });
    let more = u16::from(end < data.len());
    let mut out = head.to_vec();
    if v4 {
        out[4..6].copy_from_slice(&(ident as u16).to_be_bytes());
        out[6..8].copy_from_slice(&(more << 13 | (start / 8) as u16).to_be_bytes());
    } else {
        out[6] = 44;
        out.extend([head[6], 0]);
        out.extend((start as u16 | more).to_be_bytes());
        out.extend(ident.to_be_bytes());
    }
    out.extend(&data[start..end]);
    fix(&mut out);
    out
}

/// Lengths and checksum of the IP header.
fn fix(packet: &mut [u8]) {
    let total = packet.len() as u16;
    if packet[0] >> 4 == 4 {
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        let header = etherparse::Ipv4Header::from_slice(packet).unwrap().0;
        packet[10..12].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
    } else {
        packet[4..6].copy_from_slice(&(total - 40).to_be_bytes());
    }
}

/// A gateway's ESP packet with `len` bytes inside, over IPv4 or IPv6, and what is inside.
fn esp(pair: &mut Pair, len: usize) -> (Vec<u8>, Vec<u8>) {
    let packet = inner(false, len);
    let (mut wire, _) = pair.protect(std::slice::from_ref(&packet));
    (wire.remove(0), packet)
}

fn setup(v6: bool, encap: bool) -> Setup {
    let ends = if v6 { ("2001:db8::1", "2001:db8::2") } else { ("192.0.2.1", "192.0.2.2") };
    let (local, remote) = (ends.0.parse().unwrap(), ends.1.parse().unwrap());
    Setup { local, remote, encap, ..Setup::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn esp_in_fragments_of_any_size_and_order_is_opened(
        v6 in any::<bool>(),
        encap in any::<bool>(),
        len in 0_usize..8000,
        step in 1_usize..180,
        order in any::<prop::sample::Index>(),
        twice in any::<bool>(),
    ) {
        let mut pair = Pair::new(&setup(v6, encap));
        let (wire, packet) = esp(&mut pair, len);
        let mut cuts = cut(&wire, step * 8 + 8, 7);
        let n = cuts.len();
        // A turned and mirrored list has at most a few stretches apart at any time.
        cuts.rotate_left(order.index(n));
        if twice {
            cuts.insert(n / 2, cuts[0].clone());
            cuts.reverse();
        }
        let opened = pair.open(&cuts);
        prop_assert_eq!(opened, vec![packet]);
        prop_assert_eq!(pair.right_counters.fragments_joined.get(), n as u64 - 1);
    }
}

#[test]
fn ah_in_fragments_is_verified_whole() {
    for v6 in [false, true] {
        let suite = crate::common::suite("null+hmac-sha256-128");
        let mut pair = Pair::new(&Setup { protocol: IpsecProtocol::Ah, suite, ..setup(v6, false) });
        let (wire, packet) = esp(&mut pair, 700);
        let ident = if v6 { 7 } else { u32::from(u16::from_be_bytes([wire[4], wire[5]])) };
        let mut cuts = cut(&wire, 128, ident);
        cuts.reverse();
        assert_eq!(pair.open(&cuts), [packet], "v6: {v6}");
        pair.assert_no_leak();
    }
}

#[test]
fn options_and_extension_headers_of_the_first_fragment_stay() {
    let mut pair = Pair::new(&setup(true, false));
    let (wire, packet) = esp(&mut pair, 300);
    let mut cuts = cut(&wire, 128, 9);
    for cut in &mut cuts {
        // A destination options header of 8 bytes between fixed and fragment header.
        let options = [44, 0, 1, 4, 0, 0, 0, 0];
        cut.splice(40..40, options);
        cut[6] = 60;
        fix(cut);
    }
    cuts.reverse();
    assert_eq!(pair.open(&cuts), [packet]);
    pair.assert_no_leak();
}

#[test]
fn fragments_that_contradict_each_other_take_all_with_them() {
    for v6 in [false, true] {
        let mut pair = Pair::new(&setup(v6, false));
        let (wire, _) = esp(&mut pair, 500);
        let cuts = cut(&wire, 128, 3);
        let mut other = part(&wire, 64, 192, 3);
        let last = other.len() - 1;
        other[last] ^= 1;
        let sent = [cuts[0].clone(), other, cuts[1].clone(), cuts[2].clone()];
        assert!(pair.open(&sent).is_empty());
        assert_eq!(pair.dropped(DropReason::FragmentOverlap), 4, "v6: {v6}");
        pair.assert_no_leak();
    }
}

#[test]
fn ends_that_differ_are_a_contradiction() {
    let mut pair = Pair::new(&setup(false, false));
    let (wire, _) = esp(&mut pair, 500);
    let short = wire[..20 + 256].to_vec();
    let sent = [part(&wire, 256, wire.len() - 20, 3), part(&short, 128, 256, 3)];
    assert!(pair.open(&sent).is_empty());
    assert_eq!(pair.dropped(DropReason::FragmentOverlap), 2);
    let sent = [part(&short, 128, 256, 4), part(&wire, 256, 384, 4)];
    assert!(pair.open(&sent).is_empty());
    assert_eq!(pair.dropped(DropReason::FragmentOverlap), 4);
    pair.assert_no_leak();
}

#[test]
fn repeated_fragments_are_counted_and_do_no_harm() {
    let mut pair = Pair::new(&setup(false, false));
    let (wire, packet) = esp(&mut pair, 500);
    let cuts = cut(&wire, 256, 3);
    let sent = [&cuts[..1], &cuts[..1], &cuts[1..]].concat();
    assert_eq!(pair.open(&sent), [packet]);
    assert_eq!(pair.dropped(DropReason::FragmentDuplicate), 1);
    assert_eq!(pair.right_counters.fragments_joined.get(), cuts.len() as u64 - 1);
    pair.assert_no_leak();
}

#[test]
fn what_does_not_become_whole_in_time_is_dropped_and_counted() {
    let mut pair = Pair::new(&setup(false, false));
    let (wire, packet) = esp(&mut pair, 500);
    let cuts = cut(&wire, 128, 3);
    assert!(pair.open(&cuts[..3]).is_empty());
    let (now, mut pool) = (pair.now, pair.arena.pool());
    pair.right.expire(Now(now.0 + 30_000_000_000), &mut pool);
    assert_eq!(pair.dropped(DropReason::FragmentTimeout), 0, "not yet");
    pair.right.expire(Now(now.0 + 30_000_000_001), &mut pool);
    assert_eq!(pair.dropped(DropReason::FragmentTimeout), 3);
    assert!(pair.open(&cuts[3..]).is_empty());
    assert_eq!(pair.open(&cuts[..3]), [packet], "a later try is a new one");
    drop(pool);
    pair.assert_no_leak();
}

#[test]
fn a_flood_of_unfinished_packets_takes_bounded_memory() {
    let mut pair = Pair::new(&setup(false, false));
    let (wire, packet) = esp(&mut pair, 500);
    let cuts = cut(&wire, 256, 1);
    let flood: Vec<_> = (2..5000).map(|ident| part(&wire, 0, 256, ident)).collect();
    assert!(pair.open(&flood).is_empty());
    let dropped = pair.dropped(DropReason::FragmentsFull);
    assert!((4998 - 128..4998).contains(&dropped), "{dropped}");
    assert_eq!(pair.open(&cuts), [packet], "the newest have room");
    let mut pool = pair.arena.pool();
    pair.right.release(pair.now, &mut pool);
    assert_eq!(
        pair.dropped(DropReason::FragmentTimeout) + pair.dropped(DropReason::FragmentsFull),
        4998
    );
    drop(pool);
    pair.assert_no_leak();
}

#[test]
fn a_packet_of_too_many_gaps_or_too_many_bytes_is_refused() {
    let mut pair = Pair::new(&setup(false, false));
    let (wire, _) = esp(&mut pair, 2000);
    let gaps: Vec<_> = cut(&wire, 8, 3).into_iter().step_by(2).take(17).collect();
    assert!(pair.open(&gaps).is_empty());
    assert_eq!(pair.dropped(DropReason::FragmentsFull), 17);
    let long = [&wire[..20], &vec![0; 40_000][..]].concat();
    assert!(pair.open(&[part(&long, 32_000, 33_000, 5)]).is_empty());
    assert_eq!(pair.dropped(DropReason::ReassemblyTooBig), 1);
    pair.assert_no_leak();
}

#[test]
fn only_what_can_be_esp_is_put_together() {
    let mut pair = Pair::new(&setup(false, false));
    let mut tcp = inner(false, 100);
    tcp[9] = 6;
    assert!(pair.open(&cut(&tcp, 64, 1)).is_empty());
    assert_eq!(pair.dropped(DropReason::FragmentOnWire), 2);
    pair.assert_no_leak();
}

#[test]
fn congestion_met_by_one_fragment_was_met_by_the_packet() {
    let ect0 = crate::common::inner_with(false, "10.1.0.1", "10.2.0.2", &[7; 400], 2);
    for (others, passes) in [(2, true), (0, false)] {
        let mut pair = Pair::new(&setup(false, false));
        let (wire, _) = pair.protect(std::slice::from_ref(&ect0));
        let mut cuts = cut(&wire[0], 128, 1);
        for (n, packet) in cuts.iter_mut().enumerate() {
            packet[1] = if n == 1 { 3 } else { others };
            fix(packet);
        }
        let opened = pair.open(&cuts);
        if passes {
            assert_eq!(opened[0][1] & 3, 3, "congestion experienced");
        } else {
            assert!(opened.is_empty());
            assert_eq!(pair.dropped(DropReason::EcnDrop), cuts.len() as u64);
        }
        pair.assert_no_leak();
    }
}

/// UDP to port 5000 is protected, the rest dropped.
fn port_policy(direction: Direction) -> Policy {
    let port = PortSelector::from(PortRange::single(5000));
    let (local, remote) = match direction {
        Direction::Outbound => (PortSelector::Any, port),
        Direction::Inbound => (port, PortSelector::Any),
    };
    let selector = Selector {
        protocol: Some(Protocol::UDP),
        upper: UpperSelector::Ports { local, remote },
        ..Selector::default()
    };
    let action = PolicyAction::Protect { reqid: ReqId(1) };
    Policy { name: "port".into(), priority: 0, direction, selector, action }
}

#[test]
fn inner_fragments_fall_under_the_policy_of_their_packet_at_both_ends() {
    for v6 in [false, true] {
        for turn in 0..4 {
            let left = spd(vec![port_policy(Direction::Outbound)]);
            let right = spd(vec![port_policy(Direction::Inbound)]);
            let mut pair = Pair::with(&Setup::default(), left, right);
            let mut cuts = cut(&inner(v6, 1000), 256, 11);
            cuts.rotate_left(turn);
            let (mut wire, _) = pair.protect(&cuts);
            assert_eq!(wire.len(), cuts.len(), "v6: {v6}, turn {turn}");
            wire.reverse();
            let opened = pair.open(&wire);
            let (mut got, mut want) = (opened, cuts);
            got.sort();
            want.sort();
            assert_eq!(got, want);
            pair.assert_no_leak();
        }
    }
}

#[test]
fn fragments_whose_first_never_comes_are_dropped_and_counted() {
    let left = spd(vec![port_policy(Direction::Outbound)]);
    let mut pair = Pair::with(&Setup::default(), left, protect_all(Direction::Inbound));
    let cuts = cut(&inner(false, 1000), 256, 11);
    let (wire, _) = pair.protect(&cuts[1..]);
    assert!(wire.is_empty());
    let flood: Vec<_> = (0..100).map(|ident| part(&inner(false, 1000), 256, 512, ident)).collect();
    assert!(pair.protect(&flood).0.is_empty());
    assert_eq!(pair.refused(DropReason::FragmentsFull), 100 - (64 - 3));
    let mut pool = pair.arena.pool();
    pair.left.expire(Now(pair.now.0 + 30_000_000_001), &mut pool);
    assert_eq!(pair.refused(DropReason::FragmentTimeout), 64);
    drop(pool);
    pair.assert_no_leak();
}

/// A host that sends nothing but later fragments fills all places, and another's still find one, unless
/// the two have one share (one pair of 256): hardly in three tries of four.
#[test]
fn one_host_s_fragments_take_no_place_of_another_s() {
    let left = spd(vec![port_policy(Direction::Outbound)]);
    let greedy = crate::common::inner_with(false, "10.1.0.66", "10.2.0.2", &[7; 1000], 0);
    let flood: Vec<_> = (0..100).map(|ident| part(&greedy, 256, 512, ident)).collect();
    let mut cuts = cut(&inner(false, 1000), 256, 11);
    cuts.rotate_left(1);
    let (first, later) = cuts.split_last().unwrap();
    let found_places = || {
        let mut pair = Pair::with(&Setup::default(), left.clone(), protect_all(Direction::Inbound));
        assert!(pair.protect(&flood).0.is_empty());
        assert!(pair.protect(later).0.is_empty());
        assert!(pair.protect(&flood).0.is_empty());
        let wire = pair.protect(std::slice::from_ref(first)).0;
        let mut pool = pair.arena.pool();
        pair.left.release(pair.now, &mut pool);
        drop(pool);
        pair.assert_no_leak();
        wire.len() == cuts.len()
    };
    assert!((0..4).filter(|_| found_places()).count() >= 2);
}

#[test]
fn a_fragment_that_writes_over_the_ports_is_refused() {
    let mut pair = Pair::new(&Setup::default());
    let packet = inner(true, 200);
    // Destination options behind the fragment header move the ports to offset 8.
    let mut long = packet[..40].to_vec();
    long[6] = 60;
    long.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    long.extend(&packet[40..]);
    fix(&mut long);
    let (wire, _) = pair.protect(&[part(&long, 0, 64, 1), part(&long, 8, 72, 1)]);
    assert_eq!(wire.len(), 1);
    assert_eq!(pair.refused(DropReason::FragmentOverlap), 1);
    pair.assert_no_leak();
}
