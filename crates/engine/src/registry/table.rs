//! The table of drivers: who is registered, and who is chosen.

use std::sync::Arc;

use convoy_crypto::{Cpu, Suite};

use super::driver::{Driver, Ready, SelfTest};
use super::error::RegistryError;
use super::{algorithm, bench_drivers, tiers};

/// Use that a driver is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To protect packets.
    Traffic,
    /// To be measured.
    Bench,
}

/// A change of a driver's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Of the drivers of one algorithm, the one of highest priority is used.
    Priority(u16),
    /// It may be used, or not.
    On(bool),
}

/// All drivers. A clone has settings of its own, and shares the drivers and what their self-tests found.
#[derive(Clone, Debug)]
pub struct Registry {
    cpu: Cpu,
    /// Drivers of an algorithm stand together, highest priority first.
    drivers: Vec<Arc<Driver>>,
}

impl Registry {
    /// A registry without drivers; those to come are tested against portable software of `cpu`.
    #[must_use]
    pub const fn empty(cpu: &Cpu) -> Self {
        Self { cpu: *cpu, drivers: Vec::new() }
    }

    /// A registry with Convoy's own drivers, one for each algorithm and tier of `cpu`, and with those that
    /// are for benches only. Each is tested when it is first asked for.
    #[must_use]
    pub fn of(cpu: &Cpu) -> Self {
        let mut registry = Self::empty(cpu);
        for driver in tiers::drivers(cpu).chain(bench_drivers::for_benches(cpu)) {
            registry.add(driver);
        }
        registry
    }

    /// Registers a driver, tests it, and says how that ended. One that fails stays in the list and is never
    /// used.
    ///
    /// # Errors
    /// [`RegistryError::NameTaken`], or [`RegistryError::UnknownAlgorithm`]: it could not be tested.
    pub fn register(&mut self, driver: Driver) -> Result<SelfTest, RegistryError> {
        if self.drivers.iter().any(|other| other.name == driver.name) {
            return Err(RegistryError::NameTaken(driver.name));
        }
        if algorithm::suites(&driver.algorithm).next().is_none() {
            return Err(unknown_algorithm(&driver.algorithm));
        }
        Ok(self.add(driver).self_test().clone())
    }

    fn add(&mut self, mut driver: Driver) -> Arc<Driver> {
        driver.synchronous = driver.provider.engine().standing().is_none();
        driver.judge = Some(self.cpu);
        let driver = Arc::new(driver);
        self.drivers.insert(self.place_of(&driver), driver.clone());
        driver
    }

    /// Changes a driver's settings. Keys that it made before go on working.
    ///
    /// # Errors
    /// [`RegistryError`] when there is no such driver, or it can never be used for traffic.
    pub fn set(&mut self, name: &str, setting: Setting) -> Result<(), RegistryError> {
        let Some(at) = self.drivers.iter().position(|driver| driver.name == name) else {
            return Err(self.unknown_driver(name));
        };
        if let Some(driver) = self.drivers.get(at) {
            self.may_ever(driver, Purpose::Traffic)?;
        }
        let mut driver = Driver::clone(&self.drivers.remove(at));
        match setting {
            Setting::Priority(priority) => driver.priority = priority,
            Setting::On(is_on) => driver.is_on = is_on,
        }
        self.drivers.insert(self.place_of(&driver), Arc::new(driver));
        Ok(())
    }

    /// Behind those of its algorithm that have its priority or a higher one.
    fn place_of(&self, driver: &Driver) -> usize {
        let is_of = |other: &Arc<Driver>| other.algorithm == driver.algorithm;
        let Some(first) = self.drivers.iter().position(is_of) else { return self.drivers.len() };
        let stays = |other: &&Arc<Driver>| is_of(other) && other.priority() >= driver.priority();
        first + self.drivers.iter().skip(first).take_while(stays).count()
    }

    /// All drivers; those of an algorithm stand together, highest priority first.
    pub fn drivers(&self) -> impl Iterator<Item = &Driver> {
        self.drivers.iter().map(Arc::as_ref)
    }

    /// The driver for a suite: of those that passed and work for it, the one of highest priority.
    ///
    /// # Errors
    /// [`RegistryError::NoDriver`]
    pub fn for_suite(&self, suite: Suite) -> Result<Ready, RegistryError> {
        let algorithm = algorithm::name_of(suite);
        let takes = |driver: &Driver| driver.algorithm == algorithm && driver.provider.takes(suite);
        self.best(takes).ok_or_else(|| RegistryError::NoDriver {
            suite: suite.to_string(),
            algorithm: algorithm.into_owned(),
        })
    }

