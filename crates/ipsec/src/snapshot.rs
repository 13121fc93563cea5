//! Immutable snapshot of policies and SAs, which control publishes and workers read.
//!
//! Control has the one [`Writer`], makes a [`Draft`] of the next snapshot and commits it; each worker
//! holds a [`Reader`], looks at the generation once per burst and takes the new snapshot when it
//! changed. Looking costs one atomic load; the lock is taken only on change.
//!
//! A snapshot's clone shares everything with it until one of the two changes, and then all but the
//! pages that change. So the next snapshot is made from the last at the cost of the difference, and
//! a worker finds that difference without looking at the rest.

mod between;
mod published;

use std::net::IpAddr;
use std::sync::Arc;

use convoy_crypto::Suite;
use convoy_wire::flow::addr_bytes;
use convoy_wire::{IpVersion, Protocol, SeqNum, Spi};

use crate::replay::{ReplayWindow, WindowError};
use crate::sa::{InboundSpec, IpsecProtocol, OutboundSpec, ReqId, SaSlot, WorkerId};
use crate::spd::{Spd, SpdId};
use crate::suite::{AhSuite, EspSuite, UnfitSuite};
pub use crate::table::MAX_SLOTS;
use crate::table::{Key, PagedMap, PagedTable, Seed};

pub use published::{Draft, Published, Reader, SpiListener, Writer};

/// A set of SAs and policies is not consistent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Two inbound SAs would receive the same packets.
    #[error("inbound SAs '{first}' and '{second}' share SPI {spi:#x} and address {local}")]
    InboundSpiTwice {
        /// Name of the SA that was there.
        first: Arc<str>,
        /// Name of the SA that came.
        second: Arc<str>,
        /// The SPI both have.
        spi: u32,
        /// The address both receive on.
        local: IpAddr,
    },
    /// Two outbound SAs would use the same nonces.
    #[error("outbound SAs '{first}' and '{second}' have the same key and salt")]
    OutboundKeyTwice {
        /// Name of the SA that was there.
        first: Arc<str>,
        /// Name of the SA that came.
        second: Arc<str>,
    },
    /// A suite that the SA's protocol does not take.
    #[error("SA '{name}': {source}")]
    Suite {
        /// Name of the SA.
        name: Arc<str>,
        /// Cause.
        source: UnfitSuite,
    },
    /// An anti-replay window that cannot be.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// A slot was given to two SAs.
    #[error("slot {0} is taken twice")]
    SlotTwice(u32),
    /// A slot that the table does not have: there are more SAs than fit.
    #[error("slot {0} is beyond the last of a direction's {MAX_SLOTS} slots")]
    Full(u32),
    /// More databases than have a number.
    #[error("more than 65535 interfaces have policies of their own")]
    Spds,
    /// A record was to be replaced in a slot that has none.
    #[error("slot {0} is empty")]
    Empty(u32),
}

/// An SA as a look-up finds it: where it is and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaOwner {
    /// Its slot.
    pub slot: SaSlot,
    /// The worker that owns its hot state.
    pub worker: WorkerId,
}

/// An immutable snapshot of the SPD and the SAD. Clones are cheap and share what is the same.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    spd: Arc<Spd>,
    /// Databases of interfaces that have their own, with the numbers 1 and up.
    own: Arc<Vec<Spd>>,
    outbound: PagedTable<Arc<OutboundSpec>>,
    inbound: PagedTable<Arc<InboundSpec>>,
    by_reqid: PagedMap<ReqId, Users>,
    between: PagedMap<between::Pair, SaSlot>,
    on_demand: PagedMap<ReqId, Demand>,
    by_lease: PagedMap<LeaseKey, SaSlot>,
    by_spi: PagedMap<SpiKey, SaOwner>,
}

impl Snapshot {
    /// A snapshot without SAs.
    #[must_use]
    pub fn new(spd: Spd) -> Self {
        Self { spd: Arc::new(spd), ..Self::default() }
    }

