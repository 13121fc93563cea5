//! Policies `in`, `fwd` and `out` of a gateway against those of the kernel under this machine: of two routers with the
//! same random policies, each lets through what the other does.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use convoy_host::IpNet;
use convoy_lab::{End, Namespace, cable};

use crate::common::{Gateway, PATIENCE, can_make_namespaces, exec, ip, text};

/// Ports that policies tell apart.
const PORTS: [u16; 2] = [7, 8];
/// Port that packets come from.
const SOURCE: u16 = 1000;
/// Time of silence after which all has come.
const QUIET: Duration = Duration::from_millis(25);

/// Hosts in the LAN, the router's addresses in it and on the wire, and hosts on the wire.
const LAN: [&str; 4] = ["10.1.0.2", "10.1.0.3", "2001:db8:1::2", "2001:db8:1::3"];
const ROUTER: [&str; 4] = ["10.1.0.1", "10.2.0.1", "2001:db8:1::1", "2001:db8:2::1"];
const WIRE: [&str; 6] =
    ["10.2.0.2", "10.2.0.3", "10.3.0.2", "2001:db8:2::2", "2001:db8:2::3", "2001:db8:3::2"];
/// Networks that hold some of them.
const NETWORKS: [&[&str]; 2] = [
    &[
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.1.0.0/16",
        "10.1.0.1/32",
        "10.1.0.2/32",
        "10.1.0.2/31",
        "10.2.0.0/15",
        "10.2.0.0/24",
        "10.2.0.1/32",
        "10.2.0.2/32",
        "10.3.0.2/32",
    ],
    &[
        "::/0",
        "2001:db8::/32",
        "2001:db8:1::/64",
        "2001:db8:1::1/128",
        "2001:db8:1::2/127",
        "2001:db8:2::/47",
        "2001:db8:2::/64",
        "2001:db8:2::1/128",
        "2001:db8:2::2/128",
        "2001:db8:3::2/128",
    ],
];

/// A policy as `ip xfrm` adds it.
#[derive(Clone, PartialEq)]
struct Policy {
    selector: String,
    direction: &'static str,
    rest: String,
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dir {} {}", self.selector, self.direction, self.rest)
    }
}

impl Policy {
    fn random(random: &mut impl FnMut(usize) -> usize) -> Self {
        let version = random(2);
        let mut network = || NETWORKS[version][random(NETWORKS[version].len())];
        let (from, to) = (network(), network());
        let upper = match random(6) {
            0 => " proto udp".to_owned(),
            1 | 2 => format!(" proto udp dport {}", PORTS[random(2)]),
            3 => " proto tcp".to_owned(),
            _ => String::new(),
        };
        let ends = [["192.0.2.1", "192.0.2.2"], ["2001:db8:9::1", "2001:db8:9::2"]][version];
        let says = match random(5) {
            0 | 1 => "action block".to_owned(),
            2 => "action allow".to_owned(),
            kind => {
                let mode = ["tunnel", "transport"][kind - 3];
                format!("tmpl src {} dst {} proto esp reqid 7 mode {mode}", ends[0], ends[1])
            }
        };
        let priority = random(4) * 10;
        Self {
            selector: format!("src {from} dst {to}{upper}"),
            direction: ["in", "fwd", "out"][random(3)],
            rest: format!("priority {priority} {says}"),
        }
    }
}

/// A router between two networks, and who is there.
struct World {
    lan: Namespace,
    router: Namespace,
    wire: Namespace,
    sockets: Vec<UdpSocket>,
    ears: Vec<UdpSocket>,
}

