//! `convoy bench esp`: ESP from end to end, in memory.

use std::time::Duration;

use clap::Args;
use convoy_bench::cores::Cores;
use convoy_bench::esp::beside::{self, Member};
use convoy_bench::esp::goal;
use convoy_bench::esp::measure::measure;
use convoy_bench::esp::report::{self, Report};
use convoy_bench::esp::rig::{RigError, Task};
use convoy_bench::esp::site::{POLICIES_MAX, Shape};
use convoy_bench::esp::soak::soak;
use convoy_bench::esp::stages::Clock;
use convoy_bench::esp::workers::{Division, ROUNDS, Runs, rates};
use convoy_bench::maker::Maker;
use convoy_bench::mix::{Mix, Sizes};
use convoy_bench::results::head::Head;
use convoy_bench::run::pin;
use convoy_bench::{memory, suite, tiers};
use convoy_crypto::{Cpu, Suite, Tier};
use convoy_engine::registry::Registry;
use convoy_io::fault::Faults;
use convoy_packet::BURST_MAX;

use super::json;
use crate::exit::{Exit, Stop};
use crate::output;

/// Text behind the options in `convoy bench esp --help`.
pub(super) const HELP: &str = "\
Examples:
  convoy bench esp                                 # the figures to reach, and whether they are
  convoy bench esp --sizes 64,128,256,512,1024,1454 --sas 1,16,64 --json > esp.json
  convoy bench esp --sas 64 --policies 1000 --mix imix --sizes none
  convoy bench esp --workers 1,2 --sas 64 --sizes 64
  convoy bench esp --engine null,two-pass,inline --suite aes-128-gcm-16 --sas 1 --in-turn
  convoy bench esp --packets 100000000 --faults --sas 64 --sizes 64     # a soak

How it is measured: one thread, everything in memory:
  generator → outbound → (fault injector) → inbound → sink
A burst of packets of flows at random is made, protected, opened and checked. Measured are the two
pipelines: from a burst of inner packets to finished ESP packets with their outer headers, and back
to inner packets that passed the policy check. Generator, injector, sink and I/O are not measured.
Beside each burst the crypto library alone seals and opens a burst of the same lengths under the same
keys, in frames of the same arena; OVER is what the pipelines add to that, burst by burst, with its
quartiles. LOOK-UP is the SPD alone, for flows that its cache knows; NEW, for flows it does not.

Cycles are of the time-stamp counter, per packet. Of all samples of a point the first and last eighth
are dropped, and the middle quarters of the sorted rest averaged. Bursts that another program came
into are not counted.

Every packet is checked at the sink, byte by byte, and all counters must add up at the end: sent =
received + what the injector took + what was dropped, by reason; counters of SAs, workers and the
injector against each other. With --engine drivers of the registry take the place of Convoy's own kernels (convoy crypto lists them):
\"null\" does no work, so its pipelines cost what everything but the cryptography costs; OVER is beside
Convoy's library all the same.

With --in-turn all engines and tiers get one burst of the same packets after the other, and RATIO is the time of
each in that of the first with Convoy's own kernels, round by round: only such ratios compare engines.

With --packets nothing is timed; instead memory must not grow. Exit code
1 when anything is missing.

With --workers the gateway's own worker threads run, pinned, each between a port that makes and checks
packets and a wire that leads back to itself; SAs are divided among them. Runs of one worker and of
many take turns. Where there are fewer SAs than workers, all of them are the first worker's, and the others
help it with the cryptography (docs/engines.md). Before, it is measured what else the processors do and what they compute at once.

Sizes are bytes of inner packets. The mixes:
  imix-paper  packets of 46, 522 and 1346 bytes, weighted 60, 23 and 15
  imix        packets of 90, 92, 594 and 1418 bytes, weighted 58.67, 2, 23.66 and 15.67
SAs are tunnels in IPv4 with replay windows of 1,024 packets, as many in each direction.";

