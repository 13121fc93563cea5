//! `convoy bench tls`: the study of a web server, with OpenSSL's default provider and Convoy's.

mod load;
mod plan;
mod tune;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Args, ValueEnum};
use convoy_bench::class::Class;
use convoy_bench::cores::Cores;
use convoy_bench::peer::PeerError;
use convoy_bench::peer::libssl::LibSsl;
use convoy_bench::peer::openssl::Libcrypto;
use convoy_bench::records::measure::{Effort, Outcome, Point, Sides};
use convoy_bench::records::{Call, RecordCipher, Subject};
use convoy_bench::results::LeftOut;
use convoy_bench::results::head::Head;
use convoy_bench::tls::hub::Hub;
use convoy_bench::tls::job::Generator;
use convoy_bench::tls::report::Report;
use convoy_bench::tls::run::Latency;
use convoy_bench::tls::server::Site;
use convoy_bench::tls::study::{Findings, Provider, Stage, study};
use convoy_crypto::Cpu;
use convoy_openssl::stats::{Counter, Counts};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::json;
use crate::exit::{Exit, Stop};
use crate::interrupt::Interrupt;
use crate::output;
use crate::verbs::openssl_conf::module;

/// Text behind the options in `convoy bench tls --help`.
pub(super) const HELP: &str = "\
Examples:
  convoy bench tls --quick                     # a part of the grid, within three minutes
  convoy bench tls --json > tls.json           # all of it, within half an hour on two processors
  convoy bench tls --sizes 64M --ciphers AES128-SHA,AES128-GCM-SHA256 --seconds 120
  convoy bench tls --address 192.0.2.1 --listen 192.0.2.1:7700 --load-hosts 2
  convoy bench tls --join 192.0.2.1:7700 --token 5f0c…      # on each of the other two hosts
  convoy bench tls --quick --client ab         # Apache Bench fetches, as it did in the study

A study of 2015 measured nginx with AES-128-GCM against AES-128-CBC with HMAC-SHA1, by file size. This does
it again, with OpenSSL's default provider and with Convoy's: nginx of the distribution, one worker on each of
its processors, no keep-alive, so that a connection fetches one file. Load processes begin together and fetch
for a while; the number of connections with the highest throughput is searched, as long as none fails and the longest
latency stays below its bound.

Tables: F14, records at the level of EVP; both providers with one worker, in turn, by the worker's processor
time; what handshakes cost; F15, the highest throughput by file size and number of workers; F16, the workers'
share of their processors at it. BY says what was full: the server, as it should be, or the clients.

The clients do their handshakes with OpenSSL, which alone has all these ciphers. One connection of 32 is
decrypted and compared (--verify); of the others records are counted, so that the server is what is measured.
With --client ab, Apache Bench fetches instead: it decrypts all, and counts files that came whole, so use it
with --seconds 20 or more. A run whose cipher or encrypt-then-MAC was not what was asked for is an error.
Kernel TLS stays off.

Latency is until the first byte of the file by default: a file of 4 GB within two seconds is beyond any link
of the study. Two processors carry one worker and one load process. Ctrl-C ends after the run under way; what was
measured is printed.";

