//! Two results beside each other: what got slower, what got faster, and what only seems to.
//!
//! Ratios of Convoy to a peer are compared at points where both hold them, round by round as they were
//! taken: what the machine did meanwhile happened to both sides of a ratio.
//!
//! The test takes rounds for independent. What is different for the whole of a run looks like a change of the program. So of
//! several runs a side each counts once, with its median, and Convoy's own rounds are compared where there is no peer. Of one
//! run a side only ratios are compared, and a change must also be larger than both quartile ranges together.

use std::slice;

use super::{Better, Name, Pair, Point, Results};
use crate::rank::{holm, mann_whitney};
use crate::stats::{Median, Summary};

/// Probability of one or more false alarms among all comparisons of two results, if rounds are independent.
pub const FALSE_ALARMS: f64 = 0.01;

/// Two results cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// They are of other benches.
    #[error("one is of convoy bench {0}, the other of convoy bench {1}")]
    Benches(String, String),
    /// No point is in both.
    #[error("no point is in both")]
    Apart,
}

/// Change of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It got worse by more than the tolerance, and the test gives chance too little for that.
    Loss,
    /// It got better, likewise.
    Gain,
    /// Neither.
    None,
}

/// One thing in both results.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Quantity and place.
    pub point: String,
    /// The ratio or the series that was compared.
    pub what: String,
    /// Medians, of the first and of the second.
    pub medians: [f64; 2],
    /// By how much of the first the second is better; negative where it is worse.
    pub gain: f64,
    /// The probability that chance alone makes both differ so much, corrected for the number of comparisons.
    pub probability: f64,
    /// Verdict.
    pub change: Change,
}

/// All comparisons of two results.
#[derive(Clone, Debug)]
pub struct Comparisons {
    /// In the order of the first.
    pub all: Vec<Comparison>,
    /// Points that are in the first alone, and in the second alone.
    pub apart: [usize; 2],
    /// Points of both that are not compared: one run a side has no ratio there.
    pub without_ratio: usize,
    /// True if the machines are other ones, so that rounds say nothing.
    pub other_machine: bool,
}

impl Comparisons {
    /// Comparisons that changed so.
    pub fn of(&self, change: Change) -> impl Iterator<Item = &Comparison> {
        self.all.iter().filter(move |comparison| comparison.change == change)
    }
}

/// Something that is compared at a point.
enum Subject {
    /// A ratio of what took turns, usually to a peer.
    Ratio { of: Name, to: Name },
    /// Convoy's own rounds.
    Rounds(Name),
}

/// Samples that are to be compared, of the first results and of the second.
struct Match<'a> {
    point: &'a Point,
    what: String,
    better: Better,
    samples: [Vec<f64>; 2],
    /// A change of the medians that is no larger is none.
    least: f64,
}

/// Compares two results. Below `tolerance`, a share of 1, a change is none.
///
/// # Errors
/// [`CompareError`].
pub fn compare(
    first: &Results,
    second: &Results,
    tolerance: f64,
) -> Result<Comparisons, CompareError> {
    compare_runs([slice::from_ref(first), slice::from_ref(second)], tolerance)
}

/// Compares two programs by one run of each or by several. What is compared is what the first run of both has.
///
/// # Errors
/// [`CompareError`].
pub fn compare_runs(runs: [&[Results]; 2], tolerance: f64) -> Result<Comparisons, CompareError> {
    let [Some(first), Some(second)] = runs.map(<[_]>::first) else {
        return Err(CompareError::Apart);
    };
    if let Some(other) = runs.iter().copied().flatten().find(|run| run.bench != first.bench) {
        return Err(CompareError::Benches(first.bench.clone(), other.bench.clone()));
    }
    let twin = |point: &Point, of: &Results| of.points.iter().position(|it| is_same(it, point));
    let pairs: Vec<_> = first
        .points
        .iter()
        .filter_map(|point| Some((point, &second.points[twin(point, second)?])))
        .collect();
    if pairs.is_empty() {
        return Err(CompareError::Apart);
    }
    let alone = second.points.iter().filter(|point| twin(point, first).is_none()).count();
    let is_single = runs.iter().all(|side| side.len() == 1);
    let mut without_ratio = 0;
    let mut matches = Vec::new();
    for (point, other) in &pairs {
        let subjects = subjects(point, other, is_single);
        without_ratio += usize::from(subjects.is_empty());
        matches.extend(subjects.into_iter().filter_map(|(subject, better)| {
            let samples = [samples(runs[0], point, &subject)?, samples(runs[1], point, &subject)?];
            let least = if is_single { spread(&samples) } else { 0.0 };
            Some(Match { point, what: subject.told(), better, samples, least })
        }));
    }
    let raw = matches.iter().map(|Match { samples: [one, other], .. }| mann_whitney(one, other));
    let corrected = holm(&raw.collect::<Vec<_>>());
    let each = matches.iter().zip(corrected);
    Ok(Comparisons {
        all: each.map(|(it, probability)| judge(it, probability, tolerance)).collect(),
        apart: [first.points.len() - pairs.len(), alone],
        without_ratio,
        other_machine: first.machine.cpu != second.machine.cpu,
    })
}

