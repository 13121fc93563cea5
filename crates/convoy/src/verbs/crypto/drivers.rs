//! The drivers of this machine, like the entries of `/proc/crypto`.

use convoy_engine::registry::{Driver, Purpose, Registry, RegistryError, SelfTest, algorithm};
use serde::Serialize;

/// One implementation of one algorithm.
#[derive(Serialize)]
pub(super) struct DriverRow {
    algorithm: String,
    driver: String,
    priority: u16,
    #[serde(rename = "type")]
    kind: &'static str,
    synchronous: bool,
    /// "passed", "none", or "failed" and why.
    self_test: String,
    /// True if it is what the algorithm's name stands for.
    chosen: bool,
    bench_only: bool,
    about: String,
}

/// All drivers, or those of one algorithm or with one name.
pub(super) fn rows(
    registry: &Registry,
    name: Option<&str>,
) -> Result<Vec<DriverRow>, RegistryError> {
    let wanted = name.map(|name| algorithm::canonical(name));
    let is_wanted = |driver: &&Driver| {
        let matches = |name: &str| driver.algorithm() == name || driver.name() == name;
        wanted.as_deref().is_none_or(matches)
    };
    let rows: Vec<_> =
        registry.drivers().filter(is_wanted).map(|driver| row(registry, driver)).collect();
    match name {
        // Whose error names what would be right.
        Some(name) if rows.is_empty() && name.contains('(') => {
            registry.for_algorithm(name).map(|_| rows)
        }
        Some(name) if rows.is_empty() => registry.driver(name, Purpose::Bench).map(|_| rows),
        _ => Ok(rows),
    }
}

fn row(registry: &Registry, driver: &Driver) -> DriverRow {
    let chosen = registry.for_algorithm(driver.algorithm());
    DriverRow {
        algorithm: driver.algorithm().to_owned(),
        driver: driver.name().to_owned(),
        priority: driver.priority(),
        kind: driver.kind().name(),
        synchronous: driver.is_synchronous(),
        self_test: driver.self_test().to_string(),
        chosen: chosen.is_ok_and(|chosen| chosen.name() == driver.name()),
        bench_only: driver.is_for_benches(),
        about: driver.about().to_owned(),
    }
}

