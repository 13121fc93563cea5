//! A UDP port shared with sockets of an IKE daemon. Who gets what is the kernel's word: the daemon here
//! is an ordinary socket, and so is the peer.
//!
//! These tests have a program of their own, as none may run while this process starts another one.
#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
#[path = "it/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use common::{Namespace, burst_of, esp, ip_packet, narrow_path};
use convoy_io::udp::{self, Config, Form, Given, SteerError, Steering, UdpPort};
use convoy_io::{IoError, NewsSource, Port, PortEvent, Quote};
use convoy_packet::{Arena, Burst, FrameSize, Pool};
use socket2::{Domain, Protocol, Socket, Type};

/// Addresses at which a daemon binds, and those that its peers send to.
const PLACES: [(&str, &str); 4] = [
    ("0.0.0.0:4500", "127.0.0.1:4500"),
    ("[::]:4500", "[::1]:4500"),
    ("127.0.0.1:4500", "127.0.0.1:4500"),
    ("[::1]:4500", "[::1]:4500"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Daemon,
    Worker(usize),
}

/// Between `fork` and `exec` a child has all sockets as well, and what is closed here is open still. So
/// no test runs while another starts a program.
static STARTING: RwLock<()> = RwLock::new(());

/// A namespace with addresses in use, in which to run a test.
struct Place(Namespace);

impl Place {
    fn run(&self, test: impl FnOnce() + Send + 'static) {
        let _quiet = STARTING.read().unwrap_or_else(PoisonError::into_inner);
        self.0.run(test);
    }
}

fn fresh() -> Result<Place, String> {
    let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    let namespace = Namespace::new()?;
    namespace.settle();
    Ok(Place(namespace))
}

/// A daemon's socket, bound or not.
fn unbound(local: SocketAddr, shareable: bool) -> Socket {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP)).unwrap();
    if local.is_ipv6() {
        socket.set_only_v6(true).unwrap();
    }
    socket.set_reuse_port(shareable).unwrap();
    socket
}

fn daemon(local: SocketAddr) -> UdpSocket {
    let socket = unbound(local, true);
    socket.bind(&local.into()).unwrap();
    listening(socket)
}

fn listening(socket: Socket) -> UdpSocket {
    socket.set_nonblocking(true).unwrap();
    socket.into()
}

/// Convoy's side, and who looks at what comes where.
struct Bench {
    local: SocketAddr,
    dest: SocketAddr,
    workers: u16,
    form: Form,
    arena: &'static Arena,
    pool: Pool,
    peer: UdpSocket,
}

type Shared = (Vec<UdpPort>, Steering);

impl Bench {
    fn new((local, dest): (&str, &str), workers: u16, form: Form) -> Self {
        let dest: SocketAddr = dest.parse().unwrap();
        let any = if dest.is_ipv4() { "127.0.0.9:0" } else { "[::1]:0" };
        let arena = Arena::map(256, FrameSize::for_packet(1500)).unwrap();
        Self {
            local: local.parse().unwrap(),
            dest,
            workers,
            form,
            arena,
            pool: arena.pool(),
            peer: UdpSocket::bind(any).unwrap(),
        }
    }

    fn try_share(&self) -> Result<Shared, IoError> {
        udp::share(&Config { workers: self.workers, ..Config::new(self.local) }, self.form)
    }

    fn share(&self) -> Shared {
        let (ports, steering) = self.try_share().unwrap();
        assert_eq!((steering.form(), steering.local()), (self.form, self.local));
        assert_eq!(ports.len(), usize::from(self.workers));
        (ports, steering)
    }

