//! Leak protection: no packet that a policy protects leaves in clear, and none comes in so.
//!
//! A gateway's plain side is a TUN interface. What is routed into it leaves as ESP or not at all; but routes can
//! change, and with the gateway the interface goes. [`LeakProtection`] is a table of the packet filter (`nf_tables`)
//! that outlives the gateway. It knows two sets of prefixes ([`PrefixSets`]): *near*, the networks on this side of
//! the tunnels, and *far*, those behind them. What any near network sends to any far one is protected.
//!
//! * From near to far, packets leave by the TUN interface alone. Two chains behind all routing (`postrouting`)
//!   drop them elsewhere: one ahead of what changes sources, since policies speak of sources as they were sent, and
//!   one behind it, for what source NAT made a packet from near. They ask nothing of routes and `ip rule`s, for
//!   those may be what went wrong.
//! * From far to near, packets come out of the TUN interface alone (RFC 4301 section 5.2). A chain for those that
//!   are for this host (`input`) and one for those that it forwards (`forward`) drop what comes in otherwise. ESP, AH,
//!   ESP in UDP, ICMP errors about these, and Neighbour Discovery of a link get through.
//! * The gateway's own packets get out. They bear a [`Mark`]; no port and no address opens anything.
//!
//! Where policies say more about packets than prefixes do, as when one port of a protected network passes in clear,
//! prefixes are *mixed* ([`PrefixSets::mixed`]). The kernel asks whoever knows the policies ([`Listener`]) about the
//! first packet of each flow and direction, and keeps the answer in marks ([`Marks`]). What has no answer is dropped by
//! the chains above; while nobody listens, flows that were answered for go on as they were answered. Prefixes that are
//! protected whole are never asked about.
//!
//! The table has as many rules for ten thousand networks as for one. Where the kernel knows owners of tables that
//! outlive them (Linux 6.9), nobody else can change it while the gateway runs, `nft flush ruleset` included.
//!
//! The policies of a site without IKE daemons are given as [`PrefixSets`] ([`LeakProtection`]): there everything between
//! near and far is held, whichever way it goes. Those of daemons, and those of the site beside them, come and go one by
//! one ([`PolicyProtection`]), and what none of them means passes. Each is for packets of one [`PolicyDirection`], which
//! has near, far and mixed prefixes of its own: what leaves, what comes in for this host, and what comes in for others.
//!
//! A second lock of `ip rule`s and routes, ahead of the tables of others, holds what is protected where somebody empties
//! the packet filter while no gateway runs.
//!
//! `unreachable` routes to far networks lie beneath those into the TUN interface, and outlive these. Without
//! them, the host would send its own packets from whatever address another route gives it once the interface has gone,
//! and an address that no policy names is not held.
//!
//! Packets that no hook of IP sees are not stopped: those of packet sockets (`packet(7)`), of bridges, and of flows
//! that were offloaded into a flow table before.

#![forbid(unsafe_code)]

mod asked;
mod chains;
mod error;
mod findings;
mod forgetting;
mod hidden;
mod interference;
mod links;
mod marks;
mod policy_direction;
mod policy_prefixes;
mod policy_protection;
mod prefix_sets;
mod queues;
mod routes;
mod rules;
mod second_lock;
mod standing;
mod table;
mod tracked;

use std::net::IpAddr;

use convoy_host::{LinkName, Mark};
use convoy_netlink::nft::Cover;
use ipnet::IpNet;

pub use self::{
    asked::{Asked, AskedTotal},
    error::LeakProtectionError,
    findings::{Finding, Look, Lookup, findings},
    interference::{Interference, interferences},
    marks::{Marks, Verdict},
    policy_direction::PolicyDirection,
    policy_prefixes::Policy,
    policy_protection::{Changed, PolicyProtection},
    prefix_sets::{Held, PrefixSets, Sides},
    queues::{Answered, Answers, Listener, Policies, Questions},
    standing::Repaired,
    table::Drops,
    tracked::{Fill, Others, Tracked, connections, has_legacy_rules, others},
};
use self::{
    policy_prefixes::PolicyPrefixes,
    prefix_sets::{Covers, Differences, differ},
    routes::Routes,
    rules::Rules,
    second_lock::SecondLock,
    standing::Standing,
    table::Table,
};

