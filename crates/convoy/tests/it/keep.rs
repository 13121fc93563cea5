//! State that daemons negotiated outlives a gateway that is killed: traffic goes on without any daemon, no
//! sequence number is used twice, and no key reaches a disk.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    Gateway, PATIENCE, by_sockets, can_make_namespaces, convoy, exec, ip, read_pcap, text,
};
use convoy_host::{Applied, Change, LinkName, Plan};
use convoy_io::tun;
use convoy_lab::{
    Capture, CaptureConfig, Family, Namespace, Site, Topology, TopologyConfig, WIRE_LINK,
    wire_report,
};
use convoy_leak_protection::{Config, Listener};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};
use nix::unistd::Pid;
use tempfile::TempDir;

const PORT: u16 = 4242;
const KEYS: [[u8; 20]; 2] = [*b"from a to b, secret!", *b"from b to a, secret!"];
const SPIS: [u32; 2] = [0x1001, 0x1002];

/// Two gateways that keep what they are told in memory.
pub(crate) struct World {
    pub(crate) gateways: [Option<Gateway>; 2],
    pub(crate) lab: Topology,
    disk: TempDir,
    memory: TempDir,
}

impl World {
    fn start() -> Option<Self> {
        Self::start_on(&TopologyConfig::default())
    }

    /// With such links.
    pub(crate) fn start_on(config: &TopologyConfig) -> Option<Self> {
        Self::start_all(config, "")
    }

    /// With more in both site files, where `SIDE` stands for the side's number, from 1.
    pub(crate) fn start_by(more: &str) -> Option<Self> {
        Self::start_all(&TopologyConfig::default(), more)
    }

    fn start_all(config: &TopologyConfig, more: &str) -> Option<Self> {
        if !can_make_namespaces() {
            return None;
        }
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let disk = tempfile::tempdir().unwrap();
        let config = TopologyConfig { named: false, ..config.clone() };
        let lab = Topology::build(&config).unwrap();
        let mut world = Self { gateways: [None, None], lab, disk, memory };
        (0..2).for_each(|side| world.start_with(side, more));
        Some(world)
    }

    pub(crate) fn folder(&self, side: usize) -> PathBuf {
        self.disk.path().join(["a", "b"][side])
    }

    fn state(&self, side: usize) -> PathBuf {
        self.memory.path().join(["a", "b"][side])
    }

    pub(crate) fn site(&self, side: usize) -> &Site {
        if side == 0 { &self.lab.a } else { &self.lab.b }
    }

    fn start_gateway(&mut self, side: usize) {
        self.start_with(side, "");
    }