/// `convoy bench esp`
#[derive(Debug, Args)]
pub struct EspArgs {
    /// Suites by name; `convoy bench crypto --suite list` prints the names.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = suite::STUDIED)]
    suite: Vec<String>,
    /// Bytes of inner packets, 40 to 8900; "none" for mixes only.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "64,1420")]
    sizes: Vec<String>,
    /// Mixes of sizes: imix, imix-paper; "none" for single sizes only.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "imix-paper")]
    mix: Vec<String>,
    /// Numbers of SAs in each direction, 1 to 524288 as far as memory holds them.
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_value = "1,10000")]
    sas: Vec<usize>,
    /// Policies in each direction, at least as many as SAs. Left out: one for each SA.
    #[arg(long, value_name = "COUNT")]
    policies: Option<usize>,
    /// Flows, at least as many as policies; packets belong to them at random. Left out: one for each
    /// policy, but at least 64.
    #[arg(long, value_name = "COUNT")]
    flows: Option<usize>,
    /// Use extended sequence numbers.
    #[arg(long)]
    esn: bool,
    /// Packets of a burst.
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    burst: usize,
    /// Faults of the wire, as shares of the packets: loss, duplication, reordering, flip (one
    /// bit), truncation.
    #[arg(
        long,
        value_name = "KIND=SHARE,…",
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_value = "loss=0.01,duplication=0.01,reordering=0.05,flip=0.005,truncation=0.002"
    )]
    faults: Option<Vec<String>>,
    /// The tiers of the keys. Left out: the best of this machine.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    tier: Vec<String>,
    /// Unit that does the cryptography: "inline" for Convoy's own kernels, or drivers by name, or by the end of
    /// it: null, two-pass, two-pass-clmul.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "inline",
        conflicts_with = "faults"
    )]
    engine: Vec<String>,
    /// Give all engines and tiers one burst of the same packets after the other, and tell their ratios.
    #[arg(long, conflicts_with_all = ["packets", "workers", "stages", "faults"])]
    in_turn: bool,
    /// Time to measure each point, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,
    /// Send so many packets for each point and time nothing: a soak.
    #[arg(long, value_name = "COUNT", conflicts_with = "seconds")]
    packets: Option<u64>,
    /// Numbers of workers: measures the packets per second that they pass together, each both ways,
    /// with the gateway's own threads, instead of cycles.
    #[arg(long, value_name = "COUNT", value_delimiter = ',', conflicts_with_all = ["packets", "stages", "faults"])]
    workers: Option<Vec<u16>>,
    /// Runs of each number of workers.
    #[arg(long, value_name = "COUNT", default_value_t = ROUNDS, requires = "workers")]
    rounds: usize,
    /// Tell what each stage needs, too. The counter is read once per stage and burst, so the sums
    /// stay what they are.
    #[arg(long, conflicts_with = "packets")]
    stages: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Memory that an SA needs at most, with both its ends.
const SA_BYTES: u64 = 8192;

/// Memory that a policy needs at most, with both its ends.
const POLICY_BYTES: u64 = 2048;

/// Measurements to make.
struct Plan {
    /// Engines and tiers by name, and what to measure with each.
    tasks: Vec<(Member, Task)>,
    time: Duration,
    /// The processors of workers.
    cpus: Vec<usize>,
}

pub(super) fn run(args: &EspArgs) -> anyhow::Result<Exit> {
    let plan = Plan::new(args).map_err(Stop::usage)?;
    let head = Head::now();
    let cores = args.workers.as_ref().map(|_| Cores::look(&plan.cpus));
    if let Some(cores) = &cores {
        eprintln!("bench: {}", cores.told());
    } else if let Err(error) = pin() {
        eprintln!("bench: cannot stay on one core ({error}); figures will vary more");
    }
    let mut report = Report {
        head,
        figures: Vec::new(),
        points: Vec::new(),
        beside: Vec::new(),
        soaks: Vec::new(),
        cores,
        rates: Vec::new(),
        errors: Vec::new(),
    };
    let steps = plan.steps(args.in_turn);
    for (i, (members, task)) in steps.iter().enumerate() {
        let names: Vec<&str> = members.iter().map(|member| &*member.name).collect();
        let by = names.join(", ");
        let name = format!("{} on {by}, {}, {} SAs", task.suite, task.sizes, task.shape.sas);
        eprintln!("bench: {} of {}: {name}", i + 1, steps.len());
        let outcome = step(args, &plan, members, task, &mut report);
        let errors = outcome.unwrap_or_else(|error| vec![error.to_string()]);
        errors.iter().for_each(|error| eprintln!("bench: {error}"));
        report.errors.extend(errors.iter().map(|error| format!("{name}: {error}")));
    }
    report.figures = goal::figures(&report.points);
    report.figures.extend(goal::worker_figures(&report.rates));
    if args.json {
        json::print(report.results())?;
    } else {
        output::print(&text(&report, args.stages))?;
    }
    Ok(if report.errors.is_empty() { Exit::Ok } else { Exit::Trouble })
}

