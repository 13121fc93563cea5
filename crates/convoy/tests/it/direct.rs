//! Gateways that forward between interfaces themselves, in a laboratory whose kernels would forward
//! as well.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::common::{
    Gateway, PATIENCE, Plan, PolicyText, Tunnel, can_make_namespaces, convoy, dropped, ip, site_of,
    status, text,
};
use convoy_lab::traffic::{Ping, Watch};
use convoy_lab::{
    Capture, CaptureConfig, Family, Namespace, Topology, TopologyConfig, WIRE_LINK, wire_report,
};

/// The site of one side, between its two interfaces.
fn site(side: char, folder: &std::path::Path, backend: &str) -> std::path::PathBuf {
    site_of(&Plan::simple(), side, folder, backend)
}

/// Counts the answers to echo requests; some may be lost.
fn answered(from: &Namespace, to: IpAddr, count: u16) -> u64 {
    answered_within(from, to, count, Duration::from_secs(1))
}

/// True if a few echo requests are all answered, sooner or later.
fn all_answered(from: &Namespace, to: IpAddr, count: u16) -> bool {
    answered_within(from, to, count, PATIENCE) == u64::from(count)
}

fn answered_within(from: &Namespace, to: IpAddr, count: u16, timeout: Duration) -> u64 {
    let cancel = AtomicBool::new(false);
    let ping = Ping { count, interval: Duration::from_millis(20), timeout, ..Ping::new(to) };
    ping.run(from, &mut Watch::new(&cancel)).unwrap().received
}

/// A socket that receives ICMP of the calling thread's network namespace.
fn raw_icmp() -> UdpSocket {
    let (domain, protocol) = (socket2::Domain::IPV4, socket2::Protocol::ICMPV4);
    let raw = socket2::Socket::new(domain, socket2::Type::RAW, Some(protocol));
    let raw: UdpSocket = raw.unwrap().into();
    raw.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    raw
}

/// The source of the first ICMP error about a datagram with this TTL, or none.
pub(super) fn complaint(
    from: &Namespace,
    to: IpAddr,
    ttl: u32,
    len: usize,
) -> Option<(IpAddr, String)> {
    let socket = from.run(move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_ttl(ttl).unwrap();
        let raw = raw_icmp();
        socket.send_to(&vec![7; len], (to, 33434)).unwrap();
        raw
    });
    let socket = socket.unwrap();
    let begun = Instant::now();
    let mut bytes = [0; 2000];
    while begun.elapsed() < PATIENCE {
        let Ok((len, source)) = socket.recv_from(&mut bytes) else { continue };
        match bytes.get(20..len) {
            Some([11, 0, ..]) => return Some((source.ip(), "time exceeded".into())),
            Some([3, 4, ..]) => return Some((source.ip(), "too big".into())),
            Some([3, code, ..]) => return Some((source.ip(), format!("unreachable {code}"))),
            _ => {}
        }
    }
    None
}

