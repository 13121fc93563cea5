//! One point: cycles per packet, each direction, and over what the crypto library alone needs.

use std::time::{Duration, Instant};

use convoy_crypto::time_stamp;
use convoy_ipsec::pipeline::Stage;
use convoy_ipsec::spd::{Decision, Direction, FlowCache, Spd};
use convoy_packet::BURST_MAX;
use convoy_wire::{FlowKey, Ports};

use super::alone::{Alone, Cycles};
use super::books::Books;
use super::rig::{Lap, Rig, RigError, Spent, Task};
use super::stages::{StageCost, StageSamples, Watch};
use crate::maker::Maker;
use crate::mix::{Numbers, Sizes};
use crate::run::interruptions;
use crate::stats::Summary;

/// Fewest and most rounds of a point.
const ROUNDS: (u32, u32) = (16, 20_000);
/// Fewest rounds before the first that counts.
const WARM_UP: u64 = 8;
/// Extra time of a point as long as every burst was disturbed.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many packets of each flow come before that, in the mean: what is remembered about flows and SAs
/// is found out once, and the figures are of what follows.
const SEEN: usize = 4;
/// The library alone is given the burst that the pipelines had so many rounds before, so that
/// neither finds keys in the caches because the other has just used them.
const BEHIND: u64 = 64;

/// One point that was measured. Costs are in cycles of the time-stamp counter.
#[derive(Clone, Debug)]
pub struct Point {
    /// Name of the suite.
    pub suite: String,
    /// Size of inner packets, or the name of the mix.
    pub size: Sizes,
    /// Mean length of the inner packets in bytes.
    pub inner_bytes: f64,
    /// SAs in each direction.
    pub sas: usize,
    /// Policies in each direction.
    pub policies: usize,
    /// Flows, taken at random.
    pub flows: usize,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Packets of a burst.
    pub burst: usize,
    /// Name of the engine.
    pub engine: String,
    /// The tier of the keys.
    pub tier: &'static str,
    /// Bursts that were measured, and those that other programs came into.
    pub bursts: usize,
    /// Bursts that were not counted because other programs came into them.
    pub disturbed: usize,
    /// From inner packet to ESP packet.
    pub outbound: DirectionCost,
    /// From ESP packet to inner packet.
    pub inbound: DirectionCost,
    /// One look-up in the SPD of a flow that its cache knows.
    pub lookup: Summary,
    /// One look-up in the SPD of a new flow.
    pub lookup_new: Summary,
    /// Rounds of both: of known flows, and of new ones.
    pub lookups: [Vec<f64>; 2],
    /// Counts of all packets; they add up if every packet is accounted for.
    pub books: Books,
}

/// Costs of one direction per packet.
#[derive(Clone, Debug)]
pub struct DirectionCost {
    /// The pipeline, cryptography included; generator, sink and I/O excluded.
    pub pipeline: Summary,
    /// The crypto library alone.
    pub crypto: Summary,
    /// Cycles that the pipeline adds, burst by burst.
    pub over: Summary,
    /// Costs of its stages, if they were watched.
    pub stages: Vec<StageCost>,
    /// All rounds.
    pub samples: Samples,
}

/// Samples of one direction in the order in which they were taken, in cycles per packet.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// The pipeline.
    pub pipeline: Vec<f64>,
    /// The crypto library alone.
    pub crypto: Vec<f64>,
    /// The pipeline's stages.
    pub stages: StageSamples,
}

impl Samples {
    fn push(&mut self, spent: Spent, alone: u64, burst: usize) {
        self.pipeline.push(spent.each());
        self.crypto.push(alone as f64 / burst as f64);
    }

    fn way(self) -> DirectionCost {
        let differences = self.pipeline.iter().zip(&self.crypto).map(|(all, part)| all - part);
        let over: Vec<_> = differences.collect();
        let sum = |samples: &[f64]| Summary::of(samples).unwrap_or_default();
        DirectionCost {
            pipeline: sum(&self.pipeline),
            crypto: sum(&self.crypto),
            over: sum(&over),
            stages: self.stages.costs(),
            samples: self,
        }
    }
}

impl Samples {
    /// The pipeline without a stage, which without a look into the stages takes no time.
    #[must_use]
    pub fn behind(&self, stage: Stage) -> Vec<f64> {
        let spent = self.stages.of(stage).iter().copied().chain(std::iter::repeat(0.0));
        self.pipeline.iter().zip(spent).map(|(all, part)| all - part).collect()
    }
}