    /// The driver for an algorithm: of those that passed, the one of highest priority.
    ///
    /// # Errors
    /// [`RegistryError::UnknownAlgorithm`] or [`RegistryError::NoDriver`].
    pub fn for_algorithm(&self, name: &str) -> Result<Ready, RegistryError> {
        if algorithm::suites(name).next().is_none() {
            return Err(unknown_algorithm(name));
        }
        let algorithm = algorithm::canonical(name);
        let found = self.best(|driver| driver.algorithm == algorithm);
        found.ok_or_else(|| RegistryError::NoDriver {
            suite: name.to_owned(),
            algorithm: algorithm.into_owned(),
        })
    }

    /// The driver of this name.
    ///
    /// # Errors
    /// [`RegistryError`] when there is none, it failed its self-test, or it is not for this purpose.
    pub fn driver(&self, name: &str, purpose: Purpose) -> Result<Ready, RegistryError> {
        let Some(driver) = self.drivers.iter().find(|driver| driver.name == name) else {
            return Err(self.unknown_driver(name));
        };
        self.may_ever(driver, purpose)?;
        if !driver.is_on() {
            let instead = self.instead_of(&driver.algorithm);
            return Err(RegistryError::Off { name: name.to_owned(), instead });
        }
        Ok(Ready::new(Arc::clone(driver)))
    }

    /// The driver of this name, to protect packets of a suite.
    ///
    /// # Errors
    /// [`RegistryError`], also when it works for other suites.
    pub fn driver_for(&self, name: &str, suite: Suite) -> Result<Ready, RegistryError> {
        let driver = self.driver(name, Purpose::Traffic)?;
        if driver.takes(suite) {
            return Ok(driver);
        }
        let wanted = algorithm::name_of(suite);
        Err(RegistryError::OtherAlgorithm {
            name: name.to_owned(),
            algorithm: driver.algorithm.clone(),
            wanted: format!("{suite} ({wanted})"),
            instead: self.instead_of(&wanted),
        })
    }

    /// Checks that it can be used, once it is switched on.
    fn may_ever(&self, driver: &Driver, purpose: Purpose) -> Result<(), RegistryError> {
        let name = || driver.name.clone();
        match driver.self_test() {
            SelfTest::Passed | SelfTest::Exempt => {}
            failed => {
                let (self_test, instead) = (failed.clone(), self.instead_of(&driver.algorithm));
                return Err(RegistryError::Failed { name: name(), self_test, instead });
            }
        }
        if driver.is_for_benches() && purpose == Purpose::Traffic {
            let instead = self.instead_of(&driver.algorithm);
            return Err(RegistryError::BenchOnly { name: name(), instead });
        }
        Ok(())
    }

    fn best(&self, suits: impl Fn(&Driver) -> bool) -> Option<Ready> {
        // What suits comes first: most self-tests are then never run.
        let may = |driver: &&Arc<Driver>| suits(driver) && is_for_traffic(driver);
        self.drivers.iter().find(may).map(|driver| Ready::new(Arc::clone(driver)))
    }

    fn names_of(&self, algorithm: &str) -> String {
        let of = |driver: &&Arc<Driver>| driver.algorithm == algorithm && is_for_traffic(driver);
        let names: Vec<_> = self.drivers.iter().filter(of).map(|driver| driver.name()).collect();
        names.join(", ")
    }

    fn instead_of(&self, algorithm: &str) -> String {
        match self.names_of(algorithm) {
            names if names.is_empty() => format!("there is no other for {algorithm}"),
            names => format!("for {algorithm} there are {names}"),
        }
    }

    fn unknown_driver(&self, name: &str) -> RegistryError {
        let algorithms = algorithm::names();
        let begins = |algorithm: &&std::borrow::Cow<'_, str>| {
            name.starts_with(&format!("{}-", algorithm::as_word(algorithm)))
        };
        let known = algorithms.iter().find(begins).map(|algorithm| self.names_of(algorithm));
        let known = known.filter(|names| !names.is_empty());
        let known = known.unwrap_or_else(|| format!("drivers for {}", algorithms.join(", ")));
        RegistryError::UnknownDriver { name: name.to_owned(), known }
    }
}

fn is_for_traffic(driver: &Driver) -> bool {
    driver.is_on() && !driver.is_for_benches() && *driver.self_test() == SelfTest::Passed
}

fn unknown_algorithm(name: &str) -> RegistryError {
    RegistryError::UnknownAlgorithm { name: name.to_owned(), known: algorithm::names().join(", ") }
}
