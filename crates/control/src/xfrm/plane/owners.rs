//! Worker that owns an SA of a daemon.
//!
//! Sockets spread what arrives over workers by SPI modulo their number, and what comes to another worker than
//! the owner is handed over. So an inbound SA is its SPI's worker's, unless a rule of the site wants another one;
//! and where the SPI is chosen here, it is one of the worker that has least SAs. An outbound SA goes with the inbound one of
//! its tunnel. The worker of a live SA does not change: rules are for SAs that come.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use convoy_ipsec::sa::WorkerId;
use convoy_ipsec::selector::Direction;
use convoy_wire::Spi;

use super::ends::Ends;
use crate::site::WorkerRule;
use crate::xfrm::SpiClass;

/// An SA, as far as its owner depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned {
    pub(super) direction: Direction,
    pub(super) ends: Ends,
    /// Later SAs have higher ones.
    pub(super) serial: u64,
    pub(super) worker: WorkerId,
}

/// The workers, and the SAs that each has.
#[derive(Debug)]
pub(super) struct Owners {
    rules: Vec<WorkerRule>,
    /// Inbound and outbound SAs of each worker.
    counts: Vec<(usize, usize)>,
    /// Inbound SAs between two addresses, the oldest first.
    inbound: HashMap<Ends, BTreeMap<u64, WorkerId>>,
}

impl Owners {
    pub(super) fn new(workers: u16, rules: Vec<WorkerRule>) -> Self {
        let counts = vec![(0, 0); usize::from(workers.max(1))];
        Self { rules, counts, inbound: HashMap::new() }
    }

    /// Takes over rules, for SAs to come.
    pub(super) fn set_rules(&mut self, rules: Vec<WorkerRule>) {
        self.rules = rules;
    }

    /// Number of workers.
    fn workers(&self) -> u16 {
        u16::try_from(self.counts.len()).unwrap_or(u16::MAX)
    }

    /// The workers that may own SAs with this peer and interface identifier: those of the first rule that
    /// matches, or all.
    fn allowed(&self, peer: IpAddr, if_id: u32) -> impl Fn(WorkerId) -> bool {
        let rule = self.rules.iter().find(|rule| rule.sas.contains(peer, if_id));
        move |worker| rule.is_none_or(|rule| rule.workers.contains(&worker))
    }

    fn least(
        &self,
        is_allowed: impl Fn(WorkerId) -> bool,
        load: impl Fn(WorkerId) -> usize,
    ) -> WorkerId {
        let all = (0..self.workers()).map(WorkerId);
        all.filter(|worker| is_allowed(*worker))
            .min_by_key(|worker| load(*worker))
            .unwrap_or(WorkerId(0))
    }

    fn count(&self, worker: WorkerId) -> (usize, usize) {
        self.counts.get(usize::from(worker.0)).copied().unwrap_or_default()
    }

    /// The SPIs for an inbound SA that a daemon is about to make: those of the worker that has least, of
    /// those that may own it. `waiting` says how many SPIs of a class have been given out for SAs that are not here yet.
    /// Of workers that have equally many it is that of the oldest SA between the two addresses, for that is most likely
    /// the one that is to be replaced.
    pub(super) fn spis(
        &self,
        ends: Ends,
        if_id: u32,
        waiting: impl Fn(SpiClass) -> usize,
    ) -> SpiClass {
        let class = |worker: WorkerId| SpiClass::new(worker.0, self.workers());
        let is_allowed = self.allowed(ends.source, if_id);
        let load = |worker| self.count(worker).0 + waiting(class(worker));
        let least = self.least(&is_allowed, load);
        let oldest = self.inbound.get(&ends).and_then(BTreeMap::first_key_value);
        let oldest = oldest.map(|(_, worker)| *worker);
        let is_as_good = |worker: &WorkerId| is_allowed(*worker) && load(*worker) == load(least);
        class(oldest.filter(is_as_good).unwrap_or(least))
    }

    /// The owner of an inbound SA that comes.
    pub(super) fn of_inbound(&self, spi: Spi, ends: Ends, if_id: u32) -> WorkerId {
        let is_allowed = self.allowed(ends.source, if_id);
        let own = WorkerId(SpiClass::of(spi, self.workers()).remainder());
        if is_allowed(own) { own } else { self.least(is_allowed, |worker| self.count(worker).0) }
    }

    /// The owner of an outbound SA that comes; `partner` is that of the inbound SA of its tunnel.
    pub(super) fn of_outbound(
        &self,
        partner: Option<WorkerId>,
        ends: Ends,
        if_id: u32,
    ) -> WorkerId {
        let is_allowed = self.allowed(ends.destination, if_id);
        let partner = partner.filter(|worker| is_allowed(*worker));
        partner.unwrap_or_else(|| self.least(is_allowed, |worker| self.count(worker).1))
    }

    /// An SA came.
    pub(super) fn add(&mut self, sa: Owned) {
        let Owned { direction, ends, serial, worker } = sa;
        match (self.counts.get_mut(usize::from(worker.0)), direction) {
            (Some((inbound, _)), Direction::Inbound) => *inbound += 1,
            (Some((_, outbound)), Direction::Outbound) => *outbound += 1,
            (None, _) => {}
        }
        if direction == Direction::Inbound {
            self.inbound.entry(ends).or_default().insert(serial, worker);
        }
    }

    /// An SA went.
    pub(super) fn remove(&mut self, sa: Owned) {
        let Owned { direction, ends, serial, worker } = sa;
        let count = self.counts.get_mut(usize::from(worker.0));
        if direction == Direction::Outbound {
            if let Some((_, outbound)) = count {
                *outbound = outbound.saturating_sub(1);
            }
            return;
        }
        if let Some((inbound, _)) = count {
            *inbound = inbound.saturating_sub(1);
        }
        if let Some(between) = self.inbound.get_mut(&ends) {
            between.remove(&serial);
            if between.is_empty() {
                self.inbound.remove(&ends);
            }
        }
    }
}
