//! Making cold records and policies of a site, with what can be kept of the ones before.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use convoy_crypto::{OpenKey, SealKey};
use convoy_engine::registry::{Drivers, Ready};
use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::sa::{
    AhAlignment, InboundSpec, InterfaceId, OutboundSpec, ReqId, SaSlot, SaSpec, Shared,
};
use convoy_ipsec::selector::{AddressRange, AddressSelector, Direction, Selector, UpperSelector};
use convoy_ipsec::sequence::Lease;
use convoy_ipsec::snapshot::{MAX_SLOTS, Snapshot, SnapshotError};
use convoy_ipsec::spd::{Policy, PolicyAction};

use super::keys::SiteKeys;
use super::{StateError, Tables};
use crate::lease::{InboundRequest, LeaseKeeper, OutboundRequest};
use crate::site::{
    Action, Addresses, Association, InboundSa, OutboundSa, Policy as SitePolicy, Site, Upper,
};

/// Policies of each database in their order, and the reqid of each SA by name.
pub(super) struct Policies {
    pub(super) lists: Lists,
    pub(super) reqids: HashMap<Arc<str>, ReqId>,
    pub(super) next_reqid: u32,
    /// Whose SAs are made on demand.
    pub(super) on_demand: Vec<ReqId>,
}

/// The policies of databases by name; the common one has none.
pub(super) type Lists = BTreeMap<Option<Arc<str>>, Vec<Policy>>;

/// Expands policies and gives every SA its reqid; SAs that were there keep theirs where they can.
pub(super) fn policies(site: &Site, before: &Tables) -> Policies {
    let mut reqids =
        Reqids { of: HashMap::new(), taken: HashSet::new(), next: before.next_reqid.max(1) };
    // These are there whatever is in them.
    let interfaces = site.xfrm_interfaces().iter();
    let always = [None, site.plain.spd.clone()].into_iter();
    let always = always.chain(interfaces.map(|interface| Some(database_of(interface.if_id))));
    let mut lists: Lists = always.map(|name| (name, Vec::new())).collect();
    let mut on_demand = Vec::new();
    for policy in &site.policies {
        let action = match &policy.action {
            Action::Bypass => PolicyAction::Bypass,
            Action::Discard => PolicyAction::Discard,
            Action::Protect { sa_out, sa_in } => {
                let names: Vec<_> = sa_out.iter().chain(sa_in).cloned().collect();
                PolicyAction::Protect { reqid: reqids.of_group(&names, before) }
            }
        };
        if let (true, PolicyAction::Protect { reqid }) = (policy.acquire, action) {
            on_demand.push(reqid);
        }
        let selectors = selectors(policy);
        let list = lists.entry(policy.spd.clone()).or_default();
        for (direction, given) in [
            (Direction::Outbound, policy.acquire || sends(&policy.action)),
            (Direction::Inbound, receives(&policy.action)),
        ] {
            // What has no SA for this direction is dropped, and seen as a policy's decision.
            let action = if given { action } else { PolicyAction::Discard };
            for selector in &selectors {
                let name = policy.name.clone();
                list.push(Policy {
                    name,
                    priority: policy.priority,
                    direction,
                    selector: *selector,
                    action,
                });
            }
        }
    }
    for association in site.associations() {
        reqids.of_group(std::slice::from_ref(&association.name), before);
    }
    Policies { lists, reqids: reqids.of, next_reqid: reqids.next, on_demand }
}

/// The database of an interface for daemons' SAs. No database of a site file has a name with a space.
pub(super) fn database_of(if_id: u32) -> Arc<str> {
    format!("if_id {if_id}").into()
}

fn sends(action: &Action) -> bool {
    !matches!(action, Action::Protect { sa_out: None, .. })
}

fn receives(action: &Action) -> bool {
    !matches!(action, Action::Protect { sa_in, .. } if sa_in.is_empty())
}

struct Reqids {
    of: HashMap<Arc<str>, ReqId>,
    taken: HashSet<ReqId>,
    next: u32,
}