    /// With more in its site file.
    pub(crate) fn start_with(&mut self, side: usize, more: &str) {
        let folder = self.folder(side);
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "name = \"{side}\"\ncontrol_socket = \"{0}/control.sock\"\n\
             [plain]\ninterface = \"convoy0\"\n\
             [xfrm]\nsocket = \"{0}/xfrm.sock\"\nstate = \"{1}\"\n{2}",
            folder.display(),
            self.state(side).display(),
            by_sockets(&more.replace("SIDE", &(side + 1).to_string())),
        );
        let file = folder.join("site.toml");
        fs::write(&file, text).unwrap();
        self.gateways[side] = Some(Gateway::start(&self.site(side).gateway, &file));
    }

    pub(crate) fn kill(&mut self, side: usize) {
        self.gateways[side].take().unwrap().kill();
    }

    /// `ip xfrm` on a side, led to its gateway.
    fn start_ip_xfrm(&self, side: usize, arguments: &str) -> Child {
        let mut command = exec(self.folder(side).join("xfrm.sock"));
        command
            .args(["timeout", "20", "ip", "xfrm"])
            .args(arguments.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.site(side).gateway.spawn(&mut command).unwrap()
    }

    /// The same to its end.
    pub(crate) fn ip_xfrm(&self, side: usize, arguments: &str) -> String {
        let output = self.start_ip_xfrm(side, arguments).wait_with_output().unwrap();
        assert!(output.status.success(), "ip xfrm {arguments}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// As `ip xfrm` makes a tunnel between the networks behind the gateways.
    pub(crate) fn make_tunnel(&self, side: usize) {
        let network = |site: &Site| site.network(Family::V4).to_string();
        let networks = [network(self.site(side)), network(self.site(1 - side))];
        self.make_tunnel_of(side, networks.each_ref().map(String::as_str), "");
    }

    /// The same for all packets, of an interface with this identifier.
    pub(crate) fn make_tunnel_for_all(&self, side: usize, if_id: u32) {
        self.make_tunnel_of(side, ["0.0.0.0/0"; 2], &format!(" if_id {if_id}"));
    }

    /// Between a near and a far network, with more words in each command.
    fn make_tunnel_of(&self, side: usize, [near, far]: [&str; 2], more: &str) {
        let wire = |side| self.site(side).wire_address(Family::V4).to_string();
        let ends = [wire(side), wire(1 - side)];
        for (way, key) in [(side, 0), (1 - side, 1)] {
            let [from, to] = if key == 0 { [&ends[0], &ends[1]] } else { [&ends[1], &ends[0]] };
            let digits: String = KEYS[way].iter().map(|byte| format!("{byte:02x}")).collect();
            self.ip_xfrm(
                side,
                &format!(
                    "state add src {from} dst {to} proto esp spi {} reqid 1 mode tunnel \
                     replay-window 32 aead rfc4106(gcm(aes)) 0x{digits} 128{more}",
                    SPIS[way]
                ),
            );
        }
        let (outwards, inwards) = ((near, far, 0, 1), (far, near, 1, 0));
        for (direction, way) in [("out", outwards), ("in", inwards), ("fwd", inwards)] {
            let (from, to, source, target) = way;
            let (source, target) = (&ends[source], &ends[target]);
            self.ip_xfrm(
                side,
                &format!(
                    "policy add src {from} dst {to} dir {direction} tmpl src {source} dst {target} \
                     proto esp reqid 1 mode tunnel{more}"
                ),
            );
        }
    }

    /// SAs and policies that `ip xfrm` shows, without what changes by itself.
    fn databases(&self, side: usize) -> BTreeSet<String> {
        let all = self.ip_xfrm(side, "state") + &self.ip_xfrm(side, "policy");
        let changes = ["anti-replay", "lastused"];
        let stays = |line: &&str| !changes.iter().any(|word| line.contains(word));
        all.lines().map(str::trim).filter(stays).map(str::to_owned).collect()
    }
}

/// Numbered datagrams from one host to the other, and what arrives of them.
struct Stream {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<HashMap<u64, u32>>>,
}

impl Stream {
    fn start(from: &Namespace, to: &Site) -> Self {
        let (stop, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let socket = to.host.run(|| UdpSocket::bind(("0.0.0.0", PORT)).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (flag, count) = (stop.clone(), received.clone());
        let receiver = std::thread::spawn(move || {
            let mut seen: HashMap<u64, u32> = HashMap::new();
            let mut buffer = [0; 64];
            while !flag.load(Ordering::Relaxed) {
                if socket.recv(&mut buffer).is_ok() {
                    let number = u64::from_be_bytes(buffer[..8].try_into().unwrap());
                    *seen.entry(number).or_default() += 1;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
            seen
        });
        let (flag, to) = (stop.clone(), to.host_address(Family::V4));
        let sender = from.start("sender", move || {
            let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
            let mut number = 0_u64;
            while !flag.load(Ordering::Relaxed) {
                // While there is no gateway, there may be no way.
                let _ = socket.send_to(&number.to_be_bytes(), (to, PORT));
                number += 1;
                std::thread::sleep(Duration::from_micros(500));
            }
            HashMap::new()
        });
        Self { stop, received, threads: vec![sender.unwrap(), receiver] }
    }

    /// Waits for so many more datagrams.
    fn wait(&self, more: u64, log: impl Fn() -> String) {
        let before = self.received.load(Ordering::Relaxed);
        let until = Instant::now() + PATIENCE;
        while self.received.load(Ordering::Relaxed) < before + more {
            assert!(Instant::now() < until, "nothing arrives\n{}", log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Number of times that each came.
    fn finish(self) -> HashMap<u64, u32> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).last().unwrap()
    }
}

/// The IPv4 packet with ESP in a frame.
fn esp_packet(frame: &[u8]) -> Option<&[u8]> {
    let ip = &frame[14..];
    (frame[12..14] == [8, 0] && ip[9] == 50).then_some(ip)
}

/// SPI and sequence number of each ESP packet of a capture.
fn numbers(capture: &Path) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for frame in read_pcap(capture) {
        let Some(ip) = esp_packet(&frame) else { continue };
        let esp = &ip[usize::from(ip[0] & 15) * 4..];
        let number = |at: usize| u32::from_be_bytes(esp[at..at + 4].try_into().unwrap());
        found.push((number(0), number(4)));
    }
    found
}

fn holds(bytes: &[u8], key: &[u8]) -> bool {
    bytes.windows(key.len()).any(|part| part == key)
}

/// Files below a folder that hold a key, as bytes or as digits.
fn files_with_keys(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with_keys(&path));
        } else if path.is_file() {
            let bytes = fs::read(&path).unwrap();
            let digits = |key: &[u8]| key.iter().map(|b| format!("{b:02x}")).collect::<String>();
            let is_in = |key: &[u8; 20]| {
                // Without the salt as well.
                holds(&bytes, &key[..16]) || holds(&bytes, digits(&key[..16]).as_bytes())
            };
            if KEYS.iter().any(is_in) {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn gateways_that_are_killed_go_on_without_a_daemon() {
    let Some(mut world) = World::start() else { return };
    let pcap = world.disk.path().join("wire.pcap");
    let capture =
        Capture::start(&world.lab.a.gateway, WIRE_LINK, &pcap, CaptureConfig::default()).unwrap();
    (0..2).for_each(|side| world.make_tunnel(side));
    let before = [0, 1].map(|side| world.databases(side));
    let stream = Stream::start(&world.lab.a.host, &world.lab.b);
    let folders = [world.folder(0), world.folder(1)];
    let logs = || {
        folders
            .each_ref()
            .map(|f| fs::read_to_string(f.join("site.log")).unwrap_or_default())
            .join("\n== b\n")
    };
    stream.wait(200, logs);
    for side in [0, 1, 0, 0, 1] {
        world.kill(side);
        std::thread::sleep(Duration::from_millis(30));
        world.start_gateway(side);
        stream.wait(100, logs);
        assert_eq!(world.databases(side), before[side], "side {side}");
    }
    // An orderly end, and another start.
    world.gateways[0].take().unwrap().terminate();
    assert!(world.state(0).exists());
    world.start_gateway(0);
    stream.wait(100, logs);
    let arrived = stream.finish();
    assert!(arrived.values().all(|times| *times == 1), "a packet was accepted twice");
    assert_eq!(capture.stop().unwrap().dropped, 0);
    let numbers = numbers(&pcap);
    let distinct: BTreeSet<_> = numbers.iter().collect();
    println!("{} packets, {} arrived", numbers.len(), arrived.len());
    assert_eq!(distinct.len(), numbers.len(), "a sequence number was used twice");
    assert!(numbers.len() >= 800 && distinct.iter().all(|(spi, _)| *spi == SPIS[0]));
    let inner = [0, 1].map(|side| world.site(side).network(Family::V4));
    let report = wire_report(&pcap, &inner).unwrap();
    assert_eq!(report.clear, 0, "{}", report.clear_in_words());
    // Where keys are, and where not.
    assert_eq!(files_with_keys(world.disk.path()), Vec::<PathBuf>::new());
    let journals: BTreeSet<_> = [0, 1].map(|side| world.state(side).join("journal")).into();
    let found: BTreeSet<_> = files_with_keys(world.memory.path()).into_iter().collect();
    assert_eq!(found, journals);
    for side in 0..2 {
        world.ip_xfrm(side, "state flush");
        assert_eq!(files_with_keys(&world.state(side)), Vec::<PathBuf>::new(), "wiped at once");
        world.ip_xfrm(side, "policy flush");
        assert!(world.gateways[side].take().unwrap().terminate().success());
        assert!(!world.state(side).exists(), "nothing is kept");
    }
}

/// A tunnel with little traffic: what its gateway has received is known to the packet, so that the next
/// one comes in, and each of those before does not.
#[test]
fn a_quiet_tunnel_goes_on_with_its_next_packet_and_accepts_none_again() {
    let Some(mut world) = World::start() else { return };
    let pcap = world.disk.path().join("wire.pcap");
    let capture =
        Capture::start(&world.lab.b.gateway, WIRE_LINK, &pcap, CaptureConfig::default()).unwrap();
    (0..2).for_each(|side| world.make_tunnel(side));
    let receiver = world.lab.b.host.run(|| UdpSocket::bind(("0.0.0.0", PORT)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let sender = world.lab.a.host.run(|| UdpSocket::bind(("0.0.0.0", 0)).unwrap()).unwrap();
    let to = (world.lab.b.host_address(Family::V4), PORT);
    let mut buffer = [0; 8];
    let mut number = 0_u64;
    let mut next = |receiver: &UdpSocket| {
        number += 1;
        sender.send_to(&number.to_be_bytes(), to).unwrap();
        receiver.recv(&mut buffer).expect("the next packet comes in");
        assert_eq!(u64::from_be_bytes(buffer), number);
    };
    for _ in 0..3 {
        (0..5).for_each(|_| next(&receiver));
        world.kill(1);
        world.start_gateway(1);
        next(&receiver);
    }
    assert_eq!(capture.stop().unwrap().dropped, 0);
    // All that was on the wire once more.
    let frames = read_pcap(&pcap).into_iter();
    let packets: Vec<_> =
        frames.filter_map(|frame| esp_packet(&frame).map(<[u8]>::to_vec)).collect();
    assert_eq!(packets.len(), 18);
    world.kill(1);
    world.start_gateway(1);
    let address = world.lab.b.wire_address(Family::V4).to_string();
    let to_gateway = SockaddrIn::from(SocketAddrV4::new(address.parse().unwrap(), 0));
    let send = || {
        let raw =
            socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw);
        let raw = raw.unwrap();
        for packet in &packets {
            let sent = sendto(raw.as_raw_fd(), packet, &to_gateway, MsgFlags::empty());
            assert_eq!(sent, Ok(packet.len()));
        }
    };
    world.lab.a.gateway.run(send).unwrap();
    // Behind all of them on the wire.
    next(&receiver);
    receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(receiver.recv(&mut buffer).is_err(), "a packet was accepted twice");
}

/// The site has changed so that an SA cannot go on: who listens first is told.
#[test]
fn daemons_hear_of_what_cannot_go_on() {
    let Some(mut world) = World::start() else { return };
    let wire = |side: usize| world.site(side).wire_address(Family::V4);
    world.ip_xfrm(
        0,
        &format!(
            "state add src {} dst {} proto esp spi 0x1234 reqid 1 mode tunnel encap espinudp 4500 \
             4500 0.0.0.0 aead rfc4106(gcm(aes)) 0x{} 128",
            wire(0),
            wire(1),
            "5a".repeat(20)
        ),
    );
    world.kill(0);
    world.start_with(0, "[wire]\nudp_port = 4600\n");
    assert_eq!(world.ip_xfrm(0, "state"), "");
    let mut monitor = world.start_ip_xfrm(0, "monitor expire");
    let lines = BufReader::new(monitor.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut told = String::new();
    for line in lines {
        told += &line;
        if told.contains("hard") {
            break;
        }
    }
    // Of `timeout`, which passes it on.
    kill(Pid::from_raw(i32::try_from(monitor.id()).unwrap()), Signal::SIGTERM).unwrap();
    monitor.wait().unwrap();
    assert!(told.contains("0x00001234") && told.contains("hard 1"), "{told}");
    assert_eq!(files_with_keys(world.memory.path()), Vec::<PathBuf>::new());
}

#[test]
fn one_folder_serves_one_gateway() {
    let Some(mut world) = World::start() else { return };
    let other = world.folder(0).join("other.toml");
    let site = fs::read_to_string(world.folder(0).join("site.toml")).unwrap();
    let site = site.replace("control.sock", "c.sock").replace("xfrm.sock", "x.sock");
    fs::write(&other, site.replace("convoy0", "convoy1")).unwrap();
    let mut second = Gateway::launch(&world.lab.a.gateway, &other);
    assert!(!second.wait_ready());
    assert!(second.log().contains("belongs to a running gateway"), "{}", second.log());
    world.kill(0);
    drop(second);
    // Nor do two share marks of packets; what the first one left is opened first.
    let mut second = Gateway::launch(&world.lab.a.gateway, &other);
    assert!(!second.wait_ready());
    assert!(second.log().contains("convoy open SITE.toml --interface NAME"), "{}", second.log());
    let mut open = Command::new(env!("CARGO_BIN_EXE_convoy"));
    open.arg("open").arg(&other).args(["--interface", "convoy0"]);
    assert!(world.lab.a.gateway.spawn(&mut open).unwrap().wait().unwrap().success());
    let mut second = Gateway::launch(&world.lab.a.gateway, &other);
    assert!(second.wait_ready(), "{}", second.log());
}

#[test]
fn a_folder_on_a_disk_is_refused() {
    if !can_make_namespaces() {
        return;
    }
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kind = nix::sys::statfs::statfs(disk.path()).unwrap().filesystem_type();
    if kind == nix::sys::statfs::TMPFS_MAGIC {
        return println!("SKIPPED: the build folder is in memory");
    }
    let site = disk.path().join("site.toml");
    let text = format!(
        "name = \"x\"\ncontrol_socket = \"{0}/c.sock\"\n[plain]\ninterface = \"convoy0\"\n\
         [xfrm]\nsocket = \"{0}/x.sock\"\nstate = \"{0}/state\"\n",
        disk.path().display()
    );
    fs::write(&site, text).unwrap();
    let namespace = Namespace::anonymous().unwrap();
    let mut gateway = Gateway::launch(&namespace, &site);
    assert!(!gateway.wait_ready());
    assert!(gateway.log().contains("must not reach a disk"), "{}", gateway.log());
}

/// Names of interfaces, as `ip` shows them there.
fn interfaces(namespace: &Namespace) -> BTreeSet<String> {
    let links: serde_json::Value = serde_json::from_str(&ip(namespace, "-j link show")).unwrap();
    let links = links.as_array().unwrap().iter();
    links.map(|link| link["ifname"].as_str().unwrap().to_owned()).collect()
}

/// Text that somebody left at an interface.
fn alias_of(world: &World, link: &str) -> String {
    let shown = ip(&world.lab.a.gateway, &format!("-j link show {link}"));
    let links: serde_json::Value = serde_json::from_str(&shown).unwrap();
    links[0]["ifalias"].as_str().unwrap().to_owned()
}

#[test]
fn interfaces_that_are_named_no_more_go_and_those_of_others_stay() {
    const NAMED: &str = "[[xfrm.interface]]\nname = \"ipsec0\"\nif_id = 1\n";
    const MORE: &str = "[[xfrm.interface]]\nname = \"ipsec1\"\nif_id = 2\n\
                        [[xfrm.interface]]\nname = \"ipsec2\"\nif_id = 3\n";
    let Some(mut world) = World::start() else { return };
    world.kill(0);
    world.start_with(0, &format!("{NAMED}{MORE}"));
    world.kill(0);
    let there = |world: &World| interfaces(&world.lab.a.gateway);
    assert!(["ipsec0", "ipsec1", "ipsec2"].iter().all(|name| there(&world).contains(*name)));
    // One that its owner has taken over, and one that was never ours.
    ip(&world.lab.a.gateway, "link set ipsec2 alias mine");
    ip(&world.lab.a.gateway, "tuntap add dev other0 mode tun");
    // One that a gateway of the same name has open.
    let open = || tun::open(&tun::Config::new("open0")).unwrap();
    let held = world.lab.a.gateway.run(open).unwrap();
    tun::stay(&held[0]).unwrap();
    let link = LinkName::new("open0").unwrap();
    let alias = alias_of(&world, "ipsec1");
    let named =
        world.lab.a.gateway.run(move || {
            Plan::from_iter([Change::Alias { link, alias }]).apply().map(Applied::leave)
        });
    named.unwrap().unwrap();
    world.start_with(0, NAMED);
    drop(held);
    let now = there(&world);
    assert!(!now.contains("ipsec1"), "{now:?}");
    for name in ["ipsec0", "ipsec2", "other0", "open0"] {
        assert!(now.contains(name), "{name} is gone: {now:?}");
    }
    let log = world.gateways[0].as_ref().unwrap().log();
    assert!(log.contains("removed interface ipsec1 and the routes into it"), "{log}");
    assert!(!log.contains("open0"), "{log}");
}

#[test]
fn a_start_that_fails_leaves_no_interface_and_takes_none_away() {
    const NAMED: &str = "[[xfrm.interface]]\nname = \"ipsec0\"\nif_id = 1\n";
    const MORE: &str = "[[xfrm.interface]]\nname = \"ipsec1\"\nif_id = 2\n";
    let Some(mut world) = World::start() else { return };
    world.kill(0);
    world.start_with(0, NAMED);
    world.kill(0);
    let namespace = &world.lab.a.gateway;
    let before = interfaces(namespace);
    let file = world.folder(0).join("site.toml");
    let good = fs::read_to_string(&file).unwrap();
    // What fails before traffic could flow, and what fails behind that.
    let taken = format!("[[xfrm.interface]]\nname = \"{WIRE_LINK}\"\nif_id = 3\n");
    let no_socket = good.replace("control.sock", "site.toml");
    for wrong in [format!("{good}{MORE}{taken}"), format!("{no_socket}{MORE}")] {
        fs::write(&file, &wrong).unwrap();
        let mut gateway = Gateway::launch(namespace, &file);
        assert!(!gateway.wait_ready());
        assert!(!gateway.wait().success());
        assert_eq!(interfaces(namespace), before, "{wrong}{}", gateway.log());
    }
}

#[test]
fn a_policy_whose_packets_cannot_be_held_is_refused_and_nothing_has_changed() {
    const FREE: &str =
        "policy add src 10.1.0.0/24 dst 10.2.0.0/24 proto udp dport 9 dir out priority 1";
    const PROTECT: &str = "policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out priority 2 \
                           tmpl src 198.51.100.1 dst 198.51.100.2 proto esp reqid 1 mode tunnel";
    let Some(world) = World::start() else { return };
    // Somebody else answers where the kernel would ask what of both is meant.
    let listen = || Listener::open(&Config::new(LinkName::new("convoy0").unwrap()));
    let listener = match world.lab.a.gateway.run(listen).unwrap() {
        Ok(listener) => listener,
        Err(error) => return println!("SKIPPED: this kernel asks nobody about packets: {error}"),
    };
    world.ip_xfrm(0, FREE);
    let before = (world.ip_xfrm(0, "policy list"), filter_of(&world));
    let refused = world.start_ip_xfrm(0, PROTECT).wait_with_output().unwrap();
    assert!(!refused.status.success(), "{}", text(&refused.stdout));
    let said = text(&refused.stderr);
    assert!(said.contains("another process listens there"), "{said}");
    assert_eq!((world.ip_xfrm(0, "policy list"), filter_of(&world)), before);
    drop(listener);
    // Processes that other tests have just started may still have copies of the descriptor.
    let begun = Instant::now();
    while !world.start_ip_xfrm(0, PROTECT).wait_with_output().unwrap().status.success() {
        assert!(begun.elapsed() < PATIENCE, "the listener is still there");
    }
    assert_eq!(world.ip_xfrm(0, "policy list").matches("10.2.0.0/24").count(), 2);
    let filter = filter_of(&world);
    assert!(filter.is_empty() || filter != before.1, "{filter}");
}

#[test]
fn a_trace_of_what_daemons_protect_follows_marks() {
    const FREE: &str =
        "policy add src 10.1.0.0/24 dst 10.2.0.0/24 proto udp dport 9 dir out priority 1";
    let Some(world) = World::start() else { return };
    let trace = |from: &str, to: &str, more: &str| {
        let site = world.folder(0).join("site.toml");
        let mut words = vec!["trace", site.to_str().unwrap(), "--from", from, "--to", to, "--json"];
        words.extend(more.split_whitespace());
        let output = convoy(&words);
        serde_json::from_slice::<serde_json::Value>(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", text(&output.stderr)))["host"]
            .take()
    };
    let gateway = &world.lab.a.gateway;
    let via = world.lab.b.wire_address(Family::V4).to_string();
    ip(gateway, &format!("route add default via {via}"));
    let of = |host: &serde_json::Value| {
        ["prefixes", "decision", "fate"].map(|key| host[key].as_str().unwrap().to_owned())
    };
    let host = trace("10.1.0.5", "10.2.0.5", "");
    assert_eq!(of(&host), ["neither", "routed", "in-clear"], "{host}");
    world.make_tunnel(0);
    let host = trace("10.1.0.5", "10.2.0.5", "");
    assert_eq!(of(&host), ["whole", "protect", "into-tunnel"], "{host}");
    assert_eq!(
        (&host["mark"], &host["route"]["table"]),
        (&"0x00500000/0x00700000".into(), &4511.into())
    );
    // Sent by the host itself, and by a route of its own first.
    let own = world.lab.a.gateway_address(Family::V4).to_string();
    let host = trace(&own, "10.2.0.5", "");
    assert_eq!(of(&host), ["whole", "protect", "into-tunnel"], "{host}");
    assert!(host["from_link"].is_null(), "{host}");
    let host = trace("10.2.0.5", "10.1.0.5", "");
    assert_eq!(of(&host), ["whole-inbound", "discard", "not-in-clear"], "{host}");
    // The one for everything comes behind the one that passes a port.
    let networks = "src 10.1.0.0/24 dst 10.2.0.0/24 dir out";
    let ends = format!("src {} dst {via}", world.lab.a.wire_address(Family::V4));
    world.ip_xfrm(0, &format!("policy delete {networks}"));
    world.ip_xfrm(
        0,
        &format!("policy add {networks} priority 2 tmpl {ends} proto esp reqid 1 mode tunnel"),
    );
    world.ip_xfrm(0, FREE);
    let host = trace("10.1.0.5", "10.2.0.5", "--proto udp --dport 9");
    assert_eq!(of(&host), ["mixed", "bypass", "in-clear"], "{host}");
    let host = trace("10.1.0.5", "10.2.0.5", "--proto udp --dport 8");
    assert_eq!(of(&host), ["mixed", "protect", "into-tunnel"], "{host}");
    ip(gateway, "route del default");
    let host = trace(&own, "10.2.0.5", "--proto udp --dport 8");
    assert_eq!(of(&host), ["mixed", "protect", "no-route"], "{host}");
    assert!(host["refused"].is_string(), "{host}");
}

/// The packet filter of a gateway, without its counters.
fn filter_of(world: &World) -> String {
    let mut list = Command::new("nft");
    list.args(["-s", "list", "ruleset"]).stdout(Stdio::piped());
    let Ok(list) = world.lab.a.gateway.spawn(&mut list) else {
        println!("SKIPPED in part: nft is not installed");
        return String::new();
    };
    text(&list.wait_with_output().unwrap().stdout)
}

#[test]
fn the_plain_interface_is_as_wide_as_the_sas_of_daemons_leave_room() {
    let Some(world) = World::start() else { return };
    let mtu = || -> u32 {
        let shown = ip(&world.lab.a.gateway, "-o link show convoy0");
        let mut words = shown.split_whitespace().skip_while(|word| *word != "mtu");
        words.nth(1).unwrap().parse().unwrap()
    };
    assert_eq!(mtu(), 1379, "whatever SAs may come");
    world.make_tunnel(0);
    let begun = Instant::now();
    // RFC 4106, and 1,500 bytes on the wire: IPv4, ESP, IV, trailer, ICV.
    while mtu() != 1500 - 20 - 8 - 8 - 2 - 16 {
        assert!(begun.elapsed() < PATIENCE, "{}", mtu());
        std::thread::sleep(Duration::from_millis(20));
    }
    // One with less room.
    let [from, to] = [&world.lab.a, &world.lab.b].map(|site| site.wire_address(Family::V4));
    world.ip_xfrm(
        0,
        &format!(
            "state add src {from} dst {to} proto esp spi 0x2001 reqid 2 mode tunnel \
             enc cbc(aes) 0x00112233445566778899aabbccddeeff \
             auth hmac(sha1) 0x000102030405060708090a0b0c0d0e0f10111213"
        ),
    );
    while mtu() != 1438 {
        assert!(begun.elapsed() < PATIENCE, "{}", mtu());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// RFC 4301 section 5.2, as `xfrm_policy_check` has it.
#[test]
fn what_a_tunnel_brings_is_for_this_host_by_policies_in_and_for_others_by_those_fwd() {
    let Some(world) = World::start() else { return };
    (0..2).for_each(|side| world.make_tunnel(side));
    let (a, b) = (&world.lab.a, &world.lab.b);
    let ends = [(&b.gateway, b.gateway_address(Family::V4)), (&b.host, b.host_address(Family::V4))];
    let sender = a.host.run(|| UdpSocket::bind(("0.0.0.0", 0)).unwrap()).unwrap();
    let ears = ends.map(|(space, address)| {
        let ears = space.run(|| UdpSocket::bind((address, PORT)).unwrap()).unwrap();
        ears.set_nonblocking(true).unwrap();
        ears
    });
    // Until all that is certain to arrive has, and a while for what is not. What comes later than that is told
    // from what is expected next by its number.
    let mut number = 0_u8;
    let mut arrives = |expected: [bool; 2]| {
        number += 1;
        let begun = Instant::now();
        let mut heard = [false; 2];
        let least = Duration::from_millis(300);
        while begun.elapsed() < least || heard != expected && begun.elapsed() < PATIENCE {
            for (ears, heard) in ears.iter().zip(&mut heard) {
                let _ = sender.send_to(&[number], ears.local_addr().unwrap());
                let mut got = [0];
                while ears.recv(&mut got).is_ok() {
                    *heard |= got == [number];
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(heard, expected, "the gateway, the host behind it");
    };
    let networks = format!("src {} dst {}", a.network(Family::V4), b.network(Family::V4));
    arrives([true, true]);
    world.ip_xfrm(1, &format!("policy delete {networks} dir fwd"));
    arrives([true, false]);
    world.ip_xfrm(1, &format!("policy add {networks} dir fwd action block"));
    arrives([true, false]);
    let wire = [a, b].map(|site| site.wire_address(Family::V4).to_string());
    let template = format!("tmpl src {} dst {} proto esp reqid 1 mode tunnel", wire[0], wire[1]);
    world.ip_xfrm(1, &format!("policy update {networks} dir fwd {template}"));
    world.ip_xfrm(1, &format!("policy update {networks} dir in action block"));
    arrives([false, true]);
}

/// Native ESP of daemons' SAs passes while somebody else holds the port of ESP in UDP.
#[test]
fn a_udp_port_that_somebody_holds_does_not_stop_native_esp() {
    let Some(mut world) = World::start() else { return };
    (0..2).for_each(|side| world.make_tunnel(side));
    world.kill(0);
    let near = |work: fn() -> std::io::Result<UdpSocket>| world.lab.a.gateway.run(work).unwrap();
    let squatter = near(|| UdpSocket::bind("0.0.0.0:4500")).unwrap();
    std::os::unix::fs::fchown(&squatter, Some(65534), None).unwrap();
    world.start_gateway(0);
    let stream = Stream::start(&world.lab.a.host, &world.lab.b);
    let log = || world.gateways[0].as_ref().unwrap().log();
    stream.wait(10, log);
    let site = world.folder(0).join("site.toml");
    let reasons = || crate::common::status(&site)["health"]["reasons"].to_string();
    assert!(reasons().contains("UDP port 0.0.0.0:4500 is in use by"), "{}", reasons());

    drop(squatter);
    let until = Instant::now() + PATIENCE;
    while reasons().contains("4500") {
        assert!(Instant::now() < until, "{}\n{}", reasons(), log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let again = world.lab.a.gateway.run(|| UdpSocket::bind("0.0.0.0:4500")).unwrap();
    assert!(again.is_err(), "the gateway has the port");
    stream.wait(10, log);
}