/// `convoy bench tls`
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "options")]
pub struct TlsArgs {
    /// Measure a part of the grid within three minutes: files of 1 and 64 MB, the study's two ciphers, one worker.
    #[arg(long)]
    quick: bool,
    /// Sizes of files, with K, M or G.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = plan::size)]
    sizes: Vec<u64>,
    /// OpenSSL's names of suites to search the highest throughput with.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    ciphers: Vec<String>,
    /// Numbers of workers. Left out: 1, 2, 4 and so on, as long as as many processors are left to clients.
    #[arg(long, value_name = "COUNT", value_delimiter = ',')]
    workers: Vec<usize>,
    /// Time of a run of a search, 0.1 to 86400 seconds; the study took 120.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Rounds in which both providers are compared, 1 to 10000.
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// The latency that is bounded.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "first-byte")]
    latency: Which,
    /// Its bound, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    latency_bound: f64,
    /// Decrypt and compare one of so many connections; "all" for each.
    #[arg(long, value_name = "COUNT", default_value = "32", value_parser = plan::verify)]
    verify: usize,
    /// Program that fetches.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "convoy")]
    client: Client,
    /// nginx.
    #[arg(long, value_name = "FILE", default_value = "nginx")]
    nginx: PathBuf,
    /// A folder with another libssl.so.3 and libcrypto.so.3 for nginx and the clients.
    #[arg(long, value_name = "FOLDER")]
    libraries: Option<PathBuf>,
    /// Convoy's provider. Left out: where `make install` puts it, or beside this program.
    #[arg(long, value_name = "FILE")]
    provider: Option<PathBuf>,
    /// The address that nginx serves on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    address: std::net::IpAddr,
    /// Address at which load processes join; with port 0, any port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: String,
    /// Load processes of other hosts to wait for, 1000 at most; this one then has none of its own.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    load_hosts: usize,
    /// Be a load process of the server there.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "token")]
    join: Option<String>,
    /// Secret that load processes must know. Left out: a new one, which is printed for other hosts.
    #[arg(long, value_name = "TEXT")]
    token: Option<String>,
    /// The processor of a load process.
    #[arg(long, value_name = "NUMBER", requires = "join", hide = true)]
    cpu: Option<usize>,
    /// Change settings of the kernel that hold many connections back, as root; they are set back at the end.
    #[arg(long)]
    tune: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Program that fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Client {
    /// Convoy's load processes
    Convoy,
    /// Apache Bench, as the study had it: it decrypts all, and counts files that came whole
    Ab,
}

impl From<Client> for Generator {
    fn from(client: Client) -> Self {
        match client {
            Client::Convoy => Self::Convoy,
            Client::Ab => Self::ApacheBench,
        }
    }
}

/// The latency that is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Until a connection is there
    Connect,
    /// Until the file begins
    FirstByte,
    /// Until the file is there
    Whole,
}

impl From<Which> for Latency {
    fn from(which: Which) -> Self {
        match which {
            Which::Connect => Self::Connect,
            Which::FirstByte => Self::FirstByte,
            Which::Whole => Self::Whole,
        }
    }
}

/// Refuses numbers with which a run would never end, or could not begin.
fn check(args: &TlsArgs) -> Result<(), String> {
    let seconds = args.seconds.unwrap_or(1.0);
    if !(0.1..=86_400.0).contains(&seconds) {
        return Err(format!("--seconds {seconds}: use 0.1 to 86400"));
    }
    if !(0.001..=3600.0).contains(&args.latency_bound) {
        return Err(format!("--latency-bound {}: use 0.001 to 3600", args.latency_bound));
    }
    let rounds = args.rounds.unwrap_or(1);
    if !(1..=ROUNDS_MAX).contains(&rounds) {
        return Err(format!("--rounds {rounds}: use 1 to {ROUNDS_MAX}"));
    }
    if args.load_hosts > HOSTS_MAX {
        return Err(format!("--load-hosts {}: use 0 to {HOSTS_MAX}", args.load_hosts));
    }
    Ok(())
}

