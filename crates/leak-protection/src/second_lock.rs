//! The second lock: `ip rule`s and routes that hold what is protected when the packet filter's table is gone, as after
//! `nft flush ruleset` while no gateway runs. Rules lead what comes from local networks to tables that know remote networks.
//!
//! Where marks lead, the chains mark every packet from local to remote networks that may leave. So rules mean what has no mark, and
//! there are two tables:
//!
//! * for what this host forwards, one where remote networks are `unreachable`;
//! * for what it sends itself, one where they lead into the TUN interface and, without it, nowhere: a packet of its own is
//!   routed before it is marked, and routed again then. Partly bypassed networks are left out there: a socket that is bound to
//!   another interface would not reach what passes in clear. So is what it sends from an address at a default route: the
//!   reverse path filter would not find peers that are remote.
//!
//! Where the host's own routes lead, the lock must not choose a way, and other interfaces have locks beside it. So each
//! interface has tables of its own. In both, remote networks lead into the TUN interface and, without it, nowhere; and the
//! rules pass over what leads into it (`suppress_prefixlength`). While the interface is there, packets go as if the lock
//! were not; but where it is for what the host itself sends alone, this is led into it. Where the kernel asks about
//! packets, rules mean what has no answer; where not, no mark counts, and one table is enough.
//!
//! What remote networks are not is routed as ever, and so is what is not from local networks. Rules are looked at one by one, so they
//! are as many as there are local prefixes, and none where those are too many.

use std::{collections::BTreeSet, net::IpAddr};

use convoy_host::{Family, HostError, LinkName, Mark, Network, RouteEntry};
use convoy_netlink::{
    Refusal, Rtnl,
    nft::{Cover, flow::Bits},
};
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage as Message,
    route::{RouteMessage, RouteProtocol},
    rule::{RuleAction, RuleAttribute, RuleMessage},
};

use crate::{
    config::{Config, Lead},
    error::LeakProtectionError,
    ranges::{prefixes, range, version_of},
    routes::{self, Leads, PROTOCOL},
    rules::{mark_of, of_family},
    sets::{ByDirection, ByFamily, Covers, Differences, Prefixes, Shown, asks},
};

/// Places for rules. They lie ahead of those that lead by marks, and of strongSwan's.
const PLACES: u32 = 5;
/// Two tables behind those of [`crate::Questions::tables`].
const BEHIND: u32 = 2;
/// The first of the tables of interfaces that have their own, two for each: those of others have smaller numbers.
const OF_INTERFACES: u32 = 0xc500_0000;
/// No prefix is longer.
const ANY_LENGTH: u32 = 128;
/// More local prefixes of an IP version than this have no rules: each costs every packet some nanoseconds.
const MOST_LOCAL: usize = 256;
const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

/// A rule of the lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    priority: u32,
    /// The prefix that packets are from, unless all are meant.
    from: Option<IpNet>,
    /// Only what this host sends itself.
    is_own: bool,
    /// The mark of the packets that are meant, and its mask.
    mark: Option<(u32, u32)>,
    to: To,
}

/// Target of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    Table(u32),
    /// To a table, but on where that leads into an interface.
    NowhereBy(u32),
    /// The rule of another priority.
    Rule(u32),
    /// On.
    Nowhere,
}

/// A route of the lock. Of those to one network, what leads past the lock comes first and what leads nowhere last: nothing
/// is lost while they are laid in this order, and taken up in the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Route {
    table: u32,
    to: IpNet,
    leads: Leads,
}

/// The rules and routes of one interface. Where marks lead, it is the only such interface of its namespace.
#[derive(Debug)]
pub(crate) struct SecondLock {
    rtnl: Rtnl,
    network: Network,
    tun: LinkName,
    /// IP versions that have rules.
    families: Vec<AddressFamily>,
    /// Its index, when it was last looked at.
    index: Option<u32>,
    /// For what is forwarded, and for what this host sends.
    tables: [u32; 2],
    leads: Lead,
    /// True if packets that the host itself sends are led into the interface.
    leads_own: bool,
    priority: u32,
    /// Rules that were wanted when they were last made. Others follow the host's routes.
    wanted: BTreeSet<Rule>,
    /// Mark of the gateway's own packets.
    own: Mark,
    /// Mark of packets without an answer.
    unanswered: Bits,
}

