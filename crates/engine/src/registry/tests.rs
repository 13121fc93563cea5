//! Drivers that do right, and drivers that do not.

use std::sync::Arc;

use convoy_crypto::{
    Cpu, KeyError, KeyMaterial, OpenKey, SealKey, SecretBytes, Suite, Tier, known_answers,
};

use super::*;
use crate::lookaside::run_copy;
use crate::model::{Faults, Model, Settings};
use crate::{EngineKey, Job, KeyId, Op, Status, Synchronous};

fn cpu() -> Cpu {
    Cpu::detect().unwrap()
}

#[test]
fn the_highest_priority_comes_first_and_is_the_default() {
    assert!(entries().is_sorted_by(|a, b| a.priority >= b.priority));
    assert_eq!(find(None).map(|e| e.name), Some(entries()[0].name));
    assert!(find(Some("no such engine")).is_none());
    assert!(find(Some("inline")).is_some_and(|e| e.make().standing().is_none()));
}

#[test]
fn every_algorithm_has_published_answers() {
    for name in algorithm::names() {
        let mut suites = algorithm::suites(&name);
        let has_some = |suite| !known_answers::published(suite, &cpu()).unwrap().is_empty();
        assert!(suites.any(has_some), "{name}");
    }
}

#[test]
fn every_tier_has_a_driver_for_every_algorithm_and_all_pass() {
    let (cpu, registry) = (cpu(), Registry::of(&cpu()));
    for name in algorithm::names() {
        let drivers: Vec<_> = registry.drivers().filter(|d| d.algorithm() == name).collect();
        let own: Vec<_> = drivers.iter().filter(|d| d.name().contains("-convoy-")).collect();
        assert_eq!(own.len(), cpu.tiers().count(), "{name}");
        assert!(drivers.is_sorted_by(|a, b| a.priority() >= b.priority()));
        for driver in own {
            assert_eq!(*driver.self_test(), SelfTest::Passed, "{}", driver.name());
            assert!(driver.is_synchronous() && !driver.is_for_benches());
        }
        let best = registry.for_algorithm(&name).unwrap();
        assert!(best.name().ends_with(&format!("-convoy-{}", cpu.best())), "{}", best.name());
    }
    for suite in Suite::all() {
        let key = |bytes| SecretBytes::from((0..bytes).map(|i| i as u8).collect::<Vec<_>>());
        let material = KeyMaterial {
            cipher: key(suite.key_bytes()),
            integrity: key(suite.integrity_key_bytes()),
        };
        let driver = registry.for_suite(suite).unwrap();
        assert_eq!(driver.seal_key(suite, material).unwrap().tier(), cpu.best(), "{suite}");
    }
}

#[test]
fn a_driver_of_a_tier_makes_keys_of_that_tier() {
    let registry = Registry::of(&cpu());
    let suite: Suite = "aes-256-gcm-12".parse().unwrap();
    let material = || SecretBytes::copy_from(&[3; 32]);
    let name = "rfc4106-gcm-aes-convoy-portable";
    let driver = registry.driver(name, Purpose::Traffic).unwrap();
    assert_eq!((driver.priority(), driver.kind()), (Driver::PORTABLE, Kind::Aead));
    assert_eq!(driver.seal_key(suite, material()).unwrap().tier(), Tier::Portable);
    assert_eq!(driver.open_key(suite, material()).unwrap().tier(), Tier::Portable);
}

/// Misbehaviour of a driver for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The last bit of what it seals is wrong.
    WrongResult,
    /// Only with many packets at once.
    WrongSideBySide,
    /// It never looks at ICVs.
    TakesForgeries,
    /// It tells of a forged packet, but has decrypted it.
    LeavesText,
    /// It gives every packet up.
    GivesUp,
    /// It writes behind the ICV.
    Overruns,
    /// It has no key.
    NoKey,
}

#[derive(Debug)]
struct Odd(Fault);

