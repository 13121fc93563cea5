//! Choice of the engine that does the workers' cryptography.

use std::sync::Arc;

use convoy_engine::model::{Faults, Model, Settings};
use convoy_engine::registry::Ready;
use convoy_engine::{Front, Lookaside};
use convoy_packet::BURST_MAX;

use crate::pool::Helper;
use crate::{CryptoPool, Waker};

/// Number of frames of a job that may have to be done again: source, result and a copy.
const FRAMES_PER_JOB: usize = 3;

/// Source of engines that this crate does not know: a device with queue pairs.
pub trait Devices: Send + Sync + std::fmt::Debug {
    /// Its name in site files.
    fn name(&self) -> &'static str;

    /// An engine for one worker and direction; `None` when there is none left.
    fn engine(&self) -> Option<Box<dyn Lookaside>>;

    /// Requests that each engine holds at most.
    fn requests(&self) -> usize;
}

/// The engine of a gateway's workers.
#[derive(Clone, Debug, Default)]
pub enum EngineChoice {
    /// Each worker does its own cryptography, at once.
    #[default]
    Inline,
    /// Threads do it.
    Pool(Arc<CryptoPool>),
    /// The workers help each other: so many of them.
    Workers(usize),
    /// A device does it that is made of software, and fails as it is told: for demonstrations and tests.
    Model(Settings, Faults),
    /// A device.
    Device(Arc<dyn Devices>),
    /// A driver of the registry, which works at once: for measurements.
    Driver(Ready),
}

impl EngineChoice {
    /// The same for the workers of one gateway: those who help each other have a pool of their own.
    pub(crate) fn among(&self, workers: usize) -> Self {
        match self {
            Self::Workers(_) if workers > 1 => Self::Pool(CryptoPool::of_workers(workers)),
            other => other.clone(),
        }
    }

    /// A front end for one worker and direction.
    #[must_use]
    pub fn make(&self, waker: &Waker) -> Front {
        match self {
            // A worker without others works alone.
            Self::Inline | Self::Workers(_) => Front::inline(),
            Self::Pool(pool) => Front::with(pool.engine(waker)),
            Self::Model(settings, faults) => Front::with(Box::new(Model::new(*settings, *faults))),
            Self::Device(devices) => devices.engine().map_or_else(Front::inline, Front::with),
            Self::Driver(driver) => driver.engine(),
        }
    }

    /// Makes the means by which a worker helps others, where workers do that.
    pub(crate) fn helper(&self, waker: &Waker) -> Option<Helper> {
        match self {
            Self::Pool(pool) => pool.helper(waker),
            Self::Inline
            | Self::Workers(_)
            | Self::Model(..)
            | Self::Device(_)
            | Self::Driver(_) => None,
        }
    }

    /// Frames that a worker's engines hold at most, both directions together.
    #[must_use]
    pub fn frames(&self) -> usize {
        let requests = match self {
            Self::Inline | Self::Driver(_) => 0,
            Self::Pool(pool) => pool.requests(),
            Self::Workers(workers) => CryptoPool::requests_of(*workers),
            Self::Model(settings, _) => settings.requests,
            Self::Device(devices) => devices.requests(),
        };
        2 * requests * BURST_MAX * FRAMES_PER_JOB
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Pool(_) => "pool",
            Self::Workers(_) => "workers",
            Self::Model(..) => "model",
            Self::Device(devices) => devices.name(),
            Self::Driver(_) => "driver",
        }
    }
}