impl SecondLock {
    /// Opens that of the calling thread's network namespace.
    pub(crate) fn open(config: &Config) -> Result<Self, LeakProtectionError> {
        let mut rtnl = Rtnl::open().map_err(|error| LeakProtectionError::Netlink(error.into()))?;
        let network = Network::open().map_err(refused)?;
        let questions = config.questions;
        let (tables, ahead) = match config.leads {
            Lead::ByMark => (questions.tables().map(|it| it.saturating_add(BEHIND)), PLACES),
            Lead::ByDestination => {
                let first = OF_INTERFACES | routes::number(config.tun.as_str()) << 1;
                ([first, first | 1], 2 * PLACES)
            }
        };
        let mut families = Vec::new();
        for family in FAMILIES {
            let rules = of_family(&mut rtnl, family);
            let rules =
                rules.map_err(|refusal| LeakProtectionError::Rule { doing: "read", refusal })?;
            families.extend((!rules.is_empty()).then_some(family));
        }
        Ok(Self {
            rtnl,
            families,
            network,
            tun: config.tun.clone(),
            index: None,
            tables,
            leads: config.leads,
            leads_own: config.leads == Lead::ByMark || config.forwarding.is_some(),
            priority: questions.priority.saturating_sub(ahead),
            wanted: BTreeSet::new(),
            own: config.mark,
            unanswered: questions.marks.unanswered(),
        })
    }

    /// True if there are too many local prefixes for it.
    pub(crate) fn is_open(covers: Shown<'_>) -> bool {
        covers.out.both().into_iter().any(|(version, Prefixes { local, .. })| {
            local.ranges().flat_map(|range| prefixes(range, version)).nth(MOST_LOCAL).is_some()
        })
    }

    /// Local, remote and partly bypassed prefixes that the previous run held by it, whatever led there; none where it held none.
    pub(crate) fn left(config: &Config) -> Result<Option<Covers>, LeakProtectionError> {
        for leads in [Lead::ByMark, Lead::ByDestination] {
            let left = Self::open(&Config { leads, ..config.clone() })?.present()?;
            if left.is_some() {
                return Ok(left);
            }
        }
        Ok(None)
    }

    fn present(&mut self) -> Result<Option<Covers>, LeakProtectionError> {
        let failed = |refusal| LeakProtectionError::Rule { doing: "read", refusal };
        let [forwarded, sent] = self.tables;
        let mut local = BTreeSet::new();
        for family in self.families.clone() {
            let there = of_family(&mut self.rtnl, family).map_err(failed)?;
            let rules = there.iter().filter_map(Rule::read);
            let leads = |rule: &Rule| rule.to.table() == Some(forwarded);
            local.extend(rules.filter(leads).filter_map(|it| it.from));
        }
        if local.is_empty() {
            return Ok(None);
        }
        let routes = self.present_routes()?;
        let of = |table, leads| -> Vec<IpNet> {
            let those = routes.iter().filter(|it| it.table == table && it.leads == leads);
            those.map(|route| route.to).collect()
        };
        let (local, remote) = (Vec::from_iter(local), of(forwarded, Leads::Nowhere));
        let sides = [local, remote, of(sent, Leads::Past)];
        let [local, remote, partly_bypassed] = sides;
        let of_family = |version| {
            let cover = |nets: &[IpNet]| -> Cover {
                nets.iter().filter(|net| version_of(net.addr()) == version).map(range).collect()
            };
            Prefixes {
                local: cover(&local),
                remote: cover(&remote),
                partly_bypassed: cover(&partly_bypassed),
            }
        };
        // What is known of one way counts for all until policies name it again.
        let both = ByFamily { v4: of_family(Family::V4), v6: of_family(Family::V6) };
        Ok(Some(ByDirection { out: both.clone(), input: both.clone(), forward: both }))
    }