impl Provider for Odd {
    fn takes(&self, suite: Suite) -> bool {
        matches!(suite, Suite::Gcm(_) | Suite::Pair { .. })
    }
    fn seal_key(&self, suite: Suite, material: KeyMaterial) -> Result<SealKey, KeyError> {
        if self.0 == Fault::NoKey {
            return Err(KeyError::NotAead);
        }
        SealKey::new(&cpu(), suite, material)
    }
    fn open_key(&self, suite: Suite, material: KeyMaterial) -> Result<OpenKey, KeyError> {
        OpenKey::new(&cpu(), suite, material)
    }
    fn engine(&self) -> Front {
        Front::at_once(Box::new(OddEngine { fault: self.0, key: None }))
    }
}

#[derive(Debug)]
struct OddEngine {
    fault: Fault,
    key: Option<EngineKey>,
}

impl Synchronous for OddEngine {
    fn install(&mut self, _: KeyId, key: EngineKey) {
        self.key = Some(key);
    }
    fn remove(&mut self, _: KeyId) {
        self.key = None;
    }
    fn run(&mut self, jobs: &mut [Job]) {
        let many = jobs.len() > 1;
        for job in jobs {
            let mut packet = job.frame.data().to_vec();
            let key = self.key.as_ref().unwrap();
            let status = run_copy(key, job, &mut packet);
            let seals = matches!(job.op, Op::Seal(_));
            let at = (job.text.start + job.text.len) as usize;
            job.status = match self.fault {
                Fault::GivesUp => Status::Rejected,
                Fault::TakesForgeries => Status::Done,
                _ => status,
            };
            match self.fault {
                Fault::WrongResult if seals => packet[at] ^= 1,
                Fault::WrongSideBySide if seals && many => packet[at] ^= 1,
                Fault::Overruns if seals => *packet.last_mut().unwrap() ^= 1,
                Fault::LeavesText if status == Status::BadIcv => {
                    packet[at.saturating_sub(1)] = 1;
                }
                _ => {}
            }
            job.frame.data_mut().copy_from_slice(&packet);
            job.op = Op::Spent;
        }
    }
}

const GCM: &str = "rfc4106(gcm(aes))";

fn odd(algorithm: &str, name: &str, fault: Fault) -> Driver {
    Driver::new(algorithm, name, Arc::new(Odd(fault))).with_priority(5000).with_about("for tests")
}

#[test]
fn a_driver_that_gives_wrong_results_or_takes_forgeries_is_listed_as_failed_and_never_chosen() {
    let suite: Suite = "aes-128-gcm-16".parse().unwrap();
    for (fault, why) in [
        (Fault::WrongResult, "sealed to other bytes than McGrew and Viega"),
        (Fault::WrongSideBySide, "sealed to other bytes than McGrew and Viega"),
        (Fault::TakesForgeries, "took a packet with a forged ICV"),
        (Fault::LeavesText, "left the text of a forged packet"),
        (Fault::GivesUp, "gave a packet up (Rejected)"),
        (Fault::Overruns, "sealed to other bytes"),
        (Fault::NoKey, "only an AEAD"),
    ] {
        let mut registry = Registry::of(&cpu());
        let said = registry.register(odd(GCM, "gcm-odd", fault)).unwrap().to_string();
        assert!(said.starts_with("failed: aes-") && said.contains(why), "{fault:?}: {said}");
        assert!(registry.drivers().any(|driver| driver.name() == "gcm-odd"));
        assert_ne!(registry.for_algorithm(GCM).unwrap().name(), "gcm-odd");
        assert_ne!(registry.for_suite(suite).unwrap().name(), "gcm-odd");
        for purpose in [Purpose::Traffic, Purpose::Bench] {
            let error = registry.driver("gcm-odd", purpose).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("gcm-aes-convoy-portable"), "{error}");
        }
    }
}

