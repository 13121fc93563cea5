//! Packets of every kind fare as policies say: of protocols and ports, in fragments, for groups and
//! links, behind NAT and bridges, while policies change and who answers is killed.
//!
//! The policies are looked up one after another here, as RFC 4301 says it; the kernel is asked by the code under test.

mod errors;
mod kills;
mod nat;
mod packets;
mod random;
mod spd;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use convoy_leak_protection::Verdict;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;

use crate::world::{Door, SIGN, Tun, World, send_raw};
use packets::{Ears, Heard, Selectors, Shows, UNKNOWN};
use random::{Random, SIDES, Soak};
use spd::{Guard, Mode};

/// Time for which an answer is certainly remembered (the kernel forgets flows without replies after 30 s).
const REMEMBERED: Duration = Duration::from_secs(10);

/// Way in which a packet is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Whole,
    Fragments,
    /// A datagram longer than the MTU, from a socket.
    Long,
    /// For a group, a broadcast or a link, out by the wire.
    OfLink,
}

/// A packet that was sent.
#[derive(Debug, Clone, Copy)]
struct Sent {
    kind: Kind,
    door: Door,
    it: Selectors,
}

fn is_in_lan(address: IpAddr) -> bool {
    SIDES.iter().any(|side| side.lan.iter().any(|lan| lan.parse() == Ok(address)))
}

/// A world with ears on both sides, and all that was seen.
struct Scene<'a> {
    world: &'a World,
    lan: Ears,
    wire: Ears,
    gateway: Ears,
    tun: Tun,
    tunnelled: Heard,
    mode: Mode,
    datagrams: u16,
    /// Packets sent once more: a busy machine drops some between namespaces.
    resent: u32,
    /// Tags that are never to be seen in clear, and those that are never to be seen in the TUN interface.
    unheard: Vec<(Vec<u8>, String)>,
    outside: Vec<(Vec<u8>, String)>,
}

impl<'a> Scene<'a> {
    fn new(world: &'a World, mode: Mode) -> Self {
        let mut one = CpuSet::new();
        one.set(nix::sched::sched_getcpu().unwrap()).unwrap();
        sched_setaffinity(Pid::from_raw(0), &one).unwrap();
        world.take_any_packet();
        let [lan, wire, gateway] =
            [&world.lan, &world.wire, &world.gateway].map(|space| space.run(Ears::start));
        let tun = world.tun();
        world.gateway.run(|| {
            std::fs::write("/proc/sys/net/ipv4/conf/convoy0/rp_filter", "0").unwrap();
        });
        Self {
            world,
            lan,
            wire,
            gateway,
            tun,
            tunnelled: Heard::default(),
            mode,
            datagrams: 0,
            resent: 0,
            unheard: Vec::new(),
            outside: Vec::new(),
        }
    }

    /// Sends a packet; how many times its tag is heard if all of it gets through.
    fn send(&mut self, sent: &Sent, tag: &[u8]) -> u64 {
        let Sent { kind, door, it } = sent;
        match kind {
            Kind::Whole => self.world.send(*door, &mut self.tun, &packets::whole(it, tag), it.to),
            Kind::Fragments => {
                self.datagrams += 1;
                let mut fragments = packets::fragments(it, tag, self.datagrams);
                // In any order.
                fragments.rotate_left(usize::from(self.datagrams) % 3);
                for bytes in &fragments {
                    self.world.send(*door, &mut self.tun, bytes, it.to);
                }
                return 3;
            }
            Kind::Long => {
                let space = if *door == Door::Lan { &self.world.lan } else { &self.world.gateway };
                let from = SocketAddr::new(it.from, it.ports[0]);
                let socket = space.run(|| crate::world::bound(from));
                let datagram = [SIGN, tag].concat().repeat(120);
                // What is dropped its sender may be told.
                let _ = socket.send_to(&datagram, (it.to, it.ports[1]));
                // Some lie across the ends of fragments.
                return 110;
            }
            Kind::OfLink => {
                let socket =
                    self.world.gateway.run(|| crate::world::bound(SocketAddr::new(it.from, 0)));
                setsockopt(&socket, sockopt::BindToDevice, &"wire0".into()).unwrap();
                setsockopt(&socket, sockopt::Broadcast, &true).unwrap();
                let _ = socket.send_to(&[SIGN, tag].concat(), (it.to, it.ports[1]));
            }
        }
        1
    }

