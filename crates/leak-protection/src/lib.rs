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
//!   ESP in UDP, ICMP errors about these, and Neighbour Discovery get through.
//! * The gateway's own packets get out. They bear a [`Mark`]; no port and no address opens anything.
//!
//! The table has as many rules for ten thousand networks as for one. Where the kernel knows owners of tables that
//! outlive them (Linux 6.9), nobody else can change it while the gateway runs, `nft flush ruleset` included.
//!
//! `unreachable` routes to far networks lie beneath those into the TUN interface, and outlive these. Without
//! them, the host would send its own packets from whatever address another route gives it once the interface has gone,
//! and an address that no policy names is not held.
//!
//! Packets that no hook of IP sees are not stopped: those of packet sockets (`packet(7)`), of bridges, and of flows
//! that were offloaded into a flow table before.

#![forbid(unsafe_code)]

mod chains;
mod error;
mod prefix_sets;
mod routes;
mod table;

use std::net::IpAddr;

use convoy_host::{LinkName, Mark};
use convoy_netlink::nft::number;

pub use self::{
    error::LeakProtectionError,
    prefix_sets::{PrefixSets, Sides},
    table::Drops,
};
use self::{
    prefix_sets::{Covers, Differences, differ},
    routes::Routes,
    table::Table,
};

/// Where leak protection stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The TUN interface; it need not exist yet. The table is named after it.
    pub tun: LinkName,
    /// What the gateway's own packets bear.
    pub mark: Mark,
    /// UDP port that ESP comes to.
    pub udp_port: u16,
}

impl Config {
    /// Leak protection around an interface, with the mark 0xc5000000/0xff000000 and UDP port 4500.
    #[must_use]
    pub const fn new(tun: LinkName) -> Self {
        Self { tun, mark: Mark::GATEWAY, udp_port: 4500 }
    }

    /// The table, as in `nft list table inet convoy-convoy0`.
    #[must_use]
    pub fn table(&self) -> String {
        format!("{}{}", table::PREFIX, self.tun)
    }
}

/// What [`LeakProtection::repair`] found missing and made again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The table was not as it should be.
    pub table: bool,
    /// `unreachable` routes that were gone.
    pub routes: usize,
}

impl Repaired {
    /// Whether there was anything to repair.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// Leak protection that stands. It outlives its value and its process; [`take_away`] ends it.
#[derive(Debug)]
pub struct LeakProtection {
    table: Table,
    routes: Routes,
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
        let routes = Routes::open(&config.tun)?;
        let mut table = Table::open(config)?;
        let covers = sets.covers();
        table.make(&covers)?;
        let mut raised = Self { table, routes, sets, covers };
        raised.lay_routes()?;
        Ok(raised)
    }

    /// What it protects.
    #[must_use]
    pub fn sets(&self) -> &PrefixSets {
        &self.sets
    }

    /// Whether an address is a far one.
    #[must_use]
    pub fn is_far(&self, address: IpAddr) -> bool {
        let [_, far4, _, far6] = &self.covers;
        let cover = if address.is_ipv4() { far4 } else { far6 };
        cover.ranges().any(|(from, to)| (from..=to).contains(&number(address)))
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
        self.table.change(&covers, &differences)?;
        self.covers = covers;
        self.sets = sets;
        self.lay_routes().map(|_| ())
    }

    /// Makes again what others removed or changed. It changes nothing when there is nothing to repair.
    ///
    /// # Errors
    /// [`LeakProtectionError`].
    pub fn repair(&mut self) -> Result<Repaired, LeakProtectionError> {
        let table = !self.table.holds(&self.covers)?;
        if table {
            self.table.make(&self.covers)?;
        }
        Ok(Repaired { table, routes: self.lay_routes()? })
    }

    /// Packets that were dropped since the table was made; none where somebody changed it, and
    /// [`LeakProtection::repair`] is due.
    ///
    /// # Errors
    /// [`LeakProtectionError`].
    pub fn drops(&mut self) -> Result<Option<Drops>, LeakProtectionError> {
        self.table.drops()
    }

    fn lay_routes(&mut self) -> Result<usize, LeakProtectionError> {
        self.routes.set(&self.sets.routed)
    }
}

/// Removes the `unreachable` routes alone, which another kind of protection does not need.
///
/// # Errors
/// [`LeakProtectionError`]; some may still be there then.
pub fn remove_routes(tun: &LinkName) -> Result<(), LeakProtectionError> {
    Routes::open(tun)?.set(&Default::default()).map(|_| ())
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
    let mut routes = Routes::open(&config.tun)?;
    let stood = match Table::open(config).and_then(|mut table| table.remove()) {
        // Without a packet filter there is no table.
        Err(LeakProtectionError::Unsupported(_)) => false,
        outcome => outcome?,
    };
    routes.set(&Default::default()).map(|_| stood)
}

/// Whether leak protection stands around an interface, in the calling thread's network namespace.
///
/// # Errors
/// [`LeakProtectionError`] when there is no packet filter, or this process may not look.
pub fn stands(config: Config) -> Result<bool, LeakProtectionError> {
    Ok(Table::open(config)?.present()?.is_some())
}
