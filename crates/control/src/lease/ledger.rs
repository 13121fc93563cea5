//! Pure bookkeeping of leased and accepted numbers, driven by the keeper's thread.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use convoy_ipsec::counters::SaCounters;
use convoy_ipsec::key::SaKeyMaterial;
use convoy_ipsec::selector::Direction;
use convoy_ipsec::sequence::{Lease, SequenceLimits};
use convoy_wire::SeqNum;

use super::error::LeaseError;
use super::hash::RecordId;
use super::pace::{LEAST_ALLOWANCE, Progress, allowance};
use super::store::{RecordAt, Store};

/// Longest time that moved window edges stay unsynced.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest time between two syncs for the sake of edges that move faster than the last synced
/// image allows for.
const HURRY_INTERVAL: Duration = Duration::from_millis(20);

/// Longest time between two looks at whether the folder is still what its path names.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// An image allows the next one this many times what is leased ahead.
const BOUND_BLOCKS: u64 = 4;

/// A lease lasts at least this many ticks at the pace of the last one.
const TICKS_AHEAD: u64 = 64;

/// As [`LEAST_ALLOWANCE`], between two syncs.
const LEAST_ALLOWANCE_SYNCED: u64 = 32;

/// A key whose sequence numbers are wanted.
#[derive(Clone, Copy, Debug)]
pub struct OutboundRequest<'a> {
    /// Name of the SA, for messages.
    pub name: &'a str,
    /// Key and salt.
    pub key: &'a SaKeyMaterial,
    /// Extended sequence numbers: 64 bits instead of 32.
    pub esn: bool,
    /// Numbers to lease at a time, at least 1.
    pub block: u64,
}

/// A key whose window's floor is wanted.
#[derive(Clone, Copy, Debug)]
pub struct InboundRequest<'a> {
    /// Name of the SA, for messages.
    pub name: &'a str,
    /// Key and salt.
    pub key: &'a SaKeyMaterial,
    /// Of the SA: its floor is raised to where the key may have been.
    pub counters: &'a Arc<SaCounters>,
}

#[derive(Debug)]
struct Leased {
    at: RecordAt,
    lease: Arc<Lease>,
    block: u64,
    /// First number that can never be used.
    limit: u64,
    used_before: u64,
}

#[derive(Debug)]
struct Floored {
    at: RecordAt,
    counters: Arc<SaCounters>,
    /// Edge and counts by the record.
    noted: Progress,
    /// Packets accepted when it was looked at last.
    seen: u64,
    written: Progress,
    synced: Progress,
    pace_written: u64,
    pace_synced: u64,
    /// Distance that the edge may move after the last sync, as the synced image says.
    granted_synced: u64,
}

impl Floored {
    /// Looks at the counters for the progress by now.
    fn look(&mut self) -> Progress {
        let (edge, packets) = (self.counters.floor.get().get(), self.counters.usage.packets.get());
        let next = self.noted.next(edge, packets, self.seen);
        self.seen = packets;
        next
    }

    fn allowance(&self) -> u64 {
        allowance(self.pace_written, LEAST_ALLOWANCE)
    }

    fn allowance_synced(&self) -> u64 {
        allowance(self.pace_synced, LEAST_ALLOWANCE_SYNCED)
    }

    /// True if more than half of what the synced image allows is used up.
    fn is_hasty(&self) -> bool {
        self.counters.floor.get().get().saturating_sub(self.synced.edge) > self.granted_synced / 2
    }
}

/// An inbound key whose SA is gone, while somebody may still hold its counters: a worker may accept packets as
/// long, and its record stands as far ahead as the worker may get.
#[derive(Debug)]
struct Released {
    at: RecordAt,
    counters: Arc<SaCounters>,
}

/// All keys in use, and the store behind them.
#[derive(Debug)]
pub(super) struct Ledger {
    store: Store,
    leased: Vec<Leased>,
    floored: Vec<Floored>,
    released: Vec<Released>,
    unsynced: bool,
    /// True if it is to be written that no key may be used any more.
    is_spending: bool,
    last_sync: Instant,
    /// Time when the folder was found to be what its path names; `None` once something failed
    /// since.
    last_look: Option<Instant>,
}

impl Ledger {
    pub(super) fn new(store: Store, now: Instant) -> Self {
        let (leased, floored) = (Vec::new(), Vec::new());
        Self {
            store,
            leased,
            floored,
            released: Vec::new(),
            unsynced: false,
            is_spending: false,
            last_sync: now,
            last_look: None,
        }
    }

