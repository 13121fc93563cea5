//! A packet gets the treatment that is said of it.

use crate::common::{Pair, Setup, inner_with, protect_all, spd, suite};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::lifetime::{Lifetime, Limits};
use convoy_ipsec::sa::{DfPolicy, InterfaceId, IpsecProtocol, Mode, OuterHeader, ReqId, SaSlot};
use convoy_ipsec::selector::Selector;
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::{Direction, Policy, PolicyAction, Spd, SpdId};
use convoy_ipsec::trace::{self, Outcome, Packet};
use convoy_wire::parse_packet;

/// Treatment that is said of a packet.
fn said(pair: &Pair, packet: &[u8]) -> Outcome {
    let info = parse_packet(packet).unwrap();
    let packet = Packet {
        flow: info.flow,
        len: packet.len(),
        dont_fragment: info.dont_fragment,
        interface: InterfaceId(0),
    };
    trace::outbound(&pair.left_writer.current(), SpdId::default(), &packet, pair.now).outcome
}

/// Compares with what the pipeline does.
fn check(pair: &mut Pair, packet: &[u8]) {
    let said = said(pair, packet);
    let before: Vec<u64> = DropReason::ALL.iter().map(|r| pair.refused(*r)).collect();
    let (wire, plain) = pair.protect(&[packet.to_vec()]);
    let dropped = DropReason::ALL
        .iter()
        .zip(before)
        .find(|(reason, before)| pair.refused(**reason) > *before)
        .map(|(reason, _)| *reason);
    let at = format!("{} bytes: {said:?}", packet.len());
    assert_eq!(said.reason(), dropped, "{at}");
    match said {
        Outcome::Protected { bytes } => {
            assert_eq!(wire.iter().map(Vec::len).collect::<Vec<_>>(), [bytes], "{at}");
        }
        Outcome::Fragmented { room, pieces } => {
            assert_eq!(wire.len(), pieces, "{at}");
            assert!(wire.iter().all(|packet| packet.len() <= 1500) && room < packet.len(), "{at}");
        }
        Outcome::TooBig { mtu } => {
            assert!(wire.is_empty(), "{at}");
            // ICMP fragmentation needed (RFC 1191) or packet too big (RFC 4443).
            let [told] = &plain[..] else { panic!("{at}: {} answers", plain.len()) };
            let told = if told[0] >> 4 == 4 {
                usize::from(u16::from_be_bytes([told[26], told[27]]))
            } else {
                u32::from_be_bytes([told[44], told[45], told[46], told[47]]) as usize
            };
            assert_eq!(told, mtu, "{at}");
        }
        _ => assert!(wire.is_empty() && plain.is_empty(), "{at}"),
    }
}

fn packets(setup: &Setup) -> Vec<Vec<u8>> {
    let sizes = (0..40).chain(1200..1290).chain(1370..1500).chain([2000, 3000, 4000]);
    let mut all = Vec::new();
    for size in sizes {
        let data = vec![7; size];
        let (local, remote) = match setup.mode {
            Mode::Tunnel => ("10.1.0.1".to_owned(), "10.2.0.2".to_owned()),
            Mode::Transport => (setup.local.to_string(), setup.remote.to_string()),
        };
        let is_v6 = setup.mode == Mode::Transport && setup.local.is_ipv6();
        let packet = inner_with(is_v6, &local, &remote, &data, 0);
        if !is_v6 {
            let mut whole = packet.clone();
            whole[6] |= 0x40;
            // The checksum is not looked at here.
            all.push(whole);
        }
        all.push(packet);
        if setup.mode == Mode::Tunnel {
            all.push(inner_with(true, "2001:db8:1::1", "2001:db8:2::2", &data, 0));
        }
    }
    all
}

