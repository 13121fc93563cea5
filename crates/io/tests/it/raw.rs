//! Raw ports against each other, in network namespaces.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Namespace, burst_of, esp, event, ip_packet, narrow_path, receive};
use convoy_io::raw::{self, RawPort};
use convoy_io::{NewsSource, Port, PortCounters, PortEvent, Quote, SpiFilter};
use convoy_packet::{Arena, Burst, FrameSize, Pool};

const ESP: u8 = 50;
const ENDS: [(&str, &str); 2] = [("127.0.0.1", "127.0.0.2"), ("fd00::1", "fd00::2")];

fn arena() -> &'static Arena {
    Arena::map(2048, FrameSize::for_packet(4000)).unwrap()
}

fn namespace() -> Result<Namespace, String> {
    let namespace = Namespace::new()?;
    namespace.ip("link set lo mtu 1500");
    namespace.ip("addr add fd00::1/128 dev lo nodad");
    namespace.ip("addr add fd00::2/128 dev lo nodad");
    namespace.settle();
    Ok(namespace)
}

fn open(namespace: &Namespace, config: raw::Config) -> Vec<RawPort> {
    namespace.run(move || raw::open(&config)).unwrap()
}

fn open_one(namespace: &Namespace, local: &str) -> RawPort {
    open(namespace, raw::Config::new(local.parse().unwrap())).remove(0)
}

#[test]
fn whole_packets_cross_unchanged_in_batches() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    for (a, b) in ENDS {
        let (mut left, mut right) = (open_one(&namespace, a), open_one(&namespace, b));
        let (a, b) = (left.local(), right.local());
        let packets: Vec<_> = (0..200)
            .map(|n| {
                ip_packet(
                    a,
                    b,
                    ESP,
                    [0, 0xb8, 0x03][n as usize / 67],
                    true,
                    &esp(7, n, n as usize * 7),
                )
            })
            .collect();
        left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
        let got = receive(&mut right, &mut pool, 200);
        assert_eq!(got.len(), 200, "{a}: {:?} {:?}", left.counters(), right.counters());
        for (got, sent) in got.iter().zip(&packets) {
            assert!(
                got == sent,
                "{:?} {:?}",
                &got[..40.min(got.len())],
                &sent[..40.min(sent.len())]
            );
        }
        let (sent, received) = (left.counters(), right.counters());
        assert_eq!((sent.tx_packets, received.rx_packets), (200, 200));
        assert_eq!(
            (sent.tx_bytes, sent.losses().map(|l| l.1).sum::<u64>()),
            (received.rx_bytes, 0)
        );
        // One for each run of packets with one TOS, and one more where a burst ends.
        assert!(sent.tx_calls <= 4 && received.rx_calls <= 8, "{sent:?} {received:?}");
    }
    drop(pool);
    assert_eq!((arena.in_depot(), arena.leaked()), (2048, 0));
}

#[test]
fn large_packets_are_fragmented_without_df_and_refused_with_it() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    let (mut left, mut right) =
        (open_one(&namespace, "127.0.0.1"), open_one(&namespace, "127.0.0.2"));
    let (a, b) = (left.local(), right.local());
    let packets: Vec<_> =
        (0..10).map(|n| ip_packet(a, b, ESP, 0x02, n % 2 == 0, &esp(7, n, 3000))).collect();
    left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
    let got = receive(&mut right, &mut pool, 5);
    assert_eq!(got.len(), 5);
    for (got, sent) in got.iter().zip(packets.iter().skip(1).step_by(2)) {
        // The kernel chose an identification, which the checksum follows.
        assert_eq!((&got[..4], &got[8..10], &got[12..]), (&sent[..4], &sent[8..10], &sent[12..]));
    }
    assert_eq!((left.counters().tx_too_big, left.counters().tx_packets), (5, 5));
    let (source, quote) = (NewsSource::Local, Quote::TooShort);
    assert_eq!(left.event(), Some(PortEvent::PathMtu { destination: b, mtu: 1500, source, quote }));
}