    /// Puts an outbound SA into `slot`. Of several SAs with one number, the last added is used.
    ///
    /// # Errors
    /// [`SnapshotError`] when the slot is taken or there is none such, another SA has the same lease
    /// (the same key), or its protocol does not take its suite. Then nothing has changed.
    pub fn add_outbound(
        &mut self,
        slot: SaSlot,
        sa: Arc<OutboundSpec>,
    ) -> Result<(), SnapshotError> {
        fits(&sa.name, sa.protocol, sa.key.suite())?;
        self.lease_is_free(&sa, slot)?;
        is_free(&self.outbound, slot)?;
        let owner = SaOwner { slot, worker: sa.worker };
        for number in numbers(&sa) {
            match self.by_reqid.get_mut(&number) {
                Some(users) => users.push(owner),
                None => drop(self.by_reqid.insert(number, Users::one(owner))),
            }
        }
        self.by_lease.insert(LeaseKey::of(&sa), slot);
        self.outbound.insert(slot.0, sa);
        Ok(())
    }

    /// Puts another record of an outbound SA into its slot and returns the one before. Where
    /// several SAs have the `reqid`, it keeps its place among them.
    ///
    /// # Errors
    /// [`SnapshotError`] when the slot is empty, another SA has the new record's lease, or ESP does
    /// not take its suite. Then nothing has changed.
    pub fn replace_outbound(
        &mut self,
        slot: SaSlot,
        sa: Arc<OutboundSpec>,
    ) -> Result<Arc<OutboundSpec>, SnapshotError> {
        let old = self.outbound(slot).ok_or(SnapshotError::Empty(slot.0))?.clone();
        fits(&sa.name, sa.protocol, sa.key.suite())?;
        self.lease_is_free(&sa, slot)?;
        if numbers(&old).eq(numbers(&sa)) {
            let owner = SaOwner { slot, worker: sa.worker };
            for number in numbers(&sa) {
                if let Some(users) = self.by_reqid.get_mut(&number) {
                    users.update(owner);
                }
            }
            self.by_lease.remove(&LeaseKey::of(&old));
            self.by_lease.insert(LeaseKey::of(&sa), slot);
            self.outbound.insert(slot.0, sa);
        } else {
            self.remove_outbound(slot);
            self.add_outbound(slot, sa)?;
        }
        Ok(old)
    }

    /// Takes the outbound SA out of a slot.
    pub fn remove_outbound(&mut self, slot: SaSlot) -> Option<Arc<OutboundSpec>> {
        let sa = self.outbound.remove(slot.0)?;
        self.by_lease.remove(&LeaseKey::of(&sa));
        for number in numbers(&sa) {
            if self.by_reqid.get_mut(&number).is_some_and(|users| users.remove(slot)) {
                self.by_reqid.remove(&number);
            }
        }
        Some(sa)
    }

    /// Puts an inbound SA into `slot`.
    ///
    /// # Errors
    /// [`SnapshotError`] when the slot is taken or there is none such, another SA has the same SPI,
    /// local address and protocol, or its anti-replay window or suite cannot be. Then nothing has
    /// changed.
    pub fn add_inbound(&mut self, slot: SaSlot, sa: Arc<InboundSpec>) -> Result<(), SnapshotError> {
        fits(&sa.name, sa.protocol, sa.key.suite())?;
        self.spi_is_free(&sa, slot)?;
        is_free(&self.inbound, slot)?;
        ReplayWindow::new(sa.replay_window, sa.esn, SeqNum::default())?;
        self.by_spi.insert(SpiKey::of(&sa), SaOwner { slot, worker: sa.worker });
        self.inbound.insert(slot.0, sa);
        Ok(())
    }

    /// Puts another record of an inbound SA into its slot and returns the one before.
    ///
    /// # Errors
    /// As for [`Snapshot::add_inbound`], and when the slot is empty. Then nothing has changed.
    pub fn replace_inbound(
        &mut self,
        slot: SaSlot,
        sa: Arc<InboundSpec>,
    ) -> Result<Arc<InboundSpec>, SnapshotError> {
        let old = self.inbound(slot).ok_or(SnapshotError::Empty(slot.0))?.clone();
        fits(&sa.name, sa.protocol, sa.key.suite())?;
        self.spi_is_free(&sa, slot)?;
        ReplayWindow::new(sa.replay_window, sa.esn, SeqNum::default())?;
        self.remove_inbound(slot);
        self.add_inbound(slot, sa)?;
        Ok(old)
    }

