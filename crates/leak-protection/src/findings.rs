//! Others' routes, and settings, that work against leak protection on this host, or keep packets from tunnels.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use convoy_host::{Family, HostError, LinkName, Network, RouteEntry, Scope, Sysctl};
use convoy_netlink::Rtnl;
use ipnet::IpNet;
use netlink_packet_route::AddressFamily;

use crate::{
    config::{Config, Lead},
    rules,
};

const MAIN: u32 = 254;
const LOCAL: u32 = 255;
/// Priority of the rule that leads to the main table.
const MAIN_PRIORITY: u32 = 32_766;
/// `RTPROT_KERNEL`: routes to connected networks.
const KERNEL: u8 = 2;
/// The strict form of the reverse path filter (RFC 3704).
const STRICT: u8 = 1;

/// A rule that leads all packets to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lookup {
    /// The address family.
    pub family: Family,
    /// The lower comes first.
    pub priority: u32,
    /// The routing table.
    pub table: u32,
    /// Routes to networks of at most this length in bits do not count (`suppress_prefixlength`).
    pub suppressed: Option<u8>,
    /// The rule that leads to the TUN interface.
    pub ahead_of: u32,
}

/// State of the kernel, as far as [`findings`] wants to know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// All routes.
    pub routes: Vec<RouteEntry>,
    /// Rules for all packets.
    pub lookups: Vec<Lookup>,
    /// Names of interfaces by index.
    pub links: BTreeMap<u32, String>,
    /// Families that this host forwards.
    pub forwarding: Vec<Family>,
    /// The reverse path filter by interface, as it works: 0 off, 1 strict, 2 loose.
    pub rp_filter: BTreeMap<String, u8>,
    /// Peers, and the interface that the gateway's packets to them leave through.
    pub peers: Vec<(IpAddr, Option<String>)>,
    /// Peers to which packets without the gateway's mark go into the TUN interface, as the reverse path filter sees them.
    pub routed_into_tun: BTreeSet<IpAddr>,
}

impl Look {
    /// Looks around in the calling thread's network namespace. If the gateway's sockets are bound to an interface, it is
    /// `bound_to`.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn around(
        config: &Config,
        peers: &[IpAddr],
        bound_to: Option<&str>,
    ) -> Result<Self, HostError> {
        let mut network = Network::open()?;
        let mut rtnl = Rtnl::open().map_err(HostError::Netlink)?;
        let links = network.links()?.into_iter().map(|link| (link.index, link.name));
        let mut look = Self { links: links.collect(), ..Self::default() };
        look.routes = network.routes()?;
        let ahead_of = match config.leads {
            Lead::ByMark => config.questions.priority,
            Lead::ByDestination => MAIN_PRIORITY,
        };
        for (family, number) in
            [(Family::V4, AddressFamily::Inet), (Family::V6, AddressFamily::Inet6)]
        {
            let all = rules::lookups(&mut rtnl, number)?.into_iter();
            look.lookups.extend(all.map(|rules::Lookup { priority, table, suppressed }| Lookup {
                family,
                priority,
                table,
                suppressed,
                ahead_of,
            }));
            // A family that is switched off does not forward.
            let forwards = Sysctl::forwarding(family, &Scope::All).read();
            look.forwarding.extend(forwards.is_ok_and(|value| value == "1").then_some(family));
        }
        let value = |scope: &Scope| {
            let value = Sysctl::rp_filter(scope).read().ok();
            value.and_then(|text| text.parse::<u8>().ok()).unwrap_or(0)
        };
        let all = value(&Scope::All);
        for name in look.links.values() {
            let own = LinkName::new(name.clone()).map(|link| value(&Scope::Link(link)));
            look.rp_filter.insert(name.clone(), own.unwrap_or(0).max(all));
        }
        let mut bound = Network::open()?;
        if let Some(interface) = bound_to {
            bound.bind(interface);
        }
        for peer in peers {
            let way = bound.marked_route_to(*peer, config.mark.value);
            look.peers.push((*peer, way.ok().map(|way| way.link)));
            let unmarked = network.route_to(*peer, None);
            if unmarked.is_ok_and(|route| route.link == config.tun.as_str()) {
                look.routed_into_tun.insert(*peer);
            }
        }
        Ok(look)
    }
}

