//! The study: what providers get done side by side, and the highest throughput by file size.

use std::time::Instant;

use super::hub::Hub;
use super::job::{Generator, Job};
use super::run::{Latency, Run, RunError, Served, run};
use super::search::{Bounds, Found, Trial, highest};
use super::server::{Nginx, Setup, Site, TlsConfig, WORKER_CONNECTIONS};
use crate::stats::Median;

/// Connections at once when providers are compared: enough to keep one worker busy.
const DUEL_CONNECTIONS: usize = 4;

/// Whose cryptography a server uses.
pub struct Provider {
    /// Its name.
    pub name: String,
    /// Variables of the server's environment that lead it there.
    pub environment: Vec<(String, String)>,
    /// Reads the number of records that it has sealed, if it counts.
    pub calls: Box<dyn Fn() -> Option<u64>>,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Provider({})", self.name)
    }
}

/// Measurements to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Program that fetches.
    pub generator: Generator,
    /// Ways to serve.
    pub ways: Vec<TlsConfig>,
    /// Providers are compared with these, by number, and this file.
    pub duels: Vec<usize>,
    /// Bytes of that file.
    pub duel_size: u64,
    /// Rounds of a comparison.
    pub rounds: usize,
    /// Seconds of each run in it.
    pub duel_seconds: f64,
    /// The highest throughput is searched with these, by number, for each size.
    pub searches: Vec<usize>,
    /// Bytes of files.
    pub sizes: Vec<u64>,
    /// Seconds of each run of a search.
    pub seconds: f64,
    /// Most runs of a search.
    pub runs: usize,
    /// Handshakes are measured with these, by number.
    pub handshakes: Vec<usize>,
    /// The latency that is bounded, and its bound in seconds.
    pub latency: (Latency, f64),
    /// One of so many connections is decrypted and compared.
    pub verify_every: usize,
    /// Numbers of workers.
    pub workers: Vec<usize>,
    /// Most connections at once that all load processes together can have.
    pub connections: usize,
}

/// Two providers side by side.
#[derive(Clone, Debug)]
pub struct Duel {
    /// Configuration that was served with.
    pub way: TlsConfig,
    /// Bytes of the file.
    pub size: u64,
    /// The first provider, and the second.
    pub providers: [String; 2],
    /// Bytes for each second of the worker's processor time: medians of both.
    pub bytes_per_cpu_second: [f64; 2],
    /// The second in the first, round by round.
    pub ratio: Median,
    /// Bytes for each second of the worker's processor time in each round: of the first, and of the second.
    pub samples: [Vec<f64>; 2],
    /// Rounds.
    pub rounds: usize,
    /// Records that the second provider sealed.
    pub calls: Option<u64>,
}

/// The highest throughput with a way, file and number of workers.
#[derive(Clone, Debug)]
pub struct Peak {
    /// The run with the highest throughput within bounds; none if no number of connections kept them.
    pub best: Option<Run>,
    /// All runs of the search, in their order.
    pub trials: Vec<Trial>,
    /// Whose cryptography.
    pub provider: String,
    /// Configuration that was served with.
    pub way: TlsConfig,
    /// Bytes of the file.
    pub size: u64,
    /// Workers.
    pub workers: usize,
}

/// Cost of a connection without its file.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// Whose cryptography.
    pub provider: String,
    /// Configuration that was served with.
    pub way: TlsConfig,
    /// Milliseconds of the worker's processor time for a connection that fetches one byte.
    pub milliseconds: f64,
    /// The same for a file of 1 MB.
    pub milliseconds_1mb: f64,
}

/// Results so far.
#[derive(Debug, Default)]
pub struct Findings {
    /// Providers side by side.
    pub duels: Vec<Duel>,
    /// Highest throughputs.
    pub peaks: Vec<Peak>,
    /// Handshakes.
    pub handshakes: Vec<Handshake>,
    /// True if it was ended before its time.
    pub is_cut: bool,
}

/// Environment of servers and load processes.
#[derive(Debug)]
pub struct Stage<'a> {
    /// Files and certificates.
    pub site: &'a Site,
    /// The program.
    pub nginx: &'a std::path::Path,
    /// Providers; the first two are compared.
    pub providers: &'a [Provider],
    /// Processors for workers.
    pub cpus: &'a [usize],
    /// Processors of the load processes.
    pub clients: usize,
}

