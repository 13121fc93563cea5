//! TUN devices between which real TCP and UDP of the kernel run: its own stack is the judge of
//! what is split and coalesced.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::wire::plug;
use crate::common::{Namespace, burst_of, esp, ip_packet, pattern, receive, until};
use convoy_io::tun::{self, TunPort};
use convoy_io::{IoError, Port, PortCounters, udp};
use convoy_packet::{Arena, Burst, FrameSize};
use socket2::{Domain, Protocol, Socket, Type};

/// Two namespaces, each with a TUN device, and a thread that carries packets between them.
struct Pair {
    left: Namespace,
    right: Namespace,
    stop: Arc<AtomicBool>,
    pump: Option<JoinHandle<(PortCounters, PortCounters)>>,
}

const MTU: u32 = 1400;

impl Pair {
    fn new(offload: bool, room: usize) -> Result<Self, String> {
        let (left, right) = (Namespace::new()?, Namespace::new()?);
        let a = open(&left, offload, 1)?;
        let b = open(&right, offload, 2)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stop_there = Arc::clone(&stop);
        let pump = Some(std::thread::spawn(move || pump(a, b, room, &stop_there)));
        Ok(Self { left, right, stop, pump })
    }

    fn finish(mut self) -> (PortCounters, PortCounters) {
        self.stop.store(true, Ordering::Relaxed);
        self.pump.take().unwrap().join().unwrap()
    }
}

fn open(namespace: &Namespace, offload: bool, host: u8) -> Result<TunPort, String> {
    let config = tun::Config { offload, ..tun::Config::new("plain%d") };
    let port = namespace.run(move || tun::open(&config)).map_err(|e| e.to_string())?.remove(0);
    assert_eq!(port.name(), "plain0");
    assert_eq!(port.offloads().tx_tcp_segments, offload);
    namespace.ip(&format!("link set plain0 mtu {MTU} up"));
    namespace.ip(&format!("addr add 10.9.0.{host}/24 dev plain0"));
    namespace.ip(&format!("addr add fd00:9::{host}/64 dev plain0 nodad"));
    namespace.settle();
    Ok(port)
}

/// Carries packets both ways until told to stop, at most `room` at a time.
fn pump(
    mut a: TunPort,
    mut b: TunPort,
    room: usize,
    stop: &AtomicBool,
) -> (PortCounters, PortCounters) {
    let arena = Arena::map(1024, FrameSize::for_packet(1500)).unwrap();
    let mut pool = arena.pool();
    let mut burst = Burst::new();
    let mut held: Vec<_> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let mut idle = true;
        let mut carry = |from: &mut TunPort, to: &mut TunPort| {
            // Frames that take room, so that super-segments do not fit at once.
            for _ in room..burst.room() {
                burst.push(pool.alloc().unwrap()).unwrap();
            }
            let taken = burst.len();
            let received = from.rx(&mut pool, &mut burst).unwrap();
            held.extend(burst.drain_front(taken));
            held.drain(..).for_each(|frame| pool.free(frame));
            assert_eq!(received, burst.len());
            assert!(burst.as_slice().iter().all(|f| f.len() <= MTU as usize));
            to.tx(&mut pool, &mut burst).unwrap();
            assert!(burst.is_empty());
            idle &= received == 0;
        };
        carry(&mut a, &mut b);
        carry(&mut b, &mut a);
        if idle {
            std::thread::yield_now();
        }
    }
    drop(pool);
    assert_eq!((arena.in_depot(), arena.leaked()), (1024, 0));
    (a.counters(), b.counters())
}

