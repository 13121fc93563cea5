//! ICMP messages that somebody made up about the path of a port.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::common::wire::plug;
use crate::common::{Namespace, burst_of, esp, event, ip_packet, receive};
use convoy_io::{NewsSource, Port, PortEvent, Quote, raw, udp};
use convoy_packet::{Arena, Burst, FrameSize};
use socket2::{Domain, Protocol, Socket, Type};

const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// MTU that the liar says of an IPv4 path, and the least that it can say of one of IPv6.
const LIE: u32 = 560;
const LIE_V6: u32 = 1280;
const ENDS: [(&str, &str); 2] = [("10.8.0.1", "10.8.0.2"), ("fd00:8::1", "fd00:8::2")];

fn arena() -> &'static Arena {
    Arena::map(512, FrameSize::for_packet(4000)).unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Two hosts on one wire of 1,500 bytes.
fn hosts() -> Result<[Namespace; 2], String> {
    let hosts = [Namespace::new()?, Namespace::new()?];
    plug(&hosts[0], "wire", &hosts[1], "wire", 1500);
    for (n, host) in hosts.iter().enumerate() {
        host.ip(&format!("addr add {}/24 dev wire", [ENDS[0].0, ENDS[0].1][n]));
        host.ip(&format!("addr add {}/64 dev wire nodad", [ENDS[1].0, ENDS[1].1][n]));
        host.ip("link set wire up");
    }
    hosts.iter().for_each(Namespace::settle);
    Ok(hosts)
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    (!((sum >> 16) + sum) as u16).to_be_bytes()
}

/// Tells `to` that a packet from it was too big: what a router would say (RFC 1191 section 4, RFC 4443
/// section 3.2) and anybody can.
fn lie(liar: &Namespace, to: IpAddr, quoted: Vec<u8>) {
    lies(liar, to, &quoted, 1);
}

/// Tells it so many times.
fn lies(liar: &Namespace, to: IpAddr, quoted: &[u8], times: usize) {
    let (head, mtu) = if to.is_ipv4() { ([3, 4], LIE) } else { ([2, 0], LIE_V6) };
    let mut message = [&head[..], &[0, 0], &mtu.to_be_bytes(), quoted].concat();
    let (domain, protocol) = if to.is_ipv4() {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum);
        (Domain::IPV4, Protocol::ICMPV4)
    } else {
        (Domain::IPV6, Protocol::ICMPV6)
    };
    liar.run(move || {
        let socket = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
        for _ in 0..times {
            socket.send_to(&message, &SocketAddr::new(to, 0).into()).unwrap();
        }
    });
}