    /// Makes what is missing and removes what is too much; how many rules and routes were missing that had been made.
    pub(crate) fn make(
        &mut self,
        covers: Shown<'_>,
    ) -> Result<(usize, usize), LeakProtectionError> {
        self.index = routes::index_of(&mut self.rtnl, &self.tun)?;
        let (there, wanted) = (self.present_routes()?, self.wanted_routes(covers));
        let missing: BTreeSet<_> = wanted.difference(&there).copied().collect();
        let gone: BTreeSet<_> = there.difference(&wanted).copied().collect();
        let laid = self.lay(&missing)?;
        let wanted = self.wanted_rules(covers)?;
        let made = self.make_rules(&wanted)?;
        self.take_up(&gone)?;
        Ok((made, laid))
    }

    /// Follows a change of the sets, which have these contents now.
    pub(crate) fn change(
        &mut self,
        covers: Shown<'_>,
        differences: &Differences,
    ) -> Result<(), LeakProtectionError> {
        let both = differences.out.both();
        let is_partly_bypassed_same =
            both.iter().all(|(_, changes)| changes.partly_bypassed.is_empty());
        if self.leads == Lead::ByDestination && !is_partly_bypassed_same {
            // It may have another number of tables now.
            return self.make(covers).map(drop);
        }
        let tells_own = self.tells_own(covers);
        let (mut added, mut removed) = (BTreeSet::new(), BTreeSet::new());
        let mut is_local_same = true;
        for (version, Prefixes { local, remote, partly_bypassed }) in both {
            is_local_same &= local.is_empty();
            let nets = |range| prefixes(range, version);
            let [remote_come, partly_bypassed_come] =
                [remote, partly_bypassed].map(|it| it.added().flat_map(nets));
            added.extend(self.routes(tells_own, remote_come, partly_bypassed_come));
            let [remote_gone, partly_bypassed_gone] =
                [remote, partly_bypassed].map(|it| it.removed().flat_map(nets));
            removed.extend(self.routes(tells_own, remote_gone, partly_bypassed_gone));
        }
        let (come, gone) = (&added - &removed, &removed - &added);
        self.lay(&come)?;
        if !is_local_same {
            let wanted = self.wanted_rules(covers)?;
            self.make_rules(&wanted)?;
        }
        self.take_up(&gone)
    }

    /// Removes all of it, the rules first.
    pub(crate) fn remove(&mut self) -> Result<usize, LeakProtectionError> {
        self.make_rules(&BTreeSet::new())?;
        let there = self.present_routes()?;
        self.take_up(&there).map(|()| there.len())
    }

    /// Addresses of IPv4 that this host has where a default route leads. The kernel's reverse path filter looks the way back
    /// to a peer up as if this host answered from there, without a mark.
    fn uplinks(&mut self) -> Result<Vec<IpAddr>, LeakProtectionError> {
        let routes = self.network.routes().map_err(refused)?;
        let leads = |link: u32| {
            let is_default = |route: &RouteEntry| {
                route.is_unicast && route.to.addr().is_ipv4() && route.to.prefix_len() == 0
            };
            let mut by = routes.iter().filter(|route| route.link_index == Some(link));
            Some(link) != self.index && by.any(is_default)
        };
        let own = self.network.addresses_of_links().map_err(refused)?;
        let own = own.into_iter().filter(|(link, own)| own.addr().is_ipv4() && leads(*link));
        Ok(own.map(|(_, own)| own.addr()).collect())
    }

    /// True if packets that this host sends itself are told from those that it forwards: by marks, which they have not got
    /// yet when they are routed first.
    fn tells_own(&self, covers: Shown<'_>) -> bool {
        self.leads == Lead::ByMark || asks(covers)
    }

