//! Rules and flow tables of others on this host that disturb the marks and the flows that leak protection needs.

use std::{collections::BTreeSet, fmt};

use convoy_host::Family;
use convoy_netlink::{
    Rtnl,
    nft::{
        FIRST, LAST,
        ruleset::{ChainName, Effect, Ruleset},
    },
};
use netlink_packet_route::{
    AddressFamily,
    rule::{RuleAttribute, RuleMessage},
};

use crate::{
    chains::marking::MARKS,
    config::{Config, Lead},
    error::LeakProtectionError,
    routes::PROTOCOL,
    rules::of_family,
    tracked::is_others,
};

/// `NF_INET_PRE_ROUTING`, `NF_INET_LOCAL_IN`, `NF_INET_FORWARD`, `NF_INET_LOCAL_OUT`, `NF_INET_POST_ROUTING`.
const PRE_ROUTING: u32 = 0;
const LOCAL_IN: u32 = 1;
const FORWARD: u32 = 2;
const LOCAL_OUT: u32 = 3;
const POST_ROUTING: u32 = 4;
/// `NFPROTO_INET`, `NFPROTO_IPV4`, `NFPROTO_NETDEV`, `NFPROTO_BRIDGE`, `NFPROTO_IPV6`.
const INET: u8 = 1;
const IPV4: u8 = 2;
const NETDEV: u8 = 5;
const BRIDGE: u8 = 7;
const IPV6: u8 = 10;
/// `NF_NETDEV_EGRESS`.
const EGRESS: u32 = 1;
/// Something that others do to what leak protection needs. Its `Display` says what is wrong, where, and what would be
/// right.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Interference {
    /// A rule of the packet filter writes bits of packets' marks that leak protection uses.
    WritesMark {
        /// Chain that the rule is in.
        chain: ChainName,
        /// The bits.
        bits: u32,
        /// The key of the site file that they are of.
        key: &'static str,
    },
    /// One writes bits of flows' marks.
    WritesFlow {
        /// Chain that the rule is in.
        chain: ChainName,
        /// The bits.
        bits: u32,
    },
    /// An `ip rule` selects packets by bits that leak protection uses.
    SelectsMark {
        /// Its address family.
        family: Family,
        /// Its priority.
        priority: u32,
        /// The mark, and its mask.
        mark: (u32, u32),
        /// The bits.
        bits: u32,
        /// The key of the site file that they are of.
        key: &'static str,
    },
    /// Flows can be offloaded, and pass all rules by.
    FlowTable {
        /// The flow table.
        table: ChainName,
    },
    /// Packets are kept from being tracked as flows.
    Untracked {
        /// Chain that the rule is in.
        chain: ChainName,
    },
    /// A rule asks whether the kernel's own IPsec opened a packet, or is to protect it.
    AsksForIpsec {
        /// Chain that the rule is in.
        chain: ChainName,
        /// The TUN interface.
        tun: String,
    },
    /// Some rules may do any of that.
    NotUnderstood {
        /// Number of such rules.
        rules: usize,
    },
}

