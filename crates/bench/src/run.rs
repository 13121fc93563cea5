//! Measuring: everybody in turn, in one process.

use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use convoy_crypto::{Cpu, KeyError, Suite, Tier, time_stamp};

use crate::api::CApi;
use crate::between::{Between, BetweenError, Standing};
use crate::contender::{Contender, Disagreement, compare};
use crate::convoy::Convoy;
use crate::floor::Floor;
use crate::mix::Sizes;
use crate::peer::c;
use crate::peer::ipsec_mb::{self, Checks, IpsecMb};
use crate::peer::linked::Linked;
use crate::peer::openssl::{self, OpenSsl};
use crate::results::CONVOY;
use crate::stats::{Line, Summary};
use crate::workload::{Direction, Workload};

/// Convoy on one tier, and its peers.
#[derive(Debug)]
pub struct Lineup {
    /// Features that this machine may use.
    pub cpu: Cpu,
    /// Convoy's tier.
    pub tier: Tier,
    /// True if hashes may use the SHA extensions.
    pub sha_ni: bool,
    /// Another tier that takes part beside it, with what it may use.
    pub base: Option<(Cpu, Tier)>,
    /// The ways into the C library that are measured beside Rust's.
    pub c_apis: Vec<CApi>,
    /// intel-ipsec-mb, if it takes part.
    pub ipsec_mb: Option<Rc<IpsecMb>>,
    /// OpenSSL, if it takes part.
    pub openssl: Option<Rc<OpenSsl>>,
    /// Peers that were linked in and take part.
    pub linked: Vec<Linked>,
    /// OpenSSL for what runs between bursts, whether it takes part or not.
    pub openssl_between: Option<Rc<OpenSsl>>,
}

/// One point to measure.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The suite.
    pub suite: Suite,
    /// Seal or open.
    pub direction: Direction,
    /// Sizes of packets.
    pub sizes: Sizes,
    /// Number of keys, at random.
    pub keys: usize,
    /// Packets of a burst.
    pub burst: usize,
    /// Work between bursts.
    pub between: Between,
    /// About how long to measure.
    pub time: Duration,
}

/// One point that was measured. Costs are in cycles of the time-stamp counter.
#[derive(Clone, Debug)]
pub struct Point {
    /// Name of the suite.
    pub suite: String,
    /// Seal or open.
    pub direction: Direction,
    /// The size that was asked for, or the name of the mix.
    pub size: Sizes,
    /// Mean length of the texts in bytes: ciphers with blocks round up.
    pub text_bytes: f64,
    /// Number of keys.
    pub keys: usize,
    /// Packets of a burst.
    pub burst: usize,
    /// Work between bursts, outside of what was measured.
    pub between: Between,
    /// Convoy's tier.
    pub tier: &'static str,
    /// True if Convoy's hashes could use the SHA extensions.
    pub sha_ni: bool,
    /// Number of bursts that everybody was given.
    pub rounds: usize,
    /// Cycles of everybody, Convoy first.
    pub samples: Vec<Samples>,
    /// The port floor in cycles per packet, beside each burst; none where no floor is known.
    pub floors: Vec<f64>,
    /// Cycles of Convoy.
    pub convoy: Cost,
    /// The port floor in per cent of what Convoy needs; none where no floor is known.
    pub floor_percent: Option<Summary>,
    /// Costs of Convoy through its C library.
    pub c: Vec<ThroughC>,
    /// The peers by their fastest interfaces.
    pub peers: Vec<Peer>,
    /// Interfaces of peers that computed something else than Convoy and the other interfaces.
    pub left_out: Vec<String>,
}

/// Cycles of one contender, burst by burst.
#[derive(Clone, Debug)]
pub struct Samples {
    /// Whose code it is.
    pub who: &'static str,
    /// By which interface.
    pub api: String,
    /// Cycles per packet, in the order in which bursts were given.
    pub packet: Vec<f64>,
}

/// Cycles of one contender.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Cycles per packet.
    pub packet: Summary,
    /// Cycles per byte of text.
    pub byte: f64,
}

