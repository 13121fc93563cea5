//! Packet ports on virtual cables: against each other, against hosts, against hostile frames.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::common::wire::{
    FAR, Injector, NEAR, all_at, all_within, board, cable, esp_to, forwarded, frame, interface,
};
use crate::common::{Namespace, burst_of, esp, fix_checksum, gate, ip_packet, pattern, receive};
use convoy_io::link::{Asks, Table, Take};
use convoy_io::packet::{Config, PacketPort, SendingConfig, Steering, open, open_sending};
use convoy_io::{IoError, NewsSource, Port, PortEvent, Quote};
use convoy_packet::{Arena, Burst, FrameSize};

const FRAMES: u32 = 2048;

fn arena() -> &'static Arena {
    Arena::map(FRAMES, FrameSize::for_packet(1500)).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Opens ports on an interface.
fn ports(
    namespace: &Namespace,
    link: &'static str,
    workers: u16,
    take: Take,
    table: Table,
) -> (Vec<PacketPort>, Steering, Asks) {
    let (board, asks) = board(table);
    let config = Config { workers, ..Config::new(interface(namespace, link), take, board) };
    let (ports, steering) = namespace.run(move || open(&config)).unwrap();
    (ports, steering, asks)
}

fn port(namespace: &Namespace, link: &'static str, take: Take, table: Table) -> PacketPort {
    ports(namespace, link, 1, take, table).0.remove(0)
}

#[test]
fn whole_packets_cross_unchanged_and_no_frame_is_lost() {
    let [a, b] = or_skip!(cable(1500));
    let arena = arena();
    let mut pool = arena.pool();
    for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let table = |own, far| all_at(own, far, &[ip(src), ip(dst)]);
        let mut left = port(&a, "near", esp_to(NEAR, &[ip(src)]), table(NEAR, FAR));
        let mut right = port(&b, "far", esp_to(FAR, &[ip(dst)]), table(FAR, NEAR));
        let packets: Vec<_> = (0..250)
            .map(|n| ip_packet(ip(src), ip(dst), 50, 0xb8, true, &esp(7, n, 20 + n as usize * 5)))
            .collect();
        left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
        let got = receive(&mut right, &mut pool, 250);
        assert_eq!(got, packets, "{:?} {:?}", left.counters(), right.counters());
        let (sent, received) = (left.counters(), right.counters());
        assert_eq!((sent.tx_packets, received.rx_packets), (250, 250));
        assert_eq!((sent.tx_bytes, sent.losses().map(|l| l.1).sum()), (received.rx_bytes, 0_u64));
        assert!(sent.tx_calls <= 2 && received.rx_calls <= 12, "{sent:?} {received:?}");
    }
    drop(pool);
    assert_eq!((arena.in_depot(), arena.leaked()), (FRAMES as usize, 0));
}

#[test]
fn a_port_that_only_sends_sends_whole_packets_and_dies_with_its_interface() {
    let [a, b] = or_skip!(cable(1500));
    let arena = arena();
    let mut pool = arena.pool();
    for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let table = |own, far| all_at(own, far, &[ip(src), ip(dst)]);
        let (next_hops, _asks) = board(table(NEAR, FAR));
        let interface = interface(&a, "near");
        let config =
            SendingConfig { interface, workers: 2, next_hops, mark: None, buffer_bytes: 1 << 20 };
        let mut ports = a.run(move || open_sending(&config)).unwrap();
        assert_eq!(ports.len(), 2);
        let mut left = ports.remove(0);
        let mut right = port(&b, "far", esp_to(FAR, &[ip(dst)]), table(FAR, NEAR));
        let packets: Vec<_> = (0..250)
            .map(|n| {
                let tos = [0, 0xb8, 0x10][n as usize / 100];
                ip_packet(ip(src), ip(dst), 50, tos, true, &esp(7, n, 20 + n as usize * 5))
            })
            .collect();
        left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
        assert_eq!(receive(&mut right, &mut pool, 250), packets, "{:?}", left.counters());
        let sent = left.counters();
        assert_eq!((sent.tx_packets, sent.losses().map(|l| l.1).sum()), (250, 0_u64));
        assert_eq!(sent.tx_bytes, right.counters().rx_bytes);
        // A call for each run of packets with one priority.
        assert!(sent.tx_calls <= 3, "{sent:?}");
        // Answers come to others: this one is never woken.
        let mut back = port(&b, "far", esp_to(FAR, &[ip(dst)]), table(FAR, NEAR));
        let answer = [ip_packet(ip(dst), ip(src), 50, 0, true, &esp(7, 1, 60))];
        back.tx(&mut pool, &mut burst_of(&mut arena.pool(), &answer)).unwrap();
        assert_eq!(left.rx(&mut pool, &mut Burst::new()).unwrap(), 0);
        a.ip("link set near down");
        let died = left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets[..1]));
        assert!(matches!(died, Err(IoError::Dead(_))), "{died:?}");
        a.ip("link set near up");
    }
    drop(pool);
    assert_eq!((arena.in_depot(), arena.leaked()), (FRAMES as usize, 0));
}

