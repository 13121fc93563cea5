//! `convoy crypto`: what this machine can do, like `/proc/crypto`.

use convoy_crypto::{Cpu, IcvLen, KeyBits, Tier};
use convoy_engine::registry;
use serde::Serialize;

use crate::cli::CryptoArgs;
use crate::exit::{Exit, Stop};
use crate::output;

#[derive(Serialize)]
struct Report {
    tiers: Vec<TierRow>,
    engines: Vec<EngineRow>,
    algorithms: Vec<AlgorithmRow>,
}

#[derive(Serialize)]
struct TierRow {
    name: &'static str,
    /// "in use", "available", "denied" or "missing".
    state: &'static str,
    features: Vec<&'static str>,
}

#[derive(Serialize)]
struct EngineRow {
    name: &'static str,
    priority: u16,
    in_use: bool,
    about: &'static str,
}

#[derive(Serialize)]
struct AlgorithmRow {
    name: String,
    kind: &'static str,
    key_bits: usize,
    salt_bits: usize,
    icv_bytes: Vec<usize>,
    rfc: &'static str,
    tier: &'static str,
}

pub(super) fn run(args: &CryptoArgs) -> anyhow::Result<Exit> {
    let cpu = Cpu::detect().map_err(|e| Stop::usage(format!("{}: {e}", Cpu::DENY_VARIABLE)))?;
    let found = Cpu::without("")?;
    let report = Report {
        tiers: tiers(&cpu, &found),
        engines: engines(),
        algorithms: algorithms(cpu.best()),
    };
    if args.json {
        output::json(&report)?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(Exit::Ok)
}

fn tiers(cpu: &Cpu, found: &Cpu) -> Vec<TierRow> {
    let row = |tier: Tier| TierRow {
        name: tier.name(),
        state: match (found.has(tier), cpu.has(tier)) {
            (_, true) if tier == cpu.best() => "in use",
            (_, true) => "available",
            (true, false) => "denied",
            (false, false) => "missing",
        },
        features: tier.info().features.to_vec(),
    };
    Tier::ALL.into_iter().rev().map(row).collect()
}

fn engines() -> Vec<EngineRow> {
    let first = registry::find(None).map(|entry| entry.name);
    let row = |entry: &registry::Entry| EngineRow {
        name: entry.name,
        priority: entry.priority,
        in_use: Some(entry.name) == first,
        about: entry.about,
    };
    registry::entries().iter().map(row).collect()
}

fn algorithms(tier: Tier) -> Vec<AlgorithmRow> {
    let row = |bits: KeyBits| AlgorithmRow {
        name: format!("aes-{}-gcm", bits.bits()),
        kind: "aead",
        key_bits: bits.bits(),
        salt_bits: 32,
        icv_bytes: IcvLen::ALL.iter().map(|icv| icv.bytes()).collect(),
        rfc: "RFC 4106",
        tier: tier.name(),
    };
    KeyBits::ALL.into_iter().map(row).collect()
}

fn text(report: &Report) -> String {
    let heading = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut tiers = vec![heading(&["TIER", "STATE", "NEEDS BESIDES WHAT IT BUILDS ON"])];
    tiers.extend(
        report
            .tiers
            .iter()
            .map(|t| vec![t.name.to_owned(), t.state.to_owned(), t.features.join(" ")]),
    );
    let mut engines = vec![heading(&["ENGINE", "PRIORITY", "STATE", "WHAT IT IS"])];
    engines.extend(report.engines.iter().map(|e| {
        let state = if e.in_use { "in use" } else { "available" };
        vec![e.name.to_owned(), e.priority.to_string(), state.to_owned(), e.about.to_owned()]
    }));
    let mut algorithms =
        vec![heading(&["ALGORITHM", "KIND", "KEY", "SALT", "ICV", "TIER", "FROM"])];
    algorithms.extend(report.algorithms.iter().map(|a| {
        let icv: Vec<_> = a.icv_bytes.iter().map(ToString::to_string).collect();
        vec![
            a.name.clone(),
            a.kind.to_owned(),
            format!("{} bits", a.key_bits),
            format!("{} bits", a.salt_bits),
            format!("{} bytes", icv.join("/")),
            a.tier.to_owned(),
            a.rfc.to_owned(),
        ]
    }));
    [tiers, engines, algorithms].map(|rows| output::table(&rows)).join("\n")
}
