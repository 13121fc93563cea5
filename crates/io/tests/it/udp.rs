//! UDP ports against each other and against ordinary sockets, in network namespaces.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::common::{Namespace, burst_of, esp, event, ip_packet, narrow_path, receive};
use convoy_io::udp::{self, UdpPort};
use convoy_io::{NewsSource, Port, PortEvent, Quote};
use convoy_packet::{Arena, Burst, FrameSize};

const UDP: u8 = 17;

fn arena() -> &'static Arena {
    Arena::map(2048, FrameSize::for_packet(4000)).unwrap()
}

/// A namespace in which both ends of both families are on the loopback, with Ethernet's MTU.
fn namespace() -> Result<Namespace, String> {
    let namespace = Namespace::new()?;
    namespace.ip("link set lo mtu 1500");
    namespace.ip("addr add fd00::1/128 dev lo nodad");
    namespace.ip("addr add fd00::2/128 dev lo nodad");
    namespace.settle();
    Ok(namespace)
}

fn open(namespace: &Namespace, config: udp::Config) -> Vec<UdpPort> {
    namespace.run(move || udp::open(&config)).unwrap()
}

fn open_one(namespace: &Namespace, local: &str) -> UdpPort {
    open(namespace, udp::Config::new(local.parse().unwrap())).remove(0)
}

/// A whole outer packet with ESP in UDP.
fn packet(src: SocketAddr, dst: SocketAddr, tos: u8, df: bool, payload: &[u8]) -> Vec<u8> {
    let mut udp = [src.port().to_be_bytes(), dst.port().to_be_bytes()].concat();
    udp.extend((8 + payload.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    ip_packet(src.ip(), dst.ip(), UDP, tos, df, &udp)
}

const ENDS: [(&str, &str); 2] =
    [("127.0.0.1:4500", "127.0.0.2:4500"), ("[fd00::1]:4500", "[fd00::2]:4500")];

/// The packet as it is handed up: what a socket cannot tell is gone.
fn as_received(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] == 0x45 {
        packet[6] = 0;
        packet[10..12].fill(0);
        let sum: u32 = packet[..20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let check = !((sum & 0xffff) + (sum >> 16)) as u16;
        packet[10..12].copy_from_slice(&check.to_be_bytes());
    }
    packet
}

#[test]
fn whole_packets_cross_with_tos_ttl_and_addresses_many_to_a_call() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    for (a, b) in ENDS {
        let (mut left, mut right) = (open_one(&namespace, a), open_one(&namespace, b));
        let (a, b) = (left.local(), right.local());
        let tos = |n: u32| if n < 150 { 0xb8 } else { 0x02 };
        let packets: Vec<_> =
            (0..200).map(|n| packet(a, b, tos(n), true, &esp(7, n, 1300))).collect();
        left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
        let got = receive(&mut right, &mut pool, 200);
        assert!(got.into_iter().eq(packets.into_iter().map(as_received)));
        let (sent, received) = (left.counters(), right.counters());
        assert_eq!((sent.tx_packets, received.rx_packets), (200, 200));
        assert_eq!((sent.losses().map(|l| l.1).sum::<u64>(), received.rx_kernel_drops), (0, 0));
        if left.offloads().tx_udp_segments && right.offloads().rx_udp_segments {
            assert!(sent.tx_supers >= 4 && sent.tx_calls < 20, "{sent:?}");
            assert!(received.rx_supers >= 4 && received.rx_calls < 20, "{received:?}");
        }
    }
    drop(pool);
    assert_eq!((arena.in_depot(), arena.leaked()), (2048, 0));
}

#[test]
fn mixed_sizes_keep_their_bounds_and_order_with_and_without_offloads() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    for (a, b) in ENDS {
        for offload in [true, false] {
            // A port of its own: a process just being started elsewhere in this program may still
            // hold the sockets of the round before.
            let config = |local: &str| {
                let mut local: SocketAddr = local.parse().unwrap();
                local.set_port(4500 + u16::from(offload));
                udp::Config { offload, ..udp::Config::new(local) }
            };
            let mut left = open(&namespace, config(a)).remove(0);
            let mut right = open(&namespace, config(b)).remove(0);
            let (a, b) = (left.local(), right.local());
            // Runs of equal sizes, each ending with a shorter one; and bare keepalives between.
            let len = |n: u32| match n % 7 {
                6 => 100,
                5 => 1400,
                _ => 600,
            };
            let mut packets: Vec<_> =
                (0..250).map(|n| packet(a, b, 0, n % 3 == 0, &esp(7, n, len(n)))).collect();
            packets.push(packet(a, b, 0, true, &[0xff]));
            packets.push(packet(a, b, 0, true, &[0, 0, 0, 0, 1, 2, 3]));
            left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
            let got = receive(&mut right, &mut pool, 252);
            assert!(got.into_iter().eq(packets.into_iter().map(as_received)));
            assert!(offload || !left.offloads().tx_udp_segments);
        }
    }
}

