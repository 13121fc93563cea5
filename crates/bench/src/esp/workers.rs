//! Many workers: the real runtime, each worker between a port that makes packets and a wire that
//! leads back to itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use convoy_engine::front::Sharing;
use convoy_io::mem::{self, MemPort};
use convoy_io::{IoError, Port, PortCounters};
use convoy_ipsec::pipeline::PipelineConfig;
use convoy_ipsec::sa::WorkerId;
use convoy_ipsec::spd::SpdId;
use convoy_packet::{Arena, BURST_MAX, Burst, FrameSize, Pool};
use convoy_runtime::{
    EngineChoice, Runtime, Surroundings, ThreadConfig, WireMatch, WirePort, WorkerPorts,
};
use serde::Serialize;

use super::rig::{RigError, Task};
use super::site::{Shape, Site};
use super::traffic::{Ledger, Traffic};
use crate::maker::Maker;
use crate::mix::{Numbers, Sizes};
use crate::stats::Summary;

/// Frames for each worker.
const FRAMES: u32 = 8192;
/// Both ways through the gateway count the TTL down.
const HOPS: u8 = 2;
/// Runs of each number of workers.
pub const ROUNDS: usize = 7;
/// Before packets are counted.
const WARM_UP: Duration = Duration::from_millis(50);
/// Before packets of workers that help each other are counted: they find out what that is worth meanwhile.
const LONG_WARM_UP: Duration = Duration::from_millis(200);
/// Time in which packets under way must come to their end.
const LIMIT: Duration = Duration::from_secs(10);

/// Rate of one number of workers.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    /// Name of the suite.
    pub suite: String,
    /// Size of inner packets, or the name of the mix.
    pub size: Sizes,
    /// SAs in each direction.
    pub sas: usize,
    /// Name of the engine.
    pub engine: String,
    /// Tier of the keys.
    pub tier: &'static str,
    /// Workers.
    pub workers: u16,
    /// Packets per second of all workers, each protected, opened and checked.
    pub packets: Summary,
    /// Ratio to one worker's rate, in the runs beside these.
    pub ratio: Summary,
    /// Packets per second of each run.
    #[serde(skip)]
    pub runs: Vec<f64>,
    /// Packets per second of one worker, in the run beside.
    #[serde(skip)]
    pub alone: Vec<f64>,
    /// Of all packets, sealed and opened, those that workers without SAs did for others.
    pub helped: f64,
    /// Errors; empty when every packet is accounted for.
    pub errors: Vec<String>,
}

/// Counters of the plain ports of a run, and the flag that stops them.
#[derive(Debug, Default)]
struct Tally {
    stop: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    strange: AtomicU64,
}

/// The plain side of a worker: makes packets of its SAs, and checks those that come back.
struct Generator {
    traffic: Traffic,
    flows: Vec<u32>,
    numbers: Numbers,
    ledger: Ledger,
    next: usize,
    tally: Arc<Tally>,
    counters: PortCounters,
}

impl Port for Generator {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        if self.flows.is_empty() || self.tally.stop.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let before = into.len();
        while !into.is_full() {
            let Some(mut frame) = pool.alloc() else { break };
            let flow = self.flows.get(self.numbers.below(self.flows.len())).copied();
            let lengths = self.traffic.lengths();
            let len = lengths.get(self.next % lengths.len().max(1)).copied();
            let written = flow.zip(len).is_some_and(|(flow, len)| {
                self.traffic.write(&mut frame, flow, self.ledger.sent(), len)
            });
            if !written {
                pool.free(frame);
                break;
            }
            self.next += 1;
            self.ledger.send();
            // There is room: checked above.
            drop(into.push(frame));
        }
        let made = into.len() - before;
        self.tally.sent.fetch_add(made as u64, Ordering::Relaxed);
        Ok(made)
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        let (received, strange) = (self.ledger.received(), self.ledger.strange());
        for frame in from.drain() {
            self.ledger.receive(self.traffic.recognise(frame.data(), HOPS));
            pool.free(frame);
        }
        let add = |place: &AtomicU64, n| place.fetch_add(n, Ordering::Relaxed);
        add(&self.tally.received, self.ledger.received() - received);
        add(&self.tally.strange, self.ledger.strange() - strange);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// A wire that leads back to the worker it begins at.
struct Loop {
    out: MemPort,
    back: MemPort,
}

impl Port for Loop {
    fn rx(&mut self, pool: &mut Pool, into: &mut Burst) -> Result<usize, IoError> {
        self.back.rx(pool, into)
    }

    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        self.out.tx(pool, from)
    }

