//! Batches in the order in which their jobs came, and what of them may be given out.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use convoy_packet::{BURST_MAX, Pool};

use super::keys::Keys;
use crate::lookaside::Batch;
use crate::{Job, JobBurst};

/// State of the jobs of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// With the engine since that time, in nanoseconds.
    Away(u64),
    /// Lost with the engine: software has to do them.
    Owed,
    /// Back and finished.
    Back,
}

/// A batch that is not given out yet. Slots are used again, with what they have allocated.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) place: Place,
    /// The sources: there while the batch is away or owed, and empty in a spare slot.
    pub(super) batch: Option<Arc<Batch>>,
    /// Finished jobs while all of them are here, and copies of sources while some are owed.
    pub(super) jobs: JobBurst,
    /// Finished jobs once some were given out before their turn.
    parted: Vec<Option<Job>>,
    /// The place of each job among those of its key.
    tickets: Vec<u32>,
    /// True if all jobs have the same key.
    is_alike: bool,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            place: Place::Back,
            batch: Some(Arc::default()),
            jobs: JobBurst::new(),
            parted: Vec::with_capacity(BURST_MAX),
            tickets: Vec::with_capacity(BURST_MAX),
            is_alike: false,
        }
    }

    /// Number of jobs in its batch.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Draws a ticket for each job of a batch.
    #[inline]
    pub(super) fn draw_tickets(&mut self, keys: &mut Keys, jobs: &[Job]) {
        let first = jobs.first().map(|job| job.key);
        self.is_alike = true;
        self.tickets.clear();
        self.tickets.extend(jobs.iter().map(|job| {
            self.is_alike &= Some(job.key) == first;
            keys.issue(job.key)
        }));
    }

    /// Gives the tickets back: the batch was not taken.
    pub(super) fn return_tickets(&mut self, keys: &mut Keys, jobs: &[Job]) {
        jobs.iter().rev().for_each(|job| keys.take_back(job.key));
        self.tickets.clear();
    }

    /// Gives out jobs of the oldest batch, for which nothing has to wait. Returns whether that was all.
    #[inline]
    fn give_all(&mut self, keys: &mut Keys, done: &mut JobBurst) -> bool {
        let from = done.len();
        if !self.parted.is_empty() {
            return self.give_parted(keys, done);
        }
        if done.is_empty() {
            mem::swap(done, &mut self.jobs);
        } else {
            let n = self.jobs.len().min(done.room());
            for job in self.jobs.drain_front(n) {
                // Dropping a job that does not fit would be a counted leak; room was checked.
                drop(done.push(job));
            }
        }
        let given = done.as_slice().get(from..).unwrap_or_default();
        match given.first() {
            Some(job) if self.is_alike => keys.give(job.key, given.len() as u32),
            _ => given.iter().for_each(|job| keys.give(job.key, 1)),
        }
        self.jobs.is_empty()
    }

    #[cold]
    fn give_parted(&mut self, keys: &mut Keys, done: &mut JobBurst) -> bool {
        for place in self.parted.iter_mut().filter(|place| place.is_some()) {
            if done.room() == 0 {
                return false;
            }
            if let Some(job) = place.take() {
                keys.give(job.key, 1);
                drop(done.push(job));
            }
        }
        self.parted.clear();
        true
    }

    /// Gives out the jobs whose keys have no earlier job under way. Returns whether `done` had room.
    fn give_next(&mut self, keys: &mut Keys, done: &mut JobBurst) -> bool {
        if self.parted.is_empty() {
            // Where nothing can go, nothing is moved: of jobs under one key the first one says so.
            let looked_at = if self.is_alike { 1 } else { self.jobs.len() };
            let mut jobs = self.jobs.as_slice().iter().zip(&self.tickets).take(looked_at);
            if !jobs.any(|(job, ticket)| keys.is_next(job.key, *ticket)) {
                return true;
            }
            self.parted.extend(self.jobs.drain().map(Some));
        }
        for (place, ticket) in self.parted.iter_mut().zip(&self.tickets) {
            let is_next = |job: &Job| keys.is_next(job.key, *ticket);
            if place.as_ref().is_some_and(is_next) {
                if done.room() == 0 {
                    return false;
                }
                if let Some(job) = place.take() {
                    keys.give(job.key, 1);
                    drop(done.push(job));
                }
            }
        }
        true
    }
}

