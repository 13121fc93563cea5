//! A kernel lets through between mixed prefixes what policies say that it asks, whatever they are.

#[allow(dead_code, reason = "others need the rest")]
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use convoy_host::{LinkName, Mark};
use convoy_leak_protection::{
    Answered, Answers, Asked, AskedTotal, Config, Drops, LeakProtection, LeakProtectionError,
    Marks, Policies, PrefixSets, Questions, Repaired, Sides, Verdict, remove,
};
use convoy_netlink::conntrack::Conntrack;
use convoy_netlink::nft::expression::Expression;
use convoy_netlink::nft::flow::Bits;
use convoy_netlink::nft::{self, Nft, Place, TableFlags};
use ipnet::IpNet;
use netlink_packet_netfilter::nftables::InetHookNumber;

use crate::world::flows::{Flow, drain, packet};
use crate::world::{Door, Tun, World, send_raw};

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
    local: IpNet,
    remote: IpNet,
    /// Destination port, if only one is meant.
    port: Option<u16>,
    verdict: Verdict,
}

/// Policies, the first that matches decides; and the prefix sets that were made of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    policies: Vec<Policy>,
    pub(crate) sets: PrefixSets,
}

impl Model {
    fn look_up(&self, near: IpAddr, far: IpAddr, port: u16) -> Option<Verdict> {
        let meant = |policy: &&Policy| {
            policy.local.contains(&near)
                && policy.remote.contains(&far)
                && policy.port.is_none_or(|only| only == port)
        };
        self.policies.iter().find(meant).map(|policy| policy.verdict)
    }

    fn outbound(&self, flow: Flow) -> Verdict {
        let is_held = self.is_local(flow.from) && self.is_remote(flow.to);
        let otherwise = if is_held { Verdict::Discard } else { Verdict::Bypass };
        self.look_up(flow.from, flow.to, flow.port).unwrap_or(otherwise)
    }

    fn inbound(&self, flow: Flow) -> Verdict {
        let is_held = self.is_remote(flow.from) && self.is_local(flow.to);
        let otherwise = if is_held { Verdict::Discard } else { Verdict::Bypass };
        self.look_up(flow.to, flow.from, flow.port).unwrap_or(otherwise)
    }

    fn is_local(&self, address: IpAddr) -> bool {
        self.sets.policies.iter().flat_map(|policy| &policy.local).any(|net| net.contains(&address))
    }

    fn is_remote(&self, address: IpAddr) -> bool {
        let longest = |nets: &BTreeSet<IpNet>| {
            nets.iter().filter(|net| net.contains(&address)).map(IpNet::prefix_len).max()
        };
        self.sets.policies.iter().any(|policy| {
            let near = longest(&policy.local);
            longest(&policy.remote).is_some_and(|far| near.is_none_or(|near| far >= near))
        })
    }

    fn is_mixed(&self, address: IpAddr) -> bool {
        self.sets.partly_bypassed.iter().any(|net| net.contains(&address))
    }

    fn fate(&self, door: Door, flow: Flow) -> Verdict {
        let is_outbound = self.is_local(flow.from) && self.is_remote(flow.to);
        let is_inbound = self.is_remote(flow.from) && self.is_local(flow.to);
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
struct Teller<'a>(&'a Model);

impl Policies for Teller<'_> {
    fn outbound(&mut self, packet: &[u8]) -> Verdict {
        self.0.outbound(Flow::of(packet))
    }

    fn inbound(&mut self, packet: &[u8]) -> Verdict {
        self.0.inbound(Flow::of(packet))
    }

    fn forwarded(&mut self, packet: &[u8]) -> Verdict {
        self.inbound(packet)
    }

    fn take(&mut self, _: &[u8]) {
        unreachable!("nobody said that NAT is to be followed");
    }
}

/// A gateway that answers until it is dropped.
pub(crate) struct Gateway {
    pub(crate) model: Arc<Mutex<Model>>,
    answered: Arc<Mutex<Answered>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    fn start(world: &World) -> Self {
        Self::with(world, &config())
    }

