//! A table, the rules and the routes that go with it.

use std::collections::BTreeSet;

use convoy_netlink::nft::Cover;
use ipnet::IpNet;

use crate::{
    config::{Config, Lead},
    error::LeakProtectionError,
    links::{Links, LooksAtMarks},
    routes::Routes,
    rules::Rules,
    second_lock::SecondLock,
    sets::{Differences, Shown, asks},
    table::{Drops, Table},
    tracked::Tracked,
};

/// Parts that a repair found missing and made again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The table was not as it should be.
    pub table: bool,
    /// `ip rule`s that were gone.
    pub rules: usize,
    /// Routes that were gone.
    pub routes: usize,
}

impl Repaired {
    /// True if there was anything to repair.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// Leak protection as the kernel has it.
#[derive(Debug)]
pub(crate) struct Installation {
    table: Table,
    routes: Routes,
    rules: Rules,
    links: Links,
    lock: SecondLock,
    leads: Lead,
    /// Networks beneath which an `unreachable` route is to lie.
    routed: BTreeSet<IpNet>,
}

impl Installation {
    /// Installs it in the calling thread's network namespace, in place of what an earlier life left.
    pub(crate) fn install(
        config: Config,
        covers: Shown<'_>,
        routed: BTreeSet<IpNet>,
    ) -> Result<Self, LeakProtectionError> {
        let routes = Routes::open(&config)?;
        let rules = Rules::open(&config)?;
        let links = Links::open(&config)?;
        let lock = SecondLock::open(&config)?;
        let leads = config.leads;
        let other = Config { leads: leads.other(), ..config.clone() };
        let mut table = Table::open(config)?;
        let made = table.may_mark(covers).and_then(|()| table.make(covers));
        if let Err(error) = made {
            // Without questions it is closed all the same.
            if asks(covers) {
                let (none, mut closed) = (&Cover::default(), covers);
                closed.iter_mut().for_each(|(_, prefixes)| prefixes.partly_bypassed = none);
                let _ = table.make(closed);
            }
            return Err(error);
        }
        let mut installation = Self { table, routes, rules, links, lock, leads, routed };
        installation.lead()?;
        installation.lock.make(covers)?;
        // An earlier life may have led in the other way.
        installation.unlock(&other)?;
        // Packets are lost at the worst; the first repair says why.
        let _ = installation.look_at_marks();
        Ok(installation)
    }

    /// The port of the socket that the table is changed by.
    pub(crate) const fn port(&self) -> u32 {
        self.table.port()
    }

    /// True if the kernel asks about some packets.
    pub(crate) const fn asks(&self) -> bool {
        self.table.asks()
    }

    /// Has the sets hold something else, in one step.
    pub(crate) fn change(
        &mut self,
        covers: Shown<'_>,
        differences: &Differences,
    ) -> Result<(), LeakProtectionError> {
        self.table.may_mark(covers)?;
        let did_ask = self.asks();
        self.table.change(covers, differences)?;
        // What marks say leads where it is to all the time.
        if self.leads == Lead::ByDestination && did_ask != self.asks() {
            self.lead()?;
        }
        self.lock.change(covers, differences)?;
        if did_ask == self.asks() { Ok(()) } else { self.look_at_marks() }
    }

    /// Has routes lie beneath these networks.
    pub(crate) fn route(&mut self, routed: BTreeSet<IpNet>) -> Result<(), LeakProtectionError> {
        self.routed = routed;
        self.lead()?;
        self.look_at_marks()
    }

    /// Networks beneath which routes lie.
    pub(crate) const fn routed(&self) -> &BTreeSet<IpNet> {
        &self.routed
    }

    /// As [`Table::follow_nat`].
    pub(crate) fn follow_nat(
        &mut self,
        follows: bool,
        covers: Shown<'_>,
    ) -> Result<(), LeakProtectionError> {
        self.table.follow_nat(follows, covers)
    }

    /// True if packets that NAT turns into protected ones are queued.
    pub(crate) const fn follows_nat(&self) -> bool {
        self.table.follows_nat()
    }

    /// The sets are not what they should be, and [`Installation::repair`] is due.
    pub(crate) const fn is_behind(&mut self) {
        self.table.is_behind();
    }

    /// Has the kernel track these packets as flows where questions are asked.
    pub(crate) fn track(&mut self, tracked: Tracked) -> Result<(), LeakProtectionError> {
        self.table.track(tracked)
    }

    /// Makes again what others removed or changed.
    pub(crate) fn repair(&mut self, covers: Shown<'_>) -> Result<Repaired, LeakProtectionError> {
        let Repaired { table, .. } = self.repair_table(covers)?;
        let (rules, routes) = self.lead()?;
        let locked = self.lock.make(covers)?;
        self.look_at_marks()?;
        Ok(Repaired { table, rules: rules + locked.0, routes: routes + locked.1 })
    }

    /// The same without rules and routes, which take longer to look at.
    pub(crate) fn repair_table(
        &mut self,
        covers: Shown<'_>,
    ) -> Result<Repaired, LeakProtectionError> {
        let table = !self.table.holds(covers)?;
        if table {
            self.table.may_mark(covers)?;
            self.table.make(covers)?;
        }
        Ok(Repaired { table, ..Repaired::default() })
    }

    pub(crate) fn drops(&mut self) -> Result<Option<Drops>, LeakProtectionError> {
        self.table.drops()
    }

    pub(crate) fn forget_answers(&mut self) -> Result<(), LeakProtectionError> {
        self.table.forget()
    }

    /// Makes the rules and routes that are missing, and removes others; how many were missing. No rule leads to a table
    /// that has no routes.
    fn lead(&mut self) -> Result<(usize, usize), LeakProtectionError> {
        if self.leads == Lead::ByMark || self.asks() {
            self.routes.leave_tables(false);
            let routes = self.routes.set(&self.routed, true)?;
            Ok((self.rules.make(!self.routed.is_empty())?, routes))
        } else {
            let are_anothers = self.table.is_marked_by_another()?;
            self.routes.leave_tables(are_anothers);
            let routes = self.routes.set(&self.routed, false)?;
            if !are_anothers {
                self.rules.remove()?;
            }
            Ok((0, routes))
        }
    }

    /// Has reverse path filters find the ways back that packets really take.
    fn look_at_marks(&mut self) -> Result<(), LeakProtectionError> {
        self.links.look_at_marks(match self.leads {
            _ if self.asks() => LooksAtMarks::Everywhere,
            Lead::ByMark => LooksAtMarks::Tun,
            Lead::ByDestination => LooksAtMarks::Nowhere,
        })
    }

    /// Removes the second lock of another way to lead packets.
    fn unlock(&mut self, config: &Config) -> Result<(), LeakProtectionError> {
        if config.leads == Lead::ByMark && self.table.is_marked_by_another()? {
            return Ok(());
        }
        SecondLock::open(config)?.remove().map(drop)
    }

    /// Ends it: packets go where routes lead.
    pub(crate) fn remove(mut self) -> Result<(), LeakProtectionError> {
        self.table.remove()?;
        self.rules.remove()?;
        self.lock.remove()?;
        self.routes.remove().map(drop)
    }
}
