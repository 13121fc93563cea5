//! Going from one site to another on a running gateway.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::sa::{InboundSpec, OutboundSpec};
use convoy_ipsec::snapshot::Snapshot;
use convoy_wire::Prefix;

use super::build::Lists;
use super::difference::{self, Databases};
use super::keys::SiteKeys;
use super::{ByName, Drivers, ReloadReport, State, StateError, Tables, build};
use crate::site::{Policy as SitePolicy, Routes, Site};

impl State {
    /// Brings a new site into force. Workers see it at their next burst; no packet is lost: SAs that
    /// stay keep their sequence numbers and windows.
    ///
    /// # Errors
    /// [`StateError`]; then nothing has changed.
    pub fn reload(&mut self, site: Site) -> Result<ReloadReport, StateError> {
        self.check_reload(&site)?;
        let keys = SiteKeys::of(&self.site);
        same_use_of_keys(&keys, &site)?;
        let policies = build::policies(&site, &self.tables);
        let drivers = self.drivers.with_rules(&site.drivers);
        let maker = build::Maker {
            drivers: &drivers,
            wire_mtu: self.wire_mtu,
            keeper: self.keeper.as_ref(),
            reqids: &policies.reqids,
        };
        let plan = build::plan(&site, &self.tables, &keys);
        let made = maker.make(&plan, &site, &self.writer.current())?;
        let mut tables = made.tables;
        tables.next_reqid = policies.next_reqid;
        let mut report = self.compare(&site, &tables);
        let mut draft = self.writer.draft();
        let filled = fill(&mut draft, &self.databases, policies.lists, &tables, &self.tables);
        let databases = match filled {
            Ok(databases) => databases,
            Err(error) => {
                if let Some(keeper) = &self.keeper {
                    keeper.release(&made.fresh_leases, &made.fresh_floors);
                }
                return Err(error);
            }
        };
        let on_demand: HashSet<_> = policies.on_demand.into_iter().collect();
        self.on_demand.difference(&on_demand).for_each(|old| draft.make_beforehand(*old));
        on_demand.iter().for_each(|reqid| draft.make_on_demand(*reqid));
        report.generation = draft.commit();
        self.generation = report.generation;
        let (leases, floors) = self.tables.gone(&tables);
        if let Some(keeper) = &self.keeper {
            keeper.release(&leases, &floors);
            keeper.set_blocks(site.outbound.iter().filter_map(|sa| {
                let (_, spec) = tables.outbound.get(&sa.association.name)?;
                Some((spec.lease.as_arc(), sa.lease_block))
            }));
        }
        self.tables = tables;
        self.drivers = drivers;
        self.databases = databases;
        self.on_demand = on_demand;
        self.site = site;
        // All of its keys were leased, so they are new.
        self.spent = None;
        Ok(report)
    }

    /// Takes over the largest outer packet in bytes where neither an SA nor the site says. SAs that
    /// it concerns begin anew with it, whatever routers have said; workers see it at their next
    /// burst, and no packet is lost. Returns whether anything changed.
    ///
    /// # Errors
    /// [`StateError`]; then nothing has changed.
    pub fn set_wire_mtu(&mut self, mtu: u16) -> Result<bool, StateError> {
        if self.site.wire.mtu.is_some() || self.wire_mtu == mtu {
            return Ok(false);
        }
        let drivers = self.drivers.clone();
        self.make_again(mtu, &drivers)?;
        self.wire_mtu = mtu;
        Ok(true)
    }

    /// Takes over drivers that are set otherwise. SAs that now have another one go on with it from their
    /// workers' next burst, and no packet is lost. Returns how many these are.
    ///
    /// # Errors
    /// [`StateError`], if one would have none; then nothing has changed.
    pub fn set_drivers(&mut self, drivers: Drivers) -> Result<usize, StateError> {
        let changed = self.make_again(self.wire_mtu, &drivers)?;
        self.drivers = drivers;
        Ok(changed)
    }

    /// Makes the site's SAs again where they would be others now. Returns how many these are.
    fn make_again(&mut self, wire_mtu: u16, drivers: &Drivers) -> Result<usize, StateError> {
        if self.spent.is_some() {
            // None of the site's SAs is there or can be had again, but those of daemons come and go.
            return Ok(0);
        }
        let policies = build::policies(&self.site, &self.tables);
        let maker = build::Maker {
            drivers,
            wire_mtu,
            keeper: self.keeper.as_ref(),
            reqids: &policies.reqids,
        };
        let plan = build::plan(&self.site, &self.tables, &SiteKeys::of(&self.site));
        // Every key is known, so nothing is leased.
        let mut tables = maker.make(&plan, &self.site, &self.writer.current())?.tables;
        tables.next_reqid = policies.next_reqid;
        let changed = tables.differing(&self.tables);
        if changed > 0 {
            let mut draft = self.writer.draft();
            tables.bring(&self.tables, &mut draft)?;
            self.generation = draft.commit();
        }
        self.tables = tables;
        Ok(changed)
    }