/// Costs of Convoy through one of the C library's interfaces.
#[derive(Clone, Debug)]
pub struct ThroughC {
    /// Name of the interface.
    pub api: &'static str,
    /// Its cycles.
    pub cost: Cost,
    /// Cycles per packet more than by Rust's interface, burst by burst.
    pub over_rust: Summary,
    /// The fastest interface of intel-ipsec-mb that does as much for its caller, if it takes part.
    pub peer: Option<Like>,
}

/// An interface of intel-ipsec-mb beside one of the C library's.
#[derive(Clone, Debug)]
pub struct Like {
    /// Name of the interface.
    pub api: String,
    /// Its time in Convoy's, burst by burst.
    pub ratio: Summary,
    /// Least ratio that is asked for.
    pub target: f64,
    /// True if it was reached.
    pub reached: bool,
}

/// Costs of a peer.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Name of the peer.
    pub who: &'static str,
    /// Its fastest interface.
    pub api: String,
    /// Its cycles by that.
    pub cost: Cost,
    /// Its time in Convoy's time, burst by burst.
    pub ratio: Summary,
    /// Cycles per packet by every interface.
    pub interfaces: Vec<Interface>,
}

/// Cost of a peer by one of its interfaces.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Name.
    pub api: String,
    /// Cycles per packet.
    pub packet: f64,
}

/// A point could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Convoy has no such key.
    #[error("{suite} on {tier}: {error}")]
    Key {
        /// The suite.
        suite: String,
        /// The tier.
        tier: Tier,
        /// The key's error.
        error: KeyError,
    },
    /// Wrong results are not measured.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
    /// The work that was asked for cannot run between bursts.
    #[error(transparent)]
    Between(#[from] BetweenError),
}

/// Fewest and most bursts of a point.
const ROUNDS: (u32, u32) = (16, 4000);
/// Times that a burst is measured again that other programs came into.
const TRIES: usize = 4;

impl Lineup {
    /// Measures one point: checks first that all agree, then gives everybody one burst after the
    /// other, starting with another one each time, and runs between bursts what the task names.
    ///
    /// # Errors
    /// [`BenchError`] if Convoy cannot take part, or no peer computes what it does.
    pub fn measure(&self, task: &Task) -> Result<Point, BenchError> {
        let Task { suite, direction, sizes, keys, burst, between, time } = *task;
        let work = Workload::new(suite, sizes, keys, burst);
        let mut contenders = self.contenders(&work)?;
        let mut standing = Standing::new(between, self.openssl_between.as_ref(), &work)?;
        let (sealed, wrong) = compare(&work, &mut contenders);
        // One interface that is wrong is left out. If nobody agrees with Convoy, Convoy may be.
        let alone = contenders.len() > 1 && wrong.len() + 1 == contenders.len();
        let mut left_out = Vec::new();
        for (place, disagreement) in wrong.into_iter().rev() {
            if alone || place == 0 {
                return Err(disagreement.into());
            }
            contenders.remove(place);
            left_out.push(disagreement.to_string());
        }
        let source = match direction {
            Direction::Seal => work.plain(),
            Direction::Open => sealed,
        };
        let texts: Vec<_> = work.packets.iter().map(|packet| packet.text).collect();
        let floor = Floor::new(suite, self.tier, self.sha_ni);
        let mut arena = source.clone();
        let mut samples = vec![Vec::new(); contenders.len()];
        let mut floors = Vec::new();
        let mut round = |first: usize, samples: Option<&mut [Vec<f64>]>| {
            let mut cycles = vec![0.0; contenders.len()];
            for turn in 0..contenders.len() {
                let who = (first + turn) % contenders.len();
                for _ in 0..TRIES {
                    // In place means that each burst needs its text again, and leaves it in the
                    // caches.
                    arena.copy_from(&source);
                    // Directly in front of the burst: copying uses vectors, too.
                    standing.run();
                    let before = interruptions();
                    let start = time_stamp();
                    contenders[who].run(direction, &work, &mut arena);
                    cycles[who] = (time_stamp() - start) as f64;
                    black_box(arena.bytes());
                    if interruptions() == before {
                        break;
                    }
                }
            }
            if let Some(samples) = samples {
                floors.extend(floor.as_ref().and_then(|floor| floor.measure(&texts)));
                samples.iter_mut().zip(&cycles).for_each(|(all, one)| all.push(*one));
            }
        };
        let begin = Instant::now();
        (0..3).for_each(|first| round(first, None));
        let rounds = time.as_secs_f64() / (begin.elapsed().as_secs_f64() / 3.0).max(1e-9);
        let rounds = (rounds as u32).clamp(ROUNDS.0, ROUNDS.1) as usize;
        (0..rounds).for_each(|first| round(first, Some(&mut samples)));
        let names: Vec<_> = contenders.iter().map(|c| (c.who(), c.api().to_owned())).collect();
        let point = self.point(task, &work, &names, &samples, &floors);
        Ok(Point { left_out, ..point })
    }

