//! From a site to the snapshot workers see, at start and at every reload.
//!
//! [`State`] holds the desired state and what was made of it: an SA keeps its slot as long as it
//! exists, and a changed SA of the same key keeps its lease or floor, so the worker's hot state goes
//! on. A reload either happens as a whole or changes nothing.

mod build;
mod difference;
mod keys;
mod reload;
mod restart;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use convoy_crypto::{Cpu, KeyError};
use convoy_engine::registry::{Drivers, RegistryError};
use convoy_ipsec::sa::{InboundSpec, OutboundSpec, ReqId, SaSlot};
use convoy_ipsec::snapshot::{Published, Snapshot, SnapshotError, Writer};
use convoy_ipsec::spd::{KnownNetworks, SpdError, SpdId};
use convoy_wire::Prefix;

use crate::lease::{LeaseError, LeaseEvent, LeaseKeeper};
use crate::site::Site;
use difference::Databases;

/// A site cannot become the state of a gateway. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Settings that cannot change while the gateway runs.
    #[error("{} cannot change while the gateway runs; stop it and start it again, or take the change back", .0.join(", "))]
    NeedsRestart(Vec<String>),
    /// A key is not what it was.
    #[error("SA '{name}': {what}; give it a new key")]
    KeyReused {
        /// Name of the SA.
        name: Arc<str>,
        /// Change that was made with the key left as it was.
        what: &'static str,
    },
    /// There are SAs, but no state folder.
    #[error("static keys need a state folder: {0}")]
    NoStateFolder(&'static str),
    /// Sequence numbers cannot be leased.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// A key cannot be set up.
    #[error("SA '{name}': {source}")]
    Key {
        /// Name of the SA.
        name: Arc<str>,
        /// Error of the key.
        source: KeyError,
    },
    /// No driver works with an SA's key.
    #[error("SA '{name}': {source}")]
    Driver {
        /// Name of the SA.
        name: Arc<str>,
        /// Error of the registry.
        source: RegistryError,
    },
    /// Policies do not go together.
    #[error(transparent)]
    Policies(#[from] SpdError),
    /// SAs do not go together.
    #[error(transparent)]
    Associations(#[from] SnapshotError),
}

/// Changes that a reload made.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReloadReport {
    /// SAs that came.
    pub sas_added: Vec<String>,
    /// SAs whose description changed; their keys and sequence numbers go on.
    pub sas_changed: Vec<String>,
    /// SAs of that name with a new key.
    pub sas_replaced: Vec<String>,
    /// SAs that went.
    pub sas_removed: Vec<String>,
    /// Number of SAs that are as they were.
    pub sas_unchanged: usize,
    /// Policies that came.
    pub policies_added: Vec<String>,
    /// Policies that changed.
    pub policies_changed: Vec<String>,
    /// Policies that went.
    pub policies_removed: Vec<String>,
    /// Networks that must now be routed into the plain interface, if routes follow policies.
    #[serde(skip)]
    pub routes_added: Vec<Prefix>,
    /// Networks that must no longer be.
    #[serde(skip)]
    pub routes_removed: Vec<Prefix>,
    /// Generation of the published snapshot.
    pub generation: u64,
}

impl ReloadReport {
    /// True if nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self
            == Self {
                sas_unchanged: self.sas_unchanged,
                generation: self.generation,
                ..Self::default()
            }
    }
}

/// The desired state of a gateway, and what workers see of it.
#[derive(Debug)]
pub struct State {
    drivers: Drivers,
    wire_mtu: u16,
    site: Site,
    keeper: Option<LeaseKeeper>,
    tables: Tables,
    databases: Databases,
    /// Whose SAs are made on demand.
    on_demand: HashSet<ReqId>,
    writer: Writer,
    generation: u64,
    /// Reason that its keys may not be used any more, if so.
    spent: Option<&'static str>,
}

/// Records of one direction in their slots, by name.
type ByName<S> = HashMap<Arc<str>, (SaSlot, Arc<S>)>;

/// SAs in their slots, by name.
#[derive(Clone, Debug, Default)]
struct Tables {
    outbound: ByName<OutboundSpec>,
    inbound: ByName<InboundSpec>,
    next_reqid: u32,
}

impl State {
    /// Leases numbers, sets up keys and makes the first snapshot.
    ///
    /// `wire_mtu` is the largest outer packet in bytes where neither an SA nor the site says;
    /// `on_event` hears of trouble with the state folder, from the keeper's thread.
    ///
    /// # Errors
    /// [`StateError`]; nothing is left running.
    pub fn start(
        site: Site,
        cpu: Cpu,
        wire_mtu: u16,
        on_event: impl Fn(LeaseEvent) + Send + 'static,
    ) -> Result<Self, StateError> {
        let keeper = match &site.state_dir {
            Some(dir) => Some(LeaseKeeper::open(dir, on_event)?),
            None => None,
        };
        let wire_mtu = site.wire.mtu.unwrap_or(wire_mtu);
        let before = Tables::default();
        let policies = build::policies(&site, &before);
        let drivers = Drivers::new(&cpu).with_rules(&site.drivers);
        let maker = build::Maker {
            drivers: &drivers,
            wire_mtu,
            keeper: keeper.as_ref(),
            reqids: &policies.reqids,
        };
        let plan = build::plan(&site, &before, &keys::SiteKeys::default());
        let mut tables = maker.make(&plan, &site, &Snapshot::default())?.tables;
        tables.next_reqid = policies.next_reqid;
        let mut snapshot = Snapshot::default();
        let databases = difference::databases(&mut snapshot, &Databases::new(), policies.lists)?;
        let on_demand: HashSet<ReqId> = policies.on_demand.into_iter().collect();
        on_demand.iter().for_each(|reqid| snapshot.make_on_demand(*reqid));
        tables.bring(&before, &mut snapshot)?;
        let writer = Writer::new(snapshot);
        let generation = 1;
        Ok(Self {
            drivers,
            wire_mtu,
            site,
            keeper,
            tables,
            databases,
            on_demand,
            writer,
            generation,
            spent: None,
        })
    }

