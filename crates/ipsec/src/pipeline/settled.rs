//! Pictures that packets of a pipeline have met.

use std::collections::VecDeque;
use std::sync::Arc;

use convoy_engine::Front;

use crate::snapshot::Snapshot;

/// Earlier snapshots that are kept at most, whatever is published while an engine is slow.
const KEPT: usize = 16;

/// The generation that every packet has met which is under way, the newest one, and the snapshots before it
/// as long as packets are under way that met them.
#[derive(Debug)]
pub(super) struct Settled {
    generation: u64,
    /// A newer one, with the engine's mark behind the packets that met older ones.
    next: Option<(u64, u64)>,
    /// Earlier snapshots, each with the mark behind the packets that met it; the oldest first.
    earlier: VecDeque<(Arc<Snapshot>, u64)>,
}

impl Settled {
    pub(super) const fn new(generation: u64) -> Self {
        Self { generation, next: None, earlier: VecDeque::new() }
    }

    /// A snapshot was taken over. `old` is the one before, if packets are under way that met it and will be
    /// asked about again.
    pub(super) fn took_over(
        &mut self,
        generation: u64,
        engine: &Front,
        old: Option<Arc<Snapshot>>,
    ) {
        let mark = engine.mark();
        self.next = Some((generation, mark));
        if let Some(old) = old {
            if self.earlier.len() == KEPT {
                self.earlier.pop_front();
            }
            self.earlier.push_back((old, mark));
        }
    }

    /// To be called when no job waits between the engine and the end of the pipeline.
    #[inline]
    pub(super) fn look(&mut self, engine: &Front) {
        if let Some((generation, mark)) = self.next {
            while self.earlier.front().is_some_and(|(_, mark)| engine.has_passed(*mark)) {
                self.earlier.pop_front();
            }
            if engine.has_passed(mark) {
                (self.generation, self.next) = (generation, None);
            }
        }
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Pictures before the present one that packets under way have met, the newest first.
    pub(super) fn earlier(&self) -> impl Iterator<Item = &Snapshot> {
        self.earlier.iter().rev().map(|(snapshot, _)| &**snapshot)
    }
}