impl Look {
    /// True if a route of the main table leads a network into the TUN interface.
    fn main_leads_in(&self, config: &Config, network: &IpNet) -> bool {
        let is_tun =
            |index: u32| self.links.get(&index).is_some_and(|link| link == config.tun.as_str());
        self.routes.iter().any(|route| {
            route.table == MAIN
                && route.to.contains(network)
                && route.link_index.is_some_and(is_tun)
        })
    }
}

/// Something that is to be put right. Its `Display` says what is wrong, where, and what would be
/// right.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Finding {
    /// A route in the main table leads past the TUN interface.
    MainRoute {
        /// Destination of the route.
        route: IpNet,
        /// Through which interface.
        link: String,
        /// The protected network that it lies in.
        network: IpNet,
    },
    /// Somebody's rule sends packets to another table before they reach that of the TUN interface.
    RuleAhead {
        /// The rule.
        lookup: Lookup,
        /// A route in that table.
        route: IpNet,
        /// The protected network that it covers or lies in.
        network: IpNet,
    },
    /// The strict reverse path filter drops packets of a peer, because the route back to it is the TUN interface.
    StrictReversePath {
        /// The interface that they arrive by.
        link: String,
        /// The peer.
        peer: IpAddr,
        /// The protected network that it lies in.
        network: IpNet,
    },
    /// The host does not forward packets of a family that has protected networks.
    ForwardingOff {
        /// The family.
        family: Family,
    },
    /// No route leads protected networks into the TUN interface.
    NoRouteIn {
        /// The first of them.
        network: IpNet,
        /// Number of the others.
        others: usize,
        /// The TUN interface.
        tun: LinkName,
    },
    /// No route leads to a peer, or only one back into the TUN interface.
    NoRouteToPeer {
        /// The peer.
        peer: IpAddr,
    },
}

impl Finding {
    /// True if it leads protected packets past the TUN interface, so that leak protection drops them.
    #[must_use]
    pub const fn leads_past(&self) -> bool {
        matches!(self, Self::MainRoute { .. } | Self::RuleAhead { .. })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MainRoute { route, link, network } => write!(
                f,
                "the main routing table leads {route} through {link}, past Convoy (protected: {network}), so that \
                 leak protection drops it; remove that route with: ip route del {route} dev {link}"
            ),
            Self::RuleAhead { lookup, route, network } => write!(
                f,
                "ip rule {} leads to table {} before Convoy's routes, and that table has a route to {route} \
                 (protected: {network}), so that leak protection drops it; give that rule a priority above {}",
                lookup.priority, lookup.table, lookup.ahead_of
            ),
            Self::StrictReversePath { link, peer, network } => write!(
                f,
                "the reverse path filter of {link} is strict, and the route back to the peer {peer} leads into the \
                 tunnel (protected: {network}), so the kernel drops what the peer sends; make the filter loose: \
                 net.ipv4.conf.{link}.rp_filter = 2"
            ),
            Self::ForwardingOff { family } => {
                let key = match family {
                    Family::V4 => "net.ipv4.ip_forward",
                    Family::V6 => "net.ipv6.conf.all.forwarding",
                };
                write!(
                    f,
                    "{key} is 0, so this host forwards nothing and only its own packets reach the tunnels; to \
                     forward packets of other hosts: {key} = 1"
                )
            }
            Self::NoRouteIn { network, others, tun } => {
                let more = match others {
                    0 => String::new(),
                    count => format!(" and {count} other protected network(s)"),
                };
                write!(
                    f,
                    "no route leads {network}{more} into {tun}, so that leak protection drops packets to there; add \
                     routes with: ip route add … dev {tun} (where they would catch the peer, in a table of their own, \
                     to which an ip rule leads)"
                )
            }
            Self::NoRouteToPeer { peer } => {
                write!(f, "no route leads to the peer {peer} outside of the tunnels; add one")
            }
        }
    }
}