impl Reqids {
    /// One reqid for SAs that stand together: that of one of them, of now or before, or a new one.
    fn of_group(&mut self, names: &[Arc<str>], before: &Tables) -> ReqId {
        let known = names.iter().find_map(|name| self.of.get(name).copied());
        let old = || {
            names.iter().filter_map(|name| before.reqid(name)).find(|id| !self.taken.contains(id))
        };
        let reqid = match known.or_else(old) {
            Some(reqid) => reqid,
            None => {
                self.next += 1;
                ReqId(self.next - 1)
            }
        };
        self.taken.insert(reqid);
        for name in names {
            self.of.insert(name.clone(), reqid);
        }
        reqid
    }
}

/// The selectors of a policy, each once.
fn selectors(policy: &SitePolicy) -> Vec<Selector> {
    let upper = match policy.upper {
        Upper::Any => UpperSelector::Any,
        Upper::Ports { local, remote } => {
            UpperSelector::Ports { local: local.into(), remote: remote.into() }
        }
        Upper::Icmp { types, codes } => UpperSelector::Icmp { types, codes },
    };
    let mut selectors: Vec<Selector> = Vec::new();
    for (local, remote) in policy.address_pairs() {
        let selector = Selector {
            local: range(local),
            remote: range(remote),
            protocol: policy.protocol,
            upper,
        };
        if !selectors.contains(&selector) {
            selectors.push(selector);
        }
    }
    selectors
}

/// Everything of one IP version stays a range: ANY would match the other version too.
fn range(addresses: Addresses) -> AddressSelector {
    AddressRange::new(addresses.first(), addresses.last())
        .map_or(AddressSelector::Any, AddressSelector::Range)
}

/// Sources of the SAs of the new site, in its order.
pub(super) struct Plan {
    pub(super) outbound: Vec<Origin<OutboundSpec>>,
    pub(super) inbound: Vec<Origin<InboundSpec>>,
}

/// Source of an SA.
pub(super) enum Origin<S> {
    /// Its nonces, or numbers, were in use before, by this record in this slot.
    Kept {
        slot: SaSlot,
        spec: Arc<S>,
        /// True if the suite and all keys are as they were: of a pair like AES-CTR with HMAC, the
        /// nonces do not tell.
        same_key: bool,
    },
    /// Its key is new.
    New,
}

/// Finds for each SA the record that had its nonces; `keys` are those of the site before.
pub(super) fn plan(site: &Site, before: &Tables, keys: &SiteKeys<'_>) -> Plan {
    let outbound = site.outbound.iter().map(|sa| {
        let key = &sa.association.key;
        let old = keys.outbound(key);
        match old.and_then(|old| Some((old, before.outbound.get(&old.name)?))) {
            Some((old, (slot, spec))) => {
                let same_key = old.key.same_in_all(key);
                Origin::Kept { slot: *slot, spec: spec.clone(), same_key }
            }
            None => Origin::New,
        }
    });
    let inbound = site.inbound.iter().map(|sa| {
        let key = &sa.association.key;
        let old = keys.inbound(key);
        match old.and_then(|old| Some((old, before.inbound.get(&old.name)?))) {
            Some((old, (slot, spec))) => {
                let same_key = old.key.same_in_all(key);
                Origin::Kept { slot: *slot, spec: spec.clone(), same_key }
            }
            None => Origin::New,
        }
    });
    Plan { outbound: outbound.collect(), inbound: inbound.collect() }
}

/// Inputs of all records.
pub(super) struct Maker<'a> {
    pub(super) drivers: &'a Drivers,
    pub(super) wire_mtu: u16,
    pub(super) keeper: Option<&'a LeaseKeeper>,
    pub(super) reqids: &'a HashMap<Arc<str>, ReqId>,
}

/// Records of a new site. Leases and floors in `fresh` belong to nobody yet.
pub(super) struct Made {
    pub(super) tables: Tables,
    pub(super) fresh_leases: Vec<Arc<Lease>>,
    pub(super) fresh_floors: Vec<Arc<SaCounters>>,
}

