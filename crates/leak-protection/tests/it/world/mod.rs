//! A gateway between a LAN and a wire, in namespaces of their own, and somebody who listens to the
//! wire.

pub(crate) mod flows;

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, UdpSocket},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::fs::OpenOptionsExt as _,
    },
    process::{Child, Command},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use convoy_host::{LinkName, Netns};
use convoy_leak_protection::{
    AskedTotal, Config, LeakProtectionError, Listener as QueueListener, Questions,
};
use convoy_netlink::nft::{Nft, removal};
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6,
    SockaddrLike, sendto, setsockopt, socket, sockopt,
};

/// Longest time that anything that must come may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Beginning of every payload, so that the listener knows it; a tag follows.
pub(crate) const SIGN: &[u8] = b"CONVOY-FENCE-TEST/";
const TAG_LEN: usize = 8;

/// A network namespace.
#[derive(Debug)]
pub(crate) struct Space(Netns, File);

impl Space {
    pub(crate) fn new() -> nix::Result<Self> {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let file = File::open("/proc/thread-self/ns/net").unwrap();
            Ok(Self(Netns::current().unwrap(), file))
        };
        let space = thread::scope(|scope| scope.spawn(make).join().unwrap())?;
        space.ip("link set lo up");
        Ok(space)
    }

    /// Runs something in it, on a thread of its own.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let work = || {
                self.0.enter().unwrap();
                work()
            };
            match scope.spawn(work).join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Output of a command of ip(8); it must succeed.
    #[track_caller]
    pub(crate) fn ip(&self, words: &str) -> String {
        self.command("ip", words).unwrap_or_else(|error| panic!("ip {words}: {error}"))
    }

    /// Starts a program in it.
    pub(crate) fn spawn(&self, command: &mut Command) -> Child {
        self.run(|| command.spawn().unwrap())
    }

    pub(crate) fn command(&self, program: &str, words: &str) -> Result<String, String> {
        let output = self.run(|| Command::new(program).args(words.split(' ')).output());
        let output = output.map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    pub(crate) fn file(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.1.as_raw_fd())
    }
}

/// Origin of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    Lan,
    Wire,
    Tun,
    /// The gateway itself, whatever the source.
    Host,
    /// The same with the gateway's mark.
    Gateway,
}

impl Door {
    pub(crate) const ALL: [Self; 5] = [Self::Lan, Self::Wire, Self::Tun, Self::Host, Self::Gateway];
}

/// A LAN, a gateway, and a wire with everything behind it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) gateway: Space,
    pub(crate) lan: Space,
    pub(crate) wire: Space,
    pub(crate) listener: Listener,
    /// Mark of the gateway's own packets.
    pub(crate) mark: u32,
}

/// Has the kernel report the groups of an interface only when it joins them. Reports that it repeats at random moments
/// would count among packets of a test.
fn say_groups_once(link: &str) {
    for scope in ["default", link] {
        let key = format!("/proc/sys/net/ipv6/conf/{scope}/mldv2_unsolicited_report_interval");
        std::fs::write(key, "1000000000").unwrap();
    }
}