#[test]
fn hosts_talk_through_a_gateway_that_sees_every_packet_finished() {
    let [a, gateway, b] = or_skip!(gate::hosts());
    let ports = [(1, "left"), (2, "right")]
        .map(|(n, link)| port(&gateway, link, forwarded(FAR), gate::table(n)));
    let [left, right] = gate::talk([&a, &b], ports, arena());
    assert!(left.counters().rx_supers > 0, "{:?}", left.counters());
    assert!(right.counters().tx_supers > 0, "{:?}", right.counters());
    for port in [&left, &right] {
        // Whoever leaves a link or looks for routers is left to the kernel, not lost.
        assert_eq!(port.counters().losses().map(|l| l.1).sum::<u64>(), 0, "{:?}", port.counters());
    }
}

#[test]
fn a_packet_waits_for_its_neighbour_and_is_dropped_when_there_is_none() {
    let [a, b] = or_skip!(cable(1500));
    let arena = arena();
    let mut pool = arena.pool();
    let (src, dst, silent) = (ip("10.0.0.1"), ip("10.0.0.2"), ip("10.0.0.3"));
    let (board, asks) = board(all_at(NEAR, FAR, &[]));
    let config = Config::new(interface(&a, "near"), forwarded(NEAR), board.clone());
    let mut left = a.run(move || open(&config)).unwrap().0.remove(0);
    let mut right = port(&b, "far", forwarded(FAR), all_at(FAR, NEAR, &[]));
    let packets: Vec<_> = [dst, silent, dst]
        .iter()
        .map(|to| ip_packet(src, *to, 50, 0, true, &esp(1, 1, 100)))
        .collect();
    left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
    assert_eq!((asks.next(), asks.next(), asks.next()), (Some(dst), Some(silent), None));
    assert_eq!(left.counters().tx_packets, 0);
    board.publish(all_at(NEAR, FAR, &[dst]));
    let mut nothing = Burst::new();
    assert_eq!(left.rx(&mut pool, &mut nothing).unwrap(), 0);
    assert_eq!(receive(&mut right, &mut pool, 2), [packets[0].clone(), packets[2].clone()]);
    let begun = Instant::now();
    while left.counters().tx_unresolved == 0 && begun.elapsed() < Duration::from_secs(20) {
        left.rx(&mut pool, &mut nothing).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((left.counters().tx_unresolved, left.counters().tx_packets), (1, 2));

    // No more than a bound wait for one neighbour, and what waits at the end is given back.
    let many = vec![packets[1].clone(); 150];
    left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &many)).unwrap();
    assert_eq!((left.counters().tx_unresolved, asks.next(), asks.next()), (23, Some(silent), None));
    let stray = [ip_packet(src, dst, 50, 0, true, &[]), vec![1, 2, 3]];
    board.publish(Table::new(NEAR, 1500, &[], &[]));
    left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &stray)).unwrap();
    assert_eq!((left.counters().tx_no_route, left.counters().tx_malformed), (129, 1));
    board.publish(all_at(NEAR, FAR, &[]));
    left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets[..1])).unwrap();
    drop((left, right, pool));
    assert_eq!((arena.in_depot(), arena.leaked()), (FRAMES as usize, 0));
}

