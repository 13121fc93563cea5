//! Spokes reach each other through a hub that protects again what comes out of a tunnel: with a host that forwards
//! nothing, and by what policies say.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::common::{Gateway, PATIENCE, by_sockets, convoy, dropped, exec, ip, status, text};
use convoy_lab::traffic::{Ping, PingReport, TcpBulk, Watch};
use convoy_lab::{Capture, CaptureConfig, End, Namespace, cable, wire_report};
use tempfile::TempDir;

/// Two hosts, each behind a gateway, and a hub between these with a LAN of its own.
struct World {
    hosts: [Namespace; 2],
    spokes: [Namespace; 2],
    hub: Namespace,
    _lan: Namespace,
    folder: TempDir,
    sites: [PathBuf; 3],
}

/// The hosts' addresses.
const HOSTS: [[&str; 2]; 2] = [["10.1.0.2", "fd00:1::2"], ["10.2.0.2", "fd00:2::2"]];
const LAN: [&str; 2] = ["10.0.0.2", "fd00::2"];
const HUB: usize = 2;

/// An SA of a site file.
fn sa(name: &str, direction: &str, spi: u32, ends: [&str; 2], key: u8) -> String {
    let [local, remote] = ends;
    format!(
        "[[sa]]\nname = \"{name}\"\ndirection = \"{direction}\"\nspi = {spi}\nlocal = \"{local}\"\n\
         remote = \"{remote}\"\nalgorithm = \"aes-128-gcm\"\nkey = \"{}\"\n",
        format!("{key:02x}").repeat(20)
    )
}

/// A tunnel to a peer, with its SAs. `n` is the spoke's number, whichever end this is.
fn tunnel(n: u8, is_hub: bool) -> String {
    let (hub, spoke) = (format!("198.51.100.{}", n * 4 + 1), format!("198.51.100.{}", n * 4 + 2));
    let ends = if is_hub { [hub.as_str(), &spoke] } else { [spoke.as_str(), &hub] };
    let (to_hub, from_hub) = (0x1000 + u32::from(n), 0x2000 + u32::from(n));
    let (out, inn) = if is_hub { (from_hub, to_hub) } else { (to_hub, from_hub) };
    let key = |spi: u32| (spi >> 8) as u8 + n;
    sa(&format!("out{n}"), "outbound", out, ends, key(out))
        + &sa(&format!("in{n}"), "inbound", inn, ends, key(inn))
}

fn policy(n: u8, local: &str, remote: &str) -> String {
    format!(
        "[[policy]]\nname = \"spoke{n}\"\naction = \"protect\"\nlocal = {local}\nremote = {remote}\n\
         sa_out = \"out{n}\"\nsa_in = \"in{n}\"\n"
    )
}

fn write(folder: &Path, name: &str, rest: &str) -> PathBuf {
    let state = folder.join(format!("{name}.state"));
    if !state.exists() {
        fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
    }
    let path = folder.join(format!("{name}.toml"));
    let text = format!(
        "name = \"{name}\"\nstate_dir = \"{0}/{name}.state\"\ncontrol_socket = \"{0}/{name}.sock\"\n{1}",
        folder.display(),
        by_sockets(rest)
    );
    let _ = fs::remove_file(&path);
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    path
}

const EVERYTHING: &str = "[\"10.0.0.0/8\", \"fd00::/16\"]";

fn network(n: u8) -> String {
    format!("[\"10.{n}.0.0/24\", \"fd00:{n}::/32\"]")
}

/// The hub's site file: spokes may reach all of 10.0.0.0/8 through it.
fn hub_site(more: &str, policies: &str) -> String {
    format!("[plain]\ninterface = \"tun0\"\n{more}{}{}{policies}", tunnel(1, true), tunnel(2, true))
}

fn hub_policies() -> String {
    policy(1, EVERYTHING, &network(1)) + &policy(2, EVERYTHING, &network(2))
}

impl World {
    fn new() -> Option<Self> {
        Self::with(&hub_site("", &hub_policies()))
    }

