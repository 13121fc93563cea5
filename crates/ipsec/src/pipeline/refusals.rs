//! SAs that an engine leaves to the worker, as its sessions are finite.

use convoy_engine::{Front, KeyId};

use crate::counters::SaCounters;

/// Tells it of every SA again when the engine has begun anew.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    restarts: u64,
}

impl Refusals {
    /// Tells of one SA, whose key was just installed.
    pub(super) fn tell(engine: &Front, slot: u32, counters: &SaCounters) {
        counters.refused_by_engine.set(engine.is_refused(KeyId(slot)).into());
    }

    /// Tells of all SAs, if the engine has begun anew since the last time.
    pub(super) fn look<'a>(
        &mut self,
        engine: &Front,
        sas: impl Iterator<Item = (u32, &'a SaCounters)>,
    ) {
        let restarts = engine.counts().restarts;
        if restarts != self.restarts {
            self.restarts = restarts;
            sas.for_each(|(slot, counters)| Self::tell(engine, slot, counters));
        }
    }
}