#[test]
fn the_kernel_does_not_answer_what_the_gateway_takes() {
    let [a, b] = or_skip!(cable(1500));
    a.run(|| std::fs::write("/proc/sys/net/ipv6/conf/near/disable_ipv6", "0").unwrap());
    for (own, peer) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let (length, nodad) = if own.contains(':') { (64, "nodad") } else { (24, "") };
        a.ip(&format!("addr add {own}/{length} dev near {nodad}"));
        a.ip(&format!("neigh replace {peer} lladdr 02:00:00:00:00:02 dev near"));
    }
    a.settle();
    let arena = arena();
    let mut pool = arena.pool();
    let injector = Injector::new(&b, "far");
    let mut far = port(&b, "far", forwarded(FAR), all_at(FAR, NEAR, &[]));
    for (own, peer) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let packet = |protocol| ip_packet(ip(peer), ip(own), protocol, 0, true, &[7; 40]);
        let _near = port(&a, "near", esp_to(NEAR, &[ip(own)]), all_at(NEAR, FAR, &[]));
        // The last one is nobody's, and is answered.
        for protocol in [50, 51, 99] {
            assert!(injector.send(&frame(&packet(protocol))));
        }
        let answers = receive(&mut far, &mut pool, 1);
        // ICMP quotes the packet behind its 8 bytes.
        let at = if own.contains(':') { 40 + 8 + 6 } else { 20 + 8 + 9 };
        assert_eq!(answers.iter().map(|answer| answer[at]).collect::<Vec<_>>(), [99], "{own}");
    }
}

#[test]
fn esp_in_udp_is_received_in_fragments_and_one_worker_gets_all_of_a_packet() {
    let [a, b] = or_skip!(cable(1500));
    let arena = arena();
    let mut pool = arena.pool();
    let injector = Injector::new(&b, "far");
    for (src, dst) in [("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")] {
        let take = esp_to(NEAR, &[ip(dst)]);
        let (mut workers, _steering, _) = ports(&a, "near", 3, take, all_at(NEAR, FAR, &[]));
        let mut sent: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 3];
        for n in 0..30_u16 {
            let spi = if n == 29 { 0 } else { 1000 + u32::from(n) };
            let datagram =
                [&[17, 148, 17, 148, 4, 60, 0, 0][..], &esp(spi, n.into(), 1068)].concat();
            for (part, data) in datagram.chunks(512).enumerate() {
                let packet = cut(ip(src), ip(dst), n, part, data, datagram.len());
                assert!(injector.send(&frame(&packet)));
                // The first part shows that it is IKE; of the others nobody can tell.
                if spi != 0 || part > 0 {
                    sent[usize::from(n % 3)].push(packet);
                }
            }
        }
        for (worker, sent) in workers.iter_mut().zip(sent) {
            let got = receive(worker, &mut pool, sent.len());
            assert!(got == sent, "{src}: {} of {}", got.len(), sent.len());
            assert_eq!(worker.rx(&mut pool, &mut Burst::new()).unwrap(), 0);
        }
    }
}

/// The part of a UDP datagram of `len` bytes that begins at `part` times 512, as a fragment.
fn cut(src: IpAddr, dst: IpAddr, ident: u16, part: usize, data: &[u8], len: usize) -> Vec<u8> {
    let offset = (part * 512) as u16;
    let more = part * 512 + data.len() < len;
    if src.is_ipv4() {
        let mut packet = ip_packet(src, dst, 17, 0, false, data);
        packet[4..6].copy_from_slice(&ident.to_be_bytes());
        let field = (offset / 8) | (u16::from(more) << 13);
        packet[6..8].copy_from_slice(&field.to_be_bytes());
        fix_checksum(&mut packet);
        return packet;
    }
    let field = (offset | u16::from(more)).to_be_bytes();
    let header = [&[17, 0][..], &field, &u32::from(ident).to_be_bytes()].concat();
    ip_packet(src, dst, 44, 0, false, &[&header, data].concat())
}

