//! Engines, by name and priority, and drivers, which do the computing.
//!
//! An engine says where jobs are done; a [`Driver`] is an implementation of one algorithm. A [`Registry`]
//! holds drivers in the manner of Linux's crypto API: algorithms have the names that a kernel gives them,
//! each driver is tested when it is registered, and whoever asks for an algorithm gets the driver of highest
//! priority that passed. [`Drivers`] chooses for each SA, by the [`DriverRules`] of a site.
//!
//! ```
//! use convoy_crypto::Cpu;
//! use convoy_engine::registry::Registry;
//!
//! let registry = Registry::of(&Cpu::detect()?);
//! let driver = registry.for_algorithm("rfc4106(gcm(aes))")?;
//! assert!(driver.name().starts_with("rfc4106-gcm-aes-convoy-"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod algorithm;
mod bench_drivers;
mod choice;
mod driver;
mod error;
mod rules;
mod self_test;
mod table;
#[cfg(test)]
mod tests;
mod tiers;

use crate::Front;

pub use algorithm::Kind;
pub use choice::Drivers;
pub use driver::{Driver, Provider, Ready, SelfTest};
pub use error::RegistryError;
pub use rules::{DaemonSas, DriverRule, DriverRules};
pub use table::{Purpose, Registry, Setting};

/// An engine that can be made.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name in site files and listings.
    pub name: &'static str,
    /// The highest one is taken when none is named.
    pub priority: u16,
    /// Description in one line.
    pub about: &'static str,
    make: fn() -> Front,
}

impl Entry {
    /// Makes an instance for one worker and direction.
    #[must_use]
    pub fn make(&self) -> Front {
        (self.make)()
    }
}

const ENTRIES: &[Entry] = &[Entry {
    name: "inline",
    priority: 100,
    about: "works at once on the worker's own core, a burst at a time",
    make: Front::inline,
}];

/// All engines, highest priority first.
#[must_use]
pub fn entries() -> &'static [Entry] {
    ENTRIES
}

/// The engine with this name, or the one of highest priority.
#[must_use]
pub fn find(name: Option<&str>) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| name.is_none_or(|name| entry.name == name))
}