    pub(crate) fn with(world: &World, config: &Config) -> Self {
        let mut listener = world.gateway.run(|| crate::world::listen(&config.questions));
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
                        let now = listener.answer(&mut Teller(&model)).unwrap();
                        answered.lock().unwrap().add(&now.sum());
                    }
                }
            }
        });
        Self { model, answered, ended, thread: Some(thread) }
    }

    fn answered(&self) -> Answered {
        *self.answered.lock().unwrap()
    }

    /// Questions that were answered, those whose verdicts are in force but not counted yet included.
    fn questions(&self) -> u64 {
        let mut before = u64::MAX;
        loop {
            let now = self.answered().questions();
            if now == before {
                return now;
            }
            before = now;
            thread::sleep(Duration::from_millis(300));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

pub(crate) fn config() -> Config {
    Config::new(LinkName::new("convoy0").unwrap())
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn what_becomes_of_packets_is_what_policies_say() {
    let Some(world) = World::new() else { return };
    fates_are_those_of_policies(&world, &config(), 60);
}

/// A chain of somebody else's, and the bits that it puts into marks.
type Writing = (&'static str, Place, Vec<Expression>);

/// As Calico does it: the upper half of packets' marks is its own, and it writes there wherever it can. Beside it
/// kube-proxy marks what it is to give another source, and what it is to drop.
fn calico() -> Vec<Writing> {
    let writes = |value| Bits { mask: 0xffff_0000, value }.into_mark();
    let at = Place::At;
    vec![
        ("pre", at(InetHookNumber::PreRouting, -150), writes(0x0011_0000)),
        ("out", Place::Routing(-150), writes(0x0022_0000)),
        ("fwd", at(InetHookNumber::Forward, 0), writes(0x0033_0000)),
        ("in", at(InetHookNumber::LocalIn, 0), writes(0x0033_0000)),
        ("post", at(InetHookNumber::PostRouting, -150), writes(0x0011_0000)),
        ("kube-pre", at(InetHookNumber::PreRouting, -100), kube_proxy(0x4000)),
        ("kube-out", Place::Routing(-100), kube_proxy(0x4000)),
        ("kube-fwd", at(InetHookNumber::Forward, 10), kube_proxy(0x4000)),
        ("kube-post", at(InetHookNumber::PostRouting, 100), kube_proxy(0)),
    ]
}

fn kube_proxy(value: u32) -> Vec<Expression> {
    Bits { mask: 0xc000, value }.into_mark()
}

/// As somebody who numbers flows, in the bits that answers are kept in: with what would let them pass both ways.
fn numbers() -> Vec<Writing> {
    let number = |value| Bits { mask: 0x000f_ff00, value }.into_flow();
    let at = Place::At;
    vec![
        ("pre", at(InetHookNumber::PreRouting, -150), number(0x0000_0500)),
        ("out", Place::Routing(-150), number(0x0007_f500)),
        ("post", at(InetHookNumber::PostRouting, 0), number(0x0000_0500)),
    ]
}

/// As Tailscale does it: eight bits of packets' marks and of flows' marks.
fn tailscale() -> Vec<Writing> {
    let bits = |value| Bits { mask: 0x00ff_0000, value };
    let at = Place::At;
    vec![
        ("pre", at(InetHookNumber::PreRouting, -150), bits(0x0084_0000).into_flow()),
        ("out", Place::Routing(-150), bits(0x0088_0000).into_flow()),
        ("fwd", at(InetHookNumber::Forward, 0), bits(0x0014_0000).into_mark()),
        ("post", at(InetHookNumber::PostRouting, -150), bits(0x0018_0000).into_mark()),
    ]
}

fn with_marks(mark: Mark, packets: u32, flows: u32) -> Config {
    let marks = Marks::at(packets, flows).unwrap();
    Config { mark, questions: Questions { marks, ..Questions::new() }, ..config() }
}

fn play_beside(others: Vec<Writing>, ip_rule: &str, config: &Config) {
    let Some(mut world) = World::new() else { return };
    let mut orders = nft::table("others", TableFlags::empty(), false);
    for (name, place, writing) in others {
        orders.extend(nft::chain("others", name, place, vec![writing]));
    }
    world.gateway.run(|| Nft::open().unwrap().commit(orders).unwrap());
    world.gateway.ip(ip_rule);
    world.mark = config.mark.value | !config.mark.mask & 0x00c0_00ee;
    fates_are_those_of_policies(&world, config, 20);
}

#[test]
fn what_others_write_into_other_bits_changes_nothing() {
    let mark = Mark { value: 0x0500, mask: 0x0f00 };
    let config = with_marks(mark, 0x0000_00f0, 0xfff0_0000);
    play_beside(calico(), "rule add fwmark 0x110000/0xff0000 priority 300 table main", &config);
}

#[test]
fn what_others_write_into_other_bits_of_flows_changes_nothing() {
    let mark = Mark { value: 0xc000_0000, mask: 0xf000_0000 };
    let config = with_marks(mark, 0x0f00_0000, 0x0000_fff0);
    play_beside(tailscale(), "rule add fwmark 0x80000/0xff0000 priority 5210 table main", &config);
}

#[test]
fn numbers_of_others_in_the_bits_of_flows_are_no_answers() {
    play_beside(numbers(), "rule add fwmark 0x1 priority 300 table main", &config());
}

fn fates_are_those_of_policies(world: &World, config: &Config, rounds: usize) {
    let config = || config.clone();
    world.take_any_packet();
    let lan_listener = world.lan.run(crate::world::Listener::start);
    let mut tun = world.tun();
    world.gateway.run(|| {
        std::fs::write("/proc/sys/net/ipv4/conf/convoy0/rp_filter", "0").unwrap();
    });
    let gateway = Gateway::with(world, &config());
    let mut protection =
        world.gateway.run(|| LeakProtection::install(config(), PrefixSets::default())).unwrap();
    let mut random = crate::world::random(7);
    let mut from_tun = BTreeSet::new();
    let (mut unheard, mut tunnelled) = (Vec::new(), Vec::new());
    let mut bypassed = 0;
    for round in 0..rounds {
        let version = round % 2;
        let mut some = || net(NETWORKS[version][random(NETWORKS[version].len())]);
        let mut policies: Vec<_> = (0..4)
            .map(|_| Policy {
                local: some(),
                remote: some(),
                port: None,
                verdict: Verdict::Protect,
            })
            .collect();
        for policy in &mut policies {
            policy.port = [None, Some(PORTS[0]), Some(PORTS[1])][random(3)];
            policy.verdict =
                [Verdict::Protect, Verdict::Bypass, Verdict::Protect, Verdict::Discard][random(4)];
        }
        let held = policies.iter().filter(|policy| policy.verdict != Verdict::Bypass);
        let sides = held
            .clone()
            .map(|policy| Sides { local: [policy.local].into(), remote: [policy.remote].into() });
        let mut mixed: BTreeSet<_> = policies
            .iter()
            .filter(|policy| policy.verdict == Verdict::Bypass)
            .map(|policy| policy.remote)
            .collect();
        if random(3) == 0 {
            mixed.extend(held.map(|policy| policy.remote));
        }
        let sets = PrefixSets {
            policies: sides.collect(),
            partly_bypassed: mixed,
            ..PrefixSets::default()
        };
        let model = Model { policies, sets: sets.clone() };
        // Nobody waited for what was to be discarded, and later policies may pass it.
        world.settle(&config().questions, || gateway.answered().questions());
        // Prefixes before policies, and what was answered is forgotten behind both.
        if round % 7 == 0 {
            drop(protection);
            *gateway.model.lock().unwrap() = model.clone();
            protection = world.gateway.run(|| LeakProtection::install(config(), sets)).unwrap();
        } else {
            let _ = protection.set(sets).unwrap();
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
    assert!(few.iter().all(|count| *count > 30), "{few:?}");
}

/// A policy for everything between two networks, and one that passes a port.
pub(crate) fn site() -> Model {
    let [near, far] = [net("10.1.0.0/24"), net("10.2.0.0/16")];
    let policy = |port, verdict| Policy { local: near, remote: far, port, verdict };
    let policies = vec![policy(Some(PORTS[0]), Verdict::Bypass), policy(None, Verdict::Protect)];
    let sides = vec![Sides { local: [near].into(), remote: [far].into() }];
    let routed = [far].into();
    let sets = PrefixSets {
        policies: sides,
        partly_bypassed: [far].into(),
        routed,
        ..PrefixSets::default()
    };
    Model { policies, sets }
}

/// Verdict on a packet from the LAN.
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
        world.gateway.run(|| LeakProtection::install(config(), site().sets)).unwrap();
    let [free, held] = PORTS;
    assert_eq!(fate(&world, Some(tun), 1, free), Verdict::Discard, "nobody answers yet");
    wait_until_remembers(&world, &mut protection);
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
    let asked = gateway.questions();
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
    let protection = world.gateway.run(|| LeakProtection::install(config(), site().sets)).unwrap();
    assert_eq!(fate(&world, Some(tun), 2, free), Verdict::Discard);
    drop(protection);
    world.gateway.run(|| remove(config()).unwrap());
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
        world.gateway.run(|| LeakProtection::install(config(), site().sets)).unwrap();
    let gateway = Gateway::start(&world);
    *gateway.model.lock().unwrap() = site();
    let [free, _] = PORTS;
    let begun = Instant::now();
    while fate(&world, Some(tun), 2, free) != Verdict::Bypass {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    gateway.model.lock().unwrap().policies.remove(0);
    // 128 numbers: the same one comes again.
    for _ in 0..128 {
        protection.forget_answers().unwrap();
    }
    let begun = Instant::now();
    loop {
        match fate(&world, Some(tun), 2, free) {
            Verdict::Protect => break,
            // It waits for its answer still, or for who reads it.
            Verdict::Discard => assert!(begun.elapsed() < Duration::from_secs(20)),
            Verdict::Bypass => panic!("an answer of before is believed"),
        }
    }
}

#[test]
fn answers_that_are_given_while_numbers_begin_again_are_forgotten_as_well() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let _tun = world.tun();
    let mut protection =
        world.gateway.run(|| LeakProtection::install(config(), site().sets)).unwrap();
    let gateway = Gateway::start(&world);
    *gateway.model.lock().unwrap() = site();
    for _ in 0..127 {
        protection.forget_answers().unwrap();
    }
    let [free, _] = PORTS;
    let is_over = AtomicBool::new(false);
    let to: IpAddr = "10.2.0.2".parse().unwrap();
    let send = |port: u16| send_raw(&packet("10.1.0.2", "10.2.0.2", [port, free], b"more"), to, 0);
    world.lan.run(|| (1000..5000).for_each(send));
    thread::scope(|scope| {
        // New flows are decided all the time.
        scope.spawn(|| {
            let mut ports = (5000..u16::MAX).cycle();
            let sends = || {
                while !is_over.load(Ordering::Relaxed) {
                    ports.next().into_iter().for_each(send);
                }
            };
            world.lan.run(sends);
        });
        let before = gateway.answered().questions();
        wait_until("nothing is asked", || gateway.answered().questions() > before + 1000);
        let forgotten = protection.forget_answers();
        is_over.store(true, Ordering::Relaxed);
        forgotten.unwrap();
    });
    wait_until_remembers(&world, &mut protection);
    // Of the first epoch only its highest bit is set.
    let epochs = config().questions.marks.of_flows() & 0x0007_f000;
    let left = world.gateway.run(|| Conntrack::open().unwrap().clear_marks(epochs).unwrap());
    assert_eq!(left, 0, "flows of the epoch before");
}

#[test]
fn a_second_start_with_other_marks_leaves_answers_of_the_running_one() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let tun = &mut world.tun();
    let mut protection =
        world.gateway.run(|| LeakProtection::install(config(), site().sets)).unwrap();
    wait_until_remembers(&world, &mut protection);
    let gateway = Gateway::start(&world);
    *gateway.model.lock().unwrap() = site();
    let [free, _] = PORTS;
    wait_until("the port is not free", || fate(&world, Some(tun), 2, free) == Verdict::Bypass);
    let asked = gateway.questions();
    for flows in [config().questions.marks.of_flows(), 0x00ff_f000] {
        let other = with_marks(Mark::GATEWAY, 0x0000_00f0, flows);
        let refused = world.gateway.run(|| LeakProtection::install(other, site().sets));
        let held = LeakProtectionError::Held { table: "convoy-convoy0".into() };
        assert_eq!(refused.unwrap_err(), held);
        assert_eq!(fate(&world, Some(tun), 2, free), Verdict::Bypass);
        assert_eq!(gateway.answered().questions(), asked, "an answer was forgotten");
    }
}

/// Until a kernel believes what was answered: not before the answers of an earlier life are forgotten, for
/// which a start does not wait long.
#[track_caller]
fn wait_until_remembers(world: &World, protection: &mut LeakProtection) {
    wait_until("nothing is remembered", || {
        protection.drops().unwrap();
        let rules = || Nft::open().unwrap().dump(nft::question("convoy-convoy0", "recall"));
        !world.gateway.run(rules).unwrap().is_empty()
    });
}

/// Until something holds.
#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_was_answered_to_be_dropped_is_not_asked_again_at_once() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let _tun = world.tun();
    let mut protection =
        world.gateway.run(|| LeakProtection::install(config(), site().sets)).unwrap();
    let gateway = Gateway::start(&world);
    let [_, port] = PORTS;
    let mut model = site();
    let (near, far) = (net("10.1.0.0/24"), net("10.2.0.0/16"));
    let discards = Policy { local: near, remote: far, port: Some(port), verdict: Verdict::Discard };
    model.policies.insert(0, discards);
    *gateway.model.lock().unwrap() = model;
    let asked = || gateway.answered().questions();
    let mut dropped = 0;
    for (space, from, to) in
        [(&world.lan, "10.1.0.2", "10.2.0.2"), (&world.wire, "10.2.0.2", "10.1.0.2")]
    {
        let send = |from_port: u16, many: usize| {
            let packet = packet(from, to, [from_port, port], b"discards");
            let send = || (0..many).for_each(|_| send_raw(&packet, to.parse().unwrap(), 0));
            space.run(send);
        };
        let mut from_port = 1000;
        let before = loop {
            let (before, begun) = (asked(), Instant::now());
            send(from_port, 1);
            wait_until("it is not asked about", || asked() > before);
            send(from_port, 500);
            // What the kernel notes lasts three seconds; a busy host may have taken longer.
            if begun.elapsed() < Duration::from_secs(2) {
                break before;
            }
            assert!(from_port < 1100, "this host is too slow");
            gateway.questions();
            dropped = protection.drops().unwrap().unwrap().discarded_again;
            from_port += 10;
        };
        // One that is known by other ports is asked about behind all of them.
        send(from_port + 1, 1);
        wait_until("another one is not asked about", || asked() > before + 1);
        assert_eq!(asked(), before + 2, "from {from}");
        let again = protection.drops().unwrap().unwrap().discarded_again;
        assert_eq!(core::mem::replace(&mut dropped, again) + 500, again, "from {from}");
        // Other policies may say something else.
        protection.forget_answers().unwrap();
        send(from_port, 1);
        wait_until("it is not asked about again", || asked() > before + 2);
        // What the wire's host sends itself is heard there as well.
        assert!(from != "10.1.0.2" || world.listener.count(b"discards") == 0, "in clear");
    }
}

#[test]
fn what_was_asked_and_found_no_room_is_counted() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let _tun = world.tun();
    let _protection = world.gateway.run(|| LeakProtection::install(config(), site().sets)).unwrap();
    let questions = config().questions;
    let mut total = AskedTotal::default();
    let mut counted = || {
        world.gateway.run(|| total.follow(&questions, || Some(1)).unwrap());
        total.both()
    };
    assert_eq!(counted(), [Asked::default(); 2], "nobody listens");
    let mut listener = world.gateway.run(|| crate::world::listen(&questions));
    // More than wait in a queue, each of another flow, and some the other way.
    let send = |from: &str, to: &str, flows: u16| {
        let packets: Vec<_> =
            (1..=flows).map(|port| packet(from, to, [port, PORTS[0]], b"flooding")).collect();
        packets.iter().for_each(|bytes| send_raw(bytes, to.parse().unwrap(), 0));
    };
    world.lan.run(|| send("10.1.0.2", "10.2.0.2", 5000));
    world.wire.run(|| send("10.2.0.2", "10.1.0.2", 10));
    wait_until("not all were asked about", || {
        let [outbound, inbound] = counted();
        (outbound.packets, inbound.packets) == (5000, 10)
    });
    let [outbound, inbound] = counted();
    assert!(outbound.full + outbound.unread >= 5000 - 4096, "{outbound:?}");
    assert_eq!((inbound.full, inbound.unread), (0, 0));
    let mut answers = Answers::default();
    let model = site();
    while listener.wait(Duration::from_millis(200)).unwrap() {
        answers.add(&listener.answer(&mut Teller(&model)).unwrap());
    }
    let answered = 5000 - outbound.full - outbound.unread;
    // Errors about these are asked about as well.
    assert_eq!(answers.outbound.bypassed, answered);
    assert_eq!(answers.inbound.bypassed, 10);
    assert_eq!(answers.sum().bypassed, answered + 10);
}

#[test]
fn what_lost_its_answer_is_told_from_what_goes_past_the_interface() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let tun = &mut world.tun();
    let mut sets = site().sets;
    let [near, whole] = [net("10.1.0.0/24"), net("10.3.0.0/16")];
    sets.policies.push(Sides { local: [near].into(), remote: [whole].into() });
    let mut protection = world.gateway.run(|| LeakProtection::install(config(), sets)).unwrap();
    let gateway = Gateway::start(&world);
    *gateway.model.lock().unwrap() = site();
    let [free, _] = PORTS;
    wait_until("the port is not free", || fate(&world, Some(tun), 1, free) == Verdict::Bypass);
    let none = Drops::default();
    assert_eq!(protection.drops().unwrap(), Some(none));
    // Somebody takes answers away from what is forwarded.
    let bits = Bits { mask: config().questions.marks.of_packets(), value: 0 };
    let forward = Place::At(InetHookNumber::Forward, 0);
    let mut orders = nft::table("others", TableFlags::empty(), false);
    orders.extend(nft::chain("others", "fwd", forward, vec![bits.into_mark()]));
    world.gateway.run(|| Nft::open().unwrap().commit(orders).unwrap());
    assert_eq!(fate(&world, Some(tun), 1, free), Verdict::Discard);
    let lost = Drops { outbound: 1, unanswered_outbound: 1, ..none };
    assert_eq!(protection.drops().unwrap(), Some(lost));
    assert_eq!(lost.past_interface(), 0);
    // A route of somebody else leads what is protected whole to the wire.
    let tag = world.listener.tag();
    let bytes = packet("10.1.0.2", "10.3.0.2", [1, free], &tag);
    world.lan.run(|| send_raw(&bytes, "10.3.0.2".parse().unwrap(), 0));
    wait_until("it is not dropped", || {
        let drops = protection.drops().unwrap().unwrap();
        (drops.past_interface(), drops.unanswered_outbound) == (1, 1)
    });
    assert_eq!(world.listener.count(&tag), 0);
}

#[test]
fn answers_at_bits_of_before_are_forgotten_and_leave_no_trace() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let tun = &mut world.tun();
    let mut protection =
        world.gateway.run(|| LeakProtection::install(config(), site().sets)).unwrap();
    wait_until_remembers(&world, &mut protection);
    let gateway = Gateway::start(&world);
    *gateway.model.lock().unwrap() = site();
    let [free, _] = PORTS;
    let begun = Instant::now();
    while fate(&world, Some(tun), 2, free) != Verdict::Bypass {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    drop((gateway, protection));
    let bits = |mask| world.gateway.run(|| Conntrack::open().unwrap().clear_marks(mask).unwrap());
    let before = config().questions.marks.of_flows();
    assert_eq!(fate(&world, Some(tun), 2, free), Verdict::Bypass, "decided");
    let other = with_marks(Mark { value: 0x0500, mask: 0x0f00 }, 0x0000_f000, 0xfff0_0000);
    let raised = || LeakProtection::install(other.clone(), site().sets);
    let mut protection = world.gateway.run(raised).unwrap();
    wait_until_remembers(&world, &mut protection);
    assert_eq!(bits(before), 0, "flows have bits of the earlier life");
    assert_eq!(fate(&world, Some(tun), 2, free), Verdict::Discard, "nobody answers");
    let gateway = Gateway::with(&world, &other);
    *gateway.model.lock().unwrap() = site();
    let begun = Instant::now();
    while fate(&world, Some(tun), 2, free) != Verdict::Bypass {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    drop(gateway);
    // The same bits again: what was answered is known, and of an earlier epoch.
    drop(protection);
    let rules = |family: &str| world.gateway.ip(&format!("{family} rule"));
    assert!(rules("-4").contains("fwmark 0x1000/0x7000"), "{}", rules("-4"));
    assert!(!rules("-6").contains("0xc5000000"), "{}", rules("-6"));
    world.gateway.run(|| remove(other.clone()).unwrap());
    assert!(!rules("-4").contains("fwmark"), "{}", rules("-4"));
}

#[test]
fn rules_and_routes_that_others_remove_are_made_again() {
    let Some(world) = World::new() else { return };
    let tun = world.tun();
    let mut protection =
        world.gateway.run(|| LeakProtection::install(config(), site().sets)).unwrap();
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
    // Everything, for each IP version, and the far network, this in both tables of the second lock, too.
    assert_eq!(protection.repair().unwrap(), Repaired { table: false, rules: 0, routes: 5 });
    drop(protection);
    world.gateway.run(|| remove(config()).unwrap());
}

#[test]
fn another_interface_leaves_rules_and_tables_alone() {
    let Some(world) = World::new() else { return };
    let _tun = world.tun();
    let mut asks = world.gateway.run(|| LeakProtection::install(config(), site().sets)).unwrap();
    let before = world.picture();
    let other = || Config::new(LinkName::new("convoy1").unwrap());
    let whole = PrefixSets {
        policies: vec![Sides {
            local: [net("10.8.0.0/16")].into(),
            remote: [net("10.9.0.0/16")].into(),
        }],
        ..PrefixSets::default()
    };
    let raised = world.gateway.run(|| LeakProtection::install(other(), whole)).unwrap();
    assert_eq!(asks.repair().unwrap(), Repaired::default());
    drop(raised);
    world.gateway.run(|| remove(other()).unwrap());
    assert_eq!(world.picture(), before);
    assert_eq!(asks.repair().unwrap(), Repaired::default());
}

#[test]
fn only_one_interface_asks_and_another_one_is_closed_without() {
    let Some(world) = World::new() else { return };
    let _asks = world.gateway.run(|| LeakProtection::install(config(), site().sets)).unwrap();
    let other = || Config::new(LinkName::new("convoy1").unwrap());
    let (near, far) = (net("10.1.0.0/24"), net("10.9.0.0/16"));
    let sets = PrefixSets {
        policies: vec![Sides { local: [near].into(), remote: [far].into() }],
        partly_bypassed: [far].into(),
        ..PrefixSets::default()
    };
    let [_, lan, ..] = world.senders();
    assert!(world.leaves(&lan, "10.9.0.9"));
    let refused = world.gateway.run(|| LeakProtection::install(other(), sets.clone()));
    assert_eq!(refused.unwrap_err(), LeakProtectionError::Asked);
    assert!(!world.leaves(&lan, "10.9.0.9"), "a start that is refused leaves nothing open");
    let whole = PrefixSets { partly_bypassed: BTreeSet::new(), ..sets.clone() };
    let mut second = world.gateway.run(|| LeakProtection::install(other(), whole)).unwrap();
    assert_eq!(second.set(sets).unwrap_err(), LeakProtectionError::Asked);
    assert_eq!(second.repair().unwrap(), Repaired::default());
    assert!(!world.leaves(&lan, "10.9.0.9"));
}