/// Does one task; returns what is wrong about its packets.
fn step(
    args: &EspArgs,
    plan: &Plan,
    members: &[Member],
    task: &Task,
    report: &mut Report,
) -> Result<Vec<String>, RigError> {
    if args.in_turn {
        let beside = beside::measure(members, task, plan.time)?;
        let errors = beside.errors.clone();
        report.beside.push(beside);
        return Ok(errors);
    }
    let Some(Member { maker, .. }) = members.first() else { return Ok(Vec::new()) };
    if let Some(workers) = &args.workers {
        let most = workers.iter().copied().max().unwrap_or_default();
        let is_few = task.shape.sas < most.into() && matches!(maker, Maker::Tier(..));
        let division = if is_few { Division::Packets } else { Division::Sas };
        let Plan { time, cpus, .. } = plan;
        let runs = Runs { workers, cpus, division, rounds: args.rounds, time: *time };
        let rates = rates(maker, task, &runs)?;
        let errors = rates.iter().flat_map(|rate| rate.errors.clone()).collect();
        report.rates.extend(rates);
        return Ok(errors);
    }
    let Some(packets) = args.packets else {
        let point = measure::<Clock>(maker, task, plan.time)?;
        let errors = point.books.errors();
        report.points.push(point);
        return Ok(errors);
    };
    let tell = |sent| eprintln!("bench:   {sent} of {packets} packets");
    let soak = soak(maker, task, packets, tell)?;
    let errors = soak.errors();
    report.soaks.push(soak);
    Ok(errors)
}

impl Plan {
    fn new(args: &EspArgs) -> Result<Self, String> {
        let cpu = Cpu::detect().map_err(|e| e.to_string())?;
        if !(args.seconds.is_finite() && args.seconds > 0.0 && args.seconds <= 3600.0) {
            return Err("--seconds: more than 0 and at most 3600".to_owned());
        }
        if !(1..=BURST_MAX).contains(&args.burst) {
            return Err(format!("--burst: a burst has 1 to {BURST_MAX} packets"));
        }
        if args.packets == Some(0) {
            return Err("--packets: at least one".to_owned());
        }
        let faults = args.faults.as_deref().map(faults).transpose()?;
        let mut suites: Vec<Suite> = Vec::new();
        for word in &args.suite {
            suites.extend(suite::parse(word)?);
        }
        let (sizes, shapes) = (sizes(args)?, shapes(args)?);
        let mut tasks = Vec::new();
        let tiers = tiers::named(&cpu, &args.tier)?;
        for (member, suite) in members(&cpu, &tiers, &args.engine, &suites)? {
            for &shape in &shapes {
                tasks.extend(sizes.iter().map(|&sizes| {
                    let task = Task { suite, sizes, shape, faults, burst: args.burst };
                    (member.clone(), task)
                }));
            }
        }
        if tasks.is_empty() {
            return Err("nothing is left to measure: no size and no mix".to_owned());
        }
        let cpus = Cores::allowed().map_err(|e| format!("no processors are known: {e}"))?;
        if !(1..=1000).contains(&args.rounds) {
            return Err(format!("--rounds {}: use 1 to 1000", args.rounds));
        }
        for &n in args.workers.iter().flatten() {
            if !(1..=cpus.len()).contains(&usize::from(n)) {
                return Err(format!("--workers: 1 to {}, a processor for each", cpus.len()));
            }
        }
        Ok(Self { tasks, time: Duration::from_secs_f64(args.seconds), cpus })
    }

    /// Measurements at a time: each engine and tier by itself, or all that have a task in turn.
    fn steps(&self, in_turn: bool) -> Vec<(Vec<Member>, Task)> {
        let mut steps: Vec<(Vec<Member>, Task)> = Vec::new();
        for (member, task) in &self.tasks {
            let same = steps.iter_mut().find(|(_, other)| in_turn && other == task);
            match same {
                Some((members, _)) => members.push(member.clone()),
                None => steps.push((vec![member.clone()], *task)),
            }
        }
        steps
    }
}