#[test]
fn workers_receive_their_share_of_the_spis() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    for (a, b) in ENDS {
        let local: IpAddr = b.parse().unwrap();
        let mut workers = open(&namespace, raw::Config { workers: 3, ..raw::Config::new(local) });
        let mut sender = open_one(&namespace, a);
        let packets: Vec<_> = (0..60)
            .map(|n| ip_packet(sender.local(), local, ESP, 0, true, &esp(1000 + n % 10, n, 100)))
            .collect();
        sender.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
        for (n, worker) in workers.iter_mut().enumerate() {
            let mine = (1000..1010).filter(|spi| spi % 3 == n).count() * 6;
            let got = receive(worker, &mut pool, mine);
            let at = if local.is_ipv6() { 40 } else { 20 };
            for packet in &got {
                let spi = u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
                assert_eq!(spi as usize % 3, n);
            }
            assert_eq!(got.len(), mine);
            assert_eq!(worker.counters().rx_kernel_drops, 0);
        }
    }
}

#[test]
fn a_filter_drops_what_no_sa_takes_while_it_is_active_and_nothing_else() {
    let namespace = or_skip!(namespace());
    let Ok(filter) = SpiFilter::new() else {
        println!("SKIPPED: no bpf here");
        return;
    };
    let filter = Arc::new(filter);
    let arena = arena();
    let mut pool = arena.pool();
    let (known, edged, old) = (0x12_3456, 0xabc_0007, u32::MAX - 5);
    for ((_, b), protocol, workers) in
        ENDS.iter().flat_map(|ends| [(ends, ESP, 1), (ends, ESP, 2), (ends, raw::AH, 1)])
    {
        let local: IpAddr = b.parse().unwrap();
        let config = raw::Config { workers, protocol, ..raw::Config::new(local) };
        let filtered = raw::Config { filter: Some(filter.clone()), ..config.clone() };
        let mut ports = open(&namespace, filtered);
        let mut sender = open(&namespace, raw::Config { workers: 1, ..config }).remove(0);
        let header: &[u8] = if protocol == ESP { &[] } else { &[4, 4, 0, 0] };
        let mut count = |ports: &mut [RawPort], spis: &[(u32, u32)], wanted: usize| {
            let packets: Vec<_> = spis
                .iter()
                .map(|(spi, seq)| [header, &esp(*spi, *seq, 40)].concat())
                .map(|payload| ip_packet(sender.local(), local, protocol, 0, true, &payload))
                .collect();
            sender.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
            // Loopback has delivered them.
            let got: usize = ports.iter_mut().map(|port| all(port, &mut pool).len()).sum();
            assert_eq!(got, wanted, "{local} {protocol} {workers}");
        };
        // 2¹⁶ apart, SPIs share a slot.
        let shared = known + (1 << 16);
        let spis = [known, shared, edged, 5, 0xffff_ffff].map(|spi| (spi, old));
        filter.clear();
        count(&mut ports, &spis, 5);
        filter.add(known);
        filter.add(edged);
        filter.set_left_edge(known, u64::from(old) + 3);
        filter.set_left_edge(edged, u64::from(old) + 3);
        count(&mut ports, &spis, 5);
        filter.begin();
        let dropped = filter.dropped();
        count(&mut ports, &spis, 0);
        assert_eq!(filter.dropped() - dropped, 5);
        // At the edge, in front of it, and as far behind it as it may be far in front of it.
        let numbers = [old + 2, old + 3, old + 4, 7, old + 3 - (1 << 30) - 1];
        count(&mut ports, &numbers.map(|n| (edged, n)), 4);
        // One of two in a slot has no edge.
        filter.add(shared);
        count(&mut ports, &[(known, old), (shared, old), (known + 1, old)], 2);
        filter.set_left_edge(known, u64::from(old) + 3);
        count(&mut ports, &[(known, old), (shared, old)], 2);
        let sum =
            |of: fn(&PortCounters) -> u64| ports.iter().map(|p| of(&p.counters())).sum::<u64>();
        assert_eq!((sum(|c| c.rx_unknown_spi), sum(|c| c.rx_too_old)), (3, 4));
        filter.end();
        count(&mut ports, &spis, 5);
    }
}