impl Maker<'_> {
    /// Leases what is new, sets up keys, and gives slots that are free in the snapshot of now. An SA whose
    /// description is as it was keeps its very record.
    pub(super) fn make(
        &self,
        plan: &Plan,
        site: &Site,
        snapshot: &Snapshot,
    ) -> Result<Made, StateError> {
        let new_out =
            site.outbound.iter().zip(&plan.outbound).filter(|(_, o)| matches!(o, Origin::New));
        let new_out: Vec<_> = new_out.map(|(sa, _)| lease_request(sa)).collect();
        let new_in =
            site.inbound.iter().zip(&plan.inbound).filter(|(_, o)| matches!(o, Origin::New));
        let new_in: Vec<_> = new_in.map(|(sa, _)| (sa, Arc::default())).collect();
        let floors: Vec<_> = new_in.iter().map(|(sa, of)| floor_request(sa, of)).collect();
        let leases = match self.keeper {
            Some(keeper) => keeper.acquire(&new_out, &floors)?,
            None if new_out.is_empty() && new_in.is_empty() => Vec::new(),
            None => return Err(StateError::NoStateFolder(WHY)),
        };
        let floors: Vec<_> = new_in.into_iter().map(|(_, counters)| counters).collect();
        let made = self.records(plan, site, snapshot, &leases, &floors);
        if made.is_err()
            && let Some(keeper) = self.keeper
        {
            keeper.release(&leases, &floors);
        }
        let tables = made?;
        Ok(Made { tables, fresh_leases: leases, fresh_floors: floors })
    }

    fn records(
        &self,
        plan: &Plan,
        site: &Site,
        snapshot: &Snapshot,
        leases: &[Arc<Lease>],
        floors: &[Arc<SaCounters>],
    ) -> Result<Tables, StateError> {
        let mut tables = Tables::default();
        // SAs that go are in the snapshot still, so no slot changes hands at once.
        let mut slots = snapshot.free_outbound();
        let mut leases = leases.iter();
        for (sa, origin) in site.outbound.iter().zip(&plan.outbound) {
            let (slot, spec) = match origin {
                Origin::Kept { slot, spec, same_key } => {
                    (*slot, self.changed_outbound(sa, spec, *same_key)?)
                }
                Origin::New => {
                    let Some(lease) = leases.next() else { continue };
                    let key = self.seal_key(sa, &self.driver(&sa.association)?)?;
                    let counters = Shared::default();
                    let lease = lease.clone().into();
                    (slots.next().ok_or(FULL)?, Arc::new(self.outbound(sa, lease, key, counters)))
                }
            };
            tables.outbound.insert(sa.association.name.clone(), (slot, spec));
        }
        let mut slots = snapshot.free_inbound();
        let mut floors = floors.iter();
        for (sa, origin) in site.inbound.iter().zip(&plan.inbound) {
            let (slot, spec) = match origin {
                Origin::Kept { slot, spec, same_key } => {
                    (*slot, self.changed_inbound(sa, spec, *same_key)?)
                }
                Origin::New => {
                    let Some(counters) = floors.next() else { continue };
                    let key = self.open_key(sa, &self.driver(&sa.association)?)?;
                    let counters = counters.clone().into();
                    (slots.next().ok_or(FULL)?, Arc::new(self.inbound(sa, key, counters)))
                }
            };
            tables.inbound.insert(sa.association.name.clone(), (slot, spec));
        }
        Ok(tables)
    }

    fn changed_outbound(
        &self,
        sa: &OutboundSa,
        old: &Arc<OutboundSpec>,
        same_key: bool,
    ) -> Result<Arc<OutboundSpec>, StateError> {
        let driver = self.driver(&sa.association)?;
        let is_same = same_key && driver.tier() == Some(old.key.tier());
        let key = if is_same { old.key.clone() } else { self.seal_key(sa, &driver)? };
        let new = self.outbound(sa, old.lease.clone(), key, old.counters.clone());
        let is_there = old.endpoints.local != new.endpoints.local || old.source_is_here;
        let new = OutboundSpec { source_is_here: is_there, ..new };
        Ok(if **old == new { old.clone() } else { Arc::new(new) })
    }

    fn changed_inbound(
        &self,
        sa: &InboundSa,
        old: &Arc<InboundSpec>,
        same_key: bool,
    ) -> Result<Arc<InboundSpec>, StateError> {
        let driver = self.driver(&sa.association)?;
        let is_same = same_key && driver.tier() == Some(old.key.tier());
        let key = if is_same { old.key.clone() } else { self.open_key(sa, &driver)? };
        let new = self.inbound(sa, key, old.counters.clone());
        Ok(if **old == new { old.clone() } else { Arc::new(new) })
    }

    fn driver(&self, sa: &Association) -> Result<Ready, StateError> {
        let failed = |source| StateError::Driver { name: sa.name.clone(), source };
        self.drivers.for_site(sa.key.suite(), sa.driver.as_deref()).map_err(failed)
    }

    fn seal_key(&self, sa: &OutboundSa, driver: &Ready) -> Result<Shared<SealKey>, StateError> {
        let key = &sa.association.key;
        let failed = |source| StateError::Key { name: sa.association.name.clone(), source };
        driver.seal_key(key.suite(), key.keys()).map(|key| Arc::new(key).into()).map_err(failed)
    }

    fn open_key(&self, sa: &InboundSa, driver: &Ready) -> Result<Shared<OpenKey>, StateError> {
        let key = &sa.association.key;
        let failed = |source| StateError::Key { name: sa.association.name.clone(), source };
        driver.open_key(key.suite(), key.keys()).map(|key| Arc::new(key).into()).map_err(failed)
    }

    fn reqid(&self, sa: &Association) -> ReqId {
        self.reqids.get(&sa.name).copied().unwrap_or(ReqId(0))
    }

    fn outbound(
        &self,
        sa: &OutboundSa,
        lease: Shared<Lease>,
        key: Shared<SealKey>,
        counters: Shared<SaCounters>,
    ) -> OutboundSpec {
        OutboundSpec {
            sa: self.spec(&sa.association, counters),
            key,
            source_is_here: true,
            outer: sa.outer,
            path_mtu: sa.path_mtu_on(self.wire_mtu),
            pad_to: sa.pad_to,
            dummy_every: sa.dummy_every,
            lease,
        }
    }

    fn inbound(
        &self,
        sa: &InboundSa,
        key: Shared<OpenKey>,
        counters: Shared<SaCounters>,
    ) -> InboundSpec {
        InboundSpec {
            sa: self.spec(&sa.association, counters),
            key,
            from_peer_only: false,
            ecn: sa.association.ecn,
            replay_window: sa.replay_window,
            interface: InterfaceId(0),
        }
    }

    /// The part that both directions have.
    fn spec(&self, sa: &Association, counters: Shared<SaCounters>) -> SaSpec {
        SaSpec {
            name: sa.name.clone(),
            spi: sa.spi,
            serial: 0,
            reqid: self.reqid(sa),
            named: None,
            protocol: sa.protocol,
            ah_alignment: AhAlignment::Rfc4302,
            mode: sa.mode,
            endpoints: sa.endpoints,
            encap: sa.encap,
            esn: sa.esn,
            salt: sa.key.salt(),
            lifetime: sa.lifetime,
            worker: sa.worker,
            counters,
        }
    }
}

const FULL: SnapshotError = SnapshotError::Full(MAX_SLOTS);

const WHY: &str =
    "RFC 4106 allows them only where no nonce can come twice; add `state_dir` to the site file";

fn lease_request(sa: &OutboundSa) -> OutboundRequest<'_> {
    let common = &sa.association;
    OutboundRequest { name: &common.name, key: &common.key, esn: common.esn, block: sa.lease_block }
}

fn floor_request<'a>(sa: &'a InboundSa, counters: &'a Arc<SaCounters>) -> InboundRequest<'a> {
    InboundRequest { name: &sa.association.name, key: &sa.association.key, counters }
}
