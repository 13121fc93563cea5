//! Packets fare as policies say, whatever these are and however they come and go.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use convoy_leak_protection::{
    Answered, LeakProtection, Policies, Policy, PolicyDirection, Verdict,
};
use ipnet::IpNet;

use super::{config, net, raise};
use crate::world::flows::{Flow, drain, packet};
use crate::world::{Door, Listener as Ears, World};

/// Ports that policies tell apart.
const PORTS: [u16; 2] = [7, 8];

/// Hosts on the LAN, hosts behind the wire, and networks that hold some of them.
const LAN: [[&str; 2]; 2] = [["10.1.0.2", "10.1.0.3"], ["2001:db8:0:1::2", "2001:db8:0:1::3"]];
const WIRE: [[&str; 3]; 2] =
    [["10.2.0.2", "10.2.0.3", "10.3.0.2"], ["2001:db8:2::2", "2001:db8:2::3", "2001:db8:3::2"]];
const NETWORKS: [&[&str]; 2] = [
    &[
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
    &[
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
];

/// A policy of a daemon.
#[derive(Debug, Clone, Copy)]
struct Rule {
    local: IpNet,
    remote: IpNet,
    /// Destination port, if only one is meant.
    port: Option<u16>,
    verdict: Verdict,
    /// True if packets that leave are meant, if those for this host are, and if those for others are.
    ways: [bool; 3],
}

impl Rule {
    fn shown(&self) -> impl Iterator<Item = Policy> {
        let Self { local, remote, port, verdict, ways } = *self;
        let ways = PolicyDirection::ALL.into_iter().zip(ways).filter(|(_, is_meant)| *is_meant);
        let is_whole = port.is_none();
        ways.map(move |(way, _)| Policy { local, remote, is_whole, verdict, way: Some(way) })
    }

    fn means(&self, near: IpAddr, far: IpAddr, port: u16) -> bool {
        self.local.contains(&near)
            && self.remote.contains(&far)
            && self.port.is_none_or(|only| only == port)
    }
}

/// Policies, the first that matches decides; without any a packet passes.
#[derive(Debug, Clone, Default)]
struct Database(Vec<Rule>);

impl Database {
    fn look_up(&self, way: PolicyDirection, near: IpAddr, far: IpAddr, port: u16) -> Verdict {
        let mut rules = self.0.iter().filter(|rule| rule.ways[way as usize]);
        let found = rules.find(|rule| rule.means(near, far, port));
        found.map_or(Verdict::Bypass, |rule| rule.verdict)
    }

    fn outbound(&self, flow: Flow) -> Verdict {
        self.look_up(PolicyDirection::Out, flow.from, flow.to, flow.port)
    }

    fn inbound(&self, flow: Flow) -> Verdict {
        self.look_up(PolicyDirection::In, flow.to, flow.from, flow.port)
    }

    fn forwarded(&self, flow: Flow) -> Verdict {
        self.look_up(PolicyDirection::Forward, flow.to, flow.from, flow.port)
    }

    fn fate(&self, door: Door, flow: Flow) -> Verdict {
        match door {
            Door::Gateway => Verdict::Bypass,
            Door::Host | Door::Tun => self.outbound(flow),
            Door::Lan | Door::Wire if self.forwarded(flow) != Verdict::Bypass => Verdict::Discard,
            Door::Lan | Door::Wire => self.outbound(flow),
        }
    }
}

/// Answers with what the policies say.
struct Asked<'a>(&'a Database);

impl Policies for Asked<'_> {
    fn outbound(&mut self, packet: &[u8]) -> Verdict {
        self.0.outbound(Flow::of(packet))
    }

    fn inbound(&mut self, packet: &[u8]) -> Verdict {
        self.0.inbound(Flow::of(packet))
    }

    fn forwarded(&mut self, packet: &[u8]) -> Verdict {
        self.0.forwarded(Flow::of(packet))
    }

    fn take(&mut self, _: &[u8]) {
        unreachable!("nobody said that NAT is to be followed");
    }
}

/// Somebody who answers until this is dropped.
struct Answering {
    database: Arc<Mutex<Database>>,
    answered: Arc<Mutex<Answered>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    fn start(world: &World) -> Self {
        let mut listener = world.gateway.run(|| crate::world::listen(&config(world).questions));
        let database = Arc::<Mutex<Database>>::default();
        let answered = Arc::<Mutex<Answered>>::default();
        let ended = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (database, answered, ended) =
                (Arc::clone(&database), Arc::clone(&answered), Arc::clone(&ended));
            move || {
                while !ended.load(Ordering::Relaxed) {
                    if listener.wait(Duration::from_millis(20)).unwrap() {
                        let database = database.lock().unwrap();
                        let now = listener.answer(&mut Asked(&database)).unwrap();
                        answered.lock().unwrap().add(&now.sum());
                    }
                }
            }
        });
        Self { database, answered, ended, thread: Some(thread) }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Some policies come, others go, and now and then the gateway is killed and begins anew.
