//! `convoy bench dpdk`: DPDK's crypto devices, measured by DPDK's own program, and Convoy's bursts, in turn.

use std::path::PathBuf;

use clap::Args;
use convoy_bench::cores::Cores;
use convoy_bench::dpdk::SIZES_MAX;
use convoy_bench::dpdk::contest::Peer;
use convoy_bench::dpdk::options::Driver;
use convoy_bench::dpdk::program::{Program, RunError};
use convoy_bench::dpdk::report::Report;
use convoy_bench::dpdk::rounds::{Findings, Plan, RoundsError, measure};
use convoy_bench::results::LeftOut;
use convoy_bench::results::head::Head;
use convoy_bench::{suite, tiers};
use convoy_crypto::Cpu;

use super::json;
use crate::exit::{Exit, Stop};
use crate::interrupt::Interrupt;
use crate::output;

/// The help of `convoy bench dpdk`.
pub(super) const HELP: &str = "\
Examples:
  convoy bench dpdk                                # AES-GCM and AES-CBC with HMAC, 15 rounds: half a minute
  convoy bench dpdk --quick --json > dpdk.json     # three sizes and five rounds: some seconds
  convoy bench dpdk --suite aes-256-gcm-16 --sizes 64,1408 --rounds 61
  convoy bench dpdk --driver crypto_openssl
  convoy bench dpdk --secgw $(interop/secgw/build.sh)     # DPDK's gateway beside a worker
  LD_LIBRARY_PATH=/opt/ipsec-mb/lib convoy bench dpdk     # DPDK over another libIPSec_MB

DPDK's program dpdk-test-crypto-perf measures what a crypto device of DPDK's costs its caller. Its devices
crypto_aesni_mb and crypto_aesni_gcm are made of intel-ipsec-mb. It needs no root, no network card and no huge pages
here. On Debian and Ubuntu:
  apt install dpdk-dev librte-meta-crypto

How it is measured: the program is one of its own, so it cannot take turns with Convoy burst by burst. In each round
it runs once for each device, and Convoy's bursts have their turn on the same processor, beginning with another one in
each round. Both measure windows of 1,024 packets, in bursts of 32 under one key, sealed in place over and over. The
middle one of 15 windows counts. RATIO is the device's cycles in Convoy's, the median of all rounds, with its
quartiles: above 1, Convoy is faster. Rounds are seconds apart, so cycles of two rounds do not compare; ratios do.

What both count: the program takes operations with their buffers from a pool, fills them in, enqueues and dequeues
them, and puts them back. Convoy names frames, nonces and keys of a burst to the library, and has them sealed, as in
convoy bench crypto. A device may keep packets of AES-CBC until the next burst, and work on both together; Convoy is
done with a burst when its call returns. With AES-CBC Convoy authenticates ESP header and IV as well, 24 bytes that
the program has no way to give. While a device is measured, the main thread of DPDK spins on a second processor; a
thread of Convoy's does the same while Convoy is measured.

The program does not check what it computes here. Convoy's packets are opened before anything is measured, and a
forged one must be refused.

Gateways: --secgw takes DPDK's example ipsec-secgw, which no distribution ships. interop/secgw/build.sh builds it from
DPDK's source package, with a patch by which it times windows and takes devices of software, and prints where it is.
It protects packets that a device copies from memory over and over, and another device takes what comes out. A worker
of Convoy's, the thread that forwards in a gateway, has the same packets from memory. Each has one SA in tunnel mode
and one processor, and nothing is lost. Rounds take turns as above, with a run of each for each size. Before a device
is measured, a capture of what the gateway sends must have ESP packets of the right lengths and nothing else.

Exit code 1: a device could not be measured, with the program's own words as the reason, or the run was interrupted.
Exit code 2: the program is not installed.";

/// Bytes of text.
const SIZES: [usize; 6] = [64, 256, 512, 1024, 1408, 2048];
/// The same with `--quick`.
const QUICK: [usize; 3] = [64, 512, 1408];
/// Bytes of inner packets: those of convoy bench forward.
const PACKETS: [usize; 6] = [64, 128, 256, 512, 1024, 1420];
/// The same with `--quick`.
const QUICK_PACKETS: [usize; 3] = [64, 512, 1420];