/// The rows as cells of a table, with their heading.
pub(super) fn cells(rows: &[DriverRow]) -> Vec<Vec<String>> {
    let heading = ["algorithm", "driver", "priority", "type", "sync", "use", "self-test"];
    let mut cells = vec![heading.map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(|row| {
        let failed = row.self_test.starts_with(&SelfTest::Failed(String::new()).to_string());
        let usage = match row {
            _ if failed => "never",
            DriverRow { bench_only: true, .. } => "benches",
            DriverRow { chosen: true, .. } => "chosen",
            _ => "by name",
        };
        vec![
            row.algorithm.clone(),
            row.driver.clone(),
            row.priority.to_string(),
            row.kind.to_owned(),
            if row.synchronous { "yes" } else { "no" }.to_owned(),
            usage.to_owned(),
            row.self_test.clone(),
        ]
    }));
    cells
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use convoy_crypto::{Cpu, KeyError, KeyMaterial, OpenKey, SealKey, Suite};
    use convoy_engine::Front;
    use convoy_engine::registry::{Kind, Provider};
    use convoy_xfrm::names;

    use super::*;

    /// The names of a pair's cipher and MAC.
    fn parts(name: &str) -> (&str, &str) {
        let pair = name.strip_prefix("authenc(").and_then(|pair| pair.strip_suffix(')'));
        let (mac, cipher) = pair.and_then(|pair| pair.split_once(',')).unwrap();
        (cipher, mac)
    }

    /// Algorithms that daemons ask for by the same names have the same lengths.
    #[test]
    fn names_of_algorithms_are_those_of_the_xfrm_protocol() {
        for suite in Suite::all() {
            let name = algorithm::name_of(suite);
            let key = suite.key_bytes() * 8;
            let (cipher, mac) = match (suite, Kind::of(suite)) {
                (Suite::Pair { .. }, Kind::Aead) => parts(&name),
                (Suite::Pair { .. }, _) => ("ecb(cipher_null)", &*name),
                _ => {
                    let known = names::aead(&name).unwrap();
                    assert_eq!(known.name, name);
                    let bits = u32::try_from(key).unwrap() + known.salt_bits;
                    assert!(known.key_bits.allow(bits), "{suite}");
                    let icv = u32::try_from(suite.icv_bytes() * 8).unwrap();
                    assert_eq!(known.icv_bits(Some(icv)), Some(icv), "{suite}");
                    continue;
                }
            };
            let known = names::cipher(cipher).unwrap();
            assert_eq!(known.name, cipher, "and no alias");
            assert!(known.key_bits.allow(u32::try_from(key).unwrap() + known.salt_bits), "{suite}");
            let known = names::integrity(mac).unwrap();
            assert_eq!(known.name, mac, "and no alias");
            let bits = u32::try_from(suite.integrity_key_bytes() * 8).unwrap();
            assert!(known.key_bits.allow(bits), "{suite}");
            let icv = u32::try_from(suite.icv_bytes() * 8).unwrap();
            assert_eq!(known.icv_bits(Some(icv)), Some(icv), "{suite}");
        }
        assert!(names::cipher("ecb(cipher_null)").is_some());
        assert!(names::integrity("digest_null").is_some());
        for pair in ["authenc(hmac(sha1),ecb(cipher_null))", "authenc(digest_null,cbc(aes))"] {
            assert!(algorithm::suites(pair).next().is_some(), "{pair}");
        }
    }

    #[derive(Debug)]
    struct Forgetful;

    impl Provider for Forgetful {
        fn takes(&self, _: Suite) -> bool {
            true
        }
        fn seal_key(&self, _: Suite, _: KeyMaterial) -> Result<SealKey, KeyError> {
            Err(KeyError::NotAead)
        }
        fn open_key(&self, _: Suite, _: KeyMaterial) -> Result<OpenKey, KeyError> {
            Err(KeyError::NotAead)
        }
        fn engine(&self) -> Front {
            Front::inline()
        }
    }

    #[test]
    fn a_failed_driver_is_listed_with_its_reason() {
        let mut registry = Registry::of(&Cpu::detect().unwrap());
        let driver = Driver::new("hmac(sha1)", "hmac-sha1-forgetful", Arc::new(Forgetful));
        registry.register(driver.with_priority(9999)).unwrap();
        let rows = rows(&registry, Some("hmac(sha1)")).unwrap();
        assert_eq!(rows.iter().filter(|row| row.chosen).count(), 1);
        let cells = cells(&rows);
        assert_eq!(cells[1][1..6], ["hmac-sha1-forgetful", "9999", "mac", "yes", "never"]);
        assert!(cells[1][6].starts_with("failed: null+hmac-sha1-96: "), "{}", cells[1][6]);
        assert_eq!(cells[2][5], "chosen");
    }

    #[test]
    fn one_algorithm_or_driver_may_be_asked_for() {
        let registry = Registry::of(&Cpu::detect().unwrap());
        let count = |name| rows(&registry, name).map(|rows| rows.len());
        let tiers = registry.drivers().filter(|driver| driver.algorithm() == "xcbc(aes)").count();
        assert_eq!(count(Some("authencesn(xcbc(aes),ecb(cipher_null))")), Ok(tiers));
        assert_eq!(count(Some("xcbc-aes-convoy-portable")), Ok(1));
        assert_eq!(count(None), Ok(registry.drivers().count()));
        let error = count(Some("gcm(des)")).unwrap_err().to_string();
        assert!(error.contains("there are rfc4106(gcm(aes))"), "{error}");
        let error = count(Some("xcbc-aes-convoy-mmx")).unwrap_err().to_string();
        assert!(error.contains("there are xcbc-aes-convoy-"), "{error}");
    }
}