    fn wanted_rules(&mut self, covers: Shown<'_>) -> Result<BTreeSet<Rule>, LeakProtectionError> {
        let local = covers.out.both().into_iter().flat_map(|(version, Prefixes { local, .. })| {
            local.ranges().flat_map(move |range| prefixes(range, version))
        });
        let local: Vec<_> = local.collect();
        let mut wanted = BTreeSet::new();
        if Self::is_open(covers) || local.is_empty() {
            return Ok(wanted);
        }
        let tells_own = self.tells_own(covers);
        let uplinks = if self.leads_own { self.uplinks()? } else { Vec::new() };
        let [forwarded, sent] = self.tables;
        let at = |place: u32| self.priority.saturating_add(place);
        let rule =
            |place, to| Rule { priority: at(place), from: None, is_own: false, mark: None, to };
        let own = Some((self.own.value & self.own.mask, self.own.mask));
        let none = tells_own.then_some((self.unanswered.value, self.unanswered.mask));
        let to = |leads: bool| if leads { To::Table } else { To::NowhereBy };
        let to_forwarded = to(self.leads == Lead::ByMark);
        let (to_sent, sent) = (to(self.leads_own), if tells_own { sent } else { forwarded });
        let from = |place, to, net| Rule { from: Some(net), mark: none, ..rule(place, to) };
        let is_own_apart = tells_own || self.leads_own;
        for net in local {
            wanted.insert(from(3, to_forwarded(forwarded), net));
            let own = || Rule { is_own: true, ..from(1, to_sent(sent), net) };
            wanted.extend(is_own_apart.then(own));
        }
        let past = |from: &IpAddr| Rule {
            from: Some((*from).into()),
            is_own: true,
            ..rule(0, To::Rule(at(4)))
        };
        wanted.extend(uplinks.iter().map(past));
        wanted.insert(Rule { mark: own, ..rule(0, To::Rule(at(4))) });
        wanted.extend(is_own_apart.then(|| Rule { is_own: true, ..rule(2, To::Rule(at(4))) }));
        wanted.insert(rule(4, To::Nowhere));
        Ok(wanted)
    }

    fn wanted_routes(&self, covers: Shown<'_>) -> BTreeSet<Route> {
        let tells_own = self.tells_own(covers);
        let both = covers.out.both().into_iter();
        let routes = both.flat_map(|(version, Prefixes { remote, partly_bypassed, .. })| {
            let nets = |range| prefixes(range, version);
            self.routes(
                tells_own,
                remote.ranges().flat_map(nets),
                partly_bypassed.ranges().flat_map(nets),
            )
        });
        routes.collect()
    }

    fn routes(
        &self,
        tells_own: bool,
        remote: impl Iterator<Item = IpNet>,
        partly_bypassed: impl Iterator<Item = IpNet>,
    ) -> Vec<Route> {
        let [forwarded, sent] = self.tables;
        let tables: &[u32] = if tells_own { &self.tables } else { &[forwarded] };
        let mut routes = Vec::new();
        for to in remote {
            for &table in tables {
                routes.push(Route { table, to, leads: Leads::Nowhere });
                let leads_on = self.leads == Lead::ByDestination || table == sent;
                let into_tun = |index| Route { table, to, leads: Leads::Into(index) };
                routes.extend(self.index.filter(|_| leads_on).map(into_tun));
            }
        }
        routes.extend(partly_bypassed.map(|to| Route { table: sent, to, leads: Leads::Past }));
        routes
    }

    fn lay(&mut self, missing: &BTreeSet<Route>) -> Result<usize, LeakProtectionError> {
        // Without rules the kernel would have them in its main table.
        let has_rules = |route: &&Route| {
            self.families.iter().any(|it| (*it == AddressFamily::Inet) == route.to.addr().is_ipv4())
        };
        let missing: Vec<_> = missing.iter().filter(has_rules).copied().collect();
        let order = |route: &Route| (Message::NewRoute(route.message()), NLM_F_CREATE | NLM_F_EXCL);
        self.carry_out("lay", &missing, order, |route, errno| {
            let into_tun = matches!(route.leads, Leads::Into(_));
            errno == nix::libc::EEXIST || into_tun && routes::is_down(errno, route.to)
        })
    }

