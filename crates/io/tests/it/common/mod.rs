//! Network namespaces for tests: each has a thread of its own, in which things are opened.
#![allow(dead_code, unused_macros, unreachable_pub, reason = "examples use a part of it")]

use std::net::IpAddr;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use convoy_io::{Port, PortEvent};
use convoy_packet::{Burst, Pool};
use nix::sched::{CloneFlags, unshare};

pub mod gate;
pub mod wire;

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace that lives as long as this value or anything opened in it.
#[derive(Debug)]
pub struct Namespace {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// A fresh one with its loopback up, or the reason why there can be none.
    pub fn new() -> Result<Self, String> {
        let (jobs, todo) = channel::<Job>();
        let (ready, outcome) = channel();
        let thread = std::thread::spawn(move || {
            let entered = unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|e| format!("no network namespace of one's own: {e}"))
                .and_then(|()| ip("link set lo up"));
            let failed = entered.is_err();
            ready.send(entered).unwrap();
            if !failed {
                todo.into_iter().for_each(|job| job());
            }
        });
        outcome.recv().unwrap()?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `job` inside and returns what it returned. What it opened stays in the namespace.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let job: Job = Box::new(move || drop(done.send(job())));
        self.jobs.as_ref().unwrap().send(job).unwrap();
        result.recv().expect("the job panicked")
    }

    /// The number by which `ip link set … netns` knows the namespace.
    pub fn id(&self) -> i32 {
        self.run(|| nix::unistd::gettid().as_raw())
    }

    /// Waits until packets to all addresses are accepted: the kernel makes the routes of IPv6
    /// addresses in the background.
    pub fn settle(&self) {
        let show = |what: &str| {
            let output = Command::new("ip").args(what.split(' ')).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let settled = move || {
            let routes = show("-6 route show table local");
            show("-6 -o addr show").lines().all(|line| {
                let address = line.split_whitespace().nth(3).unwrap().split('/').next().unwrap();
                routes.contains(&format!("local {address} "))
            })
        };
        while !self.run(settled) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs `ip` inside, which must succeed.
    pub fn ip(&self, arguments: &str) {
        let arguments = arguments.to_owned();
        self.run(move || ip(&arguments)).unwrap();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs `ip` in the namespace of the calling thread.
pub fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("no ip command: {error}")),
    }
}

/// The value, or a loud skip of the calling test.
macro_rules! or_skip {
    ($value:expr) => {
        match $value {
            Ok(value) => value,
            Err(why) => {
                println!("SKIPPED: {why}");
                return;
            }
        }
    };
}

/// Waits for what is certain to come: children of other tests hold copies of closed queues until they
/// have begun their programs.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not come to pass");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes that do not repeat within any packet: byte `i` of stream `seed`.
pub fn pattern(seed: u64, from: u64, into: &mut [u8]) {
    for (i, byte) in into.iter_mut().enumerate() {
        let n = (from + i as u64).wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        *byte = (n >> 56) as u8;
    }
}

/// A burst of the given packets.
pub fn burst_of(pool: &mut Pool, packets: &[Vec<u8>]) -> Burst {
    let mut burst = Burst::new();
    for packet in packets {
        let mut frame = pool.alloc().unwrap();
        frame.fill_from(packet).unwrap();
        burst.push(frame).unwrap();
    }
    burst
}

/// Receives until `count` packets are there or nothing more comes for a long time.
pub fn receive(port: &mut impl Port, pool: &mut Pool, count: usize) -> Vec<Vec<u8>> {
    let (mut burst, mut all) = (Burst::new(), Vec::new());
    let begun = Instant::now();
    while all.len() < count && begun.elapsed() < Duration::from_secs(20) {
        if port.rx(pool, &mut burst).unwrap() == 0 {
            std::thread::yield_now();
        }
        all.extend(burst.as_slice().iter().map(|f| f.data().to_vec()));
        burst.release(pool);
    }
    all
}

/// The next event, waiting for it as long as it takes an ICMP message to arrive.
pub fn event(port: &mut impl Port, pool: &mut Pool) -> Option<PortEvent> {
    let begun = Instant::now();
    let mut burst = Burst::new();
    while begun.elapsed() < Duration::from_secs(20) {
        port.rx(pool, &mut burst).unwrap();
        burst.release(pool);
        if let Some(event) = port.event() {
            return Some(event);
        }
        std::thread::yield_now();
    }
    None
}

/// An outer IP header with `payload` behind it, checksum right.
pub fn ip_packet(
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    tos: u8,
    df: bool,
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut ip = vec![0x45, tos, 0, 0, 0, 0, u8::from(df) << 6, 0, 61, protocol, 0, 0];
            ip[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
            ip.extend(src.octets());
            ip.extend(dst.octets());
            fix_checksum(&mut ip);
            ip
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut ip = vec![0x60 | tos >> 4, tos << 4, 0, 0, 0, 0, protocol, 61];
            ip[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
            ip.extend(src.octets());
            ip.extend(dst.octets());
            ip
        }
        _ => panic!("two families"),
    };
    packet.extend(payload);
    packet
}

/// Makes the checksum of an IPv4 header without options right.
pub fn fix_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum: u32 = packet[..20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let check = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&check.to_be_bytes());
}

/// ESP as far as sockets care: SPI, sequence number, `len` bytes of pattern.
pub fn esp(spi: u32, seq: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; 8 + len];
    bytes[..4].copy_from_slice(&spi.to_be_bytes());
    bytes[4..8].copy_from_slice(&seq.to_be_bytes());
    pattern(u64::from(seq), 0, &mut bytes[8..]);
    bytes
}

/// Two hosts and a router between them whose second link takes 1,300 bytes.
pub fn narrow_path() -> Result<[Namespace; 3], String> {
    let [left, router, right] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
    left.ip(&format!("link add wire type veth peer name left netns {}", router.id()));
    right.ip(&format!("link add wire type veth peer name right netns {}", router.id()));
    for (host, far, n) in [(&left, "left", 1), (&right, "right", 2)] {
        host.ip(&format!("addr add 10.8.{n}.1/24 dev wire"));
        host.ip(&format!("addr add fd00:8:{n}::1/64 dev wire nodad"));
        router.ip(&format!("addr add 10.8.{n}.254/24 dev {far}"));
        router.ip(&format!("addr add fd00:8:{n}::fe/64 dev {far} nodad"));
        host.ip("link set wire up");
        router.ip(&format!("link set {far} up"));
        host.ip(&format!("route add default via 10.8.{n}.254"));
        host.ip(&format!("route add default via fd00:8:{n}::fe"));
    }
    right.ip("link set wire mtu 1300");
    router.ip("link set right mtu 1300");
    router
        .run(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")
        })
        .map_err(|e| format!("no forwarding: {e}"))?;
    [&left, &router, &right].into_iter().for_each(Namespace::settle);
    Ok([left, router, right])
}
