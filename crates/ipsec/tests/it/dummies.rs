//! Dummy packets (RFC 4303 section 2.6): when, how long, and what becomes of them.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Pair, Setup, inner, suite};
use convoy_ipsec::clock::Now;
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::event::Event;
use convoy_ipsec::lifetime::{Lifetime, Limits};
use convoy_ipsec::sa::{IpsecProtocol, Mode, OutboundSpec, SaSlot, SaSpec};
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::{Direction, Spd};
use convoy_ipsec::suite::EspSuite;
use convoy_packet::BURST_MAX;
use convoy_wire::Spi;

const EVERY: Duration = Duration::from_secs(5);

fn setup() -> Setup {
    Setup { dummy_every: Some(EVERY), ..Setup::default() }
}

/// Lets milliseconds pass and returns what is sent.
fn after(pair: &mut Pair, ms: u64) -> Vec<Vec<u8>> {
    pair.now = Now(pair.now.0 + ms * 1_000_000);
    let mut wire = Vec::new();
    loop {
        let all = pair.left.dummies(pair.now, &mut pair.pool);
        let (sent, plain) = pair.protect(&[]);
        assert!(plain.is_empty());
        wire.extend(sent);
        if all {
            return wire;
        }
    }
}

/// Its visible part is like any other packet's, and the peer drops it without a word.
#[test]
fn a_silent_sa_sends_a_dummy_that_the_peer_drops_and_counts() {
    let ends = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];
    for (local, remote) in ends.map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap())) {
        for (esn, encap) in [(false, false), (true, false), (false, true), (true, true)] {
            for esp in EspSuite::all() {
                let suite = esp.suite();
                let setup = Setup { local, remote, suite, esn, encap, ..setup() };
                let mut pair = Pair::new(&setup);
                let packet = inner(false, 40);
                let (first, _) = pair.protect(std::slice::from_ref(&packet));
                assert_eq!(after(&mut pair, 4999).len(), 0);
                let dummies = after(&mut pair, 1);
                assert_eq!(dummies.len(), 1, "{suite}");
                assert_eq!(after(&mut pair, 4999).len(), 0);
                let (second, _) = pair.protect(std::slice::from_ref(&packet));
                // All in one order: the dummy took a sequence number, and the window knows it.
                let all = [first, dummies.clone(), dummies, second].concat();
                assert_eq!(pair.open(&all), [packet.clone(), packet], "{suite}");
                assert_eq!(pair.dropped(DropReason::DummyPacket), 1);
                assert_eq!(pair.dropped(DropReason::Replayed), 1);
                assert_eq!(pair.left_counters.dummies_sent.get(), 1);
                let counters = &pair.out.counters;
                assert_eq!((counters.sequence.get(), counters.usage.packets.get()), (3, 3));
                assert_eq!(counters.bytes.get(), 2 * 68, "nothing of a dummy is anybody's");
                assert_eq!(pair.inn.counters.usage.packets.get(), 3);
                pair.assert_no_leak();
            }
        }
    }
}

/// Packet that scapy 2.8.0 makes of the same SA, numbers and payload, with next header 59, byte for byte.
#[test]
fn a_dummy_is_what_scapy_makes() {
    let gcm = "45000078000140004032b64fc0000201c00002020000100100000001000000000000000156\
               3784a0a6599cafb80a9bdd181b30c8027e03ddaf6c25c02d877e83c4dbc5f49311271bd089\
               79aa3955ea5de4dd800bf6bf25ff67f48f7eb9af86d6f56333bf5aa7860ae4f2978ade07a6\
               2a86d9b5a609de0968";
    let zeros = "00".repeat(64);
    let null = format!(
        "4500006c000140004032b65bc0000201c00002020000100100000001{zeros}0102023b\
         4ca8e4fe4cb424917e1e6b05"
    );
    for (name, expected) in [("aes-128-gcm-16", gcm), ("null+hmac-sha1-96", &null)] {
        let mut pair = Pair::new(&Setup { suite: suite(name), ..setup() });
        pair.protect(&[]);
        let dummy = after(&mut pair, 5000).remove(0);
        let shown: String = dummy.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(shown, expected, "{name}");
    }
}

