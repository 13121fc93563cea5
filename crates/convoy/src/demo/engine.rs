//! The engine of a demonstration: what its site files say, and what came of it.

use std::fmt;
use std::str::FromStr;

use convoy_control::site::ModelFault;
use convoy_control::status::Status;
use convoy_crypto::Cpu;
use convoy_engine::registry::{Purpose, Registry, algorithm};
use convoy_runtime::EngineStats;
use serde::Serialize;

use crate::exit::Stop;

/// Choice of what does the cryptography of a demonstration's gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The workers themselves, at once.
    #[default]
    Inline,
    /// A thread beside each worker.
    Pool,
    /// A look-aside device made of software.
    Model,
    /// A crypto device of DPDK's with this name.
    Cryptodev(String),
    /// The workers, with a driver of this name wherever it suits.
    Driver(String),
}

/// The device of DPDK's that needs nothing but OpenSSL.
const CRYPTODEV: &str = "crypto_openssl";

impl FromStr for Engine {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Ok(match word {
            "inline" => Self::Inline,
            "pool" => Self::Pool,
            "model" => Self::Model,
            "cryptodev" => Self::Cryptodev(CRYPTODEV.to_owned()),
            word if word.starts_with("cryptodev:") => {
                Self::Cryptodev(word.trim_start_matches("cryptodev:").to_owned())
            }
            name => {
                let cpu = Cpu::detect().map_err(|error| error.to_string())?;
                let driver = Registry::of(&cpu).driver(name, Purpose::Traffic);
                let driver = driver.map_err(|error| {
                    let fault = error.fault();
                    format!("{fault}: use inline, pool, model, cryptodev, or a driver of `convoy crypto`")
                })?;
                Self::Driver(driver.name().to_owned())
            }
        })
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inline => "inline",
            Self::Pool => "pool",
            Self::Model => "model",
            Self::Cryptodev(name) => return write!(f, "cryptodev:{name}"),
            Self::Driver(name) => name,
        })
    }
}

/// The section of a site file; nothing for what gateways do without one.
pub(super) fn section(engine: &Engine, faults: &[ModelFault]) -> String {
    let intro = "\n# What does the cryptography.\n[crypto]\n";
    match engine {
        Engine::Inline => String::new(),
        Engine::Pool => format!("{intro}engine = \"pool\"\n"),
        Engine::Model => {
            let faults: Vec<_> = faults.iter().map(|fault| format!("\"{fault}\"")).collect();
            let faults = match &faults[..] {
                [] => String::new(),
                faults => format!("\n[crypto.model]\nfaults = [{}]\n", faults.join(", ")),
            };
            format!("{intro}engine = \"model\"\n{faults}")
        }
        Engine::Cryptodev(name) => {
            format!("{intro}engine = \"cryptodev\"\n\n[crypto.cryptodev]\ndevice = {name:?}\n")
        }
        Engine::Driver(name) => format!("{intro}drivers = [\"{name}\"]\n"),
    }
}

/// Counts of the engines of both gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Engines {
    /// Packets that they were given.
    pub(super) jobs: u64,
    /// Packets that workers did themselves, for want of room or while an engine was down.
    pub(super) in_software: u64,
    /// Packets that workers did themselves because they share the work.
    pub(super) by_worker: u64,
    /// Packets that workers did because an engine was lost or gave them back undone.
    pub(super) done_again: u64,
    /// Times that an engine was lost.
    pub(super) losses: u64,
    /// Times that a lost one was in use again.
    pub(super) restarts: u64,
}

impl Engines {
    /// Adds what a gateway tells of its own.
    pub(super) fn add_status(&mut self, status: &Status) {
        let get = |name: &str| {
            let mut counters = status.counters.iter();
            counters.find(|counter| counter.name == name).map_or(0, |counter| counter.value)
        };
        self.jobs += get("engine.jobs");
        self.in_software += get("engine.in-software");
        self.by_worker += get("engine.by-worker") + get("engine.recalled");
        self.done_again += get("engine.redone") + get("engine.refused");
        self.losses += get("engine.losses");
        self.restarts += get("engine.restarts");
    }