    /// Finds or makes the records of keys, and leases the first blocks.
    pub(super) fn acquire(
        &mut self,
        outbound: &[OutboundRequest<'_>],
        inbound: &[InboundRequest<'_>],
    ) -> Result<Vec<Arc<Lease>>, LeaseError> {
        let keys = outbound.iter().map(|r| (r.name, r.key));
        let outbound_ids = self.ids(Direction::Outbound, keys, &HashSet::new())?;
        let keys = inbound.iter().map(|r| (r.name, r.key));
        let known = outbound_ids.iter().copied().collect();
        let inbound_ids = self.ids(Direction::Inbound, keys, &known)?;
        let outbound_at = self.places(Direction::Outbound, &outbound_ids);
        let inbound_at = self.places(Direction::Inbound, &inbound_ids);
        if outbound.is_empty() && inbound.is_empty() {
            return Ok(Vec::new());
        }
        self.settle();
        // One that is not settled stays where its worker cannot get to.
        self.released.retain(|released| !inbound_at.contains(&released.at));
        // The first commit makes every record known and raises the bounds; the second stays within
        // them, and makes the records known to the other image as well.
        let firsts: Vec<u64> = outbound_at.iter().map(|at| self.number(*at)).collect();
        for (at, request) in outbound_at.iter().zip(outbound) {
            self.raise(*at, 0, request.block, limit(request.esn));
        }
        let floored = inbound_at.iter().zip(inbound);
        let floored: Vec<_> = floored.map(|(at, r)| self.floor(*at, r.counters)).collect();
        self.store.commit().map_err(LeaseError::Write)?;
        for (at, request) in outbound_at.iter().zip(outbound) {
            self.raise(*at, request.block.saturating_mul(2), request.block, limit(request.esn));
        }
        self.store.commit().map_err(LeaseError::Write)?;
        let leases = outbound_at.iter().zip(outbound).zip(firsts).map(|((at, request), first)| {
            let lease =
                Arc::new(Lease::new(SeqNum::new(first.saturating_sub(1)), self.number(*at)));
            let limit = limit(request.esn);
            let used_before = first.saturating_sub(1);
            let block = request.block.max(1);
            self.leased.push(Leased { at: *at, lease: lease.clone(), block, limit, used_before });
            lease
        });
        let leases = leases.collect();
        self.floored.extend(floored);
        Ok(leases)
    }

    /// The names of the records of keys; none may be in use, named twice, or have been used in the
    /// other direction. Changes nothing.
    fn ids<'a>(
        &self,
        direction: Direction,
        keys: impl Iterator<Item = (&'a str, &'a SaKeyMaterial)>,
        others: &HashSet<RecordId>,
    ) -> Result<Vec<RecordId>, LeaseError> {
        let leased = self.leased.iter().map(|leased| leased.at);
        let in_use: HashSet<_> =
            leased.chain(self.floored.iter().map(|floored| floored.at)).collect();
        let (mut ids, mut named) = (Vec::new(), HashSet::new());
        for (name, key) in keys {
            let id = self.store.key().record_id(direction, key);
            let turned = self.store.key().record_id(direction.reversed(), key);
            if others.contains(&turned) || self.store.find(turned).is_some() {
                return Err(LeaseError::KeyTurned { name: name.to_owned() });
            }
            let known = self.store.find(id).and_then(|at| self.store.record(at));
            if known.is_some_and(|record| record.is_spent) {
                return Err(LeaseError::KeySpent { name: name.to_owned() });
            }
            let is_used = self.store.find(id).is_some_and(|at| in_use.contains(&at));
            if is_used || !named.insert(id) {
                return Err(LeaseError::KeyInUse { name: name.to_owned() });
            }
            ids.push(id);
        }
        Ok(ids)
    }

    /// The records of these names, made where they are new.
    fn places(&mut self, direction: Direction, ids: &[RecordId]) -> Vec<RecordAt> {
        ids.iter().map(|id| self.store.find_or_add(*id, direction)).collect()
    }

    /// The floor of a record, with allowances for a pace that is not known yet.
    fn floor(&mut self, at: RecordAt, counters: &Arc<SaCounters>) -> Floored {
        let edge = self.number(at);
        counters.floor.raise(SeqNum::new(edge));
        let packets = counters.usage.packets.get();
        let start = Progress { edge, packets, covered: packets };
        let mut floored = Floored {
            at,
            counters: counters.clone(),
            noted: start,
            seen: packets,
            written: start,
            synced: start,
            pace_written: LEAST_ALLOWANCE,
            pace_synced: LEAST_ALLOWANCE_SYNCED,
            granted_synced: 0,
        };
        floored.granted_synced = floored.allowance_synced();
        if let Some(record) = self.store.record_mut(at) {
            record.allowance = floored.allowance();
            record.allowance_synced = floored.allowance_synced();
        }
        floored
    }

    fn number(&self, at: RecordAt) -> u64 {
        self.store.record(at).map_or(u64::MAX, |record| record.number)
    }

    /// Raises a record's number by `by`, as far as the synced image and the limit allow, and its
    /// allowance for what comes after.
    fn raise(&mut self, at: RecordAt, by: u64, ahead: u64, limit: u64) {
        let bound = self.store.bound(at);
        let Some(record) = self.store.record_mut(at) else { return };
        let wanted = record.number.saturating_add(by).min(limit).min(bound);
        record.number = record.number.max(wanted);
        let allowance = record.number.saturating_add(ahead.saturating_mul(BOUND_BLOCKS)).min(limit);
        record.allowance = record.allowance.max(allowance);
    }

    /// Looks whether the folder is still what its path names.
    pub(super) fn look(&mut self) -> io::Result<()> {
        self.store.look()
    }

    /// Looks at all counters and writes what must be written.
    ///
    /// # Errors
    /// Fails if the storage failed; then nothing was granted, and the next tick tries again.
    pub(super) fn tick(&mut self, now: Instant) -> io::Result<Wrote> {
        // Large leases and quiet peers cause no writes for long.
        if self.last_look.is_none_or(|last| now.duration_since(last) >= LOOK_INTERVAL) {
            self.store.look()?;
            self.last_look = Some(now);
        }
        let outcome = self.write_what_is_due(now);
        if outcome.is_err() {
            self.last_look = None;
        }
        outcome
    }

    fn write_what_is_due(&mut self, now: Instant) -> io::Result<Wrote> {
        if self.is_spending {
            self.commit_spent()?;
        }
        let grow = self.plan_leases();
        let moved = self.note_floors();
        self.unsynced |= moved;
        let hasty = self.floored.iter().any(Floored::is_hasty);
        let interval = if hasty { HURRY_INTERVAL } else { SYNC_INTERVAL };
        let due = self.unsynced && now.duration_since(self.last_sync) >= interval;
        if grow || due {
            self.last_sync = now;
            self.store.commit()?;
            self.unsynced = false;
            self.publish();
            return Ok(Wrote::Synced);
        }
        if moved {
            self.store.write()?;
            for floored in &mut self.floored {
                // What the image says, not where the edge is by now: the write took time.
                floored.written = floored.noted;
            }
            return Ok(Wrote::Written);
        }
        Ok(Wrote::Nothing)
    }

    /// Decides which leases grow; whether any has to.
    fn plan_leases(&mut self) -> bool {
        let mut grow = false;
        for at in 0..self.leased.len() {
            let Some(leased) = self.leased.get_mut(at) else { break };
            let used = leased.lease.used().get();
            let pace = used.saturating_sub(leased.used_before);
            leased.used_before = used;
            let ahead = leased.block.max(pace.saturating_mul(TICKS_AHEAD));
            let (place, limit, granted) = (leased.at, leased.limit, leased.lease.granted());
            // A number above what was granted is left from a commit that failed.
            let pending = self.number(place) > granted;
            if !pending && granted < used.saturating_add(ahead) && granted < limit {
                let wanted = used.saturating_add(ahead.saturating_mul(2));
                self.raise(place, wanted.saturating_sub(granted), ahead, limit);
            }
            grow |= self.number(place) > granted;
        }
        grow
    }

    /// Takes the last edges of keys that no worker has any more into their records, whose numbers were an upper
    /// bound until now; whether any record changed.
    fn settle(&mut self) -> bool {
        let before = self.released.len();
        let store = &mut self.store;
        self.released.retain_mut(|released| {
            // Nobody else can raise it from here on, and all that others did is seen.
            let Some(counters) = Arc::get_mut(&mut released.counters) else { return true };
            if let Some(record) = store.record_mut(released.at) {
                record.number = counters.floor.get().get();
            }
            false
        });
        self.released.len() < before
    }

    /// Takes the windows' edges into their records; whether any record changed.
    fn note_floors(&mut self) -> bool {
        let mut moved = self.settle();
        for floored in &mut self.floored {
            let Some(record) = self.store.record_mut(floored.at) else { continue };
            let now = floored.look();
            floored.noted = now;
            let edge = now.edge.max(record.number);
            let pace = now.numbers_since(floored.written);
            floored.pace_written = floored.pace_written.max(pace);
            let pace = now.numbers_since(floored.synced);
            floored.pace_synced = floored.pace_synced.max(pace);
            let allowance = floored.allowance();
            let allowance_synced = floored.allowance_synced();
            moved |= (record.number, record.allowance, record.allowance_synced)
                != (edge, allowance, allowance_synced);
            (record.number, record.allowance, record.allowance_synced) =
                (edge, allowance, allowance_synced);
        }
        moved
    }

    /// After a commit: what is on the disk may be used.
    fn publish(&mut self) {
        for leased in &self.leased {
            if let Some(record) = self.store.record(leased.at) {
                leased.lease.grant(record.number);
            }
        }
        for floored in &mut self.floored {
            let Some(record) = self.store.record(floored.at) else { continue };
            floored.granted_synced = record.allowance_synced;
            (floored.written, floored.synced) = (floored.noted, floored.noted);
            // Paces are forgotten within some seconds, so that a burst of long ago costs nothing.
            floored.pace_written /= 2;
            floored.pace_synced /= 2;
        }
    }

    /// Sets the count of numbers leased at a time, of leases that are watched.
    pub(super) fn set_blocks<'a>(&mut self, blocks: impl Iterator<Item = (&'a Arc<Lease>, u64)>) {
        let blocks: HashMap<_, _> = blocks.map(|(lease, block)| (place(lease), block)).collect();
        for leased in &mut self.leased {
            if let Some(block) = blocks.get(&place(&leased.lease)) {
                leased.block = (*block).max(1);
            }
        }
    }

    /// Stops watching what these belong to. Their keys may be acquired again and then go on where
    /// nothing they may still be used for can overlap; inbound ones behind the last packet that was accepted, once
    /// nobody has their counters any more.
    pub(super) fn release(&mut self, leases: &[Arc<Lease>], floors: &[Arc<SaCounters>]) {
        let leases: HashSet<_> = leases.iter().map(place).collect();
        let floors: HashSet<_> = floors.iter().map(place).collect();
        self.leased.retain(|leased| !leases.contains(&place(&leased.lease)));
        self.note_floors();
        let gone = self.floored.extract_if(.., |it| floors.contains(&place(&it.counters)));
        for Floored { at, counters, .. } in gone {
            if let Some(record) = self.store.record_mut(at) {
                record.number = record.number.saturating_add(record.allowance);
                (record.allowance, record.allowance_synced) = (0, 0);
                self.unsynced = true;
                self.released.push(Released { at, counters });
            }
        }
    }

    /// Forgets all leases and floors, whose workers are gone. The keys of this moment and of before may
    /// never be used any more, by a later life either.
    ///
    /// # Errors
    /// Fails if that cannot be written; each tick tries again.
    pub(super) fn spend(&mut self) -> io::Result<()> {
        self.leased.clear();
        self.floored.clear();
        self.released.clear();
        self.store.spend();
        self.is_spending = true;
        self.commit_spent()
    }

    /// To both images, so that damage to one makes no key usable again.
    fn commit_spent(&mut self) -> io::Result<()> {
        self.store.commit()?;
        self.store.commit()?;
        self.is_spending = false;
        Ok(())
    }

    /// Writes exact numbers; right only when nobody uses the leases and floors any more.
    pub(super) fn finish(&mut self) -> Result<(), LeaseError> {
        self.note_floors();
        for leased in &self.leased {
            if let Some(record) = self.store.record_mut(leased.at) {
                record.number = leased.lease.used().get().saturating_add(1).min(record.number);
                record.allowance = record.number;
            }
        }
        for floored in &self.floored {
            if let Some(record) = self.store.record_mut(floored.at) {
                (record.allowance, record.allowance_synced) = (0, 0);
            }
        }
        self.store.commit_clean().map_err(LeaseError::Write)
    }
}

/// Effect of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    Nothing,
    Written,
    Synced,
}

/// Address of something shared: what is alive never shares an address.
fn place<T>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared).addr()
}

/// First number that can never be used.
fn limit(esn: bool) -> u64 {
    SequenceLimits::new(esn).hard.get().saturating_add(1)
}