impl Subject {
    fn told(&self) -> String {
        match self {
            Self::Ratio { of, to } => format!("ratio of {} to {}", told(of), told(to)),
            Self::Rounds(name) => format!("rounds of {}", told(name)),
        }
    }

    /// Round by round at a point.
    fn rounds(&self, point: &Point) -> Option<Vec<f64>> {
        match self {
            Self::Ratio { of, to } => point.ratio(of, to),
            Self::Rounds(name) => point.series(name).map(|series| series.rounds.clone()),
        }
    }
}

/// Of one run its rounds; of several, the median of each that has the point.
fn samples(runs: &[Results], point: &Point, subject: &Subject) -> Option<Vec<f64>> {
    let of = |run: &Results| {
        let twin = run.points.iter().find(|it| is_same(it, point))?;
        subject.rounds(twin)
    };
    match runs {
        [run] => of(run),
        runs => {
            let median = |run| Some(Median::of(&of(run)?)?.median);
            let medians: Vec<f64> = runs.iter().filter_map(median).collect();
            (!medians.is_empty()).then_some(medians)
        }
    }
}

fn is_same(one: &Point, other: &Point) -> bool {
    one.quantity == other.quantity && one.place == other.place
}

/// Both quartile ranges together.
fn spread(samples: &[Vec<f64>; 2]) -> f64 {
    let range = |rounds: &Vec<f64>| Summary::of(rounds).map_or(0.0, |it| it.high - it.low);
    samples.iter().map(range).sum()
}

/// Parts of a point that can be compared, with the better direction: ratios to peers; without them, of one run a side ratios of
/// Convoy's own series that took turns, of several its rounds.
fn subjects(one: &Point, other: &Point, is_single: bool) -> Vec<(Subject, Better)> {
    let is_of_both =
        |pair: &&Pair| [one, other].iter().all(|point| point.ratio(&pair.of, &pair.to).is_some());
    let ratio =
        |pair: &Pair| (Subject::Ratio { of: pair.of.clone(), to: pair.to.clone() }, pair.better);
    let by_ratio: Vec<_> = fastest(one, other).filter(is_of_both).map(ratio).collect();
    if !by_ratio.is_empty() {
        return by_ratio;
    }
    if is_single {
        let is_own = |pair: &&Pair| pair.of.is_convoy() && pair.to.is_convoy();
        return one.ratios.iter().filter(is_own).filter(is_of_both).map(ratio).collect();
    }
    let of_convoy = one.series.first().filter(|series| series.name.is_convoy());
    let of_both = of_convoy.filter(|series| other.series(&series.name).is_some());
    of_both.map(|series| (Subject::Rounds(series.name.clone()), one.better)).into_iter().collect()
}

/// Of each peer, and for each interface of Convoy's, the ratio of the peer's best interface: the one that leaves
/// Convoy the least. Those that both points have.
fn fastest<'a>(one: &'a Point, other: &Point) -> impl Iterator<Item = &'a Pair> {
    let mut fastest: Vec<&Pair> = Vec::new();
    for pair in one.ratios.iter().filter(|pair| is_of_peer(pair)) {
        if !other.ratios.iter().any(|it| it.of == pair.of && it.to == pair.to) {
            continue;
        }
        match fastest.iter_mut().find(|known| are_of_one_peer(known, pair)) {
            Some(known) if is_less(pair, known) => *known = pair,
            Some(_) => {}
            None => fastest.push(pair),
        }
    }
    fastest.into_iter()
}

/// A peer, and not what the processor's ports allow.
fn is_of_peer(pair: &Pair) -> bool {
    let [of, to] = [&pair.of, &pair.to];
    of.is_convoy() != to.is_convoy() && [of, to].iter().all(|name| name.who != super::FLOOR)
}

fn are_of_one_peer(one: &Pair, other: &Pair) -> bool {
    let side = |one: &Name, other: &Name| {
        if one.is_convoy() { one == other } else { one.who == other.who }
    };
    side(&one.of, &other.of) && side(&one.to, &other.to)
}

fn is_less(one: &Pair, other: &Pair) -> bool {
    match one.better {
        Better::More => one.summary.median < other.summary.median,
        Better::Less => one.summary.median > other.summary.median,
    }
}

fn told(name: &Name) -> String {
    format!("{} ({})", name.who, name.by)
}

fn judge(it: &Match<'_>, probability: f64, tolerance: f64) -> Comparison {
    let medians = [0, 1].map(|at: usize| Median::of(&it.samples[at]).unwrap_or_default().median);
    let [first, second] = medians;
    let more = if first == second { 0.0 } else { (second - first) / first.abs() };
    let gain = if it.better == Better::More { more } else { -more };
    let is_sure = probability < FALSE_ALARMS && (second - first).abs() > it.least;
    let change = match is_sure {
        true if gain < -tolerance => Change::Loss,
        true if gain > tolerance => Change::Gain,
        _ => Change::None,
    };
    let Point { quantity, place, .. } = it.point;
    let point = format!("{quantity}: {place}");
    Comparison { point, what: it.what.clone(), medians, gain, probability, change }
}