fn bound(space: &Namespace, at: SocketAddr) -> UdpSocket {
    let socket = space.run(|| UdpSocket::bind(at)).unwrap().unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

impl World {
    fn new() -> Self {
        let [lan, router, wire] = [(); 3].map(|()| Namespace::anonymous().unwrap());
        let nets = |addresses: &[&str], is_meant: &dyn Fn(&str) -> bool| -> Vec<IpNet> {
            let meant = addresses.iter().filter(|address| is_meant(address));
            let len = |address: &str| if address.contains(':') { 64 } else { 24 };
            meant.map(|it| format!("{it}/{}", len(it)).parse().unwrap()).collect()
        };
        let near = |address: &str| address.starts_with("10.1.") || address.contains(":1::");
        let ends = [
            (&router, "lan0", nets(&ROUTER, &near)),
            (&lan, "eth0", nets(&LAN, &|_| true)),
            (&router, "wire0", nets(&ROUTER, &|it| !near(it))),
            (&wire, "eth0", nets(&WIRE, &|_| true)),
        ];
        let [a, b, c, d] = ends.map(|(namespace, link, addresses)| {
            ip(namespace, "link set lo up");
            End { namespace, link, addresses }
        });
        cable(&a, &b, 1500).unwrap();
        cable(&c, &d, 1500).unwrap();
        for (space, to, via) in
            [(&lan, "default", [ROUTER[0], ROUTER[2]]), (&wire, "default", [ROUTER[1], ROUTER[3]])]
        {
            via.iter().for_each(|via| drop(ip(space, &format!("route add {to} via {via}"))));
        }
        ip(&router, "route add 10.3.0.0/24 via 10.2.0.2");
        ip(&router, "route add 2001:db8:3::/64 via 2001:db8:2::2");
        router.forward().unwrap();
        for key in ["all", "default", "lan0", "wire0"] {
            let key = format!("net/ipv4/conf/{key}/rp_filter");
            router.run(|| std::fs::write(format!("/proc/sys/{key}"), "0").unwrap()).unwrap();
        }
        // Policies may block those who ask for neighbours.
        know_neighbours(&router, "lan0", &lan, &LAN);
        know_neighbours(&router, "wire0", &wire, &WIRE);
        let to_router = |space: &Namespace, link, addresses: &[&str]| {
            let hardware = hardware(&router, link);
            addresses.iter().for_each(|it| learn(space, "eth0", it, &hardware));
        };
        to_router(&lan, "lan0", &[ROUTER[0], ROUTER[2]]);
        to_router(&wire, "wire0", &[ROUTER[1], ROUTER[3]]);
        let mut world = Self { lan, router, wire, sockets: Vec::new(), ears: Vec::new() };
        for (space, address) in world.everybody() {
            let at = |port| bound(world.space(space), SocketAddr::new(address, port));
            let (socket, ears) = (at(SOURCE), PORTS.map(at));
            world.sockets.push(socket);
            world.ears.extend(ears);
        }
        world
    }

    fn space(&self, number: usize) -> &Namespace {
        [&self.lan, &self.router, &self.wire][number]
    }

    /// All addresses, with where they are.
    fn everybody(&self) -> Vec<(usize, IpAddr)> {
        let of = |space, all: &[&str]| -> Vec<(usize, IpAddr)> {
            all.iter().map(|address| (space, address.parse().unwrap())).collect()
        };
        [of(0, &LAN), of(1, &ROUTER), of(2, &WIRE)].concat()
    }

    /// Sends a packet of each number from one address to another; kernels may refuse it.
    fn send(&self, packets: &[(usize, IpAddr, u16, u64)]) {
        for (from, to, port, number) in packets {
            let _ = self.sockets[*from].send_to(&number.to_be_bytes(), (*to, *port));
        }
    }

    /// Notes what has arrived; whether there was something.
    fn hear(&self, heard: &mut BTreeSet<u64>) -> bool {
        let before = heard.len();
        let mut datagram = [0; 64];
        for ears in &self.ears {
            while let Ok(len) = ears.recv(&mut datagram) {
                heard.insert(u64::from_be_bytes(datagram[..len].try_into().unwrap()));
            }
        }
        heard.len() > before
    }

    /// Waits until nothing arrives any more, and all of what must.
    fn hear_all(&self, heard: &mut BTreeSet<u64>, must: &BTreeSet<u64>) {
        let (begun, mut last) = (Instant::now(), Instant::now());
        while last.elapsed() < QUIET || begun.elapsed() < PATIENCE && !must.is_subset(heard) {
            if self.hear(heard) {
                last = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn hardware(space: &Namespace, link: &str) -> String {
    let shown = ip(space, &format!("-o link show {link}"));
    let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
    words.nth(1).unwrap().to_owned()
}

fn learn(space: &Namespace, link: &str, address: &str, hardware: &str) {
    ip(space, &format!("neigh replace {address} lladdr {hardware} dev {link} nud permanent"));
}

fn know_neighbours(space: &Namespace, link: &str, of: &Namespace, addresses: &[&str]) {
    let hardware = hardware(of, "eth0");
    addresses.iter().for_each(|address| learn(space, link, address, &hardware));
}

/// Runs lines of `ip xfrm` by a command; what it says.
fn batch(space: &Namespace, mut command: Command, lines: &str) -> String {
    command.args(["-force", "-batch", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = space.spawn(&mut command).unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    text(&output.stdout) + &text(&output.stderr)
}

/// The gateway that one of the routers is.
struct Convoy {
    _gateway: Gateway,
    socket: PathBuf,
}

impl Convoy {
    fn start(world: &World, folder: &Path) -> Self {
        let socket = folder.join("xfrm.sock");
        let site = folder.join("site.toml");
        let words = format!(
            "name = \"k\"\ncontrol_socket = \"{0}/control.sock\"\n[plain]\ninterface = \"convoy0\"\n\
             [xfrm]\nsocket = \"{0}/xfrm.sock\"\n",
            folder.display()
        );
        std::fs::write(&site, words).unwrap();
        Self { _gateway: Gateway::start(&world.router, &site), socket }
    }

    fn ip(&self) -> Command {
        let mut command = exec(&self.socket);
        command.arg("ip");
        command
    }
}

/// Numbers below a bound, the same in each run.
fn random() -> impl FnMut(usize) -> usize {
    let mut state = 23_u64;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

/// Some policies go, and others come: as lines of `ip xfrm`.
fn change(policies: &mut Vec<Policy>, random: &mut impl FnMut(usize) -> usize) -> String {
    let mut lines = String::new();
    while !policies.is_empty() && (policies.len() > 16 || random(3) == 0) {
        let Policy { selector, direction, .. } = policies.remove(random(policies.len()));
        lines += &format!("xfrm policy delete {selector} dir {direction}\n");
    }
    for _ in 0..=random(6) {
        let new = Policy::random(random);
        let is_same = |it: &Policy| it.selector == new.selector && it.direction == new.direction;
        if !policies.iter().any(is_same) {
            lines +=
                &format!("xfrm policy add {} dir {} {}\n", new.selector, new.direction, new.rest);
            policies.push(new);
        }
    }
    lines
}

#[test]
fn a_gateway_lets_through_what_a_kernel_with_the_same_policies_does() {
    if !can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (kernel, world) = (World::new(), World::new());
    let convoy = Convoy::start(&world, folder.path());
    let everybody = world.everybody();
    let mut random = random();
    let mut policies = Vec::new();
    let [mut by_kernel, mut by_convoy] = [BTreeSet::new(), BTreeSet::new()];
    let mut sent: Vec<String> = Vec::new();
    for round in 0..60 {
        let lines = change(&mut policies, &mut random);
        let said = batch(&kernel.router, Command::new("ip"), &lines);
        assert_eq!(said, "", "{lines}");
        let said = batch(&world.router, convoy.ip(), &lines);
        assert_eq!(said, "", "{lines}");
        let mut packets = Vec::new();
        for (from, (place, source)) in everybody.iter().enumerate() {
            for (to, destination) in &everybody {
                // Who is in one place hears each other without the router.
                if place == to || source.is_ipv4() != destination.is_ipv4() {
                    continue;
                }
                let port = PORTS[random(2)];
                let number = sent.len() as u64;
                sent.push(format!("round {round}: {source} to {destination} port {port}"));
                packets.push((from, *destination, port, number));
            }
        }
        kernel.send(&packets);
        kernel.hear_all(&mut by_kernel, &BTreeSet::new());
        world.send(&packets);
        world.hear_all(&mut by_convoy, &by_kernel);
        for (.., number) in &packets {
            let passes = [&by_kernel, &by_convoy].map(|heard| heard.contains(number));
            let what = &sent[*number as usize];
            assert_eq!(passes[0], passes[1], "the kernel, the gateway: {what}, {policies:#?}");
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    kernel.hear(&mut by_kernel);
    world.hear(&mut by_convoy);
    // Late ones.
    let differ = by_kernel.symmetric_difference(&by_convoy);
    let differ: Vec<_> = differ.map(|number| &sent[*number as usize]).collect();
    assert!(differ.is_empty(), "{differ:?}");
    let all = sent.len();
    println!("{} of {all} packets passed", by_kernel.len());
    assert!(by_kernel.len() > all / 10 && by_kernel.len() < all * 9 / 10);
}
