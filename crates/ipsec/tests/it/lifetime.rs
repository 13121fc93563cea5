//! Lifetimes (RFC 4301 section 4.4.2.1): what is told, and that an SA passes nothing beyond its end.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Pair, Setup, inner, protect_all, sealed, text};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::event::Event;
use convoy_ipsec::lifetime::{Lifetime, Limit, Limits};
use convoy_ipsec::sa::{InboundSpec, IpsecProtocol, OutboundSpec, SaSlot, SaSpec};
use convoy_ipsec::sequence::SequenceLimits;
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::Direction;
use proptest::prelude::*;

fn packets(n: u64) -> Limits {
    Limits { packets: Some(n), ..Limits::default() }
}

fn bytes(n: u64) -> Limits {
    Limits { bytes: Some(n), ..Limits::default() }
}

fn seconds(since_add: Option<u64>, since_use: Option<u64>) -> Limits {
    let [since_add, since_use] = [since_add, since_use].map(|s| s.map(Duration::from_secs));
    Limits { since_add, since_use, ..Limits::default() }
}

fn limited(soft: Limits, hard: Limits) -> Setup {
    Setup { lifetime: Lifetime { soft, hard }, ..Setup::default() }
}

/// Events as words: direction, kind and limit.
fn told(pair: &mut Pair) -> Vec<(Direction, &'static str, Limit)> {
    let word = |event| match event {
        Event::Soft { sa, limit } => (sa.direction, "soft", limit),
        Event::Hard { sa, limit } => (sa.direction, "hard", limit),
        other => panic!("{other:?}"),
    };
    pair.events().into_iter().map(word).collect()
}

/// A receiver without limits, so that the sender's are seen alone.
fn sender_only(setup: &Setup) -> Pair {
    let mut pair = Pair::new(setup);
    let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
    snapshot.add_inbound(SaSlot(0), Arc::new(Setup::default().inbound())).unwrap();
    pair.right_writer.publish(snapshot);
    pair
}

#[test]
fn an_outbound_sa_ends_at_its_packets_within_a_burst() {
    let mut pair = sender_only(&limited(packets(10), packets(20)));
    let out = Direction::Outbound;
    assert_eq!(pair.protect(&vec![inner(false, 9); 9]).0.len(), 9);
    assert_eq!(told(&mut pair), []);
    assert_eq!(pair.protect(&[inner(false, 9)]).0.len(), 1);
    assert_eq!(told(&mut pair), [(out, "soft", Limit::Packets)]);
    let (wire, _) = pair.protect(&vec![inner(false, 9); 30]);
    assert_eq!(wire.len(), 10);
    assert_eq!(pair.refused(DropReason::LifetimeExpired), 20);
    assert_eq!(pair.out.counters.dropped.get(), 20);
    assert_eq!(told(&mut pair), [(out, "hard", Limit::Packets)]);
    assert!(pair.protect(&vec![inner(false, 9); 3]).0.is_empty());
    assert_eq!(told(&mut pair), [], "each event once");
    assert_eq!(pair.out.counters.sequence.get(), 20, "no number is spent on what does not pass");
    pair.assert_no_leak();
}

#[test]
fn an_inbound_sa_ends_at_its_packets_within_a_burst() {
    let setup = limited(packets(10), packets(20));
    let mut pair = Pair::new(&Setup::default());
    let (wire, _) = pair.protect(&vec![inner(false, 9); 40]);
    let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
    let inn = Arc::new(setup.inbound());
    snapshot.add_inbound(SaSlot(0), inn.clone()).unwrap();
    pair.right_writer.publish(snapshot);

    let forged = wire[..5].iter().map(|packet| {
        let mut packet = packet.clone();
        *packet.last_mut().unwrap() ^= 1;
        packet
    });
    assert!(pair.open(&forged.collect::<Vec<_>>()).is_empty());
    assert_eq!(inn.counters.usage.packets.get(), 0, "what is not authentic uses nothing up");
    assert_eq!(pair.open(&wire).len(), 20);
    assert_eq!(pair.dropped(DropReason::LifetimeExpired), 20);
    let inbound = Direction::Inbound;
    assert_eq!(
        told(&mut pair),
        [(inbound, "soft", Limit::Packets), (inbound, "hard", Limit::Packets)]
    );
    assert!(pair.open(&[sealed(&setup, 100, &text(&inner(false, 9), 4), 0)]).is_empty());
    assert_eq!(pair.dropped(DropReason::LifetimeExpired), 21, "refused before it is opened");
    assert_eq!(told(&mut pair), []);
    pair.assert_no_leak();
}

