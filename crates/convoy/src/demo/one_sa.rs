//! Rates of one SA on one worker, and on several that help each other: the real runtime, in memory.

use std::fmt;
use std::time::Duration;

use convoy_bench::cores::Cores;
use convoy_bench::esp::rig::Task;
use convoy_bench::esp::site::Shape;
use convoy_bench::esp::workers::{Division, ROUNDS, Rate, Runs, rates};
use convoy_bench::maker::Maker;
use convoy_bench::mix::Sizes;
use convoy_crypto::Cpu;
use serde::Serialize;

use crate::exit::{Exit, Stop};
use crate::output;

/// The suites that are shown.
const SUITES: [&str; 2] = ["aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96"];
/// Bytes of inner packets.
const SIZE: usize = 1420;

/// Results of the measurement.
#[derive(Debug, Serialize)]
struct OneSa {
    cores: Cores,
    rates: Vec<Rate>,
}

/// Shows one worker and `workers` of them in turn.
pub(super) fn run(workers: u16, seconds: u32, json: bool) -> anyhow::Result<Exit> {
    let cpus = Cores::allowed()?;
    if usize::from(workers) > cpus.len() {
        return Err(Stop::usage(format!(
            "--workers {workers}: there are {} processors, and each worker needs one",
            cpus.len()
        )));
    }
    let cpus: Vec<_> = cpus.into_iter().take(workers.into()).collect();
    let cpu = Cpu::detect().map_err(|error| Stop::usage(error.to_string()))?;
    let maker = Maker::Tier(cpu, cpu.best());
    let cores = Cores::look(&cpus);
    let time = Duration::from_secs(seconds.into()) / SUITES.len() as u32;
    let mut all = Vec::new();
    for suite in SUITES {
        eprintln!("demo: one SA of {suite} on 1 and {workers} workers");
        let suite = suite.parse().map_err(|error| anyhow::anyhow!("{suite}: {error}"))?;
        let sizes = Sizes::Fixed(SIZE);
        let task = Task { suite, sizes, shape: Shape::new(1), faults: None, burst: 256 };
        let runs = Runs {
            workers: &[1, workers],
            cpus: &cpus,
            division: Division::Packets,
            rounds: ROUNDS,
            time,
        };
        all.extend(rates(&maker, &task, &runs)?);
    }
    let shown = OneSa { cores, rates: all };
    if json {
        output::json(&shown)?;
    } else {
        output::print(&shown.to_string())?;
    }
    let mut wrong = shown.rates.iter().flat_map(|rate| &rate.errors).peekable();
    let exit = if wrong.peek().is_some() { Exit::Trouble } else { Exit::Ok };
    wrong.for_each(|error| eprintln!("convoy demo: {error}"));
    Ok(exit)
}

impl fmt::Display for OneSa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "One SA in each direction, in memory. Its worker makes packets of {SIZE} bytes, seals, sends, receives,\n\
             opens and checks them; the other workers help with the cryptography.\n"
        )?;
        writeln!(
            f,
            "{:<26} {:>7} {:>10} {:>7} {:>13} {:>9}",
            "suite", "workers", "packets/s", "Gb/s", "of one worker", "by others"
        )?;
        for Rate { suite, workers, packets, ratio, helped, .. } in &self.rates {
            let bits = packets.median * SIZE as f64 * 8.0 / 1e9;
            writeln!(
                f,
                "{suite:<26} {workers:>7} {:>10.0} {bits:>7.2} {:>13.2} {:>7.0} %",
                packets.median,
                ratio.median,
                100.0 * helped
            )?;
        }
        let errors: usize = self.rates.iter().map(|rate| rate.errors.len()).sum();
        let outcome = if errors == 0 {
            "none was lost, duplicated, changed or dropped as a replay"
        } else {
            "not all is well"
        };
        writeln!(f, "\nOf the packets {outcome}.\n{}", self.cores.told())
    }
}
