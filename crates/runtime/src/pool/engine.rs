//! The engine of one worker and direction, whose work others do.

use std::fmt;
use std::sync::Arc;

use convoy_engine::lookaside::{Caps, Health, KeyRefused, Lookaside, Request};
use convoy_engine::{EngineKey, KeyId, SharedKeys};

use super::desk::{Desk, Work};
use super::{Bell, CryptoPool};
use crate::Waker;

/// Longest time that a request may be away before those who help count as lost, in nanoseconds. A busy host stops
/// threads for longer than any device works.
const DEADLINE: u64 = 100_000_000;

pub(super) struct Pooled {
    /// Its threads run as long as there is an engine.
    pool: Arc<CryptoPool>,
    desk: Arc<Desk>,
    bells: Vec<Bell>,
    keys: SharedKeys,
    away: usize,
    /// Requests that were given back without being done.
    undone: Vec<Request>,
    /// Requests that nobody was woken for.
    unrung: usize,
}

impl Pooled {
    pub(super) fn new(pool: &Arc<CryptoPool>, waker: &Waker) -> Self {
        let desk = Arc::new(Desk::new(pool.requests(), waker.clone()));
        pool.office.open(&desk);
        let (pool, bells) = (Arc::clone(pool), pool.bells(waker));
        let (keys, undone) = (SharedKeys::default(), Vec::with_capacity(pool.requests()));
        Self { pool, desk, bells, keys, away: 0, undone, unrung: 0 }
    }
}

impl fmt::Debug for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled")
            .field("pool", &self.pool)
            .field("away", &self.away)
            .finish_non_exhaustive()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.office.close(&self.desk);
    }
}

impl Lookaside for Pooled {
    fn caps(&self) -> Caps {
        let (requests, enough) = (self.pool.requests(), self.pool.enough());
        Caps { requests, enough, deadline: DEADLINE }
    }

    fn install(&mut self, id: KeyId, key: &EngineKey) -> Result<(), KeyRefused> {
        self.keys.put(id, Some(key.clone()));
        Ok(())
    }

    fn remove(&mut self, id: KeyId) {
        self.keys.put(id, None);
    }

    fn submit(&mut self, _now: u64, request: Request) -> Result<(), Request> {
        if self.away >= self.pool.requests() {
            return Err(request);
        }
        self.desk.lay(Work { request, keys: self.keys.clone() })?;
        self.away += 1;
        self.unrung += 1;
        Ok(())
    }

    fn poll(&mut self, _now: u64) -> Option<Request> {
        let request = self.undone.pop().or_else(|| self.desk.take_done())?;
        self.away -= 1;
        Some(request)
    }

    fn recall(&mut self) -> Option<Request> {
        let request = self.desk.take_back()?;
        self.away -= 1;
        Some(request)
    }

    fn can_recall(&self) -> bool {
        self.desk.has_work()
    }

    fn is_ready(&self) -> bool {
        self.desk.finished() > 0 || !self.undone.is_empty() || self.pool.office.is_broken()
    }

    fn flush(&mut self, _now: u64) {
        let asleep = |bell: &&Bell| bell.ring();
        let unrung = std::mem::take(&mut self.unrung);
        if unrung > 0 {
            // One who is awake sees what is new without being rung.
            self.bells.iter().filter(asleep).take(unrung).for_each(drop);
        }
    }

    fn health(&self) -> Health {
        if self.pool.office.is_broken() { Health::Lost } else { Health::Up }
    }

    /// Nobody stops half-way: what is worked on is waited for, a look at a time, while software goes on.
    fn quiesce(&mut self, _now: u64) -> bool {
        self.undone.extend(std::iter::from_fn(|| self.desk.take_back()));
        self.away == self.undone.len() + self.desk.finished()
    }

    fn restart(&mut self, _now: u64) -> bool {
        self.keys = SharedKeys::default();
        !self.pool.office.is_broken() && self.away == 0
    }
}