#[test]
fn pairs_macs_and_ciphers_are_tested_too() {
    for algorithm in
        ["authenc(hmac(sha256),cbc(aes))", "hmac(sha1)", "authenc(xcbc(aes),rfc3686(ctr(aes)))"]
    {
        for fault in [Fault::WrongResult, Fault::TakesForgeries, Fault::Overruns] {
            let mut registry = Registry::empty(&cpu());
            let self_test = registry.register(odd(algorithm, "odd", fault)).unwrap();
            assert!(matches!(self_test, SelfTest::Failed(_)), "{algorithm} {fault:?}");
            let error = registry.for_algorithm(algorithm).unwrap_err();
            assert!(matches!(error, RegistryError::NoDriver { .. }), "{error}");
        }
        let mut registry = Registry::empty(&cpu());
        let self_test = registry.register(odd(algorithm, "odd", Fault::None)).unwrap();
        assert_eq!(self_test, SelfTest::Passed);
    }
    let mut registry = Registry::empty(&cpu());
    let self_test = registry.register(odd("cbc(aes)", "odd", Fault::Overruns)).unwrap();
    assert!(matches!(self_test, SelfTest::Failed(_)));
}

#[test]
fn a_driver_from_outside_is_chosen_by_its_priority_for_what_it_takes() {
    let mut registry = Registry::of(&cpu());
    let driver = odd(GCM, "gcm-good", Fault::None);
    assert_eq!(*driver.self_test(), SelfTest::NotRun);
    assert_eq!(registry.register(driver).unwrap(), SelfTest::Passed);
    assert_eq!(registry.for_algorithm(GCM).unwrap().name(), "gcm-good");
    let low = odd(GCM, "gcm-low", Fault::None).with_priority(1);
    registry.register(low).unwrap();
    assert_eq!(registry.for_algorithm(GCM).unwrap().name(), "gcm-good");
    let benched = odd(GCM, "gcm-bench", Fault::None).with_priority(9000).bench_only();
    assert_eq!(registry.register(benched).unwrap(), SelfTest::Passed);
    assert_eq!(registry.for_algorithm(GCM).unwrap().name(), "gcm-good");
    assert!(registry.driver("gcm-bench", Purpose::Bench).is_ok());
    let error = registry.driver("gcm-bench", Purpose::Traffic).unwrap_err().to_string();
    assert!(error.contains("for benches only") && error.contains("gcm-good"), "{error}");

    let self_test = registry.register(odd("rfc4309(ccm(aes))", "odd", Fault::None)).unwrap();
    assert_eq!(self_test.to_string(), "failed: it takes no suite of its algorithm");
}

#[test]
fn errors_name_what_would_be_right() {
    let mut registry = Registry::of(&cpu());
    let error = registry.for_algorithm("gcm(des)").unwrap_err().to_string();
    assert!(error.contains("\"gcm(des)\"") && error.contains(GCM), "{error}");
    let error = registry.driver("rfc4106-gcm-aes-convoy-mmx", Purpose::Traffic).unwrap_err();
    assert!(error.to_string().contains("there are rfc4106-gcm-aes-convoy-"), "{error}");
    let error = registry.driver("odd", Purpose::Traffic).unwrap_err().to_string();
    assert!(error.contains("drivers for rfc4106(gcm(aes)), "), "{error}");
    let name = "rfc4106-gcm-aes-convoy-portable";
    let error = registry.register(odd(GCM, name, Fault::None)).unwrap_err();
    assert_eq!(error, RegistryError::NameTaken(name.to_owned()));
    let error = registry.register(odd("gcm(des)", "odd", Fault::None)).unwrap_err();
    assert!(matches!(error, RegistryError::UnknownAlgorithm { .. }));
}

/// A device that works elsewhere.
#[derive(Debug)]
struct Elsewhere(Faults);

