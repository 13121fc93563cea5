//! Kills and changes at random moments, while packets are sent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use convoy_leak_protection::Verdict;

use super::Scene;
use super::packets::{self, Selectors, Shows, UDP};
use super::random::{self, PORTS, Random, SIDES, Soak};
use super::spd::{Guard, Mode, Rule};
use crate::world::{Door, World, send_raw};

/// Policies that stay: of two ports between the LAN and a network one is protected, the other one passes.
fn base() -> Vec<Rule> {
    let networks = [("10.1.0.0/24", "10.2.0.0/16"), ("2001:db8:0:1::/64", "2001:db8:2::/48")];
    let verdicts = [Verdict::Protect, Verdict::Bypass];
    let pairs = networks.into_iter().flat_map(|pair| {
        PORTS.into_iter().zip(verdicts).map(move |(port, verdict)| (pair, port, verdict))
    });
    let rule = |((local, remote), port, verdict): ((&str, &str), _, _)| Rule {
        local: local.parse().unwrap(),
        remote: remote.parse().unwrap(),
        protocol: Some(UDP),
        port: Some(port),
        verdict,
        ways: [true; 2],
    };
    pairs.map(rule).collect()
}

/// Something that is sent again and again.
struct Flow {
    door: Door,
    to: std::net::IpAddr,
    tag: Vec<u8>,
    packets: Vec<Vec<u8>>,
    fate: Verdict,
}

fn flows(world: &World) -> Vec<Flow> {
    let mut flows = Vec::new();
    for (number, door) in [Door::Lan, Door::Host, Door::Lan, Door::Host].into_iter().enumerate() {
        for side in &SIDES {
            for (port, fate) in PORTS.into_iter().zip([Verdict::Protect, Verdict::Bypass]) {
                let [from, to] =
                    [side.lan[number / 2], side.wire[number / 2]].map(|text| text.parse().unwrap());
                let ports = [3000 + u16::try_from(number).unwrap(), port];
                let it = Selectors { from, to, protocol: UDP, ports };
                let tag = world.listener.tag();
                let packets = match number < 2 {
                    true => vec![packets::whole(&it, &tag)],
                    // No two flows have the same number, by which fragments are put together.
                    false => packets::fragments(&it, &tag, u16::try_from(flows.len()).unwrap()),
                };
                flows.push(Flow { door, to, tag, packets, fate });
            }
        }
    }
    flows
}

/// One thing that happens to the gateway.
fn act(guard: &mut Guard<'_>, random: &mut Random) {
    let before = guard.spd().rules;
    let (base, behind) = before.split_at(base().len());
    match random.below(8) {
        // Who answers is killed, and comes back.
        0..=2 => {
            guard.answers(false);
            thread::sleep(Duration::from_millis(random.below(20) as u64));
            guard.answers(true);
        }
        3 => guard.restart(before.clone()),
        4 => {
            guard.answers(false);
            guard.restart(before.clone());
            guard.answers(true);
        }
        5 => guard.forget(1 + random.below(130)),
        _ => {
            let mode = guard.spd().mode;
            let come: Vec<_> = (0..random.below(4)).map(|_| random.rule(mode)).collect();
            let rules = [base, &come].concat();
            guard.change(rules, &come, behind);
        }
    }
    thread::sleep(Duration::from_millis(random.below(15) as u64));
}

fn nothing_protected_is_seen(mode: Mode, seed: u64) {
    let Some(world) = World::new() else { return };
    let mut scene = Scene::new(&world, mode);
    let mut random = Random::new(seed);
    let mut guard = Guard::new(&world, mode);
    guard.change(base(), &base(), &[]);
    let flows = flows(&world);
    let (ended, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut soak = Soak::new(format!("kills, {mode:?}, seed {seed}"));
    thread::scope(|scope| {
        for flow in &flows {
            let (world, ended, sent) = (&world, &ended, &sent);
            scope.spawn(move || {
                let space = if flow.door == Door::Lan { &world.lan } else { &world.gateway };
                space.run(|| {
                    while !ended.load(Ordering::Relaxed) {
                        flow.packets.iter().for_each(|bytes| send_raw(bytes, flow.to, 0));
                        sent.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(1));
                    }
                });
            });
        }
        // Panics must not leave the senders running.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut acts = 0;
            while acts < random::times(40, 150) || soak.goes_on(acts) {
                act(&mut guard, &mut random);
                scene.tunnelled.drain(&mut scene.tun);
                acts += 1;
            }
        }));
        // In the end all goes its way again.
        let settled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for flow in &flows {
                let before = scene.count(flow);
                let begun = Instant::now();
                while scene.count(flow) < before + 10 {
                    let is_late = begun.elapsed() > Duration::from_secs(20);
                    assert!(!is_late, "no longer {:?} after kills, seed {seed}", flow.fate);
                    scene.tunnelled.drain(&mut scene.tun);
                }
            }
        }));
        ended.store(true, Ordering::Relaxed);
        done.unwrap();
        settled.unwrap();
    });
    thread::sleep(Duration::from_millis(300));
    for flow in &flows {
        let seen = scene.wire.count(&flow.tag, Shows::Itself);
        let is_hidden = seen == 0;
        assert_eq!(
            is_hidden,
            flow.fate == Verdict::Protect,
            "seed {seed}, {:?} {seen} times",
            flow.packets
        );
    }
    assert!(sent.load(Ordering::Relaxed) > 2000);
}

impl Scene<'_> {
    fn count(&self, flow: &Flow) -> u64 {
        match flow.fate {
            Verdict::Bypass => self.wire.count(&flow.tag, Shows::Itself),
            _ => self.tunnelled.count(&flow.tag, Shows::Itself),
        }
    }
}

#[test]
fn nothing_protected_is_seen_by_policies_of_a_site() {
    nothing_protected_is_seen(Mode::Site, random::seed(51));
}

#[test]
fn nothing_protected_is_seen_by_policies_of_daemons() {
    nothing_protected_is_seen(Mode::Daemons, random::seed(52));
}
