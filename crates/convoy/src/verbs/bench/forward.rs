//! `convoy bench forward`: how many packets a second one core passes without losing them, and how long they take.

use clap::Args;
use convoy_bench::cores::Cores;
use convoy_bench::forward::grid::{self, ForwardError};
use convoy_bench::forward::plan::{ALLOWED, Engine, Plan, SEARCHES, Subject};
use convoy_bench::forward::point::Findings;
use convoy_bench::forward::report::Report;
use convoy_bench::forward::search::PACKETS;
use convoy_bench::results::head::Head;
use convoy_bench::{suite, tiers};
use convoy_crypto::Cpu;

use super::engine::device;
use super::json;
use crate::exit::{Exit, Stop};
use crate::interrupt::Interrupt;
use crate::output;

/// Text behind the options in `convoy bench forward --help`.
pub(super) const HELP: &str = "\
Examples:
  convoy bench forward --quick                 # a part of the grid, one search each: about a minute
  convoy bench forward --json > forward.json   # all of it, within eight minutes
  convoy bench forward --engine inline --suite aes-128-gcm-16 --sizes 64,1420
  convoy bench forward --engine inline,cryptodev:crypto_aesni_mb --quick
  convoy bench forward --quick --disturbed 5   # on a machine that others use as well

How it is measured: the gateway's own worker thread has a processor to itself. On another processor a generator
offers packets at even spaces, by the time-stamp counter, and takes and checks what comes out. Half of what is
offered are inner packets, which the worker protects; half are ESP packets, which it opens: those that it protected
itself 8,192 packets before. A packet offered is a packet that the core has to pass, so Mpps counts both directions
together; Gb/s is of inner bytes. In front of the worker each direction has a ring of 4,096 packets, which loses
what comes when it is full, as a network card does. Every inner packet comes back, and is compared byte by byte.

The rate is the highest offered load of which at most 0.01 % is lost. From the rate of a saturated worker, the load
goes up or down until one load within that loss and one beyond it are known, and the gap is halved until it is below 1 %. A
trial has 262,144 packets. Those that wait in a ring at its end, beyond a quarter of the ring, count as lost: a longer
trial would lose them. Of five searches the median is told, and all in brackets; they take turns over the whole grid.

A trial is void, and taken again, when other programs or the host took more than 0.5 % of it from the worker or the
generator (--disturbed), when the generator was ever 2,048 packets late, or when the engine left packets to software.
VOID counts these. After ten of them in a row a search ends; a point without a search is \"not measured: busy\".

Latencies are taken at a tenth, a half and nine tenths of the rate, from when a packet was due, not from when it was
offered, to when it is seen behind the worker. The table has median and 99th percentile; --json has 50, 90, 99, 99.9 %
and the longest. CYCLES is what the submitting core needs for the cryptography of a packet (convoy bench engine), and
VARY the distance of its quartiles in per cent of the median.

At the end engines are compared on seven axes. Five are measured, and scaled to the best; hardware
availability and software support are judged, with the reasons.

\"inline\" is the worker itself with Convoy's kernels. \"pool\" is a thread on a third processor. \"model\" is a look-aside
device made of software, 20 to 25 µs away behind a link of 8 GB/s: it computes on the worker's core, so its rate is below
what a real device would leave, and what goes over its link is counted. \"cryptodev\" is a crypto device of DPDK's,
crypto_openssl or the one behind the colon (docs/engines.md). What this machine has too few processors for is named.

Ctrl-C ends after the trial under way; what was measured is printed. Exit code 1 when a packet is not accounted for,
or after Ctrl-C.";

