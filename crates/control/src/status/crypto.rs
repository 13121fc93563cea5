//! Tiers, algorithms and drivers of a running gateway.

use std::collections::HashMap;

use convoy_crypto::{Cpu, Suite, Tier};
use convoy_engine::registry::{Driver, Drivers, SelfTest, algorithm};
use convoy_ipsec::snapshot::Snapshot;
use convoy_ipsec::suite::EspSuite;
use serde::{Deserialize, Serialize};

use super::SCHEMA;

/// Tiers, algorithms and drivers of the cryptography.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CryptoReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The best tier of this machine.
    pub best: String,
    /// Every tier, least preferred first.
    pub tiers: Vec<TierStatus>,
    /// Algorithms with their key and ICV lengths.
    pub algorithms: Vec<String>,
    /// The engine that has the cryptography done.
    #[serde(default)]
    pub engine: String,
    /// All drivers; those of an algorithm stand together, highest priority first.
    #[serde(default)]
    pub drivers: Vec<DriverStatus>,
}

/// One CPU tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierStatus {
    /// Name.
    pub name: String,
    /// True if this machine has it, and it is not denied.
    pub available: bool,
    /// CPU features it needs beyond those of the tiers it builds on.
    pub features: Vec<String>,
    /// Tiers it builds on.
    pub builds_on: Vec<String>,
}

/// One driver, and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverStatus {
    /// The algorithm, as a kernel calls it.
    pub algorithm: String,
    /// The driver's name.
    pub driver: String,
    /// Of the drivers of one algorithm, the highest is used.
    pub priority: u16,
    /// `aead`, `cipher` or `mac`.
    #[serde(rename = "type")]
    pub kind: String,
    /// True if packets are worked on by the core that submits them.
    pub synchronous: bool,
    /// Use that is made of it.
    pub state: DriverState,
    /// Result of its self-test.
    pub self_test: String,
    /// SAs that have it now.
    pub sas: u64,
    /// Packets of these SAs, whatever driver they had then.
    pub packets: u64,
    /// Packets of these SAs whose ICV was wrong.
    pub failures: u64,
}

/// Use that is made of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverState {
    /// SAs of its algorithm get it that name none.
    Chosen,
    /// SAs get it that name it, or for which a rule does.
    ByName,
    /// It was switched off.
    Off,
    /// It is for benches only.
    Benches,
    /// It failed its self-test, and is never used.
    Failed,
}

impl DriverState {
    /// In words.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Chosen => "chosen",
            Self::ByName => "by name",
            Self::Off => "off",
            Self::Benches => "benches",
            Self::Failed => "never",
        }
    }
}

/// Effect of a change of a driver's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverChange {
    /// The driver as it is now.
    pub driver: DriverStatus,
    /// Number of SAs that have another driver than before.
    pub sas_changed: usize,
}

/// The tiers of this machine, the algorithms, and the drivers with what the SAs of a snapshot did.
/// Self-tests that were not run before are run now, which takes some tenths of a second.
#[must_use]
pub fn crypto_report(
    cpu: &Cpu,
    drivers: &Drivers,
    snapshot: &Snapshot,
    engine: &str,
) -> CryptoReport {
    let tiers = Tier::ALL.iter().map(|tier| {
        let info = tier.info();
        TierStatus {
            name: info.name.to_owned(),
            available: cpu.has(*tier),
            features: info.features.iter().map(|&feature| feature.to_owned()).collect(),
            builds_on: info.builds_on.iter().map(ToString::to_string).collect(),
        }
    });
    let algorithms = EspSuite::all().map(|esp| esp.suite().to_string());
    let work = work(snapshot);
    let all = drivers.registry().drivers();
    CryptoReport {
        schema: SCHEMA,
        best: cpu.best().to_string(),
        tiers: tiers.collect(),
        algorithms: algorithms.collect(),
        engine: engine.to_owned(),
        drivers: all.map(|driver| status(drivers, driver, work.of(driver))).collect(),
    }
}

/// Counts of the SAs of one driver.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    sas: u64,
    packets: u64,
    failures: u64,
}

/// One driver, with what the SAs of a snapshot did; `None` if there is none of this name.
#[must_use]
pub fn driver_status(name: &str, drivers: &Drivers, snapshot: &Snapshot) -> Option<DriverStatus> {
    let driver = drivers.registry().drivers().find(|driver| driver.name() == name)?;
    Some(status(drivers, driver, work(snapshot).of(driver)))
}

/// Counts of SAs by their algorithm and the tier of their key, which together tell the driver.
#[derive(Debug, Default)]
struct WorkByTier(HashMap<(String, Tier), Work>);

impl WorkByTier {
    fn add(&mut self, suite: Suite, tier: Tier, packets: u64, failures: u64) {
        let of = self.0.entry((algorithm::name_of(suite).into_owned(), tier)).or_default();
        of.sas += 1;
        of.packets += packets;
        of.failures += failures;
    }

    fn of(&self, driver: &Driver) -> Work {
        let key = |tier| (driver.algorithm().to_owned(), tier);
        driver.tier().and_then(|tier| self.0.get(&key(tier))).copied().unwrap_or_default()
    }
}

fn work(snapshot: &Snapshot) -> WorkByTier {
    let mut work = WorkByTier::default();
    for (_, sa) in snapshot.outbound_sas() {
        work.add(sa.key.suite(), sa.key.tier(), sa.counters.packets.get(), 0);
    }
    for (_, sa) in snapshot.inbound_sas() {
        let (packets, failures) = (sa.counters.packets.get(), sa.counters.icv_failures.get());
        work.add(sa.key.suite(), sa.key.tier(), packets, failures);
    }
    work
}

fn status(drivers: &Drivers, driver: &Driver, work: Work) -> DriverStatus {
    let state = match driver.self_test() {
        SelfTest::Failed(_) | SelfTest::NotRun => DriverState::Failed,
        _ if driver.is_for_benches() => DriverState::Benches,
        _ if !driver.is_on() => DriverState::Off,
        _ if drivers.is_chosen(driver) => DriverState::Chosen,
        _ => DriverState::ByName,
    };
    DriverStatus {
        algorithm: driver.algorithm().to_owned(),
        driver: driver.name().to_owned(),
        priority: driver.priority(),
        kind: driver.kind().name().to_owned(),
        synchronous: driver.is_synchronous(),
        state,
        self_test: driver.self_test().to_string(),
        sas: work.sas,
        packets: work.packets,
        failures: work.failures,
    }
}