/// Measures everything of the plan, until `go_on` says no. What was measured stays in `findings` also when
/// something fails. Tells `tell` what is next, and how long the rest takes.
///
/// # Errors
/// [`RunError`].
pub fn study(
    hub: &mut Hub,
    stage: &Stage<'_>,
    plan: &Plan,
    findings: &mut Findings,
    go_on: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&str),
) -> Result<(), RunError> {
    let mut progress = Progress::new(plan, stage.providers.len(), tell);
    for &workers in plan.workers.iter().take_while(|_| go_on()) {
        let servers = servers(stage, plan, workers)?;
        let served: Vec<_> = stage
            .providers
            .iter()
            .zip(&servers)
            .map(|(provider, nginx)| Served {
                nginx,
                provider: &provider.name,
                calls: &*provider.calls,
                workers,
                clients: stage.clients,
            })
            .collect();
        let mut study = Study { hub, stage, plan, served: &served, go_on, findings };
        if plan.workers.first() == Some(&workers) {
            study.duels(&mut progress)?;
            study.handshakes(&mut progress)?;
        }
        study.peaks(workers, &mut progress)?;
    }
    findings.is_cut = !go_on();
    Ok(())
}

fn servers(stage: &Stage<'_>, plan: &Plan, workers: usize) -> Result<Vec<Nginx>, RunError> {
    let start = |provider: &Provider| {
        let name = format!("{}-{workers}", provider.name);
        let cpus = stage.cpus.get(..workers).unwrap_or(stage.cpus);
        Nginx::start(&Setup {
            program: stage.nginx,
            site: stage.site,
            name: &name,
            environment: &provider.environment,
            cpus,
            ways: &plan.ways,
        })
    };
    Ok(stage.providers.iter().map(start).collect::<Result<_, _>>()?)
}

/// A study under way, with servers of one number of workers.
struct Study<'a> {
    hub: &'a mut Hub,
    stage: &'a Stage<'a>,
    plan: &'a Plan,
    served: &'a [Served<'a>],
    go_on: &'a dyn Fn() -> bool,
    findings: &'a mut Findings,
}