    fn counters(&self) -> PortCounters {
        self.out.counters()
    }
}

/// Work that is divided among workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// SAs with all that belongs to them: each worker has its share.
    Sas,
    /// The cryptography of packets: all SAs are the first worker's, which the others help.
    Packets,
}

/// Runs of numbers of workers in turn.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// Numbers of workers.
    pub workers: &'a [u16],
    /// Processors of the workers.
    pub cpus: &'a [usize],
    /// Work that is divided among them.
    pub division: Division,
    /// Runs of each number.
    pub rounds: usize,
    /// Time that is spent measuring, all runs together.
    pub time: Duration,
}

/// Workers of one run.
#[derive(Clone, Copy)]
struct Team<'a> {
    workers: u16,
    cpus: &'a [usize],
    division: Division,
}

/// Result of one run.
#[derive(Clone, Default)]
struct Outcome {
    rate: f64,
    helped: f64,
    tier: &'static str,
    errors: Vec<String>,
}

/// Lets each number of workers run in turn.
///
/// # Errors
/// [`RigError`].
pub fn rates(maker: &Maker, task: &Task, runs: &Runs<'_>) -> Result<Vec<Rate>, RigError> {
    let Runs { workers, cpus, division, rounds, time } = *runs;
    let run = |workers, time| run(maker, task, Team { workers, cpus, division }, time);
    let mut samples = vec![Vec::new(); workers.len()];
    let mut alone = Vec::new();
    let mut errors = vec![Vec::new(); workers.len()];
    let mut helped = vec![Vec::new(); workers.len()];
    let mut tier = "";
    let time = time / (rounds * (workers.len() + 1)).max(1) as u32;
    for _ in 0..rounds {
        let one = run(1, time)?;
        alone.push(one.rate);
        tier = one.tier;
        for (at, &n) in workers.iter().enumerate() {
            let outcome = if n == 1 { one.clone() } else { run(n, time)? };
            let places = (samples.get_mut(at), errors.get_mut(at), helped.get_mut(at));
            if let (Some(samples), Some(errors), Some(helped)) = places {
                samples.push(outcome.rate);
                errors.extend(outcome.errors);
                helped.push(outcome.helped);
            }
        }
    }
    let summary = |samples: &[f64]| Summary::of(samples).unwrap_or_default();
    let each = workers.iter().zip(samples).zip(errors.into_iter().zip(helped));
    Ok(each
        .map(|((&workers, samples), (errors, helped))| {
            let ratios: Vec<_> = samples.iter().zip(&alone).map(|(many, one)| many / one).collect();
            Rate {
                suite: task.suite.to_string(),
                size: task.sizes,
                sas: task.shape.sas,
                engine: maker.name().to_owned(),
                tier,
                workers,
                packets: summary(&samples),
                ratio: summary(&ratios),
                runs: samples,
                alone: alone.clone(),
                helped: summary(&helped).mean,
                errors,
            }
        })
        .collect())
}