/// RFC 4301 section 4.4.2.1: the bytes to which the algorithm is applied, padding included.
#[test]
fn bytes_are_those_that_are_encrypted() {
    let mut pair = Pair::new(&limited(bytes(1000), bytes(2000)));
    let (mut used, mut kinds) = (0, Vec::new());
    for n in 0.. {
        let before = used;
        let (wire, _) = pair.protect(&[inner(false, n % 7)]);
        // IPv4, ESP header and IV before, ICV behind.
        used += wire[0].len() as u64 - 20 - 16 - 16;
        assert_eq!(pair.open(&wire).len(), 1, "after {used} bytes");
        assert_eq!(pair.out.counters.usage.bytes.get(), used);
        assert_eq!(pair.inn.counters.usage.bytes.get(), used);
        let events = told(&mut pair);
        let crosses = |limit| before < limit && used >= limit;
        assert_eq!(!events.is_empty(), crosses(1000) || crosses(2000), "at {used} bytes");
        kinds.extend(events.into_iter().map(|(_, kind, limit)| (kind, limit)));
        if used >= 2000 {
            break;
        }
    }
    let (soft, hard) = (("soft", Limit::Bytes), ("hard", Limit::Bytes));
    assert_eq!(kinds, [soft, soft, hard, hard], "of the sender and of the receiver");
    assert!(pair.protect(&[inner(false, 1)]).0.is_empty(), "ended at {used} bytes");
    pair.assert_no_leak();
}

#[test]
fn time_ends_an_sa_also_when_no_packet_comes() {
    let mut pair = Pair::new(&limited(seconds(Some(60), None), seconds(Some(90), None)));
    assert_eq!(pair.protect(&[inner(false, 9)]).0.len(), 1);
    assert!(pair.open(&[]).is_empty());
    pair.tick(59);
    assert_eq!(told(&mut pair), []);
    pair.tick(1);
    let (out, inbound) = (Direction::Outbound, Direction::Inbound);
    assert_eq!(
        told(&mut pair),
        [(out, "soft", Limit::SinceAdd), (inbound, "soft", Limit::SinceAdd)]
    );
    // Nothing passes from that moment on, even before a tick has seen it.
    pair.now.0 += 30_000_000_000;
    assert!(pair.protect(&[inner(false, 9)]).0.is_empty());
    assert_eq!(pair.refused(DropReason::LifetimeExpired), 1);
    pair.tick(0);
    assert_eq!(
        told(&mut pair),
        [(out, "hard", Limit::SinceAdd), (inbound, "hard", Limit::SinceAdd)]
    );
    pair.tick(1000);
    assert_eq!(told(&mut pair), []);
    pair.assert_no_leak();
}

#[test]
fn time_since_the_first_packet_begins_with_it() {
    let mut pair = Pair::new(&limited(Limits::default(), seconds(None, Some(30))));
    pair.protect(&[]);
    pair.tick(1000);
    assert_eq!(told(&mut pair), []);
    let (wire, _) = pair.protect(&[inner(false, 9)]);
    pair.tick(20);
    assert_eq!(pair.open(&wire).len(), 1);
    pair.tick(10);
    assert_eq!(told(&mut pair), [(Direction::Outbound, "hard", Limit::SinceUse)]);
    assert!(pair.protect(&[inner(false, 9)]).0.is_empty());
    pair.tick(20);
    assert_eq!(told(&mut pair), [(Direction::Inbound, "hard", Limit::SinceUse)]);
    pair.assert_no_leak();
}

#[test]
fn a_hard_limit_reached_at_once_is_told_without_the_warning() {
    let mut pair = Pair::new(&limited(seconds(Some(60), None), seconds(Some(90), None)));
    pair.protect(&[]);
    pair.tick(100);
    assert_eq!(told(&mut pair), [(Direction::Outbound, "hard", Limit::SinceAdd)]);
}

