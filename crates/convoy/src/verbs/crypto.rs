//! `convoy crypto`: what this machine can do, like `/proc/crypto`.

mod args;
mod drivers;
mod gateway;
#[cfg(feature = "provider")]
mod process;
#[cfg(feature = "provider")]
mod provider;

use convoy_crypto::{
    Cipher, Cpu, IcvLen, Integrity, KeyMaterial, MacAlg, Names, PORTABLE_IS_SOFT, SealKey,
    SecretBytes, Suite, Tier, WideUnits, assumed_features,
};
use convoy_engine::registry::{self, Registry};
use serde::Serialize;

use crate::exit::{Exit, Stop};
use crate::output;
#[cfg(feature = "provider")]
use crate::verbs::openssl_conf::offered::Offered;
use args::CryptoVerb;
pub(crate) use args::{CryptoArgs, HELP};
use drivers::DriverRow;

#[derive(Serialize)]
struct Report {
    tiers: Vec<TierRow>,
    engines: Vec<EngineRow>,
    algorithms: Vec<AlgorithmRow>,
    drivers: Vec<DriverRow>,
    /// Ciphers of the OpenSSL provider on this machine.
    #[cfg(feature = "provider")]
    provider: Vec<Offered>,
    /// Instructions that every tier needs, because the compiler was told so; none usually.
    assumed: Vec<&'static str>,
    /// True if the portable tier uses no special instructions, as the build kept it from them.
    portable_is_soft: bool,
    /// Sleep of wide units, by a table of processors; none where they do not sleep.
    wide_units: Option<WideUnitsRow>,
}

