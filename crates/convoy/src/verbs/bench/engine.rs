//! `convoy bench engine`: what engines cost the core that submits to them.

use std::time::Duration;

use clap::{Args, ValueEnum};
use convoy_bench::engine::line::there_and_back;
use convoy_bench::engine::measure::{Load, measure};
use convoy_bench::engine::report::{FAR, Report, fits};
use convoy_bench::engine::trials::{rekeys, stall};
use convoy_bench::esp::cores::Cores;
use convoy_bench::machine::Machine;
use convoy_bench::suite;
use convoy_crypto::Cpu;
use convoy_engine::Front;
use convoy_engine::model::{Faults, Model, Settings};
use convoy_runtime::{CryptoPool, EngineChoice, Waker, pin_current_thread};

use super::tiers;
use crate::exit::{Exit, Stop};
use crate::output;

/// What `convoy bench engine --help` teaches.
pub const HELP: &str = "\
Examples:
  convoy bench engine                              # one core alone, and with a thread beside it
  convoy bench engine --engine pool --sizes 64,1420 --suite aes-128-gcm-16
  convoy bench engine --json > engine.json

How it is measured: one core lays out bursts of 64 packets as the outbound pipeline does, and hands them to
the engine, four bursts under way. CYCLES is what it needs to hand a packet over and to take it back, of the
time-stamp counter: for \"inline\" that is all of the cryptography. Attempts in vain are not counted. Then the
same core hands over as fast as it can: Mpps and Gb/s are what gets done a second, in bytes of inner packets.

\"pool\" has one thread on another processor. What a cache line takes from one to the other and back is
measured before: above 300 cycles the processors are too far apart, and the pool is not measured. Two
processors of one core compute less at once than one at a time; that is told as well.

Then, with the first suite and size: a device made of software stalls with a thousand packets, and how long
they take to come out is told; and each engine, that device too, gets a thousand new keys a second, with as
many packets under way as it takes, in rounds that alternate with rounds without.

Of all samples of a point the first and last eighth are dropped, and the middle quarters of the sorted rest
averaged. Every packet must be sealed, and every frame must be back at the end. Exit code 1 when not.";

/// `convoy bench engine`
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// Engines to measure.
    #[arg(
        long,
        value_enum,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "inline,pool"
    )]
    engine: Vec<Name>,
    /// Suites by name; `convoy bench crypto --suite list` prints the names.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "aes-128-gcm-16,aes-128-cbc+hmac-sha1-96"
    )]
    suite: Vec<String>,
    /// Bytes of inner packets, 40 to 8900.
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        default_value = "64,256,512,1024,1420",
        value_parser = clap::value_parser!(u16).range(40..=8900)
    )]
    sizes: Vec<u16>,
    /// The tier of the keys. Left out: the best of this machine.
    #[arg(long, value_name = "NAME")]
    tier: Option<String>,
    /// How long to measure each point, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// An engine that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The core itself, at once
    Inline,
    /// A thread on another processor
    Pool,
}

impl Name {
    const fn word(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Pool => "pool",
        }
    }
}

pub(super) fn run(args: &EngineArgs) -> anyhow::Result<Exit> {
    let cpu = Cpu::detect().map_err(|error| Stop::usage(error.to_string()))?;
    let tier = tiers(&cpu, args.tier.as_slice()).map_err(Stop::usage)?;
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
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::look(),
        tier: tier.to_string(),
        line_cycles: None,
        together: None,
        points: Vec::new(),
        fits: Vec::new(),
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
    let first = suites.first().zip(args.sizes.first());
    let first = first.map(|(suite, bytes)| Load { suite: *suite, bytes: (*bytes).into() });
    for name in &args.engine {
        let Some(choice) = choice(*name, &mut report)? else { continue };
        if let Some(load) = first {
            eprintln!("bench: {}, new keys", name.word());
            let (front, time) = (choice.make(&waker), Duration::from_secs_f64(args.seconds));
            report.rekeys.push(rekeys(name.word(), front, (&cpu, tier), load, time)?);
        }
        for suite in &suites {
            for bytes in &args.sizes {
                let load = Load { suite: *suite, bytes: usize::from(*bytes) };
                eprintln!("bench: {}, {suite}, {bytes} bytes", name.word());
                let front = choice.make(&waker);
                let time = Duration::from_secs_f64(args.seconds / 2.0);
                report.points.push(measure(name.word(), front, (&cpu, tier), load, time)?);
            }
        }
    }
    report.fits = fits(&report.points);
    if let Some(load) = first {
        eprintln!("bench: a device made of software");
        report.stall = Some(stall((&cpu, tier), load)?);
        let model = Front::with(Box::new(Model::new(Settings::default(), Faults::default())));
        let time = Duration::from_secs_f64(args.seconds);
        report.rekeys.push(rekeys("model", model, (&cpu, tier), load, time)?);
    }
    if args.json {
        output::json(&report)?;
    } else {
        output::print(&report.to_string())?;
    }
    Ok(Exit::Ok)
}

/// The engine, unless this machine cannot measure it.
fn choice(name: Name, report: &mut Report) -> anyhow::Result<Option<EngineChoice>> {
    if name == Name::Inline {
        return Ok(Some(EngineChoice::Inline));
    }
    let why = match (&report.cpus[..], report.line_cycles) {
        (&[_, other], Some(line)) if line <= FAR => {
            return Ok(Some(EngineChoice::Pool(CryptoPool::start(&[Some(other)])?)));
        }
        (&[_, _], Some(line)) => format!("a cache line takes {line:.0} cycles there and back"),
        _ => "there is one processor only".to_owned(),
    };
    report.skipped.push(format!("{}: {why}", name.word()));
    Ok(None)
}
