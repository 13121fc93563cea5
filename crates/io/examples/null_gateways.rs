//! The ceiling of the data path: two gateways that do everything but cryptography.
//!
//! host namespace's TCP → TUN → a thread that puts outer headers on → UDP over veth → a thread that
//! takes them off → TUN → TCP. Each gateway is one thread in its own network namespace. Prints
//! throughput and the processor time of both threads. Needs the right to make network namespaces.
//!
//! `cargo run --release -p convoy-io --example null_gateways -- [SECONDS] [MTU] [udp|raw]`
#![allow(clippy::unwrap_used)]

#[path = "../tests/it/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Namespace, esp, ip_packet};
use convoy_io::{Port, PortCounters, raw, tun, udp};
use convoy_packet::{Arena, Burst, FrameSize};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |or: u64| arguments.next().map_or(or, |a| a.parse().unwrap());
    let (seconds, mtu) = (number(3), number(1400));
    let native = arguments.next().is_some_and(|a| a == "raw");
    let (left, right) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    left.ip(&format!("link add wire type veth peer name wire netns {}", right.id()));
    for (namespace, n) in [(&left, 1), (&right, 2)] {
        namespace.ip(&format!("addr add 10.8.0.{n}/24 dev wire"));
        namespace.ip("link set wire up");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let gateway = |namespace: &Namespace, n: u8, peer: u8| {
        let plain = namespace.run(|| tun::open(&tun::Config::new("plain0"))).unwrap().remove(0);
        namespace.ip(&format!("link set plain0 mtu {mtu} up"));
        namespace.ip(&format!("addr add 10.9.0.{n}/24 dev plain0"));
        let (here, there): (IpAddr, IpAddr) = ([10, 8, 0, n].into(), [10, 8, 0, peer].into());
        let wire: Box<dyn Port> = namespace.run(move || -> Box<dyn Port> {
            if native {
                Box::new(raw::open(&raw::Config::new(here)).unwrap().remove(0))
            } else {
                Box::new(udp::open(&udp::Config::new((here, 4500).into())).unwrap().remove(0))
            }
        });
        let mut headers = [4500_u16.to_be_bytes(), 4500_u16.to_be_bytes(), [0; 2], [0; 2]].concat();
        let protocol = if native { 50 } else { 17 };
        headers.truncate(if native { 0 } else { 8 });
        headers.extend(esp(1, 1, 0));
        let headers = ip_packet(here, there, protocol, 0, true, &headers);
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || forward(plain, wire, &headers, &stop))
    };
    let threads = [gateway(&left, 1, 2), gateway(&right, 2, 1)];

    let listener = right.run(|| TcpListener::bind("10.9.0.2:7000")).unwrap();
    let mut client = left.run(|| TcpStream::connect("10.9.0.2:7000")).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let received = Arc::new(AtomicU64::new(0));
    let received_there = Arc::clone(&received);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        while let Ok(n @ 1..) = server.read(&mut buffer) {
            received_there.fetch_add(n as u64, Ordering::Relaxed);
        }
    });
    let begin = Instant::now();
    let buffer = vec![0x55; 256 << 10];
    while begin.elapsed() < Duration::from_secs(seconds) {
        client.write_all(&buffer).unwrap();
    }
    let gigabits = received.load(Ordering::Relaxed) as f64 * 8.0 / 1e9;
    let rate = gigabits / begin.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    println!("{rate:.2} Gb/s");
    for (thread, name) in threads.into_iter().zip(["sending", "receiving"]) {
        let (plain, wire, cpu) = thread.join().unwrap();
        println!("{name} gateway: {:.2} Gb per processor second", gigabits / cpu);
        println!("  plain: {plain:?}\n  wire:  {wire:?}");
    }
    std::process::exit(0);
}

fn forward(
    mut plain: tun::TunPort,
    mut wire: Box<dyn Port>,
    headers: &[u8],
    stop: &AtomicBool,
) -> (PortCounters, PortCounters, f64) {
    let arena = Arena::map(2048, FrameSize::for_packet(1500)).unwrap();
    let (mut pool, mut burst) = (arena.pool(), Burst::new());
    while !stop.load(Ordering::Relaxed) {
        let out = plain.rx(&mut pool, &mut burst).unwrap();
        for frame in burst.as_mut_slice() {
            frame.grow_front(headers.len()).unwrap().copy_from_slice(headers);
            let len = frame.len() as u16;
            frame.data_mut()[2..4].copy_from_slice(&len.to_be_bytes());
            if headers.len() == 36 {
                frame.data_mut()[24..26].copy_from_slice(&(len - 20).to_be_bytes());
            }
        }
        wire.tx(&mut pool, &mut burst).unwrap();
        let back = wire.rx(&mut pool, &mut burst).unwrap();
        burst.as_mut_slice().iter_mut().for_each(|frame| frame.shrink_front(headers.len()));
        plain.tx(&mut pool, &mut burst).unwrap();
        if out + back == 0 {
            std::thread::yield_now();
        }
    }
    (plain.counters(), wire.counters(), processor_time())
}

/// Processor seconds of this thread so far.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap() / 100.0;
    ticks(11) + ticks(12)
}