    /// Datagrams that a peer sends, with their receivers. What is for nobody comes first.
    fn datagrams(&self) -> Vec<(Vec<u8>, Who)> {
        let spread = |spi: u32| Who::Worker((spi % u32::from(self.workers)) as usize);
        let mut all = vec![
            (b"\0\0\0\0an IKE message".to_vec(), Who::Daemon),
            (vec![0, 0, 0, 0], Who::Daemon),
            (vec![1, 2, 3], Who::Daemon),
            (vec![0], Who::Daemon),
            (vec![0xff, 0xff], Who::Daemon),
            (vec![0xff], Who::Worker(0)),
        ];
        for spi in [256, 257, 258, 0x0001_0000, 0x0100_0001, 0xc000_0002, u32::MAX] {
            all.push(([spi.to_be_bytes(), [0; 4]].concat(), spread(spi)));
            all.push((spi.to_be_bytes().to_vec(), spread(spi)));
        }
        all
    }

    /// Sends everything and sees to it that each datagram reaches whom it is for, if that one is there,
    /// and nobody else.
    fn check(&mut self, what: &str, daemon: Option<&UdpSocket>, ports: &mut [UdpPort]) {
        let there = |who: &Who| match who {
            Who::Daemon => daemon.is_some(),
            Who::Worker(_) => !ports.is_empty(),
        };
        let (mut expected, mut lost) = (BTreeMap::new(), Vec::new());
        for (datagram, who) in self.datagrams() {
            if there(&who) {
                *expected.entry((who, datagram)).or_insert(0) += 1;
            } else {
                lost.push(datagram);
            }
        }
        for datagram in lost.iter().chain(expected.keys().map(|(_, datagram)| datagram)) {
            self.peer.send_to(datagram, self.dest).unwrap();
        }
        let mut got = BTreeMap::new();
        let patience = Instant::now();
        while got.values().sum::<i32>() < expected.values().sum()
            && patience.elapsed() < Duration::from_secs(20)
        {
            self.collect(daemon, ports, &mut got);
            std::thread::yield_now();
        }
        // What should have come has come; what should not have was sent before it.
        self.collect(daemon, ports, &mut got);
        if self.form == Form::Classic {
            // A classic program cannot drop: what is for nobody comes to somebody.
            got.retain(|(_, datagram), _| !lost.contains(datagram));
        }
        assert_eq!(got, expected, "{what}: {} for {} workers", self.local, self.workers);
    }

    fn collect(
        &mut self,
        daemon: Option<&UdpSocket>,
        ports: &mut [UdpPort],
        got: &mut BTreeMap<(Who, Vec<u8>), i32>,
    ) {
        let mut buffer = [0; 2000];
        while let Some(Ok(n)) = daemon.map(|socket| socket.recv(&mut buffer)) {
            *got.entry((Who::Daemon, buffer[..n].to_vec())).or_insert(0) += 1;
        }
        let mut burst = Burst::new();
        for (number, port) in ports.iter_mut().enumerate() {
            while port.rx(&mut self.pool, &mut burst).unwrap() > 0 {
                for frame in burst.as_slice() {
                    let skip = if self.dest.is_ipv4() { 28 } else { 48 };
                    let datagram = frame.data()[skip..].to_vec();
                    *got.entry((Who::Worker(number), datagram)).or_insert(0) += 1;
                }
                burst.release(&mut self.pool);
            }
        }
    }
}

/// Runs `test` in a namespace for all places, numbers of workers and forms.
fn everywhere(forms: &[Form], test: impl Fn(&mut Bench) + Copy + Send + 'static) {
    for place in PLACES {
        for workers in [1, 3] {
            for form in forms.iter().copied() {
                let namespace = or_skip!(fresh());
                namespace.run(move || test(&mut Bench::new(place, workers, form)));
            }
        }
    }
}

const BOTH: [Form; 2] = [Form::Extended, Form::Classic];