    fn contenders(&self, work: &Workload) -> Result<Vec<Box<dyn Contender>>, BenchError> {
        let convoy = Convoy::new(&self.cpu, self.tier, work).map_err(|error| BenchError::Key {
            suite: work.suite.to_string(),
            tier: self.tier,
            error,
        })?;
        let mut all: Vec<Box<dyn Contender>> = vec![Box::new(convoy)];
        if let Some((cpu, tier)) = self.base.filter(|(_, tier)| *tier != self.tier) {
            let base = Convoy::new(&cpu, tier, work);
            all.extend(base.ok().map(|base| Box::new(base) as Box<dyn Contender>));
        }
        let through_c = self.c_apis.iter().filter(|_| self.c_can_do_the_same(work.suite));
        all.extend(through_c.filter_map(|api| c::contender(self.tier, *api, work)));
        if let Some(library) = &self.ipsec_mb {
            let checks = if all.len() > 1 { &Checks::ALL[..] } else { &[Checks::None] };
            all.extend(ipsec_mb::contenders(library, work, checks));
        }
        if let Some(library) = &self.openssl {
            all.extend(openssl::contenders(library, work));
        }
        for peer in &self.linked {
            all.extend(peer.contenders(work));
        }
        Ok(all)
    }

    /// True if the C library uses the kernels that Rust's interface does: it cannot be told to leave the SHA
    /// extensions alone.
    fn c_can_do_the_same(&self, suite: Suite) -> bool {
        self.sha_ni || suite.is_aead()
    }

    /// Sums up; Convoy's samples come first.
    fn point(
        &self,
        task: &Task,
        work: &Workload,
        names: &[(&'static str, String)],
        samples: &[Vec<f64>],
        floors: &[f64],
    ) -> Point {
        let packets = work.packets.len() as f64;
        let text_bytes = work.text_bytes() as f64 / packets;
        let cost = |cycles: &[f64]| {
            let per_packet: Vec<_> = cycles.iter().map(|cycles| cycles / packets).collect();
            let packet = summary(&per_packet);
            Cost { packet, byte: packet.mean / text_bytes }
        };
        let convoy = &samples[0];
        let ratios = |over: &[f64], under: &[f64], factor: f64| -> Vec<f64> {
            over.iter().zip(under).map(|(over, under)| factor * over / under).collect()
        };
        let mut peers: Vec<Peer> = Vec::new();
        for ((who, api), cycles) in names.iter().zip(samples).skip(1) {
            if [CApi::WHO, CONVOY].contains(who) {
                continue;
            }
            let cost = cost(cycles);
            let ratio = summary(&ratios(cycles, convoy, 1.0));
            let interface = Interface { api: api.clone(), packet: cost.packet.mean };
            let Some(peer) = peers.iter_mut().find(|peer| peer.who == *who) else {
                let interfaces = vec![interface];
                peers.push(Peer { who, api: api.clone(), cost, ratio, interfaces });
                continue;
            };
            peer.interfaces.push(interface);
            if ratio.median < peer.ratio.median {
                (peer.api, peer.cost, peer.ratio) = (api.clone(), cost, ratio);
            }
        }
        let rust = peers.iter().find(|peer| peer.who == "ipsec-mb").map(|peer| peer.ratio.median);
        let like = |api: CApi, own: &[f64]| {
            let ratios = names.iter().zip(samples).filter_map(|((who, peer_api), cycles)| {
                let fits = *who == "ipsec-mb" && api.is_like(peer_api);
                fits.then(|| (peer_api, summary(&ratios(cycles, own, 1.0))))
            });
            let (peer_api, ratio) =
                ratios.min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))?;
            let target = api.target(task.suite, task.sizes, rust?);
            let reached = ratio.median >= target;
            Some(Like { api: peer_api.clone(), ratio, target, reached })
        };
        let through_c = names.iter().zip(samples).filter_map(|((who, name), cycles)| {
            let api = CApi::named(name).filter(|_| *who == CApi::WHO)?;
            let more = cycles.iter().zip(convoy).map(|(c, rust)| (c - rust) / packets);
            let over_rust = summary(&more.collect::<Vec<_>>());
            Some(ThroughC {
                api: api.name(),
                cost: cost(cycles),
                over_rust,
                peer: like(api, cycles),
            })
        });
        let c = through_c.collect();
        let per_packet = |cycles: &[f64]| cycles.iter().map(|all| all / packets).collect();
        let each = names.iter().zip(samples).map(|((who, api), cycles)| Samples {
            who,
            api: api.clone(),
            packet: per_packet(cycles),
        });
        let floor_percent = Summary::of(&ratios(floors, convoy, 100.0));
        Point {
            suite: task.suite.to_string(),
            direction: task.direction,
            size: task.sizes,
            text_bytes,
            keys: task.keys,
            burst: task.burst,
            between: task.between,
            tier: self.tier.name(),
            sha_ni: self.sha_ni,
            rounds: convoy.len(),
            samples: each.collect(),
            floors: per_packet(floors),
            convoy: cost(convoy),
            floor_percent,
            c,
            peers,
            left_out: Vec::new(),
        }
    }
}

