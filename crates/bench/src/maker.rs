//! Makers of keys and engines for a measurement.

use convoy_crypto::{Cpu, KeyError, KeyMaterial, OpenKey, SealKey, Suite, Tier};
use convoy_engine::Front;
use convoy_engine::registry::{Driver, Purpose, Ready, Registry, RegistryError, algorithm};

/// Source of keys, and of the engine that uses them at once.
#[derive(Clone, Debug)]
pub enum Maker {
    /// Convoy's own kernels of a tier.
    Tier(Cpu, Tier),
    /// The same, with keys that keep their material for a device.
    Keeping(Cpu, Tier),
    /// A driver, with an engine of its own.
    Driver(Ready),
}

impl Maker {
    /// Finds a driver for `suite` by its name, or by what its name ends with behind the algorithm:
    /// `null`, `two-pass`, `convoy-avx2`. `None` if the drivers of this word are for other suites.
    ///
    /// # Errors
    /// [`RegistryError`] when no driver has the name, or it failed its self-test.
    pub fn driver(
        registry: &Registry,
        word: &str,
        suite: Suite,
    ) -> Result<Option<Self>, RegistryError> {
        let is_meant = |driver: &&Driver| {
            let begin = algorithm::as_word(driver.algorithm());
            driver.name() == word || driver.name() == format!("{begin}-{word}")
        };
        let mut meant = registry.drivers().filter(is_meant).peekable();
        if meant.peek().is_none() {
            // The error names what there is.
            registry.driver(word, Purpose::Bench)?;
        }
        let Some(found) = meant.find(|driver| driver.takes(suite)) else { return Ok(None) };
        registry.driver(found.name(), Purpose::Bench).map(|ready| Some(Self::Driver(ready)))
    }

    /// A key to seal with.
    ///
    /// # Errors
    /// [`KeyError`] when the material does not suit.
    pub fn seal_key(&self, suite: Suite, material: KeyMaterial) -> Result<SealKey, KeyError> {
        match self {
            Self::Tier(cpu, tier) => SealKey::with_tier(cpu, *tier, suite, material),
            Self::Keeping(cpu, tier) => SealKey::keeping_with_tier(cpu, *tier, suite, material),
            Self::Driver(driver) => driver.seal_key(suite, material),
        }
    }

    /// A key to open with.
    ///
    /// # Errors
    /// [`KeyError`] when the material does not suit.
    pub fn open_key(&self, suite: Suite, material: KeyMaterial) -> Result<OpenKey, KeyError> {
        match self {
            Self::Tier(cpu, tier) => OpenKey::with_tier(cpu, *tier, suite, material),
            Self::Keeping(cpu, tier) => OpenKey::keeping_with_tier(cpu, *tier, suite, material),
            Self::Driver(driver) => driver.open_key(suite, material),
        }
    }

    /// An engine that works at once.
    #[must_use]
    pub fn engine(&self) -> Front {
        match self {
            Self::Tier(..) | Self::Keeping(..) => Front::inline(),
            Self::Driver(driver) => driver.engine(),
        }
    }

    /// Name of the engine: `inline`, or the driver's.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Tier(..) | Self::Keeping(..) => "inline",
            Self::Driver(driver) => driver.name(),
        }
    }
}