/// All packets that have come.
fn all(port: &mut RawPort, pool: &mut Pool) -> Vec<Vec<u8>> {
    let (mut burst, mut all) = (Burst::new(), Vec::new());
    while port.rx(pool, &mut burst).unwrap() > 0 {
        all.extend(burst.as_slice().iter().map(|frame| frame.data().to_vec()));
        burst.release(pool);
    }
    all
}

#[test]
fn packets_that_are_not_esp_of_this_family_are_malformed_here() {
    let namespace = or_skip!(namespace());
    let arena = arena();
    let mut pool = arena.pool();
    for (a, b, c, d) in [
        ("127.0.0.1", "127.0.0.2", "fd00::1", "fd00::2"),
        ("fd00::1", "fd00::2", "127.0.0.1", "127.0.0.2"),
    ] {
        let mut port = open_one(&namespace, a);
        let ip = |text: &str| text.parse().unwrap();
        let mut cut = ip_packet(ip(a), ip(b), ESP, 0, true, &esp(1, 1, 50));
        cut.truncate(30);
        let packets = [
            cut,
            ip_packet(ip(c), ip(d), ESP, 0, true, &esp(1, 1, 50)),
            ip_packet(ip(a), ip(b), 17, 0, true, &esp(1, 1, 50)),
            vec![],
        ];
        port.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
        assert_eq!((port.counters().tx_malformed, port.counters().tx_packets), (4, 0));
    }
}

#[test]
fn packets_longer_than_a_frame_are_counted() {
    let namespace = or_skip!(namespace());
    let (large, small) = (arena(), Arena::map(128, FrameSize::for_packet(100)).unwrap());
    let (mut left, mut right) =
        (open_one(&namespace, "127.0.0.1"), open_one(&namespace, "127.0.0.2"));
    let (a, b) = (left.local(), right.local());
    let packets = [3000, 100].map(|len| ip_packet(a, b, ESP, 0, false, &esp(1, 1, len)));
    left.tx(&mut large.pool(), &mut burst_of(&mut large.pool(), &packets)).unwrap();
    let got = receive(&mut right, &mut small.pool(), 1);
    assert_eq!((got[0].len(), right.counters().rx_truncated), (128, 1));
    drop(right);
    assert_eq!((small.in_depot(), small.leaked()), (128, 0));
}

#[test]
fn a_narrow_link_on_the_path_is_an_event_that_quotes_the_packet() {
    let [left, _router, right] = or_skip!(narrow_path());
    let arena = arena();
    let mut pool = arena.pool();
    for (a, b, router) in
        [("10.8.1.1", "10.8.2.1", "10.8.1.254"), ("fd00:8:1::1", "fd00:8:2::1", "fd00:8:1::fe")]
    {
        let (mut left, mut right) = (open_one(&left, a), open_one(&right, b));
        let (a, b) = (left.local(), right.local());
        let small = [ip_packet(a, b, ESP, 0, true, &esp(5, 1, 1000))];
        left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &small)).unwrap();
        assert_eq!(receive(&mut right, &mut pool, 1).len(), 1);
        let large = [ip_packet(a, b, ESP, 0, true, &esp(0xabcd, 99, 1350))];
        left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &large)).unwrap();
        let source = NewsSource::Icmp(Some(router.parse().unwrap()));
        let quote = Quote::Esp { spi: 0xabcd, seq_low: 99 };
        assert_eq!(
            event(&mut left, &mut pool),
            Some(PortEvent::PathMtu { destination: b, mtu: 1300, source, quote })
        );
        left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &small)).unwrap();
        assert_eq!(receive(&mut right, &mut pool, 1).len(), 1);
        assert_eq!(left.counters().losses().map(|l| l.1).sum::<u64>(), 0);
    }
}