impl fmt::Display for Interference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = "choose unused bits in [marks] of the site file";
        match self {
            Self::WritesMark { chain, bits, key } => {
                let outcome = match *key {
                    "exempt" => {
                        "packets of other programs may leave in clear, and the gateway's own may be dropped"
                    }
                    _ => "packets are dropped, or routed otherwise than policies say",
                };
                write!(
                    f,
                    "a rule in {} writes bits {bits:#010x} of packets' marks, which are marks.{key} of Convoy: \
                     {outcome}; {other}",
                    Shown(chain)
                )
            }
            Self::WritesFlow { chain, bits } => write!(
                f,
                "a rule in {} writes bits {bits:#010x} of flows' marks, which are marks.flows of Convoy: the \
                 kernel requests verdicts again and again, or packets are routed otherwise than policies say; \
                 {other}",
                Shown(chain)
            ),
            Self::SelectsMark { family, priority, mark: (value, mask), bits, key } => {
                let family = if *family == Family::V4 { 4 } else { 6 };
                write!(
                    f,
                    "ip -{family} rule {priority} selects packets by fwmark {value:#x}/{mask:#x}, of which \
                     {bits:#010x} are marks.{key} of Convoy: it also selects packets that Convoy marked; \
                     {other}"
                )
            }
            Self::FlowTable { table } => write!(
                f,
                "{} offloads flows: those that were offloaded before a policy protects them leave in clear; take \
                 interfaces of protected networks out of it, or remove it",
                Shown(table)
            ),
            Self::Untracked { chain } => write!(
                f,
                "a rule in {} excludes packets from connection tracking (notrack): the kernel then requests a \
                 verdict for each packet, not for each flow; exclude the networks of policies from that rule",
                Shown(chain)
            ),
            Self::AsksForIpsec { chain, tun } => write!(
                f,
                "a rule in {} matches packets of the kernel's own IPsec (meta ipsec, rt ipsec, -m policy), and \
                 never those of Convoy's tunnels; add a rule with iifname \"{tun}\" (-i {tun}) for packets out \
                 of tunnels, and one with oifname \"{tun}\" (-o {tun}) for packets into tunnels",
                Shown(chain)
            ),
            Self::NotUnderstood { rules } => write!(
                f,
                "{rules} rules of the packet filter could not be parsed: look in `nft list ruleset` for those \
                 that write marks"
            ),
        }
    }
}

/// A chain as `nft` calls it.
struct Shown<'a>(&'a ChainName);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChainName { family, table, chain } = self.0;
        let family = match *family {
            INET => "inet",
            IPV4 => "ip",
            3 => "arp",
            NETDEV => "netdev",
            BRIDGE => "bridge",
            IPV6 => "ip6",
            _ => "some",
        };
        write!(f, "table {family} {table}, {chain}")
    }
}

/// Looks for what others do to what leak protection needs, in the calling thread's network namespace. `asks`: the kernel
/// asks about packets, or may soon.
///
/// # Errors
/// [`LeakProtectionError::Netlink`].
pub fn interferences(
    config: &Config,
    asks: bool,
) -> Result<Vec<Interference>, LeakProtectionError> {
    let used = Used::by(config, asks);
    let ruleset = Ruleset::read().map_err(LeakProtectionError::Netlink)?;
    let mut found = of_ruleset(&ruleset, &used, asks);
    let mut rtnl = Rtnl::open().map_err(|error| LeakProtectionError::Netlink(error.into()))?;
    for (family, number) in [(Family::V4, AddressFamily::Inet), (Family::V6, AddressFamily::Inet6)]
    {
        let rules = of_family(&mut rtnl, number).map_err(LeakProtectionError::Netlink)?;
        found.extend(rules.iter().filter_map(|rule| of_rule(rule, family, &used)));
    }
    Ok(found.into_iter().collect())
}

/// Bits that leak protection uses.
struct Used {
    exempt: u32,
    packets: u32,
    flows: u32,
    /// An `ip rule` leads packets with the mark of exempt sockets past the interface, also those that come in.
    leads_exempt: bool,
    /// Its own table.
    table: String,
    /// The TUN interface.
    tun: String,
}

impl Used {
    fn by(config: &Config, asks: bool) -> Self {
        let marks = config.questions.marks;
        let has_packets = asks || matches!(config.leads, Lead::ByMark);
        Self {
            exempt: config.mark.mask,
            packets: if has_packets { marks.of_packets() } else { 0 },
            flows: if asks { marks.of_flows() } else { 0 },
            leads_exempt: asks && matches!(config.leads, Lead::ByDestination),
            table: config.table(),
            tun: config.tun.to_string(),
        }
    }

