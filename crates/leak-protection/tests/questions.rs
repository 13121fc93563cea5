//! What a kernel lets through between mixed prefixes is what policies say that it asks, whatever they are.
#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "others need the rest")]
mod world;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use convoy_host::LinkName;
use convoy_leak_protection::{
    Answered, Config, LeakProtection, LeakProtectionError, Listener, Policies, PrefixSets,
    Repaired, Sides, Verdict, take_away,
};
use ipnet::IpNet;

use world::flows::{Flow, drain, packet};
use world::{Door, Tun, World, send_raw};

/// Ports that policies tell apart.
const PORTS: [u16; 2] = [7, 8];

const LAN: [[&str; 2]; 2] = [["10.1.0.2", "10.1.0.3"], ["2001:db8:0:1::2", "2001:db8:0:1::3"]];
const WIRE: [[&str; 3]; 2] =
    [["10.2.0.2", "10.2.0.3", "10.3.0.2"], ["2001:db8:2::2", "2001:db8:2::3", "2001:db8:3::2"]];
const NETWORKS: [&[&str]; 2] = [
    &[
        "10.0.0.0/8",
        "10.1.0.0/16",
        "10.1.0.2/32",
        "10.2.0.0/15",
        "10.2.0.0/16",
        "10.2.0.3/32",
        "10.3.0.2/32",
    ],
    &[
        "2001:db8::/32",
        "2001:db8:0:1::/64",
        "2001:db8:0:1::2/128",
        "2001:db8:2::/47",
        "2001:db8:2::/48",
        "2001:db8:2::3/128",
        "2001:db8:3::2/128",
    ],
];

#[derive(Debug, Clone)]
struct Policy {
    near: IpNet,
    far: IpNet,
    /// Destination port, if only one is meant.
    port: Option<u16>,
    verdict: Verdict,
}

/// Policies, the first that matches decides; and the prefix sets that were made of them.
#[derive(Debug, Clone, Default)]
struct Model {
    policies: Vec<Policy>,
    sets: PrefixSets,
}

impl Model {
    fn look_up(&self, near: IpAddr, far: IpAddr, port: u16) -> Option<Verdict> {
        let meant = |policy: &&Policy| {
            policy.near.contains(&near)
                && policy.far.contains(&far)
                && policy.port.is_none_or(|only| only == port)
        };
        self.policies.iter().find(meant).map(|policy| policy.verdict)
    }

    fn outbound(&self, flow: Flow) -> Verdict {
        let is_held = self.is_near(flow.from) && self.is_far(flow.to);
        let otherwise = if is_held { Verdict::Discard } else { Verdict::Bypass };
        self.look_up(flow.from, flow.to, flow.port).unwrap_or(otherwise)
    }

    fn inbound(&self, flow: Flow) -> Verdict {
        let is_held = self.is_far(flow.from) && self.is_near(flow.to);
        let otherwise = if is_held { Verdict::Discard } else { Verdict::Bypass };
        self.look_up(flow.to, flow.from, flow.port).unwrap_or(otherwise)
    }

    fn is_near(&self, address: IpAddr) -> bool {
        self.sets.policies.iter().flat_map(|policy| &policy.near).any(|net| net.contains(&address))
    }

    fn is_far(&self, address: IpAddr) -> bool {
        let longest = |nets: &BTreeSet<IpNet>| {
            nets.iter().filter(|net| net.contains(&address)).map(IpNet::prefix_len).max()
        };
        self.sets.policies.iter().any(|policy| {
            let near = longest(&policy.near);
            longest(&policy.far).is_some_and(|far| near.is_none_or(|near| far >= near))
        })
    }

    fn is_mixed(&self, address: IpAddr) -> bool {
        self.sets.mixed.iter().any(|net| net.contains(&address))
    }