    /// Sends a packet and waits for what is to become of it.
    fn follow(&mut self, sent: &Sent, fate: Verdict, why: &dyn Fn() -> String) {
        self.follow_to(sent, sent.it.to, fate, why);
    }

    /// The same for one that gets another destination.
    fn follow_to(&mut self, sent: &Sent, to: IpAddr, fate: Verdict, why: &dyn Fn() -> String) {
        let tag = self.world.listener.tag();
        let times = self.send(sent, &tag);
        let what = || format!("{sent:?} is to {fate:?}, {}", why());
        match fate {
            Verdict::Bypass => {
                let (heard, other) = match is_in_lan(to) {
                    true => (&self.lan, &self.wire),
                    false => (&self.wire, &self.lan),
                };
                if sent.kind == Kind::Whole && !heard.hears(&tag, Duration::from_secs(3)) {
                    self.resent += 1;
                    assert!(self.resent <= 2, "too many do not get through: {}", what());
                    self.world.send(
                        sent.door,
                        &mut self.tun,
                        &packets::whole(&sent.it, &tag),
                        sent.it.to,
                    );
                }
                heard.wait(&tag, Shows::Itself, times, what);
                assert_eq!(other.count(&tag, Shows::Itself), 0, "elsewhere: {}", what());
                self.outside.push((tag, what()));
            }
            // Who is bound to a link reaches no other.
            Verdict::Protect if sent.kind == Kind::OfLink => self.unheard.push((tag, what())),
            Verdict::Protect => {
                self.await_in_tun(&tag, times, what);
                self.unheard.push((tag, what()));
            }
            Verdict::Discard => {
                self.unheard.push((tag.clone(), what()));
                // Behind the interface the same policies are asked, so daemons' whole prefixes lead there.
                if self.mode == Mode::Site {
                    self.outside.push((tag, what()));
                }
            }
        }
    }

    fn await_in_tun(&mut self, tag: &[u8], times: u64, what: impl Fn() -> String) {
        let begun = Instant::now();
        while self.tunnelled.count(tag, Shows::Itself) < times {
            assert!(begun.elapsed() < Duration::from_secs(20), "not in the TUN: {}", what());
            self.tunnelled.drain(&mut self.tun);
        }
    }

    /// The same while nobody answers: what is not to be seen in clear is not.
    fn hide(&mut self, sent: &Sent, fate: Verdict, why: &dyn Fn() -> String) {
        let tag = self.world.listener.tag();
        self.send(sent, &tag);
        let what = format!("{sent:?} is to {fate:?} and nobody answers, {}", why());
        match fate {
            Verdict::Bypass => self.outside.push((tag, what)),
            _ => self.unheard.push((tag, what)),
        }
    }

    /// Waits until all that was sent has been decided about.
    fn settle(&self, guard: &Guard<'_>) {
        // What is sent later comes later: all runs on one processor.
        for (space, from, to) in [
            (&self.world.lan, "10.1.0.2", "10.1.0.1"),
            (&self.world.wire, "192.0.2.2", "192.0.2.1"),
        ] {
            let [from, to] = [from, to].map(|text| text.parse().unwrap());
            let tag = self.world.listener.tag();
            let it = Selectors { from, to, protocol: UNKNOWN, ports: [0; 2] };
            space.run(|| send_raw(&packets::whole(&it, &tag), to, 0));
            self.gateway.wait(&tag, Shows::Itself, 1, || format!("{from} to {to}"));
        }
        guard.settle();
    }

    fn finish(mut self) {
        std::thread::sleep(Duration::from_millis(300));
        self.tunnelled.drain(&mut self.tun);
        for (tag, what) in &self.unheard {
            let counts = [&self.lan, &self.wire].map(|ears| ears.count(tag, Shows::Itself));
            assert_eq!(counts, [0; 2], "passes in clear: {what}");
        }
        for (tag, what) in &self.outside {
            assert_eq!(self.tunnelled.count(tag, Shows::Itself), 0, "goes into the TUN: {what}");
        }
    }
}