    fn with(hub_site: &str) -> Option<Self> {
        if !crate::common::can_make_namespaces() {
            return None;
        }
        let name = || Namespace::anonymous().unwrap();
        let (hosts, spokes, hub, lan) = ([name(), name()], [name(), name()], name(), name());
        let nets = |texts: [String; 2]| texts.map(|text| text.parse().unwrap()).to_vec();
        let folder = tempfile::tempdir().unwrap();
        let mut sites = Vec::new();
        for ((n, host), spoke) in [1_u8, 2].into_iter().zip(&hosts).zip(&spokes) {
            let inner =
                |last| nets([format!("10.{n}.0.{last}/24"), format!("fd00:{n}::{last}/64")]);
            cable(
                &End { namespace: host, link: "eth0", addresses: inner(2) },
                &End { namespace: spoke, link: "lan", addresses: inner(1) },
                1500,
            )
            .unwrap();
            let outer = |last: u8| vec![format!("198.51.100.{}/30", n * 4 + last).parse().unwrap()];
            cable(
                &End { namespace: spoke, link: "wire", addresses: outer(2) },
                &End { namespace: &hub, link: &format!("wire{n}"), addresses: outer(1) },
                1500,
            )
            .unwrap();
            ip(host, &format!("route add default via 10.{n}.0.1"));
            ip(host, &format!("-6 route add default via fd00:{n}::1"));
            spoke.forward().unwrap();
            let text = "[plain]\ninterface = \"tun0\"\n".to_owned()
                + &tunnel(n, false)
                + &policy(n, &network(n), EVERYTHING);
            sites.push(write(folder.path(), &format!("spoke{n}"), &text));
        }
        let inner = |last| nets([format!("10.0.0.{last}/24"), format!("fd00::{last}/64")]);
        cable(
            &End { namespace: &lan, link: "eth0", addresses: inner(2) },
            &End { namespace: &hub, link: "lan", addresses: inner(1) },
            1500,
        )
        .unwrap();
        ip(&lan, "route add default via 10.0.0.1");
        ip(&lan, "-6 route add default via fd00::1");
        // Strict, and no router.
        for link in ["all", "default", "lan", "wire1", "wire2"] {
            hub.set_sysctl(&format!("net/ipv4/conf/{link}/rp_filter"), "1").unwrap();
        }
        hub.set_sysctl("net/ipv4/ip_forward", "0").unwrap();
        hub.set_sysctl("net/ipv6/conf/all/forwarding", "0").unwrap();
        sites.push(write(folder.path(), "hub", hub_site));
        let sites = sites.try_into().unwrap();
        Some(Self { hosts, spokes, hub, _lan: lan, folder, sites })
    }

    fn start(&self) -> [Gateway; 3] {
        [&self.spokes[0], &self.spokes[1], &self.hub]
            .into_iter()
            .zip(&self.sites)
            .map(|(namespace, site)| Gateway::start(namespace, site))
            .collect::<Vec<_>>()
            .try_into()
            .unwrap_or_else(|_| unreachable!())
    }

    /// Sends five echo requests that may be lost.
    fn ping(&self, to: &str, payload: usize) -> PingReport {
        self.ping_within(to, payload, Duration::from_millis(500))
    }

    /// Sends five echo requests that are answered, sooner or later.
    fn reach(&self, to: &str, payload: usize) -> PingReport {
        self.ping_within(to, payload, PATIENCE)
    }

    fn ping_within(&self, to: &str, payload: usize, timeout: Duration) -> PingReport {
        let cancel = AtomicBool::new(false);
        let ping = Ping {
            count: 5,
            interval: Duration::from_millis(20),
            timeout,
            payload,
            ..Ping::new(to.parse().unwrap())
        };
        ping.run(&self.hosts[0], &mut Watch::new(&cancel)).unwrap()
    }

    /// Packets and bytes that went from tunnel to tunnel.
    fn transit(&self, site: usize) -> [u64; 2] {
        let status = status(&self.sites[site]);
        ["packets", "bytes"].map(|what| status["transit"][what].as_u64().unwrap())
    }

    /// Waits until so many packets were dropped for a reason: the last may be on their way yet.
    fn wait_for_drops(&self, sites: &[usize], reason: &str, packets: u64) {
        let begun = Instant::now();
        let dropped = || sites.iter().map(|site| self.dropped(*site, reason)).sum::<u64>();
        while dropped() < packets && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(dropped(), packets, "{reason}");
    }

