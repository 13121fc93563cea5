//! `convoy bench crypto`: what the library costs, beside what others cost.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use convoy_bench::api::CApi;
use convoy_bench::between::Between;
use convoy_bench::class::Class;
use convoy_bench::convoy::MAX_BURST;
use convoy_bench::gate;
use convoy_bench::mix::{Mix, Sizes};
use convoy_bench::peer::PeerError;
use convoy_bench::peer::ipsec_mb::{Arch, IpsecMb};
use convoy_bench::peer::linked::Linked;
use convoy_bench::peer::openssl::OpenSsl;
use convoy_bench::report::{self, LineupInfo, Report};
use convoy_bench::results::LeftOut;
use convoy_bench::results::head::Head;
use convoy_bench::run::{Lineup, Task, fits, pin};
use convoy_bench::workload::Direction;
use convoy_bench::{memory, suite, tiers};
use convoy_crypto::{Cpu, Suite, Tier};

use super::args::BenchCryptoArgs;
use super::json;
use crate::exit::{Exit, Stop};
use crate::output;

pub(super) fn run(args: &BenchCryptoArgs) -> anyhow::Result<Exit> {
    if args.suite.iter().any(|word| word == "list") {
        let names: String = suite::all().map(|suite| format!("{suite}\n")).collect();
        output::print(&names)?;
        return Ok(Exit::Ok);
    }
    let plan = Plan::new(args).map_err(Stop::usage)?;
    let mut absent = Vec::new();
    let lineups = lineups(args, &plan, &mut absent)?;
    let head = Head::now();
    if let Err(error) = pin() {
        eprintln!("bench: cannot stay on one core ({error}); figures will vary more");
    }
    let mut report = Report {
        head,
        lineups: lineups.iter().map(info).collect(),
        gate: Vec::new(),
        points: Vec::new(),
        fits: Vec::new(),
        absent,
        left_out: Vec::new(),
    };
    let count = lineups.len() * plan.tasks.len();
    let all = lineups.iter().flat_map(|lineup| plan.tasks.iter().map(move |task| (lineup, task)));
    for (i, (lineup, task)) in all.enumerate() {
        let name = format!(
            "{} {} on {}, {}, {} keys{}",
            task.suite,
            task.direction.name(),
            lineup.tier,
            task.sizes,
            task.keys,
            match task.between {
                Between::None => String::new(),
                between => format!(", {between} between bursts"),
            }
        );
        eprintln!("bench: {} of {count}: {name}", i + 1);
        match lineup.measure(task) {
            Ok(point) => {
                point.left_out.iter().for_each(|line| eprintln!("bench: without it: {line}"));
                report.points.push(point);
            }
            Err(error) => {
                eprintln!("bench: {error}");
                report.left_out.push(LeftOut::new(name, error));
            }
        }
    }
    report.gate = report::figures(&report.points, plan.base.is_by_amd());
    report.fits = fits(&report.points);
    if args.json {
        json::print(report.results())?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(if report.left_out.is_empty() { Exit::Ok } else { Exit::Trouble })
}

/// More keys than any processor caches.
const KEYS_MAX: usize = 1 << 20;

/// Memory that a key needs at most, Convoy's and the peers' together.
const KEY_BYTES: u64 = 8192;

/// Measurements to make.
struct Plan {
    tasks: Vec<Task>,
    tiers: Vec<Tier>,
    /// The tier that takes part beside each.
    beside: Option<Tier>,
    base: Cpu,
}

impl Plan {
    fn new(args: &BenchCryptoArgs) -> Result<Self, String> {
        let base = Cpu::detect().map_err(|e| e.to_string())?;
        let tiers = tiers::named(&base, &args.tier)?;
        let beside = match &args.beside {
            Some(word) => tiers::named(&base, std::slice::from_ref(word))?.first().copied(),
            None => None,
        };
        for &keys in &args.keys {
            memory::check("--keys", keys, KEY_BYTES, KEYS_MAX)?;
        }
        if !(1..=MAX_BURST).contains(&args.burst) {
            return Err(format!("--burst: a burst has 1 to {MAX_BURST} packets"));
        }
        if !(args.time.is_finite() && args.time > 0.0 && args.time <= 3600.0) {
            return Err("--time: more than 0 and at most 3600 seconds".to_owned());
        }
        Ok(Self { tasks: tasks(args)?, tiers, beside, base })
    }
}

fn tasks(args: &BenchCryptoArgs) -> Result<Vec<Task>, String> {
    let mut subjects: Vec<(Suite, Direction)> = Vec::new();
    if args.suite.is_empty() {
        subjects.extend(gate::ROWS.map(|row| (row.suite, row.direction)));
    }
    for word in &args.suite {
        for suite in suite::parse(word)? {
            subjects.extend([(suite, Direction::Seal), (suite, Direction::Open)]);
        }
    }
    subjects.retain(|(_, direction)| match args.direction.as_str() {
        "seal" => *direction == Direction::Seal,
        "open" => *direction == Direction::Open,
        _ => true,
    });
    let mut sizes = Vec::new();
    for word in args.sizes.iter().filter(|word| *word != "none") {
        match word.parse() {
            Ok(size @ 1..=65_535) => sizes.push(Sizes::Fixed(size)),
            _ => return Err(format!("--sizes: {word:?} is no number of bytes from 1 to 65535")),
        }
    }
    for word in args.mix.iter().filter(|word| *word != "none") {
        sizes.push(Sizes::Mix(word.parse::<Mix>().map_err(|e| format!("--mix: {e}"))?));
    }
    let between = between(args)?;
    let mut tasks = Vec::new();
    for (suite, direction) in subjects {
        for &keys in &args.keys {
            for &sizes in &sizes {
                // 68 bytes is what 64 become in GCM; ciphers with blocks pad them to 80.
                if sizes == Sizes::Fixed(68) && !suite.is_aead() {
                    continue;
                }
                let (burst, time) = (args.burst, Duration::from_secs_f64(args.time));
                tasks.extend(between.iter().map(|&between| Task {
                    suite,
                    direction,
                    sizes,
                    keys,
                    burst,
                    between,
                    time,
                }));
            }
        }
    }
    if tasks.is_empty() {
        return Err("nothing is left to measure: no size, no mix, or no direction".to_owned());
    }
    Ok(tasks)
}

/// Work between bursts, each in turn.
fn between(args: &BenchCryptoArgs) -> Result<Vec<Between>, String> {
    let read = |word: &String| word.parse().map_err(|e| format!("--between: {e}"));
    args.between.iter().map(read).collect()
}

/// Participants on each tier.
fn lineups(
    args: &BenchCryptoArgs,
    plan: &Plan,
    absent: &mut Vec<LeftOut>,
) -> anyhow::Result<Vec<Lineup>> {
    let mut lineups = Vec::new();
    let wants = |name: &str| args.peer.iter().any(|peer| peer == name);
    // Without --peer, whoever is there takes part.
    let optional = args.peer.is_empty();
    let openssl = match optional || wants("openssl") {
        true => excused("openssl", optional, OpenSsl::load(args.openssl.as_deref()), absent)?,
        false => None,
    };
    // What OpenSSL does between bursts it does whether it takes part or not.
    let openssl_between = match between(args).map_err(Stop::usage)?.contains(&Between::OpenSsl) {
        true if openssl.is_some() => openssl.clone(),
        true => excused("openssl", false, OpenSsl::load(args.openssl.as_deref()), absent)?,
        false => None,
    };
    let linked = linked(args, absent)?;
    let named: Option<Arch> = match args.peer_arch.as_str() {
        "auto" => None,
        name => Some(name.parse().map_err(|e| Stop::usage(format!("--peer-arch: {e}")))?),
    };
    let cpu_of = |tier| -> anyhow::Result<Cpu> {
        if sha_ni(args, tier) {
            return Ok(plan.base);
        }
        let denied = std::env::var(Cpu::DENY_VARIABLE).unwrap_or_default();
        Ok(Cpu::without(&format!("{denied},{}", Cpu::SHA_NI))?)
    };
    let base = plan.beside.map(|tier| Ok::<_, anyhow::Error>((cpu_of(tier)?, tier))).transpose()?;
    for &tier in &plan.tiers {
        let sha_ni = sha_ni(args, tier);
        let cpu = cpu_of(tier)?;
        let path = args.ipsec_mb.as_deref();
        let ipsec_mb = match optional || wants("ipsec-mb") {
            true => {
                let peer = match named {
                    Some(arch) => IpsecMb::load(path, arch),
                    None => load_best(path, matching(tier, sha_ni), absent),
                };
                excused("ipsec-mb", optional, peer, absent)?
            }
            false => None,
        };
        let (openssl, openssl_between) = (openssl.clone(), openssl_between.clone());
        let (linked, c_apis) = (linked.clone(), c_apis(args));
        lineups.push(Lineup {
            cpu,
            tier,
            sha_ni,
            base,
            c_apis,
            ipsec_mb,
            openssl,
            linked,
            openssl_between,
        });
    }
    Ok(lineups)
}

/// The ways into the C library that are measured.
fn c_apis(args: &BenchCryptoArgs) -> Vec<CApi> {
    CApi::ALL.into_iter().filter(|api| args.api.iter().any(|name| name == api.name())).collect()
}

/// The peers of this program that are linked in and take part. One that was asked for by name must be.
fn linked(args: &BenchCryptoArgs, absent: &mut Vec<LeftOut>) -> anyhow::Result<Vec<Linked>> {
    let mut linked = Vec::new();
    for peer in Linked::ALL {
        let wanted = args.peer.iter().any(|name| name == peer.name());
        match peer.version() {
            Ok(_) if wanted || args.peer.is_empty() => linked.push(peer),
            Err(error) if wanted => return Err(Stop::usage(error.to_string())),
            Err(error) if args.peer.is_empty() => absent.push(LeftOut::new(peer.name(), error)),
            _ => {}
        }
    }
    Ok(linked)
}

/// The peer with its best manager that starts here; what is better, up to `wanted`, is left out.
fn load_best(
    path: Option<&Path>,
    wanted: Arch,
    absent: &mut Vec<LeftOut>,
) -> Result<Rc<IpsecMb>, PeerError> {
    let peer = IpsecMb::load_best(path, wanted)?;
    let kind = peer.kind();
    if kind != wanted
        && let Err(error) = IpsecMb::load(path, wanted)
    {
        eprintln!("bench: {error}; it takes part with its {kind} manager");
        let one = LeftOut::new(format!("ipsec-mb, its {wanted} manager"), error);
        absent.extend((!absent.contains(&one)).then_some(one));
    }
    Ok(peer)
}

/// True if Convoy's hashes may use the SHA extensions: by default where a processor of the tier has
/// them. The peer's manager of the same kind uses them too, if it starts.
fn sha_ni(args: &BenchCryptoArgs, tier: Tier) -> bool {
    match args.sha_ni.as_str() {
        "on" => true,
        "off" => false,
        _ => matches!(tier, Tier::Vaes256 | Tier::Vaes512),
    }
}

/// The peer's kind of manager that uses what Convoy's tier uses.
const fn matching(tier: Tier, sha_ni: bool) -> Arch {
    match tier {
        Tier::Avx => Arch::AvxType1,
        Tier::Avx2 => Arch::Avx2Type1,
        Tier::Avx512 => Arch::Avx512Type1,
        Tier::Vaes256 => Arch::Avx2Type2,
        Tier::Vaes512 => Arch::Avx512Type2,
        _ if sha_ni => Arch::SseShaNi,
        _ => Arch::SseType1,
    }
}

/// A peer that was not asked for by name may be missing.
fn excused<T>(
    name: &str,
    optional: bool,
    peer: Result<T, PeerError>,
    absent: &mut Vec<LeftOut>,
) -> anyhow::Result<Option<T>> {
    match peer {
        Ok(peer) => Ok(Some(peer)),
        Err(error) if optional => {
            eprintln!("bench: without a peer: {error}");
            absent.push(LeftOut::new(name, error));
            Ok(None)
        }
        Err(error) => Err(Stop::usage(error.to_string())),
    }
}

fn info(lineup: &Lineup) -> LineupInfo {
    let ipsec_mb = lineup.ipsec_mb.as_ref().map(|peer| {
        let (version, arch) = (peer.version(), peer.arch());
        format!("{version}, {arch}")
    });
    let linked = |peer: Linked| {
        let there = lineup.linked.contains(&peer);
        there.then(|| peer.version().ok()).flatten()
    };
    LineupInfo {
        tier: lineup.tier.name(),
        class: Class::of(lineup.tier, lineup.cpu.is_by_amd()),
        sha_ni: lineup.sha_ni,
        ipsec_mb,
        openssl: lineup.openssl.as_ref().map(|peer| peer.version().to_owned()),
        aws_lc: linked(Linked::AwsLc),
        boringssl: linked(Linked::BoringSsl),
    }
}

fn text(report: &Report) -> String {
    let machine = &report.head.machine;
    let mut text = format!(
        "convoy {}: {}\n{}, class {}; kernel {}; time-stamp counter {:.0} MHz; governor {}\n",
        report.head.version,
        report.head.command,
        machine.cpu,
        machine.class.map_or("unknown", Class::name),
        machine.kernel,
        machine.tsc_mhz,
        machine.governor.as_deref().unwrap_or("unknown"),
    );
    for lineup in &report.lineups {
        let name = |peer: &Option<String>| peer.clone().unwrap_or_else(|| "not here".to_owned());
        text += &format!(
            "{} (goals of class {}), SHA extensions {}; intel-ipsec-mb {}; {}",
            lineup.tier,
            lineup.class.name(),
            if lineup.sha_ni { "allowed" } else { "not used" },
            name(&lineup.ipsec_mb),
            lineup.openssl.as_deref().unwrap_or("OpenSSL not here"),
        );
        let linked = [(Linked::AwsLc, &lineup.aws_lc), (Linked::BoringSsl, &lineup.boringssl)];
        for (peer, version) in linked {
            if let Some(version) = version {
                text += &format!("; {} {version}", peer.title());
            }
        }
        text.push('\n');
    }
    if !report.gate.is_empty() {
        let reached = report.gate.iter().filter(|figure| figure.reached).count();
        text += &format!(
            "\nThe fastest peer's time in Convoy's, median ≥ target (! missed); {reached} of {} \
             figures reached\n\n{}",
            report.gate.len(),
            output::table(&report::gate_rows(&report.gate))
        );
    }
    text += &format!(
        "\nCycles of the time-stamp counter; ratio: the peer's time in Convoy's, median \
         (quartiles)\n\n{}",
        output::table(&report::point_rows(&report.points))
    );
    let through_c = report::c_rows(&report.points);
    if through_c.len() > 1 {
        text += &format!(
            "\nThrough the C library, beside intel-ipsec-mb's interfaces that do as much for their callers\n\n{}",
            output::table(&through_c)
        );
    }
    if !report.fits.is_empty() {
        let rows = report::fit_rows(&report.fits);
        text += &format!("\nStraight lines through single sizes\n\n{}", output::table(&rows));
    }
    for LeftOut { what, why } in &report.left_out {
        text += &format!("left out: {what}: {why}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Verb};
    use crate::verbs::bench::{BenchArgs, BenchWhat};

    fn parse(words: &[&str]) -> BenchCryptoArgs {
        let all = ["convoy", "bench", "crypto"].iter().chain(words);
        let Verb::Bench(BenchArgs { what: BenchWhat::Crypto(args) }) =
            Cli::try_parse_from(all).unwrap().verb
        else {
            panic!("another verb");
        };
        args
    }

    #[test]
    fn without_arguments_the_figures_to_reach_are_measured() {
        let tasks = tasks(&parse(&[])).unwrap();
        // Eight rows are of AEADs, which have 68 bytes as well.
        assert_eq!(tasks.len(), 2 * (13 * 6 + 8));
    }

    #[test]
    fn every_target_is_measured_by_default() {
        let tasks = tasks(&parse(&[])).unwrap();
        for row in gate::ROWS {
            for sizes in gate::COLUMNS {
                let wanted = sizes != Sizes::Fixed(68) || row.suite.is_aead();
                let there = tasks.iter().any(|task| {
                    (task.suite, task.direction, task.sizes) == (row.suite, row.direction, sizes)
                });
                assert!(there || !wanted, "{row:?} {sizes}");
            }
        }
    }

    #[test]
    fn arguments_narrow_what_is_measured() {
        let args = parse(&[
            "--suite",
            "aes-128-gcm-16",
            "--sizes",
            "64",
            "--mix",
            "none",
            "--direction",
            "open",
            "--keys",
            "3",
        ]);
        let tasks = tasks(&args).unwrap();
        assert_eq!(tasks.len(), 1);
        assert_eq!((tasks[0].keys, tasks[0].direction), (3, Direction::Open));
    }

    #[test]
    fn each_point_is_measured_with_each_thing_between_bursts() {
        let args = parse(&["--between", "none,pause", "--suite", "aes-128-gcm-16", "--keys", "1"]);
        let tasks = tasks(&args).unwrap();
        for pair in tasks.chunks(2) {
            assert_eq!((pair[0].sizes, pair[0].direction), (pair[1].sizes, pair[1].direction));
            assert_eq!([pair[0].between, pair[1].between], [Between::None, Between::Pause]);
        }
    }

    #[test]
    fn ways_through_c_are_named_by_api() {
        assert_eq!(c_apis(&parse(&[])), CApi::ALL);
        assert_eq!(c_apis(&parse(&["--api", "c-direct,c-job"])), [CApi::Job, CApi::Direct]);
        assert!(c_apis(&parse(&["--api", "rust"])).is_empty());
    }

    #[test]
    fn openssl_between_bursts_must_be_there() {
        let args =
            parse(&["--between", "openssl", "--peer", "none", "--openssl", "/nowhere/lib.so"]);
        let error =
            lineups(&args, &Plan::new(&args).unwrap(), &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("apt install"), "{error}");
        if let Err(error) = OpenSsl::load(None) {
            return println!("SKIPPED: {error}");
        }
        let args = parse(&["--between", "openssl", "--peer", "none"]);
        let lineups = lineups(&args, &Plan::new(&args).unwrap(), &mut Vec::new()).unwrap();
        assert!(lineups[0].openssl.is_none() && lineups[0].openssl_between.is_some());
    }

    #[test]
    fn wrong_arguments_are_told_what_is_right() {
        for (words, said) in [
            (&["--suite", "rot13"][..], "--suite list"),
            (&["--sizes", "0"], "1 to 65535"),
            (&["--sizes", "many"], "1 to 65535"),
            (&["--mix", "imax"], "imix-paper"),
            (&["--tier", "mmx"], "valid names are portable"),
            (&["--keys", "0"], "use 1 to "),
            (&["--keys", "100000000000"], "use 1 to "),
            (&["--burst", "257"], "1 to 256"),
            (&["--time", "0"], "at most 3600"),
            (&["--between", "lunch"], "none, openssl, pause, memory, syscalls"),
            (&["--sizes", "none", "--mix", "none"], "nothing is left"),
        ] {
            let error = Plan::new(&parse(words)).err().unwrap();
            assert!(error.contains(said), "{words:?}: {error}");
        }
    }

    #[test]
    fn peers_use_what_the_tier_uses() {
        assert_eq!(matching(Tier::AesNi, false), Arch::SseType1);
        assert_eq!(matching(Tier::Avx512, false), Arch::Avx512Type1);
        assert_eq!(matching(Tier::Vaes512, true), Arch::Avx512Type2);
    }

    #[test]
    fn auto_takes_the_best_manager_that_starts_here() {
        if let Err(error) = IpsecMb::load(None, Arch::SseType1) {
            return println!("SKIPPED: {error}");
        }
        let tiers: Vec<_> = Cpu::detect().unwrap().tiers().map(Tier::name).collect();
        let args = parse(&["--tier", &tiers.join(",")]);
        for lineup in lineups(&args, &Plan::new(&args).unwrap(), &mut Vec::new()).unwrap() {
            let peer = lineup.ipsec_mb.unwrap();
            assert!(peer.kind() <= matching(lineup.tier, lineup.sha_ni), "{}", lineup.tier);
        }
    }

    #[test]
    fn peer_that_was_asked_for_must_be_there() {
        let args = parse(&["--peer", "ipsec-mb", "--ipsec-mb", "/nowhere/lib.so"]);
        let error =
            lineups(&args, &Plan::new(&args).unwrap(), &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("apt install"), "{error}");
        let args = parse(&["--ipsec-mb", "/nowhere/lib.so", "--openssl", "/nowhere/lib.so"]);
        let alone = lineups(&args, &Plan::new(&args).unwrap(), &mut Vec::new()).unwrap();
        assert!(alone[0].ipsec_mb.is_none() && alone[0].openssl.is_none());
    }
}