impl Study<'_> {
    fn job(&self, size: u64, connections: usize, seconds: f64) -> Result<Job, RunError> {
        let cipher = self.plan.ways[0].cipher.clone();
        Ok(Job {
            generator: self.plan.generator,
            server: String::new(),
            path: self.stage.site.file(size)?,
            size,
            cipher,
            connections,
            seconds,
            verify_every: self.plan.verify_every,
            patience: 30.0,
        })
    }

    fn duels(&mut self, progress: &mut Progress<'_>) -> Result<(), RunError> {
        let [first, second, ..] = self.served else { return Ok(()) };
        for &number in &self.plan.duels {
            let way = &self.plan.ways[number];
            let size = self.plan.duel_size;
            let job = self.job(size, DUEL_CONNECTIONS, self.plan.duel_seconds)?;
            let (mut samples, mut calls) = ([Vec::new(), Vec::new()], None);
            for round in 0..self.plan.rounds {
                if !(self.go_on)() {
                    return Ok(());
                }
                let what = || format!("{}, {} MB, round {}", way.name(), size >> 20, round + 1);
                progress.next(2.0 * self.plan.duel_seconds, &what());
                let mut order = [(0, first), (1, second)];
                if round % 2 == 1 {
                    order.reverse();
                }
                for (at, served) in order {
                    let run = run(self.hub, served, number, way, job.clone())?;
                    good(&run)?;
                    samples[at].push(run.bytes_per_cpu_second);
                    if at == 1 {
                        calls = run.calls.map(|more| more + calls.unwrap_or(0));
                    }
                }
            }
            let [one, other] = &samples;
            let ratios: Vec<_> = one.iter().zip(other).map(|(one, other)| other / one).collect();
            let median = |samples: &[f64]| Median::of(samples).unwrap_or_default().median;
            self.findings.duels.push(Duel {
                way: way.clone(),
                size,
                providers: [first.provider.to_owned(), second.provider.to_owned()],
                bytes_per_cpu_second: [median(one), median(other)],
                ratio: Median::of(&ratios).unwrap_or_default(),
                rounds: ratios.len(),
                calls,
                samples,
            });
        }
        Ok(())
    }

    fn handshakes(&mut self, progress: &mut Progress<'_>) -> Result<(), RunError> {
        for &number in &self.plan.handshakes {
            let way = &self.plan.ways[number];
            for served in self.served {
                if !(self.go_on)() {
                    return Ok(());
                }
                let what = format!("{}, {}: handshakes", served.provider, way.name());
                progress.next(2.0 * self.plan.seconds, &what);
                let milliseconds = self.cost(served, number, 1)?;
                let milliseconds_1mb = self.cost(served, number, 1 << 20)?;
                self.findings.handshakes.push(Handshake {
                    provider: served.provider.to_owned(),
                    way: way.clone(),
                    milliseconds,
                    milliseconds_1mb,
                });
            }
        }
        Ok(())
    }

    /// Milliseconds of the workers' processor time for a connection that fetches a file with the way of this number.
    fn cost(&mut self, served: &Served<'_>, number: usize, size: u64) -> Result<f64, RunError> {
        let job = self.job(size, DUEL_CONNECTIONS, self.plan.seconds)?;
        let run = run(self.hub, served, number, &self.plan.ways[number], job)?;
        good(&run)?;
        Ok(1e3 * run.server_cpu / (run.throughput * run.seconds / size as f64).max(1.0))
    }

    fn peaks(&mut self, workers: usize, progress: &mut Progress<'_>) -> Result<(), RunError> {
        let (which, bound) = self.plan.latency;
        let most = (WORKER_CONNECTIONS * workers).min(self.plan.connections);
        let bounds = Bounds { connections: most, latency: bound, runs: self.plan.runs };
        for &size in &self.plan.sizes {
            for &number in &self.plan.searches {
                let way = &self.plan.ways[number];
                for served in self.served {
                    if !(self.go_on)() {
                        return Ok(());
                    }
                    let what = format!("{}, {}, {} MB", served.provider, way.name(), size >> 20);
                    progress.next(self.plan.runs as f64 * self.plan.seconds, &what);
                    let Found { mut trials, best } = highest(&bounds, |connections| {
                        let job = self.job(size, connections, self.plan.seconds)?;
                        let run = run(self.hub, served, number, way, job)?;
                        let (throughput, failures) = (run.throughput, run.failed());
                        let latency = run.latency(which);
                        Ok::<_, RunError>((
                            Trial { connections, throughput, latency, failures },
                            run,
                        ))
                    })?;
                    self.findings.peaks.push(Peak {
                        trials: trials.iter().map(|(trial, _)| *trial).collect(),
                        best: best.map(|at| trials.swap_remove(at).1),
                        provider: served.provider.to_owned(),
                        way: way.clone(),
                        size,
                        workers,
                    });
                }
            }
        }
        Ok(())
    }
}

/// In a comparison nothing may fail.
fn good(run: &Run) -> Result<(), RunError> {
    match run.failures.first() {
        None => Ok(()),
        Some((why, n)) => Err(RunError::Other {
            provider: run.provider.clone(),
            way: run.way.name(),
            what: format!("{n} connections failed: {why}"),
        }),
    }
}

/// State of a running study.
struct Progress<'a> {
    tell: &'a mut dyn FnMut(&str),
    /// Seconds that the rest takes at most.
    rest: f64,
    /// Seconds that the step under way takes at most.
    step: f64,
    begun: Instant,
}

impl<'a> Progress<'a> {
    fn new(plan: &Plan, providers: usize, tell: &'a mut dyn FnMut(&str)) -> Self {
        Self { tell, rest: plan.longest(providers), step: 0.0, begun: Instant::now() }
    }

    /// The next step takes `seconds` at most.
    fn next(&mut self, seconds: f64, what: &str) {
        self.rest = (self.rest - self.step).max(seconds);
        self.step = seconds;
        let gone = self.begun.elapsed().as_secs();
        let line = format!("{gone} s gone, {:.0} s left at most: {what}", self.rest.ceil());
        (self.tell)(&line);
    }
}

impl Plan {
    /// Time that all of it takes at most, in seconds.
    #[must_use]
    pub fn longest(&self, providers: usize) -> f64 {
        let providers = providers as f64;
        let duels = 2.0 * self.duel_seconds * (self.duels.len() * self.rounds) as f64;
        let handshakes = providers * 2.0 * self.seconds * self.handshakes.len() as f64;
        let searches = self.workers.len() * self.sizes.len() * self.searches.len() * self.runs;
        duels + handshakes + providers * self.seconds * searches as f64
    }
}
