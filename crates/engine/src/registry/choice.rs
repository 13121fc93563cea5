//! The driver of each SA: which implementation works with its key.
//!
//! An SA of the site file may name its driver, and rules name those of SAs of IKE daemons. Then the site's
//! preferences count, and last the priorities. A driver that was switched off is passed over, wherever its
//! name stands.

use std::net::IpAddr;

use convoy_crypto::{Cpu, Suite};

use super::rules::DriverRules;
use super::{Driver, Ready, Registry, RegistryError, Setting, algorithm};

/// The drivers of a gateway, and what is said of them.
#[derive(Clone, Debug)]
pub struct Drivers {
    registry: Registry,
    rules: DriverRules,
}

impl Drivers {
    /// Convoy's own drivers for `cpu`.
    #[must_use]
    pub fn new(cpu: &Cpu) -> Self {
        Self { registry: Registry::of(cpu), rules: DriverRules::default() }
    }

    /// The same with the rules of a site.
    #[must_use]
    pub fn with_rules(&self, rules: &DriverRules) -> Self {
        Self { registry: self.registry.clone(), rules: rules.clone() }
    }

    /// The same with one driver set otherwise.
    ///
    /// # Errors
    /// [`RegistryError`] when there is no such driver, or it can never be used for traffic.
    pub fn with_setting(&self, driver: &str, setting: Setting) -> Result<Self, RegistryError> {
        let mut with = self.clone();
        with.registry.set(driver, setting)?;
        Ok(with)
    }

    /// All drivers, with their settings.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The driver for an SA of the site file, which may name one.
    ///
    /// # Errors
    /// [`RegistryError::NoDriver`] when none that may be used works for it.
    pub fn for_site(&self, suite: Suite, named: Option<&str>) -> Result<Ready, RegistryError> {
        self.choose(suite, named.into_iter())
    }

    /// The driver for an SA of an IKE daemon with this peer and interface identifier.
    ///
    /// # Errors
    /// [`RegistryError::NoDriver`] when none that may be used works for it.
    pub fn for_daemon(
        &self,
        suite: Suite,
        peer: IpAddr,
        if_id: u32,
    ) -> Result<Ready, RegistryError> {
        let matching = self.rules.of_daemons.iter().filter(|rule| rule.sas.contains(peer, if_id));
        self.choose(suite, matching.map(|rule| &*rule.driver))
    }

    /// True if SAs of its algorithm that name no driver get this one.
    #[must_use]
    pub fn is_chosen(&self, driver: &Driver) -> bool {
        let suite = algorithm::suites(driver.algorithm()).find(|suite| driver.takes(*suite));
        let chosen = suite.and_then(|suite| self.choose(suite, std::iter::empty()).ok());
        chosen.is_some_and(|chosen| chosen.name() == driver.name())
    }

    /// The first of these names that works for a suite, then what the site prefers, then the best.
    fn choose<'a>(
        &'a self,
        suite: Suite,
        wanted: impl Iterator<Item = &'a str>,
    ) -> Result<Ready, RegistryError> {
        let preferred = self.rules.preferred.iter().map(|name| &**name);
        // Why a name does not suit is put into words by whoever reads it, and not for each SA.
        let is_for = |name: &&str| {
            self.registry.drivers().any(|driver| driver.name() == *name && driver.takes(suite))
        };
        let named = wanted
            .chain(preferred)
            .filter(is_for)
            .find_map(|name| self.registry.driver_for(name, suite).ok());
        let ready = named.map_or_else(|| self.registry.for_suite(suite), Ok)?;
        Ok(if self.rules.keeps_keys { ready.keeping() } else { ready })
    }
}