/// `convoy bench dpdk`
#[derive(Debug, Args)]
pub struct DpdkArgs {
    /// Suites by name: AES-GCM, ChaCha20-Poly1305, and AES-CBC with HMAC, AES-XCBC or AES-CMAC.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = suite::STUDIED)]
    suite: Vec<String>,
    /// Bytes of text, 1 to 16384, 32 sizes at most; AES-CBC rounds up to 16. Left out: 64, 256, 512, 1024, 1408 and 2048, with
    /// --quick 64, 512 and 1408. With --secgw of inner packets, 40 to 1500: 64, 128, 256, 512, 1024 and 1420.
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Kinds of DPDK's crypto devices. One that is for AES-GCM alone is not asked for other suites.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "crypto_aesni_mb,crypto_aesni_gcm"
    )]
    driver: Vec<Driver>,
    /// Rounds, 1 to 1000. Left out: 15, with --quick 5; with --secgw 7 and 3.
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// Measure three sizes in fewer rounds.
    #[arg(long)]
    quick: bool,
    /// DPDK's dpdk-test-crypto-perf, instead of the one that is installed.
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// DPDK's gateway, beside a worker of Convoy's, instead of its devices beside the library (see below).
    #[arg(long, value_name = "PATH", conflicts_with = "program")]
    secgw: Option<PathBuf>,
    /// The processor that computes, and one beside it. Left out: the first two that this process may use.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    processors: Vec<usize>,
    /// Convoy's tier. Left out: the best of this machine.
    #[arg(long, value_name = "NAME")]
    tier: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DpdkArgs) -> anyhow::Result<Exit> {
    let plan = plan(args)?;
    let (tier, is_of_gateways) = (plan.tier, args.secgw.is_some());
    let mut report =
        Report { head: Head::now(), tier, is_of_gateways, findings: Findings::default() };
    let interrupt = Interrupt::listen()?;
    let go_on = || !interrupt.is_set();
    let mut tell = |line: &str| eprintln!("bench: {line}");
    let findings = &mut report.findings;
    let missing = match measure(&plan, findings, &go_on, &mut tell) {
        Err(RoundsError::Program(error @ RunError::Missing { .. })) => {
            findings
                .left_out
                .push(LeftOut::new(format!("DPDK {}", plan.peer.program().name()), &error));
            Some(Stop::usage(error.to_string()))
        }
        outcome => outcome.map(|()| None)?,
    };
    let is_well = report.findings.left_out.is_empty() && !report.findings.is_interrupted;
    // Who put this into a report finds the reason there.
    if args.json {
        json::print(report.results())?;
    } else if missing.is_none() {
        let table = output::table(&report.rows());
        output::print(&format!("{}\n{table}{}", report.head(), report.missing()))?;
    }
    match missing {
        Some(stop) => Err(stop),
        None if is_well => Ok(Exit::Ok),
        None => Ok(Exit::Trouble),
    }
}

/// The checked command line.
fn plan(args: &DpdkArgs) -> anyhow::Result<Plan> {
    let cpu = Cpu::detect().map_err(|error| Stop::usage(error.to_string()))?;
    let tier = tiers::named(&cpu, args.tier.as_slice()).map_err(Stop::usage)?;
    let mut suites = Vec::new();
    for word in &args.suite {
        suites.extend(suite::parse(word).map_err(Stop::usage)?);
    }
    let (peer, usual, quick, range, rounds) = match &args.secgw {
        None => {
            let program = Program::devices(args.program.as_deref());
            (Peer::Devices(program), SIZES, QUICK, 1..=16_384, if args.quick { 5 } else { 15 })
        }
        Some(path) => {
            let rounds = if args.quick { 3 } else { 7 };
            (Peer::Gateway(Program::gateway(path)), PACKETS, QUICK_PACKETS, 40..=1500, rounds)
        }
    };
    let sizes = match (args.sizes.is_empty(), args.quick) {
        (false, _) => args.sizes.clone(),
        (true, true) => quick.to_vec(),
        (true, false) => usual.to_vec(),
    };
    if sizes.len() > SIZES_MAX {
        return Err(Stop::usage(format!("--sizes: {SIZES_MAX} at most")));
    }
    if let Some(size) = sizes.iter().find(|size| !range.contains(*size)) {
        let (least, most) = (range.start(), range.end());
        return Err(Stop::usage(format!("--sizes {size}: use {least} to {most}")));
    }
    let rounds = args.rounds.unwrap_or(rounds);
    if !(1..=1000).contains(&rounds) {
        return Err(Stop::usage(format!("--rounds {rounds}: use 1 to 1000")));
    }
    let processors = processors(&args.processors, &Cores::allowed()?, peer.processors());
    Ok(Plan {
        peer,
        drivers: args.driver.clone(),
        suites,
        sizes,
        rounds,
        cpu,
        tier: tier.first().copied().unwrap_or_else(|| cpu.best()),
        processors: processors.map_err(Stop::usage)?,
    })
}

