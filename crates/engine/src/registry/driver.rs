//! Drivers: implementations of one algorithm, and what is known about them.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use convoy_crypto::{Cpu, KeyError, KeyMaterial, OpenKey, SealKey, Suite, Tier};

use super::algorithm::{self, Kind};
use super::self_test;
use crate::Front;

/// Implementation behind a driver: brought by whoever registers it, within this crate or outside.
pub trait Provider: Send + Sync + fmt::Debug {
    /// True if it works for this suite; a driver need not know all lengths of its algorithm's keys and
    /// ICVs.
    fn takes(&self, suite: Suite) -> bool;

    /// A key to seal with in its engines. Where the engines need the material itself, the key must
    /// [keep](SealKey::keeping) it.
    ///
    /// # Errors
    /// [`KeyError`] when the material does not suit.
    fn seal_key(&self, suite: Suite, material: KeyMaterial) -> Result<SealKey, KeyError>;

    /// A key to open with in its engines; see [`Self::seal_key`].
    ///
    /// # Errors
    /// [`KeyError`] when the material does not suit.
    fn open_key(&self, suite: Suite, material: KeyMaterial) -> Result<OpenKey, KeyError>;

    /// A key as of [`Self::seal_key`] that keeps its material, for a device that works in place of this
    /// driver's engines.
    ///
    /// # Errors
    /// [`KeyError`] when the material does not suit.
    fn keeping_seal_key(&self, suite: Suite, material: KeyMaterial) -> Result<SealKey, KeyError> {
        self.seal_key(suite, material)
    }

    /// A key as of [`Self::open_key`] that keeps its material; see [`Self::keeping_seal_key`].
    ///
    /// # Errors
    /// [`KeyError`] when the material does not suit.
    fn keeping_open_key(&self, suite: Suite, material: KeyMaterial) -> Result<OpenKey, KeyError> {
        self.open_key(suite, material)
    }

    /// An engine for one worker and direction, without keys.
    fn engine(&self) -> Front;

    /// The tier of Convoy's own kernels, if these are what computes. Keys of such a driver work in every
    /// engine that takes Convoy's keys; those of others only in [its own](Self::engine).
    fn tier(&self) -> Option<Tier> {
        None
    }
}

/// Outcome of a driver's self-test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelfTest {
    /// It is not registered, and was not tested.
    NotRun,
    /// It gave the known answers, and refused forged packets.
    Passed,
    /// It did not, for this reason; it is never used.
    Failed(String),
    /// It computes nothing that could be tested, and is for benches only.
    Exempt,
}

impl fmt::Display for SelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRun => f.write_str("not run"),
            Self::Passed => f.write_str("passed"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::Exempt => f.write_str("none"),
        }
    }
}

/// An implementation of one algorithm.
#[derive(Clone, Debug)]
pub struct Driver {
    pub(super) algorithm: String,
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) synchronous: bool,
    /// CPU whose portable software its self-test compares it with, once it is registered.
    pub(super) judge: Option<Cpu>,
    /// Outcome of the self-test; shared by all that are this driver with other settings.
    verdict: Arc<OnceLock<SelfTest>>,
    pub(super) priority: u16,
    pub(super) is_on: bool,
    bench_only: bool,
    exempt: bool,
    about: String,
    pub(super) provider: Arc<dyn Provider>,
}

impl Driver {
    /// Priority of a driver that says nothing else, and of portable software.
    pub const PORTABLE: u16 = 100;

    /// A driver of an algorithm, with a name of its own in the manner of `rfc4106-gcm-aes-vendor`.
    #[must_use]
    pub fn new(algorithm: &str, name: impl Into<String>, provider: Arc<dyn Provider>) -> Self {
        let algorithm = algorithm::canonical(algorithm).into_owned();
        Self {
            kind: algorithm::suites(&algorithm).next().map_or(Kind::Aead, Kind::of),
            algorithm,
            name: name.into(),
            synchronous: true,
            judge: None,
            verdict: Arc::default(),
            priority: Self::PORTABLE,
            is_on: true,
            bench_only: false,
            exempt: false,
            about: String::new(),
            provider,
        }
    }

