//! A kernel with leak protection lets through what the prefix sets say, whatever they are.

#[allow(dead_code, reason = "others need the rest")]
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use convoy_host::LinkName;
use convoy_leak_protection::{
    Config, Drops, LeakProtection, LeakProtectionError, PrefixSets, Repaired, Sides, interfaces,
    is_installed, remove,
};
use convoy_netlink::nft::{Nft, TableFlags, removal, table};
use ipnet::IpNet;

use crate::world::{Door, Listener, World, send_raw};

/// Hosts on the LAN, hosts behind the wire, and networks that hold some of them.
struct Places {
    lan: [&'static str; 2],
    wire: [&'static str; 3],
    networks: &'static [&'static str],
}

const PLACES: [Places; 2] = [
    Places {
        lan: ["10.1.0.2", "10.1.0.3"],
        wire: ["10.2.0.2", "10.2.0.3", "10.3.0.2"],
        networks: &[
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.0.0/24",
            "10.1.0.2/32",
            "10.2.0.0/15",
            "10.2.0.0/16",
            "10.2.0.2/31",
            "10.2.0.3/32",
            "10.3.0.2/32",
        ],
    },
    Places {
        lan: ["2001:db8:0:1::2", "2001:db8:0:1::3"],
        wire: ["2001:db8:2::2", "2001:db8:2::3", "2001:db8:3::2"],
        networks: &[
            "::/0",
            "2001:db8::/32",
            "2001:db8:0:1::/64",
            "2001:db8:0:1::2/128",
            "2001:db8:2::/47",
            "2001:db8:2::/48",
            "2001:db8:2::2/127",
            "2001:db8:2::3/128",
            "2001:db8:3::2/128",
        ],
    },
];

fn nets(texts: &[&str]) -> BTreeSet<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn is_near(sets: &PrefixSets, address: IpAddr) -> bool {
    sets.policies.iter().flat_map(|policy| &policy.local).any(|net| net.contains(&address))
}

fn is_far(sets: &PrefixSets, address: IpAddr) -> bool {
    let longest = |nets: &BTreeSet<IpNet>| {
        nets.iter().filter(|net| net.contains(&address)).map(IpNet::prefix_len).max()
    };
    let is_far_of = |policy: &Sides| {
        let near = longest(&policy.local);
        longest(&policy.remote).is_some_and(|far| near.is_none_or(|near| far >= near))
    };
    longest(&sets.bypassed).is_none() && sets.policies.iter().any(is_far_of)
}

/// True if a packet passes in clear.
fn passes(sets: &PrefixSets, door: Door, from: IpAddr, to: IpAddr) -> bool {
    let is_outbound = is_near(sets, from) && is_far(sets, to);
    let is_inbound = is_far(sets, from) && is_near(sets, to);
    match door {
        Door::Gateway => true,
        Door::Lan | Door::Wire => !is_outbound && !is_inbound,
        Door::Tun | Door::Host => !is_outbound,
    }
}

#[test]
fn what_gets_through_is_what_prefix_sets_say() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let lan_listener = world.lan.run(Listener::start);
    let mut tun = world.tun();
    let mut protection = raise(&world, PrefixSets::default());
    let mut random = crate::world::random(5);
    let mut unheard = Vec::new();
    for round in 0..60 {
        let places = &PLACES[round % 2];
        let mut some = |most: usize| -> BTreeSet<IpNet> {
            let all: Vec<_> = PLACES.iter().flat_map(|places| places.networks).collect();
            (0..random(most)).map(|_| all[random(all.len())].parse().unwrap()).collect()
        };
        let policies = (0..3).map(|_| Sides { local: some(4), remote: some(4) }).collect();
        let sets = PrefixSets { policies, bypassed: some(3), ..PrefixSets::default() };
        match round % 7 {
            // Another life, which takes over what the last one left.
            0 => {
                drop(protection);
                protection = raise(&world, sets.clone());
            }
            _ => drop(protection.set(sets.clone()).unwrap()),
        }
        let all = || places.lan.into_iter().chain(places.wire);
        for (door, from, to) in Door::ALL
            .into_iter()
            .flat_map(|door| all().flat_map(move |from| all().map(move |to| (door, from, to))))
        {
            let is_to_lan = places.lan.contains(&to);
            // Each side keeps to itself what is for itself.
            if door == Door::Lan && is_to_lan || door == Door::Wire && !is_to_lan {
                continue;
            }
            let tag = world.listener.tag();
            let packet = match from.contains(':') {
                true => crate::world::packet6(from, to, &tag),
                false => crate::world::packet4(from, to, &tag),
            };
            let [from, to]: [IpAddr; 2] = [from, to].map(|text| text.parse().unwrap());
            let what = format!("{door:?}: {from} to {to}, {sets:#?}");
            let mut send = || world.send(door, &mut tun, &packet, to);
            if passes(&sets, door, from, to) {
                let listener = if is_to_lan { &lan_listener } else { &world.listener };
                listener.await_tag_sent(&tag, &what, send);
            } else {
                send();
                unheard.push((is_to_lan, tag, what));
            }
        }
    }
    thread::sleep(Duration::from_millis(200));
    for (is_to_lan, tag, what) in &unheard {
        let listener = if *is_to_lan { &lan_listener } else { &world.listener };
        assert_eq!(listener.count(tag), 0, "gets through: {what}");
    }
    assert!(unheard.len() > 300, "{}", unheard.len());
}

