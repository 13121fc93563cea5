//! Peers behind a NAT that gives them another address or port: who is told, when, and of what.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::common::{Pair, SPI, Setup, inner, protect_all};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::event::Event;
use convoy_ipsec::sa::{Mode, SaSlot, SaSpec};
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::spd::Direction;

const PORT: u16 = 61_000;

fn encap() -> Setup {
    Setup { encap: true, ..Setup::default() }
}

fn v6(encap: bool) -> Setup {
    let [local, remote] = ["2001:db8::1", "2001:db8::2"].map(|text| text.parse().unwrap());
    Setup { encap, local, remote, ..Setup::default() }
}

/// The packet as a NAT would send it on. Ports of IPv6 need no checksum here: pipelines get packets whose
/// outer headers a port has checked.
fn behind_nat(packet: &[u8], address: Option<IpAddr>, port: Option<u16>) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let is_v4 = packet[0] >> 4 == 4;
    match address {
        Some(IpAddr::V4(address)) => packet[12..16].copy_from_slice(&address.octets()),
        Some(IpAddr::V6(address)) => packet[8..24].copy_from_slice(&address.octets()),
        None => {}
    }
    if let Some(port) = port {
        let at = if is_v4 { 20 } else { 40 };
        packet[at..at + 2].copy_from_slice(&port.to_be_bytes());
    }
    packet
}

fn moved(packet: &[u8]) -> Vec<u8> {
    behind_nat(packet, None, Some(PORT))
}