#[test]
fn a_daemon_that_comes_later_and_comes_back_gets_ike_and_workers_get_esp() {
    everywhere(&BOTH, |bench| {
        let (mut ports, mut steering) = bench.share();
        assert!(!steering.has_daemon());
        bench.check("no daemon yet", None, &mut ports);
        let first = daemon(bench.local);
        assert_eq!(steering.give(first.as_fd()).unwrap(), Given::Now);
        assert_eq!(steering.give(first.as_fd()).unwrap(), Given::Before);
        assert!(steering.has_daemon());
        bench.check("daemon given", Some(&first), &mut ports);
        drop(first);
        assert!(!steering.has_daemon());
        bench.check("daemon gone", None, &mut ports);
        for _ in 0..3 {
            let again = daemon(bench.local);
            assert_eq!(steering.give(again.as_fd()).unwrap(), Given::Now);
            bench.check("daemon restarted", Some(&again), &mut ports);
        }
    });
}

#[test]
fn convoy_may_restart_beside_a_daemon_that_stays() {
    everywhere(&BOTH, |bench| {
        let (ports, mut steering) = bench.share();
        let daemon = daemon(bench.local);
        steering.give(daemon.as_fd()).unwrap();
        drop((ports, steering));
        for _ in 0..3 {
            bench.check("Convoy gone", Some(&daemon), &mut []);
            let (mut ports, mut steering) = bench.share();
            if bench.form == Form::Extended {
                // There, and not given yet.
                bench.check("Convoy came back", None, &mut ports);
                let mut nothing = [0; 2000];
                assert!(daemon.recv(&mut nothing).is_err());
            }
            assert_eq!(steering.give(daemon.as_fd()).unwrap(), Given::Now);
            bench.check("daemon given again", Some(&daemon), &mut ports);
        }
    });
}

#[test]
fn a_daemon_that_was_there_first_is_made_shareable_and_may_restart_before_convoy_does() {
    everywhere(&BOTH, |bench| {
        let first = unbound(bench.local, false);
        first.bind(&bench.local.into()).unwrap();
        let first = listening(first);
        let refused = bench.try_share().unwrap_err();
        assert!(
            matches!(&refused, IoError::Setup { source, .. } if source.kind() == ErrorKind::AddrInUse)
        );
        make_shareable(&first);
        let beside = Config::beside(first.as_fd()).unwrap();
        assert_eq!(beside, Config::new(bench.local));
        let (mut ports, mut steering) = bench.share();
        assert_eq!(steering.give(first.as_fd()).unwrap(), Given::Now);
        bench.check("daemon first", Some(&first), &mut ports);
        drop(first);
        let second = daemon(bench.local);
        assert_eq!(steering.give(second.as_fd()).unwrap(), Given::Now);
        bench.check("daemon restarted", Some(&second), &mut ports);
        drop((ports, steering));
        let (mut ports, mut steering) = bench.share();
        assert_eq!(steering.give(second.as_fd()).unwrap(), Given::Now);
        bench.check("then Convoy restarted", Some(&second), &mut ports);
    });
}

#[test]
fn a_second_daemon_is_refused_while_the_first_lives() {
    everywhere(&BOTH, |bench| {
        let (mut ports, mut steering) = bench.share();
        let first = daemon(bench.local);
        steering.give(first.as_fd()).unwrap();
        let second = daemon(bench.local);
        let refused = steering.give(second.as_fd()).unwrap_err();
        assert!(matches!(refused, IoError::Steer(SteerError::Taken(at)) if at == bench.local));
        bench.check("second refused", Some(&first), &mut ports);
        assert!(!steering.take_back(second.as_fd()).unwrap());
        assert!(steering.take_back(first.as_fd()).unwrap());
        assert!(!steering.has_daemon());
        bench.check("taken back", None, &mut ports);
        drop(first);
        assert_eq!(steering.give(second.as_fd()).unwrap(), Given::Now);
        bench.check("second given", Some(&second), &mut ports);
    });
}