    /// The same with another priority than [`Self::PORTABLE`].
    #[must_use]
    pub fn with_priority(self, priority: u16) -> Self {
        Self { priority, ..self }
    }

    /// The same with a line that says what it is.
    #[must_use]
    pub fn with_about(self, about: impl Into<String>) -> Self {
        Self { about: about.into(), ..self }
    }

    /// For benches: never chosen for an algorithm, and refused for traffic by its name, too.
    #[must_use]
    pub fn bench_only(self) -> Self {
        Self { bench_only: true, ..self }
    }

    /// For benches, and without a self-test, as it computes nothing.
    #[must_use]
    pub fn does_no_work(self) -> Self {
        Self { bench_only: true, exempt: true, ..self }
    }

    /// The algorithm's name.
    #[must_use]
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// The driver's own name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Of the drivers of one algorithm that passed, the highest is used.
    #[must_use]
    pub const fn priority(&self) -> u16 {
        self.priority
    }

    /// Sort of its algorithm.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// True if jobs are done on the core that submits them.
    #[must_use]
    pub const fn is_synchronous(&self) -> bool {
        self.synchronous
    }

    /// True if it is for benches only.
    #[must_use]
    pub const fn is_for_benches(&self) -> bool {
        self.bench_only
    }

    /// True unless somebody has [switched it off](super::Registry::set).
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// The tier of Convoy's own kernels, if these are what computes.
    #[must_use]
    pub fn tier(&self) -> Option<Tier> {
        self.provider.tier()
    }

    /// Description in one line.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Outcome of its self-test, which is run now if it was not before. That takes some milliseconds.
    #[must_use]
    pub fn self_test(&self) -> &SelfTest {
        let Some(cpu) = &self.judge else { return &SelfTest::NotRun };
        if self.exempt {
            return &SelfTest::Exempt;
        }
        self.verdict.get_or_init(|| match self_test::run(self, cpu) {
            Ok(()) => SelfTest::Passed,
            Err(fault) => SelfTest::Failed(fault.to_string()),
        })
    }

    /// True if it works for this suite.
    #[must_use]
    pub fn takes(&self, suite: Suite) -> bool {
        algorithm::name_of(suite) == self.algorithm && self.provider.takes(suite)
    }
}

/// A driver that may be used: it passed its self-test, or is for benches and asked for by one.
#[derive(Clone, Debug)]
pub struct Ready {
    pub(super) driver: Arc<Driver>,
    /// True if its keys keep their material.
    keeps: bool,
}

impl Ready {
    pub(super) const fn new(driver: Arc<Driver>) -> Self {
        Self { driver, keeps: false }
    }

    /// The same, with keys that keep what they are made of: for a device that wants the key itself. The
    /// driver then works for whatever the device leaves undone.
    #[must_use]
    pub fn keeping(self) -> Self {
        Self { keeps: true, ..self }
    }

    /// A key to seal with in engines of this driver.
    ///
    /// # Errors
    /// [`KeyError`] when the material does not suit.
    pub fn seal_key(
        &self,
        suite: Suite,
        material: impl Into<KeyMaterial>,
    ) -> Result<SealKey, KeyError> {
        let (provider, material) = (&self.driver.provider, material.into());
        match self.keeps {
            true => provider.keeping_seal_key(suite, material),
            false => provider.seal_key(suite, material),
        }
    }

    /// A key to open with in engines of this driver.
    ///
    /// # Errors
    /// [`KeyError`] when the material does not suit.
    pub fn open_key(
        &self,
        suite: Suite,
        material: impl Into<KeyMaterial>,
    ) -> Result<OpenKey, KeyError> {
        let (provider, material) = (&self.driver.provider, material.into());
        match self.keeps {
            true => provider.keeping_open_key(suite, material),
            false => provider.open_key(suite, material),
        }
    }

    /// An engine for one worker and direction, without keys.
    #[must_use]
    pub fn engine(&self) -> Front {
        self.driver.provider.engine()
    }
}

impl Deref for Ready {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        &self.driver
    }
}