/// Packets that are sent put a dummy off for an interval, and when they stop it comes.
#[test]
fn dummies_stop_while_packets_flow() {
    let mut pair = Pair::new(&setup());
    pair.protect(&[inner(false, 1)]);
    for _ in 0..20 {
        assert!(after(&mut pair, 4000).is_empty());
        pair.protect(&[inner(false, 1)]);
    }
    assert!(after(&mut pair, 4900).is_empty());
    assert_eq!(after(&mut pair, 100).len(), 1);
    assert_eq!((0..100).map(|_| after(&mut pair, 500).len()).sum::<usize>(), 10);
}

#[test]
fn a_dummy_is_as_long_as_filled_up_packets_are_and_never_too_long() {
    for esp in EspSuite::all() {
        for (pad_to, path_mtu) in [(0, 9200), (40, 9200), (512, 9200), (65_000, 1400), (0, 576)] {
            let setup = Setup { suite: esp.suite(), pad_to, path_mtu, ..setup() };
            let mut pair = Pair::new(&setup);
            let (real, _) = pair.protect(&[inner(false, 0)]);
            let dummies = after(&mut pair, 5000);
            let [dummy] = &dummies[..] else { panic!("{dummies:?}") };
            assert!(dummy.len() <= path_mtu.into());
            if pad_to > 0 {
                assert_eq!(dummy.len(), real[0].len(), "{pad_to}");
            } else {
                let layout = esp.layout();
                assert_eq!(dummy.len(), 20 + layout.sealed_len(64));
            }
        }
    }
}

/// Without encryption the wire shows what is inside: next header 59, and nothing that an earlier
/// packet left in the frame.
#[test]
fn a_dummy_holds_zeros_and_next_header_59() {
    let mut pair = Pair::new(&Setup { suite: suite("null+hmac-sha1-96"), ..setup() });
    let secret = crate::common::inner_with(false, "10.1.0.1", "10.2.0.2", &[0xab; 300], 0);
    pair.protect(&vec![secret; 300]);
    let dummy = after(&mut pair, 5000).remove(0);
    let esp = etherparse::Ipv4Slice::from_slice(&dummy).unwrap().payload().payload.to_vec();
    let (header, inside) = esp.split_at(8);
    assert_eq!(header, [&crate::common::SPI.to_be_bytes()[..], &301_u32.to_be_bytes()].concat());
    let (payload, rest) = inside.split_at(64);
    assert_eq!(payload, [0; 64]);
    assert_eq!(rest[..4], [1, 2, 2, 59]);
    assert_eq!(rest.len(), 4 + 12);
}

/// A dummy is one more packet of a lifetime and keeps nothing alive.
#[test]
fn dummies_count_against_lifetime_lease_and_numbers_and_stop_with_them() {
    let packets = Limits { packets: Some(3), ..Limits::default() };
    let age = Limits { since_add: Some(Duration::from_secs(18)), ..Limits::default() };
    let lifetime = |hard| Lifetime { hard, ..Lifetime::default() };
    for (why, setup) in [
        ("packets", Setup { lifetime: lifetime(packets), ..setup() }),
        ("age", Setup { lifetime: lifetime(age), ..setup() }),
        ("lease", Setup { granted: 4, ..setup() }),
        ("numbers", Setup { start: u64::from(u32::MAX) - 2, esn: false, ..setup() }),
    ] {
        let mut pair = Pair::new(&setup);
        pair.protect(&[]);
        for n in 0..3 {
            assert_eq!(after(&mut pair, 5000).len(), 1, "{why} {n}");
        }
        for _ in 0..20 {
            assert_eq!(after(&mut pair, 5000).len(), 0, "{why}");
        }
        assert_eq!(pair.left_counters.dummies_sent.get(), 3);
        assert_eq!(pair.out.counters.usage.packets.get(), 3);
        assert!(pair.protect(&[inner(false, 1)]).0.is_empty(), "{why}");
        if why == "lease" {
            // What is granted later is used from the next interval on.
            pair.out.lease.grant(100);
            assert_eq!(after(&mut pair, 5000).len(), 1);
        } else {
            pair.tick(0);
            let ends = pair.events().into_iter().filter(|e| matches!(e, Event::Hard { .. }));
            assert_eq!(ends.count(), 1, "{why}: the end is told once");
        }
        pair.assert_no_leak();
    }
}