#[test]
fn what_nobody_took_is_told_again_and_then_no_more() {
    let mut pair = sender_only(&limited(packets(1), packets(2)));
    pair.protect(&vec![inner(false, 9); 3]);
    let mut refused = 0;
    pair.left.tell(|_| {
        refused += 1;
        false
    });
    assert_eq!(refused, 1);
    // Even when the SA's record is replaced meanwhile.
    let again = OutboundSpec {
        sa: SaSpec {
            counters: pair.out.counters.clone(),
            ..limited(packets(1), packets(2)).outbound().sa
        },
        path_mtu: 1400,
        lease: pair.out.lease.clone(),
        ..limited(packets(1), packets(2)).outbound()
    };
    publish(&mut pair, again);
    pair.protect(&[inner(false, 9)]);
    let mut first = Vec::new();
    pair.left.tell(|event| {
        first.push(event);
        first.len() < 2
    });
    assert!(matches!(first[0], Event::Hard { limit: Limit::Packets, .. }), "{first:?}");
    assert!(!pair.left.has_news() && told(&mut pair).is_empty());
    pair.assert_no_leak();
}

fn publish(pair: &mut Pair, spec: OutboundSpec) {
    let mut snapshot = Snapshot::new(protect_all(Direction::Outbound));
    snapshot.add_outbound(SaSlot(0), Arc::new(spec)).unwrap();
    pair.left_writer.publish(snapshot);
}

#[test]
fn a_reload_keeps_what_was_used_and_may_move_the_limits() {
    let mut pair = sender_only(&limited(packets(5), packets(10)));
    assert_eq!(pair.protect(&vec![inner(false, 9); 7]).0.len(), 7);
    assert_eq!(told(&mut pair).len(), 1);
    let renewed = |pair: &Pair, soft, hard| OutboundSpec {
        sa: SaSpec {
            counters: pair.out.counters.clone(),
            ..limited(packets(soft), packets(hard)).outbound().sa
        },
        lease: pair.out.lease.clone(),
        ..limited(packets(soft), packets(hard)).outbound()
    };
    let spec = renewed(&pair, 5, 12);
    publish(&mut pair, spec);
    assert_eq!(pair.protect(&vec![inner(false, 9); 7]).0.len(), 5, "seven of twelve were used");
    let out = Direction::Outbound;
    assert_eq!(told(&mut pair), [(out, "hard", Limit::Packets)], "the warning was given before");
    let spec = renewed(&pair, 15, 20);
    publish(&mut pair, spec);
    assert_eq!(pair.protect(&vec![inner(false, 9); 9]).0.len(), 8);
    assert_eq!(told(&mut pair), [(out, "soft", Limit::Packets), (out, "hard", Limit::Packets)]);
    let spec = renewed(&pair, 2, 3);
    publish(&mut pair, spec);
    assert!(pair.protect(&vec![inner(false, 9); 9]).0.is_empty());
    assert_eq!(told(&mut pair), []);
    pair.assert_no_leak();
}

#[test]
fn a_receiver_keeps_what_was_used_over_a_reload() {
    let setup = limited(Limits::default(), packets(10));
    let mut pair = Pair::new(&Setup::default());
    let (wire, _) = pair.protect(&vec![inner(false, 9); 20]);
    let first = Arc::new(setup.inbound());
    let publish = |pair: &mut Pair, spec: Arc<InboundSpec>| {
        let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
        snapshot.add_inbound(SaSlot(0), spec).unwrap();
        pair.right_writer.publish(snapshot);
    };
    publish(&mut pair, first.clone());
    assert_eq!(pair.open(&wire[..6]).len(), 6);
    let changed = InboundSpec {
        sa: SaSpec { counters: first.counters.clone(), ..setup.inbound().sa },
        ecn: false,
        ..setup.inbound()
    };
    publish(&mut pair, Arc::new(changed));
    assert_eq!(pair.open(&wire[6..]).len(), 4);
    assert_eq!(told(&mut pair), [(Direction::Inbound, "hard", Limit::Packets)]);
    pair.assert_no_leak();
}