#[test]
fn lengths_and_paths_are_judged_as_the_pipeline_does() {
    let v6 = |setup: Setup| Setup {
        local: "2001:db8::1".parse().unwrap(),
        remote: "2001:db8::2".parse().unwrap(),
        ..setup
    };
    let usual = Setup { path_mtu: 1500, ..Setup::default() };
    let cbc = Setup { suite: suite("aes-256-cbc+hmac-sha256-128"), ..usual.clone() };
    let df =
        |df| Setup { outer: OuterHeader { df, ..usual.outer }, path_mtu: 1280, ..usual.clone() };
    let ah = Setup {
        protocol: IpsecProtocol::Ah,
        suite: suite("null+hmac-sha256-128"),
        ..usual.clone()
    };
    for setup in [
        usual.clone(),
        v6(usual.clone()),
        Setup { encap: true, ..usual.clone() },
        v6(Setup { encap: true, ..usual.clone() }),
        Setup { mode: Mode::Transport, ..usual.clone() },
        v6(Setup { mode: Mode::Transport, ..usual.clone() }),
        Setup { pad_to: 1300, ..usual.clone() },
        Setup { pad_to: 9000, ..usual.clone() },
        cbc,
        df(DfPolicy::Copy),
        df(DfPolicy::Set),
        df(DfPolicy::Clear),
        v6(ah.clone()),
        ah,
    ] {
        let mut pair = Pair::new(&setup);
        for packet in packets(&setup) {
            // Answers to senders are limited in number.
            pair.now.0 += 10_000_000_000;
            check(&mut pair, &packet);
        }
        pair.assert_no_leak();
    }
}

#[test]
fn sas_that_pass_nothing_say_why() {
    let packet = crate::common::inner(false, 9);
    let packets = Limits { packets: Some(2), ..Limits::default() };
    let expiring = Lifetime { hard: packets, ..Lifetime::default() };
    let last = u64::from(u32::MAX) - 2;
    for (setup, reason) in [
        (Setup { lifetime: expiring, ..Setup::default() }, DropReason::LifetimeExpired),
        (Setup { granted: 3, ..Setup::default() }, DropReason::LeaseExhausted),
        (Setup { esn: false, start: last, ..Setup::default() }, DropReason::SequenceExhausted),
        (Setup { source_is_here: false, ..Setup::default() }, DropReason::SourceAbsent),
    ] {
        let mut pair = Pair::new(&setup);
        for _ in 0..5 {
            check(&mut pair, &packet);
        }
        assert_eq!(said(&pair, &packet).reason(), Some(reason));
        pair.assert_no_leak();
    }
    let mut transport = Pair::new(&Setup { mode: Mode::Transport, ..Setup::default() });
    check(&mut transport, &packet);
    assert_eq!(said(&transport, &packet).reason(), Some(DropReason::TransportAddress));
    transport.assert_no_leak();
}