fn told(pair: &mut Pair) -> Vec<SocketAddr> {
    let of = |event| match event {
        Event::Mapping { sa, from } => {
            assert_eq!((sa.direction, sa.spi.get(), sa.slot), (Direction::Inbound, SPI, SaSlot(0)));
            from
        }
        other => panic!("{other:?}"),
    };
    pair.events().into_iter().map(of).collect()
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

#[test]
fn another_port_or_address_of_an_authentic_packet_is_told() {
    let nat: IpAddr = "203.0.113.9".parse().unwrap();
    let nat6: IpAddr = "2001:db8:9::9".parse().unwrap();
    for (setup, address, port, from) in [
        (encap(), None, Some(PORT), at("192.0.2.1", PORT)),
        (encap(), Some(nat), None, at("203.0.113.9", 4500)),
        (encap(), Some(nat), Some(PORT), at("203.0.113.9", PORT)),
        (v6(true), None, Some(PORT), at("2001:db8::1", PORT)),
        (v6(true), Some(nat6), Some(1), at("2001:db8:9::9", 1)),
        (
            Setup { suite: crate::common::suite("aes-128-cbc+hmac-sha1-96"), ..encap() },
            Some(nat),
            Some(2),
            at("203.0.113.9", 2),
        ),
    ] {
        let mut pair = Pair::new(&setup);
        let (wire, _) = pair.protect(&vec![inner(false, 9); 3]);
        assert_eq!(pair.open(&wire[..1]).len(), 1);
        assert_eq!(told(&mut pair), [], "from where it is expected");
        assert_eq!(pair.open(&[behind_nat(&wire[1], address, port)]).len(), 1);
        assert!(pair.right.has_news());
        assert_eq!(told(&mut pair), [from]);
        assert!(!pair.right.has_news());
        assert_eq!(pair.open(&wire[2..]).len(), 1);
        assert_eq!(told(&mut pair), []);
        pair.assert_no_leak();
    }
    // Transport mode in UDP.
    let setup = Setup { mode: Mode::Transport, ..encap() };
    let mut pair = Pair::new(&setup);
    let packet = crate::common::inner_with(false, "192.0.2.1", "192.0.2.2", b"between hosts", 0);
    let (wire, _) = pair.protect(&[packet]);
    assert_eq!(pair.open(&[behind_nat(&wire[0], Some(nat), Some(PORT))]).len(), 1);
    assert_eq!(told(&mut pair), [SocketAddr::new(nat, PORT)]);
    pair.assert_no_leak();
}

/// Any sender of datagrams could else lead an SA's packets to where they like.
#[test]
fn what_is_forged_or_came_before_is_not_told() {
    let mut pair = Pair::new(&encap());
    let (wire, _) = pair.protect(&vec![inner(false, 9); 4]);
    let mut forged = moved(&wire[0]);
    *forged.last_mut().unwrap() ^= 1;
    assert!(pair.open(std::slice::from_ref(&forged)).is_empty());
    assert_eq!(told(&mut pair), []);
    assert_eq!(pair.open(&wire[..2]).len(), 2);
    let replayed = moved(&wire[0]);
    assert!(pair.open(&[replayed]).is_empty());
    assert_eq!((pair.dropped(DropReason::BadIcv), pair.dropped(DropReason::Replayed)), (1, 1));
    assert_eq!(told(&mut pair), []);
    // Nor do they hide what is told, nor count for it, amid one burst.
    forged[28 + 7] = 9;
    assert_eq!(pair.open(&[moved(&wire[2]), forged.clone()]).len(), 1);
    assert_eq!(told(&mut pair), [at("192.0.2.1", PORT)]);
    pair.now.0 += 2_000_000_000;
    assert_eq!(pair.open(&[wire[3].clone(), forged]).len(), 1);
    assert_eq!(told(&mut pair), [], "the last authentic one came from where the SA has it");
    pair.assert_no_leak();
}

#[test]
fn an_sa_is_told_of_at_most_once_a_second_with_the_newest_place() {
    let mut pair = Pair::new(&encap());
    let (wire, _) = pair.protect(&vec![inner(false, 9); 400]);
    let from = |range: std::ops::Range<usize>, port: u16| -> Vec<Vec<u8>> {
        wire[range].iter().map(|packet| behind_nat(packet, None, Some(port))).collect()
    };
    assert_eq!(pair.open(&from(0..300, 1)).len(), 300);
    assert_eq!(told(&mut pair), [at("192.0.2.1", 1)]);
    pair.now.0 += 999_999_999;
    assert_eq!(pair.open(&from(300..310, 1)).len(), 10);
    assert_eq!(told(&mut pair), []);
    pair.now.0 += 1;
    assert_eq!(pair.open(&from(310..320, 1)).len(), 10);
    // Control has not listened for a second: what is told then is where the peer is now.
    pair.now.0 += 1_000_000_000;
    assert_eq!(pair.open(&from(320..330, 2)).len(), 10);
    assert_eq!(told(&mut pair), [at("192.0.2.1", 2)]);
    pair.now.0 += 1_000_000_000;
    assert_eq!(pair.open(&from(330..340, 3)).len(), 10);
    pair.right.tell(|_| false);
    assert!(pair.right.has_news(), "what was not taken comes again");
    assert_eq!(told(&mut pair), [at("192.0.2.1", 3)]);
    pair.assert_no_leak();
}

#[test]
fn an_sa_that_follows_its_peer_has_nothing_more_to_tell() {
    let mut pair = Pair::new(&encap());
    let (wire, _) = pair.protect(&vec![inner(false, 9); 3]);
    assert_eq!(pair.open(&[moved(&wire[0])]).len(), 1);
    // Before it was told, the SA has come to know.
    let mut spec = encap().inbound();
    spec.sa.encap = spec.encap.map(|mut encap| {
        encap.remote_port = PORT;
        encap
    });
    let spec = convoy_ipsec::sa::InboundSpec {
        sa: SaSpec { counters: pair.inn.counters.clone(), ..spec.sa },
        key: pair.inn.key.clone(),
        ..spec
    };
    let mut snapshot = Snapshot::new(protect_all(Direction::Inbound));
    snapshot.add_inbound(SaSlot(0), Arc::new(spec)).unwrap();
    pair.right_writer.publish(snapshot);
    assert_eq!(pair.open(&[moved(&wire[1])]).len(), 1);
    assert_eq!(told(&mut pair), []);
    assert_eq!(pair.open(&wire[2..]).len(), 1);
    assert_eq!(told(&mut pair), [at("192.0.2.1", 4500)], "back again, and at once");
    pair.assert_no_leak();
}

/// RFC 3948 is not in play: in a tunnel the source goes no further, and no daemon has to know.
#[test]
fn without_encapsulation_nothing_is_told() {
    for setup in [Setup::default(), v6(false)] {
        let mut pair = Pair::new(&setup);
        let (wire, _) = pair.protect(&[inner(false, 9)]);
        let nat = if setup.local.is_ipv4() { "203.0.113.9" } else { "2001:db8:9::9" };
        let nat = behind_nat(&wire[0], Some(nat.parse().unwrap()), None);
        assert_eq!(pair.open(&[nat]).len(), 1);
        assert_eq!(told(&mut pair), []);
        pair.assert_no_leak();
    }
}
