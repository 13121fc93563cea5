//! Going from one site to another on a running gateway.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::{ReloadReport, State, StateError, build};
use crate::site::{Association, Routes, Site};

impl State {
    /// Brings a new site into force. Workers see it at their next burst; no packet is lost: SAs that
    /// stay keep their sequence numbers and windows.
    ///
    /// # Errors
    /// [`StateError`]; then nothing has changed.
    pub fn reload(&mut self, site: Site) -> Result<ReloadReport, StateError> {
        let restart = needs_restart(&self.site, &site);
        if !restart.is_empty() {
            return Err(StateError::NeedsRestart(restart));
        }
        same_use_of_keys(&self.site, &site)?;
        let policies = build::policies(&site, &self.tables)?;
        let maker = build::Maker {
            cpu: &self.cpu,
            wire_mtu: self.wire_mtu,
            keeper: self.keeper.as_ref(),
            reqids: &policies.reqids,
        };
        let plan = build::plan(&site, &self.tables, &build::PriorKeys::of(&self.site));
        let made = maker.make(&plan, &site, &self.tables)?;
        let mut tables = made.tables;
        tables.next_reqid = policies.next_reqid;
        let snapshot = match tables.snapshot(policies.spd) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                if let Some(keeper) = &self.keeper {
                    keeper.release(&made.fresh_leases, &made.fresh_floors);
                }
                return Err(error.into());
            }
        };

        let mut report = self.compare(&site, &tables);
        report.generation = self.published.publish(snapshot);
        self.generation = report.generation;
        let (leases, floors) = self.tables.gone(&tables);
        if let Some(keeper) = &self.keeper {
            keeper.release(&leases, &floors);
            for sa in &site.outbound {
                if let Some((_, spec)) = tables.outbound.get(&sa.association.name) {
                    keeper.set_block(&spec.lease, sa.lease_block);
                }
            }
        }
        self.tables = tables;
        self.site = site;
        Ok(report)
    }

    fn compare(&self, site: &Site, tables: &super::Tables) -> ReloadReport {
        let mut report = ReloadReport::default();
        let old = &self.tables;
        note(&mut report, &old.outbound, &tables.outbound, |a, b| Arc::ptr_eq(&a.lease, &b.lease));
        note(&mut report, &old.inbound, &tables.inbound, |a, b| Arc::ptr_eq(&a.floor, &b.floor));
        let policies = |site: &Site| -> HashMap<Arc<str>, _> {
            site.policies.iter().map(|policy| (policy.name.clone(), policy.clone())).collect()
        };
        let (before, after) = (policies(&self.site), policies(site));
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
            report.routes_added = after.iter().filter(|n| !before.contains(n)).copied().collect();
            report.routes_removed = before.into_iter().filter(|n| !after.contains(n)).collect();
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

type ByName<S> = HashMap<Arc<str>, (convoy_ipsec::sa::SaSlot, Arc<S>)>;

fn note<S>(
    report: &mut ReloadReport,
    before: &ByName<S>,
    after: &ByName<S>,
    same_key: impl Fn(&S, &S) -> bool,
) {
    for (name, (_, new)) in after {
        // Whatever it was called.
        let kept = before.values().any(|(_, old)| same_key(old, new));
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

impl super::Tables {
    /// Leases and floors that no record has any more.
    fn gone(
        &self,
        after: &Self,
    ) -> (Vec<Arc<convoy_ipsec::sequence::Lease>>, Vec<Arc<convoy_ipsec::replay::Floor>>) {
        let leases = self.outbound.values().map(|(_, sa)| &sa.lease);
        let leases = leases
            .filter(|lease| !after.outbound.values().any(|(_, sa)| Arc::ptr_eq(&sa.lease, lease)));
        let floors = self.inbound.values().map(|(_, sa)| &sa.floor);
        let floors = floors
            .filter(|floor| !after.inbound.values().any(|(_, sa)| Arc::ptr_eq(&sa.floor, floor)));
        (leases.cloned().collect(), floors.cloned().collect())
    }
}

/// Settings that differ and cannot change on a running gateway.
fn needs_restart(old: &Site, new: &Site) -> Vec<String> {
    let settings = [
        ("name", old.name == new.name),
        ("namespace", old.namespace == new.namespace),
        ("state_dir", old.state_dir == new.state_dir),
        ("control_socket", old.control_socket == new.control_socket),
        ("plain.backend", old.plain.backend == new.plain.backend),
        ("plain.interface", old.plain.interface == new.plain.interface),
        ("plain.addresses", old.plain.addresses == new.plain.addresses),
        ("plain.mtu", old.plain.mtu == new.plain.mtu),
        ("plain.routes", old.plain.routes == new.plain.routes),
        ("wire.backend", old.wire.backend == new.wire.backend),
        ("wire.interface", old.wire.interface == new.wire.interface),
        ("wire.udp_port", old.wire.udp_port == new.wire.udp_port),
        ("wire.mtu", old.wire.mtu == new.wire.mtu),
        ("workers", old.workers == new.workers),
        ("capture", old.capture == new.capture),
        // Sockets are opened at the start.
        ("the first SA with UDP encapsulation", old.uses_udp() || !new.uses_udp()),
        ("the first SA without encapsulation", old.uses_native_esp() || !new.uses_native_esp()),
    ];
    let mut changed: Vec<_> =
        settings.into_iter().filter(|(_, same)| !same).map(|(name, _)| name.to_owned()).collect();
    for sa in new.associations() {
        let before = old.associations().find(|old| old.key.same_nonces(&sa.key));
        if before.is_some_and(|before| before.worker != sa.worker) {
            changed.push(format!("sa[{}].worker", sa.name));
        }
    }
    changed
}

/// A key keeps its direction and the size of its sequence numbers.
fn same_use_of_keys(old: &Site, new: &Site) -> Result<(), StateError> {
    let find = |site: &Site, outbound: bool, sa: &Association| -> Option<bool> {
        let list: Vec<&Association> = if outbound {
            site.outbound.iter().map(|sa| &sa.association).collect()
        } else {
            site.inbound.iter().map(|sa| &sa.association).collect()
        };
        list.iter().find(|other| other.key.same_nonces(&sa.key)).map(|other| other.esn)
    };
    let outbound = new.outbound.iter().map(|sa| (true, &sa.association));
    let inbound = new.inbound.iter().map(|sa| (false, &sa.association));
    for (is_outbound, sa) in outbound.chain(inbound) {
        let refused = |what| StateError::KeyReused { name: sa.name.clone(), what };
        if find(old, !is_outbound, sa).is_some() {
            return Err(refused("its key was used in the other direction"));
        }
        if find(old, is_outbound, sa).is_some_and(|esn| esn != sa.esn) {
            return Err(refused("extended sequence numbers cannot be switched under one key"));
        }
    }
    Ok(())
}
