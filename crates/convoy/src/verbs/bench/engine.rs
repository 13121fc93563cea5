//! `convoy bench engine`: what engines cost the core that submits to them.

use std::time::Duration;

use clap::Args;
use convoy_bench::cores::Cores;
use convoy_bench::engine::line::there_and_back;
use convoy_bench::engine::measure::{Load, PacketSize, measure};
use convoy_bench::engine::report::{FAR, Report, crossings, fits};
use convoy_bench::engine::trials::{rekeys, stall};
use convoy_bench::maker::Maker;
use convoy_bench::results::LeftOut;
use convoy_bench::results::head::Head;
use convoy_bench::{suite, tiers};
use convoy_crypto::{Cpu, Suite};
use convoy_engine::Front;
use convoy_engine::front::{Sharing, WorkerLoad};
use convoy_engine::model::{Faults, Model, Settings};
use convoy_engine::registry::Registry;
use convoy_runtime::{CryptoPool, EngineChoice, Waker, pin_current_thread};

use super::json;
use crate::exit::{Exit, Stop};
use crate::gateway::devices;
use crate::output;

/// Text behind the options in `convoy bench engine --help`.
pub(super) const HELP: &str = "\
Examples:
  convoy bench engine                              # one core alone, and with a thread beside it
  convoy bench engine --engine pool --sizes 64,1420 --suite aes-128-gcm-16
  convoy bench engine --engine null,two-pass,two-pass-clmul,inline --suite aes-128-gcm-16
  convoy bench engine --engine cryptodev:crypto_aesni_mb,cryptodev:crypto_null,inline
  convoy bench engine --json > engine.json

How it is measured: one core lays out bursts of 64 packets as the outbound pipeline does, and hands them to
the engine, four bursts under way. CYCLES is what it needs to hand a packet over and to take it back, of the
time-stamp counter: for \"inline\" that is all of the cryptography. Attempts in vain are not counted. Then the
same core hands over as fast as it can: Mpps and Gb/s are what gets done a second, in bytes of inner packets.
That is also what goes over a device's bus, each way, without headers. Then bursts come at even spaces, at a
tenth, a half and nine tenths of that rate: how long they take from when they were due, median and 99th
percentile. The costs of an engine are fitted by a line; where two lines cross is told.

\"pool\" has one thread on another processor. What a cache line takes from one to the other and back is
measured before: above 300 cycles the processors are too far apart, and the pool is not measured. Two
processors of one core compute less at once than one at a time; that is told as well.

\"cryptodev\" is a crypto device of DPDK's, crypto_openssl or the one behind the colon (docs/engines.md). The
devices of software work on the core that submits. crypto_null does no work: it shows what handing over costs.

Drivers of the registry are measured by their names (convoy crypto lists them), or by the end of them: \"null\"
does no work, so it costs what handing over costs; \"two-pass\" encrypts and then hashes in portable software,
\"two-pass-clmul\" with carry-less multiplication. A suite that a driver is not for is left out, and that is told.

Then, with the first suite and size: a device made of software stalls with a thousand packets, and how long
they take to come out is told; and each engine, that device too, gets a thousand new keys a second, with as
many packets under way as it takes, in rounds that alternate with rounds without.

Of all samples of a point the first and last eighth are dropped, and the middle quarters of the sorted rest
averaged. Every packet must be sealed, and every frame must be back at the end. Exit code 1 when not.";