#[test]
fn workers_receive_their_share_of_the_spis() {
    let [a, b] = or_skip!(cable(1500));
    let arena = arena();
    let mut pool = arena.pool();
    let versions = [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")];
    for ((src, dst), protocol) in
        versions.into_iter().flat_map(|version| [50, 51, 17].map(|p| (version, p)))
    {
        let known = [ip(src), ip(dst)];
        let mut sender = port(&a, "near", esp_to(NEAR, &known[..1]), all_at(NEAR, FAR, &known));
        let take = esp_to(FAR, &known[1..]);
        let (mut workers, _steering, _) = ports(&b, "far", 3, take, all_at(FAR, NEAR, &known));
        let packets: Vec<_> = (0..60)
            .map(|n| {
                let esp = esp(1000 + n % 10, n, 100);
                let before: &[u8] = match protocol {
                    17 => &[17, 148, 17, 148, 0, 116, 0, 0],
                    51 => &[4, 4, 0, 0],
                    _ => &[],
                };
                let body = [before, &esp].concat();
                ip_packet(ip(src), ip(dst), protocol, 0, true, &body)
            })
            .collect();
        sender.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
        for (n, worker) in workers.iter_mut().enumerate() {
            let mine = (1000..1010).filter(|spi| spi % 3 == n).count() * 6;
            let got = receive(worker, &mut pool, mine);
            let at = if src.contains(':') { 40 } else { 20 };
            let at = at + [(17, 8), (51, 4)].iter().find(|p| p.0 == protocol).map_or(0, |p| p.1);
            for packet in &got {
                let spi = u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
                assert_eq!(spi as usize % 3, n);
            }
            assert_eq!(got.len(), mine, "{src} {protocol} worker {n}: {:?}", worker.counters());
        }
    }
}

#[test]
fn hostile_frames_are_counted_and_harm_nothing() {
    let [a, b] = or_skip!(cable(9000));
    let arena = arena();
    let mut pool = arena.pool();
    let mut near = port(&a, "near", forwarded(NEAR), all_at(NEAR, FAR, &[]));
    let injector = Injector::new(&b, "far");
    let good = ip_packet(ip("10.0.0.2"), ip("10.0.0.1"), 50, 0, true, &esp(1, 1, 100));
    let other = |at: usize, bytes: &[u8]| {
        let mut frame = frame(&good);
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let mut tagged = frame(&good);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    let jumbo = ip_packet(ip("10.0.0.2"), ip("10.0.0.1"), 50, 0, true, &esp(1, 1, 8000));
    let cases = [
        (frame(&good), "good"),
        (tagged, "rx_foreign"),
        (other(14, &[0x60]), "rx_malformed"),
        (other(14, &[0]), "rx_malformed"),
        (other(24, &[0xab]), "rx_checksum"),
        (other(33, &[2]), "rx_checksum"),
        (other(14, &[0x46]), "rx_checksum"),
        (frame(&jumbo), "rx_truncated"),
        // To others, to all, ARP, length field, jumbo tags, nothing behind the header: the kernel's.
        (other(0, &[2, 0, 0, 0, 0, 9]), ""),
        (other(0, &[0xff; 6]), ""),
        (other(12, &[8, 6]), ""),
        (other(12, &[0, 46]), ""),
        (other(12, &[0x88, 0xa8]), ""),
        (frame(&[])[..14].to_vec(), ""),
    ];
    let mut expected = std::collections::BTreeMap::new();
    for (frame, counted) in &cases {
        // The kernel refuses what is too short for any header.
        if injector.send(frame) && !counted.is_empty() {
            *expected.entry(*counted).or_insert(0_u64) += 1;
        }
    }
    assert!(injector.send(&frame(&good)));
    assert_eq!(receive(&mut near, &mut pool, 2), [good.clone(), good.clone()]);
    let losses: std::collections::BTreeMap<_, _> =
        near.counters().losses().filter(|l| l.1 > 0).collect();
    expected.remove("good");
    assert_eq!(losses, expected);

    // And any bytes at all: what comes out looks like IP and fits a frame.
    let mut seed = 1_u64;
    let (mut burst, mut out) = (Burst::new(), 0);
    for round in 0..3000_usize {
        let mut bytes = vec![0; 15 + round % 1600];
        pattern(seed, 0, &mut bytes);
        seed = seed.wrapping_mul(31).wrapping_add(round as u64);
        if round % 3 > 0 {
            bytes[..6].copy_from_slice(&NEAR);
            bytes[12..14].copy_from_slice(if round % 3 == 1 { &[8, 0] } else { &[0x86, 0xdd] });
        }
        if round % 5 > 0 {
            bytes[14] = if round % 3 == 1 { 0x45 } else { 0x60 };
        }
        if round % 3 == 1 && bytes.len() >= 34 {
            fix_checksum(&mut bytes[14..34]);
        }
        injector.send(&bytes);
        near.rx(&mut pool, &mut burst).unwrap();
        for packet in burst.as_slice() {
            assert!(matches!(packet.data()[0] >> 4, 4 | 6) && packet.len() <= 1600);
            out += 1;
        }
        burst.release(&mut pool);
    }
    assert!(out > 1000, "{out}: {:?}", near.counters());
    drop((near, pool));
    assert_eq!((arena.in_depot(), arena.leaked()), (FRAMES as usize, 0));
}

#[test]
fn what_is_taken_can_be_changed_while_packets_flow() {
    let [a, b] = or_skip!(cable(1500));
    let arena = arena();
    let mut pool = arena.pool();
    let (mut ports, steering, _) = ports(&a, "near", 1, forwarded(NEAR), all_at(NEAR, FAR, &[]));
    let mut near = ports.remove(0);
    let injector = Injector::new(&b, "far");
    let packet = |to: &str| ip_packet(ip("10.0.0.2"), ip(to), 50, 0, true, &esp(1, 1, 100));
    let mut take = forwarded(NEAR);
    take.what = convoy_io::link::What::Forwarded { except: vec![ip("10.0.0.1")] };
    steering.update(&take).unwrap();
    assert!(injector.send(&frame(&packet("10.0.0.1"))));
    assert!(injector.send(&frame(&packet("10.0.0.7"))));
    assert_eq!(receive(&mut near, &mut pool, 1), [packet("10.0.0.7")]);
    steering.update(&forwarded(NEAR)).unwrap();
    assert!(injector.send(&frame(&packet("10.0.0.1"))));
    assert_eq!(receive(&mut near, &mut pool, 1), [packet("10.0.0.1")]);
    take.what = convoy_io::link::What::Forwarded {
        except: (0..65_u8).map(|n| IpAddr::from([10, 0, 0, n])).collect(),
    };
    assert!(matches!(steering.update(&take), Err(IoError::Take(_))));
}

#[test]
fn large_packets_are_refused_and_a_link_that_is_down_is_no_end() {
    let [a, b] = or_skip!(cable(1300));
    let arena = arena();
    let mut pool = arena.pool();
    let known = [ip("10.0.0.1"), ip("10.0.0.2")];
    let mut near = port(&a, "near", esp_to(NEAR, &known[..1]), all_at(NEAR, FAR, &known));
    let mut far = port(&b, "far", esp_to(FAR, &known[1..]), all_at(FAR, NEAR, &known));
    let packet = |len| ip_packet(known[0], known[1], 50, 0, true, &esp(1, 1, len));
    let packets = [packet(1300), packet(1000)];
    near.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
    assert_eq!(receive(&mut far, &mut pool, 1), [packet(1000)]);
    assert_eq!((near.counters().tx_too_big, near.counters().tx_packets), (1, 1));
    a.ip("link set near down");
    near.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets[1..])).unwrap();
    assert_eq!(near.counters().tx_error, 1);
    assert_eq!(near.rx(&mut pool, &mut Burst::new()).unwrap(), 0);
    a.ip("link set near up");
    // A veth pair takes a moment until it carries again.
    let begun = Instant::now();
    while far.counters().rx_packets < 2 && begun.elapsed() < Duration::from_secs(20) {
        near.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets[1..])).unwrap();
        let mut burst = Burst::new();
        far.rx(&mut pool, &mut burst).unwrap();
        burst.release(&mut pool);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(far.counters().rx_packets >= 2, "{:?} {:?}", near.counters(), far.counters());
}