/// Engines and tiers to measure with, and their suites: engines in their order, and of Convoy's own kernels each tier.
fn members(
    cpu: &Cpu,
    tiers: &[Tier],
    engines: &[String],
    suites: &[Suite],
) -> Result<Vec<(Member, Suite)>, String> {
    let registry = Registry::of(cpu);
    let mut members = Vec::new();
    for engine in engines {
        let before = members.len();
        if engine == "inline" {
            let each = tiers.iter().flat_map(|tier| suites.iter().map(|suite| (*tier, *suite)));
            members.extend(each.map(|(tier, suite)| {
                let (name, maker) = (tier.name().to_owned(), Maker::Tier(*cpu, tier));
                (Member { name, maker }, suite)
            }));
            continue;
        }
        for &suite in suites {
            let found = Maker::driver(&registry, engine, suite);
            let found = found.map_err(|error| format!("--engine: {error}"))?;
            let member = |maker| Member { name: engine.clone(), maker };
            members.extend(found.map(|maker| (member(maker), suite)));
        }
        if members.len() == before {
            return Err(format!(
                "--engine {engine}: it works for none of these suites; see convoy crypto"
            ));
        }
    }
    Ok(members)
}

fn sizes(args: &EspArgs) -> Result<Vec<Sizes>, String> {
    use convoy_bench::esp::traffic::{PACKET_MAX, PACKET_MIN};
    let mut sizes = Vec::new();
    for word in args.sizes.iter().filter(|word| *word != "none") {
        match word.parse() {
            Ok(size) if (PACKET_MIN..=PACKET_MAX).contains(&size) => {
                sizes.push(Sizes::Fixed(size));
            }
            _ => {
                return Err(format!(
                    "--sizes: {word:?} is no number of bytes from {PACKET_MIN} to {PACKET_MAX}"
                ));
            }
        }
    }
    for word in args.mix.iter().filter(|word| *word != "none") {
        sizes.push(Sizes::Mix(word.parse::<Mix>().map_err(|e| format!("--mix: {e}"))?));
    }
    Ok(sizes)
}

fn shapes(args: &EspArgs) -> Result<Vec<Shape>, String> {
    let shape = |&sas: &usize| {
        let policies = args.policies.unwrap_or(sas);
        let flows = args.flows.unwrap_or_else(|| policies.max(64));
        let shape = Shape { policies, flows, esn: args.esn, ..Shape::new(sas) };
        shape.check().map_err(|e| format!("--sas {sas}: {e}"))?;
        memory::check("--sas", sas, SA_BYTES, POLICIES_MAX)?;
        memory::check("--policies", policies, POLICY_BYTES, POLICIES_MAX)?;
        Ok(shape)
    };
    args.sas.iter().map(shape).collect()
}

/// Reads `loss=0.01` and the like.
fn faults(words: &[String]) -> Result<Faults, String> {
    let mut faults = Faults { distance: 32, ..Faults::default() };
    for word in words {
        let (kind, share) = word.split_once('=').unwrap_or((word, ""));
        let place = match kind {
            "loss" => &mut faults.loss,
            "duplication" => &mut faults.duplication,
            "reordering" => &mut faults.reordering,
            "flip" => &mut faults.bit_flip,
            "truncation" => &mut faults.truncation,
            _ => {
                return Err(format!(
                    "--faults: {kind:?} is none of loss, duplication, reordering, flip, truncation"
                ));
            }
        };
        match share.parse() {
            Ok(share) if (0.0..=1.0).contains(&share) => *place = share,
            _ => return Err(format!("--faults: {word:?} gives no share from 0 to 1")),
        }
    }
    Ok(faults)
}