    fn fate(&self, door: Door, flow: Flow) -> Verdict {
        let is_outbound = self.is_near(flow.from) && self.is_far(flow.to);
        let is_inbound = self.is_far(flow.from) && self.is_near(flow.to);
        // What is held whole leaves by tunnels alone, whatever is answered.
        let leaves = |verdict| match verdict {
            Verdict::Bypass if is_outbound && !self.is_mixed(flow.to) => Verdict::Discard,
            verdict => verdict,
        };
        let is_asked = self.is_mixed(flow.from) || self.is_mixed(flow.to);
        match door {
            Door::Gateway => Verdict::Bypass,
            Door::Host if !is_outbound => Verdict::Bypass,
            Door::Host if !self.is_mixed(flow.to) => Verdict::Discard,
            Door::Host => self.outbound(flow),
            Door::Tun if !is_outbound => Verdict::Bypass,
            Door::Tun if !is_asked => Verdict::Discard,
            Door::Tun => leaves(self.outbound(flow)),
            Door::Lan | Door::Wire if !is_outbound && !is_inbound => Verdict::Bypass,
            Door::Lan | Door::Wire => {
                let comes = is_inbound
                    && (!self.is_mixed(flow.from) || self.inbound(flow) != Verdict::Bypass);
                if !is_asked || comes {
                    return Verdict::Discard;
                }
                leaves(self.outbound(flow))
            }
        }
    }
}

/// Answers with what the model says.
struct Asked<'a>(&'a Model);

impl Policies for Asked<'_> {
    fn outbound(&mut self, packet: &[u8]) -> Verdict {
        self.0.outbound(Flow::of(packet))
    }

    fn inbound(&mut self, packet: &[u8]) -> Verdict {
        self.0.inbound(Flow::of(packet))
    }
}