    /// Takes the inbound SA out of a slot.
    pub fn remove_inbound(&mut self, slot: SaSlot) -> Option<Arc<InboundSpec>> {
        let sa = self.inbound.remove(slot.0)?;
        self.by_spi.remove(&SpiKey::of(&sa));
        Some(sa)
    }

    /// Says that SAs with this `reqid` are made on demand: packets for which there is none wait
    /// while control is asked for one, instead of being dropped.
    pub fn make_on_demand(&mut self, reqid: ReqId) {
        self.on_demand.insert(reqid, Demand::Once);
    }

    /// The same, and each pair of hosts waits for an SA of its own ([`Snapshot::use_between`]).
    pub fn make_on_demand_between(&mut self, reqid: ReqId) {
        self.on_demand.insert(reqid, Demand::Between);
    }

    /// Takes back [`Snapshot::make_on_demand`].
    pub fn make_beforehand(&mut self, reqid: ReqId) {
        self.on_demand.remove(&reqid);
    }

    /// True if SAs with this `reqid` are made on demand.
    #[must_use]
    pub fn is_on_demand(&self, reqid: ReqId) -> bool {
        self.on_demand.get(&reqid).is_some()
    }

    /// True if they are, for each pair of hosts.
    pub(crate) fn is_between(&self, reqid: ReqId) -> bool {
        matches!(self.on_demand.get(&reqid), Some(Demand::Between))
    }

    /// The policies of interfaces that have none of their own.
    #[must_use]
    pub fn spd(&self) -> &Spd {
        &self.spd
    }

    /// The policies of one database; `None` when there is none with this number.
    #[inline]
    #[must_use]
    pub fn spd_of(&self, id: SpdId) -> Option<&Spd> {
        match usize::from(id.0).checked_sub(1) {
            None => Some(&self.spd),
            Some(at) => self.own.get(at),
        }
    }

    /// Adds the database of an interface that has its own.
    ///
    /// # Errors
    /// [`SnapshotError::Spds`] when there is no number for it.
    pub fn add_spd(&mut self, spd: Spd) -> Result<SpdId, SnapshotError> {
        let id = u16::try_from(self.own.len() + 1).map_err(|_| SnapshotError::Spds)?;
        Arc::make_mut(&mut self.own).push(spd);
        Ok(SpdId(id))
    }

    /// The policies of one database, to be changed in this snapshot and no other.
    pub fn spd_of_mut(&mut self, id: SpdId) -> Option<&mut Spd> {
        match usize::from(id.0).checked_sub(1) {
            None => Some(Arc::make_mut(&mut self.spd)),
            Some(at) => Arc::make_mut(&mut self.own).get_mut(at),
        }
    }

    /// The policies, to be changed in this snapshot and no other.
    pub fn spd_mut(&mut self) -> &mut Spd {
        Arc::make_mut(&mut self.spd)
    }

    /// The SA that policies with this `reqid` use now.
    #[inline]
    #[must_use]
    pub fn outbound_for(&self, reqid: ReqId) -> Option<SaOwner> {
        self.by_reqid.get(&reqid).map(|users| users.newest)
    }

    /// The SA that receives this protocol with this SPI at this address (RFC 4301 section 4.1).
    #[inline]
    #[must_use]
    pub fn inbound_for(&self, spi: Spi, local: IpAddr, protocol: Protocol) -> Option<SaOwner> {
        let version = IpVersion::of_addr(local);
        self.inbound_of(&SpiKey::new(spi, addr_bytes(local), version, protocol))
    }

    /// The same.
    #[inline]
    pub(crate) fn inbound_of(&self, key: &SpiKey) -> Option<SaOwner> {
        self.by_spi.get(key).copied()
    }

    /// The outbound SA in a slot.
    #[inline]
    #[must_use]
    pub fn outbound(&self, slot: SaSlot) -> Option<&Arc<OutboundSpec>> {
        self.outbound.get(slot.0)
    }

    /// The inbound SA in a slot.
    #[inline]
    #[must_use]
    pub fn inbound(&self, slot: SaSlot) -> Option<&Arc<InboundSpec>> {
        self.inbound.get(slot.0)
    }