    /// The site that is in force.
    #[must_use]
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Its drivers, as site and operators have set them.
    #[must_use]
    pub fn drivers(&self) -> &Drivers {
        &self.drivers
    }

    /// Place in which workers find the snapshot.
    #[must_use]
    pub fn published(&self) -> &Arc<Published> {
        self.writer.published()
    }

    /// The right to change the snapshot, for those beside this state who have SAs and policies in it.
    pub fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// The database that the plain interface asks, as long as this state lasts.
    #[must_use]
    pub fn plain_spd(&self) -> SpdId {
        self.databases.get(&self.site.plain.spd).map_or_else(SpdId::default, |database| database.id)
    }

    /// Databases that interfaces for daemons' SAs ask, in the site's order: each with the
    /// interface's identifier.
    pub fn interface_spds(&self) -> impl Iterator<Item = (u32, SpdId)> + '_ {
        self.site.xfrm_interfaces().iter().filter_map(|interface| {
            let database = self.databases.get(&Some(build::database_of(interface.if_id)))?;
            Some((interface.if_id, database.id))
        })
    }

    /// The databases that policies are in.
    pub(crate) fn databases(&self) -> impl Iterator<Item = SpdId> + '_ {
        self.databases.values().map(|database| database.id)
    }

    /// Number of snapshots that were published.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Largest outer packet in bytes where neither an SA nor the site says.
    #[must_use]
    pub fn wire_mtu(&self) -> u16 {
        self.wire_mtu
    }

    /// Reason that the state folder cannot be written at present, if so.
    #[must_use]
    pub fn lease_failure(&self) -> Option<String> {
        self.keeper.as_ref().and_then(LeaseKeeper::failure)
    }

    /// Reason that the site's keys may not be used any more, if so. A reload with new keys ends
    /// that.
    #[must_use]
    pub fn spent(&self) -> Option<&'static str> {
        self.spent
    }

    /// Takes all SAs of the site out of the snapshot, as their keys may not be used any more. Workers see it
    /// at their next burst, and then [`State::spend_keys`] is to be called.
    pub fn end_sas(&mut self, why: &'static str) {
        let Tables { outbound, inbound, next_reqid } = std::mem::take(&mut self.tables);
        self.tables.next_reqid = next_reqid;
        if outbound.is_empty() && inbound.is_empty() {
            return;
        }
        let mut draft = self.writer.draft();
        for (slot, _) in outbound.values() {
            draft.remove_outbound(*slot);
        }
        for (slot, _) in inbound.values() {
            draft.remove_inbound(*slot);
        }
        self.generation = draft.commit();
        self.spent = Some(why);
    }

    /// Has policies of the plain interface's database decide about packets that go from tunnel to tunnel, and those of
    /// all databases know the host's addresses; `None`: all that comes out of tunnels is for the plain side, and addresses
    /// are as before. Workers see it at their next burst.
    pub fn send_on(&mut self, networks: Option<&KnownNetworks>) {
        let plain = self.plain_spd();
        let mut draft = self.writer.draft();
        if let Some(networks) = networks {
            for database in self.databases.values() {
                if let Some(spd) = draft.spd_of_mut(database.id) {
                    spd.know_hosts(&networks.hosts);
                }
            }
        }
        if let Some(spd) = draft.spd_of_mut(plain) {
            spd.set_transit(networks);
        }
        self.generation = draft.commit();
    }

    /// Keeps in mind for later lives that the keys of the state folder may not be used any more.
    ///
    /// # Errors
    /// Fails if that cannot be written. It is tried again as long as this lives.
    pub fn spend_keys(&self) -> Result<(), LeaseError> {
        self.keeper.as_ref().map_or(Ok(()), LeaseKeeper::spend)
    }

    /// The folder in which sequence numbers are remembered.
    #[must_use]
    pub fn state_dir(&self) -> Option<&PathBuf> {
        self.site.state_dir.as_ref()
    }

    /// The orderly end: keeps exact sequence numbers. Only when all workers have ended; else drop
    /// the state instead, which skips some numbers and repeats none.
    ///
    /// # Errors
    /// Fails if the numbers could not be written; then some are skipped.
    pub fn finish(self) -> Result<(), LeaseError> {
        self.keeper.map_or(Ok(()), LeaseKeeper::finish)
    }
}

impl Tables {
    /// The reqid of an SA by name, whichever its direction.
    fn reqid(&self, name: &str) -> Option<ReqId> {
        let outbound = self.outbound.get(name).map(|(_, sa)| sa.reqid);
        outbound.or_else(|| self.inbound.get(name).map(|(_, sa)| sa.reqid))
    }
}

#[cfg(test)]
mod tests;