/// A gateway that answers until it is dropped.
struct Gateway {
    model: Arc<Mutex<Model>>,
    answered: Arc<Mutex<Answered>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    fn start(world: &World) -> Self {
        let mut listener = world.gateway.run(|| Listener::open(&config().questions)).unwrap();
        let model = Arc::<Mutex<Model>>::default();
        let answered = Arc::<Mutex<Answered>>::default();
        let ended = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (model, answered, ended) =
                (Arc::clone(&model), Arc::clone(&answered), Arc::clone(&ended));
            move || {
                while !ended.load(Ordering::Relaxed) {
                    if listener.wait(Duration::from_millis(20)).unwrap() {
                        // As long as it is locked nothing changes.
                        let model = model.lock().unwrap();
                        let now = listener.answer(&mut Asked(&model)).unwrap();
                        answered.lock().unwrap().add(&now);
                    }
                }
            }
        });
        Self { model, answered, ended, thread: Some(thread) }
    }

    fn answered(&self) -> Answered {
        *self.answered.lock().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn config() -> Config {
    Config::new(LinkName::new("convoy0").unwrap())
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn what_becomes_of_packets_is_what_policies_say() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let lan_listener = world.lan.run(world::Listener::start);
    let mut tun = world.tun();
    world.gateway.run(|| {
        std::fs::write("/proc/sys/net/ipv4/conf/convoy0/rp_filter", "0").unwrap();
    });
    let gateway = Gateway::start(&world);
    let mut protection =
        world.gateway.run(|| LeakProtection::raise(config(), PrefixSets::default())).unwrap();
    let mut random = world::random(7);
    let mut from_tun = BTreeSet::new();
    let (mut unheard, mut tunnelled) = (Vec::new(), Vec::new());
    let mut bypassed = 0;
    for round in 0..60 {
        let version = round % 2;
        let mut some = || net(NETWORKS[version][random(NETWORKS[version].len())]);
        let mut policies: Vec<_> = (0..4)
            .map(|_| Policy { near: some(), far: some(), port: None, verdict: Verdict::Protect })
            .collect();
        for policy in &mut policies {
            policy.port = [None, Some(PORTS[0]), Some(PORTS[1])][random(3)];
            policy.verdict =
                [Verdict::Protect, Verdict::Bypass, Verdict::Protect, Verdict::Discard][random(4)];
        }
        let held = policies.iter().filter(|policy| policy.verdict != Verdict::Bypass);
        let sides = held
            .clone()
            .map(|policy| Sides { near: [policy.near].into(), far: [policy.far].into() });
        let mut mixed: BTreeSet<_> = policies
            .iter()
            .filter(|policy| policy.verdict == Verdict::Bypass)
            .map(|policy| policy.far)
            .collect();
        if random(3) == 0 {
            mixed.extend(held.map(|policy| policy.far));
        }
        let sets = PrefixSets { policies: sides.collect(), mixed, ..PrefixSets::default() };
        let model = Model { policies, sets: sets.clone() };
        // Prefixes before policies, and what was answered is forgotten behind both.
        if round % 7 == 0 {
            drop(protection);
            *gateway.model.lock().unwrap() = model.clone();
            protection = world.gateway.run(|| LeakProtection::raise(config(), sets)).unwrap();
        } else {
            protection.set(sets).unwrap();
            *gateway.model.lock().unwrap() = model.clone();
            protection.forget_answers().unwrap();
        }
        let all = || LAN[version].into_iter().chain(WIRE[version]);
        for (number, door) in Door::ALL.into_iter().enumerate() {
            for (from, to) in all().flat_map(|from| all().map(move |to| (from, to))) {
                let is_to_lan = LAN[version].contains(&to);
                // Each side keeps to itself what is for itself.
                if door == Door::Lan && is_to_lan || door == Door::Wire && !is_to_lan || from == to
                {
                    continue;
                }
                let tag = world.listener.tag();
                let port = PORTS[random(2)];
                // The same flow does not come by two doors.
                let source = 1000 + u16::try_from(number).unwrap();
                let bytes = packet(from, to, [source, port], &tag);
                let flow = Flow::of(&bytes);
                world.send(door, &mut tun, &bytes, flow.to);
                let fate = model.fate(door, flow);
                let what = format!("round {round}, {door:?}: {flow:?} is to {fate:?}, {model:#?}");
                if fate == Verdict::Bypass {
                    let listener = if is_to_lan { &lan_listener } else { &world.listener };
                    listener.await_tag(&tag, &what);
                    bypassed += 1;
                } else {
                    unheard.push((is_to_lan, tag.clone(), what.clone()));
                }
                if fate == Verdict::Protect {
                    let begun = Instant::now();
                    while !from_tun.contains(&tag) {
                        assert!(
                            begun.elapsed() < Duration::from_secs(20),
                            "not in the TUN: {what}"
                        );
                        drain(&mut tun, &mut from_tun);
                    }
                } else {
                    tunnelled.push((tag, what));
                }
            }
        }
    }
    thread::sleep(Duration::from_millis(200));
    drain(&mut tun, &mut from_tun);
    for (is_to_lan, tag, what) in &unheard {
        let listener = if *is_to_lan { &lan_listener } else { &world.listener };
        assert_eq!(listener.count(tag), 0, "passes in clear: {what}");
    }
    for (tag, what) in &tunnelled {
        assert!(!from_tun.contains(tag), "goes into the TUN: {what}");
    }
    let answered = gateway.answered();
    let few = [answered.bypassed, answered.protected, answered.discarded, bypassed];
    assert!(few.iter().all(|count| *count > 100), "{few:?}");
}

/// A policy for everything between two networks, and one that passes a port.
fn site() -> Model {
    let [near, far] = [net("10.1.0.0/24"), net("10.2.0.0/16")];
    let policy = |port, verdict| Policy { near, far, port, verdict };
    let policies = vec![policy(Some(PORTS[0]), Verdict::Bypass), policy(None, Verdict::Protect)];
    let sides = vec![Sides { near: [near].into(), far: [far].into() }];
    let routed = [far].into();
    let sets = PrefixSets { policies: sides, mixed: [far].into(), routed, ..PrefixSets::default() };
    Model { policies, sets }
}

/// What becomes of a packet from the LAN.
fn fate(world: &World, tun: Option<&mut Tun>, from: u16, port: u16) -> Verdict {
    let tag = world.listener.tag();
    let bytes = packet("10.1.0.2", "10.2.0.2", [from, port], &tag);
    world.lan.run(|| send_raw(&bytes, "10.2.0.2".parse().unwrap(), 0));
    // What is sent later comes later.
    world.listener.flush(&world.senders()[1]);
    let is_tunnelled = tun.is_some_and(|tun| {
        let mut seen = BTreeSet::new();
        drain(tun, &mut seen);
        seen.contains(&tag)
    });
    let is_clear = world.listener.count(&tag) > 0;
    assert!(!(is_tunnelled && is_clear), "both ways");
    match (is_tunnelled, is_clear) {
        (true, _) => Verdict::Protect,
        (_, true) => Verdict::Bypass,
        _ => Verdict::Discard,
    }
}

#[test]
fn flows_that_were_decided_go_on_without_a_gateway_and_new_ones_do_not() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let before = world.picture();
    let tun = &mut world.tun();
    let mut protection =
        world.gateway.run(|| LeakProtection::raise(config(), site().sets)).unwrap();
    let [free, held] = PORTS;
    assert_eq!(fate(&world, Some(tun), 1, free), Verdict::Discard, "nobody answers yet");
    let gateway = Gateway::start(&world);
    *gateway.model.lock().unwrap() = site();
    let wait = |from, port, fated, tun: &mut Tun| {
        let begun = Instant::now();
        while fate(&world, Some(tun), from, port) != fated {
            assert!(begun.elapsed() < Duration::from_secs(20), "{port} is not to {fated:?}");
        }
    };
    wait(2, free, Verdict::Bypass, tun);
    wait(2, held, Verdict::Protect, tun);
    let asked = gateway.answered().questions();
    wait(2, free, Verdict::Bypass, tun);
    wait(2, held, Verdict::Protect, tun);
    assert_eq!(gateway.answered().questions(), asked, "the kernel remembers");
    drop(gateway);
    assert_eq!(fate(&world, Some(tun), 2, free), Verdict::Bypass);
    assert_eq!(fate(&world, Some(tun), 2, held), Verdict::Protect);
    assert_eq!(fate(&world, Some(tun), 3, free), Verdict::Discard);
    assert_eq!(fate(&world, Some(tun), 3, held), Verdict::Discard);
    // Policies change.
    let gateway = Gateway::start(&world);
    let mut other = site();
    other.policies.remove(0);
    *gateway.model.lock().unwrap() = other;
    protection.forget_answers().unwrap();
    wait(2, free, Verdict::Protect, tun);
    drop(gateway);
    // Another life knows what was answered for as long as it is the same epoch, and takes up the next.
    drop(protection);
    assert_eq!(fate(&world, Some(tun), 2, free), Verdict::Protect);
    let protection = world.gateway.run(|| LeakProtection::raise(config(), site().sets)).unwrap();
    assert_eq!(fate(&world, Some(tun), 2, free), Verdict::Discard);
    drop(protection);
    world.gateway.run(|| take_away(config()).unwrap());
    assert_eq!(fate(&world, None, 2, held), Verdict::Bypass);
    world.gateway.ip("link set convoy0 down");
    assert_eq!(world.picture(), before);
}

