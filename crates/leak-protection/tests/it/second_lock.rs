//! Rules and routes that hold packets of a site's policies when no gateway runs and the packet filter is empty, as after
//! `nft flush ruleset`; they have no effect while a gateway runs.

use std::collections::BTreeSet;

use convoy_host::LinkName;
use convoy_leak_protection::{
    Config, Drops, Lead, LeakProtection, PrefixSets, Repaired, Sides, SitePolicies, remove,
};
use ipnet::IpNet;

use crate::world::{Sender, Tun, World, senders};

fn nets<const N: usize>(texts: [&str; N]) -> BTreeSet<IpNet> {
    texts.map(|text| text.parse().unwrap()).into()
}

/// Without routes, as with `routes = "none"`.
fn site() -> PrefixSets {
    let near = nets(["10.1.0.0/24", "2001:db8:0:1::/64"]);
    let far = nets(["10.2.0.0/16", "2001:db8:2::/48"]);
    let bypassed = nets(["10.2.7.0/24", "2001:db8:2:7::/64"]);
    PrefixSets {
        policies: vec![Sides { local: near, remote: far }],
        bypassed,
        ..PrefixSets::default()
    }
}

fn routed() -> PrefixSets {
    PrefixSets { routed: site().sides().remote, ..site() }
}

fn raise(world: &World, config: &Config, sets: &PrefixSets) -> LeakProtection {
    let raise = || LeakProtection::install(config.clone(), sets.clone());
    crate::world::raise(|| world.gateway.run(raise))
}

/// Hosts of the far network: one that is protected, and one of the part that is free.
fn hosts(sender: &Sender) -> [&'static str; 2] {
    if sender.is_v4() { ["10.2.0.9", "10.2.7.9"] } else { ["2001:db8:2::9", "2001:db8:2:7::9"] }
}

/// Routes of somebody, as specific as can be.
fn foreign_routes(world: &World) {
    for (family, host, via) in
        [("-4", "10.2.0.9/32", "192.0.2.2"), ("-6", "2001:db8:2::9/128", "2001:db8:0:2::2")]
    {
        world.gateway.ip(&format!("{family} route replace {host} via {via}"));
    }
}

/// The gateway has gone, and with it its interface; and somebody empties the packet filter.
fn end_and_flush(world: &World, protection: LeakProtection, tun: Tun) {
    drop(protection);
    drop(tun);
    world.remove_table(&world.config());
}

#[track_caller]
fn holds_what_is_protected_alone(world: &World, sets: &PrefixSets) {
    for sender in senders(world) {
        let [protected, free] = hosts(&sender);
        assert!(!world.leaves(&sender, protected), "{sender:?} got through in clear");
        // An unreachable route to the whole network is an end to the free part of it.
        let is_free = sets.routed.is_empty();
        assert_eq!(world.leaves(&sender, free), is_free, "{sender:?} to what is free");
    }
    let [own4, _, own6, _] = world.senders();
    for own in [own4, own6] {
        assert!(world.leaves(&own, hosts(&own)[0]), "{own:?} is not near");
    }
}

#[test]
fn nothing_leaves_without_a_gateway_and_without_its_table() {
    let Some(world) = World::new() else { return };
    foreign_routes(&world);
    let before = world.picture();
    for sets in [routed(), site()] {
        let tun = world.tun();
        let protection = raise(&world, &world.config(), &sets);
        end_and_flush(&world, protection, tun);
        holds_what_is_protected_alone(&world, &sets);
        // The next life closes what it protects alone, and leaves nothing.
        let mut protection = raise(&world, &world.config(), &PrefixSets::default());
        assert!(world.leaves(&senders(&world)[1], "10.2.0.9"));
        let _ = protection.set(sets.clone()).unwrap();
        assert_eq!(protection.repair().unwrap(), Repaired::default(), "it follows each change");
        drop(protection);
        world.remove_table(&world.config());
        holds_what_is_protected_alone(&world, &sets);
        world.gateway.run(|| remove(world.config()).unwrap());
        assert_eq!(world.picture(), before);
    }
}