fn text(report: &Report, stages: bool) -> String {
    let machine = &report.head.machine;
    let mut text = format!(
        "convoy {}: {}\n{}; kernel {}; time-stamp counter {:.0} MHz; governor {}\n",
        report.head.version,
        report.head.command,
        machine.cpu,
        machine.kernel,
        machine.tsc_mhz,
        machine.governor.as_deref().unwrap_or("unknown"),
    );
    if !report.figures.is_empty() {
        let reached = report.figures.iter().filter(|figure| figure.reached).count();
        text += &format!(
            "\nFigures to reach, {}; {reached} of {} reached\n\n{}",
            if report.points.is_empty() { "ratios" } else { "cycles per packet" },
            report.figures.len(),
            output::table(&report::figure_rows(&report.figures))
        );
    }
    if !report.points.is_empty() {
        text += &format!(
            "\nCycles of the time-stamp counter per packet; OVER: what the pipeline adds to the \
             crypto library alone (quartiles)\n\n{}",
            output::table(&report::point_rows(&report.points))
        );
    }
    if !report.beside.is_empty() {
        text += &format!(
            "\nCycles of the time-stamp counter per packet, engines and tiers in turn; RATIO: to the first with \
             Convoy's own kernels (quartiles)\n\n{}",
            output::table(&report::beside_rows(&report.beside))
        );
    }
    if stages {
        let rows = report::stage_rows(&report.points);
        text += &format!("\nStages, cycles per packet\n\n{}", output::table(&rows));
    }
    if let Some(cores) = &report.cores {
        let rows = report::rate_rows(&report.rates);
        text += &format!("\n{}\n\n{}", cores.told(), output::table(&rows));
    }
    if !report.soaks.is_empty() {
        text += &format!("\n{}", output::table(&report::soak_rows(&report.soaks)));
    }
    for line in &report.errors {
        text += &format!("wrong: {line}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Verb};
    use crate::verbs::bench::{BenchArgs, BenchWhat};

    fn parse(words: &[&str]) -> EspArgs {
        let all = ["convoy", "bench", "esp"].iter().chain(words);
        let Verb::Bench(BenchArgs { what: BenchWhat::Esp(args) }) =
            Cli::try_parse_from(all).unwrap().verb
        else {
            panic!("another verb");
        };
        args
    }

    #[test]
    fn shapes_follow_from_the_number_of_sas() {
        let words =
            ["--suite", "aes-128-gcm-16", "--sas", "1,100", "--sizes", "64", "--mix", "none"];
        let tasks = Plan::new(&parse(&words));
        let shapes: Vec<_> = tasks.unwrap().tasks.iter().map(|(_, task)| task.shape).collect();
        let counts = |shape: &Shape| (shape.sas, shape.policies, shape.flows);
        assert_eq!(shapes.iter().map(counts).collect::<Vec<_>>(), [(1, 1, 64), (100, 100, 100)]);
    }

    #[test]
    fn faults_are_read_by_name() {
        assert!(Plan::new(&parse(&[])).unwrap().tasks[0].1.faults.is_none());
        let some = Plan::new(&parse(&["--faults"])).unwrap().tasks[0].1.faults.unwrap();
        assert!(some.loss > 0.0 && some.reordering > 0.0 && some.bit_flip > 0.0);
        let named = parse(&["--faults=loss=0.5,flip=1"]);
        let named = Plan::new(&named).unwrap().tasks[0].1.faults.unwrap();
        assert_eq!((named.loss, named.bit_flip, named.duplication), (0.5, 1.0, 0.0));
    }

    #[test]
    fn wrong_arguments_are_told_what_is_right() {
        for (words, said) in [
            (&["--suite", "rot13"][..], "--suite list"),
            (&["--sizes", "39"], "40 to 8900"),
            (&["--mix", "imax"], "imix-paper"),
            (&["--sas", "0"], "a policy for each SA"),
            (&["--sas", "64", "--policies", "63"], "a policy for each SA"),
            (&["--policies", "600000"], "524288"),
            (&["--policies", "100", "--flows", "99"], "a flow for each policy"),
            (&["--faults=rain=0.1"], "reordering, flip"),
            (&["--faults=loss=2"], "from 0 to 1"),
            (&["--seconds", "0"], "at most 3600"),
            (&["--packets", "0"], "at least one"),
            (&["--burst", "0"], "1 to 256 packets"),
            (&["--burst", "257"], "1 to 256 packets"),
            (&["--workers", "0"], "a processor for each"),
            (&["--workers", "1", "--sas", "0"], "a policy for each SA"),
            (&["--engine", "abacus"], "no driver is called"),
            (&["--engine", "two-pass", "--suite", "aes-128-ccm-16"], "none of these suites"),
            (&["--tier", "mmx"], "valid names are portable"),
            (&["--sizes", "none", "--mix", "none"], "nothing is left"),
        ] {
            let error = Plan::new(&parse(words)).err().unwrap();
            assert!(error.contains(said), "{words:?}: {error}");
        }
    }
}