/// All that works against these protected networks in what is shown, each at most once
/// for every route, interface or peer; in a fixed order.
#[must_use]
pub fn findings(look: &Look, config: &Config, protected: &[IpNet]) -> Vec<Finding> {
    let protected = Protected(protected.iter().map(IpNet::trunc).collect());
    let mut found = BTreeSet::new();
    for route in look.routes.iter().filter(|route| route.is_unicast) {
        found.extend(route_finding(look, config, &protected, route));
    }
    // Where marks lead, they lead back, too.
    if config.leads == Lead::ByDestination {
        found.extend(reverse_path(look, &protected));
    }
    for family in [Family::V4, Family::V6] {
        let concerned = protected.0.iter().any(|n| n.addr().is_ipv4() == (family == Family::V4));
        if concerned && !look.forwarding.contains(&family) {
            found.insert(Finding::ForwardingOff { family });
        }
    }
    found.extend(no_route_in(look, config, &protected));
    for (peer, link) in &look.peers {
        if link.as_deref().is_none_or(|link| link == config.tun.as_str()) {
            found.insert(Finding::NoRouteToPeer { peer: *peer });
        }
    }
    found.into_iter().collect()
}

/// The fault of one route, if it has any.
fn route_finding(
    look: &Look,
    config: &Config,
    protected: &Protected,
    entry: &RouteEntry,
) -> Option<Finding> {
    let link = match entry.link_index.and_then(|index| look.links.get(&index)) {
        Some(link) => link.clone(),
        // With several next hops there is no one interface.
        None => "several interfaces".to_owned(),
    };
    let tables = config.questions.tables();
    if link == config.tun.as_str() || link == "lo" || tables.contains(&entry.table) {
        return None;
    }
    let family = if entry.to.addr().is_ipv4() { Family::V4 } else { Family::V6 };
    let before = look.lookups.iter().find(|lookup| {
        lookup.table == entry.table
            && lookup.family == family
            && lookup.priority < lookup.ahead_of
            && entry.table != LOCAL
            && lookup.suppressed.is_none_or(|longest| entry.to.prefix_len() > longest)
    });
    let route = entry.to;
    let is_by_destination = config.leads == Lead::ByDestination;
    // Who leads to the main table early leads to the tunnel's route there, which is the longer one.
    let has_tunnel = || {
        let network = protected.touching(&route);
        is_by_destination && network.is_some_and(|network| look.main_leads_in(config, &network))
    };
    let before = before.filter(|_| entry.table != MAIN || !has_tunnel());
    match (before, entry.table) {
        (Some(lookup), _) => {
            let network = protected.touching(&route)?;
            Some(Finding::RuleAhead { lookup: *lookup, route, network })
        }
        // Connected networks and a default route are what main is for.
        (None, MAIN) if is_by_destination && entry.protocol != KERNEL && route.prefix_len() > 0 => {
            Some(Finding::MainRoute { route, link, network: protected.around(&route)? })
        }
        _ => None,
    }
}

/// Protected networks to which packets leave by other interfaces, if the TUN interface is there and the host's routes
/// are to lead into it.
fn no_route_in(look: &Look, config: &Config, protected: &Protected) -> Option<Finding> {
    let is_tun = |index: &u32| look.links.get(index).is_some_and(|it| it == config.tun.as_str());
    let is_led = config.leads == Lead::ByDestination && config.forwarding.is_none();
    if !is_led || !look.links.keys().any(is_tun) {
        return None;
    }
    let into_tun = look.routes.iter().filter(|route| route.link_index.as_ref().is_some_and(is_tun));
    let into_tun = Protected(into_tun.map(|route| route.to.trunc()).collect());
    let mut lost = protected.0.iter().filter(|network| into_tun.touching(network).is_none());
    let network = *lost.next()?;
    Some(Finding::NoRouteIn { network, others: lost.count(), tun: config.tun.clone() })
}