#[test]
fn a_table_says_how_long_packets_may_be_and_who_sends_longer_ones_is_told() {
    let [a, _b] = or_skip!(cable(1500));
    let arena = arena();
    let mut pool = arena.pool();
    let known = [ip("10.0.0.1"), ip("10.0.0.2")];
    let within = |mtu| all_within(mtu, NEAR, FAR, &known);
    let (board, _asks) = board(within(600));
    let take = esp_to(NEAR, &known[..1]);
    let config = Config::new(interface(&a, "near"), take, board.clone());
    let (mut ports, _steering) = a.run(move || open(&config)).unwrap();
    let near = &mut ports[0];
    let mut send = |len: usize| {
        let packet = ip_packet(known[0], known[1], 50, 0, true, &esp(1, 1, len - 28));
        near.tx(&mut pool, &mut burst_of(&mut arena.pool(), &[packet])).unwrap();
        let told = std::iter::from_fn(|| near.event()).collect::<Vec<_>>();
        (near.counters().tx_packets, near.counters().tx_too_big, told)
    };
    let told = |mtu| PortEvent::PathMtu {
        destination: known[1],
        mtu,
        source: NewsSource::Local,
        quote: Quote::TooShort,
    };
    assert_eq!(send(600), (1, 0, vec![]));
    assert_eq!(send(601), (1, 1, vec![told(600)]));
    board.publish(within(1000));
    assert_eq!(send(1000), (2, 1, vec![]));
    board.publish(within(900));
    assert_eq!(send(1000), (2, 2, vec![told(900)]));
}

