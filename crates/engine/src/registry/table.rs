//! The table of drivers: who is registered, and who is chosen.

use std::sync::Arc;

use convoy_crypto::{Cpu, Suite};

use super::algorithm;
use super::driver::{Driver, Ready, SelfTest};
use super::{self_test, tiers};
use crate::drivers;

/// What a driver is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To protect packets.
    Traffic,
    /// To be measured.
    Bench,
}

/// A driver is not registered, or not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// No algorithm has the name.
    #[error("no algorithm is called {name:?}; there are {known}")]
    UnknownAlgorithm {
        /// The name that was asked for.
        name: String,
        /// All names, with commas between them.
        known: String,
    },
    /// No driver has the name.
    #[error("no driver is called {name:?}; there are {known}")]
    UnknownDriver {
        /// The name that was asked for.
        name: String,
        /// Drivers of the algorithm that the name begins with, or all algorithms.
        known: String,
    },
    /// A driver has the name already.
    #[error("a driver is called {0:?} already; names are given once")]
    NameTaken(String),
    /// The driver failed its self-test.
    #[error("the driver {name} must not be used, as its self-test {self_test}; {instead}")]
    Failed {
        /// The driver's name.
        name: String,
        /// How the self-test ended.
        self_test: SelfTest,
        /// What can be used.
        instead: String,
    },
    /// The driver is for benches.
    #[error("the driver {name} is for benches only; {instead}")]
    BenchOnly {
        /// The driver's name.
        name: String,
        /// What can be used.
        instead: String,
    },
    /// No driver that may be used works for the suite.
    #[error("no driver that passed its self-test works for {suite}, of {algorithm}")]
    NoDriver {
        /// The suite, or the name that was asked for.
        suite: String,
        /// Its algorithm.
        algorithm: String,
    },
}

/// All drivers.
#[derive(Debug)]
pub struct Registry {
    cpu: Cpu,
    /// Those of an algorithm stand together, highest priority first.
    drivers: Vec<Arc<Driver>>,
}

impl Registry {
    /// A registry without drivers; those to come are tested against portable software of `cpu`.
    #[must_use]
    pub const fn empty(cpu: &Cpu) -> Self {
        Self { cpu: *cpu, drivers: Vec::new() }
    }

    /// A registry with Convoy's own drivers, one for each algorithm and tier of `cpu`, and with those that
    /// are for benches only.
    #[must_use]
    pub fn of(cpu: &Cpu) -> Self {
        let mut registry = Self::empty(cpu);
        for driver in tiers::drivers(cpu).chain(drivers::for_benches(cpu)) {
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
        Ok(self.add(driver))
    }

    fn add(&mut self, mut driver: Driver) -> SelfTest {
        driver.synchronous = driver.provider.engine().standing().is_none();
        driver.self_test = match self_test::run(&driver, &self.cpu) {
            _ if driver.is_exempt() => SelfTest::Exempt,
            Ok(()) => SelfTest::Passed,
            Err(fault) => SelfTest::Failed(fault.to_string()),
        };
        let self_test = driver.self_test.clone();
        self.drivers.insert(self.place_of(&driver), Arc::new(driver));
        self_test
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
        self.best(|driver| driver.takes(suite)).ok_or_else(|| RegistryError::NoDriver {
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
        let name = || name.to_owned();
        match &driver.self_test {
            SelfTest::Passed | SelfTest::Exempt => {}
            failed => {
                let (self_test, instead) = (failed.clone(), self.instead_of(driver));
                return Err(RegistryError::Failed { name: name(), self_test, instead });
            }
        }
        if driver.is_for_benches() && purpose == Purpose::Traffic {
            return Err(RegistryError::BenchOnly {
                name: name(),
                instead: self.instead_of(driver),
            });
        }
        Ok(Ready(Arc::clone(driver)))
    }

    fn best(&self, suits: impl Fn(&Driver) -> bool) -> Option<Ready> {
        let may = |driver: &&Arc<Driver>| is_for_traffic(driver) && suits(driver);
        self.drivers.iter().find(may).map(|driver| Ready(Arc::clone(driver)))
    }

    fn names_of(&self, algorithm: &str) -> String {
        let of = |driver: &&Arc<Driver>| driver.algorithm == algorithm && is_for_traffic(driver);
        let names: Vec<_> = self.drivers.iter().filter(of).map(|driver| driver.name()).collect();
        names.join(", ")
    }

    fn instead_of(&self, driver: &Driver) -> String {
        match self.names_of(&driver.algorithm) {
            names if names.is_empty() => format!("there is no other for {}", driver.algorithm),
            names => format!("for {} there are {names}", driver.algorithm),
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
    driver.self_test == SelfTest::Passed && !driver.is_for_benches()
}

fn unknown_algorithm(name: &str) -> RegistryError {
    RegistryError::UnknownAlgorithm { name: name.to_owned(), known: algorithm::names().join(", ") }
}