#[test]
fn transport_mode_and_ah_send_none() {
    let cmac = suite("null+aes-cmac-96");
    for setup in [
        Setup { mode: Mode::Transport, ..setup() },
        Setup { protocol: IpsecProtocol::Ah, suite: cmac, ..setup() },
    ] {
        let mut pair = Pair::new(&setup);
        pair.protect(&[]);
        assert!(after(&mut pair, 60_000).is_empty());
    }
}

/// More SAs than a burst has packets: each gets its turn, whatever comes and goes.
#[test]
fn every_silent_sa_has_its_turn_and_follows_its_record() {
    const SAS: u32 = 2 * BURST_MAX as u32 + 50;
    let spec = |n: u32, every: u64| {
        let spi = Spi::new(0x1000 + n).unwrap();
        let dummy_every = (every > 0).then(|| Duration::from_secs(every));
        Arc::new(OutboundSpec {
            sa: SaSpec { spi, ..setup().outbound().sa },
            dummy_every,
            ..setup().outbound()
        })
    };
    let spis = |wire: &[Vec<u8>]| {
        let spi = |p: &Vec<u8>| u32::from_be_bytes(p[20..24].try_into().unwrap()) - 0x1000;
        let mut spis: Vec<_> = wire.iter().map(spi).collect();
        spis.sort_unstable();
        spis
    };
    let mut snapshot = Snapshot::new(Spd::default());
    for n in 0..SAS {
        snapshot.add_outbound(SaSlot(n), spec(n, 5)).unwrap();
    }
    let mut pair =
        Pair::with(&setup(), Spd::default(), crate::common::protect_all(Direction::Inbound));
    pair.left_writer.publish(snapshot.clone());
    pair.protect(&[]);
    let all: Vec<_> = (0..SAS).collect();
    assert_eq!(spis(&after(&mut pair, 5000)), all);
    assert_eq!(after(&mut pair, 4999), [[0; 0]; 0]);
    assert_eq!(spis(&after(&mut pair, 1)), all);
    // Some go, some get another interval or none, one comes.
    for n in (0..SAS).filter(|n| n % 3 == 0) {
        snapshot.remove_outbound(SaSlot(n)).unwrap();
    }
    for n in (0..SAS).filter(|n| n % 3 == 1) {
        let every = if n % 2 == 0 { 0 } else { 2 };
        snapshot.replace_outbound(SaSlot(n), spec(n, every)).unwrap();
    }
    snapshot.add_outbound(SaSlot(SAS), spec(SAS, 2)).unwrap();
    pair.left_writer.publish(snapshot);
    pair.protect(&[]);
    let quick: Vec<_> = (0..SAS).filter(|n| n % 6 == 1).chain([SAS]).collect();
    assert_eq!(spis(&after(&mut pair, 2000)), quick);
    assert_eq!(spis(&after(&mut pair, 2000)), quick);
    let slow: Vec<_> = (0..SAS).filter(|n| n % 3 == 2).collect();
    assert_eq!(spis(&after(&mut pair, 1000)), slow);
    assert_eq!(pair.left_counters.dummies_sent.get(), pair.left_counters.outbound_packets.get());
    pair.assert_no_leak();
}
