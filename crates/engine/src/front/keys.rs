//! The keys of a front end: which there are, which the engine took, and which are on their way out.

use std::mem;

use super::share::Class;
use crate::{EngineKey, KeyId};

#[derive(Debug, Default)]
struct Entry {
    key: Option<EngineKey>,
    /// True if the engine took it.
    offloaded: bool,
    /// Index of the costs of packets under it.
    class: Class,
    /// Jobs under this number so far, and those of them that were given out. Both count on when the key
    /// changes, and wrap.
    issued: u32,
    given: u32,
}

/// A key that is gone, but not for jobs that came before.
#[derive(Debug)]
struct Retired {
    id: KeyId,
    /// The first batch that does not need it.
    until: u64,
    key: EngineKey,
}

/// Keys by number.
#[derive(Debug, Default)]
pub(super) struct Keys {
    entries: Vec<Entry>,
    retired: Vec<Retired>,
    /// Keys that the engine did not take.
    refused: usize,
}

impl Keys {
    /// Enters a key, which the engine has taken or not.
    pub(super) fn insert(&mut self, id: KeyId, key: EngineKey, offloaded: bool) {
        self.make_room(id);
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            (entry.key, entry.offloaded) = (Some(key), offloaded);
            self.refused += usize::from(!offloaded);
        }
    }

    fn make_room(&mut self, id: KeyId) {
        let needed = id.0 as usize + 1;
        if self.entries.len() < needed {
            self.entries.resize_with(needed, Entry::default);
        }
    }

    /// Takes a key out. Where batches before `next` may still need it, it is kept for them.
    pub(super) fn retire(&mut self, id: KeyId, next: u64, is_needed: bool) {
        let Some(entry) = self.entries.get_mut(id.0 as usize) else { return };
        let Some(key) = entry.key.take() else { return };
        self.refused -= usize::from(!mem::take(&mut entry.offloaded));
        if is_needed {
            self.retired.push(Retired { id, until: next, key });
        }
    }

    /// Forgets what only batches before `base` needed.
    #[inline]
    pub(super) fn forget(&mut self, base: u64) {
        if !self.retired.is_empty() {
            self.retired.retain(|retired| retired.until > base);
        }
    }

    /// The key under a number now.
    #[inline]
    pub(super) fn get(&self, id: KeyId) -> Option<&EngineKey> {
        self.entries.get(id.0 as usize)?.key.as_ref()
    }

    /// The key that was under a number when a batch was made: of those retired later the first.
    pub(super) fn at(&self, id: KeyId, batch: u64) -> Option<&EngineKey> {
        let mut retired = self.retired.iter().filter(|old| old.id == id && old.until > batch);
        retired.next().map(|old| &old.key).or_else(|| self.get(id))
    }

    /// True if the engine has the key.
    #[inline]
    pub(super) fn is_offloaded(&self, id: KeyId) -> bool {
        self.entries.get(id.0 as usize).is_some_and(|entry| entry.offloaded)
    }

    /// Says what packets under a number cost.
    pub(super) fn classify(&mut self, id: KeyId, class: Class) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            entry.class = class;
        }
    }

    /// Index of the costs of packets under a number.
    #[inline]
    pub(super) fn class(&self, id: KeyId) -> Class {
        self.entries.get(id.0 as usize).map_or_else(Class::default, |entry| entry.class)
    }

    /// True if the engine has all keys.
    #[inline]
    pub(super) const fn all_offloaded(&self) -> bool {
        self.refused == 0
    }

    /// Offers every key to an engine that has begun anew; returns how many it refused.
    pub(super) fn offer(&mut self, mut take: impl FnMut(KeyId, &EngineKey) -> bool) -> usize {
        self.refused = 0;
        for (id, entry) in (0..).map(KeyId).zip(&mut self.entries) {
            let Some(key) = &entry.key else { continue };
            entry.offloaded = take(id, key);
            self.refused += usize::from(!entry.offloaded);
        }
        self.refused
    }

    /// A ticket for the next job under a number, be there a key or not.
    #[inline]
    pub(super) fn issue(&mut self, id: KeyId) -> u32 {
        let at = id.0 as usize;
        if at >= self.entries.len() {
            self.make_room(id);
        }
        self.entries.get_mut(at).map_or(0, |entry| {
            let ticket = entry.issued;
            entry.issued = ticket.wrapping_add(1);
            ticket
        })
    }

    /// Takes the last ticket back.
    pub(super) fn take_back(&mut self, id: KeyId) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            entry.issued = entry.issued.wrapping_sub(1);
        }
    }

    /// True if the job with this ticket is the next to be given out under its number.
    #[inline]
    pub(super) fn is_next(&self, id: KeyId, ticket: u32) -> bool {
        self.entries.get(id.0 as usize).is_none_or(|entry| entry.given == ticket)
    }

    /// True if all jobs under a number were given out.
    pub(super) fn is_idle(&self, id: KeyId) -> bool {
        self.entries.get(id.0 as usize).is_none_or(|entry| entry.given == entry.issued)
    }

    /// Notes that so many jobs under a number were given out.
    #[inline]
    pub(super) fn give(&mut self, id: KeyId, jobs: u32) {
        if let Some(entry) = self.entries.get_mut(id.0 as usize) {
            entry.given = entry.given.wrapping_add(jobs);
        }
    }
}