    fn compare(&self, site: &Site, tables: &Tables) -> ReloadReport {
        let mut report = ReloadReport::default();
        let old = &self.tables;
        note(&mut report, &old.outbound, &tables.outbound, lease_of);
        note(&mut report, &old.inbound, &tables.inbound, floor_of);
        let (before, after) = (by_name(&self.site), by_name(site));
        for (name, policy) in &after {
            match before.get(name) {
                None => report.policies_added.push(name.to_string()),
                Some(old) if old != policy => report.policies_changed.push(name.to_string()),
                Some(_) => {}
            }
        }
        report.policies_removed = missing(&before, &after);
        if site.plain.routes == Routes::FromPolicies {
            let (before, after) = (self.site.protected_networks(), site.protected_networks());
            // Both are sorted.
            let without = |all: &[Prefix], others: &[Prefix]| {
                all.iter().filter(|n| others.binary_search(n).is_err()).copied().collect()
            };
            report.routes_added = without(&after, &before);
            report.routes_removed = without(&before, &after);
        }
        for names in [
            &mut report.sas_added,
            &mut report.sas_changed,
            &mut report.sas_replaced,
            &mut report.sas_removed,
            &mut report.policies_added,
            &mut report.policies_changed,
            &mut report.policies_removed,
        ] {
            names.sort();
        }
        report
    }
}

/// Changes a draft to hold these policies and SAs in the place of those of `before`.
fn fill(
    draft: &mut Snapshot,
    databases: &Databases,
    policies: Lists,
    tables: &Tables,
    before: &Tables,
) -> Result<Databases, StateError> {
    let databases = difference::databases(draft, databases, policies)?;
    tables.bring(before, draft)?;
    Ok(databases)
}

/// A site's policies by name.
fn by_name(site: &Site) -> HashMap<Arc<str>, &SitePolicy> {
    site.policies.iter().map(|policy| (policy.name.clone(), policy)).collect()
}

/// Address of what a key keeps: the same as long as it is the same key.
fn lease_of(sa: &OutboundSpec) -> *const () {
    Arc::as_ptr(sa.lease.as_arc()).cast()
}

fn floor_of(sa: &InboundSpec) -> *const () {
    Arc::as_ptr(sa.counters.as_arc()).cast()
}

fn note<S>(
    report: &mut ReloadReport,
    before: &ByName<S>,
    after: &ByName<S>,
    key: impl Fn(&S) -> *const (),
) {
    // Whatever they were called.
    let known: HashSet<_> = before.values().map(|(_, old)| key(old)).collect();
    for (name, (_, new)) in after {
        let kept = known.contains(&key(new));
        match before.get(name) {
            Some((_, old)) if Arc::ptr_eq(old, new) => report.sas_unchanged += 1,
            _ if kept => report.sas_changed.push(name.to_string()),
            Some(_) => report.sas_replaced.push(name.to_string()),
            None => report.sas_added.push(name.to_string()),
        }
    }
    report.sas_removed.extend(missing(before, after));
}

fn missing<K: Eq + Hash + ToString, V, W>(
    before: &HashMap<K, V>,
    after: &HashMap<K, W>,
) -> Vec<String> {
    before.keys().filter(|name| !after.contains_key(*name)).map(ToString::to_string).collect()
}

impl Tables {
    /// Number of these SAs that have other records than before.
    fn differing(&self, before: &Self) -> usize {
        fn count<S>(now: &ByName<S>, before: &ByName<S>) -> usize {
            let same = |(name, (_, new)): &(&Arc<str>, &(_, Arc<S>))| {
                before.get(*name).is_some_and(|(_, old)| Arc::ptr_eq(old, new))
            };
            now.iter().filter(|sa| !same(sa)).count()
        }
        count(&self.outbound, &before.outbound) + count(&self.inbound, &before.inbound)
    }

    /// Leases and floors that no record has any more.
    fn gone(
        &self,
        after: &Self,
    ) -> (Vec<Arc<convoy_ipsec::sequence::Lease>>, Vec<Arc<SaCounters>>) {
        let leases: HashSet<_> = after.outbound.values().map(|(_, sa)| lease_of(sa)).collect();
        let floors: HashSet<_> = after.inbound.values().map(|(_, sa)| floor_of(sa)).collect();
        let outbound = self.outbound.values().filter(|(_, sa)| !leases.contains(&lease_of(sa)));
        let inbound = self.inbound.values().filter(|(_, sa)| !floors.contains(&floor_of(sa)));
        (
            outbound.map(|(_, sa)| sa.lease.as_arc().clone()).collect(),
            inbound.map(|(_, sa)| sa.counters.as_arc().clone()).collect(),
        )
    }
}

/// A key keeps its direction and the size of its sequence numbers.
fn same_use_of_keys(old: &SiteKeys<'_>, new: &Site) -> Result<(), StateError> {
    let outbound = new.outbound.iter().map(|sa| &sa.association);
    let outbound = outbound.map(|sa| (sa, old.outbound(&sa.key), old.inbound(&sa.key)));
    let inbound = new.inbound.iter().map(|sa| &sa.association);
    let inbound = inbound.map(|sa| (sa, old.inbound(&sa.key), old.outbound(&sa.key)));
    for (sa, same_way, other_way) in outbound.chain(inbound) {
        let refused = |what| StateError::KeyReused { name: sa.name.clone(), what };
        if other_way.is_some() {
            return Err(refused("its key was used in the other direction"));
        }
        if same_way.is_some_and(|old| old.esn != sa.esn) {
            return Err(refused("extended sequence numbers cannot be switched under one key"));
        }
    }
    Ok(())
}