/// RFC 4303 section 3.3.3: the numbers of an SA end, and are told of before they do.
#[test]
fn sequence_numbers_are_a_lifetime_too() {
    let SequenceLimits { soft, hard } = SequenceLimits::new(false);
    let start = soft.get() - 1;
    let mut pair = Pair::new(&Setup { esn: false, start, ..Setup::default() });
    pair.protect(&[inner(false, 9)]);
    assert_eq!(told(&mut pair), []);
    pair.protect(&[inner(false, 9)]);
    let out = Direction::Outbound;
    assert_eq!(told(&mut pair), [(out, "soft", Limit::Sequence)]);
    pair.protect(&[inner(false, 9)]);
    assert_eq!(told(&mut pair), []);

    let start = hard.get() - 2;
    let mut pair = Pair::new(&Setup { esn: false, start, ..Setup::default() });
    let (wire, _) = pair.protect(&vec![inner(false, 9); 2]);
    assert_eq!(told(&mut pair), [(out, "soft", Limit::Sequence)]);
    assert_eq!(pair.protect(&[inner(false, 9)]).0.len(), 1);
    assert_eq!(told(&mut pair), [(out, "hard", Limit::Sequence)]);
    assert!(pair.protect(&vec![inner(false, 9); 5]).0.is_empty());
    assert_eq!(pair.refused(DropReason::SequenceExhausted), 5);
    assert_eq!(told(&mut pair), []);
    assert_eq!(wire.len(), 2);
    pair.assert_no_leak();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However packets come in bursts and time passes, exactly what the limits allow passes, and at
    /// most one event of each kind is told, the warning first.
    #[test]
    fn exactly_what_the_limits_allow_passes(
        soft in 1_u64..100,
        more in 1_u64..100,
        age in 1_u64..100,
        steps in prop::collection::vec((0_usize..40, 0_u64..20), 1..20),
    ) {
        let hard = Limits { packets: Some(soft + more), ..seconds(Some(age), None) };
        let mut pair = sender_only(&limited(packets(soft), hard));
        pair.protect(&[]);
        let (mut time, mut passed, mut events) = (0, 0, Vec::new());
        for (n, wait) in steps {
            let (wire, _) = pair.protect(&vec![inner(false, 9); n]);
            let allowed = if time >= age { 0 } else { (soft + more - passed).min(n as u64) };
            prop_assert_eq!(wire.len() as u64, allowed);
            passed += allowed;
            pair.tick(wait);
            time += wait;
            events.extend(told(&mut pair).into_iter().map(|(_, kind, _)| kind));
        }
        let ended = time >= age || passed == soft + more;
        let mut expected = Vec::new();
        if passed >= soft && events.first() == Some(&"soft") {
            expected.push("soft");
        }
        if ended {
            expected.push("hard");
        }
        prop_assert_eq!(&events, &expected);
        prop_assert!(ended || (passed >= soft) == events.contains(&"soft"));
        pair.assert_no_leak();
    }
}

/// Most suites authenticate AH as the header of an empty text; AES-GMAC takes it as data.
#[test]
fn ah_uses_up_a_lifetime_in_bytes() {
    for name in ["null+hmac-sha256-128", "null+aes-xcbc-96", "aes-128-gmac-16"] {
        let hard = Limits { bytes: Some(1000), ..Limits::default() };
        let setup = Setup {
            protocol: IpsecProtocol::Ah,
            suite: crate::common::suite(name),
            lifetime: Lifetime { soft: Limits::default(), hard },
            ..Setup::default()
        };
        let mut pair = Pair::new(&setup);
        let (wire, _) = pair.protect(&vec![inner(false, 100); 50]);
        // 128 bytes of inner packet, 20 of header, and AH.
        let most = 1000 / 148 + 1;
        assert!((3..=most).contains(&wire.len()), "{name}: {} packets passed", wire.len());
        assert_eq!(pair.refused(DropReason::LifetimeExpired), 50 - wire.len() as u64);
        let opened = pair.open(&wire).len();
        assert_eq!(opened, wire.len(), "{name}");
        let used = |usage: &convoy_ipsec::lifetime::Usage| usage.bytes.get();
        assert!(used(&pair.out.counters.usage) >= 1000, "{name}");
        assert_eq!(used(&pair.out.counters.usage), used(&pair.inn.counters.usage), "{name}");
        pair.assert_no_leak();
    }
}