/// Settings of leak protection around one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The TUN interface; it need not exist yet. The table is named after it.
    pub tun: LinkName,
    /// Mark of the gateway's own packets.
    pub mark: Mark,
    /// The user of the gateway. Packets with its mark are exempt if a socket of this user or of root sent them: many
    /// programs that everybody may run can set marks (from Linux 5.17 on, those with `CAP_NET_RAW`).
    pub user: u32,
    /// UDP port that ESP comes to.
    pub udp_port: u16,
    /// Means by which packets are led into the TUN interface.
    pub leads: Lead,
    /// An interface whose packets the gateway itself forwards, and never the kernel. Then the TUN interface is for what the
    /// host itself sends to far networks, and leak protection leads it there.
    pub forwarding: Option<LinkName>,
    /// Settings of questions about packets of mixed prefixes, if there are any.
    pub questions: Questions,
}

impl Config {
    /// Leak protection around an interface, with the mark 0xc5000000/0xff000000 of this process's user, and UDP port
    /// 4500.
    #[must_use]
    pub fn new(tun: LinkName) -> Self {
        let (leads, questions) = (Lead::ByDestination, Questions::new());
        let user = nix::unistd::geteuid().as_raw();
        let forwarding = None;
        Self { tun, mark: Mark::GATEWAY, user, udp_port: 4500, leads, forwarding, questions }
    }

    /// The table, as in `nft list table inet convoy-convoy0`.
    #[must_use]
    pub fn table(&self) -> String {
        format!("{}{}", table::PREFIX, self.tun)
    }
}

/// Means by which packets are led into the TUN interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lead {
    /// By routes to far networks, which others lay. Where questions are asked, leak protection lays them.
    #[default]
    ByDestination,
    /// By marks, which leak protection writes on packets from near to far; others route to far networks as they like.
    ByMark,
}

impl Lead {
    const fn other(self) -> Self {
        match self {
            Self::ByDestination => Self::ByMark,
            Self::ByMark => Self::ByDestination,
        }
    }
}

/// Leak protection that stands. It outlives its value and its process; [`take_away`] ends it.
#[derive(Debug)]
pub struct LeakProtection {
    standing: Standing,
    sets: PrefixSets,
    covers: Covers,
}

impl LeakProtection {
    /// Protects these networks, in the calling thread's network namespace, in place of what an earlier life
    /// protected, in one step.
    ///
    /// Another process that holds the table gets a second to end.
    ///
    /// # Errors
    /// [`LeakProtectionError`]. The table stands as a whole, or is as it was.
    pub fn raise(config: Config, sets: PrefixSets) -> Result<Self, LeakProtectionError> {
        let covers = sets.covers();
        let standing = Standing::raise(config, covers.each_ref(), sets.routed.clone())?;
        Ok(Self { standing, sets, covers })
    }

    /// Prefixes that it protects.
    #[must_use]
    pub fn sets(&self) -> &PrefixSets {
        &self.sets
    }

    /// True if the kernel asks about some packets, and a [`Listener`] has to answer. Then the routes to far networks are
    /// this one's, too.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.standing.asks()
    }

    /// True if the second lock is left open, as there are too many near prefixes: then the table of the packet filter alone
    /// holds packets.
    #[must_use]
    pub fn has_one_lock_only(&self) -> bool {
        SecondLock::is_open(self.covers.each_ref())
    }

    /// The port of the netlink socket by which the table is changed: what came by others, others changed.
    #[must_use]
    pub fn port(&self) -> u32 {
        self.standing.port()
    }

    /// True if an address is a far one.
    #[must_use]
    pub fn is_far(&self, address: IpAddr) -> bool {
        let [_, far4, _, _, far6, ..] = &self.covers;
        let cover = if address.is_ipv4() { far4 } else { far6 };
        cover.contains(address)
    }

    /// Protects these networks in place of those before, in one step.
    ///
    /// # Errors
    /// [`LeakProtectionError`]. What packets may do is as it was then, or as it was to be.
    pub fn set(&mut self, sets: PrefixSets) -> Result<(), LeakProtectionError> {
        let covers = sets.covers();
        let mut differences = Differences::default();
        for ((before, after), note) in self.covers.iter().zip(&covers).zip(&mut differences) {
            differ(before, after, note);
        }
        let routed = sets.routed.clone();
        self.standing.change(covers.each_ref(), &differences)?;
        self.covers = covers;
        self.sets = sets;
        self.standing.route(routed)
    }

    /// Has the kernel track these packets as flows from now on, where questions are asked: before, all of them.
    ///
    /// # Errors
    /// [`LeakProtectionError`]; [`LeakProtection::repair`] tries again.
    pub fn track(&mut self, tracked: Tracked) -> Result<(), LeakProtectionError> {
        self.standing.track(tracked)
    }

    /// Makes again what others removed or changed. It changes nothing when there is nothing to repair.
    ///
    /// # Errors
    /// [`LeakProtectionError`].
    pub fn repair(&mut self) -> Result<Repaired, LeakProtectionError> {
        self.standing.repair(self.covers.each_ref())
    }

    /// The same without `ip rule`s and routes, which take longer to look at.
    ///
    /// # Errors
    /// [`LeakProtectionError`].
    pub fn repair_table(&mut self) -> Result<Repaired, LeakProtectionError> {
        self.standing.repair_table(self.covers.each_ref())
    }

    /// Packets that were dropped since the table was made; none where somebody changed it, and
    /// [`LeakProtection::repair`] is due.
    ///
    /// # Errors
    /// [`LeakProtectionError`].
    pub fn drops(&mut self) -> Result<Option<Drops>, LeakProtectionError> {
        self.standing.drops()
    }

    /// Has every answer of before forgotten: the next packet of each flow of mixed prefixes is asked about. To be
    /// called when other policies answer, and what was asked before is answered.
    ///
    /// # Errors
    /// [`LeakProtectionError`]. Answers of before may still be believed then.
    pub fn forget_answers(&mut self) -> Result<(), LeakProtectionError> {
        self.standing.forget_answers()
    }

    /// Ends it: packets go where routes lead, in clear.
    ///
    /// # Errors
    /// [`LeakProtectionError`]; some of it may still stand then.
    pub fn take_away(self) -> Result<(), LeakProtectionError> {
        self.standing.take_away()
    }
}

