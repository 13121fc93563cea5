//! `convoy bench`: what it costs.

mod args;
mod child;
mod compare;
mod crypto;
mod crypto_stream;
mod dpdk;
mod engine;
mod esp;
mod forward;
mod report;
mod tls;
mod tls_records;

use convoy_bench::results::Results;
use convoy_crypto::{Cpu, Tier};

use crate::exit::Exit;
use crate::output;

pub use args::{BenchArgs, BenchCryptoArgs, BenchWhat};
pub use compare::{CompareArgs, HELP as COMPARE_HELP};
pub use dpdk::{DpdkArgs, HELP as DPDK_HELP};
pub use engine::{EngineArgs, HELP as ENGINE_HELP};
pub use esp::{EspArgs, HELP as ESP_HELP};
pub use forward::{ForwardArgs, HELP as FORWARD_HELP};
pub use report::{HELP as REPORT_HELP, ReportArgs};
pub use tls::{HELP as TLS_HELP, TlsArgs};
pub use tls_records::{HELP as TLS_RECORDS_HELP, TlsRecordsArgs};

/// The suites of the field's studies, which benches of pipelines and engines measure by default.
const SUITES: &str = "aes-128-gcm-16,aes-128-cbc+hmac-sha1-96";

pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<Exit> {
    match &args.what {
        BenchWhat::Compare(args) => compare::run(args),
        BenchWhat::Crypto(args) if args.stream => crypto_stream::run(args),
        BenchWhat::Crypto(args) => crypto::run(args),
        BenchWhat::Dpdk(args) => dpdk::run(args),
        BenchWhat::Engine(args) => engine::run(args),
        BenchWhat::Esp(args) => esp::run(args),
        BenchWhat::Forward(args) => forward::run(args),
        BenchWhat::Report(args) => report::run(args),
        BenchWhat::Tls(args) => tls::run(args),
        BenchWhat::TlsRecords(args) => tls_records::run(args),
    }
}

/// Prints results at the end of a run.
fn print_json(mut results: Results) -> anyhow::Result<()> {
    results.machine.look_again();
    output::print(&results.to_json()?)
}

/// Refuses a count of things that the memory which is free does not hold, before the kernel ends the process.
fn check_memory(option: &str, count: usize, bytes_each: u64, most: usize) -> Result<(), String> {
    let free = free_memory();
    let holds = free.map_or(most, |free| {
        // A quarter stays for everything else.
        usize::try_from(free / 4 * 3 / bytes_each).unwrap_or(usize::MAX).clamp(1, most)
    });
    if (1..=holds).contains(&count) {
        return Ok(());
    }
    let why = match free {
        Some(free) if holds < most => {
            format!(
                ": each takes up to {bytes_each} bytes, and {} MB of memory are free",
                free >> 20
            )
        }
        _ => String::new(),
    };
    Err(format!("{option} {count}: use 1 to {holds}{why}"))
}

/// Bytes of memory that are free, if the kernel tells.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The tiers that words of the command line name; without words, the best.
fn tiers(cpu: &Cpu, words: &[String]) -> Result<Vec<Tier>, String> {
    let mut tiers = Vec::new();
    for word in words {
        let tier: Tier = word.parse().map_err(|_| {
            let names = Tier::ALL.map(Tier::name).join(", ");
            format!("no tier is called {word:?}; valid names are {names}")
        })?;
        if !cpu.has(tier) {
            return Err(format!("this machine has no tier {tier}; convoy crypto lists them"));
        }
        if !tier.info().keeps_to_its_features() {
            return Err(format!(
                "tier {tier} of this program uses special instructions, so its figures would say nothing: it was \
                 built with RUSTFLAGS in place of Convoy's own; build it with make"
            ));
        }
        tiers.push(tier);
    }
    if tiers.is_empty() {
        tiers.push(cpu.best());
    }
    Ok(tiers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_no_memory_holds_are_refused_with_what_fits() {
        assert_eq!(check_memory("--keys", 1, 8192, 1 << 20), Ok(()));
        for (count, most) in
            [(0, 1 << 20), (100_000_000_000, 1 << 20), (usize::MAX, 1 << 20), (65, 64)]
        {
            let error = check_memory("--keys", count, 8192, most).unwrap_err();
            assert!(error.starts_with(&format!("--keys {count}: use 1 to ")), "{error}");
        }
        let error = check_memory("--keys", 1 << 20, 1 << 40, 1 << 20).unwrap_err();
        assert!(error.contains("use 1 to 1: each takes up to"), "{error}");
        assert!(free_memory().unwrap() > 1 << 20);
    }
}