fn config() -> Config {
    Config::new(LinkName::new("convoy0").unwrap())
}

fn raise(world: &World, sets: PrefixSets) -> LeakProtection {
    crate::world::raise(|| world.gateway.run(|| LeakProtection::install(config(), sets.clone())))
}

fn site() -> PrefixSets {
    let far = nets(&["10.2.0.0/16", "2001:db8:2::/48"]);
    let near = nets(&["10.1.0.0/24", "2001:db8:0:1::/64"]);
    let routed = far.clone();
    PrefixSets {
        policies: vec![Sides { local: near, remote: far }],
        routed,
        ..PrefixSets::default()
    }
}

/// Somebody on the LAN sends to the far network; whether it leaves in clear.
fn leaves(world: &World) -> [bool; 2] {
    let [_, lan4, _, lan6] = world.senders();
    [world.leaves(&lan4, "10.2.0.9"), world.leaves(&lan6, "2001:db8:2::9")]
}

#[test]
fn it_outlives_its_process_until_it_is_taken_away() {
    let Some(world) = World::new() else { return };
    let before = world.picture();
    assert_eq!(leaves(&world), [true; 2]);
    let mut protection = raise(&world, site());
    assert_eq!(leaves(&world), [false; 2]);
    // Rules and routes alone hold that; the filter does without them.
    for family in ["-4", "-6"] {
        world.gateway.ip(&format!("{family} route flush type unreachable"));
        world.gateway.ip(&format!("{family} rule del priority 203"));
    }
    assert_eq!(leaves(&world), [false; 2]);
    assert_eq!(protection.drops().unwrap(), Some(Drops { outbound: 2, ..Drops::default() }));
    let repaired = Repaired { rules: 2, routes: 2, ..Repaired::default() };
    assert_eq!(protection.repair().unwrap(), repaired);
    assert_eq!(protection.repair().unwrap(), Repaired::default());
    drop(protection);
    assert_eq!(leaves(&world), [false; 2]);
    assert!(world.gateway.run(|| is_installed(config()).unwrap()));
    world.gateway.run(|| remove(config()).unwrap());
    assert!(!world.gateway.run(|| is_installed(config()).unwrap()));
    assert_eq!(leaves(&world), [true; 2]);
    assert_eq!(world.picture(), before);
    world.gateway.run(|| remove(config()).unwrap());
}

#[test]
fn a_table_that_somebody_holds_is_left_alone_and_one_that_is_gone_is_made_again() {
    let Some(world) = World::new() else { return };
    let mut protection = raise(&world, site());
    // Another one of the same interface, while the first one lives.
    let second = world.gateway.run(|| LeakProtection::install(config(), PrefixSets::default()));
    let opened = world.gateway.run(|| remove(config()));
    let remove = || Nft::open().unwrap().commit(vec![removal("convoy-convoy0")]);
    match world.gateway.run(remove) {
        Err(refusal) => {
            assert_eq!(refusal.errno, nix::libc::EPERM);
            let held = LeakProtectionError::Held { table: "convoy-convoy0".into() };
            assert_eq!((second.unwrap_err(), opened.unwrap_err()), (held.clone(), held));
        }
        // Before Linux 6.9 there is no owner that a table outlives.
        Ok(()) => {
            crate::world::skipped("this kernel has no tables that outlive their owner");
            assert!(protection.repair().unwrap().table);
        }
    }
    assert_eq!(leaves(&world), [false; 2]);
    assert_eq!(protection.repair().unwrap(), Repaired::default());
}

