//! Random policies and packets. `CONVOY_SOAK_SECONDS` has each test go on for so long, and `CONVOY_SEED` begins
//! otherwise.

use std::io::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use convoy_leak_protection::Verdict;
use ipnet::IpNet;

use super::packets::{ICMP, ICMPV6, Selectors, TCP, UDP, UNKNOWN};
use super::spd::{Guard, Mode, Rule};
use super::{Kind, Sent};
use crate::world::Door;

/// Ports that policies tell apart.
pub(crate) const PORTS: [u16; 2] = [7, 8];

/// Hosts on the LAN, hosts behind the wire, and networks that hold some of them.
pub(crate) struct Side {
    pub(crate) lan: [&'static str; 2],
    pub(crate) wire: [&'static str; 3],
    /// The gateway's own address in the LAN.
    own: &'static str,
    /// Addresses that are not routed.
    of_link: &'static [&'static str],
    local: &'static [&'static str],
    remote: &'static [&'static str],
    any: &'static [&'static str],
}

pub(crate) const SIDES: [Side; 2] = [
    Side {
        lan: ["10.1.0.2", "10.1.0.3"],
        wire: ["10.2.0.2", "10.2.0.3", "10.3.0.2"],
        own: "10.1.0.1",
        of_link: &["224.0.0.251", "239.1.1.1", "255.255.255.255", "192.0.2.255", "169.254.7.7"],
        local: &["10.1.0.0/16", "10.1.0.0/24", "10.1.0.0/31", "10.1.0.2/32"],
        remote: &[
            "10.2.0.0/15",
            "10.2.0.0/16",
            "10.2.0.3/32",
            "10.3.0.2/32",
            "224.0.0.0/24",
            "239.0.0.0/8",
            "255.255.255.255/32",
            "192.0.2.255/32",
            "169.254.0.0/16",
        ],
        any: &["0.0.0.0/0", "10.0.0.0/8", "224.0.0.0/4", "128.0.0.0/1"],
    },
    Side {
        lan: ["2001:db8:0:1::2", "2001:db8:0:1::3"],
        wire: ["2001:db8:2::2", "2001:db8:2::3", "2001:db8:3::2"],
        own: "2001:db8:0:1::1",
        of_link: &["ff02::fb", "ff0e::1", "ff05::2"],
        local: &["2001:db8:0:1::/64", "2001:db8::/47", "2001:db8:0:1::2/128", "2001:db8:0:1::/127"],
        remote: &[
            "2001:db8:2::/47",
            "2001:db8:2::/48",
            "2001:db8:2::3/128",
            "2001:db8:3::2/128",
            "ff02::/16",
            "ff0e::/16",
            "ff05::2/128",
        ],
        any: &["::/0", "2001:db8::/32", "ff00::/8"],
    },
];

/// Number that tests begin with.
pub(crate) fn seed(otherwise: u64) -> u64 {
    let chosen = std::env::var("CONVOY_SEED").ok().map(|text| text.parse::<u64>().unwrap());
    chosen.map_or(otherwise, |seed| seed.wrapping_add(otherwise))
}

/// Number of times that something is done: some in a gate, many where `CONVOY_LONG` is set.
pub(crate) fn times<T>(some: T, many: T) -> T {
    if std::env::var_os("CONVOY_LONG").is_some() { many } else { some }
}

/// Time for which a test goes on, if it is asked to.
pub(crate) struct Soak {
    name: String,
    until: Option<Instant>,
    told: Instant,
}

impl Soak {
    pub(crate) fn new(name: String) -> Self {
        let chosen = std::env::var("CONVOY_SOAK_SECONDS").ok();
        let seconds = chosen.map(|text| text.parse().unwrap());
        let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        Self { name, until, told: Instant::now() }
    }

    /// True if the time is not over; says now and then how far it is.
    pub(crate) fn goes_on(&mut self, done: usize) -> bool {
        let Some(until) = self.until else { return false };
        let now = Instant::now();
        if self.told + Duration::from_secs(60) < now {
            self.told = now;
            let left = until.saturating_duration_since(now).as_secs();
            let _ = writeln!(std::io::stderr(), "{}: {done}, {left} s to go", self.name);
        }
        now < until
    }
}