#[test]
fn an_address_that_comes_into_use_late_is_waited_for_and_a_foreign_one_refused() {
    let namespace = or_skip!(namespace());
    let late = raw::Config::new("fd00::77".parse().unwrap());
    let opened = namespace.run(move || {
        crate::common::ip("addr add fd00::77/128 dev lo").unwrap();
        raw::open(&late)
    });
    assert_eq!(opened.unwrap().len(), 1);
    let foreign = raw::Config::new("192.0.2.1".parse().unwrap());
    let refused = namespace.run(move || raw::open(&foreign)).unwrap_err();
    let expected = "cannot bind the raw socket: Cannot assign requested address (os error 99)";
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn the_kernel_calls_esp_unreachable_only_where_no_port_is_open() {
    let [left, _router, right] = or_skip!(narrow_path());
    let arena = arena();
    let mut pool = arena.pool();
    // Protocol unreachable (RFC 792), unrecognized next header (RFC 4443).
    let ends = [("10.8.1.1", "10.8.2.1", (3, 2)), ("fd00:8:1::1", "fd00:8:2::1", (4, 1))];
    for (from, to, said) in ends {
        let mut peer = open_one(&left, from);
        let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
        let mut send = |peer: &mut RawPort, seq| {
            let packet = ip_packet(from, to, ESP, 0, true, &esp(5, seq, 40));
            peer.tx(&mut pool, &mut burst_of(&mut arena.pool(), &[packet])).unwrap();
        };
        for workers in [1, 3] {
            let mut ports = open(&right, raw::Config { workers, ..raw::Config::new(to) });
            send(&mut peer, 1);
            // SPI 5 belongs to the last worker of three.
            let last = ports.last_mut().unwrap();
            assert_eq!(receive(last, &mut arena.pool(), 1).len(), 1);
        }
        // A child of another test, not yet another program, may have the sockets open still.
        let mut said_of = (2..200).find_map(|seq| {
            send(&mut peer, seq);
            std::thread::sleep(Duration::from_millis(50));
            peer.rx(&mut arena.pool(), &mut Burst::new()).unwrap();
            peer.event()
        });
        // The first word about any of these packets is about one sent afterwards.
        if let Some(PortEvent::Unreachable { quote: Quote::Esp { seq_low, .. }, .. }) = &mut said_of
        {
            assert!(*seq_low >= 2, "{seq_low}");
            *seq_low = 2;
        }
        assert_eq!(
            said_of,
            Some(PortEvent::Unreachable {
                destination: to,
                icmp: said,
                source: NewsSource::Icmp(Some(to)),
                quote: Quote::Esp { spi: 5, seq_low: 2 },
            })
        );
    }
}

/// A namespace with two uplinks: the main table leads to the second, rules by source to the first.
fn two_uplinks() -> Result<Namespace, String> {
    let namespace = Namespace::new()?;
    let ip = |arguments: &str| namespace.ip(arguments);
    for (link, other, v4, v6) in [
        ("first", "afar1", "198.51.100.1/24", "2001:db8:1::1/64"),
        ("second", "afar2", "203.0.113.1/24", "2001:db8:2::1/64"),
    ] {
        ip(&format!("link add {link} type veth peer name {other}"));
        ip(&format!("link set {link} arp off up"));
        ip(&format!("link set {other} up"));
        ip(&format!("addr add {v4} dev {link}"));
        ip(&format!("addr add {v6} dev {link} nodad"));
    }
    for (family, source) in [("-4", "198.51.100.1"), ("-6", "2001:db8:1::1")] {
        ip(&format!("{family} route add default dev second"));
        ip(&format!("{family} route add default dev first table 100"));
        ip(&format!("{family} rule add from {source} lookup 100"));
    }
    namespace.settle();
    Ok(namespace)
}

/// Packets that left by a link so far.
fn left_by(namespace: &Namespace, link: &'static str) -> usize {
    namespace.run(move || {
        let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{link}:")));
        // Eight columns are about what was received.
        line.unwrap().split_whitespace().nth(9).unwrap().parse().unwrap()
    })
}

#[test]
fn rules_by_source_choose_the_uplink() {
    let namespace = or_skip!(two_uplinks());
    let arena = arena();
    let mut pool = arena.pool();
    for (local, peer) in [("198.51.100.1", "192.0.2.9"), ("2001:db8:1::1", "2001:db8:9::9")] {
        let mut port = open_one(&namespace, local);
        let (local, peer) = (port.local(), peer.parse().unwrap());
        let packets: Vec<_> =
            (0..200).map(|n| ip_packet(local, peer, ESP, 0, true, &esp(7, n, 100))).collect();
        let before = (left_by(&namespace, "first"), left_by(&namespace, "second"));
        port.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets[..100])).unwrap();
        port.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets[100..])).unwrap();
        let first = left_by(&namespace, "first") - before.0;
        let second = left_by(&namespace, "second") - before.1;
        // The kernel itself sends a few packets for IPv6.
        assert!(
            first >= 200 && second < 50,
            "{local}: {first} by the first, {second} by the other"
        );
    }
}