#[test]
fn what_was_never_given_gets_nothing() {
    everywhere(&[Form::Extended], |bench| {
        let stranger = daemon(bench.local);
        let (mut ports, _steering) = bench.share();
        bench.check("a stranger", None, &mut ports);
        let mut nothing = [0; 2000];
        assert_eq!(stranger.recv(&mut nothing).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

/// A daemon with a socket per address, beside Convoy's at any address.
#[test]
fn each_address_of_a_daemon_has_a_group_of_its_own() {
    for form in BOTH {
        let namespace = or_skip!(fresh());
        namespace.run(move || {
            let mut any = Bench::new(("0.0.0.0:4500", "127.0.0.7:4500"), 3, form);
            let mut any6 = Bench::new(("[::]:4500", "[::1]:4500"), 3, form);
            let (mut any_ports, _any_steering) = any.share();
            let (mut any6_ports, _any6_steering) = any6.share();
            let mut groups = Vec::new();
            for at in ["127.0.0.1:4500", "127.0.0.2:4500"] {
                let bench = Bench::new((at, at), 3, form);
                let daemon = daemon(bench.local);
                let beside = Config::beside(daemon.as_fd()).unwrap();
                let (ports, mut steering) =
                    udp::share(&Config { workers: 3, ..beside }, form).unwrap();
                assert_eq!(steering.give(daemon.as_fd()).unwrap(), Given::Now);
                groups.push((bench, daemon, ports, steering));
            }
            for (bench, daemon, ports, _) in &mut groups {
                bench.check("of this address", Some(daemon), ports);
            }
            any.check("of other addresses", None, &mut any_ports);
            any6.check("of the other family", None, &mut any6_ports);
            // The daemon leaves an address, and so does Convoy.
            let (mut bench, daemon, ports, steering) = groups.remove(0);
            drop((daemon, ports, steering));
            bench.check("of an address that was left", None, &mut any_ports);
        });
    }
}

#[test]
fn sockets_that_cannot_be_of_the_group_are_refused_by_name() {
    let namespace = or_skip!(fresh());
    namespace.run(|| {
        let bench = Bench::new(PLACES[3], 1, Form::Extended);
        let (_ports, mut steering) = bench.share();
        let mut refused = |fd: &dyn AsFd| match steering.give(fd.as_fd()) {
            Err(IoError::Steer(error)) => error,
            other => panic!("{other:?}"),
        };
        let tcp = TcpListener::bind("[::1]:4500").unwrap();
        assert!(matches!(refused(&tcp), SteerError::NotUdp));
        assert!(matches!(refused(&std::fs::File::open("/dev/null").unwrap()), SteerError::NotUdp));
        let other = daemon("[::1]:4501".parse().unwrap());
        assert!(
            matches!(refused(&other), SteerError::Elsewhere { theirs, .. } if theirs.port() == 4501)
        );
        let nowhere = unbound(bench.local, true);
        assert!(
            matches!(refused(&nowhere), SteerError::Elsewhere { theirs, .. } if theirs.port() == 0)
        );
        let on_device = unbound(bench.local, true);
        on_device.bind_device(Some(b"lo")).unwrap();
        on_device.bind(&bench.local.into()).unwrap();
        assert!(matches!(refused(&on_device), SteerError::Device));
    });
    let namespace = or_skip!(fresh());
    namespace.run(|| {
        let bench = Bench::new(PLACES[1], 1, Form::Extended);
        let (_ports, mut steering) = bench.share();
        let dual = unbound(bench.local, true);
        dual.set_only_v6(false).unwrap();
        dual.bind(&bench.local.into()).unwrap();
        let refused = steering.give(dual.as_fd()).unwrap_err();
        assert!(matches!(refused, IoError::Steer(SteerError::OnlyV6)));
    });
}

#[test]
fn ports_beside_a_socket_are_as_it_is() {
    let namespace = or_skip!(fresh());
    namespace.run(|| {
        let mut bench = Bench::new(PLACES[3], 3, Form::Extended);
        let odd = unbound(bench.local, true);
        odd.bind_device(Some(b"lo")).unwrap();
        odd.bind(&bench.local.into()).unwrap();
        let odd = listening(odd);
        let config = Config { workers: 3, ..Config::beside(odd.as_fd()).unwrap() };
        assert_eq!(config.options.device.as_deref(), Some("lo"));
        let (mut ports, mut steering) = udp::share(&config, Form::Extended).unwrap();
        steering.give(odd.as_fd()).unwrap();
        bench.check("odd", Some(&odd), &mut ports);
    });
}

fn make_shareable(socket: &impl AsFd) {
    let take_over = |fd: BorrowedFd<'_>| udp::take_over(fd, udp::own_user()?);
    udp::make_shareable(socket.as_fd(), &take_over).unwrap();
}

/// Makes a socket of another user's.
fn of_another_user(local: SocketAddr) -> Socket {
    // SAFETY: changes an attribute of the calling thread, and back.
    unsafe { libc::setfsuid(1000) };
    let socket = unbound(local, true);
    // SAFETY: as above.
    unsafe { libc::setfsuid(0) };
    socket
}

#[test]
fn a_daemon_of_another_user_shares_the_port() {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: not root");
        return;
    }
    everywhere(&BOTH, |bench| {
        // It was first: nobody else can bind until its socket is ours.
        let first = of_another_user(bench.local);
        first.bind(&bench.local.into()).unwrap();
        let first = listening(first);
        assert!(bench.try_share().is_err());
        make_shareable(&first);
        let (mut ports, mut steering) = bench.share();
        steering.give(first.as_fd()).unwrap();
        bench.check("other user first", Some(&first), &mut ports);
        drop(first);
        // Convoy was first: the daemon can bind only when its socket is ours.
        let second = of_another_user(bench.local);
        assert!(second.bind(&bench.local.into()).is_err());
        make_shareable(&second);
        second.bind(&bench.local.into()).unwrap();
        let second = listening(second);
        steering.give(second.as_fd()).unwrap();
        bench.check("other user later", Some(&second), &mut ports);
    });
}

#[test]
fn without_the_right_to_load_programs_there_is_the_classic_form() {
    const NET_ADMIN: u32 = 12;
    const SYS_ADMIN: u32 = 21;
    const BPF: u32 = 39;
    for place in PLACES {
        let namespace = or_skip!(fresh());
        namespace.run(move || {
            // The thread goes on without these; it is of no other use.
            let mut all = [0_u32; 6];
            let header = [0x2008_0522_u32, 0];
            // SAFETY: the kernel reads the header and writes three words for each half.
            let read =
                unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), all.as_mut_ptr()) };
            assert_eq!(read, 0);
            for capability in [NET_ADMIN, SYS_ADMIN, BPF] {
                all[3 * (capability / 32) as usize] &= !(1 << (capability % 32));
            }
            // SAFETY: the kernel reads the header and three words for each half.
            let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), all.as_ptr()) };
            assert_eq!(set, 0);
            let mut bench = Bench::new(place, 3, Form::Classic);
            let config = Config { workers: 3, ..Config::new(bench.local) };
            let (mut ports, mut steering) = udp::share(&config, Form::Extended).unwrap();
            assert_eq!(steering.form(), Form::Classic);
            let daemon = daemon(bench.local);
            steering.give(daemon.as_fd()).unwrap();
            bench.check("without rights", Some(&daemon), &mut ports);
        });
    }
}