/// The kernel's route to `far`, as `ip` prints it.
fn route(host: &Namespace, far: IpAddr) -> String {
    host.run(move || {
        let output =
            std::process::Command::new("ip").args(["route", "get", &far.to_string()]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    })
}

/// Fragments that a host has made so far.
fn fragments_made(host: &Namespace) -> u64 {
    let text = host.run(|| {
        let read =
            |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
        (read("snmp"), read("snmp6"))
    });
    let mut lines = text.0.lines().filter(|line| line.starts_with("Ip:"));
    let at = lines.next().unwrap().split(' ').position(|name| name == "FragCreates").unwrap();
    let v4: u64 = lines.next().unwrap().split(' ').nth(at).unwrap().parse().unwrap();
    let v6 = text.1.lines().find(|line| line.starts_with("Ip6FragCreates")).unwrap();
    v4 + v6.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
}

fn in_udp(from: IpAddr, to: IpAddr, df: bool, payload: &[u8]) -> Vec<u8> {
    let mut udp = [4500_u16.to_be_bytes(), 4500_u16.to_be_bytes()].concat();
    udp.extend((8 + payload.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    ip_packet(from, to, UDP, 0, df, &udp)
}

/// One packet of a port without DF, whether in UDP or not.
fn packet(protocol: u8, from: IpAddr, to: IpAddr, len: usize) -> Vec<u8> {
    let esp = esp(7, 1, len);
    match protocol {
        UDP => in_udp(from, to, false, &esp),
        _ => ip_packet(from, to, protocol, 0, false, &esp),
    }
}

/// The port for `protocol` at `local`.
fn open(host: &Namespace, protocol: u8, local: IpAddr) -> Box<dyn Port> {
    match protocol {
        UDP => {
            let config = udp::Config::new(SocketAddr::new(local, 4500));
            Box::new(host.run(move || udp::open(&config)).unwrap().remove(0))
        }
        _ => {
            let config = raw::Config { protocol, ..raw::Config::new(local) };
            Box::new(host.run(move || raw::open(&config)).unwrap().remove(0))
        }
    }
}

/// Whoever asks for no DF has no use for such news, and the kernel would keep it for ten minutes.
#[test]
fn what_is_made_up_about_a_port_without_df_does_not_get_into_the_kernels_routes() {
    let [near, far] = or_skip!(hosts());
    let arena = arena();
    let mut pool = arena.pool();
    let (local, peer) = (address(ENDS[0].0), address(ENDS[0].1));
    for protocol in [UDP, raw::ESP, raw::AH] {
        let mut port = open(&near, protocol, local);
        // A DF bit before must not leave anything behind.
        if protocol == UDP {
            let with_df = [in_udp(local, peer, true, &esp(7, 0, 100))];
            port.tx(&mut pool, &mut burst_of(&mut arena.pool(), &with_df)).unwrap();
        }
        let sent = [packet(protocol, local, peer, 100)];
        port.tx(&mut pool, &mut burst_of(&mut arena.pool(), &sent)).unwrap();
        let spi = if protocol == raw::AH { vec![0; 4] } else { vec![] };
        let quoted = [&spi[..], &esp(0xdead, 99, 100)].concat();
        let quoted = match protocol {
            UDP => in_udp(local, peer, true, &quoted),
            _ => ip_packet(local, peer, protocol, 0, true, &quoted),
        };
        lie(&far, local, quoted);
        // The port hears it, so the kernel has done with it what it does. Earlier packets found nobody.
        let heard = std::iter::repeat_with(|| event(&mut port, &mut pool))
            .take(8)
            .find(|event| !matches!(event, Some(PortEvent::Unreachable { .. })));
        let source = NewsSource::Icmp(Some(peer));
        let quote = Quote::Esp { spi: 0xdead, seq_low: 99 };
        let news = PortEvent::PathMtu { destination: peer, mtu: LIE, source, quote };
        assert_eq!(heard, Some(Some(news)), "protocol {protocol}");
        let route = route(&near, peer);
        assert!(!route.contains("mtu"), "protocol {protocol}: {route}");
    }
}

/// The kernel also takes it from an echo that nobody sent, which no socket can keep it from.
#[test]
fn what_the_kernel_believes_of_a_path_changes_no_packet_of_a_port() {
    let [near, far] = or_skip!(hosts());
    let arena = arena();
    let mut pool = arena.pool();
    for (local, peer) in ENDS {
        let (local, peer) = (address(local), address(peer));
        let (icmp, echo_reply) = if local.is_ipv4() { (ICMP, 0) } else { (ICMPV6, 129) };
        let mut quoted = vec![0; 64];
        quoted[0] = echo_reply;
        let begun = Instant::now();
        while !route(&near, peer).contains("mtu") {
            lie(&far, local, ip_packet(local, peer, icmp, 0, true, &quoted));
            assert!(begun.elapsed() < Duration::from_secs(20), "the kernel was to believe it");
        }
        for protocol in [UDP, raw::ESP] {
            let (mut left, mut right) = (open(&near, protocol, local), open(&far, protocol, peer));
            let headers = packet(protocol, local, peer, 0).len();
            let before = fragments_made(&near);
            let whole = vec![packet(protocol, local, peer, 1500 - headers); 3];
            left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &whole)).unwrap();
            assert_eq!(receive(&mut right, &mut pool, 3).len(), 3, "{local}, protocol {protocol}");
            assert_eq!(fragments_made(&near), before, "{local}, protocol {protocol}");
            // What the wire cannot take becomes fragments of its own size.
            if local.is_ipv4() {
                let large = [packet(protocol, local, peer, 2900 - headers)];
                left.tx(&mut pool, &mut burst_of(&mut arena.pool(), &large)).unwrap();
                assert_eq!(receive(&mut right, &mut pool, 1).len(), 1, "protocol {protocol}");
                assert_eq!(fragments_made(&near), before + 2, "protocol {protocol}");
            }
        }
        assert!(route(&near, peer).contains("mtu"));
    }
}

/// Each message of a flood woke the worker, which left a quarter of the throughput.
#[test]
fn a_flood_of_made_up_messages_is_left_to_the_kernel_and_news_come_again_behind_it() {
    let [near, far] = or_skip!(hosts());
    let arena = arena();
    let mut pool = arena.pool();
    for (local, peer) in ENDS {
        let (local, peer) = (address(local), address(peer));
        for protocol in [UDP, raw::ESP] {
            let mut port = open(&near, protocol, local);
            let quoted = |spi: u32| {
                let quoted = esp(spi, 99, 100);
                match protocol {
                    UDP => in_udp(local, peer, true, &quoted),
                    _ => ip_packet(local, peer, protocol, 0, true, &quoted),
                }
            };
            let is_about = |event: &PortEvent, wanted: u32| matches!(event, PortEvent::PathMtu { quote: Quote::Esp { spi, .. }, .. } if *spi == wanted);
            let mut look = |port: &mut Box<dyn Port>, spi: u32| {
                let mut burst = Burst::new();
                // A pending error is reported in place of data, and is the sign.
                port.rx(&mut pool, &mut burst).unwrap();
                burst.release(&mut pool);
                std::iter::from_fn(|| port.event()).filter(|event| is_about(event, spi)).count()
            };
            let (mut sent, mut heard) = (0, 0);
            for _ in 0..20 {
                lies(&far, local, &quoted(0xf100d), 400);
                sent += 400;
                heard += look(&mut port, 0xf100d);
            }
            assert!(heard > 0 && heard < sent / 2, "{heard} of {sent} were heard");
            let begun = Instant::now();
            loop {
                lie(&far, local, quoted(0xbeef));
                if look(&mut port, 0xbeef) > 0 {
                    break;
                }
                assert!(begun.elapsed() < Duration::from_secs(20), "news do not come any more");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}