/// Units of wide registers that are off after a while without use.
#[derive(Serialize)]
struct WideUnitsRow {
    sleep_us: u32,
    wake_256_us: u32,
    wake_512_us: u32,
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

/// An AEAD, a cipher or a MAC; ciphers and MACs go together in any pair.
#[derive(Serialize)]
struct AlgorithmRow {
    name: &'static str,
    kind: &'static str,
    key_bits: usize,
    nonce_bytes: usize,
    icv_bytes: Vec<usize>,
    rfc: String,
    /// Code that computes it on each tier, the one in use first.
    implementations: Vec<Implementation>,
}

#[derive(Serialize)]
struct Implementation {
    tier: &'static str,
    name: String,
}

pub(crate) fn run(args: &CryptoArgs) -> anyhow::Result<Exit> {
    match &args.of_gateway {
        Some(CryptoVerb::Show(args)) => return gateway::show(args),
        Some(CryptoVerb::Set(args)) => return gateway::set(args),
        None => {}
    }
    #[cfg(not(feature = "provider"))]
    if args.pid.is_some() || args.provider_stats.is_some() {
        return Err(crate::exit::left_out("crypto --pid` and `--provider-stats"));
    }
    #[cfg(feature = "provider")]
    if let Some(pid) = args.pid {
        return process::run(pid, args.provider_stats.as_deref(), args.json);
    }
    #[cfg(feature = "provider")]
    if let Some(file) = &args.provider_stats {
        if args.create {
            return provider::create(file, args.owner.as_deref());
        }
        return provider::run(file, args.json);
    }
    let cpu = Cpu::detect().map_err(|e| Stop::usage(e.to_string()))?;
    let found = Cpu::without("")?;
    let drivers = drivers::rows(&Registry::of(&cpu), args.name.as_deref());
    let drivers = drivers.map_err(|e| Stop::usage(e.to_string()))?;
    let report = Report {
        tiers: tiers(&cpu, &found),
        engines: engines(),
        algorithms: algorithms(&cpu)?,
        drivers,
        #[cfg(feature = "provider")]
        provider: Offered::with(&cpu, false),
        assumed: assumed_features().collect(),
        portable_is_soft: PORTABLE_IS_SOFT,
        wide_units: cpu.wide_units().map(wide_units),
    };
    if args.json {
        output::json(&report)?;
    } else if args.name.is_some() {
        output::print(&output::table(&drivers::cells(&report.drivers)))?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(Exit::Ok)
}

fn wide_units(units: &WideUnits) -> WideUnitsRow {
    let &WideUnits { sleep_us, wake_256_us, wake_512_us, .. } = units;
    WideUnitsRow { sleep_us, wake_256_us, wake_512_us }
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

fn algorithms(cpu: &Cpu) -> anyhow::Result<Vec<AlgorithmRow>> {
    let mut rows = Vec::new();
    for suite in Suite::AEADS {
        let icv_bytes = IcvLen::ALL.map(IcvLen::bytes).into_iter();
        let icv_bytes = icv_bytes.filter(|bytes| suite.with_icv(*bytes).is_some()).collect();
        let Some(names) = suite.names() else { continue };
        rows.push(row(cpu, suite, names, "aead", icv_bytes)?);
    }
    for cipher in Cipher::ALL {
        let suite = Suite::Pair { cipher, integrity: Integrity::NULL };
        rows.push(row(cpu, suite, cipher.names(), "cipher", Vec::new())?);
    }
    for alg in MacAlg::ALL {
        let usual = Integrity::IPSEC.into_iter().find(|usual| usual.alg() == alg);
        let full = Integrity::full(alg);
        let mut icv: Vec<_> = usual.into_iter().chain([full]).map(Integrity::icv_bytes).collect();
        icv.dedup();
        let suite = Suite::Pair { cipher: Cipher::Null, integrity: full };
        rows.push(row(cpu, suite, alg.names(), "mac", icv)?);
    }
    Ok(rows)
}

fn row(
    cpu: &Cpu,
    suite: Suite,
    names: Names,
    kind: &'static str,
    icv_bytes: Vec<usize>,
) -> anyhow::Result<AlgorithmRow> {
    // Any key will do to see what would compute with it; 3DES refuses those of equal parts.
    let secret = |bytes| SecretBytes::from((0..bytes).map(|i| i as u8).collect::<Vec<_>>());
    let mut implementations = Vec::new();
    for tier in cpu.tiers() {
        let material = KeyMaterial {
            cipher: secret(suite.key_bytes()),
            integrity: secret(suite.integrity_key_bytes()),
        };
        let name = SealKey::with_tier(cpu, tier, suite, material)?.implementation();
        implementations.push(Implementation { tier: tier.name(), name });
    }
    implementations.reverse();
    let key_bytes = suite.key_bytes().max(suite.integrity_key_bytes());
    let (key_bits, nonce_bytes) = (key_bytes * 8, suite.nonce_bytes());
    let name = names.name;
    let rfc = match suite.is_legacy() {
        true => format!("{}, for old peers", names.source),
        false => names.source.to_owned(),
    };
    Ok(AlgorithmRow { name, kind, key_bits, nonce_bytes, icv_bytes, rfc, implementations })
}

fn text(report: &Report) -> String {
    let heading = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut tiers = vec![heading(&["tier", "state", "needs besides what it builds on"])];
    tiers.extend(
        report
            .tiers
            .iter()
            .map(|t| vec![t.name.to_owned(), t.state.to_owned(), t.features.join(" ")]),
    );
    let mut engines = vec![heading(&["engine", "priority", "state", "what it is"])];
    engines.extend(report.engines.iter().map(|e| {
        let state = if e.in_use { "in use" } else { "available" };
        vec![e.name.to_owned(), e.priority.to_string(), state.to_owned(), e.about.to_owned()]
    }));
    let mut algorithms =
        vec![heading(&["algorithm", "kind", "key", "nonce", "ICV", "from", "in use", "also"])];
    algorithms.extend(report.algorithms.iter().map(|a| {
        let icv: Vec<_> = a.icv_bytes.iter().map(ToString::to_string).collect();
        let mut names: Vec<_> = a.implementations.iter().map(|i| i.name.clone()).collect();
        names.dedup();
        let in_use = if names.is_empty() { String::new() } else { names.remove(0) };
        vec![
            a.name.to_owned(),
            a.kind.to_owned(),
            format!("{} bits", a.key_bits),
            format!("{} bytes", a.nonce_bytes),
            if icv.is_empty() { "–".to_owned() } else { format!("{} bytes", icv.join("/")) },
            a.rfc.clone(),
            in_use,
            names.join(", "),
        ]
    }));
    let drivers = drivers::cells(&report.drivers);
    let tables = [tiers, engines, algorithms, drivers].map(|rows| output::table(&rows)).join("\n");
    #[cfg(feature = "provider")]
    let tables = format!("{tables}\n{}", output::table(&offered(&report.provider)));
    let tables = format!("{tables}\n{}\n", wide_units_line(report.wide_units.as_ref()));
    tables + &build_lines(report)
}

/// Effects of the program's build flags on tiers, in words; nothing usually.
fn build_lines(report: &Report) -> String {
    let mut lines = String::new();
    if !report.portable_is_soft {
        lines += "\nThis program was built with other RUSTFLAGS than Convoy's: its portable tier uses special \
                  instructions where it finds them. `make` adds the flags that prevent this.\n";
    }
    if !report.assumed.is_empty() {
        lines += &format!(
            "\nThis program was built with RUSTFLAGS that name a processor. Every tier, portable as well, needs: {}\n",
            report.assumed.join(" ")
        );
    }
    lines
}

fn wide_units_line(units: Option<&WideUnitsRow>) -> String {
    match units {
        None => "wide units: do not sleep (by table)".to_owned(),
        Some(WideUnitsRow { sleep_us, wake_256_us, wake_512_us }) => format!(
            "wide units: sleep after {sleep_us} µs, {wake_512_us} µs to wake, {wake_256_us} µs for 256 bits (by \
             table)"
        ),
    }
}

/// Ciphers of the OpenSSL provider, row by row.
#[cfg(feature = "provider")]
fn offered(ciphers: &[Offered]) -> Vec<Vec<String>> {
    let heading = ["cipher of the OpenSSL provider", "state", "why"].map(str::to_owned);
    let row = |cipher: &Offered| {
        let state = if cipher.offered { "offered" } else { "not offered" };
        vec![cipher.cipher.to_owned(), state.to_owned(), cipher.why.clone().unwrap_or_default()]
    };
    [heading.to_vec()].into_iter().chain(ciphers.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_units_are_told_in_a_line() {
        assert_eq!(wide_units_line(None), "wide units: do not sleep (by table)");
        let skylake = WideUnits { sleep_us: 600, wake_256_us: 17, wake_512_us: 25, tsc_mhz: 2500 };
        let line = wide_units_line(Some(&wide_units(&skylake)));
        let said = "wide units: sleep after 600 µs, 25 µs to wake, 17 µs for 256 bits (by table)";
        assert_eq!(line, said);
    }
}