/// Removes the routes and `ip rule`s alone, which another kind of protection does not need.
///
/// # Errors
/// [`LeakProtectionError`]; some may still be there then.
pub fn remove_routes(config: Config) -> Result<(), LeakProtectionError> {
    let mut routes = Routes::open(&config)?;
    let mut rules = Rules::open(&config)?;
    let [of_marks, of_interface] = [Lead::ByMark, Lead::ByDestination]
        .map(|leads| SecondLock::open(&Config { leads, ..config.clone() }));
    let are_anothers = match Table::open(config).and_then(|mut table| table.is_marked_by_another())
    {
        Err(LeakProtectionError::Unsupported(_) | LeakProtectionError::Denied { .. }) => false,
        outcome => outcome?,
    };
    if !are_anothers {
        rules.remove()?;
        of_marks?.remove()?;
    }
    of_interface?.remove()?;
    routes.leave_tables(are_anothers);
    routes.remove()
}

/// Interfaces around which leak protection stands, in the calling thread's network namespace.
///
/// # Errors
/// [`LeakProtectionError`] when there is no packet filter, or this process may not look.
pub fn interfaces() -> Result<Vec<LinkName>, LeakProtectionError> {
    table::interfaces()
}

/// Ends leak protection around an interface, in the calling thread's network namespace: packets go where routes
/// lead, in clear. Whether there was any.
///
/// # Errors
/// [`LeakProtectionError`]; some of it may still stand then.
pub fn take_away(config: Config) -> Result<bool, LeakProtectionError> {
    let stood = match Table::open(config.clone()).and_then(|mut table| table.remove()) {
        // Without a packet filter there is no table.
        Err(LeakProtectionError::Unsupported(_)) => false,
        outcome => outcome?,
    };
    remove_routes(config).map(|()| stood)
}

/// True if the kernel would ask about some packets of these policies, if there were no others.
#[must_use]
pub fn would_ask(policies: &[Policy]) -> bool {
    let mut prefixes = PolicyPrefixes::default();
    let _ = prefixes.change(policies, &[]);
    table::asks(prefixes.covers())
}

/// The far prefixes of leak protection that stands around an interface, in the calling thread's network namespace.
///
/// # Errors
/// As [`stands`].
pub fn far(config: Config) -> Result<Vec<IpNet>, LeakProtectionError> {
    let [_, far4, _, _, far6, ..] = Table::open(config)?.present()?.unwrap_or_default();
    let of = |cover: &Cover, is_v4| -> Vec<IpNet> {
        cover.ranges().flat_map(|range| policy_prefixes::prefixes(range, is_v4)).collect()
    };
    Ok([of(&far4, true), of(&far6, false)].concat())
}

/// True if leak protection that stands around an interface asks about some packets, in the calling thread's network
/// namespace.
///
/// # Errors
/// As [`stands`].
pub fn asks(config: Config) -> Result<bool, LeakProtectionError> {
    let covers = Table::open(config)?.present()?.unwrap_or_default();
    Ok(table::asks(covers.each_ref()))
}

/// True if leak protection stands around an interface, in the calling thread's network namespace.
///
/// # Errors
/// [`LeakProtectionError`] when there is no packet filter, or this process may not look.
pub fn stands(config: Config) -> Result<bool, LeakProtectionError> {
    Ok(Table::open(config)?.present()?.is_some())
}