pub(super) fn run(args: &TlsArgs) -> anyhow::Result<Exit> {
    check(args).map_err(Stop::usage)?;
    let tuned = if args.tune { tune::Tuned::raise()? } else { tune::Tuned::default() };
    if let (Some(server), Some(token)) = (&args.join, &args.token) {
        return load::work(args, server, token);
    }
    let trouble = |error: &dyn std::fmt::Display| Stop::usage(error.to_string());
    let cpu = Cpu::detect().map_err(|error| trouble(&error))?;
    let provider = module::named_or_found(args.provider.as_deref(), "--provider")?;
    let library = LibSsl::load(args.libraries.as_deref()).map_err(|error| trouble(&error))?;
    let nginx = version(&args.nginx)?;
    let cpus = Cores::allowed()?;
    let workers = workers(cpus.len(), args.load_hosts > 0);
    let mut plan = plan::plan(args, workers);
    let most = plan.workers.iter().copied().max().unwrap_or(1);
    if most > cpus.len() || plan.workers.contains(&0) {
        let what = format!("--workers: 1 to {}, a processor for each", cpus.len());
        return Err(Stop::usage(what));
    }
    let limit = raise_limit();
    if limit < LEAST_FILES {
        return Err(Stop::usage(format!(
            "{limit} files may be open here, a run needs {LEAST_FILES}: raise the limit (ulimit -n 20000)"
        )));
    }
    let token = args.token.clone().map_or_else(new_token, Ok)?;
    let mut hub = Hub::listen(&args.listen, &token).map_err(|error| trouble(&error))?;
    let server = hub.address().to_string();
    let folder = tempfile::tempdir()?;
    let site = Site::new(folder.path(), args.address).map_err(|error| trouble(&error))?;
    let providers = providers(folder.path(), &provider, args.libraries.as_deref())?;
    let mut clients = cpus.get(most..).unwrap_or_default().to_vec();
    if clients.is_empty() {
        eprintln!(
            "bench: no processor is left for load processes; they share those of the workers"
        );
        clients = cpus.clone();
    }
    let (_local, processes) = match args.load_hosts {
        0 => {
            let libraries = args.libraries.as_deref();
            (Some(load::Local::start(&server, &token, &clients, libraries)?), clients.len())
        }
        hosts => {
            eprintln!("bench: on {hosts} hosts: convoy bench tls --join {server} --token {token}");
            (None, hosts)
        }
    };
    // Those of other hosts may have another limit; connections beyond it fail there, and bound the search.
    let each = usize::try_from(limit - OTHER_FILES).unwrap_or(usize::MAX);
    plan.connections = each.saturating_mul(processes);
    let patience = if args.load_hosts > 0 { HOSTS_PATIENCE } else { OWN_PATIENCE };
    hub.gather(processes, patience).map_err(|error| trouble(&error))?;
    let interrupt = Interrupt::listen()?;
    let mut left_out = left_out(&cpus, &plan.workers);
    let mut report = Report {
        head: Head::now(),
        class: Class::of(cpu.best(), cpu.is_by_amd()),
        tier: cpu.best().name(),
        openssl: library.version().to_owned(),
        nginx,
        providers: providers.iter().map(|provider| provider.name.clone()).collect(),
        generator: plan.generator,
        load_processes: processes,
        latency: args.latency.into(),
        latency_bound: args.latency_bound,
        records: records(args, &provider, &mut left_out)?,
        findings: Findings::default(),
        left_out,
        tuned: tuned.lines(),
        advice: advice(limit),
    };
    let stage = Stage {
        site: &site,
        nginx: &args.nginx,
        providers: &providers,
        cpus: &cpus,
        clients: processes,
    };
    let mut tell = |line: &str| eprintln!("bench: {line}");
    let go_on = || !interrupt.is_set();
    let outcome = study(&mut hub, &stage, &plan, &mut report.findings, &go_on, &mut tell);
    if args.json {
        json::print(report.results())?;
    } else {
        output::print(&report.text(output::table))?;
    }
    match outcome {
        Err(error) => {
            eprintln!("error: {error}");
            Ok(Exit::Trouble)
        }
        Ok(()) if interrupt.is_set() => Ok(Exit::Trouble),
        Ok(()) => Ok(Exit::Ok),
    }
}

/// Rounds of a comparison, and load processes of other hosts, at most.
const ROUNDS_MAX: usize = 10_000;
const HOSTS_MAX: usize = 1000;
/// Files that must be open at once, and those of them that are no connections.
const LEAST_FILES: u64 = 256;
const OTHER_FILES: u64 = 64;
/// Bytes of records in F14, as OpenSSL's `speed` had them.
const F14_SIZES: [usize; 6] = [64, 256, 1024, 4096, 8192, 16_384];
/// Longest time until load processes of this host, and of others, join.
const OWN_PATIENCE: Duration = Duration::from_secs(20);
const HOSTS_PATIENCE: Duration = Duration::from_secs(600);

/// Numbers of workers: powers of two, with as many processors left to clients.
fn workers(cpus: usize, load_elsewhere: bool) -> Vec<usize> {
    let most = if load_elsewhere { cpus } else { (cpus / 2).max(1) };
    (0..).map(|power| 1 << power).take_while(|workers| *workers <= most).collect()
}