/// Number of times that the kernel has taken this thread off its core.
pub(crate) fn interruptions() -> i64 {
    use nix::sys::resource::{UsageWho, getrusage};
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches())
}

/// Of samples that are there: a point has at least a few rounds.
fn summary(samples: &[f64]) -> Summary {
    let nothing = Summary { mean: 0.0, median: 0.0, low: 0.0, high: 0.0 };
    Summary::of(samples).unwrap_or(nothing)
}

/// Cost of a packet as a straight line over its length.
#[derive(Clone, Debug)]
pub struct Fit {
    /// Name of the suite.
    pub suite: String,
    /// Seal or open.
    pub direction: Direction,
    /// Number of keys.
    pub keys: usize,
    /// Work between bursts.
    pub between: Between,
    /// Convoy's tier.
    pub tier: &'static str,
    /// Whose cost.
    pub who: &'static str,
    /// The line.
    pub line: Line,
}

/// The lines through points of single sizes, for everybody.
#[must_use]
pub fn fits(points: &[Point]) -> Vec<Fit> {
    let mut fits: Vec<Fit> = Vec::new();
    let same = |a: &Point, b: &Point| {
        (&a.suite, a.direction, a.keys, a.tier, a.between)
            == (&b.suite, b.direction, b.keys, b.tier, b.between)
    };
    for (i, first) in points.iter().enumerate() {
        if points[..i].iter().any(|earlier| same(earlier, first)) {
            continue;
        }
        let group: Vec<_> = points
            .iter()
            .filter(|point| same(point, first) && matches!(point.size, Sizes::Fixed(_)))
            .collect();
        let mut names = vec!["convoy"];
        names.extend(first.peers.iter().map(|peer| peer.who));
        for who in names {
            let cost = |point: &Point| {
                let peer = || point.peers.iter().find(|peer| peer.who == who).map(|peer| peer.cost);
                let cost = if who == "convoy" { Some(point.convoy) } else { peer() };
                cost.map(|cost| (point.text_bytes, cost.packet.mean))
            };
            let through: Vec<_> = group.iter().filter_map(|point| cost(point)).collect();
            fits.extend(Line::through(&through).map(|line| Fit {
                suite: first.suite.clone(),
                direction: first.direction,
                keys: first.keys,
                between: first.between,
                tier: first.tier,
                who,
                line,
            }));
        }
    }
    fits
}

/// Keeps the calling thread on the core it is on.
///
/// # Errors
/// The kernel's error.
pub fn pin() -> Result<usize, nix::Error> {
    let core = nix::sched::sched_getcpu()?;
    let mut set = nix::sched::CpuSet::new();
    set.set(core)?;
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)?;
    Ok(core)
}