pub(crate) struct Random(Box<dyn FnMut(usize) -> usize>);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Box::new(crate::world::random(seed)))
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.0)(limit)
    }

    pub(crate) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub(crate) fn of<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.below(texts.len())]
    }

    /// A policy.
    pub(crate) fn rule(&mut self, mode: Mode) -> Rule {
        let side = &SIDES[self.below(2)];
        let mut network = |some: &[&str]| -> IpNet {
            // A site's networks do not overlap here: what is near within far has tests of its own.
            let is_wide = mode == Mode::Daemons && self.one_in(3);
            self.of(if is_wide { side.any } else { some }).parse().unwrap()
        };
        let (local, remote) = (network(side.local), network(side.remote));
        let icmp = if local.addr().is_ipv4() { ICMP } else { ICMPV6 };
        let protocols =
            [None, None, Some(UDP), Some(UDP), Some(UDP), Some(TCP), Some(icmp), Some(UNKNOWN)];
        let protocol = protocols[self.below(protocols.len())];
        let has_ports = protocol == Some(UDP) || protocol == Some(TCP);
        let ports = [None, Some(PORTS[0]), Some(PORTS[1])];
        let port = ports[self.below(3)].filter(|_| has_ports);
        let verdicts = [Verdict::Protect, Verdict::Protect, Verdict::Discard, Verdict::Bypass];
        let verdict = verdicts[self.below(4)];
        // What leaves protected comes in protected.
        let ways = match (mode, verdict) {
            (Mode::Daemons, Verdict::Bypass) => {
                [[true, true], [true, false], [false, true]][self.below(3)]
            }
            _ => [true, true],
        };
        Rule { local, remote, protocol, port, verdict, ways }
    }

    /// Some policies come and others go, and now and then the gateway is killed and begins anew.
    pub(crate) fn change(&mut self, guard: &mut Guard<'_>) {
        let spd = guard.spd();
        let mut rules = spd.rules;
        let (mut come, mut gone) = (Vec::new(), Vec::new());
        while !rules.is_empty() && (rules.len() > 8 || self.one_in(3)) {
            gone.push(rules.remove(self.below(rules.len())));
        }
        for _ in 0..self.below(5) {
            let rule = self.rule(spd.mode);
            rules.insert(self.below(rules.len() + 1), rule);
            come.push(rule);
        }
        match self.one_in(6) {
            true => guard.restart(rules),
            false => guard.change(rules, &come, &gone),
        }
    }

    /// A packet.
    pub(crate) fn packet(&mut self) -> Sent {
        let side = &SIDES[self.below(2)];
        let is_v4 = side.own.contains('.');
        let kinds = [Kind::Whole, Kind::Whole, Kind::Fragments, Kind::Long, Kind::OfLink];
        let kind = kinds[self.below(5)];
        let door = match kind {
            Kind::Whole | Kind::Fragments => Door::ALL[self.below(5)],
            Kind::Long => [Door::Lan, Door::Host][self.below(2)],
            Kind::OfLink => Door::Host,
        };
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let hosts = [&side.lan[..], &side.wire].concat();
        let (from, to) = match (kind, door) {
            (Kind::OfLink, _) => (side.own, self.of(side.of_link)),
            (Kind::Long, Door::Lan) => (self.of(&side.lan), self.of(&side.wire)),
            (Kind::Long, _) => (side.own, self.of(&side.wire)),
            _ => loop {
                let (from, to) = (self.of(&hosts), self.of(&hosts));
                let is_to_lan = side.lan.contains(&to);
                // Each side keeps to itself what is for itself.
                let is_kept = door == Door::Lan && is_to_lan || door == Door::Wire && !is_to_lan;
                if !is_kept && from != to {
                    break (from, to);
                }
            },
        };
        let icmp = if is_v4 { ICMP } else { ICMPV6 };
        let protocol = match kind {
            Kind::Whole => [UDP, UDP, TCP, icmp, UNKNOWN][self.below(5)],
            Kind::Fragments => [UDP, UDP, icmp, UNKNOWN][self.below(4)],
            Kind::Long | Kind::OfLink => UDP,
        };
        // The same flow does not come by two doors, and comes again.
        let number = u16::try_from(1000 + door as usize * 8 + self.below(2)).unwrap();
        let from_port = if kind == Kind::Long { number + 4 } else { number };
        let ports = match protocol {
            UDP | TCP => [from_port, PORTS[self.below(2)]],
            _ => [number; 2],
        };
        Sent { kind, door, it: Selectors { from: address(from), to: address(to), protocol, ports } }
    }
}
