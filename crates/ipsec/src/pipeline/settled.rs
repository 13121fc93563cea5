//! Which picture all packets of a pipeline have met.

use convoy_engine::Front;

/// The generation that every packet has met which is under way, and the newest one.
#[derive(Debug)]
pub(super) struct Settled {
    generation: u64,
    /// A newer one, with the engine's mark behind the packets that met older ones.
    next: Option<(u64, u64)>,
}

impl Settled {
    pub(super) const fn new(generation: u64) -> Self {
        Self { generation, next: None }
    }

    /// A picture was taken over.
    pub(super) fn took_over(&mut self, generation: u64, engine: &Front) {
        self.next = Some((generation, engine.mark()));
    }

    /// To be called when no job waits between the engine and the end of the pipeline.
    #[inline]
    pub(super) fn look(&mut self, engine: &Front) {
        if let Some((generation, mark)) = self.next
            && engine.has_passed(mark)
        {
            (self.generation, self.next) = (generation, None);
        }
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }
}