#[test]
fn shared_ports_are_told_apart_and_receive_one_datagram_at_a_time() {
    let namespace = or_skip!(fresh());
    namespace.run(|| {
        let (ports, _) = Bench::new(PLACES[0], 3, Form::Extended).share();
        assert!(ports.iter().all(|port| {
            let offloads = port.offloads();
            offloads.spread_by_spi && !offloads.rx_udp_segments && offloads.tx_udp_segments
        }));
        let wrong = Config { workers: 0, ..Config::new("127.0.0.1:0".parse().unwrap()) };
        assert!(matches!(udp::share(&wrong, Form::Extended), Err(IoError::Queues(0))));
    });
}

/// Datagrams that a peer hands to its kernel many at a time travel as one and are parted on arrival.
#[test]
fn what_a_peer_sends_many_at_a_time_arrives_one_by_one() {
    for (local, dest, from) in [
        ("0.0.0.0:4500", "127.0.0.1:4500", "127.0.0.2:4501"),
        ("[::]:4500", "[::1]:4500", "[::1]:4501"),
    ] {
        let namespace = or_skip!(fresh());
        namespace.run(move || {
            let mut bench = Bench::new((local, dest), 3, Form::Extended);
            let (mut ports, _steering) = bench.share();
            let from: SocketAddr = from.parse().unwrap();
            let mut peer = udp::open(&Config::new(from)).unwrap().remove(0);
            let mut expected = BTreeMap::new();
            let packets: Vec<_> = (0..150_u32)
                .map(|n| {
                    // Runs of one SPI, as bursts of a gateway have them.
                    let spi = 256 + n / 50;
                    let payload = esp(spi, n, 400);
                    let length = 8 + payload.len() as u16;
                    let mut udp = [from.port(), 4500, length, 0].map(u16::to_be_bytes).concat();
                    udp.extend(&payload);
                    expected.insert((Who::Worker(spi as usize % 3), payload), 1);
                    ip_packet(from.ip(), bench.dest.ip(), 17, 0, true, &udp)
                })
                .collect();
            peer.tx(&mut bench.pool, &mut burst_of(&mut bench.arena.pool(), &packets)).unwrap();
            assert!(peer.counters().tx_supers > 0);
            let mut got = BTreeMap::new();
            let patience = Instant::now();
            while got.len() < expected.len() && patience.elapsed() < Duration::from_secs(20) {
                bench.collect(None, &mut ports, &mut got);
                std::thread::yield_now();
            }
            assert!(got == expected);
        });
    }
}