    /// Adds what a worker of this process counted.
    pub(super) fn add_stats(&mut self, stats: &EngineStats) {
        self.jobs += stats.jobs.get();
        self.in_software += stats.in_software.get();
        self.by_worker += stats.here.get() + stats.recalled.get();
        self.done_again += stats.redone.get() + stats.refused.get();
        self.losses += stats.losses.get();
        self.restarts += stats.restarts.get();
    }

    /// In words; `None` where workers do all themselves.
    pub(super) fn in_words(self) -> Option<String> {
        let Self { jobs, in_software, by_worker, done_again, losses, restarts } = self;
        let by_worker = by_worker + in_software;
        if self == Self::default() {
            return None;
        }
        let mut text = format!("{jobs} packets by the engine, {by_worker} by workers");
        if losses > 0 {
            text += &format!(
                "; lost {losses} times, {done_again} packets repeated, back {restarts} times"
            );
        }
        Some(text)
    }
}

/// Failure of the model, as `--fault` names it.
pub(super) fn fault(text: &str) -> Result<ModelFault, String> {
    text.parse().map_err(String::from)
}

/// A driver that no SA of the demonstration would use proves nothing.
pub(super) fn check_driver(engine: &Engine) -> anyhow::Result<()> {
    /// The algorithm of `convoy init`'s SAs.
    const ALGORITHM: &str = "rfc4106(gcm(aes))";
    match engine {
        Engine::Driver(name) if !name.starts_with(&algorithm::as_word(ALGORITHM)) => {
            Err(Stop::usage(format!(
                "--engine {name}: the SAs of the demonstration are of {ALGORITHM}; `convoy crypto {ALGORITHM}` \
                 lists its drivers"
            )))
        }
        _ => Ok(()),
    }
}

/// Only a device made of software fails on demand.
pub(super) fn check_faults(engine: &Engine, faults: &[ModelFault]) -> anyhow::Result<()> {
    match faults.first().filter(|_| *engine != Engine::Model) {
        None => Ok(()),
        Some(fault) => {
            Err(Stop::usage(format!("--fault {fault}: only --engine model fails as it is told")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_say_what_was_asked_for() {
        assert_eq!(section(&Engine::Inline, &[]), "");
        assert!(section(&Engine::Pool, &[]).ends_with("[crypto]\nengine = \"pool\"\n"));
        let driver = Engine::Driver("rfc4106-gcm-aes-convoy-portable".to_owned());
        let section_of_driver = section(&driver, &[]);
        assert!(section_of_driver.ends_with("drivers = [\"rfc4106-gcm-aes-convoy-portable\"]\n"));
        let faults = ["stall@2s".parse().unwrap(), "remove@500ms".parse().unwrap()];
        let section = section(&Engine::Model, &faults);
        assert!(section.ends_with("faults = [\"stall@2000ms\", \"remove@500ms\"]\n"), "{section}");
    }

    #[test]
    fn names_are_those_of_engines_and_of_drivers_for_traffic() {
        assert_eq!("cryptodev".parse::<Engine>().unwrap().to_string(), "cryptodev:crypto_openssl");
        for word in [
            "inline",
            "pool",
            "model",
            "cryptodev:crypto_aesni_mb",
            "rfc4106-gcm-aes-convoy-portable",
        ] {
            assert_eq!(word.parse::<Engine>().unwrap().to_string(), word);
        }
        for (word, said) in [
            ("abacus", "no driver is called \"abacus\""),
            ("rfc4106-gcm-aes-null", "for benches only"),
        ] {
            let error = word.parse::<Engine>().unwrap_err();
            assert!(
                error.contains(said)
                    && error.contains("inline, pool, model, cryptodev, or a driver"),
                "{error}"
            );
        }
    }

    #[test]
    fn losses_are_told_and_workers_that_do_all_are_not() {
        assert_eq!(Engines::default().in_words(), None);
        let engines = Engines { jobs: 10, losses: 1, done_again: 3, ..Engines::default() };
        let text = engines.in_words().unwrap();
        assert!(text.contains("lost 1 times, 3 packets repeated"), "{text}");
    }
}
