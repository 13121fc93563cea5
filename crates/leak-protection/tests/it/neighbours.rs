//! Neighbour Discovery passes on its link. Its types between protected networks are as other packets are.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use convoy_leak_protection::{
    Config, Lead, LeakProtection, Policy, PrefixSets, Sides, SitePolicies, Verdict,
};

use crate::world::{Door, SIGN, World, raise};

/// Router Solicitation to Redirect, and an echo request beside them.
const TYPES: [u8; 6] = [133, 134, 135, 136, 137, 128];
const NEAR: &str = "2001:db8:0:1::/64";
const FAR: &str = "2001:db8:2::/48";
/// The gateway and the host on the wire.
const OF_LINK: [&str; 2] = ["2001:db8:0:2::1", "2001:db8:0:2::2"];

/// An ICMPv6 message of some type with a tag, as a neighbour sends it.
fn message(from: &str, to: &str, kind: u8, tag: &[u8]) -> (Vec<u8>, IpAddr) {
    let [from, to] = [from, to].map(|text| text.parse::<Ipv6Addr>().unwrap());
    let carried = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &to.octets(), SIGN, tag].concat();
    let length = u16::try_from(carried.len()).unwrap().to_be_bytes();
    let start = vec![0x60, 0, 0, 0, length[0], length[1], 58, 255];
    ([start, from.octets().to_vec(), to.octets().to_vec(), carried].concat(), to.into())
}

fn sites(near: &str, far: &str) -> PrefixSets {
    let [near, far] = [near, far].map(|text| BTreeSet::from([text.parse().unwrap()]));
    PrefixSets { policies: vec![Sides { local: near, remote: far }], ..PrefixSets::default() }
}

fn daemons(world: &World, local: &str, remote: &str) -> LeakProtection {
    let config = Config { leads: Lead::ByMark, ..world.config() };
    let mut protection = raise(|| {
        world.gateway.run(|| LeakProtection::install(config.clone(), SitePolicies::default()))
    });
    let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
    let verdict = Verdict::Protect;
    let policy = Policy { local, remote, is_whole: true, verdict, way: None };
    let _ = protection.change(&[policy], &[]).unwrap();
    protection
}

/// Messages sent on the gateway and in the LAN that are heard on the wire, by door and type.
fn heard(world: &World, tun: &mut crate::world::Tun) -> Vec<(Door, u8)> {
    let mut sent = Vec::new();
    for (door, from) in [(Door::Host, "2001:db8:0:1::1"), (Door::Lan, "2001:db8:0:1::2")] {
        for kind in TYPES {
            let tag = world.listener.tag();
            let (packet, to) = message(from, "2001:db8:2::9", kind, &tag);
            world.send(door, tun, &packet, to);
            sent.push((door, kind, tag));
        }
    }
    world.senders().iter().for_each(|sender| world.listener.flush(sender));
    let heard = sent.into_iter().filter(|(.., tag)| world.listener.count(tag) > 0);
    heard.map(|(door, kind, _)| (door, kind)).collect()
}

#[test]
fn no_type_of_message_leaves_for_a_protected_network() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    // Somebody's route is more specific than all.
    world.gateway.ip("-6 route add 2001:db8:2::9/128 via 2001:db8:0:2::2");
    assert_eq!(heard(&world, &mut tun).len(), 2 * TYPES.len(), "the listener hears what leaves");
    let sets = || sites(NEAR, FAR);
    let mut site = raise(|| world.gateway.run(|| LeakProtection::install(world.config(), sets())));
    assert_eq!(heard(&world, &mut tun), []);
    // Nobody answers what is asked.
    let mixed = sets().sides().remote;
    let _ = site.set(PrefixSets { partly_bypassed: mixed, ..sets() }).unwrap();
    assert_eq!(heard(&world, &mut tun), []);
    drop(site);
    let _daemons = daemons(&world, NEAR, FAR);
    assert_eq!(heard(&world, &mut tun), []);
}

#[test]
fn each_type_of_message_goes_into_the_tunnel() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let goes_there = |tun: &mut crate::world::Tun| {
        for (door, from) in [(Door::Host, "2001:db8:0:1::1"), (Door::Lan, "2001:db8:0:1::2")] {
            for kind in TYPES {
                let tag = world.listener.tag();
                let (packet, to) = message(from, "2001:db8:2::9", kind, &tag);
                world.send(door, tun, &packet, to);
                assert!(tun.brings(&tag), "type {kind} by {door:?}");
            }
        }
    };
    world.gateway.ip(&format!("-6 route add {FAR} dev convoy0"));
    let sets = || sites(NEAR, FAR);
    let site = raise(|| world.gateway.run(|| LeakProtection::install(world.config(), sets())));
    goes_there(&mut tun);
    drop(site);
    // Marks lead, whatever routes say.
    world.gateway.ip(&format!("-6 route del {FAR} dev convoy0"));
    let _daemons = daemons(&world, NEAR, FAR);
    goes_there(&mut tun);
}

/// The hosts of a link find each other, although all that they say to each other is protected.
fn find_each_other(world: &World, how: &str) {
    let sides = [(&world.gateway, "wire0"), (&world.wire, "eth0")];
    for ((space, link), to) in sides.into_iter().zip(OF_LINK.into_iter().rev()) {
        for (space, link) in sides {
            space.ip(&format!("-6 neighbour flush dev {link}"));
        }
        let seen = || space.ip(&format!("-6 neighbour show {to} dev {link}"));
        let begun = Instant::now();
        while !seen().contains("lladdr") {
            assert!(begun.elapsed() < Duration::from_secs(20), "{how}, {to}: {}", seen());
            space.ip(&format!("-6 neighbour replace {to} dev {link} use"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn neighbours_whose_addresses_are_protected_find_each_other() {
    let Some(world) = World::new() else { return };
    let _tun = world.tun();
    let [near, far] = OF_LINK.map(|address| format!("{address}/128"));
    let sets = || sites(&near, &far);
    let site = raise(|| world.gateway.run(|| LeakProtection::install(world.config(), sets())));
    find_each_other(&world, "a site");
    drop(site);
    let _daemons = daemons(&world, &near, &far);
    find_each_other(&world, "daemons");
}
