//! The look-aside model as a device of the gateway, with what goes over its link counted.

use std::sync::Arc;

use convoy_engine::Lookaside;
use convoy_engine::model::{Faults, Link, LinkCounts, Model, Settings};
use convoy_runtime::Devices;

/// A device made of software that never fails.
#[derive(Debug, Default)]
pub struct Counted {
    settings: Settings,
    link: Arc<Link>,
}

impl Counted {
    /// A device that behaves so.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, link: Arc::default() }
    }

    /// Traffic over its link so far.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        self.link.counts()
    }
}

impl Devices for Counted {
    fn name(&self) -> &'static str {
        "model"
    }

    fn engine(&self) -> Option<Box<dyn Lookaside>> {
        Some(Box::new(Model::new(self.settings, Faults::default()).counting(self.link.clone())))
    }

    fn requests(&self) -> usize {
        self.settings.requests
    }
}