/// Packets per second of one run, and what was wrong with it.
fn run(maker: &Maker, task: &Task, team: Team<'_>, time: Duration) -> Result<Outcome, RigError> {
    let Team { workers, cpus, division } = team;
    let (owners, engine) = match (division, maker) {
        (Division::Sas, Maker::Driver(driver)) => (workers, EngineChoice::Driver(driver.clone())),
        (Division::Sas, _) => (workers, EngineChoice::Inline),
        (Division::Packets, _) => (1, EngineChoice::Workers(workers.into())),
    };
    let shape = Shape { workers: owners, ..task.shape };
    let site = Site::new(maker, task.suite, shape)?;
    let tier = site.tier().name();
    let traffic = || Traffic::new(shape, task.sizes, task.burst);
    let longest = traffic().lengths().iter().copied().max().unwrap_or_default();
    let frames = FRAMES + u32::try_from(engine.frames()).unwrap_or(u32::MAX);
    let arena = Arena::map(frames * u32::from(workers), FrameSize::for_packet(longest))?;
    let tally = Arc::<Tally>::default();
    let ports = (0..workers).map(|worker| {
        // As much as may come out at once of what had to wait for one burst.
        let (out, back) = mem::pair(&mem::Config { depth: 16 * BURST_MAX, ..Default::default() });
        let flows = (0..shape.flows as u32)
            .filter(|flow| shape.sa_of(*flow) % usize::from(owners) == usize::from(worker));
        let generator = Generator {
            traffic: traffic(),
            flows: flows.collect(),
            numbers: Numbers::new(u64::from(worker) + 15),
            ledger: Ledger::default(),
            next: 0,
            tally: tally.clone(),
            counters: PortCounters::default(),
        };
        WorkerPorts {
            plain: Box::new(generator),
            interfaces: Vec::new(),
            wire: vec![WirePort {
                carries: WireMatch::default(),
                port: Box::new(Loop { out, back }),
            }],
        }
    });
    let pipeline = PipelineConfig {
        worker: WorkerId(0),
        decrement_ttl: true,
        udp6_checksum: true,
        icmp_source_v4: None,
        icmp_source_v6: None,
    };
    let threads = ThreadConfig { pin: cpus.to_vec(), busy_poll: true };
    let surroundings = Surroundings {
        pipeline,
        spds: vec![SpdId::default()],
        engine,
        sharing: Sharing::default(),
        checks: 0,
        arena,
    };
    let runtime =
        Runtime::start(&surroundings, &threads, ports.collect(), &site.published, |_| {})?;
    let stats = runtime.stats().to_vec();
    let helps = matches!(division, Division::Packets) && workers > 1;
    std::thread::sleep(if helps { LONG_WARM_UP } else { WARM_UP });
    let received = || tally.received.load(Ordering::Relaxed);
    let (begin, before) = (Instant::now(), received());
    std::thread::sleep(time);
    // On a busy machine a worker may not have had its turn yet.
    while received() == before && begin.elapsed() < LIMIT {
        std::thread::yield_now();
    }
    let rate = (received() - before) as f64 / begin.elapsed().as_secs_f64();
    tally.stop.store(true, Ordering::Relaxed);
    // A gateway that ends sends what others have sealed for it, but does not receive that again.
    let stopped = Instant::now();
    while received() < tally.sent.load(Ordering::Relaxed) && stopped.elapsed() < LIMIT {
        std::thread::yield_now();
    }
    let end = runtime.stop(LIMIT);

    let mut errors: Vec<_> = end.failures.iter().map(ToString::to_string).collect();
    let (sent, strange) =
        (tally.sent.load(Ordering::Relaxed), tally.strange.load(Ordering::Relaxed));
    if (received(), strange, end.lost) != (sent, 0, 0) {
        let (came, lost) = (received(), end.lost);
        errors.push(format!(
            "{workers} workers: {sent} packets sent, {came} received, {strange} twice or changed, \
             {lost} lost at the end"
        ));
    }
    let mut helped = 0;
    for worker in stats {
        helped += worker.helped.get();
        let drops = worker.pipeline.drops.iter().filter(|(_, n)| *n > 0);
        errors.extend(drops.map(|(why, n)| format!("{workers} workers: {n} times {}", why.name())));
    }
    let frames = arena.frames() as usize;
    if (arena.in_depot(), arena.leaked()) != (frames, 0) {
        errors.push(format!("{workers} workers: {} of {frames} frames back", arena.in_depot()));
    }
    let helped = helped as f64 / (2 * sent).max(1) as f64;
    Ok(Outcome { rate, helped, tier, errors })
}