/// The LAN behind a port of a bridge, which has the gateway's addresses.
fn behind_a_bridge(world: &World) {
    let ip = |words: &str| drop(world.gateway.ip(words));
    ip("link add br0 type bridge");
    ip("link set br0 up");
    for address in ["10.1.0.1/24", "2001:db8:0:1::1/64"] {
        ip(&format!("address del {address} dev lan0"));
        let nodad = if address.contains(':') { " nodad" } else { "" };
        ip(&format!("address add {address} dev br0{nodad}"));
    }
    ip("link set lan0 master br0");
    world.gateway.run(|| {
        std::fs::write("/proc/sys/net/ipv4/conf/br0/rp_filter", "0").unwrap();
        std::fs::write("/proc/sys/net/ipv4/conf/br0/send_redirects", "0").unwrap();
    });
    world.lan.ip("neigh flush all");
    // The bridge carries nothing until the kernel has noticed its port, and neighbours are new.
    world.warm_up();
}

fn fates_are_those_of_policies(mode: Mode, is_bridged: bool, seed: u64) {
    let Some(world) = World::new() else { return };
    let mut random = Random::new(seed);
    let mut scene = Scene::new(&world, mode);
    if is_bridged {
        behind_a_bridge(&world);
    }
    let mut guard = Guard::new(&world, mode);
    let mut counts = BTreeMap::<_, u64>::new();
    let mut decided = BTreeMap::new();
    let mut is_dark = false;
    let mut soak = Soak::new(format!("packets, {mode:?}, seed {seed}"));
    let mut sent_so_far = 0;
    while sent_so_far < 1800 || soak.goes_on(sent_so_far) {
        let [changes, forgets] = [12, 40].map(|many| random.one_in(many));
        let turns = random.one_in(if is_dark { 10 } else { 60 });
        if changes || forgets || turns {
            scene.settle(&guard);
        }
        if changes {
            random.change(&mut guard);
            decided.clear();
        }
        if forgets {
            guard.forget([1, 1, 127, 128][random.below(4)]);
            decided.clear();
        }
        if turns {
            is_dark = !is_dark;
            guard.answers(!is_dark);
        }
        let sent = random.packet();
        let spd = guard.spd();
        let fate = spd.fate(sent.door, &sent.it);
        let why = || format!("seed {seed}, packet {sent_so_far}, {spd:#?}");
        // What comes out of tunnels, and what the kernel cannot tell apart, is asked about each time.
        let is_kept = sent.door != Door::Tun && sent.it.protocol != UNKNOWN;
        let at = decided.get(&(sent.door as usize, sent.it)).copied();
        let is_decided = at.is_some_and(|at: Instant| at.elapsed() < REMEMBERED);
        if !is_dark || is_kept && is_decided || sent.door == Door::Gateway {
            scene.follow(&sent, fate, &why);
            *counts.entry((sent.kind as usize, fate)).or_default() += 1;
            if !is_decided && sent.kind != Kind::OfLink {
                decided.insert((sent.door as usize, sent.it), Instant::now());
            }
        } else {
            scene.hide(&sent, fate, &why);
        }
        sent_so_far += 1;
    }
    scene.finish();
    let few = counts.values().min();
    assert!(counts.len() == 12 && few >= Some(&5), "{counts:?}");
}

#[test]
fn packets_of_every_kind_are_what_the_policies_of_a_site_say() {
    fates_are_those_of_policies(Mode::Site, false, random::seed(21));
}

#[test]
fn packets_of_every_kind_are_what_the_policies_of_daemons_say() {
    fates_are_those_of_policies(Mode::Daemons, false, random::seed(22));
}

#[test]
fn packets_of_a_lan_behind_a_bridge_are_what_policies_say() {
    fates_are_those_of_policies(Mode::Site, true, random::seed(23));
    fates_are_those_of_policies(Mode::Daemons, true, random::seed(24));
}