#[test]
fn what_is_asked_about_is_held_too() {
    let Some(world) = World::new() else { return };
    foreign_routes(&world);
    let tun = world.tun();
    let asked = PrefixSets { partly_bypassed: nets(["10.2.0.0/24", "2001:db8:2::/64"]), ..site() };
    let mut protection = raise(&world, &world.config(), &site());
    let _ = protection.set(asked).unwrap();
    assert_eq!(protection.repair().unwrap(), Repaired::default());
    end_and_flush(&world, protection, tun);
    // What the gateway itself sends to a mixed network is routed before anybody knows what it is.
    let [_, lan4, _, lan6] = senders(&world);
    for sender in [lan4, lan6] {
        assert!(!world.leaves(&sender, hosts(&sender)[0]), "{sender:?} got through in clear");
    }
    world.gateway.run(|| remove(world.config()).unwrap());
}

#[test]
fn routes_of_the_host_decide_while_the_interface_is_there() {
    let Some(world) = World::new() else { return };
    let mut tun = world.tun();
    let mut protection = raise(&world, &world.config(), &site());
    let [_, lan4, _, lan6] = senders(&world);
    for sender in [&lan4, &lan6] {
        assert!(!world.leaves(sender, hosts(sender)[0]));
    }
    let dropped = Drops { outbound: 2, ..Drops::default() };
    assert_eq!(protection.drops().unwrap(), Some(dropped), "the packet filter held them");
    for (family, net) in [("-4", "10.2.0.0/16"), ("-6", "2001:db8:2::/48")] {
        world.gateway.ip(&format!("{family} route add {net} dev convoy0"));
    }
    for sender in [&lan4, &lan6] {
        let tag = world.listener.tag();
        sender.send(hosts(sender)[0], &tag).unwrap();
        assert!(tun.brings(&tag), "{sender:?}");
    }
    assert_eq!(protection.drops().unwrap(), Some(dropped));
}

#[test]
fn two_interfaces_have_a_lock_each() {
    let Some(world) = World::new() else { return };
    foreign_routes(&world);
    let before = world.picture();
    // They protect other networks of the same LAN, and have other marks.
    let mut other = Config::new(LinkName::new("convoy1").unwrap());
    other.mark.value = 0xc600_0000;
    let beside = Sides { local: nets(["10.1.0.0/24"]), remote: nets(["10.3.0.0/16"]) };
    let beside = PrefixSets { policies: vec![beside], ..PrefixSets::default() };
    let lan = || Sender::new(&world.lan, "10.1.0.2:0", "192.0.2.2".parse().unwrap());
    let tun = world.tun();
    let mut first = raise(&world, &world.config(), &site());
    let mut second = raise(&world, &other, &beside);
    assert_eq!([&mut first, &mut second].map(|it| it.repair().unwrap().any()), [false; 2]);
    drop(second);
    end_and_flush(&world, first, tun);
    world.remove_table(&other);
    holds_what_is_protected_alone(&world, &site());
    assert!(!world.leaves(&lan(), "10.3.0.9"));
    world.gateway.run(|| remove(other).unwrap());
    assert!(world.leaves(&lan(), "10.3.0.9"), "that of the other one has gone");
    holds_what_is_protected_alone(&world, &site());
    world.gateway.run(|| remove(world.config()).unwrap());
    assert_eq!(world.picture(), before);
}

#[test]
fn daemons_policies_take_up_what_a_sites_lock_held() {
    let Some(world) = World::new() else { return };
    foreign_routes(&world);
    let before = world.picture();
    let tun = world.tun();
    let protection = raise(&world, &world.config(), &site());
    end_and_flush(&world, protection, tun);
    let raise = || {
        LeakProtection::install(
            Config { leads: Lead::ByMark, ..world.config() },
            SitePolicies::default(),
        )
    };
    let mut protection = crate::world::raise(|| world.gateway.run(raise));
    assert!(protection.left().any(|net| net == "10.2.0.0/22".parse().unwrap()), "closed as before");
    assert!(!world.leaves(&senders(&world)[1], "10.2.0.9"));
    protection.settle().unwrap();
    assert!(world.leaves(&senders(&world)[1], "10.2.0.9"));
    protection.remove().unwrap();
    assert_eq!(world.picture(), before);
}
