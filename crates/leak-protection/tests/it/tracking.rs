//! Packets that a kernel tracks as flows, by its own list of them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use convoy_leak_protection::{Config, LeakProtection, PrefixSets, Sides, Tracked, others};
use convoy_netlink::nft::expression::{ACCEPT, count, verdict};
use convoy_netlink::nft::flow::{RELATED, is_not_in_state};
use convoy_netlink::nft::{self, Nft, Place, TableFlags};
use netlink_packet_netfilter::nftables::InetHookNumber;

use crate::questions::{Gateway, config, site};
use crate::world::flows::packet;
use crate::world::{Door, Space, Tun, World, send_raw};

/// ESP and AH.
const TUNNELS: [u8; 2] = [50, 51];

/// A packet that is none of UDP, TCP and ICMP.
fn of_protocol(protocol: u8, from: &str, to: &str) -> Vec<u8> {
    let mut bytes = packet(from, to, [1, 2], b"protocol");
    let is_v4 = bytes[0] >> 4 == 4;
    bytes[if is_v4 { 9 } else { 6 }] = protocol;
    if is_v4 {
        // RFC 1624 equation 3.
        let sum = u32::from(!u16::from_be_bytes([bytes[10], bytes[11]]));
        let sum = sum + (0xffff - 17) + u32::from(protocol);
        let sum = (sum & 0xffff) + (sum >> 16);
        bytes[10..12].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
    }
    bytes
}

/// The ends of the flows that a kernel tracks, each with its protocol's number.
fn tracked(space: &Space) -> Option<BTreeSet<(u8, IpAddr, IpAddr)>> {
    let text = space.run(|| std::fs::read_to_string("/proc/thread-self/net/nf_conntrack")).ok()?;
    let flow = |line: &str| {
        let protocol = line.split_whitespace().nth(3)?.parse().ok()?;
        let end = |key: &str| {
            let word = line.split_whitespace().find_map(|word| word.strip_prefix(key));
            word.and_then(|word| word.parse().ok())
        };
        Some((protocol, end("src=")?, end("dst=")?))
    };
    Some(text.lines().map(|line| flow(line).unwrap_or_else(|| panic!("{line}"))).collect())
}

/// As in [`site`], with a second far network, which is held whole.
fn two_networks() -> PrefixSets {
    let mut sets = site().sets;
    let [whole, near] = ["10.3.0.0/16", "10.1.0.0/24"].map(|net| net.parse().unwrap());
    sets.policies.push(Sides { local: [near].into(), remote: [whole].into() });
    sets.routed.insert(whole);
    sets
}

/// Sends packets of all kinds; the gateway of the world answers what it is asked.
fn traffic(world: &World, tun: &mut Tun) {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let (own, peer) = ("192.0.2.1", "192.0.2.2");
    for protocol in TUNNELS {
        world.send(Door::Wire, tun, &of_protocol(protocol, peer, own), address(own));
        world.send(Door::Gateway, tun, &of_protocol(protocol, own, peer), address(peer));
    }
    for port in [500, 4500] {
        world.send(Door::Wire, tun, &packet(peer, own, [port, port], b"ike"), address(own));
        world.send(Door::Gateway, tun, &packet(own, peer, [port, port], b"ike"), address(peer));
    }
    let lan = "10.1.0.2";
    // A stranger's, a flow that is protected whole, and one that is asked about.
    for to in [peer, "10.3.0.2", "10.2.0.2"] {
        world.lan.run(|| send_raw(&packet(lan, to, [9, 8], b"flow"), address(to), 0));
    }
    tun.write(&packet("10.3.0.2", lan, [8, 9], b"back"));
    tun.write(&packet("10.2.0.2", lan, [8, 9], b"back"));
    world.listener.flush(&world.senders()[0]);
    world.listener.flush(&world.senders()[1]);
}

fn lan() -> IpAddr {
    "10.1.0.2".parse().unwrap()
}

/// ICMP error that says that a packet of [`traffic`] to the mixed network does not arrive.
fn unreachable(from: &str, to: IpAddr) -> Vec<u8> {
    let about = packet("10.1.0.2", "10.2.0.2", [9, 8], b"flow");
    let mut error = [&[3, 1, 0, 0, 0, 0, 0, 0], &about[..28]].concat();
    let sum: u32 =
        error.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    error[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut bytes = of_protocol(1, from, &to.to_string());
    // As long as the other one, up to its end.
    bytes.truncate(20);
    bytes.extend(error);
    let old = u32::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    let length = u16::try_from(bytes.len()).unwrap();
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    let sum = u32::from(!u16::from_be_bytes([bytes[10], bytes[11]]));
    let sum = sum + (0xffff - old) + u32::from(length);
    let sum = (sum & 0xffff) + (sum >> 16);
    bytes[10..12].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
    bytes
}

/// Counts packets that come in and are about flows.
fn errors_about_flows(world: &World) -> impl Fn() -> u64 + '_ {
    let mut orders = nft::table("counts", TableFlags::empty(), false);
    let rules = vec![
        [is_not_in_state(RELATED), vec![verdict(ACCEPT)]].concat(),
        vec![count(), verdict(ACCEPT)],
    ];
    let place = Place::At(InetHookNumber::PreRouting, -50);
    orders.extend(nft::chain("counts", "related", place, rules));
    world.gateway.run(|| Nft::open().unwrap().commit(orders).unwrap());
    let read = || Nft::open().unwrap().dump(nft::question("counts", "related")).unwrap();
    move || world.gateway.run(read).iter().map(nft::packets_counted).sum()
}