/// Switches something of a virtual cable's end, as ethtool does.
fn switch(interface: &str, what: u32, on: bool) {
    let command = [what, u32::from(on)];
    // SAFETY: a structure of integers and a pointer, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = command.as_ptr().cast_mut().cast();
    let any = UdpSocket::bind("127.0.0.1:0").unwrap();
    // SAFETY: the kernel reads the request and the two words it points to.
    let done = unsafe { libc::ioctl(any.as_raw_fd(), 0x8946, &raw mut request) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Has the kernel make datagrams of 400 bytes of what is sent (`UDP_SEGMENT`).
fn send_in_pieces(socket: &UdpSocket) {
    let size = 400_i32;
    let (at, len) = ((&raw const size).cast(), size_of::<i32>() as libc::socklen_t);
    // SAFETY: the kernel reads one int.
    let set =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, at, len) };
    assert_eq!(set, 0);
}

/// A kernel that joins what comes from one port to another would join IKE with ESP, whatever the
/// program says.
#[test]
fn ike_amid_esp_of_the_same_peer_reaches_the_daemon() {
    let [near, far] = {
        let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        let [near, far] = [or_skip!(Namespace::new()), or_skip!(Namespace::new())];
        near.ip(&format!("link add wire type veth peer name wire netns {}", far.id()));
        near.ip("addr add 10.8.0.1/24 dev wire");
        far.ip("addr add 10.8.0.2/24 dev wire");
        // `ETHTOOL_SGRO`: what arrives is joined. `ETHTOOL_STSO`: a cable joins nothing while the other
        // end says that it takes long segments of TCP.
        near.run(|| switch("wire", 0x2c, true));
        far.run(|| switch("wire", 0x1f, false));
        near.ip("link set wire up");
        // What is sent as one goes over the wire one by one, and close together.
        far.ip("link set wire up gso_max_segs 1");
        [near, far]
    };
    // Which socket the kernel asks whether to join depends on the peer's port.
    let peers = far.run(|| {
        let ports = 5000..5008;
        let peers = ports.map(|port| UdpSocket::bind(("10.8.0.2", port)).unwrap());
        peers.inspect(send_in_pieces).collect::<Vec<_>>()
    });
    near.run(move || {
        let mut bench = Bench::new(("0.0.0.0:4500", "10.8.0.1:4500"), 1, Form::Extended);
        let (mut ports, mut steering) = bench.share();
        let daemon = daemon(bench.local);
        steering.give(daemon.as_fd()).unwrap();
        let ike = vec![0; 400];
        let (mut expected, mut got) = (BTreeMap::new(), BTreeMap::new());
        for (first, peer) in (0..).zip(&peers) {
            let mut message = Vec::new();
            for n in first * 20..(first + 1) * 20 {
                if n % 7 == first % 7 {
                    message.extend(&ike);
                    *expected.entry((Who::Daemon, ike.clone())).or_insert(0) += 1;
                } else {
                    let esp = esp(256, n, 392);
                    message.extend(&esp);
                    expected.insert((Who::Worker(0), esp), 1);
                }
            }
            peer.send_to(&message, bench.dest).unwrap();
        }
        let patience = Instant::now();
        while got != expected && patience.elapsed() < Duration::from_secs(10) {
            bench.collect(Some(&daemon), &mut ports, &mut got);
            std::thread::yield_now();
        }
        assert!(got == expected, "{} of {}", got.len(), expected.len());
    });
}