    /// Bits of packets' marks that matter in a chain to which these places lead, by key: all if none is known.
    fn of_chain(
        &self,
        family: u8,
        places: Option<&BTreeSet<(u32, i32)>>,
    ) -> [(&'static str, u32); 2] {
        let Some(places) = places else {
            return [("exempt", self.exempt), ("packets", self.packets)];
        };
        let all = places.iter().map(|place| self.of_packets(family, place.0, place.1));
        all.fold([("exempt", 0), ("packets", 0)], |[(exempt, one), (packets, other)], now| {
            let [(_, of_exempt), (_, of_packets)] = now;
            [(exempt, one | of_exempt), (packets, other | of_packets)]
        })
    }

    /// Bits that matter at one place, with their keys.
    fn of_packets(&self, family: u8, hook: u32, priority: i32) -> [(&'static str, u32); 2] {
        let is_ip = matches!(family, INET | IPV4 | IPV6);
        let (exempts, decides) = match hook {
            // What comes in is marked anew behind the first ones.
            PRE_ROUTING if is_ip => (self.leads_exempt, priority >= MARKS),
            LOCAL_IN if is_ip => (false, priority < FIRST),
            // Only what this host sends is exempt.
            FORWARD if is_ip || family == BRIDGE => (false, true),
            LOCAL_OUT if is_ip => (true, priority >= MARKS),
            POST_ROUTING if is_ip => (priority <= LAST, priority <= LAST),
            // Ahead of IP; of interfaces' own hooks the second one lies behind it.
            _ => {
                let is_ingress = (family, hook) != (NETDEV, EGRESS) && family != BRIDGE;
                (self.leads_exempt && is_ingress, false)
            }
        };
        let used = |matters, bits| if matters { bits } else { 0 };
        [("exempt", used(exempts, self.exempt)), ("packets", used(decides, self.packets))]
    }
}

fn of_ruleset(ruleset: &Ruleset, used: &Used, asks: bool) -> BTreeSet<Interference> {
    let mut found = BTreeSet::new();
    let others = ruleset.effects.iter().filter(|(chain, _)| is_others(&chain.table, &used.table));
    let ways = ruleset.ways();
    for (chain, effects) in others {
        let own = used.of_chain(chain.family, ways.get(chain));
        for effect in effects {
            let chain = chain.clone();
            match *effect {
                Effect::WritesMark(bits) => {
                    for (key, own) in own {
                        let (chain, bits) = (chain.clone(), bits & own);
                        found.extend((bits != 0).then_some(Interference::WritesMark {
                            chain,
                            bits,
                            key,
                        }));
                    }
                }
                Effect::WritesFlow(bits) => {
                    let bits = bits & used.flows;
                    found.extend((bits != 0).then_some(Interference::WritesFlow { chain, bits }));
                }
                Effect::Untracks => {
                    found.extend(asks.then_some(Interference::Untracked { chain }));
                }
                Effect::AsksForIpsec => {
                    found.insert(Interference::AsksForIpsec { chain, tun: used.tun.clone() });
                }
            }
        }
    }
    let tables = ruleset.flow_tables.iter().cloned();
    found.extend(tables.map(|table| Interference::FlowTable { table }));
    let rules = ruleset.not_understood;
    found.extend((rules > 0).then_some(Interference::NotUnderstood { rules }));
    found
}

/// Interference by another's rule, if it selects packets by bits that leak protection uses. One that compares a whole mark,
/// as most do, with a small number leaves marked packets alone.
fn of_rule(rule: &RuleMessage, family: Family, used: &Used) -> Option<Interference> {
    let (mut priority, mut value, mut mask, mut is_ours) = (0, None, u32::MAX, false);
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Priority(number) => priority = *number,
            RuleAttribute::Protocol(protocol) => is_ours = u8::from(*protocol) == PROTOCOL,
            RuleAttribute::FwMark(number) => value = Some(*number),
            RuleAttribute::FwMask(number) => mask = *number,
            _ => {}
        }
    }
    let value = value.filter(|_| !is_ours)?;
    let of = |own: u32| if mask == u32::MAX { value & own } else { mask & own };
    let keys = [("exempt", used.exempt), ("packets", used.packets)];
    let (key, bits) =
        keys.into_iter().map(|(key, own)| (key, of(own))).find(|(_, bits)| *bits != 0)?;
    Some(Interference::SelectsMark { family, priority, mark: (value, mask), bits, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Used = Used {
        exempt: 0,
        packets: 0,
        flows: 0,
        leads_exempt: true,
        table: String::new(),
        tun: String::new(),
    };

    fn named(family: u8, chain: &str) -> ChainName {
        ChainName { family, table: "others".to_owned(), chain: chain.to_owned() }
    }

    /// A kernel may have no flow tables to make one.
    #[test]
    fn flow_tables_are_told_whoever_asks() {
        let fast = named(INET, "fast");
        let ruleset = Ruleset { flow_tables: vec![fast.clone()], ..Ruleset::default() };
        let found: Vec<_> = of_ruleset(&ruleset, &NONE, false).into_iter().collect();
        assert_eq!(found, [Interference::FlowTable { table: fast }]);
        assert!(found[0].to_string().starts_with("table inet others, fast offloads flows"));
    }

    /// The packet filter's library may not know what later kernels say.
    #[test]
    fn rules_that_are_not_understood_are_told() {
        let ruleset = Ruleset { not_understood: 3, ..Ruleset::default() };
        let found: Vec<_> = of_ruleset(&ruleset, &NONE, false).into_iter().collect();
        assert_eq!(found, [Interference::NotUnderstood { rules: 3 }]);
        assert!(
            found[0].to_string().starts_with("3 rules of the packet filter could not be parsed")
        );
    }

    #[test]
    fn bits_matter_by_hook_and_priority() {
        let used = Used { exempt: 1, packets: 2, ..NONE };
        let (none, exempt, packets, both) = (0, 1, 2, 3);
        for (family, hook, priority, expected) in [
            (IPV4, PRE_ROUTING, -150, exempt),
            (IPV6, PRE_ROUTING, MARKS, both),
            (INET, LOCAL_IN, 0, none),
            (INET, LOCAL_IN, FIRST - 1, packets),
            (INET, FORWARD, 0, packets),
            (IPV4, LOCAL_OUT, -150, exempt),
            (IPV4, LOCAL_OUT, 0, both),
            (IPV4, POST_ROUTING, -150, both),
            (INET, POST_ROUTING, LAST + 1, none),
            // Ingress of `inet`, and of interfaces; their egress; bridges.
            (INET, 5, 0, exempt),
            (NETDEV, 0, 0, exempt),
            (NETDEV, EGRESS, 0, none),
            (BRIDGE, PRE_ROUTING, 0, none),
            (BRIDGE, FORWARD, 0, packets),
        ] {
            let found = used.of_packets(family, hook, priority);
            let bits = found.iter().fold(0, |all, (_, bits)| all | bits);
            assert_eq!(bits, expected, "{family} {hook} {priority}");
        }
        // Where no rule leads by it.
        let used = Used { leads_exempt: false, ..used };
        assert_eq!(used.of_packets(IPV4, PRE_ROUTING, -150), [("exempt", 0), ("packets", 0)]);
    }

    #[test]
    fn chains_that_others_jump_to_are_judged_by_where_these_are() {
        let used = Used { packets: 0xf0, ..NONE };
        let [base, middle, last] = ["base", "middle", "last"].map(|chain| named(IPV4, chain));
        let jumps = [(base.clone(), [middle.clone()].into()), (middle, [last.clone()].into())];
        let mut ruleset = Ruleset {
            effects: [(last.clone(), vec![Effect::WritesMark(0xff)])].into(),
            places: [(base.clone(), (PRE_ROUTING, -150))].into(),
            jumps: jumps.into(),
            ..Ruleset::default()
        };
        let found =
            |ruleset: &Ruleset| of_ruleset(ruleset, &used, false).into_iter().collect::<Vec<_>>();
        let writes = Interference::WritesMark { chain: last.clone(), bits: 0xf0, key: "packets" };
        assert_eq!(found(&ruleset), []);
        ruleset.places.insert(base.clone(), (FORWARD, 0));
        assert_eq!(found(&ruleset), std::slice::from_ref(&writes));
        // Round in a circle it ends as well; and by maps of verdicts anybody may lead there.
        ruleset.jumps.entry(last).or_default().insert(base);
        assert_eq!(found(&ruleset), std::slice::from_ref(&writes));
        ruleset.places.clear();
        assert_eq!(found(&ruleset), [writes]);
    }
}
