//! Speed at which one thread carries kernel TCP between two TUN devices.
//!
//! Two network namespaces, a TUN device in each, one thread that moves packets between them, and
//! one TCP stream of the kernel through it. Prints throughput, packets, and the processor time of
//! the carrying thread. Needs the right to make network namespaces.
//!
//! `cargo run --release -p convoy-io --example tun_throughput -- [SECONDS] [MTU]`
#![allow(clippy::unwrap_used)]

#[path = "../tests/it/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::Namespace;
use convoy_io::{Port, tun};
use convoy_packet::{Arena, Burst, FrameSize};

fn open(namespace: &Namespace, host: u8, mtu: u32) -> tun::TunPort {
    let port = namespace.run(|| tun::open(&tun::Config::new("plain0"))).unwrap().remove(0);
    namespace.ip(&format!("link set plain0 mtu {mtu} up"));
    namespace.ip(&format!("addr add 10.9.0.{host}/24 dev plain0"));
    port
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u32>().unwrap());
    let seconds = arguments.next().unwrap_or(3);
    let mtu = arguments.next().unwrap_or(1400);
    let (left, right) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let (mut a, mut b) = (open(&left, 1, mtu), open(&right, 2, mtu));
    println!("offloads: {}", a.offloads());
    let stop = Arc::new(AtomicBool::new(false));
    let stop_there = Arc::clone(&stop);
    let pump = std::thread::spawn(move || {
        let arena = Arena::map(2048, FrameSize::for_packet(mtu as usize)).unwrap();
        let (mut pool, mut burst) = (arena.pool(), Burst::new());
        let mut idle = 0_u64;
        while !stop_there.load(Ordering::Relaxed) {
            let mut n = a.rx(&mut pool, &mut burst).unwrap();
            b.tx(&mut pool, &mut burst).unwrap();
            n += b.rx(&mut pool, &mut burst).unwrap();
            a.tx(&mut pool, &mut burst).unwrap();
            if n == 0 {
                idle += 1;
                std::thread::yield_now();
            }
        }
        (a.counters(), b.counters(), idle, processor_time())
    });
    let listener = right.run(|| TcpListener::bind("10.9.0.2:7000")).unwrap();
    let mut client = left.run(|| TcpStream::connect("10.9.0.2:7000")).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let received = Arc::new(AtomicU64::new(0));
    let received_there = Arc::clone(&received);
    let sink = std::thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        while let Ok(n @ 1..) = server.read(&mut buffer) {
            received_there.fetch_add(n as u64, Ordering::Relaxed);
        }
    });
    let begin = Instant::now();
    let buffer = vec![0x55; 256 << 10];
    while begin.elapsed() < Duration::from_secs(u64::from(seconds)) {
        client.write_all(&buffer).unwrap();
    }
    let elapsed = begin.elapsed().as_secs_f64();
    let bytes = received.load(Ordering::Relaxed);
    stop.store(true, Ordering::Relaxed);
    let (a, b, idle, (user, system)) = pump.join().unwrap();
    drop((client, sink));
    let gigabits = bytes as f64 * 8.0 / 1e9;
    println!("{:.2} Gb/s over {elapsed:.1} s", gigabits / elapsed);
    println!("carrying thread: {user:.2} s user, {system:.2} s system, {idle} idle rounds");
    println!("{:.2} Gb per processor second of the carrying thread", gigabits / (user + system));
    println!("left:  {a:?}\nright: {b:?}");
    std::process::exit(0);
}

/// User and system seconds of this thread so far.
fn processor_time() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap() / 100.0;
    (ticks(11), ticks(12))
}
