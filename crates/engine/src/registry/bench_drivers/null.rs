//! A driver that does no work: the upper bound of measurements.

use convoy_crypto::{Cpu, KeyError, KeyMaterial, OpenKey, SealKey, Suite};

use crate::registry::Provider;
use crate::{EngineKey, Front, Job, KeyId, Op, Status, Synchronous};

/// Leaves texts as they are, writes no ICV and looks at none.
#[derive(Debug)]
pub(super) struct Null(pub(super) Cpu);

impl Provider for Null {
    fn takes(&self, _: Suite) -> bool {
        true
    }

    fn seal_key(&self, suite: Suite, material: KeyMaterial) -> Result<SealKey, KeyError> {
        SealKey::new(&self.0, suite, material)
    }

    fn open_key(&self, suite: Suite, material: KeyMaterial) -> Result<OpenKey, KeyError> {
        OpenKey::new(&self.0, suite, material)
    }

    fn engine(&self) -> Front {
        Front::at_once(Box::new(Engine))
    }
}

#[derive(Debug)]
struct Engine;

impl Synchronous for Engine {
    fn install(&mut self, _: KeyId, _: EngineKey) {}

    fn remove(&mut self, _: KeyId) {}

    fn run(&mut self, jobs: &mut [Job]) {
        for job in jobs {
            (job.op, job.status) = (Op::Spent, Status::Done);
        }
    }
}