/// Two processors of those `allowed`; the same twice where one is asked for, or there, and one is `needed`.
fn processors(asked: &[usize], allowed: &[usize], needed: usize) -> Result<[usize; 2], String> {
    match (asked, allowed) {
        (&[own], _) | ([], &[own]) if needed == 1 && allowed.contains(&own) => Ok([own, own]),
        ([], &[own, beside, ..]) => Ok([own, beside]),
        ([], _) => Err(
            "DPDK's program needs a second processor for its main thread, and this process may use one"
                .to_owned(),
        ),
        (&[own, beside], _) if own == beside => {
            Err(format!("--processors {own},{beside}: use two that differ"))
        }
        (&[own, beside], _) if allowed.contains(&own) && allowed.contains(&beside) => {
            Ok([own, beside])
        }
        (&[_, _], _) => Err(format!("--processors: this process may use {allowed:?}")),
        _ => Err("--processors: name two".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Verb};
    use crate::verbs::bench::{BenchArgs, BenchWhat};

    fn parse(words: &str) -> Result<DpdkArgs, String> {
        let all = ["convoy", "bench", "dpdk"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(all).map_err(|error| error.to_string())?.verb {
            Verb::Bench(BenchArgs { what: BenchWhat::Dpdk(args) }) => Ok(args),
            _ => panic!("another verb"),
        }
    }

    #[test]
    fn processors_are_two_that_may_be_used() {
        assert_eq!(processors(&[], &[2, 5, 7], 2), Ok([2, 5]));
        assert_eq!(processors(&[7, 2], &[2, 5, 7], 2), Ok([7, 2]));
        assert_eq!(processors(&[], &[2], 1), Ok([2, 2]));
        assert_eq!(processors(&[5], &[2, 5], 1), Ok([5, 5]));
        assert!(processors(&[3], &[2, 5], 1).is_err());
        for (asked, allowed, said) in [
            (&[][..], &[0][..], "needs a second processor"),
            (&[2, 2], &[2, 5], "two that differ"),
            (&[2, 3], &[2, 5], "may use [2, 5]"),
            (&[2], &[2, 5], "name two"),
        ] {
            let error = processors(asked, allowed, 2).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn quick_is_a_part_of_all() {
        if Cores::allowed().unwrap().len() < 2 {
            return println!("SKIPPED: there is one processor");
        }
        let quick = plan(&parse("--quick").unwrap()).unwrap();
        let all = plan(&parse("").unwrap()).unwrap();
        assert!(quick.rounds < all.rounds && quick.sizes.len() < all.sizes.len());
        assert_eq!((quick.suites.len(), quick.drivers.len()), (2, 2));
        let gateway = plan(&parse("--secgw /opt/secgw --quick").unwrap()).unwrap();
        assert_eq!((gateway.peer.program().name(), gateway.sizes[2]), ("ipsec-secgw", 1420));
        let named = plan(&parse("--quick --sizes 64 --rounds 9").unwrap()).unwrap();
        assert_eq!((named.rounds, named.sizes), (9, vec![64]));
    }

    #[test]
    fn wrong_arguments_are_told_what_is_right() {
        let many = format!("--sizes {}64", "64,".repeat(32));
        for (words, said) in [
            ("--sizes 0", "use 1 to 16384"),
            ("--secgw a --sizes 39", "use 40 to 1500"),
            ("--secgw a --program b", "cannot be used with"),
            ("--rounds 0", "use 1 to 1000"),
            ("--suite aes-128-gcm", "aes-128-gcm-16 is"),
            ("--driver aesni_mb", "crypto_aesni_mb"),
            ("--tier mmx", "valid names are"),
            (&*many, "32 at most"),
        ] {
            let outcome = parse(words).and_then(|args| plan(&args).map_err(|e| e.to_string()));
            let error = outcome.unwrap_err();
            assert!(error.contains(said), "{words}: {error}");
        }
    }
}