    fn take_up(&mut self, gone: &BTreeSet<Route>) -> Result<(), LeakProtectionError> {
        let order = |route: &Route| (Message::DelRoute(route.message()), 0);
        let is_gone = |_: &Route, errno| {
            matches!(errno, nix::libc::ESRCH | nix::libc::ENOENT | nix::libc::ENODEV)
        };
        let gone: Vec<_> = gone.iter().rev().copied().collect();
        self.carry_out("remove", &gone, order, is_gone).map(drop)
    }

    /// Carries out an order for each route; how many were.
    fn carry_out(
        &mut self,
        doing: &'static str,
        routes: &[Route],
        order: impl Fn(&Route) -> (Message, u16),
        is_excused: impl Fn(&Route, i32) -> bool,
    ) -> Result<usize, LeakProtectionError> {
        if routes.is_empty() {
            return Ok(0);
        }
        let orders = routes.iter().map(order).collect();
        let outcomes = self.rtnl.change_many(orders).map_err(LeakProtectionError::Netlink)?;
        let networks = routes.iter().map(|route| (route, route.to));
        routes::carried_out(doing, networks, outcomes, is_excused)
    }

    fn present_routes(&mut self) -> Result<BTreeSet<Route>, LeakProtectionError> {
        let all = routes::all(&mut self.rtnl)?;
        Ok(all.iter().filter_map(|route| self.read(route)).collect())
    }

    /// Parses a route, if it is one of the lock.
    fn read(&self, route: &RouteMessage) -> Option<Route> {
        let table = routes::table_of(route);
        let is_ours = route.header.protocol == RouteProtocol::Other(PROTOCOL);
        if !is_ours || !self.tables.contains(&table) {
            return None;
        }
        Some(Route { table, to: routes::destination(route)?, leads: Leads::of(route)? })
    }

    /// Makes the rules these; how many were missing that had been made before.
    fn make_rules(&mut self, wanted: &BTreeSet<Rule>) -> Result<usize, LeakProtectionError> {
        let failed = |refusal| LeakProtectionError::Rule { doing: "make", refusal };
        let mut made = 0;
        for family in self.families.clone() {
            let there = of_family(&mut self.rtnl, family).map_err(failed)?;
            let is_v4 = family == AddressFamily::Inet;
            let is_of_family =
                |rule: &&Rule| rule.from.is_none_or(|from| from.addr().is_ipv4() == is_v4);
            let places = self.priority..=self.priority.saturating_add(PLACES - 1);
            let ours = there.iter().filter_map(Rule::read);
            let there: BTreeSet<_> = ours.filter(|rule| places.contains(&rule.priority)).collect();
            let wanted = wanted.iter().filter(is_of_family);
            // Where nobody is led to a table, nobody needs a way around.
            let is_led = wanted.clone().any(|rule| rule.to.table().is_some());
            let wanted: BTreeSet<_> = wanted.filter(|_| is_led).cloned().collect();
            let mut missing: Vec<_> =
                wanted.iter().rev().filter(|rule| !there.contains(rule)).collect();
            // Nobody is led to a table before those who must not be have a way around.
            missing.sort_by_key(|rule| rule.to.table().is_some());
            for rule in missing {
                let order = Message::NewRule(rule.message(family));
                match self.rtnl.change(order, NLM_F_CREATE | NLM_F_EXCL) {
                    Ok(()) => made += usize::from(self.wanted.contains(rule)),
                    Err(Refusal { errno: nix::libc::EEXIST, .. }) => {}
                    Err(refusal) => return Err(failed(refusal)),
                }
            }
            let is_anothers =
                |rule: &Rule| rule.to.table().is_some_and(|it| !self.tables.contains(&it));
            // Locks of all interfaces lead around by the same rules.
            let are_shared = there.iter().any(is_anothers);
            let mut gone: Vec<_> = there
                .difference(&wanted)
                .filter(|rule| match rule.to.table() {
                    Some(_) => !is_anothers(rule),
                    None => !are_shared,
                })
                .collect();
            gone.sort_by_key(|rule| rule.to.table().is_none());
            for rule in gone {
                match self.rtnl.change(Message::DelRule(rule.message(family)), 0) {
                    Ok(()) | Err(Refusal { errno: nix::libc::ENOENT, .. }) => {}
                    Err(refusal) => {
                        return Err(LeakProtectionError::Rule { doing: "remove", refusal });
                    }
                }
            }
        }
        self.wanted.clone_from(wanted);
        Ok(made)
    }
}

