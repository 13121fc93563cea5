//! Events that befall the gateway and its host.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use convoy_lab::{Family, LAN_LINK, WIRE_LINK};

use super::say;
use super::world::{FAMILIES, Kind, World};
use crate::common::convoy;

/// Tables of flows up to this size are filled.
const MOST_FLOWS: usize = 300_000;
/// Flows that are made in a row.
const AT_ONCE: usize = 1000;
/// Most past events that are told.
const TOLD: usize = 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    /// The link to the wire goes down and up.
    Flap,
    /// Somebody empties the main routing table, and puts the ordinary routes back.
    FlushRoutes,
    /// A more specific route, and a rule ahead of all others, lead past the interface.
    LeadPast,
    /// Somebody removes the rules and the routes by which answers lead.
    RemoveRules,
    FlushRuleset,
    FlushFlows,
    /// Rules of others write all bits of marks, of packets and of flows.
    RewriteMarks,
    /// The policies that pass a port go, and come back.
    Reload,
}

const ALL: [Act; 8] = [
    Act::Flap,
    Act::FlushRoutes,
    Act::LeadPast,
    Act::RemoveRules,
    Act::FlushRuleset,
    Act::FlushFlows,
    Act::RewriteMarks,
    Act::Reload,
];

pub(crate) struct Acts {
    state: u64,
    latest: VecDeque<String>,
    counts: BTreeMap<Act, u64>,
    skipped: BTreeSet<String>,
}