impl World {
    /// Makes one; none where namespaces are not permitted, and then says so.
    pub(crate) fn new() -> Option<Self> {
        let spaces = (Space::new(), Space::new(), Space::new());
        let (Ok(gateway), Ok(lan), Ok(wire)) = spaces else {
            skipped("cannot make a network namespace here");
            return None;
        };
        gateway.ip(&format!("link add wire0 type veth peer name eth0 netns {}", wire.file()));
        gateway.ip(&format!("link add lan0 type veth peer name eth0 netns {}", lan.file()));
        for (space, link, addresses) in [
            (&gateway, "wire0", ["192.0.2.1/24", "2001:db8:0:2::1/64"]),
            (&gateway, "lan0", ["10.1.0.1/24", "2001:db8:0:1::1/64"]),
            (&wire, "eth0", ["192.0.2.2/24", "2001:db8:0:2::2/64"]),
            (&lan, "eth0", ["10.1.0.2/24", "2001:db8:0:1::2/64"]),
        ] {
            space.run(|| std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "0").unwrap());
            space.run(|| say_groups_once(link));
            for address in addresses {
                let nodad = if address.contains(':') { " nodad" } else { "" };
                space.ip(&format!("address add {address} dev {link}{nodad}"));
            }
            space.ip(&format!("link set {link} up"));
        }
        for (space, via) in
            [(&gateway, ["192.0.2.2", "2001:db8:0:2::2"]), (&lan, ["10.1.0.1", "2001:db8:0:1::1"])]
        {
            via.iter().for_each(|via| drop(space.ip(&format!("route add default via {via}"))));
        }
        gateway.run(|| {
            for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                std::fs::write(format!("/proc/sys/net/{key}"), "1").unwrap();
            }
            // Errors to senders are tested, not how many the kernel sends a second.
            std::fs::write("/proc/sys/net/ipv4/icmp_ratelimit", "0").unwrap();
            std::fs::write("/proc/sys/net/ipv6/icmp/ratelimit", "0").unwrap();
        });
        let listener = wire.run(Listener::start);
        let world = Self { gateway, lan, wire, listener, mark: 0xc5c0_ffee };
        world.warm_up();
        Some(world)
    }

    /// Waits until all that was asked of one listener since it was opened is answered, so that no answer
    /// is by later policies.
    #[track_caller]
    pub(crate) fn settle(&self, questions: &Questions, answered: impl Fn() -> u64) {
        let begun = Instant::now();
        loop {
            let mut total = AskedTotal::default();
            self.gateway.run(|| total.follow(questions, || Some(1)).unwrap());
            let both = total.both();
            if both.iter().map(|asked| asked.packets).sum::<u64>() <= answered() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{both:?}, {} answered", answered());
            thread::sleep(Duration::from_micros(500));
        }
    }

    /// Until both hosts reach the wire, so that later nothing waits for a neighbour.
    pub(crate) fn warm_up(&self) {
        for sender in self.senders() {
            let begun = Instant::now();
            while !self.listener.arrives(&sender, Duration::from_millis(200)) {
                assert!(begun.elapsed() < PATIENCE, "{sender:?} does not reach the wire");
            }
        }
    }

    /// Somebody on the gateway and somebody behind it, in both IP versions.
    pub(crate) fn senders(&self) -> [Sender; 4] {
        let (out4, out6) = ("192.0.2.2".parse().unwrap(), "2001:db8:0:2::2".parse().unwrap());
        [
            Sender::new(&self.gateway, "0.0.0.0:0", out4),
            Sender::new(&self.lan, "0.0.0.0:0", out4),
            Sender::new(&self.gateway, "[::]:0", out6),
            Sender::new(&self.lan, "[::]:0", out6),
        ]
    }

    /// Sends a whole IP packet in by a door.
    pub(crate) fn send(&self, door: Door, tun: &mut Tun, packet: &[u8], to: IpAddr) {
        match door {
            Door::Lan => self.lan.run(|| send_raw(packet, to, 0)),
            Door::Wire => self.wire.run(|| send_raw(packet, to, 0)),
            Door::Tun => tun.write(packet),
            Door::Host => self.gateway.run(|| send_raw(packet, to, 0)),
            Door::Gateway => self.gateway.run(|| send_raw(packet, to, self.mark)),
        }
    }

    /// True if a datagram of each of these arrives on the wire in clear; all senders have been heard
    /// when this returns.
    pub(crate) fn leaves(&self, sender: &Sender, to: &str) -> bool {
        let tag = self.listener.tag();
        let _ = sender.send(to, &tag);
        self.listener.flush(sender);
        self.listener.count(&tag) > 0
    }

    /// Has packets pass whatever their source, both ways, and a second host on the LAN.
    pub(crate) fn take_any_packet(&self) {
        self.gateway.run(|| {
            for key in ["rp_filter", "send_redirects"] {
                for link in ["all", "lan0", "wire0"] {
                    std::fs::write(format!("/proc/sys/net/ipv4/conf/{link}/{key}"), "0").unwrap();
                }
            }
        });
        self.lan.ip("address add 10.1.0.3/24 dev eth0");
        self.lan.ip("address add 2001:db8:0:1::3/64 dev eth0 nodad");
        self.wire.ip("route add 10.1.0.0/24 via 192.0.2.1");
        self.wire.ip("route add 2001:db8:0:1::/64 via 2001:db8:0:2::1");
    }

    pub(crate) fn config(&self) -> Config {
        Config::new(LinkName::new("convoy0").unwrap())
    }

    pub(crate) fn tun(&self) -> Tun {
        let tun = self.gateway.run(|| Tun::open("convoy0"));
        self.gateway.ip("link set convoy0 up");
        tun
    }

    /// Removes a table of leak protection, as `nft flush ruleset` does once its owner has gone.
    pub(crate) fn remove_table(&self, config: &Config) {
        self.gateway.run(|| {
            // A program that another test starts at this moment has the owner's socket until it executes.
            let begun = Instant::now();
            let remove = || Nft::open().unwrap().commit(vec![removal(&config.table())]);
            while let Err(refusal) = remove() {
                let is_late = begun.elapsed() > PATIENCE;
                assert!(refusal.errno == libc::EPERM && !is_late, "{refusal:?}");
                thread::sleep(Duration::from_millis(20));
            }
        });
    }

    /// State of the host's rules, routes and packet filter, as text.
    pub(crate) fn picture(&self) -> Vec<String> {
        let mut picture = Vec::new();
        for words in ["-4 rule", "-6 rule", "-4 route show table all", "-6 route show table all"] {
            // What the kernel does for addresses of its own comes and goes as it likes.
            let is_kernels = |line: &&str| line.contains("proto kernel");
            let text = self.gateway.ip(words);
            picture
                .push(text.lines().filter(|line| !is_kernels(line)).collect::<Vec<_>>().join("\n"));
        }
        match self.gateway.command("nft", "list ruleset") {
            Ok(rules) => picture.push(rules),
            Err(error) => skipped(&format!("the packet filter is not compared, no nft: {error}")),
        }
        picture
    }
}

