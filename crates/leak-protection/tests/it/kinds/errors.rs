//! ICMP errors about packets: they pass as the flow passes that they are about, and otherwise as policies say of ICMP.

use std::collections::BTreeMap;

use convoy_leak_protection::Verdict;

use super::packets::{self, ICMP, ICMPV6, Selectors, Shows, TCP, UDP};
use super::random::{self, PORTS, Random, SIDES, Soak};
use super::spd::{Guard, Mode};
use super::{Kind, Scene, Sent};
use crate::world::{Door, World};

fn errors_pass_as_their_flows(mode: Mode, seed: u64) {
    let Some(world) = World::new() else { return };
    let mut random = Random::new(seed);
    let mut scene = Scene::new(&world, mode);
    let mut guard = Guard::new(&world, mode);
    let mut counts = BTreeMap::<_, u64>::new();
    let mut soak = Soak::new(format!("errors, {mode:?}, seed {seed}"));
    let mut number = 0_u16;
    while number < 400 || soak.goes_on(number.into()) {
        if random.one_in(6) {
            scene.settle(&guard);
            random.change(&mut guard);
        }
        number = number.wrapping_add(1);
        let side = &SIDES[random.below(2)];
        let [from, to, other] = [&side.lan[..], &side.wire, &side.wire]
            .map(|some| random.of(some).parse::<std::net::IpAddr>().unwrap());
        let protocol = [UDP, UDP, TCP][random.below(3)];
        // A flow of its own each time.
        let ports = [5000 + number % 50_000, PORTS[random.below(2)]];
        let it = Selectors { from, to, protocol, ports };
        let spd = guard.spd();
        let why = || format!("seed {seed}, flow {number}, {spd:?}");
        let sent = |door, it| Sent { kind: Kind::Whole, door, it };
        let fate = spd.fate(Door::Lan, &it);
        scene.follow(&sent(Door::Lan, it), fate, &why);
        let back = Selectors { from: to, to: from, ports: [ports[1], ports[0]], ..it };
        // Of what is dropped there is no flow, and an unknown TCP packet is none's.
        let replies = fate != Verdict::Discard && protocol == UDP && random.one_in(2);
        let mut known = None;
        if replies {
            let fate = spd.fate(Door::Wire, &back);
            scene.follow(&sent(Door::Wire, back), fate, &why);
            known = Some(fate).filter(|fate| *fate != Verdict::Discard);
        }
        let by = if random.one_in(2) { to } else { other };
        let icmp = if from.is_ipv4() { ICMP } else { ICMPV6 };
        let error = Selectors { from: by, to: from, protocol: icmp, ports: [0; 2] };
        let alone = spd.fate(Door::Wire, &error);
        let expected = known.unwrap_or(alone);
        if by != to && expected != alone {
            continue;
        }
        let tag = world.listener.tag();
        let bytes = packets::error(by, &packets::whole(&it, &tag));
        world.send(Door::Wire, &mut scene.tun, &bytes, from);
        *counts.entry((known.is_some(), expected)).or_default() += 1;
        let what = || format!("an error by {by} about {it:?}, {known:?}: {expected:?}, {}", why());
        match expected {
            Verdict::Bypass => scene.lan.wait(&tag, Shows::Error, 1, what),
            _ => {
                scene.settle(&guard);
                assert_eq!(scene.lan.count(&tag, Shows::Error), 0, "passes: {}", what());
            }
        }
    }
    scene.finish();
    assert!(counts.len() >= 3 && counts.values().all(|count| *count >= 3), "{counts:?}");
}

#[test]
fn errors_pass_as_their_flows_by_policies_of_a_site() {
    errors_pass_as_their_flows(Mode::Site, random::seed(31));
}

#[test]
fn errors_pass_as_their_flows_by_policies_of_daemons() {
    errors_pass_as_their_flows(Mode::Daemons, random::seed(32));
}