fn forwards_itself(backend: &str) {
    if !can_make_namespaces() {
        return;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sites = ['a', 'b'].map(|side| site(side, folder.path(), backend));
    // The kernels would forward: routes to the far networks are there, and forwarding is on.
    let routes = lab.direct_routes().unwrap();
    let far = lab.b.host_address(Family::V4);
    assert!(all_answered(&lab.a.host, far, 1));
    let rules = ip(&lab.a.gateway, "rule");

    let a = Gateway::start(&lab.a.gateway, &sites[0]);
    // The peer is not there, so an answer would have come in the clear.
    assert_eq!(answered(&lab.a.host, far, 3), 0, "{}", a.log());
    assert!(ip(&lab.a.gateway, "rule").contains("iif lan blackhole"));
    let b = Gateway::start(&lab.b.gateway, &sites[1]);
    assert!(all_answered(&lab.a.host, far, 20), "{}\n{}", a.log(), b.log());
    let counts = status(&sites[0]);
    let of = |name: &str| {
        let list = counts["counters"].as_array().cloned().unwrap_or_default();
        list.iter().find(|c| c["name"] == name).map_or(0, |c| c["value"].as_u64().unwrap())
    };
    assert!(counts["outbound"]["packets"].as_u64().unwrap() >= 20, "{counts}");
    assert_eq!((of("plain.tx-unresolved"), of("wire.tx-unresolved")), (0, 0));

    let policies = convoy(&["policy", sites[0].to_str().unwrap(), "--json"]);
    let policies: serde_json::Value = serde_json::from_slice(&policies.stdout).unwrap();
    let all = &policies["policies"][0];
    for way in ["sent", "received"] {
        assert!(all[way]["packets"].as_u64().unwrap() >= 20, "{policies}");
        assert!(all[way]["last_packet_s"].as_f64().unwrap() < 20.0, "{policies}");
    }

    // The host itself is reached as ever, and what no policy covers goes nowhere.
    let own = lab.a.gateway_address(Family::V4);
    assert!(all_answered(&lab.a.host, own, 3));
    assert_eq!(answered(&lab.a.host, lab.b.wire_address(Family::V4), 3), 0);

    // TTLs are counted down here, and the answers come from the gateway's own address.
    let exceeded = complaint(&lab.a.host, far, 1, 100);
    assert_eq!(exceeded, Some((own, "time exceeded".into())));
    let reached = complaint(&lab.a.host, far, 4, 100);
    assert_eq!(reached, Some((far, "unreachable 3".into())));
    let too_big = complaint(&lab.a.host, far, 64, 1472);
    assert_eq!(too_big, Some((own, "too big".into())));

    // What the kernel forgets is found again.
    for (gateway, link) in
        [(&lab.a.gateway, "lan"), (&lab.a.gateway, "wire"), (&lab.b.gateway, "lan")]
    {
        ip(gateway, &format!("neigh flush dev {link}"));
    }
    assert!(all_answered(&lab.a.host, far, 5));
    // A host with a new card is found again as well.
    ip(&lab.b.host, "link set eth0 address 02:00:00:00:00:77");
    ip(&lab.b.gateway, "neigh flush dev lan");
    // What is under way when the kernel changes its mind still goes to the old one.
    let begun = Instant::now();
    while answered(&lab.a.host, far, 5) < 5 {
        assert!(begun.elapsed() < PATIENCE);
    }

    assert!(a.terminate().success() && b.terminate().success());
    assert_eq!(ip(&lab.a.gateway, "rule"), rules);
    assert!(all_answered(&lab.a.host, far, 1));
    drop(routes);
}

#[test]
fn packet_sockets_forward_and_the_kernel_does_not() {
    forwards_itself("af_packet");
}

#[test]
fn xdp_sockets_forward_and_the_kernel_does_not() {
    forwards_itself("af_xdp");
}

/// Packets for all hosts of a far network, and packets whose source is no host's, are not forwarded (RFC 1812).
fn forwards_as_a_router(backend: &str) {
    if !can_make_namespaces() {
        return;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sites = ['a', 'b'].map(|side| site(side, folder.path(), backend));
    let _gateways = [(&lab.a, &sites[0]), (&lab.b, &sites[1])]
        .map(|(side, site)| Gateway::start(&side.gateway, site));
    let far = lab.b.host_address(Family::V4);
    assert!(all_answered(&lab.a.host, far, 3));
    let IpAddr::V4(host) = far else { panic!("{far}") };
    let [a, b, c, _] = host.octets();
    let seen = lab.b.host.run(raw_icmp).unwrap();
    let echo = |source: Option<[u8; 4]>, to: [u8; 4]| {
        lab.a.host.run(move || send_echo(source, to)).unwrap();
    };
    // To all hosts of the far network, as its gateway knows that network.
    echo(None, [a, b, c, 255]);
    let begun = Instant::now();
    while dropped(&status(&sites[1]), "not-forwardable") == 0 {
        assert!(begun.elapsed() < PATIENCE, "{}", status(&sites[1]));
    }
    // Sources that no router forwards never enter the tunnel.
    let before = status(&sites[0])["outbound"]["packets"].as_u64().unwrap();
    for source in [[127, 0, 0, 9], [0, 0, 0, 9], [224, 0, 0, 9]] {
        echo(Some(source), host.octets());
    }
    assert!(all_answered(&lab.a.host, far, 1));
    assert_eq!(status(&sites[0])["outbound"]["packets"].as_u64().unwrap(), before + 1);
    let mut bytes = [0; 2000];
    while let Ok((len, source)) = seen.recv_from(&mut bytes) {
        let to = &bytes[16..20];
        assert!(
            to == host.octets() && source.ip() == lab.a.host_address(Family::V4),
            "{:?}",
            &bytes[..len]
        );
    }
}

/// Sends an echo request whose header is made here, since no kernel sends such sources.
fn send_echo(source: Option<[u8; 4]>, to: [u8; 4]) {
    let mut message = vec![8, 0, 0, 0, 0, 9, 0, 1];
    message[2..4].copy_from_slice(&(!(0x0800_u16 + 9 + 1)).to_be_bytes());
    let protocol = if source.is_some() { libc::IPPROTO_RAW } else { libc::IPPROTO_ICMP };
    let (domain, kind) = (socket2::Domain::IPV4, socket2::Type::RAW);
    let socket = socket2::Socket::new(domain, kind, Some(protocol.into())).unwrap();
    socket.set_broadcast(true).unwrap();
    if let Some(source) = source {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0];
        packet.extend(source);
        packet.extend(to);
        packet.extend(message);
        message = packet;
    }
    let to = std::net::SocketAddr::from((to, 0));
    assert_eq!(socket.send_to(&message, &to.into()).unwrap(), message.len());
}

#[test]
fn packet_sockets_forward_as_a_router() {
    forwards_as_a_router("af_packet");
}

#[test]
fn xdp_sockets_forward_as_a_router() {
    forwards_as_a_router("af_xdp");
}

#[test]
fn ah_goes_through_packet_sockets_and_the_kernels_stay_silent() {
    if !can_make_namespaces() {
        return;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let gateways: Vec<_> = [('a', &lab.a.gateway), ('b', &lab.b.gateway)]
        .map(|(side, namespace)| {
            let path = site(side, folder.path(), "af_packet");
            let esp = std::fs::read_to_string(&path).unwrap();
            let ah = "protocol = \"ah\"\nalgorithm = \"aes-128-gmac\"";
            std::fs::write(&path, esp.replace("algorithm = \"aes-128-gcm\"", ah)).unwrap();
            (Gateway::start(namespace, &path), path)
        })
        .into();
    let far = lab.b.host_address(Family::V4);
    let raw = lab.a.gateway.run(raw_icmp).unwrap();
    assert!(all_answered(&lab.a.host, far, 20), "{}", gateways[0].0.log());
    let mut bytes = [0; 2000];
    while let Ok((len, source)) = raw.recv_from(&mut bytes) {
        assert_ne!(bytes[..len].get(20), Some(&3), "{source} found something unreachable");
    }
    for (_, path) in &gateways {
        let counts = status(path);
        assert!(counts["outbound"]["packets"].as_u64().unwrap() >= 20, "{counts}");
    }
}

/// The counters of a gateway that is sent 50 packets, each in two fragments of ESP in UDP.
fn counts_of_fragments(backend: &str) -> Option<serde_json::Value> {
    if !can_make_namespaces() {
        return None;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { udp_encap: true, ..Plan::simple() };
    // Side A has sockets, and its kernel cuts what is too long for its link.
    let path = plan.write('a', folder.path());
    let text = std::fs::read_to_string(&path).unwrap();
    let outbound = "direction = \"outbound\"\n";
    let cut = format!("{outbound}df = \"clear\"\npath_mtu = 1500\n");
    std::fs::write(&path, text.replace(outbound, &cut)).unwrap();
    ip(&lab.a.gateway, "link set wire mtu 700");
    let a = Gateway::start(&lab.a.gateway, &path);
    let site_b = site_of(&plan, 'b', folder.path(), backend);
    let _b = Gateway::start(&lab.b.gateway, &site_b);
    let far = lab.b.host_address(Family::V4);
    let server = lab.b.host.run(|| UdpSocket::bind("0.0.0.0:7001").unwrap()).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = lab.a.host.run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    for number in 0..50_u8 {
        client.send_to(&[number; 1200], (far, 7001)).unwrap();
        let mut got = [0; 2000];
        assert_eq!(server.recv(&mut got).unwrap(), 1200, "{}", a.log());
        assert_eq!(got[..1200], [number; 1200]);
    }
    // Every packet came in two parts.
    Some(status(&site_b)["counters"].clone())
}

fn counted(counts: &serde_json::Value, name: &str) -> u64 {
    let counts = counts.as_array().unwrap().iter();
    counts.filter(|c| c["name"] == name).filter_map(|c| c["value"].as_u64()).sum()
}

#[test]
fn esp_in_udp_that_comes_in_fragments_is_put_together_from_packet_sockets() {
    let Some(counts) = counts_of_fragments("af_packet") else { return };
    assert_eq!(counted(&counts, "fragments-joined"), 50, "{counts}");
}

/// By the kernel, which must get the fragments in case they are IKE's.
#[test]
fn esp_in_udp_that_comes_in_fragments_is_put_together_beside_xdp_sockets() {
    let Some(counts) = counts_of_fragments("af_xdp") else { return };
    assert_eq!(counted(&counts, "fragments-joined"), 0, "{counts}");
    assert_eq!(counted(&counts, "wire.rx-packets"), 50, "{counts}");
}

/// Tunnels by number; each ends at an address of its own at side B. The last one is in use.
fn at_addresses(
    ends: &[u8],
    side: char,
    folder: &std::path::Path,
    backend: &str,
) -> std::path::PathBuf {
    let names = ["one", "two", "three"];
    let tunnels = ends.iter().map(|end| {
        let name = names[usize::from(*end) - 12];
        Tunnel { name, spi: 0x1000 * u32::from(*end), key: *end }
    });
    let tunnels: Vec<_> = tunnels.collect();
    let last = tunnels.last().unwrap().name;
    let mut plan = Plan { tunnels, ..Plan::simple() };
    plan.policies[0] = PolicyText { out: last, ins: vec![last], ..plan.policies[0].clone() };
    let path = site_of(&plan, side, folder, backend);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut sections = text.split("[[sa]]");
    let mut text = sections.next().unwrap().to_owned();
    for section in sections {
        let end = names.iter().position(|name| section.contains(&format!("\"{name}-"))).unwrap();
        let address = format!("\"198.51.100.{}\"", end + 12);
        text += &format!("[[sa]]{}", section.replace("\"198.51.100.2\"", &address));
    }
    std::fs::write(&path, text).unwrap();
    path
}

fn takes_new_addresses(backend: &str) {
    if !can_make_namespaces() {
        return;
    }
    let far_ends = [12, 13, 14];
    // One address, which a socket would be bound to, and several.
    for (before, after) in [(&far_ends[..2], &far_ends[..]), (&far_ends[..1], &far_ends[..2])] {
        let lab =
            Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
        for end in far_ends {
            ip(&lab.b.gateway, &format!("address add 198.51.100.{end}/24 dev wire"));
        }
        let folder = tempfile::tempdir().unwrap();
        let sites = ['a', 'b'].map(|side| at_addresses(before, side, folder.path(), backend));
        let a = Gateway::start(&lab.a.gateway, &sites[0]);
        let b = Gateway::start(&lab.b.gateway, &sites[1]);
        let far = lab.b.host_address(Family::V4);
        assert!(all_answered(&lab.a.host, far, 5), "{}\n{}", a.log(), b.log());
        for side in ['b', 'a'] {
            let path = at_addresses(after, side, folder.path(), backend);
            let reload = convoy(&["reload", path.to_str().unwrap()]);
            assert!(reload.status.success(), "{}", text(&reload.stderr));
        }
        assert!(all_answered(&lab.a.host, far, 20), "{}\n{}", a.log(), b.log());

        // News of the link do not bring the old ones back.
        ip(&lab.b.gateway, "link set wire alias renamed");
        let begun = Instant::now();
        while answered(&lab.a.host, far, 5) < 5 {
            assert!(begun.elapsed() < PATIENCE, "after the link was down:\n{}", b.log());
        }
        assert!(a.terminate().success() && b.terminate().success());
    }
}

#[test]
fn packet_sockets_take_packets_to_addresses_that_a_reload_adds() {
    takes_new_addresses("af_packet");
}

#[test]
fn xdp_sockets_take_packets_to_addresses_that_a_reload_adds() {
    takes_new_addresses("af_xdp");
}

#[test]
fn a_gateway_that_is_killed_leaves_nothing_in_the_clear() {
    if !can_make_namespaces() {
        return;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let site = site('a', folder.path(), "af_packet");
    let routes = lab.direct_routes().unwrap();
    let far = lab.b.host_address(Family::V4);
    Gateway::start(&lab.a.gateway, &site).kill();
    assert_eq!(answered(&lab.a.host, far, 3), 0);
    // The next run takes the rule over and away.
    assert!(Gateway::start(&lab.a.gateway, &site).terminate().success());
    assert!(all_answered(&lab.a.host, far, 1));
    // So does who lets packets pass in clear.
    Gateway::start(&lab.a.gateway, &site).kill();
    let guard = "iif lan blackhole";
    assert!(ip(&lab.a.gateway, "rule").contains(guard));
    let run = |verb: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_convoy"));
        command.arg(verb).arg(&site).stdout(std::process::Stdio::piped());
        let output = lab.a.gateway.spawn(&mut command).unwrap().wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let doctor = run("doctor");
    assert!(doctor.contains("rule 1 (iif lan blackhole)"), "{doctor}");
    let open = run("open");
    assert!(open.contains("removed the ip rules that kept the kernel from forwarding"), "{open}");
    assert!(!ip(&lab.a.gateway, "rule").contains(guard));
    assert!(all_answered(&lab.a.host, far, 1));
    drop(routes);
}

/// A new interface of the same name is another one; who supervises the gateway starts it again.
/// A datagram from an address of the host itself, and one back.
fn speaks(from: (&Namespace, IpAddr), to: (&Namespace, IpAddr)) -> bool {
    let bound = |(space, address): (&Namespace, IpAddr)| {
        let socket = space.run(move || UdpSocket::bind((address, 0)).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        socket
    };
    let (asking, asked) = (bound(from), bound(to));
    let mut bytes = [0; 100];
    if asking.send_to(b"a question", asked.local_addr().unwrap()).is_err() {
        return false;
    }
    let Ok((_, who)) = asked.recv_from(&mut bytes) else { return false };
    asked.send_to(b"an answer", who).is_ok() && asking.recv_from(&mut bytes).is_ok()
}

fn the_host_itself_is_protected(backend: &str) {
    if !can_make_namespaces() {
        return;
    }
    let config = TopologyConfig { named: false, ..TopologyConfig::default() };
    let lab = Topology::build(&config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sites = ['a', 'b'].map(|side| site(side, folder.path(), backend));
    let _routes = lab.direct_routes().unwrap();
    let [own, far, far_gateway] = [
        lab.a.gateway_address(Family::V4),
        lab.b.host_address(Family::V4),
        lab.b.gateway_address(Family::V4),
    ];
    let says = |to: IpAddr| {
        let host = if to == far { &lab.b.host } else { &lab.b.gateway };
        speaks((&lab.a.gateway, own), (host, to))
    };
    let file = folder.path().join("captured.pcap");
    let wire = |work: &mut dyn FnMut()| {
        let capture =
            Capture::start(&lab.b.gateway, WIRE_LINK, &file, CaptureConfig::default()).unwrap();
        work();
        capture.stop().unwrap();
        wire_report(&file, &[&lab.a, &lab.b].map(|site| site.network(Family::V4))).unwrap()
    };
    assert!(wire(&mut || assert!(says(far))).clear > 0, "the capture hears what is in clear");
    let rules = ip(&lab.a.gateway, "rule");
    let [a, b] = [(&lab.a.gateway, &sites[0]), (&lab.b.gateway, &sites[1])]
        .map(|(gateway, site)| Gateway::start(gateway, site));
    let report = wire(&mut || {
        let begun = Instant::now();
        while !says(far) {
            assert!(begun.elapsed() < PATIENCE, "{}\n{}", a.log(), b.log());
        }
        // The gateways' own addresses are reached from a host, and from a gateway.
        assert!(all_answered(&lab.a.host, far_gateway, 3), "{}\n{}", a.log(), b.log());
        assert!(says(far_gateway));
    });
    assert_eq!(report.clear, 0, "{}", report.clear_in_words());
    let counts = status(&sites[0]);
    assert!(counts["outbound"]["packets"].as_u64().unwrap() >= 5, "{counts}");
    // An address that comes is the host's, too.
    let new = IpAddr::from([10, 2, 0, 77]);
    ip(&lab.b.gateway, "address add 10.2.0.77/32 dev lan");
    let begun = Instant::now();
    while answered(&lab.a.host, new, 1) == 0 {
        assert!(begun.elapsed() < PATIENCE, "{}\n{}", a.log(), b.log());
    }
    a.kill();
    let report = wire(&mut || assert!(!says(far)));
    assert_eq!(report.clear, 0, "{}", report.clear_in_words());
    let a = Gateway::start(&lab.a.gateway, &sites[0]);
    assert!(a.terminate().success() && b.terminate().success());
    assert_eq!(ip(&lab.a.gateway, "rule"), rules);
    assert!(
        says(far),
        "it ends with the gateway, as the rule that keeps the kernel from forwarding"
    );
}

#[test]
fn what_the_host_itself_says_is_protected_beside_packet_sockets() {
    the_host_itself_is_protected("af_packet");
}

#[test]
fn what_the_host_itself_says_is_protected_beside_xdp_sockets() {
    the_host_itself_is_protected("af_xdp");
}

#[test]
fn a_gateway_whose_interface_is_gone_ends() {
    if !can_make_namespaces() {
        return;
    }
    let namespace = Namespace::anonymous().unwrap();
    for name in ["lan", "wire"] {
        ip(&namespace, &format!("link add {name} type veth peer name far-{name}"));
        ip(&namespace, &format!("link set {name} up"));
    }
    ip(&namespace, "addr add 198.51.100.1/24 dev wire");
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::start(&namespace, &site('a', folder.path(), "af_packet"));
    ip(&namespace, "link del wire");
    assert_eq!(gateway.wait().code(), Some(1), "{}", gateway.log());
    assert!(gateway.log().contains("interface wire was removed"), "{}", gateway.log());
    assert!(!ip(&namespace, "rule").contains("blackhole"), "what was changed is taken back");
}

/// An address of the host may be anywhere; one that it does not have is said.
fn knows_its_addresses(backend: &str) {
    if !can_make_namespaces() {
        return;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let sites = ['a', 'b'].map(|side| at_addresses(&[12], side, folder.path(), backend));
    // A router's address, beside its interfaces.
    ip(&lab.a.gateway, "route add 198.51.100.12 via 198.51.100.2");
    ip(&lab.b.gateway, "link set lo up");
    let refused = "sa[one-out].local: 198.51.100.12 is not an address of this host";
    let mut early = Gateway::launch(&lab.b.gateway, &sites[1]);
    assert!(!early.wait_ready() && early.wait().code() == Some(1));
    assert!(early.log().contains(refused), "{}", early.log());
    let check = convoy(&["check", sites[1].to_str().unwrap()]);
    let notes = text(&check.stderr);
    assert!(notes.contains("note: ") && notes.contains(refused), "{notes}");

    ip(&lab.b.gateway, "address add 198.51.100.12/32 dev lo");
    let a = Gateway::start(&lab.a.gateway, &sites[0]);
    let b = Gateway::start(&lab.b.gateway, &sites[1]);
    let far = lab.b.host_address(Family::V4);
    assert!(all_answered(&lab.a.host, far, 5), "{}\n{}", a.log(), b.log());
    let more = at_addresses(&[12, 13], 'b', folder.path(), backend);
    let reload = convoy(&["reload", more.to_str().unwrap()]);
    assert!(!reload.status.success());
    let said = text(&reload.stderr);
    assert!(said.contains("198.51.100.13 is not an address of this host"), "{said}");

    let lost =
        "198.51.100.12, the local address of SA 'one-out', is not an address of this host any more";
    let until = |is_wrong: bool| {
        let begun = Instant::now();
        while status(&sites[1])["health"].to_string().contains(lost) != is_wrong {
            assert!(begun.elapsed() < PATIENCE, "{}\n{}", status(&sites[1])["health"], b.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    ip(&lab.b.gateway, "address del 198.51.100.12/32 dev lo");
    until(true);
    assert!(b.log().contains(lost), "{}", b.log());
    ip(&lab.b.gateway, "address add 198.51.100.12/32 dev lo");
    until(false);
    assert!(b.log().contains("is an address of this host again"), "{}", b.log());
    assert!(all_answered(&lab.a.host, far, 5), "{}\n{}", a.log(), b.log());
    assert!(a.terminate().success() && b.terminate().success());
}

#[test]
fn an_address_that_no_sa_has_any_more_is_not_missed() {
    if !can_make_namespaces() {
        return;
    }
    let lab =
        Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for end in [12, 13] {
        ip(&lab.b.gateway, &format!("address add 198.51.100.{end}/32 dev lo"));
    }
    let site = at_addresses(&[12, 13], 'b', folder.path(), "af_packet");
    let b = Gateway::start(&lab.b.gateway, &site);
    ip(&lab.b.gateway, "address del 198.51.100.13/32 dev lo");
    let health = || status(&site)["health"].to_string();
    let begun = Instant::now();
    while !health().contains("198.51.100.13") {
        assert!(begun.elapsed() < PATIENCE, "{}\n{}", health(), b.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    at_addresses(&[12], 'b', folder.path(), "af_packet");
    let reload = convoy(&["reload", site.to_str().unwrap()]);
    assert!(reload.status.success(), "{}", text(&reload.stderr));
    assert!(!health().contains("198.51.100.13"), "{}", health());
    assert!(!b.log().contains("is an address of this host again"), "{}", b.log());
}

/// The kernel lets nobody have an address of IPv6 before it has asked for others that do.
#[test]
fn a_gateway_waits_for_its_ipv6_addresses() {
    if !can_make_namespaces() {
        return;
    }
    let namespace = Namespace::anonymous().unwrap();
    ip(&namespace, "link add wire type veth peer name far-wire");
    // The laboratory does without.
    let detects = || std::fs::write("/proc/sys/net/ipv6/conf/wire/accept_dad", "1").unwrap();
    namespace.run(detects).unwrap();
    ip(&namespace, "link set far-wire up");
    ip(&namespace, "link set wire up");
    let folder = tempfile::tempdir().unwrap();
    let site = Plan::simple().write('a', folder.path());
    let ours = std::fs::read_to_string(&site).unwrap().replace("198.51.100.", "2001:db8:77::");
    std::fs::write(&site, ours).unwrap();
    ip(&namespace, "address add 2001:db8:77::1/64 dev wire");
    let shown = ip(&namespace, "-oneline -6 address show dev wire");
    let tentative = |line: &str| line.contains("2001:db8:77::1") && line.contains("tentative");
    assert!(shown.lines().any(tentative), "{shown}");
    assert!(Gateway::start(&namespace, &site).terminate().success());

    ip(&namespace, "address del 2001:db8:77::1/64 dev wire");
    let mut late = Gateway::launch(&namespace, &site);
    assert!(!late.wait_ready() && late.wait().code() == Some(1));
    assert!(late.log().contains("set net.ipv6.ip_nonlocal_bind"), "{}", late.log());
}

#[test]
fn packet_sockets_need_addresses_that_the_host_has() {
    knows_its_addresses("af_packet");
}

#[test]
fn xdp_sockets_need_addresses_that_the_host_has() {
    knows_its_addresses("af_xdp");
}

#[test]
fn what_is_wrong_with_an_interface_is_said() {
    if !can_make_namespaces() {
        return;
    }
    let namespace = Namespace::anonymous().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let site = site('a', folder.path(), "af_packet");
    let run = || {
        let mut gateway = Gateway::launch(&namespace, &site);
        assert!(!gateway.wait_ready());
        gateway.log()
    };
    assert!(run().contains("interface lan does not exist in this network namespace"), "{}", run());
    ip(&namespace, "link add lan type veth peer name other");
    assert!(run().contains("interface lan is down: ip link set lan up"), "{}", run());
    ip(&namespace, "link set lan up");
    assert!(run().contains("interface wire does not exist"), "{}", run());
    let dry = convoy(&["run", "--dry-run", site.to_str().unwrap()]);
    let shown = text(&dry.stdout);
    assert!(
        shown.contains("keep the kernel from forwarding packets that arrive on lan"),
        "{shown}"
    );
    assert!(shown.contains("open packet sockets on interface wire"), "{shown}");
}
