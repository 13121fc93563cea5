//! Speed at which one thread sends and another receives packets through the wire ports.
//!
//! Two network namespaces joined by veth; one thread sends bursts of ESP-like packets, one receives
//! them. Prints throughput and the processor time of each thread. Needs the right to make network
//! namespaces.
//!
//! `cargo run --release -p convoy-io --example wire_throughput -- [SECONDS] [PAYLOAD]`
#![allow(clippy::unwrap_used)]

#[path = "../tests/it/common/mod.rs"]
mod common;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Namespace, esp, ip_packet};
use convoy_io::{Port, PortCounters, raw, udp};
use convoy_packet::{Arena, Burst, FrameSize};

type AnyPort = Box<dyn Port>;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>().unwrap());
    let seconds = Duration::from_secs(arguments.next().unwrap_or(3) as u64);
    let payload = arguments.next().unwrap_or(1400);
    let (left, right) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    left.ip(&format!("link add wire type veth peer name wire netns {}", right.id()));
    for (namespace, n) in [(&left, 1), (&right, 2)] {
        namespace.ip(&format!("addr add 10.8.0.{n}/24 dev wire"));
        namespace.ip("link set wire up");
    }
    let (a, b): (IpAddr, IpAddr) = ("10.8.0.1".parse().unwrap(), "10.8.0.2".parse().unwrap());

    let open_udp = |namespace: &Namespace, ip, offload| -> AnyPort {
        let config = udp::Config { offload, ..udp::Config::new(SocketAddr::new(ip, 4500)) };
        Box::new(namespace.run(move || udp::open(&config)).unwrap().remove(0))
    };
    let mut body = [4500_u16.to_be_bytes(), 4500_u16.to_be_bytes()].concat();
    body.extend((8 + 8 + payload as u16).to_be_bytes());
    body.extend([0, 0]);
    body.extend(esp(1, 1, payload));
    let packet = ip_packet(a, b, 17, 0, true, &body);
    for offload in [true, false] {
        println!("udp, offloads {offload}:");
        run(open_udp(&left, a, offload), open_udp(&right, b, offload), &packet, seconds);
    }
    let open_raw = |namespace: &Namespace, ip| -> AnyPort {
        let config = raw::Config::new(ip);
        Box::new(namespace.run(move || raw::open(&config)).unwrap().remove(0))
    };
    println!("raw:");
    let packet = ip_packet(a, b, 50, 0, true, &esp(1, 1, payload));
    run(open_raw(&left, a), open_raw(&right, b), &packet, seconds);
}

fn run(left: AnyPort, right: AnyPort, packet: &[u8], time: Duration) {
    let stop = Arc::new(AtomicBool::new(false));
    let stop_there = Arc::clone(&stop);
    let receiver = std::thread::spawn(move || receive(right, &stop_there));
    let (sent, sending) = send(left, packet, time);
    stop.store(true, Ordering::Relaxed);
    let (received, receiving) = receiver.join().unwrap();
    let gigabits = |bytes: u64| bytes as f64 * 8.0 / 1e9;
    let line = |what, packets: u64, bytes: u64, calls: u64, cpu: f64| {
        println!(
            "  {what}: {:.2} Gb/s, {:.2} Gb and {:.2} M packets per processor second, {:.1} packets a call",
            gigabits(bytes) / time.as_secs_f64(),
            gigabits(bytes) / cpu,
            packets as f64 / 1e6 / cpu,
            packets as f64 / calls as f64,
        );
    };
    line("sent", sent.tx_packets, sent.tx_bytes, sent.tx_calls, sending);
    line("received", received.rx_packets, received.rx_bytes, received.rx_calls, receiving);
    println!(
        "  kernel drops {}, sender {:?}",
        received.rx_kernel_drops,
        sent.losses().map(|l| l.1).sum::<u64>()
    );
}

fn send(mut port: AnyPort, packet: &[u8], time: Duration) -> (PortCounters, f64) {
    let arena = Arena::map(512, FrameSize::for_packet(packet.len())).unwrap();
    let (mut pool, mut burst) = (arena.pool(), Burst::new());
    let begin = (Instant::now(), processor_time());
    while begin.0.elapsed() < time {
        while !burst.is_full() {
            let mut frame = pool.alloc().unwrap();
            // The payload stays what the frame held last: only headers cost the sender anything.
            frame.fill_from(&packet[..packet.len().min(64)]).unwrap();
            frame.set_len(packet.len()).unwrap();
            burst.push(frame).unwrap();
        }
        port.tx(&mut pool, &mut burst).unwrap();
    }
    (port.counters(), processor_time() - begin.1)
}

fn receive(mut port: AnyPort, stop: &AtomicBool) -> (PortCounters, f64) {
    let arena = Arena::map(1024, FrameSize::for_packet(1600)).unwrap();
    let (mut pool, mut burst) = (arena.pool(), Burst::new());
    let begin = processor_time();
    while !stop.load(Ordering::Relaxed) {
        if port.rx(&mut pool, &mut burst).unwrap() == 0 {
            std::thread::yield_now();
        }
        burst.release(&mut pool);
    }
    (port.counters(), processor_time() - begin)
}

/// Processor seconds of this thread so far.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap() / 100.0;
    ticks(11) + ticks(12)
}