/// The kernel looks up whom an ICMP message concerns by a hash over all that share a port.
#[test]
fn news_of_a_narrow_path_arrives_whoever_else_shares_the_port() {
    let [left, _router, _right] = {
        let _alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        or_skip!(narrow_path())
    };
    let ends = [
        ("0.0.0.0:4500", "10.8.1.1:4500", "10.8.2.1", "10.8.1.254"),
        ("[fd00:8:1::1]:4500", "[fd00:8:1::1]:4500", "fd00:8:2::1", "fd00:8:1::fe"),
    ];
    for (local, from, to, router) in ends {
        left.run(move || {
            let mut bench = Bench::new((local, from), 2, Form::Extended);
            let (mut ports, mut steering) = bench.share();
            let daemons: Vec<_> = (0..3).map(|_| daemon(bench.local)).collect();
            steering.give(daemons[0].as_fd()).unwrap();
            let (to, router): (IpAddr, IpAddr) = (to.parse().unwrap(), router.parse().unwrap());
            let source = NewsSource::Icmp(Some(router));
            for port in 5000..5016_u16 {
                let spi = u32::from(port);
                let payload = esp(spi, 1, 1350);
                let mut udp =
                    [4500_u16, port, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
                udp.extend(payload);
                let packet = ip_packet(bench.dest.ip(), to, 17, 0, true, &udp);
                ports[1]
                    .tx(&mut bench.pool, &mut burst_of(&mut bench.arena.pool(), &[packet]))
                    .unwrap();
                let quote = Quote::Esp { spi, seq_low: 1 };
                // Once, and by one port.
                assert_eq!(
                    news(&mut ports, &mut bench.pool),
                    Some(PortEvent::PathMtu { destination: to, mtu: 1300, source, quote }),
                    "port {port}"
                );
            }
        });
    }
}

/// The next event of any port.
fn news(ports: &mut [UdpPort], pool: &mut Pool) -> Option<PortEvent> {
    let patience = Instant::now();
    let mut burst = Burst::new();
    while patience.elapsed() < Duration::from_secs(10) {
        for port in ports.iter_mut() {
            port.rx(pool, &mut burst).unwrap();
            burst.release(pool);
            if let Some(event) = port.event() {
                return Some(event);
            }
        }
        std::thread::yield_now();
    }
    None
}