fn send_all(mut stream: TcpStream, seed: u64, bytes: u64) {
    let mut buffer = vec![0; 50_000];
    let mut at = 0;
    while at < bytes {
        let n = (bytes - at).min(buffer.len() as u64) as usize;
        pattern(seed, at, &mut buffer[..n]);
        stream.write_all(&buffer[..n]).unwrap();
        at += n as u64;
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
}

fn receive_all(mut stream: TcpStream, seed: u64) -> u64 {
    let (mut buffer, mut expected) = (vec![0; 70_000], vec![0; 70_000]);
    let mut at = 0;
    loop {
        let n = stream.read(&mut buffer).unwrap();
        if n == 0 {
            return at;
        }
        pattern(seed, at, &mut expected[..n]);
        assert!(buffer[..n] == expected[..n], "wrong data near byte {at}");
        at += n as u64;
    }
}

/// Bulk TCP in both directions at once over each address family.
fn tcp_both_ways(pair: &Pair, bytes: u64) {
    for address in ["10.9.0.2:7000", "[fd00:9::2]:7000"] {
        let address: SocketAddr = address.parse().unwrap();
        let listener = pair.right.run(move || TcpListener::bind(address)).unwrap();
        let client = pair.left.run(move || TcpStream::connect(address)).unwrap();
        let (server, _) = listener.accept().unwrap();
        let clones = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let senders = [
            std::thread::spawn(move || send_all(clones.0, 1, bytes)),
            std::thread::spawn(move || send_all(clones.1, 2, bytes)),
        ];
        let at_client = std::thread::spawn(move || receive_all(client, 2));
        assert_eq!(receive_all(server, 1), bytes);
        assert_eq!(at_client.join().unwrap(), bytes);
        senders.into_iter().for_each(|s| s.join().unwrap());
    }
}

#[test]
fn tcp_crosses_two_devices_as_super_segments_without_loss() {
    let pair = or_skip!(Pair::new(true, 256));
    tcp_both_ways(&pair, 20_000_000);
    let (a, b) = pair.finish();
    for counters in [a, b] {
        assert!(counters.rx_supers > 100 && counters.tx_supers > 100, "{counters:?}");
        assert_eq!(counters.losses().filter(|(_, n)| *n > 0).count(), 0, "{counters:?}");
        // The point of it all: far fewer system calls than packets.
        assert!(counters.tx_calls * 2 < counters.tx_packets, "{counters:?}");
    }
}

#[test]
fn super_segments_that_do_not_fit_the_burst_are_continued() {
    let pair = or_skip!(Pair::new(true, 7));
    tcp_both_ways(&pair, 3_000_000);
    let (a, _) = pair.finish();
    assert!(a.rx_supers > 10, "{a:?}");
    assert_eq!(a.losses().map(|(_, n)| n).sum::<u64>(), 0, "{a:?}");
}

#[test]
fn tcp_crosses_without_offloads_too() {
    let pair = or_skip!(Pair::new(false, 256));
    tcp_both_ways(&pair, 3_000_000);
    let (a, b) = pair.finish();
    assert_eq!((a.rx_supers, b.tx_supers), (0, 0));
    assert_eq!(a.rx_packets, b.tx_packets);
}

#[test]
fn udp_datagrams_of_every_size_arrive_intact() {
    let pair = or_skip!(Pair::new(true, 256));
    for (from, to) in [("10.9.0.1:5000", "10.9.0.2:5001"), ("[fd00:9::1]:5000", "[fd00:9::2]:5001")]
    {
        let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
        let sender = pair.left.run(move || UdpSocket::bind(from)).unwrap();
        let receiver = pair.right.run(move || UdpSocket::bind(to)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut buffer = [0; 2000];
        for len in 1..=1352_usize {
            let mut payload = vec![0; len];
            pattern(len as u64, 0, &mut payload);
            sender.send_to(&payload, to).unwrap();
            let (got, source) = loop {
                match receiver.recv_from(&mut buffer) {
                    // Other tests of this program have signals sent.
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    other => break other.unwrap_or_else(|e| panic!("{to} {len}: {e}")),
                }
            };
            assert!(buffer[..got] == payload, "datagram of {len} bytes");
            assert_eq!(source, from);
        }
    }
    let (a, b) = pair.finish();
    assert_eq!((a.rx_malformed, b.tx_error, b.tx_malformed), (0, 0, 0));
}

#[test]
fn udp_super_segments_cross_two_devices_unchanged() {
    let pair = or_skip!(Pair::new(true, 256));
    let arena = Arena::map(1024, FrameSize::for_packet(1500)).unwrap();
    let mut pool = arena.pool();
    // A UDP port of this library sends and receives in segments, so that the kernel has
    // super-segments for the TUN device.
    for (a, b) in [("10.9.0.1:4500", "10.9.0.2:4500"), ("[fd00:9::1]:4500", "[fd00:9::2]:4500")] {
        let (a, b): (SocketAddr, SocketAddr) = (a.parse().unwrap(), b.parse().unwrap());
        let open = |at| move || udp::open(&udp::Config::new(at)).unwrap().remove(0);
        let (mut sender, mut receiver) = (pair.left.run(open(a)), pair.right.run(open(b)));
        let mut ids = Vec::new();
        for round in 0..20_u32 {
            let packets: Vec<_> = (0..100)
                .map(|n| {
                    let esp = esp(5, round * 100 + n, if n == 99 { 17 } else { 1200 });
                    let mut udp = [a.port().to_be_bytes(), b.port().to_be_bytes()].concat();
                    udp.extend((8 + esp.len() as u16).to_be_bytes());
                    udp.extend([0, 0]);
                    udp.extend(esp);
                    ip_packet(a.ip(), b.ip(), 17, 0, true, &udp)
                })
                .collect();
            sender.tx(&mut pool, &mut burst_of(&mut arena.pool(), &packets)).unwrap();
            let got = receive(&mut receiver, &mut pool, 100);
            assert_eq!(got.len(), 100, "{:?}", sender.counters());
            let headers = if a.is_ipv4() { 20 } else { 40 };
            for (got, sent) in got.iter().zip(&packets) {
                assert!(got[headers..] == sent[headers..], "round {round}");
                ids.push(u32::from_be_bytes(got[headers + 12..headers + 16].try_into().unwrap()));
            }
        }
        assert!(ids.into_iter().eq(0..2000));
    }
    let (left, right) = pair.finish();
    assert_eq!(left.losses().map(|(_, n)| n).sum::<u64>(), 0, "{left:?}");
    assert_eq!(right.losses().map(|(_, n)| n).sum::<u64>(), 0, "{right:?}");
    assert!(left.rx_supers > 50 && right.tx_supers > 50, "{left:?} {right:?}");
}

#[test]
fn a_device_of_several_queues_gives_one_port_each() {
    let namespace = or_skip!(Namespace::new());
    let config = tun::Config { queues: 3, ..tun::Config::new("multi") };
    let ports = namespace.run(move || tun::open(&config)).unwrap();
    assert_eq!(ports.len(), 3);
    assert!(ports.iter().all(|p| p.name() == "multi" && p.fd().is_some()));
    namespace.ip("link set multi up");
    let none = tun::Config { queues: 0, ..tun::Config::new("none") };
    assert!(matches!(tun::open(&none), Err(IoError::Queues(0))));
}

#[test]
fn packets_that_the_full_queue_drops_are_counted() {
    let namespace = or_skip!(Namespace::new());
    let config = tun::Config { queue_len: Some(10), ..tun::Config::new("full") };
    let (mut port, mut drops) = namespace.run(move || {
        (tun::open(&config).unwrap().remove(0), tun::QueueDrops::new("full").unwrap())
    });
    namespace.ip("link set full up");
    namespace.ip("addr add 10.9.0.1/24 dev full");
    let before = drops.read().unwrap();
    let socket = namespace.run(|| UdpSocket::bind("10.9.0.1:5000")).unwrap();
    let arena = Arena::map(256, FrameSize::for_packet(1500)).unwrap();
    let (mut pool, mut burst) = (arena.pool(), Burst::new());
    for _ in 0..100 {
        socket.send_to(&[7; 100], "10.9.0.2:5001").unwrap();
    }
    port.rx(&mut pool, &mut burst).unwrap();
    let received = burst.as_slice().iter().filter(|f| f.len() == 128).count() as u64;
    burst.release(&mut pool);
    assert!(received <= 11, "{received}");
    assert!(drops.read().unwrap() - before >= 100 - received);
    assert!(tun::QueueDrops::new("no such device").is_err());
}

#[test]
fn a_removed_device_is_a_dead_port_and_frames_come_back() {
    let namespace = or_skip!(Namespace::new());
    let mut port = namespace.run(|| tun::open(&tun::Config::new("gone"))).unwrap().remove(0);
    namespace.ip("link set gone up");
    let arena = Arena::map(8, FrameSize::for_packet(1500)).unwrap();
    let (mut pool, mut burst) = (arena.pool(), Burst::new());
    // Loopback traffic of its own (router solicitations) may be there already.
    port.rx(&mut pool, &mut burst).unwrap();
    burst.release(&mut pool);
    namespace.ip("link delete gone");
    assert!(matches!(port.rx(&mut pool, &mut burst), Err(IoError::Dead(_))));
    let mut frame = pool.alloc().unwrap();
    frame.fill_from(&[0x45; 40]).unwrap();
    burst.push(frame).unwrap();
    assert!(matches!(port.tx(&mut pool, &mut burst), Err(IoError::Dead(_))));
    assert!(burst.is_empty());
    drop((port, pool));
    assert_eq!((arena.in_depot(), arena.leaked()), (8, 0));
}

/// Packets routed into a device that stays go nowhere while nobody has it open.
#[test]
fn a_device_that_is_to_stay_does_so_until_it_is_removed() {
    let namespace = or_skip!(Namespace::new());
    let config = tun::Config { queues: 2, ..tun::Config::new("stays0") };
    let names = || namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    for _ in 0..2 {
        let mut ports = Vec::new();
        until(|| {
            let config = config.clone();
            let opened = namespace.run(move || tun::open(&config));
            opened.map(|opened| ports = opened).is_ok()
        });
        assert_eq!(ports.len(), 2);
        tun::stay(&ports[0]).unwrap();
        drop(ports);
        assert!(names().contains("stays0"));
    }
    until(|| namespace.run(|| tun::remove("stays0")).is_ok());
    until(|| !names().contains("stays0"));
    // Others go with their last queue.
    let ports = namespace.run(|| tun::open(&tun::Config::new("goes0"))).unwrap();
    assert!(names().contains("goes0"));
    drop(ports);
    until(|| !names().contains("goes0"));
}

/// A device whose program was killed has its carrier while somebody keeps a queue for it that takes no packets.
#[test]
fn a_parked_queue_keeps_the_carrier_and_takes_no_packets() {
    let namespace = or_skip!(Namespace::new());
    let config = tun::Config { queues: 2, ..tun::Config::new("parked0") };
    let (first, again) = (config.clone(), tun::Config { parked: 1, ..config.clone() });
    let mut ports = namespace.run(move || tun::open(&first)).unwrap();
    tun::stay(&ports[0]).unwrap();
    let parked = namespace.run(|| tun::Parked::open("parked0")).unwrap();
    assert_eq!(parked.name(), "parked0");
    namespace.ip("address add 10.77.0.1/24 dev parked0");
    namespace.ip("link set parked0 up");
    let carrier = || {
        namespace.run(|| {
            let shown =
                Command::new("ip").args(["-o", "link", "show", "parked0"]).output().unwrap();
            String::from_utf8(shown.stdout).unwrap().contains("LOWER_UP")
        })
    };
    assert!(carrier());
    let send = |port: u16| {
        let socket = namespace.run(|| UdpSocket::bind("10.77.0.1:0").unwrap());
        socket.send_to(b"whichever queue", ("10.77.0.2", port)).unwrap();
    };
    let arena = Arena::map(1024, FrameSize::for_packet(1500)).unwrap();
    let mut pool = arena.pool();
    let mut seen = 0;
    (1000..1064).for_each(send);
    until(|| {
        for port in &mut ports {
            let mut burst = Burst::new();
            port.rx(&mut pool, &mut burst).unwrap();
            seen += burst.as_slice().iter().filter(|frame| frame.data()[9] == 17).count();
            burst.release(&mut pool);
        }
        seen >= 64
    });
    drop(ports);
    assert!(carrier(), "as after a kill");
    // It is no queue of a stranger if it is known, and one if not.
    let unknown = config.clone();
    assert!(namespace.run(move || tun::open(&unknown)).is_err());
    let kept = parked.as_fd().try_clone_to_owned().unwrap();
    drop(parked);
    let parked = tun::Parked::of(kept).unwrap();
    let ports = namespace.run(move || tun::open(&again)).unwrap();
    assert!(tun::Parked::of(std::fs::File::open("/dev/null").unwrap().into()).is_none());
    drop(ports);
    drop(parked);
    until(|| !carrier());
}

/// Without an owner a TUN device is anybody's who may open /dev/net/tun: to read what it carries, to
/// write, and to remove it.
#[test]
fn another_user_cannot_open_a_device() {
    let namespace = or_skip!(Namespace::new());
    let config = tun::Config { queues: 2, ..tun::Config::new("mine0") };
    let ours = config.clone();
    let ports = namespace.run(move || tun::open(&ours)).unwrap();
    tun::stay(&ports[0]).unwrap();
    let nobody = |config: tun::Config| {
        let work = move || {
            // Of this thread alone, which ends: neither the user nor the capabilities come back.
            let call = libc::SYS_setresuid;
            // SAFETY: setresuid(2) takes three numbers.
            assert_eq!(unsafe { libc::syscall(call, 65534, 65534, 65534) }, 0);
            tun::open(&config).map(drop)
        };
        namespace.run(move || std::thread::spawn(work).join().unwrap())
    };
    for _ in 0..2 {
        let refused = nobody(config.clone());
        let Err(IoError::Setup { source, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(source.kind(), ErrorKind::PermissionDenied);
    }
    drop(ports);
    let refused = nobody(config.clone());
    assert!(matches!(refused, Err(IoError::Setup { .. })), "{refused:?}");
}

#[test]
fn a_device_that_somebody_has_is_not_shared() {
    let namespace = or_skip!(Namespace::new());
    let config = tun::Config { queues: 2, ..tun::Config::new("one0") };
    let first = config.clone();
    let ports = namespace.run(move || tun::open(&first)).unwrap();
    let second = config.clone();
    let refused = namespace.run(move || tun::open(&second).map(drop));
    let Err(IoError::Setup { source, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(source.kind(), ErrorKind::ResourceBusy);
    assert!(namespace.run(|| tun::remove("one0")).is_err());
    drop(ports);
    until(|| {
        let config = config.clone();
        namespace.run(move || tun::open(&config)).is_ok()
    });
}

/// "Fragmentation needed" to `to` about a packet for `far`, in the name of `from`.
fn too_big(from: &str, to: &str, far: &str) -> Vec<u8> {
    let [from, to, far] = [from, to, far].map(|text| text.parse().unwrap());
    let quoted = ip_packet(to, far, 17, 0, true, &[0; 8]);
    let mut message = [&[3, 4, 0, 0, 0, 0, 5, 20], &quoted[..]].concat();
    let sum: u32 = message.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    message[2..4].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    ip_packet(from, to, 1, 0, false, &message)
}

/// The sender of a packet that is too big hears it from the host, as from a kernel: an address that is not
/// the host's is dropped by filters against forged sources, and one that is by the kernel, out of a device
/// (RFC 1812 section 4.3.2.4).
#[test]
fn a_sender_on_a_network_of_the_host_hears_errors_from_the_hosts_own_address() {
    let (host, near) = (or_skip!(Namespace::new()), or_skip!(Namespace::new()));
    plug(&host, "lan", &near, "eth", 1500);
    host.ip("addr add 10.8.0.1/24 dev lan");
    host.ip("link set lan up");
    near.ip("addr add 10.8.0.2/24 dev eth");
    near.ip("link set eth up");
    near.ip("route add default via 10.8.0.1");
    let config = tun::Config { error_mark: Some(7), ..tun::Config::new("plain0") };
    let mut port = host.run(move || tun::open(&config)).unwrap().remove(0);
    host.ip("link set plain0 up");
    // As to marked packets: who knows only the default route to a sender is no neighbour of his.
    host.ip("route add default dev plain0");
    host.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap());
    let arena = Arena::map(64, FrameSize::for_packet(1500)).unwrap();
    let mut pool = arena.pool();
    let heard = near.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap());
    heard.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let packets = [
        too_big("10.7.0.9", "10.8.0.2", "10.7.0.9"),
        // A router's word out of the tunnel, which nobody forwards here, and what is for somebody farther away.
        too_big("10.7.0.1", "10.8.0.2", "10.7.0.9"),
        too_big("10.7.0.9", "10.66.0.2", "10.7.0.9"),
        too_big("10.7.0.8", "10.8.0.2", "10.7.0.8"),
    ];
    let mut burst = burst_of(&mut pool, &packets);
    // What somebody sent through a tunnel is his own word.
    let mut out_of_another = pool.alloc().unwrap();
    out_of_another.fill_from(&[&[0; 36], &packets[0][..]].concat()).unwrap();
    out_of_another.shrink_front(36);
    burst.push(out_of_another).unwrap();
    port.tx(&mut pool, &mut burst).unwrap();
    assert_eq!(port.counters().tx_packets, 5);
    for far in ["10.7.0.9", "10.7.0.8"] {
        let mut packet = [0; 1500];
        assert_eq!((&heard).read(&mut packet).unwrap(), packets[0].len());
        let source = std::net::Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15]);
        assert_eq!(source.to_string(), "10.8.0.1");
        let quoted = &packet[28..];
        assert_eq!(&quoted[16..20], &far.parse::<std::net::Ipv4Addr>().unwrap().octets());
        assert_eq!((packet[20], packet[21], &packet[26..28]), (3, 4, &[5, 20][..]));
    }
    heard.set_nonblocking(true).unwrap();
    assert!((&heard).read(&mut [0; 1500]).is_err(), "no more");
}
