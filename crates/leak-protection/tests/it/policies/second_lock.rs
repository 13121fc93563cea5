//! Rules and routes that hold packets where marks lead when no gateway runs and the packet filter is empty, as after `nft
//! flush ruleset`.

use convoy_leak_protection::{LeakProtection, Verdict, remove};

use super::{Counts as _, config, far_host, policy, raise};
use crate::world::{Sender, Tun, World, senders};

const NEAR: [&str; 2] = ["10.1.0.0/24", "2001:db8:0:1::/64"];
const FAR: [&str; 2] = ["10.2.0.0/16", "2001:db8:2::/48"];
/// Of this a part passes in clear.
const MIXED: [&str; 2] = ["10.3.0.0/16", "2001:db8:3::/48"];

fn mixed_host(sender: &Sender) -> &'static str {
    if sender.is_v4() { "10.3.0.9" } else { "2001:db8:3::9" }
}

/// The gateway has gone, and with it its interface; and somebody empties the packet filter.
fn end_and_flush(world: &World, protection: LeakProtection, tun: Tun) {
    drop(protection);
    drop(tun);
    world.remove_table(&config(world));
}

#[test]
fn nothing_leaves_without_a_gateway_and_without_its_table() {
    let Some(world) = World::new() else { return };
    let before = world.picture();
    let tun = world.tun();
    let mut protection = raise(&world);
    for version in 0..2 {
        let part = policy(NEAR[version], MIXED[version], Verdict::Bypass);
        let whole = |far| policy(NEAR[version], far, Verdict::Protect);
        let is_whole = false;
        let part = convoy_leak_protection::Policy { is_whole, ..part };
        protection.come(&[whole(FAR[version]), whole(MIXED[version]), part]);
    }
    assert!(!protection.repair().unwrap().any(), "it follows each policy");
    // A route of somebody, as specific as can be, is none of the lock's business.
    for (family, host, via) in
        [("-4", "10.2.0.9/32", "192.0.2.2"), ("-6", "2001:db8:2::9/128", "2001:db8:0:2::2")]
    {
        world.gateway.ip(&format!("{family} route add {host} via {via}"));
    }
    end_and_flush(&world, protection, tun);
    for (number, sender) in senders(&world).iter().enumerate() {
        assert!(!world.leaves(sender, far_host(sender)), "{sender:?} got through in clear");
        // What the gateway itself sends to a mixed network is routed before anybody knows what it is.
        let is_forwarded = number % 2 == 1;
        if is_forwarded {
            assert!(!world.leaves(sender, mixed_host(sender)), "{sender:?} got through in clear");
        }
    }
    // What no policy means is not held: others' packets to the far network.
    let [own4, _, own6, _] = world.senders();
    for own in [own4, own6] {
        assert!(world.leaves(&own, far_host(&own)), "{own:?} is not near");
    }
    // The next run takes it up, and leaves nothing.
    let mut protection = raise(&world);
    assert!(!world.leaves(&senders(&world)[1], "10.2.0.9"));
    protection.settle().unwrap();
    drop(protection);
    world.gateway.run(|| remove(config(&world)).unwrap());
    for (family, host) in [("-4", "10.2.0.9/32"), ("-6", "2001:db8:2::9/128")] {
        world.gateway.ip(&format!("{family} route del {host}"));
    }
    assert_eq!(world.picture(), before);
}

#[test]
fn what_policies_no_longer_hold_passes_and_the_rest_stays() {
    let Some(world) = World::new() else { return };
    let tun = world.tun();
    let mut protection = raise(&world);
    let [one, other] =
        ["10.2.0.0/24", "10.2.1.0/24"].map(|far| policy("10.1.0.0/24", far, Verdict::Protect));
    protection.come(&[one, other]);
    protection.come(&[policy("10.7.0.0/16", "10.2.1.0/24", Verdict::Protect)]);
    protection.go(&[other]);
    assert!(!protection.repair().unwrap().any());
    protection.go(&[policy("10.7.0.0/16", "10.2.1.0/24", Verdict::Protect)]);
    assert!(!protection.repair().unwrap().any());
    end_and_flush(&world, protection, tun);
    let [_, lan, ..] = senders(&world);
    assert!(!world.leaves(&lan, "10.2.0.9"));
    assert!(world.leaves(&lan, "10.2.1.9"));
}

#[test]
fn a_rule_that_follows_the_default_route_is_no_change_of_others() {
    let Some(world) = World::new() else { return };
    let _tun = world.tun();
    let mut protection = raise(&world);
    protection.come(&[policy(NEAR[0], FAR[0], Verdict::Protect)]);
    let around = || world.gateway.ip("-4 rule").matches("from 192.0.2.1 iif lo").count();
    let mut follows = |what: &str| {
        world.gateway.ip(what);
        let repaired = protection.repair().unwrap();
        (repaired.rules, around())
    };
    assert_eq!(follows("-4 route replace default via 192.0.2.2 dev wire0"), (0, 1));
    assert_eq!(follows("-4 route del default"), (0, 0));
    assert_eq!(follows("-4 route add default via 192.0.2.2 dev wire0"), (0, 1));
    let priority = convoy_leak_protection::Questions::new().priority - 5;
    assert_eq!(follows(&format!("-4 rule del priority {priority} from 192.0.2.1 iif lo")), (1, 1));
}

#[test]
fn too_many_near_networks_have_one_lock_and_it_is_said() {
    let Some(world) = World::new() else { return };
    let mut protection = raise(&world);
    let near = |n: u32| {
        let net = format!("10.{}.{}.0/24", 16 + n / 128, n % 128 * 2);
        policy(&net, "10.2.0.0/24", Verdict::Protect)
    };
    let many: Vec<_> = (0..256).map(near).collect();
    protection.come(&many);
    assert!(!protection.has_one_lock_only());
    let rules = |world: &World| {
        world.gateway.ip("-4 rule").lines().filter(|line| line.contains("lookup 4512")).count()
    };
    assert_eq!(rules(&world), 256);
    protection.come(&[near(256)]);
    assert!(protection.has_one_lock_only());
    assert_eq!(rules(&world), 0);
    protection.go(&[near(256)]);
    assert_eq!(rules(&world), 256);
    assert!(!protection.repair().unwrap().any());
}