/// Measures `task` with `maker` for about `time`, and up to ten seconds longer, until nobody disturbs a burst;
/// `W` is `()`, or a [`Clock`](super::stages::Clock) to look into the stages as well.
///
/// # Errors
/// [`RigError`].
pub fn measure<W: Watch>(maker: &Maker, task: &Task, time: Duration) -> Result<Point, RigError> {
    let mut rig = Rig::<W>::new(maker, task)?;
    let alone = Alone::new(task.suite, task.burst, rig.pool());
    let mut alone = alone.ok_or(RigError::Broken("no frames for the library alone"))?;
    let mut look = LookUps::new(&rig);
    let begin = Instant::now();
    let warm_up = WARM_UP.max((SEEN * task.shape.flows / task.burst.max(1)) as u64);
    for number in 0..warm_up {
        round(&mut rig, &mut alone, number)?;
        look.measure(&rig, number);
    }
    let each = begin.elapsed().as_secs_f64() / warm_up as f64;
    let rounds = ((time.as_secs_f64() / each.max(1e-9)) as u32).clamp(ROUNDS.0, ROUNDS.1);
    let (mut outbound, mut inbound) = (Samples::default(), Samples::default());
    look.warm.clear();
    look.new.clear();
    let (begin, mut disturbed) = (Instant::now(), 0);
    for number in warm_up.. {
        let before = interruptions();
        let (lap, cycles) = round(&mut rig, &mut alone, number)?;
        look.measure(&rig, number);
        if interruptions() == before {
            outbound.push(lap.outbound, cycles.seal, task.burst);
            inbound.push(lap.inbound, cycles.open, task.burst);
            outbound.stages.push(lap.outbound_stages, lap.outbound.packets);
            inbound.stages.push(lap.inbound_stages, lap.inbound.packets);
        } else {
            disturbed += 1;
        }
        // The first rounds may have been faster than the rest; a point may take twice its time.
        let (done, elapsed) = (number - warm_up + 1, begin.elapsed());
        let is_over = elapsed > 2 * time && done > u64::from(ROUNDS.0) || done >= u64::from(rounds);
        if is_over && (!outbound.pipeline.is_empty() || elapsed > time + PATIENCE) {
            break;
        }
    }
    let lengths = rig.traffic.lengths();
    let inner_bytes = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
    alone.release(rig.pool());
    let shape = task.shape;
    Ok(Point {
        suite: task.suite.to_string(),
        size: task.sizes,
        inner_bytes,
        sas: shape.sas,
        policies: shape.policies,
        flows: shape.flows,
        esn: shape.esn,
        burst: task.burst,
        engine: maker.name().to_owned(),
        tier: rig.site.tier().name(),
        bursts: outbound.pipeline.len(),
        disturbed,
        outbound: outbound.way(),
        inbound: inbound.way(),
        lookup: Summary::of(&look.warm).unwrap_or_default(),
        lookup_new: Summary::of(&look.new).unwrap_or_default(),
        lookups: [look.warm, look.new],
        books: rig.finish()?,
    })
}

/// Gives pipelines and library one burst each, the other one first each time.
fn round<W: Watch>(
    rig: &mut Rig<W>,
    alone: &mut Alone,
    number: u64,
) -> Result<(Lap, Cycles), RigError> {
    let forged = RigError::Broken("the library alone did not open what it had sealed");
    let before = number.wrapping_sub(BEHIND);
    if number.is_multiple_of(2) {
        let lap = rig.lap(number)?;
        Ok((lap, alone.measure(&rig.site, &rig.traffic, before).ok_or(forged)?))
    } else {
        let cycles = alone.measure(&rig.site, &rig.traffic, before).ok_or(forged)?;
        Ok((rig.lap(number)?, cycles))
    }
}

/// Look-ups in the SPD alone: of flows that its cache knows, and of new ones.
struct LookUps {
    keys: Vec<FlowKey>,
    found: Vec<Option<Decision>>,
    known: FlowCache,
    unknown: FlowCache,
    ports: Numbers,
    warm: Vec<f64>,
    new: Vec<f64>,
}

impl LookUps {
    /// Shows all flows to the cache that is to know them.
    fn new<W: Watch>(rig: &Rig<W>) -> Self {
        let mut this = Self {
            keys: Vec::with_capacity(BURST_MAX),
            found: Vec::with_capacity(BURST_MAX),
            known: FlowCache::default(),
            unknown: FlowCache::default(),
            ports: Numbers::new(14),
            warm: Vec::new(),
            new: Vec::new(),
        };
        let snapshot = rig.site.published.current();
        let flows: Vec<_> = (0..rig.site.shape.flows as u32).collect();
        for flows in flows.chunks(BURST_MAX) {
            this.keys.clear();
            this.keys.extend(flows.iter().filter_map(|&flow| rig.traffic.key(flow)));
            lookup(snapshot.spd(), &this.keys, &mut this.known, &mut this.found);
        }
        this
    }

    fn measure<W: Watch>(&mut self, rig: &Rig<W>, burst: u64) {
        let snapshot = rig.site.published.current();
        self.keys.clear();
        self.keys.extend(rig.traffic.flows(burst).filter_map(|flow| rig.traffic.key(flow)));
        let cycles = lookup(snapshot.spd(), &self.keys, &mut self.known, &mut self.found);
        self.warm.push(cycles);
        for key in &mut self.keys {
            let (src, dst) = (self.ports.below(1 << 16) as u16, self.ports.below(1 << 16) as u16);
            key.ports = Ports::Known { src, dst };
        }
        let cycles = lookup(snapshot.spd(), &self.keys, &mut self.unknown, &mut self.found);
        self.new.push(cycles);
    }
}

/// Cycles per look-up.
fn lookup(
    spd: &Spd,
    keys: &[FlowKey],
    cache: &mut FlowCache,
    found: &mut Vec<Option<Decision>>,
) -> f64 {
    found.clear();
    found.resize(keys.len(), None);
    let start = time_stamp();
    spd.lookup_burst(Direction::Outbound, keys, cache, found);
    let cycles = time_stamp() - start;
    std::hint::black_box(found);
    cycles as f64 / keys.len().max(1) as f64
}