/// Interfaces whose strict filter drops what peers send. A connected network has a route of its own, which is longer than
/// the one into the TUN interface around it.
fn reverse_path(look: &Look, protected: &Protected) -> Vec<Finding> {
    let is_strict = |link: &str| look.rp_filter.get(link) == Some(&STRICT);
    let led = look.peers.iter().filter(|(peer, _)| look.routed_into_tun.contains(peer));
    led.filter(|(peer, _)| peer.is_ipv4())
        .filter_map(|(peer, link)| {
            let link = link.clone().filter(|link| is_strict(link))?;
            let network = protected.around(&IpNet::from(*peer))?;
            Some(Finding::StrictReversePath { link, peer: *peer, network })
        })
        .collect()
}

/// Protected networks, to be asked quickly.
struct Protected(BTreeSet<IpNet>);

impl Protected {
    /// One that is, or contains, this network.
    fn around(&self, network: &IpNet) -> Option<IpNet> {
        let mut around = Some(network.trunc());
        while let Some(prefix) = around {
            if self.0.contains(&prefix) {
                return Some(prefix);
            }
            around = prefix.supernet();
        }
        None
    }

    /// One that contains this network or lies in it.
    fn touching(&self, network: &IpNet) -> Option<IpNet> {
        let within = self.0.range(network.trunc()..).next().filter(|n| network.contains(*n));
        self.around(network).or_else(|| within.copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn config(leads: Lead) -> Config {
        Config { leads, ..Config::new(LinkName::new("convoy0").unwrap()) }
    }

    fn route(to: &str, link_index: u32, table: u32) -> RouteEntry {
        RouteEntry {
            to: net(to),
            link_index: Some(link_index),
            via: None,
            source: None,
            metric: 0,
            table,
            is_unicast: true,
            protocol: 4,
        }
    }

    fn lookup(family: Family, priority: u32, table: u32) -> Lookup {
        Lookup { family, priority, table, suppressed: None, ahead_of: MAIN_PRIORITY }
    }

    /// A host that is as it should be: 1 is its LAN, 2 the wire, 3 the TUN interface.
    fn good() -> Look {
        let links = [(1, "lan0"), (2, "wire0"), (3, "convoy0")];
        let connected = |to, link| RouteEntry { protocol: KERNEL, ..route(to, link, MAIN) };
        Look {
            routes: vec![
                connected("10.1.0.0/24", 1),
                connected("192.0.2.0/24", 2),
                route("0.0.0.0/0", 2, MAIN),
                route("10.2.0.0/16", 3, MAIN),
                route("192.0.0.0/8", 3, MAIN),
                route("2001:db8::/32", 3, MAIN),
            ],
            lookups: vec![lookup(Family::V4, 0, LOCAL), lookup(Family::V4, 32766, MAIN)],
            links: links.map(|(index, name)| (index, name.to_owned())).into(),
            forwarding: vec![Family::V4, Family::V6],
            rp_filter: links.map(|(_, name)| (name.to_owned(), 2)).into(),
            peers: vec![("192.0.2.2".parse().unwrap(), Some("wire0".into()))],
            routed_into_tun: BTreeSet::new(),
        }
    }

    fn words(look: &Look, protected: &[&str]) -> Vec<String> {
        let protected: Vec<_> = protected.iter().map(|text| net(text)).collect();
        findings(look, &config(Lead::ByDestination), &protected)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_good_host_has_no_findings() {
        assert_eq!(words(&good(), &["10.2.0.0/16", "2001:db8:2::/48"]), [""; 0]);
        assert_eq!(words(&good(), &["0.0.0.0/0"]), [""; 0]);
    }

    #[test]
    fn routes_in_main_past_the_tun_interface_are_told() {
        let mut look = good();
        look.routes.push(route("10.2.3.0/24", 2, MAIN));
        let [said] = &words(&look, &["10.2.0.0/16"])[..] else { panic!() };
        assert!(said.contains("10.2.3.0/24 through wire0"), "{said}");
        // Where marks lead, routes of others do no harm.
        assert_eq!(findings(&look, &config(Lead::ByMark), &[net("10.2.0.0/16")]), []);
        // A wider one than what is protected is the host's own affair.
        assert_eq!(words(&look, &["10.2.3.0/25"]), [""; 0]);
    }

    #[test]
    fn rules_ahead_are_told() {
        let mut look = good();
        look.lookups.push(lookup(Family::V4, 99, MAIN));
        let found = findings(&look, &config(Lead::ByMark), &[net("10.2.0.0/16")]);
        let [Finding::RuleAhead { lookup: rule, route, .. }] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((rule.priority, rule.table, *route), (99, MAIN, net("0.0.0.0/0")));
        look.lookups.pop();
        // As wg-quick does, and many instructions for several uplinks.
        look.lookups.push(Lookup { suppressed: Some(0), ..lookup(Family::V4, 99, MAIN) });
        assert_eq!(findings(&look, &config(Lead::ByMark), &[net("10.2.0.0/16")]), []);
        look.routes.push(self::route("10.0.0.0/8", 2, MAIN));
        assert_eq!(findings(&look, &config(Lead::ByMark), &[net("10.2.0.0/16")]).len(), 1);
        look.routes.pop();
        look.lookups.pop();
        // The main table has the tunnel's route there, which is longer.
        look.lookups.push(lookup(Family::V4, 99, MAIN));
        assert_eq!(words(&look, &["10.2.0.0/16"]), [""; 0]);
        let [rule, no_route] = &words(&look, &["10.3.0.0/16"])[..] else { panic!() };
        assert!(rule.starts_with("ip rule 99") && no_route.starts_with("no route leads"), "{rule}");
        look.lookups.pop();
        look.lookups.push(lookup(Family::V6, 99, MAIN));
        assert_eq!(words(&look, &["10.2.0.0/16"]), [""; 0]);
    }

    #[test]
    fn protected_networks_without_a_route_are_told_once() {
        let mut look = good();
        let [said] = &words(&look, &["10.3.0.0/16", "10.2.0.0/24", "11.0.0.0/8"])[..] else {
            panic!()
        };
        let told = "no route leads 10.3.0.0/16 and 1 other protected network(s) into convoy0";
        assert!(said.starts_with(told), "{said}");
        // A table to which rules lead counts, and a default route there leads everything.
        look.routes.push(route("0.0.0.0/0", 3, 100));
        assert_eq!(words(&look, &["10.3.0.0/16", "11.0.0.0/8"]), [""; 0]);
        look.routes.pop();
        // Marks lead, or there is no interface yet.
        assert_eq!(findings(&look, &config(Lead::ByMark), &[net("10.3.0.0/16")]), []);
        look.links.remove(&3);
        look.peers.clear();
        assert_eq!(words(&look, &["10.3.0.0/16"]), [""; 0]);
    }

    #[test]
    fn settings_and_peers_are_told() {
        let mut look = good();
        look.rp_filter.insert("lan0".into(), STRICT);
        look.rp_filter.insert("wire0".into(), STRICT);
        // Routes to connected networks are longer, and the peer is reached by one.
        assert_eq!(words(&look, &["10.0.0.0/8", "192.0.0.0/8"]), [""; 0]);
        look.routed_into_tun.insert("192.0.2.2".parse().unwrap());
        assert_eq!(
            words(&look, &["192.0.2.2/32"]),
            [
                "the reverse path filter of wire0 is strict, and the route back to the peer 192.0.2.2 leads into the \
              tunnel (protected: 192.0.2.2/32), so the kernel drops what the peer sends; make the filter loose: \
              net.ipv4.conf.wire0.rp_filter = 2"
            ]
        );
        // Marks lead back.
        assert_eq!(findings(&look, &config(Lead::ByMark), &[net("192.0.2.2/32")]), []);
        look.rp_filter.clear();
        assert_eq!(words(&look, &["192.0.2.2/32"]), [""; 0]);
        look.forwarding = vec![Family::V6];
        assert_eq!(words(&look, &["2001:db8::/32"]), [""; 0]);
        assert!(words(&look, &["10.0.0.0/8"])[0].contains("net.ipv4.ip_forward = 1"));
        look.peers[0].1 = Some("convoy0".into());
        assert!(words(&look, &[])[0].contains("peer 192.0.2.2"));
        look.peers[0].1 = None;
        assert_eq!(words(&look, &[]).len(), 1);
    }
}