fn change(
    world: &World,
    protection: LeakProtection,
    answering: &Answering,
    random: &mut impl FnMut(usize) -> usize,
) -> LeakProtection {
    let mut rules = answering.database.lock().unwrap().0.clone();
    let mut gone = Vec::new();
    while !rules.is_empty() && (rules.len() > 6 || random(3) == 0) {
        gone.push(rules.remove(random(rules.len())));
    }
    let version = random(2);
    let mut come = Vec::new();
    for _ in 0..random(4) {
        let mut network = || net(NETWORKS[version][random(NETWORKS[version].len())]);
        let (local, remote) = (network(), network());
        let verdicts = [Verdict::Protect, Verdict::Protect, Verdict::Discard, Verdict::Bypass];
        let verdict = verdicts[random(4)];
        let port = [None, None, Some(PORTS[0]), Some(PORTS[1])][random(4)];
        let mut ways = [true; 3];
        if random(2) == 0 {
            ways = [random(3) > 0, random(3) == 0, random(3) > 0];
        }
        let rule = Rule { local, remote, port, verdict, ways };
        rules.insert(random(rules.len() + 1), rule);
        come.push(rule);
    }
    let shown = |rules: &[Rule]| rules.iter().flat_map(Rule::shown).collect::<Vec<_>>();
    let mut protection = protection;
    let mut must_forget = false;
    if random(6) == 0 {
        drop(protection);
        protection = raise(world);
        *answering.database.lock().unwrap() = Database(rules.clone());
        must_forget |= protection.change(&shown(&rules), &[]).unwrap().answers;
        protection.settle().unwrap();
    } else {
        if random(3) == 0 {
            // They are refused at first: nobody ever knows them.
            let _ = protection.change(&shown(&come), &[]).unwrap();
            must_forget |= protection.take_back(&shown(&come)).unwrap().answers;
        }
        // Closed before anybody knows the policies, open when all do.
        must_forget |= protection.change(&shown(&come), &[]).unwrap().answers;
        *answering.database.lock().unwrap() = Database(rules);
        must_forget |= protection.change(&[], &shown(&gone)).unwrap().answers;
    }
    if must_forget {
        protection.forget_answers().unwrap();
    }
    protection
}

#[test]
fn what_becomes_of_packets_is_what_policies_say() {
    let Some(world) = World::new() else { return };
    world.take_any_packet();
    let lan_ears = world.lan.run(Ears::start);
    let mut tun = world.tun();
    world.gateway.run(|| {
        std::fs::write("/proc/sys/net/ipv4/conf/convoy0/rp_filter", "0").unwrap();
    });
    let answering = Answering::start(&world);
    let mut protection = raise(&world);
    let mut random = crate::world::random(11);
    let mut from_tun = BTreeSet::new();
    let (mut unheard, mut outside) = (Vec::new(), Vec::new());
    let mut fates = [0; 3];
    for round in 0..80 {
        // Nobody waited for what was to be discarded, and later policies may pass it.
        let answered = || answering.answered.lock().unwrap().questions();
        world.settle(&config(&world).questions, answered);
        protection = change(&world, protection, &answering, &mut random);
        let database = answering.database.lock().unwrap().clone();
        let version = round % 2;
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
                let fate = database.fate(door, flow);
                let what =
                    format!("round {round}, {door:?}: {flow:?} is to {fate:?}, {database:#?}");
                fates[fate as usize] += 1;
                if fate == Verdict::Bypass {
                    let ears = if is_to_lan { &lan_ears } else { &world.listener };
                    ears.await_tag(&tag, &what);
                } else {
                    unheard.push((is_to_lan, tag.clone(), what.clone()));
                }
                match fate {
                    Verdict::Protect => {
                        let begun = Instant::now();
                        while !from_tun.contains(&tag) {
                            let patience = Duration::from_secs(20);
                            assert!(begun.elapsed() < patience, "not in the TUN: {what}");
                            drain(&mut tun, &mut from_tun);
                        }
                    }
                    Verdict::Bypass => outside.push((tag, what)),
                    // Behind the interface the same policies are asked.
                    Verdict::Discard => {}
                }
            }
        }
    }
    thread::sleep(Duration::from_millis(200));
    drain(&mut tun, &mut from_tun);
    for (is_to_lan, tag, what) in &unheard {
        let ears = if *is_to_lan { &lan_ears } else { &world.listener };
        assert_eq!(ears.count(tag), 0, "passes in clear: {what}");
    }
    for (tag, what) in &outside {
        assert!(!from_tun.contains(tag), "goes into the TUN: {what}");
    }
    let answered = *answering.answered.lock().unwrap();
    let few = [answered.bypassed, answered.protected, answered.discarded];
    assert!(few.iter().chain(&fates).all(|count| *count > 100), "{few:?} {fates:?}");
}