    /// Slots without an outbound SA, lowest first.
    pub fn free_outbound(&self) -> impl Iterator<Item = SaSlot> {
        self.outbound.free().map(SaSlot)
    }

    /// Slots without an inbound SA, lowest first.
    pub fn free_inbound(&self) -> impl Iterator<Item = SaSlot> {
        self.inbound.free().map(SaSlot)
    }

    /// All outbound SAs, lowest slot first.
    pub fn outbound_sas(&self) -> impl Iterator<Item = (SaSlot, &Arc<OutboundSpec>)> {
        self.outbound.iter().map(|(slot, sa)| (SaSlot(slot), sa))
    }

    /// All inbound SAs, lowest slot first.
    pub fn inbound_sas(&self) -> impl Iterator<Item = (SaSlot, &Arc<InboundSpec>)> {
        self.inbound.iter().map(|(slot, sa)| (SaSlot(slot), sa))
    }

    /// Number of SAs, outbound and inbound.
    #[must_use]
    pub const fn len(&self) -> (usize, usize) {
        (self.outbound.len(), self.inbound.len())
    }

    /// True if there is no SA.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self.len(), (0, 0))
    }

    /// Shows every outbound slot that may differ from the snapshot `old`, with what it holds now.
    pub(crate) fn outbound_changes<'a>(
        &'a self,
        old: &'a Self,
        mut visit: impl FnMut(u32, Option<&'a Arc<OutboundSpec>>),
    ) {
        self.outbound.changes(&old.outbound, |slot, _, now| visit(slot, now));
    }

    /// As [`Snapshot::outbound_changes`], inbound.
    pub(crate) fn inbound_changes<'a>(
        &'a self,
        old: &'a Self,
        mut visit: impl FnMut(u32, Option<&'a Arc<InboundSpec>>),
    ) {
        self.inbound.changes(&old.inbound, |slot, _, now| visit(slot, now));
    }

    /// Shows each inbound SA that the snapshot `old` does not have as it is here.
    pub(crate) fn new_inbound<'a>(
        &'a self,
        old: &'a Self,
        mut visit: impl FnMut(&'a Arc<InboundSpec>),
    ) {
        self.inbound.changes(&old.inbound, |_, then, now| {
            if let Some(sa) = now.filter(|sa| then.is_none_or(|then| !Arc::ptr_eq(then, sa))) {
                visit(sa);
            }
        });
    }

    /// Fails if an SA other than the one in `slot` has this record's lease.
    fn lease_is_free(&self, sa: &OutboundSpec, slot: SaSlot) -> Result<(), SnapshotError> {
        let other = self.by_lease.get(&LeaseKey::of(sa)).filter(|other| **other != slot);
        match other.and_then(|other| self.outbound(*other)) {
            Some(other) => Err(SnapshotError::OutboundKeyTwice {
                first: other.name.clone(),
                second: sa.name.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Fails if an SA other than the one in `slot` receives this record's packets.
    fn spi_is_free(&self, sa: &InboundSpec, slot: SaSlot) -> Result<(), SnapshotError> {
        let other = self.by_spi.get(&SpiKey::of(sa)).filter(|other| other.slot != slot);
        match other.and_then(|other| self.inbound(other.slot)) {
            Some(other) => Err(SnapshotError::InboundSpiTwice {
                first: other.name.clone(),
                second: sa.name.clone(),
                spi: sa.spi.get(),
                local: sa.endpoints.local,
            }),
            None => Ok(()),
        }
    }
}

/// RFC 8221 section 4; RFC 4302 encrypts nothing.
fn fits(name: &Arc<str>, protocol: IpsecProtocol, suite: Suite) -> Result<(), SnapshotError> {
    let fits = match protocol {
        IpsecProtocol::Esp => EspSuite::new(suite).map(drop),
        IpsecProtocol::Ah => AhSuite::new(suite).map(drop),
    };
    match fits {
        Ok(()) => Ok(()),
        Err(source) => Err(SnapshotError::Suite { name: name.clone(), source }),
    }
}

fn is_free<T>(table: &PagedTable<T>, slot: SaSlot) -> Result<(), SnapshotError> {
    match table.get(slot.0) {
        _ if slot.0 >= MAX_SLOTS => Err(SnapshotError::Full(slot.0)),
        Some(_) => Err(SnapshotError::SlotTwice(slot.0)),
        None => Ok(()),
    }
}

/// Whose packets one SA that is made on demand is for.
#[derive(Clone, Copy, Debug)]
enum Demand {
    /// All of its number's.
    Once,
    /// Packets between two hosts.
    Between,
}

/// The numbers that policies know an outbound SA by.
fn numbers(sa: &OutboundSpec) -> impl Iterator<Item = ReqId> + use<> {
    core::iter::once(sa.reqid).chain(sa.named)
}

/// The outbound SAs of a number. Mostly there is one; while a key is replaced, two.
#[derive(Clone, Debug)]
struct Users {
    newest: SaOwner,
    /// SAs added before, oldest first.
    older: Option<Arc<Vec<SaOwner>>>,
}

impl Users {
    const fn one(newest: SaOwner) -> Self {
        Self { newest, older: None }
    }

    fn push(&mut self, owner: SaOwner) {
        let before = core::mem::replace(&mut self.newest, owner);
        Arc::make_mut(self.older.get_or_insert_default()).push(before);
    }

    fn update(&mut self, owner: SaOwner) {
        let older = self.older.as_mut().map(Arc::make_mut);
        let all = older.into_iter().flatten().chain([&mut self.newest]);
        all.filter(|user| user.slot == owner.slot).for_each(|user| *user = owner);
    }

    /// Removes one; says whether none is left.
    fn remove(&mut self, slot: SaSlot) -> bool {
        let Some(older) = self.older.as_mut().map(Arc::make_mut) else {
            return self.newest.slot == slot;
        };
        if self.newest.slot == slot {
            if let Some(before) = older.pop() {
                self.newest = before;
            }
        } else {
            older.retain(|user| user.slot != slot);
        }
        if older.is_empty() {
            self.older = None;
        }
        false
    }
}

impl Key for ReqId {
    #[inline]
    fn hash(&self, seed: Seed) -> u64 {
        seed.of(u64::from(self.0), 0)
    }
}

/// A lease by where it lies: two that are alive never lie at one place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LeaseKey(usize);

impl LeaseKey {
    fn of(sa: &OutboundSpec) -> Self {
        Self(Arc::as_ptr(sa.lease.as_arc()).addr())
    }
}

impl Key for LeaseKey {
    fn hash(&self, seed: Seed) -> u64 {
        seed.of(self.0 as u64, 0)
    }
}

/// Values that an arriving packet's SA is found by (RFC 4301 section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpiKey {
    address: [u64; 2],
    /// SPI, protocol and IP version.
    rest: u64,
}

impl SpiKey {
    /// Of no SA: no SPI is 0.
    pub(crate) const NONE: Self = Self { address: [0; 2], rest: 0 };

    /// `local` is laid out as in a [`FlowKey`](convoy_wire::FlowKey).
    #[inline]
    pub(crate) fn new(spi: Spi, local: [u8; 16], version: IpVersion, protocol: Protocol) -> Self {
        let bits = u128::from_be_bytes(local);
        let version: u64 = match version {
            IpVersion::V4 => 4,
            IpVersion::V6 => 6,
        };
        let rest = version << 40 | u64::from(protocol.0) << 32 | u64::from(spi.get());
        Self { address: [(bits >> 64) as u64, bits as u64], rest }
    }

    /// The same of an IPv4 address.
    #[inline]
    pub(crate) fn new_v4(spi: Spi, local: u32, protocol: Protocol) -> Self {
        let rest = 4 << 40 | u64::from(protocol.0) << 32 | u64::from(spi.get());
        Self { address: [u64::from(local) << 32, 0], rest }
    }

    pub(crate) fn of(sa: &InboundSpec) -> Self {
        let local = sa.endpoints.local;
        Self::new(sa.spi, addr_bytes(local), IpVersion::of_addr(local), sa.protocol())
    }

    /// The SPI.
    #[inline]
    pub(crate) const fn spi(&self) -> u32 {
        self.rest as u32
    }
}

impl Key for SpiKey {
    #[inline]
    fn hash(&self, seed: Seed) -> u64 {
        let [high, low] = self.address;
        seed.of(self.rest, high ^ low.rotate_left(32))
    }
}