#[test]
fn what_comes_in_in_clear_goes_into_no_other_tunnel() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let mut tun = world.tun();
    world.gateway.ip("route add 10.3.0.0/16 dev convoy0");
    // A hub: what one spoke sends to another goes on through the other's tunnel.
    let spoke = |near: &[&str], far: &str| Sides { local: nets(near), remote: nets(&[far]) };
    let policies = vec![
        spoke(&["10.1.0.0/24", "10.3.0.0/16"], "10.2.0.0/16"),
        spoke(&["10.1.0.0/24", "10.2.0.0/16"], "10.3.0.0/16"),
    ];
    let _protection = raise(&world, PrefixSets { policies, ..PrefixSets::default() });
    let to: IpAddr = "10.3.0.2".parse().unwrap();
    let send = |space: &crate::world::Space, from: &str| {
        let tag = world.listener.tag();
        let packet = crate::world::packet4(from, "10.3.0.2", &tag);
        space.run(|| send_raw(&packet, to, 0));
        tag
    };
    world.wire.ip("route add 10.3.0.0/16 via 192.0.2.1");
    let forged = send(&world.wire, "10.2.0.2");
    // What is sent later comes later.
    let own = send(&world.lan, "10.1.0.2");
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let begun = Instant::now();
    while !seen.iter().any(|packet| has(packet, &own)) {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing of the LAN comes out");
        seen.extend(tun.read());
    }
    assert!(!seen.iter().any(|packet| has(packet, &forged)));
    let tag = world.listener.tag();
    tun.write(&crate::world::packet4("10.2.0.2", "10.3.0.2", &tag));
    assert!(tun.brings(&tag), "from tunnel to tunnel");
}

fn has(packet: &[u8], tag: &[u8]) -> bool {
    let wanted = [crate::world::SIGN, tag].concat();
    packet.windows(wanted.len()).any(|window| window == wanted)
}

#[test]
fn a_table_without_an_owner_is_taken_over_and_its_rules_are_missed() {
    let Some(world) = World::new() else { return };
    let make = |flags| {
        let mut nft = Nft::open().unwrap();
        nft.commit(table("convoy-convoy0", flags, false))
    };
    world.gateway.run(|| make(TableFlags::empty()).unwrap());
    let mut protection = raise(&world, site());
    let remove = || Nft::open().unwrap().commit(vec![removal("convoy-convoy0")]);
    match world.gateway.run(remove) {
        Err(refusal) => assert_eq!(refusal.errno, nix::libc::EPERM, "it has an owner again"),
        Ok(()) => {
            crate::world::skipped("this kernel has no tables that outlive their owner");
            world.gateway.run(|| make(TableFlags::empty()).unwrap());
            assert_eq!(protection.drops().unwrap(), None);
            assert!(protection.repair().unwrap().table);
        }
    }
    assert!(protection.drops().unwrap().is_some());
    let names = world.gateway.run(|| interfaces().unwrap());
    assert_eq!(names.iter().map(LinkName::as_str).collect::<Vec<_>>(), ["convoy0"]);
}

/// Hosts never stop sending while the gateway is killed and starts, and while more and less is asked about. No route
/// holds them, and no rule: the interface is there all the time.
#[test]
fn a_flood_finds_no_gap_while_the_table_is_made_anew() {
    let Some(world) = World::new() else { return };
    let _tun = world.tun();
    let whole = PrefixSets { routed: BTreeSet::new(), ..site() };
    let asked = PrefixSets { partly_bypassed: whole.sides().remote, ..whole.clone() };
    let mut protection = Some(raise(&world, whole.clone()));
    let ended = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    let tag = world.listener.tag();
    let [_, lan4, _, lan6] = &world.senders();
    thread::scope(|scope| {
        for (sender, to) in [(lan4, "10.2.0.9"), (lan6, "2001:db8:2::9")].repeat(2) {
            let (ended, sent, tag) = (&ended, &sent, &tag);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let _ = sender.send(to, tag);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Panics must not leave the senders running.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..40 {
                let living = protection.as_mut().unwrap();
                let _ = living.set(asked.clone()).unwrap();
                let _ = living.set(whole.clone()).unwrap();
                drop(protection.take());
                protection = Some(raise(&world, whole.clone()));
            }
        }));
        ended.store(true, Ordering::Relaxed);
        done.unwrap();
    });
    [lan4, lan6].into_iter().for_each(|sender| world.listener.flush(sender));
    assert!(sent.load(Ordering::Relaxed) > 1000);
    assert_eq!(world.listener.count(&tag), 0);
}