#[test]
fn policies_decide_as_in_the_pipeline() {
    let of = |action, direction| {
        let selector = Selector::default();
        spd(vec![Policy { name: "p".into(), priority: 0, direction, selector, action }])
    };
    let packet = crate::common::inner(false, 9);
    let (out, reqid) = (Direction::Outbound, ReqId(9));
    for (policies, expected) in [
        (Spd::default(), Outcome::Dropped(DropReason::NoPolicy)),
        (of(PolicyAction::Discard, out), Outcome::Dropped(DropReason::PolicyDiscard)),
        (of(PolicyAction::Protect { reqid }, out), Outcome::Dropped(DropReason::NoSa)),
    ] {
        let mut pair = Pair::with(&Setup::default(), policies, protect_all(Direction::Inbound));
        assert_eq!(said(&pair, &packet), expected);
        check(&mut pair, &packet);
        pair.assert_no_leak();
    }
    // What is for the link alone, from any sender; one beyond that is an ordinary stranger.
    for (v6, to, expected) in [
        (true, "ff02::16", DropReason::LinkLocal),
        (true, "fe80::1", DropReason::LinkLocal),
        (true, "ff05::2", DropReason::NoPolicy),
        (false, "224.0.0.251", DropReason::LinkLocal),
        (false, "169.254.0.9", DropReason::LinkLocal),
        (false, "255.255.255.255", DropReason::LinkLocal),
        (false, "224.0.1.1", DropReason::NoPolicy),
    ] {
        let from = if v6 { "2001:db8:1::1" } else { "10.1.0.1" };
        let packet = inner_with(v6, from, to, &[], 0);
        let inbound = protect_all(Direction::Inbound);
        let mut pair = Pair::with(&Setup::default(), Spd::default(), inbound);
        assert_eq!(said(&pair, &packet), Outcome::Dropped(expected), "{to}");
        check(&mut pair, &packet);
        pair.assert_no_leak();
    }
    let bypass = Pair::with(
        &Setup::default(),
        of(PolicyAction::Bypass, out),
        protect_all(Direction::Inbound),
    );
    assert_eq!(said(&bypass, &packet), Outcome::Bypassed);
    bypass.assert_no_leak();
    let mut waits = Pair::new(&Setup::default());
    let mut snapshot = Snapshot::new(of(PolicyAction::Protect { reqid }, out));
    snapshot.make_on_demand(reqid);
    waits.left_writer.publish(snapshot);
    assert_eq!(said(&waits, &packet), Outcome::Waits);
    waits.assert_no_leak();

    // Inbound: only what is the SA's own.
    let packet = crate::common::inner(false, 9);
    for (action, expected) in [
        (PolicyAction::Protect { reqid: ReqId(1) }, Outcome::Accepted),
        (PolicyAction::Protect { reqid }, Outcome::Dropped(DropReason::InnerPolicyMismatch)),
        (PolicyAction::Bypass, Outcome::Dropped(DropReason::InnerPolicyMismatch)),
    ] {
        let policies = of(action, Direction::Inbound);
        let mut pair = Pair::with(&Setup::default(), protect_all(out), policies);
        let flow = parse_packet(&packet).unwrap().flow;
        let snapshot = pair.right_writer.current();
        let said = trace::inbound(&snapshot, SpdId::default(), SaSlot(0), &flow, pair.now);
        assert_eq!(said.outcome, expected);
        let (wire, _) = pair.protect(std::slice::from_ref(&packet));
        let passed = pair.open(&wire).len();
        assert_eq!(passed, usize::from(expected == Outcome::Accepted));
        let reason = expected.reason().map_or(0, |reason| pair.dropped(reason));
        assert_eq!(reason, u64::from(expected.reason().is_some()));
        drop(snapshot);
        pair.assert_no_leak();
    }
}

#[test]
fn sources_of_transport_sas_are_judged_as_in_the_pipeline() {
    let packet = inner_with(false, "192.0.2.1", "192.0.2.2", b"between hosts", 0);
    for (encap, from_peer_only) in [(false, false), (true, false), (true, true)] {
        let setup = Setup { mode: Mode::Transport, encap, from_peer_only, ..Setup::default() };
        let mut pair = Pair::new(&setup);
        for last in [1, 77] {
            let (mut wire, _) = pair.protect(std::slice::from_ref(&packet));
            wire[0][15] = last;
            let mut flow = parse_packet(&packet).unwrap().flow;
            flow.src[3] = last;
            let snapshot = pair.right_writer.current();
            let said = trace::inbound(&snapshot, SpdId::default(), SaSlot(0), &flow, pair.now);
            drop(snapshot);
            let passed = !pair.open(&wire).is_empty();
            assert_eq!(
                passed,
                said.outcome == Outcome::Accepted,
                "{encap} {from_peer_only} {last}"
            );
            assert_eq!(passed, last == 1 || encap && !from_peer_only);
            if let Some(reason) = said.outcome.reason() {
                assert_eq!(pair.dropped(reason), 1);
            }
        }
        pair.assert_no_leak();
    }
}