impl Acts {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: seed,
            latest: VecDeque::new(),
            counts: BTreeMap::new(),
            skipped: BTreeSet::new(),
        }
    }

    /// A number below a limit (a linear congruential generator of Knuth's).
    fn below(&mut self, limit: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % limit
    }

    fn note(&mut self, what: String) {
        if self.latest.len() == TOLD {
            self.latest.pop_front();
        }
        self.latest.push_back(what);
    }

    pub(crate) fn latest(&self) -> String {
        self.latest.iter().map(|what| format!("{what}\n")).collect()
    }

    pub(crate) fn counts(&self) -> String {
        format!("{:?}", self.counts)
    }

    fn pause(&mut self, most: u64) {
        thread::sleep(Duration::from_millis(self.below(most)));
    }

    /// The gateway is killed and starts again; something happens before, and sometimes while there is none.
    pub(crate) fn kill_and_more(&mut self, world: &mut World) {
        let act = ALL[self.below(ALL.len() as u64) as usize];
        self.play(world, act, true);
        self.pause(40);
        self.note("kill".into());
        world.kill();
        self.pause(60);
        if self.below(2) == 0 {
            let act = ALL[self.below(ALL.len() as u64) as usize];
            self.play(world, act, false);
        }
        let begun = Instant::now();
        world.start_gateway(0);
        self.note(format!("start, after {} ms", begun.elapsed().as_millis()));
        self.pause(60);
    }

    fn play(&mut self, world: &World, act: Act, is_alive: bool) {
        // Nobody owns the table of a gateway that has gone, so root may take it away; and nobody reloads.
        let needs_life = matches!(act, Act::FlushRuleset | Act::Reload);
        if needs_life && !is_alive || act == Act::Reload && world.kind == Kind::Daemons {
            return;
        }
        self.note(format!("{act:?}, {is_alive}"));
        *self.counts.entry(act).or_default() += 1;
        match act {
            Act::Flap => {
                let _ = world.command(&format!("ip link set {WIRE_LINK} down"));
                self.pause(30);
                let _ = world.command(&format!("ip link set {WIRE_LINK} up"));
                put_back(world);
            }
            Act::FlushRoutes => {
                for family in FAMILIES {
                    world.ip(family, "route flush table main");
                }
                put_back(world);
            }
            Act::LeadPast => self.lead_past(world),
            Act::RemoveRules => remove_rules(world),
            // The kernel may refuse it, as the table has an owner.
            Act::FlushRuleset => self.try_to(world, "nft flush ruleset", "Operation not permitted"),
            Act::FlushFlows => self.empty_the_table_of_flows(world),
            Act::RewriteMarks => self.rewrite_marks(world),
            Act::Reload => self.reload(world),
        }
    }

    /// Runs a program that may be missing; says so once.
    fn try_to(&mut self, world: &World, words: &str, may_say: &str) {
        if let Err(error) = world.command(words) {
            let is_expected = !may_say.is_empty() && error.contains(may_say);
            if !is_expected && self.skipped.insert(words.to_owned()) {
                say(&format!("SKIPPED: {words}: {error}"));
            }
        }
    }

    fn lead_past(&mut self, world: &World) {
        let ways = FAMILIES.map(|family| {
            (family, world.lab.b.wire_address(family), world.lab.b.host_address(family))
        });
        for (family, via, host) in ways {
            world.ip(
                family,
                &format!(
                    "route add {host} via {via}\nroute add default via {via} table 77\n\
                     rule add priority 5 lookup 77"
                ),
            );
        }
        self.pause(100);
        for (family, via, host) in ways {
            world.ip(
                family,
                &format!("rule del priority 5\nroute del {host} via {via}\nroute flush table 77"),
            );
        }
    }

    /// Marks that others may write without opening anything: neither the exemption of the gateway's own packets nor an answer
    /// that passes in clear, and no epoch in flows. Zero is one of them.
    fn mark(&mut self) -> [u32; 2] {
        if self.below(3) == 0 {
            return [0; 2];
        }
        loop {
            let [packet, flow] = [self.below(1 << 31), self.below(1 << 31)].map(|half| half as u32);
            let [packet, flow] = [packet << 1 | packet >> 30, flow << 1];
            if packet >> 24 != 0xc5 && packet >> 20 & 7 != 1 && flow & 0x8_0000 == 0 {
                return [packet, flow];
            }
        }
    }

    fn rewrite_marks(&mut self, world: &World) {
        let hooks = [
            ("pre", "filter hook prerouting"),
            ("out", "route hook output"),
            ("fwd", "filter hook forward"),
            ("in", "filter hook input"),
            ("post", "filter hook postrouting"),
        ];
        let mut rules = String::from("table inet foreign {\n");
        for (name, hook) in hooks {
            let priorities = [-450, -200, -85, -75, 0, 90, 200];
            let priority = priorities[self.below(7) as usize];
            let [packet, flow] = self.mark();
            rules += &format!("chain at-{name} {{ type {hook} priority {priority}; ");
            if self.below(4) > 0 {
                rules += &format!("meta mark set {packet:#x}; ");
            }
            // Before conntrack there are no flows.
            if priority > -200 && self.below(2) == 0 {
                rules += &format!("ct mark set {flow:#x}; ");
            }
            rules += "}\n";
        }
        rules += "}\n";
        let file = world.folder.path().join("foreign.nft");
        fs::write(&file, &rules).unwrap();
        self.note(rules);
        self.try_to(world, &format!("nft -f {}", file.display()), "");
        self.pause(150);
        let _ = world.command("nft delete table inet foreign");
    }

    fn reload(&mut self, world: &World) {
        let path = &world.sites[0];
        let all = fs::read_to_string(path).unwrap();
        let (before, _) = all.split_once("[[policy]]\nname = \"free").unwrap();
        fs::write(path, before).unwrap();
        let _ = convoy(&["reload", path.to_str().unwrap()]);
        self.pause(60);
        fs::write(path, &all).unwrap();
        let output = convoy(&["reload", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", crate::common::text(&output.stderr));
    }

    pub(crate) fn empty_the_table_of_flows(&mut self, world: &World) {
        self.try_to(world, "conntrack -F", "");
    }

    /// More flows than the kernel remembers, by datagrams to whom nobody protects.
    pub(crate) fn fill_the_table_of_flows(&mut self, world: &World) {
        let read = |name: &str| -> Option<usize> {
            let path = format!("/proc/sys/net/netfilter/{name}");
            let text = world.lab.a.gateway.run(|| fs::read_to_string(path).ok()).unwrap()?;
            text.trim().parse().ok()
        };
        // A namespace other than the first may read the limit, and not set it.
        let Some(limit) = read("nf_conntrack_max") else {
            return say("SKIPPED: a full table of flows: nf_conntrack_max cannot be read here");
        };
        if limit > MOST_FLOWS {
            return say(&format!("SKIPPED: a full table of flows: {limit} are too many to make"));
        }
        let to = world.lab.b.wire_address(Family::V4);
        let from = world.lab.a.host_address(Family::V4);
        let mut most = 0;
        let mut socket = None;
        for number in 0..limit / AT_ONCE + 20 {
            let first = u16::try_from(number % 50 * AT_ONCE + 1).unwrap();
            let send = || {
                if first == 1 {
                    socket = Some(UdpSocket::bind((from, 0)).unwrap());
                }
                let socket = socket.as_ref().unwrap();
                for port in first..first + AT_ONCE as u16 {
                    let _ = socket.send_to(b"", (to, port));
                }
            };
            world.lab.a.host.run(send).unwrap();
            most = most.max(read("nf_conntrack_count").unwrap_or(0));
            // Beyond that the kernel looks for flows to give up.
            if most + 10 >= limit {
                break;
            }
        }
        self.note(format!("{most} of {limit} flows"));
    }
}

/// The rules and routes by which answers lead.
fn remove_rules(world: &World) {
    let tables = [4510, 4511].map(|table| format!("route flush table {table}\n")).concat();
    let rules: String =
        (210..222).map(|priority| format!("rule del priority {priority}\n")).collect();
    for family in FAMILIES {
        world.ip(family, &(tables.clone() + &rules));
    }
}

/// The ordinary addresses and routes of a gateway.
fn put_back(world: &World) {
    let site = &world.lab.a;
    for family in FAMILIES {
        let wire = site.wire_address(family);
        let (length, nodad) = if family == Family::V4 { (24, "") } else { (64, " nodad") };
        let (near, wires) = (site.network(family), on_wire(family));
        world.ip(
            family,
            &format!(
                "address add {wire}/{length} dev {WIRE_LINK}{nodad}\n\
                 route replace {near} dev {LAN_LINK}\nroute replace {wires} dev {WIRE_LINK}\n\
                 route replace default via {} dev {WIRE_LINK}",
                world.lab.b.wire_address(family)
            ),
        );
    }
}

fn on_wire(family: Family) -> convoy_lab::IpNet {
    let text = if family == Family::V4 { "198.51.100.0/24" } else { "2001:db8:f::/64" };
    text.parse().unwrap()
}
