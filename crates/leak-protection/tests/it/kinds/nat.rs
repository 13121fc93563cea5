//! Addresses that the host's own rules change: policies are asked about destinations as they become, and about sources
//! as they were and as they become.

use std::collections::BTreeMap;
use std::net::IpAddr;

use convoy_leak_protection::Verdict;

use super::packets::{Selectors, UDP};
use super::random::{self, PORTS, Random, SIDES, Soak};
use super::spd::{Guard, Mode, Spd};
use super::{Kind, Scene, Sent};
use crate::world::{Door, World};

const RULES: &str = "
table ip others {
    chain pre {
        type nat hook prerouting priority -100;
        ip daddr 192.0.2.1 udp dport 5007 dnat to 10.1.0.2:7
        ip daddr 192.0.2.1 udp dport 5008 dnat to 10.1.0.3:8
        ip daddr 203.0.113.9 udp dport 7 dnat to 10.2.0.2:8
        ip daddr 203.0.113.9 udp dport 8 dnat to 10.3.0.2:7
    }
    chain out {
        type nat hook output priority -100;
        ip daddr 203.0.113.9 udp dport 7 dnat to 10.2.0.2:8
        ip daddr 203.0.113.9 udp dport 8 dnat to 10.3.0.2:7
    }
    chain post {
        type nat hook postrouting priority 100;
        oifname wire0 ip saddr 10.1.0.3 snat to 192.0.2.1
        oifname wire0 ip saddr 10.1.0.2 ip daddr 10.2.0.3 snat to 10.1.0.77
    }
}
";

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A packet with the destination that the rules give it.
fn led(it: Selectors) -> Selectors {
    let [from_port, port] = it.ports;
    let (to, port) = match (it.to.to_string().as_str(), port) {
        ("192.0.2.1", 5007) => ("10.1.0.2", 7),
        ("192.0.2.1", 5008) => ("10.1.0.3", 8),
        ("203.0.113.9", 7) => ("10.2.0.2", 8),
        ("203.0.113.9", 8) => ("10.3.0.2", 7),
        _ => return it,
    };
    Selectors { to: address(to), ports: [from_port, port], ..it }
}

/// A packet with the source that it gets on its way out by the wire.
fn hidden(it: Selectors) -> Selectors {
    let from = match (it.from.to_string().as_str(), it.to.to_string().as_str()) {
        ("10.1.0.3", _) => "192.0.2.1",
        ("10.1.0.2", "10.2.0.3") => "10.1.0.77",
        _ => return it,
    };
    Selectors { from: address(from), ..it }
}

fn fate(spd: &Spd, door: Door, it: Selectors) -> Verdict {
    let it = led(it);
    let is_to_wire = SIDES[0].wire.contains(&it.to.to_string().as_str());
    match spd.fate(door, &it) {
        Verdict::Bypass if is_to_wire && door != Door::Gateway && hidden(it) != it => {
            match spd.outbound(&hidden(it)) {
                Verdict::Bypass => Verdict::Bypass,
                // It is too late for a tunnel.
                _ => Verdict::Discard,
            }
        }
        fate => fate,
    }
}

fn what_nat_makes_of_packets_decides(mode: Mode, seed: u64) {
    let Some(world) = World::new() else { return };
    let mut scene = Scene::new(&world, mode);
    let file = std::env::temp_dir().join(format!("convoy-nat-{}-{seed}.nft", std::process::id()));
    std::fs::write(&file, RULES).unwrap();
    let loaded = world.gateway.command("nft", &format!("-f {}", file.display()));
    std::fs::remove_file(&file).unwrap();
    if let Err(error) = loaded {
        return crate::world::skipped(&format!("nothing changes addresses here: {error}"));
    }
    let mut random = Random::new(seed);
    let mut guard = Guard::new(&world, mode);
    let mut counts = BTreeMap::<_, u64>::new();
    let mut soak = Soak::new(format!("NAT, {mode:?}, seed {seed}"));
    let mut number = 0_u16;
    while number < 900 || soak.goes_on(number.into()) {
        if random.one_in(12) {
            scene.settle(&guard);
            random.change(&mut guard);
        }
        number = number.wrapping_add(1);
        let side = &SIDES[0];
        let door = Door::ALL[random.below(5)];
        let port = PORTS[random.below(2)];
        let (from, to, port) = match door {
            Door::Wire if random.one_in(2) => (random.of(&side.wire), "192.0.2.1", 5000 + port),
            Door::Wire => (random.of(&side.wire), random.of(&side.lan), port),
            _ if random.one_in(2) => (random.of(&side.lan), "203.0.113.9", port),
            _ => (random.of(&side.lan), random.of(&side.wire), port),
        };
        let [from, to] = [from, to].map(address);
        // Rules of NAT decide about a flow once.
        let ports = [5100 + number % 50_000, port];
        let it = Selectors { from, to, protocol: UDP, ports };
        let spd = guard.spd();
        let why = || format!("seed {seed}, flow {number}, {spd:?}");
        let expected = fate(&spd, door, it);
        let kind = if random.one_in(3) { Kind::Fragments } else { Kind::Whole };
        let is_changed = led(it) != it || hidden(led(it)) != led(it);
        *counts.entry((is_changed, expected)).or_default() += 1;
        let sent = Sent { kind, door, it };
        scene.follow_to(&sent, led(it).to, expected, &why);
        let is_hidden = hidden(led(it)) != led(it);
        if door == Door::Lan && expected == Verdict::Bypass && is_hidden {
            let [from_port, port] = led(it).ports;
            let back = Selectors {
                from: led(it).to,
                to: hidden(led(it)).from,
                ports: [port, from_port],
                ..it
            };
            let seen = Selectors { to: it.from, ..back };
            let expected = spd.fate(Door::Wire, &seen);
            let sent = Sent { kind: Kind::Whole, door: Door::Wire, it: back };
            scene.follow_to(&sent, it.from, expected, &why);
        }
    }
    scene.finish();
    assert!(counts.len() == 6 && counts.values().all(|count| *count >= 5), "{counts:?}");
}

#[test]
fn what_nat_makes_of_packets_decides_by_policies_of_a_site() {
    what_nat_makes_of_packets_decides(Mode::Site, random::seed(41));
}

#[test]
fn what_nat_makes_of_packets_decides_by_policies_of_daemons() {
    what_nat_makes_of_packets_decides(Mode::Daemons, random::seed(42));
}