#[test]
fn tunnels_strangers_and_what_is_held_whole_make_no_entries_among_flows() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let mut tun = world.tun();
    let config = Config { udp_port: 4500, ..config() };
    let gateway = Gateway::with(&world, &config);
    *gateway.model.lock().unwrap() = site();
    let mut protection =
        world.gateway.run(|| LeakProtection::install(config, two_networks())).unwrap();
    let of_tunnels = |flows: &BTreeSet<(u8, IpAddr, IpAddr)>| {
        flows.iter().filter(|(protocol, ..)| TUNNELS.contains(protocol)).count()
    };
    traffic(&world, &mut tun);
    let Some(all) = tracked(&world.gateway) else {
        return crate::world::skipped("the kernel does not list the flows that it tracks");
    };
    assert!(of_tunnels(&all) > 0 && all.len() > 4, "by default all is tracked: {all:?}");
    let forgotten = || {
        let outcome = world.gateway.command("conntrack", "-F");
        outcome.inspect_err(|error| crate::world::skipped(&format!("conntrack: {error}"))).is_ok()
    };
    if !forgotten() {
        return;
    }
    protection.track(Tracked::AllButTunnels).unwrap();
    assert!(!protection.repair().unwrap().any(), "it is as it was made");
    traffic(&world, &mut tun);
    let flows = tracked(&world.gateway).unwrap();
    assert_eq!(of_tunnels(&flows), 0, "{flows:?}");
    let stranger = |flows: &BTreeSet<(u8, IpAddr, IpAddr)>| {
        let ends = ["10.1.0.2", "192.0.2.2"].map(|text| text.parse().unwrap());
        flows.contains(&(17, ends[0], ends[1]))
    };
    assert!(stranger(&all) && stranger(&flows), "{flows:?}");
    protection.track(Tracked::Asked).unwrap();
    assert!(forgotten());
    traffic(&world, &mut tun);
    let flows = tracked(&world.gateway).unwrap();
    let ends = ["10.1.0.2", "10.2.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
    let is_asked = |flow: &(u8, IpAddr, IpAddr)| {
        // The first of its packets may wait for an answer still.
        flow.0 == 17 && [flow.1, flow.2].iter().all(|end| ends.contains(end))
    };
    assert!(!flows.is_empty() && flows.iter().all(is_asked), "{flows:?}");
    let related = errors_about_flows(&world);
    world.send(Door::Wire, &mut tun, &unreachable("192.0.2.2", lan()), lan());
    world.listener.flush(&world.senders()[0]);
    assert_eq!(related(), 1, "an error about a flow that is asked about, from a stranger");
    // Another life begins with all of them, until it knows who else needs them.
    drop(protection);
    let config = Config { udp_port: 4500, ..crate::questions::config() };
    let mut protection =
        world.gateway.run(|| LeakProtection::install(config, two_networks())).unwrap();
    assert!(protection.drops().unwrap().is_some());
    traffic(&world, &mut tun);
    let flows = tracked(&world.gateway).unwrap();
    assert!(of_tunnels(&flows) > 0, "{flows:?}");
}

#[test]
fn whoever_else_needs_flows_is_seen() {
    let Ok(space) = Space::new() else {
        return crate::world::skipped("cannot make a network namespace here");
    };
    let tracks = || space.run(|| others(&config()).unwrap().track);
    assert!(!tracks());
    let _own = space.run(|| LeakProtection::install(config(), site().sets)).unwrap();
    assert!(!tracks(), "its own questions");
    let mut orders = nft::table("others", TableFlags::empty(), false);
    orders.extend(nft::chain(
        "others",
        "states",
        Place::At(InetHookNumber::Forward, 0),
        vec![is_not_in_state(1)],
    ));
    space.run(|| Nft::open().unwrap().commit(orders).unwrap());
    assert!(tracks());
    space.run(|| Nft::open().unwrap().commit(vec![nft::removal("others")]).unwrap());
    assert!(!tracks());
    for (program, made, words) in [
        (
            "nft",
            "a chain of NAT",
            &["add table ip n", "add chain ip n c { type nat hook postrouting priority 100 ; }"][..],
        ),
        ("iptables-nft", "a state", &["-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT"]),
        ("iptables-nft", "NAT", &["-t nat -A POSTROUTING -j MASQUERADE"]),
        (
            "ip6tables-nft",
            "a helper",
            &["-t raw -A PREROUTING -p tcp --dport 21 -j CT --helper ftp"],
        ),
        ("iptables-legacy", "rules that cannot be seen", &["-A FORWARD -j ACCEPT"]),
    ] {
        let Ok(space) = Space::new() else { return };
        let tracks = || space.run(|| others(&config()).unwrap().track);
        assert!(!tracks(), "{made}");
        if let Some(error) = words.iter().find_map(|it| space.command(program, it).err()) {
            crate::world::skipped(&format!("{program}: {error}"));
            continue;
        }
        assert!(tracks(), "{program}: {made}");
        let rewrite = space.run(|| others(&config()).unwrap().rewrite);
        assert_eq!(rewrite, made.contains("NAT"), "{program}: {made}");
    }
    // These leave flows alone.
    let Ok(space) = Space::new() else { return };
    let Ok(_) = space.command("iptables-nft", "-A INPUT -p tcp --dport 22 -j ACCEPT") else {
        return;
    };
    space.command("iptables-nft", "-t raw -A OUTPUT -p udp -j CT --notrack").unwrap();
    assert!(!space.run(|| others(&config()).unwrap().track));
}
