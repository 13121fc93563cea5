//! `convoy bench`: what it costs.

mod crypto;
mod crypto_stream;
mod engine;
mod esp;
mod tls;
mod tls_records;

use convoy_crypto::{Cpu, Tier};

use crate::cli::{BenchArgs, BenchWhat};
use crate::exit::Exit;

pub use engine::{EngineArgs, HELP as ENGINE_HELP};
pub use esp::{EspArgs, HELP as ESP_HELP};
pub use tls::{HELP as TLS_HELP, TlsArgs};
pub use tls_records::{HELP as TLS_RECORDS_HELP, TlsRecordsArgs};

pub(super) fn run(args: &BenchArgs) -> anyhow::Result<Exit> {
    match &args.what {
        BenchWhat::Crypto(args) if args.stream => crypto_stream::run(args),
        BenchWhat::Crypto(args) => crypto::run(args),
        BenchWhat::Engine(args) => engine::run(args),
        BenchWhat::Esp(args) => esp::run(args),
        BenchWhat::Tls(args) => tls::run(args),
        BenchWhat::TlsRecords(args) => tls_records::run(args),
    }
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
        tiers.push(tier);
    }
    if tiers.is_empty() {
        tiers.push(cpu.best());
    }
    Ok(tiers)
}