/// The batches that are under way, oldest first and numbered without gaps.
#[derive(Debug, Default)]
pub(super) struct Window {
    slots: VecDeque<Slot>,
    /// Number of the oldest.
    base: u64,
    spare: Vec<Slot>,
    /// Something may be given out that is not of the oldest batch.
    look: bool,
}

impl Window {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Number of the oldest batch, or of the next if there is none.
    pub(super) const fn base(&self) -> u64 {
        self.base
    }

    /// Number of the next batch.
    pub(super) fn next(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// A slot to be filled, and then to be pushed or kept.
    #[inline]
    pub(super) fn spare(&mut self) -> Slot {
        self.spare.pop().unwrap_or_else(Slot::new)
    }

    /// Keeps an empty slot for later.
    #[inline]
    pub(super) fn keep(&mut self, mut slot: Slot) {
        if slot.batch.is_none() {
            slot.batch = Some(Arc::default());
        }
        self.spare.push(slot);
    }

    /// Files a batch behind the others.
    #[inline]
    pub(super) fn push(&mut self, slot: Slot) {
        self.look |= slot.place == Place::Back;
        self.slots.push_back(slot);
    }

    /// The batch with this number, if it is under way.
    #[inline]
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Slot> {
        let at = number.checked_sub(self.base)?;
        self.slots.get_mut(usize::try_from(at).ok()?)
    }

    /// Batches with their numbers, oldest first.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Slot)> {
        (self.base..).zip(&mut self.slots)
    }

    /// Since when the oldest batch that is away has been.
    #[inline]
    pub(super) fn away_since(&self) -> Option<u64> {
        self.slots.iter().find_map(|slot| match slot.place {
            Place::Away(since) => Some(since),
            _ => None,
        })
    }

    /// True if something may be given out.
    pub(super) fn is_ready(&self) -> bool {
        self.look || self.slots.front().is_some_and(|slot| slot.place == Place::Back)
    }

    /// Since when the oldest batch has been away, for which others may wait.
    #[inline]
    pub(super) fn behind_since(&self) -> Option<u64> {
        match self.slots.front()?.place {
            Place::Away(since) => Some(since),
            Place::Owed | Place::Back => None,
        }
    }

    /// Has software do the oldest batch, if it is away; says whether it is.
    pub(super) fn owe_first(&mut self) -> bool {
        let first = self.slots.front_mut().filter(|slot| matches!(slot.place, Place::Away(_)));
        first.map(|slot| slot.place = Place::Owed).is_some()
    }

    /// Says that a batch came back.
    #[inline]
    pub(super) const fn came_back(&mut self) {
        self.look = true;
    }

    /// Appends to `done` what may be given out and fits: batches as they came, and of those behind one that
    /// is not back the jobs whose keys have none under way before them. One pass is enough, for tickets of
    /// a key rise from batch to batch.
    #[inline]
    pub(super) fn give(&mut self, keys: &mut Keys, done: &mut JobBurst) {
        while let Some(slot) = self.slots.front_mut() {
            if slot.place != Place::Back {
                break;
            }
            if !slot.give_all(keys, done) {
                return;
            }
            if let Some(slot) = self.slots.pop_front() {
                self.keep(slot);
            }
            self.base += 1;
            self.look = true;
            keys.forget(self.base);
        }
        if self.look {
            self.look = !self.slots.is_empty() && !self.give_early(keys, done);
        }
    }

    fn give_early(&mut self, keys: &mut Keys, done: &mut JobBurst) -> bool {
        let mut back = self.slots.iter_mut().filter(|slot| slot.place == Place::Back);
        back.all(|slot| slot.give_next(keys, done))
    }

    /// Gives the packets of all jobs back, but for sources that the engine still has, and drops all batches.
    pub(super) fn release(&mut self, pool: &mut Pool) {
        self.base = self.next();
        for mut slot in self.slots.drain(..) {
            let parted = slot.parted.drain(..).flatten();
            slot.jobs.drain().chain(parted).for_each(|job| pool.free(job.frame));
            if let Some(batch) = slot.batch.take() {
                release(batch, pool);
            }
        }
    }
}

/// Gives the packets of a batch back, unless somebody else has it.
pub(super) fn release(batch: Arc<Batch>, pool: &mut Pool) {
    if let Ok(mut batch) = Arc::try_unwrap(batch) {
        batch.jobs.drain().for_each(|job| pool.free(job.frame));
    }
}