/// Points that the machine is too small for.
fn left_out(cpus: &[usize], workers: &[usize]) -> Vec<LeftOut> {
    let most = workers.iter().copied().max().unwrap_or(1);
    let all = [1, 2, 4, 16];
    let out: Vec<_> = all.iter().filter(|n| **n > most).map(ToString::to_string).collect();
    match out.is_empty() {
        true => Vec::new(),
        false => vec![LeftOut::new(
            format!("{} workers, which the study had", out.join(", ")),
            format!("this machine has {} processors, and clients need as many", cpus.len()),
        )],
    }
}

/// Raises the limit of open files to what the kernel allows this process; its children inherit it.
fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Settings of the kernel that hold many connections back.
fn advice(limit: u64) -> Vec<String> {
    let mut advice = Vec::new();
    if limit < 2 * 8192 {
        advice.push(format!(
            "{limit} files may be open: raise the limit (ulimit -n 20000) for 8,192 connections"
        ));
    }
    advice.extend(tune::advice());
    advice
}

/// Name and version that nginx prints.
fn version(nginx: &Path) -> anyhow::Result<String> {
    let output = Command::new(nginx).arg("-v").stdin(Stdio::null()).output().map_err(|error| {
        Stop::usage(format!(
            "{}: {error}; install nginx (Debian and Ubuntu: apt install nginx-light), or name it with --nginx",
            nginx.display()
        ))
    })?;
    let text = String::from_utf8_lossy(&output.stderr);
    Ok(text.trim().trim_start_matches("nginx version: ").to_owned())
}

/// Record calls of the study's two ciphers, for F14.
fn records(
    args: &TlsArgs,
    provider: &Path,
    left_out: &mut Vec<LeftOut>,
) -> anyhow::Result<Vec<Point>> {
    let libcrypto = args.libraries.as_ref().map(|folder| folder.join("libcrypto.so.3"));
    let unfit = |error: PeerError| Stop::usage(error.to_string());
    let library = Libcrypto::load(libcrypto.as_deref()).map_err(unfit)?;
    let sides = Sides::load(&library, provider).map_err(unfit)?;
    let rounds = if args.quick { 11 } else { 41 };
    let effort = Effort { rounds, time: Duration::from_millis(1) };
    let ciphers = RecordCipher::ALL;
    let ciphers = ciphers
        .into_iter()
        .filter(|cipher| ["aes-128-gcm", "aes-128-cbc-hmac-sha1"].contains(&cipher.name));
    let mut points = Vec::new();
    for cipher in ciphers {
        for size in F14_SIZES {
            eprintln!("bench: records of {}, {size} bytes", cipher.name);
            let subject = Subject { cipher, call: Call::Tls12Seal, size };
            match sides.measure(subject, effort)? {
                Outcome::Measured(point) => points.push(point),
                Outcome::NoCipher(by) | Outcome::NoCall(by) => {
                    eprintln!("bench: {by} does not offer {} here", cipher.name);
                    let what = format!("records of {}", cipher.name);
                    left_out.push(LeftOut::new(what, format!("{by} does not offer it here")));
                    break;
                }
            }
        }
    }
    Ok(points)
}

/// OpenSSL's default provider, and Convoy's.
fn providers(
    folder: &Path,
    module: &Path,
    libraries: Option<&Path>,
) -> anyhow::Result<Vec<Provider>> {
    let libraries =
        libraries.map(|path| ("LD_LIBRARY_PATH".to_owned(), path.display().to_string()));
    let conf = folder.join("convoy.cnf");
    let stats = folder.join("convoy.stats");
    fs::write(&conf, crate::verbs::openssl_conf::alone(module, &stats))?;
    let environment = |conf: &str| {
        let conf = ("OPENSSL_CONF".to_owned(), conf.to_owned());
        [conf].into_iter().chain(libraries.clone()).collect()
    };
    let sealed = move || {
        let counts = Counts::read(&stats).ok()?;
        Some(counts.get(Counter::RecordsSealed) + counts.get(Counter::MessagesSealed))
    };
    Ok(vec![
        Provider {
            name: "default".to_owned(),
            environment: environment("/dev/null"),
            calls: Box::new(|| None),
        },
        Provider {
            name: "convoy".to_owned(),
            environment: environment(&conf.display().to_string()),
            calls: Box::new(sealed),
        },
    ])
}

/// Something that cannot be guessed.
fn new_token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