impl To {
    /// The table that it leads to.
    const fn table(self) -> Option<u32> {
        match self {
            Self::Table(table) | Self::NowhereBy(table) => Some(table),
            Self::Rule(_) | Self::Nowhere => None,
        }
    }
}

fn refused(error: HostError) -> LeakProtectionError {
    LeakProtectionError::Netlink(Refusal { errno: nix::libc::EIO, said: Some(error.to_string()) })
}

impl Route {
    fn message(&self) -> RouteMessage {
        routes::message(self.table, self.to, self.leads, self.leads.metric())
    }
}

impl Rule {
    fn message(&self, family: AddressFamily) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family;
        let attributes = &mut message.attributes;
        attributes.push(RuleAttribute::Priority(self.priority));
        attributes.push(RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)));
        let (action, attribute) = match self.to {
            To::Table(table) | To::NowhereBy(table) => {
                (RuleAction::ToTable, Some(RuleAttribute::Table(table)))
            }
            To::Rule(priority) => (RuleAction::Goto, Some(RuleAttribute::Goto(priority))),
            To::Nowhere => (RuleAction::Nop, None),
        };
        attributes.extend(attribute);
        if matches!(self.to, To::NowhereBy(_)) {
            attributes.push(RuleAttribute::SuppressPrefixLen(ANY_LENGTH));
        }
        attributes.extend(self.is_own.then(|| RuleAttribute::Iifname("lo".to_owned())));
        if let Some((value, mask)) = self.mark {
            attributes.extend([RuleAttribute::FwMark(value), RuleAttribute::FwMask(mask)]);
        }
        if let Some(from) = self.from.filter(|from| from.prefix_len() > 0) {
            attributes.push(RuleAttribute::Source(from.network()));
            message.header.src_len = from.prefix_len();
        }
        message.header.action = action;
        message
    }

    /// Parses a rule, if Convoy made it.
    fn read(message: &RuleMessage) -> Option<Self> {
        let (mut priority, mut table, mut goto, mut is_ours) = (0, None, None, false);
        let (mut is_own, mut value, mut mask, mut source) = (false, None, None, None);
        let mut passes_over = false;
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(number) => priority = *number,
                RuleAttribute::Protocol(protocol) => is_ours = u8::from(*protocol) == PROTOCOL,
                RuleAttribute::Table(number) => table = Some(*number),
                RuleAttribute::Goto(number) => goto = Some(*number),
                RuleAttribute::FwMark(number) => value = Some(*number),
                RuleAttribute::FwMask(number) => mask = Some(*number),
                RuleAttribute::SuppressPrefixLen(length) => passes_over = *length == ANY_LENGTH,
                RuleAttribute::Iifname(name) => is_own = name == "lo",
                RuleAttribute::Source(address) => source = Some(*address),
                _ => {}
            }
        }
        let to = match message.header.action {
            RuleAction::ToTable if passes_over => To::NowhereBy(table?),
            RuleAction::ToTable => To::Table(table?),
            RuleAction::Goto => To::Rule(goto?),
            RuleAction::Nop => To::Nowhere,
            _ => return None,
        };
        let mark = mark_of(value, mask);
        // The kernel does not show the prefix of all addresses.
        let everything = || match message.header.family {
            AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
            _ => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        // Those that lead to a table are from local networks, if that is all addresses.
        let is_from = source.is_some() || to.table().is_some();
        let from =
            is_from.then(|| IpNet::new(source.unwrap_or_else(everything), message.header.src_len));
        let from = from.transpose().ok()?;
        is_ours.then_some(Self { priority, from, is_own, mark, to })
    }
}