#[test]
fn packets_have_the_priority_of_their_tos_and_the_packet_filter_is_told_of() {
    let namespace = or_skip!(namespace());
    let nft = |arguments: &'static str| {
        namespace.run(move || {
            let output = std::process::Command::new("nft").args(arguments.split(' ')).output();
            let output = output.map_err(|error| format!("no nft command: {error}"))?;
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            let out = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.success() { Ok(out) } else { Err(told) }
        })
    };
    or_skip!(nft("add table ip seen"));
    nft("add chain ip seen out { type filter hook output priority 0 ; }").unwrap();
    for rule in [
        "add rule ip seen out ip protocol esp ip dscp 0 meta priority 0 counter",
        "add rule ip seen out ip protocol esp ip dscp 4 meta priority 6 counter",
        "add rule ip seen out ip protocol esp ip dscp 2 meta priority 2 counter",
    ] {
        nft(rule).unwrap();
    }
    let mut port = open_one(&namespace, ENDS[0].0);
    let (local, peer) = (port.local(), ENDS[0].1.parse().unwrap());
    // Low delay, high throughput, and neither; with and without a mark of congestion notification.
    let tos = [0x10, 0x10, 0x12, 0x08, 0x00, 0x02, 0x10];
    let packets: Vec<_> = (0..70)
        .map(|n| ip_packet(local, peer, ESP, tos[n as usize % 7], true, &esp(7, n, 100)))
        .collect();
    let arena = arena();
    let mut pool = arena.pool();
    port.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
    assert_eq!(port.counters().tx_packets, 70);
    let table = nft("list table ip seen").unwrap();
    let counted: Vec<usize> = table
        .lines()
        .filter_map(|line| line.split_once("counter packets ")?.1.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(counted, [20, 40, 10], "{table}");
    nft("add rule ip seen out ip protocol esp drop").unwrap();
    port.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
    let counters = port.counters();
    assert_eq!((counters.tx_packets, counters.tx_denied, counters.tx_error), (70, 70, 0));
}

#[test]
fn packets_with_options_cross_unchanged() {
    let namespace = or_skip!(namespace());
    let (mut left, mut right) = (open_one(&namespace, ENDS[0].0), open_one(&namespace, ENDS[0].1));
    let plain = ip_packet(left.local(), right.local(), ESP, 0, true, &esp(7, 1, 100));
    let mut packet = plain[..20].to_vec();
    // Router Alert (RFC 2113).
    packet.extend([0x94, 4, 0, 0]);
    packet.extend(&plain[20..]);
    packet[0] = 0x46;
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    let arena = arena();
    let mut pool = arena.pool();
    left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &[packet.clone()])).unwrap();
    let got = receive(&mut right, &mut pool, 1);
    // The kernel writes the header checksum.
    packet[10..12].copy_from_slice(&got[0][10..12]);
    assert_eq!(got, [packet]);
}