#[test]
fn answers_of_the_epoch_before_last_are_forgotten_when_numbers_begin_again() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let tun = &mut world.tun();
    let mut protection =
        world.gateway.run(|| LeakProtection::raise(config(), site().sets)).unwrap();
    let gateway = Gateway::start(&world);
    *gateway.model.lock().unwrap() = site();
    let [free, _] = PORTS;
    let begun = Instant::now();
    while fate(&world, Some(tun), 2, free) != Verdict::Bypass {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    gateway.model.lock().unwrap().policies.remove(0);
    // 255 numbers: the same one comes again.
    for _ in 0..255 {
        protection.forget_answers().unwrap();
    }
    assert_eq!(fate(&world, Some(tun), 2, free), Verdict::Protect);
}

#[test]
fn rules_and_routes_that_others_remove_are_made_again() {
    let Some(world) = World::new() else { return };
    let tun = world.tun();
    let mut protection =
        world.gateway.run(|| LeakProtection::raise(config(), site().sets)).unwrap();
    assert_eq!(protection.repair().unwrap(), Repaired::default());
    world.gateway.ip("-4 rule del priority 210");
    world.gateway.ip("-4 route flush table 4511");
    // One into the interface, one that leads nowhere.
    let repaired = Repaired { table: false, rules: 1, routes: 2 };
    assert_eq!(protection.repair().unwrap(), repaired);
    assert_eq!(protection.repair().unwrap(), Repaired::default());
    drop(tun);
    let begun = Instant::now();
    while world.gateway.ip("-4 route show table 4511").contains("convoy0") {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    assert_eq!(protection.repair().unwrap(), Repaired::default());
    let _tun = world.tun();
    // Everything, for each IP version, and the far network.
    assert_eq!(protection.repair().unwrap(), Repaired { table: false, rules: 0, routes: 3 });
    drop(protection);
    world.gateway.run(|| take_away(config()).unwrap());
}

#[test]
fn another_interface_leaves_rules_and_tables_alone() {
    let Some(world) = World::new() else { return };
    let _tun = world.tun();
    let mut asks = world.gateway.run(|| LeakProtection::raise(config(), site().sets)).unwrap();
    let before = world.picture();
    let other = || Config::new(LinkName::new("convoy1").unwrap());
    let whole = PrefixSets {
        policies: vec![Sides {
            near: [net("10.8.0.0/16")].into(),
            far: [net("10.9.0.0/16")].into(),
        }],
        ..PrefixSets::default()
    };
    let raised = world.gateway.run(|| LeakProtection::raise(other(), whole)).unwrap();
    assert_eq!(asks.repair().unwrap(), Repaired::default());
    drop(raised);
    world.gateway.run(|| take_away(other()).unwrap());
    assert_eq!(world.picture(), before);
    assert_eq!(asks.repair().unwrap(), Repaired::default());
}

#[test]
fn only_one_interface_asks_and_another_one_is_closed_without() {
    let Some(world) = World::new() else { return };
    let _asks = world.gateway.run(|| LeakProtection::raise(config(), site().sets)).unwrap();
    let other = || Config::new(LinkName::new("convoy1").unwrap());
    let (near, far) = (net("10.1.0.0/24"), net("10.9.0.0/16"));
    let sets = PrefixSets {
        policies: vec![Sides { near: [near].into(), far: [far].into() }],
        mixed: [far].into(),
        ..PrefixSets::default()
    };
    let [_, lan, ..] = world.senders();
    assert!(world.leaves(&lan, "10.9.0.9"));
    let refused = world.gateway.run(|| LeakProtection::raise(other(), sets.clone()));
    assert_eq!(refused.unwrap_err(), LeakProtectionError::Asked);
    assert!(!world.leaves(&lan, "10.9.0.9"), "a start that is refused leaves nothing open");
    let whole = PrefixSets { mixed: BTreeSet::new(), ..sets.clone() };
    let mut second = world.gateway.run(|| LeakProtection::raise(other(), whole)).unwrap();
    assert_eq!(second.set(sets).unwrap_err(), LeakProtectionError::Asked);
    assert_eq!(second.repair().unwrap(), Repaired::default());
    assert!(!world.leaves(&lan, "10.9.0.9"));
}