/// `convoy bench forward`
#[derive(Debug, Args)]
pub struct ForwardArgs {
    /// Engines: inline, pool, model; "cryptodev" or "cryptodev:NAME", a crypto device of DPDK's.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "inline,pool,model")]
    engine: Vec<String>,
    /// Suites by name; `convoy bench crypto --suite list` prints the names.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = suite::STUDIED)]
    suite: Vec<String>,
    /// Bytes of inner packets, 40 to 8900. Left out: 64, 128, 256, 512, 1024 and 1420, with --quick 64, 512 and 1420.
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Measure a part of the grid, with one search of each point.
    #[arg(long)]
    quick: bool,
    /// Searches of each point, 1 to 1000. Left out: 5, with --quick 1.
    #[arg(long, value_name = "COUNT")]
    searches: Option<usize>,
    /// The processors of worker, generator and the pool's thread. Left out: the first that this process may use.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    processors: Vec<usize>,
    /// Share of a trial that others may take before it is void, in per cent, 0 to 100.
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * ALLOWED)]
    disturbed: f64,
    /// Packets of a trial, 10000 to 100000000. Fewer are faster and less exact.
    #[arg(long, value_name = "COUNT", default_value_t = PACKETS)]
    packets: u64,
    /// The tier of the keys. Left out: the best of this machine.
    #[arg(long, value_name = "NAME")]
    tier: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ForwardArgs) -> anyhow::Result<Exit> {
    let plan = plan(args)?;
    let mut report = Report { head: Head::now(), findings: Findings::default() };
    let interrupt = Interrupt::listen()?;
    let go_on = || !interrupt.is_set();
    let mut tell = |line: &str| eprintln!("bench: {line}");
    let outcome = grid::run(&plan, &mut report.findings, &go_on, &mut tell);
    let is_good = outcome.is_ok() && report.findings.errors.is_empty() && report.findings.complete;
    if args.json {
        json::print(report.results())?;
    } else {
        output::print(&report.to_string())?;
    }
    if let Err(error) = outcome {
        eprintln!("error: {error}");
    }
    Ok(if is_good { Exit::Ok } else { Exit::Trouble })
}

/// Measurements that the command line asks for.
fn plan(args: &ForwardArgs) -> anyhow::Result<Plan> {
    check(args).map_err(Stop::usage)?;
    let cpu = Cpu::detect().map_err(|error| Stop::usage(error.to_string()))?;
    let tier = tiers::named(&cpu, args.tier.as_slice()).map_err(Stop::usage)?;
    let cpus = processors(args)?;
    let mut plan = Plan::of_study(cpu, args.quick, &[])?;
    (plan.left_out, plan.cpus) = (Vec::new(), cpus);
    plan.tier = tier.first().copied().unwrap_or_else(|| cpu.best());
    plan.suites.clear();
    for word in &args.suite {
        plan.suites.extend(suite::parse(word).map_err(Stop::usage)?);
    }
    if !args.sizes.is_empty() {
        plan.sizes.clone_from(&args.sizes);
    }
    plan.searches = args.searches.unwrap_or(if args.quick { 1 } else { SEARCHES });
    (plan.packets, plan.allowed) = (args.packets, args.disturbed / 100.0);
    for word in &args.engine {
        add(&mut plan, word)?;
    }
    Ok(plan)
}

/// Adds one engine to the plan.
fn add(plan: &mut Plan, word: &str) -> anyhow::Result<()> {
    match plan.add(word) {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        Err(error @ ForwardError::Thread(_)) => return Err(error.into()),
        Err(error) => return Err(Stop::usage(format!("--engine {word}: {error}"))),
    }
    let Some(choice) = device(word)? else {
        let what =
            format!("--engine {word:?}: use inline, pool, model, cryptodev or cryptodev:NAME");
        return Err(Stop::usage(what));
    };
    plan.subjects.push(Subject { name: word.to_owned(), engine: Engine::Choice(choice) });
    Ok(())
}

/// Refuses numbers with which a run would never end, or says nothing.
fn check(args: &ForwardArgs) -> Result<(), String> {
    if let Some(size) = args.sizes.iter().find(|size| !(40..=8900).contains(*size)) {
        return Err(format!("--sizes {size}: use 40 to 8900"));
    }
    let searches = args.searches.unwrap_or(1);
    if !(1..=1000).contains(&searches) {
        return Err(format!("--searches {searches}: use 1 to 1000"));
    }
    if !(0.0..=100.0).contains(&args.disturbed) {
        return Err(format!("--disturbed {}: use 0 to 100", args.disturbed));
    }
    if !(10_000..=100_000_000).contains(&args.packets) {
        return Err(format!("--packets {}: use 10000 to 100000000", args.packets));
    }
    Ok(())
}

/// The processors to use, which must be there and differ.
fn processors(args: &ForwardArgs) -> anyhow::Result<Vec<usize>> {
    let allowed = Cores::allowed()?;
    if args.processors.is_empty() {
        return Ok(allowed.into_iter().take(3).collect());
    }
    let mut seen = Vec::new();
    for cpu in &args.processors {
        if !allowed.contains(cpu) {
            let what = format!("--processors {cpu}: this process may use {allowed:?}");
            return Err(Stop::usage(what));
        }
        if seen.contains(cpu) {
            return Err(Stop::usage(format!("--processors {cpu}: name each once")));
        }
        seen.push(*cpu);
    }
    Ok(seen)
}
