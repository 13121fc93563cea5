//! No nonce is ever used twice, and no packet is accepted twice, however a gateway ends.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Gateway, Plan, dropped, status};
use convoy_lab::{Family, Namespace, Topology, TopologyConfig};
use socket2::{Domain, Protocol, Socket, Type};

const CYCLES: u32 = 220;

/// Records every ESP packet that arrives in a namespace.
struct Listener {
    stop: Arc<AtomicBool>,
    heard: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<Vec<Vec<u8>>>>,
}

impl Listener {
    fn start(namespace: &Namespace, keep: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let heard = Arc::new(AtomicU64::new(0));
        let socket = namespace
            .run(|| {
                let socket =
                    Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(50))).unwrap();
                socket.set_recv_buffer_size(64 << 20).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                socket
            })
            .unwrap();
        let (flag, count) = (stop.clone(), heard.clone());
        let thread = std::thread::spawn(move || {
            let mut packets = Vec::new();
            let mut buffer = vec![0_u8; 2048];
            let socket: UdpSocket = socket.into();
            while !flag.load(Ordering::Relaxed) {
                match socket.recv(&mut buffer) {
                    Ok(n) => {
                        packets.push(buffer[..n.min(keep)].to_vec());
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            packets
        });
        Self { stop, heard, thread: Some(thread) }
    }

    fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    fn finish(mut self) -> Vec<Vec<u8>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Sends small datagrams from a host without end.
struct Sender {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Sender {
    fn start(host: &Namespace, to: SocketAddr) -> Self {
        Self::paced(host, to, 32, Duration::from_micros(500))
    }

    fn paced(host: &Namespace, to: SocketAddr, burst: usize, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let thread = host
            .start("sender", move || {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
                while !flag.load(Ordering::Relaxed) {
                    for _ in 0..burst {
                        // No gateway, no route: that is expected most of the time.
                        let _ = socket.send_to(&[0; 64], to);
                    }
                    std::thread::sleep(pause);
                }
            })
            .unwrap();
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// SPI and IV, which with AES-GCM is the whole 64-bit sequence number, of an IPv4 ESP packet.
fn nonce(packet: &[u8]) -> (u32, u64) {
    let esp = &packet[usize::from(packet[0] & 15) * 4..];
    let spi = u32::from_be_bytes(esp[..4].try_into().unwrap());
    (spi, u64::from_be_bytes(esp[8..16].try_into().unwrap()))
}

/// Small pseudo-random numbers, different in every run.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        println!("seed {}", now.as_nanos() as u64);
        Self(now.as_nanos() as u64 | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        // Xorshift, Marsaglia 2003.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[test]
fn a_gateway_killed_at_random_moments_never_repeats_a_nonce() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = Topology::build(&TopologyConfig { named: false, ..Default::default() }).unwrap();
    // Small blocks, so that a life of some milliseconds needs several.
    let plan = Plan { lease_block: 64, ..Plan::simple() };
    let site = plan.write('a', folder.path());
    let listener = Listener::start(&lab.b.gateway, 36);
    let to = SocketAddr::new(lab.b.host_address(Family::V4), 9);
    let sender = Sender::start(&lab.a.host, to);
    let mut dice = Dice::new();
    let mut lives_with_traffic = 0;
    for _ in 0..CYCLES {
        let before = listener.heard();
        let mut gateway = Gateway::launch(&lab.a.gateway, &site);
        if dice.below(4) == 0 {
            // Somewhere during the start.
            std::thread::sleep(Duration::from_micros(dice.below(40_000)));
        } else {
            assert!(gateway.wait_ready(), "{}", gateway.log());
            std::thread::sleep(Duration::from_micros(dice.below(100_000)));
        }
        gateway.kill();
        lives_with_traffic += u32::from(listener.heard() > before);
    }
    drop(sender);
    std::thread::sleep(Duration::from_millis(100));
    let packets = listener.finish();
    let mut seen: HashMap<(u32, u64), usize> = HashMap::with_capacity(packets.len());
    for (at, packet) in packets.iter().enumerate() {
        if let Some(first) = seen.insert(nonce(packet), at) {
            panic!("nonce {:?} of packet {first} again in packet {at}", nonce(packet));
        }
    }
    println!("{} nonces, {lives_with_traffic} of {CYCLES} lives with traffic", seen.len());
    assert!(lives_with_traffic >= CYCLES / 2 && seen.len() > 10_000);
}

/// Inner packets that the one inbound SA of a gateway has accepted.
fn accepted(site: &std::path::Path) -> u64 {
    let status = status(site);
    let sas = status["sas"].as_array().unwrap_or_else(|| panic!("{status:#}"));
    let inbound = sas.iter().find(|sa| sa["direction"] == "inbound").unwrap();
    inbound["flow"]["packets"].as_u64().unwrap()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + crate::common::PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn packets_accepted_before_a_restart_are_not_accepted_after_it() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    for (orderly, esn) in [(false, true), (true, true), (false, false), (true, false)] {
        let folder = tempfile::tempdir().unwrap();
        let lab = Topology::build(&TopologyConfig { named: false, ..Default::default() }).unwrap();
        let plan = Plan { esn, ..Plan::simple() };
        let (site_a, site_b) = (plan.write('a', folder.path()), plan.write('b', folder.path()));
        let listener = Listener::start(&lab.b.gateway, 2048);
        let a = Gateway::start(&lab.a.gateway, &site_a);
        let b = Gateway::start(&lab.b.gateway, &site_b);
        let to = SocketAddr::new(lab.b.host_address(Family::V4), 9);
        let sender = Sender::start(&lab.a.host, to);
        wait_for("traffic", || accepted(&site_b) > 2000);
        drop(sender);
        std::thread::sleep(Duration::from_millis(50));
        assert!(a.terminate().success());
        if orderly {
            assert!(b.terminate().success());
        } else {
            b.kill();
        }
        let captured = listener.finish();
        assert!(captured.len() > 2000);

        let b = Gateway::start(&lab.b.gateway, &site_b);
        replay(&lab.a.gateway, &captured);
        let rejected = || {
            let status = status(&site_b);
            // With extended numbers a number from long ago is taken for one of the next 2³² (RFC
            // 4303 appendix A2.2), and its ICV is wrong.
            ["too-old", "replayed", "bad-icv"].iter().map(|r| dropped(&status, r)).sum::<u64>()
        };
        wait_for("the replayed packets to be counted", || rejected() >= captured.len() as u64);
        assert_eq!(accepted(&site_b), 0, "orderly end: {orderly}, esn: {esn}");

        // The way is still open for new packets, although after a kill some are refused.
        let a = Gateway::start(&lab.a.gateway, &site_a);
        let sender = Sender::start(&lab.a.host, to);
        wait_for("new packets to be accepted", || accepted(&site_b) > 100);
        drop((sender, a, b));
    }
}

/// A peer that was killed skips the numbers it had leased. That must not be taken for its pace: if we
/// are killed soon after, we would be deaf to it for as many packets.
#[test]
fn a_second_crash_soon_after_both_gateways_crashed_does_not_cut_the_tunnel() {
    if !crate::common::can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = Topology::build(&TopologyConfig { named: false, ..Default::default() }).unwrap();
    let plan = Plan { esn: true, ..Plan::simple() };
    let (site_a, site_b) = (plan.write('a', folder.path()), plan.write('b', folder.path()));
    let to = SocketAddr::new(lab.b.host_address(Family::V4), 9);
    let sender = Sender::paced(&lab.a.host, to, 1, Duration::from_millis(20));
    let a = Gateway::start(&lab.a.gateway, &site_a);
    let b = Gateway::start(&lab.b.gateway, &site_b);
    wait_for("traffic", || accepted(&site_b) > 10);
    a.kill();
    b.kill();
    let a = Gateway::start(&lab.a.gateway, &site_a);
    let b = Gateway::start(&lab.b.gateway, &site_b);
    wait_for("traffic after the first crash", || accepted(&site_b) > 20);
    b.kill();
    let b = Gateway::start(&lab.b.gateway, &site_b);
    wait_for("traffic after the second crash", || accepted(&site_b) > 10);
    let status = status(&site_b);
    let refused: u64 = ["too-old", "bad-icv"].iter().map(|r| dropped(&status, r)).sum();
    // A lease has 2^20 numbers; what may be refused grows with how long a write takes.
    assert!(refused <= 200, "{refused} fresh packets were refused");
    drop((sender, a, b));
}

/// Sends captured packets again as they were, from the namespace they came from.
fn replay(from: &Namespace, packets: &[Vec<u8>]) {
    let socket = from
        .run(|| {
            // IPPROTO_RAW: the header is in the data.
            Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).unwrap()
        })
        .unwrap();
    for (n, packet) in packets.iter().enumerate() {
        let destination = Ipv4Addr::from(<[u8; 4]>::try_from(&packet[16..20]).unwrap());
        socket.send_to(packet, &SocketAddrV4::new(destination, 0).into()).unwrap();
        if n % 64 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}