/// Numbers below a limit, the same in each run (a linear congruential generator of Knuth's).
pub(crate) fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

/// Says so past the harness, which would keep it from being seen.
pub(crate) fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// Listens to questions in the namespace of the calling thread. The last listener's queues may be taken for a moment, as
/// in [`bound`].
pub(crate) fn listen(questions: &Questions) -> QueueListener {
    let begun = Instant::now();
    let config = Config::new(LinkName::new("convoy0").unwrap());
    let config = Config { questions: *questions, ..config };
    loop {
        match QueueListener::open(&config) {
            Ok(listener) => return listener,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Raises leak protection. Children of other tests hold copies of the sockets that own tables until they have
/// begun their program, so the previous run may seem to hold them for a moment.
#[track_caller]
pub(crate) fn raise<T>(mut raise: impl FnMut() -> Result<T, LeakProtectionError>) -> T {
    let begun = Instant::now();
    loop {
        match raise() {
            Err(LeakProtectionError::Held { .. }) if begun.elapsed() < PATIENCE => {}
            raised => return raised.unwrap(),
        }
    }
}

/// A socket with an address. Children of other tests hold copies of closed sockets until they have
/// begun their program, so the port may be taken for a moment.
pub(crate) fn bound(address: SocketAddr) -> UdpSocket {
    let begun = Instant::now();
    loop {
        match UdpSocket::bind(address) {
            Err(error) if begun.elapsed() < PATIENCE => {
                assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{address}: {error}");
                thread::sleep(Duration::from_millis(1));
            }
            other => return other.unwrap(),
        }
    }
}

/// Sends datagrams.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) socket: UdpSocket,
    /// Somebody on the wire who is never protected.
    open: IpAddr,
}

impl Sender {
    pub(crate) fn new(space: &Space, from: &str, open: IpAddr) -> Self {
        let socket = space.run(|| bound(from.parse().unwrap()));
        Self { socket, open }
    }

    /// The same by another socket.
    pub(crate) fn by(self, socket: UdpSocket) -> Self {
        Self { socket, ..self }
    }

    pub(crate) fn is_v4(&self) -> bool {
        self.open.is_ipv4()
    }

    pub(crate) fn send(&self, to: &str, tag: &[u8]) -> std::io::Result<usize> {
        let to = SocketAddr::new(to.parse().unwrap(), 7);
        self.socket.send_to(&[SIGN, tag].concat(), to)
    }
}

/// Hears every frame that arrives on the wire, whatever it holds.
#[derive(Debug)]
pub(crate) struct Listener {
    heard: Arc<Mutex<BTreeMap<Vec<u8>, u64>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    next: AtomicU32,
}

impl Listener {
    pub(crate) fn start() -> Self {
        let socket =
            socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), SockProtocol::EthAll)
                .unwrap();
        setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).unwrap();
        let wait = nix::sys::time::TimeVal::new(0, 20_000);
        setsockopt(&socket, sockopt::ReceiveTimeout, &wait).unwrap();
        let heard = Arc::<Mutex<BTreeMap<Vec<u8>, u64>>>::default();
        let ended = Arc::new(AtomicBool::new(false));
        let thread = {
            let (heard, ended) = (Arc::clone(&heard), Arc::clone(&ended));
            thread::spawn(move || {
                let mut file = File::from(socket);
                let mut frame = vec![0; 70_000];
                while !ended.load(Ordering::Relaxed) {
                    let Ok(length) = file.read(&mut frame) else { continue };
                    let bytes = &frame[..length];
                    let Some(at) = bytes.windows(SIGN.len()).position(|w| w == SIGN) else {
                        continue;
                    };
                    let tag = bytes[at + SIGN.len()..].iter().copied().take(TAG_LEN).collect();
                    *heard.lock().unwrap().entry(tag).or_default() += 1;
                }
            })
        };
        Self { heard, ended, thread: Some(thread), next: AtomicU32::new(0) }
    }

    /// A tag that no datagram bore yet.
    pub(crate) fn tag(&self) -> Vec<u8> {
        format!("{:08}", self.next.fetch_add(1, Ordering::Relaxed)).into_bytes()
    }

    pub(crate) fn count(&self, tag: &[u8]) -> u64 {
        self.heard.lock().unwrap().get(tag).copied().unwrap_or(0)
    }

    /// Waits until a tag has been heard.
    #[track_caller]
    pub(crate) fn await_tag(&self, tag: &[u8], what: &str) {
        let begun = Instant::now();
        while self.count(tag) == 0 {
            assert!(begun.elapsed() < PATIENCE, "does not get through: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The same for what is sent again while it has not been heard: a kernel may drop a packet whose neighbour it is
    /// looking for.
    #[track_caller]
    pub(crate) fn await_tag_sent(&self, tag: &[u8], what: &str, mut send: impl FnMut()) {
        let begun = Instant::now();
        while self.count(tag) == 0 {
            assert!(begun.elapsed() < PATIENCE, "does not get through: {what}");
            send();
            let sent = Instant::now();
            while self.count(tag) == 0 && sent.elapsed() < Duration::from_secs(1) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn arrives(&self, sender: &Sender, limit: Duration) -> bool {
        let tag = self.tag();
        let _ = sender.send(&sender.open.to_string(), &tag);
        let begun = Instant::now();
        while self.count(&tag) == 0 {
            if begun.elapsed() > limit {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Waits until what this sender sent up to now must have been heard: frames come in order, so
    /// one that is certain to come is waited for.
    #[track_caller]
    pub(crate) fn flush(&self, sender: &Sender) {
        assert!(self.arrives(sender, PATIENCE), "{sender:?} no longer reaches the wire");
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A TUN interface; it vanishes with this, as it does when a process is killed.
#[derive(Debug)]
pub(crate) struct Tun(File);

impl Tun {
    pub(crate) fn open(name: &str) -> Self {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open("/dev/net/tun").unwrap();
        let mut request = [0_u8; 40];
        request[..name.len()].copy_from_slice(name.as_bytes());
        let flags = i16::try_from(libc::IFF_TUN | libc::IFF_NO_PI).unwrap();
        request[16..18].copy_from_slice(&flags.to_ne_bytes());
        let begun = Instant::now();
        loop {
            let to = request.as_mut_ptr();
            // SAFETY: the request is as long as a struct ifreq.
            if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, to) } == 0 {
                return Self(file);
            }
            // As with ports, children of other tests may hold the last one for a moment.
            let error = std::io::Error::last_os_error();
            let is_late = begun.elapsed() > PATIENCE;
            assert!(error.raw_os_error() == Some(libc::EBUSY) && !is_late, "TUNSETIFF: {error}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Puts a packet into the host, as if it came out of a tunnel.
    pub(crate) fn write(&mut self, packet: &[u8]) {
        assert_eq!(self.0.write(packet).unwrap(), packet.len());
    }

    /// A packet that came out, if there is one soon.
    pub(crate) fn read(&mut self) -> Option<Vec<u8>> {
        let mut packet = vec![0; 2000];
        let length = self.0.read(&mut packet);
        if length.is_err() {
            thread::sleep(Duration::from_millis(1));
        }
        packet.truncate(length.ok()?);
        Some(packet)
    }

    /// True if a datagram with this tag comes out.
    pub(crate) fn brings(&mut self, tag: &[u8]) -> bool {
        let wanted = [SIGN, tag].concat();
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.read().is_some_and(|packet| packet.windows(wanted.len()).any(|w| w == wanted)) {
                return true;
            }
        }
        false
    }
}

/// An IPv4 packet with UDP for somebody, with a tag.
pub(crate) fn packet4(from: &str, to: &str, tag: &[u8]) -> Vec<u8> {
    let address = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().octets();
    let payload = [SIGN, tag].concat();
    let total = u16::try_from(28 + payload.len()).unwrap();
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(address(from));
    packet.extend(address(to));
    let sum: u32 = packet.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(9_u16.to_be_bytes());
    packet.extend(7_u16.to_be_bytes());
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// A raw socket for a protocol.
pub(crate) fn raw(is_v4: bool, protocol: i32) -> OwnedFd {
    let family = if is_v4 { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: takes no memory.
    let fd = unsafe { libc::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: just made, and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Sends a whole IP packet from a raw socket with a mark.
pub(crate) fn send_raw(packet: &[u8], to: IpAddr, mark: u32) {
    let (family, to): (_, Box<dyn SockaddrLike>) = match SocketAddr::new(to, 0) {
        SocketAddr::V4(to) => (AddressFamily::Inet, Box::new(SockaddrIn::from(to))),
        SocketAddr::V6(to) => (AddressFamily::Inet6, Box::new(SockaddrIn6::from(to))),
    };
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw).unwrap();
    setsockopt(&socket, sockopt::Mark, &mark).unwrap();
    match sendto(socket.as_raw_fd(), packet, &*to, MsgFlags::empty()) {
        // What a packet filter drops its sender is told.
        Err(nix::errno::Errno::EPERM) => {}
        sent => assert_eq!(sent, Ok(packet.len())),
    }
}

/// An IPv6 packet with UDP for somebody, with a tag.
pub(crate) fn packet6(from: &str, to: &str, tag: &[u8]) -> Vec<u8> {
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let payload = [SIGN, tag].concat();
    let length = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(length);
    packet.extend([17, 64]);
    packet.extend(address(from));
    packet.extend(address(to));
    packet.extend([0, 9, 0, 7]);
    packet.extend(length);
    packet.extend([0, 0]);
    packet.extend(payload);
    // The addresses and what follows, with the pseudo-header's length and protocol.
    let words = packet[8..].chunks(2).map(|w| u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)]));
    let sum: u32 = words.map(u32::from).sum::<u32>() + u32::from(u16::from_be_bytes(length)) + 17;
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap();
    packet[46..48].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// Somebody on the gateway with an address in the LAN, and somebody behind it, of both IP versions.
pub(crate) fn senders(world: &World) -> [Sender; 4] {
    let (out4, out6) = ("192.0.2.2".parse().unwrap(), "2001:db8:0:2::2".parse().unwrap());
    [
        Sender::new(&world.gateway, "10.1.0.1:0", out4),
        Sender::new(&world.lan, "10.1.0.2:0", out4),
        Sender::new(&world.gateway, "[2001:db8:0:1::1]:0", out6),
        Sender::new(&world.lan, "[2001:db8:0:1::2]:0", out6),
    ]
}