/// `convoy bench engine`
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// Engines to measure: "inline", the core itself with Convoy's kernels; "pool", a thread on another
    /// processor; "balance", both; "cryptodev" or "cryptodev:NAME", a crypto device of DPDK's; or drivers by name, or by the end of it: null, two-pass, two-pass-clmul.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "inline,pool,balance")]
    engine: Vec<String>,
    /// Suites by name; `convoy bench crypto --suite list` prints the names.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = suite::STUDIED)]
    suite: Vec<String>,
    /// Bytes of inner packets, 40 to 8900, and mixes: imix, imix-paper.
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        default_value = "64,256,512,1024,1420,imix"
    )]
    sizes: Vec<PacketSize>,
    /// The tier of the keys. Left out: the best of this machine.
    #[arg(long, value_name = "NAME")]
    tier: Option<String>,
    /// Time to measure each point, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &EngineArgs) -> anyhow::Result<Exit> {
    let cpu = Cpu::detect().map_err(|error| Stop::usage(error.to_string()))?;
    let tier = tiers::named(&cpu, args.tier.as_slice()).map_err(Stop::usage)?;
    let tier = tier.first().copied().unwrap_or_else(|| cpu.best());
    if !(0.01..=3600.0).contains(&args.seconds) {
        return Err(Stop::usage("--seconds: use 0.01 to 3600".to_owned()));
    }
    let mut suites = Vec::new();
    for word in &args.suite {
        suites.extend(suite::parse(word).map_err(Stop::usage)?);
    }
    let cpus: Vec<usize> = Cores::allowed()?.into_iter().take(2).collect();
    let mut report = Report {
        head: Head::now(),
        tier: tier.to_string(),
        line_cycles: None,
        together: None,
        points: Vec::new(),
        fits: Vec::new(),
        crossings: Vec::new(),
        stall: None,
        rekeys: Vec::new(),
        skipped: Vec::new(),
        cpus,
    };
    if let &[own, other] = &report.cpus[..] {
        report.line_cycles = there_and_back([own, other]);
        report.together = Some(Cores::look(&report.cpus).together);
    }
    if let Some(own) = report.cpus.first() {
        pin_current_thread(*own)?;
    }
    let waker = Waker::new()?;
    let own = Maker::Tier(cpu, tier);
    let time = Duration::from_secs_f64(args.seconds);
    for (Subject { name, maker, pool, sharing }, suite) in
        subjects(args, &own, &suites, &mut report)?
    {
        let front = || {
            let front = pool.as_ref().map_or_else(|| maker.engine(), |pool| pool.make(&waker));
            front.sharing(sharing, &WorkerLoad::default())
        };
        let is_new = report.rekeys.iter().all(|rekeys| rekeys.engine != name);
        for (at, &size) in args.sizes.iter().enumerate() {
            let load = Load { suite, size };
            if at == 0 && is_new {
                eprintln!("bench: {name}, new keys");
                report.rekeys.push(rekeys(&name, front(), &maker, load, time)?);
            }
            eprintln!("bench: {name}, {suite}, {size} bytes");
            report.points.push(measure(&name, front(), &maker, load, time / 2)?);
        }
    }
    report.fits = fits(&report.points);
    report.crossings = crossings(&report.fits);
    if let Some((&suite, &size)) = suites.first().zip(args.sizes.first()) {
        let load = Load { suite, size };
        eprintln!("bench: a device made of software");
        report.stall = Some(stall(&own, load)?);
        let model = Front::with(Box::new(Model::new(Settings::default(), Faults::default())));
        report.rekeys.push(rekeys("model", model, &own, load, time)?);
    }
    if args.json {
        json::print(report.results())?;
    } else {
        output::print(&report.to_string())?;
    }
    Ok(Exit::Ok)
}

/// An engine to measure.
struct Subject {
    name: String,
    /// Makes its keys, and the engine itself unless that is a pool.
    maker: Maker,
    pool: Option<EngineChoice>,
    sharing: Sharing,
}

/// Engines in their order, each with the suites that it is for. What cannot be measured is put down in the
/// report.
fn subjects(
    args: &EngineArgs,
    own: &Maker,
    suites: &[Suite],
    report: &mut Report,
) -> anyhow::Result<Vec<(Subject, Suite)>> {
    let registry = Registry::of(&Cpu::detect()?);
    let mut subjects = Vec::new();
    for word in &args.engine {
        let pool = match word.as_str() {
            "pool" | "balance" => match pool(word, report)? {
                None => continue,
                pool => pool,
            },
            word => device(word)?,
        };
        for &suite in suites {
            let maker = match word.as_str() {
                "inline" | "pool" | "balance" => Some(own.clone()),
                _ if pool.is_some() => match own {
                    Maker::Tier(cpu, tier) => Some(Maker::Keeping(*cpu, *tier)),
                    other => Some(other.clone()),
                },
                word => Maker::driver(&registry, word, suite)
                    .map_err(|error| Stop::usage(format!("--engine: {error}")))?,
            };
            let Some(maker) = maker else {
                let why = format!("it is not for {suite}");
                report.skipped.push(LeftOut::new(word.as_str(), why));
                continue;
            };
            let name = if pool.is_some() { word } else { maker.name() }.to_owned();
            let sharing = Sharing { balance: word == "balance", budget: 0 };
            subjects.push((Subject { name, maker, pool: pool.clone(), sharing }, suite));
        }
    }
    Ok(subjects)
}

/// A device of DPDK's, if that is what the word means. It does no work if it can do none.
pub(super) fn device(word: &str) -> anyhow::Result<Option<EngineChoice>> {
    let name = match word.split_once(':') {
        None if word == "cryptodev" => "crypto_openssl",
        Some(("cryptodev", name)) => name,
        _ => return Ok(None),
    };
    let (device, idle) = (name.to_owned(), name.starts_with("crypto_null"));
    let settings =
        convoy_cryptodev::Settings { device, idle, ..convoy_cryptodev::Settings::default() };
    let devices = devices::open(&settings);
    let devices = devices.map_err(|error| Stop::usage(format!("--engine {word}: {error}")))?;
    Ok(Some(EngineChoice::Device(devices)))
}

/// A pool of one thread, unless this machine cannot measure it.
fn pool(word: &str, report: &mut Report) -> anyhow::Result<Option<EngineChoice>> {
    let why = match (&report.cpus[..], report.line_cycles) {
        (&[_, other], Some(line)) if line <= FAR => {
            return Ok(Some(EngineChoice::Pool(CryptoPool::start(&[Some(other)])?)));
        }
        (&[_, _], Some(line)) => format!("a cache line takes {line:.0} cycles there and back"),
        _ => "there is one processor only".to_owned(),
    };
    report.skipped.push(LeftOut::new(word, why));
    Ok(None)
}