#[test]
fn messages_that_do_not_fit_the_burst_are_continued() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    let (mut left, mut right) =
        (open_one(&namespace, "127.0.0.1:4500"), open_one(&namespace, "127.0.0.2:4500"));
    let packets: Vec<_> =
        (0..100).map(|n| packet(left.local(), right.local(), 0, true, &esp(7, n, 1000))).collect();
    left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
    let mut got = Vec::new();
    while got.len() < 100 {
        let mut burst = Burst::new();
        while burst.room() > 7 {
            burst.push(pool.alloc().unwrap()).unwrap();
        }
        right.rx(&mut pool, &mut burst).unwrap();
        got.extend(burst.as_slice()[249..].iter().map(|f| f.data().to_vec()));
        burst.release(&mut pool);
    }
    assert!(got.into_iter().eq(packets.into_iter().map(as_received)));
}

#[test]
fn an_ordinary_socket_sees_plain_datagrams_and_is_seen_alike() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    // Bound to no address: the source comes from the packet, the destination is told.
    let mut port = open_one(&namespace, "0.0.0.0:4500");
    let peer = namespace.run(|| UdpSocket::bind("127.0.0.1:9000")).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (from, to) = ("127.7.7.7:4500".parse().unwrap(), peer.local_addr().unwrap());
    let payloads: Vec<_> = (0..100).map(|n| esp(9, n, 500)).collect();
    let packets: Vec<_> = payloads.iter().map(|p| packet(from, to, 0, true, p)).collect();
    port.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
    let mut buffer = [0; 2000];
    for payload in &payloads {
        let (len, source) = peer.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], source), (&payload[..], from));
    }
    peer.send_to(b"towards 127.8.8.8", "127.8.8.8:4500").unwrap();
    let got = receive(&mut port, &mut pool, 1).remove(0);
    assert_eq!(got[12..20], [127, 0, 0, 1, 127, 8, 8, 8]);
    assert_eq!(got[28..], b"towards 127.8.8.8"[..]);
}

#[test]
fn large_packets_are_fragmented_without_df_and_refused_with_it() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    let (mut left, mut right) =
        (open_one(&namespace, "127.0.0.1:4500"), open_one(&namespace, "127.0.0.2:4500"));
    let (a, b) = (left.local(), right.local());
    let packets: Vec<_> = (0..10).map(|n| packet(a, b, 0, n % 2 == 0, &esp(7, n, 3000))).collect();
    left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
    let got = receive(&mut right, &mut pool, 5);
    assert!(got.into_iter().eq(packets.into_iter().skip(1).step_by(2).map(as_received)));
    assert_eq!((left.counters().tx_too_big, left.counters().tx_packets), (5, 5));
    let news = left.event();
    let (source, quote) = (NewsSource::Local, Quote::TooShort);
    assert_eq!(news, Some(PortEvent::PathMtu { destination: b.ip(), mtu: 1500, source, quote }));
}

#[test]
fn workers_receive_their_share_of_the_spis() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    let local = "127.0.0.2:4500".parse().unwrap();
    let mut workers = open(&namespace, udp::Config { workers: 3, ..udp::Config::new(local) });
    let mut sender = open_one(&namespace, "127.0.0.1:4500");
    let mut packets: Vec<_> = (0..60)
        .map(|n| packet(sender.local(), local, 0, true, &esp(1000 + n % 10, n, 100)))
        .collect();
    packets.push(packet(sender.local(), local, 0, true, &[0xff]));
    sender.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
    let mut total = 0;
    for (n, worker) in workers.iter_mut().enumerate() {
        assert!(worker.offloads().spread_by_spi);
        let mine =
            |n: usize| (1000..1010).filter(|spi| spi % 3 == n).count() * 6 + usize::from(n == 0);
        let got = receive(worker, &mut pool, mine(n));
        assert_eq!(got.len(), mine(n));
        for packet in got.iter().filter(|p| p.len() > 30) {
            let spi = u32::from_be_bytes(packet[28..32].try_into().unwrap());
            assert_eq!(spi as usize % 3, n);
        }
        total += got.len();
    }
    assert_eq!(total, 61);
}

#[test]
fn a_closed_port_is_an_event_and_costs_no_other_packet() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    let (mut left, mut right) =
        (open_one(&namespace, "127.0.0.1:4500"), open_one(&namespace, "127.0.0.2:4500"));
    let nobody: SocketAddr = "127.0.0.3:4500".parse().unwrap();
    let lost = [packet(left.local(), nobody, 0, true, &esp(0xabcd, 77, 50))];
    left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &lost)).unwrap();
    // The pending error is reported to the next call, which must get through all the same.
    let good = [packet(left.local(), right.local(), 0, true, &esp(1, 1, 50))];
    left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &good)).unwrap();
    assert_eq!(receive(&mut right, &mut pool, 1).len(), 1);
    assert_eq!((left.counters().tx_error, left.counters().tx_packets), (0, 2));
    let source = NewsSource::Icmp(Some(nobody.ip()));
    let quote = Quote::Esp { spi: 0xabcd, seq_low: 77 };
    assert_eq!(
        event(&mut left, &mut pool),
        Some(PortEvent::Unreachable { destination: nobody.ip(), icmp: (3, 3), source, quote })
    );
    assert_eq!(left.event(), None);
}