    fn dropped(&self, site: usize, reason: &str) -> u64 {
        dropped(&status(&self.sites[site]), reason)
    }

    /// Asks the hub what would become of an echo request from spoke 1.
    fn trace(&self, to: &str) -> (Option<i32>, String) {
        let from = HOSTS[0][usize::from(to.contains(':'))];
        let site = self.sites[HUB].to_str().unwrap();
        let mut arguments = vec!["trace", site, "--from", from, "--to", to, "--proto", "icmp"];
        arguments.extend(["--inbound", "--spi", "0x1001"]);
        let output = convoy(&arguments);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }
}

#[test]
fn spokes_reach_each_other_through_a_hub_whose_host_forwards_nothing() {
    let Some(world) = World::new() else { return };
    let _gateways = world.start();
    let files = ["wire1", "wire2"].map(|link| {
        let file = world.folder.path().join(format!("{link}.pcap"));
        let capture = Capture::start(&world.hub, link, &file, CaptureConfig::default()).unwrap();
        (file, capture)
    });
    let tun = world.folder.path().join("tun.pcap");
    let on_tun = Capture::start(&world.hub, "tun0", &tun, CaptureConfig::default()).unwrap();
    for to in HOSTS[1] {
        // Also in fragments, of the hosts and of the gateways.
        for payload in [56, 1400, 3000] {
            world.ping(to, payload);
            // By now the host has heard what fits.
            let report = world.reach(to, payload);
            assert_eq!(report.received, 5, "{to} {payload}: {report:?}");
        }
        let cancel = AtomicBool::new(false);
        let bulk = TcpBulk::new(to.parse().unwrap(), Duration::from_millis(500));
        let report = bulk.run(&world.hosts[0], &world.hosts[1], &mut Watch::new(&cancel)).unwrap();
        assert!(report.forward.received > 100_000 && report.forward.damaged == 0, "{report:?}");
    }
    let inner = ["10.0.0.0/8", "fd00::/16"].map(|net| net.parse().unwrap());
    for (file, capture) in files {
        capture.stop().unwrap();
        let report = wire_report(&file, &inner).unwrap();
        assert!(report.clear == 0 && report.protected() > 50, "{}", report.clear_in_words());
    }
    on_tun.stop().unwrap();
    let seen = crate::common::read_pcap(&tun);
    let passed = |packet: &&Vec<u8>| {
        let host = |text: &str| match text.parse().unwrap() {
            IpAddr::V4(to) => to.octets().to_vec(),
            IpAddr::V6(to) => to.octets().to_vec(),
        };
        HOSTS[1].iter().any(|to| packet.windows(host(to).len()).any(|w| w == host(to)))
    };
    assert_eq!(seen.iter().filter(passed).count(), 0, "the hub's host sees nothing");
    let [packets, bytes] = world.transit(HUB);
    assert!(packets > 100 && bytes > 200_000, "{packets} {bytes}");
    assert_eq!(world.transit(0), [0; 2]);
    let shown = text(&convoy(&["status", world.sites[HUB].to_str().unwrap()]).stdout);
    assert!(shown.contains("tunnel to tunnel"), "{shown}");
    for to in HOSTS[1] {
        let (code, said) = world.trace(to);
        assert_eq!(code, Some(0), "{said}");
        for part in ["policy   spoke1", "outbound policy decides", "policy   spoke2", "protected"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn the_hubs_own_networks_stay_reachable_and_a_traceroute_shows_the_hub() {
    let Some(world) = World::new() else { return };
    let _gateways = world.start();
    // The gateway's own addresses need no router.
    for to in ["10.0.0.1", "fd00::1"] {
        assert_eq!(world.reach(to, 56).received, 5, "{to}");
    }
    assert_eq!(world.ping(LAN[0], 56).received, 0, "it is no router");
    world.hub.forward().unwrap();
    for to in LAN {
        assert_eq!(world.reach(to, 56).received, 5, "{to}");
        let (code, said) = world.trace(to);
        assert!(code == Some(0) && said.contains("given to the plain side"), "{said}");
    }
    assert_eq!(world.transit(HUB), [0; 2]);
    // A packet whose last hop is the hub: spoke 1's host takes one, its gateway's host one, and the hub one.
    let from = SocketAddr::new(HOSTS[0][0].parse().unwrap(), 0);
    let to = SocketAddr::new(HOSTS[1][0].parse().unwrap(), 9);
    let said = world.hosts[0]
        .run(move || {
            let socket = UdpSocket::bind(from).unwrap();
            socket.connect(to).unwrap();
            socket.set_ttl(2).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let raw = socket2::Socket::new(
                socket2::Domain::IPV4,
                socket2::Type::RAW,
                Some(socket2::Protocol::ICMPV4),
            )
            .unwrap();
            raw.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket.send(b"too far").unwrap();
            let mut bytes = [0; 200];
            let n = std::io::Read::read(&mut &raw, &mut bytes).unwrap();
            bytes[..n].to_vec()
        })
        .unwrap();
    assert_eq!(said[20], 11, "time exceeded: {said:?}");
    assert!(world.dropped(HUB, "ttl-expired") >= 1);
}

#[test]
fn policies_say_what_goes_from_tunnel_to_tunnel() {
    let rest = "[[policy]]\nname = \"apart\"\naction = \"discard\"\nlocal = \"10.1.0.0/24\"\n\
                remote = \"10.2.0.0/24\"\npriority = 1\n";
    let site = hub_site("", &(hub_policies() + rest));
    let Some(world) = World::with(&site) else { return };
    let _gateways = world.start();
    assert_eq!(world.ping(HOSTS[1][0], 56).received, 0);
    assert_eq!(world.reach(HOSTS[1][1], 56).received, 5, "IPv6 is not meant");
    world.wait_for_drops(&[HUB], "policy-discard", 5);
    let (code, said) = world.trace(HOSTS[1][0]);
    assert!(code == Some(1) && said.contains("apart: discard"), "{said}");
    // A reload lets them pass.
    write(world.folder.path(), "hub", &hub_site("", &hub_policies()));
    let output = convoy(&["reload", world.sites[HUB].to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(world.reach(HOSTS[1][0], 56).received, 5);
    // Another reload gives it all to the host, which forwards nothing.
    let by_host = hub_site("between_tunnels = \"host\"\n", &hub_policies());
    write(world.folder.path(), "hub", &by_host);
    let output = convoy(&["reload", world.sites[HUB].to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let before = world.transit(HUB);
    assert_eq!(world.ping(HOSTS[1][0], 56).received, 0);
    assert_eq!(world.transit(HUB), before);
    world.hub.forward().unwrap();
    assert_eq!(world.reach(HOSTS[1][0], 56).received, 5, "as before there was another way");
}

#[test]
fn a_network_that_the_host_joins_is_near_from_then_on() {
    let Some(world) = World::new() else { return };
    let _gateways = world.start();
    assert_eq!(world.reach(HOSTS[1][0], 56).received, 5);
    let (_, said) = world.trace(HOSTS[1][0]);
    assert!(said.contains("spoke2"), "{said}");
    ip(&world.hub, "address add 10.2.0.77/25 dev lan");
    let begun = Instant::now();
    while !world.trace(HOSTS[1][0]).1.contains("given to the plain side") {
        assert!(begun.elapsed() < PATIENCE, "{}", world.trace(HOSTS[1][0]).1);
        std::thread::sleep(Duration::from_millis(50));
    }
    ip(&world.hub, "address del 10.2.0.77/25 dev lan");
    while !world.trace(HOSTS[1][0]).1.contains("spoke2") {
        assert!(begun.elapsed() < 2 * PATIENCE, "{}", world.trace(HOSTS[1][0]).1);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(world.reach(HOSTS[1][0], 56).received, 5);
}

#[test]
fn a_loop_between_two_hubs_ends() {
    let Some(world) = World::new() else { return };
    // Each of the two gateways believes that the other one has 10.9.0.0/24.
    let inward = "[[policy]]\nname = \"inward\"\naction = \"protect\"\nlocal = \"10.9.0.0/24\"\n\
                  remote = \"10.0.0.0/8\"\nsa_out = \"out1\"\nsa_in = \"in1\"\npriority = 900\n";
    let looped = |is_hub| {
        let outward = policy(1, "\"10.0.0.0/8\"", "\"10.9.0.0/24\"");
        let plain = "[plain]\ninterface = \"tun0\"\nroutes = \"10.9.0.0/24\"\n";
        format!("{plain}{}{outward}{inward}", tunnel(1, is_hub))
    };
    write(world.folder.path(), "hub", &looped(true));
    write(world.folder.path(), "spoke1", &looped(false));
    let _gateways = [
        Gateway::start(&world.hub, &world.sites[HUB]),
        Gateway::start(&world.spokes[0], &world.sites[0]),
    ];
    let report = world.ping("10.9.0.7", 56);
    assert_eq!(report.received, 0);
    // Each ends once.
    world.wait_for_drops(&[HUB, 0], "ttl-expired", 5);
    let rounds = world.transit(HUB)[0] + world.transit(0)[0];
    assert!((5 * 50..=5 * 64).contains(&rounds), "{rounds}");
}

/// `ip xfrm` at the hub, led to its gateway.
fn ip_xfrm(world: &World, arguments: &str) {
    let mut command = exec(world.folder.path().join("xfrm.sock"));
    command.args(["ip", "xfrm"]).args(arguments.split_whitespace());
    assert!(world.hub.spawn(&mut command).unwrap().wait().unwrap().success(), "{arguments}");
}

#[test]
fn tunnels_that_a_daemon_makes_lead_into_each_other() {
    let Some(world) = World::new() else { return };
    let more = format!(
        "[plain]\ninterface = \"tun0\"\n[xfrm]\nsocket = \"{}/xfrm.sock\"\n",
        world.folder.path().display()
    );
    write(world.folder.path(), "hub", &more);
    let _gateways = world.start();
    for n in [1_u8, 2] {
        let (hub, spoke) =
            (format!("198.51.100.{}", n * 4 + 1), format!("198.51.100.{}", n * 4 + 2));
        let (to_hub, to_spoke) = (0x1000 + u32::from(n), 0x2000 + u32::from(n));
        for (from, to, spi) in [(&hub, &spoke, to_spoke), (&spoke, &hub, to_hub)] {
            let key = format!("{:02x}", (spi >> 8) as u8 + n).repeat(20);
            ip_xfrm(
                &world,
                &format!(
                    "state add src {from} dst {to} proto esp spi {spi} reqid {n} mode tunnel flag esn \
                     replay-window 64 aead rfc4106(gcm(aes)) 0x{key} 128"
                ),
            );
        }
        for (direction, [from, to]) in
            [("out", [&hub, &spoke]), ("in", [&spoke, &hub]), ("fwd", [&spoke, &hub])]
        {
            let (all, net) = ("10.0.0.0/8".to_owned(), format!("10.{n}.0.0/24"));
            let [src, dst] = if direction == "out" { [&all, &net] } else { [&net, &all] };
            ip_xfrm(
                &world,
                &format!(
                    "policy add src {src} dst {dst} dir {direction} priority 9 tmpl src {from} dst {to} proto esp \
                     reqid {n} mode tunnel"
                ),
            );
        }
    }
    let report = world.reach(HOSTS[1][0], 56);
    assert_eq!(report.received, 5, "{report:?}");
    assert_eq!(world.transit(HUB)[0], 10, "requests and answers");
    // A daemon blocks what it makes no tunnel for at present.
    ip_xfrm(&world, "policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out priority 1 action block");
    assert_eq!(world.ping(HOSTS[1][0], 56).received, 0);
    world.wait_for_drops(&[HUB], "policy-discard", 5);
}

#[test]
fn a_gateway_past_the_hosts_stack_does_so_too() {
    let direct = hub_site("", &hub_policies())
        .replace("interface = \"tun0\"", "backend = \"af_packet\"\ninterface = \"lan\"");
    let Some(world) = World::with(&direct) else { return };
    let _gateways = world.start();
    for to in HOSTS[1] {
        assert_eq!(world.reach(to, 56).received, 5, "{to}");
    }
    assert_eq!(world.transit(HUB)[0], 20, "requests and answers");
    for to in LAN {
        assert_eq!(world.reach(to, 56).received, 5, "{to}");
    }
    assert_eq!(world.transit(HUB)[0], 20);
}