#[test]
fn errors_say_what_is_missing() {
    let namespace = or_skip!(Namespace::new());
    let (board, _asks) = board(all_at(NEAR, FAR, &[]));
    let mut missing = interface(&namespace, "lo");
    missing.index = 99;
    let config = Config::new(missing.clone(), forwarded(NEAR), board.clone());
    let error = namespace.run(move || open(&config)).unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot bind the packet socket to its interface: No such device (os error 19)"
    );
    let config = Config { workers: 0, ..Config::new(missing, forwarded(NEAR), board) };
    assert!(matches!(open(&config), Err(IoError::Queues(0))));
}

/// Errors of a router about packets that are too big quote their SPI and number: at the beginning of ESP,
/// four bytes into AH.
#[test]
fn what_a_router_says_quotes_esp_and_ah() {
    let [a, b] = or_skip!(cable(1500));
    a.ip("addr add 10.0.0.1/24 dev near");
    a.ip("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:02 dev near");
    a.settle();
    let arena = arena();
    let mut pool = arena.pool();
    let injector = Injector::new(&b, "far");
    let (own, peer) = (ip("10.0.0.1"), ip("10.0.0.2"));
    let mut near = port(&a, "near", esp_to(NEAR, &[own]), all_at(NEAR, FAR, &[]));
    let numbers = [0x1234_u32.to_be_bytes(), 99_u32.to_be_bytes()].concat();
    for (protocol, in_front) in [(50, &[][..]), (51, &[4, 5, 0, 0])] {
        let quoted =
            ip_packet(own, peer, protocol, 0, true, &[in_front, &numbers, &[0; 40]].concat());
        let mut icmp = [&[3, 4, 0, 0, 0, 0][..], &1300_u16.to_be_bytes(), &quoted].concat();
        let sum = icmp_checksum(&icmp);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        assert!(injector.send(&frame(&ip_packet(peer, own, 1, 0, true, &icmp))));
        // A quiet tunnel: a worker that sleeps looks now and then.
        let event = (0..50).find_map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            near.rx(&mut pool, &mut Burst::new()).unwrap();
            near.event()
        });
        let event = event.unwrap_or_else(|| panic!("nothing heard of {protocol}"));
        let PortEvent::PathMtu { destination, mtu, quote, .. } = event else {
            panic!("{protocol}: {event:?}")
        };
        let expected = Quote::Esp { spi: 0x1234, seq_low: 99 };
        assert_eq!((destination, mtu, quote), (peer, 1300, expected), "protocol {protocol}");
    }
}

/// RFC 1071 over an even number of bytes, computed as it is defined.
fn icmp_checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}