impl Provider for Elsewhere {
    fn takes(&self, _: Suite) -> bool {
        true
    }
    fn seal_key(&self, suite: Suite, material: KeyMaterial) -> Result<SealKey, KeyError> {
        SealKey::new(&cpu(), suite, material)
    }
    fn open_key(&self, suite: Suite, material: KeyMaterial) -> Result<OpenKey, KeyError> {
        OpenKey::new(&cpu(), suite, material)
    }
    fn engine(&self) -> Front {
        let settings = Settings { latency: 0, jitter: 0, deadline: 1 << 40, ..Settings::default() };
        Front::with(Box::new(Model::new(settings, self.0)))
    }
}

#[test]
fn devices_are_tested_too_and_not_the_software_that_helps_them_out() {
    let mut registry = Registry::of(&cpu());
    let wrong = Faults { wrong: 100_000, ..Faults::default() };
    let refusing = Faults { refused: 100_000, ..Faults::default() };
    for (name, faults, expected) in [
        ("gcm-device", Faults::default(), "passed"),
        ("gcm-wrong", wrong, "sealed to other bytes"),
        ("gcm-refusing", refusing, "software did its work"),
    ] {
        let driver = Driver::new(GCM, name, Arc::new(Elsewhere(faults)));
        let said = registry.register(driver).unwrap().to_string();
        assert!(said.contains(expected), "{name}: {said}");
        let mut drivers = registry.drivers();
        assert!(drivers.any(|driver| driver.name() == name && !driver.is_synchronous()));
    }
}

#[test]
fn settings_decide_which_driver_is_chosen() {
    let mut registry = Registry::of(&cpu());
    for name in ["gcm-a", "gcm-b"] {
        registry.register(Driver::new(GCM, name, Arc::new(Odd(Fault::None)))).unwrap();
    }
    let chosen = |registry: &Registry| registry.for_algorithm(GCM).unwrap().name().to_owned();
    let of_before = registry.clone();
    registry.set("gcm-a", Setting::Priority(9000)).unwrap();
    assert_eq!(chosen(&registry), "gcm-a");
    registry.set("gcm-b", Setting::Priority(9001)).unwrap();
    assert_eq!(chosen(&registry), "gcm-b");
    registry.set("gcm-b", Setting::On(false)).unwrap();
    assert_eq!(chosen(&registry), "gcm-a");
    let error = registry.driver("gcm-b", Purpose::Traffic).unwrap_err().to_string();
    assert!(
        error.starts_with("the driver gcm-b is switched off; for rfc4106(gcm(aes))"),
        "{error}"
    );
    registry.set("gcm-b", Setting::On(true)).unwrap();
    assert_eq!(chosen(&registry), "gcm-b");
    assert_ne!(chosen(&of_before), "gcm-b", "a clone has settings of its own");
    assert!(
        registry
            .drivers()
            .filter(|driver| driver.algorithm() == GCM)
            .is_sorted_by(|a, b| a.priority() >= b.priority())
    );

    let wrong = Driver::new(GCM, "gcm-wrong", Arc::new(Odd(Fault::WrongResult)));
    registry.register(wrong).unwrap();
    for (name, why) in [
        ("gcm-wrong", "as its self-test failed"),
        ("rfc4106-gcm-aes-null", "is for benches only"),
        ("gcm-c", "no driver is called"),
    ] {
        let error = registry.set(name, Setting::Priority(1)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_driver_is_refused_for_suites_of_other_algorithms() {
    let registry = Registry::of(&cpu());
    let (name, ccm) = ("rfc4106-gcm-aes-convoy-portable", "aes-128-ccm-16".parse().unwrap());
    let error = registry.driver_for(name, ccm).unwrap_err().to_string();
    let words =
        "computes rfc4106(gcm(aes)), and not aes-128-ccm-16 (rfc4309(ccm(aes))); for rfc4309";
    assert!(error.contains(words), "{error}");
    assert!(registry.driver_for(name, "aes-192-gcm-8".parse().unwrap()).is_ok());
}