#[test]
fn packets_for_other_sockets_are_malformed_here() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    let mut port = open_one(&namespace, "127.0.0.1:4500");
    let (a, b): (SocketAddr, SocketAddr) = (port.local(), "127.0.0.2:4500".parse().unwrap());
    let v6: (SocketAddr, SocketAddr) =
        ("[fd00::1]:4500".parse().unwrap(), "[fd00::2]:4500".parse().unwrap());
    let mut cut = packet(a, b, 0, true, &esp(1, 1, 50));
    cut.truncate(40);
    let packets = [
        cut,
        packet(v6.0, v6.1, 0, true, &esp(1, 1, 50)),
        packet("127.0.0.1:4501".parse().unwrap(), b, 0, true, &esp(1, 1, 50)),
        ip_packet(a.ip(), b.ip(), 50, 0, true, &esp(1, 1, 50)),
        vec![],
    ];
    port.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
    assert_eq!((port.counters().tx_malformed, port.counters().tx_packets), (5, 0));
    drop(pool);
    assert_eq!((arena.in_depot(), arena.leaked()), (2048, 0));
}

#[test]
fn losses_of_a_full_receive_buffer_are_counted() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    let mut config = udp::Config::new("127.0.0.2:4500".parse().unwrap());
    config.options.buffer_bytes = 50_000;
    config.offload = false;
    let mut right = open(&namespace, config).remove(0);
    let mut left = open_one(&namespace, "127.0.0.1:4500");
    let (a, b) = (left.local(), right.local());
    let packets: Vec<_> = (0..200).map(|n| packet(a, b, 0, true, &esp(1, n, 1000))).collect();
    left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
    let mut got = 0;
    let mut burst = Burst::new();
    while right.rx(&mut pool, &mut burst).unwrap() > 0 {
        got += burst.len() as u64;
        burst.release(&mut pool);
    }
    // The number comes with the next packet that finds room.
    left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets[..1])).unwrap();
    assert_eq!(receive(&mut right, &mut pool, 1).len(), 1);
    assert!(got < 200);
    assert_eq!(right.counters().rx_kernel_drops, 200 - got);
}

#[test]
fn a_narrow_link_on_the_path_is_an_event_that_quotes_the_packet() {
    let [left, _router, right] = or_skip!(narrow_path());
    let arena = arena();
    let mut pool = arena.pool();
    for (a, b, router) in [
        ("10.8.1.1:4500", "10.8.2.1:4500", "10.8.1.254"),
        ("[fd00:8:1::1]:4500", "[fd00:8:2::1]:4500", "fd00:8:1::fe"),
    ] {
        let (mut left, mut right) = (open_one(&left, a), open_one(&right, b));
        let (a, b) = (left.local(), right.local());
        let small = [packet(a, b, 0, true, &esp(5, 1, 1000))];
        left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &small)).unwrap();
        assert_eq!(receive(&mut right, &mut pool, 1).len(), 1);
        let large: Vec<_> = (2..5).map(|n| packet(a, b, 0, true, &esp(5, n, 1350))).collect();
        left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &large)).unwrap();
        let source = NewsSource::Icmp(Some(router.parse::<IpAddr>().unwrap()));
        let quote = Quote::Esp { spi: 5, seq_low: 2 };
        assert_eq!(
            event(&mut left, &mut pool),
            Some(PortEvent::PathMtu { destination: b.ip(), mtu: 1300, source, quote })
        );
        // What fits goes through afterwards, and sending is not refused by what was learnt.
        left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &small)).unwrap();
        assert_eq!(receive(&mut right, &mut pool, 1).len(), 1);
        assert_eq!(left.counters().tx_too_big, 0);
    }
}

#[test]
fn an_address_that_comes_into_use_late_is_waited_for_and_a_foreign_one_refused() {
    let namespace = or_skip!(namespace());
    let late = udp::Config::new("[fd00::77]:4500".parse().unwrap());
    let opened = namespace.run(move || {
        crate::common::ip("addr add fd00::77/128 dev lo").unwrap();
        udp::open(&late)
    });
    assert_eq!(opened.unwrap().len(), 1);
    let foreign = udp::Config::new("192.0.2.1:4500".parse().unwrap());
    let refused = namespace.run(move || udp::open(&foreign)).unwrap_err();
    let expected = "cannot bind the udp socket: Cannot assign requested address (os error 99)";
    assert_eq!(refused.to_string(), expected);
}
