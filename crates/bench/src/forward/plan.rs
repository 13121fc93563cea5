//! Points to measure, and the engines that do the cryptography.

use std::time::Duration;

use convoy_crypto::{Cpu, Suite, Tier};
use convoy_engine::model::Settings;
use convoy_runtime::{CryptoPool, EngineChoice};

use super::grid::ForwardError;
use super::search::PACKETS;
use crate::results::LeftOut;

/// Bytes of inner packets in the whole grid, and in a part of it.
pub const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1420];
/// See [`SIZES`].
pub const QUICK_SIZES: [usize; 3] = [64, 512, 1420];
/// The study's suites.
pub const SUITES: [&str; 2] = ["aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96"];
/// Searches of each point, of which the median is taken.
pub const SEARCHES: usize = 5;
/// Share of a trial that others may take.
pub const ALLOWED: f64 = 0.005;
/// Until when searches begin after the first round. What follows them takes less than a minute.
pub const BUDGET: Duration = Duration::from_secs(380);

/// Worker, thread or device that does the cryptography.
#[derive(Clone, Debug)]
pub enum Engine {
    /// The worker itself, or a thread, or a device.
    Choice(EngineChoice),
    /// The look-aside model.
    Model(Settings),
}

/// A series of the figures.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// Its engine.
    pub engine: Engine,
}

/// Points to measure, and the way to measure them.
#[derive(Clone, Debug)]
pub struct Plan {
    /// This machine.
    pub cpu: Cpu,
    /// The tier of the keys.
    pub tier: Tier,
    /// Suites.
    pub suites: Vec<Suite>,
    /// Bytes of inner packets.
    pub sizes: Vec<usize>,
    /// Series.
    pub subjects: Vec<Subject>,
    /// Points that are known not to be possible here.
    pub left_out: Vec<LeftOut>,
    /// Searches of each point.
    pub searches: usize,
    /// The processors of worker, generator and a thread that helps the worker.
    pub cpus: Vec<usize>,
    /// Packets of a trial.
    pub packets: u64,
    /// Share of a trial that others may take before it is void.
    pub allowed: f64,
    /// Until when searches begin after the first round.
    pub budget: Duration,
}

impl Plan {
    /// The whole grid of this machine, or with `is_quick` a part of it with one search of each point, for the
    /// processors `cpus` (see [`Cores::allowed`](crate::cores::Cores::allowed)).
    ///
    /// # Errors
    /// [`ForwardError`] when the pool's thread cannot be started.
    pub fn of_study(cpu: Cpu, is_quick: bool, cpus: &[usize]) -> Result<Self, ForwardError> {
        let mut plan = Self {
            cpu,
            tier: cpu.best(),
            suites: SUITES.iter().filter_map(|name| name.parse().ok()).collect(),
            sizes: if is_quick { QUICK_SIZES.to_vec() } else { SIZES.to_vec() },
            subjects: Vec::new(),
            left_out: Vec::new(),
            searches: if is_quick { 1 } else { SEARCHES },
            cpus: cpus.iter().copied().take(3).collect(),
            packets: PACKETS,
            allowed: ALLOWED,
            budget: BUDGET,
        };
        for name in ["inline", "pool", "model"] {
            plan.add(name)?;
        }
        Ok(plan)
    }

    /// Adds the series `inline`, `pool` or `model`, or what keeps it from being measured here; says whether it is one
    /// of these.
    ///
    /// # Errors
    /// [`ForwardError`] when the pool's thread cannot be started.
    pub fn add(&mut self, name: &str) -> Result<bool, ForwardError> {
        let needs = if name == "pool" { 3 } else { 2 };
        let engine = match (name, &self.cpus[..]) {
            ("inline" | "pool" | "model", cpus) if cpus.len() < needs => {
                let has = cpus.len();
                let why = format!("it needs {needs} processors, and this machine has {has}");
                self.left_out.push(LeftOut::new(name, why));
                return Ok(true);
            }
            ("inline", _) => Engine::Choice(EngineChoice::Inline),
            ("model", _) => Engine::Model(Settings::default()),
            ("pool", &[_, _, third, ..]) => {
                let pool = CryptoPool::start(&[Some(third)]);
                let pool = pool.map_err(|error| ForwardError::Thread(error.to_string()))?;
                Engine::Choice(EngineChoice::Pool(pool))
            }
            _ => return Ok(false),
        };
        self.subjects.push(Subject { name: name.to_owned(), engine });
        Ok(true)
    }
}
